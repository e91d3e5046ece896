"""Cost model for windowed aggregation: replay or index (thesis 3.3.2).

With ``S`` non-empty slices (evenly filled; at most one per event), ``W`` windows, ``N`` events,
``F`` attributes, ``Z`` zones per leaf and ``D`` children per node::

    replay   N * event + N * F * field + leaves * leaf_scan + all pages * page
             + S * slice_replayed + S * F * slice_field + W * window
    index    min(leaves, S * D) * child               children of the nodes that a boundary cuts
             + min(leaves, S) * (leaf + Z * child)    zones of the leaves that a boundary cuts
             + C * (zone + F * zone_field)            events of the C = min(zones, S) cut zones
             + C * (1 - C / zones) * seek             of which some are not adjacent
             + min(pages, S) * page                   where leaves are compressed
             + S * slice_swept + S * F * slice_field + W * window

Costs are linear in the constants, so they can be fitted.  The thesis multiplies the merges of one
slide; here leaves and zones are upper bounds, because slides smaller than a leaf share it.

``calibrate`` measures the constants on this machine, in a few seconds.  Constants are fitted by
least squares of relative errors to minima of thread CPU time.  A constant that the data does not
determine is the default times the machine's speed (median of measured over predicted), and none
deviates from that by more than ``STRAY_MAX``.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.caches import lazy
from ...schema import StreamSchema
from ...store import Store, StreamOptions
from ...store.files import ScratchFiles
from ...store.layout import (
    NODE_FANOUT,
    PAGE_EVENTS,
    ROW_COUNT,
    ROW_LENGTH,
    ROW_OFFSET,
    ZONE_EVENTS,
    Codec,
)
from ...store.segment import SegmentView
from ...store.snapshot import Snapshot
from ..contract.constants import ConstantsFile
from .aggregation import IndexAggregation, ReplayAggregation, SelectedRange
from .fields import Aggregate
from .spec import CountWindows, TimeWindows


@dataclass(frozen=True)
class Calibration:
    """Nanoseconds per operation; defaults of a small virtual machine.
    ``child``: skip or absorb a child or zone.  ``zone``: find slices in a zone.  ``seek``: jump to
    a zone.  ``page``: decompress a page of a column.  ``field``, ``zone_field``, ``slice_field``:
    fold one attribute of an event, zone, slice.
    """

    event: float = 1.6
    field: float = 2.4
    leaf_scan: float = 30_000.0
    child: float = 9.0
    leaf: float = 2_500.0
    zone: float = 400.0
    zone_field: float = 950.0
    seek: float = 500.0
    page: float = 4_000.0
    slice_replayed: float = 40.0
    slice_swept: float = 150.0
    slice_field: float = 165.0
    window: float = 170.0


@dataclass(frozen=True)
class Shape:
    events: float
    span: float
    leaves: float
    zones: float
    tail: float
    columns_compressed: float


@dataclass(frozen=True)
class Costs:
    """Estimates for one query in nanoseconds; ``columns``: number of aggregated attributes."""

    replay: float
    index: float
    slices: float
    shape: Shape
    windows: TimeWindows | CountWindows
    columns: int
    calibration: Calibration

    @lazy
    def break_even(self) -> float | None:
        """Slide from which on the index is cheaper, or None; only EXPLAIN needs it."""

        def costs(slide: float) -> tuple[float, float]:
            replay, index = terms(self.shape, self.windows, slide, self.columns)
            return priced(replay, self.calibration), priced(index, self.calibration)

        timed = isinstance(self.windows, TimeWindows)
        return _break_even(costs, self.shape.span if timed else self.shape.events)


def estimate(
    snapshot: Snapshot,
    windows: TimeWindows | CountWindows,
    selected: SelectedRange,
    names: tuple[str, ...],
    calibration: Calibration,
) -> Costs:
    shape = shape_of(snapshot, selected, names)
    replay, index = terms(shape, windows, float(windows.slide), len(names))
    return Costs(
        priced(replay, calibration), priced(index, calibration), replay["slice_replayed"], shape,
        windows, len(names), calibration,
    )  # fmt: skip


def priced(operations: Mapping[str, float], calibration: Calibration) -> float:
    return sum(count * float(getattr(calibration, name)) for name, count in operations.items())


def terms(
    shape: Shape, windows: TimeWindows | CountWindows, slide: float, columns: int
) -> tuple[dict[str, float], dict[str, float]]:
    span = shape.span if isinstance(windows, TimeWindows) else shape.events
    per_slide = 2 if windows.cut and slide == windows.slide else 1
    slices = min(span / max(slide, 1e-9) * per_slide + 1, max(shape.events, 1.0))
    steps = span / max(slide, 1e-9) + windows.size / max(slide, 1e-9)
    given = min(steps, slices * max(1.0, windows.size / max(slide, 1e-9)))
    pages = shape.events / PAGE_EVENTS
    per_leaf = shape.zones / shape.leaves if shape.leaves else 0.0
    cut = min(shape.leaves, slices)
    zones = min(shape.zones, slices)
    replay = {
        "event": shape.events,
        "field": shape.events * columns,
        "leaf_scan": shape.leaves,
        "page": pages * shape.columns_compressed,
        "slice_replayed": slices,
        "slice_field": slices * columns,
        "window": given,
    }
    index = {
        "event": shape.tail,
        "field": shape.tail * columns,
        "child": min(shape.leaves, slices * NODE_FANOUT) + cut * per_leaf,
        "leaf": cut,
        "zone": zones,
        "zone_field": zones * columns,
        "seek": zones * (1 - zones / shape.zones) if shape.zones else 0.0,
        "page": min(pages, slices) * shape.columns_compressed,
        "slice_swept": slices,
        "slice_field": slices * columns,
        "window": given,
    }
    return replay, index


def _break_even(costs: Callable[[float], tuple[float, float]], span: float) -> float | None:
    low, high = 1.0, max(span, 2.0)

    def cheaper(slide: float) -> bool:
        replay, index = costs(slide)
        return index < replay

    if cheaper(low) or not cheaper(high):
        return None
    for _ in range(48):
        middle = (low * high) ** 0.5
        if cheaper(middle):
            high = middle
        else:
            low = middle
    return high


def shape_of(snapshot: Snapshot, selected: SelectedRange, names: tuple[str, ...]) -> Shape:
    inside = snapshot.aggregate((), selected.start, selected.end)
    first, last = inside.first, inside.last
    if first is None or last is None:
        return Shape(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    state = snapshot.state
    leaves = stored = compressed = 0.0
    views = [v for v in (*state.segments, *state.runs) if v.events]
    for view in views:
        if view.last < first or view.first > last:
            continue
        covered = min(view.last, last) - max(view.first, first) + 1
        share = min(1.0, covered / (view.last - view.first + 1))
        per_leaf, packed = _leaf_shape(view, names)
        leaves += share * view.events / per_leaf
        stored += share * view.events
        compressed = max(compressed, packed)
    tail = max(0.0, inside.count - stored)
    return Shape(
        float(inside.count), float(last - first + 1), max(leaves, 1.0) if stored else 0.0,
        stored / ZONE_EVENTS, tail, compressed,
    )  # fmt: skip


def _leaf_shape(view: SegmentView, names: tuple[str, ...]) -> tuple[float, float]:
    level, table = view.fragments[0]
    while level > 1:
        table = view.file.node(int(table[ROW_OFFSET, 0]), int(table[ROW_LENGTH, 0]))
        level -= 1
    leaf = view.file.leaf(int(table[ROW_OFFSET, 0]), int(table[ROW_LENGTH, 0]))
    columns = [leaf.schema.time, *(name for name in names if name in leaf.schema)]
    packed = sum(leaf.chunk_entry(name).codec is not Codec.NONE for name in columns)
    return float(max(1, table[ROW_COUNT].mean())), float(packed)


# -------------------------------------------------------------------------- calibration

_FILE = ConstantsFile("calibration.json", Calibration)
load_calibration = _FILE.load
save_calibration = _FILE.save


EVENTS = 250_000
RUNS = 4
SLIDES = (50, 200, 1_000, 4_000, 7_000, 23_000, 110_000, 410_000)
"""Ticks, ten per event; none is a multiple of a zone, whose boundaries would not cut zones."""

FIXED_NS = 1e5

PULL = 0.2
STRAY_MAX = 3.0
LEAF_BYTES = 1 << 17


@dataclass(frozen=True)
class Calibrated:
    """Fitted constants; ``error``: mean relative error of the fit."""

    calibration: Calibration
    error: float
    measurements: int


@dataclass(frozen=True)
class _Measurement:
    operations: dict[str, float]
    nanoseconds: float


def calibrate(events: int = EVENTS, check: Callable[[], None] = lambda: None) -> Calibrated:
    measured: list[_Measurement] = []
    for codec, round_values in (("none", False), ("lz4", True)):
        with Store.open("calibration", "rw", files=ScratchFiles()) as store:
            snapshot = _stream(store, codec, round_values, events)
            measured += _measure(snapshot, events, check)
    return _fitted(measured)


def _stream(store: Store, codec: str, round_values: bool, events: int) -> Snapshot:
    schema = StreamSchema(
        pa.schema([("t", pa.int64()), ("x", pa.float64()), ("y", pa.float64())]), "t"
    )
    options = StreamOptions(codec=codec, leaf_bytes=LEAF_BYTES)
    stream = store.create_stream("calibration", schema, options)
    rng = np.random.default_rng(1)
    for first in range(0, events, 50_000):
        count = min(50_000, events - first)
        values = rng.normal(size=(2, count))
        if round_values:  # so that they compress
            values = np.round(values * 8)
        arrays = [pa.array(np.arange(first, first + count) * 10), *map(pa.array, values)]
        stream.append(pa.record_batch(arrays, schema=schema.arrow))
    stream.seal()
    return stream.snapshot()


def _measure(snapshot: Snapshot, events: int, check: Callable[[], None]) -> list[_Measurement]:
    span = events * 10
    tumbling = [(slide, slide) for slide in (*SLIDES, span)]
    overlapping = [(slide, 1_000 * slide) for slide in SLIDES[:3]]
    measured = []
    for names in ((), ("x",), ("x", "y")):
        shape = shape_of(snapshot, SelectedRange(), names)
        for slide, size in (*tumbling, *(overlapping if len(names) == 1 else ())):
            windows = TimeWindows(size, slide)
            for indexed, operations in enumerate(terms(shape, windows, float(slide), len(names))):
                check()
                spent = _fastest(partial(_run, snapshot, windows, names, bool(indexed)))
                # a tumbling window is a single slice
                put_together = operations["window"] if size > slide else 0.0
                measured.append(_Measurement({**operations, "window": put_together}, spent))
    return measured


def _run(snapshot: Snapshot, windows: TimeWindows, names: tuple[str, ...], indexed: bool) -> int:
    aggregates = [Aggregate("count"), *(Aggregate("sum", name) for name in names)]
    made: IndexAggregation | ReplayAggregation
    if indexed:
        made = IndexAggregation(snapshot, windows, aggregates, SelectedRange())
    else:
        made = ReplayAggregation.of(snapshot, windows, aggregates, SelectedRange())
    return sum(batch.num_rows for batch in made.batches())


def _fastest(run: Callable[[], int]) -> float:
    run()
    times = []
    for _ in range(RUNS):
        begin = time.thread_time_ns()
        run()
        times.append(time.thread_time_ns() - begin)
    return float(max(1, min(times)))


def _fitted(measured: list[_Measurement]) -> Calibrated:
    defaults = Calibration()
    names = [item.name for item in dataclasses.fields(Calibration)]
    base = np.array([getattr(defaults, name) for name in names])
    matrix = np.array([[m.operations.get(name, 0.0) for name in names] for m in measured])
    times = np.array([m.nanoseconds for m in measured])
    speed = float(np.median(times / (matrix @ base + FIXED_NS)))
    # in units of the scaled defaults, plus a fixed cost per run
    rows = np.column_stack((matrix * base, np.full(len(times), FIXED_NS))) * speed / times[:, None]
    pull = np.eye(len(names) + 1) * PULL
    fit = _non_negative(np.vstack((rows, pull)), np.concatenate((np.ones(len(times)), pull.sum(0))))
    constants = np.clip(fit[:-1], 1 / STRAY_MAX, STRAY_MAX) * base * speed
    found = Calibration(**{name: float(v) for name, v in zip(names, constants, strict=True)})
    fixed = max(0.0, float(fit[-1])) * FIXED_NS * speed
    errors = [
        abs(priced(m.operations, found) + fixed - m.nanoseconds) / m.nanoseconds for m in measured
    ]
    return Calibrated(found, float(np.mean(errors)), len(measured))


def _non_negative(
    matrix: npt.NDArray[np.float64], target: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Least squares with non-negative unknowns (active set)."""
    free = np.ones(matrix.shape[1], bool)
    answer = np.zeros(matrix.shape[1])
    while free.any():
        part, *_ = np.linalg.lstsq(matrix[:, free], target, rcond=None)
        if (part >= 0).all():
            answer[free] = part
            return answer
        places = np.flatnonzero(free)
        free[places[part < 0]] = False
    return answer
