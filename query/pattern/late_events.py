"""Finds the late events of a time range by comparing event counts per tick.
Within a tick, events committed earlier always come first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .groups import take_ranges

__all__ = ["Late", "late_events"]

IntArray = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Late:
    """Ascending ticks with late events, which follow ``before`` others of the tick."""

    tick: IntArray
    before: IntArray

    def among(self, ticks: IntArray) -> Bools:
        found: Bools = np.zeros(len(ticks), np.bool_)
        begin = np.searchsorted(ticks, self.tick, side="left") + self.before
        found[take_ranges(begin, np.searchsorted(ticks, self.tick, side="right"))] = True
        return found


def late_events(now: IntArray, then: IntArray) -> Late | None:
    """The late events, from ascending ticks now and then; None if events were removed."""
    tick, count = _counted(now)
    had, times = _counted(then)
    before = np.zeros(len(tick), np.int64)
    at = np.searchsorted(tick, had)
    if len(had) and (at.max() >= len(tick) or not np.array_equal(tick[at], had)):
        return None
    before[at] = times
    if (before > count).any():
        return None
    some = before < count
    return Late(tick[some], before[some])


def _counted(ticks: IntArray) -> tuple[IntArray, IntArray]:
    first = np.flatnonzero(np.diff(ticks, prepend=ticks[:1] - 1))
    return ticks[first], np.diff(first, append=len(ticks))
