"""A small HTTP client for a Chronicle server: Arrow in, Arrow out.

Purpose
    What the connector needs of ``/v1``: JSON requests, and bodies of Arrow batches streamed in both
    directions.  Only the standard library, so that executors need nothing but Chronicle and
    PySpark.

Guarantee
    An answer that is a problem document becomes the error of :mod:`chronicle.errors` it was made
    from. A request is tried again, with growing pauses, only while the server could not be reached
    or said that it is busy (429, 502, 503, 504), and never after a first byte of the answer was
    used: a stream that breaks off in the middle is an error, and Spark runs the task again.  An
    Arrow stream without its end marker counts as broken.

Limits
    The token travels as it is; use https beyond the loopback interface.
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

from ..errors import OUTSIDE, ChronicleError, ConnectionFailed, ResourceLimit, SqlError

__all__ = ["ARROW", "Remote"]

ARROW = "application/vnd.apache.arrow.stream"
TRUNCATED = b"chronicle.truncated"
_BUSY = {429, 502, 503, 504}
_PAUSE_SECONDS = 0.2
_PAUSE_SECONDS_MAX = 5.0
_BY_SLUG = {shown.slug: error for error, shown in OUTSIDE.items()}

Query = Mapping[str, object | None]


class Remote:
    """One server, as seen by one task.

    Parameters
    ----------
    url : str
        ``http://host:port`` or ``https://...``, with or without a path in front of ``/v1``.
    token : str, optional
    timeout : float
        Seconds to wait for a connection and between two pieces of an answer.
    retries : int
        How often a request is tried again.
    """

    def __init__(self, url: str, token: str | None, timeout: float, retries: int) -> None:
        parts = urllib.parse.urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or "localhost"
        self._port = parts.port
        self._base = parts.path.rstrip("/")
        self._token = token
        self._timeout = timeout
        self._retries = retries
        self.where = f"{parts.scheme}://{self._host}{f':{self._port}' if self._port else ''}"

    def json(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: object | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request with an optional JSON body; give back the JSON of the answer."""
        payload = None if body is None else json.dumps(body).encode()
        sent = {"Accept": "application/json", **(headers or {})}
        if payload is not None:
            sent["Content-Type"] = "application/json"
        connection, response = self._request(method, path, query, payload, sent)
        with contextlib.closing(connection):
            text = response.read()
        return json.loads(text) if text else None

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
        payload = None if body is None else json.dumps(body).encode()
        sent = {"Accept": ARROW}
        if payload is not None:
            sent["Content-Type"] = "application/json"
        connection, response = self._request(method, path, query, payload, sent)
        try:
            stream = pa.ipc.open_stream(io.BufferedReader(response, 1 << 20))
        except (pa.ArrowInvalid, OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._broken(error) from None
        return pa.RecordBatchReader.from_batches(
            stream.schema, self._guarded(stream, connection, may_be_cut)
        )

    def send_batches(
        self,
        method: str,
        path: str,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Stream Arrow batches to the server as a chunked body; give back the JSON of the answer.

        The body is an iterator that can be sent once, so a request that fails is not tried again.
        """
        sent = {"Accept": "application/json", "Content-Type": ARROW, **(headers or {})}
        connection = self._connect()
        with contextlib.closing(connection):
            try:
                connection.request(
                    method,
                    self._target(path, query),
                    body=_arrow_chunks(schema, batches),
                    headers={**sent, **self._authorization()},
                    encode_chunked=True,
                )
                response = connection.getresponse()
                text = response.read()
            except (OSError, http.client.HTTPException) as error:
                raise self._broken(error) from None
        if response.status >= 400:
            raise _error_of(response.status, text, self.where)
        return json.loads(text) if text else None

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
                except (pa.ArrowInvalid, OSError, http.client.HTTPException) as error:
                    raise self._broken(error) from None
                if marks is not None and TRUNCATED in marks and not may_be_cut:
                    raise ResourceLimit(
                        f"{self.where} cut its answer at CHRONICLE_MAX_ROWS; raise that setting, "
                        "or read smaller pieces with the option 'numPartitions'"
                    )
                yield batch

    def _broken(self, error: Exception) -> ConnectionFailed:
        return ConnectionFailed(
            f"{self.where} broke off in the middle of an answer ({error}); look at the server's log"
        )

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _target(self, path: str, query: Query | None) -> str:
        given = {name: str(value) for name, value in (query or {}).items() if value is not None}
        return f"{self._base}{path}" + (f"?{urllib.parse.urlencode(given)}" if given else "")

    def _connect(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _request(
        self,
        method: str,
        path: str,
        query: Query | None,
        payload: bytes | None,
        headers: Mapping[str, str],
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        target = self._target(path, query)
        pause = _PAUSE_SECONDS
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            connection = self._connect()
            try:
                connection.request(
                    method, target, body=payload, headers={**headers, **self._authorization()}
                )
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if last:
                    raise ConnectionFailed(
                        f"the Chronicle server at {self.where} cannot be reached ({error}); is it "
                        "running, and is the address right for the executors too?"
                    ) from None
            else:
                if response.status < 400:
                    return connection, response
                with contextlib.closing(connection):
                    text = response.read()
                if last or response.status not in _BUSY:
                    raise _error_of(response.status, text, self.where)
                with contextlib.suppress(ValueError):
                    pause = max(pause, float(response.headers.get("Retry-After", "0")))
            time.sleep(min(pause, _PAUSE_SECONDS_MAX))
            pause *= 2
        raise AssertionError("unreachable: the last attempt returns or raises")


def _error_of(status: int, text: bytes, where: str) -> ChronicleError:
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


class _Chunks(io.RawIOBase):
    """A sink whose written bytes are taken out piece by piece."""

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
