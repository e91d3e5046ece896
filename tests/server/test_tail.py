"""Following a stream over HTTP: all of it once, in the order of commits, whoever comes and goes."""

from __future__ import annotations

import io
import json
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from chronicle.server import create_token
from chronicle.server.access.tokens import revoke_token
from chronicle.server.routes import following
from chronicle.tests.patience import wait_until

from ..new_stores import store_with
from .conftest import HOUR_MS
from .event_client import Source, parse

SCHEMA = pa.schema([pa.field("t", pa.int64(), False), pa.field("n", pa.int64())])
database = store_with("s", schema=SCHEMA)
TAIL = "/v1/streams/s/tail"


class Writer:
    """Appends numbered events and remembers them in the order of commits."""

    def __init__(self, database: Any) -> None:
        self.stream = database.stream("s")
        self.told: list[dict[str, int]] = []

    def append(self, *times: int) -> int:
        rows = [{"t": t, "n": len(self.told) + i} for i, t in enumerate(sorted(times))]
        self.told += rows
        return int(self.stream.append(rows, durability="none").version)


def url(served: Any, **query: Any) -> str:
    text = "&".join(f"{name}={value}" for name, value in query.items())
    return f"http://127.0.0.1:{served.port}{TAIL}?{text}"


def read(served: Any, **query: Any) -> list[Any]:
    response = served.http.get(TAIL, params={"follow": "false", **query})
    assert response.status_code == 200, response.text
    return list(parse(iter(response.text.splitlines())))


def test_commits_are_told_in_their_order_and_every_id_goes_on(
    database: Any, live: Callable[..., Any]
) -> None:
    served, writer = live(database), Writer(database)
    for times in ((10, 12), (5,), (11, 20, 21), (3, 30)):
        writer.append(*times)
    events = read(served, after=0)
    rows = [event for event in events if event.kind == "row"]
    assert [row.data for row in rows] == writer.told
    assert [row.id for row in rows] == ["0.1", "1", "2", "2.1", "2.2", "3", "3.1", "4"]
    assert events[-1].kind == "bye"
    for at, row in enumerate(rows):
        rest = [event.data for event in read(served, after=row.id) if event.kind == "row"]
        assert rest == writer.told[at + 1 :]
    assert [e.data for e in read(served) if e.kind == "row"] == []


def test_what_is_appended_comes_at_once(database: Any, live: Callable[..., Any]) -> None:
    served, writer = live(database), Writer(database)
    writer.append(1, 2)
    source = Source(url(served))
    wait_until(lambda: bool(source.of("mark")))
    assert source.of("mark")[0].id == "1"  # known before anything has come
    for time_ in (10, 4, 11):
        writer.append(time_)
    assert source.wait(3) == writer.told[2:]
    assert [event.id for event in source.of("row")] == ["2", "3", "4"]
    response = served.http.get("/v1/queries")
    assert [q["kind"] for q in response.json()["queries"]] == ["tail"]
    assert "chronicle_followers_running 1.0" in served.http.get("/metrics").text


def test_history_that_only_the_trees_hold_is_told_in_pieces_that_can_be_resumed(
    database: Any, live: Callable[..., Any]
) -> None:
    served, stream = live(database), database.stream("s")
    events = 60_000
    times = list(range(events))
    stream.append(pa.table({"t": pa.array(times), "n": pa.array(times)}))
    stream.seal()
    stream.append([{"t": 7, "n": -1}])
    stream.compact()
    first = read(served, after=0)
    rows = [event for event in first if event.kind == "row"]
    assert [row.data["t"] for row in rows] == sorted([*times, 7])
    stream.append([{"t": events, "n": -2}, {"t": 0, "n": -3}])
    for at in (0, 17_000, 40_001, events):
        rest = [event.data for event in read(served, after=rows[at].id) if event.kind == "row"]
        assert rest[:-2] == [row.data for row in rows[at + 1 :]]
        assert [row["n"] for row in rest[-2:]] == [-3, -2]


def test_conditions_columns_and_formats(database: Any, live: Callable[..., Any]) -> None:
    served, writer = live(database), Writer(database)
    writer.append(1, 2, 3)
    writer.append(2)
    told = [e for e in read(served, after=0, where="n % 2 = 1", columns="n") if e.kind == "row"]
    assert [row.data for row in told] == [{"n": 1}, {"n": 3}]
    assert [row.id for row in told] == ["0.2", "2"]
    events = read(served, after=0, where="n > 100")
    assert [(e.kind, e.id) for e in events] == [("mark", "2"), ("bye", "2")]
    query = {"after": 0, "follow": "false"}
    lines = served.http.get(TAIL, params={**query, "format": "ndjson"}).text.splitlines()
    assert [json.loads(line) for line in lines] == writer.told
    marked = served.http.get(TAIL, params={**query, "format": "ndjson", "marks": "true"}).text
    assert json.loads(marked.splitlines()[-1]) == {"$bye": {"reason": "the end"}}
    answer = served.http.get(TAIL, params=query, headers={"Accept": "application/x-ndjson"})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    arrow = served.http.get(TAIL, params={**query, "format": "arrow"}).content
    reader = pa.ipc.open_stream(io.BytesIO(arrow))
    assert reader.read_all().to_pylist() == writer.told
    texts = read(served, after=0, int64_as_string="true", columns="n")
    assert texts[0].data == {"n": "0"}


def test_what_cannot_be_followed(database: Any, live: Callable[..., Any]) -> None:
    served, writer = live(database), Writer(database)
    writer.append(1)
    writer.append(2)
    database.stream("s").seal()
    for query, status, code in (
        ({"after": "yesterday"}, 400, "invalid-argument"),
        ({"after": "1"}, 410, "snapshot-expired"),
        ({"after": "99"}, 410, "snapshot-expired"),
        ({"after": "0.1"}, 410, "snapshot-expired"),
        ({"after": "9~3"}, 400, "invalid-argument"),
        ({"where": "n >"}, 400, "sql-error"),
        ({"where": "count(*) > 1"}, 400, "sql-error"),
        ({"where": "n = (SELECT 1)"}, 400, "sql-error"),
        ({"where": "nobody > 1"}, 400, "sql-error"),
        ({"columns": "nobody"}, 404, "attribute-not-found"),
        ({"format": "csv"}, 406, "not-acceptable"),
        ({"since": "1"}, 422, "invalid-request"),
    ):
        response = served.http.get(TAIL, params={"follow": "false", **query})
        assert (response.status_code, response.json()["code"]) == (status, code), response.text
    again = served.http.get(TAIL, params={"after": "now"}, headers={"Last-Event-ID": "1"})
    assert again.status_code == 410
    assert served.http.get("/v1/streams/nobody/tail").status_code == 404
    assert served.app.state.server.followers_gate.running == 0


def test_a_tail_ends_with_its_token(
    database: Any, live: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_S", 0.05)
    _, mine = create_token(database.path, "mine", ["read"], ["s"])
    served = live(database)
    source = Source(url(served), Authorization=f"Bearer {mine}")
    wait_until(lambda: len(source.of(":")) > 1)  # heartbeats
    revoke_token(database.path, "mine")
    assert source.ended()
    assert source.events[-1].kind == "error"
    assert source.events[-1].data["status"] == 401


def test_clients_that_stall_and_come_back_lose_and_double_nothing(
    database: Any, live: Callable[..., Any]
) -> None:
    """A writer with late events, and clients that drop their connection again and again."""
    served, writer = live(database), Writer(database)
    writer.append(100)
    sources = [Source(url(served, after=0), reconnect=True) for _ in range(4)]
    wait_until(lambda: all(source.rows for source in sources))
    rng = random.Random(11)
    done = threading.Event()

    def write() -> None:
        newest = 100
        for number in range(300):
            newest += rng.randint(0, 3)
            late = [rng.randint(0, newest) for _ in range(rng.randint(0, 2))]
            writer.append(newest, *late)
            if number % 97 == 0:
                database.stream("s").seal()
            time.sleep(0.003)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        time.sleep(0.05)
        rng.choice(sources).drop()
    thread.join()
    wait_until(lambda: max(source.connections for source in sources) > 1)
    for source in sources:
        source.wait(len(writer.told))
        assert source.rows == writer.told
        assert [int(event.id.partition(".")[0]) for event in source.of("row")] == sorted(
            int(event.id.partition(".")[0]) for event in source.of("row")
        )
        source.stop()


def test_a_client_that_takes_nothing_costs_a_piece_and_is_broken_off(
    database: Any, live: Callable[..., Any]
) -> None:
    stream = database.stream("s")
    many = list(range(200_000))
    stream.append(pa.table({"t": pa.array(many), "n": pa.array(many)}))
    request = f"GET {TAIL}?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    patient = live(database)
    with patient.connect(receive_bytes=4096) as slow:
        slow.sendall(request)
        wait_until(lambda: patient.app.state.server.followers_gate.running == 1)
        assert patient.http.get(TAIL, params={"after": 1, "follow": "false"}).status_code == 200
    hurried = live(database, client_timeout_ms=200)
    broken_off = 'chronicle_follows_total{kind="tail",outcome="slow"} 1.0'
    with hurried.connect(receive_bytes=4096) as slow:
        slow.sendall(request)
        wait_until(lambda: broken_off in hurried.http.get("/metrics").text)
    assert hurried.app.state.server.followers_gate.running == 0


def test_two_hundred_idle_followers_cost_queries_nothing(
    database: Any, live: Callable[..., Any]
) -> None:
    _, token = create_token(database.path, "reader", ["read", "write"])
    served, writer = live(database), Writer(database)
    headers = {"Authorization": f"Bearer {token}"}
    request = (
        f"GET {TAIL} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    ).encode()
    idle: list[socket.socket] = []
    server = served.app.state.server
    threads = threading.active_count()
    try:
        for _ in range(200):
            idle.append(served.connect())
            idle[-1].sendall(request)
        wait_until(lambda: len(server.followers) == 200)
        body = {"sql": "SELECT count(*) AS c FROM s"}
        for number in range(20):
            answer = served.http.post("/v1/query", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            writer.append(number)
        assert threading.active_count() < threads + 200  # the pools have half as many at most
        for follower in (idle[0], idle[99], idle[199]):
            text = b""
            while text.count(b"event: row") < 20:
                text += follower.recv(65536)
            assert b'{"t":19,"n":19}' in text
    finally:
        for follower in idle:
            follower.close()
    wait_until(lambda: server.followers_gate.running == 0)


def test_followers_are_told_that_the_server_stops(database: Any, live: Callable[..., Any]) -> None:
    served = live(database, drain_timeout_ms=HOUR_MS)
    source = Source(url(served))
    wait_until(lambda: bool(source.of("mark")))
    served.close()
    assert source.ended()
    assert source.events[-1].kind == "bye"


def test_a_follower_can_be_cancelled_and_hears_of_a_dropped_stream(
    database: Any, live: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_S", 0.05)
    served = live(database)
    source = Source(url(served), **{"X-Request-Id": "mine"})
    wait_until(lambda: bool(source.of("mark")))
    assert served.http.delete("/v1/queries/mine").status_code in (200, 202, 204)
    assert source.ended()
    assert source.events[-1].data == {"reason": "cancelled"}
    other = Source(url(served))
    wait_until(lambda: bool(other.of("mark")))
    assert served.http.delete("/v1/streams/s").status_code == 204
    assert other.ended()
    assert other.events[-1].kind == "error"


def test_followers_have_a_bound(database: Any, live: Callable[..., Any]) -> None:
    served = live(database, max_followers=2)
    first = Source(url(served))
    wait_until(lambda: bool(first.of("mark")))
    answer = served.http.get(TAIL)
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
    assert "followers" in answer.json()["detail"]
