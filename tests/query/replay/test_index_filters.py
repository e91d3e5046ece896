"""Filters through indexes: the rows of a scan, and few of its blocks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import chronicle
from chronicle.query.replay import filtering

ARROW = pa.schema(
    [pa.field("t", pa.int64(), False), pa.field("x", pa.float64()), pa.field("k", pa.string())]
)


def table(count: int, seed: int, start: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = rng.random(count)
    x[rng.random(count) < 0.01] = np.nan
    k = np.array(["a", "b", "rare"])[rng.choice(3, count, p=[0.5, 0.4995, 0.0005])]
    return pa.table(
        {
            "t": start + np.sort(rng.integers(0, count * 2, count)),
            "x": pa.array(x, mask=x > 0.9995),
            "k": k,
        },
        schema=ARROW,
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_filter_gives_the_rows_of_a_scan(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(filtering, "SPAN_NS", 0.0)  # as if beginning a span cost nothing
    used = 0
    with chronicle.open(tmp_path / "s") as database:
        options = {"leaf_bytes": 1 << 14, "segment_bytes": 1 << 20}
        stream = database.create_stream("s", ARROW, "t", options=options)
        stream.append(table(60_000, seed))
        stream.create_index("x")
        stream.create_index("k")
        stream.append(table(5_000, seed + 100, start=120_000))
        if seed:
            stream.append(table(300, seed + 200, start=40_000))
        everything = pa.table(stream.scan().read_all())
        x, k, t = everything["x"], everything["k"], everything["t"]
        rare = pc.equal(k, "rare")
        for _ in range(12):
            low = rng.random()
            until = 30_000 + int(low * 90_000)
            near = pc.and_(pc.greater_equal(x, low), pc.less_equal(x, low + 1e-4))
            inside = pc.and_(pc.greater_equal(t, 30_000), pc.less(t, until))
            where, mask = rng.choice(
                [
                    (f"x BETWEEN {low} AND {low + 1e-4}", near),
                    ("k = 'rare'", rare),
                    ("x IS NULL", pc.is_null(x)),
                    (f"k = 'rare' AND t >= 30000 AND t < {until}", pc.and_(rare, inside)),
                ]
            )
            got = database.sql(f"SELECT t, x FROM s WHERE {where}").arrow()
            expected = everything.filter(mask).select(["t", "x"])
            assert repr(got.to_pylist()) == repr(expected.to_pylist()), where
            used += "index:" in str(
                database.explain(f"SELECT t, x FROM s WHERE {where}", analyze=True)
            )
    assert used > 3


def indexed(database: Any, x: Any, **options: str) -> Any:
    """A stream of a value a tick, with an index on them."""
    stream = database.create_stream("s", ARROW, "t", options=options)
    data: dict[str, Any] = {"t": np.arange(len(x)), "x": x, "k": ["a"] * len(x)}
    stream.append(pa.table(data, schema=ARROW))
    stream.seal()
    stream.create_index("x")
    return stream


def test_a_rare_value_reads_little(tmp_path: Path) -> None:
    count = 400_000
    x = np.zeros(count)
    x[[1234, 200_000, 399_000]] = 7.0
    x[::2] = 9.0  # minimum and maximum exclude nothing
    with chronicle.open(tmp_path / "s") as database:
        indexed(database, x)
        plan = database.explain("SELECT count(*) FROM s WHERE x = 7", analyze=True)
        scan = next(node for node in plan.operators() if node.name == "Scan")
        assert dict(scan.details)["index"]
        assert dict(scan.figures)["events_read"] <= 10
        planned = database.explain("SELECT count(*) FROM s WHERE x = 7")
        scan = next(node for node in planned.operators() if node.name == "Scan")
        assert dict(scan.details)["index"] == ("x = 7.0",)
        assert not scan.figures
        result = database.sql("SELECT t FROM s WHERE x = 7")
        assert "index: x = 7.0" in str(result.plan)
        empty = database.explain("SELECT count(*) FROM s WHERE x = 7 AND t > 10 AND t < 5")
        assert "index" not in str(empty)
        found = database.sql("SELECT t FROM s WHERE x = 7").fetchall()
        assert found == [(int(t),) for t in np.flatnonzero(x == 7.0)]


def test_what_lies_all_over_the_stream_is_scanned_for(tmp_path: Path) -> None:
    """One event in two hundred: beginning to read at each costs more than reading everything."""
    count = 200_000
    x = np.zeros(count)
    x[::200] = 7.0
    x[1::2] = 9.0
    with chronicle.open(tmp_path / "s") as database:
        indexed(database, x)
        plan = database.explain("SELECT count(*) FROM s WHERE x = 7", analyze=True)
        scan = next(node for node in plan.operators() if node.name == "Scan")
        assert "index" not in dict(scan.details)
        assert database.sql("SELECT count(*) FROM s WHERE x = 7").fetchall() == [(1000,)]


def test_late_events_outside_of_the_range_of_time_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "SPAN_NS", 0.0)
    count = 100_000
    x = np.zeros(count)
    x[[1000, 1010, 90_000]] = 7.0
    x[1::2] = 9.0
    with chronicle.open(tmp_path / "s") as database:
        stream = indexed(database, x, compaction="manual")
        for tick in (999, 1005, 50_000):
            stream.append(pa.table({"t": [tick], "x": [7.0], "k": ["b"]}, schema=ARROW))
        text = "SELECT t FROM s WHERE x = 7 AND t >= 1000 AND t < 40000"
        plan = database.explain(text, analyze=True)
        scan = next(node for node in plan.operators() if node.name == "Scan")
        assert "index" in dict(scan.details)
        assert database.sql(text).fetchall() == [(1000,), (1005,), (1010,)]
