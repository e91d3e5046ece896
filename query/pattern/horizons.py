"""WITHIN: compares ticks with a window, exact for all 64-bit ticks.
Compiled code may assume that signed arithmetic does not overflow, so kernels never subtract ticks.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from ...core.native import kernel

__all__ = ["LATEST", "horizon", "within"]

LATEST = np.int64(2**63 - 1)
"""The greatest tick.  Events may have it, so it is a sentinel only in minima."""


@kernel
def horizon(tick, window):
    """Greatest tick of a match that begins at ``tick``; ``window`` is negative without WITHIN."""
    return LATEST if window < 0 or tick > LATEST - window else tick + window


@kernel
def within(first, last, window):
    """Whether a match may span from ``first`` to ``last`` (first <= last)."""
    return last <= horizon(first, window)
