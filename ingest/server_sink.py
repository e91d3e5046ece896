"""The sink of a server's url: sorted parts of one transaction, committed once.

Parts are invisible until the commit names them; a repeated commit does nothing.  Attempts of a task
name their parts uniquely.  The server drops an open transaction after a day.  A part is one request
body (``CHRONICLE_MAX_PART_BYTES``).
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ..client import Transport
from ..client.calls import StreamCalls
from ..client.conversion import schema_of
from ..errors import ConnectionFailed
from ..schema import StreamSchema
from ..store.external_sort import runs_in_order
from .sink import Job, Outcome, Over

PART_BYTES = 48 << 20
"""Arrow bytes after which a task begins another part."""


class ServerSink:
    append_rows = 0  # one transaction, however small
    sort_directory = None

    def __init__(self, transport: Transport, stream: str) -> None:
        self._transport = transport
        self._calls = StreamCalls(stream)

    def describe(self) -> StreamSchema:
        return schema_of(self._transport.json(self._calls.describe()), self._transport.where)

    def count(self) -> int:
        return int(self._transport.json(self._calls.describe())["count"])

    def create(
        self,
        schema: StreamSchema,
        *,
        codec: str = "lz4",
        retention: str | None = None,
        unique: str | None = None,
        within: str | None = None,
        if_not_exists: bool = False,
    ) -> StreamSchema:
        options = {"unique": unique, "within": within} if unique or within else None
        call = self._calls.create(schema, codec, retention, options, if_not_exists)
        return schema_of(self._transport.json(call), self._transport.where)

    def drop(self) -> None:
        self._transport.json(self._calls.drop())

    def append(self, batch: pa.RecordBatch) -> Outcome:
        with _in_doubt():
            return _outcome(self._transport.send(self._calls.append(), batch.schema, [batch]))

    def new_job(self) -> Job:
        return Job(f"load-{secrets.token_hex(12)}", self.describe())

    def prepare(self, job: Job) -> None:
        """Nothing: the server prepares staging with the first part."""

    def stage(self, job: Job, part: int, batches: Iterator[pa.RecordBatch]) -> list[str]:
        attempt = secrets.token_hex(6)
        sent: list[str] = []
        for run in runs_in_order(batches, job.schema.time):
            pieces = _Pieces(run)
            while pieces.first is not None:
                name = f"{part:06d}-{attempt}-{len(sent):04d}"
                call = self._calls.put_part(job.name, name)
                self._transport.send(call, job.schema.arrow, pieces.take())
                sent.append(name)
        return sent

    def commit(
        self,
        job: str,
        staged: Sequence[str],
        *,
        truncate: bool = False,
        over: Over | None = None,
        application: str | None = None,
        version: int | None = None,
    ) -> Outcome:
        call = self._calls.commit(job, sorted(staged), truncate, over, application, version)
        with _in_doubt():
            return _outcome(self._transport.json(call))

    def abort(self, job: str) -> None:
        self._transport.json(self._calls.abort(job))

    def outcome(self, application: str, version: int) -> Outcome | None:
        """None: a server does not report it before the commit."""
        del application, version
        return None

    def epoch(self) -> int:
        """0: a server does not report it."""
        return 0


@contextlib.contextmanager
def _in_doubt() -> Iterator[None]:
    try:
        yield
    except ConnectionFailed as error:
        raise ConnectionFailed(
            f"{error}; whether the last request was carried out is not known: compare the stream's "
            "count before loading again"
        ) from None


def _outcome(answer: Any) -> Outcome:
    return Outcome(
        int(answer["appended"]),
        int(answer["late"]),
        int(answer["count"]),
        answer.get("version"),
        bool(answer.get("replayed", False)),
        int(answer.get("duplicates", 0)),
    )


class _Pieces:
    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.first = next(batches, None)

    def take(self) -> Iterator[pa.RecordBatch]:
        size = 0
        while self.first is not None and size < PART_BYTES:
            batch, self.first = self.first, None
            yield batch
            size += batch.nbytes
            self.first = next(self._batches, None)
