"""Aggregates of a count window that slides by one event, at a cost independent of its length.

Each window is a suffix of one block of its length and a prefix of the next (van Herk, Gil and
Werman; compare thesis, 4.3.3), so one scan in each direction suffices::

    block        0                1
    events   a b c d          e f g h
               [--suffix--|-prefix-]      window of 4 that ends with f:  c d | e f

Nothing is subtracted, so float sums have no cancellation error.
Window ``i`` has the events ``i - window + 1 .. i`` (thesis, Definition 2.9).
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from ...core.native import kernel

__all__ = ["sliding_max", "sliding_sum"]


@kernel
def sliding_sum(values, window, out):
    """Sums of all windows of ``window`` events; ``out`` has ``len(values) - window + 1``."""
    n = values.shape[0]
    suffix = np.empty(window, values.dtype)
    for begin in range(0, n - window + 1, window):
        total = values[begin + window - 1]
        suffix[window - 1] = total
        for j in range(window - 2, -1, -1):
            total = values[begin + j] + total
            suffix[j] = total
        out[begin] = suffix[0]
        last = min(window - 1, n - window - begin)
        if last > 0:
            total = values[begin + window]
            out[begin + 1] = suffix[1] + total
            for j in range(2, last + 1):
                total += values[begin + window + j - 1]
                out[begin + j] = suffix[j] + total


@kernel
def sliding_max(values, window, out):
    """Maxima of all windows, as ``sliding_sum``."""
    n = values.shape[0]
    suffix = np.empty(window, values.dtype)
    for begin in range(0, n - window + 1, window):
        best = values[begin + window - 1]
        suffix[window - 1] = best
        for j in range(window - 2, -1, -1):
            best = max(values[begin + j], best)
            suffix[j] = best
        out[begin] = suffix[0]
        last = min(window - 1, n - window - begin)
        if last > 0:
            best = values[begin + window]
            out[begin + 1] = max(suffix[1], best)
            for j in range(2, last + 1):
                best = max(best, values[begin + window + j - 1])
                out[begin + j] = max(suffix[j], best)
