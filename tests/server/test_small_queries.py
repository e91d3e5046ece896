"""Queries that are surely little work: the answers of all others, without a thread."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.server import create_token
from chronicle.server.service import query_log
from chronicle.store.segment import ScanMetrics
from chronicle.tests.patience import PATIENCE_S, wait_until

EVENTS = 30_000
SMALL = [
    "SELECT count(*) AS n FROM s",
    "SELECT max(x), avg(x), sum(i), min(t) FROM s WHERE t >= 1000 AND t < 20000",
    "SELECT * FROM s LIMIT 5",
    "SELECT i, t FROM s WHERE t >= 5000 LIMIT 3 OFFSET 2",
    "SELECT * FROM s WHERE t = 777",
    "SELECT s, x FROM s WHERE t BETWEEN 100 AND 200",
    "SELECT i FROM s WHERE t BETWEEN 100 AND 900 AND i > 3",
]
LARGE = [
    "SELECT * FROM s",
    "SELECT * FROM s LIMIT 100000",
    "SELECT i FROM s LIMIT 1 OFFSET 20000",
    "SELECT i FROM s WHERE i > 3",
    "SELECT s, count(*) FROM s GROUP BY s",
    "SELECT 1",
    "SELECT a.t FROM s a JOIN s b ON a.t = b.t LIMIT 1",
    "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.x AS a PATTERN (A B) "
    "DEFINE B AS x > 5) AS m",
    "SHOW STREAMS",
]


def events(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "t": numbers,
            "i": numbers % 11,
            "x": numbers / 7,
            "s": pa.array([f"k{n % 5}" for n in numbers]),
        }
    )


@pytest.fixture(params=["tail", "leaves", "late"])
def filled(request: pytest.FixtureRequest, database: Any) -> Any:
    database.sql("CREATE STREAM s (t BIGINT, i BIGINT, x DOUBLE, s VARCHAR) TIMESTAMP BY t")
    stream = database.stream("s")
    if request.param == "tail":
        stream.append(events(0, 20_000))
        stream.flush()
        for n in range(20_000, EVENTS, 1000):
            stream.append(events(n, 1000))
        return database
    stream.append(events(0, EVENTS))
    stream.seal()
    if request.param == "late":
        stream.append(events(500, 300))
        stream.append(events(7_000, 3))
    return database


@pytest.mark.parametrize("text", SMALL)
def test_at_once_or_not_the_answer_is_the_same(filled: Any, text: str) -> None:
    assert filled.engine.at_once(text) is None, "never run before"
    usual = filled.sql(text).arrow()
    for _ in range(2):
        quick = filled.engine.at_once(text)
        assert quick is not None
        assert quick.arrow() == usual
    assert filled.sql(text).arrow() == usual


@pytest.mark.parametrize("text", LARGE)
def test_what_may_be_long_is_not_run_at_once(filled: Any, text: str) -> None:
    filled.sql(text).arrow()
    assert filled.engine.at_once(text) is None


def test_a_query_that_grows_is_run_elsewhere(database: Any) -> None:
    database.sql("CREATE STREAM s (t BIGINT, i BIGINT, x DOUBLE, s VARCHAR) TIMESTAMP BY t")
    text = "SELECT * FROM s WHERE t < 1000"
    database.stream("s").append(events(0, 10))
    assert database.sql(text).arrow().num_rows == 10
    assert database.engine.at_once(text).arrow().num_rows == 10
    database.stream("s").append(events(10, 980))
    assert database.engine.at_once(text) is None
    database.drop_stream("s")
    assert database.engine.at_once(text) is None


def test_a_scan_reads_no_more_than_its_limit(filled: Any) -> None:
    snapshot = filled.stream("s").snapshot()
    for limit in (1, 700, 25_000):
        for start in (None, 400, 25_000):
            metrics = ScanMetrics()
            found = pa.Table.from_batches(snapshot.scan(start, limit=limit, metrics=metrics))
            whole = pa.Table.from_batches(snapshot.scan(start))
            assert found == whole.slice(0, limit)
            sources = 1 + len(snapshot.state.runs)
            assert metrics.events_read <= limit * sources


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """Have a server answer nothing by a thread from now on."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a thread was asked")

    def use(api: Any) -> None:
        server = api.app.state.server
        monkeypatch.setattr(server, "submit", refuse)
        monkeypatch.setattr(server, "_put", refuse)

    yield use
    monkeypatch.undo()


def test_small_answers_take_no_thread_and_look_the_same(
    database: Any,
    serve_app: Callable[..., Any],
    no_threads: Callable[[Any], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(query_log, "HELD_S", PATIENCE_S)
    database.sql("CREATE STREAM s (t BIGINT, i BIGINT, x DOUBLE, s VARCHAR) TIMESTAMP BY t")
    database.stream("s").append(events(0, 2000))
    api = serve_app(database)
    told = []
    for name in ("json", "ndjson", "csv", "arrow", "parquet"):
        params = {"q": "SELECT * FROM s LIMIT 4", "limit": 3, "format": name}
        told.append((params, api.get("/v1/query", params=params)))
    server = api.app.state.server
    wait_until(lambda: server.queries.running == 0)  # once the threads have ended
    no_threads(api)
    for params, usual in told:
        again = api.get("/v1/query", params=params)
        assert again.status_code == usual.status_code == 200, again.text
        names = ("content-type", "x-row-count", "x-truncated", "cache-control", "vary")
        assert [again.headers[n] for n in names] == [usual.headers[n] for n in names]
        if params["format"] == "json":
            assert again.json()["rows"] == usual.json()["rows"]
            assert again.json()["truncated"] is True
        else:
            assert again.content == usual.content
    first = api.get("/v1/streams/s/events", params={"limit": 1})
    assert (first.json(), first.headers["x-truncated"]) == (
        [{"t": 0, "i": 0, "x": 0.0, "s": "k0"}],
        "true",
    )
    assert (server.queries.running, server.reads.running, len(server.running)) == (0, 0, 0)
    ok = 'chronicle_queries_total{kind="query",outcome="ok"} 10.0'
    assert ok in server.metrics.render().decode()


def test_a_token_without_reach_is_refused_at_once(
    database: Any, serve_app: Callable[..., Any]
) -> None:
    database.sql("CREATE STREAM s (t BIGINT, i BIGINT, x DOUBLE, s VARCHAR) TIMESTAMP BY t")
    database.stream("s").append(events(0, 20))
    may = create_token(database.path, "may", ["read"])[1]
    may_not = create_token(database.path, "other", ["read"], ["x*"])[1]
    writer = create_token(database.path, "w", ["write"])[1]
    api = serve_app(database)

    def ask(secret: str) -> tuple[int, str]:
        answer = api.get(
            "/v1/query",
            params={"q": "SELECT count(*) AS n FROM s"},
            headers={"authorization": f"Bearer {secret}"},
        )
        return answer.status_code, answer.json().get("code", "")

    for _ in range(2):
        assert ask(may) == (200, "")
        assert ask(may_not) == (400, "sql-error")
        assert ask(writer) == (403, "forbidden")


def test_what_held_the_loop_is_kept_off_it(
    database: Any, serve_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    database.sql("CREATE STREAM s (t BIGINT, i BIGINT, x DOUBLE, s VARCHAR) TIMESTAMP BY t")
    api = serve_app(database)
    asked, now = [], [0.0]

    def slow(text: str, *_: Any, **__: Any) -> None:
        asked.append(text)
        now[0] += 2 * query_log.HELD_S

    monkeypatch.setattr(
        query_log, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time)
    )
    monkeypatch.setattr(database.engine, "at_once", slow)
    for seconds, times in ((0, 1), (0, 1), (query_log.AWAY_MIN_S, 2), (query_log.AWAY_MIN_S, 2)):
        now[0] += seconds
        assert api.get("/v1/query", params={"q": "SELECT count(*) FROM s"}).status_code == 200
        assert len(asked) == times, "the second time it is kept off for longer"


def test_long_queries_leave_the_loop_to_others(
    database: chronicle.Database, live: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorts and scans of many events, texts that the server knows: they run beside it."""
    served, asked = beside_long_queries(database, live)
    begun, go_on, sql = threading.Semaphore(0), threading.Event(), database.sql

    def held(*given: Any, **more: Any) -> Any:
        begun.release()
        assert go_on.wait(PATIENCE_S)
        return sql(*given, **more)

    monkeypatch.setattr(database, "sql", held)
    with ThreadPoolExecutor() as clients:
        answers = [clients.submit(each) for each in asked]
        try:
            for _ in asked:
                assert begun.acquire(timeout=PATIENCE_S)
            assert served.http.get("/healthz").status_code == 200
        finally:
            go_on.set()
        assert [answer.result().status_code for answer in answers] == [200] * len(asked)


@pytest.mark.bench
def test_healthz_beside_long_queries(
    database: chronicle.Database, live: Callable[..., Any]
) -> None:
    served, asked = beside_long_queries(database, live)
    stop, waits = threading.Event(), []

    def keep_asking(ask: Callable[[], Any]) -> None:
        while not stop.is_set():
            assert ask().status_code == 200

    with ThreadPoolExecutor() as clients:
        asking = [clients.submit(keep_asking, each) for each in asked]
        for _ in range(40):
            begun = time.perf_counter()
            assert served.http.get("/healthz").status_code == 200
            waits.append(time.perf_counter() - begun)
        stop.set()
        for each in asking:
            each.result()
    print(f"/healthz beside long queries: {statistics.median(waits) * 1000:.1f} ms")


def beside_long_queries(database: chronicle.Database, live: Callable[..., Any]) -> Any:
    """A server, and requests for long queries that it knows."""
    database.sql("CREATE STREAM s (t BIGINT, i BIGINT, x DOUBLE, s VARCHAR) TIMESTAMP BY t")
    database.stream("s").append(events(0, 300_000))
    served = live(database)
    texts = [
        "SELECT s, i, sum(x) FROM s GROUP BY s, i ORDER BY 3",
        "SELECT * FROM s WHERE x > 40000",
        "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY s ORDER BY t MEASURES A.x AS a "
        "PATTERN (A B) DEFINE B AS i > 9) AS m",
    ]
    asked = [
        partial(served.http.post, "/v1/query", json={"sql": text, "limit": 10}) for text in texts
    ]
    assert [ask().status_code for ask in asked] == [200] * len(asked)
    return served, asked
