"""One moment is now() in all of a query: in operators and in what feeds them, too."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database
from chronicle.query.plan import planner
from chronicle.query.run import match_operator


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with chronicle.open(tmp_path / "store") as database:
        database.sql("CREATE STREAM s (t TIMESTAMP, x INTEGER) TIMESTAMP BY t")
        database.sql(
            "INSERT INTO s SELECT now()::TIMESTAMP - to_minutes(40 - i), i FROM range(40) r(i)"
        )
        yield database


RECENT = "t > now()::TIMESTAMP - INTERVAL '10 minutes'"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"SELECT count(*) FROM s WHERE {RECENT}", 9),
        (f"SELECT sum(n) FROM (SELECT count(*) AS n FROM TUMBLE(s, t, INTERVAL '7 minutes') "
         f"WHERE {RECENT} AND x % 1 = 0 GROUP BY window_start, window_end)", 9),
        (f"SELECT count(*) FROM TUMBLE_ROWS(s, 1) WHERE {RECENT} AND x > $low", 7),
        (f"SELECT count(*) FROM (SELECT t, x FROM s WHERE {RECENT}) MATCH_RECOGNIZE (ORDER BY t "
         "MEASURES A.x AS x PATTERN (A) DEFINE A AS x > $low)", 7),
        ("SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.x AS x PATTERN (A) "
         f"DEFINE A AS {RECENT} AND x > $low)", 7),
    ],
)  # fmt: skip
def test_the_moment_reaches_operators(db: Database, query: str, expected: int) -> None:
    params = {"low": 32} if "$low" in query else None
    assert db.sql(query, params).fetchall() == [(expected,)]


def test_all_of_a_query_has_one_moment(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    plain = planner.moment
    monkeypatch.setattr(planner, "moment", lambda: asked.append(plain()) or asked[-1])
    text = (
        f"SELECT now(), count(*) FROM (SELECT t, now() AS m FROM s WHERE {RECENT}) MATCH_RECOGNIZE "
        "(ORDER BY t MEASURES A.m AS m PATTERN (A))"
    )
    row = db.sql(text).fetchone()
    assert row is not None
    assert row[0] == asked[0]
    moments = db.sql(text.replace("now(), count(*)", "DISTINCT m = now()")).fetchall()
    assert moments == [(True,)]


def test_an_operator_and_what_feeds_it_see_one_state(db: Database) -> None:
    """What is appended when the query has begun to run is in none of its relations."""
    stream = db.stream("s")
    late = {"t": [dt.datetime(2100, 1, 1)], "x": [99]}
    text = (
        "SELECT count(*), (SELECT count(*) FROM s) FROM (SELECT t, x FROM s WHERE x % 1 = 0) "
        "MATCH_RECOGNIZE (ORDER BY t MEASURES A.x AS x PATTERN (A))"
    )
    plain = match_operator.MatchOperator._input

    def rows(self: match_operator.MatchOperator) -> Any:
        stream.append(pa.table(late, schema=stream.schema))
        return plain(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(match_operator.MatchOperator, "_input", rows)
        ((matches, events),) = db.sql(text).fetchall()
    assert matches == events
