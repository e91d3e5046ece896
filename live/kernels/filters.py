"""Filters in batches: every event's answer as a byte, then one pass that compacts in order.

Purpose
    Thesis, section 4.3.2: evaluating writes answers where the event stands, a second pass makes the
    list of those that hold.  Neither depends on how many hold, so a batch costs the same at any
    selectivity.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from ...compiled import kernel

__all__ = ["compact", "norm_below"]


@kernel
def norm_below(columns, bound, out):
    """Which events have a Euclidean norm below a bound; ``columns`` is (attributes, events)."""
    limit = bound * bound
    for i in range(out.shape[0]):
        total = columns[0, i] * columns[0, i]
        for a in range(1, columns.shape[0]):
            total += columns[a, i] * columns[a, i]
        out[i] = total < limit


@kernel
def compact(holds, out):
    """Numbers of the events that hold, in order; how many there are."""
    n = 0
    for i in range(holds.shape[0]):
        out[n] = i
        n += np.int64(holds[i])
    return n
