"""The real process: uvicorn on loopback, signals, restarts, clients that hang up."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import chronicle
from chronicle.errors import InvalidArgument, NotAStore, StoreLocked
from chronicle.server import create_token, load_settings, serve
from chronicle.tests.patience import PATIENCE_S, wait_until

from .conftest import HOUR_MS, PATIENT

PROGRAM = """
import sys
from chronicle.errors import ChronicleError, outside
from chronicle.server import load_settings, run, serve
run.HARD_STOP_S = 600
try:
    serve(load_settings(store=sys.argv[1], port=int(sys.argv[2])))
except ChronicleError as error:
    print(type(error).__name__, error, file=sys.stderr)
    sys.exit(outside(error).exit_code)
"""
PATIENTLY = {f"CHRONICLE_{name.upper()}": str(value) for name, value in PATIENT.items()}
SPEC = {"name": "s", "time": "t", "schema": {"t": "bigint", "x": "double"}}
ENDLESS = "SELECT a.range AS a, b.range AS b FROM range(1000000) a, range(1000000) b"


class Process:
    """A served store."""

    def __init__(
        self, store: Path, port: int = 0, program: str = PROGRAM, **environment: str
    ) -> None:
        self.store = store
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(store), str(port)],
            stderr=subprocess.PIPE,
            env={**os.environ, "CHRONICLE_LOG_LEVEL": "info", **PATIENTLY, **environment},
        )
        self.log: list[str] = []
        self.url = ""
        self._announced = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._announced.wait(PATIENCE_S), "\n".join(self.log)
        self.http = httpx.Client(base_url=self.url or "http://127.0.0.1:1", timeout=PATIENCE_S)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            text = line.decode(errors="replace").rstrip()
            self.log.append(text)
            print(text, file=sys.stderr)  # pytest shows it where a test fails
            found = re.search(r"listens on (https?://\S+)", text)
            if found:
                self.url = found[1]
                self._announced.set()
        self._announced.set()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; the exit code."""
        self.http.close()
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def append(self, first: int, count: int = 10, **headers: str) -> Any:
        rows = [{"t": t, "x": t / 2} for t in range(first, first + count)]
        return self.http.post("/v1/streams/s/events", json=rows, headers=headers)

    def count(self) -> int:
        rows = self.http.get("/v1/query", params={"q": "SELECT count(*) AS n FROM s"}).json()
        return int(rows["rows"][0]["n"])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start a server on one store; what still runs at the end is killed."""
    with contextlib.ExitStack() as stack:

        def run(**more: Any) -> Process:
            server = Process(tmp_path / "store", **more)

            def end() -> None:
                if server.process.returncode is None:
                    server.stop(signal.SIGKILL)

            stack.callback(end)
            return server

        yield run


def listens(host: str, port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex((host, port)) == 0


def exhaust(response: httpx.Response) -> None:
    for _ in response.iter_raw():
        pass


def test_a_life(start: Callable[..., Process]) -> None:
    """Serve, write from sixteen threads, stop in the middle, kill, and lose nothing."""
    server = start(CHRONICLE_DRAIN_TIMEOUT_MS=str(HOUR_MS))
    wait_until(lambda: server.http.get("/readyz").json()["status"] == "ready")
    assert server.http.post("/v1/streams", json=SPEC).status_code == 201
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: server.append(n * 10), range(64)))
    assert {answer.status_code for answer in answers} == {200}
    assert sum(answer.json()["appended"] for answer in answers) == 640
    keyed = server.append(1000, **{"idempotency-key": "k"}).json()
    assert server.count() == 650

    # SIGTERM while a body is on its way: it still gets its answer, and is stored.
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as slow:
        body = b'[{"t": 5000, "x": 1}]'
        head = (
            f"POST /v1/streams/s/events HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        slow.sendall(head.encode() + body[:8])
        wait_until(lambda: "chronicle_uploads_running 1.0" in server.http.get("/metrics").text)
        server.http.close()
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not listens(host, int(port)))
        slow.sendall(body[8:])
        answer = b"".join(iter(lambda: slow.recv(65536), b""))
    assert b"200 OK" in answer
    assert b'"count":651' in answer
    assert server.wait() == 0, "\n".join(server.log)
    assert "is closed" in server.log[-1]  # and nothing is said of what libraries have left

    again = start(CHRONICLE_LOG_FORMAT="json")
    assert again.count() == 651
    replayed = again.append(1000, **{"idempotency-key": "k"})
    assert replayed.headers["idempotency-replayed"] == "true"
    assert replayed.json() == keyed
    access: list[Any] = []

    def written() -> bool:
        lines = [json.loads(line) for line in list(again.log) if line.startswith("{")]
        access[:] = [line for line in lines if line["logger"] == "chronicle.server.access"]
        return bool(access)

    wait_until(written)
    assert (access[0]["method"], access[0]["path"]) == ("GET", "/v1/query")
    assert (access[0]["status"], len(access[0]["request_id"])) == (200, 32)
    told = again.append(9000).json()
    assert told.items() >= {"appended": 10, "late": 0, "count": 661}.items()
    assert again.stop(signal.SIGKILL) == -signal.SIGKILL

    with chronicle.open(again.store) as database:
        assert database.stream("s").count == 661


def test_answers_that_end_early(start: Callable[..., Process]) -> None:
    server = start(CHRONICLE_DRAIN_TIMEOUT_MS="1000")
    http = server.http

    def running() -> int:
        return len(http.get("/v1/queries").json()["queries"])

    # The client hangs up: the query ends.
    with http.stream("POST", "/v1/query?format=arrow", json={"sql": ENDLESS}) as response:
        assert response.status_code == 200
        chunks = response.iter_raw()  # letting go of it would hang up
        assert next(chunks)
        assert running() == 1
    wait_until(lambda: running() == 0)

    # Before the first byte as well.
    slow = f"SELECT count(*) AS n FROM ({ENDLESS}) WHERE a * b % 7 = 3"
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as line:
        head = f"POST /v1/query HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(slow)}\r\n\r\n"
        line.sendall(f"{head}{slow}".encode())
        wait_until(lambda: running() == 1)
    wait_until(lambda: running() == 0)

    # The time limit, before and after the first byte.
    assert http.post("/v1/query", json={"sql": slow, "timeout_ms": 200}).status_code == 504
    status, limit_ms = 504, 100
    while status == 504:  # which a slow machine answers until the first byte is in time
        limit_ms *= 4
        limited = {"sql": ENDLESS, "timeout_ms": limit_ms}
        with http.stream("POST", "/v1/query?format=csv", json=limited) as response:
            status = response.status_code
            if status == 200:
                with pytest.raises(httpx.RemoteProtocolError):
                    exhaust(response)
    assert status == 200

    # What does not fit is refused before it is sent.
    sent = 0

    def endless_body() -> Iterator[bytes]:
        nonlocal sent
        while sent < 1 << 31:
            sent += 1 << 16
            yield bytes(1 << 16)

    http.post("/v1/streams", json=SPEC)
    with contextlib.suppress(httpx.WriteError):
        refused = http.post(
            "/v1/streams/s/events", content=endless_body(), headers={"content-type": "text/csv"}
        )
        assert refused.status_code == 413
    assert sent < 1 << 30

    # What still runs when the drain is over is told so.
    found: list[httpx.Response] = []
    thread = threading.Thread(
        target=lambda: found.append(http.post("/v1/query", json={"sql": slow}))
    )
    thread.start()
    wait_until(lambda: running() == 1)
    server.process.send_signal(signal.SIGTERM)
    thread.join()
    assert (found[0].status_code, found[0].json()["code"]) == (503, "not-ready")
    http.close()
    assert server.wait() == 0, "\n".join(server.log)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_serves_as_soon_as_it_listens(tmp_path: Path, number: int) -> None:
    """It answers, and a signal ends it, ready or not; nothing is left, the store is closed."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    command = (  # who starts tests in the background hands down that interrupts are ignored
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from chronicle.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", command, "serve", "--store", str(tmp_path / "store"), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    try:
        assert process.stderr is not None
        found = re.search(r"http://[\w.:]+", process.stderr.readline())
        assert found, process.communicate()[1]
        with httpx.Client(base_url=found[0], timeout=PATIENCE_S) as http:
            assert http.get("/healthz").status_code == 200
            assert http.post("/v1/streams", json=SPEC).status_code == 201
            stored = http.post("/v1/streams/s/events", json=[{"t": 1, "x": 0.5}])
            assert stored.json()["count"] == 1, stored.text
            rows = http.get("/v1/query", params={"q": "SELECT x + 1 AS y FROM s"}).json()["rows"]
            assert rows == [{"y": 1.5}]
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "Traceback" not in said
    assert said.splitlines()[-1].endswith("is closed")
    assert list(scratch.iterdir()) == []
    with chronicle.open(tmp_path / "store") as database:  # no lock, nothing to repair
        assert database.check().ok


def test_starting_where_it_cannot_be(tmp_path: Path) -> None:
    """Each mistake is one clear error, before anything listens."""

    def start_with(**given: Any) -> None:
        serve(load_settings(**{"store": tmp_path / "other", "port": 0, **given}))

    with chronicle.open(tmp_path / "store"), pytest.raises(StoreLocked):
        start_with(store=tmp_path / "store")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidArgument, match=f"cannot listen on 127.0.0.1 port {port}"):
            start_with(port=port)
    with pytest.raises(InvalidArgument, match="token create"):
        start_with(host="0.0.0.0")
    create_token(tmp_path / "other", "t")
    with pytest.raises(InvalidArgument, match="cannot listen on no-such-host"):
        start_with(host="no-such-host.invalid")
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotAStore):
        start_with(store=tmp_path / "file")
    with chronicle.open(tmp_path / "other"):
        pass  # no lock was left behind
