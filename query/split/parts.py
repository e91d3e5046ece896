"""Parts of a pattern query: each can be sent, and finds its share of the matches, all of them once.

=============  ==========================================================================
part           its matches
=============  ==========================================================================
SpanPart       those in some of the replay intervals
RangePart      those that begin in a range of time, except for rows carried over a cut
IndexPart      a share of those of a range, by match number (``index_parts``)
SharePart      those of the partitions whose keys hash to its number
=============  ==========================================================================

A cut of time is a tick, and the rows after it that still belong to the part before::

                 tick
    part 1 ........|..c..c.......        c: carried over, of partitions in which a match of
    part 2 ........|.. .. .......           part 1 was still open

A part needs only events within its ``ticks``.  MATCH_NUMBER would count per part, so such a pattern
is only divided between partitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..pattern.compiled import CompiledMatch, MatchLimits
from ..pattern.match_stream import MatchStream
from ..pattern.matcher import Groups
from ..pattern.matches import Matches
from ..replay.interval_stream import IntervalStream
from ..replay.replay_plan import ReplayIntervals
from ..replay.run_plan import ReplayRun, run_intervals
from ..replay.spans import Spans
from ..replay.timeline import Timeline
from .reach import MOST
from .shares import of_share

__all__ = ["Cut", "MatchPart", "PartRun", "RangePart", "SharePart", "SpanPart"]

Ints = npt.NDArray[np.int64]
Check = Callable[[], None] | None
ENDLESS = 2**62


class PartRun(NamedTuple):
    snapshot: Snapshot
    compiled: CompiledMatch
    metrics: ScanMetrics
    check: Check
    limits: MatchLimits


class MatchPart(ABC):
    """A share of the matches of one clause over one snapshot."""

    @property
    @abstractmethod
    def ticks(self) -> tuple[int | None, int | None]:
        """Half-open range of ticks that it reads; None where open."""

    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledMatch,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The result rows."""
        return self._rows(PartRun(snapshot, compiled, metrics, check, limits or MatchLimits()))

    @abstractmethod
    def _rows(self, run: PartRun) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def describe(self) -> str:
        """What it reads, for EXPLAIN."""


@dataclass(frozen=True, eq=False)
class SpanPart(MatchPart):
    """Some of the intervals of a replay plan, in positions of the whole stream and inclusive ticks.
    ``segment``: one that it reads (None: the tail), and ``start``, the position of its first event,
    because a snapshot of fewer segments counts from another origin.
    """

    intervals: ReplayIntervals
    segment: int | None
    start: int
    low: int
    high: int

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return _half_open(self.low, self.high)

    def placed(self, snapshot: Snapshot) -> tuple[ReplayIntervals, Timeline]:
        timeline = Timeline(snapshot)
        segments = {
            None if part.view is None else part.view.file.segment_id: part.start
            for part in timeline.parts
        }
        shift = segments[self.segment] - self.start
        own = self.intervals.partitions
        if own is not None:
            own = replace(
                own, keys=own.keys.on(timeline), inside=_moved(own.inside, shift),
                shown=_moved(own.shown, shift),
            )  # fmt: skip
        spans = _moved(self.intervals.spans, shift)
        return replace(self.intervals, spans=spans, partitions=own), timeline

    def _rows(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        intervals, timeline = self.placed(run.snapshot)
        done = ReplayRun(run.metrics)
        return run_intervals(
            run.snapshot, run.compiled, intervals, timeline, run=done, check=run.check,
            limits=run.limits,
        )  # fmt: skip

    def describe(self) -> str:
        spans = self.intervals.spans
        return f"{len(spans)} replay intervals, {spans.total} events"


@dataclass(frozen=True, eq=False)
class Cut:
    """A cut of time before ``tick``.  ``carried``: ascending rows behind the cut, counted from it,
    that belong to the part before; ``last``: greatest tick of these, ``tick - 1`` without any.
    """

    tick: int
    carried: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    last: int = 0


@dataclass(frozen=True, eq=False)
class RangePart(MatchPart):
    """A range of time between two cuts (None: the ends of the stream).  ``before``: tick from which
    on context rows are read; ``reach``: greatest tick of an event in one of its matches; ``after``:
    greatest tick read as context.
    """

    low: Cut | None
    high: Cut | None
    before: int
    reach: int
    after: int

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        low, high = _half_open(self.before, self.after)
        return (None if self.low is None else low), (None if self.high is None else high)

    def _rows(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        return self.fed(run, RangeStream(run.compiled, run.limits, run.check))

    def fed(self, run: PartRun, stream: RangeStream) -> Iterator[pa.RecordBatch]:
        columns = run.compiled.input_columns

        def scan(low: int | None, high: int | None) -> Iterator[pa.RecordBatch]:
            return run.snapshot.scan(low, high, columns, metrics=run.metrics, check=run.check)

        low, high = self.low, self.high
        if low is not None:
            yield from stream.surrounding(scan(self.before, low.tick))
            stream.begin(low.carried)
        if high is None:
            yield from stream.matching(scan(None if low is None else low.tick, None))
        else:
            yield from stream.matching(scan(None if low is None else low.tick, high.tick))
            stream.end(high.carried)
            reach = max(self.reach, high.tick - 1)
            beyond = None if reach >= MOST else reach + 1
            yield from stream.matching(scan(high.tick, beyond))
            if beyond is not None:
                _, until = _half_open(0, self.after)
                yield from stream.surrounding(scan(beyond, until))
        yield from stream.finish()

    def describe(self) -> str:
        low = "" if self.low is None else str(self.low.tick)
        high = "" if self.high is None else str(self.high.tick)
        carried = 0 if self.high is None else len(self.high.carried)
        return f"time [{low}, {high})" + (f" and {carried} rows after it" if carried else "")


@dataclass(frozen=True)
class SharePart(MatchPart):
    share: int
    shares: int

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return None, None

    def _rows(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        compiled = run.compiled
        stream = MatchStream(compiled, run.limits, run.check)
        batches = of_share(
            run.snapshot, compiled.input_columns, compiled.partition_by, self.share, self.shares,
            run.metrics, run.check,
        )  # fmt: skip
        for batch in batches:
            yield from stream.feed(batch)
        yield from stream.finish()

    def describe(self) -> str:
        return f"partitions of share {self.share} of {self.shares}"


class RangeStream(IntervalStream):
    """The matcher over a range and its surroundings; returns matches that begin in the range.  Rows
    carried to the part before are visible but never match; the search begins behind them.
    """

    def __init__(self, compiled: CompiledMatch, limits: MatchLimits, check: Check) -> None:
        super().__init__(compiled, limits, check)
        none: Ints = np.zeros(0, np.int64)
        self._first, self._past = 0, ENDLESS  # numbers of the first row, and the first after
        self._taken, self._kept = none, none

    def begin(self, carried: Ints) -> None:
        self._first, self._taken = self._fed, self._fed + carried

    def end(self, carried: Ints) -> None:
        self._past, self._kept = self._fed, self._fed + carried

    def matching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.feed_piece(batch, True)

    def surrounding(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.feed_piece(batch, False)

    def masks(self) -> bool:
        taken = len(self._taken) > 0 and int(self._taken[-1]) >= self.first_searched
        return taken or super().masks()

    def inside(self, sequence: Ints) -> npt.NDArray[np.bool_]:
        found = super().inside(sequence)
        if len(self._taken):
            found &= ~np.isin(sequence, self._taken)
        return found

    def mine(self, begins: Ints) -> npt.NDArray[np.bool_]:
        """Which matches belong to this part, by the numbers of their first rows."""
        mine: npt.NDArray[np.bool_] = begins >= self._first
        if self._past < ENDLESS:
            mine &= (begins < self._past) | np.isin(begins, self._kept)
        return mine

    def _results(self, matches: Matches, groups: Groups) -> tuple[Ints, pa.Table]:
        begins, table = super()._results(matches, groups)
        mine = self.mine(begins)
        if mine.all():
            return begins, table
        return begins[mine], table.filter(pa.array(mine))


def _moved(spans: Spans, shift: int) -> Spans:
    return Spans(spans.starts + shift, spans.ends + shift)


def _half_open(low: int, high: int) -> tuple[int | None, int | None]:
    return low, None if high >= MOST else high + 1
