"""Parts of a query over situations; together they have each match once.

A match depends only on the rows of its partition up to its instant, so any cut of time or of the
partitions divides the matches.  Parts in time order keep the order of rows:

===============  ==========================================================================
part             its matches
===============  ==========================================================================
SituationRange   those that become known in a range of time (SituationRanges: in several)
SituationShare   those of the partitions whose keys hash to its number
SituationSpans   those in some of the replay intervals
===============  ==========================================================================

A query over situations is divided so that parts have each match once, ranges in time order:

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

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from ...core.times import INT64_MAX, INT64_MIN
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..conditions.ranges import tail_start
from ..pattern.matcher import MatchLimits
from ..replay.replay_plan import ReplayPlan
from ..replay.situation_intervals import SituationRun, by_time, instants_of, run_replayed
from ..replay.situation_ticks import furthest, run_ticks
from ..situations.compiled import CompiledSituations
from ..situations.stream import SituationStream
from .parts import MatchPart, SpanPart, of_share
from .planning import SHARES_MAX, interval_parts

Check = Callable[[], None] | None


class SituationPart(ABC):
    """A share of the matches of one clause over one snapshot."""

    @property
    @abstractmethod
    def ticks(self) -> tuple[int | None, int | None]:
        """Half-open range of ticks that it reads; None where open."""

    @abstractmethod
    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The result rows, in order."""

    @abstractmethod
    def describe(self) -> str:
        """What it reads, for EXPLAIN."""


@dataclass(frozen=True)
class SituationRange(SituationPart):
    """Matches that become known between two inclusive ticks.  All rows from ``begin`` on are read;
    earlier ones may matter from ``lowest`` on (None: any).
    """

    low: int
    high: int
    begin: int
    lowest: int | None

    @classmethod
    def of(
        cls, snapshot: Snapshot, compiled: CompiledSituations, low: int, high: int
    ) -> SituationRange:
        """The matches that become known in a range; without a bound, everything before is read."""
        reach, span = furthest(compiled), snapshot.time_range
        assert span is not None
        begin, lowest = INT64_MIN if reach is None else max(INT64_MIN, low - reach), None
        if not compiled.partition_by:
            lowest = tail_start(snapshot, span[0], begin - 1, compiled.history + 1)
        elif compiled.gap is not None and not compiled.history:
            lowest = max(INT64_MIN, begin - compiled.gap)
        return cls(low, high, begin, lowest)

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return self.lowest, None if self.high >= INT64_MAX else self.high + 1

    def events(self, snapshot: Snapshot) -> int:
        begin = None if self.begin <= INT64_MIN else self.begin
        return int(snapshot.aggregate((), begin, self.ticks[1]).count)

    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        instants = (self.low, self.high)
        yield from run_ticks(snapshot, compiled, instants, metrics, check, limits)

    def describe(self) -> str:
        return f"matches known from {self.low} to {self.high}"


@dataclass(frozen=True)
class SituationRanges(SituationPart):
    ranges: tuple[SituationRange, ...]

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        lows = [each.ticks[0] for each in self.ranges]
        known = [low for low in lows if low is not None]
        return min(known) if len(known) == len(lows) else None, self.ranges[-1].ticks[1]

    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        for each in self.ranges:
            yield from each.run(snapshot, compiled, metrics, check=check, limits=limits)

    def describe(self) -> str:
        return f"{len(self.ranges)} ranges of time"


@dataclass(frozen=True)
class SituationShare(SituationPart):
    """The partitions whose keys hash to a number; ``last``: the last tick of the whole stream."""

    share: int
    shares: int
    last: int

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return None, None

    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        stream = SituationStream(compiled, limits or MatchLimits(), check)
        for batch in of_share(
            snapshot, compiled.input_columns, compiled.partition_by, self.share, self.shares,
            metrics, check,
        ):  # fmt: skip
            yield from stream.feed(batch)
        yield from stream.finish(last=self.last)

    def describe(self) -> str:
        return f"partitions of share {self.share} of {self.shares}"


@dataclass(frozen=True, eq=False)
class SituationSpans(SituationPart):
    """Some of the intervals of a replay plan, as a ``SpanPart``."""

    spans: MatchPart

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        # the row before an interval may lie anywhere, and the one behind it bounds its time
        return None, None

    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledSituations,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        assert isinstance(self.spans, SpanPart)
        intervals, timeline = self.spans.placed(snapshot)
        plan = ReplayPlan("replay", intervals=intervals, timeline=timeline)
        done = SituationRun(metrics)
        yield from run_replayed(
            snapshot, compiled, plan, done, check or (lambda: None), limits or MatchLimits()
        )

    def describe(self) -> str:
        return self.spans.describe()


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
