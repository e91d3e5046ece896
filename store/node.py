"""Index nodes: the inner levels of the TAB+-tree and its right flank (thesis Figure 3.2).

Layout: after the frame: ``layout.NODE_HEADER``, then the entry table, int64 x rows x children, row
by row; the head's checksum covers all of it.

Invariants: children are in time order and their ranges overlap at most in ties: ``first[i] <=
last[i] <= first[i + 1]``.  So at most one child is cut by a lower bound and one by an upper.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..core.native import kernel
from ..errors import CorruptBlock
from ..schema import StreamSchema
from .block import Frame, frame_head, open_block
from .layout import BLOCK_FRAME, NODE_FANOUT, NODE_HEADER, ROW_COUNT, BlockKind, table_rows

Table = npt.NDArray[np.int64]


@kernel
def find_children(table, start, last):  # type: ignore[no-untyped-def]
    """Half-open ranges of children that overlap, and are inside of, inclusive [start, last]."""
    first = np.searchsorted(table[4], start)
    end = first + np.searchsorted(table[3, first:], last, side="right")
    full_first = first
    full_end = end
    if first < end and table[3, first] < start:
        full_first = first + 1
    if full_first < end and table[4, end - 1] > last:
        full_end = end - 1
    full_end = max(full_first, full_end)
    return first, end, full_first, full_end


def build_node(table: Table, level: int, offset: int, segment_id: int) -> bytes:
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
    """A node's verified entry table (int64[rows, children]), in the mapped file."""
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
    """Entries of an unfinished node (level 1: leaves); append-only, so views are immutable."""

    __slots__ = ("count", "level", "table")

    def __init__(self, rows: int, level: int) -> None:
        self.table: Table = np.zeros((rows, NODE_FANOUT), np.int64)
        self.level = level
        self.count = 0

    def add(self, entry: Table) -> None:
        self.table[:, self.count] = entry
        self.count += 1

    @property
    def full(self) -> bool:
        return self.count == NODE_FANOUT

    def view(self) -> Table:
        return self.table[:, : self.count]
