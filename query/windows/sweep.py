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

The kernels work on entry tables, zones and events (see ``kernels``).  Open slice and counters are
carried from call to call in ``state``.  Leaf offsets are those of ``store/layout.py``, asserted at
the end of this file.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...core.ownership import ModuleLock
from ...core.sorting import distinct
from ...store import layout
from ...store.aggregates import settled, two_sum
from ...store.columns import ColumnView
from ...store.layout import NODE_FANOUT, PAGE_EVENTS, ROW_COUNT, ROW_LENGTH, ROW_OFFSET, Codec
from ...store.layout import ZONE_EVENTS as ZONE
from ...store.leaf import LeafReader
from ...store.packing import unpack_zone
from ...store.scaled import decode_zones
from ...store.segment import SegmentView
from ...store.segment_file import Epoch, SegmentFile
from .fields import FieldPlan, SchemaFields
from .kernels import absorb, fill_identity, fold_floats, fold_integers, open_slice
from .slices import SliceChunk, WindowMetrics, frozen, words_of

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
    mapping = _mappings.get(epoch)
    if mapping is None or mapping.data is not data:
        # marks stay valid when the file has grown, but not in an object store
        mapping = _Mapping(data, {} if mapping is None or file.moved else mapping.ready)
        with _guard:
            _mappings[epoch] = mapping
    return mapping


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
        self._state = np.zeros(STATE_WORDS, np.int64)
        self._state[POSITION] = position
        self._ids = np.empty(SLICES_AT_ONCE, np.int64)
        self._words = np.empty((SLICES_AT_ONCE, plan.width), np.int64)
        columns = len(plan.names)
        self._scratch = np.empty((columns + 1, ZONE), np.int64)
        self._valid = np.ones((columns + 1, ZONE), np.uint8)

    @property
    def position(self) -> int:
        return int(self._state[POSITION])

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
        rows = int(self._state[ROWS])
        if rows:
            yield self._ids[:rows].copy(), self._words[:rows].copy()
        self._state[ROWS] = 0
        self._state[OPEN] = 0
        self._count()

    def _count(self) -> None:
        metrics, state = self._metrics, self._state
        metrics.merges += int(state[MERGES])
        metrics.zones += int(state[ZONES_READ])
        metrics.events += int(state[EVENTS_FOLDED])
        metrics.leaves += int(state[LEAVES_CUT])
        state[MERGES] = state[ZONES_READ] = 0
        state[EVENTS_FOLDED] = state[LEAVES_CUT] = 0

    def _flush(self) -> Iterator[SliceChunk]:
        """Output all but the last slice, which may continue."""
        rows = int(self._state[ROWS])
        if rows > 1:
            yield self._ids[: rows - 1].copy(), self._words[: rows - 1].copy()
            self._ids[0] = self._ids[rows - 1]
            self._words[0] = self._words[rows - 1]
            self._state[ROWS] = 1

    def _descend(
        self, file: SegmentFile, own: SchemaFields, level: int, table: Words
    ) -> Iterator[SliceChunk]:
        self._check()
        if level == 1:
            yield from self._leaves(file, own, table)
            return
        child = 0
        while True:
            child = sweep_nodes(
                table, child, self._start, self._last, self._slicing, own.fields, self._ids,
                self._words, self._state,
            )  # fmt: skip
            if child < 0:
                yield from self._flush()
                child = int(self._state[CHILD])
                continue
            if child == table.shape[1]:
                return
            self._metrics.nodes += 1
            below = file.node(int(table[ROW_OFFSET, child]), int(table[ROW_LENGTH, child]))
            yield from self._descend(file, own, level - 1, frozen(below))
            child += 1

    def _leaves(self, file: SegmentFile, own: SchemaFields, table: Words) -> Iterator[SliceChunk]:
        ready = self._mapped.marks(int(table[ROW_OFFSET, 0]), own.names)
        verified = ready
        words = _NOTHING
        child = 0
        while True:
            reason = sweep_leaves(
                self._mapped.words, self._mapped.narrow, table, child, ready, words, self._start,
                self._last, self._slicing, own.fields, own.columns, own.time_position, self._ids,
                self._words, self._state, self._scratch, self._valid, EVENTS_AT_ONCE,
            )  # fmt: skip
            if reason == 0:
                return
            child = int(self._state[CHILD])
            if reason == 3:
                self._check()
                continue
            if reason == 2:
                self._check()
                yield from self._flush()
                self._grow(int(table[ROW_COUNT, child]))
                continue
            ready, words = verified, _NOTHING
            place = int(table[ROW_OFFSET, child]), int(table[ROW_LENGTH, child])
            if file.moved and not file.knows(place[0]):
                file.fetch((place,))  # the whole leaf, with read-ahead
            leaf = file.leaf(*place)
            if verified[child] == _UNKNOWN:
                verified[child] = _verify(leaf, own)
            if verified[child] == _COMPRESSED:
                self._check()
                ready = verified.copy()
                ready[child] = _READY
                words = self._decompressed(leaf, own)

    def _grow(self, events: int) -> None:
        if events + 3 > self._ids.size:
            ids = np.empty(events + SLICES_AT_ONCE, np.int64)
            words = np.empty((ids.size, self._plan.width), np.int64)
            ids[0], words[0] = self._ids[0], self._words[0]
            self._ids, self._words = ids, words

    def _decompressed(self, leaf: LeafReader, own: SchemaFields) -> Words:
        """Values of a leaf's compressed columns in the zones that the sweep reads."""
        marks = cut_zones(
            self._mapped.words, leaf.offset, self._start, self._last, self._slicing, self.position
        )
        per_page = PAGE_EVENTS // ZONE
        pages = distinct(np.flatnonzero(marks) // per_page)
        words = np.empty((len(own.names) + 1, leaf.events), np.int64)
        for first_page, end_page in _runs(pages):
            first = first_page * PAGE_EVENTS
            end = min(end_page * PAGE_EVENTS, leaf.events)
            if leaf.chunk_entry(leaf.schema.time).codec is not Codec.NONE:
                words[-1, first:end] = leaf.ticks(first, end)
            for row, name in enumerate(own.names):
                if leaf.chunk_entry(name).codec is Codec.NONE or own.columns[row, 1] == 11:
                    continue
                array = leaf.column(name, first, end)
                words[row, first:end] = words_of(
                    ColumnView(leaf.schema.attribute(name), array), array
                )
        return frozen(words)


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


# words of the state that a sweep carries from call to call
ROWS = 0  # partials begun; the last one is still open
OPEN = 1  # 0 no slice is open, 1 one is, 2 the open slice is a gap
BOUND = 2  # last tick or position of the open slice
POSITION = 3  # events passed
CHILD = 4  # child at which to continue
MERGES = 5  # children and zones absorbed whole
ZONES_READ = 6  # zones whose events were read
EVENTS_FOLDED = 7
LEAVES_CUT = 8
STATE_WORDS = 9


@kernel
def _absorb_range(fields, ints, floats, i, table, table_floats, base, width, first, end):  # type: ignore[no-untyped-def]
    """Merge children [first, end) into partial i; row r of the table is at ``base + r * width``."""
    for f in range(fields.shape[0]):
        row = fields[f, 2]
        if row < 0:
            continue
        op = fields[f, 0]
        at = fields[f, 1]
        word = base + row * width
        guard = base + fields[f, 3] * width
        if op == 0:
            count = np.int64(0)
            for child in range(first, end):
                count += table[word + child]
            ints[i, at] += count
        elif op == 8:
            total = floats[i, at]
            error = floats[i, at + 1]
            for child in range(first, end):
                total, rest = two_sum(total, table_floats[word + child])
                error += rest + table_floats[word + width + child]
            floats[i, at], floats[i, at + 1] = settled(total, error)
        else:
            second = width if op == 7 else 0
            for child in range(first, end):
                if table[guard + child] != 0:
                    here = word + child
                    absorb(
                        op, ints, floats, i, at, table[here], table[here + second],
                        table_floats[here], 0.0,
                    )  # fmt: skip


@kernel
def _enter(value, slicing, ids, words, fields, state):  # type: ignore[no-untyped-def]
    """Open the slice of a tick or position, or continue the last one."""
    number, last, gap = open_slice(value, slicing)
    state[2] = last
    if gap:
        state[1] = 2
        return
    state[1] = 1
    row = state[0]
    if row > 0 and ids[row - 1] == number:
        return
    ids[row] = number
    fill_identity(words, row, row + 1, fields)
    state[0] = row + 1


@kernel
def _absorb_whole(  # type: ignore[no-untyped-def]
    table, table_floats, base, children, child, last, by_position, fields, words, floats, state
):
    """Merge children from ``child`` (which fits) on that fit; returns the next."""
    counts = base + 2 * children
    lasts = base + 4 * children
    first = child
    position = state[3]
    bound = state[2]
    while child < children:
        count = table[counts + child]
        if by_position:
            if position + count - 1 > bound or table[lasts + child] > last:
                break
        elif table[lasts + child] > bound or table[lasts + child] > last:
            break
        position += count
        child += 1
    if state[1] == 1:
        _absorb_range(
            fields, words, floats, state[0] - 1, table, table_floats, base, children, first, child
        )
    state[3] = position
    state[5] += child - first
    return child


@kernel
def _next_cut(  # type: ignore[no-untyped-def]
    table, table_floats, base, children, child, start, last, slicing, fields, ids, words, floats,
    state,
):  # fmt: skip
    """Absorb children from left to right, up to one that a boundary cuts.  Returns this one, the
    number of children at the end, or -1 when ``ids`` is full (``state[CHILD]``).
    """
    by_position = slicing[0] == 1
    while child < children:
        first_tick = table[base + 3 * children + child]
        last_tick = table[base + 4 * children + child]
        if last_tick < start:
            child += 1
            continue
        if first_tick > last:
            return children
        if first_tick < start or last_tick > last:
            return child
        low = state[3] if by_position else first_tick
        high = low + table[base + 2 * children + child] - 1 if by_position else last_tick
        if state[1] == 0 or low > state[2]:
            if state[0] >= ids.size:
                state[4] = child
                return np.int64(-1)
            _enter(low, slicing, ids, words, fields, state)
        if high > state[2]:
            return child
        child = _absorb_whole(
            table, table_floats, base, children, child, last, by_position, fields, words, floats,
            state,
        )  # fmt: skip
    return children


@kernel
def sweep_nodes(table, first_child, start, last, slicing, fields, ids, words, state):  # type: ignore[no-untyped-def]
    """The child of a node into which to descend; as ``_next_cut``."""
    flat = table.reshape(table.size)
    return _next_cut(
        flat, flat.view(np.float64), np.int64(0), np.int64(table.shape[1]), first_child, start,
        last, slicing, fields, ids, words, words.view(np.float64), state,
    )  # fmt: skip


@kernel
def cut_leaves(table, first_child, start, last, slicing, position):  # type: ignore[no-untyped-def]
    """Mark children, from ``first_child`` on, whose events a sweep may have to read."""
    children = table.shape[1]
    marks = np.zeros(children, np.uint8)
    bound = np.int64(0)
    is_open = False
    for child in range(first_child, children):
        if table[4, child] < start:
            continue
        if table[3, child] > last:
            break
        if table[3, child] < start or table[4, child] > last:
            marks[child] = 1
            is_open = False
            if slicing[0] == 1:  # the number of its events in the bounds is unknown
                marks[child:] = 1
                break
            continue
        low = position if slicing[0] == 1 else table[3, child]
        high = low + table[2, child] - 1 if slicing[0] == 1 else table[4, child]
        if not is_open or low > bound:
            _, bound, _ = open_slice(low, slicing)
            is_open = True
        if high > bound:
            marks[child] = 1
            is_open = False
        position += table[2, child]
    return marks


@kernel
def _unpack_zone(data, at, events, zone, delta, out):  # type: ignore[no-untyped-def]
    """Decode one zone of a bit-packed chunk that begins at word ``at``."""
    zones = (events + 511) // 512
    packed = at + 4 * zones + 1 + data[at + 2 * zones + zone]
    unpack_zone(
        data, packed, data[at + zone], data[at + zones + zone], data[at + 3 * zones + 1 + zone],
        delta, out[: min(512, events - zone * 512)],
    )  # fmt: skip


@kernel
def _load_plain(data, narrow, at, load, first, count, out, row):  # type: ignore[no-untyped-def]
    """Copy values from byte ``at``, widened; ``narrow``: int32, float32, int16, uint8 views."""
    i32, f32, i16, u8 = narrow
    floats = out.view(np.float64)
    if load == 0 or load == 4 or load == 8:
        base = (at >> 3) + first
        for i in range(count):  # Numba compiles a slice assignment for seconds
            out[row, i] = data[base + i]
    elif load == 9:
        base = (at >> 2) + first
        for i in range(count):
            floats[row, i] = f32[base + i]
    elif load == 1 or load == 5:
        base = (at >> 2) + first
        for i in range(count):
            value = np.int64(i32[base + i])
            out[row, i] = value & np.int64(0xFFFFFFFF) if load == 5 else value
    elif load == 2 or load == 6:
        base = (at >> 1) + first
        for i in range(count):
            value = np.int64(i16[base + i])
            out[row, i] = value & np.int64(0xFFFF) if load == 6 else value
    elif load == 3 or load == 7:
        for i in range(count):
            value = np.int64(u8[at + first + i])
            out[row, i] = value - 256 if load == 3 and value > 127 else value
    elif load == 10:
        for i in range(count):
            bit = first + i
            out[row, i] = (u8[at + (bit >> 3)] >> (bit & 7)) & 1


@kernel
def _load_zone(data, narrow, leaf, events, zone, position, load, given, given_row, out, valid, row):  # type: ignore[no-untyped-def]
    """Load one zone of a column into ``out`` and ``valid``; returns whether it has nulls."""
    entry = (leaf >> 3) + 10 + 5 * position
    first = zone * 512
    count = min(512, events - first)
    head = data[entry]
    encoding = head & 255
    codec = (head >> 8) & 255
    nulls = head >> 32
    at = leaf + data[entry + 1]
    nullable = nulls > 0
    u8 = narrow[3]
    if nullable:
        for i in range(count):
            bit = first + i
            valid[row, i] = (u8[at + (bit >> 3)] >> (bit & 7)) & 1
        at += (((events + 7) >> 3) + 63) & -64
    if load == 11:
        return nullable
    if encoding == 1 or encoding == 2:
        _unpack_zone(data, at >> 3, events, zone, encoding == 1, out[row])
    elif encoding == 6:
        decode_zones(
            data, at >> 3, data[entry + 4] & 0xFFFFFFFF, events, zone, True, out[row, :count]
        )
    elif codec != 0:
        for i in range(count):
            out[row, i] = given[given_row, first + i]
    else:
        _load_plain(data, narrow, at, load, first, count, out, row)
    return nullable


@kernel
def cut_zones(data, leaf, start, last, slicing, position):  # type: ignore[no-untyped-def]
    """Mark the zones of the leaf at byte ``leaf`` whose events a sweep has to read."""
    base = (leaf >> 3) + 8
    events = data[base] & np.int64(0xFFFFFFFF)
    columns = data[base + 1] >> 32
    zones = (events + 511) // 512
    rows = data[base + 2 + 5 * columns : base + 2 + 5 * columns + 5 * zones]
    return cut_leaves(rows.reshape((5, zones)), 0, start, last, slicing, position)


@kernel
def _run_end(ticks, first, end, bound):  # type: ignore[no-untyped-def]
    """First of the ascending ticks in (first, end) that exceeds ``bound``, by galloping search."""
    low = first
    step = 1
    while low + step < end and ticks[low + step] <= bound:
        low += step
        step *= 2
    high = min(low + step, end)
    # ticks[low] is within the bound, ticks[high] is not or does not exist
    while high - low > 1:
        middle = (low + high) >> 1
        if ticks[middle] <= bound:
            low = middle
        else:
            high = middle
    return high


@kernel
def sweep_leaves(  # type: ignore[no-untyped-def]
    data, narrow, table, first_child, ready, given, start, last, slicing, fields, columns,
    time_position, ids, words, state, scratch, valid, events_max,
):  # fmt: skip
    """Sweep leaves from left to right: whole leaves, whole zones, events.
    ``narrow``: views of ``data``.  ``ready``: 1 for leaves that are verified and uncompressed, or
    decompressed in ``given`` (last row: ticks); the sweep stops at others.  ``ids``, ``words``:
    more than the events of any leaf.  Returns 0 at the end; 1 when leaf ``state[CHILD]`` is not
    ready; 2 when ``ids`` may not hold the next leaf's slices; 3 after ``events_max`` events.
    """
    leaves = np.int64(table.shape[1])
    flat = table.reshape(table.size)
    flat_floats = flat.view(np.float64)
    data_floats = data.view(np.float64)
    floats = words.view(np.float64)
    values_float = scratch.view(np.float64)
    by_position = slicing[0] == 1
    kinds = columns.shape[0]
    with_time = False
    for f in range(fields.shape[0]):
        with_time = with_time or fields[f, 4] == -2
    nullable = np.zeros(kinds + 1, np.uint8)
    enough = state[7] + events_max
    child = np.int64(first_child)
    while child < leaves:
        if state[7] >= enough:
            state[4] = child
            return 3
        child = _next_cut(
            flat, flat_floats, np.int64(0), leaves, child, start, last, slicing, fields, ids, words,
            floats, state,
        )  # fmt: skip
        if child == leaves:
            break
        if child < 0:
            return 2
        if state[0] + table[2, child] + 2 > ids.size:
            state[4] = child
            return 2
        if ready[child] != 1:
            state[4] = child
            return 1
        # the leaf is cut: go through its zones
        state[8] += 1
        leaf = table[0, child]
        head = (leaf >> 3) + 8
        events = data[head] & np.int64(0xFFFFFFFF)
        zones = (events + 511) // 512
        zone_table = head + 2 + 5 * (data[head + 1] >> 32)
        zone = np.int64(0)
        while True:
            zone = _next_cut(
                data, data_floats, zone_table, zones, zone, start, last, slicing, fields, ids,
                words, floats, state,
            )  # fmt: skip
            if zone == zones:
                break
            zone_first = data[zone_table + 3 * zones + zone]
            zone_last = data[zone_table + 4 * zones + zone]
            count = data[zone_table + 2 * zones + zone]
            zone_inside = zone_first >= start and zone_last <= last
            # the zone is cut: go through its events
            state[6] += 1
            first = 0
            end = count
            if not by_position or not zone_inside or with_time:
                _load_zone(
                    data, narrow, leaf, events, zone, time_position, 0, given, kinds, scratch,
                    valid, kinds,
                )  # fmt: skip
                if not zone_inside:
                    while first < end and scratch[kinds, first] < start:
                        first += 1
                    while end > first and scratch[kinds, end - 1] > last:
                        end -= 1
            for c in range(kinds):
                nullable[c] = _load_zone(
                    data, narrow, leaf, events, zone, columns[c, 0], columns[c, 1], given, c,
                    scratch, valid, c,
                )  # fmt: skip
            state[7] += end - first
            while first < end:
                value = state[3] if by_position else scratch[kinds, first]
                if state[1] == 0 or value > state[2]:
                    _enter(value, slicing, ids, words, fields, state)
                if by_position:
                    distance = state[2] - value
                    stop = end if distance >= end - first else first + distance + 1
                elif scratch[kinds, end - 1] <= state[2]:
                    stop = end
                else:
                    stop = _run_end(scratch[kinds], first, end, state[2])
                state[3] += stop - first
                if state[1] == 1:
                    row = state[0] - 1
                    for f in range(fields.shape[0]):
                        op = fields[f, 0]
                        at = fields[f, 1]
                        column = fields[f, 4]
                        if column == -1:
                            words[row, at] += stop - first
                        elif column == -2:
                            tick = scratch[kinds, first] if op == 1 else scratch[kinds, stop - 1]
                            absorb(op, words, floats, row, at, tick, 0, 0.0, 0.0)
                        elif column == -3:
                            continue
                        elif op == 8 or op == 5 or op == 6:
                            fold_floats(
                                op, values_float[column], valid[column], nullable[column] != 0,
                                first, stop, words, floats, row, at,
                            )  # fmt: skip
                        else:
                            fold_integers(
                                op, scratch[column], valid[column], nullable[column] != 0, first,
                                stop, words, floats, row, at, fields[f, 5] != 0,
                            )  # fmt: skip
                first = stop
            zone += 1
        child += 1
    state[4] = leaves
    return 0


# the sweep relies on these
assert layout.BLOCK_FRAME.size == 64
assert layout.LEAF_HEADER.size == 16
assert layout.CHUNK_ENTRY.size == 40
assert layout.ZONE_EVENTS == 512
assert layout.ROW_COUNT == 2
assert layout.ROW_FIRST == 3
assert layout.ROW_LAST == 4
assert [layout.Encoding(each).name for each in (0, 1, 2, 6)] == [
    "PLAIN",
    "DELTA",
    "PACKED",
    "SCALED",
]
