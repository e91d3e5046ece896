"""Parts of a query over situations; together they have each match once.

=================================================  =====================================
the plan, the clause                               parts
=================================================  =====================================
replay intervals                                   groups of intervals (``SituationSpans``)
whole stream; WITHIN, or durations that bound it   ranges of instants, fewer with a long reach
whole stream; PARTITION BY                         groups of partitions (``SharePart``)
anything else                                      one
=================================================  =====================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from ...store.snapshot import Snapshot
from ..contract.instants import InstantRange, InstantRanges, instant_ranges
from ..contract.operator import Part, PartRun, Split
from ..replay.replay_plan import ReplayPlan
from ..replay.situation_intervals import SituationRun, by_time, instants_of, run_replayed
from ..situations.compiled import CompiledSituations
from .parts import SharePart, SpanPart
from .planning import SHARES_MAX, interval_parts


@dataclass(frozen=True, eq=False)
class SituationSpans(Part):
    """Some of the intervals of a replay plan, as a ``SpanPart``."""

    spans: Part

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        # the row before an interval may lie anywhere, and the one behind it bounds its time
        return None, None

    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        assert isinstance(self.spans, SpanPart)
        intervals, timeline = self.spans.placed(run.snapshot)
        plan = ReplayPlan("replay", intervals=intervals, timeline=timeline)
        done = SituationRun(run.metrics)
        return run_replayed(
            run.snapshot, run.compiled, plan, done, run.check or (lambda: None), run.limits
        )

    def describe(self) -> str:
        return self.spans.describe()


def split_situations(
    snapshot: Snapshot,
    compiled: CompiledSituations,
    plan: ReplayPlan,
    parts: Callable[[float], int],
) -> Split:
    span = snapshot.time_range
    if span is None:
        return Split((None,), "the stream has no events")
    if plan.spans is not None:
        found = _spans(snapshot, compiled, plan, max(1, parts(plan.replayed())))
        intervals = len(plan.spans if plan.partitions is None else plan.partitions.inside)
        return Split(found, f"{intervals} replay intervals in {len(found)} groups")
    wanted = parts(1.0)
    if wanted <= 1:
        return Split((None,), "one part was asked for, or the stream is small")
    ranges = instant_ranges(snapshot, compiled, wanted)
    if len(ranges) > 1:
        return Split(ranges, f"{len(ranges)} ranges of time")
    why = "neither WITHIN nor durations bound how long a match takes"
    if compiled.reach is not None:
        why = "a match may reach over a large part of the stream"
    if compiled.partition_by:
        count = min(wanted, SHARES_MAX)
        shares = tuple(SharePart(share, count, span[1]) for share in range(count))
        return Split(shares, f"{count} groups of partitions, because {why}")
    return Split((None,), f"one part, because {why}")


def _spans(
    snapshot: Snapshot, compiled: CompiledSituations, plan: ReplayPlan, wanted: int
) -> tuple[Part, ...]:
    if by_time(snapshot, compiled):
        ranges = [
            InstantRange.of(snapshot, compiled, low, high)
            for low, high in instants_of(snapshot, compiled, plan)
        ]
        size = -(-len(ranges) // max(1, wanted))
        groups = [tuple(ranges[i : i + size]) for i in range(0, len(ranges), max(1, size))]
        return tuple(map(InstantRanges, groups))
    return tuple(map(SituationSpans, interval_parts(plan, wanted)))
