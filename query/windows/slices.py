"""Partials of slices from events (replay), and merging of sources.  A *chunk* is slice numbers
int64[n], ascending, and partials int64[n, words].  A source iterates over ascending chunks, where
the first number may repeat the last one of the chunk before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...schema import Storage
from ...store.columns import ColumnView
from . import kernels as k
from .fields import FieldPlan

Words = npt.NDArray[np.int64]
SliceChunk = tuple[Words, Words]

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


def frozen(array: npt.NDArray[np.int64]) -> Words:
    """A read-only view: kernels are compiled for read-only inputs."""
    view = array.view()
    view.flags.writeable = False
    return view


def ticks_of(array: pa.Array) -> Words:
    """Values of a time column as read-only int64 ticks, without a copy."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return frozen(np.empty(0, np.int64))
    return frozen(np.frombuffer(buffer, np.int64)[array.offset : array.offset + len(array)])


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
        found = self._known.get((name, doubled))
        if found is None:
            array = self._batch.column(self._batch.schema.get_field_index(name))
            view = ColumnView(attribute, array)
            if doubled:  # moments use doubles
                words = frozen(view.values.astype(np.float64).view(np.int64))
            else:
                words = words_of(view, array)
            found = self._known[name, doubled] = words, view.validity, array.offset
        return found


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
        ticks = ticks_of(batch.column(batch.schema.get_field_index(time)))
        ids = np.empty(count + 1, np.int64)
        starts = np.empty(count + 1, np.int64)
        runs = k.slice_runs(ticks, slicing, position, ids, starts)
        position += count
        metrics.events += count
        words = fold_batch(batch, ticks, starts, runs, plan)
        ids = ids[:runs]
        if gaps:
            kept = ids != -1
            ids, words = ids[kept], words[kept]
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
