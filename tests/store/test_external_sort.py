"""Sorting: stable, bounded, passed through where there is nothing to do; nothing left behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import InvalidData, StorageFull
from chronicle.formats.chunks import regroup
from chronicle.formats.layout import conform
from chronicle.store import external_sort
from chronicle.store.external_sort import ExternalSort, runs_in_order
from chronicle.tests.rounds import rounds

SCHEMA = pa.schema([pa.field("t", pa.int64(), False), ("seq", pa.int64()), ("s", pa.string())])


def batch(times: list[int], first: int) -> pa.RecordBatch:
    seqs = list(range(first, first + len(times)))
    return pa.record_batch([times, seqs, [f"e{seq}" for seq in seqs]], schema=SCHEMA)


@given(
    st.lists(st.lists(st.integers(-4, 4) | st.integers(-(2**62), 2**62), max_size=12), max_size=9),
    st.sampled_from([1, 200, 1 << 20]),
    st.sampled_from([2, 3, 128]),
)
@settings(max_examples=rounds(15, 150), deadline=None)
def test_gives_back_the_stable_sort(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]], run_bytes: int, fan_in: int
) -> None:
    directory = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(external_sort, "FAN_IN", fan_in)
        patch.setattr(external_sort, "BLOCK_BYTES", 1)
        patch.setattr(external_sort, "BLOCK_ROWS_MIN", 2)
        with ExternalSort(directory, run_bytes=run_bytes) as events:
            seq = 0
            for times in parts:
                events.add(batch(times, seq), "t")
                seq += len(times)
            assert events.rows == seq
            out = pa.Table.from_batches(list(events.batches(SCHEMA)), SCHEMA)
    flat = [time for times in parts for time in times]
    expected = sorted(zip(flat, range(seq), strict=True))
    assert list(zip(out["t"].to_pylist(), out["seq"].to_pylist(), strict=True)) == expected
    assert out["s"].to_pylist() == [f"e{at}" for _, at in expected]


def test_runs_that_do_not_overlap_are_not_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExternalSort, "_merge", lambda *_: pytest.fail("merged"))
    with ExternalSort(tmp_path, run_bytes=1) as events:
        for first in (200, 0, 100):
            events.add(batch(list(range(first, first + 50)), first), "t")
        out = pa.Table.from_batches(list(events.batches(SCHEMA)))
    assert out["t"].to_pylist() == [*range(50), *range(100, 150), *range(200, 250)]


def test_types_that_widened_on_the_way(tmp_path: Path) -> None:
    early = pa.schema([pa.field("t", pa.timestamp("us"), False), ("x", pa.int64())])
    late = pa.schema(
        [pa.field("t", pa.timestamp("ns"), False), ("x", pa.float64()), ("y", pa.string())]
    )
    with ExternalSort(tmp_path, run_bytes=1, convert=conform) as events:
        events.add(pa.record_batch([[5, 7], [1, 2]], schema=early), "t")
        events.add(pa.record_batch([[6_500, 1], [2.5, 3.5], ["a", None]], schema=late), "t")
        out = pa.Table.from_batches(list(events.batches(late)))
    assert out["t"].cast(pa.int64()).to_pylist() == [1, 5_000, 6_500, 7_000]
    assert out["x"].to_pylist() == [3.5, 1.0, 2.5, 2.0]
    assert out["y"].to_pylist() == [None, None, "a", None]


def test_whole_numbers_that_no_float_holds_are_an_error(tmp_path: Path) -> None:
    final = pa.schema([pa.field("t", pa.int64(), False), ("seq", pa.float64()), ("s", pa.string())])
    with ExternalSort(tmp_path, run_bytes=1, convert=conform) as events:
        events.add(batch([1], 2**53 + 1), "t")
        with pytest.raises(InvalidData, match="9007199254740993"):
            list(events.batches(final))


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with ExternalSort(tmp_path, run_bytes=1) as events:
        events.add(batch([1, 2], 0), "t")
        assert list(tmp_path.iterdir()) == []  # the file has no name
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with ExternalSort(tmp_path, run_bytes=1) as events:
        monkeypatch.setattr(external_sort.os, "pwrite", full)
        with pytest.raises(StorageFull, match="No space left on device"):
            events.add(batch([1], 0), "t")


def test_memory_stays_bounded_while_merging(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    with ExternalSort(tmp_path, run_bytes=1 << 20) as events:
        for at in range(40):
            times = random.integers(0, 1 << 40, 50_000)
            events.add(
                pa.record_batch([times, times, np.full(50_000, str(at))], schema=SCHEMA), "t"
            )
        before = pa.total_allocated_bytes()
        last, rows, peak = -1, 0, 0
        for part in events.batches(SCHEMA):
            ticks = part.column(0).to_numpy()
            assert ticks[0] >= last
            assert bool(np.all(ticks[1:] >= ticks[:-1]))
            last = int(ticks[-1])
            rows += part.num_rows
            peak = max(peak, pa.total_allocated_bytes() - before)
    assert rows == 2_000_000
    assert events.bytes > 40 << 20
    assert peak < 50 << 20


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(1, 20))
def test_regroup_keeps_rows_and_bounds_batches(sizes: list[int], rows_max: int) -> None:
    batches = [batch(list(range(size)), at * 100) for at, size in enumerate(sizes)]
    out = list(regroup(batches, rows_max))
    assert all(0 < part.num_rows <= rows_max for part in out)
    assert all(part.num_rows == rows_max for part in out[:-1])
    flat = [value for part in out for value in part.column(1).to_pylist()]
    assert flat == [value for part in batches for value in part.column(1).to_pylist()]


# ------------------------------------------------------------------------------ runs of a task


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
    batches: Iterator[pa.RecordBatch], run_bytes: int, directory: str | None = None
) -> list[list[tuple[int, int]]]:
    runs = []
    for run in runs_in_order(batches, "t", run_bytes=run_bytes, directory=directory):
        rows = []
        for batch in run:
            assert batch.num_rows > 0
            ticks = batch.column("t").cast(pa.int64()).to_pylist()
            numbers = batch.column("n").to_pylist()
            assert batch.column("s").to_pylist() == [f"event {n}" for n in numbers]
            rows += list(zip(ticks, numbers, strict=True))
        runs.append(rows)
    return runs


@settings(max_examples=rounds(15, 150), deadline=None)
@given(
    times=st.lists(st.integers(0, 12), max_size=120),
    cuts=st.lists(st.integers(0, 120), max_size=20),
    run_bytes=st.sampled_from([1, 100, 400, 2000, 1 << 20]),
    block_rows=st.sampled_from([1, 3, 7, 1024]),
)
def test_runs_are_stable_sorts_of_the_input(
    times: list[int], cuts: list[int], run_bytes: int, block_rows: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(external_sort, "BLOCK_BYTES", 1)
        patch.setattr(external_sort, "BLOCK_ROWS_MIN", block_rows)
        runs = collect(batches_of(times, cuts), run_bytes)
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

    runs = runs_in_order(source(), "t", run_bytes=1000)
    first = next(next(runs))
    assert first.num_rows == 10
    assert len(drawn) < 20


def test_a_prefix_in_order_and_a_rest_make_two_runs() -> None:
    times = [*range(500), *range(250)]
    runs = collect(batches_of(times, list(range(0, 750, 50))), 2000)
    assert [len(run) for run in runs] == [500, 250]


def opened_in(path: Path) -> list[Path]:
    """Files of a directory that this process has open."""
    files = (Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
    return [file for file in files if os.path.realpath(file).startswith(str(path))]


def test_a_task_that_gives_up_leaves_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    times = rng.integers(0, 1000, 5000).tolist()
    runs = runs_in_order(
        batches_of(times, list(range(0, 5000, 100))), "t", run_bytes=4000, directory=str(tmp_path)
    )
    run = next(runs)
    next(run)
    assert len(opened_in(tmp_path)) == 1  # the file, which has no name
    assert list(tmp_path.iterdir()) == []
    run.close()  # type: ignore[attr-defined]
    runs.close()  # type: ignore[attr-defined]
    assert opened_in(tmp_path) == []


def test_memory_of_runs_stays_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(external_sort, "BLOCK_BYTES", 16_000)
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
    for run in runs_in_order(source(), "t", run_bytes=limit, directory=tmp_path):
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
    monkeypatch.setattr(external_sort, "PREFIX_BYTES", 1000)
    cuts = list(range(0, 1000, 10))
    source = batches_of(list(range(1000)), cuts)
    runs = runs_in_order(source, "t", run_bytes=1 << 20)
    next(next(runs))
    assert sum(batch.num_rows for batch in source) > 800  # still to come when the run began
    early = [1, 0, *range(2, 1000)]  # out of order at once: held, sorted, and one run
    assert len(collect(batches_of(early, cuts), 1 << 20)) == 1
