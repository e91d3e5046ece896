"""Segments for readers: one TAB+-tree in a mapped file, as an immutable view.

``SegmentView`` is a sealed segment from its root, or the active one from the flank at a commit:
both are a list of entry tables in time order.  ``aggregate`` visits two paths: logarithmic in the
events.  ``scan`` visits only leaves, and inside them only runs of zones, that time range and pruner
do not exclude.

Opens and verifies sealed segments: footer, then root and summary, then dictionary pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from ..core.times import INT64_MAX, INT64_MIN
from ..errors import CorruptBlock, CorruptStore
from ..schema import StreamSchema
from .aggregates import LightweightAggregates, merge_children
from .block import open_block
from .cold_file import AHEAD_BYTES
from .columns import ColumnView, Ranges
from .evolution import Evolution
from .file_contract import Files, check_version
from .layout import (
    FILE_HEADER,
    FOOTER,
    FOOTER_MAGIC,
    FORMAT_VERSION,
    ROW_COUNT,
    ROW_FIRST,
    ROW_LAST,
    ROW_LENGTH,
    ROW_OFFSET,
    ROWS_PER_ATTRIBUTE,
    ZONE_EVENTS,
    BlockKind,
    value_kind,
)
from .leaf import LeafReader, entry_of_table
from .node import find_children
from .prune import Prune, Pruner
from .segment_file import SegmentFile
from .segment_list import SegmentEntry
from .segment_writer import Extent

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


TICK_MIN, TICK_MAX = INT64_MIN, INT64_MAX
FIRST_AHEAD_BYTES = 1 << 20


@dataclass
class ScanMetrics:
    """Work of a scan or an aggregation, added to the caller's object."""

    blocks_read: int = 0
    blocks_skipped: int = 0
    bytes_read: int = 0
    events_read: int = 0
    nodes_read: int = 0

    def add(self, other: ScanMetrics) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def figures(self) -> tuple[tuple[str, int], ...]:
        """Names and values, as EXPLAIN shows them."""
        return (
            ("blocks_read", self.blocks_read),
            ("blocks_skipped", self.blocks_skipped),
            ("nodes_read", self.nodes_read),
            ("bytes_read", self.bytes_read),
            ("events_read", self.events_read),
        )


class Zoned(Protocol):
    """A leaf, on disk or in memory, as far as it is aggregated."""

    @property
    def events(self) -> int: ...

    def ticks(self, first: int = 0, end: int | None = None) -> Table: ...


@dataclass(frozen=True)
class Scan:
    """What is read: ``columns`` of the events with first <= t <= last, null if missing, as
    ``output``.  ``prune`` skips blocks, but does not filter; ``dictionary`` keeps codes (and
    changes the schema); only the first ``limit`` events are complete.
    """

    columns: Sequence[str]
    output: pa.Schema
    first: int = TICK_MIN
    last: int = TICK_MAX
    prune: Prune | None = None
    dictionary: bool = False
    limit: int | None = None
    metrics: ScanMetrics = field(default_factory=ScanMetrics)


class Aggregation(LightweightAggregates):
    """Aggregates of attributes over the events with low <= t <= high, so far; attributes that the
    schema lacks are left out.
    """

    __slots__ = ("attributes", "high", "low", "metrics", "order", "positions")

    def __init__(
        self,
        schema: StreamSchema,
        names: Sequence[str] = (),
        low: int = TICK_MIN,
        high: int = TICK_MAX,
        metrics: ScanMetrics | None = None,
    ) -> None:
        order = {attribute.name: i for i, attribute in enumerate(schema.payload)}
        present = [name for name in names if name in order]
        self.attributes = [schema.payload[order[name]] for name in present]
        self.positions = np.array([order[name] for name in present], np.int64)
        self.order = np.arange(len(present))
        super().__init__(present, np.array([value_kind(a) for a in self.attributes], np.int64))
        self.low, self.high = low, high
        self.metrics = metrics or ScanMetrics()

    def add(self, table: Table, first: int, end: int) -> None:
        """Merge children [first, end) of an entry table."""
        merge_children(table, first, end, self.positions, self.kinds, self.words)

    def add_ticks(self, ticks: npt.NDArray[np.int64]) -> None:
        """Count events with ascending ticks."""
        if not len(ticks):
            return
        words, first, last = self.words, int(ticks[0]), int(ticks[-1])
        words[1] = min(int(words[1]), first) if words[0] else first
        words[2] = max(int(words[2]), last) if words[0] else last
        words[0] += len(ticks)

    def add_zones(
        self,
        leaf: Zoned,
        zones: Table,
        positions: Table,
        column: Callable[[str, int, int], pa.Array],
    ) -> int:
        """Merge the events of a leaf; returns how many of them were read."""
        first, end, full_first, full_end = find_children(zones, self.low, self.high)
        merge_children(zones, full_first, full_end, positions, self.kinds, self.words)
        read = 0
        for zone in (*range(first, full_first), *range(full_end, end)):
            base = zone * ZONE_EVENTS
            ticks = leaf.ticks(base, min(base + ZONE_EVENTS, leaf.events))
            low, high = (
                int(ticks.searchsorted(self.low)),
                int(ticks.searchsorted(self.high, "right")),
            )
            if high <= low:
                continue
            read += high - low
            table = np.zeros((5 + ROWS_PER_ATTRIBUTE * len(self.names), 1), np.int64)
            table[ROW_COUNT, 0] = high - low
            table[ROW_FIRST, 0] = ticks[low]
            table[ROW_LAST, 0] = ticks[high - 1]
            bounds = np.array([0, high - low], np.int64)
            for i, attribute in enumerate(self.attributes):
                array = column(attribute.name, base + low, base + high)
                ColumnView(attribute, array).aggregate(bounds, table, 5 + ROWS_PER_ATTRIBUTE * i)
            merge_children(table, 0, 1, self.order, self.kinds, self.words)
        return read

    def add_part(self, part: Aggregation) -> None:
        """Merge an aggregation that lacks some of the attributes."""
        words = np.zeros_like(self.words)
        words[:3] = part.words[:3]
        for i, name in enumerate(self.names):
            if name in part.names:
                j = part.names.index(name)
                words[3 + 5 * i : 8 + 5 * i] = part.words[3 + 5 * j : 8 + 5 * j]
        self.merge(LightweightAggregates(self.names, self.kinds, words))


@dataclass(slots=True, weakref_slot=True, eq=False)
class SegmentView:
    """The tree of one segment at one moment; its ``source`` may be lazy."""

    file: SegmentFile
    source: Tree | Callable[[], Tree]
    events: int
    first: int
    last: int
    length: int
    sealed: bool

    @property
    def tree(self) -> Tree:
        tree = self.source
        if not isinstance(tree, Tree):
            tree = self.source = tree()
        return tree

    def root(self) -> Root | None:
        """The entry of the whole segment as written; None if converted or not read yet."""
        tree = self.source
        if not self.sealed or not isinstance(tree, Tree) or self.file.evolved:
            return None
        height, entry = tree.fragments[0]
        return Root(height, entry[:, 0])

    @property
    def fragments(self) -> tuple[tuple[int, Table], ...]:
        return self.tree.fragments

    @property
    def pages(self) -> dict[str, tuple[int, ...]]:
        return self.tree.pages

    @classmethod
    def open_sealed(
        cls,
        files: Files,
        path: str,
        segment_id: int,
        schema: StreamSchema,
        written: StreamSchema | None = None,
        evolution: Evolution | None = None,
    ) -> SegmentView:
        """Open a sealed segment by its footer; ``written`` has the names in the file."""
        read = schema if evolution is None else evolution.now
        file = SegmentFile(files, path, segment_id, read, evolution=evolution)
        return read_sealed(file, files.size(path), schema, written)

    @classmethod
    def promised(
        cls,
        files: Files,
        path: str,
        entry: SegmentEntry,
        schema: StreamSchema,
        written: StreamSchema,
        evolution: Evolution | None,
    ) -> SegmentView:
        """A sealed segment from its entry, opened on access; ``CorruptStore`` then."""
        read = schema if evolution is None else evolution.now
        file = SegmentFile(files, path, entry.id, read, evolution=evolution)

        def tree() -> Tree:
            try:
                sealed = read_sealed(file, files.size(path), schema, written)
            except FileNotFoundError as error:
                raise CorruptStore(
                    f"{path} is missing, which the manifest names; run `chronicle check`"
                ) from error
            check_entry(sealed, entry, path)
            return sealed.tree

        return cls(file, tree, entry.events, entry.first, entry.last, entry.bytes, True)

    @classmethod
    def open_extent(cls, file: SegmentFile, extent: Extent) -> SegmentView:
        """Rebuild the flank of an unsealed segment from the heads of its nodes' children."""
        file.data(extent.length)
        fragments = []
        for level, children in enumerate(extent.levels, 1):
            entries = []
            for offset, length in children:
                if level == 1:
                    table = file.leaf(offset, length).zones
                else:
                    table = file.node(offset, length)
                entries.append(entry_of_table(file.schema, table, offset, length))
            if entries:
                joined = np.ascontiguousarray(np.stack(entries, axis=1))
                fragments.append((level, joined))
        return cls.of_flank(file, fragments, extent)

    @classmethod
    def of_flank(
        cls, file: SegmentFile, fragments: Sequence[tuple[int, Table]], extent: Extent
    ) -> SegmentView:
        """A view of the active segment from its writer's flank, level 1 first."""
        tables = tuple((level, table) for level, table in reversed(fragments) if table.shape[1])
        return cls(
            file,
            Tree(tables, {name: tuple(pages) for name, pages in extent.pages.items()}),
            extent.events,
            int(tables[0][1][ROW_FIRST, 0]) if tables else 0,
            int(tables[-1][1][ROW_LAST, -1]) if tables else 0,
            extent.length,
            False,
        )

    def aggregate(self, sums: Aggregation) -> None:
        """Merge this segment's events into an aggregation."""
        for level, table in self.fragments:
            self._aggregate(level, table, sums)

    def _aggregate(self, level: int, table: Table, sums: Aggregation) -> None:
        first, end, full_first, full_end = find_children(table, sums.low, sums.high)
        sums.add(table, full_first, full_end)
        for child in (*range(first, full_first), *range(full_end, end)):
            offset, length = int(table[ROW_OFFSET, child]), int(table[ROW_LENGTH, child])
            if level > 1:
                sums.metrics.nodes_read += 1
                self._aggregate(level - 1, self.file.node(offset, length), sums)
            else:
                sums.metrics.blocks_read += 1
                leaf = self.file.leaf(offset, length)
                column = partial(self.column, leaf)
                read = sums.add_zones(leaf, leaf.zones, sums.positions, column)
                sums.metrics.events_read += read

    def column(
        self,
        leaf: LeafReader,
        name: str,
        first: int,
        end: int,
        *,
        type_: pa.DataType | None = None,
        encoded: bool = False,
        ranges: Ranges | None = None,
    ) -> pa.Array:
        """Rows [first, end) of a column; null of ``type_`` if missing from the segment."""
        if type_ is not None and name not in self.file.schema:
            return pa.nulls(end - first, type_)
        if leaf.uses_dictionary(name):
            values = self.file.dictionary(name, self.pages.get(name, ()))
            return leaf.column(name, first, end, values, encoded)
        return leaf.column(name, first, end, ranges=ranges)

    def column_at(
        self, wanted: Sequence[tuple[LeafReader, Table]], name: str, type_: pa.DataType
    ) -> pa.Array:
        """A column at ascending rows of leaves; a dictionary array where all store it so."""
        if name in self.file.schema and self.file.as_written((name,)):
            parts = [leaf.numbers_at(name, rows) for leaf, rows in wanted]
            stored = [part for part in parts if part is not None]
            if len(stored) == len(wanted):
                numbers = stored[0] if len(stored) == 1 else np.concatenate(stored)
                if not wanted[0][0].uses_dictionary(name):
                    buffers = [None, pa.py_buffer(numbers)]
                    return pa.Array.from_buffers(type_, len(numbers), buffers)
                values = self.file.dictionary(name, self.pages.get(name, ()))
                if len(numbers) and int(numbers.max()) >= len(values):
                    what = f"attribute {name!r} has a code outside its dictionary"
                    raise CorruptBlock(what, self.file.path)
                return pa.DictionaryArray.from_arrays(pa.array(numbers), values, safe=False)
        arrays = []
        for leaf, rows in wanted:
            first = int(rows[0])
            whole = self.column(leaf, name, first, int(rows[-1]) + 1, type_=type_)
            arrays.append(whole.take(pa.array(rows - first)))
        return pa.concat_arrays(arrays)

    def leaves(self, scan: Scan, pruner: Pruner | None = None) -> Iterator[LeafReader]:
        """Leaves, in time order, that may hold events of a scan."""
        for level, table in self.fragments:
            yield from self._leaves(level, table, scan, pruner)

    def _leaves(
        self, level: int, table: Table, scan: Scan, pruner: Pruner | None
    ) -> Iterator[LeafReader]:
        first, end, _, _ = find_children(table, scan.first, scan.last)
        wanted = None if pruner is None else pruner.mask(table[:, first:end])
        offsets = table[ROW_OFFSET].tolist()
        lengths = table[ROW_LENGTH].tolist()
        due, ahead = first if self.file.moved else end, FIRST_AHEAD_BYTES
        for child in range(first, end):
            if child == due:  # prefetch the next group
                begun, due = due, due + 1
                while due < end and offsets[due] - offsets[begun] < ahead:
                    due += 1
                near = [i for i in range(begun, due) if wanted is None or wanted[i - first]]
                self.file.fetch([(offsets[i], lengths[i]) for i in near])
                ahead = min(4 * ahead, AHEAD_BYTES)
            if wanted is not None and not wanted[child - first]:
                scan.metrics.blocks_skipped += 1
                continue
            if level == 1:
                scan.metrics.blocks_read += 1
                yield self.file.leaf(offsets[child], lengths[child])
            else:
                scan.metrics.nodes_read += 1
                below = self.file.node(offsets[child], lengths[child])
                yield from self._leaves(level - 1, below, scan, pruner)

    def scan(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """The events that a scan reads, leaf by leaf."""
        left, metrics = scan.limit, scan.metrics
        pruner = None if scan.prune is None else Pruner(scan.prune, self.file.schema)
        for leaf in self.leaves(scan, pruner):
            for first, end in rows_within(leaf, scan.first, scan.last, pruner):
                if left is not None:
                    end = min(end, first + left)
                    left -= end - first
                metrics.events_read += end - first
                metrics.bytes_read += sum(
                    leaf.chunk_bytes(name) for name in scan.columns if name in self.file.schema
                )
                yield self.batch(leaf, first, end, scan)
                if left == 0:
                    return

    def batch(self, leaf: LeafReader, first: int, end: int, scan: Scan) -> pa.RecordBatch:
        arrays = [
            self.column(leaf, name, first, end, type_=type_, encoded=scan.dictionary)
            for name, type_ in zip(scan.columns, scan.output.types, strict=True)
        ]
        if not arrays:
            return counted(end - first)
        if scan.dictionary and any(pa.types.is_dictionary(array.type) for array in arrays):
            return pa.RecordBatch.from_arrays(arrays, names=list(scan.columns))
        return pa.RecordBatch.from_arrays(arrays, schema=scan.output)

    def close(self) -> None:
        self.file.close()


def check_entry(view: SegmentView, entry: SegmentEntry, path: str) -> None:
    if (view.events, view.first, view.last) != (entry.events, entry.first, entry.last):
        raise CorruptStore(
            f"{path} holds {view.events} events from {view.first} to {view.last}; the manifest "
            f"says {entry.events} from {entry.first} to {entry.last}; run `chronicle check`"
        )


def read_sealed(
    file: SegmentFile, size: int, schema: StreamSchema, written: StreamSchema | None
) -> SegmentView:
    """A sealed segment of ``size`` bytes from its footer, summary and root."""
    path, segment_id = file.path, file.segment_id
    if size < FILE_HEADER.size + FOOTER.size:
        file.data(max(size, FILE_HEADER.size))  # may raise a more precise error
        raise CorruptBlock(f"a sealed segment cannot be {size} bytes long", path, 0)
    at = size - FOOTER.size
    footer = bytes(file.block(at, FOOTER.size)[at:size])
    magic, version, height, _, own, *places, first, last, events, total, sign = FOOTER.unpack(
        footer
    )
    root_at, root_bytes, summary_at, _ = places
    if magic != FOOTER_MAGIC or xxhash.xxh3_64_intdigest(footer[:-8]) != sign:
        raise CorruptBlock("the footer of the sealed segment does not verify", path, at)
    check_version(path, version, FORMAT_VERSION)
    if own != segment_id or total != size:
        raise CorruptBlock(f"the footer is not that of segment {segment_id}", path, at)
    data = file.block(summary_at, size - summary_at)
    pages = _read_summary(data, summary_at, segment_id, path)["pages"]
    if written is not None and written.names != schema.names:
        now = dict(zip(written.names, schema.names, strict=True))
        pages = {now[name]: offsets for name, offsets in pages.items()}
    table = file.node(root_at, root_bytes)
    entry = entry_of_table(file.schema, table, root_at, root_bytes).reshape(-1, 1)
    tree = Tree(((height + 1, entry),), {name: tuple(offsets) for name, offsets in pages.items()})
    return SegmentView(file, tree, events, first, last, size, True)


def counted(rows: int) -> pa.RecordBatch:
    """Rows without columns."""
    struct = pa.StructArray.from_arrays([pa.nulls(rows)], names=["_"])
    return pa.RecordBatch.from_struct_array(struct).select([])


def rows_within(
    leaf: LeafReader, start: int, last: int, pruner: Pruner | None
) -> list[tuple[int, int]]:
    """Runs of rows of a leaf within the time bounds whose zones the pruner keeps."""
    zones = leaf.zones
    first_row, end_row = 0, leaf.events
    if zones[ROW_FIRST, 0] < start or zones[ROW_LAST, -1] > last:
        first, end, full_first, full_end = find_children(zones, start, last)
        if end <= first:
            return []
        first_row = first * ZONE_EVENTS
        end_row = min(end * ZONE_EVENTS, leaf.events)
        if full_first > first:
            ticks = leaf.ticks(first_row, min(first_row + ZONE_EVENTS, leaf.events))
            first_row += int(np.searchsorted(ticks, start, "left"))
        base = (end - 1) * ZONE_EVENTS
        if full_end < end or zones[ROW_LAST, end - 1] > last:
            ticks = leaf.ticks(base, end_row)
            end_row = base + int(np.searchsorted(ticks, last, "right"))
        if end_row <= first_row:
            return []
    if pruner is None:
        return [(first_row, end_row)]
    wanted = np.flatnonzero(pruner.mask(zones))
    if wanted.size == zones.shape[1]:
        return [(first_row, end_row)]
    runs: list[tuple[int, int]] = []
    if wanted.size:
        breaks = np.flatnonzero(np.diff(wanted) > 1)
        firsts = wanted[np.concatenate(([0], breaks + 1))]
        lasts = wanted[np.concatenate((breaks, [wanted.size - 1]))]
        for one, other in zip(firsts.tolist(), lasts.tolist(), strict=True):
            low = max(first_row, one * ZONE_EVENTS)
            high = min(end_row, (other + 1) * ZONE_EVENTS)
            if high > low:
                runs.append((low, high))
    return runs
