"""Recent events of a bank by partition and time, with late events inserted in order::

    at[p]                    at[p] + size[p]       at[p] + room[p]
      | tick number | tick number |  ...  | free ...  |     rows of partition p
              |
              number of the event in EventColumns

The *place* of a row is its rank in its partition.  A partition without free space moves to the end
of the block with twice the space; amortised O(1) moves per event in order.  Invariant: all events
from ``first`` to ``last`` are here, those of one tick and partition in order of arrival.

Columns of numbered events are read by number: fixed-width ones as arrays, others in chunks.  The
partitions that a bank has seen have numbers, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.sorting import firsts
from ...core.times import INT64_MIN
from ...query.pattern.columns import (
    KeyCodes,
    flat,
    group_rows,
    numbers,
    present_groups,
    take_ranges,
)
from ...query.pattern.retained import KeptEvents, ranks
from .searching import Fresh

IntArray = npt.NDArray[np.int64]


class _Bits:
    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._bits: npt.NDArray[Any] = np.empty(1024, f"i{type_.bit_width // 8}")
        self._valid: npt.NDArray[np.bool_] | None = None

    @property
    def nbytes(self) -> int:
        return self._bits.nbytes + (0 if self._valid is None else self._valid.nbytes)

    def append(self, column: pa.ChunkedArray, first: int) -> None:
        array = flat(column)
        end = first + len(array)
        if end > len(self._bits):
            self._bits = _longer(self._bits, first, 2 * end)
        if array.null_count and self._valid is None:
            self._valid = np.ones(len(self._bits), np.bool_)
        bits = np.frombuffer(array.buffers()[1], self._bits.dtype)
        self._bits[first:end] = bits[array.offset : array.offset + len(array)]
        if self._valid is not None:
            if end > len(self._valid):
                self._valid = _longer(self._valid, first, len(self._bits))
            self._valid[first:end] = array.is_valid().to_numpy(zero_copy_only=False)

    def take(self, numbers: IntArray) -> pa.Array:
        valid = None if self._valid is None else pa.array(self._valid[numbers]).buffers()[1]
        held = [valid, pa.py_buffer(self._bits[numbers])]
        return pa.Array.from_buffers(self._type, len(numbers), held)


class EventColumns:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.count = 0
        self._plain = {field.name: _Bits(field.type) for field in schema if _is_plain(field.type)}
        self._other = KeptEvents(pa.schema([f for f in schema if f.name not in self._plain]))

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._plain.values()) + self._other.nbytes

    def append(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        for name, column in self._plain.items():
            column.append(table.column(name), self.count)
        numbers = self.count + np.arange(table.num_rows)
        if self._other.schema.names:
            self._other.append(table.select(self._other.schema.names), numbers)
        self.count += table.num_rows

    def table(self, names: Sequence[str], numbers: IntArray) -> pa.Table:
        others = [name for name in names if name not in self._plain]
        rest = self._other.table(others, numbers) if others else None
        columns = [
            self._plain[name].take(numbers) if rest is None or name in self._plain
            else rest.column(name)
            for name in names
        ]  # fmt: skip
        return pa.table(columns, schema=pa.schema([self.schema.field(name) for name in names]))


def _is_plain(type_: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type_) and type_.bit_width >= 8)


def _longer(array: npt.NDArray[Any], used: int, room: int) -> npt.NDArray[Any]:
    longer = np.empty(room, array.dtype)
    longer[:used] = array[:used]
    return longer


Bools = npt.NDArray[np.bool_]


class Partitions:
    """Per partition: keys, number of events, and the last one's tick and rank within that tick."""

    def __init__(self, schema: pa.Schema, time: str, partition_by: Sequence[str]) -> None:
        self.time = time
        self.partition_by = list(partition_by)
        self.keys = pa.schema([schema.field(name) for name in partition_by]).empty_table()
        self._codes = KeyCodes(max(1, len(self.partition_by)))
        one = 0 if self.partition_by else 1
        self.count = np.zeros(one, np.int64)
        self.tick = np.full(one, INT64_MIN)
        self.rank = np.full(one, -1)

    def __len__(self) -> int:
        return len(self.count)

    @property
    def nbytes(self) -> int:
        return int(self.count.nbytes + self.tick.nbytes + self.rank.nbytes + self.keys.nbytes)

    def numbers_of(self, table: pa.Table) -> IntArray:
        """The partition of each row; new ones are added."""
        if not self.partition_by or not table.num_rows:
            return np.zeros(table.num_rows, np.int64)
        codes = self._codes.encode([table.column(name) for name in self.partition_by])
        more = self._codes.count - len(self.count)
        if more:
            new, first = firsts(codes)
            rows = pa.array(first[new >= len(self.count)])
            keys = table.select(self.partition_by).take(rows)
            self.keys = pa.concat_tables([self.keys, keys]).combine_chunks()
            self.count = np.concatenate([self.count, np.zeros(more, np.int64)])
            self.tick = np.concatenate([self.tick, np.full(more, INT64_MIN)])
            self.rank = np.concatenate([self.rank, np.full(more, -1)])
        return codes

    def arrange(self, table: pa.Table) -> tuple[Fresh, IntArray]:
        """The next events sorted by partition, and the table row of each."""
        count = table.num_rows
        ticks, _ = numbers(flat(table.column(self.time)), "i")
        tick = np.ascontiguousarray(ticks, np.int64)
        codes = self.numbers_of(table)
        order, offsets = group_rows(codes, len(self.count))
        codes, tick = codes[order], tick[order]
        among = np.empty(count, np.int64)
        ranks(np.arange(len(self.count)), offsets, tick, self.tick, self.rank, among)
        rank = self.count[codes] + np.arange(count) - offsets[codes]
        self.count += np.diff(offsets)
        return Fresh(codes, rank, tick, among, self.count), order

    def keys_at(self, partition: IntArray) -> pa.Table:
        return self.keys.take(pa.array(partition)) if self.partition_by else pa.table({})

    def keep(self, lasting: Bools) -> IntArray:
        """Drop the other partitions; maps old numbers to new ones."""
        self.keys = self.keys.filter(pa.array(lasting)).combine_chunks()
        self._codes = KeyCodes(len(self.partition_by))
        self._codes.encode([self.keys.column(name) for name in self.partition_by])
        self.count, self.tick, self.rank = (
            column[lasting] for column in (self.count, self.tick, self.rank)
        )
        number: IntArray = np.cumsum(lasting) - 1
        return number


# mypy: disable-error-code="no-untyped-def"


@kernel
def _relocated(groups, wanted, at, size, room, used, rows, out):
    """Copy partitions to the end of a block, each with free space; returns the new used size."""
    for i in range(groups.shape[0]):
        g = groups[i]
        begin = at[g]
        for j in range(size[g]):
            out[used + j, 0] = rows[begin + j, 0]
            out[used + j, 1] = rows[begin + j, 1]
        at[g] = used
        room[g] = wanted[i]
        used += wanted[i]
    return used


@kernel
def _woven(groups, offsets, tick, number, at, size, rows, place):
    """Merge rows, ascending by time, into partitions, behind rows of equal ticks."""
    for i in range(groups.shape[0]):
        g = groups[i]
        base = at[g]
        old = size[g] - 1
        new = offsets[i + 1] - 1
        size[g] += offsets[i + 1] - offsets[i]
        put = size[g] - 1
        while new >= offsets[i]:
            if old >= 0 and rows[base + old, 0] > tick[new]:
                rows[base + put, 0] = rows[base + old, 0]
                rows[base + put, 1] = rows[base + old, 1]
                old -= 1
            else:
                rows[base + put, 0] = tick[new]
                rows[base + put, 1] = number[new]
                place[new] = put
                new -= 1
            put -= 1


@kernel
def _places(partition, wanted, at, size, rows, place):
    """Place of the first row of a partition at a tick or later."""
    for i in range(partition.shape[0]):
        base = at[partition[i]]
        left = np.int64(0)
        right = size[partition[i]]
        while left < right:
            middle = (left + right) // 2
            if rows[base + middle, 0] < wanted[i]:
                left = middle + 1
            else:
                right = middle
        place[i] = left


@kernel
def _read(partition, begin, end, first, at, rows, tick, number, among):
    """Rows of ranges; ``first``: place of the first row with the tick at a range's begin."""
    k = 0
    for i in range(partition.shape[0]):
        base = at[partition[i]]
        since = first[i]
        for place in range(begin[i], end[i]):
            tick[k] = rows[base + place, 0]
            if place > begin[i] and tick[k] != tick[k - 1]:
                since = place
            number[k] = rows[base + place, 1]
            among[k] = place - since
            k += 1


class Rows:
    """Rows of ranges of places: those of range ``i`` are ``offsets[i] .. offsets[i + 1]``, with
    tick, event number, and ``among``, the rank within partition and tick.
    """

    def __init__(self, sizes: IntArray) -> None:
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.tick, self.number, self.among = np.empty((3, int(self.offsets[-1])), np.int64)


class Arranged:
    """See the module; ``first`` and ``last`` are inclusive ticks."""

    def __init__(
        self, schema: pa.Schema, time: str, partition_by: Sequence[str], first: int
    ) -> None:
        self.schema = schema
        self.time = time
        self.first, self.last = first, first - 1
        self.rows = 0
        self.partitions = Partitions(schema, time, partition_by)
        self.size = np.zeros(len(self.partitions), np.int64)
        self._at, self._room = self.size.copy(), self.size.copy()
        self._block: IntArray = np.empty((1024, 2), np.int64)
        self._used = 0
        self._events = EventColumns(schema)

    @property
    def nbytes(self) -> int:
        own = sum(part.nbytes for part in (self.size, self._at, self._room, self._block))
        return int(own + self._events.nbytes + self.partitions.nbytes)

    # -- events in --------------------------------------------------------------------------------

    def append(self, table: pa.Table, upto: int) -> None:
        self._take(table)
        self.last = upto

    def insert(self, table: pa.Table) -> tuple[IntArray, IntArray]:
        """Add late events, in time order; their partitions and places, ascending."""
        groups, offsets, place = self._take(table)
        return np.repeat(groups, np.diff(offsets)), place

    def _take(self, table: pa.Table) -> tuple[IntArray, IntArray, IntArray]:
        count = table.num_rows
        place = np.empty(count, np.int64)
        if not count:
            return np.zeros(0, np.int64), np.zeros(1, np.int64), place
        codes = self.partitions.numbers_of(table)
        ticks, _ = numbers(flat(table.column(self.time)), "i")
        order, groups, offsets = present_groups(codes, len(self.partitions))
        self._make_room(groups, np.diff(offsets))
        tick = np.asarray(ticks, np.int64)[order]
        number = self._events.count + order
        _woven(groups, offsets, tick, number, self._at, self.size, self._block, place)
        self._events.append(table)
        self.rows += count
        return groups, offsets, place

    def _make_room(self, groups: IntArray, counts: IntArray) -> None:
        more = len(self.partitions) - len(self.size)
        if more:
            none = np.zeros(more, np.int64)
            self.size, self._at, self._room = (
                np.concatenate([each, none]) for each in (self.size, self._at, self._room)
            )
        wanted = self.size[groups] + counts
        short = wanted > self._room[groups]
        if not short.any():
            return
        need = 2 * int(wanted[short].sum())
        if self._used + need <= len(self._block):
            self._move(groups[short], 2 * wanted[short], self._used, self._block)
            return
        room = self.size.copy()  # everything moves; partitions keep the space they had
        room[groups] = 2 * wanted
        block, self._block = self._block, np.empty((2 * int(room.sum()) + 1024, 2), np.int64)
        self._move(np.arange(len(room)), room, 0, block)

    def _move(self, groups: IntArray, room: IntArray, used: int, block: IntArray) -> None:
        self._used = int(
            _relocated(groups, room, self._at, self.size, self._room, used, block, self._block)
        )

    def forget(self) -> None:
        rows = take_ranges(self._at, self._at + self.size)
        partition = np.repeat(np.arange(len(self.size)), self.size)
        block = self._block[rows]
        self.first = max(self.first, int(np.median(block[:, 0])) + 1)
        stays = block[:, 0] >= self.first
        self._block, partition = block[stays], partition[stays]
        self.size = np.bincount(partition, minlength=len(self.size)).astype(np.int64)
        if self.partitions.partition_by:
            some = self.size > 0
            self.partitions.keep(some)
            self.size = self.size[some]
        self._room = self.size.copy()
        self._at = np.cumsum(self.size) - self.size
        self.rows = self._used = len(self._block)
        kept = np.sort(self._block[:, 1])
        self._block[:, 1] = np.searchsorted(kept, self._block[:, 1])
        before, self._events = self._events, EventColumns(self.schema)
        self._events.append(before.table(self.schema.names, kept))

    # -- what is asked ----------------------------------------------------------------------------

    def places(self, partition: IntArray, tick: IntArray) -> IntArray:
        """Place of the first row at a tick or later, per (partition, tick)."""
        place = np.empty(len(partition), np.int64)
        _places(partition, tick, self._at, self.size, self._block, place)
        return place

    def ticks(self, partition: IntArray, place: IntArray) -> IntArray:
        found: IntArray = self._block[self._at[partition] + place, 0]
        return found

    def read(self, partition: IntArray, begin: IntArray, end: IntArray) -> Rows:
        rows = Rows(end - begin)
        first = self.places(partition, self.ticks(partition, begin))
        _read(
            partition, begin, end, first, self._at, self._block, rows.tick, rows.number, rows.among
        )
        return rows

    def table(self, names: Sequence[str], rows: Rows) -> pa.Table:
        return self._events.table(names, rows.number)
