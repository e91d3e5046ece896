"""Measures the constants of the cost model (``cost``) on this machine, in a few seconds.
Constants are fitted by least squares of relative errors to minima of thread CPU time.  A constant
that the data does not determine is the default times the machine's speed (median of measured over
predicted), and none deviates from that by more than ``STRAY_MAX``.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...schema import StreamSchema
from ...store import Store, StreamOptions
from ...store.memory_files import MemoryFiles
from ...store.snapshot import Snapshot
from .aggregation import IndexAggregation, ReplayAggregation, SelectedRange
from .cost import Calibration, priced, shape_of, terms
from .fields import Aggregate
from .spec import TimeWindows

__all__ = ["Calibrated", "calibrate"]

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
        with Store.open("calibration", "rw", files=MemoryFiles()) as store:
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
