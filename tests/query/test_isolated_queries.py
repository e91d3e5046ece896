"""Queries in workers: the same answers as in this process, and a death costs one of them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.errors import (
    ChronicleError,
    InvalidArgument,
    QueryCancelled,
    QueryTimeout,
    ResourceLimit,
    SqlError,
    StoreClosed,
    WorkerLost,
)
from chronicle.isolation import pool as pools
from chronicle.isolation.pool import Pool, PoolSpec, WorkerLease, open_pool
from chronicle.query.contract.cancellation import Cancellation, QueryControl
from chronicle.query.relational import interface
from chronicle.query.relational.interface import RelationalQuery
from chronicle.query.relational.isolated import PIECE_BYTES, IsolatedExecutor
from chronicle.query.relational.sql_worker import AHEAD_MAX

from ..patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")

MEMORY = 256 << 20
EVENTS = 200_000
LONG = 4_000_000
ENDLESS = "SELECT count(*) FROM range(9000000000000000000)"
STRANGE = Path(__file__).parent.parent / "isolation"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("isolated") / "store"
    with chronicle.open(path) as database:
        schema = pa.schema(
            [
                ("t", pa.timestamp("us")),
                ("k", pa.string()),
                ("x", pa.float64()),
                ("i", pa.int64()),
                ("d", pa.decimal128(10, 2)),
                ("z", pa.timestamp("ns", "UTC")),
                ("day", pa.date32()),
            ]
        )
        stream = database.create_stream("s", schema, time="t")
        numbers = range(EVENTS)
        ticks = pa.array([n * 1_000_000 for n in numbers])
        columns = {
            "t": ticks.cast(pa.timestamp("us")),
            "k": [None if n % 11 == 0 else f"k{n % 7}" for n in numbers],
            "x": [float("nan") if n % 13 == 0 else n * 0.5 for n in numbers],
            "i": list(numbers),
            "d": pa.array([n % 1000 for n in numbers], pa.int16()).cast(pa.decimal128(10, 2)),
            "z": pa.array([n * 1_000_000_000 for n in numbers]).cast(pa.timestamp("ns", "UTC")),
            "day": pa.array([n // 86_400 for n in numbers], pa.int32()).cast(pa.date32()),
        }
        stream.append(pa.table(columns, schema))
        small = database.create_stream("Small", pa.schema([("n", pa.int64())]), time="n")
        small.append(pa.table({"n": list(range(50))}))
    return path


@pytest.fixture(scope="module")
def here(path: Path) -> Iterator[Database]:
    with chronicle.open(path, "r", query_memory_bytes=MEMORY) as database:
        yield database


@pytest.fixture(scope="module")
def apart(path: Path) -> Iterator[Database]:
    with chronicle.open(path, "r", query_memory_bytes=MEMORY, isolation="process") as database:
        yield database


def pool_of(database: Database) -> Pool:
    executor = catalog_of(database).engine.executor
    assert isinstance(executor, IsolatedExecutor)
    return executor.pool


def leased(database: Database) -> list[int]:
    return list(pool_of(database)._leased)


def hostile(database: Database, sql: str, timeout: float | None = None) -> pa.Table:
    """Give the executor a text that no gate has seen."""
    control = QueryControl(timeout)
    answer = catalog_of(database).engine.executor.run(
        RelationalQuery(sql, text=sql, control=control)
    )
    try:
        return pa.Table.from_batches(list(answer.batches), answer.schema)
    finally:
        answer.close()


QUERIES = """
SELECT 1 AS a, 'x' AS b
SELECT count(*) FROM s WHERE k LIKE '%3'
SELECT k, count(*), sum(i), avg(i), min(x) FROM s GROUP BY k ORDER BY k
SELECT * FROM s WHERE i BETWEEN 100 AND 105
SELECT i FROM s WHERE z = TIMESTAMPTZ '1970-01-01 00:00:07+00'
SELECT count(*) FROM s WHERE day = DATE '1970-01-02'
SELECT count(*) FROM s WHERE d = 5.25 OR d = 7
SELECT count(*), sum(i) FROM s WHERE d > 998
SELECT count(*) FROM s WHERE x > 99990.5
SELECT count(*) FROM s WHERE x = 'nan'::DOUBLE
SELECT count(*) FROM s WHERE k IS NULL AND i > 7
SELECT count(*) FROM s WHERE k IN ('k1', 'k2', 'a"b\\c') OR i = 3
SELECT count(*) FROM s a JOIN s b ON a.i = b.i + 1 WHERE a.k = 'k1'
SELECT a.n, b.n FROM Small a, Small b WHERE a.n < 3 AND b.n < 3 ORDER BY 1, 2
SELECT n FROM Small WHERE n = 7 UNION ALL SELECT i FROM s WHERE i = 9
SELECT i FROM s ORDER BY x DESC, i LIMIT 5
SELECT sum(i::HUGEINT * 100000000000000) AS big, sum(i) AS small FROM s
SELECT [i, 2], {'a': i, 'b': k}, MAP {k: i} FROM s WHERE i IN (1, 2)
SELECT i::DECIMAL(20, 3), t - INTERVAL '1' DAY, INTERVAL '2' MONTH FROM s WHERE i < 3
SELECT date_trunc('hour', t) AS h, count(*) FROM s GROUP BY h ORDER BY h LIMIT 3
SELECT row_number() OVER (PARTITION BY k ORDER BY i) AS r, i FROM s WHERE i < 20 ORDER BY i
SELECT NULL AS nothing, ''::BLOB AS b
SELECT uuid FROM (SELECT '00000000-0000-0000-0000-000000000001'::UUID AS uuid)
SELECT n FROM Small WHERE false
SELECT count(*) FROM s WHERE i = (SELECT max(n) FROM Small)
"""


LONG_QUERIES = [
    "SELECT i, k FROM s WHERE t >= TIMESTAMP '1970-01-02 00:00:00' "
    "AND t < TIMESTAMP '1970-01-02 00:00:05'",
    "SELECT i FROM s WHERE z IN (TIMESTAMPTZ '1970-01-01 00:00:07+00', "
    "TIMESTAMPTZ '1970-01-01 00:00:09+00')",
    "SELECT w.k, w.c FROM (SELECT k, window_start, count(*) AS c "
    "FROM TUMBLE(s, t, INTERVAL '1' DAY) GROUP BY k, window_start) w WHERE w.c > 3 ORDER BY 1, 2",
    "SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.i AS a PATTERN (A B) "
    "DEFINE A AS i < 100, B AS i > 3) AS m WHERE a > 5",
]


@pytest.mark.parametrize("sql", [*filter(None, QUERIES.splitlines()), *LONG_QUERIES])
def test_answers_are_those_of_this_process(here: Database, apart: Database, sql: str) -> None:
    expected, found = here.sql(sql).arrow(), apart.sql(sql).arrow()
    assert found.schema == expected.schema
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nosuch FROM s",
        "SELECT i,\n  k::INTEGER FROM s WHERE k = 'k1'",
        "SELECT CAST('x' AS INTEGER)",
        "SELECT substring(i, k) FROM s",
        "SELECT 1 +",
        "SELECT max(i) FROM s WHERE max(i) > 3",
        "SELECT error(k) FROM s",
    ],
)
def test_errors_are_those_of_this_process(here: Database, apart: Database, sql: str) -> None:
    told = []
    for database in (here, apart):
        with pytest.raises(SqlError) as error:
            database.sql(sql).arrow()
        told.append((str(error.value), error.value.line, error.value.column))
    assert told[0] == told[1]


def test_parameters_cross(here: Database, apart: Database) -> None:
    import datetime as dt
    import decimal

    values = {
        "t": dt.datetime(1970, 1, 1, 0, 1),
        "d": decimal.Decimal("5.00"),
        "k": "k'1",
        "n": None,
        "b": b"\x00'",
    }
    sql = "SELECT count(*), $n AS n, $b AS b, $k AS k FROM s WHERE t > $t AND d <= $d"
    assert apart.sql(sql, values).fetchall() == here.sql(sql, values).fetchall()


def test_one_text_over_inputs_of_other_columns(here: Database, apart: Database) -> None:
    """DuckDB runs the same text for both, each over its own columns."""
    windows = "SELECT * EXCLUDE (n) FROM TUMBLE(Small, n, 10) AS o"
    matches = (
        "SELECT * EXCLUDE (n) FROM Small MATCH_RECOGNIZE (ORDER BY n MEASURES A.n AS m ALL ROWS "
        "PER MATCH PATTERN (A) DEFINE A AS A.n > 7) AS o"
    )
    for sql in (windows, windows, matches, windows, matches, matches):
        assert apart.sql(sql).arrow() == here.sql(sql).arrow()


def test_plans_have_the_figures_of_their_scans(apart: Database) -> None:
    text = str(apart.explain("SELECT k, count(*) FROM s WHERE i < 1000 GROUP BY k", analyze=True))
    assert "Scan" in text
    assert "rows 1,000" in text


def test_a_limit_stops_the_producers(tmp_path: Path, monkeypatch: Any) -> None:
    from chronicle.query.relational.datasets import ScanDataset

    made: list[ScanDataset] = []
    begin = ScanDataset.narrowed

    def narrowed(self: ScanDataset, *more: Any) -> Any:
        made.append(self)
        return begin(self, *more)

    monkeypatch.setattr(ScanDataset, "narrowed", narrowed)
    many = " UNION ALL ".join(["SELECT n FROM long"] * 3)
    with chronicle.open(tmp_path, query_memory_bytes=MEMORY, isolation="process") as apart:
        table = pa.table({"n": np.arange(LONG)})
        apart.create_stream("long", table.schema, time="n").append(table)
        found = apart.sql(f"SELECT n FROM ({many}) WHERE n % 2 = 0 LIMIT 3").arrow()
    assert found.num_rows == 3
    ahead = 3 * (AHEAD_MAX + 2) * PIECE_BYTES // 8  # one is sent, one is read from
    assert ahead < 3 * LONG
    assert 0 < sum(request.rows for each in made for request in each.requests) <= ahead


def test_text_is_one_query_or_none(apart: Database) -> None:
    for sql in (
        "SELECT 1; CREATE OR REPLACE MACRO main.upper(x) AS 'P'; SELECT 1",
        "CREATE TABLE x (a INT)",
        "SET memory_limit = '100GB'",
        "ATTACH ':memory:' AS m",
        "COPY (SELECT 1) TO ':memory:'",
    ):
        with pytest.raises(SqlError):
            hostile(apart, sql)
    assert apart.sql("SELECT upper('a') AS u").fetchall() == [("A",)]


BOMBS = [
    "SELECT list_sum(range(500000000))",
    "SELECT length(repeat('x', 2000000000))",
    "SELECT (-1000000000).range(1)",
    "SELECT [1].list_resize(1000000000)",
    "SELECT list(a) FROM range(200000000) t(a)",
    "SELECT printf('%1000000000d', 1)",
]


@pytest.mark.parametrize("sql", BOMBS)
def test_a_memory_bomb_costs_its_own_answer(apart: Database, sql: str) -> None:
    before = psutil.Process().memory_info().rss
    with pytest.raises((ResourceLimit, WorkerLost, SqlError, QueryTimeout)):
        hostile(apart, sql, timeout=20)
    assert psutil.Process().memory_info().rss - before < 200 << 20
    assert apart.sql("SELECT 1 AS a").fetchall() == [(1,)]


def test_a_database_error_that_invalidates_duckdb_ends_one_worker(apart: Database) -> None:
    with pytest.raises((SqlError, ResourceLimit, WorkerLost)) as error:
        hostile(apart, "SELECT reservoir_quantile(x::HUGEINT, 0.5, 2147483647) FROM range(9) t(x)")
    assert "/" not in str(error.value).replace("I/O", "")
    assert apart.sql("SELECT 1 AS a").fetchall() == [(1,)]


def test_a_time_limit_ends_what_does_not_listen(apart: Database) -> None:
    with pytest.raises(QueryTimeout):
        hostile(apart, ENDLESS, timeout=0.5)


def test_a_time_limit_ends_a_worker_that_hangs(
    apart: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Pool.lease

    def hanging(self: Pool, seconds: float) -> WorkerLease:
        found = lease(self, seconds)
        os.kill(found.pid, signal.SIGSTOP)
        return found

    monkeypatch.setattr(Pool, "lease", hanging)
    with pytest.raises(QueryTimeout):
        hostile(apart, "SELECT 1", timeout=0.5)
    assert not leased(apart)


def test_a_query_is_cancelled(apart: Database) -> None:
    token = Cancellation()
    threading.Timer(0.3, token.cancel).start()
    with pytest.raises(QueryCancelled):
        apart.sql("SELECT count(*) FROM s a, s b, s c", cancellation=token).arrow()
    assert not leased(apart)


def test_a_result_that_is_dropped_ends_its_worker(apart: Database) -> None:
    result = apart.sql("SELECT a.i, b.k FROM s a, s b")
    batches = result.batches()
    assert next(batches).num_rows
    assert len(leased(apart)) == 1
    del batches
    result.close()
    assert not leased(apart)


def test_an_error_of_a_scan_is_raised_as_it_was(apart: Database, monkeypatch: Any) -> None:
    from chronicle.query.run.scan_relations import StreamRelation

    def broken(*_: Any) -> Iterator[pa.RecordBatch]:
        raise chronicle.errors.CorruptBlock("damaged")
        yield

    monkeypatch.setattr(StreamRelation, "scan", broken)
    with pytest.raises(chronicle.errors.CorruptBlock, match="damaged"):
        apart.sql("SELECT count(*) FROM s WHERE k LIKE 'a%'").arrow()
    monkeypatch.undo()
    assert apart.sql("SELECT 1 AS a").fetchall() == [(1,)]


def test_a_worker_killed_among_200_queries_costs_those_it_ran(apart: Database) -> None:
    sql = "SELECT k, count(*) AS c, sum(i) AS s FROM s WHERE i < 30000 AND k LIKE 'k%' GROUP BY k"
    expected = sorted(apart.sql(sql).fetchall(), key=repr)
    killed: list[int] = []

    def ask(_: int) -> Any:
        try:
            return sorted(apart.sql(sql).fetchall(), key=repr)
        except ChronicleError as error:
            return error

    def kill() -> list[int]:
        running = leased(apart)[:1]
        for pid in running:
            os.kill(pid, signal.SIGKILL)
        killed.extend(running)
        return running

    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(ask, number) for number in range(200)]
        for number in (20, 80, 140):
            asked[number].result()
            wait_until(kill, "a query that runs")
        answers = [each.result() for each in asked]
    lost = [answer for answer in answers if isinstance(answer, Exception)]
    assert len(lost) <= len(killed)
    assert all(isinstance(error, WorkerLost) and error.why == "crash" for error in lost)
    assert all(answer == expected for answer in answers if not isinstance(answer, Exception))


@pytest.fixture(scope="module")
def strange() -> Iterator[None]:
    sys.path.append(str(STRANGE))
    yield
    sys.path.remove(str(STRANGE))


@pytest.mark.parametrize(
    "mode",
    [
        *("noise", "long message", "long data", "no json", "deep json", "no object", "nothing"),
        *("bad schema", "bad positions", "bad batch", "bad offsets", "bad error", "bad scan"),
        *("bad credit", "cut", "die", "stop"),
    ],
)
def test_a_worker_that_was_taken_over_costs_one_query(strange: None, mode: str) -> None:
    pool = open_pool(PoolSpec("strange_worker", 64 << 20, 128 << 20, options=(("mode", mode),)))
    executor = IsolatedExecutor(pool)
    try:
        with pytest.raises(WorkerLost):
            list(executor.run(RelationalQuery("SELECT 1", control=QueryControl())).batches)
        assert not pool._leased
    finally:
        executor.close()


def test_closing_ends_what_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "END_S", PATIENCE_S)
    database = chronicle.open(path, "r", query_memory_bytes=MEMORY + 1, isolation="process")
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(hostile, database, ENDLESS)
        wait_until(lambda: leased(database))
        pids = pool_of(database).pids
        database.close()
        assert not [pid for pid in pids if runs(pid)]
        with pytest.raises(StoreClosed):
            slow.result(PATIENCE_S)


def runs(pid: int) -> bool:
    """Whether a process has not ended; one that waits to be reaped has."""
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def test_isolation_is_one_of_two(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="'none' or 'process'"):
        chronicle.open(tmp_path, isolation="thread")


MATCHES = "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.i AS i PATTERN (A) DEFINE A AS "
EXPRESSIONS = [
    "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES upper(A.k) || $x AS u, sum(B.i) AS b, "
    "first(A.t) AS f PATTERN (A B+) WITHIN INTERVAL '3' SECOND "
    "DEFINE A AS upper(k) = 'K1' AND i < $n, B AS k LIKE 'k2%' OR PREV(lower(k)) = 'k1')",
    "SELECT * FROM (SELECT t, i + 1 AS j, k || 'y' AS w FROM s WHERE i < $n) MATCH_RECOGNIZE "
    "(ORDER BY t MEASURES A.w || $x AS w, B.j AS j PATTERN (A B) DEFINE B AS w LIKE '%' || $x)",
    "SELECT window_start, sum(i * 2 + $n) AS m, count(*) + length($x) FROM TUMBLE(s, t, "
    "INTERVAL '1' HOUR) GROUP BY window_start ORDER BY window_start",
]


@pytest.mark.parametrize("sql", EXPRESSIONS)
def test_expressions_are_evaluated_by_workers(
    sql: str, here: Database, apart: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conditions, measures, constants and types of a statement never reach DuckDB here."""
    params = {"x": "y", "n": 100}
    wanted = here.sql(sql, params).arrow()
    interface._types.clear()

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the owner of the store evaluates foreign SQL")

    monkeypatch.setattr(interface, "_cursor", never)
    found = apart.sql(sql, params).arrow()
    assert found.equals(wanted)
    assert found.num_rows
    assert apart.sql(f"EXPLAIN ANALYZE {sql}", params).arrow().num_rows


def test_errors_of_expressions_are_the_same(here: Database, apart: Database) -> None:
    for condition in ("i // (i - 7) > 0 AND k LIKE '%'", "k || x", "lower(i, k) = 'x'"):
        sql = f"{MATCHES}{condition})"
        told = []
        for database in (here, apart):
            with pytest.raises(SqlError) as caught:
                database.sql(sql).arrow()
            told.append(str(caught.value))
        assert told[0] == told[1]


def test_an_expression_ends_at_the_limit_of_its_statement(apart: Database) -> None:
    endless = "list_sum(range(1000)) + i"
    for name in "abc":
        endless = f"list_sum(list_transform(range(1000), {name} -> {name} + {endless}))"
    sql = f"{MATCHES}{endless} > 0)"
    apart.explain(sql)
    with pytest.raises(QueryTimeout):
        apart.sql(sql, timeout=1).arrow()
    assert leased(apart) == []


def test_types_are_asked_once(apart: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "SELECT window_start, sum(i * 3 + 5) AS m FROM TUMBLE(s, t, INTERVAL '1' DAY) GROUP BY 1"
    apart.explain(sql)
    executor = catalog_of(apart).engine.executor
    asked: list[str] = []
    monkeypatch.setattr(
        executor, "evaluate", lambda sql, tables, control: asked.append(sql) or pa.table({})
    )
    apart.explain(sql + " ")
    assert asked == []


def test_an_executor_says_whether_it_serves(here: Database, path: Path) -> None:
    assert catalog_of(here).engine.executor.serves(10)
    with chronicle.open(path, "r", query_memory_bytes=MEMORY + 4, isolation="process") as database:
        assert catalog_of(database).engine.executor.serves(10)
        pool = pool_of(database)
        pool._make = lambda: (_ for _ in ()).throw(WorkerLost("none", "start"))  # type: ignore[method-assign]
        for lease in [pool.lease() for _ in range(len(pool._idle))]:
            lease.discard()
        assert not catalog_of(database).engine.executor.serves(10)
