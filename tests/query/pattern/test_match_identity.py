"""MATCH_ID(): the same for a match wherever the input begins, and however many come before."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import SqlError

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])

CLAUSES = (
    "PATTERN (A B+) WITHIN 20 DEFINE A AS x > 6, B AS x < PREV(x)",
    "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN 9 DEFINE A AS x > 6, B AS x < 3",
    "PATTERN (A B) WITHIN 12 EVENT SELECTION SKIP TILL NEXT MATCH DEFINE A AS x > 7, B AS x < 2",
    "PATTERN (A B) WITHIN 6 EVENT SELECTION SKIP TILL ANY MATCH DEFINE A AS x > 7, B AS x < 2",
)


def rows_of(seed: int, count: int = 600) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    ticks = sorted(rng.randrange(count // 3) for _ in range(count))
    return [{"t": t, "k": rng.choice("ab"), "x": rng.randrange(10)} for t in ticks]


def stored(path: Path, rows: list[dict[str, Any]]) -> Any:
    db = chronicle.open(path)
    db.create_stream("s", SCHEMA, time="t").append(rows)
    return db


def matches(db: Any, clause: str) -> dict[bytes, tuple[Any, ...]]:
    found = db.sql(
        "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES "
        f"MATCH_ID() AS id, MATCH_TIME() AS mt, FIRST(t) AS f, LAST(t) AS l {clause})"
    ).fetchall()
    ids = [row[1] for row in found]
    assert len(set(ids)) == len(ids)
    assert all(len(i) == 16 for i in ids)
    assert all(row[2] == row[4] for row in found)
    return {row[1]: row for row in found}


@pytest.mark.parametrize("clause", CLAUSES)
def test_late_events_leave_the_ids_of_others(tmp_path: Path, clause: str) -> None:
    rows = rows_of(4)
    db = stored(tmp_path / "a", rows)
    before = matches(db, clause)
    assert len(before) > 5
    db.stream("s").append([{"t": rows[0]["t"], "k": "a", "x": 5}, {"t": 5, "k": "c", "x": 9}])
    after = matches(db, clause)
    moved = {i for i, row in before.items() if row[3] > 60} - set(after)
    assert not moved


def test_ids_ignore_how_the_text_is_written(tmp_path: Path) -> None:
    db = stored(tmp_path / "a", rows_of(5))
    one = db.sql(
        "SELECT id FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES MATCH_ID() AS id "
        "PATTERN (A B+) DEFINE A AS x > 6, B AS x < PREV(x))"
    ).fetchall()
    two = db.sql(
        "select ID, X from S match_recognize (partition by K order by T measures last(b.x) as x, "
        "match_id() as id pattern ( a   b+ ) define a as (X > 6), /* down */ B as x < prev(X)) as m"
    ).fetchall()
    assert [row[0] for row in one] == [row[0] for row in two]
    other = db.sql(
        "SELECT id FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES MATCH_ID() AS id "
        "PATTERN (A B+) DEFINE A AS x > 5, B AS x < PREV(x))"
    ).fetchall()
    assert not {row[0] for row in one} & {row[0] for row in other}


def test_events_of_all_rows_are_told_apart(tmp_path: Path) -> None:
    db = stored(tmp_path / "a", rows_of(6))
    found = db.sql(
        "SELECT id, ev FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES MATCH_ID() AS id, "
        "MATCH_EVENT() AS ev ALL ROWS PER MATCH PATTERN (A B+) DEFINE A AS x > 6, B AS x < PREV(x))"
    ).fetchall()
    assert len(set(found)) == len(found) > 10


@pytest.mark.parametrize(
    ("clause", "reason"),
    [
        ("MEASURES MATCH_ID(1) AS i PATTERN (A)", "takes no argument"),
        ("MEASURES x AS i PATTERN (A) DEFINE A AS MATCH_ID() = x", "not in DEFINE"),
        ("ORDER BY x MEASURES MATCH_ID() AS i PATTERN (A)", "order of time"),
    ],
)
def test_refusals(tmp_path: Path, clause: str, reason: str) -> None:
    db = stored(tmp_path / "a", rows_of(1, 9))
    with pytest.raises(SqlError, match=reason):
        db.sql(f"SELECT * FROM s MATCH_RECOGNIZE ({clause})").fetchall()
