"""The running state of MATCH_SITUATIONS: events and watermarks in, matches out.

::

    rows up to a watermark -> words -> runs that ended  ┐
                                       runs that last   ├ sorted by partition, name, time
    situations kept                                     ┘   -> triggers -> matches -> rows

Output is ordered by instant, then partition key (nulls first), then starts in the order of DEFINE,
whatever the batches.  Memory holds the situations that a later match can reach (by WITHIN or
implied durations; else all, up to the memory limit) with their measured rows, and a word per
partition.

Matches are passed to the measures of row patterns as one run of rows per name whose rows are read;
with EMIT ON DETECTION a run extends to the instant of the match::

    names           A            B
    rows            7  8  9 | 9 10 11       rows of the partition, by their place in it
    index in match  0  1  2 | 3  4  5

Where a match uses a run whose first row is the first row read of its partition, a ``Certifier``
reads back: the run begins there if the previous row does not satisfy its condition, is
further away than GAP, or does not exist.

Situations over a time range, with late events in their places, and what late rows change.

A match begins at most its reach before its instant.  Rows before that are read only where a match
depends on them, because a run may have begun earlier; with PREV, for every partition of the range.

The last rows of partitions before a tick are found by a backward scan in pieces of doubling size.
Late events are included; keys are equal as under PARTITION BY.  The columns are read back to the
farthest row; for a partition without one, to the beginning of the stream, once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.sorting import counted_order, distinct, first_at_least
from ...core.times import INT64_MAX, INT64_MIN, half_open, moved
from ...errors import ResourceLimit, SqlError
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot, tail_start
from ...store.tail import ticks_of_column
from ...store.tap import Spans, united
from ..contract.operator import InstantSearch, MatchLimits, PartRun, Search
from ..pattern.binding import Given
from ..pattern.buffers import row_words
from ..pattern.columns import KeyCodes, flat, numbers
from ..pattern.matches import Matches
from ..pattern.measures import Context, OutputRows, measure_columns
from .compiled import CompiledSituations, MatchColumns, match_values
from .deriving import SPAN, Derived, Deriver, Partitions, Stretches
from .matching import MatchBatch, Matching

IntArray = npt.NDArray[np.int64]
ROWS_AT_ONCE = 1 << 16


@kernel
def _locate(group, first, last, instant, offsets, sequence, time, row, length):  # type: ignore[no-untyped-def]
    """First row of each run among the rows by partition, and its number of rows."""
    for i in range(group.shape[0]):
        high = offsets[group[i] + 1]
        low = first_at_least(sequence, offsets[group[i]], high, first[i])
        row[i] = low
        while low < high:  # the first row after it
            middle = (low + high) >> 1
            if sequence[middle] <= last[i] and time[middle] <= instant[i]:
                low = middle + 1
            else:
                high = middle
        length[i] = low - row[i]


class Results:
    def __init__(self, compiled: CompiledSituations, limits: MatchLimits) -> None:
        self.compiled = compiled
        self.limits = limits
        self.schema = compiled.output_schema
        self.places = {name: i for i, name in enumerate(compiled.names)}
        self.measured = [n for n in compiled.names if n in compiled.measured_names]
        names = {compiled.time, *compiled.measured_columns}
        self.columns = [n for n in compiled.columns.arrow.names if n in names]
        fields = [compiled.columns.arrow.field(name) for name in self.columns]
        self.rows = pa.schema(fields).empty_table()
        self.codes: IntArray = np.zeros(0, np.int64)
        self.sequence: IntArray = np.zeros(0, np.int64)
        self._sorted: tuple[pa.Table, IntArray, IntArray, IntArray] | None = None

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes)

    def add_rows(self, rows: pa.Table, derived: Derived) -> None:
        self._sorted = None
        if not self.measured or not rows.num_rows:
            return
        count = rows.num_rows
        codes = np.zeros(count, np.int64) if derived.codes is None else derived.codes
        self.rows = pa.concat_tables([self.rows, rows.select(self.columns)])
        self.codes = np.concatenate([self.codes, codes])
        self.sequence = np.concatenate(
            [self.sequence, np.arange(derived.base, derived.base + count)]
        )

    def forget(self, oldest: IntArray | None) -> None:
        if oldest is None or not len(self.codes):
            return
        recent = self.sequence >= oldest[self.codes]
        self._sorted = None
        self.rows = self.rows.filter(pa.array(recent)).combine_chunks()
        self.codes, self.sequence = self.codes[recent], self.sequence[recent]

    def rows_of(self, found: MatchBatch, keys: Partitions) -> Iterator[pa.RecordBatch]:
        order = self._order(found, keys)
        for begin in range(0, len(order), ROWS_AT_ONCE):
            yield self._batch(found, order[begin : begin + ROWS_AT_ONCE], keys)

    def _order(self, found: MatchBatch, keys: Partitions) -> IntArray:
        by = [found.starts[:, i] for i in range(found.starts.shape[1] - 1, -1, -1)]
        if keys.columns:
            groups, place = np.unique(found.group, return_inverse=True)
            by.append(keys.ranks(groups)[place])
        return np.asarray(np.lexsort([*by, found.instant]), np.int64)

    def _batch(self, found: MatchBatch, chosen: IntArray, keys: Partitions) -> pa.RecordBatch:
        group = found.group[chosen]
        values = MatchColumns(
            found.starts[chosen], found.ends[chosen], found.lasting[chosen], found.instant[chosen],
            found.detected[chosen],
        )  # fmt: skip
        partition = keys.values(group)

        def given(leaf: Given) -> pa.Array:
            return match_values(leaf, values, self.places, self.compiled.identity, partition)

        matches, table, offsets = self._matches(found, chosen)
        context = Context(
            matches, OutputRows(np.arange(len(chosen)), matches.length - 1),
            lambda name, indices: flat(table.column(name)).take(indices), offsets[group],
            offsets[group + 1], ["", *self.measured], given,
        )  # fmt: skip
        measures = measure_columns(
            self.compiled.measures, context, self.compiled.types, self.compiled.clause.sql
        )
        columns = [*(flat(column) for column in partition.columns), *measures]
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _matches(self, found: MatchBatch, chosen: IntArray) -> tuple[Matches, pa.Table, IntArray]:
        group = found.group[chosen]
        if self._sorted is None:
            self._sorted = self._by_partition(int(found.group.max()) + 1)
        table, sequence, time, offsets = self._sorted
        count, names = len(chosen), len(self.measured)
        none = np.zeros(0, np.int64)
        if not names:
            zeros = np.zeros(count, np.int64)
            runs = np.zeros(count + 1, np.int64)
            return Matches(group, zeros, zeros, zeros, runs, none, none, none), table, offsets
        places = [self.places[name] for name in self.measured]
        row, length = np.empty(count * names, np.int64), np.empty(count * names, np.int64)
        _locate(
            np.repeat(group, names), found.first[chosen][:, places].ravel(),
            found.last[chosen][:, places].ravel(), np.repeat(found.instant[chosen], names),
            offsets, sequence, time, row, length,
        )  # fmt: skip
        lengths = length.reshape(count, names)
        begin = np.cumsum(lengths, axis=1) - lengths
        matches = Matches(
            group, row.reshape(count, names)[:, 0].copy(), lengths.sum(axis=1),
            np.zeros(count, np.int64), np.arange(count + 1) * names, row, begin.ravel(),
            np.tile(np.arange(1, names + 1), count),
        )  # fmt: skip
        return matches, table, offsets

    def _by_partition(self, groups: int) -> tuple[pa.Table, IntArray, IntArray, IntArray]:
        groups = max(groups, int(self.codes.max(initial=0)) + 1)
        order, offsets = counted_order(self.codes, groups)
        ticks, _ = numbers(flat(self.rows.column(self.compiled.time)), "i")
        time = np.asarray(ticks, np.int64)[order]
        table = self.rows.take(pa.array(order)).combine_chunks()
        return table, self.sequence[order], time, offsets


def measured_types(compiled: CompiledSituations) -> list[pa.DataType]:
    """Types of the measures, from an evaluation over no matches."""
    none, table = np.zeros(0, np.int64), np.zeros((0, len(compiled.names)), np.int64)
    nothing = MatchColumns(table, table, table != 0, none, none)
    places = {name: i for i, name in enumerate(compiled.names)}
    rows = compiled.columns.arrow.empty_table()
    context = Context(
        Matches(none, none, none, none, np.zeros(1, np.int64), none, none, none),
        OutputRows(none, none), lambda name, indices: flat(rows.column(name)).take(indices), none,
        none, ["", *compiled.names],
        lambda leaf: match_values(leaf, nothing, places, b"", rows.select([])),
    )  # fmt: skip
    return [
        values.type
        for values in measure_columns(
            compiled.measures, context, compiled.types, compiled.clause.sql
        )
    ]


ROWS_FIRST = 1 << 16
ROWS_MAX = 1 << 20
ROWS_PER_GROUP = 8


class SituationStream(Search):
    """One run of a compiled clause.  ``stretches``: rows belong to stretches, given by column
    ``@span``.  ``certified``: filters matches to those whose situations begin where they seem to.
    ``since``: matches known before this tick are skipped, but their situations are stored.
    """

    def __init__(
        self,
        compiled: CompiledSituations,
        limits: MatchLimits,
        check: Callable[[], None] | None = None,
        stretches: Stretches | None = None,
        certified: Callable[[MatchBatch], MatchBatch] | None = None,
        since: int = INT64_MIN,
    ) -> None:
        self.compiled = compiled
        self.limits = limits
        self.check = check or (lambda: None)
        self.inputs = compiled.input_columns
        self.schema = pa.schema([compiled.columns.arrow.field(n) for n in self.inputs])
        if stretches is not None:
            self.inputs = [*self.inputs, SPAN]
            self.schema = self.schema.append(pa.field(SPAN, pa.int64()))
        self.certified = certified
        self.since = since
        self.deriver = Deriver(compiled, stretches)
        self.matching = Matching(compiled, limits)
        self.results = Results(compiled, limits)
        self.situations = 0
        self.matches = 0
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_rows = 0
        self.target = ROWS_FIRST

    # -- input ----------------------------------------------------------------------------------

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch; yields what is known by the tick before its last."""
        if batch.num_rows == 0:
            return
        self.check()
        self.waiting.append(batch.select(self.inputs))
        self.waiting_rows += batch.num_rows
        if not self.compiled.columns.ordered:
            self._check_memory()
        elif self.waiting_rows >= max(self.target, ROWS_PER_GROUP * self.deriver.groups):
            self.target = min(ROWS_MAX, self.target * 2)
            table = self._collected()
            ticks = self._ticks(table)
            cut = int(np.searchsorted(ticks, ticks[-1], side="left"))
            if not cut:  # all of one tick: more may follow
                self.target = max(self.target, 2 * self.waiting_rows)
                self._check_memory()
                return
            self.waiting = table.slice(cut).to_batches()
            self.waiting_rows = table.num_rows - cut
            yield from self.advance(table.slice(0, cut), int(ticks[-1]) - 1)

    def finish(self, last: int | None = None) -> Iterator[pa.RecordBatch]:
        """The input has ended; yields what is known at its last tick."""
        table = self._collected()
        self.waiting, self.waiting_rows = [], 0
        if not self.compiled.columns.ordered:
            table = table.take(pa.array(np.argsort(self._ticks(table), kind="stable")))
        ticks = self._ticks(table)
        if len(ticks) or last is not None:
            yield from self.advance(table, int(ticks[-1]) if last is None else last)

    def precede(self, rows: pa.Table) -> None:
        """Take the first rows of new partitions, earlier than any match begins."""
        self.deriver.take(rows.select(self.inputs).cast(self.schema), INT64_MIN)

    def advance(self, rows: pa.Table, watermark: int) -> Iterator[pa.RecordBatch]:
        """Take all rows up to a watermark (tick) in time order; yields new matches."""
        derived = self.deriver.take(rows, watermark)
        self.results.add_rows(rows, derived)
        yield from self._advance_to(derived, watermark)

    def advance_words(
        self, ticks: IntArray, words: npt.NDArray[np.uint64], watermark: int
    ) -> Iterator[pa.RecordBatch]:
        """As ``advance``, for the times and words of rows where a word may change; for clauses
        without PARTITION BY and GAP, whose measures read no rows.
        """
        yield from self._advance_to(self.deriver.follow_words(ticks, words), watermark)

    def _advance_to(self, derived: Derived, watermark: int) -> Iterator[pa.RecordBatch]:
        self.situations += len(derived.ended)
        self.check()
        if watermark >= self.since:
            since, self.since = self.since, watermark + 1
            yield from self._matches(derived, since, watermark)
        else:
            self.matching.absorb(derived)
        oldest = self.matching.retain(watermark, self.deriver)
        self.results.forget(oldest)
        self._check_memory()

    def _matches(self, derived: Derived, since: int, watermark: int) -> Iterator[pa.RecordBatch]:
        for match in self.matching.find(derived, self.deriver, since, watermark, self.check):
            if self.certified is not None:
                match = self.certified(match)
            self.matches += len(match.instant)
            yield from self.results.rows_of(match, self.deriver.keys)

    def figures(self) -> tuple[tuple[str, int | float], ...]:
        return (
            ("situations", self.situations),
            ("matches", self.matches),
            ("partitions", self.deriver.groups),
            ("join_orders_chosen", self.matching.plans),
        )

    def _collected(self) -> pa.Table:
        table = pa.Table.from_batches(self.waiting, None if self.waiting else self.schema)
        return table.cast(self.schema) if table.schema != self.schema else table

    def _ticks(self, table: pa.Table) -> IntArray:
        ticks, valid = numbers(flat(table.column(self.compiled.time)), "i")
        if valid is not None:
            raise SqlError(
                f"an event without {self.compiled.time} has no place among the others; leave it "
                f"out: WHERE {self.compiled.time} IS NOT NULL"
            )
        return np.asarray(ticks, np.int64)

    @property
    def nbytes(self) -> int:
        size = self.deriver.nbytes + self.matching.nbytes + self.results.nbytes
        return size + int(sum(batch.nbytes for batch in self.waiting))

    def _check_memory(self) -> None:
        size = self.nbytes
        if size > self.limits.memory_bytes:
            raise ResourceLimit(
                f"more than {self.limits.memory_bytes} bytes of situations and their events may "
                "still be part of a match; add WITHIN, or bounds of their durations (LASTING)"
            )


Ints = npt.NDArray[np.int64]
Before = tuple[int, int] | None
"""Word and time of the previous row; None if it does not matter."""


class Certifier(ABC):
    """Fetches previous rows on demand; ``known``: result per partition or stretch."""

    def __init__(self, compiled: CompiledSituations) -> None:
        self.compiled = compiled
        self.known: dict[int, Before] = {}

    @abstractmethod
    def rows_before(self, groups: Ints, rows: Ints) -> list[Before]:
        """The rows before some partitions, given the number of a row in each."""

    def certified(self, found: MatchBatch) -> MatchBatch:
        """Matches whose situations all begin where they seem to."""
        doubtful = np.argwhere(found.cut != 0)
        if not len(doubtful):
            return found
        groups, one = np.unique(found.group[doubtful[:, 0]], return_index=True)
        rows = found.first[doubtful[one, 0], doubtful[one, 1]]
        fresh = np.array([number not in self.known for number in groups.tolist()], np.bool_)
        if fresh.any():
            borders = self.rows_before(groups[fresh], rows[fresh])
            self.known.update(zip(groups[fresh].tolist(), borders, strict=True))
        certain = np.ones(len(found.instant), np.bool_)
        for i, name in doubtful.tolist():
            certain[i] &= self._begins(int(found.group[i]), name, int(found.starts[i, name]))
        return found.only(certain)

    def _begins(self, group: int, name: int, start: int) -> bool:
        before = self.known[group]
        if before is None:
            return True
        word, tick = before
        gap = self.compiled.gap
        return not word >> name & 1 or (gap is not None and start - tick > gap)


READ_FIRST = 1 << 12
READ_MAX = 1 << 20


@kernel
def _last_of(codes, place, left, kept):  # type: ignore[no-untyped-def]
    """Mark the last rows of partitions, ``left[place[code]]`` more of each that has a place."""
    count = 0
    for i in range(codes.shape[0] - 1, -1, -1):
        at = place[codes[i]]
        if at >= 0 and left[at] > 0:
            left[at] -= 1
            kept[i] = True
            count += 1
    return count


class RowsBefore:
    """Finds rows before a tick, but not before ``lowest``; ``columns`` include the keys."""

    def __init__(
        self,
        snapshot: Snapshot,
        columns: Sequence[str],
        partition_by: Sequence[str],
        before: int,
        lowest: int = INT64_MIN,
        metrics: ScanMetrics | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.columns = list(columns)
        self.keys = list(partition_by)
        self.before = before
        span = snapshot.time_range
        self.lowest = before if span is None else max(lowest, span[0])
        self.metrics = metrics
        self.check = check or (lambda: None)
        self._codes = KeyCodes(len(self.keys))
        self._all: int | None = None  # number of partitions, once all were seen

    def on(
        self, snapshot: Snapshot, metrics: ScanMetrics, check: Callable[[], None] | None
    ) -> None:
        """Continue on a snapshot with the same rows before the tick."""
        self.snapshot, self.metrics, self.check = snapshot, metrics, check or (lambda: None)

    def _encode(self, table: pa.Table) -> Ints:
        return self._codes.of_rows(table, self.keys)

    def find(self, keys: pa.Table, count: int = 1) -> tuple[pa.Table, Ints]:
        """Up to ``count`` last rows of each key, in stream order, and their keys' numbers."""
        codes = self._encode(keys) if self.keys else np.zeros(1, np.int64)
        place = np.full(max(self._codes.count, 1), -1, np.int64)
        place[codes] = np.arange(len(codes))
        left = np.full(len(codes), count, np.int64)
        if self._all is not None:
            left[codes >= self._all] = 0  # these first occur after the tick
        missing = int(left.sum())
        high, rows = self.before, READ_FIRST
        parts: list[pa.Table] = []
        of: list[Ints] = []
        while missing and high > self.lowest:
            self.check()
            low = max(self.lowest, tail_start(self.snapshot, self.lowest, high - 1, rows))
            table = self._read(low, high)
            row_codes = self._encode(table)
            place = np.concatenate([place, np.full(max(0, self._codes.count - len(place)), -1)])
            chosen = np.zeros(len(row_codes), np.bool_)
            missing -= _last_of(row_codes, place, left, chosen)
            parts.append(table.filter(pa.array(chosen)))
            of.append(place[row_codes[chosen]])
            high, rows = low, min(2 * rows, READ_MAX)
        if missing and self._all is None:
            self._all = max(1, self._codes.count)
        if not parts:
            parts.append(self._read(self.before, self.before))
        none = np.zeros(0, np.int64)
        return pa.concat_tables(parts[::-1]), np.concatenate([none, *of[::-1]])

    def _read(self, low: int, high: int) -> pa.Table:
        schema = self.snapshot.schema.arrow
        fields = pa.schema([schema.field(name) for name in self.columns])
        batches = self.snapshot.scan(
            low, high, self.columns, metrics=self.metrics, check=self.check
        )
        return pa.Table.from_batches(list(batches) if low < high else [], fields)


class FromTick(InstantSearch):
    """A run over the rows from a tick on, which reads earlier rows where needed.  No relevant match
    begins before ``begin``; matches known before ``since`` are not reported.
    """

    def __init__(self, run: PartRun, compiled: CompiledSituations, begin: int, since: int) -> None:
        snapshot = run.snapshot
        self.compiled = compiled
        self.stream = SituationStream(compiled, run.limits, run.check, since=since)
        self._keys = self.stream.deriver.keys
        self._before: RowsBefore | None = None
        span = snapshot.time_range
        if span is None or begin <= span[0]:
            return
        gap, wanted = compiled.gap, set(compiled.input_columns)
        lowest = INT64_MIN
        if not compiled.history:
            wanted -= compiled.measured_columns - compiled.condition_columns
            wanted |= {compiled.time, *compiled.partition_by}
            if gap is not None and begin >= INT64_MIN + gap:
                lowest = begin - gap
        columns = [name for name in compiled.columns.arrow.names if name in wanted]
        keys = compiled.partition_by
        self._before = RowsBefore(snapshot, columns, keys, begin, lowest, run.metrics, run.check)
        if not compiled.history:
            self.stream.certified = BordersOfTime(compiled, self._keys, self._before).certified
        elif not compiled.partition_by:
            self._prepare(np.zeros(1, np.int64))

    def go_on(self, run: PartRun) -> None:
        self.stream.check = run.check or (lambda: None)
        if self._before is not None:
            self._before.on(run.snapshot, run.metrics, run.check)

    @property
    def nbytes(self) -> int:
        return self.stream.nbytes

    @property
    def partitions(self) -> int:
        return self.stream.deriver.groups

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._before is not None and self.compiled.history and self.compiled.partition_by:
            count = self._keys.count
            self._keys.encode(pa.Table.from_batches([batch]))
            if self._keys.count > count:
                self._prepare(np.arange(count, self._keys.count))
        return self.stream.feed(batch)

    def finish(self, last: int | None = None) -> Iterator[pa.RecordBatch]:
        return self.stream.finish(last)

    def _prepare(self, groups: Ints) -> None:
        """Give conditions with PREV the earlier rows of newly seen partitions."""
        assert self._before is not None
        rows, _ = self._before.find(self._keys.values(groups), self.compiled.history + 1)
        self.stream.precede(rows)


class BordersOfTime(Certifier):
    """Certifies runs by the rows before a tick; partitions are numbered by ``keys``."""

    def __init__(self, compiled: CompiledSituations, keys: Partitions, before: RowsBefore) -> None:
        super().__init__(compiled)
        self._keys = keys
        self._before = before

    def rows_before(self, groups: Ints, rows: Ints) -> list[Before]:
        nearest, of = self._before.find(self._keys.values(groups))
        words = row_words(self.compiled.tests, nearest, np.array([0, nearest.num_rows], np.int64))
        ticks, _ = numbers(flat(nearest.column(self.compiled.time)), "i")
        before: list[Before] = [None] * len(groups)
        for i, word, tick in zip(of.tolist(), words.tolist(), ticks.tolist(), strict=True):
            before[i] = (int(word), int(tick))
        return before


def changed_instants(
    compiled: CompiledSituations, snapshot: Snapshot, spans: Spans, watermark: int
) -> Spans:
    """Instants up to a watermark of matches that late rows in ranges of ticks may have changed.

    A late row in a partition changes the runs that contain it, end or begin at it, or, if it splits
    or joins two of them, begin at the next row (with PREV also behind rows that look back at it;
    with GAP no further).  A match of such a run becomes known no earlier than the event, and at
    most its reach after the run's start::

                 t           next row of p
          -------x-----------x--------------------
                 [--------- reach ---)             runs that begin up to t
                             [--------- reach ---) runs that begin at the next row
    """
    reach, ranges = compiled.reach, []
    assert reach is not None
    for first, last in spans:
        if compiled.gap is not None and not compiled.history:
            ranges.append((first, moved(moved(last, compiled.gap), reach)))
            continue
        ranges.append((first, moved(last, reach)))
        behind = _next_rows(compiled, snapshot, first, last, watermark)
        ranges += [(tick, moved(tick, reach)) for tick in behind]
    return united(tuple((low, min(watermark, high)) for low, high in ranges))


def _next_rows(
    compiled: CompiledSituations, snapshot: Snapshot, first: int, last: int, watermark: int
) -> list[int]:
    """Times of rows behind a range that look back at a row in it, in any partition."""
    names = list(compiled.partition_by)
    codes = KeyCodes(len(names))

    def rows(low: int, high: int) -> tuple[Ints, Ints]:
        time = snapshot.schema.time
        read = snapshot.scan(*half_open(low, high), list(dict.fromkeys([*names, time])))
        ticks, keys_of = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for batch in read:
            table = pa.Table.from_batches([batch])
            ticks.append(ticks_of_column(batch.column(time)).astype(np.int64))
            keys_of.append(codes.of_rows(table, names))
        return np.concatenate(ticks), np.concatenate(keys_of)

    _, touched = rows(first, last)
    left = np.zeros(codes.count, np.int64)
    left[touched] = compiled.history + 1
    ticks_after: list[int] = []
    low, step = last + 1, max(1, last - first + 1)
    while left.any() and low <= watermark:
        high = min(watermark, low + step)
        ticks, keys_of = rows(low, high)
        left = np.concatenate([left, np.zeros(max(0, codes.count - len(left)), np.int64)])
        chosen = np.zeros(len(keys_of), np.bool_)
        _first_of(keys_of, left, chosen)
        ticks_after += distinct(ticks[chosen]).tolist()
        low = high + 1
        step = _wider(step, len(keys_of))
    return ticks_after


def _wider(step: int, rows: int) -> int:
    """Ticks to read next, given the number of rows in the last range."""
    return step if rows > READ_MAX else min(step * (8 if rows < READ_FIRST else 2), INT64_MAX // 4)


@kernel
def _first_of(codes, left, kept):  # type: ignore[no-untyped-def]
    """Mark the first ``left[code]`` rows of each partition."""
    for i in range(codes.shape[0]):
        if left[codes[i]] > 0:
            left[codes[i]] -= 1
            kept[i] = True
