"""Late events by time: which of the events of a range were not there before.

Guarantee
    Of the events of one tick those committed earlier come first for ever, so how many a tick had
    tells which of its events have come since.
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
    """Ticks at which events have come late.

    Attributes
    ----------
    tick, before : int64 arrays
        Ascending ticks, and how many events each had before: those behind them are the late ones.
    """

    tick: IntArray
    before: IntArray

    def among(self, ticks: IntArray) -> Bools:
        """Which of all events of a range, in the order of time, are late."""
        found: Bools = np.zeros(len(ticks), np.bool_)
        begin = np.searchsorted(ticks, self.tick, side="left") + self.before
        found[take_ranges(begin, np.searchsorted(ticks, self.tick, side="right"))] = True
        return found


def late_events(now: IntArray, then: IntArray) -> Late | None:
    """What has come since; None when events are gone.

    Parameters
    ----------
    now, then : int64 arrays
        Ticks of all events of some ranges, ascending.
    """
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
    """Ascending ticks, each once, and how often each is there."""
    first = np.flatnonzero(np.diff(ticks, prepend=ticks[:1] - 1))
    return ticks[first], np.diff(first, append=len(ticks))
