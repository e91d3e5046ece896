"""Windows at both ends of 64 bits, and kernels that stop in the middle of their work."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.query.windows import slices, sweep
from chronicle.query.windows.aggregation import (
    IndexAggregation,
    ReplayAggregation,
    SelectedRange,
)
from chronicle.query.windows.expand import expand_times
from chronicle.query.windows.fields import Aggregate
from chronicle.query.windows.spec import CountWindows, TimeWindows
from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

from . import oracles_windows as oracle

LOW, HIGH = -(2**63), 2**63 - 1
SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("x", pa.int64())]), "t")
SUMS = [Aggregate("count"), Aggregate("sum", "x"), Aggregate("max", "x")]
TICKS = {
    "low": [LOW, LOW + 1, LOW + 2, LOW + 5, LOW + 40],
    "high": [HIGH - 40, HIGH - 5, HIGH - 2, HIGH - 1, HIGH],
    "both": [LOW, LOW + 1, -1, 0, 1, HIGH - 1, HIGH],
    "one": [LOW + 40],
}


def replayed(
    snapshot: Any, windows: Any, aggregates: Any, check: Any = lambda: None, **selected: int
) -> ReplayAggregation:
    chosen = SelectedRange(**selected)

    def scan(columns: list[str]) -> Any:
        return snapshot.scan(chosen.start, chosen.end, columns, check=check)

    return ReplayAggregation(snapshot.schema, windows, aggregates, scan, check)


def batch_of(ticks: list[int]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(ticks, pa.int64()), pa.array(range(len(ticks)), pa.int64())], schema=SCHEMA.arrow
    )


def rows_of(aggregation: Any) -> list[tuple[Any, ...]]:
    table = pa.Table.from_batches(list(aggregation.batches()), schema=aggregation.schema)
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return [(*row[:-2], int(row[-2]), row[-1]) for row in rows]


def expected(ticks: list[int], windows: TimeWindows) -> list[tuple[Any, ...]]:
    origin = windows.origin
    assert origin is not None
    events = [(tick, i) for i, tick in enumerate(ticks)]
    found = oracle.time_windows(events, windows.size, windows.slide, origin % windows.slide)
    return [(start, end, len(v), sum(v), max(v)) for start, end, v in found]


@pytest.fixture(scope="module")
def snapshots() -> Iterator[dict[str, Any]]:
    """One stream for each list of ticks."""
    with Store.open("s", "rw", files=MemoryFiles()) as store:
        made = {}
        for name, ticks in TICKS.items():
            stream = store.create_stream(name, SCHEMA, StreamOptions(compaction="manual"))
            stream.append(batch_of(ticks))
            stream.seal()
            made[name] = stream.snapshot()
        yield made


@pytest.mark.parametrize("where", TICKS)
def test_ends_of_time(snapshots: dict[str, Any], where: str) -> None:
    """Short slides with sizes of all kinds: replay, index and events with windows at the ends."""
    ticks = TICKS[where]
    for slide_, size, origin in product((1, 2, 3), (1, 2, 3, 4, 5, 43), (0, 1, HIGH, LOW)):
        windows = TimeWindows(size, slide_, origin)
        wanted = expected(ticks, windows)
        made = ReplayAggregation(
            SCHEMA, windows, SUMS, lambda names: iter([batch_of(ticks).select(names)])
        )
        assert rows_of(made) == wanted, windows
        index = IndexAggregation(snapshots[where], windows, SUMS, SelectedRange())
        assert rows_of(index) == wanted, windows
        events = expand_times(
            [batch_of(ticks)], windows, "t", ["window_start", "window_end", "x"], lambda: None
        )
        table = pa.Table.from_batches(
            list(events),
            pa.schema([("window_start", "int64"), ("window_end", "int64"), ("x", "int64")]),
        )
        grouped = table.group_by(["window_start", "window_end"]).aggregate(
            [("x", "count"), ("x", "sum"), ("x", "max")]
        )
        # windows that are cut off at an end of time may share both bounds
        merged: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for start, end, *values in wanted:
            merged.setdefault((start, end), []).append(tuple(values))
        assert {
            (start, end): (n, s, m)
            for start, end, n, s, m in zip(*(c.to_pylist() for c in grouped.columns), strict=True)
        } == {
            key: (sum(v[0] for v in rows), sum(v[1] for v in rows), max(v[2] for v in rows))
            for key, rows in merged.items()
        }, windows


@pytest.mark.parametrize("where", TICKS)
def test_ends_of_time_in_long_windows(snapshots: dict[str, Any], where: str) -> None:
    """Sizes and slides of up to 63 bits."""
    ticks = TICKS[where]
    lengths = (2**61, 2**62 - 1, 2**62 + 1, HIGH - 1, HIGH)
    for slide_, size, origin in product(lengths, lengths, (0, 1, -1, HIGH)):
        windows = TimeWindows(size, slide_, origin)
        wanted = expected(ticks, windows)
        index = IndexAggregation(snapshots[where], windows, SUMS, SelectedRange())
        assert rows_of(index) == wanted, windows
        made = replayed(snapshots[where], windows, SUMS)
        assert rows_of(made) == wanted, windows


def test_more_windows_than_64_bits_count() -> None:
    """Events that are in very many windows begin to be given out, however many that would be."""
    ticks = [0, 1, 2, 3]
    rows = expand_times(
        [batch_of(ticks)], TimeWindows(2**62, 1), "t", ["t", "window_start"], lambda: None
    )
    first = next(rows)
    assert first.num_rows == 1 << 16
    assert first["window_start"][0].as_py() == 1 - 2**62
    assert set(first["t"].to_pylist()) == {0}


def test_kernels_stop_and_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of any size is done in calls of bounded size, a check between them, with equal rows."""
    events = 6000
    values = np.random.default_rng(8).normal(size=events)
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("x", pa.float64())]), "t")
    wanted = [Aggregate("count"), Aggregate("sum", "x"), Aggregate("min", "x")]
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1

    with Store.open("s", "rw", files=MemoryFiles()) as store:
        stream = store.create_stream("e", schema, StreamOptions(leaf_bytes=8192))
        stream.append(
            pa.record_batch([pa.array(np.arange(events)), pa.array(values)], schema=schema.arrow)
        )
        stream.seal()
        snapshot = stream.snapshot()
        made = []
        for small in (False, True):
            if small:
                monkeypatch.setattr(slices, "STEPS_AT_ONCE", 100)
                monkeypatch.setattr(sweep, "EVENTS_AT_ONCE", 500)
                monkeypatch.setattr(slices, "EVENTS_AT_ONCE", 500)
            for windows in (TimeWindows(5000, 1), TimeWindows(4001, 2), CountWindows(4001, 2)):
                for strategy in ("index", "replay"):
                    checks = 0
                    run = (
                        IndexAggregation(snapshot, windows, wanted, SelectedRange(), check)
                        if strategy == "index"
                        else replayed(snapshot, windows, wanted, check)
                    )
                    made.append(pa.Table.from_batches(list(run.batches())))
                    if small:
                        # merges of slices and windows by hundreds, events by five hundreds
                        assert checks >= made[-1].num_rows // 100 + events // 500
    half = len(made) // 2
    for whole, pieces in zip(made[:half], made[half:], strict=True):
        assert whole.num_rows >= 1000
        assert whole.equals(pieces)
