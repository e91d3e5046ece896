"""Segment writer: one TAB+-tree, bulk-loaded from left to right into one file.

Events arrive in time order; a node is written when it is full, so the file is written sequentially.
Only the right flank, one unfinished node per level, is in memory (thesis section 3.2: insertion is
a continuous bulk load).  The log's ``Extent`` of an unsealed segment has its length, the positions
of the children of each unfinished node, from whose heads the flank is rebuilt, and its dictionary
pages.  Nothing is durable until ``sync`` returns, nor visible until the extent is logged.

Leaves are cut after ``leaf_bytes`` of plain values (eight times that in a large batch), at a
multiple of the zone size if possible.

Write-behind: encoding continues while encoded blocks are written and synced.  Blocks are written in
order, in pieces of some megabytes in another thread (small files in the caller's), and syncs start
early, so that the final sync is short.  After ``flush`` all have been written, after ``sync`` they
are durable; errors are raised by the next call of either.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from ..core.ownership import OwnThreads
from ..schema import Storage, StreamSchema
from .block import frame_head
from .columns import SIZED, ColumnView, codec_of
from .dictionary import DictionaryBuilder
from .file_contract import AppendFile, Files
from .layout import (
    FILE_HEADER,
    FOOTER,
    FOOTER_MAGIC,
    FORMAT_VERSION,
    ROW_COUNT,
    ROW_FIRST,
    ROW_LAST,
    ROW_LENGTH,
    SEGMENT_MAGIC,
    ZONE_EVENTS,
    BlockKind,
    table_rows,
)
from .leaf import build_leaf, entry_of_table
from .node import LevelBuilder, build_node
from .segment_list import SegmentEntry

PIECE_BYTES = 4 << 20
SYNC_BYTES = 32 << 20

_writing = OwnThreads(2, "chronicle-write")
_syncing = OwnThreads(2, "chronicle-sync")


class WriteBehind:
    """Appends to ``file``, which ``close`` closes; ``unsynced`` bytes are not durable yet."""

    def __init__(self, file: AppendFile, unsynced: int = 0) -> None:
        self._file = file
        self._parts: list[Any] = []
        self._gathered = 0
        self._unsynced = unsynced
        self._writing: Future[None] | None = None
        self._syncing: Future[None] | None = None
        self.length = file.size
        """Length of the file including buffered bytes."""

    def put(self, parts: list[Any], length: int) -> None:
        """Append ``length`` bytes of buffers, which must not change any more."""
        self._parts.extend(parts)
        self._gathered += length
        self.length += length
        if self._gathered >= PIECE_BYTES:
            self._join(writing=True)
            if self._unsynced >= SYNC_BYTES and (self._syncing is None or self._syncing.done()):
                self._join(syncing=True)
                self._unsynced = 0
                self._syncing = _syncing.pool().submit(self._file.sync)
            parts, self._parts = self._parts, []
            self._unsynced += self._gathered
            self._gathered = 0
            self._writing = _writing.pool().submit(self._file.writev, parts)

    def _join(self, *, writing: bool = False, syncing: bool = False) -> None:
        if writing and self._writing is not None:
            pending, self._writing = self._writing, None
            pending.result()
        if syncing and self._syncing is not None:
            pending, self._syncing = self._syncing, None
            pending.result()

    def flush(self) -> None:
        self._join(writing=True)
        if self._parts:
            parts, self._parts = self._parts, []
            self._unsynced += self._gathered
            self._gathered = 0
            self._file.writev(parts)

    def sync(self) -> None:
        self.flush()
        self._join(syncing=True)
        if self._unsynced:
            self._file.sync()
            self._unsynced = 0

    def truncate(self, size: int) -> None:
        self._abandon()
        if self._file.size > size:
            self._file.truncate(size)
        self.length = size

    def _abandon(self) -> None:
        self._parts, self._gathered = [], 0
        for pending in (self._writing, self._syncing):
            if pending is not None:
                with suppress(Exception):  # the caller has an error of its own
                    pending.result()
        self._writing = self._syncing = None

    def close(self) -> None:
        self._abandon()
        self._file.close()


Table = npt.NDArray[np.int64]
BULK_LEAVES = 8
"""Leaf size of bulk loads in ``leaf_bytes``: cheaper scans; zones keep partial reads small."""


@dataclass(frozen=True)
class Extent:
    """The committed part of an unsealed segment: ``levels`` are the (offset, length) children of
    unfinished nodes, level 1 first; ``exploded`` attributes have exceeded their dictionary.
    """

    segment_id: int
    length: int
    events: int
    levels: list[list[tuple[int, int]]] = field(default_factory=list)
    pages: dict[str, list[int]] = field(default_factory=dict)
    exploded: list[str] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        document = {
            "id": self.segment_id,
            "length": self.length,
            "events": self.events,
            "levels": [[n for pair in level for n in pair] for level in self.levels],
            "pages": self.pages,
            "exploded": self.exploded,
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Extent:
        document = json.loads(bytes(data))
        levels = [list(zip(flat[::2], flat[1::2], strict=True)) for flat in document["levels"]]
        return cls(
            document["id"],
            document["length"],
            document["events"],
            levels,
            document["pages"],
            document["exploded"],
        )


def plain_row_bytes(schema: StreamSchema) -> int:
    """Plain bytes of one event, counting a string as the 4 bytes of its code or offset."""
    total = 0.0
    for attribute in schema.attributes:
        if attribute.storage in SIZED:
            total += 4
        elif attribute.storage is Storage.BOOL:
            total += 0.125
        else:
            total += attribute.type.bit_width / 8
    return max(1, int(total))


def leaf_events(row_bytes: float, leaf_bytes: int) -> int:
    """Events of a full leaf: as many as fit, cut to whole zones when there are several."""
    events = max(1, int(leaf_bytes / row_bytes))
    return events // ZONE_EVENTS * ZONE_EVENTS if events >= ZONE_EVENTS else events


class SegmentWriter:
    """Writes one segment; ``leaf_bytes`` are the plain bytes of a full leaf."""

    def __init__(
        self,
        files: Files,
        path: str,
        segment_id: int,
        schema: StreamSchema,
        codec: str,
        leaf_bytes: int,
        *,
        file: AppendFile | None = None,
    ) -> None:
        self.path = path
        self.segment_id = segment_id
        self.schema = schema
        self.codec = codec_of(codec)
        self.leaf_bytes = leaf_bytes
        self.rows = table_rows(schema)
        self.events = 0
        self.first: int | None = None
        self.last: int | None = None
        self.levels: list[LevelBuilder] = [LevelBuilder(self.rows, 1)]
        self.dictionaries = {
            attribute.name: DictionaryBuilder(attribute, column)
            for column, attribute in enumerate(schema.attributes)
            if attribute.storage in (Storage.STRING, Storage.BINARY)
        }
        self.pages: dict[str, list[int]] = {name: [] for name in self.dictionaries}
        unsynced = 0
        if file is None:
            file = files.create(path)
            header = FILE_HEADER.pack(
                SEGMENT_MAGIC, FORMAT_VERSION, 0, FILE_HEADER.size, segment_id, 0
            )
            digest = xxhash.xxh3_64_intdigest(header[:-8])
            file.write(header[:-8] + digest.to_bytes(8, "little"))
            unsynced = FILE_HEADER.size
        self._out = WriteBehind(file, unsynced)

    @classmethod
    def resume(
        cls,
        files: Files,
        path: str,
        schema: StreamSchema,
        codec: str,
        leaf_bytes: int,
        extent: Extent,
        flank: Sequence[Table],
        dictionaries: dict[str, pa.Array],
    ) -> SegmentWriter:
        """Continue at an extent, with the ``flank`` (level 1 first) and dictionaries."""
        file = files.append(path)
        if file.size > extent.length:
            file.truncate(extent.length)
        writer = cls(files, path, extent.segment_id, schema, codec, leaf_bytes, file=file)
        writer.events = extent.events
        writer.levels = []
        for level, table in enumerate(flank, 1):
            builder = LevelBuilder(writer.rows, level)
            builder.table[:, : table.shape[1]] = table
            builder.count = table.shape[1]
            writer.levels.append(builder)
        if not writer.levels:
            writer.levels = [LevelBuilder(writer.rows, 1)]
        tables = [table for table in flank if table.shape[1]]
        if tables:
            writer.first = int(min(table[ROW_FIRST].min() for table in tables))
            writer.last = int(max(table[ROW_LAST].max() for table in tables))
        for name, values in dictionaries.items():
            old = writer.dictionaries[name]
            writer.dictionaries[name] = DictionaryBuilder(old.attribute, old.column, values)
        for name in extent.exploded:
            writer.dictionaries[name].exploded = True
        for name, pages in extent.pages.items():
            writer.pages[name] = list(pages)
        return writer

    @property
    def length(self) -> int:
        """Bytes of the segment so far, including those not yet written to the file."""
        return self._out.length

    def _columns(self, batch: pa.RecordBatch) -> list[ColumnView]:
        views = []
        for attribute, array in zip(self.schema.attributes, batch.columns, strict=True):
            dictionary = self.dictionaries.get(attribute.name)
            codes = dictionary.encode(array) if dictionary is not None else None
            if dictionary is not None and codes is not None:
                views.append(ColumnView(attribute, array, codes, dictionary.prefixes))
            else:
                views.append(ColumnView(attribute, array))
        return views

    def write(
        self, batch: pa.RecordBatch, *, whole_leaves: bool = False, single: bool = False
    ) -> int:
        """Append a batch in time order, perhaps only whole leaves, or all of it as a ``single``
        one; returns events written.
        """
        columns = self._columns(batch)
        rows = batch.num_rows
        cuts = [0, rows] if single else self._cuts(columns, rows, whole_leaves)
        for first, end in pairwise(cuts):
            self._write_leaf(columns, first, end)
        return cuts[-1]

    def _write_leaf(self, columns: list[ColumnView], first: int, end: int) -> None:
        self._write_pages()
        parts, entry = build_leaf(
            self.schema, columns, first, end, self.codec, self.length, self.segment_id
        )
        self._out.put(parts, int(entry[ROW_LENGTH]))
        self._add(0, entry)
        self.events += end - first
        if self.first is None:
            self.first = int(entry[ROW_FIRST])
        self.last = int(entry[ROW_LAST])

    def _cuts(self, columns: list[ColumnView], rows: int, whole_leaves: bool) -> list[int]:
        extra = [sizes for column in columns if (sizes := column.row_bytes()) is not None]
        fixed = plain_row_bytes(self.schema)
        if not extra:
            cuts = [0]
            for leaf_bytes in (BULK_LEAVES * self.leaf_bytes, self.leaf_bytes):
                step = leaf_events(fixed, leaf_bytes)
                cuts += range(cuts[-1] + step, rows + 1, step)
            if not whole_leaves and cuts[-1] < rows:
                cuts.append(rows)
            return cuts
        before = np.zeros(rows + 1, np.int64)
        np.cumsum(np.sum(extra, axis=0) + fixed, out=before[1:])
        cuts = [0]
        while cuts[-1] < rows:
            start = cuts[-1]
            left = int(before[rows] - before[start])
            if left < self.leaf_bytes:
                if not whole_leaves:
                    cuts.append(rows)
                break
            bulk = BULK_LEAVES * self.leaf_bytes
            goal = before[start] + (bulk if left >= bulk else self.leaf_bytes)
            events = max(1, int(np.searchsorted(before, goal, side="right")) - 1 - start)
            if events >= ZONE_EVENTS:
                events = events // ZONE_EVENTS * ZONE_EVENTS
            cuts.append(start + events)
        return cuts

    def _write_pages(self) -> None:
        for name, dictionary in self.dictionaries.items():
            offset = self.length
            page = dictionary.page(offset, self.segment_id, self.codec)
            if page is not None:
                self._out.put(page[0], page[1])
                self.pages[name].append(offset)

    def sync(self) -> None:
        self._out.sync()

    def _add(self, index: int, entry: Table) -> None:
        if index == len(self.levels):
            self.levels.append(LevelBuilder(self.rows, index + 1))
        builder = self.levels[index]
        builder.add(entry)
        if builder.full:
            self.levels[index] = LevelBuilder(self.rows, builder.level)
            self._add(index + 1, self._write_node(builder))

    def _write_node(self, builder: LevelBuilder) -> Table:
        table = np.ascontiguousarray(builder.view())
        offset = self.length
        block = build_node(table, builder.level, offset, self.segment_id)
        self._out.put([block], len(block))
        return entry_of_table(self.schema, table, offset, len(block))

    def extent(self) -> Extent:
        return Extent(
            self.segment_id,
            self.length,
            self.events,
            [
                list(zip(view[0].tolist(), view[1].tolist(), strict=True))
                for view in (level.view() for level in self.levels)
            ],
            {name: list(pages) for name, pages in self.pages.items()},
            [name for name, dictionary in self.dictionaries.items() if dictionary.exploded],
        )

    def truncate(self, size: int) -> None:
        """Cut the file back; the writer is of no use then.  Raises after a failed sync."""
        self._out.truncate(size)

    def seal(self, layout: int = 0) -> SegmentEntry:
        """Write flank, root, summary and footer durably; ``layout`` is the schema's."""
        assert self.events
        assert self.first is not None
        assert self.last is not None
        index = 0
        root: Table | None = None
        while index < len(self.levels):
            builder = self.levels[index]
            top = index == len(self.levels) - 1
            if top and builder.count == 1 and index > 0:
                root = builder.table[:, 0].copy()
                height = index
                break
            if builder.count:
                entry = self._write_node(builder)
                self.levels[index] = LevelBuilder(self.rows, builder.level)
                if top:
                    root = entry
                    height = index + 1
                    break
                self._add(index + 1, entry)
            index += 1
        assert root is not None
        assert int(root[ROW_COUNT]) == self.events
        summary_at = self.length
        summary = self._summary(summary_at)
        self._out.put([summary], len(summary))
        total = self.length + FOOTER.size
        footer = FOOTER.pack(
            FOOTER_MAGIC, FORMAT_VERSION, height, 0, self.segment_id,
            int(root[0]), int(root[1]), summary_at, len(summary),
            self.first, self.last, self.events, total, 0,
        )  # fmt: skip
        digest = xxhash.xxh3_64_intdigest(footer[:-8])
        self._out.put([footer[:-8] + digest.to_bytes(8, "little")], FOOTER.size)
        self.sync()
        return SegmentEntry(
            self.segment_id, self.events, self.first, self.last, total,
            len(self.schema.attributes), layout,
        )  # fmt: skip

    def _summary(self, offset: int) -> bytes:
        document = {"schema": self.schema.to_json(), "pages": self.pages, "events": self.events}
        body = json.dumps(document, separators=(",", ":")).encode()
        tables = len(body).to_bytes(8, "little") + body
        return frame_head(BlockKind.SUMMARY, 0, offset, tables, 0, self.events, self.segment_id)

    def close(self) -> None:
        """Close the file without writing buffered bytes."""
        self._out.close()
