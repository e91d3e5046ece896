"""The leaves of a segment as arrays: where each begins in the stream, and what its entry says.

Purpose
    Positions are how indexes speak of events.  :class:`LeafMap` finds the leaf that holds a
    position, reads columns by position, and keeps the entries of all leaves together as a coarse
    map of the segment: counts, time bounds and the minimum and maximum of every attribute.

Cost
    Making one reads the index nodes of the segment, not its leaves.  Maps of recent views are
    remembered.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..lru import Lru
from .layout import ROW_COUNT, ROW_FIRST, ROW_LAST, ROW_LENGTH, ROW_OFFSET
from .leaf import LeafReader
from .segment import SegmentView

__all__ = ["LeafMap", "leaf_map"]

Table = npt.NDArray[np.int64]
MAPS_REMEMBERED = 256
BOUNDS_REMEMBERED = 4096


class LeafMap:
    """Leaves of one segment at one moment.

    Attributes
    ----------
    table : int64[rows, leaves]
        Their entries, in time order (see :mod:`chronicle.store.layout`).
    starts : int64[leaves + 1]
        Position in the segment of each leaf's first event, then the segment's events.
    """

    def __init__(self, view: SegmentView) -> None:
        self.view = view
        parts: list[Table] = []
        for level, table in view.fragments:
            _collect(view, level, table, parts)
        self.table = np.concatenate(parts, axis=1) if parts else np.zeros((5, 0), np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.table[ROW_COUNT])]).astype(np.int64)
        self._bounds = Lru[tuple[int, int], tuple[int, int]](BOUNDS_REMEMBERED)

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

    def fetch(self, numbers: Table) -> None:
        """Have leaves that will be wanted come together, where to wait for each takes long."""
        if self.view.file.moved and len(numbers) > 1:
            offsets, lengths = self.table[ROW_OFFSET, numbers], self.table[ROW_LENGTH, numbers]
            self.view.file.fetch(offsets.tolist(), lengths.tolist())

    def pieces(self, first: int, end: int) -> Iterator[tuple[LeafReader, int, int]]:
        """Leaves that hold positions [first, end), each with the rows wanted."""
        number = int(np.searchsorted(self.starts, first, side="right")) - 1
        if end > self.starts[number + 1]:
            last = int(np.searchsorted(self.starts, end - 1, side="right"))
            self.fetch(np.arange(number, last))
        while first < end:
            base, stop = int(self.starts[number]), int(self.starts[number + 1])
            until = min(end, stop)
            yield self.leaf(number), first - base, until - base
            first = until
            number += 1

    def ticks(self, first: int, end: int) -> Table:
        """Times of the events at positions [first, end)."""
        parts = [leaf.ticks(low, high) for leaf, low, high in self.pieces(first, end)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.zeros(0, np.int64)])

    def bounds(self, first: int, end: int) -> tuple[int, int]:
        """First and last tick of positions [first, end); remembered, for planning asks again."""
        known = self._bounds.get((first, end))
        if known is None:
            number = int(np.searchsorted(self.starts, first, side="right")) - 1
            until = int(np.searchsorted(self.starts, end - 1, side="right")) - 1
            low, high = int(self.first_ticks[number]), int(self.last_ticks[until])
            if self.starts[number] != first:
                low = int(self.ticks(first, first + 1)[0])
            if self.starts[until + 1] != end:
                high = int(self.ticks(end - 1, end)[0])
            known = low, high
            self._bounds.put((first, end), known)
        return known

    def column(self, name: str, first: int, end: int) -> pa.ChunkedArray | None:
        """An attribute at positions [first, end); None when the segment is older than it."""
        schema = self.view.file.schema
        if name not in schema:
            return None
        parts = [
            self.view.column(leaf, name, low, high) for leaf, low, high in self.pieces(first, end)
        ]
        return pa.chunked_array(parts, schema.attribute(name).type)


def _collect(view: SegmentView, level: int, table: Table, parts: list[Table]) -> None:
    if level == 1:
        parts.append(table)
        return
    for offset, length in zip(table[ROW_OFFSET].tolist(), table[ROW_LENGTH].tolist(), strict=True):
        _collect(view, level - 1, view.file.node(offset, length), parts)


_maps = Lru[tuple[int, int], LeafMap](MAPS_REMEMBERED)


def leaf_map(view: SegmentView) -> LeafMap:
    """The map of a view, made when first asked for."""
    key = (id(view.file), view.events)
    known = _maps.get(key)
    if known is None or known.view.file is not view.file:
        known = LeafMap(view)
        _maps.put(key, known)
    return known
