"""Constants and structures of the segment file format (``docs/format.md``; a test compares the
two).

All integers are little-endian.  A segment file is a 64-byte file header followed by blocks, each
aligned to 64 bytes.  A block is a *head* (frame, then the tables of its kind), covered by one
checksum, and a *body* whose chunks carry their own checksums in the head.  The last 128 bytes of a
sealed segment are its footer. ::

    | file header | dictionary page | leaf | leaf | ... | node | leaf | ... | root | summary |
    | footer |

An *entry table* describes a node's children or a leaf's zones: a matrix of 64-bit words, one column
per child, one row per field (``ROW_OFFSET`` to ``ROW_ATTRIBUTES``, then ``ROWS_PER_ATTRIBUTE`` rows
for each attribute other than time).  A block is at most 2**48 bytes, a segment 2**62 events.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from ..schema import Attribute, Storage, StreamSchema

FORMAT_VERSION = 3
"""2: scaled numbers, texts with packed offsets.  3: compressed dictionary pages, tables of numbers.
Segments of older versions are read for ever.
"""
ALIGNMENT = 64

SEGMENT_MAGIC = b"CHRONSEG"
FOOTER_MAGIC = b"CHRONEND"
BLOCK_MAGIC = b"CBLK"

FILE_HEADER = struct.Struct("<8sHHIQ32xQ")
"""magic, format version, flags, header bytes, segment id, padding, xxh3-64 of the bytes before."""

BLOCK_FRAME = struct.Struct("<4sBBHQQQQQQQ")
"""magic, kind, level, reserved, own offset, head bytes, total bytes, events, segment id, reserved,
xxh3-64 of the head without these last 8 bytes."""

LEAF_HEADER = struct.Struct("<IIII")
"""events, zones, events per zone, columns."""

NODE_HEADER = struct.Struct("<II8x")
"""children, rows of the entry table, padding."""

CHUNK_ENTRY = struct.Struct("<BBHIQQQII")
"""encoding, codec, logarithm of the bytes of a section, nulls, offset in block, bytes, xxh3-64 of
the chunk, pages, events per page."""

DICTIONARY_HEADER = struct.Struct("<IIIIQQ")
"""column, first code, strings, codec, body bytes, xxh3-64 of the body."""

FOOTER = struct.Struct("<8sHHIQQQQQqqQQ32xQ")
"""magic, format version, height, reserved, segment id, root offset, root bytes, summary offset,
summary bytes, first tick, last tick, events, file bytes, padding, xxh3-64 of the bytes before."""

PAGE_MAGIC = b"CHRNPAGE"
PAGE_VERSION = 1
PAGE_HEADER = struct.Struct("<8sHHIQQQ16xQ")
"""Page of a manifest: magic, format version, rows of the table, segments, identity of the stream,
bytes of the roots, xxh3-64 of the roots, padding, xxh3-64 of the bytes before and of the table.
"""

ZONE_EVENTS = 512
"""Events summarised by one entry of a leaf's zone table."""

PAGE_EVENTS = 4096
"""Events compressed together by a block codec; a multiple of ``ZONE_EVENTS``."""

SECTION_SHIFT = 15
SECTION_BYTES = 1 << SECTION_SHIFT
"""Bytes per section checksum, in chunks longer than that."""

NODE_FANOUT = 256
"""Children of a full index node (D in thesis section 3.3.2)."""

ROW_OFFSET = 0  # block offset of the child; for a zone, position of its first event in the leaf
ROW_LENGTH = 1  # total bytes of the child; 0 for a zone
ROW_COUNT = 2  # events
ROW_FIRST = 3  # first tick
ROW_LAST = 4  # last tick
ROW_ATTRIBUTES = 5  # five rows for each attribute other than time, in schema order:
ROWS_PER_ATTRIBUTE = 5  # non-null values, min, max, and two words of sum


class BlockKind(IntEnum):
    LEAF = 1
    NODE = 2
    DICTIONARY = 3
    SUMMARY = 4


class Encoding(IntEnum):
    PLAIN = 0  # fixed width, as Arrow has them
    DELTA = 1  # per zone: first value, smallest delta, bit-packed deltas
    PACKED = 2  # per zone: smallest value, bit-packed distances to it
    VARIABLE = 3  # int32 offsets, then bytes; no longer written
    DICTIONARY = 4  # codes of the segment's dictionary, PACKED
    MESSAGE = 5  # an Arrow IPC message of one column
    SCALED = 6  # packed integers to scale, with exceptions (``scaled``)
    TEXT = 7  # scaled offsets, then bytes


class Codec(IntEnum):
    NONE = 0
    LZ4 = 1
    ZSTD = 2


class ValueKind(IntEnum):
    """Interpretation of an attribute's min, max and sum words in an entry table."""

    SIGNED = 0  # int64 min, max; 128-bit sum
    UNSIGNED = 1  # uint64 min, max; 128-bit sum
    FLOAT = 2  # float64 min, max (NaN is the greatest); sum as high and low float64
    PREFIX = 3  # first 8 bytes, big-endian, zero-padded, as uint64; no sum
    COUNT = 4  # non-null count only


_KINDS = {
    Storage.SIGNED: ValueKind.SIGNED,
    Storage.UNSIGNED: ValueKind.UNSIGNED,
    Storage.FLOAT: ValueKind.FLOAT,
    Storage.BOOL: ValueKind.UNSIGNED,
    Storage.STRING: ValueKind.PREFIX,
    Storage.BINARY: ValueKind.PREFIX,
    Storage.DECIMAL: ValueKind.COUNT,
    Storage.JSON: ValueKind.COUNT,
    Storage.NESTED: ValueKind.COUNT,
}


def value_kind(attribute: Attribute) -> ValueKind:
    return _KINDS[attribute.storage]


def table_rows(schema: StreamSchema) -> int:
    return ROW_ATTRIBUTES + ROWS_PER_ATTRIBUTE * len(schema.payload)


def align(length: int) -> int:
    return (length + ALIGNMENT - 1) & -ALIGNMENT
