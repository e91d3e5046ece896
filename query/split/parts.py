"""Parts of a pattern query: each can be sent, and finds its share of the matches, all of them once.

=============  ==========================================================================
part           its matches
=============  ==========================================================================
SpanPart       those in some of the replay intervals
RangePart      those that begin in a range of time, except for rows carried over a cut
SharePart      those of the partitions whose keys hash to its number
=============  ==========================================================================

A cut of time is a tick, and the rows after it that still belong to the part before::

                 tick
    part 1 ........|..c..c.......        c: carried over, of partitions in which a match of
    part 2 ........|.. .. .......           part 1 was still open

A part needs only events within its ``ticks``.  MATCH_NUMBER would count per part, so such a pattern
is only divided between partitions.

``Reach`` bounds how far a match extends from an event, in ticks, and where the rows around a range
lie.  A match with an event on each side of ``tick`` begins at or after ``back(tick)``; one that
begins at or before ``tick`` ends at or before ``ahead(tick)``.  A greatest length bounds only
matches of neighbouring rows; above ``LENGTH_MAX`` it counts as no bound.

Partitions are grouped by a hash of their keys, which is the same in every process.  Equal keys hash
alike: nulls, zeros of both signs, all NaNs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.identity import digests, words_of
from ...core.sorting import firsts
from ...core.times import INT64_MAX, INT64_MIN, half_open
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot, tail_start
from ...store.tail import ticks_of_column
from ..contract.operator import Check, MatchLimits, Part, PartRun
from ..pattern.columns import KeyCodes, flat, numbers
from ..pattern.compiled import CompiledMatch
from ..pattern.match_stream import MatchStream, condition_columns
from ..pattern.matcher import Groups
from ..pattern.matches import Matches
from ..replay.applicability import demands, not_applicable
from ..replay.replay_plan import ReplayIntervals
from ..replay.run_plan import IntervalStream, ReplayRun, run_intervals
from ..replay.spans import Spans
from ..replay.timeline import Timeline, read_positions

LENGTH_MAX = 100_000
PROBE_SHARE = 0.125
PROBE_LEAST = 1 << 18
"""Events that may be read however small the stream is."""
LEAST, MOST = INT64_MIN, INT64_MAX


def independent(compiled: CompiledMatch) -> bool:
    """Whether each match is found independently of other matches."""
    clause = compiled.clause
    skip = clause.skip
    return clause.selection is not None or (skip is not None and skip.mode == "next")


class Reach:
    """WITHIN, a greatest length, and row counts in ticks of one snapshot, which is not empty."""

    def __init__(self, snapshot: Snapshot, compiled: CompiledMatch) -> None:
        span = snapshot.time_range
        assert span is not None
        self.first, self.last = span
        self._snapshot = snapshot
        self._within = compiled.within
        self._length: int | None = None
        if not compiled.partition_by and compiled.clause.selection in (None, "contiguous"):
            length = compiled.automaton.length_max
            if length is not None and length <= LENGTH_MAX:
                self._length = max(1, length)
        self._history = max(1, compiled.history)
        self._lookahead = max(1, compiled.lookahead)

    @property
    def bounded(self) -> bool:
        return self._within is not None or self._length is not None

    def back(self, tick: int) -> int:
        """Earliest begin of a match that has events before and at or after a tick."""
        earliest = LEAST
        if self._within is not None:
            earliest = max(earliest, tick - self._within)
        if self._length is not None:
            earliest = max(earliest, self._rows_before(tick, self._length))
        return earliest

    def ahead(self, tick: int) -> int:
        """Latest tick of a match that begins at or before a tick."""
        latest = MOST
        if self._within is not None:
            latest = min(latest, tick + self._within)
        if self._length is not None and latest > tick:
            latest = min(latest, self._rows_after(tick, self._length))
        return latest

    def before(self, tick: int) -> int:
        """Tick of the first context row that conditions may need before a tick."""
        return self._rows_before(tick, self._history)

    def after(self, tick: int) -> int:
        return self._rows_after(tick, self._lookahead)

    def events(self, low: int, high: int) -> int:
        start = None if low <= LEAST else low
        end = None if high >= MOST else high + 1
        return self._snapshot.events_between(start, end)

    def _rows_before(self, tick: int, rows: int) -> int:
        if tick <= self.first:
            return self.first
        return tail_start(self._snapshot, self.first, tick - 1, rows)

    def _rows_after(self, tick: int, rows: int) -> int:
        if tick >= self.last:
            return MOST
        left = rows
        for batch in self._snapshot.scan(tick + 1, None, [self._snapshot.schema.time], limit=rows):
            left -= batch.num_rows
            if left == 0:
                return int(ticks_of_column(batch.column(0))[-1])
        return MOST


class Budget:
    """Events that may still be read to find cuts."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.left = max(float(PROBE_LEAST), PROBE_SHARE * snapshot.count)


def reach_of(snapshot: Snapshot, compiled: CompiledMatch) -> Reach | str:
    """How far a match reaches, or the reason why time must not be cut."""
    # further keys of ORDER BY reorder only events of one time, which stay together
    reason = not_applicable(replace(compiled, order_by=compiled.order_by[:1]))
    if reason:
        return reason
    if compiled.partition_by and demands(compiled).neighbours:
        return "^, $, PREV or NEXT of a partition may look at events far away"
    if not snapshot.count:
        return "the stream has no events"
    reach = Reach(snapshot, compiled)
    if not reach.bounded:
        return "the pattern has no WITHIN and no bound on its events"
    return reach


STRETCH_EVENTS = 1 << 16


def shares_of(columns: Sequence[pa.Array], shares: int) -> npt.NDArray[np.int64]:
    """The share of each row."""
    codes = KeyCodes(len(columns)).encode([pa.chunked_array([column]) for column in columns])
    code, row = firsts(codes)
    keys = digests(b"", [column.take(pa.array(row)) for column in columns])
    share = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    share[code] = words_of(keys)[:, 0] % np.uint64(shares)
    numbers_: npt.NDArray[np.int64] = share[codes]
    return numbers_


def of_share(
    snapshot: Snapshot,
    columns: Sequence[str],
    keys: Sequence[str],
    share: int,
    shares: int,
    metrics: ScanMetrics | None = None,
    check: Callable[[], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    if snapshot.dirty_ranges():
        for batch in snapshot.scan(columns=columns, metrics=metrics, check=check):
            chosen = shares_of([batch.column(name) for name in keys], shares) == share
            if chosen.any():
                yield batch.filter(pa.array(chosen))
        return
    timeline = Timeline(snapshot)
    arrow = snapshot.schema.arrow
    key_schema = pa.schema([arrow.field(name) for name in keys])
    output = pa.schema([arrow.field(name) for name in columns])
    for first in range(0, timeline.total, STRETCH_EVENTS):
        if check is not None:
            check()
        end = min(first + STRETCH_EVENTS, timeline.total)
        read = read_positions(timeline, keys, key_schema, first, end, metrics)
        masks = [shares_of(batch.columns, shares) == share for batch in read]
        chosen = np.concatenate(masks)
        places = np.flatnonzero(chosen)
        if not len(places):
            continue
        low, high = int(places[0]), int(places[-1]) + 1
        at = low
        for batch in read_positions(timeline, columns, output, first + low, first + high, None):
            mask = chosen[at : at + batch.num_rows]
            at += batch.num_rows
            if mask.any():
                yield batch.filter(pa.array(mask))


Ints = npt.NDArray[np.int64]
ENDLESS = 2**62


@dataclass(frozen=True, eq=False)
class SpanPart(Part):
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
        return half_open(self.low, self.high)

    def placed(self, snapshot: Snapshot) -> tuple[ReplayIntervals, Timeline]:
        timeline = Timeline(snapshot)
        segments = {
            None if part.view is None else part.view.file.segment_id: part.start
            for part in timeline.parts
        }
        shift = segments[self.segment] - self.start
        own, deciding = self.intervals.partitions, self.intervals.deciding
        if own is not None:
            few = None if own.deciding is None else (own.deciding[0] + shift, own.deciding[1])
            own = replace(
                own, keys=own.keys.on(timeline), inside=_moved(own.inside, shift),
                shown=_moved(own.shown, shift), deciding=few, chosen={},
            )  # fmt: skip
        if deciding is not None:
            deciding = deciding + shift
        spans = _moved(self.intervals.spans, shift)
        return replace(self.intervals, spans=spans, partitions=own, deciding=deciding), timeline

    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
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
class RangePart(Part):
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
        low, high = half_open(self.before, self.after)
        return (None if self.low is None else low), (None if self.high is None else high)

    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        stream = RangeStream(run.compiled, run.limits, run.check)
        low, high, scan = self.low, self.high, run.scan
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
                _, until = half_open(LEAST, self.after)
                yield from stream.surrounding(scan(beyond, until))
        yield from stream.finish()

    def describe(self) -> str:
        low = "" if self.low is None else str(self.low.tick)
        high = "" if self.high is None else str(self.high.tick)
        carried = 0 if self.high is None else len(self.high.carried)
        return f"time [{low}, {high})" + (f" and {carried} rows after it" if carried else "")


@dataclass(frozen=True)
class SharePart(Part):
    """The partitions whose keys hash to a number; ``last``: the last tick of the whole stream."""

    share: int
    shares: int
    last: int

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return None, None

    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        compiled = run.compiled
        stream = compiled.begin(run.limits, run.check)
        batches = of_share(
            run.snapshot, compiled.input_columns, compiled.partition_by, self.share, self.shares,
            run.metrics, run.check,
        )  # fmt: skip
        for batch in batches:
            yield from stream.feed(batch)
        yield from stream.finish(last=self.last)

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
        self._first, self._taken = self.fed, self.fed + carried

    def end(self, carried: Ints) -> None:
        self._past, self._kept = self.fed, self.fed + carried

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
        mask = super().inside(sequence)
        if len(self._taken):
            mask &= ~np.isin(sequence, self._taken)
        return mask

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


class GivenMatches(MatchStream):
    """Result rows of matches whose events are given.

    A clause that takes one match at a time prefers the same match of a first event whether or not
    it sees later events, so the events suffice.  Not for clauses that read beyond a match.
    """

    def matching(self, events: pa.Table, offsets: Ints) -> Iterator[pa.RecordBatch]:
        """The events of match ``i`` are ``offsets[i] .. offsets[i + 1]``, with the clause's input
        columns and ``@rank``.
        """
        self.matcher.steps = self.matcher.rows = 0  # each call has the budget of a query
        self.flattened = {}
        names = [name for name in self.input_schema.names if name in events.schema.names]
        self.rows = events.select(names).cast(self.input_schema)
        self.order = self.coded = None
        self.next_sequence, count = events.num_rows, len(offsets) - 1
        self.codes = np.repeat(np.arange(count), np.diff(offsets))
        tick: Ints = np.zeros(events.num_rows, np.int64)
        if self.compiled.within is not None:
            values, _ = numbers(flat(self.rows.column(str(self.compiled.columns.time))), "i")
            tick = np.ascontiguousarray(values, np.int64)
        tick = tick.view()
        tick.flags.writeable = False  # kernels are compiled for read-only inputs
        now = int(tick.max()) if len(tick) else 0
        groups = Groups(
            offsets, offsets[:-1].copy(), np.zeros(count, np.bool_), np.zeros(count, np.int64),
            tick, now, True,
        )  # fmt: skip
        conditions = pa.table({n: self._column(n) for n in condition_columns(self.compiled)})
        prepared = self.compiled.conditions.prepare(conditions, offsets)

        def firsts(matches: Matches) -> pa.Table:
            first = matches.start == offsets[matches.group]
            return self._results(_chosen(matches, first), groups)[1]

        for table in self.matcher.run(prepared, groups, firsts, self.check):
            yield from table.to_batches()


def _chosen(matches: Matches, chosen: npt.NDArray[np.bool_]) -> Matches:
    """Some of the matches; SKIP TO NEXT ROW finds more after the first of a group."""
    if chosen.all():
        return matches
    sizes = np.diff(matches.runs)
    runs = np.repeat(chosen, sizes)
    return Matches(
        matches.group[chosen], matches.start[chosen], matches.length[chosen],
        matches.number[chosen], np.concatenate([[0], np.cumsum(sizes[chosen])]).astype(np.int64),
        matches.row[runs], matches.begin[runs], matches.place[runs],
    )  # fmt: skip
