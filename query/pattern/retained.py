"""Partitions the rows of a step, evaluates their row-local bits once, stores what matches need.
Rows that satisfy nothing are not stored where the pattern may skip rows and nothing reads
neighbours.  A search reads a ``Space``: all rows in place, or a copy of some partitions.

The column store holds the events that a stream of matches still needs, addressed by input number.
When there are more than ``CHUNKS_MAX`` chunks, the newest are merged, shorter ones first, so an
event is copied a logarithmic number of times.

Rows are stored per partition in one block with slack, so a step moves no rows of other partitions.
``cells`` has a row per kind (bits, absences, tick, number in the input, rank, marks) and a column
per event.  Partition ``g`` owns the columns ``at[g] .. at[g] + room[g]``; used ones come first::

    at[g]                                    at[g] + room[g]
      | first | ... | position | ... end - 1 | free ... |      numbers of rows in the partition

A row's *local* number counts the rows of its partition and never changes; its column is ``at[g] +
local - first[g]``.  A full partition moves to the end with twice the room; a full block is copied.
An event moves a constant number of times (amortised).

Kernels select the stored rows that a step must examine; the others are in no match.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.sorting import distinct, order_of
from ...core.times import INT64_MAX, INT64_MIN
from .automaton import ANCHOR_END
from .buffers import PreparedRows, row_bits
from .columns import StoredKeys, flat, numbers, present_groups, ranks, take_ranges
from .match_stream import condition_columns
from .search import horizon

if TYPE_CHECKING:
    from .compiled import CompiledMatch

IntArray = npt.NDArray[np.int64]
CHUNKS_MAX = 12


class RetainedEvents:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.rows = 0
        self.nbytes = 0
        self._tables: list[pa.Table] = []
        self._numbers: list[IntArray] = []

    def append(self, table: pa.Table, numbers: IntArray) -> None:
        """Append rows whose numbers are larger than all before."""
        if not table.num_rows:
            return
        self._tables.append(table.combine_chunks())
        self._numbers.append(numbers)
        self.rows += table.num_rows
        self.nbytes += int(table.nbytes + numbers.nbytes)
        while len(self._tables) > CHUNKS_MAX:
            cut, behind = len(self._tables) - 2, self._tables[-1].num_rows
            while cut and self._tables[cut].num_rows <= behind:
                behind += self._tables[cut].num_rows
                cut -= 1
            self._merge(cut)

    def _merge(self, cut: int) -> None:
        self._tables[cut:] = [pa.concat_tables(self._tables[cut:]).combine_chunks()]
        self._numbers[cut:] = [np.concatenate(self._numbers[cut:])]

    def retain(self, numbers: IntArray) -> None:
        """Drop all rows except these (ascending numbers)."""
        table = self.table(self.schema.names, numbers)
        self._tables = [table.combine_chunks()] if len(numbers) else []
        self._numbers = [numbers] if len(numbers) else []
        self.rows, self.nbytes = len(numbers), int(table.nbytes + numbers.nbytes)

    def take(self, name: str, numbers: IntArray) -> pa.Array:
        return flat(self.table([name], numbers).column(0))

    def table(self, names: Sequence[str], numbers: IntArray) -> pa.Table:
        """Columns of rows; null where the number is negative."""
        schema = pa.schema([self.schema.field(name) for name in names])
        absent = numbers < 0
        nowhere = bool(absent.any())
        if not len(numbers) or not self._tables or (nowhere and absent.all()):
            nulls = [pa.nulls(len(numbers), field.type) for field in schema]
            return pa.table(nulls, names=list(names))
        firsts = np.array([chunk[0] for chunk in self._numbers], np.int64)
        chunk = np.searchsorted(firsts, numbers, side="right") - 1
        if nowhere:
            chunk = np.where(absent, chunk.max(), chunk)
        used = distinct(chunk)
        if len(used) == 1:
            return self._of_chunk(int(used[0]), names, numbers, absent if nowhere else None)
        order = order_of(chunk)
        parts = []
        for c in used.tolist():
            mine = order[np.searchsorted(chunk[order], c) : np.searchsorted(chunk[order], c + 1)]
            lacking = absent[mine] if nowhere else None
            parts.append(self._of_chunk(c, names, numbers[mine], lacking))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return pa.concat_tables(parts).combine_chunks().take(pa.array(back))

    def _of_chunk(
        self, c: int, names: Sequence[str], numbers: IntArray, absent: npt.NDArray[np.bool_] | None
    ) -> pa.Table:
        present = self._numbers[c]
        if present[-1] - present[0] == len(present) - 1:
            places = numbers - present[0]
        else:
            places = np.searchsorted(present, numbers)
        if absent is not None:
            places = np.where(absent, 0, places)
        return self._tables[c].select(list(names)).take(pa.array(places, mask=absent))


WORDS, ABSENT, TIME, EVENT, RANK, MARKS = range(6)
KINDS = 6
FAILED, TAKEN = 1, 2
"""Marks: not computable; a match has ended there (INCREMENTAL MATCH)."""

FAR = np.int64(INT64_MAX)
"""``due`` of a partition that waits for no tick."""


@kernel
def _make_room(groups, counts, at, first, end, room, used, cells):
    """Move full partitions to the end of the block; returns the new used size."""
    for i in range(groups.shape[0]):
        g = groups[i]
        n = end[g] - first[g]
        wanted = n + counts[i]
        if wanted <= room[g]:
            continue
        begin = at[g]
        for k in range(cells.shape[0]):
            for j in range(n):
                cells[k, used + j] = cells[k, begin + j]
        at[g] = used
        room[g] = max(4, 2 * wanted)
        used += room[g]
    return used


@kernel
def _repack(at, first, end, room, cells, out):
    """Copy every partition to a new block without gaps; returns the used size."""
    used = 0
    for g in range(at.shape[0]):
        n = end[g] - first[g]
        begin = at[g]
        for k in range(cells.shape[0]):
            for j in range(n):
                out[k, used + j] = cells[k, begin + j]
        at[g] = used
        room[g] = n
        used += n
    return used


class RetainedRows:
    """Rows by partition.  Local numbers: ``position``, next row at which a match may begin;
    ``ready``, first row whose conditions are not evaluated.  ``seen``: rows were dropped.
    ``tick``, ``rank``: of the last row.  ``due``: greatest tick that the partition waits for.
    """

    def __init__(self) -> None:
        self.cells = np.zeros((KINDS, 1024), np.int64)
        self.used = 0
        self.rows = 0
        for name in ("at", "room", "first", "end", "position", "ready", "number"):
            setattr(self, name, np.zeros(0, np.int64))
        self.at: IntArray
        self.room: IntArray
        self.first: IntArray
        self.end: IntArray
        self.position: IntArray
        self.ready: IntArray
        self.number: IntArray
        self.seen: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self.tick: IntArray = np.zeros(0, np.int64)
        self.rank: IntArray = np.zeros(0, np.int64)
        self.due: IntArray = np.zeros(0, np.int64)

    PER_PARTITION = (
        "at", "room", "first", "end", "position", "ready", "number", "seen", "tick", "rank", "due",
    )  # fmt: skip

    @property
    def partitions(self) -> int:
        return len(self.at)

    @property
    def nbytes(self) -> int:
        words = len(self.PER_PARTITION) - 1  # and a byte
        return int(self.cells.nbytes + words * self.at.nbytes + self.seen.nbytes)

    def grow(self, partitions: int) -> None:
        more = partitions - self.partitions
        if more <= 0:
            return
        for name in self.PER_PARTITION:
            before = getattr(self, name)
            value = {"due": FAR, "rank": -1, "tick": INT64_MIN}.get(name, 0)
            setattr(self, name, np.concatenate([before, np.full(more, value, before.dtype)]))

    def select(self, kept: npt.NDArray[np.bool_]) -> None:
        """Drop the other partitions, which have no rows, and renumber in order."""
        for name in self.PER_PARTITION:
            setattr(self, name, getattr(self, name)[kept].copy())

    def append(self, groups: IntArray, counts: IntArray) -> IntArray:
        """Allocate ``counts`` more rows in each partition; returns their columns, in that order."""
        wanted = self.end[groups] - self.first[groups] + counts
        need = int(np.where(wanted > self.room[groups], np.maximum(4, 2 * wanted), 0).sum())
        if self.used + need > self.cells.shape[1]:
            size = max(1024, 2 * self.rows + 2 * need)
            out = np.zeros((KINDS, size), np.int64)
            self.used = int(_repack(self.at, self.first, self.end, self.room, self.cells, out))
            self.cells = out
            need = int(np.where(wanted > self.room[groups], np.maximum(4, 2 * wanted), 0).sum())
            if self.used + need > size:
                self.cells = np.concatenate(
                    [out, np.zeros((KINDS, self.used + need - size), np.int64)], axis=1
                )
        self.used = int(
            _make_room(
                groups, counts, self.at, self.first, self.end, self.room, self.used, self.cells
            )
        )
        begin = self.at[groups] + self.end[groups] - self.first[groups]
        self.end[groups] += counts
        self.rows += int(counts.sum())
        return take_ranges(begin, begin + counts)

    def place(self, groups: IntArray, local: IntArray) -> IntArray:
        return self.at[groups] + local - self.first[groups]

    def columns(self, groups: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        moved = self.at[groups] - self.first[groups]
        return take_ranges(begin + moved, end + moved)

    def drop(self, groups: IntArray, upto: IntArray) -> None:
        gone = np.maximum(np.minimum(upto, self.end[groups]) - self.first[groups], 0)
        self.first[groups] += gone
        self.rows -= int(gone.sum())
        self.at[groups] += gone
        self.room[groups] -= gone
        self.seen[groups] |= gone > 0

    def all_columns(self) -> IntArray:
        return take_ranges(self.at, self.at + self.end - self.first)


PARTITIONS_MIN = 4096
ROWS_MIN = 4096


@dataclass(frozen=True)
class Space:
    """Rows that a search reads.
    ``moved``: row minus local number, per partition.  ``seen``: the partition has earlier rows.
    ``columns``: column of each row in the block, None if equal to the row.
    """

    prepared: PreparedRows
    begin: IntArray
    end: IntArray
    moved: IntArray
    seen: npt.NDArray[np.bool_]
    time: IntArray
    columns: IntArray | None

    def column(self, rows: IntArray) -> IntArray:
        return rows if self.columns is None else self.columns[rows]


@kernel
def _pass_bounds(groups, place, begin, end, tick, rank, bound_tick, bound_rank, position):
    """Move positions past new rows that come before a bound."""
    for i in range(groups.shape[0]):
        g = groups[i]
        for local in range(begin[i], end[i]):
            at = place[i] + local - begin[i]
            before = tick[at] < bound_tick[g] or (
                tick[at] == bound_tick[g] and rank[at] < bound_rank[g]
            )
            if position[g] == local and before:
                position[g] = local + 1


class RetainedInput:
    """Rows of one clause; ``careful``: a value of the newest rows could not be computed."""

    def __init__(self, compiled: CompiledMatch) -> None:
        self.compiled = compiled
        self.inputs = compiled.input_columns
        self.schema = pa.schema([compiled.columns.arrow.field(name) for name in self.inputs])
        self.partition_by = list(compiled.partition_by)
        self.rows = RetainedRows()
        self.events = RetainedEvents(self.schema)
        self.keys = StoredKeys(self.schema, self.partition_by)
        if not self.partition_by:
            self.rows.grow(1)
        self.careful = False
        self.failed = False  # whether any stored row is marked FAILED
        self.next_number = 0
        self.hits = 0
        self._wanted = condition_columns(compiled)
        self._alone = not compiled.history
        _, _, flags = compiled.automaton.tables
        self._remembers_begin = bool((flags & 1).any())
        self._thin = (
            self._alone
            and compiled.clause.selection in ("next", "any")
            and not (flags & ANCHOR_END).any()
        )
        nothing = compiled.conditions.prepare(self._none(), np.zeros(2, np.int64))
        self._template = nothing
        self._bounds: tuple[IntArray, IntArray] | None = None
        self._tidy_at = PARTITIONS_MIN

    def _none(self) -> pa.Table:
        return self.schema.empty_table().select(self._wanted)

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + self.events.nbytes + self.keys.table.nbytes)

    # -- rows in --------------------------------------------------------------------------------

    def append(self, table: pa.Table) -> tuple[IntArray, IntArray]:
        """Append rows in time order.  Returns their partitions, and per partition the local number
        of the first row whose conditions were not evaluated before.
        """
        self.careful = False
        if not table.num_rows:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        codes = self._encode(table)
        retained, name = self.rows, str(self.compiled.columns.time)
        time = np.ascontiguousarray(numbers(flat(table.column(name)), "i")[0], np.int64)
        rank = np.empty(len(codes), np.int64)
        ranks(codes, time, retained.tick, retained.rank, rank)
        order, groups, offsets = present_groups(codes, retained.partitions)
        rank, time = rank[order], time[order]
        ready = retained.ready[groups]
        numbers_ = self.next_number + order
        self.next_number += len(order)
        if self._alone:
            inputs = table.select(self._wanted)
            if self.partition_by:
                inputs = inputs.take(pa.array(order))
            self._append_bits(table, inputs, groups, offsets, time, rank, numbers_)
        else:
            self.events.append(table, self._newest(table))
            self._place(groups, np.diff(offsets), time, rank, numbers_)
        return groups, ready

    def _encode(self, table: pa.Table) -> IntArray:
        codes = self.keys.encode(table)
        if self.keys.count > self.rows.partitions:
            self.rows.grow(self.keys.count)
            if self._bounds is not None:
                more = self.rows.partitions - len(self._bounds[0])
                self._bounds = (
                    np.concatenate([self._bounds[0], np.full(more, INT64_MIN)]),
                    np.concatenate([self._bounds[1], np.zeros(more, np.int64)]),
                )
        return codes

    def _append_bits(
        self, table: pa.Table, asked: pa.Table, groups: IntArray, offsets: IntArray,
        time: IntArray, rank: IntArray, number: IntArray,
    ) -> None:  # fmt: skip
        plan, retained = self.compiled.conditions, self.rows
        words, absent, failed, self.careful = row_bits(plan, asked, offsets)
        counts = np.diff(offsets)
        if self._thin:
            some = (words != 0) | (absent != 0)
            if failed is not None:
                some |= failed != 0
            # `^` does not hold after a row that is not stored
            retained.seen[groups] |= ~some[offsets[:-1]]
            lasting = np.flatnonzero(some)
            sums = np.concatenate([[0], np.cumsum(some)])
            counts = sums[offsets[1:]] - sums[offsets[:-1]]
            words, absent = words[lasting], absent[lasting]
            time, rank, number = time[lasting], rank[lasting], number[lasting]
            failed = None if failed is None else failed[lasting]
            used = np.sort(number)
            base = self.next_number - table.num_rows
            table = table.take(pa.array(used - base))
            self.events.append(table, used)
        else:
            self.events.append(table, self._newest(table))
        columns = self._place(groups, counts, time, rank, number)
        self._set_bits(columns, words, absent, failed)
        retained.ready[groups] = retained.end[groups]

    def _newest(self, table: pa.Table) -> IntArray:
        return np.arange(self.next_number - table.num_rows, self.next_number)

    def _place(
        self, groups: IntArray, counts: IntArray, time: IntArray, rank: IntArray, number: IntArray
    ) -> IntArray:
        retained = self.rows
        begin = retained.end[groups]
        columns = retained.append(groups, counts)
        cells = retained.cells
        cells[TIME][columns], cells[RANK][columns], cells[EVENT][columns] = time, rank, number
        cells[MARKS][columns] = 0
        if self._bounds is not None:
            _pass_bounds(
                groups, retained.place(groups, begin), begin, retained.end[groups], cells[TIME],
                cells[RANK], *self._bounds, retained.position,
            )  # fmt: skip
            ready = np.maximum(retained.ready[groups], retained.position[groups])
            retained.ready[groups] = ready
        return columns

    def _set_bits(
        self,
        columns: IntArray,
        words: npt.NDArray[np.uint64],
        absent: IntArray,
        failed: npt.NDArray[np.uint64] | None,
    ) -> None:
        cells = self.rows.cells
        cells[WORDS][columns] = words.view(np.int64)
        self.hits += int(np.count_nonzero(words))
        cells[ABSENT][columns] = absent
        if failed is not None and (failed != 0).any():
            self.failed = True
            cells[MARKS][columns] |= np.where(failed != 0, FAILED, 0)

    def evaluate(self, groups: IntArray) -> None:
        retained = self.rows
        end, ready = retained.end[groups], retained.ready[groups]
        waiting = end > ready
        if not waiting.any():
            return
        groups, end, ready = groups[waiting], end[waiting], ready[waiting]
        low = np.maximum(retained.first[groups], ready - self.compiled.history)
        columns = retained.columns(groups, low, end)
        offsets = np.concatenate([[0], np.cumsum(end - low)]).astype(np.int64)
        table = self.events.table(self._wanted, retained.cells[EVENT][columns])
        words, absent, failed, careful = row_bits(self.compiled.conditions, table, offsets)
        self.careful |= careful
        fresh = np.zeros(len(columns) + 1, np.int64)  # +1 at the first row to set, -1 after it
        np.add.at(fresh, offsets[:-1] + ready - low, 1)
        np.add.at(fresh, offsets[1:], -1)
        chosen = np.flatnonzero(np.cumsum(fresh[:-1]) > 0)
        self._set_bits(
            columns[chosen], words[chosen], absent[chosen],
            None if failed is None else failed[chosen],
        )  # fmt: skip
        retained.ready[groups] = end

    # -- what a search reads --------------------------------------------------------------------

    def where_they_lie(self, groups: IntArray) -> Space:
        retained = self.rows
        cells = retained.cells
        prepared = PreparedRows(
            cells[WORDS].view(np.uint64), cells[ABSENT], self._template.image,
            self._template.condition,
        )  # fmt: skip
        begin = retained.at[groups]
        return Space(
            prepared, begin, begin + retained.end[groups] - retained.first[groups],
            begin - retained.first[groups], retained.seen[groups], cells[TIME], None,
        )  # fmt: skip

    def gathered(self, groups: IntArray, low: IntArray) -> Space:
        """A copy of partitions' rows from ``low`` on, and of earlier rows that PREV may read."""
        retained = self.rows
        base = np.maximum(retained.first[groups], low - self.compiled.history)
        columns = retained.columns(groups, base, retained.end[groups])
        offsets = np.concatenate([[0], np.cumsum(retained.end[groups] - base)]).astype(np.int64)
        if self.compiled.conditions.path_dependent or self._fails(columns):
            table = self.events.table(self._wanted, retained.cells[EVENT][columns])
            prepared = self.compiled.conditions.prepare(table, offsets)
        else:
            prepared = PreparedRows(
                retained.cells[WORDS][columns].view(np.uint64), retained.cells[ABSENT][columns],
                self._template.image, self._template.condition,
            )  # fmt: skip
        return Space(
            prepared, offsets[:-1], offsets[1:], offsets[:-1] - base,
            retained.seen[groups] | (base > retained.first[groups]),
            retained.cells[TIME][columns], columns,
        )  # fmt: skip

    def must_gather(self, groups: IntArray) -> bool:
        """Whether the stored bits of these partitions do not suffice."""
        if self.compiled.conditions.path_dependent:
            return True
        retained = self.rows
        return self.failed and self._fails(
            retained.columns(groups, retained.first[groups], retained.end[groups])
        )

    def _fails(self, columns: IntArray) -> bool:
        return self.failed and bool((self.rows.cells[MARKS][columns] & FAILED).any())

    # -- tidying up -----------------------------------------------------------------------------

    def tidy(self, watermark: int) -> IntArray | None:
        """Free memory; the new partition numbers if partitions without rows were forgotten."""
        retained = self.rows
        if self.events.rows > 2 * retained.rows + ROWS_MIN:
            columns = retained.all_columns()
            self.events.retain(np.sort(retained.cells[EVENT][columns]))
            self.failed = self._fails(columns)
        few = retained.partitions <= self._tidy_at or not self.partition_by
        if few or self._remembers_begin:
            return None
        lasting = (
            (retained.end > retained.first)
            | (retained.tick > watermark)
            | (retained.position > retained.end)
        )
        self._tidy_at = max(PARTITIONS_MIN, 2 * int(lasting.sum()))
        if 2 * int(lasting.sum()) > retained.partitions:
            return None
        retained.select(lasting)
        self._bounds = None
        self.keys.keep(np.flatnonzero(lasting))
        return np.cumsum(lasting) - 1

    def bound(self, keys: pa.Table, tick: IntArray, rank: IntArray) -> None:
        """Let no match begin before an event, in each of some partitions, until ``unbound``."""
        groups = self._encode(keys) if self.partition_by else np.zeros(len(tick), np.int64)
        n = self.rows.partitions
        self._bounds = (np.full(n, INT64_MIN), np.zeros(n, np.int64))
        self._bounds[0][groups], self._bounds[1][groups] = tick, rank
        self.rows.seen[groups] = True

    def unbound(self) -> None:
        self._bounds = None


@kernel
def next_start(words, rows, end, first_bits):
    """Move each of ``rows`` to the next row at which a match may begin, at most to its end."""
    for i in range(rows.shape[0]):
        r = rows[i]
        while r < end[i] and words[r] & first_bits == 0:
            r += 1
        rows[i] = r


@kernel
def expire(time, rows, end, window, now):
    """Move each of ``rows`` past rows whose window is over, at most to its end."""
    for i in range(rows.shape[0]):
        r = rows[i]
        while r < end[i] and horizon(time[r], window) < now:
            r += 1
        rows[i] = r


@kernel
def has_last_event(words, begin, end, finals, out):
    """Whether a match may end at one of the rows ``begin .. end`` of each group."""
    for i in range(begin.shape[0]):
        out[i] = False
        for r in range(begin[i], end[i]):
            if words[r] & finals != 0:
                out[i] = True
                break
