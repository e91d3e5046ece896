"""The inspector (``chronicle inspect``): prints a segment file and its blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import xxhash

from ..errors import InvalidArgument
from ..schema import StreamSchema
from .aggregates import AttributeAggregate
from .block import Frame, open_block
from .dictionary import read_page
from .file_contract import Files
from .layout import (
    BLOCK_FRAME,
    BLOCK_MAGIC,
    DICTIONARY_HEADER,
    FILE_HEADER,
    FOOTER,
    FOOTER_MAGIC,
    ROW_ATTRIBUTES,
    ROW_COUNT,
    ROW_FIRST,
    ROW_LAST,
    ROW_OFFSET,
    ROWS_PER_ATTRIBUTE,
    BlockKind,
    value_kind,
)
from .leaf import LeafReader
from .node import read_node

ROWS_SHOWN = 8


def describe_segment(files: Files, path: str) -> Iterator[str]:
    """Lines that list the blocks of a segment file in order."""
    with files.open(path) as file:
        data = file.map()
    if len(data) < FILE_HEADER.size:
        raise InvalidArgument(
            f"{path} is no segment file: it has {len(data)} bytes, and the header alone "
            f"{FILE_HEADER.size}; segments are <store>/streams/<stream>/*.seg"
        )
    magic, version, _, _, segment_id, signature = FILE_HEADER.unpack_from(data, 0)
    sound = xxhash.xxh3_64_intdigest(data[: FILE_HEADER.size - 8]) == signature
    yield (
        f"{path}: {len(data):,} bytes, magic {magic!r}, format version {version}, segment "
        f"{segment_id}, "
        f"header {'sound' if sound else 'DOES NOT VERIFY'}"
    )
    at = FILE_HEADER.size
    while at + BLOCK_FRAME.size <= len(data) and bytes(data[at : at + 4]) == BLOCK_MAGIC:
        try:
            frame = open_block(data, at, segment_id, path)
        except Exception as error:
            yield f"{at:>14,}  {error}"
            return
        yield (
            f"{at:>14,}  {frame.kind.name.lower():<10} level {frame.level}  "
            f"{frame.total_bytes:>12,} bytes  "
            f"{frame.events:>12,} events"
        )
        at += frame.total_bytes
    if bytes(data[at : at + 8]) == FOOTER_MAGIC and at + FOOTER.size <= len(data):
        footer = FOOTER.unpack_from(data, at)
        yield (
            f"{at:>14,}  footer     height {footer[2]}, root at {footer[5]:,}, {footer[11]:,} "
            f"events from "
            f"{footer[9]} to {footer[10]}"
        )
    elif at < len(data):
        yield (
            f"{at:>14,}  {len(data) - at:,} bytes that are no block (uncommitted, or not sealed "
            "yet)"
        )


def describe_block(files: Files, path: str, offset: int, schema: StreamSchema) -> Iterator[str]:
    """Lines that print one block: frame, tables, first events of a leaf."""
    with files.open(path) as file:
        data = file.map()
    if offset < 0 or bytes(data[offset : offset + 4]) != BLOCK_MAGIC:
        raise InvalidArgument(f"no block begins at byte {offset} of {path}; list them first")
    segment_id = FILE_HEADER.unpack_from(data, 0)[4]
    frame = open_block(data, offset, segment_id, path)
    yield (
        f"{frame.kind.name.lower()} at byte {offset:,}: level {frame.level}, head "
        f"{frame.head_bytes:,} of "
        f"{frame.total_bytes:,} bytes, {frame.events:,} events, checksum sound"
    )
    yield from _hex(bytes(data[offset : offset + BLOCK_FRAME.size]), offset)
    if frame.kind is BlockKind.LEAF:
        yield from _leaf(data, offset, segment_id, schema, path, frame)
    elif frame.kind is BlockKind.NODE:
        table = read_node(data, offset, segment_id, schema, path, frame)
        yield from _table(table, schema, "child at byte")
    elif frame.kind is BlockKind.DICTIONARY:
        column = DICTIONARY_HEADER.unpack_from(data, offset + BLOCK_FRAME.size)[0]
        attribute = schema.attributes[column]
        first, values = read_page(data, offset, segment_id, attribute, path)
        yield f"dictionary of {attribute.name!r}, codes {first} to {first + len(values) - 1}"
        for code, value in enumerate(values.slice(0, ROWS_SHOWN).to_pylist(), first):
            yield f"  {code:>8}  {value!r}"
    else:
        at = offset + BLOCK_FRAME.size
        length = int.from_bytes(data[at : at + 8], "little")
        yield json.dumps(json.loads(bytes(data[at + 8 : at + 8 + length])), indent=2)


def _leaf(
    data: memoryview, offset: int, segment_id: int, schema: StreamSchema, path: str, frame: Frame
) -> Iterator[str]:
    leaf = LeafReader(data, offset, segment_id, schema, path, frame)
    for attribute in schema.attributes:
        entry = leaf.chunk_entry(attribute.name)
        yield (
            f"  {attribute.name}: {attribute.type}, {entry.encoding.name.lower()}"
            f"{'' if entry.codec == 0 else ' + ' + entry.codec.name.lower()}, "
            f"{entry.nulls:,} nulls, "
            f"{entry.length:,} bytes at +{entry.offset:,}"
        )
    leaf.verify()
    yield "every chunk's checksum is sound"
    ticks = leaf.ticks(0, min(ROWS_SHOWN, leaf.events)).tolist()
    yield f"first ticks: {', '.join(map(str, ticks))}"
    yield from _table(leaf.zones, schema, "zone from event")


def _table(table: np.ndarray, schema: StreamSchema, what: str) -> Iterator[str]:
    for child in range(table.shape[1]):
        yield (
            f"  {what} {table[ROW_OFFSET, child]:,}: {table[ROW_COUNT, child]:,} events from "
            f"{table[ROW_FIRST, child]} to {table[ROW_LAST, child]}"
        )
        if child >= ROWS_SHOWN:
            yield f"  ... and {table.shape[1] - child - 1} more"
            return
        for position, attribute in enumerate(schema.payload):
            row = ROW_ATTRIBUTES + ROWS_PER_ATTRIBUTE * position
            words = np.ascontiguousarray(table[row : row + ROWS_PER_ATTRIBUTE, child])
            aggregate = AttributeAggregate(
                words.tolist(), words.view(np.float64).tolist(), value_kind(attribute)
            )
            yield (
                f"      {attribute.name}: count {aggregate.count:,}, min {aggregate.min}, max "
                f"{aggregate.max}, sum {aggregate.sum}"
            )


def _hex(raw: bytes, base: int) -> Iterator[str]:
    for at in range(0, len(raw), 16):
        line = raw[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        yield f"  {base + at:08x}  {line.hex(' '):<47}  {text}"
