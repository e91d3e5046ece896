"""The leaves of a segment as arrays, to read columns by position, as indexes do.

Creation reads the index nodes of the segment, not its leaves; maps of recent views are cached.
``LeafMap.ahead`` fetches several leaves in two rounds of requests: first all heads, then the bytes
of the wanted rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.caches import Lru
from ..core.sorting import distinct
from .columns import Ranges
from .layout import ROW_COUNT, ROW_FIRST, ROW_LAST, ROW_LENGTH, ROW_OFFSET, SECTION_BYTES
from .leaf import LeafReader
from .segment import SegmentView

Table = npt.NDArray[np.int64]
Rows = Ranges | None
AHEAD_BYTES = 32 << 20
MAPS_REMEMBERED = 256
TICKS_REMEMBERED = 4096


class LeafMap:
    """Leaves of one segment: ``table`` has their entries, ``starts`` the position of each first
    event, then the end; without leaves of which the first ``skipped`` events have all.
    """

    def __init__(self, view: SegmentView, skipped: int = 0) -> None:
        self.view = view
        parts: list[Table] = []
        for level, table in view.fragments:
            _collect(view, level, table, parts)
        table = np.concatenate(parts, axis=1) if parts else np.zeros((5, 0), np.int64)
        ends = np.cumsum(table[ROW_COUNT])
        hidden = int(ends.searchsorted(skipped, "right"))
        self.table = np.ascontiguousarray(table[:, hidden:])
        self.first_ticks: Table = self.table[ROW_FIRST]
        self.last_ticks: Table = self.table[ROW_LAST]
        self.starts = np.append(0, ends).astype(np.int64)[hidden:]
        self._ticks = Lru[int, int](TICKS_REMEMBERED)

    def leaf(self, number: int) -> LeafReader:
        return self.view.file.leaf(
            int(self.table[ROW_OFFSET, number]), int(self.table[ROW_LENGTH, number])
        )

    def fetch(self, numbers: Iterable[int], names: Sequence[str] = ()) -> None:
        """Fetch heads, and whole columns, of leaves together."""
        for _ in self.ahead([(number, None) for number in numbers], names):
            pass

    def ahead(
        self, wanted: Iterable[tuple[int, Rows]], names: Sequence[str] = ()
    ) -> Iterator[tuple[LeafReader, Rows]]:
        """Prefetched leaves with their wanted rows, for ascending leaf numbers."""
        group: list[tuple[int, Rows]] = []
        size = 0
        for number, rows in wanted:
            group.append((number, rows))
            size += self._bytes_wanted(number, rows, len(names))
            if size >= AHEAD_BYTES:
                yield from self._together(group, names)
                group, size = [], 0
        yield from self._together(group, names)

    def _bytes_wanted(self, number: int, rows: Rows, columns: int) -> int:
        length, events = (int(self.table[row, number]) for row in (ROW_LENGTH, ROW_COUNT))
        file = self.view.file
        most = length * columns // len(file.schema.attributes)
        if rows is not None:
            wanted = sum(end - first for first, end in rows)
            most = min(most, 2 * columns * len(rows) * SECTION_BYTES + 8 * columns * wanted)
        return most + file.head_limit(events, length)

    def _together(
        self, group: Sequence[tuple[int, Rows]], names: Sequence[str]
    ) -> Iterator[tuple[LeafReader, Rows]]:
        file, table = self.view.file, self.table
        fresh = [number for number, _ in group if not file.knows(int(table[ROW_OFFSET, number]))]
        if len(fresh) > 1:
            offsets, lengths = table[ROW_OFFSET, fresh].tolist(), table[ROW_LENGTH, fresh].tolist()
            events = table[ROW_COUNT, fresh].tolist()
            heads = map(file.head_limit, events, lengths)
            file.fetch(list(zip(offsets, heads, strict=True)))
        places = table[[ROW_OFFSET, ROW_LENGTH]][:, [number for number, _ in group]].T.tolist()
        leaves = [file.leaf(offset, length, announced=len(fresh) > 1) for offset, length in places]
        if names and (fresh or file.moved):  # what was read before is in memory, if on this disk
            unread = [
                place
                for leaf, (_, rows) in zip(leaves, group, strict=True)
                for place in leaf.unread(names, rows)
            ]
            file.fetch(unread)
        for leaf, (_, rows) in zip(leaves, group, strict=True):
            yield leaf, rows

    def pieces(
        self, first: int, end: int, names: Sequence[str] = ()
    ) -> Iterator[tuple[LeafReader, int, int]]:
        """Leaves with positions [first, end), each with the first and end row."""
        for leaf, rows in self.ahead(self._rows_of(first, end), names):
            assert rows is not None
            yield leaf, *rows[0]

    def _rows_of(self, first: int, end: int) -> Iterator[tuple[int, Ranges]]:
        number = int(np.searchsorted(self.starts, first, side="right")) - 1
        while first < end:
            base, stop = int(self.starts[number]), int(self.starts[number + 1])
            until = min(end, stop)
            yield number, ((first - base, until - base),)
            first = until
            number += 1

    def ticks(self, first: int, end: int) -> Table:
        time = (self.view.file.schema.time,)
        parts = [leaf.ticks(low, high) for leaf, low, high in self.pieces(first, end, time)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.zeros(0, np.int64)])

    def begins(self, positions: Table) -> npt.NDArray[np.bool_]:
        """Whether a leaf, or the end of the segment, begins at each position."""
        at_start: npt.NDArray[np.bool_] = self.starts[np.searchsorted(self.starts, positions)] == (
            positions
        )
        return at_start

    def around(self, positions: Table) -> tuple[Table, Table]:
        numbers = np.searchsorted(self.starts, positions, side="right") - 1
        return self.first_ticks[numbers], self.last_ticks[numbers]

    def tick(self, position: int) -> int:
        """Time of one event; cached for repeated planning."""
        number = int(np.searchsorted(self.starts, position, side="right")) - 1
        if self.starts[number] == position:
            return int(self.first_ticks[number])
        if self.starts[number + 1] == position + 1:
            return int(self.last_ticks[number])
        tick = self._ticks.get(position)
        if tick is None:
            tick = int(self.ticks(position, position + 1)[0])
            self._ticks.put(position, tick)
        return tick

    def fetch_ticks(self, positions: Table) -> None:
        """Fetch together what ``tick`` of some positions reads."""
        inside = positions[~self.begins(positions) & ~self.begins(positions + 1)]
        missing = [at for at in inside.tolist() if self._ticks.get(at) is None]
        if len(missing) > 1:
            numbers = distinct(np.searchsorted(self.starts, missing, side="right") - 1)
            self.fetch(numbers.tolist(), (self.view.file.schema.time,))

    def column(self, name: str, first: int, end: int) -> pa.ChunkedArray | None:
        """An attribute at positions [first, end); None when the segment is older than it."""
        schema = self.view.file.schema
        if name not in schema:
            return None
        parts = [
            self.view.column(leaf, name, low, high)
            for leaf, low, high in self.pieces(first, end, (name,))
        ]
        return pa.chunked_array(parts, schema.attribute(name).type)


def _collect(view: SegmentView, level: int, table: Table, parts: list[Table]) -> None:
    if level == 1:
        parts.append(table)
        return
    places = list(zip(table[ROW_OFFSET].tolist(), table[ROW_LENGTH].tolist(), strict=True))
    view.file.fetch([place for place in places if not view.file.knows(place[0])])
    for offset, length in places:
        _collect(view, level - 1, view.file.node(offset, length), parts)


_maps = Lru[tuple[int, int, int], LeafMap](MAPS_REMEMBERED)


def leaf_map(view: SegmentView, skipped: int = 0) -> LeafMap:
    key = (id(view.file), skipped, view.events)
    mapped = _maps.get(key)
    if mapped is None or mapped.view.file is not view.file:
        mapped = LeafMap(view, skipped)
        _maps.put(key, mapped)
    return mapped
