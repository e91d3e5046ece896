"""RECENT JOIN as SQL: the paper's Table 1, every form of the statement, every refusal."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import chronicle

from ... import oracles_recent as oracle
from .conftest import ARCHIVE, LIVE, PRICES

ORDERS = ("eager", "live_first", "archive_first", "both", "auto")
TABLE_1 = [
    (2, 5, 7.0, 6.0, 6.0, 7.0),
    (2, 7, 11.0, 8.0, 6.0, 7.0),
    (2, 9, 8.0, 3.0, 6.0, 7.0),
    (4, 7, 11.0, 8.0, 7.0, 11.0),
    (4, 9, 8.0, 3.0, 7.0, 11.0),
]
"""The results of the paper: start, end, live init and low, archive init and high."""


def joined(db: Any, what: str = "l.init, a.init", join: str = "RECENT JOIN", **parts: Any) -> Any:
    on = parts.get("on", "a.symbol = l.symbol")
    text = f"SELECT {parts.get('hint', '')} {what} FROM {LIVE} {join} {ARCHIVE} "
    text += (f"ON {on} " if on else "") + parts.get("within", "WITHIN 7") + parts.get("tail", "")
    return db.sql(text, parts.get("params")).fetchall()


@pytest.mark.parametrize("order", ORDERS)
def test_table_1(table1: Any, order: str) -> None:
    what = "match_start(a), match_end(l), l.init, l.low, a.init, a.high"
    assert joined(table1, what, hint=f"/*+ recent({order}) */") == TABLE_1


def test_table_1_by_definition() -> None:
    rows = [{"t": t, "price": price} for t, price in enumerate(PRICES)]

    def falls(w: Any, p: Any, a: int, n: str) -> bool:
        return a > 0 and w[a]["price"] < w[a - 1]["price"]

    def first(w: Any, p: Any) -> float:
        return float(w[p[0][0]]["price"])

    fall = ("cat", ("var", "A"), ("rep", ("var", "B"), 1, None, True))
    tick = (
        "cat", ("var", "A"), ("rep", ("var", "B"), 1, None, True),
        ("rep", ("var", "C"), 0, None, True), ("rep", ("var", "D"), 1, None, True),
    )  # fmt: skip
    conditions = {
        "B": falls,
        "C": lambda w, p, a, n: w[a]["price"] >= w[a - 1]["price"] and w[a]["price"] <= first(w, p),
        "D": lambda w, p, a, n: w[a]["price"] > w[a - 1]["price"] and w[a]["price"] > first(w, p),
    }
    live = oracle.incremental(oracle.contiguous(rows, fall, conditions))
    archive = oracle.maximal(oracle.contiguous(rows, tick, conditions))
    assert [m[:2] for m in live] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert [m[:2] for m in archive] == [(2, 4), (4, 6)]
    pairs = oracle.joined(archive, live, distance=7)
    assert [(archive[j][0], live[i][1]) for i, j in pairs] == [row[:2] for row in TABLE_1]


def test_kinds(table1: Any) -> None:
    pairs = [(7.0, 6.0), (11.0, 6.0), (8.0, 6.0), (11.0, 7.0), (8.0, 7.0)]
    assert joined(table1) == pairs
    assert joined(table1, join="RECENT LEFT JOIN") == [*pairs, (10.0, None), (6.0, None)]
    assert joined(table1, "l.init", join="RECENT SEMI JOIN") == [(7.0,), (11.0,), (8.0,)]
    assert joined(table1, "l.init", join="RECENT ANTI JOIN") == [(10.0,), (6.0,)]
    last = [(7.0, 6.0), (11.0, 7.0), (8.0, 7.0)]
    assert joined(table1, join="RECENT LAST 1 JOIN") == last
    assert joined(table1, join="RECENT LAST 1 LEFT JOIN")[:3] == last
    assert joined(table1, join="RECENT LAST 5 JOIN") == pairs


def test_distance_and_conditions(table1: Any) -> None:
    assert len(joined(table1, within="WITHIN 6")) == 4  # (2, 9) is exactly 7 apart
    assert len(joined(table1, within="")) == 5
    assert joined(table1, within="WITHIN 0") == []
    assert joined(table1, on="a.high > l.init") == [(8.0, 7.0)]
    assert joined(table1, on="match_end(a) = match_start(l)") == [(7.0, 6.0), (11.0, 7.0)]
    assert joined(table1, on="") == joined(table1)
    assert joined(table1, on="a.high IS NULL") == []
    assert joined(table1, on="NULL") == []
    # conditions on one side, in ON and in WHERE
    last, left = "RECENT LAST 1 JOIN", "RECENT LEFT JOIN"
    assert joined(table1, join=last, on="a.init < 7") == [(7.0, 6.0), (11.0, 6.0), (8.0, 6.0)]
    assert joined(table1, join=last, tail=" WHERE a.init < 7") == [(7.0, 6.0)]
    assert joined(
        table1, "l.init", join="RECENT ANTI JOIN", on="l.init > 7", tail=" ORDER BY 1"
    ) == [(6.0,), (7.0,), (10.0,)]
    found = joined(table1, join=left, tail=" WHERE l.init > 9 ORDER BY l.init, a.init")
    assert found == [(10.0, None), (11.0, 6.0), (11.0, 7.0)]
    assert joined(table1, join=left, tail=" WHERE a.init IS NULL") == [(10.0, None), (6.0, None)]
    given = {"n": 1, "w": 5, "h": 6}
    found = joined(
        table1, join="RECENT LAST $n JOIN", on="a.high > $h", within="WITHIN $w", params=given
    )
    assert found == [(7.0, 6.0), (11.0, 7.0), (8.0, 7.0)]


def test_names(table1: Any) -> None:
    text = f"SELECT * FROM {LIVE} RECENT JOIN {ARCHIVE} WITHIN 7"
    assert table1.sql(text).arrow().schema.names == [
        "symbol", "init", "low", "symbol", "init", "high",
    ]  # fmt: skip
    assert joined(table1, "l.*")[0] == ("X", 7.0, 6.0)
    assert joined(table1, "a.* EXCLUDE (symbol)")[0] == (6.0, 7.0)
    assert joined(table1, "low, high, A.INIT")[0] == (6.0, 7.0, 6.0)
    renamed = table1.sql(f"SELECT L.LOW, high, l.low + a.high FROM {LIVE} RECENT JOIN {ARCHIVE}")
    assert renamed.arrow().schema.names == ["low", "high", "l.low + a.high"]
    assert joined(table1, "a.high AS h, count(*)", tail=" GROUP BY h ORDER BY h") == [
        (7.0, 3), (11.0, 2),
    ]  # fmt: skip
    assert joined(table1, "l.low", tail=" WHERE a.high > 7 AND l.low < 5") == [(3.0,)]
    outer = "SELECT (SELECT count(*) FROM stocks s WHERE s.price < l.low) AS n"
    found = table1.sql(f"{outer} FROM {LIVE} RECENT SEMI JOIN {ARCHIVE} WITHIN 7").fetchall()
    assert found == [(3,), (7,), (0,)]


def test_sides(table1: Any) -> None:
    def ask(text: str) -> Any:
        return table1.sql(text).fetchall()

    equal = [(1, 2), (7, 8), (1, 5), (2, 5), (9, 10)]
    text = "SELECT y.t, x.t FROM stocks x RECENT JOIN stocks y ON x.price = y.price"
    assert sorted(ask(text)) == sorted(equal)
    assert ask(text) == sorted(ask(text))
    query = "(SELECT t AS a, t + 2 AS b, price FROM stocks WHERE price > 6)"
    period = f"SELECT x.t, p.a FROM stocks x RECENT LAST 1 JOIN {query} AS p PERIOD (a, b) WITHIN 4"
    assert sorted(ask(period)) == [(3, 0), (4, 0), (7, 4), (8, 4), (9, 6), (10, 7)]
    cte = period.replace(query, "c").replace("SELECT x", f"WITH c AS {query} SELECT x", 1)
    assert ask(cte) == ask(period)
    situation = "stocks MATCH_SITUATIONS (PATTERN (A) DEFINE A AS price > 7) AS s"
    found = ask(f"SELECT s.a_started, s.a_ended, x.t FROM stocks x RECENT JOIN {situation}")
    assert (0, 1, 2) in found
    assert (6, 9, 9) not in found
    assert (6, 9, 10) in found
    # a recency join is a side again: its start is the archive row's, its end the live row's
    nested = f"SELECT match_start(z), z.price FROM {LIVE} RECENT JOIN {ARCHIVE} WITHIN 7"
    found = ask(f"{nested} RECENT JOIN stocks z WITHIN 5")
    assert found == [(0, 10.0), (1, 6.0), (2, 6.0), (3, 5.0)]
    assert ask(f"{nested.replace('FROM', 'FROM (')}) RECENT JOIN stocks z WITHIN 5") == found
    both = "stocks x JOIN stocks w ON w.t = x.t, stocks y RECENT SEMI JOIN stocks z WITHIN 1"
    assert ask(f"SELECT w.t, y.t FROM {both} WHERE x.t = 4 AND y.t = 3") == [(4, 3)]


def test_units_are_compared_in_the_finer_one(db: Any) -> None:
    for name, unit, ticks in (("fine", "us", [1_500, 2_999, 3_000]), ("coarse", "ms", [1, 2, 3])):
        schema = pa.schema([("t", pa.timestamp(unit)), ("x", pa.int64())])
        stream = db.create_stream(name, schema, time="t")
        stream.append(pa.table({"t": pa.array(ticks, pa.timestamp(unit)), "x": ticks}))

    def ask(live: str, archive: str, within: str) -> Any:
        within = f"WITHIN INTERVAL '{within}' MICROSECOND"
        text = f"SELECT l.x, a.x FROM {live} l RECENT JOIN {archive} a {within}"
        return sorted(db.sql(text).fetchall())

    assert ask("fine", "coarse", "998") == [(1_500, 1)]
    assert ask("fine", "coarse", "1000") == [(1_500, 1), (2_999, 2), (3_000, 2)]
    assert ask("coarse", "fine", "500") == [(2, 1_500), (3, 2_999)]


def test_times_at_the_ends_of_64_bits_do_not_wrap(db: Any) -> None:
    stream = db.create_stream("s", pa.schema([("t", pa.int64())]), time="t")
    edge = 2**63 - 1
    stream.append(pa.table({"t": [-edge, -edge + 5, 0, edge - 5, edge - 1]}))
    text = "SELECT l.t, a.t FROM s l RECENT JOIN s a WITHIN "
    assert db.sql(text + "10").fetchall() == [(-edge + 5, -edge), (edge - 1, edge - 5)]
    assert len(db.sql(text + str(edge)).fetchall()) == 6
    assert len(db.sql("SELECT l.t FROM s l RECENT JOIN s a").fetchall()) == 10


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"hint": "/*+ recent(archive_first) */", "join": "RECENT LEFT JOIN"}, "all live rows"),
        ({"what": "a.high", "join": "RECENT SEMI JOIN"}, "nothing in FROM is called 'a'"),
        ({"join": "RECENT LAST 1.5 JOIN"}, "RECENT LAST takes an integer from 1 on"),
        ({"join": "RECENT LAST 0 JOIN"}, "RECENT LAST takes an integer from 1 on"),
        ({"on": "row_number() OVER () = 1"}, "a window function cannot be used"),
        ({"what": "match_start(l, 2)"}, "match_start takes the name of a side"),
        ({"what": "symbol"}, "symbol can be l.symbol or a.symbol: say which"),
        ({"within": "WITHIN INTERVAL '7' SECOND"}, "WITHIN takes an integer"),
        ({"what": "match_start(x)"}, "'x' is no side of a recency join"),
        ({"on": "a.high"}, "true or false, this is of type double"),
        ({"join": "RECENT LAST 2 ANTI JOIN"}, "LAST chooses pairs"),
        ({"on": "max(a.high) > 1"}, "an aggregate cannot be used"),
        ({"join": "RECENT FULL JOIN"}, "a recency join is RECENT"),
        ({"what": "l.foo"}, "l has no column 'foo' .*column 9"),
        ({"on": "(SELECT 1) = 1"}, "a subquery cannot be used"),
        ({"on": "COLUMNS('k') = 1"}, "several columns or rows"),
        ({"hint": "/*+ recent(now) */"}, "the plan hint is"),
        ({"what": "* EXCLUDE (foo)"}, "no column 'foo'"),
        ({"on": "foo(a.high)"}, "no function 'foo'"), ({"within": "WITHIN -1"}, "WITHIN takes an"),
        ({"what": "l.inti"}, "did you mean l.init"), ({"on": "a.hi > 3"}, "did you mean a.high"),
    ],
)  # fmt: skip
def test_refusals(table1: Any, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(chronicle.SqlError, match=message) as caught:
        joined(table1, **parts)
    assert caught.value.line is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stocks x RECENT JOIN stocks x", "two sides are called 'x'"),
        ("stocks x RECENT JOIN nothing y", "no stream 'nothing'"),
        ("stocks x RECENT JOIN (SELECT 1) y", "rows of a query have no times"),
        ("stocks x RECENT JOIN (SELECT t AS a FROM stocks) y PERIOD (a, b)", "PERIOD names 'b'"),
        ("stocks x PERIOD (t, t) RECENT JOIN stocks y", "PERIOD belongs to a query"),
        ("(SELECT 1 AS a) x PERIOD (a, a)", "PERIOD stands behind a side"),
        ("stocks w JOIN stocks x RECENT JOIN stocks y", "stands first in FROM"),
        ("stocks x RECENT JOIN stocks y WITHIN 1 ON true", "ON stands before WITHIN"),
        ("stocks x RECENT JOIN stocks y USING (t)", "behind ON"),
        ("(stocks x RECENT JOIN stocks y) AS z", "no name of its own"),
        ("stocks x RECENT JOIN range(3) y", "rows of a query have no times"),
        ("stocks x RECENT JOIN stocks MATCH_RECOGNIZE (ALL ROWS PER MATCH PATTERN (A)) y",
         "one row per match"),
        ("stocks x RECENT JOIN stocks MATCH_RECOGNIZE (ORDER BY price PATTERN (A)) y",
         "ORDER BY begins with"),
        ("stocks x RECENT JOIN (SELECT now()::TIMESTAMP AS a) y PERIOD (a, a)", "of one kind"),
    ],
)  # fmt: skip
def test_refused_sides(table1: Any, text: str, message: str) -> None:
    with pytest.raises(chronicle.SqlError, match=message) as caught:
        table1.sql(f"SELECT * FROM {text}").fetchall()
    assert caught.value.line is not None


def test_recent_and_within_stay_names(table1: Any) -> None:
    assert len(table1.sql("SELECT recent.t FROM stocks recent").fetchall()) == 11
    text = "SELECT recent.t FROM stocks AS recent JOIN stocks within ON within.t = recent.t"
    assert len(table1.sql(text).fetchall()) == 11


def test_describe_and_explain(table1: Any) -> None:
    text = f"SELECT l.low, match_start(a) AS s FROM {LIVE} RECENT JOIN {ARCHIVE} "
    text += "ON a.symbol = l.symbol AND a.high > l.low WITHIN 7"
    described = table1.sql(f"DESCRIBE {text}").fetchall()
    assert [row[:2] for row in described] == [("low", "DOUBLE"), ("s", "BIGINT")]
    plan = table1.explain(text, analyze=True)
    shown = str(plan)
    for part in ("RecentJoin", "within: 7", "l.symbol = a.symbol", '"a.high" > "l.low"'):
        assert part in shown
    assert "pairs 4" in shown
