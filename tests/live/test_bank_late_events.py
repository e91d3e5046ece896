"""Late events of patterns that are searched together."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from chronicle.api.database import Database
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

SCHEMA = pa.schema(
    [pa.field("t", pa.int64(), False), ("k", pa.string()), ("x", pa.int64()), ("s", pa.string()),
     ("id", pa.int64())]
)  # fmt: skip
PATTERNS = {
    "short": "PATTERN (A B+ C) WITHIN 60 DEFINE A AS x < 3, B AS x > 4, C AS s IN ('a', 'b')",
    "runs": "PATTERN (A B* C) WITHIN 30 DEFINE A AS x = 0, B AS x > -1, C AS x = 7",
    "gaps": "PATTERN (A Z* B) WITHIN 25 DEFINE A AS x < 1, B AS x > 8",
    "nexts": "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN 9 DEFINE A AS x < 5, B AS x > 3",
}


def select(name: str, keyed: bool) -> str:
    by = "PARTITION BY k " if keyed else ""
    return (
        f"SELECT * FROM s MATCH_RECOGNIZE ({by}ORDER BY t "
        f"MEASURES FIRST(id) AS a, LAST(id) AS z, LAST(s) AS w, count(*) AS n {PATTERNS[name]})"
    )


@pytest.fixture
def db() -> Iterator[Any]:
    with Database(StoreCatalog(Store.open("mem", files=MemoryFiles()))) as database:
        yield database


def batches(r: random.Random, count: int, reach: int) -> Iterator[list[dict[str, Any]]]:
    at = number = 0
    for _ in range(count):
        rows = []
        for _ in range(r.choice([1, 3, 20, 30])):
            at += r.choice([0, 0, 1, 2])
            late = r.randint(1, reach) if r.random() < 0.25 else 0
            rows.append({
                "t": max(0, at - late), "k": r.choice("abc"), "x": r.randint(0, 9),
                "s": r.choice(["a", "b", "c", None]), "id": number,
            })  # fmt: skip
            number += 1
        yield rows


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("keyed", [True, False])
def test_late_events_change_what_was_said(db: Any, keyed: bool, seed: int) -> None:
    r = random.Random(2 * seed + keyed)
    stream = db.create_stream("s", SCHEMA, time="t")
    for name in PATTERNS:
        db.create_live(name, select(name, keyed), idle="never")
    for step, rows in enumerate(batches(r, 10, r.choice([20, 300]))):
        stream.append(pa.Table.from_pylist(rows, schema=SCHEMA))
        db.run_live()
        if step % 5 == 4:
            assert [db.live(name).verify() for name in PATTERNS] == [0] * len(PATTERNS)
    stream.append([{"t": 10_000, "k": "a", "x": 5, "s": None, "id": -1}])
    db.run_live()
    for name in PATTERNS:
        found = db.sql(f"SELECT * EXCLUDE (_time, _id, _rev) FROM NET({name})").fetchall()
        assert sorted(found, key=str) == sorted(db.sql(select(name, keyed)).fetchall(), key=str)


@pytest.mark.parametrize(
    "statement", ["UPDATE s SET x = 9 - x WHERE t >= 5", "DELETE FROM s WHERE t >= 5"]
)
def test_events_that_are_other_ones_at_their_times_change_what_was_said(
    db: Any, statement: str
) -> None:
    """As many events of each time are there as before: none came late, and none is missing."""
    stream = db.create_stream("s", SCHEMA, time="t")
    for name in PATTERNS:
        db.create_live(name, select(name, True), idle="never")
    r = random.Random(5)
    rows = [{"t": t, "k": "a", "x": r.randint(0, 9), "s": None, "id": t} for t in range(12)]
    stream.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    db.run_live()
    db.sql(statement)
    again = [dict(row, x=9 - row["x"]) for row in rows if row["t"] >= 5]
    if statement.startswith("DELETE"):
        stream.append(pa.Table.from_pylist(again, schema=SCHEMA))
    stream.append([{"t": 10_000, "k": "a", "x": 5, "s": None, "id": -1}])
    db.run_live()
    for name in PATTERNS:
        assert db.live(name).verify() == 0
        found = db.sql(f"SELECT * EXCLUDE (_time, _id, _rev) FROM NET({name})").fetchall()
        assert sorted(found, key=str) == sorted(db.sql(select(name, True)).fetchall(), key=str)
