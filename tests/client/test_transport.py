"""Requests: what is tried again and what is not, and what becomes of a server that misbehaves."""

from __future__ import annotations

import pickle
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
import pytest

from chronicle.client import RemoteDatabase, Transport, transport
from chronicle.client.calls import Call
from chronicle.errors import ConnectionFailed, InvalidArgument, ResourceLimit, StreamNotFound
from chronicle.tests.patience import PATIENCE_S

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: 0\r\n\r\n"
GONE = (
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 70\r\n\r\n"
    b'{"type": "urn:chronicle:problem:stream-not-found", "detail": "no it"}  '
)
Serve = Callable[..., "Fake"]


class Fake:
    """A server that gives prepared answers, one a connection, and then hangs up.

    With ``rude``, it does so when it has seen the head of the request.
    """

    def __init__(self, answers: list[bytes], rude: bool) -> None:
        self._answers = answers
        self._rude = rude
        self.requests: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._closed = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for answer in self._answers:
            connection, _ = self._listener.accept()
            if self._closed:
                connection.close()
                return
            with connection, connection.makefile("rb") as file:
                request = b"".join(iter(file.readline, b"\r\n"))
                self.requests.append(request)
                if length := re.search(rb"Content-Length: (\d+)", request):
                    file.read(int(length[1]))
                if b"chunked" in request and not self._rude:
                    while size := int(file.readline(), 16):
                        file.read(size + 2)
                    file.readline()
                connection.sendall(answer)

    def close(self) -> None:
        self._closed = True
        with suppress(OSError):
            socket.create_connection(self._listener.getsockname(), PATIENCE_S).close()
        self._thread.join()
        self._listener.close()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    monkeypatch.setattr(transport, "_PAUSE_SECONDS", 0.01)
    started: list[Fake] = []

    def start(*answers: bytes, rude: bool = False) -> Fake:
        started.append(Fake(list(answers), rude))
        return started[-1]

    yield start
    for fake in started:
        fake.close()


def test_a_busy_server_is_asked_again(serve: Serve) -> None:
    fake = serve(BUSY, BUSY, OK)
    assert Transport(fake.url, retries=2).json(Call("POST", "/v1/x", body={"a": 1})) == {}
    assert len(fake.requests) == 3


def test_a_server_that_stays_busy_is_an_error(serve: Serve) -> None:
    fake = serve(BUSY, BUSY)
    with pytest.raises(ConnectionFailed, match="503"):
        Transport(fake.url, retries=1).json(Call("GET", "/v1/x"))
    assert len(fake.requests) == 2


def test_what_may_have_been_carried_out_is_not_repeated(serve: Serve) -> None:
    """A POST whose connection broke may have stored something: an INSERT would be there twice."""
    fake = serve(b"", OK)
    with pytest.raises(ConnectionFailed, match="broke off"):
        Transport(fake.url, retries=1).json(Call("POST", "/v1/query", body={"sql": "INSERT ..."}))
    assert len(fake.requests) == 1


def test_what_does_the_same_twice_is_repeated(serve: Serve) -> None:
    assert Transport(serve(b"", OK).url, retries=1).json(Call("GET", "/v1/x")) == {}
    assert Transport(serve(b"", OK).url, retries=1).json(Call("DELETE", "/v1/x")) == {}
    fake = serve(b"", OK)
    commit = "streams", "s", "transactions", "t", "commit"
    transport = Transport(fake.url, retries=1)
    assert transport.ask("POST", *commit, body={"parts": ["0"]}, repeatable=True) == {}
    assert fake.requests[1].startswith(b"POST /v1/streams/s/transactions/t/commit")


def test_a_server_that_is_not_there_is_said_after_some_tries(serve: Serve) -> None:
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        Transport("http://127.0.0.1:9", retries=2).json(Call("GET", "/healthz"))


def test_a_problem_document_becomes_the_error_it_was_made_from(serve: Serve) -> None:
    with pytest.raises(StreamNotFound, match=r"^no it\b") as raised:
        Transport(serve(GONE).url).json(Call("GET", "/v1/streams/s"))
    assert "http://127.0.0.1" in raised.value.__notes__[0]


def test_the_token_is_sent_and_travels_to_executors(serve: Serve) -> None:
    fake = serve(OK)
    copy = pickle.loads(pickle.dumps(Transport(fake.url, "secret")))
    copy.json(Call("GET", "/v1/x", {"a": None, "b": "ü&"}))
    assert fake.requests[0].startswith(b"GET /v1/x?b=%C3%BC%26 HTTP/1.1")
    assert b"Authorization: Bearer secret" in fake.requests[0]


def test_a_server_that_refuses_a_body_before_its_end_is_understood(serve: Serve) -> None:
    batch = pa.record_batch({"t": pa.array(range(2_000_000))})
    fake = serve(GONE, rude=True)
    with pytest.raises(StreamNotFound, match="no it"):
        Transport(fake.url).send(Call("POST", "/v1/x"), batch.schema, [batch] * 4)


def test_batches_are_sent_once(serve: Serve) -> None:
    batch = pa.record_batch({"t": pa.array([1])})
    fake = serve(BUSY, OK)
    with pytest.raises(ConnectionFailed, match="503"):
        Transport(fake.url, retries=3).send(Call("POST", "/v1/x"), batch.schema, [batch])
    assert len(fake.requests) == 1


def arrow(*batches: pa.RecordBatch, end: bool = True, mark: bool = False) -> bytes:
    sink = pa.BufferOutputStream()
    out = pa.ipc.new_stream(sink, batches[0].schema)
    for batch in batches:
        out.write_batch(batch, {"chronicle.truncated": "1"} if mark else None)
    if end:
        out.close()
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + sink.getvalue().to_pybytes()


def test_an_answer_of_batches(serve: Serve) -> None:
    batch = pa.record_batch({"t": pa.array([1, 2])})
    reader = Transport(serve(arrow(batch, batch)).url).batches(Call("GET", "/v1/x"))
    assert reader.read_all().num_rows == 4


def test_an_answer_that_was_cut_is_an_error(serve: Serve) -> None:
    batch = pa.record_batch({"t": pa.array([1, 2])})
    with pytest.raises(ConnectionFailed, match="broke off"):
        list(Transport(serve(arrow(batch)[:-40]).url).batches(Call("GET", "/v1/x")))
    with pytest.raises(ResourceLimit, match="CHRONICLE_MAX_ROWS"):
        list(Transport(serve(arrow(batch, mark=True)).url).batches(Call("GET", "/v1/x")))
    cut = Transport(serve(arrow(batch, mark=True)).url).batches(
        Call("GET", "/v1/x", may_be_cut=True)
    )
    assert sum(part.num_rows for part in cut) == 2


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://x:y", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="http://host:port"):
        Transport(url)


def test_another_server_is_told_apart(serve: Serve) -> None:
    with pytest.raises(ConnectionFailed, match="is it a Chronicle server"):
        RemoteDatabase(Transport(serve(OK).url)).stream("s")
