"""Recent events of a bank by partition and time, with late events inserted in order::

    at[p]                    at[p] + size[p]       at[p] + room[p]
      | tick number | tick number |  ...  | free ...  |     rows of partition p
              |
              number of the event in EventColumns

The *place* of a row is its rank in its partition.  A partition without free space moves to the end
of the block with twice the space; amortised O(1) moves per event in order.  Invariant: all events
from ``first`` to ``last`` are here, those of one tick and partition in order of arrival.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...query.pattern.columns import flat, numbers, present_groups, take_ranges
from .event_columns import EventColumns
from .partitions import Partitions

__all__ = ["Arranged", "Rows"]

IntArray = npt.NDArray[np.int64]


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
