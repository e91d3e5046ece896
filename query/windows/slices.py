"""Partials of slices from events (replay), and merging of sources.  A *chunk* is slice numbers
int64[n], ascending, and partials int64[n, words].  A source iterates over ascending chunks, where
the first number may repeat the last one of the chunk before.

Windows from slices, key by key: each slice enters once and leaves once (thesis 3.3.1).  Nothing
is subtracted.  Amortised cost: two merges per window and two per slice; empty windows cost nothing.
Memory: the non-empty slices and keys of one window, at most ``BUFFER_BYTES_MAX``.  Without keys,
all slices have the key 0.

The kernel joins slices to windows with two stacks per key, in nodes of a shared pool.  The front
stack holds suffix aggregates, the other plain slices whose total is ``back``; a window is the first
suffix merged with ``back``.  When the front is empty, the rest is turned into suffixes::

    key a   [suffix]-[suffix] | [slice]-[slice]-[slice]     back = total of the slices
    key b                     | [slice]                     back = that slice
    key c   (no node: not active)

A node has its slice number, its partial and its neighbours.  ``links`` has per key the first node,
the first that is not a suffix, and the last; -1 for none.  Slice numbers are halved and compared,
never doubled or added to, so no 64-bit number overflows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...errors import ResourceLimit
from ...schema import Storage
from ...store.columns import ColumnView
from ...store.tail import ticks_of_column
from . import kernels as k
from .fields import FieldPlan
from .kernels import absorb_row, fill_identity
from .spec import TICK_MIN, CountWindows, TimeWindows

Words = npt.NDArray[np.int64]
SliceChunk = tuple[Words, Words]
Kind = TypeVar("Kind", bound=np.generic)

EVENTS_AT_ONCE = 1 << 19
"""Events that kernels fold between two cancellation checks."""


@dataclass
class WindowMetrics:
    """``merges``: whole nodes, leaves and zones; ``zones``, ``events``: read one by one."""

    nodes: int = 0
    leaves: int = 0
    zones: int = 0
    merges: int = 0
    events: int = 0
    slices: int = 0
    windows: int = 0

    def add(self, other: WindowMetrics) -> None:
        for item in dataclasses.fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


def in_pieces(
    batches: Iterable[pa.RecordBatch], check: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    """Batches of at most ``EVENTS_AT_ONCE`` rows; calls ``check`` before each."""
    for batch in batches:
        for first in range(0, batch.num_rows, EVENTS_AT_ONCE):
            check()
            yield batch.slice(first, EVENTS_AT_ONCE)


def frozen(array: npt.NDArray[Kind]) -> npt.NDArray[Kind]:
    """A read-only view: kernels are compiled for read-only inputs."""
    view = array.view()
    view.flags.writeable = False
    return view


def words_of(view: ColumnView, array: pa.Array) -> Words:
    storage = view.attribute.storage
    if storage is Storage.FLOAT:
        return frozen(view.values.astype(np.float64, copy=False).view(np.int64))
    if storage in (Storage.SIGNED, Storage.UNSIGNED):
        if view.values.dtype == np.uint64:
            return frozen(view.values.view(np.int64))
        return frozen(view.values.astype(np.int64, copy=False))
    if storage is Storage.BOOL:
        return frozen(array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
    return frozen(np.zeros(len(array), np.int64))  # only validity is used


class BatchColumns:
    def __init__(self, batch: pa.RecordBatch, plan: FieldPlan) -> None:
        self._batch = batch
        self._plan = plan
        self._known: dict[tuple[str, bool], tuple[Words, npt.NDArray[np.uint8], int]] = {}

    def of(self, column: int, op: int) -> tuple[Words, npt.NDArray[np.uint8], int]:
        """Words, validity bitmap and bitmap offset of the column that a field folds."""
        name = self._plan.own.names[column]
        attribute = self._plan.schema.attribute(name)
        doubled = op == k.MOMENTS and attribute.storage is not Storage.FLOAT
        words_of_column = self._known.get((name, doubled))
        if words_of_column is None:
            array = self._batch.column(self._batch.schema.get_field_index(name))
            view = ColumnView(attribute, array)
            if doubled:  # moments use doubles
                words = frozen(view.values.astype(np.float64).view(np.int64))
            else:
                words = words_of(view, array)
            words_of_column = self._known[name, doubled] = words, view.validity, array.offset
        return words_of_column


def fold_batch(
    batch: pa.RecordBatch, ticks: Words, starts: Words, runs: int, plan: FieldPlan
) -> Words:
    """Partials of runs of events of a batch; run i is rows [starts[i], starts[i + 1])."""
    words = np.empty((runs, plan.width), np.int64)
    k.fill_identity(words, 0, runs, plan.own.fields)
    columns = BatchColumns(batch, plan)
    for op, at, _, _, column, unsigned in plan.own.fields.tolist():
        if column == k.EVENTS:
            words[:, at] = np.diff(starts[: runs + 1])
        elif column == k.TIME:
            first = op == k.MIN_SIGNED
            words[:, at] = ticks[starts[:runs]] if first else ticks[starts[1 : runs + 1] - 1]
        else:
            values, validity, offset = columns.of(column, op)
            k.fold_runs(values, validity, offset, starts, runs, op, bool(unsigned), words, at)
    return words


def replay_slices(
    batches: Iterable[pa.RecordBatch],
    plan: FieldPlan,
    slicing: Words,
    metrics: WindowMetrics,
    position: int = 0,
) -> Iterator[SliceChunk]:
    """Fold batches in time order into slices; ``position``: of the first event."""
    time = plan.schema.time
    gaps = bool(slicing[4])
    for batch in batches:
        count = batch.num_rows
        if not count:
            continue
        ticks = ticks_of_column(batch.column(batch.schema.get_field_index(time)))
        ids = np.empty(count + 1, np.int64)
        starts = np.empty(count + 1, np.int64)
        runs = k.slice_runs(ticks, slicing, position, ids, starts)
        position += count
        metrics.events += count
        words = fold_batch(batch, ticks, starts, runs, plan)
        ids = ids[:runs]
        if gaps:
            inside = ids != -1
            ids, words = ids[inside], words[inside]
        if ids.size:
            yield ids, words


# ------------------------------------------------------------------------------- merging


class _SliceSource:
    def __init__(self, chunks: Iterator[SliceChunk], fields: Words) -> None:
        self._chunks = chunks
        self._fields = fields
        self.ids = np.empty(0, np.int64)
        self.words = np.empty((0, 0), np.int64)
        self.done = False

    def fill(self) -> None:
        while not self.ids.size and not self.done:
            self._next()

    def extend(self) -> None:
        ids, words = self.ids, self.words
        self._next()
        if self.ids is not ids:
            self.ids, self.words = _joined([(ids, words), (self.ids, self.words)], self._fields)

    def _next(self) -> None:
        chunk = next(self._chunks, None)
        if chunk is None:
            self.done = True
        else:
            self.ids, self.words = chunk

    def take(self, rows: int) -> SliceChunk:
        head = self.ids[:rows], self.words[:rows]
        self.ids, self.words = self.ids[rows:], self.words[rows:]
        return head


def _joined(chunks: Sequence[SliceChunk], fields: Words) -> SliceChunk:
    """Merge chunks to one; equal numbers are merged in chunk order."""
    ids = np.concatenate([ids for ids, _ in chunks])
    words = np.concatenate([words for _, words in chunks])
    order = np.argsort(ids, kind="stable")
    out_ids = np.empty_like(ids)
    out_words = np.empty_like(words)
    count = k.merge_equal(ids, words, order, fields, out_ids, out_words)
    return out_ids[:count], out_words[:count]


def merge_slices(
    sources: Sequence[Iterator[SliceChunk]], plan: FieldPlan, check: Callable[[], None]
) -> Iterator[SliceChunk]:
    """Merge sources of slices; the result has every number once, ascending."""
    fields = plan.own.fields
    active = [_SliceSource(source, fields) for source in sources]
    while True:
        check()
        for source in active:
            source.fill()
        active = [source for source in active if source.ids.size]
        if not active:
            return
        running = [source for source in active if not source.done]
        if not running:
            if len(active) == 1:
                yield active[0].take(active[0].ids.size)
            else:
                yield _joined([source.take(source.ids.size) for source in active], fields)
            continue
        # a source that has not ended may continue its last slice
        bound = min(int(source.ids[-1]) for source in running)
        pieces = []
        for source in active:
            rows = int(np.searchsorted(source.ids, bound, "left"))
            if rows:
                pieces.append(source.take(rows))
        if pieces:
            yield pieces[0] if len(pieces) == 1 else _joined(pieces, fields)
        for source in running:
            if int(source.ids[-1]) == bound:
                source.extend()


_SIGNED_MAX = np.int64(9223372036854775807)
_SIGNED_MIN = np.int64(-9223372036854775807 - 1)


@kernel
def slide_of(number, pairing):  # type: ignore[no-untyped-def]
    """The slide of a slice: the last window that begins at or before it."""
    if pairing == 0:
        return number
    if pairing == 2 and number & 1 == 0:
        return (number >> 1) - 1
    return number >> 1


@kernel
def _slides_before(number, pairing):  # type: ignore[no-untyped-def]
    """Number of slides that begin before a slice, counted from slide 0."""
    if pairing == 1:
        return (number >> 1) + (number & 1)
    if pairing == 2:
        return number >> 1
    return number


@kernel
def window_ended(window, number, pairing, overlap):  # type: ignore[no-untyped-def]
    """Whether a window's last slice lies before a slice."""
    before = _slides_before(number, pairing)
    if before <= window:
        return False
    distance = np.uint64(before) - np.uint64(window)
    if pairing == 0:
        return distance >= np.uint64(overlap)
    return distance > np.uint64(overlap)


@kernel
def first_window(number, pairing, overlap):  # type: ignore[no-untyped-def]
    """First window that does not end before a slice."""
    if pairing != 0:
        return _slides_before(number, pairing) - overlap
    if number < _SIGNED_MIN + (overlap - 1):
        return _SIGNED_MIN
    return number - (overlap - 1)


@kernel
def slide_groups(  # type: ignore[no-untyped-def]
    ids, keys, words, first, finish, pairing, overlap, fields, nodes, pool, links, backs, active,
    state, steps, out, out_keys, out_words,
):  # fmt: skip
    """Join groups of slices (ascending, from ``first`` on) to groups of windows.  The first slice
    may be the last one of the previous call.  ``nodes``: slice, next and previous node.  ``backs``:
    totals of non-suffixes.  ``active``: keys with nodes.  ``state``: next window, number of active
    keys, index among these within the window, node reached while turning a key's slices (or -1),
    head of the free list (or -1).  ``steps``: approximate limit of merges.
    Returns consumed, written, reason: 0 all consumed, 1 output full, 2 pool full, 3 steps used up.
    """
    floats = words.view(np.float64)
    pool_floats = pool.view(np.float64)
    back_floats = backs.view(np.float64)
    out_floats = out_words.view(np.float64)
    width = words.shape[1]
    count = ids.size
    window = state[0]
    written = 0
    at = first
    reason = 0
    while reason == 0:
        arriving = at < count
        if not arriving and not finish:
            break
        # windows that end before the arriving slice are complete
        while state[1] > 0 and (not arriving or window_ended(window, ids[at], pairing, overlap)):
            while state[2] < state[1]:
                key = active[state[2]]
                node = links[key, 0]
                while node != -1 and slide_of(nodes[node, 0], pairing) < window:
                    if node == links[key, 1]:
                        later = links[key, 2] if state[3] == -1 else state[3]
                        while later != node and steps > 0:
                            earlier = nodes[later, 2]
                            absorb_row(fields, pool, pool_floats, earlier, pool, pool_floats, later)
                            later = earlier
                            steps -= 1
                        if later != node:
                            state[3] = later
                            reason = 3
                            break
                        state[3] = -1
                        links[key, 1] = -1
                        fill_identity(backs, key, key + 1, fields)
                    following = nodes[node, 1]
                    nodes[node, 1] = state[4]
                    state[4] = node
                    node = following
                links[key, 0] = node
                if reason != 0:
                    break
                if node == -1:
                    links[key, 2] = -1
                    state[1] -= 1
                    active[state[2]] = active[state[1]]
                    continue
                if written == out.size:
                    reason = 1
                    break
                if steps <= 0:
                    reason = 3
                    break
                out[written] = window
                out_keys[written] = key
                if node == links[key, 1]:
                    for w in range(width):
                        out_words[written, w] = backs[key, w]
                else:
                    for w in range(width):
                        out_words[written, w] = pool[node, w]
                    absorb_row(fields, out_words, out_floats, written, backs, back_floats, key)
                written += 1
                steps -= 1
                state[2] += 1
            if reason != 0:
                break
            state[2] = 0
            if window == _SIGNED_MAX:  # no window begins later
                state[1] = 0
                break
            window += 1
        if reason != 0 or not arriving:
            break
        if state[1] == 0:
            window = max(window, first_window(ids[at], pairing, overlap))
        if steps <= 0:
            reason = 3
            break
        key = keys[at]
        last = links[key, 2]
        if last != -1 and nodes[last, 0] == ids[at]:  # same slice as the last node
            absorb_row(fields, pool, pool_floats, last, words, floats, at)
        else:
            node = state[4]
            if node == -1:
                reason = 2
                break
            state[4] = nodes[node, 1]
            nodes[node, 0] = ids[at]
            nodes[node, 1] = -1
            nodes[node, 2] = last
            for w in range(width):
                pool[node, w] = words[at, w]
            if last != -1:
                nodes[last, 1] = node
            else:
                links[key, 0] = node
                active[state[1]] = key
                state[1] += 1
            if links[key, 1] == -1:
                links[key, 1] = node
            links[key, 2] = node
        absorb_row(fields, backs, back_floats, key, words, floats, at)
        at += 1
        steps -= 1
    state[0] = window
    return at, written, reason


WINDOWS_AT_ONCE = 1 << 16
STEPS_AT_ONCE = 1 << 19
"""Merges per kernel call, some tens of milliseconds, between cancellation checks."""

BUFFER_BYTES_MAX = 4 << 30
_FIRST_ROOM = 1 << 12

_ACTIVE, _FREE = 1, 4
"""Places in the state."""


class Slider:
    """Joins groups of slices to groups of windows."""

    def __init__(
        self, windows: TimeWindows | CountWindows, plan: FieldPlan, check: Callable[[], None]
    ) -> None:
        self._pairing = int(windows.pairing)
        self._overlap = windows.overlap
        self._fields = plan.own.fields
        self._width = plan.width
        self._check = check
        self._slices = windows.slices
        first = 0 if isinstance(windows, CountWindows) else TICK_MIN
        self._state = np.array([first, 0, 0, -1, -1], np.int64)
        self._nodes = np.empty((0, 3), np.int64)
        self._pool = np.empty((0, plan.width), np.int64)
        self._links = np.empty((0, 3), np.int64)
        self._backs = np.empty((0, plan.width), np.int64)
        self._active = np.empty(0, np.int64)

    @property
    def active(self) -> Words:
        """Codes of keys with events that windows still need."""
        return self._active[: int(self._state[_ACTIVE])]

    def renumber(self) -> None:
        active = self.active
        self._links = self._links[active]
        self._backs = self._backs[active]
        self._active = np.arange(len(active))

    def windows(self, chunks: Iterable[SliceChunk]) -> Iterator[SliceChunk]:
        """Windows of slices without keys."""
        if self._slices == 1:
            for ids, words in chunks:
                yield (ids >> 1 if self._pairing else ids), words
            return
        for ids, words in chunks:
            yield from self._without_keys(ids, words, False)
        yield from self._without_keys(np.empty(0, np.int64), np.empty((0, self._width), np.int64))

    def _without_keys(self, ids: Words, words: Words, finish: bool = True) -> Iterator[SliceChunk]:
        keys = np.zeros(len(ids), np.int64)
        for numbers, _, partials in self.slide(ids, keys, words, 1, finish):
            yield numbers, partials

    def slide(
        self, ids: Words, keys: Words, words: Words, known: int, finish: bool
    ) -> Iterator[tuple[Words, Words, Words]]:
        """Groups of slices in, (window numbers, keys, partials) out; ``known``: number of keys."""
        self._grow_keys(known)
        at = 0
        while True:
            self._check()
            out, out_keys = np.empty((2, WINDOWS_AT_ONCE), np.int64)
            out_words = np.empty((WINDOWS_AT_ONCE, self._width), np.int64)
            at, written, reason = slide_groups(
                frozen(ids), frozen(keys), frozen(words), at, finish, self._pairing,
                self._overlap, self._fields, self._nodes, self._pool, self._links, self._backs,
                self._active, self._state, STEPS_AT_ONCE, out, out_keys, out_words,
            )  # fmt: skip
            if written:
                yield out[:written], out_keys[:written], out_words[:written]
            if reason == 0:
                return
            if reason == 2:
                self._grow_nodes()

    def _grow_keys(self, known: int) -> None:
        had = len(self._links)
        if known <= had:
            return
        size = max(known, 2 * had)
        self._links = _longer(self._links, size)
        self._links[had:] = -1
        self._backs = _longer(self._backs, size)
        fill_identity(self._backs, had, size, self._fields)
        self._active = _longer(self._active, size)

    def _grow_nodes(self) -> None:
        """Double the pool; requires an empty free list."""
        had = len(self._nodes)
        size = max(_FIRST_ROOM, 2 * had)
        needed = size * (self._width + 3) * 8
        if needed > BUFFER_BYTES_MAX:
            raise ResourceLimit(
                f"windows span more than {had} slides with events, which takes {needed >> 20} MiB; "
                "choose a longer slide or a smaller size, or group by fewer keys"
            )
        self._nodes = _longer(self._nodes, size)
        self._pool = _longer(self._pool, size)
        self._nodes[had:, 1] = np.arange(had + 1, size + 1)
        self._nodes[-1, 1] = -1
        self._state[_FREE] = had


def _longer(array: Words, rows: int) -> Words:
    longer = np.empty((rows, *array.shape[1:]), np.int64)
    longer[: len(array)] = array
    return longer
