"""The spool gives back the stable sort by time, whatever the runs and however many there are."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import InvalidData, StorageFull
from chronicle.ingest import spool as spool_module
from chronicle.ingest.spool import Spool, regroup

SCHEMA = pa.schema([pa.field("t", pa.int64(), False), ("seq", pa.int64()), ("s", pa.string())])


def batch(times: list[int], first: int) -> pa.RecordBatch:
    seqs = list(range(first, first + len(times)))
    return pa.record_batch([times, seqs, [f"e{seq}" for seq in seqs]], schema=SCHEMA)


@given(
    st.lists(st.lists(st.integers(-4, 4) | st.integers(-(2**62), 2**62), max_size=12), max_size=9),
    st.sampled_from([1, 200, 1 << 20]),
    st.sampled_from([2, 3, 128]),
)
@settings(max_examples=150, deadline=None)
def test_gives_back_the_stable_sort(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]], run_bytes: int, fan_in: int
) -> None:
    directory = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool_module, "FAN_IN", fan_in)
        patch.setattr(spool_module, "BLOCK_BYTES", 1)
        patch.setattr(spool_module, "BLOCK_ROWS_MIN", 2)
        with Spool(directory, run_bytes=run_bytes) as spool:
            seq = 0
            for times in parts:
                spool.add(batch(times, seq), "t")
                seq += len(times)
            assert spool.rows == seq
            out = pa.Table.from_batches(list(spool.batches(SCHEMA)), SCHEMA)
    flat = [time for times in parts for time in times]
    expected = sorted(zip(flat, range(seq), strict=True))
    assert list(zip(out["t"].to_pylist(), out["seq"].to_pylist(), strict=True)) == expected
    assert out["s"].to_pylist() == [f"e{at}" for _, at in expected]


def test_runs_that_do_not_overlap_are_not_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Spool, "_merge", lambda *_: pytest.fail("merged"))
    with Spool(tmp_path, run_bytes=1) as spool:
        for first in (200, 0, 100):
            spool.add(batch(list(range(first, first + 50)), first), "t")
        out = pa.Table.from_batches(list(spool.batches(SCHEMA)))
    assert out["t"].to_pylist() == [*range(50), *range(100, 150), *range(200, 250)]


def test_types_that_widened_on_the_way(tmp_path: Path) -> None:
    early = pa.schema([pa.field("t", pa.timestamp("us"), False), ("x", pa.int64())])
    late = pa.schema(
        [pa.field("t", pa.timestamp("ns"), False), ("x", pa.float64()), ("y", pa.string())]
    )
    with Spool(tmp_path, run_bytes=1) as spool:
        spool.add(pa.record_batch([[5, 7], [1, 2]], schema=early), "t")
        spool.add(pa.record_batch([[6_500, 1], [2.5, 3.5], ["a", None]], schema=late), "t")
        out = pa.Table.from_batches(list(spool.batches(late)))
    assert out["t"].cast(pa.int64()).to_pylist() == [1, 5_000, 6_500, 7_000]
    assert out["x"].to_pylist() == [3.5, 1.0, 2.5, 2.0]
    assert out["y"].to_pylist() == [None, None, "a", None]


def test_whole_numbers_that_no_float_holds_are_an_error(tmp_path: Path) -> None:
    final = pa.schema([pa.field("t", pa.int64(), False), ("seq", pa.float64()), ("s", pa.string())])
    with Spool(tmp_path, run_bytes=1) as spool:
        spool.add(batch([1], 2**53 + 1), "t")
        with pytest.raises(InvalidData, match="9007199254740993"):
            list(spool.batches(final))


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with Spool(tmp_path, run_bytes=1) as spool:
        spool.add(batch([1, 2], 0), "t")
        assert list(tmp_path.iterdir()) == []  # the file has no name
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Spool(tmp_path, run_bytes=1) as spool:
        monkeypatch.setattr(spool_module.os, "pwrite", full)
        with pytest.raises(StorageFull, match="No space left on device"):
            spool.add(batch([1], 0), "t")


def test_memory_stays_bounded_while_merging(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    with Spool(tmp_path, run_bytes=1 << 20) as spool:
        for at in range(40):
            times = random.integers(0, 1 << 40, 50_000)
            spool.add(pa.record_batch([times, times, np.full(50_000, str(at))], schema=SCHEMA), "t")
        before = pa.total_allocated_bytes()
        last, rows, peak = -1, 0, 0
        for part in spool.batches(SCHEMA):
            ticks = part.column(0).to_numpy()
            assert ticks[0] >= last
            assert bool(np.all(ticks[1:] >= ticks[:-1]))
            last = int(ticks[-1])
            rows += part.num_rows
            peak = max(peak, pa.total_allocated_bytes() - before)
    assert rows == 2_000_000
    assert spool.bytes > 40 << 20
    assert peak < 50 << 20


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(1, 20))
def test_regroup_keeps_rows_and_bounds_batches(sizes: list[int], rows_max: int) -> None:
    batches = [batch(list(range(size)), at * 100) for at, size in enumerate(sizes)]
    out = list(regroup(batches, rows_max))
    assert all(0 < part.num_rows <= rows_max for part in out)
    assert all(part.num_rows == rows_max for part in out[:-1])
    flat = [value for part in out for value in part.column(1).to_pylist()]
    assert flat == [value for part in batches for value in part.column(1).to_pylist()]
