"""MATCH_RECOGNIZE through SQL: a database, a stream, segments, late events, subqueries."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import QueryTimeout, SqlError
from chronicle.query.pattern import matcher

ACME = [12, 17, 19, 21, 25, 12, 15, 20, 24, 25, 19, 15, 25, 25, 14, 12, 14, 24, 23, 22]
V_SHAPE = """
SELECT * FROM ticker MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY tstamp
  MEASURES STRT.tstamp AS start_day, LAST(DOWN.tstamp) AS bottom_day, LAST(UP.tstamp) AS end_day
  ONE ROW PER MATCH AFTER MATCH SKIP TO LAST UP
  PATTERN (STRT DOWN+ UP+)
  DEFINE DOWN AS DOWN.price < PREV(DOWN.price), UP AS UP.price > PREV(UP.price)
) AS m
"""


def day(n: int) -> dt.datetime:
    return dt.datetime(2011, 4, n)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    schema = pa.schema(
        [("tstamp", pa.timestamp("us")), ("symbol", pa.string()), ("price", pa.int64())]
    )
    with chronicle.open(tmp_path_factory.mktemp("store")) as database:
        stream = database.create_stream("ticker", schema, time="tstamp")
        days = [n for n in range(1, 21) if n != 12]
        stream.append([{"tstamp": day(n), "symbol": "ACME", "price": ACME[n - 1]} for n in days])
        stream.seal()
        stream.append([{"tstamp": day(n), "symbol": "OTHER", "price": n} for n in range(1, 21)])
        stream.append([{"tstamp": day(12), "symbol": "ACME", "price": ACME[11]}])  # late
        yield database


def test_matches_span_segments_and_late_events(db: Any) -> None:
    rows = db.sql(V_SHAPE + "WHERE symbol = 'ACME' ORDER BY start_day").fetchall()
    assert rows == [
        ("ACME", day(5), day(6), day(10)),
        ("ACME", day(10), day(12), day(13)),
        ("ACME", day(14), day(16), day(18)),
    ]


def test_the_result_is_a_relation(db: Any) -> None:
    text = f"SELECT count(*), max(end_day) FROM ({V_SHAPE}) v"
    assert db.sql(text).fetchall() == [(3, day(18))]
    joined = f"SELECT price FROM ({V_SHAPE}) v JOIN ticker t ON t.tstamp = v.bottom_day ORDER BY 1"
    assert sorted(r[0] for r in db.sql(joined).fetchall()) == [6, 12, 12, 12, 15, 16]


def test_subqueries_and_parameters(db: Any) -> None:
    text = """SELECT twice_a FROM
      (SELECT tstamp, price * 2.0 AS twice FROM ticker WHERE symbol = $s) MATCH_RECOGNIZE (
        ORDER BY tstamp MEASURES A.twice AS twice_a PATTERN (A B) WITHIN INTERVAL '1' DAY
        DEFINE B AS twice < A.twice - $fall) ORDER BY 1"""
    assert db.sql(text, {"s": "ACME", "fall": 20}).fetchall() == [(50.0,), (50.0,)]
    assert db.sql(text, {"s": "ACME", "fall": 25}).fetchall() == [(50.0,)]
    within = V_SHAPE.replace("UP+)", "UP+) WITHIN ?") + "WHERE symbol = 'ACME'"
    assert db.sql(within, [dt.timedelta(days=1)]).fetchall() == []
    assert len(db.sql(within, [dt.timedelta(days=3)]).fetchall()) == 3
    far = "SELECT count(*) FROM ticker MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS tstamp < ?)"
    assert db.sql(far, [dt.datetime(9999, 12, 31)]).fetchone()[0] > 0


def test_a_clause_without_output_counts_its_matches_and_shows_nothing(db: Any) -> None:
    clause = "FROM ticker MATCH_RECOGNIZE (PATTERN (A B) DEFINE A AS price {})"
    for condition, matches in (("> 20", 9), ("> 99", 0)):  # whether there are matches or none
        text = clause.format(condition)
        numbered = text.replace("(PATTERN", "(MEASURES MATCH_NUMBER() AS m PATTERN")
        assert db.sql(f"SELECT count(*) {numbered}").fetchall() == [(matches,)]
        assert db.sql(f"SELECT count(*) {text}").fetchall() == [(matches,)]
        assert db.sql(f"SELECT 'hit' AS h {text} AS m").fetchall() == [("hit",)] * matches
        for star in ("*", "m.*", "COLUMNS(*)"):
            with pytest.raises(SqlError, match=r"add MEASURES MATCH_NUMBER\(\) AS match.*line 1"):
                db.sql(f"SELECT {star} {text} AS m")
            with pytest.raises(SqlError, match="add MEASURES"):
                db.sql(f"SELECT count(*) FROM (SELECT {star} {text} AS m)")


def test_timeouts_end_a_search(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "SLICE_STEPS", 100_000)
    table = pa.table({"t": range(20_000), "x": [1.0] * 20_000})
    db.create_stream("ones", table.schema, time="t").append(table)
    text = """SELECT count(*) FROM ones MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a
        PATTERN (A+ C) DEFINE A AS x = FIRST(A.x), C AS x > A.x)"""
    with pytest.raises(QueryTimeout):
        db.sql(text, timeout=0.1).fetchall()


RISES = """MATCH_RECOGNIZE (ORDER BY tstamp MEASURES A.tstamp AS tstamp, LAST(B.price) AS price
  PATTERN (A B+) DEFINE B AS price > PREV(price))"""
TALL = (
    "MATCH_RECOGNIZE (ORDER BY tstamp MEASURES A.price AS price PATTERN (A) DEFINE A AS price > 24)"
)
RISE_OF_ACME = [24, 25, 25, 25]  # days 16-18, 1-5, 6-10, 12-13


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("WITH x AS (SELECT * FROM acme) SELECT price FROM x {rises}", "rises"),
        (
            "WITH x AS (SELECT * FROM ticker), y AS (SELECT * FROM x WHERE symbol = 'ACME') "
            "SELECT price FROM y {rises}",
            "rises",
        ),
        (
            "WITH x(tstamp, price) AS (SELECT tstamp, price FROM acme) "
            "SELECT a.price FROM x {rises} a JOIN x {rises} b ON a.tstamp = b.tstamp",
            "rises",
        ),
        ("WITH m AS (SELECT * FROM acme {rises}) SELECT price FROM m", "rises"),
        ("WITH m AS (SELECT * FROM acme {rises}) SELECT price FROM m {tall}", "tall"),
        ("SELECT price FROM (SELECT tstamp, price + 0 AS price FROM acme {rises}) {tall}", "tall"),
        ("SELECT price FROM acme {rises} {tall}", "tall"),
        ("WITH x AS (SELECT * FROM acme) SELECT price FROM x {rises} {tall}", "tall"),
        (
            "SELECT price FROM acme {tall} WHERE false "
            "UNION ALL SELECT price FROM acme {rises}",
            "rises",
        ),
        (
            "WITH x AS (SELECT * FROM acme) SELECT m.price FROM ticker t JOIN x {rises} m "
            "ON m.tstamp = t.tstamp AND t.symbol = 'OTHER'",
            "rises",
        ),
        # an inner WITH gives a name anew
        (
            "WITH x AS (SELECT * FROM acme), y AS (SELECT * FROM x) SELECT price FROM "
            "(WITH x AS (SELECT * FROM x WHERE price > 99) SELECT price FROM y {rises})",
            "rises",
        ),
        (
            "WITH x AS (SELECT * FROM ticker) SELECT price FROM "
            "(WITH x AS (SELECT * FROM x WHERE symbol = 'ACME') SELECT price FROM x {rises})",
            "rises",
        ),
        (
            "WITH x AS (SELECT * FROM ticker) SELECT price FROM "
            "(WITH x AS (SELECT * FROM x WHERE symbol = 'ACME') SELECT * FROM x) {rises}",
            "rises",
        ),
        (
            "WITH RECURSIVE r AS (SELECT 1 AS tstamp, 10 AS price UNION ALL "
            "SELECT tstamp + 1, price * 7 % 45 FROM r WHERE tstamp < 4) "
            "SELECT price FROM r {rises}",
            [40],
        ),
    ],
)  # fmt: skip
def test_where_the_clause_may_stand(db: Any, text: str, expected: Any) -> None:
    wanted = {"rises": RISE_OF_ACME, "tall": RISE_OF_ACME[1:]}.get(str(expected), expected)
    acme = "(SELECT * FROM ticker WHERE symbol = 'ACME')"
    text = text.replace("acme", acme).format(rises=RISES, tall=TALL)
    assert sorted(row[0] for row in db.sql(text).fetchall()) == wanted


def test_what_comes_after_a_match_is_not_left_out(db: Any) -> None:
    """An absence at the end asks for events that no symbol of the pattern stands for."""
    schema = pa.schema([("t", pa.int64()), ("x", pa.float64())])
    stream = db.create_stream("quiet", schema, time="t")
    stream.append(pa.table({"t": range(9000), "x": [float(i % 1000) for i in range(9000)]}))
    stream.append(pa.table({"t": [9005, 9006], "x": [7.0, 8.0]}))
    db.sql("CREATE INDEX ON quiet (x)").fetchall()
    text = """SELECT {} * FROM quiet MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS t
      PATTERN (A B [^X]) WITHIN 4 EVENT SELECTION SKIP TILL ANY MATCH
      DEFINE A AS x = 7, B AS x = 8, X AS x >= 9) ORDER BY 1"""
    assert db.sql(text.format("/*+ strategy(all) */")).fetchall() == [(9005,)]
    assert db.sql(text.format("/*+ strategy(replay) */")).fetchall() == [(9005,)]
    assert "in 1 intervals" in str(db.explain(text.format("/*+ strategy(all) */")))
