"""Segment writer: one TAB+-tree, bulk-loaded from left to right into one file.

Purpose
    Events come in time order and go out as leaves; a node is written the moment it is full, so the
    file is written once and in sequence.  Only the right flank, one unfinished node per level, is
    in memory (thesis section 3.2: insertion is a continuous bulk load).

Guarantee
    Nothing here is durable until :meth:`SegmentWriter.sync` returns, and nothing is visible until
    the stream has logged :meth:`SegmentWriter.extent`.  :meth:`SegmentWriter.mark` and
    :meth:`SegmentWriter.rollback` undo what a failed append has written.

Layout
    See :mod:`~chronicle.store.layout`.  :class:`Extent` is what the write-ahead log remembers of an
    unsealed segment: its length, where the children of each unfinished node lie, and its dictionary
    pages.  The flank is rebuilt from those children's heads, without decoding an event.

Limits
    Leaves are cut after ``leaf_bytes`` of plain values (eight times that where a batch is large
    enough), at a multiple of the zone size where that is possible; a single event larger than that
    makes a leaf of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

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
from .leaf import EncodedLeaf, encode_leaf, entry_of_table
from .node import LevelBuilder, build_node
from .write_behind import WriteBehind

__all__ = ["BULK_LEAVES", "Extent", "SegmentWriter", "leaf_events", "plain_row_bytes"]

Table = npt.NDArray[np.int64]
BULK_LEAVES = 8
"""A bulk load cuts leaves of this many times ``leaf_bytes``: fewer of them make full scans cheaper,
and zones and pages keep what is read of one as small as before."""


@dataclass(frozen=True)
class Extent:
    """The committed part of an unsealed segment.

    Attributes
    ----------
    length : int
        Committed bytes of the file.
    levels : list of list of (offset, length)
        Children of the unfinished node of each level, level 1 first.
    pages : dict of str to list of int
        Offsets of each attribute's dictionary pages.
    exploded : list of str
        Attributes that have given up their dictionary in this segment.
    """

    segment_id: int
    length: int
    events: int
    levels: list[list[tuple[int, int]]] = field(default_factory=list)
    pages: dict[str, list[int]] = field(default_factory=dict)
    exploded: list[str] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        """A form for the log; :meth:`from_bytes` reads it back."""
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
        """Read what :meth:`to_bytes` wrote."""
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


@dataclass(frozen=True)
class _Mark:
    """State to return to when an append fails."""

    length: int
    events: int
    levels: list[tuple[LevelBuilder, int]]
    pages: dict[str, int]
    written: dict[str, int]
    exploded: dict[str, bool]
    first: int | None
    last: int | None


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
    """Writes one segment.

    Parameters
    ----------
    path : str
        Of the segment file; created here unless ``extent`` is given.
    codec : str
        ``none``, ``lz4`` or ``zstd``.
    leaf_bytes : int
        Plain bytes of a full leaf.
    """

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
        known: dict[str, pa.Array],
    ) -> SegmentWriter:
        """Go on with an unsealed segment; what lies behind its committed length is cut off.

        Parameters
        ----------
        extent : Extent
            The last committed one.
        flank : sequence of int64[rows, children]
            Entries of the unfinished node of each level, level 1 first.
        known : dict of str to pyarrow.Array
            Dictionary values already written.
        """
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
        for name, values in known.items():
            old = writer.dictionaries[name]
            writer.dictionaries[name] = DictionaryBuilder(old.attribute, old.column, values)
        for name in extent.exploded:
            writer.dictionaries[name].exploded = True
        for name, pages in extent.pages.items():
            writer.pages[name] = list(pages)
        return writer

    @property
    def length(self) -> int:
        """Bytes of the segment so far, those not yet handed to the file included."""
        return self._out.length

    def columns(self, batch: pa.RecordBatch) -> list[ColumnView]:
        """Prepare a batch of the segment's schema for :meth:`write_leaves`."""
        views = []
        for attribute, array in zip(self.schema.attributes, batch.columns, strict=True):
            codes = None
            dictionary = self.dictionaries.get(attribute.name)
            if dictionary is not None:
                codes = dictionary.encode(array)
            views.append(ColumnView(attribute, array, codes))
        return views

    def write(self, batch: pa.RecordBatch, *, whole_leaves: bool = False) -> int:
        """Append a batch that is in time order and not older than what is there.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            In the segment's schema.
        whole_leaves : bool
            Leave events that do not fill a leaf unwritten.

        Returns
        -------
        int
            Events written.
        """
        columns = self.columns(batch)
        cuts = self.cuts(columns, batch.num_rows, whole_leaves)
        for first, end in pairwise(cuts):
            self.place(self.encode(columns, first, end))
        return cuts[-1]

    def encode(self, columns: list[ColumnView], first: int, end: int) -> EncodedLeaf:
        """Rows [first, end) of prepared columns as a leaf; any thread may do it."""
        return encode_leaf(self.schema, columns, first, end, self.codec)

    def place(self, leaf: EncodedLeaf) -> None:
        """Append a leaf that was encoded for this segment, in the order of their columns."""
        self._write_pages()
        parts, entry = leaf.placed(self.length, self.segment_id)
        self._out.put(parts, int(entry[ROW_LENGTH]))
        self._add(0, entry)
        self.events += leaf.events
        if self.first is None:
            self.first = int(entry[ROW_FIRST])
        self.last = int(entry[ROW_LAST])

    def cuts(self, columns: list[ColumnView], rows: int, whole_leaves: bool) -> list[int]:
        """Row numbers at which leaves begin and end."""
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
            page = dictionary.page(offset, self.segment_id)
            if page is not None:
                self._out.put(page[0], page[1])
                self.pages[name].append(offset)

    def flush(self) -> None:
        """Hand what is gathered to the file (not yet to the disk)."""
        self._out.flush()

    def sync(self) -> None:
        """Make everything written so far durable."""
        self._out.sync()

    def _add(self, index: int, entry: Table) -> None:
        """Enter a child at a level; write the node when that fills it."""
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
        """What the log must remember of the segment as it stands."""
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

    def mark(self) -> _Mark:
        """Remember the present state for :meth:`rollback`."""
        self.flush()
        return _Mark(
            self._out.length,
            self.events,
            [(level, level.count) for level in self.levels],
            {name: len(pages) for name, pages in self.pages.items()},
            {name: dictionary.written for name, dictionary in self.dictionaries.items()},
            {name: dictionary.exploded for name, dictionary in self.dictionaries.items()},
            self.first,
            self.last,
        )

    def rollback(self, mark: _Mark) -> None:
        """Return to a marked state; bytes written since are cut off the file."""
        self.events, self.first, self.last = mark.events, mark.first, mark.last
        self.levels = []
        for level, count in mark.levels:
            copy = LevelBuilder(self.rows, level.level)
            copy.table[:, :count] = level.table[:, :count]
            copy.count = count
            self.levels.append(copy)
        for name, dictionary in self.dictionaries.items():
            dictionary.written = mark.written[name]
            dictionary.exploded = mark.exploded[name]
            del self.pages[name][mark.pages[name] :]
        self._out.truncate(mark.length)

    def seal(self) -> int:
        """Write the flank, the root, the summary and the footer, and make the file durable.

        Returns
        -------
        int
            Length of the finished file in bytes.
        """
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
            FOOTER_MAGIC,
            FORMAT_VERSION,
            height,
            0,
            self.segment_id,
            int(root[0]),
            int(root[1]),
            summary_at,
            len(summary),
            self.first,
            self.last,
            self.events,
            total,
            0,
        )
        digest = xxhash.xxh3_64_intdigest(footer[:-8])
        self._out.put([footer[:-8] + digest.to_bytes(8, "little")], FOOTER.size)
        self.sync()
        return total

    def _summary(self, offset: int) -> bytes:
        document = {
            "schema": self.schema.to_json(),
            "pages": self.pages,
            "events": self.events,
        }
        body = json.dumps(document, separators=(",", ":")).encode()
        tables = len(body).to_bytes(8, "little") + body
        return frame_head(BlockKind.SUMMARY, 0, offset, tables, 0, self.events, self.segment_id)

    def close(self) -> None:
        """Close the file without writing what is pending."""
        self._out.close()
