"""How a worker gets its inputs: in pieces, by memory or by the socket."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.errors import QueryTimeout, ResourceLimit, SqlError, WorkerLost
from chronicle.isolation.channel import Channel
from chronicle.query.relational.isolated import IsolatedExecutor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")

EVENTS = 300_000
MEMORY = 256 << 20


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inputs") / "store"
    with chronicle.open(path) as database:
        table = pa.table(
            {
                "t": range(EVENTS),
                "k": [None if n % 11 == 0 else f"k{n % 7}\u20ac" for n in range(EVENTS)],
                "x": [n * 0.5 for n in range(EVENTS)],
            }
        )
        database.create_stream("s", table.schema, time="t").append(table)
        few = pa.table({"n": range(50)})
        database.create_stream("few", few.schema, time="n").append(few)
    return path


@pytest.fixture(scope="module")
def workers(path: Path) -> Iterator[None]:
    """Those of all tests here: databases with the same limits share them."""
    with chronicle.open(path, "r", query_memory_bytes=MEMORY, isolation="process") as database:
        catalog_of(database).engine.executor.warm(1)
        yield


@pytest.fixture
def apart(path: Path, workers: None) -> Iterator[Database]:
    with chronicle.open(path, query_memory_bytes=MEMORY, isolation="process") as database:
        yield database


@pytest.fixture(scope="module")
def here(path: Path) -> Iterator[Database]:
    with chronicle.open(path, "r", query_memory_bytes=MEMORY) as database:
        yield database


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What workers ask for, by the key of each message."""
    kinds: list[str] = []
    receive = Channel.receive

    def told(channel: Channel) -> Any:
        message, data = receive(channel)
        kinds.append(next(iter(message)))
        return message, data

    monkeypatch.setattr(Channel, "receive", told)
    return kinds


def test_a_relation_may_be_read_twice(apart: Database, here: Database) -> None:
    sql = (
        "WITH q AS (SELECT n FROM few WHERE n < 20) "
        "SELECT count(*) FROM q a, q b WHERE a.n < b.n AND a.n IN (SELECT n FROM few)"
    )
    wanted = here.sql(sql).fetchall()
    for _ in range(3):
        assert apart.sql(sql).fetchall() == wanted


LARGE = [
    "SELECT k, count(*) AS n, sum(t) AS s FROM s GROUP BY k ORDER BY k",
    "SELECT * FROM s WHERE k LIKE '%3\u20ac' ORDER BY t LIMIT 1000",
    "SELECT t, k, x FROM s WHERE x >= 0 AND NOT k LIKE 'zz%' ORDER BY t",
    "SELECT count(*) FROM s a JOIN s b ON a.t = b.t + 1 JOIN few ON few.n = a.t",
    "SELECT t, upper(k) AS u FROM s WHERE t % 3 = 0 ORDER BY t DESC LIMIT 5000",
]


@pytest.mark.parametrize("sql", LARGE)
def test_large_inputs_are_the_same(apart: Database, here: Database, sql: str) -> None:
    wanted = here.sql(sql).arrow()
    for _ in range(2):
        assert apart.sql(sql).arrow().equals(wanted)


GROWTH = {
    "streams by each other": "SELECT count(*) FROM s a, s b, s c WHERE a.x + b.x > c.x",
    "rows of a join": "SELECT a.t, b.t AS u, a.k || b.k AS v FROM s a, s b ORDER BY v DESC",
    "recursion": "WITH RECURSIVE r(n, s) AS (SELECT 1, 'a' UNION ALL SELECT n + 1, s || s FROM r) "
    "SELECT max(length(s)) FROM r",
    "recursion without end": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
    "SELECT count(DISTINCT n) FROM r",
    "series": "SELECT count(DISTINCT a.range * b.range) FROM range(1000000) a, range(1000000) b",
    "lists of lists": "SELECT count(DISTINCT q) FROM (SELECT unnest(range(0, 1000000)) AS q), few, "
    "few f, few g, few h",
    "texts that are joined": "SELECT string_agg(a.k || b.k, '') FROM s a, s b",
}
FORMS = {
    "query": "{}",
    "EXPLAIN": "EXPLAIN ANALYZE {}",
    "INSERT": "INSERT INTO few SELECT q.c FROM ({}) AS q(c)",
    "subquery": "SELECT (SELECT count(*) FROM ({}) AS q) AS n",
}


@pytest.mark.parametrize(
    ("growth", "form"),
    [*((growth, "query") for growth in GROWTH), *zip(GROWTH, list(FORMS)[1:], strict=False)],
)
def test_growth_costs_its_own_answer(apart: Database, growth: str, form: str) -> None:
    """Memory or time ends it, with the error that says so; the next query finds all as it was."""
    before = apart.stream("few").count
    inner = GROWTH[growth]
    if form == "INSERT" and growth == "rows of a join":
        inner = inner.replace("a.t, b.t AS u, a.k || b.k AS v", "length(a.k || b.k) AS v")
    with pytest.raises((ResourceLimit, QueryTimeout, WorkerLost, SqlError)) as raised:
        apart.sql(FORMS[form].format(inner), timeout=1).arrow()
    if isinstance(raised.value, WorkerLost):
        assert raised.value.why == "memory"
    assert "chronicle_" not in str(raised.value)
    assert apart.stream("few").count == before
    assert apart.sql("SELECT count(*) + 0 FROM s WHERE x >= 0").fetchall() == [(EVENTS,)]
    executor = catalog_of(apart).engine.executor
    assert isinstance(executor, IsolatedExecutor)
    assert not executor.pool._leased


@pytest.mark.parametrize(
    "predicate",
    [
        "len(list_transform(range(1000), q -> list_transform(range(1000), r -> q * r + t))) > 0",
        "length(repeat(k, 10000) || repeat(k, 10000) || repeat(k, 10000)) > length(k) * 30001",
    ],
)
def test_a_condition_that_grows_costs_its_own_answer(apart: Database, predicate: str) -> None:
    from chronicle.query.contract.cancellation import QueryControl

    with pytest.raises((ResourceLimit, QueryTimeout, WorkerLost, SqlError)):
        for _ in catalog_of(apart).engine.scan(
            "s",
            catalog_of(apart).snapshot("s"),
            predicate,
            None,
            None,
            ["t"],
            None,
            QueryControl(1.5),
        ):
            pass
    assert apart.sql("SELECT count(*) + 0 FROM s WHERE x >= 0").fetchall() == [(EVENTS,)]
