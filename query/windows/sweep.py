"""Partials of slices from the tree, in one left-to-right walk (thesis 3.3.1).

``Sweep`` absorbs children within the open slice and descends only into those that a boundary cuts,
down to zones of 512 events and, in cut zones, events::

    slices     |---------- 1 ----------|---------- 2 ----------|
    node       [  whole  ][  whole  ][  cut  ][  whole  ][  whole  ]
    leaf                             [w w w c w w]                      w whole zone, c cut zone
    zone                                  [..|..]                       events

Every event in the bounds is absorbed exactly once, and no byte is used before its checksum is
verified.  Cost: one merge per child of the nodes and per zone of the leaves that a boundary cuts,
and 512 events per boundary.  Compressed chunks are decompressed page by page outside the kernels.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.ownership import ModuleLock
from ...core.sorting import distinct
from ...store.columns import ColumnView
from ...store.layout import NODE_FANOUT, PAGE_EVENTS, ROW_COUNT, ROW_LENGTH, ROW_OFFSET, Codec
from ...store.layout import ZONE_EVENTS as ZONE
from ...store.leaf import LeafReader
from ...store.segment import SegmentFile, SegmentView
from ...store.segment_file import Epoch
from . import sweep_kernels as k
from .fields import FieldPlan, SchemaFields
from .slices import SliceChunk, WindowMetrics, frozen, words_of

__all__ = ["Sweep"]

Words = npt.NDArray[np.int64]
Marks = npt.NDArray[np.uint8]
Ready = dict[tuple[int, tuple[str, ...]], Marks]

SLICES_AT_ONCE = 1 << 18

EVENTS_AT_ONCE = 1 << 20
"""Approximate number of events per kernel call, between cancellation checks."""

_UNKNOWN, _READY, _COMPRESSED = 0, 1, 2
_NOTHING = frozen(np.zeros((1, 1), np.int64))


class _Mapping:
    def __init__(self, data: memoryview, ready: Ready) -> None:
        self.data = data
        self.words = frozen(np.frombuffer(data, np.int64, len(data) // 8))
        self.narrow = tuple(
            frozen(np.frombuffer(data, dtype, len(data) // np.dtype(dtype).itemsize))
            for dtype in (np.int32, np.float32, np.int16, np.uint8)
        )
        self.ready = ready

    def marks(self, first_leaf: int, names: tuple[str, ...]) -> Marks:
        return self.ready.setdefault((first_leaf, names), np.zeros(NODE_FANOUT, np.uint8))


_mappings: weakref.WeakKeyDictionary[Epoch, _Mapping] = weakref.WeakKeyDictionary()
_guard = ModuleLock()


def _mapping(file: SegmentFile, length: int) -> _Mapping:
    epoch, data = file.epoch, file.sparse(length)  # also checks the file's length
    found = _mappings.get(epoch)
    if found is None or found.data is not data:
        # marks stay valid when the file has grown, but not in an object store
        found = _Mapping(data, {} if found is None or file.moved else found.ready)
        with _guard:
            _mappings[epoch] = found
    return found


class Sweep:
    """A walk over trees in time order that carries its open slice from one to the next.
    ``start``, ``last``: ticks, inclusive.  ``position``: number of events before the first.
    """

    def __init__(
        self,
        plan: FieldPlan,
        slicing: Words,
        start: int,
        last: int,
        metrics: WindowMetrics,
        check: Callable[[], None],
        position: int = 0,
    ) -> None:
        self._plan = plan
        self._slicing = slicing
        self._start = start
        self._last = last
        self._metrics = metrics
        self._check = check
        self._state = np.zeros(k.STATE_WORDS, np.int64)
        self._state[k.POSITION] = position
        self._ids = np.empty(SLICES_AT_ONCE, np.int64)
        self._words = np.empty((SLICES_AT_ONCE, plan.width), np.int64)
        columns = len(plan.names)
        self._scratch = np.empty((columns + 1, ZONE), np.int64)
        self._valid = np.ones((columns + 1, ZONE), np.uint8)

    @property
    def position(self) -> int:
        return int(self._state[k.POSITION])

    def run(self, view: SegmentView) -> Iterator[SliceChunk]:
        """Sweep one tree; yields complete slices when enough have gathered."""
        if view.last < self._start or view.first > self._last or not view.events:
            return
        own = self._plan.of(view.file.schema)
        with view.file.held():
            self._mapped = _mapping(view.file, view.length)
            for level, table in view.fragments:
                yield from self._descend(view.file, own, level, _contiguous(table))

    def finish(self) -> Iterator[SliceChunk]:
        rows = int(self._state[k.ROWS])
        if rows:
            yield self._ids[:rows].copy(), self._words[:rows].copy()
        self._state[k.ROWS] = 0
        self._state[k.OPEN] = 0
        self._count()

    def _count(self) -> None:
        metrics, state = self._metrics, self._state
        metrics.merges += int(state[k.MERGES])
        metrics.zones += int(state[k.ZONES_READ])
        metrics.events += int(state[k.EVENTS_FOLDED])
        metrics.leaves += int(state[k.LEAVES_CUT])
        state[k.MERGES] = state[k.ZONES_READ] = 0
        state[k.EVENTS_FOLDED] = state[k.LEAVES_CUT] = 0

    def _flush(self) -> Iterator[SliceChunk]:
        """Output all but the last slice, which may continue."""
        rows = int(self._state[k.ROWS])
        if rows > 1:
            yield self._ids[: rows - 1].copy(), self._words[: rows - 1].copy()
            self._ids[0] = self._ids[rows - 1]
            self._words[0] = self._words[rows - 1]
            self._state[k.ROWS] = 1

    def _descend(
        self, file: SegmentFile, own: SchemaFields, level: int, table: Words
    ) -> Iterator[SliceChunk]:
        self._check()
        if level == 1:
            yield from self._leaves(file, own, table)
            return
        child = 0
        while True:
            child = k.sweep_nodes(
                table, child, self._start, self._last, self._slicing, own.fields, self._ids,
                self._words, self._state,
            )  # fmt: skip
            if child < 0:
                yield from self._flush()
                child = int(self._state[k.CHILD])
                continue
            if child == table.shape[1]:
                return
            self._metrics.nodes += 1
            below = file.node(int(table[ROW_OFFSET, child]), int(table[ROW_LENGTH, child]))
            yield from self._descend(file, own, level - 1, frozen(below))
            child += 1

    def _leaves(self, file: SegmentFile, own: SchemaFields, table: Words) -> Iterator[SliceChunk]:
        ready = self._mapped.marks(int(table[ROW_OFFSET, 0]), own.names)
        known = ready
        given = _NOTHING
        child = 0
        while True:
            reason = k.sweep_leaves(
                self._mapped.words, self._mapped.narrow, table, child, ready, given, self._start,
                self._last, self._slicing, own.fields, own.columns, own.time_position, self._ids,
                self._words, self._state, self._scratch, self._valid, EVENTS_AT_ONCE,
            )  # fmt: skip
            if reason == 0:
                return
            child = int(self._state[k.CHILD])
            if reason == 3:
                self._check()
                continue
            if reason == 2:
                self._check()
                yield from self._flush()
                self._grow(int(table[ROW_COUNT, child]))
                continue
            ready, given = known, _NOTHING
            place = int(table[ROW_OFFSET, child]), int(table[ROW_LENGTH, child])
            if file.moved and not file.knows(place[0]):
                file.fetch((place,))  # the whole leaf, with read-ahead
            leaf = file.leaf(*place)
            if known[child] == _UNKNOWN:
                known[child] = _verify(leaf, own)
            if known[child] == _COMPRESSED:
                self._check()
                ready = known.copy()
                ready[child] = _READY
                given = self._decompressed(leaf, own)

    def _grow(self, events: int) -> None:
        if events + 3 > self._ids.size:
            ids = np.empty(events + SLICES_AT_ONCE, np.int64)
            words = np.empty((ids.size, self._plan.width), np.int64)
            ids[0], words[0] = self._ids[0], self._words[0]
            self._ids, self._words = ids, words

    def _decompressed(self, leaf: LeafReader, own: SchemaFields) -> Words:
        """Values of a leaf's compressed columns in the zones that the sweep reads."""
        marks = k.cut_zones(
            self._mapped.words, leaf.offset, self._start, self._last, self._slicing, self.position
        )
        per_page = PAGE_EVENTS // ZONE
        pages = distinct(np.flatnonzero(marks) // per_page)
        given = np.empty((len(own.names) + 1, leaf.events), np.int64)
        for first_page, end_page in _runs(pages):
            first = first_page * PAGE_EVENTS
            end = min(end_page * PAGE_EVENTS, leaf.events)
            if leaf.chunk_entry(leaf.schema.time).codec is not Codec.NONE:
                given[-1, first:end] = leaf.ticks(first, end)
            for row, name in enumerate(own.names):
                if leaf.chunk_entry(name).codec is Codec.NONE or own.columns[row, 1] == 11:
                    continue
                array = leaf.column(name, first, end)
                given[row, first:end] = words_of(
                    ColumnView(leaf.schema.attribute(name), array), array
                )
        return frozen(given)


def _contiguous(table: Words) -> Words:
    return frozen(np.ascontiguousarray(table))


def _verify(leaf: LeafReader, own: SchemaFields) -> int:
    """Verify the checksums of the chunks that a sweep may read; returns the leaf's mark."""
    compressed = False
    for name in (leaf.schema.time, *own.names):
        leaf.verify_column(name)
    for row, name in enumerate(own.names):
        entry = leaf.chunk_entry(name)
        compressed |= entry.codec is not Codec.NONE and int(own.columns[row, 1]) != 11
    compressed |= leaf.chunk_entry(leaf.schema.time).codec is not Codec.NONE
    return _COMPRESSED if compressed else _READY


def _runs(pages: npt.NDArray[Any]) -> list[tuple[int, int]]:
    if not pages.size:
        return []
    breaks = np.flatnonzero(np.diff(pages) > 1)
    firsts = pages[np.concatenate(([0], breaks + 1))]
    lasts = pages[np.concatenate((breaks, [pages.size - 1]))]
    return [(int(a), int(b) + 1) for a, b in zip(firsts, lasts, strict=True)]
