"""Clients that send or take too slowly cost themselves, and nobody else, against a real socket."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from chronicle.server import create_token
from chronicle.server.service.bodies import Pace
from chronicle.tests.patience import wait_until

from ..new_stores import store_with

SCHEMA = pa.schema([pa.field("t", pa.int64(), False), pa.field("s", pa.string())])
database = store_with("s", schema=SCHEMA)
SLOW = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range < 0"


class Trickle:
    """Sends bytes one by one until the server ends it."""

    def __init__(self, live: Any, start: bytes) -> None:
        self._socket = live.connect()
        self._socket.sendall(start)
        self._gone = False
        self.answer = b""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._socket:
            self._socket.settimeout(0.05)
            while not self._gone:
                with contextlib.suppress(OSError):
                    self._socket.send(b"a")
                try:
                    piece = self._socket.recv(65536)
                except TimeoutError:
                    continue
                except OSError:
                    break
                if not piece:
                    break
                self.answer += piece

    def wait(self) -> Trickle:
        """Until the server has ended it."""
        wait_until(lambda: not self._thread.is_alive(), "the end of a connection")
        return self

    def leave(self) -> None:
        self._gone = True
        self._thread.join()


def request(path: str, *headers: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode()


UPLOAD = request("/v1/streams/s/events?format=ndjson", "Content-Length: 100000")


def test_slow_uploads_block_no_append(database: Any, live: Callable[..., Any]) -> None:
    served = live(database, max_concurrent_appends=2, max_waiting_queries=0)
    trickles = [Trickle(served, UPLOAD) for _ in range(12)]
    wait_until(lambda: served.app.state.server.bodies.running == 12)
    for number in range(20):
        answer = served.http.post("/v1/streams/s/events", json=[{"t": number, "s": "a"}])
        assert answer.status_code == 200, answer.text
    assert served.app.state.server.bodies.running >= 12
    for trickle in trickles:
        trickle.leave()
    assert database.stream("s").count == 20


@pytest.mark.parametrize(
    "path", ["/v1/streams/s/events?format=ndjson", "/v1/query", "/v1/explain", "/v1/streams"]
)
def test_bodies_have_a_deadline(path: str, database: Any, live: Callable[..., Any]) -> None:
    """Silence is no way round the least rate, nor is a byte now and then."""
    served = live(database, client_timeout_ms=300)
    found = Trickle(served, request(path, "Content-Length: 100000")).wait()
    assert b" 408 " in found.answer
    assert b"CHRONICLE_MIN_CLIENT_BYTES_PER_S" in found.answer


def test_one_client_does_not_take_all_uploads(database: Any, live: Callable[..., Any]) -> None:
    _, slow = create_token(database.path, "slow", ["write"])
    _, good = create_token(database.path, "good", ["write"])
    served = live(database, max_concurrent_uploads=4)
    upload = request(
        "/v1/streams/s/events?format=ndjson",
        "Content-Length: 100000",
        f"Authorization: Bearer {slow}",
    )
    held = [Trickle(served, upload) for _ in range(8)]
    wait_until(lambda: sum(b" 503 " in trickle.answer for trickle in held) == 5)
    answer = served.http.post(
        "/v1/streams/s/events",
        json=[{"t": 1, "s": "a"}],
        headers={"Authorization": f"Bearer {good}"},
    )
    assert answer.status_code == 200, answer.text
    assert served.app.state.server.bodies.running >= 3
    for trickle in held:
        trickle.leave()


def test_json_bodies_count_among_the_bytes_that_are_held(
    database: Any, live: Callable[..., Any]
) -> None:
    served = live(database, max_upload_memory_bytes=1 << 20)
    upload = request("/v1/query", "Content-Length: 800000") + b" " * 700_000
    held = Trickle(served, upload)
    wait_until(lambda: served.app.state.server.uploads.used >= 700_000)
    answer = served.http.post("/v1/query", content=b"SELECT 1" + b" " * 500_000)
    assert answer.status_code in (413, 503)
    held.leave()
    wait_until(lambda: served.app.state.server.uploads.used == 0)
    assert served.http.post("/v1/query", content=b"SELECT 1").status_code == 200


def test_headers_have_a_deadline(database: Any, live: Callable[..., Any]) -> None:
    served = live(database, header_timeout_ms=400)
    silent = served.connect()
    trickle = Trickle(served, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: ").wait()
    assert trickle.answer == b""
    assert silent.recv(10) == b"", "who says nothing is let go, too"
    silent.close()


def test_further_requests_of_a_connection_have_it_too(
    database: Any, live: Callable[..., Any]
) -> None:
    served = live(database, header_timeout_ms=400)
    first = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = b""
    while not answer:  # on a slow machine the first one may be too late
        answer = Trickle(served, first + b"GET /healthz HTTP/1.1\r\nX-A: ").wait().answer
    assert answer.count(b"200 OK") == 1


def test_a_body_may_take_longer_than_headers(database: Any, live: Callable[..., Any]) -> None:
    served = live(database, header_timeout_ms=200)
    row = b'{"t": 1, "s": "a"}\n'
    answer = b""
    while not answer:  # on a slow machine the headers may be too late
        with served.connect() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(
                request("/v1/streams/s/events?format=ndjson", f"Content-Length: {len(row) * 5}")
            )
            for _ in range(5):
                time.sleep(0.1)
                connection.sendall(row)
            answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200")


def test_headers_have_a_size(database: Any, live: Callable[..., Any]) -> None:
    served = live(database)
    with served.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        answer = b""
        with contextlib.suppress(OSError):
            for number in range(2000):
                connection.sendall(b"X-%d: " % number + b"a" * 1000 + b"\r\n")
        with contextlib.suppress(OSError):
            while piece := connection.recv(65536):
                answer += piece
    assert not answer or answer.startswith(b"HTTP/1.1 431"), answer
    assert served.http.get("/healthz").status_code == 200


def test_nothing_but_http_is_spoken(database: Any, live: Callable[..., Any]) -> None:
    """A WebSocket would come in past the guard."""
    served = live(database)
    with served.connect() as connection:
        connection.sendall(
            request(
                "/v1/query",
                "Connection: Upgrade",
                "Upgrade: websocket",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                "Sec-WebSocket-Version: 13",
                method="GET",
            )
        )
        assert not connection.recv(65536).startswith(b"HTTP/1.1 101")


def test_one_client_with_slow_queries_starves_nobody(
    database: Any, live: Callable[..., Any]
) -> None:
    _, greedy = create_token(database.path, "greedy", ["read"])
    _, modest = create_token(database.path, "modest", ["read"])
    served = live(database, max_concurrent_queries=4)
    headers = (f"Content-Length: {len(SLOW)}", f"Authorization: Bearer {greedy}")
    with contextlib.ExitStack() as sent:
        for _ in range(24):
            connection = sent.enter_context(served.connect())
            connection.sendall(request("/v1/query", *headers) + SLOW.encode())
        wait_until(lambda: served.app.state.server.queries.waiting >= 10)
        for _ in range(3):
            answer = served.http.post(
                "/v1/query", content=b"SELECT 1", headers={"Authorization": f"Bearer {modest}"}
            )
            assert answer.status_code == 200, answer.text
        assert served.app.state.server.queries.waiting >= 10


def test_clients_that_do_not_read_starve_nobody(database: Any, live: Callable[..., Any]) -> None:
    database.stream("s").append(pa.table({"t": range(200_000), "s": ["a" * 100] * 200_000}, SCHEMA))
    _, deaf = create_token(database.path, "deaf", ["read"])
    _, modest = create_token(database.path, "modest", ["read"])
    served = live(database, max_concurrent_queries=4, max_concurrent_reads=4)
    server = served.app.state.server
    headers = {"Authorization": f"Bearer {modest}"}
    with contextlib.ExitStack() as sent:
        for path in ("/v1/query?q=SELECT%20*%20FROM%20s", "/v1/streams/s/events"):
            for _ in range(8):
                connection = sent.enter_context(served.connect(receive_bytes=4096))
                connection.sendall(request(path, f"Authorization: Bearer {deaf}", method="GET"))
        wait_until(lambda: server.queries.waiting >= 5 and server.reads.waiting >= 5)
        for path in ("/v1/query?q=SELECT%201", "/v1/streams/s/events?limit=1", "/v1/streams"):
            assert served.http.get(path, headers=headers).status_code == 200


def test_who_takes_an_answer_too_slowly_is_broken_off(
    database: Any, live: Callable[..., Any]
) -> None:
    """A few bytes now and then are no progress."""
    database.stream("s").append(pa.table({"t": range(300_000), "s": ["a" * 100] * 300_000}, SCHEMA))
    served = live(database, client_timeout_ms=700, min_client_bytes_per_s=50_000_000)
    with served.connect(receive_bytes=4096) as connection:
        connection.sendall(request("/v1/streams/s/events", method="GET"))
        assert connection.recv(2048)
        with contextlib.suppress(ConnectionError):
            while served.connections:
                connection.recv(2048)
                time.sleep(0.02)
    wait_until(lambda: served.app.state.server.reads.running == 0)  # once the scan is closed


def test_what_a_pace_allows() -> None:
    pace = Pace(60.0, 1000)
    assert pace.left(0, 0.0) == 60.0
    assert pace.left(0, 59.0) == 1.0
    assert pace.left(1000, 60.0) == 1.0
    assert pace.left(10, 61.0) < 0
    assert pace.left(10**9, 60.0) == 60.0, "silence is limited, however much has come"
