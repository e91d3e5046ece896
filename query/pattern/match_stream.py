"""The running state of MATCH_RECOGNIZE over batches: buffers rows, searches, outputs in order.

A result is output once no partition can find a match whose first event has a smaller ``sequence``.

::

    kept rows | new rows          one buffer, in input order
    --- sorted by partition -->   groups, one search each
    |history|undecided .......|   of each group is kept for the next buffer

A buffer is at least as large as the rows kept, so the total work is linear in the input.
Partitions are codes; strings stay as they are encoded in leaves until results are put out.  Where
each condition looks at one row, rows are tested in input order and only their bits are sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.sorting import counted_order, order_of
from ...core.times import INT64_MAX, python_values, value_text
from ...errors import ResourceLimit
from ...store.packing import pooled
from ..contract.operator import MatchLimits, Search
from .buffers import PreparedRows, Words
from .columns import KeyCodes, arrange, decoded, flat, live_rows, numbers, take_ranges, whole
from .matcher import NOT_TAKEN, Groups, Matcher
from .matches import Matches
from .results import NOTHING_WANTED, RANK, EventRanks, Results

if TYPE_CHECKING:
    from .compiled import CompiledMatch


IntArray = npt.NDArray[np.int64]
ROWS_FIRST = 1 << 16
ROWS_USUAL = 1 << 17
"""Most rows of a search, unless there are many partitions."""
ROWS_MAX = 1 << 20
ROWS_PER_GROUP = 8
ENDLESS = INT64_MAX


class MatchStream(Search):
    """One run of a compiled clause.  ``mask``: given ascending input row numbers, says which rows
    may be part of a match; the others only serve navigation.
    """

    def __init__(
        self,
        compiled: CompiledMatch,
        limits: MatchLimits,
        check: Callable[[], None] | None = None,
        mask: Callable[[IntArray], npt.NDArray[np.bool_]] | None = None,
    ) -> None:
        self.mask = mask
        self.compiled = compiled
        self.limits = limits
        self.check = check
        clause = compiled.clause
        self.inputs = compiled.input_columns
        self.ties = len(compiled.order_by) > 1 and compiled.in_time_order
        self.naming = compiled.naming
        self.ranks = None if self.naming is None else EventRanks(self.naming)
        self.input_schema = pa.schema([compiled.columns.arrow.field(n) for n in self.inputs])
        """Schema of searched rows; waiting rows have ranks only if they wait to be sorted."""
        self.waiting_schema = self.input_schema
        if self.ranks is not None:
            self.input_schema = self.input_schema.append(pa.field(RANK, pa.int64()))
            self.waiting_schema = self.input_schema if self.ties else self.waiting_schema
        self.coded = coded_key(compiled)  # the key, of which rows hold only the codes
        if self.coded is not None:
            place = self.waiting_schema.get_field_index(self.coded)
            self.waiting_schema = self.waiting_schema.set(place, pa.field(self.coded, pa.int64()))
        self.mode = clause.rows
        self.incremental = clause.mode == "incremental"
        self.counting = compiled.wanted == frozenset() and self.mode == "one"
        self.results = Results(compiled, self._take, self.naming, self._take_key)
        self.partitioned = bool(compiled.partition_by)
        self.keys = KeyCodes(len(compiled.partition_by))
        self.groups = 1
        self.rows: pa.Table = self.input_schema.empty_table()
        self.flattened: dict[str, pa.Array] = {}  # contiguous columns of the rows
        self.codes: IntArray = np.zeros(0, np.int64)
        self._earlier: IntArray = np.zeros(0, np.int64)  # input numbers of rows of earlier buffers
        self.covered: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self.taken: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self.behind: IntArray = np.zeros(0, np.int64)  # rows before the search position, per group
        self.seen: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self.number: IntArray = np.zeros(0, np.int64)
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_rows = 0
        self.target = ROWS_FIRST
        self.next_sequence = 0
        self.held: pa.Table | None = None  # rows of the newest tick: their order may still change
        self.known: int | None = None  # all events before this tick have arrived
        self.pending: list[tuple[IntArray, pa.Table]] = []
        self.matcher = Matcher(compiled, limits, self._describe_row)
        self.skip = compiled.selecting.skip  # matches still to be omitted
        self.order: IntArray | None = None

    # -- input ----------------------------------------------------------------------------------

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if batch.num_rows == 0:
            return
        if self.compiled.in_time_order and batch.num_rows > ROWS_USUAL:
            for low in range(0, batch.num_rows, ROWS_USUAL):
                yield from self.feed(batch.slice(low, ROWS_USUAL))
            return
        if self.check is not None:
            self.check()
        batch = batch.select(self.inputs)  # strings may be encoded
        if self.ranks is not None and self.ties:
            batch = self.ranks.ranked(batch)
        if self.coded is not None:
            place = batch.schema.get_field_index(self.coded)
            codes = pa.array(self.keys.encode([batch.column(place)]))
            batch = batch.set_column(place, self.coded, codes)
        self.waiting.append(batch)
        self.waiting_rows += batch.num_rows
        if not self.compiled.in_time_order:
            self._check_memory()
            return
        if self.waiting_rows >= max(self.target, len(self.codes), self._crowd()):
            self.target = min(ROWS_USUAL, self.target * 2)
            yield from self._search(final=False)
        elif self.waiting_rows > ROWS_MAX:
            self._check_memory()

    def _crowd(self) -> int:
        """Minimum rows per search when there are many partitions, as each is visited."""
        return min(ROWS_MAX, ROWS_PER_GROUP * len(self.behind))

    def conclude(self, before: int) -> Iterator[pa.RecordBatch]:
        """All events before tick ``known`` have arrived; yields what has become final."""
        self.known = before
        yield from self._search(final=False)
        yield from self._put_out(ENDLESS)

    def finish(self, last: int | None = None) -> Iterator[pa.RecordBatch]:
        yield from self._search(final=True)

    def empty(self) -> pa.Table:
        groups = Groups(
            np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_),
            np.zeros(0, np.int64), np.zeros(0, np.int64), 0, True,
        )  # fmt: skip
        none = np.zeros(0, np.int64)
        matches = Matches(none, none, none, none, np.zeros(1, np.int64), none, none, none)
        self.order = self.coded = None
        return self._results(matches, groups)[1]

    def _check_memory(self) -> None:
        size = self.rows.nbytes + sum(batch.nbytes for batch in self.waiting)
        if size > self.limits.memory_bytes:
            text = self.matcher.text
            raise ResourceLimit(
                f"pattern {text} keeps more than {self.limits.memory_bytes} bytes of events, "
                f"because partial "
                "matches stay open; add WITHIN, or bounds to its quantifiers"
            )

    def _new_rows(self, final: bool) -> pa.Table:
        batches, self.waiting, self.waiting_rows = self.waiting, [], 0
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        table = _joined_tables(tables or [self.waiting_schema.empty_table()], self.waiting_schema)
        compiled = self.compiled
        if not compiled.in_time_order:
            return sorted_rows(table, compiled.order_by)
        if not self.ties:
            return table
        if self.held is not None:
            table = _joined_tables([self.held, table], self.waiting_schema)
            self.held = None
        if table.num_rows and not final and self.known is None:
            time, _ = numbers(flat(table.column(compiled.order_by[0][0])), "i")
            cut = int(np.searchsorted(time, time[-1], side="left"))
            self.held = table.slice(cut)
            table = table.slice(0, cut)
        return sorted_rows(table, compiled.order_by)

    # -- search ---------------------------------------------------------------------------------

    def _search(self, final: bool) -> Iterator[pa.RecordBatch]:
        fresh = self._new_rows(final)
        if self.check is not None:
            self.check()
        self._buffer(fresh)
        self._check_memory()
        prepared, groups = self._prepared(final)
        before = groups.position.copy()
        if self.rows.num_rows:
            lists = self.matcher.output
            if lists is not None and not self.partitioned:
                lists.skip, self.skip = self.skip, 0

            def made(matches: Matches) -> tuple[IntArray, pa.Table]:
                if self.mode == "all with unmatched":
                    self._cover(matches)
                return self._results(matches, groups)

            for begins, table in self.matcher.run(prepared, groups, made, self.check):
                if self.counting:  # in any order
                    yield from table.to_batches()
                    continue
                self._add_results(begins, table)
                # if ordered, nothing comes before the last
                if self.mode != "all with unmatched" and self.matcher.ordered and len(begins):
                    last = int(begins[-1])
                    yield from self._put_out(min(self._undecided(groups, final), last + 1))
            if lists is not None:
                self.skip, lists.skip = self.skip + lists.skip, 0
            if self.mode == "all with unmatched":
                self._unmatched(groups, before)
            if self.incremental and self.order is not None:
                self.taken[self.order] = groups.taken
        watermark = self._keep(groups)
        yield from self._put_out(ENDLESS if final else watermark)

    def masks(self) -> bool:
        return self.mask is not None

    def _buffer(self, fresh: pa.Table) -> None:
        """Append rows to the buffer."""
        count, codes = fresh.num_rows, None
        if self.coded is not None:
            parts = [self.codes[:0], *map(pa.Array.to_numpy, fresh.column(self.coded).chunks)]
            codes = np.concatenate(parts, out=pooled(count, np.int64))
        elif self.partitioned:
            codes = self.keys.encode([fresh.column(name) for name in self.compiled.partition_by])
        self.groups = self.keys.count
        if self.ranks is not None and not self.ties:
            fresh = self.ranks.beside(fresh, codes, self.groups)
        schema = self.input_schema
        if self.coded is not None:
            schema = schema.remove(schema.get_field_index(self.coded))
            fresh = fresh.drop_columns([self.coded])
        grown = self.groups - len(self.behind)
        if grown > 0:
            self.behind = np.concatenate([self.behind, np.zeros(grown, np.int64)])
            self.seen = np.concatenate([self.seen, np.zeros(grown, np.bool_)])
            self.number = np.concatenate([self.number, np.zeros(grown, np.int64)])
        buffered = [self.rows] if self.rows.num_rows else []
        self.rows = _joined_tables([*buffered, fresh], schema)
        self.flattened = {}
        size = self.rows.num_rows
        self.codes = np.zeros(size, np.int64) if codes is None else _joined(self.codes, codes)
        self.next_sequence += count
        if self.mode == "all with unmatched":
            self.covered = _joined(self.covered, np.zeros(count, np.bool_))
        if self.incremental:
            self.taken = _joined(self.taken, np.zeros(count, np.bool_))

    def _prepared(self, final: bool) -> tuple[PreparedRows, Groups]:
        """The rows of the buffer by partition, and what the search is told of them.  Where each
        condition looks at one row, only bits are arranged, of rows that matches can contain.
        """
        plan = self.compiled.conditions
        size = self.rows.num_rows
        if self.groups == 1:
            self.order, offsets = None, np.array([0, size], np.int64)
            prepared = self._tested(offsets)
            return prepared, self._grouped(offsets, final)
        in_turn = plan.path_dependent or plan.history > 0 or plan.lookahead > 0
        if not in_turn and size:
            self.order = None
            prepared = self._tested(np.array([0, size], np.int64))
            if not prepared.careful:  # else conditions read rows, to raise errors
                rows = self._live_rows(prepared.words)
                self.order, offsets, words = arrange(rows, self.codes, self.groups, prepared.words)
                self.matcher.rows += size - len(words)  # the others count as searched
                absent = prepared.absent[: len(words)]
                if plan.absences.initial:
                    absent = prepared.absent[self.order]
                return replace(prepared, words=words, absent=absent), self._grouped(offsets, final)
        self.order, offsets = counted_order(self.codes, self.groups)
        return self._tested(offsets), self._grouped(offsets, final)

    def _tested(self, offsets: IntArray) -> PreparedRows:
        """Conditions over the rows in the present order; masked rows have no bits."""
        wanted = condition_columns(self.compiled)
        table = pa.table({name: self._column(name) for name in wanted}) if wanted else self.rows
        if self.order is not None:
            table = table.take(pa.array(self.order))
        prepared = self.compiled.conditions.prepare(table, offsets)
        if table.num_rows and self.masks():
            assert self.mask is not None
            sequence = self._sequence_of(np.arange(table.num_rows))
            prepared.words[~self.mask(sequence)] = 0
        return prepared

    def _live_rows(self, words: Words) -> IntArray | None:
        """The rows that a match can contain, without those that are nothing but events between two
        others; None: all.
        """
        every = self.compiled.automaton.empty_match or self.compiled.history > 0
        if every or self.incremental or self.mode == "all with unmatched":
            return None
        matcher = self.matcher
        breaks = matcher.selection in (None, "contiguous")
        time: IntArray = np.zeros(0, np.int64)
        if matcher.window >= 0 and self.compiled.in_time_order:
            time = self._ticks()
        return live_rows(
            words, matcher.follow[0], matcher.idle, breaks, self.codes, time, matcher.window,
            self.seen,
        )  # fmt: skip

    def _grouped(self, offsets: IntArray, final: bool) -> Groups:
        size = int(offsets[-1])
        time: IntArray = np.zeros(0 if self.compiled.within is not None else size, np.int64)
        now = 0
        if self.compiled.within is not None and self.rows.num_rows:
            ticks = self._ticks()
            now = int(ticks[-1])
            if self.held is not None:  # newer rows are held back
                held = self.held.column(str(self.compiled.columns.time))
                now = int(numbers(flat(held), "i")[0][-1])
            if self.known is not None:
                now = self.known
            # without partitions time is read in place
            time = ticks if self.order is None else ticks[self.order]
        position = offsets[:-1] + self.behind
        taken = NOT_TAKEN
        if self.incremental:
            taken = self.taken if self.order is None else self.taken[self.order]
        return Groups(
            offsets, position, self.seen, self.number, time, now, final, self.order, taken
        )

    def _ticks(self) -> IntArray:
        ticks, _ = numbers(self._column(str(self.compiled.columns.time)), "i")
        return np.ascontiguousarray(ticks, np.int64)

    def _sequence_of(self, rows: IntArray) -> IntArray:
        return self._sequence_at(self._original(rows))

    def _sequence_at(self, places: IntArray) -> IntArray:
        """Input number of rows of the buffer."""
        numbers = places + (self.next_sequence - len(self.codes))
        early = np.flatnonzero(places < len(self._earlier))
        numbers[early] = self._earlier[places[early]]
        return numbers

    def _original(self, rows: IntArray) -> IntArray:
        return rows if self.order is None else self.order[rows]

    def _column(self, name: str) -> pa.Array:
        if name == self.coded:
            return pa.array(self.codes)
        if name not in self.flattened:
            self.flattened[name] = whole(self.rows.column(name))
        return self.flattened[name]

    def _take(self, name: str, indices: pa.Array) -> pa.Array:
        values = self._take_key(name, indices)
        return values if name != self.coded else self.keys.texts.take(values)

    def _take_key(self, name: str, indices: pa.Array) -> pa.Array:
        """Values of a column; of a coded key the codes."""
        if self.order is not None and len(indices):
            if indices.null_count:
                places = indices.fill_null(0).to_numpy(zero_copy_only=False)
                mask = indices.is_null().to_numpy(zero_copy_only=False)
                indices = pa.array(self.order[places], mask=mask)
            else:
                indices = pa.array(self.order[indices.to_numpy()])
        return decoded(self._column(name).take(indices))

    def _describe_row(self, row: int) -> str:
        time = self.compiled.columns.time
        names = [*self.compiled.partition_by, *([time] if time in self.inputs else [])]
        values = {name: self._take(name, pa.array([row])) for name in names}
        parts = [f"{name} = {value_text(python_values(one)[0])}" for name, one in values.items()]
        at = ", ".join(parts)
        return f"at {at or f'row {int(self._sequence_of(np.array([row]))[0]) + 1} of the input'}"

    # -- results --------------------------------------------------------------------------------

    def _results(self, matches: Matches, groups: Groups) -> tuple[IntArray, pa.Table]:
        if self.counting:
            return matches.start, pa.table({NOTHING_WANTED: pa.nulls(len(matches.start))})
        begin, end = groups.offsets[matches.group], groups.offsets[matches.group + 1]
        begins = self._sequence_of(matches.start)
        match, _, table = self.results.of(matches, begin, end)
        return (begins if self.mode == "one" else begins[match]), table

    def _cover(self, matches: Matches) -> None:
        if len(matches.row):
            self.covered[self._original(matches.rows)] = True
        empty = matches.start[matches.length == 0]
        self.covered[self._original(empty)] = True

    def _unmatched(self, groups: Groups, before: IntArray) -> None:
        past = np.minimum(groups.position, groups.offsets[1:])
        if groups.final:
            past = groups.offsets[1:]
        passed = take_ranges(before, past)
        rows = passed[~self.covered[self._original(passed)]]
        if len(rows) == 0:
            return
        table = self.results.unmatched(rows)
        self._add_results(self._sequence_of(rows), table)

    def _keep(self, groups: Groups) -> int:
        """Drop rows that no later match can need; returns the first undecided sequence number."""
        position = np.minimum(groups.position, groups.offsets[1:])
        if groups.final:
            position = groups.offsets[1:].copy()
        begin = np.maximum(groups.offsets[:-1], position - self.compiled.history)
        self.behind = groups.position - begin  # a skip may lead beyond the present rows
        self.seen |= begin > groups.offsets[:-1]
        watermark = self._undecided(groups, False)
        if groups.final:
            return watermark
        if self.order is None:  # the end of the buffer is kept
            cut = int(begin[0])
            self.flattened = {}
            if cut:
                self.rows = self.rows.slice(cut)
                self._earlier = self._earlier[cut:]
                self.codes = self.codes[cut:]
                self.covered = self.covered[cut:]
                self.taken = self.taken[cut:]
            return watermark
        marks = np.zeros(len(self.codes), np.bool_)
        marks[self.order[take_ranges(begin, groups.offsets[1:])]] = True
        places_ = np.flatnonzero(marks)
        if len(places_) < len(self.codes):
            places = pa.array(places_)
            names = self.rows.schema.names
            self.rows = pa.table({name: self._column(name).take(places) for name in names})
            self._earlier = self._sequence_at(places_)
            self.codes = self.codes[places_]
            if self.mode == "all with unmatched":
                self.covered = self.covered[places_]
            if self.incremental:
                self.taken = self.taken[places_]
        self.flattened = {}
        return watermark

    def _undecided(self, groups: Groups, final: bool) -> int:
        if final:
            return ENDLESS
        open_ = groups.position < groups.offsets[1:]
        undecided = self._sequence_of(groups.position[open_])
        return int(undecided.min()) if len(undecided) else self.next_sequence

    def _add_results(self, begins: IntArray, table: pa.Table) -> None:
        """Results to put out in the order of first rows."""
        if len(begins) > 1 and np.any(begins[1:] < begins[:-1]):
            order = order_of(begins)
            begins, table = begins[order], table.take(pa.array(order))
        self.pending.append((begins, table))

    def _put_out(self, watermark: int) -> Iterator[pa.RecordBatch]:
        ready: list[tuple[IntArray, pa.Table]] = []
        waiting: list[tuple[IntArray, pa.Table]] = []
        for begins, table in self.pending:
            count = int(np.searchsorted(begins, watermark, side="left"))
            if count:
                ready.append((begins[:count], table.slice(0, count)))
            if count < len(begins):
                waiting.append((begins[count:], table.slice(count)))
        self.pending = waiting
        if sum(table.nbytes for _, table in waiting) > self.limits.memory_bytes:
            raise ResourceLimit(
                f"results of pattern {self.matcher.text} wait for an earlier match that is "
                f"still open "
                f"in another partition: more than {self.limits.memory_bytes} bytes; add WITHIN"
            )
        if not ready:
            return
        begins = np.concatenate([begins for begins, _ in ready])
        table = _merged(begins, pa.concat_tables([table for _, table in ready]))
        left_out = min(self.skip, table.num_rows)
        self.skip -= left_out
        table = table.slice(left_out)
        if self.coded in table.schema.names:
            place = table.schema.get_field_index(self.coded)
            keys = self.keys.texts.take(table.column(place).combine_chunks())
            table = table.set_column(place, self.coded, keys)
        for batch in table.to_batches(max_chunksize=1 << 16):
            if batch.num_rows:
                yield batch


def _merged(begins: IntArray, table: pa.Table) -> pa.Table:
    """Rows in the order of ``begins``; only those between others that come later are moved."""
    least = np.minimum.accumulate(begins[::-1])[::-1]
    most = np.maximum.accumulate(begins)
    misplaced = np.flatnonzero((begins > least) | (begins < most))
    if not len(misplaced):
        return table
    low, high = int(misplaced[0]), int(misplaced[-1]) + 1
    moved = table.slice(low, high - low).combine_chunks()
    moved = moved.take(pa.array(order_of(begins[low:high])))
    return pa.concat_tables([table.slice(0, low), moved, table.slice(high)])


def coded_key(compiled: CompiledMatch) -> str | None:
    """The partition column if it is the only one, of texts, and neither sorts rows nor is read by
    conditions.
    """
    if len(compiled.partition_by) != 1:
        return None
    name = compiled.partition_by[0]
    if compiled.columns.arrow.field(name).type not in (pa.string(), pa.binary()):
        return None
    others = [*condition_columns(compiled), *(one.name for one in compiled.clause.measures)]
    others += [one for one, _, _ in compiled.order_by]
    return None if name in others else name


def condition_columns(compiled: CompiledMatch) -> list[str]:
    """Columns that conditions read, or the first input column if they read none."""
    names: dict[str, None] = {}
    for bound in compiled.definitions.values():
        for leaf in bound.leaves:
            row = getattr(leaf, "row", None)
            columns = row.columns if row is not None else getattr(leaf, "columns", ())
            names.update(dict.fromkeys(columns))
    inputs = compiled.input_columns
    present = [name for name in names if name in inputs]
    return present or inputs[:1]


def _joined_tables(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """One table with the fields of the schema; strings stay encoded where they are in all."""
    tables = [table for table in tables if table.num_rows] or tables[:1]
    types = tables[0].schema.types
    if any(table.schema.types != types for table in tables) or not all(
        type_ == own or (pa.types.is_dictionary(type_) and type_.value_type == own)
        for type_, own in zip(types, schema.types, strict=True)
    ):
        types = schema.types
    fields = [field.with_type(type_) for field, type_ in zip(schema, types, strict=True)]
    target = pa.schema(fields)
    return pa.concat_tables(
        [table if table.schema == target else table.cast(target) for table in tables]
    )


def _joined(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not len(before):
        return after
    out = pooled(len(before) + len(after), after.dtype)
    return np.concatenate([before, after], out=out)


def sorted_rows(table: pa.Table, order: tuple[tuple[str, bool, bool], ...]) -> pa.Table:
    """Rows sorted by all keys, stable, with the null order of each key."""
    keys: list[tuple[str, str]] = []
    extra: dict[str, pa.Array] = {}
    for i, (name, descending, nulls_first) in enumerate(order):
        column = flat(table.column(name))
        if column.null_count:
            flag = column.is_valid() if nulls_first else column.is_null()
            extra[f"n{i}"] = flag.cast(pa.int8())
            keys.append((f"n{i}", "ascending"))
        extra[f"k{i}"] = column
        keys.append((f"k{i}", "descending" if descending else "ascending"))
    extra["row"] = pa.array(np.arange(table.num_rows))
    keys.append(("row", "ascending"))
    indices = pc.sort_indices(pa.table(extra), sort_keys=keys)
    return table.take(indices)
