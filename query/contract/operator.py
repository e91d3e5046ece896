"""What a clause over events, a search for its results, and a part of them promise.

One contract serves every way to run a clause::

    ad hoc             begin, feed all events, finish
    replay interval    begin, feed the events of the interval, finish
    Spark part         the same in another process: a ``Part`` can be pickled
    live step          a search that goes on: feed the events since the last step
    late events        the results of a region again; the difference is emitted

``EventOperator`` is for clauses whose results each become known at an instant and depend only on
events at most ``reach`` ticks before it.  For those everything but the clause itself is written
once (``query.operators``, ``live.instant_form``): any cut of time divides their results, and
parts in time order keep the order of rows (``InstantRange``).  A row pattern has no such bound in
ticks from one instant, so it is cut where searches converge (``query.split.cuts``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ...core.times import INT64_MAX, INT64_MIN, half_open, moved

if TYPE_CHECKING:
    from ...store.segment import ScanMetrics
    from ...store.snapshot import Snapshot
    from ...store.tap import Spans

Check = Callable[[], None] | None
"""Called between batches and kernels; raises where the work must stop."""


@dataclass(frozen=True)
class MatchLimits:
    """Budgets of a query: states per first event; states in all, besides ``STEPS_A_ROW`` per row;
    bytes of rows, partial matches and matches not yet output.
    """

    steps_max: int = 200_000_000
    query_steps_max: int = 1_000_000_000
    memory_bytes: int = 2 << 30


class Search(ABC):
    """A search for the results of a clause over batches of its input in time order."""

    @abstractmethod
    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch; yields results that no later event can change."""

    @abstractmethod
    def finish(self, last: int | None = None) -> Iterator[pa.RecordBatch]:
        """No event up to tick ``last`` is missing (None: up to that of the last event)."""


class Clause(ABC):
    """A clause bound to the columns of its input."""

    @property
    @abstractmethod
    def input_columns(self) -> list[str]:
        """Columns that a search reads."""

    @property
    @abstractmethod
    def output_schema(self) -> pa.Schema: ...

    @abstractmethod
    def begin(self, limits: MatchLimits, check: Check) -> Search: ...

    def run(
        self,
        batches: Iterable[pa.RecordBatch],
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The results over all of an input in time order."""
        search = self.begin(limits or MatchLimits(), check)
        for batch in batches:
            yield from search.feed(batch)
        yield from search.finish()


class EventOperator(Clause):
    """A clause whose results each become known at an instant, from events up to that instant.

    A result depends on the events of at most ``reach`` ticks before its instant (None: any), and on
    those that ``begin_at`` reads before them.  Results come in the order of their instants.
    """

    @property
    @abstractmethod
    def reach(self) -> int | None: ...

    @abstractmethod
    def begin_at(self, run: PartRun, low: int) -> InstantSearch:
        """A search for the results known at or after tick ``low``; the events from ``reach`` ticks
        before it are fed.
        """

    def lowest(self, snapshot: Snapshot, begin: int) -> int | None:
        """Tick of the first event that a search fed from ``begin`` on may need; None: any."""
        return begin

    def changed(self, snapshot: Snapshot, spans: Spans, watermark: int) -> Spans:
        """Ranges of instants up to a watermark of results that late events in ranges of ticks may
        have changed; ``snapshot`` has the events.
        """
        assert self.reach is not None
        return tuple((low, min(watermark, moved(high, self.reach))) for low, high in spans)


class InstantSearch(Search):
    """A search that goes on after ``finish(last)`` with events behind ``last``."""

    @property
    @abstractmethod
    def nbytes(self) -> int: ...

    def go_on(self, run: PartRun) -> None:
        """Continue over a later snapshot with the same events so far."""

    @property
    def partitions(self) -> int:
        return 1


class PartRun(NamedTuple):
    """What a part runs over."""

    snapshot: Snapshot
    compiled: Any
    metrics: ScanMetrics
    check: Check
    limits: MatchLimits

    def scan(self, start: int | None, end: int | None) -> Iterator[pa.RecordBatch]:
        """Events of a half-open range of ticks with the columns that the clause reads."""
        columns = self.compiled.input_columns
        return self.snapshot.scan(start, end, columns, metrics=self.metrics, check=self.check)

    def scan_between(self, low: int, high: int) -> Iterator[pa.RecordBatch]:
        """The same for a range of ticks with both ends."""
        return self.scan(*half_open(low, high))


class Part(ABC):
    """A share of the results of one clause over one snapshot.

    The parts of one division are disjoint and together complete.  A part for another process can be
    pickled and needs only the events in its ``ticks``.
    """

    @property
    @abstractmethod
    def ticks(self) -> tuple[int | None, int | None]:
        """Half-open range of ticks that it reads; None where open."""

    @abstractmethod
    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        """The result rows, in order; may be asked for repeatedly."""

    @abstractmethod
    def describe(self) -> str:
        """What it reads, for EXPLAIN."""


@dataclass(frozen=True)
class Split:
    """Parts of a query, and the reason for EXPLAIN.  ``parts``: empty if there is nothing to find;
    a single None: the query as it is.
    """

    parts: Sequence[Part | None]
    reason: str


READ_TWICE = 0.5
"""Maximum fraction of a range that the next one reads again."""


@dataclass(frozen=True)
class InstantRange(Part):
    """Results that become known between two inclusive ticks.  All events from ``begin`` on are
    read; earlier ones may matter from ``lowest`` on (None: any).  ``closed``: time has passed
    ``high``, also where the last event is before it.
    """

    low: int
    high: int
    begin: int
    lowest: int | None
    closed: bool = False

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
        return snapshot.events_between(begin, self.ticks[1])

    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        span = run.snapshot.time_range
        if span is None or self.low > self.high:
            return
        search = run.compiled.begin_at(run, self.low)
        for batch in run.scan_between(max(self.begin, span[0]), self.high):
            yield from search.feed(batch)
        yield from search.finish(self.high if self.closed else min(self.high, span[1]))

    def describe(self) -> str:
        return f"matches known from {self.low} to {self.high}"


NOTHING = InstantRange(1, 0, 0, None)


@dataclass(frozen=True)
class InstantRanges(Part):
    ranges: tuple[InstantRange, ...]

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        lows = [each.ticks[0] for each in self.ranges]
        bounded = [low for low in lows if low is not None]
        return min(bounded) if len(bounded) == len(lows) else None, self.ranges[-1].ticks[1]

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
        held = snapshot.events_between(None if bounds[-1] == INT64_MIN else bounds[-1], low)
        if snapshot.events_between(max(INT64_MIN, low - reach), low) <= READ_TWICE * held:
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
