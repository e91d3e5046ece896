"""Live queries and roll-ups over views: they follow what the views' queries say."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import SqlError
from chronicle.live.forms import StreamForm

from ..rounds import rounds

SCHEMA = pa.schema(
    [
        ("t", pa.int64()),
        ("k", pa.string()),
        ("x", pa.int64()),
        ("at", pa.struct([("y", pa.int64())])),
    ]
)
VIEWS = {
    "high": "SELECT * FROM s WHERE x > 2 OR k = 'b'",
    "named": "SELECT t, k AS key, x * 2 AS twice FROM high WHERE high.k <> 'c'",
    "inside": "SELECT * FROM s AS q WHERE at.y > 3 AND q.at.y < 9",
    "flat": "SELECT t, x, at.y AS y FROM high",
    "both": "SELECT * FROM high WHERE high.at.y > 1",
    "filled": "SELECT t AS moment, coalesce(x, 99) AS full, upper(k) AS letter, at AS place, k, "
    "CASE WHEN x > 6 THEN 'high' ELSE 'low' END AS height FROM s WHERE at.y <> 5",
    "again": "SELECT f.moment AS u, f.*, f.full + 1 AS more FROM filled AS f WHERE full < 95",
    "tumbled": "SELECT k, window_start, sum(x) AS n FROM TUMBLE(s, t, 5) GROUP BY k, window_start, "
    "window_end",
}
QUERIES = {
    "rows": "SELECT t, x FROM high WHERE x < 8",
    "listed": "SELECT t, k, x FROM both",
    "stars": "SELECT * FROM flat",
    "of_view": "SELECT key, twice FROM named WHERE twice > 4",
    "members": "SELECT t, v.x FROM inside AS v",
    "windows": "SELECT k, window_start, count(*) AS n FROM TUMBLE(high, t, 6) WHERE x < 9 GROUP BY "
    "k, window_start, window_end",
    "windows_of_member": "SELECT window_start, sum(x) AS n FROM HOP(inside, t, 2, 4) GROUP BY "
    "window_start, window_end",
    "pattern": "SELECT * FROM high MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES FIRST(t) AS "
    "f, LAST(t) AS l PATTERN (A B) WITHIN 12 DEFINE A AS x > 5, B AS x < PREV(x))",
    "over_windows": "SELECT * FROM tumbled MATCH_RECOGNIZE (PARTITION BY k ORDER BY window_start "
    "MEASURES FIRST(window_start) AS f, LAST(n) AS n PATTERN (A B) WITHIN 25 DEFINE A AS n > 8, "
    "B AS n < PREV(n))",
    "situations": "SELECT * FROM high MATCH_SITUATIONS (PARTITION BY k ORDER BY t PATTERN "
    "(A BEFORE B) WITHIN 20 DEFINE A AS x > 5, B AS x < 3)",
    "joined": "SELECT high.t, r.x AS y, high.k FROM high JOIN r ON high.k = r.k AND r.t BETWEEN "
    "high.t - 3 AND high.t + 2 WHERE r.x > 1",
    "left_joined": "SELECT a.t, b.x AS y, b.at.y AS z FROM r AS a LEFT JOIN inside AS b ON a.k = "
    "b.k AND b.t BETWEEN a.t - 3 AND a.t + 2",
    "computed": "SELECT r.t, n.twice, key, n.twice + r.x AS total FROM r JOIN named AS n ON "
    "n.key = r.k AND n.t BETWEEN r.t - 3 AND r.t + 2 WHERE twice <> 8",
    "left_computed": "SELECT r.t, r.x, moment, full, letter || 's' AS letters FROM r LEFT JOIN "
    "filled ON letter = upper(r.k) AND moment BETWEEN r.t - 2 AND r.t + 1 AND full > r.x",
    "not_there": "SELECT r.t, r.k, height, full FROM r LEFT JOIN filled ON filled.k = r.k AND "
    "moment BETWEEN r.t AND r.t + 2 WHERE coalesce(full, 0) < 7 AND height IS DISTINCT FROM 'no'",
    "of_computed": "SELECT a.u, a.more, place.y, a.place.y AS z, r.x FROM again AS a LEFT JOIN r "
    "ON r.k = a.k AND r.t BETWEEN a.u - 2 AND a.u + 2 WHERE more > 3",
    "both_computed": "SELECT named.*, u, full, again.k FROM named JOIN again ON key = k AND "
    "u BETWEEN t - 1 AND t + 1",
    "written_out": "SELECT r.t, v.y2 FROM r JOIN (SELECT t AS tt, x * x AS y2 FROM s) AS v ON "
    "v.y2 < r.x * 3 AND v.tt BETWEEN r.t - 1 AND r.t",
    "all_of_it": "SELECT * FROM named JOIN (SELECT t AS u, x AS y FROM r) AS q ON y < twice AND "
    "u BETWEEN t AND t + 1",
    "alias_again": "SELECT v.u AS x, x + 1 AS y, v.j AS k, upper(k) AS m FROM (SELECT t AS w, k AS "
    "q FROM r) AS o JOIN (SELECT t AS u, k AS j FROM s) AS v ON v.u = o.w",
    "listed_twice": "SELECT r.t, v.z[2] AS z FROM r JOIN (SELECT t, list_transform([x, x + 1], e "
    "-> e + 1) AS z FROM s) AS v ON v.t = r.t",
    "recent": "SELECT l.t, l.x AS lx, a.x, a.k FROM r AS l RECENT JOIN high AS a ON a.k = l.k "
    "WITHIN 5",
    "recent_computed": "SELECT l.t, l.x, a.twice FROM r AS l RECENT JOIN named AS a ON "
    "a.key = l.k AND a.twice > l.x WITHIN 4",
    "recent_left": "SELECT a.moment, a.full, a.letter, l.x FROM filled AS a RECENT LEFT JOIN r AS "
    "l ON upper(l.k) = a.letter WITHIN 4",
    "recent_period": "SELECT l.t, a.more FROM r AS l RECENT JOIN again AS a PERIOD (u, moment) ON "
    "a.k = l.k WITHIN 3",
    "recent_semi": "SELECT n.t, n.twice FROM named AS n RECENT SEMI JOIN r AS l ON l.k = n.key "
    "WITHIN 2",
    "united": "SELECT t, x FROM high UNION ALL SELECT t, x FROM r WHERE x = 1",
}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with chronicle.open(tmp_path / "store") as opened:
        for name in ("s", "r"):
            opened.create_stream(name, SCHEMA, time="t")
        for name, sql in VIEWS.items():
            opened.sql(f"CREATE VIEW {name} AS {sql}")
        yield opened


def feed(db: Any, stream: str, events: list[tuple[int, str, int, int]]) -> None:
    db.stream(stream).append([{"t": t, "k": k, "x": x, "at": {"y": y}} for t, k, x, y in events])


def grow(db: Any, rng: random.Random, at: dict[str, int]) -> None:
    stream = rng.choice("sr")
    events = []
    for _ in range(rng.randrange(1, 12)):
        at[stream] += rng.randrange(3)
        late = rng.randrange(30) if rng.random() < 0.1 else 0
        values = rng.choice("abc"), rng.randrange(10), rng.randrange(12)
        events.append((max(0, at[stream] - late), *values))
    feed(db, stream, sorted(events))


def finish(db: Any) -> None:
    for stream in ("s", "r"):
        feed(db, stream, [(5000, "far", 0, 0)])
    db.run_live()


def _far(value: object) -> bool:
    return str(value) == "far" or (isinstance(value, int) and value > 4000)


def agrees(db: Any, name: str, sql: str) -> int:
    """Compare what holds with what the SELECT gives; without what only the last events say."""
    net = db.sql(f"SELECT * EXCLUDE (_time, _id, _rev) FROM NET({name})").fetchall()
    sides = [
        sorted((row for row in rows if not any(map(_far, row))), key=str)
        for rows in (net, db.sql(sql).fetchall())
    ]
    assert sides[0] == sides[1], name
    return len(sides[0])


@pytest.mark.parametrize("seed", range(2))
def test_what_holds_is_what_the_query_over_the_view_gives(db: Any, seed: int) -> None:
    rng = random.Random(seed)
    for name, sql in QUERIES.items():
        db.sql(f"CREATE LIVE QUERY {name} IDLE NEVER AS {sql}")
    at = {"s": 0, "r": 0}
    for number in range(rounds(24, 60)):
        grow(db, rng, at)
        if rng.random() < 0.4:
            db.run_live()
        if number == 20:
            assert {name: db.live(name).verify() for name in QUERIES} == dict.fromkeys(QUERIES, 0)
    finish(db)
    for name, sql in QUERIES.items():
        assert db.live(name).status()["error"] is None, name
        assert agrees(db, name, sql) > 1, name


def test_views_that_only_filter_are_conditions_of_the_stream(db: Any) -> None:
    """So their rows are tested without the executor, and shared with other filters."""
    for name, sql in (("a", "SELECT t, k FROM both"), ("b", "SELECT t, x FROM high WHERE x < 8")):
        live = db.create_live(name, sql, idle="never")
        form = catalog_of(db).live_statements.query(name).form
        assert isinstance(form, StreamForm)
        assert live.status()["sources"] == ["s"]


def test_a_view_may_change_and_the_live_query_stays_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "store"
    spelled = "SELECT t, k AS key, x * 2 AS twice FROM s WHERE (x > 2 OR k = 'b') AND k <> 'c'"
    rng, at = random.Random(7), {"s": 0, "r": 0}
    with chronicle.open(path) as db:
        for name in ("s", "r"):
            db.create_stream(name, SCHEMA, time="t")
        for name in ("high", "named"):
            db.sql(f"CREATE VIEW {name} AS {VIEWS[name]}")
        db.create_live("q", "SELECT * FROM named", idle="never")
        for _ in range(20):
            grow(db, rng, at)
        db.run_live()
        db.sql("CREATE OR REPLACE VIEW high AS SELECT * FROM r")
        db.sql("DROP VIEW named")
        described = dict(catalog_of(db).live_statements.describe("q"))
        assert described["views"] == f"named AS {VIEWS['named']}; high AS {VIEWS['high']}"
        plan = db.sql("EXPLAIN LIVE QUERY q").fetchall()
        assert '"x" > 2' in str(plan)
    with chronicle.open(path) as db:
        for _ in range(20):
            grow(db, rng, at)
        finish(db)
        assert agrees(db, "q", spelled) > 5
        assert db.live("q").verify() == 0
        with pytest.raises(SqlError, match="no stream 'named'"):
            db.create_live("again", "SELECT * FROM named")


def test_a_rollup_over_a_view_answers_for_it(db: Any) -> None:
    db.sql(
        "CREATE ROLLUP sums AS SELECT window_start, k, sum(x) AS x, count(*) AS n FROM "
        "TUMBLE(high, t, 10) GROUP BY window_start, window_end, k"
    )
    rng, at = random.Random(3), {"s": 0, "r": 0}
    for _ in range(60):
        grow(db, rng, at)
    finish(db)
    asked = (
        "SELECT window_start, sum(x) AS x FROM TUMBLE(high, t, 20) WHERE t < 20 GROUP BY "
        "window_start, window_end ORDER BY window_start"
    )
    plain = asked.replace("SELECT", "SELECT /*+ strategy(replay) */", 1)
    assert db.sql(asked).fetchall() == db.sql(plain).fetchall()
    whole = asked.replace("WHERE t < 20 ", "")
    assert "sums" in str(db.explain(whole))
    assert (
        db.sql(whole).fetchall()
        == db.sql(whole.replace("SELECT", "SELECT /*+ strategy(replay) */", 1)).fetchall()
    )
    spelled = whole.replace("high", "s").replace("GROUP", "WHERE x > 2 OR k = 'b' GROUP")
    assert db.sql(whole).fetchall() == db.sql(spelled).fetchall()


@pytest.mark.parametrize(
    ("view", "sql", "error"),
    [
        ("SELECT * FROM s ORDER BY x", "SELECT * FROM v", "the view 'v': ORDER cannot be live"),
        ("SELECT DISTINCT k FROM s", "SELECT * FROM v", "the view 'v': DISTINCT cannot be live"),
        ("SELECT k, count(*) AS n FROM s GROUP BY k", "SELECT * FROM v",
         "the view 'v': an aggregate over all events is never known"),
        ("SELECT * FROM s WHERE t < epoch(now())", "SELECT * FROM v",
         "the view 'v': a live query must give the same"),
        ("WITH z AS (SELECT * FROM s) SELECT * FROM z", "SELECT * FROM v",
         "the view 'v': WITH cannot be live"),
        ("SELECT * FROM s WHERE x > (SELECT max(x) FROM r)", "SELECT * FROM v", "no subqueries"),
        ("SELECT DISTINCT t, k FROM s", "SELECT r.t FROM r LEFT JOIN v ON v.k = r.k AND v.t = r.t",
         "the view 'v': DISTINCT cannot be live"),
        ("SELECT t, unnest([k, 'a']) AS k FROM s", "SELECT r.t FROM r JOIN v ON v.t = r.t",
         "the view 'v': a live query of events gives one row for each"),
        ("SELECT window_end AS t FROM TUMBLE(s, t, 5) GROUP BY window_start, window_end",
         "SELECT r.t FROM r JOIN v ON v.t = r.t",
         "the view 'v': a live join is of two streams, or of queries and views"),
        ("SELECT t, epoch(now()) AS k FROM s", "SELECT r.t FROM r JOIN v ON v.t = r.t",
         "the view 'v': a live query must give the same"),
        ("SELECT t + x AS t FROM s", "SELECT r.t FROM r JOIN v ON v.t BETWEEN r.t AND r.t + 2",
         "the view 'v': a live join compares times: select the time here"),
        ("SELECT x, k FROM s", "SELECT v.t FROM r JOIN v ON v.k = r.k AND r.t = v.t", "column"),
        ("SELECT x, k FROM s", "SELECT r.t FROM r RECENT JOIN v ON v.k = r.k WITHIN 4",
         "the view 'v': rows of a query have no times of their own"),
        ("SELECT t, k FROM s", "SELECT count(*) FROM TUMBLE(v, t, 5) GROUP BY window_start",
         "is a view, and TUMBLE reads a stream"),
        ("SELECT t, k FROM s", "SELECT count(*) FROM v", "aggregate over a window"),
        ("SELECT k, x FROM s", "SELECT * FROM v MATCH_RECOGNIZE (ORDER BY x MEASURES A.x AS y "
         "PATTERN (A) WITHIN 3 DEFINE A AS x > 1)", "select the time"),
        ("SELECT table_name FROM information_schema.tables", "SELECT * FROM v", "system table"),
    ],
)  # fmt: skip
def test_views_that_cannot_be_followed(db: Any, view: str, sql: str, error: str) -> None:
    db.sql(f"CREATE VIEW v AS {view}")
    with pytest.raises(SqlError, match=f"(?s){error}.*line 1, column"):
        db.create_live("q", sql)
    assert db.live_queries() == []
