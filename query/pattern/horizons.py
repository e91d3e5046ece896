"""WITHIN: whether two ticks are close enough, wherever in 64 bits they lie.

Guarantee
    Exact for all ticks.  Compiled code may take it for granted that signed arithmetic does not
    overflow, so a kernel must not compute a difference that may not fit and look at its sign.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from ...core.native import kernel

__all__ = ["LATEST", "horizon", "within"]

LATEST = np.int64(2**63 - 1)
"""The greatest tick.  An event may have it: it stands for no end only in a minimum."""


@kernel
def horizon(tick, window):
    """Greatest tick of a match that begins at a tick; ``window`` is negative without WITHIN."""
    return LATEST if window < 0 or tick > LATEST - window else tick + window


@kernel
def within(first, last, window):
    """Whether a match may go from one tick to another, which is not before it."""
    return last <= horizon(first, window)
