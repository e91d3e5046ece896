"""Integer sums beyond 64 bits: live queries say what the SELECT says, whatever came before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database

from ..patience import wait_until

HIGH = 2**63 - 1
SMALL = [(t, "ab"[t % 2], 1) for t in range(8)]
LARGE = [(t, "ab"[t % 2], HIGH) for t in range(10, 16)]
LATE = [(3, "a", 5), (11, "b", HIGH), (12, "a", -HIGH)]
END = [(1000, "a", 1)]

QUERIES = {
    "windows": "SELECT window_start, sum(x) AS v FROM TUMBLE(s, t, 4) GROUP BY window_start",
    "keyed": "SELECT k, window_start, sum(x) AS v, count(*) AS n FROM HOP(s, t, 2, 4) "
    "GROUP BY k, window_start HAVING count(*) > 0",
    "computed": "SELECT window_start, sum(x) + 1 AS v, avg(x) AS w FROM TUMBLE(s, t, 4) "
    "GROUP BY window_start",
    "sessions": "SELECT window_start, sum(x) AS v FROM SESSION(s, t, 1) "
    "GROUP BY window_start, window_end",
    "rows": "SELECT t, x::HUGEINT * 2 AS v FROM s",
    "both": "SELECT t, x AS v FROM s UNION ALL "
    "SELECT window_start, sum(x) FROM TUMBLE(s, t, 4) GROUP BY window_start",
    "pairs": "SELECT a.t, a.x::HUGEINT + b.x AS v FROM s AS a JOIN s AS b "
    "ON b.t > a.t AND b.t <= a.t + 2",
    "recent": "SELECT l.t, a.x::HUGEINT + l.x AS v FROM s AS l RECENT JOIN s AS a ON a.k = l.k "
    "WITHIN 5",
}


DERIVED = {
    "nested": "SELECT window_start, v FROM (SELECT window_start, sum(x) AS v FROM TUMBLE(s, t, 4) "
    "GROUP BY window_start) AS q WHERE v > 0",
    "runs": "SELECT * FROM (SELECT window_start, sum(x) AS v FROM TUMBLE(s, t, 4) "
    "GROUP BY window_start) MATCH_RECOGNIZE (ORDER BY window_start MEASURES LAST(A.v) AS v "
    "PATTERN (A) WITHIN 4 DEFINE A AS v > 3)",
}
"""Whose input has the types that it had when they were created."""


def events(rows: list[tuple[int, str, int]]) -> pa.Table:
    return pa.table(dict(zip(("t", "k", "x"), zip(*rows, strict=True), strict=True)))


def rows(db: Database, sql: str) -> list[Any]:
    """Rows but those of the last event."""
    found = db.sql(sql).fetchall()
    return sorted((row for row in found if not {996, 998, 1000} & {*row}), key=repr)


@pytest.mark.parametrize("order", [(SMALL, LARGE), (LARGE, SMALL)])
@pytest.mark.parametrize("store", [True, False])
def test_sums_beyond_64_bits_are_those_of_the_select(
    tmp_path: Path, order: tuple[list[Any], list[Any]], store: bool
) -> None:
    db = chronicle.open(tmp_path / "s", live=False)
    db.create_stream("s", events(SMALL).schema, time="t")
    for name, query in QUERIES.items():
        db.create_live(name, query, options=None if store else {"store": False})
    db.sql("CREATE ROLLUP kept AS SELECT window_start, sum(x) AS v FROM TUMBLE(s, t, 4) "
           "GROUP BY window_start")  # fmt: skip
    for step in (*order, LATE, LARGE, END):
        db.stream("s").append(events(step))
        db.run_live()
        for name in QUERIES:
            assert db.live(name).status()["error"] is None, name
    for again in range(2):
        for name, query in QUERIES.items():
            if store or not again:
                assert db.live(name).verify() == 0, name
            if store:
                said = rows(db, f"SELECT * EXCLUDE (_time, _id, _rev) FROM NET({name})")
                assert said == rows(db, query), name
        read = "SELECT window_start, sum(x) AS v FROM TUMBLE(s, t, 8) GROUP BY window_start"
        assert "RollupWindows" in str(
            db.explain(read.replace("SELECT", "SELECT /*+ rollups(always) */"))
        )
        assert rows(db, read.replace("SELECT", "SELECT /*+ rollups(always) */")) == rows(
            db, read.replace("SELECT", "SELECT /*+ rollups(none) */")
        )
        db.close()
        db = chronicle.open(tmp_path / "s", live=False)
    db.close()


def test_an_index_goes_when_its_sums_need_more_than_64_bits(tmp_path: Path) -> None:
    """Numbers of that size have no index: it does not stay behind, forever being built."""
    db = chronicle.open(tmp_path / "s", live=False)
    db.create_stream("s", events(SMALL).schema, time="t")
    db.create_live("v", QUERIES["keyed"])
    db.stream("s").append(events(SMALL))
    db.run_live()
    for attribute in ("v", "k"):
        db.stream("v").create_index(attribute)
    db.stream("s").append(events(LARGE))
    db.run_live()
    wait_until(lambda: [each["attribute"] for each in db.stream("v").indexes()] == ["k"])
    db.stream("v").seal()
    wait_until(lambda: db.stream("v").indexes()[0]["state"] == "ready")
    db.close()
