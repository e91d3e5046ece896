"""Small reads, and the event loop beside long queries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.query.engine import QueryEngine
from chronicle.store.segment import ScanMetrics
from chronicle.tests.patience import PATIENCE_S

EVENTS = 30_000


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


def test_long_queries_leave_the_loop_to_others(
    database: chronicle.Database, live: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorts and scans of many events, texts that the server knows: they run beside it."""
    served, asked = beside_long_queries(database, live)
    begun, go_on, run = threading.Semaphore(0), threading.Event(), QueryEngine.run

    def held(*given: Any, **more: Any) -> Any:
        begun.release()
        assert go_on.wait(PATIENCE_S)
        return run(*given, **more)

    monkeypatch.setattr(QueryEngine, "run", held)
    with ThreadPoolExecutor() as clients:
        answers = [clients.submit(each) for each in asked]
        try:
            for _ in asked:
                assert begun.acquire(timeout=PATIENCE_S)
            assert served.http.get("/healthz").status_code == 200
        finally:
            go_on.set()
        assert [answer.result().status_code for answer in answers] == [200] * len(asked)


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
