"""Opens and verifies sealed segments: footer, then root and summary, then dictionary pages."""

from __future__ import annotations

import json
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from ..errors import CorruptBlock, CorruptStore, UnsupportedFormat
from ..schema import StreamSchema
from .block import open_block
from .layout import FILE_HEADER, FOOTER, FOOTER_MAGIC, FORMAT_VERSION, BlockKind
from .leaf import entry_of_table
from .segment_file import SegmentFile
from .segment_list import SegmentEntry

Table = npt.NDArray[np.int64]


class Tree(NamedTuple):
    """Where the events of a segment are: entry tables in time order (the root's entry if sealed,
    else the flank's unfinished nodes, highest level first), and offsets of dictionary pages.
    """

    fragments: tuple[tuple[int, Table], ...]
    pages: dict[str, tuple[int, ...]]


class Root(NamedTuple):
    """Entry of a whole segment in the columns of the file; ``height`` includes the root's level."""

    height: int
    words: Table


class Sealed(NamedTuple):
    tree: Tree
    events: int
    first: int
    last: int
    length: int


class Opened(Protocol):
    @property
    def events(self) -> int: ...

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...


def check_entry(found: Opened, entry: SegmentEntry, path: str) -> None:
    if (found.events, found.first, found.last) != (entry.events, entry.first, entry.last):
        raise CorruptStore(
            f"{path} holds {found.events} events from {found.first} to {found.last}; the manifest "
            f"says {entry.events} from {entry.first} to {entry.last}; run `chronicle check`"
        )


def read_sealed(
    file: SegmentFile, size: int, schema: StreamSchema, written: StreamSchema | None
) -> Sealed:
    """Read footer, summary and root of a sealed segment of ``size`` bytes."""
    path, segment_id = file.path, file.segment_id
    if size < FILE_HEADER.size + FOOTER.size:
        file.data(max(size, FILE_HEADER.size))  # may raise a more precise error
        raise CorruptBlock(f"a sealed segment cannot be {size} bytes long", path, 0)
    at = size - FOOTER.size
    footer = bytes(file.block(at, FOOTER.size)[at:size])
    (
        magic,
        version,
        height,
        _,
        own,
        root_at,
        root_bytes,
        summary_at,
        _,
        first,
        last,
        events,
        total,
        sign,
    ) = FOOTER.unpack(footer)
    if magic != FOOTER_MAGIC or xxhash.xxh3_64_intdigest(footer[:-8]) != sign:
        raise CorruptBlock("the footer of the sealed segment does not verify", path, at)
    if version > FORMAT_VERSION:
        raise UnsupportedFormat(f"{path} has format version {version}; use a newer release")
    if own != segment_id or total != size:
        raise CorruptBlock(f"the footer is not that of segment {segment_id}", path, at)
    data = file.block(summary_at, size - summary_at)
    pages = _read_summary(data, summary_at, segment_id, path)["pages"]
    if written is not None and written.names != schema.names:
        now = dict(zip(written.names, schema.names, strict=True))
        pages = {now[name]: offsets for name, offsets in pages.items()}
    table = file.node(root_at, root_bytes)
    entry = entry_of_table(file.schema, table, root_at, root_bytes).reshape(-1, 1)
    entry.flags.writeable = False
    tree = Tree(((height + 1, entry),), {name: tuple(offsets) for name, offsets in pages.items()})
    return Sealed(tree, events, first, last, size)


def _read_summary(
    data: memoryview, offset: int, segment_id: int, path: str
) -> dict[str, dict[str, list[int]]]:
    frame = open_block(data, offset, segment_id, path)
    if frame.kind is not BlockKind.SUMMARY:
        raise CorruptBlock(f"expected the summary, found a {frame.kind.name} block", path, offset)
    at = offset + 64
    length = int.from_bytes(data[at : at + 8], "little")
    document: dict[str, dict[str, list[int]]] = json.loads(bytes(data[at + 8 : at + 8 + length]))
    return document
