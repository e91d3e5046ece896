"""Webhooks: every row at least once, in order, whatever the receiver does, and where it may go."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import ChronicleError
from chronicle.live import delivery
from chronicle.live.delivery import Undelivered, Webhook, check_webhook, send
from chronicle.tests.patience import PATIENCE_S, wait_until

SCHEMA = pa.schema([pa.field("t", pa.int64(), False), pa.field("n", pa.int64())])
KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Receiver:
    """A server that answers as a test tells it to, and checks every signature."""

    def __init__(self) -> None:
        self.began = int(time.time())
        self.answer: Callable[[int], int | str] = lambda number: 200
        self.requests: list[tuple[str, bytes, list[Any]]] = []
        self.taken: list[Any] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                id, sent = self.headers["webhook-id"], self.headers["webhook-timestamp"]
                signed = hmac.new(KEY, f"{id}.{sent}.".encode() + body, hashlib.sha256).digest()
                expected = f"v1,{base64.b64encode(signed).decode()}"
                assert self.headers["webhook-signature"] == expected
                assert receiver.began <= int(sent) <= time.time()
                told = json.loads(body)
                assert told["type"] == "chronicle.live.rows"
                number = len(receiver.requests)
                receiver.requests.append((id, body, told["data"]["rows"]))
                answer = receiver.answer(number)
                if answer == "stall":
                    while receiver.answer(number) == "stall":
                        time.sleep(0.01)
                    return
                if answer == "hang up":
                    self.connection.close()
                    return
                if 200 <= int(answer) < 300:
                    receiver.taken += told["data"]["rows"]
                self.send_response(int(answer))
                if answer == 302:
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.faults: list[BaseException | None] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: self.faults.append(sys.exc_info()[1])
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook?to=me"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self.answer = lambda number: 200
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        assert not [fault for fault in self.faults if isinstance(fault, AssertionError)]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("CHRONICLE_WEBHOOK_PRIVATE", "true")
    monkeypatch.setattr(delivery, "PAUSE_S", 0.02)
    monkeypatch.setattr(delivery, "DEADLINE_S", 3600.0)
    made = Receiver()
    yield made
    made.close()


def follow(database: Any, url: str, **more: Any) -> Any:
    return database.create_live(
        "high",
        "SELECT t, n FROM s WHERE n > 2",
        idle="0 seconds",
        options={"webhook": url, "webhook_secret": SECRET},
        **more,
    )


def numbers(rows: list[Any]) -> list[int]:
    return [row["_seq"] for row in rows]


def test_every_row_is_taken_in_order_by_a_receiver_that_fails(
    tmp_path: Path, receiver: Receiver
) -> None:
    answers: dict[int, int | str] = {0: 500, 1: "hang up", 3: 302, 4: 429, 6: "hang up"}
    receiver.answer = lambda number: answers.get(number, 204)
    with chronicle.open(tmp_path / "store", live=True) as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        query = follow(database, receiver.url)
        for number in range(8):
            stream.append([{"t": number * 10, "n": 5}, {"t": number, "n": 7}])
            database.run_live(timeout=PATIENCE_S)
        wait_until(lambda: len(receiver.taken) >= 16)
        assert numbers(receiver.taken) == list(range(1, 17))
        wait_until(lambda: query.status()["webhook"]["after"] == 16)
        assert query.status()["webhook"]["state"] == "delivered"
        again = [id for id, _, _ in receiver.requests]
        assert again[0] == again[1] == again[2]  # what failed is sent again as the same
        bodies = {id: {body for other, body, _ in receiver.requests if other == id} for id in again}
        assert all(len(each) == 1 for each in bodies.values())


def test_deliveries_go_on_where_they_were_after_a_restart(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.answer = lambda number: 200 if number < 1 else 503
    with chronicle.open(tmp_path / "store", live=True) as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        follow(database, receiver.url)
        stream.append([{"t": t, "n": 5} for t in range(250)])
        wait_until(lambda: len(receiver.requests) > 2)
    assert numbers(receiver.taken) == list(range(1, 101))  # a hundred a request
    failed = receiver.requests[-1][0]
    first = len(receiver.requests)
    receiver.answer = lambda number: 200
    with chronicle.open(tmp_path / "store", live=True) as database:
        database.run_live(timeout=PATIENCE_S)
        wait_until(lambda: len(receiver.taken) >= 250)
    assert numbers(receiver.taken) == list(range(1, 251))
    assert receiver.requests[first][0] == failed


def test_a_delivery_is_parked_and_resumed(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "ATTEMPTS_MAX", 4)
    receiver.answer = lambda number: 500
    with chronicle.open(tmp_path / "store", live=True) as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        query = follow(database, receiver.url)
        stream.append([{"t": 1, "n": 5}])
        wait_until(lambda: query.status()["webhook"]["state"] == "parked")
        assert len(receiver.requests) == 4
        assert "4 requests failed" in query.status()["webhook"]["error"]
        stream.append([{"t": 2, "n": 6}])
        database.run_live(timeout=PATIENCE_S)
        time.sleep(0.2)
        assert len(receiver.requests) == 4  # nothing more is sent
        receiver.answer = lambda number: 200
        query.resume()
        wait_until(lambda: numbers(receiver.taken) == [1, 2])
        receiver.answer = lambda number: 410
        stream.append([{"t": 3, "n": 7}])
        wait_until(lambda: query.status()["webhook"]["state"] == "parked")
        query.drop()
    assert not (tmp_path / "store" / "live" / "high").exists()


def test_a_delivery_that_fails_in_another_way_is_parked_too(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("unexpected")

    monkeypatch.setattr(delivery, "ATTEMPTS_MAX", 3)
    monkeypatch.setattr(delivery, "PAUSE_S_MAX", 0.02)
    monkeypatch.setattr(delivery, "send", fails)
    with chronicle.open(tmp_path / "store", live=True) as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        query = follow(database, receiver.url)
        stream.append([{"t": 1, "n": 5}])
        wait_until(lambda: query.status()["webhook"]["state"] == "parked")
        monkeypatch.setattr(delivery, "send", send)
        query.resume()
        wait_until(lambda: numbers(receiver.taken) == [1])


def test_retry_after_is_a_number_or_a_date() -> None:
    assert delivery.seconds_of("120") == 120
    assert delivery.seconds_of("Fri, 31 Dec 2100 23:59:59 GMT") > 0
    assert delivery.seconds_of("Fri, 31 Dec 1999 23:59:59 GMT") == 0
    assert delivery.seconds_of("soon") == delivery.seconds_of("") == 0


def test_a_delivery_is_resumed_while_a_request_is_on_its_way(
    tmp_path: Path, receiver: Receiver
) -> None:
    with chronicle.open(tmp_path / "store", live=True) as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        query = follow(database, receiver.url)

        def answer(number: int) -> int:
            if number == 0:
                query.resume()
                return 410
            return 200

        receiver.answer = answer
        stream.append([{"t": 1, "n": 5}])
        database.run_live(timeout=PATIENCE_S)
        wait_until(lambda: numbers(receiver.taken) == [1])
        wait_until(lambda: query.status()["webhook"]["state"] == "delivered")
        assert query.status()["webhook"]["failures"] == 0


def test_a_receiver_that_stalls_or_is_down_delays_only_itself(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "DEADLINE_S", 0.2)
    receiver.answer = lambda number: "stall"
    with chronicle.open(tmp_path / "store", live=True) as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        slow = follow(database, receiver.url)
        options = {"webhook": "http://127.0.0.1:9/closed", "webhook_secret": SECRET}
        down = database.create_live("down", "SELECT t FROM s", idle="0 seconds", options=options)
        stream.append([{"t": 1, "n": 5}])
        wait_until(lambda: slow.status()["webhook"]["failures"] > 0)
        assert "no answer within" in slow.status()["webhook"]["error"]
        wait_until(lambda: down.status()["webhook"]["failures"] > 1)
        assert "cannot be reached" in down.status()["webhook"]["error"]


def test_closing_cuts_off_what_is_on_its_way(tmp_path: Path, receiver: Receiver) -> None:
    """It would wait for an answer that does not come."""
    receiver.answer = lambda number: "stall"
    with chronicle.open(tmp_path / "store", live=True) as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        follow(database, receiver.url)
        stream.append([{"t": 1, "n": 5}])
        wait_until(lambda: receiver.requests)


def test_private_addresses_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHRONICLE_WEBHOOK_PRIVATE", raising=False)
    stop = threading.Event()
    for host in (
        "127.0.0.1", "localhost", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254",
        "0.0.0.0", "100.64.0.1", "224.0.0.1", "[::1]", "[fe80::1]", "[fc00::1]",
        "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "2130706433", "0x7f.1",
    ):  # fmt: skip
        with pytest.raises(Undelivered, match=r"private network|no address"):
            send(Webhook(f"http://{host}/", SECRET), "id", b"{}", stop)
    looked_up: list[str] = []

    def lookup(host: str, port: int, **_: Any) -> list[Any]:
        looked_up.append(host)
        address = "93.184.216.34" if len(looked_up) == 1 else "127.0.0.1"
        return [(2, 1, 6, "", (address, port))]

    connected: list[Any] = []

    def connect(address: Any, timeout: float) -> Any:
        connected.append(address)
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(delivery.socket, "getaddrinfo", lookup)
    monkeypatch.setattr(delivery.socket, "create_connection", connect)
    with pytest.raises(Undelivered, match="cannot be reached"):
        send(Webhook("http://rebinding.example/", SECRET), "id", b"{}", stop)
    assert connected == [("93.184.216.34", 80)]  # what was looked at, once
    with pytest.raises(Undelivered, match="private network"):
        send(Webhook("http://rebinding.example/", SECRET), "id", b"{}", stop)


def test_what_cannot_be_a_webhook(tmp_path: Path) -> None:
    for url, secret in (
        ("ftp://example.org/", SECRET),
        ("https://", SECRET),
        ("https://a b/", SECRET),
        ("https://user:pass@example.org/", SECRET),
        ("https://example.org:99999/", SECRET),
        ("https://example.org/", None),
        ("https://example.org/", "secret"),
        ("https://example.org/", "whsec_" + base64.b64encode(b"short").decode()),
    ):
        with pytest.raises(ChronicleError):
            check_webhook(url, secret)
    with chronicle.open(tmp_path / "store") as database:
        database.create_stream("s", SCHEMA, time="t")
        with pytest.raises(ChronicleError, match="webhook_secret") as raised:
            database.sql(
                "CREATE LIVE QUERY a WITH (webhook = 'https://example.org/') AS SELECT t FROM s"
            )
        assert "line 1" in str(raised.value)
        database.sql(
            f"CREATE LIVE QUERY a WITH (webhook = 'https://example.org/', webhook_secret = "
            f"'{SECRET}', durability = 'none') AS SELECT t FROM s"
        )
        told = str(database.sql("DESCRIBE LIVE QUERY a").fetchall())
        assert "https://example.org/" in told
        assert SECRET not in told
        assert SECRET not in str(database.live("a").status())
