"""Divide a query over situations; the parts have each match once, ranges in time order:

=================================================  =====================================
the plan, the clause                               parts
=================================================  =====================================
replay intervals                                   groups of intervals
whole stream; WITHIN, or durations that bound it   ranges of time, fewer with a long reach
whole stream; PARTITION BY                         groups of partitions
anything else                                      one
=================================================  =====================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from ...core.times import INT64_MIN
from ...store.snapshot import Snapshot
from ..replay.replay_plan import ReplayPlan
from ..replay.situation_intervals import by_time, instants_of
from ..replay.situation_ticks import furthest
from ..situations.compiled import CompiledSituations
from .intervals import interval_parts
from .planning import SHARES_MAX
from .situation_parts import (
    SituationPart,
    SituationRange,
    SituationRanges,
    SituationShare,
    SituationSpans,
)

__all__ = ["SituationSplit", "situation_ranges", "split_situations"]

READ_TWICE = 0.5
"""Maximum fraction of a range that the next one reads again."""


@dataclass(frozen=True)
class SituationSplit:
    """Parts of a query, and the reason for EXPLAIN.  ``parts``: empty if there is nothing to find;
    a single None: the query as it is.
    """

    parts: tuple[SituationPart | None, ...]
    reason: str


def split_situations(
    snapshot: Snapshot,
    compiled: CompiledSituations,
    plan: ReplayPlan,
    parts: Callable[[float], int],
) -> SituationSplit:
    span = snapshot.time_range
    if span is None:
        return SituationSplit((None,), "the stream has no events")
    if plan.spans is not None:
        found = _spans(snapshot, compiled, plan, max(1, parts(plan.replayed())))
        intervals = len(plan.spans if plan.partitions is None else plan.partitions.inside)
        return SituationSplit(found, f"{intervals} replay intervals in {len(found)} groups")
    wanted = parts(1.0)
    if wanted <= 1:
        return SituationSplit((None,), "one part was asked for, or the stream is small")
    ranges = situation_ranges(snapshot, compiled, wanted)
    if len(ranges) > 1:
        return SituationSplit(ranges, f"{len(ranges)} ranges of time")
    why = "neither WITHIN nor durations bound how long a match takes"
    if furthest(compiled) is not None:
        why = "a match may reach over a large part of the stream"
    if compiled.partition_by:
        count = min(wanted, SHARES_MAX)
        shares = tuple(SituationShare(share, count, span[1]) for share in range(count))
        return SituationSplit(shares, f"{count} groups of partitions, because {why}")
    return SituationSplit((None,), f"one part, because {why}")


def _spans(
    snapshot: Snapshot, compiled: CompiledSituations, plan: ReplayPlan, wanted: int
) -> tuple[SituationPart, ...]:
    if by_time(snapshot, compiled):
        ranges = [
            SituationRange.of(snapshot, compiled, low, high)
            for low, high in instants_of(snapshot, compiled, plan)
        ]
        size = -(-len(ranges) // max(1, wanted))
        groups = [tuple(ranges[i : i + size]) for i in range(0, len(ranges), max(1, size))]
        return tuple(map(SituationRanges, groups))
    return tuple(map(SituationSpans, interval_parts(plan, wanted)))


def situation_ranges(
    snapshot: Snapshot, compiled: CompiledSituations, wanted: int
) -> tuple[SituationRange, ...]:
    """At most ``wanted`` ranges that cover all time; one or none if they would not pay."""
    reach, span = furthest(compiled), snapshot.time_range
    if reach is None or span is None or wanted <= 1:
        return ()
    bounds = [INT64_MIN]
    for low, _ in snapshot.ranges(wanted):
        if low is None or low <= span[0]:
            continue
        held = snapshot.aggregate((), None if bounds[-1] == INT64_MIN else bounds[-1], low).count
        if snapshot.aggregate((), max(INT64_MIN, low - reach), low).count <= READ_TWICE * held:
            bounds.append(low)
    return tuple(
        SituationRange.of(snapshot, compiled, low, high - 1)
        for low, high in pairwise([*bounds, span[1] + 1])
    )
