"""Parts of an operator whose results become known at instants (``EventOperator``): ranges of time.

A result depends only on events up to its instant and at most the operator's reach before it, so any
cut of time divides the results; parts in time order keep the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from ...core.times import INT64_MAX, INT64_MIN
from ...store.snapshot import Snapshot
from .operator import EventOperator, Part, PartRun, Split

READ_TWICE = 0.5
"""Maximum fraction of a range that the next one reads again."""


@dataclass(frozen=True)
class InstantRange(Part):
    """Results that become known between two inclusive ticks.  All events from ``begin`` on are
    read; earlier ones may matter from ``lowest`` on (None: any).
    """

    low: int
    high: int
    begin: int
    lowest: int | None

    @classmethod
    def of(cls, snapshot: Snapshot, operator: EventOperator, low: int, high: int) -> InstantRange:
        """Without a reach, everything before is read."""
        reach = operator.reach
        begin = INT64_MIN if reach is None else max(INT64_MIN, low - reach)
        return cls(low, high, begin, operator.lowest(snapshot, begin))

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return self.lowest, None if self.high >= INT64_MAX else self.high + 1

    def events(self, snapshot: Snapshot) -> int:
        begin = None if self.begin <= INT64_MIN else self.begin
        return int(snapshot.aggregate((), begin, self.ticks[1]).count)

    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        span = run.snapshot.time_range
        if span is None or self.low > self.high:
            return
        search = run.compiled.begin_at(run, self.low)
        for batch in run.scan_between(max(self.begin, span[0]), self.high):
            yield from search.feed(batch)
        yield from search.finish(min(self.high, span[1]))

    def describe(self) -> str:
        return f"matches known from {self.low} to {self.high}"


NOTHING = InstantRange(1, 0, 0, None)


@dataclass(frozen=True)
class InstantRanges(Part):
    ranges: tuple[InstantRange, ...]

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        lows = [each.ticks[0] for each in self.ranges]
        known = [low for low in lows if low is not None]
        return min(known) if len(known) == len(lows) else None, self.ranges[-1].ticks[1]

    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        for each in self.ranges:
            yield from each.run(run)

    def describe(self) -> str:
        return f"{len(self.ranges)} ranges of time"


def instant_ranges(
    snapshot: Snapshot, operator: EventOperator, wanted: int
) -> tuple[InstantRange, ...]:
    """At most ``wanted`` ranges that cover all time; one or none if they would not pay."""
    reach, span = operator.reach, snapshot.time_range
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
        InstantRange.of(snapshot, operator, low, high - 1)
        for low, high in pairwise([*bounds, span[1] + 1])
    )


def split_instants(snapshot: Snapshot, operator: EventOperator, wanted: int) -> Split:
    ranges = instant_ranges(snapshot, operator, wanted)
    if len(ranges) > 1:
        return Split(ranges, f"{len(ranges)} ranges of time")
    return Split((None,), "the stream is small, or a result may reach over a large part of it")
