"""MATCH_SITUATIONS through SQL: the worked examples with their rows, errors and notes."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database
from chronicle.errors import SqlError

FLIGHTS = Path(__file__).resolve().parents[4] / "shared" / "data" / "opensky-switzerland.json.gz"
Stretches = list[tuple[int, int]]


def sampled(ticks: int, **names: Stretches) -> pa.Table:
    """A row a tick; a column of booleans for each name, true within its stretches."""
    columns = {
        name: [any(a <= t < b for a, b in stretches) for t in range(ticks)]
        for name, stretches in names.items()
    }
    return pa.table({"t": pa.array(range(ticks), pa.int64()), **columns})


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with chronicle.open(tmp_path / "store") as opened:
        yield opened


def fill(db: Database, name: str, table: pa.Table) -> None:
    db.create_stream(name, table.schema, time="t").append(table)


def rows(db: Database, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = db.sql(text).arrow().to_pylist()
    return found


# ----------------------------------------------------------------------- worked examples

DRIVERS = """
    SELECT * FROM cars MATCH_SITUATIONS (PARTITION BY car_id
      MEASURES avg(B.speed) AS avg_speed, COMPLETED() AS completed, DETECTED() AS at
      PATTERN (A MEETS | OVERLAPS | STARTS | DURING B
           AND B CONTAINS | FINISHED BY | OVERLAPS | MEETS C AND A BEFORE C) WITHIN 300 {emit}
      DEFINE A AS accel > 8 {a}, B AS speed > 70 {b}, C AS accel < -9 {c})"""


def cars() -> pa.Table:
    table = sampled(40, a=[(2, 8)], b=[(6, 20)], c=[(17, 22)])
    state = table.to_pylist()
    return pa.table(
        {
            "t": table["t"],
            "car_id": pa.array(["x"] * 40),
            "accel": pa.array([9.0 if r["a"] else -10.0 if r["c"] else 0.0 for r in state]),
            "speed": pa.array([80.0 if r["b"] else 50.0 for r in state]),
        }
    )


def test_aggressive_drivers(db: Database) -> None:
    fill(db, "cars", cars())
    lasting = {"a": "LASTING AT LEAST 5", "b": "LASTING BETWEEN 4 AND 30",
               "c": "LASTING AT LEAST 3"}  # fmt: skip
    bare = dict.fromkeys("abc", "")
    row = {"car_id": "x", "avg_speed": 80.0}
    assert rows(db, DRIVERS.format(emit="", **lasting)) == [{**row, "completed": 22, "at": 20}]
    early = "EMIT ON DETECTION"
    assert rows(db, DRIVERS.format(emit=early, **lasting)) == [{**row, "completed": None, "at": 20}]
    assert rows(db, DRIVERS.format(emit=early, **bare)) == [{**row, "completed": None, "at": 17}]


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    if not FLIGHTS.exists():
        pytest.skip("the flights are not here")
    table = pa.Table.from_pylist(json.loads(gzip.decompress(FLIGHTS.read_bytes())))
    at = table.schema.get_field_index("timestamp")
    ticks = table.column(at).cast(pa.timestamp("ms"))
    table = table.set_column(at, "timestamp", ticks).sort_by("timestamp")
    with chronicle.open(tmp_path_factory.mktemp("flights")) as opened:
        opened.create_stream("flights", table.schema, time="timestamp").append(table)
        yield opened


LEAVING = """
    SELECT * FROM flights MATCH_SITUATIONS (PARTITION BY icao24
      MEASURES STARTED(D) AS top, first(D.altitude) AS level, min(D.vertical_rate) AS steepest,
               STARTED(H) AS h, ENDED(H) AS h_ended, ENDED(L) AS l_ended, RELATION(L, D) AS l,
               DETECTED() AS detected, COMPLETED() AS completed
      PATTERN (H OVERLAPS D AND L BEFORE | MEETS D) WITHIN INTERVAL '30' MINUTE {gap} {emit}
      DEFINE H AS altitude > 36000,
             L AS abs(vertical_rate) < 200 LASTING AT LEAST INTERVAL '2' MINUTE,
             D AS vertical_rate < -500 LASTING AT LEAST INTERVAL '1' MINUTE)"""
GAP = "GAP INTERVAL '2' MINUTE"


def test_leaving_cruise_level(flights: Database) -> None:
    late = rows(flights, LEAVING.format(gap=GAP, emit=""))
    assert len(late) == 78
    assert len({row["icao24"] for row in late}) == 63

    def at(clock: str) -> dt.datetime:
        return dt.datetime.fromisoformat(f"2018-08-01T{clock}")

    assert late[0] == {
        "icao24": "451e8b", "top": at("06:17:30"), "level": late[0]["level"],
        "steepest": late[0]["steepest"], "h": at("05:54:20"), "h_ended": at("06:18:40"),
        "l_ended": at("06:17:30"), "l": "MEETS", "detected": at("06:18:40"),
        "completed": at("06:20:30"),
    }  # fmt: skip
    early = rows(flights, LEAVING.format(gap=GAP, emit="EMIT ON DETECTION"))
    key = ("icao24", "top", "h", "detected")
    assert sorted([r[k] for k in key] for r in early) == sorted([r[k] for k in key] for r in late)
    sooner = sorted(row["completed"] - row["detected"] for row in late)
    assert sooner[39] == dt.timedelta(seconds=70)
    assert [r["detected"] for r in early] == sorted(r["detected"] for r in early)


@pytest.mark.parametrize(("emit", "count"), [("", 39), ("EMIT ON DETECTION", 50)])
def test_without_a_gap_aircraft_that_leave_are_missed(
    flights: Database, emit: str, count: int
) -> None:
    assert len(rows(flights, LEAVING.format(gap="", emit=emit))) == count


def test_situations_alone(flights: Database) -> None:
    found = flights.sql(f"""SELECT * FROM flights MATCH_SITUATIONS (PARTITION BY icao24
        PATTERN (C) {GAP} DEFINE C AS altitude > 36000 AND abs(vertical_rate) < 200
        LASTING AT LEAST INTERVAL '20' MINUTE)""").arrow()
    assert found.column_names == ["icao24", "c_started", "c_ended"]
    assert found.num_rows == 218


# ----------------------------------------------------------------------- more of the clause


def test_the_rows_of_a_query_are_sorted_by_its_order(db: Database) -> None:
    fill(db, "s", sampled(50, a=[(10, 20)], b=[(15, 30)]))
    found = db.sql("""SELECT s, r FROM (SELECT t, a, b FROM s WHERE t < 40 ORDER BY b, t DESC)
        MATCH_SITUATIONS (ORDER BY t MEASURES STARTED(A) AS s, RELATION(A, B) AS r
        PATTERN (A OVERLAPS B) DEFINE A AS a, B AS b) WHERE s > 5""")
    assert found.fetchall() == [(10, "OVERLAPS")]


def test_values_of_parameters(db: Database) -> None:
    fill(db, "s", sampled(50, a=[(10, 20)], b=[(15, 30)]))
    text = """SELECT count(*) FROM s MATCH_SITUATIONS (PATTERN (A OVERLAPS B) WITHIN $w
        DEFINE A AS a LASTING AT LEAST $low, B AS b)"""
    assert db.sql(text, {"w": 20, "low": 10}).fetchall() == [(1,)]
    assert db.sql(text, {"w": 19, "low": 10}).fetchall() == [(0,)]
    assert db.sql(text, {"w": 20, "low": 11}).fetchall() == [(0,)]


def test_the_id_of_an_alarm_is_that_of_its_completed_row(db: Database) -> None:
    fill(db, "s", sampled(50, a=[(10, 20)], b=[(15, 30)]))
    text = """SELECT * FROM s MATCH_SITUATIONS (MEASURES MATCH_ID() AS id PATTERN (A OVERLAPS B)
        {} DEFINE A AS a, B AS b)"""
    late, early = (rows(db, text.format(e)) for e in ("", "EMIT ON DETECTION"))
    assert late == early
    assert len(late[0]["id"]) == 16


def test_a_relation_that_the_rest_excludes_is_a_note(db: Database) -> None:
    fill(db, "s", sampled(50, a=[(10, 20)], b=[(15, 30)], c=[(25, 30)]))
    text = """SELECT * FROM s MATCH_SITUATIONS (PATTERN (A OVERLAPS B AND A BEFORE C
        AND B FINISHES | FINISHED BY C) DEFINE A AS a, B AS b, C AS c)"""
    result = db.sql(text)
    assert len(result.notes) == 1
    assert "B FINISHES C can never be" in result.notes[0]
    assert result.fetchall() == [(10, 20, 15, 30, 25, 30)]
    assert "B FINISHES C can never be" in str(db.explain(text))
    assert db.sql("SELECT 1 AS x").notes == ()


ERRORS = [
    ("PATTERN (A BEFORE B) DEFINE A AS a", "B has no condition in DEFINE", 19),
    ("PATTERN (A BEFORE B) DEFINE A AS a, B AS b, C AS a", "DEFINE names C, which is not", 45),
    ("PATTERN (A BEFORE A) DEFINE A AS a", "A has no relation to itself", 10),
    ("PATTERN (A MEETS B AND A OVERLAPS B) DEFINE A AS a, B AS b", "cannot be both MEETS and", 24),
    (
        "PATTERN (A BEFORE B AND B BEFORE C AND C BEFORE A) DEFINE A AS a, B AS b, C AS a",
        "nothing can satisfy",
        10,
    ),
    (
        "PATTERN (A DURING B) DEFINE A AS a LASTING AT LEAST 9, B AS b LASTING AT MOST 5",
        "nothing can satisfy",
        10,
    ),
    (
        "PATTERN (A BEFORE B AND C MEETS D) DEFINE A AS a, B AS b, C AS a, D AS b",
        "no constraint connects C, D with A; say WITHIN",
        0,
    ),
    ("PATTERN (A) DEFINE A AS a LASTING BETWEEN 5 AND 4", "the lower bound comes first", 20),
    ("PATTERN (A) WITHIN INTERVAL '5' MINUTE DEFINE A AS a", "is an integer: WITHIN takes", 0),
    ("PATTERN (A) DEFINE A AS NEXT(a)", "the condition of A sees one event", 0),
    ("PATTERN (A) DEFINE A AS sum(t) > 5", "the condition of A sees one event", 0),
    ("PATTERN (A) DEFINE A AS FIRST(t) > 5", "the condition of A sees one event", 0),
    ("PATTERN (A BEFORE B) DEFINE A AS a, B AS A.t > 5", "A is another situation", 0),
    ("PATTERN (A) DEFINE A AS t", "must be true or false", 20),
    ("PATTERN (A) DEFINE A AS nothing > 5", "no column 'nothing'", 0),
    ("ALL ROWS PER MATCH PATTERN (A) DEFINE A AS a", "join the stream on time", 1),
    ("AFTER MATCH SKIP TO NEXT ROW PATTERN (A) DEFINE A AS a", "none is skipped", 1),
    ("PATTERN (A) SUBSET X = (A) DEFINE A AS a", "MATCH_SITUATIONS has no SUBSET", 13),
    ("ORDER BY a PATTERN (A) DEFINE A AS a", "ORDER BY t, ascending, and nothing else", 0),
    ("MEASURES 1 AS x, 2 AS x PATTERN (A) DEFINE A AS a", "a column x already", 0),
    ("MEASURES t AS x PATTERN (A) DEFINE A AS a", "whose rows it means", 0),
    ("MEASURES STARTED(B) AS x PATTERN (A) DEFINE A AS a", "unknown pattern variable 'B'", 0),
    ("MEASURES STARTED() AS x PATTERN (A) DEFINE A AS a", "STARTED takes one name", 0),
    ("MEASURES sum(ENDED(A)) AS x PATTERN (A) DEFINE A AS a", "ENDED(A) is one value", 0),
    ("MEASURES PREV(A.t) AS x PATTERN (A) DEFINE A AS a", "PREV and NEXT", 0),
    ("MEASURES MATCH_NUMBER() AS x PATTERN (A) DEFINE A AS a", "MATCH_ID()", 0),
    ("PATTERN (A BEFOR B) DEFINE A AS a, B AS b", "did you mean BEFORE?", 12),
    ("PATTERN (A) EMIT ON NOTHING DEFINE A AS a", "expected ON COMPLETION or ON DETECTION", 0),
    ("PATTERN (A) EMIT ON DETECTION", "expected DEFINE", 0),
    ("PATTERN (A) DEFINE A AS (SELECT true)", "a subquery cannot be used", 0),
]


@pytest.mark.parametrize(("clause", "message", "column"), ERRORS)
def test_errors_say_where_and_what(db: Database, clause: str, message: str, column: int) -> None:
    fill(db, "s", sampled(5, a=[(1, 2)], b=[(2, 3)]))
    head = "SELECT * FROM s MATCH_SITUATIONS ("
    with pytest.raises(SqlError) as caught:
        db.sql(f"{head}{clause})")
    assert message in str(caught.value)
    assert caught.value.line == 1
    assert caught.value.column is not None
    if column:
        assert caught.value.column == len(head) + column
