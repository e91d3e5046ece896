"""Live queries over subqueries: patterns over windows, over filters, over unions, over matches."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from chronicle.api.database import catalog_of
from chronicle.errors import SqlError

from ..new_stores import store_with
from ..rounds import rounds

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])
db = store_with("s", "r", schema=SCHEMA)

TUMBLED = (
    "(SELECT k, window_start, sum(x) AS n FROM TUMBLE(s, t, 5) "
    "GROUP BY k, window_start, window_end)"
)
UNITED = "(SELECT t, k, x FROM s UNION ALL SELECT t, 'r' || k, x FROM r WHERE x > 3)"
QUERIES = {
    "over_filter": "SELECT * FROM (SELECT t, k, x FROM s WHERE x > 2) MATCH_RECOGNIZE (PARTITION "
    "BY k ORDER BY t MEASURES FIRST(t) AS f, LAST(t) AS l, LAST(x) AS x PATTERN (A B+) WITHIN 12 "
    "DEFINE A AS x > 5, B AS x < PREV(x)) WHERE f > 3",
    "over_windows": f"SELECT * FROM {TUMBLED} MATCH_RECOGNIZE (PARTITION BY k ORDER BY "
    "window_start MEASURES FIRST(window_start) AS f, LAST(n) AS n PATTERN (A B) WITHIN 25 "
    "DEFINE A AS n > 8, B AS n < PREV(n))",
    "all_rows": "SELECT * FROM (SELECT k, window_end AS e, sum(x) AS n FROM HOP(s, t, 2, 6) "
    "WHERE x > 1 GROUP BY k, window_start, window_end) AS d MATCH_RECOGNIZE (PARTITION BY k "
    "ORDER BY e MEASURES FIRST(e) AS f ALL ROWS PER MATCH PATTERN (A B) WITHIN 8 EVENT SELECTION "
    "SKIP TILL NEXT MATCH DEFINE A AS n > 8, B AS n < 5) AS m",
    "over_sessions": "SELECT * FROM (SELECT k, window_end AS e, count(*) AS n FROM SESSION(r, t, "
    "3, k) GROUP BY k, window_start, window_end) MATCH_RECOGNIZE (PARTITION BY k ORDER BY e "
    "MEASURES FIRST(e) AS f, LAST(n) AS n PATTERN (A B) WITHIN 40 DEFINE B AS n > PREV(n))",
    "over_union": f"SELECT * FROM {UNITED} MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES "
    "FIRST(t) AS f, LAST(x) AS n PATTERN (A B) WITHIN 8 DEFINE A AS x > 5, B AS x < 5)",
    "over_matches": "SELECT * FROM (SELECT k, l, x FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY "
    "t MEASURES LAST(t) AS l, LAST(x) AS x PATTERN (A B) WITHIN 12 DEFINE A AS x > 5, B AS x < "
    "PREV(x))) MATCH_RECOGNIZE (PARTITION BY k ORDER BY l MEASURES FIRST(l) AS f, LAST(l) AS n "
    "PATTERN (A B) WITHIN 15 DEFINE A AS x > 2)",
    "situations_over_filter": "SELECT * FROM (SELECT t, k, x FROM s WHERE x > 0) MATCH_SITUATIONS "
    "(PARTITION BY k ORDER BY t PATTERN (A BEFORE B) WITHIN 20 DEFINE A AS x > 5, B AS x < 3)",
    "situations_over_windows": f"SELECT * FROM {TUMBLED} MATCH_SITUATIONS (PARTITION BY k ORDER BY "
    "window_start PATTERN (A BEFORE B) WITHIN 40 DEFINE A AS n > 8, B AS n < 6)",
    "filtered_windows": f"SELECT k, n * 2 AS m FROM {TUMBLED} WHERE n > 6",
    "filtered_join": "SELECT * FROM (SELECT s.t, r.x AS y, s.k FROM s JOIN r ON s.k = r.k AND r.t "
    "BETWEEN s.t - 3 AND s.t + 2) AS p WHERE p.y > 3",
    "filtered_twice": f"SELECT z FROM (SELECT t + 1 AS z, k FROM {UNITED} AS u) WHERE k <> 'b'",
}


def feed(db: Any, stream: str, *events: tuple[int, str, int]) -> None:
    db.stream(stream).append([{"t": t, "k": k, "x": x} for t, k, x in events])


def _last(value: object) -> bool:
    return str(value).endswith("far") or (isinstance(value, int) and value > 4000)


@pytest.mark.parametrize("seed", range(2))
def test_any_order_of_commits_and_steps(db: Any, seed: int) -> None:
    rng = random.Random(seed)
    for name, sql in QUERIES.items():
        db.create_live(name, sql, idle="never")
    at = {"s": 0, "r": 0}
    for number in range(rounds(27, 40)):
        stream = rng.choice("sr")
        events = []
        for _ in range(rng.randrange(1, 9)):
            at[stream] += rng.randrange(3)
            late = rng.randrange(30) if rng.random() < 0.1 else 0
            events.append((max(0, at[stream] - late), rng.choice("ab"), rng.randrange(10)))
        feed(db, stream, *sorted(events))
        if rng.random() < 0.4:
            db.run_live()
        if number % 13 == 12:
            assert {name: db.live(name).verify() for name in QUERIES} == dict.fromkeys(QUERIES, 0)
    for stream in ("s", "r"):
        feed(db, stream, (5000, "far", 0))
    db.run_live()

    def counted(rows: list[Any]) -> list[Any]:
        """Without what only the last events say."""
        return sorted((row for row in rows if not any(_last(v) for v in row)), key=str)

    for name, sql in QUERIES.items():
        assert db.live(name).status()["error"] is None
        net = db.sql(f"SELECT * EXCLUDE (_time, _id, _rev) FROM NET({name})").fetchall()
        assert counted(net) == counted(db.sql(sql).fetchall()), name
        assert len(net) > 1, name
        assert len(db.live(name).net().column("_id").unique()) == len(net)


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT * FROM (SELECT x, window_start FROM TUMBLE(s, t, 5) GROUP BY ALL) MATCH_RECOGNIZE "
         "(ORDER BY x MEASURES A.x AS y PATTERN (A) WITHIN 3 DEFINE A AS true)",
         "ORDER BY one of its columns for that .window_start"),
        ("SELECT * FROM (SELECT k, x FROM s) MATCH_RECOGNIZE (ORDER BY x MEASURES A.x AS y "
         "PATTERN (A) WITHIN 3 DEFINE A AS x > 1)",
         "select the time, window_start or window_end there"),
        (f"SELECT * FROM {TUMBLED} MATCH_RECOGNIZE (PARTITION BY k ORDER BY window_start "
         "PATTERN (A B) DEFINE A AS n > 1)", "add WITHIN"),
        ("SELECT * FROM (SELECT t, x FROM s WHERE x > 2) MATCH_RECOGNIZE (ORDER BY t MEASURES "
         "MATCH_ID() AS id PATTERN (A) WITHIN 3 DEFINE A AS x > 1)", "MATCH_ID.. needs events"),
        (f"SELECT count(*) FROM {TUMBLED}", "aggregate over a window, in the subquery"),
        ("SELECT * EXCLUDE (x) FROM (SELECT t, x FROM s)", "names its columns"),
        ("SELECT x FROM (SELECT x FROM s LIMIT 3)", "LIMIT cannot be live"),
        ("SELECT x FROM (SELECT x FROM s) ORDER BY x", "ORDER cannot be live"),
        ("SELECT x FROM s WHERE x > (SELECT max(x) FROM r)", "it has no subqueries"),
        ("SELECT n FROM (SELECT window_id, count(*) AS n FROM TUMBLE_ROWS(s, 3) GROUP BY "
         "window_id)", "stand alone"),
    ],
)  # fmt: skip
def test_refusals(db: Any, sql: str, error: str) -> None:
    with pytest.raises(SqlError, match=f"(?s){error}.*line 1, column"):
        db.create_live("q", sql)
    assert db.live_queries() == []


def test_a_pattern_over_windows_reads_new_windows_only(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.create_live("q", QUERIES["over_windows"], idle="never")
    inner = catalog_of(db).live_statements.query("q").form.relation.inner
    read, wrapped = [], inner.results

    def noted(moment: Any, low: int, high: int, known: int) -> Any:
        found = wrapped(moment, low, high, known)
        read.append(len(found))
        return found

    monkeypatch.setattr(inner, "results", noted)
    for begin in range(0, 2000, 50):
        feed(db, "s", *((t, "ab"[t % 2], t * 7 % 10) for t in range(begin, begin + 50)))
        db.run_live()
    assert db.live("q").status()["rows"] > 50
    assert sum(read) < 1200  # of 800 windows; the first steps read some twice
    assert db.live("q").verify() == 0
