"""Runs from the tree: leaves and zones of one word are not read; the rows are those of a scan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database

SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("y", pa.int32()), ("s", pa.string())])
COUNT = 60_000


def levels(rng: np.random.Generator, flips: int) -> np.ndarray:
    """0 or 1 in each row, for thousands of rows at a time."""
    cuts = np.sort(rng.integers(0, COUNT, flips))
    return np.searchsorted(cuts, np.arange(COUNT), side="right") % 2


def fill(db: Database, seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    x = levels(rng, 9) * 10.0 + rng.random(COUNT)
    x[rng.integers(0, COUNT, 3)] = np.nan
    y = levels(rng, 7) * 100 + rng.integers(0, 50, COUNT)
    s = np.array(["low", "high"])[levels(rng, 5)]
    time = np.arange(COUNT) // 7 if ties else np.arange(COUNT) * 3
    missing = np.zeros(COUNT, np.bool_)
    missing[rng.integers(0, COUNT, 4)] = True
    table = pa.table(
        {"t": time, "x": pa.array(x), "y": pa.array(y, pa.int32(), mask=missing), "s": s}
    ).cast(SCHEMA)
    stream = db.create_stream("s", SCHEMA, time="t", options={"leaf_bytes": 65536})
    stream.append(table.slice(0, COUNT - 3000))
    stream.seal()
    stream.append(table.slice(COUNT - 3000))


CONDITIONS = [
    ("x > 5", "y > 75"),
    ("x <= 5", "NOT (y BETWEEN 60 AND 900)"),
    ("x > 5 AND y < 75", "x > 5 OR y > 75"),
    ("NOT (x > 5 OR y > 75)", "s = 'high'"),
    ("y <> 1000", "x < 5"),
]


@pytest.mark.parametrize("ties", [False, True])
def test_the_rows_are_those_of_a_scan(tmp_path: Path, ties: bool) -> None:
    asked = found_rows = 0
    with chronicle.open(tmp_path) as db:
        fill(db, 3 + ties, ties)
        for a, b in CONDITIONS:
            for pattern in (
                "A",
                "A INTERSECTS | BEFORE | MEETS B",
                "A OVERLAPS | AFTER | STARTS B",
            ):
                pattern = pattern.replace("INTERSECTS", "OVERLAPS | DURING | CONTAINS")
                for emit in ("COMPLETION", "DETECTION"):
                    defined = f"A AS {a}" + (f", B AS {b}" if " B" in pattern else "")
                    query = f"""SELECT {{}} * FROM s MATCH_SITUATIONS (
                        PATTERN ({pattern}) EMIT ON {emit} DEFINE {defined})"""
                    wanted = db.sql(query.format("/*+ strategy(replay) */")).arrow()
                    result = db.sql(query.format(""))
                    assert result.arrow().equals(wanted), (a, b, pattern, emit)
                    asked += "TreeRuns" in str(result.plan)
                    found_rows += wanted.num_rows
    assert asked >= 15
    assert found_rows > 50


def test_what_the_tree_cannot_tell_is_read(tmp_path: Path) -> None:
    with chronicle.open(tmp_path) as db:
        fill(db, 1, False)

        def plan(clause: str) -> str:
            return str(db.explain(f"SELECT * FROM s MATCH_SITUATIONS ({clause})"))

        assert "TreeRuns" in plan("PATTERN (A) DEFINE A AS x > 5")
        for clause in (
            "PARTITION BY s PATTERN (A) DEFINE A AS x > 5",
            "PATTERN (A) GAP 100 DEFINE A AS x > 5",
            "PATTERN (A) DEFINE A AS x > PREV(x)",
            "PATTERN (A) DEFINE A AS abs(x) > 5",
            "PATTERN (A) DEFINE A AS x > 5 OR y > NULL",
            "MEASURES avg(A.x) AS m PATTERN (A) DEFINE A AS x > 5",
            "PATTERN (A) DEFINE A AS y % 2 = 0",
        ):
            assert "TreeRuns" not in plan(clause), clause
        few = db.explain("SELECT * FROM s MATCH_SITUATIONS (PATTERN (A) DEFINE A AS x > 5)", True)
        read = int(str(few).split("events read ")[1].split("\n")[0].replace(",", ""))
        assert read < COUNT / 4


def test_late_events_are_not_overlooked(tmp_path: Path) -> None:
    with chronicle.open(tmp_path) as db:
        fill(db, 1, False)
        query = "SELECT count(*) FROM s MATCH_SITUATIONS (PATTERN (A) DEFINE A AS x > 5)"
        before = db.sql(query).fetchall()[0][0]
        quiet = db.sql("SELECT t FROM s WHERE x < 5 AND t > 9000 AND t < 150000 LIMIT 1").fetchall()
        late = pa.table({"t": [quiet[0][0] + 1], "x": [9.0], "y": [1], "s": ["low"]})
        db.stream("s").append(late.cast(SCHEMA))
        assert db.sql(query).fetchall()[0][0] == before + 1
        db.stream("s").compact()
        assert db.sql(query).fetchall()[0][0] == before + 1


def test_words_change_at_the_borders_of_zones(tmp_path: Path) -> None:
    """A mixed zone that ends in A, one without A, a mixed one that begins with A."""
    x = np.zeros(COUNT)
    for zone in (10, 40, 70):
        x[zone * 512 + 256 : (zone + 1) * 512] = 9
        x[(zone + 2) * 512 : (zone + 2) * 512 + 100] = 9
    with chronicle.open(tmp_path) as db:
        table = pa.table({"t": np.arange(COUNT), "x": x})
        stream = db.create_stream("s", table.schema, time="t")
        stream.append(table)
        stream.seal()
        starts = (np.flatnonzero(np.diff(x) > 0) + 1).tolist()
        query = "SELECT {} * FROM s MATCH_SITUATIONS (PATTERN (A) DEFINE A AS x > 5)"
        result = db.sql(query.format(""))
        assert "TreeRuns" in str(result.plan)
        assert result.arrow().equals(db.sql(query.format("/*+ strategy(replay) */")).arrow())
        assert result.arrow()["a_started"].to_pylist() == starts
