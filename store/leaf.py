r"""Leaves: thousands of events in one columnar block, the lowest level of the TAB+-tree.

A leaf has zones (512 events each) as a node has children, so aggregates and pruning work inside.

Layout: after the frame: ``layout.LEAF_HEADER``, one ``layout.CHUNK_ENTRY`` per column (time
included, in schema order), padding to 8 bytes, the zone table (int64, rows x zones), and of each
chunk longer than ``layout.SECTION_BYTES`` the checksums of its sections.  Then the chunks, each at
a multiple of 64. ::

    frame | events zones zone-size columns | chunk entries | zones | sums || chunk | chunk | ...
    \______________________ head, one checksum _______________________/    \_ one each

Guarantee: column bytes are verified before use: by the checksum of the chunk, or, for few rows, by
those of the sections that hold them.

Invariants: events are in time order; ties keep arrival order.  All zones but the last are full.

Resident memory: touched pages of a mapping count as memory of this process.  Beyond the most recent
``RESIDENT_BYTES`` they are released with ``MADV_DONTNEED``; arrays stay valid, and another access
costs a page fault.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.caches import Lru
from ..errors import CorruptBlock
from ..schema import Storage, StreamSchema
from .aggregates import merge_children
from .block import Frame, frame_head, open_block, section_sums, verify_chunk
from .columns import (
    ChunkEntry,
    ColumnView,
    Ranges,
    about,
    decode_chunk,
    decode_values,
    number_type,
    prefix_bytes,
    sections_of,
    value_spans,
    worthwhile,
)
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
    SECTION_BYTES,
    SECTION_SHIFT,
    ZONE_EVENTS,
    BlockKind,
    Codec,
    Encoding,
    align,
    table_rows,
    value_kind,
)
from .packing import unpack, unpack_at

RESIDENT_BYTES = 168 << 20
_PAGE = mmap.PAGESIZE
_ADVICE = getattr(mmap, "MADV_DONTNEED", None)


class _Chunk(NamedTuple):
    mapping: weakref.ref[mmap.mmap]
    start: int
    length: int


def _give_back(chunk: _Chunk) -> None:
    mapping = chunk.mapping()
    if mapping is None or _ADVICE is None:
        return
    first = chunk.start // _PAGE * _PAGE
    with suppress(OSError, ValueError):
        end = min(chunk.start + chunk.length, len(mapping))
        mapping.madvise(_ADVICE, first, end - first)


_touched = Lru[tuple[int, int], _Chunk](RESIDENT_BYTES, lambda chunk: chunk.length, _give_back)


def _touch(data: memoryview, start: int, length: int) -> None:
    """Note that a chunk of a mapping becomes resident; the oldest ones are given back."""
    mapping = data.obj
    if isinstance(mapping, mmap.mmap) and length >= _PAGE:
        key = (id(mapping), start)
        touched = _touched.get(key)
        if touched is None or touched.mapping() is not mapping:
            _touched.put(key, _Chunk(weakref.ref(mapping), start, length))


Table = npt.NDArray[np.int64]
Need = Callable[[Sequence[tuple[int, int]]], object]
"""Fetches (offset, length) ranges of a segment if they are missing."""


def zone_table(time: str, columns: Sequence[ColumnView], first: int, end: int) -> Table:
    """Aggregate rows [first, end) of columns by zone; ``time`` is the name of that of the times."""
    starts = np.append(np.arange(first, end, ZONE_EVENTS, dtype=np.int64), end)
    payload = sum(column.attribute.name != time for column in columns)
    rows = ROW_ATTRIBUTES + ROWS_PER_ATTRIBUTE * payload
    table = np.zeros((rows, len(starts) - 1), np.int64)
    table[ROW_OFFSET] = starts[:-1] - first
    table[ROW_COUNT] = np.diff(starts)
    row = ROW_ATTRIBUTES
    for column in columns:
        if column.attribute.name == time:
            table[ROW_FIRST] = column.values[starts[:-1]]
            table[ROW_LAST] = column.values[starts[1:] - 1]
        else:
            column.aggregate(starts, table, row)
            row += ROWS_PER_ATTRIBUTE
    return table


def entry_of_table(schema: StreamSchema, table: Table, offset: int, length: int) -> Table:
    """Merge a zone or child table into the block's entry in its parent."""
    kinds = np.array([value_kind(attribute) for attribute in schema.payload], np.int64)
    words = np.zeros(3 + ROWS_PER_ATTRIBUTE * len(kinds), np.int64)
    merge_children(table, 0, table.shape[1], np.arange(len(kinds)), kinds, words)
    entry = np.empty(table.shape[0], np.int64)
    entry[0] = offset
    entry[1] = length
    entry[2:] = words
    return entry


def build_leaf(
    schema: StreamSchema,
    columns: Sequence[ColumnView],
    first: int,
    end: int,
    codec: Codec,
    offset: int,
    segment_id: int,
) -> tuple[list[Any], Table]:
    """Buffers of a leaf of rows [first, end) at ``offset``, and its entry for its parent."""
    table = zone_table(schema.time, columns, first, end)
    chunks = [column.encode(first, end, codec) for column in columns]
    sums = [section_sums(chunk.parts, chunk.length) for chunk in chunks]
    tables_bytes = LEAF_HEADER.size + CHUNK_ENTRY.size * len(columns)
    tables_bytes += -tables_bytes % 8 + table.nbytes + sum(each.nbytes for each in sums)
    head_bytes = align(BLOCK_FRAME.size + tables_bytes)
    entries = [LEAF_HEADER.pack(end - first, table.shape[1], ZONE_EVENTS, len(columns))]
    body: list[Any] = []
    at = head_bytes
    for chunk, each in zip(chunks, sums, strict=True):
        entries.append(
            CHUNK_ENTRY.pack(
                chunk.encoding, chunk.codec, SECTION_SHIFT if len(each) else 0, chunk.nulls,
                at, chunk.length, chunk.checksum, chunk.pages, PAGE_EVENTS,
            )
        )  # fmt: skip
        body.extend(chunk.parts)
        padding = -chunk.length % ALIGNMENT
        if padding:
            body.append(bytes(padding))
        at += chunk.length + padding
    tables = b"".join(entries)
    tables += bytes(-len(tables) % 8) + table.tobytes() + b"".join(each.tobytes() for each in sums)
    head = frame_head(BlockKind.LEAF, 0, offset, tables, at - head_bytes, end - first, segment_id)
    return [head, *body], entry_of_table(schema, table, offset, at)


def head_limit(schema: StreamSchema, events: int, length: int) -> int:
    """Upper bound of a leaf's head in bytes; ``schema`` is as the leaf was written."""
    columns, zones = len(schema.attributes), -(-events // ZONE_EVENTS)
    tables = LEAF_HEADER.size + CHUNK_ENTRY.size * columns + 8
    sums = columns + length // SECTION_BYTES
    return min(length, align(BLOCK_FRAME.size + tables + 8 * (table_rows(schema) * zones + sums)))


class LeafReader:
    """One leaf of a mapped segment; with ``holes``, ``need`` fetches column ranges before reads."""

    __slots__ = (
        "_data", "_entries", "_holes", "_need", "_positions", "_rows_verified", "_sound",
        "_stored", "_sums", "_verified", "events", "file", "offset", "schema", "zones",
    )  # fmt: skip

    def __init__(
        self,
        data: memoryview,
        offset: int,
        segment_id: int,
        schema: StreamSchema,
        file: str,
        frame: Frame | None = None,
        need: Need | None = None,
        holes: bool = False,
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
            ChunkEntry(
                Encoding(e), Codec(c), nulls, start, length, checksum, pages, page_events, section
            )
            for e, c, section, nulls, start, length, checksum, pages, page_events in (
                CHUNK_ENTRY.iter_unpack(data[at : at + CHUNK_ENTRY.size * columns])
            )
        ]
        at += CHUNK_ENTRY.size * columns
        at += -(at - offset) % 8
        rows = table_rows(schema)
        self.zones: Table = np.frombuffer(data, np.int64, rows * zones, at).reshape(rows, zones)
        self._sums = at + 8 * rows * zones
        self._sound: dict[int, bytearray] = {}
        self._rows_verified: dict[int, Ranges] = {}  # by column, rows of the last read
        self._need = need
        self._holes = holes
        self._data = data
        self._positions = {attribute.name: i for i, attribute in enumerate(schema.attributes)}
        self._stored = schema.attributes
        self._verified = 0
        self.offset = offset
        self.schema = schema
        self.file = file

    def _chunk(self, position: int) -> memoryview:
        entry = self._entries[position]
        start = self.offset + entry.offset
        chunk = self._data[start : start + entry.length]
        bit = 1 << position
        _touch(self._data, start, entry.length)
        if not self._verified & bit:
            if self._holes and self._need is not None:
                self._need(((start, entry.length),))
            verify_chunk(chunk, entry.checksum, self._described(position), self.file, self.offset)
            self._verified |= bit
        return chunk

    def reads(self, data: memoryview) -> bool:
        return self._data is data

    def _described(self, position: int) -> str:
        return f"column {self._stored[position].name!r} of a leaf"

    def _rows(self, position: int, ranges: Ranges) -> memoryview:
        """Bytes of a column, verified where the rows of ``ranges`` are read."""
        entry = self._entries[position]
        if self._verified >> position & 1 or not worthwhile(entry, self.events, ranges):
            return self._chunk(position)
        start = self.offset + entry.offset
        chunk = self._data[start : start + entry.length]
        _touch(self._data, start, entry.length)
        if self._rows_verified.get(position) == ranges:
            return chunk
        prefix = prefix_bytes(entry, self.events)
        if prefix:
            self._verify_spans(position, chunk, iter(((0, prefix),)))
        storage = self._stored[position].storage
        self._verify_spans(position, chunk, value_spans(chunk, entry, storage, self.events, ranges))
        if len(ranges) == 1:
            self._rows_verified[position] = ranges
        return chunk

    def _verify_spans(
        self, position: int, chunk: memoryview, spans: Iterator[tuple[int, int]]
    ) -> None:
        entry, sound = self._entries[position], self._verified_sections(position)
        missing = sections_of(entry, spans, sound)
        if not missing:
            return
        shift = entry.section
        if self._need is not None:
            self._need(list(self._places(entry, missing)))
        first = self._sums + 8 * sum(
            -(-each.length >> each.section) for each in self._entries[:position] if each.section
        )
        sums = np.frombuffer(self._data, np.uint64, len(sound), first)
        for number in missing:
            section = chunk[number << shift : (number + 1) << shift]
            what = f"section {number} of {self._described(position)}"
            verify_chunk(section, int(sums[number]), what, self.file, self.offset)
            sound[number] = 1

    def _verified_sections(self, position: int) -> bytearray:
        sound = self._sound.get(position)
        if sound is None:
            entry = self._entries[position]
            sound = self._sound.setdefault(position, bytearray(-(-entry.length >> entry.section)))
        return sound

    def _places(self, entry: ChunkEntry, sections: Sequence[int]) -> Iterator[tuple[int, int]]:
        start = self.offset + entry.offset
        for number in sections:
            at = number << entry.section
            yield start + at, min(1 << entry.section, entry.length - at)

    def unread(
        self, names: Sequence[str], ranges: Ranges | None = None
    ) -> Iterator[tuple[int, int]]:
        """Unread (offset, length) ranges for some rows of columns; by default all rows."""
        for name in names:
            position = self._positions.get(name)
            if position is None or self._verified >> position & 1:
                continue
            entry = self._entries[position]
            if ranges is None or not worthwhile(entry, self.events, ranges):
                yield self.offset + entry.offset, entry.length
                continue
            spans = about(entry, self.events, ranges)
            yield from self._places(
                entry, sections_of(entry, spans, self._verified_sections(position))
            )

    def chunk_bytes(self, name: str) -> int:
        return self._entries[self._positions[name]].length

    def chunk_entry(self, name: str) -> ChunkEntry:
        return self._entries[self._positions[name]]

    def ticks(self, first: int = 0, end: int | None = None) -> npt.NDArray[np.int64]:
        position = self._positions[self.schema.time]
        end = self.events if end is None else end
        entry = self._entries[position]
        chunk = self._rows(position, ((first, end),))
        result: npt.NDArray[np.int64] = decode_values(
            chunk, entry, np.int64, self.events, first, end
        )
        return result

    def packed_ticks(self) -> npt.NDArray[np.int64] | None:
        """The words of all times as ``packing.pack`` made them; None if stored otherwise."""
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
        ranges: Ranges | None = None,
    ) -> pa.Array:
        """Rows [first, end) as an Arrow array; with ``ranges`` only those rows are valid."""
        position = self._positions[name]
        try:
            return decode_chunk(
                self._rows(position, ((first, end),) if ranges is None else ranges),
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

    def numbers_at(self, name: str, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any] | None:
        """Numbers, times or dictionary codes at ascending rows; None if stored otherwise, or with
        nulls.
        """
        position = self._positions[name]
        entry, attribute = self._entries[position], self._stored[position]
        if entry.nulls:
            return None
        first, end = int(rows[0]), int(rows[-1]) + 1
        dense = end - first == len(rows)
        if entry.encoding is Encoding.DICTIONARY:
            chunk = self._chunk(position)
            if dense:
                return unpack(chunk, Encoding.PACKED, self.events, first, end, np.int32)
            return unpack_at(chunk, self.events, rows)
        if attribute.storage not in (Storage.SIGNED, Storage.UNSIGNED, Storage.FLOAT):
            return None
        chunk, dtype = self._rows(position, ((first, end),)), number_type(attribute.type)
        values: npt.NDArray[Any] = decode_values(chunk, entry, dtype, self.events, first, end)
        return values if dense else values[rows - first]

    def uses_dictionary(self, name: str) -> bool:
        return self._entries[self._positions[name]].encoding is Encoding.DICTIONARY

    def verify_column(self, name: str) -> None:
        """Verify a column's chunk, unless that was done before."""
        self._chunk(self._positions[name])

    def verify(self) -> None:
        """Verify every chunk again, with all section checksums."""
        self._verified, self._sound, self._rows_verified = 0, {}, {}
        for position, entry in enumerate(self._entries):
            chunk = self._chunk(position)
            if entry.section:
                self._verify_spans(position, chunk, iter(((0, entry.length),)))
