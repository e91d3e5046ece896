"""Parts of a pattern query: small enough to be sent, each good for its own share of the matches.

Purpose
    A part is made where the query is planned and run by any process that can open the same
    snapshot.  All of them together find every match once.

Layout
    =============  ==========================================================================
    part           its matches
    =============  ==========================================================================
    SpanPart       those in some of the replay intervals
    RangePart      those that begin in a range of time, but for the rows that a cut carries over
    IndexPart      a share of those of a range, by their number (:mod:`.index_parts`)
    SharePart      those of the partitions whose keys hash to its number
    =============  ==========================================================================

    A cut of time is a tick, and the rows after it that still belong to the part before::

                     tick
        part 1 ........|..c..c.......        c: carried over, of partitions in which a match of
        part 2 ........|.. .. .......           part 1 was still open

Guarantee
    A part needs events within its :attr:`ticks` only, so the snapshot that it is run on may be one
    that was opened for these alone.

Limits
    MATCH_NUMBER counts the matches of a part, not of the stream: a pattern that asks for it is
    never cut, except between partitions.
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
    """What a part is run on."""

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
        """Rows of its matches."""
        return self._rows(PartRun(snapshot, compiled, metrics, check, limits or MatchLimits()))

    @abstractmethod
    def _rows(self, run: PartRun) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def describe(self) -> str:
        """What it reads, for people."""


@dataclass(frozen=True, eq=False)
class SpanPart(MatchPart):
    """Some of the intervals of a replay plan.

    Attributes
    ----------
    intervals : ReplayIntervals
        Positions are those of the whole stream.
    segment : int or None
        A segment that it reads (None: the tail), and ``start``, the position of its first event:
        a snapshot of fewer segments counts from another place.
    low, high : int
        Ticks, inclusive.
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
        """The intervals where they lie in a snapshot, and its timeline."""
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
    """Where time is cut.

    Attributes
    ----------
    tick : int
        Of the first events behind the cut.
    carried : int64[n]
        Rows behind the cut, counted from it, that belong to the part before it; ascending.
    last : int
        Greatest tick of a row carried over; ``tick - 1`` without any.
    """

    tick: int
    carried: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    last: int = 0


@dataclass(frozen=True, eq=False)
class RangePart(MatchPart):
    """A range of time between two cuts.

    Attributes
    ----------
    low, high : Cut or None
        None at the ends of the stream.
    before : int
        Tick from which on rows before the range are read, as context.
    reach : int
        Greatest tick at which a match of this part can have an event.
    after : int
        Greatest tick that is read, as context.
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
        """What a stream puts out that is given the range, and what surrounds it."""
        columns = run.compiled.input_columns

        def scan(low: int | None, high: int | None) -> Iterator[pa.RecordBatch]:
            """Events with low <= t < high."""
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
    """The partitions whose keys hash to a number."""

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
    """The matcher over a range and what surrounds it; puts out matches that begin in the range.

    Rows that the cut before has given to the part before can be seen, but not matched: what is
    kept of the search begins behind them.
    """

    def __init__(self, compiled: CompiledMatch, limits: MatchLimits, check: Check) -> None:
        super().__init__(compiled, limits, check)
        none: Ints = np.zeros(0, np.int64)
        self._first, self._past = 0, ENDLESS  # numbers of the first row, and the first after it
        self._taken, self._kept = none, none

    def begin(self, carried: Ints) -> None:
        """The rows of the range follow."""
        self._first, self._taken = self._fed, self._fed + carried

    def end(self, carried: Ints) -> None:
        """The rows of the range have ended."""
        self._past, self._kept = self._fed, self._fed + carried

    def matching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take rows that may be matched."""
        for batch in batches:
            yield from self.feed_piece(batch, True)

    def surrounding(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take rows that may be looked at."""
        for batch in batches:
            yield from self.feed_piece(batch, False)

    def masks(self) -> bool:
        """Whether one of the rows that are searched may not be matched."""
        taken = len(self._taken) > 0 and int(self._taken[-1]) >= self.first_searched
        return taken or super().masks()

    def inside(self, sequence: Ints) -> npt.NDArray[np.bool_]:
        """Which rows, by their number in the input, may be matched."""
        found = super().inside(sequence)
        if len(self._taken):
            found &= ~np.isin(sequence, self._taken)
        return found

    def mine(self, begins: Ints) -> npt.NDArray[np.bool_]:
        """Which matches are this part's, by the numbers of their first rows."""
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
