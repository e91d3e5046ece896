"""HTTP to a Chronicle server: JSON, and Arrow streams in both directions.

Purpose
    Everything that a request to ``/v1`` needs: the token, the time to wait, trying again, problem
    documents.  Only the standard library, so that a Spark executor needs nothing but Chronicle; a
    :class:`Transport` is a few plain values and pickles.

Guarantee
    An answer that is a problem document becomes the error of :mod:`chronicle.errors` it was made
    from.  A request is tried again, with growing pauses, while the server cannot be reached or says
    that it is busy (429, 502, 503, 504).  Where the connection broke after the request was sent,
    nobody knows whether it was carried out: only what does the same when it is done twice is tried
    again then, and nothing after a first byte of the answer was used.  A body of Arrow batches is
    sent once.  An Arrow stream without its end marker counts as broken.

Limits
    A request opens a connection.  The token travels as it is; use https beyond the loopback
    interface.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import ssl
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from ..errors import (
    OUTSIDE,
    ChronicleError,
    ConnectionFailed,
    InvalidArgument,
    ResourceLimit,
    SqlError,
)

__all__ = ["Feed", "Transport", "error_of"]

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
TRUNCATED = b"chronicle.truncated"
_BUSY = {429, 502, 503, 504}
_PAUSE_SECONDS = 0.2
_PAUSE_SECONDS_MAX = 5.0
_BY_SLUG = {shown.slug: error for error, shown in OUTSIDE.items()}
_BROKEN = (OSError, http.client.HTTPException)

Query = Mapping[str, object | None]
Exchange = tuple[http.client.HTTPConnection, http.client.HTTPResponse]


class Transport:
    """Requests to one server.

    Parameters
    ----------
    url : str
        ``http://host:port`` or ``https://...``, with or without a path in front of ``/v1``.
    token : str, optional
    timeout : float
        Seconds to wait for a connection and between two pieces of an answer.
    retries : int
        How often a request is tried again.

    Raises
    ------
    InvalidArgument
        When the url is none.
    """

    def __init__(
        self, url: str, token: str | None = None, timeout: float = 60.0, retries: int = 3
    ) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            self._port = parts.port
        except ValueError:
            parts, self._port = urllib.parse.urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgument(
                f"a server's url is http://host:port or https://..., found {url!r}"
            )
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._base = parts.path.rstrip("/")
        self._token = token
        self._timeout = timeout
        self._retries = retries
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.where = f"{parts.scheme}://{host}{f':{self._port}' if self._port else ''}"

    def json(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: object | None = None,
        *,
        repeatable: bool = False,
    ) -> Any:
        """Send a request with an optional JSON body; give back the JSON of the answer.

        Parameters
        ----------
        repeatable : bool
            A POST that does nothing when it is carried out twice.
        """
        return self._decoded(*self._request(method, path, query, body, JSON, repeatable))

    def batches(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: object | None = None,
        *,
        may_be_cut: bool = False,
    ) -> pa.RecordBatchReader:
        """Send a request; give back the Arrow stream that answers it, read as it arrives.

        Parameters
        ----------
        may_be_cut : bool
            The request has a limit, so an answer that was cut there is the whole answer.
        """
        connection, response = self._request(method, path, query, body, ARROW)
        try:
            stream = pa.ipc.open_stream(io.BufferedReader(response, 1 << 20))
        except (pa.ArrowInvalid, *_BROKEN) as error:
            connection.close()
            raise self._broke_off(error) from None
        return pa.RecordBatchReader.from_batches(
            stream.schema, self._guarded(stream, connection, may_be_cut)
        )

    def feed(self, path: str, query: Query) -> Feed:
        """Begin to read an Arrow stream that goes on."""
        connection, response = self._request("GET", path, query, None, ARROW)
        try:
            stream = pa.ipc.open_stream(response)  # a buffer would wait until it is full
        except (pa.ArrowInvalid, *_BROKEN) as error:
            connection.close()
            raise self._broke_off(error) from None
        return Feed(self, stream, connection)

    def send_batches(
        self, method: str, path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> Any:
        """Stream Arrow batches to the server, once; give back the JSON of the answer."""
        headers = {**self._headers(JSON), "Content-Type": ARROW}
        connection = self._connected()
        body = _arrow_chunks(schema, batches)
        response = self._sent(connection, method, path, body, headers)
        return self._decoded(*self._checked(connection, response))

    def _headers(self, accepted: str) -> dict[str, str]:
        authorization = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        return {"Accept": accepted, **authorization}

    def _request(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: object | None,
        accepted: str,
        repeatable: bool = False,
    ) -> Exchange:
        """One request, tried again as often as may be; the answer is none of an error."""
        repeatable = repeatable or method != "POST"
        given = {name: str(value) for name, value in (query or {}).items() if value is not None}
        target = path + (f"?{urllib.parse.urlencode(given)}" if given else "")
        headers, payload = self._headers(accepted), None
        if body is not None:
            headers["Content-Type"], payload = JSON, json.dumps(body).encode()
        pause = _PAUSE_SECONDS
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            connection = None
            try:
                connection = self._connected()
                response = self._sent(connection, method, target, payload, headers)
            except ConnectionFailed:
                if last or (connection is not None and not repeatable):
                    raise
            else:
                if last or response.status not in _BUSY:
                    return self._checked(connection, response)
                connection.close()
                with contextlib.suppress(ValueError):
                    pause = max(pause, float(response.headers.get("Retry-After", "0")))
            time.sleep(min(pause, _PAUSE_SECONDS_MAX))
            pause *= 2
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _connected(self) -> http.client.HTTPConnection:
        if self._secure:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        try:
            connection.connect()
        except _BROKEN as error:
            connection.close()
            raise ConnectionFailed(
                f"the Chronicle server at {self.where} cannot be reached ({error}); is it "
                "running, and is the address right on this machine too?"
            ) from None
        return connection

    def _sent(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | Iterator[bytes] | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        """Send a request, and wait for the head of its answer."""
        try:
            # A server that refuses a body answers before it has read it all, and hangs up.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                chunked = not isinstance(body, bytes | None)
                connection.request(
                    method, self._base + target, body, headers, encode_chunked=chunked
                )
            return connection.getresponse()
        except _BROKEN as error:
            connection.close()
            raise self._broke_off(error) from None
        except BaseException:  # of the batches that were to be sent
            connection.close()
            raise

    def _checked(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> Exchange:
        """The same, or the error that the answer tells of."""
        if response.status < 400:
            return connection, response
        raise error_of(response.status, self._read(connection, response), self.where)

    def _decoded(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> Any:
        text = self._read(connection, response)
        return json.loads(text) if text else None

    def _read(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> bytes:
        with contextlib.closing(connection):
            try:
                return response.read()
            except _BROKEN as error:
                raise self._broke_off(error) from None

    def _guarded(
        self,
        stream: pa.RecordBatchReader,
        connection: http.client.HTTPConnection,
        may_be_cut: bool,
    ) -> Iterator[pa.RecordBatch]:
        with contextlib.closing(connection):
            while True:
                try:
                    batch, marks = stream.read_next_batch_with_custom_metadata()
                except StopIteration:
                    return
                except (pa.ArrowInvalid, *_BROKEN) as error:
                    raise self._broke_off(error) from None
                if marks is not None and TRUNCATED in marks and not may_be_cut:
                    raise ResourceLimit(
                        f"{self.where} cut its answer at CHRONICLE_MAX_ROWS; raise that setting, "
                        "or read smaller pieces with the option 'numPartitions'"
                    )
                yield batch

    def _broke_off(self, error: Exception) -> ConnectionFailed:
        return ConnectionFailed(
            f"{self.where} broke off in the middle of an answer ({error}); look at the server's log"
        )


def error_of(status: int, text: bytes, where: str) -> ChronicleError:
    """The error that a problem document stands for."""
    try:
        document = json.loads(text)
    except ValueError:
        document = {}
    if not isinstance(document, dict):
        document = {}
    detail = str(document.get("detail") or document.get("title") or f"HTTP status {status}")
    message = f"{where} answered: {detail}"
    kind = _BY_SLUG.get(str(document.get("type", "")).rpartition(":")[2], ConnectionFailed)
    if issubclass(kind, SqlError):
        position = document.get("position") or {}
        return kind(message, position.get("line"), position.get("column"))
    return kind(message)


class Feed:
    """Batches of a stream that goes on, each with its metadata; made by :meth:`Transport.feed`."""

    def __init__(
        self,
        transport: Transport,
        stream: pa.RecordBatchReader,
        connection: http.client.HTTPConnection,
    ) -> None:
        self.schema: pa.Schema = stream.schema
        self._transport = transport
        self._stream = stream
        self._connection = connection

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, Mapping[bytes, bytes]]]:
        with contextlib.closing(self._connection):
            while True:
                try:
                    batch, marks = self._stream.read_next_batch_with_custom_metadata()
                except StopIteration:
                    return
                except (pa.ArrowInvalid, *_BROKEN) as error:
                    raise self._transport._broke_off(error) from None
                yield batch, dict(marks or {})


class _Chunks(io.RawIOBase):
    """A file whose written bytes are taken out piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.pieces.append(bytes(data))
        return len(data)


def _arrow_chunks(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    sink = _Chunks()
    with pa.ipc.new_stream(sink, schema) as out:
        for batch in batches:
            out.write_batch(batch)
            yield b"".join(sink.pieces)
            sink.pieces.clear()
    yield b"".join(sink.pieces)
