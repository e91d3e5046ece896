"""The leaves of a segment as arrays: where each begins in the stream, and what its entry says.

Purpose
    Positions are how indexes speak of events.  :class:`LeafMap` finds the leaf that holds a
    position, reads columns by position, and keeps the entries of all leaves together as a coarse
    map of the segment: counts, time bounds and the minimum and maximum of every attribute.

Cost
    Making one reads the index nodes of the segment, not its leaves.  Maps of recent views are
    remembered.

Reading ahead
    Who knows several leaves of which it wants rows takes them from :meth:`LeafMap.ahead`, which
    asks for the heads of many of them together and then, as the heads say where they lie, for the
    bytes of the rows: two rounds of waiting, however many leaves, not two for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.caches import Lru
from ..core.sorting import distinct
from .layout import ROW_COUNT, ROW_FIRST, ROW_LAST, ROW_LENGTH, ROW_OFFSET, SECTION_BYTES
from .leaf import LeafReader
from .sections import Ranges
from .segment import SegmentView

__all__ = ["LeafMap", "leaf_map"]

Table = npt.NDArray[np.int64]
Rows = Ranges | None
"""Of a leaf; None stands for all."""
AHEAD_BYTES = 32 << 20
"""Asked for together: what is read ahead of who reads it."""
MAPS_REMEMBERED = 256
TICKS_REMEMBERED = 4096


class LeafMap:
    """Leaves of one segment at one moment.

    Attributes
    ----------
    table : int64[rows, leaves]
        Their entries, in time order (see :mod:`chronicle.store.layout`).
    starts : int64[leaves + 1]
        Position in the segment of each leaf's first event, then the segment's events.  Of a view
        that is cut in front (:mod:`.cut_views`), the leaves that it shows, where they are: the
        first may begin before what is shown.
    """

    def __init__(self, view: SegmentView) -> None:
        self.view = view
        parts: list[Table] = []
        for level, table in view.fragments:
            _collect(view, level, table, parts)
        self.table = np.concatenate(parts, axis=1) if parts else np.zeros((5, 0), np.int64)
        ends = np.cumsum(self.table[ROW_COUNT])
        begin = view.skipped + view.events - (int(ends[-1]) if ends.size else 0)
        self.starts = begin + np.concatenate([[0], ends]).astype(np.int64)
        self._ticks = Lru[int, int](TICKS_REMEMBERED)

    @property
    def first_ticks(self) -> Table:
        """First tick of each leaf."""
        row: Table = self.table[ROW_FIRST]
        return row

    @property
    def last_ticks(self) -> Table:
        """Last tick of each leaf."""
        row: Table = self.table[ROW_LAST]
        return row

    def leaf(self, number: int) -> LeafReader:
        """A leaf by its number."""
        return self.view.file.leaf(
            int(self.table[ROW_OFFSET, number]), int(self.table[ROW_LENGTH, number])
        )

    def fetch(self, numbers: Iterable[int], names: Sequence[str] = ()) -> None:
        """Have what will be wanted of leaves come together: their heads, and whole columns."""
        for _ in self.ahead([(number, None) for number in numbers], names):
            pass

    def ahead(
        self, wanted: Iterable[tuple[int, Rows]], names: Sequence[str] = ()
    ) -> Iterator[tuple[LeafReader, Rows]]:
        """Leaves, each with the rows wanted of it, which have come or are coming.

        Parameters
        ----------
        wanted : iterable of (int, ranges)
            Numbers of leaves, ascending, and rows of each; None for all.
        names : sequence of str
            Columns that will be read of these rows.
        """
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
        """About what is read of a leaf."""
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
        leaves = [file.leaf(offset, length, asked=len(fresh) > 1) for offset, length in places]
        if names:
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
        """Leaves that hold positions [first, end), each with the rows wanted of some columns."""
        for leaf, rows in self.ahead(self._rows_of(first, end), names):
            assert rows is not None
            yield leaf, *rows[0]

    def _rows_of(self, first: int, end: int) -> Iterator[tuple[int, Ranges]]:
        """Numbers of the leaves that hold positions [first, end), and their rows."""
        number = int(np.searchsorted(self.starts, first, side="right")) - 1
        while first < end:
            base, stop = int(self.starts[number]), int(self.starts[number + 1])
            until = min(end, stop)
            yield number, ((first - base, until - base),)
            first = until
            number += 1

    def ticks(self, first: int, end: int) -> Table:
        """Times of the events at positions [first, end)."""
        time = (self.view.file.schema.time,)
        parts = [leaf.ticks(low, high) for leaf, low, high in self.pieces(first, end, time)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.zeros(0, np.int64)])

    def begins(self, positions: Table) -> npt.NDArray[np.bool_]:
        """Whether a leaf begins at each position; one begins at the end of the segment."""
        found: npt.NDArray[np.bool_] = self.starts[np.searchsorted(self.starts, positions)] == (
            positions
        )
        return found

    def around(self, positions: Table) -> tuple[Table, Table]:
        """First and last ticks of the leaves that hold some positions."""
        numbers = np.searchsorted(self.starts, positions, side="right") - 1
        return self.first_ticks[numbers], self.last_ticks[numbers]

    def tick(self, position: int) -> int:
        """Time of one event; remembered, for planning asks again."""
        number = int(np.searchsorted(self.starts, position, side="right")) - 1
        if self.starts[number] == position:
            return int(self.first_ticks[number])
        if self.starts[number + 1] == position + 1:
            return int(self.last_ticks[number])
        known = self._ticks.get(position)
        if known is None:
            known = int(self.ticks(position, position + 1)[0])
            self._ticks.put(position, known)
        return known

    def fetch_ticks(self, positions: Table) -> None:
        """Have what :meth:`tick` of some positions looks at come together."""
        inside = positions[~self.begins(positions) & ~self.begins(positions + 1)]
        asked = [at for at in inside.tolist() if self._ticks.get(at) is None]
        if len(asked) > 1:
            numbers = distinct(np.searchsorted(self.starts, asked, side="right") - 1)
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


def leaf_map(view: SegmentView) -> LeafMap:
    """The map of a view, made when first asked for."""
    key = (id(view.file), view.skipped, view.events)
    known = _maps.get(key)
    if known is None or known.view.file is not view.file:
        known = LeafMap(view)
        _maps.put(key, known)
    return known
