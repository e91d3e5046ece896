"""Sorting of a task's events: stable, bounded, and passed through when there is nothing to do."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.spark_connector import sorting


def batches_of(times: list[int], cuts: list[int]) -> Iterator[pa.RecordBatch]:
    borders = sorted({0, len(times), *(min(cut, len(times)) for cut in cuts)})
    for start, end in pairwise(borders):
        yield pa.record_batch(
            {
                "t": pa.array(times[start:end], pa.timestamp("us")),
                "n": pa.array(range(start, end), pa.int64()),
                "s": pa.array([f"event {n}" for n in range(start, end)]),
            }
        )


def collect(
    batches: Iterator[pa.RecordBatch], memory_bytes: int, directory: str | None = None
) -> list[list[tuple[int, int]]]:
    runs = []
    for run in sorting.runs_in_order(batches, "t", memory_bytes=memory_bytes, directory=directory):
        rows = []
        for batch in run:
            assert batch.num_rows > 0
            ticks = batch.column("t").cast(pa.int64()).to_pylist()
            numbers = batch.column("n").to_pylist()
            assert batch.column("s").to_pylist() == [f"event {n}" for n in numbers]
            rows += list(zip(ticks, numbers, strict=True))
        runs.append(rows)
    return runs


@settings(max_examples=150, deadline=None)
@given(
    times=st.lists(st.integers(0, 12), max_size=120),
    cuts=st.lists(st.integers(0, 120), max_size=20),
    memory_bytes=st.sampled_from([1, 100, 400, 2000, 1 << 20]),
    batch_rows=st.sampled_from([1, 3, 7, 65_536]),
)
def test_runs_are_stable_sorts_of_the_input(
    times: list[int], cuts: list[int], memory_bytes: int, batch_rows: int
) -> None:
    before = sorting.BATCH_ROWS
    sorting.BATCH_ROWS = batch_rows
    try:
        runs = collect(batches_of(times, cuts), memory_bytes)
    finally:
        sorting.BATCH_ROWS = before
    assert len(runs) <= 2
    seen = 0
    for run in runs:
        expected = sorted(
            ((times[n], n) for n in range(seen, seen + len(run))), key=lambda row: row
        )
        assert run == expected  # sorted by time, ties by arrival, and nothing of another run
        seen += len(run)
    assert seen == len(times)


def test_an_ordered_input_is_passed_on_while_it_comes() -> None:
    drawn: list[int] = []

    def source() -> Iterator[pa.RecordBatch]:
        for batch in batches_of(list(range(1000)), list(range(0, 1000, 10))):
            drawn.append(batch.num_rows)
            yield batch

    runs = sorting.runs_in_order(source(), "t", memory_bytes=1000)
    first = next(next(runs))
    assert first.num_rows == 10
    assert len(drawn) < 20


def test_a_prefix_in_order_and_a_rest_make_two_runs() -> None:
    times = [*range(500), *range(250)]
    runs = collect(batches_of(times, list(range(0, 750, 50))), 2000)
    assert [len(run) for run in runs] == [500, 250]


def test_spilled_files_are_removed_even_when_the_task_gives_up(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    times = rng.integers(0, 1000, 5000).tolist()
    runs = sorting.runs_in_order(
        batches_of(times, list(range(0, 5000, 100))),
        "t",
        memory_bytes=4000,
        directory=str(tmp_path),
    )
    run = next(runs)
    next(run)
    assert list(tmp_path.iterdir())
    run.close()  # type: ignore[attr-defined]
    runs.close()  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


def test_memory_stays_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sorting, "BATCH_ROWS", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rng = np.random.default_rng(5)
    limit = 1 << 20

    def source() -> Iterator[pa.RecordBatch]:
        for _ in range(200):
            yield pa.record_batch(
                {
                    "t": pa.array(rng.integers(0, 1 << 40, 5000), pa.timestamp("us")),
                    "x": pa.array(rng.random(5000)),
                }
            )

    base = pa.total_allocated_bytes()
    peak = rows = 0
    last = -1
    for run in sorting.runs_in_order(source(), "t", memory_bytes=limit):
        for batch in run:
            ticks = batch.column("t").cast(pa.int64())
            assert ticks[0].as_py() >= last
            last = ticks[-1].as_py()
            rows += batch.num_rows
            peak = max(peak, pa.total_allocated_bytes() - base)
    assert rows == 1_000_000  # 16 MB of them
    assert peak < 8 * limit


def test_what_is_in_order_is_passed_on_before_memory_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sorting, "PREFIX_BYTES", 1000)
    cuts = list(range(0, 1000, 10))
    source = batches_of(list(range(1000)), cuts)
    runs = sorting.runs_in_order(source, "t", memory_bytes=1 << 20)
    next(next(runs))
    assert sum(batch.num_rows for batch in source) > 800  # still to come when the run began
    early = [1, 0, *range(2, 1000)]  # out of order at once: held, sorted, and one run
    assert len(collect(batches_of(early, cuts), 1 << 20)) == 1
