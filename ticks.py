"""Ticks: how many make a second, the bounds of the 64 bits that hold them, and moving them.

Times are ``int64`` counts of a unit since 1970-01-01 00:00 UTC (:mod:`chronicle.schema`), and so
are the bounds of every signed value that a stream stores.

Invariant
    Any of the 2**64 ticks may be the time of an event: none of them stands for "no time".  Where
    something may have no time, a flag says so, or a bound that no event lies beyond.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["INT64_MAX", "INT64_MIN", "NS_PER_SECOND", "NS_PER_TICK", "TICKS_PER_SECOND", "moved"]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
NS_PER_SECOND = 1_000_000_000
TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": NS_PER_SECOND}
NS_PER_TICK = {unit: NS_PER_SECOND // ticks for unit, ticks in TICKS_PER_SECOND.items()}

Ticks = TypeVar("Ticks", int, npt.NDArray[np.int64])


def moved(ticks: Ticks, by: int) -> Ticks:
    """A tick, or many, so much later or earlier; the last or first one where there is none."""
    if isinstance(ticks, int):
        return max(INT64_MIN, min(INT64_MAX, ticks + by))
    if abs(by) > INT64_MAX:
        far = INT64_MAX if by > 0 else -INT64_MAX
        return moved(moved(ticks, far), by - far)
    if by >= 0:
        return np.where(ticks > INT64_MAX - by, INT64_MAX, ticks + by)
    return np.where(ticks < INT64_MIN - by, INT64_MIN, ticks + by)
