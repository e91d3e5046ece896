"""Leaves: thousands of events in one block, column by column.

Purpose
    The lowest level of the TAB+-tree.  A leaf knows its zones (512 events each) as a node knows
    its children, so aggregates and pruning go on below the block, and a slide far smaller than a
    leaf does not read every event.

Layout
    After the frame: :data:`~chronicle.store.layout.LEAF_HEADER`, one
    :data:`~chronicle.store.layout.CHUNK_ENTRY` per column (time included, in schema order),
    padding to 8 bytes, the zone table (int64, rows x zones).  Then the chunks, each at a multiple
    of 64.

    ::

        frame | events zones zone-size columns | chunk entries | zone table || chunk | chunk | ...
        \\_____________________ head, one checksum ________________________/    \\_ one each

Invariants
    Events are in time order; ties keep arrival order.  Every zone but the last holds
    ``zone_events``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import CorruptBlock
from ..schema import StreamSchema
from .aggregates import merge_children
from .block import Frame, frame_head, open_block, verify_chunk
from .columns import ChunkEntry, ColumnView, decode_chunk, decode_values
from .layout import (
    ALIGNMENT,
    BLOCK_FRAME,
    CHUNK_ENTRY,
    LEAF_HEADER,
    PAGE_EVENTS,
    ROW_ATTRIBUTES,
    ROW_COUNT,
    ROW_FIRST,
    ROW_LAST,
    ROW_OFFSET,
    ROWS_PER_ATTRIBUTE,
    ZONE_EVENTS,
    BlockKind,
    Codec,
    Encoding,
    align,
    table_rows,
    value_kind,
)
from .residency import resident

__all__ = ["EncodedLeaf", "LeafReader", "encode_leaf", "entry_of_table", "zone_table"]

Table = npt.NDArray[np.int64]


def zone_table(schema: StreamSchema, columns: Sequence[ColumnView], first: int, end: int) -> Table:
    """Summarise rows [first, end) of prepared columns zone by zone.

    Parameters
    ----------
    columns : sequence of ColumnView
        In schema order, time included.
    first, end : int
        Rows of the batch.

    Returns
    -------
    int64[rows, zones]
    """
    starts = np.arange(first, end + ZONE_EVENTS, ZONE_EVENTS, dtype=np.int64)
    zones = -(-(end - first) // ZONE_EVENTS)
    starts = starts[: zones + 1]
    starts[zones] = end
    starts.flags.writeable = False
    table = np.zeros((table_rows(schema), zones), np.int64)
    table[ROW_OFFSET] = starts[:-1] - first
    table[ROW_COUNT] = np.diff(starts)
    row = ROW_ATTRIBUTES
    for column in columns:
        if column.attribute.name == schema.time:
            table[ROW_FIRST] = column.values[starts[:-1]]
            table[ROW_LAST] = column.values[starts[1:] - 1]
        else:
            column.aggregate(starts, table, row)
            row += ROWS_PER_ATTRIBUTE
    return table


def entry_of_table(schema: StreamSchema, table: Table, offset: int, length: int) -> Table:
    """Merge a zone or child table into the entry that stands for the whole block in its parent.

    Returns
    -------
    int64[rows]
    """
    kinds = np.array([value_kind(attribute) for attribute in schema.payload], np.int64)
    words = np.zeros(3 + ROWS_PER_ATTRIBUTE * len(kinds), np.int64)
    frozen = table.view()
    frozen.flags.writeable = False
    merge_children(frozen, 0, table.shape[1], np.arange(len(kinds)), kinds, words)
    entry = np.empty(table.shape[0], np.int64)
    entry[0] = offset
    entry[1] = length
    entry[2:] = words
    return entry


@dataclass(frozen=True, slots=True)
class EncodedLeaf:
    """A leaf that has no place in a file yet.

    Attributes
    ----------
    tables : bytes
        What stands in its head behind the frame.
    body : list of buffers
    body_bytes : int
    entry : int64[rows]
        For its parent; where it lies is missing.
    """

    events: int
    tables: bytes
    body: list[Any]
    body_bytes: int
    entry: Table

    def placed(self, offset: int, segment_id: int) -> tuple[list[Any], Table]:
        """The leaf at a place.

        Returns
        -------
        parts : list of buffers
            To be written one after the other at ``offset``.
        entry : int64[rows]
            The leaf's entry for its parent.
        """
        head = frame_head(
            BlockKind.LEAF, 0, offset, self.tables, self.body_bytes, self.events, segment_id
        )
        entry = self.entry.copy()
        entry[ROW_OFFSET] = offset
        return [head, *self.body], entry


def encode_leaf(
    schema: StreamSchema, columns: Sequence[ColumnView], first: int, end: int, codec: Codec
) -> EncodedLeaf:
    """Encode the leaf that holds rows [first, end) of prepared columns."""
    table = zone_table(schema, columns, first, end)
    tables_bytes = LEAF_HEADER.size + CHUNK_ENTRY.size * len(columns)
    tables_bytes += -tables_bytes % 8 + table.nbytes
    head_bytes = align(BLOCK_FRAME.size + tables_bytes)
    entries = [LEAF_HEADER.pack(end - first, table.shape[1], ZONE_EVENTS, len(columns))]
    body: list[Any] = []
    at = head_bytes
    for column in columns:
        chunk = column.encode(first, end, codec)
        entries.append(
            CHUNK_ENTRY.pack(
                chunk.encoding,
                chunk.codec,
                0,
                chunk.nulls,
                at,
                chunk.length,
                chunk.checksum,
                chunk.pages,
                PAGE_EVENTS,
            )
        )
        body.extend(chunk.parts)
        padding = -chunk.length % ALIGNMENT
        if padding:
            body.append(bytes(padding))
        at += chunk.length + padding
    tables = b"".join(entries)
    tables += bytes(-len(tables) % 8) + table.tobytes()
    entry = entry_of_table(schema, table, 0, at)
    return EncodedLeaf(end - first, tables, body, at - head_bytes, entry)


class LeafReader:
    """One leaf of a mapped segment.

    Parameters
    ----------
    data : memoryview
        The mapped file.
    schema : StreamSchema
        Of the segment.
    file : str
        Name for error messages.

    Raises
    ------
    CorruptBlock
        When the head does not verify; a chunk that does not raises when it is first read.
    """

    __slots__ = (
        "_data",
        "_entries",
        "_positions",
        "_stored",
        "_verified",
        "events",
        "file",
        "offset",
        "schema",
        "zones",
    )

    def __init__(
        self,
        data: memoryview,
        offset: int,
        segment_id: int,
        schema: StreamSchema,
        file: str,
        frame: Frame | None = None,
    ) -> None:
        frame = frame or open_block(data, offset, segment_id, file)
        if frame.kind is not BlockKind.LEAF:
            raise CorruptBlock(f"expected a leaf, found a {frame.kind.name} block", file, offset)
        at = offset + BLOCK_FRAME.size
        self.events, zones, _, columns = LEAF_HEADER.unpack_from(data, at)
        if columns != len(schema.attributes):
            raise CorruptBlock(
                f"expected {len(schema.attributes)} columns, found {columns}", file, offset
            )
        at += LEAF_HEADER.size
        self._entries = [
            ChunkEntry(Encoding(e), Codec(c), nulls, start, length, checksum, pages, page_events)
            for e, c, _, nulls, start, length, checksum, pages, page_events in (
                CHUNK_ENTRY.iter_unpack(data[at : at + CHUNK_ENTRY.size * columns])
            )
        ]
        at += CHUNK_ENTRY.size * columns
        at += -(at - offset) % 8
        rows = table_rows(schema)
        self.zones: Table = np.frombuffer(data, np.int64, rows * zones, at).reshape(rows, zones)
        self._data = data
        self._positions = {attribute.name: i for i, attribute in enumerate(schema.attributes)}
        self._stored = schema.attributes
        self._verified = 0
        self.offset = offset
        self.schema = schema
        self.file = file

    def _chunk(self, position: int, whole: bool = True) -> memoryview:
        """Bytes of a column; ``whole``: all of them are going to be read."""
        entry = self._entries[position]
        start = self.offset + entry.offset
        chunk = self._data[start : start + entry.length]
        bit = 1 << position
        fresh = not self._verified & bit
        if whole or fresh:
            resident.touch(self._data, start, entry.length)
        if fresh:
            name = self._stored[position].name
            verify_chunk(
                chunk, entry.checksum, f"column {name!r} of a leaf", self.file, self.offset
            )
            self._verified |= bit
        return chunk

    def chunk_bytes(self, name: str) -> int:
        """Stored bytes of a column."""
        return self._entries[self._positions[name]].length

    def chunk_entry(self, name: str) -> ChunkEntry:
        """How a column of this leaf is stored."""
        return self._entries[self._positions[name]]

    def ticks(self, first: int = 0, end: int | None = None) -> npt.NDArray[np.int64]:
        """Times of rows [first, end)."""
        position = self._positions[self.schema.time]
        end = self.events if end is None else end
        entry = self._entries[position]
        chunk = self._chunk(position)
        result: npt.NDArray[np.int64] = decode_values(
            chunk, entry, np.int64, self.events, first, end
        )
        return result

    def packed_ticks(self) -> npt.NDArray[np.int64] | None:
        """The words of all times as :func:`.packing.pack` made them; None if kept otherwise."""
        position = self._positions[self.schema.time]
        entry = self._entries[position]
        if entry.encoding is not Encoding.DELTA:
            return None
        return np.frombuffer(self._chunk(position), np.int64)

    def column(
        self,
        name: str,
        first: int,
        end: int,
        dictionary: pa.Array | None = None,
        keep_dictionary: bool = False,
    ) -> pa.Array:
        """Rows [first, end) of a column as an Arrow array; may point into the mapped file."""
        position = self._positions[name]
        try:
            return decode_chunk(
                self._chunk(position),
                self._entries[position],
                self._stored[position],
                self.events,
                first,
                end,
                dictionary,
                keep_dictionary,
            )
        except CorruptBlock as error:
            if error.file:
                raise
            raise CorruptBlock(str(error), self.file, self.offset) from error

    def plain(self, name: str, dtype: Any) -> npt.NDArray[Any] | None:
        """All values of a column where they lie in the file; None where they do not lie so.

        For whoever looks at few of them: what is read through it does not count as resident.
        """
        position = self._positions.get(name)
        entry = None if position is None else self._entries[position]
        if (
            position is None or entry is None or entry.nulls
            or entry.encoding is not Encoding.PLAIN or entry.codec is not Codec.NONE
        ):  # fmt: skip
            return None
        return np.frombuffer(self._chunk(position, whole=False), dtype, self.events)

    def uses_dictionary(self, name: str) -> bool:
        """Whether a column of this leaf is stored as dictionary codes."""
        return self._entries[self._positions[name]].encoding is Encoding.DICTIONARY

    def verify_column(self, name: str) -> None:
        """Compare a column's chunk with its checksum, unless that was done before."""
        self._chunk(self._positions[name])

    def verify(self) -> None:
        """Compare every chunk with its checksum, again even where that was done before."""
        self._verified = 0
        for position in range(len(self._entries)):
            self._chunk(position)
