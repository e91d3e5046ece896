"""Orders of evaluation on streams of thousands of events: the same rows, fewer events.

Also against DuckDB's own join of the two relations: a second oracle, in SQL.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.query.plan.division import divide
from chronicle.query.recent import narrowing
from chronicle.query.recent.narrowing import SideCost, choose
from chronicle.query.run import recent_operator
from chronicle.query.sql.dialect import parse_statement

from .conftest import ARCHIVE, LIVE, in_order

COUNT = 6_000
ORDERS = ("live_first", "archive_first", "both", "auto")
SCHEMA = pa.schema(
    [("t", pa.int64()), ("symbol", pa.string()), ("price", pa.float64()), ("size", pa.int64())]
)


def ticks(seed: int) -> pa.Table:
    """Prices of some symbols, each a random walk; large trades are rare."""
    rng = np.random.default_rng(seed)
    symbol = rng.integers(0, 12, COUNT)
    steps = rng.choice([-2.0, -1.0, 0.0, 1.0, 2.0], COUNT)
    price = np.zeros(COUNT)
    for number in range(12):
        mine = symbol == number
        price[mine] = 50 + np.cumsum(steps[mine])
    size = np.where(rng.random(COUNT) < 0.002, 1000, rng.integers(0, 9, COUNT))
    time = np.cumsum(rng.choice([0, 1, 1, 2], COUNT))
    names = pa.array([None if n == 11 else f"s{n}" for n in symbol.tolist()], pa.string())
    return pa.table({"t": time, "symbol": names, "price": price, "size": size}, SCHEMA)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """``plain``: no index; ``known``: indexes, late events; ``stocks``: the former again."""
    with chronicle.open(tmp_path_factory.mktemp("plans") / "store") as opened:
        for seed, name in enumerate(("plain", "known", "stocks")):
            stream = opened.create_stream(name, SCHEMA, time="t", options={"leaf_bytes": 8192})
            table = ticks(seed)
            stream.append(table.slice(0, 5_000))
            stream.flush()
            if name == "known":
                stream.create_index("size")
                stream.create_index("price")
            stream.append(table.slice(5_000))
            if name == "known":
                stream.append(table.slice(3_000, 5))  # late
        yield opened


def side(r: random.Random, stream: str, alias: str, rare: bool) -> str:
    """A row pattern that something bounds, of one of the kinds of clauses."""
    start = "A AS size = 1000, " if rare else "A AS price > 50, "
    fall = r.choice(["price < PREV(price)", "price >= PREV(price)"])
    return (
        f"{stream} MATCH_RECOGNIZE ({r.choice(['', 'PARTITION BY symbol '])}ORDER BY t "
        "MEASURES FIRST(t) AS b, LAST(t) AS e, LAST(price) AS price "
        f"{r.choice(['', 'AFTER MATCH SKIP TO NEXT ROW', 'MAXIMAL MATCH', 'INCREMENTAL MATCH'])} "
        f"PATTERN (A {r.choice(['B+', 'B', 'B* C'])}) WITHIN {r.choice([3, 12, 40])} "
        f"DEFINE {start}B AS {fall}, C AS price > 45) AS {alias}"
    )


@pytest.mark.parametrize("seed", range(4))
def test_orders_and_duckdb_agree(db: Any, seed: int) -> None:
    r = random.Random(seed)
    live = side(r, r.choice(["plain", "known"]), "l", r.random() < 0.6)
    archive = side(r, r.choice(["plain", "known"]), "a", r.random() < 0.6)
    for text in (live, archive):
        if "* C" not in text:
            replaced = text.replace(", C AS price > 45", "")
            live, archive = (replaced if one == text else one for one in (live, archive))
    distance = r.choice([5, 50, 400])
    keyed = "PARTITION" in live and "PARTITION" in archive
    on = r.choice(["a.symbol = l.symbol", "a.symbol = l.symbol AND a.price < l.price"])
    on = on if keyed else "a.price < l.price + 3"
    shown = "a.b, l.e, a.e AS ae, l.b AS lb, a.price AS ap, l.price AS lp"
    recent = f"FROM {live} RECENT JOIN {archive} ON {on} WITHIN {distance}"
    wanted = db.sql(f"SELECT /*+ recent(eager) */ {shown} {recent}").fetchall()
    for order in ORDERS:
        with in_order(order):
            assert db.sql(f"SELECT {shown} {recent}").fetchall() == wanted, order
    by_hand = f"a.e < l.e AND a.b < l.b AND l.e - a.b <= {distance}"
    plain = f"FROM {live} JOIN {archive} ON {on} AND {by_hand}"
    joined = db.sql(f"SELECT {shown} {plain}").fetchall()
    assert sorted(joined) == sorted(wanted)
    assert [row[:2] for row in wanted] == sorted(row[:2] for row in wanted)
    semi = db.sql(f"SELECT l.b, l.e {recent.replace('RECENT', 'RECENT SEMI', 1)}").fetchall()
    assert set(semi) == {(row[3], row[1]) for row in wanted}
    anti = db.sql(f"SELECT l.b, l.e {recent.replace('RECENT', 'RECENT ANTI', 1)}").fetchall()
    everything = db.sql(f"SELECT l.b, l.e FROM {live}").fetchall()
    assert sorted(semi + anti) == sorted(everything)


def test_the_papers_query_in_every_order(db: Any) -> None:
    for within in ("", "WITHIN 30"):
        text = f"{LIVE} RECENT JOIN {ARCHIVE} ON a.symbol = l.symbol {within or 'WITHIN 2000'}"
        columns = "match_start(a), match_end(l), l.low, a.high"
        wanted = db.sql(f"SELECT /*+ recent(eager) */ {columns} FROM {text}").fetchall()
        assert len(wanted) > 100
        for order in ORDERS:
            with in_order(order):
                assert db.sql(f"SELECT {columns} FROM {text}").fetchall() == wanted


def test_a_rare_side_leaves_little_to_read(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_operator, "READ_GAP", 0)
    rare = (
        "known MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY t MEASURES A.price AS p "
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN 40 DEFINE A AS size = 1000) AS l"
    )
    text = f"SELECT {{}} l.p FROM {rare} RECENT JOIN {side(random.Random(1), 'plain', 'a', False)}"
    text = text.replace(", C AS price > 45", "") + " WITHIN 20"
    plan = str(db.explain(text.format("/*+ recent(live_first) */"), analyze=True))
    assert "order: live first: asked for" in plan
    assert "regions, " in plan
    assert "read whole" not in plan


def cost(**given: Any) -> SideCost:
    known = {"events": 1e6, "event_cost": 10.0, "total": 10**6, "rows": 100.0, "region": 100.0}
    found = {**known, **given}
    return SideCost(**{**found, "rows": lambda: found["rows"]})


@pytest.mark.parametrize(
    ("kind", "live", "archive", "order"),
    [
        ("inner", {}, {"rows": 1e5}, "live_first"),
        ("inner", {"rows": 1e5}, {}, "archive_first"),
        ("left", {"rows": 1e5}, {}, "live_first"),
        ("inner", {"event_cost": 30.0}, {}, "archive_first"),
        ("inner", {"events": 1e3}, {"events": 1e3}, "both"),
        ("inner", {}, {"obstacle": "why"}, "archive_first"),
        ("anti", {}, {"obstacle": "why"}, "eager"),
        ("inner", {"obstacle": "so"}, {"rows": 3.0}, "live_first"),
        ("inner", {"total": 100, "events": 100}, {"total": 100, "events": 100}, "eager"),
    ],
)  # fmt: skip
def test_the_rarer_and_the_cheaper_side_first(
    kind: str, live: dict[str, Any], archive: dict[str, Any], order: str
) -> None:
    assert choose("auto", kind, cost(**live), cost(**archive)).order == order
    assert choose("eager", kind, cost(**live), cost(**archive)).order == "eager"
    assert narrowing.worthwhile(10, 100)
    assert not narrowing.worthwhile(80, 100)


@pytest.mark.parametrize("kind", ["RECENT", "RECENT LAST 2", "RECENT LEFT", "RECENT ANTI"])
@pytest.mark.parametrize("skip", ["AFTER MATCH SKIP TO NEXT ROW", "", "INCREMENTAL MATCH"])
def test_parts_give_each_row_once(db: Any, kind: str, skip: str) -> None:
    clause = f"PARTITION BY symbol ORDER BY t MEASURES LAST(price) AS p {skip} PATTERN (A B+)"
    live = f"known MATCH_RECOGNIZE ({clause} WITHIN 30 DEFINE B AS price < PREV(price)) AS l"
    shown = "match_start(l), match_end(l), l.p" + ("" if "ANTI" in kind else ", match_start(a)")
    text = f"SELECT {shown} FROM {live} {kind} JOIN {ARCHIVE} ON a.symbol = l.symbol WITHIN 200"
    engine = catalog_of(db).engine
    plan = engine.plan(parse_statement(text), text)
    division = divide(plan, catalog_of(db).snapshot, lambda size: 5)
    assert division.kind == "recent"
    assert len(division.parts) > 2
    found: list[Any] = []
    for part in division.parts:
        again = pickle.loads(pickle.dumps(part)).plan
        found += engine.run_plan(again).fetchall()
    key = [tuple((value is None, value) for value in row) for row in found]
    wanted = [tuple((value is None, value) for value in row) for row in db.sql(text).fetchall()]
    assert sorted(key, key=repr) == sorted(wanted, key=repr)
    assert found
