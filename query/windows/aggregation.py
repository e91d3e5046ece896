r"""Operators of windowed aggregation: replay (thesis 3.2) and a sweep of the TAB+-tree (3.3).

::

    time windows     base trees + tail  --sweep or replay-->  slices \
                     late run           --sweep-->            slices  > merge, slide, columns
                     late buffer        --replay-->           slices /
    count windows    late events shift positions: dirty ranges are replayed in merged order, the
                     ranges between them are swept
    sessions         replay only, because sessions depend on every event (``keyed``)

A tree with an earlier schema (``store.evolution``) is replayed.  Both operators give the same
results, except that float sums differ by the rounding of a pair of doubles, below the last place
unless values almost cancel.  Windows are ordered by start.

The cost model chooses (thesis 3.3.2).  With ``S`` non-empty slices (evenly filled; at most one per
event), ``W`` windows, ``N`` events and ``F`` attributes::

    replay   N * (EVENT + F * FIELD) + (S * F + W) * SLICE
    index    min(zones, S) * (ZONE + 512 * F * FIELD)     zones that a boundary cuts
             + (S * F + W + S) * SLICE

Only their ratios decide, so they are constants of a small machine, in nanoseconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...schema import StreamSchema
from ...store.layout import ZONE_EVENTS
from ...store.segment import Scan, SegmentView
from ...store.snapshot import Snapshot
from ...store.tail import MemoryLeaf
from .fields import Aggregate, FieldPlan, aggregate_column, key_column
from .slices import SliceChunk, Slider, WindowMetrics, in_pieces, merge_slices, replay_slices
from .spec import TICK_MAX, TICK_MIN, CountWindows, TimeWindows, Windows
from .sweep import Sweep

Words = npt.NDArray[np.int64]
Check = Callable[[], None]


@dataclass(frozen=True)
class SelectedRange:
    """Range of ticks to aggregate, both inclusive."""

    start: int = TICK_MIN
    last: int = TICK_MAX

    @property
    def end(self) -> int | None:
        return None if self.last == TICK_MAX else self.last + 1


def window_fields(schema: StreamSchema, windows: Windows) -> list[pa.Field]:
    time = schema.time_type
    fields = [pa.field("window_start", time, False), pa.field("window_end", time, False)]
    if isinstance(windows, CountWindows):
        fields.insert(0, pa.field("window_id", pa.int64(), False))
    return fields


def result_schema(plan: FieldPlan, windows: Windows, keys: Sequence[str]) -> pa.Schema:
    fields = window_fields(plan.schema, windows)
    fields += [
        pa.field(key_column(i), plan.schema.attribute(name).type) for i, name in enumerate(keys)
    ]
    fields += [
        pa.field(aggregate_column(i), plan.column_type(a)) for i, a in enumerate(plan.aggregates)
    ]
    return pa.schema(fields)


def times_array(ticks: Words, type_: pa.DataType) -> pa.Array:
    plain = pa.array(ticks, pa.int64())
    return plain if pa.types.is_int64(type_) else plain.view(type_)


W = TypeVar("W", bound=Windows)


class WindowAggregation(ABC, Generic[W]):
    """Windows with their aggregates; ``check`` may raise to cancel."""

    def __init__(
        self,
        schema: StreamSchema,
        windows: W,
        aggregates: Sequence[Aggregate],
        check: Check,
        keys: Sequence[str] = (),
    ) -> None:
        self._windows = windows
        self._check = check
        self._events = 0  # events so far; decides which count windows are complete
        span = isinstance(windows, CountWindows) and not keys  # others know their bounds
        self.plan = FieldPlan(schema, aggregates, span=span)
        self.metrics = WindowMetrics()
        self.schema = result_schema(self.plan, windows, keys)

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Windows ordered by start (sessions: by end); can be consumed once."""

    def _batch(
        self,
        start: Words,
        end: Words,
        words: Words,
        *,
        ids: Words | None = None,
        keys: Sequence[pa.Array] = (),
    ) -> pa.RecordBatch:
        self.metrics.windows += len(words)
        time = self.plan.schema.time_type
        arrays = [times_array(start, time), times_array(end, time), *keys]
        if ids is not None:
            arrays.insert(0, pa.array(ids))
        return pa.RecordBatch.from_arrays([*arrays, *self.plan.columns(words)], schema=self.schema)


class _Sliced(WindowAggregation[TimeWindows | CountWindows]):
    """Time or count windows from slices without keys; the origin must be resolved."""

    @abstractmethod
    def _sources(self) -> list[Iterator[SliceChunk]]:
        """Sources of slices."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        windows = self._windows
        for numbers, words in Slider(windows, self.plan, self._check).windows(self._merged()):
            if isinstance(windows, TimeWindows):
                yield self._batch(*windows.bounds(numbers), words)
                continue
            count = int(np.searchsorted(numbers, windows.complete(self._events), "left"))
            if count:
                yield self._batch(
                    *self.plan.span(words[:count]), words[:count], ids=numbers[:count]
                )

    def _merged(self) -> Iterator[SliceChunk]:
        for ids, words in merge_slices(self._sources(), self.plan, self._check):
            self.metrics.slices += len(ids)
            yield ids, words

    def _replayed(self, batches: Iterator[pa.RecordBatch], slicing: Words) -> Iterator[SliceChunk]:
        for batch in in_pieces(batches, self._check):
            at = self._events
            self._events += batch.num_rows
            yield from replay_slices([batch], self.plan, slicing, self.metrics, at)


class ReplayAggregation(_Sliced):
    def __init__(
        self,
        schema: StreamSchema,
        windows: TimeWindows | CountWindows,
        aggregates: Sequence[Aggregate],
        scan: Callable[[list[str]], Iterator[pa.RecordBatch]],
        check: Check = lambda: None,
    ) -> None:
        super().__init__(schema, windows, aggregates, check)
        self._scan = scan

    def _sources(self) -> list[Iterator[SliceChunk]]:
        events = self._scan([self.plan.schema.time, *self.plan.names])
        return [self._replayed(events, self._windows.kernel_form())]


class IndexAggregation(_Sliced):
    """Time and count windows from trees."""

    def __init__(
        self,
        snapshot: Snapshot,
        windows: TimeWindows | CountWindows,
        aggregates: Sequence[Aggregate],
        selected: SelectedRange,
        check: Check = lambda: None,
    ) -> None:
        super().__init__(snapshot.schema, windows, aggregates, check)
        self._snapshot = snapshot
        floor = snapshot.state.floor
        if floor is not None and floor > selected.start:  # trees may hold earlier events
            selected = replace(selected, start=floor)
        self._selected = selected

    def _sources(self) -> list[Iterator[SliceChunk]]:
        windows = self._windows
        slicing = windows.kernel_form()
        if isinstance(windows, CountWindows):
            return [self._counted(slicing)]
        state, selected = self._snapshot.state, self._selected
        sources = [self._in_order(slicing, selected.start, selected.last)]
        sources += [
            self._swept((view,), slicing, selected.start, selected.last) for view in state.runs
        ]
        sources += [
            self._replayed(self._of_memory(leaf, selected.start, selected.last), slicing)
            for leaf in state.late
        ]
        return sources

    def _in_order(self, slicing: Words, start: int, last: int) -> Iterator[SliceChunk]:
        state = self._snapshot.state
        yield from self._swept(state.segments, slicing, start, last)
        if state.tail is not None:
            yield from self._replayed(self._of_memory(state.tail(), start, last), slicing)

    def _swept(
        self, views: Sequence[SegmentView], slicing: Words, start: int, last: int
    ) -> Iterator[SliceChunk]:
        columns = [self.plan.schema.time, *self.plan.names]
        output = pa.schema([self.plan.schema.arrow.field(name) for name in columns])
        for plain, some in groupby(views, self._plain):
            if not plain:  # stored columns differ from the current schema
                for view in some:
                    if view.last >= start and view.first <= last:
                        events = view.scan(Scan(columns, output, start, last))
                        yield from self._replayed(events, slicing)
                continue
            sweep = Sweep(self.plan, slicing, start, last, self.metrics, self._check, self._events)
            for view in some:
                yield from sweep.run(view)
            self._events = sweep.position
            yield from sweep.finish()

    def _plain(self, view: SegmentView) -> bool:
        """Whether a tree can be swept: its stored columns have the current schema."""
        return view.file.as_written(self.plan.names)

    def _of_memory(self, leaf: MemoryLeaf, start: int, last: int) -> Iterator[pa.RecordBatch]:
        first, end = leaf.rows(start, last)
        yield leaf.batch.slice(first, end - first)

    def _counted(self, slicing: Words) -> Iterator[SliceChunk]:
        """Slices by position: dirty ranges are replayed, the others swept."""
        start, last = self._selected.start, self._selected.last
        columns = [self.plan.schema.time, *self.plan.names]
        for low, high in self._snapshot.dirty_ranges():
            if high < start or low > last:
                continue
            low, high = max(low, start), min(high, last)
            if low > start:
                yield from self._in_order(slicing, start, low - 1)
            end = None if high == TICK_MAX else high + 1
            dirty = self._snapshot.scan(low, end, columns, check=self._check)
            yield from self._replayed(dirty, slicing)
            if end is None:
                return
            start = end
        if start <= last:
            yield from self._in_order(slicing, start, last)


EVENT_NS = 5.0
FIELD_NS = 2.1
ZONE_NS = 500.0
SLICE_NS = 150.0


@dataclass(frozen=True)
class Costs:
    """Estimates for one query in nanoseconds."""

    replay: float
    index: float
    slices: float


def estimate(
    snapshot: Snapshot,
    windows: TimeWindows | CountWindows,
    selected: SelectedRange,
    names: tuple[str, ...],
) -> Costs:
    inside = snapshot.aggregate((), selected.start, selected.end)
    first, last = inside.first, inside.last
    events, span, stored = float(inside.count), 0.0, 0.0
    if first is not None and last is not None:
        span = float(last - first + 1)
        for view in (*snapshot.state.segments, *snapshot.state.runs):
            if not view.events or view.last < first or view.first > last:
                continue
            covered = min(view.last, last) - max(view.first, first) + 1
            stored += min(1.0, covered / (view.last - view.first + 1)) * view.events
    stored = min(stored, events)
    width = span if isinstance(windows, TimeWindows) else events
    slides = width / windows.slide
    slices = min(slides * (2 if windows.cut else 1) + 1, max(events, 1.0))
    overlap = windows.size / windows.slide
    results = min(slides + overlap, slices * max(1.0, overlap))
    event_ns = EVENT_NS + len(names) * FIELD_NS
    both = (events - stored) * event_ns + (slices * len(names) + results) * SLICE_NS
    replay = stored * event_ns
    cut = min(stored / ZONE_EVENTS, slices)
    index = cut * (ZONE_NS + ZONE_EVENTS * len(names) * FIELD_NS) + slices * SLICE_NS
    return Costs(both + replay, both + index, slices)
