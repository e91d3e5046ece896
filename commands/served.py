"""Storing into a stream of a server: parts of one transaction, committed once.

Purpose
    ``chronicle ingest --url`` reads, checks and sorts here, and sends what is good to the server
    as Arrow. The server stages the parts and publishes them together; see ``docs/rest.md``.

Guarantee
    ``load`` is all or nothing: a transaction that is not committed is dropped, by us or after an
    hour by the server.  ``append`` is one request, atomic at the server.

Limits
    A request that broke off is not tried again: whether it was carried out is not known then, and
    the error says so.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ..errors import ConnectionFailed, IngestError, InvalidArgument, StreamNotFound
from ..ingest import IngestReport, IngestRequest, Progress
from ..ingest.spool import regroup
from ..schema import StreamSchema
from ..spark_connector.remote import Remote

__all__ = ["ServedSink"]

PART_ROWS = 8 << 20
REQUEST_ROWS = 65_536


class ServedSink:
    """Stores into a stream of a server; see :class:`~chronicle.ingest.Sink`.

    Parameters
    ----------
    remote : Remote
    request : IngestRequest
    report : IngestReport

    Raises
    ------
    StreamNotFound, StreamExists, ConnectionFailed, Unauthorized
    """

    def __init__(self, remote: Remote, request: IngestRequest, report: IngestReport) -> None:
        self._remote = remote
        self._request = request
        self._path = f"/v1/streams/{urllib.parse.quote(request.stream, safe='')}"
        self.report = report
        self._schema: StreamSchema | None = None
        try:
            found = remote.json("GET", self._path)
            request.found_existing(found.get("count"), report, f" at {remote.where}")
            arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["arrow_schema"])))
            self._schema = StreamSchema(arrow, found["time"])
        except StreamNotFound:
            if not request.create:
                raise StreamNotFound(
                    f"there is no stream {request.stream!r} at {remote.where}; add --create and "
                    "--time COLUMN to make it from the data"
                ) from None
            if request.time is None:
                raise InvalidArgument(
                    f"the stream {request.stream!r} is to be made: give --time, the column that "
                    "holds the time of the events"
                ) from None

    @property
    def spool_directory(self) -> str | None:
        """The system's temporary directory: the store is elsewhere."""
        return None

    def schema(self) -> StreamSchema | None:
        """Schema of the stream; None when it is to be made."""
        return self._schema

    def create(self, schema: StreamSchema) -> None:
        """Make the stream."""
        self._remote.json(
            "POST",
            "/v1/streams",
            body={
                "name": self._request.stream,
                "time": schema.time,
                "arrow_schema": base64.b64encode(schema.arrow.serialize()).decode(),
                "retention": self._request.retention,
                "codec": self._request.codec,
            },
        )
        self._schema = schema
        self.report.created = True

    def append(self, batch: pa.RecordBatch) -> None:
        """Append a batch by one request."""
        with self._explained():
            answer = self._remote.send_batches(
                "POST", f"{self._path}/events", batch.schema, _pieces([batch])
            )
        self._add(answer)

    def load(self, batches: Iterator[pa.RecordBatch], rows: int, progress: Progress) -> None:
        """Stage parts and commit them together."""
        progress.phase("sending", rows)
        schema = self._schema
        assert schema is not None
        transaction = f"{self._path}/transactions/ingest-{secrets.token_hex(12)}"
        parts: list[str] = []
        sent = 0
        pieces = regroup(batches, REQUEST_ROWS)
        first = next(pieces, None)
        try:
            while first is not None:
                part = _Part(first, pieces, PART_ROWS, progress, sent)
                name = f"{len(parts):06d}"
                self._remote.send_batches(
                    "PUT", f"{transaction}/parts/{name}", schema.arrow, part.batches()
                )
                parts.append(name)
                sent += part.rows
                first = part.rest
            with self._explained():
                answer = self._remote.json("POST", f"{transaction}/commit", body={"parts": parts})
        except BaseException:
            with contextlib.suppress(Exception):  # the server drops it after an hour if not now
                self._remote.json("DELETE", transaction)
            raise
        self._add(answer)

    def undo(self) -> None:
        """Remove the stream again if it was made here and nothing is in it."""
        if self.report.created and self.report.stored == 0:
            self._remote.json("DELETE", self._path)
            self.report.created = False

    def _add(self, answer: dict[str, Any]) -> None:
        self.report.stored += int(answer["appended"])
        self.report.late += int(answer["late"])
        self.report.count = int(answer["count"])

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ConnectionFailed as error:
            raise IngestError(
                f"{error}; whether the last request was carried out is not known: compare the "
                "stream's count before ingesting again"
            ) from None


class _Part:
    """Batches up to a number of rows; what comes after is kept as ``rest``."""

    def __init__(
        self,
        first: pa.RecordBatch,
        more: Iterator[pa.RecordBatch],
        rows_max: int,
        progress: Progress,
        before: int,
    ) -> None:
        self._more = more
        self._rows_max = rows_max
        self._progress = progress
        self._before = before
        self.rows = 0
        self.rest: pa.RecordBatch | None = first

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches of the part."""
        while self.rest is not None and self.rows < self._rows_max:
            batch = self.rest
            yield batch
            self.rows += batch.num_rows
            self._progress.at(self._before + self.rows)
            self.rest = next(self._more, None)


def _pieces(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, REQUEST_ROWS):
            yield batch.slice(start, REQUEST_ROWS)
