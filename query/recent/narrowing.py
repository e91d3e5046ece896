"""A row pattern near some regions only: how a side of a recency join is narrowed.

==========================================  ================================================
clause                                      what is read for a region
==========================================  ================================================
independent matches, bounded                the region, widened by the reach of a match
matches depend on earlier ones, bounded     from a cut before it to a cut behind it
independent matches, unbounded              the region, and on until its matches are decided
else                                        the whole stream
==========================================  ================================================

All matches that lie in one region are found, and those are matches of the whole stream.  Others
that are found may be false, but have no partner as near as they would need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...core.times import INT64_MAX, INT64_MIN
from ...indexes.stream_indexes import StreamIndexes
from ...store.snapshot import Snapshot
from ..pattern.compiled import CompiledMatch
from ..replay.applicability import demands, not_applicable
from ..replay.context import READ_GAP
from ..replay.cost import Weights
from ..replay.near import KeyedRanges, Near
from ..replay.planning import plan_match
from ..replay.replay_plan import ReplayPlan
from ..replay.timeline import Timeline
from ..split.cuts import find_cut, independent
from ..split.reach import Reach
from .open_end import OpenEndedPart, back_to
from .regions import Regions

__all__ = ["Narrowed", "narrow", "obstacle"]

Ints = npt.NDArray[np.int64]
Check = Callable[[], None] | None

CUTS_MAX = 64
"""Most regions, after near ones are merged, for which cuts are searched."""
CUT_TRIES = 4
RANGES_MAX = 4096
"""Most ranges that are read one by one."""


@dataclass(frozen=True)
class Narrowed:
    """How a side is read: by ``replay``, ``part``, or as it would be alone; ``why``: the reason."""

    replay: ReplayPlan | None = None
    part: OpenEndedPart | None = None
    why: str = ""


def obstacle(compiled: CompiledMatch) -> str:
    """Why a clause cannot be narrowed, judged by its text; empty if it can."""
    if compiled.numbered:
        return "MATCH_NUMBER counts all matches"
    reason = not_applicable(replace(compiled, order_by=compiled.order_by[:1]))
    if reason:
        return reason
    if compiled.partition_by and demands(compiled).neighbours:
        return "^, $, PREV or NEXT of a partition may look at events far away"
    if not _bounded(compiled) and not independent(compiled):
        return "nothing bounds a match, and matches depend on earlier ones"
    return ""


def _bounded(compiled: CompiledMatch) -> bool:
    if compiled.within is not None:
        return True
    return _longest(compiled) is not None


def _longest(compiled: CompiledMatch) -> int | None:
    if compiled.partition_by or compiled.clause.selection not in (None, "contiguous"):
        return None
    return compiled.automaton.length_max


def narrow(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    indexes: StreamIndexes | None,
    strategy: str,
    regions: Regions,
    weights: Weights | None = None,
    check: Check = None,
) -> Narrowed:
    """How to find the matches in regions; the result has the columns ``@start`` and ``@end``."""
    if not len(regions) or snapshot.time_range is None:
        none = np.zeros(0, np.int64)
        return Narrowed(part=OpenEndedPart(none, none, none, "@start"), why="no region is left")
    if not _bounded(compiled):
        return _open_ended(snapshot, compiled, regions, check)
    if not independent(compiled):
        return _between_cuts(snapshot, compiled, indexes, strategy, regions, weights, check)
    within, longest = compiled.within, _longest(compiled)
    if within is None:
        assert longest is not None
        hull, rows = regions.hull(), longest
    else:
        hull, rows = regions.hull().widened(within, within), 0
    keyed = None
    if regions.columns and within is not None:
        wide = regions.widened(within, within)
        keyed = KeyedRanges(wide.low, wide.high, wide.key, wide.columns, wide.values)
    near = Near(hull.low, hull.high, rows, keyed)
    return _planned(snapshot, compiled, indexes, strategy, near, weights, check)


def _planned(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    indexes: StreamIndexes | None,
    strategy: str,
    near: Near,
    weights: Weights | None,
    check: Check,
) -> Narrowed:
    plan = plan_match(
        snapshot, compiled, indexes, strategy, weights=weights, check=check, near=near
    )
    return Narrowed(replay=plan) if plan.intervals is not None else Narrowed(why=plan.reason)


def _between_cuts(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    indexes: StreamIndexes | None,
    strategy: str,
    regions: Regions,
    weights: Weights | None,
    check: Check,
) -> Narrowed:
    reach = Reach(snapshot, compiled)
    hull = regions.hull()
    # one pair of cuts for regions that are near by the length of a match
    apart = 8 * (compiled.within or 0)
    low, high = _joined(Timeline(snapshot), hull.low, hull.high, READ_GAP, apart)
    if len(low) > CUTS_MAX:
        return Narrowed(why=f"{len(low)} regions, and each would need cuts around it")
    lows, highs = [], []
    for first, last in zip(low.tolist(), high.tolist(), strict=True):
        tick = first
        for _ in range(CUT_TRIES):
            tick = reach.back(tick)
            if tick <= reach.first:
                tick = INT64_MIN
                break
            if _clean(snapshot, compiled, reach, tick, check):
                break
        else:
            return Narrowed(why="no place was found before a region that no match crosses")
        lows.append(tick)
        tick = last
        for _ in range(CUT_TRIES):
            tick = min(reach.ahead(tick), INT64_MAX - 1) + 1
            if tick > reach.last:
                tick = INT64_MAX
                break
            if _clean(snapshot, compiled, reach, tick, check):
                break
        else:
            return Narrowed(why="no place was found behind a region that no match crosses")
        highs.append(tick - 1 if tick < INT64_MAX else INT64_MAX)
    found = Regions.of(np.array(lows, np.int64), np.array(highs, np.int64))
    near = Near(found.low, found.high)
    return _planned(snapshot, compiled, indexes, strategy, near, weights, check)


def _clean(
    snapshot: Snapshot, compiled: CompiledMatch, reach: Reach, tick: int, check: Check
) -> bool:
    cut, _ = find_cut(snapshot, compiled, reach, tick, check)
    return cut is not None and not len(cut.carried)


def _open_ended(
    snapshot: Snapshot, compiled: CompiledMatch, regions: Regions, check: Check
) -> Narrowed:
    timeline = Timeline(snapshot)
    hull = regions.hull()
    low, high = _joined(timeline, hull.low, hull.high, READ_GAP, 0)
    span = snapshot.time_range
    if span is not None:
        inside = (low <= span[1]) & (high >= span[0])
        low, high = np.maximum(low[inside], span[0]), high[inside]
    if len(low) > RANGES_MAX:
        return Narrowed(why=f"{len(low)} regions, and nothing bounds a match")
    keys = tuple(zip(regions.columns, regions.values, strict=True))
    if compiled.clause.mode != "incremental":
        return Narrowed(part=OpenEndedPart(low, high, low, "@start", keys))
    begin = np.empty_like(low)
    for i, (first, last) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        found = back_to(snapshot, timeline, compiled, first, last, keys, check)
        if found is None:
            return Narrowed(why="matches may have begun long before a region")
        begin[i] = found
    return Narrowed(part=OpenEndedPart(low, high, begin, "@end", keys))


def _joined(
    timeline: Timeline, low: Ints, high: Ints, events: int, ticks: int
) -> tuple[Ints, Ints]:
    if len(low) < 2 or not timeline.total:
        return low, high
    gap = timeline.lower(low[1:]) - timeline.upper(high[:-1])
    near = (gap <= events) | (low[1:].astype(np.float64) - high[:-1] <= ticks)
    first = np.flatnonzero(np.concatenate(([True], ~near)))
    return low[first], high[np.append(first[1:], len(low)) - 1]
