"""Long replay intervals, divided in time, so that several executors share one.

Cuts (``cuts``) are placed at nearby leaf borders; nothing is open at either end of the interval.
The parts find each match of the interval once, with or without late events.  An interval stays
whole if time cannot be cut (``reach.reach_of``), a neighbour has events of the same time, it
belongs to one partition, or it has few events.
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
"""An interval of so many times the size of a part is divided."""
LEAST_EVENTS = 1 << 13
"""Shorter intervals are not worth a task of their own."""
BORDERS = 1024
"""Leaf borders considered, spread over the stream."""


def divided(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    plan: ReplayPlan,
    wanted: int,
    check: Callable[[], None] | None = None,
) -> dict[int, list[RangePart]]:
    """Parts of the intervals that are too long, by number, for ``wanted`` parts in all."""
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
    given = intervals.by_time.get(number)
    if given is not None:
        return given
    low, high = int(intervals.spans.starts[number]), int(intervals.spans.ends[number])
    return timeline.tick(low), timeline.tick(high - 1)


def _snapped(at: Ints, ticks: Ints, places: Ints, borders: Ints, reach: float) -> Ints:
    right = np.searchsorted(places, at).clip(0, len(places) - 1)
    left = (right - 1).clip(0)
    nearest = np.where(np.abs(places[left] - at) < np.abs(places[right] - at), left, right)
    found: Ints = np.where(np.abs(places[nearest] - at) <= reach, borders[nearest], ticks)
    return found
