"""HTTP to a Chronicle server: JSON, and Arrow streams in both directions.

Only the standard library, so that a Spark executor needs nothing but Chronicle; a transport
pickles.

Retries: with growing pauses while the server is unreachable or busy (429, 503).  If the connection
broke after the request was sent, or a proxy gave up (502, 504), the outcome is unknown: only
repeatable calls are retried, and never after a byte of the answer was used.  Batches are resent
only if they were given as a list.  An Arrow stream without its end marker is an error.

A connection whose answer was read completely is reused for ``IDLE_S``, less than the server's
keep-alive.  The token is sent as is: use https beyond loopback.

A call that runs in a thread of its own, as those of the asyncio client do, can be cancelled from
another one (``RunningCall``): its socket is shut down, which ends the query on the server.

Errors: a problem document becomes the error that the embedded database would raise.  The position
in a SQL text or the row of bad data is preserved; the address and the request's id are a note on
the error.  Anything but a problem document comes from a proxy or another server and is a
``ConnectionFailed``.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import select
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from ..errors import (
    OUTSIDE,
    ChronicleError,
    ConnectionFailed,
    CorruptBlock,
    InvalidArgument,
    InvalidData,
    ResourceLimit,
    SqlError,
    StoreClosed,
    WorkerLost,
)
from ..formats.columnar import StreamFile
from ..formats.writers import encode
from .calls import Call, path_of

T = TypeVar("T")
Marked = tuple[pa.RecordBatch, Mapping[bytes, bytes]]
"""A batch and the metadata of its message."""


@dataclass(frozen=True)
class Address:
    """``host`` lacks IPv6 brackets, ``base`` is the path before ``/v1``, ``where`` for messages."""

    secure: bool
    host: str
    port: int | None
    base: str
    where: str

    def away(self, error: Exception) -> ConnectionFailed:
        return ConnectionFailed(
            f"the Chronicle server at {self.where} cannot be reached ({error}); is it running, and "
            "is the address right on this machine too?"
        )

    def broke_off(self, error: Exception | str) -> ConnectionFailed:
        return ConnectionFailed(
            f"{self.where} broke off in the middle of an answer ({error}); look at the server's log"
        )

    def decoded(self, answer: bytes) -> Any:
        """The JSON of an answer, which may be empty."""
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            raise ConnectionFailed(
                f"{self.where} answers something that is no JSON: is it a Chronicle server?"
            ) from None


def address_of(url: str) -> Address:
    """Parse a URL; raises ``InvalidArgument``."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urllib.parse.urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgument(f"a server's url is http://host:port or https://..., found {url!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    where = f"{parts.scheme}://{host}{f':{port}' if port else ''}"
    return Address(parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"), where)


class RunningCall:
    """A call in this thread, whose request another thread can cancel."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self._cancelled = False

    def run(self, function: Callable[[], T]) -> T:
        _THREAD.call = self
        try:
            return function()
        finally:
            _THREAD.call = None
            with self._guard:
                self._socket = None

    def wait_on(self, used: socket.socket | None) -> None:
        """Note the socket that the call waits on; raises ``StoreClosed`` once it is cancelled."""
        with self._guard:
            if self._cancelled:
                raise StoreClosed("the call was cancelled")
            self._socket = used

    def cancel(self) -> None:
        with self._guard:
            self._cancelled = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)


class _Thread(threading.local):
    call: RunningCall | None = None


_THREAD = _Thread()


def _wait_on(used: socket.socket | None) -> None:
    if _THREAD.call is not None:
        _THREAD.call.wait_on(used)


_BY_SLUG = {shown.slug: error for error, shown in OUTSIDE.items()}

_OF_HTTP: dict[str, type[ChronicleError]] = {
    "bad-request": InvalidArgument,
    "body-too-large": ResourceLimit,
    "headers-too-large": ResourceLimit,
    "idempotency-mismatch": InvalidArgument,
    "invalid-request": InvalidArgument,
    "not-acceptable": InvalidArgument,
    "not-found": InvalidArgument,
    "overloaded": ResourceLimit,
    "too-many-requests": ResourceLimit,
    "unsupported-media-type": InvalidArgument,
    "not-ready": StoreClosed,
}
"""HTTP errors with an equivalent; the others are ``ConnectionFailed``."""

_LATER = {"idempotency-in-flight"}
PAUSE_S_MAX = 5.0


@dataclass(frozen=True)
class Refusal:
    """An answer with a status of 400 or more.  ``code`` is empty without a problem document;
    ``pause`` is the server's Retry-After in seconds.
    """

    status: int
    code: str
    document: dict[str, Any]
    where: str
    pause: float = 0.0

    def passes(self, again: bool) -> bool:
        """Whether a retry may succeed.  After a proxy's 502 or 504 the outcome is unknown, so
        ``again`` says whether the request is repeatable.
        """
        if self.status in (429, 503) or self.code in _LATER:
            return True
        return self.status in (502, 504) and not self.code and again

    def pause_after(self, pause: float) -> float:
        """Seconds until the next attempt: the larger of ``pause`` and Retry-After, bounded."""
        return min(max(pause, self.pause), PAUSE_S_MAX)

    def error(self) -> ChronicleError:
        document = self.document
        detail = str(
            document.get("detail") or document.get("title") or f"HTTP status {self.status}"
        )
        kind = _BY_SLUG.get(self.code) or _OF_HTTP.get(self.code, ConnectionFailed)
        if not self.code:
            detail = f"{self.where} answered: {detail}"
        error: ChronicleError
        if issubclass(kind, SqlError):
            position = document.get("position") or {}
            error = kind(detail, position.get("line"), position.get("column"))
        elif issubclass(kind, InvalidData):
            error = kind(detail, document.get("row"))
        elif issubclass(kind, WorkerLost):
            error = kind(detail, str(document.get("why", "crash")))
        elif issubclass(kind, CorruptBlock):  # its text is already complete
            error = kind.__new__(kind)
            error.args, error.file, error.offset = (detail,), "", -1
        else:
            error = kind(detail)
        if self.code:
            request = document.get("request_id")
            error.add_note(f"{self.where} says so" + (f" (request {request})" if request else ""))
        return error


def refusal(status: int, text: bytes, where: str, retry_after: str | None = None) -> Refusal:
    try:
        document = json.loads(text)
    except ValueError:
        document = {}
    if not isinstance(document, dict):
        document = {}
    code = str(document.get("type", "")).rpartition(":")[2]
    try:
        pause = max(0.0, float(retry_after or 0))
    except ValueError:  # a date: the clocks may differ
        pause = 0.0
    return Refusal(status, code, document, where, pause)


ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
TRUNCATED = b"chronicle.truncated"
TIMEOUT_S = 60.0
RETRIES = 3
IDLE_S = 3.0
IDLE_MAX = 8
_PAUSE_SECONDS = 0.2
_BROKEN = (OSError, http.client.HTTPException)

Body = Callable[[], bytes | Iterator[bytes] | None]


@dataclass(frozen=True)
class Exchange:
    """A sent request, and the head of its answer."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse
    socket: socket.socket


class Transport:
    """Requests to one server, ``http://host:port`` or ``https://...``, perhaps with a path before
    ``/v1``.

    ``timeout`` is in seconds, to connect and between two pieces of an answer.  Raises
    ``InvalidArgument``.
    """

    def __init__(
        self, url: str, token: str | None = None, timeout: float = TIMEOUT_S, retries: int = RETRIES
    ) -> None:
        self.address = address_of(url)
        self.where = self.address.where
        self._token = token
        self._timeout = timeout
        self._retries = retries
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._process = os.getpid()
        self._closed = False

    def __getstate__(self) -> dict[str, Any]:
        left_here = ("_lock", "_idle", "_process", "_closed")
        return {key: value for key, value in self.__dict__.items() if key not in left_here}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def reach(self) -> None:
        """Connect; raises ``ConnectionFailed`` unless something listens at the address."""
        connection = self._connected()
        with self._lock:
            self._idle.append((time.monotonic(), connection))

    def json(self, call: Call) -> Any:
        return self._decoded(self._request(call, JSON, lambda: call.payload))

    def ask(
        self,
        method: str,
        *path: str,
        query: Mapping[str, object | None] | None = None,
        body: object | None = None,
        repeatable: bool = False,
    ) -> Any:
        """The JSON answer of a path, given by its parts after ``/v1``."""
        return self.json(Call(method, path_of(*path), query or {}, body, repeatable=repeatable))

    def rows(self, call: Call) -> Rows:
        exchange = self._request(call, ARROW, lambda: call.payload)
        feed = Feed(self, exchange, io.BufferedReader(exchange.response, 1 << 20))
        return Rows(self, feed, call.may_be_cut)

    def batches(self, call: Call) -> pa.RecordBatchReader:
        rows = self.rows(call)
        return pa.RecordBatchReader.from_batches(rows.schema, rows)

    def feed(self, call: Call) -> Feed:
        exchange = self._request(call, ARROW, lambda: call.payload)
        return Feed(self, exchange, exchange.response)  # a buffer would wait until it is full

    def send(self, call: Call, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Any:
        """Stream Arrow batches to the server; returns the JSON answer."""
        replayable = call.repeatable and isinstance(batches, Sequence)
        retries = self._retries if replayable else 0
        exchange = self._request(call, JSON, lambda: encode(batches, schema, "arrow"), retries)
        return self._decoded(exchange)

    def close(self) -> None:
        """Close idle connections; further requests are refused."""
        self._closed = True
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def __del__(self) -> None:
        if "_idle" in self.__dict__:  # unless the url was invalid
            self.close()

    def _request(
        self, call: Call, accepted: str, body: Body, retries: int | None = None
    ) -> Exchange:
        if self._closed:
            raise StoreClosed(f"the connection to {self.where} was closed; connect again")
        retries = self._retries if retries is None else retries
        headers = {"Accept": accepted, **call.headers}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        for pause in pauses(retries):
            sent = False
            _wait_on(None)
            try:
                connection = self._connected()
                sent = True
                exchange = self._sent(connection, call, body(), headers)
            except ConnectionFailed:
                if pause is None or (sent and not call.again):
                    raise
            else:
                if exchange.response.status < 400:
                    return exchange
                refused = self._refused(exchange)
                if pause is None or not refused.passes(call.again):
                    raise refused.error()
                pause = refused.pause_after(pause)
            time.sleep(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _connected(self) -> http.client.HTTPConnection:
        idle = self._idle_connection()
        if idle is not None:
            return idle
        address = self.address
        if address.secure:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                address.host,
                address.port,
                timeout=self._timeout,
                context=ssl.create_default_context(),
            )
        else:
            connection = http.client.HTTPConnection(
                address.host, address.port, timeout=self._timeout
            )
        try:
            connection.connect()
        except _BROKEN as error:
            connection.close()
            raise address.away(error) from None
        return connection

    def _idle_connection(self) -> http.client.HTTPConnection | None:
        with self._lock:
            if self._process != os.getpid():  # after a fork they are the parent's
                self._idle, self._process = [], os.getpid()
            while self._idle:
                since, connection = self._idle.pop()
                fresh = time.monotonic() - since < IDLE_S
                # Readable without a request means that the server closed it.
                if fresh and not select.select([connection.sock], [], [], 0)[0]:
                    return connection
                connection.close()
        return None

    def _keep(self, exchange: Exchange) -> None:
        response, connection = exchange.response, exchange.connection
        if response.isclosed() and not response.will_close and connection.sock is not None:
            with self._lock:
                if not self._closed and len(self._idle) < IDLE_MAX:
                    self._idle.append((time.monotonic(), connection))
                    return
        connection.close()

    def _sent(
        self,
        connection: http.client.HTTPConnection,
        call: Call,
        body: bytes | Iterator[bytes] | None,
        headers: Mapping[str, str],
    ) -> Exchange:
        typed = {**headers}
        if body is not None:
            typed["Content-Type"] = JSON if isinstance(body, bytes) else ARROW
        used = connection.sock
        try:
            _wait_on(used)
            # A server that refuses a body may answer and close before it has read it all.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                chunked = not isinstance(body, bytes | None)
                target = self.address.base + call.target
                connection.request(call.method, target, body, typed, encode_chunked=chunked)
            return Exchange(connection, connection.getresponse(), used)
        except _BROKEN as error:
            connection.close()
            raise self.address.broke_off(error) from None
        except BaseException:  # raised by the caller's batches
            connection.close()
            raise

    def _refused(self, exchange: Exchange) -> Refusal:
        response = exchange.response
        text = self.finish(exchange)
        return refusal(response.status, text, self.where, response.headers.get("Retry-After"))

    def _decoded(self, exchange: Exchange) -> Any:
        return self.address.decoded(self.finish(exchange))

    def finish(self, exchange: Exchange) -> bytes:
        try:
            text = exchange.response.read()
        except _BROKEN as error:
            exchange.connection.close()
            raise self.address.broke_off(error) from None
        self._keep(exchange)
        _wait_on(None)
        return text


def pauses(retries: int) -> Iterator[float | None]:
    pause = _PAUSE_SECONDS
    for _ in range(retries):
        yield pause
        pause = min(2 * pause, PAUSE_S_MAX)
    yield None


def cut_error(where: str) -> ResourceLimit:
    return ResourceLimit(
        f"{where} cut its answer at CHRONICLE_MAX_ROWS; raise that setting, or read smaller pieces "
        "(in Spark: the option 'numPartitions')"
    )


class _Body:
    """The body of an answer; ``reading`` is held while a thread waits for more of it."""

    def __init__(self, exchange: Exchange, file: Any) -> None:
        self._socket = exchange.socket
        self._file = file
        self.reading = threading.Lock()

    def read(self, size: int) -> bytes:
        with self.reading:
            _wait_on(self._socket)
            data: bytes = self._file.read(size)
            return data


class Feed:
    """Batches of an answer with their metadata."""

    def __init__(self, transport: Transport, exchange: Exchange, file: Any) -> None:
        self._transport = transport
        self._exchange = exchange
        self._body = _Body(exchange, file)
        self._stream = StreamFile(self._body)
        self._over = False
        with self._explained():
            self._reader = pa.ipc.open_stream(pa.PythonFile(self._stream, "r"))
        self.schema: pa.Schema = self._reader.schema

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, EOFError, ValueError, *_BROKEN) as error:
            self.close()
            raise self._transport.address.broke_off(error) from None

    def __iter__(self) -> Iterator[Marked]:
        while True:
            with self._explained():
                try:
                    batch, marks = self._reader.read_next_batch_with_custom_metadata()
                except StopIteration:
                    if not self._stream.ended:
                        raise EOFError("its end is missing") from None
                    return
            yield batch, dict(marks or {})

    def finish(self) -> None:
        if not self._over:
            self._over = True
            self._transport.finish(self._exchange)

    def close(self) -> None:
        """End it, also for a thread that waits for its next batch."""
        if not self._over:
            self._over = True
            with contextlib.suppress(OSError):
                self._exchange.socket.shutdown(socket.SHUT_RDWR)
            with self._body.reading:
                self._exchange.connection.close()

    def __del__(self) -> None:
        self.close()


class Rows:
    """Batches of a finite answer."""

    def __init__(self, transport: Transport, feed: Feed, may_be_cut: bool) -> None:
        self.schema = feed.schema
        self._transport = transport
        self._feed = feed
        self._batches = iter(feed)
        self._may_be_cut = may_be_cut

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        for batch, marks in self._batches:
            if TRUNCATED in marks and not self._may_be_cut:
                self.close()
                raise cut_error(self._transport.where)
            return batch
        self._feed.finish()
        raise StopIteration

    def close(self) -> None:
        self._feed.close()
