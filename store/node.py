"""Index nodes: the inner levels of the TAB+-tree and its right flank.

Purpose
    A node's entries point to its children and carry their lightweight aggregates (thesis Figure
    3.2). :class:`LevelBuilder` collects entries until a node is full; :func:`find_children` finds
    the ones that a time range meets.

Layout
    After the frame: :data:`~chronicle.store.layout.NODE_HEADER`, then the entry table, int64 x
    rows x children, row by row.  Nothing else; the head's checksum covers all of it.

Invariants
    Children are in time order and their ranges overlap at most in ties: ``first[i] <= last[i] <=
    first[i + 1]``.  So at most one child is cut by a lower bound and one by an upper.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..core.native import kernel
from ..errors import CorruptBlock
from ..schema import StreamSchema
from .block import Frame, frame_head, open_block
from .layout import (
    BLOCK_FRAME,
    NODE_FANOUT,
    NODE_HEADER,
    ROW_COUNT,
    BlockKind,
    table_rows,
)

__all__ = ["LevelBuilder", "build_node", "find_children", "read_node"]

Table = npt.NDArray[np.int64]


@kernel
def find_children(table, start, last):  # type: ignore[no-untyped-def]
    """Find the children whose time range meets [start, last].

    Parameters
    ----------
    table : int64[rows, children]
    start, last : int
        Ticks, both inclusive.

    Returns
    -------
    first, end : int
        Half-open range of children that overlap.
    full_first, full_end : int
        Those among them that lie within the bounds entirely.
    """
    children = table.shape[1]
    low = 0
    high = children
    while low < high:  # first child with last tick >= start
        middle = (low + high) >> 1
        if table[4, middle] < start:
            low = middle + 1
        else:
            high = middle
    first = low
    high = children
    while low < high:  # first child with first tick > last
        middle = (low + high) >> 1
        if table[3, middle] <= last:
            low = middle + 1
        else:
            high = middle
    end = low
    full_first = first
    full_end = end
    if first < end and table[3, first] < start:
        full_first = first + 1
    if full_first < end and table[4, end - 1] > last:
        full_end = end - 1
    full_end = max(full_first, full_end)
    return first, end, full_first, full_end


def build_node(table: Table, level: int, offset: int, segment_id: int) -> bytes:
    """Build the block of a node at ``level`` (1 points to leaves) from its entry table."""
    rows, children = table.shape
    tables = NODE_HEADER.pack(children, rows) + table.tobytes()
    return frame_head(
        BlockKind.NODE, level, offset, tables, 0, int(table[ROW_COUNT].sum()), segment_id
    )


def read_node(
    data: memoryview,
    offset: int,
    segment_id: int,
    schema: StreamSchema,
    file: str,
    frame: Frame | None = None,
) -> Table:
    """Read and verify a node's entry table; it points into the mapped file.

    Returns
    -------
    int64[rows, children]
    """
    frame = frame or open_block(data, offset, segment_id, file)
    if frame.kind is not BlockKind.NODE:
        raise CorruptBlock(f"expected a node, found a {frame.kind.name} block", file, offset)
    at = offset + BLOCK_FRAME.size
    children, rows = NODE_HEADER.unpack_from(data, at)
    if rows != table_rows(schema):
        raise CorruptBlock(
            f"expected {table_rows(schema)} rows in a node, found {rows}", file, offset
        )
    return np.frombuffer(data, np.int64, rows * children, at + NODE_HEADER.size).reshape(
        rows, children
    )


class LevelBuilder:
    """Entries of one level of the right flank: children written, their node not yet.

    Parameters
    ----------
    rows : int
        Rows of the entry table.
    level : int
        Level of the node being built; 1 collects leaves.

    Notes
    -----
    Entries are only ever added, so a reader that remembers ``count`` has an immutable view.
    """

    __slots__ = ("count", "level", "table")

    def __init__(self, rows: int, level: int) -> None:
        self.table: Table = np.zeros((rows, NODE_FANOUT), np.int64)
        self.level = level
        self.count = 0

    def add(self, entry: Table) -> None:
        """Append a child's entry."""
        self.table[:, self.count] = entry
        self.count += 1

    @property
    def full(self) -> bool:
        """Whether the node must be written before the next entry."""
        return self.count == NODE_FANOUT

    def view(self) -> Table:
        """The entries so far, read-only."""
        view = self.table[:, : self.count]
        view.flags.writeable = False
        return view
