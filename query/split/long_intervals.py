"""Long replay intervals, divided inside: several executors share one unbroken stretch.

Purpose
    Intervals are dealt out whole, so one that is longer than a part should be would keep one
    executor busy while the others wait.  :func:`divided` cuts it in time.

Layout
    ::

        interval        [=======================================]
        leaves      |      |      |      |      |      |      |      |
        parts           [---- 1 ------..)[---- 2 -----..)[-- 3 -]

    Cuts lie at borders of leaves where some are near, and are those of :mod:`.cuts`: a part reads
    on as far as a match of its own can reach, and rows of a match that is open at a cut are
    carried.  At both ends of the interval nothing is open: there is no match between two of them.

Guarantee
    The parts find the matches of the interval, each once, with or without late events.

Limits
    Where time cannot be cut (see :func:`.reach.reach_of`), where a neighbour has events of the
    same time, and where an interval belongs to one partition, it stays whole; and so do those of
    few events.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...store.snapshot import Snapshot
from ..pattern.compiled import CompiledMatch
from ..replay.replay_plan import ReplayIntervals, ReplayPlan
from ..replay.timeline import Timeline
from .parts import Cut, RangePart
from .ranges import between, find_cuts
from .reach import Budget, reach_of

__all__ = ["divided"]

Ints = npt.NDArray[np.int64]
LONG = 1.5
"""From so many times the size of a part on, an interval is divided."""
LEAST_EVENTS = 1 << 13
"""What is shorter is not worth a task of its own, however many were asked for."""
BORDERS = 1024
"""Borders of leaves that are looked at, spread over the stream."""


def divided(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    plan: ReplayPlan,
    wanted: int,
    check: Callable[[], None] | None = None,
) -> dict[int, list[RangePart]]:
    """Parts of the intervals that are too long for one, by the number of the interval.

    Parameters
    ----------
    compiled : CompiledMatch
        Without MATCH_NUMBER.
    plan : ReplayPlan
        With spans and the timeline that it was made on.
    wanted : int
        Parts to aim for, of all intervals.
    check : callable, optional
        Called now and then; may raise.
    """
    intervals, timeline = plan.intervals, plan.timeline
    assert intervals is not None
    assert timeline is not None
    spans = intervals.spans
    if wanted < 2 or intervals.partitions is not None or not len(spans):
        return {}
    lengths = spans.ends - spans.starts
    size = spans.total / wanted
    long = np.flatnonzero(lengths > max(LONG * size, LEAST_EVENTS))
    if not len(long):
        return {}
    reach = reach_of(snapshot, compiled)
    if isinstance(reach, str):
        return {}
    borders = np.array([low for low, _ in snapshot.ranges(BORDERS) if low is not None], np.int64)
    places = timeline.lower(borders) if len(borders) else borders
    budget = Budget(snapshot)
    found: dict[int, list[RangePart]] = {}
    for number in long.tolist():
        low, high = _ticks(intervals, timeline, number)
        apart = (number == 0 or _ticks(intervals, timeline, number - 1)[1] < low) and (
            number + 1 == len(spans) or high < _ticks(intervals, timeline, number + 1)[0]
        )
        if not apart:
            continue
        count = round(float(lengths[number]) / size)
        at = spans.starts[number] + lengths[number] * np.arange(1, count) // count
        goals = timeline.ticks_at(at.astype(np.int64))
        if len(places):
            goals = _snapped(at, goals, places, borders, float(size) / 4)
        goals = np.unique(goals[(goals > low) & (goals <= high)])
        cuts, _ = find_cuts(snapshot, compiled, reach, goals.tolist(), (low, high), budget, check)
        if cuts:
            ends = Cut(low, last=low - 1), Cut(high + 1, last=high)
            found[number] = between([ends[0], *cuts, ends[1]], compiled, reach, high)
    return found


def _ticks(intervals: ReplayIntervals, timeline: Timeline, number: int) -> tuple[int, int]:
    """Least and greatest tick of an interval."""
    given = intervals.by_time.get(number)
    if given is not None:
        return given
    low, high = int(intervals.spans.starts[number]), int(intervals.spans.ends[number])
    return timeline.tick(low), timeline.tick(high - 1)


def _snapped(at: Ints, ticks: Ints, places: Ints, borders: Ints, reach: float) -> Ints:
    """Ticks of the nearest border of a leaf, where one is near."""
    right = np.searchsorted(places, at).clip(0, len(places) - 1)
    left = (right - 1).clip(0)
    nearest = np.where(np.abs(places[left] - at) < np.abs(places[right] - at), left, right)
    found: Ints = np.where(np.abs(places[nearest] - at) <= reach, borders[nearest], ticks)
    return found
