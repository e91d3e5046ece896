"""Queries and reads past the router: the answers of the long way, to the byte."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable
from typing import Any

import pytest

import chronicle
from chronicle.server import create_token
from chronicle.server.routes import small_requests

from ..patience import wait_until
from .flights import SPEC, rows_of, table_of

QUERIES = [
    "q=SELECT 1 AS one",
    "q=SELECT count(*) AS n, max(altitude) AS top FROM flights",
    "q=SELECT count(*) AS n, max(altitude) AS top FROM flights",
    "q=SELECT * FROM flights&limit=2",
    "q=SELECT * FROM flights&limit=0",
    "q=SELECT * FROM flights&limit=2&format=csv",
    "q=SELECT * FROM flights&format=arrow",
    "q=SELECT * FROM flights&format=parquet&timeout_ms=5000",
    "q=SELECT * FROM flights&format=NDJSON",
    "q=SELECT * FROM flights&time_format=epoch_ms",
    "q=SELECT icao24 || 'é+ %25 &' AS s FROM flights LIMIT 1",
    "q=",
    "q=%20",
    "q",
    "",
    "q=SELEC 1",
    "q=SELECT nothing FROM flights",
    "q=SELECT * FROM nowhere",
    "q=SELECT * FROM other",
    "q=DROP STREAM flights",
    "q=SELECT 1&q=SELECT 2",
    "q=SELECT 1&limit=-1",
    "q=SELECT 1&limit=",
    "q=SELECT 1&limit=1e3",
    "q=SELECT 1&limit=%2B1",
    "q=SELECT 1&limit= 1",
    "q=SELECT 1&limit=1_0",
    "q=SELECT 1&limit=٣",
    "q=SELECT 1&limit=007",
    "q=SELECT 1&limit=9223372036854775807",
    "q=SELECT 1&limit=9223372036854775808",
    "q=SELECT 1&timeout_ms=0",
    "q=SELECT 1&format=xml",
    "q=SELECT 1&format=",
    "q=SELECT 1&columns=a",
    "q=SELECT 1&wish=1",
    "q=SELECT%0",
    "q=SELECT 1;",
    "q=SELECT%ff 1",
]
READS = [
    "",
    "limit=1",
    "limit=1&format=ndjson",
    "limit=1&format=ndjson&end_marker=true",
    "limit=2&columns=altitude,icao24",
    "columns=altitude&columns=icao24",
    "columns=",
    "columns=nothing",
    "columns=altitude,altitude",
    "where=altitude > 2",
    "where=altitude >",
    "where=count(*) > 1",
    "start=2018-08-01T05:00:01Z&end=2018-08-01T05:00:03Z",
    "start=2018-08-01T07:00:01+02:00",
    "start=soon",
    "start=",
    "start=1533099601&precision=s",
    "start=1533099601&precision=h",
    "version=1",
    "version=x",
    "version=-1",
    "q=SELECT 1",
    "limit=1&limit=2",
]
STREAMS = ["flights", "nowhere", "other", "a%2Fb", "fl%69ghts", "%66lights/", "a%00b"]
BODIES: list[dict[str, Any]] = [
    {"json": {"sql": "SELECT * FROM flights", "limit": 2}},
    {"json": {"sql": "SELECT * FROM flights WHERE altitude > $x", "params": {"x": 2}}},
    {"json": {"sql": "SELECT * FROM flights", "limit": "many"}},
    {"json": {"sql": "SELECT * FROM flights", "wish": 1}},
    {"json": []},
    {"content": b"{"},
    {"content": b"SELECT 1 AS one"},
    {"content": b"SELECT 1 AS one", "headers": {"content-type": "application/sql"}},
    {"content": b"SELECT 1 AS one", "headers": {"content-type": "text/csv"}},
    {"content": b"SELECT 1 AS one", "headers": {"accept": "text/csv"}},
]
HEADS: list[dict[str, str]] = [
    {"accept": "text/csv"},
    {"accept": "image/png"},
    {"accept": "*/*;q=0.1, application/x-ndjson"},
    {"accept-encoding": "gzip"},
    {"accept-encoding": "gzip;q=0"},
    {"authorization": "Basic eDp5"},
    {"authorization": "Bearer"},
    {"authorization": "bearer  {read}"},
    {"authorization": "bearer {read}"},
    {"origin": "http://elsewhere.example"},
    {"x-request-id": "mine"},
    {"range": "bytes=0-3"},
]

VARIES = re.compile(rb'"elapsed_ms":[0-9.]+|"(query_id|request_id)":"[^"]*"')


def seen(answer: Any) -> tuple[int, dict[str, str], bytes]:
    """What may be compared of an answer."""
    headers = dict(answer.headers)
    for name in ("x-request-id", "x-query-id", "server-timing"):
        headers.pop(name, None)
    body = VARIES.sub(b"", answer.content)
    headers["content-length"] = str(len(body)) if "content-length" in headers else "none"
    return answer.status_code, headers, body


@pytest.fixture
def ask(
    database: chronicle.Database, serve_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[bool, list[tuple[int, dict[str, str], bytes]]]]:
    """Ask twice, by the short way and by the long one; tells whether the short one was taken."""
    open_api = serve_app(database)
    for name in ("flights", "other", "a/b"):
        assert open_api.post("/v1/streams", json={**SPEC, "name": name}).status_code == 201
        database.stream(name).append(table_of(rows_of(4)))
    secrets = {
        "read": create_token(database.path, "r", ["read"], ["flights", "a/b"])[1],
        "write": create_token(database.path, "w", ["write"])[1],
    }
    api = serve_app(database, max_failed_logins_per_minute=10_000)
    found, taken = small_requests._route_of, []

    def noted(scope: Any) -> Any:
        taken.append(found(scope))
        return taken[-1]

    def send(method: str, path: str, who: str | None, more: dict[str, Any]) -> Any:
        headers = {n: v.format(**secrets) for n, v in more.get("headers", {}).items()}
        if who is not None:
            headers.setdefault("authorization", f"Bearer {secrets.get(who, who)}")
        return seen(api.request(method, path, **{**more, "headers": headers}))

    def both(method: str, path: str, who: str | None = "read", **more: Any) -> Any:
        taken.clear()
        monkeypatch.setattr(small_requests, "_route_of", noted)
        answers = [send(method, path, who, more)]
        was = any(found is not None for found in taken)
        monkeypatch.setattr(small_requests, "_route_of", lambda scope: None)
        answers.append(send(method, path, who, more))
        return was, answers

    return both


def test_queries_get_the_answers_of_the_long_way(ask: Callable[..., Any]) -> None:
    short = 0
    for query in QUERIES:
        path = "/v1/query?" + urllib.parse.quote(query, safe="=&%+")
        for who in ("read", "write", None):
            was, (ours, theirs) = ask("GET", path, who)
            assert ours == theirs, (query, who)
            short += was
    assert short > 40


def test_reads_get_the_answers_of_the_long_way(ask: Callable[..., Any]) -> None:
    short = 0
    for stream in STREAMS:
        for query in READS if stream == "flights" else ["", "limit=1", "limit=x"]:
            path = f"/v1/streams/{stream}/events?" + urllib.parse.quote(query, safe="=&%+")
            was, (ours, theirs) = ask("GET", path)
            assert ours == theirs, (stream, query)
            short += was
    assert short > 20


def test_bodies_and_heads_get_the_answers_of_the_long_way(ask: Callable[..., Any]) -> None:
    for body in BODIES:
        for path in ("/v1/query", "/v1/query?format=csv", "/v1/query?q=SELECT%201"):
            _, (ours, theirs) = ask("POST", path, **body)
            assert ours == theirs, (path, body)
    for head in HEADS:
        for path in ("/v1/query?q=SELECT%201", "/v1/streams/flights/events?limit=1"):
            _, (ours, theirs) = ask("GET", path, headers=head)
            assert ours == theirs, (path, head)
    for method in ("HEAD", "PUT", "OPTIONS", "DELETE", "get"):
        _, (ours, theirs) = ask(method, "/v1/query?q=SELECT%201&format=csv")
        assert ours == theirs, method


def test_what_is_counted_is_counted_either_way(
    api: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def counted() -> dict[str, str]:
        lines = api.get("/metrics").text.splitlines()
        names = (
            "chronicle_http_requests_total{",
            "chronicle_queries_total{",
            "chronicle_result_rows_total{",
        )
        counts = {line.split()[0]: line.split()[1] for line in lines if line.startswith(names)}
        return {name: count for name, count in counts.items() if "/metrics" not in name}

    def send() -> None:
        api.get("/v1/query?q=SELECT%201")
        api.get("/v1/query?q=SELEC")
        api.get("/v1/streams/flights/events?limit=1")
        api.get("/v1/streams/nowhere/events?limit=1")

    def growth() -> dict[str, float]:
        """What the requests add; an answer may be there before its query is counted."""
        before = counted()
        send()

        def added() -> dict[str, float]:
            now = counted().items()
            found = {name: float(count) - float(before.get(name, 0)) for name, count in now}
            return {name: count for name, count in found.items() if count}

        queries = "chronicle_queries_total{"  # counted last
        wait_until(lambda: sum(n for name, n in added().items() if name.startswith(queries)) == 4)
        return added()

    short = growth()
    monkeypatch.setattr(small_requests, "_route_of", lambda scope: None)
    assert growth() == short
    assert sum(short.values()) >= 4
