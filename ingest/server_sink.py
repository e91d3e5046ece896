"""Loading through a server: parts of one transaction, committed once.

Purpose
    The :class:`~chronicle.ingest.sink.Sink` of a url: when nobody here sees the store's directory,
    or a server has it open.  What is sent is checked and sorted; the server writes the segments.

Guarantee
    Those of ``/v1/streams/{s}/transactions``: parts are invisible until the commit names them, a
    commit that is asked for again does nothing, and a part of a transaction that has ended is
    refused.  Every attempt of a task sends parts of its own names.  A transaction that is neither
    committed nor aborted is dropped by the server after a day.

Limits
    A part is one request body: the server's ``CHRONICLE_MAX_PART_BYTES`` bounds it, so larger
    tasks send several.  A server does not tell what an earlier commit did, nor when the stream was
    truncated: the commit itself says that it is repeated.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ..client import StreamRoutes, Transport
from ..errors import ConnectionFailed
from ..schema import StreamSchema
from .external_sort import runs_in_order
from .sink import Job, Outcome, Over

__all__ = ["ServerSink"]

PART_BYTES = 48 << 20
"""Arrow bytes after which a task begins another part."""


class ServerSink:
    """Loads into a stream of a server."""

    append_rows = 0  # one transaction, however small
    sort_directory = None

    def __init__(self, transport: Transport, stream: str) -> None:
        self._stream = StreamRoutes(transport, stream)

    def describe(self) -> StreamSchema:
        """Schema of the stream."""
        return self._stream.schema()

    def count(self) -> int:
        """Events in the stream."""
        return self._stream.count()

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
        """Make the stream."""
        return self._stream.create(
            schema,
            codec=codec,
            retention=retention,
            unique=unique,
            within=within,
            if_not_exists=if_not_exists,
        )

    def drop(self) -> None:
        """Remove the stream."""
        self._stream.drop()

    def append(self, batch: pa.RecordBatch) -> Outcome:
        """Append a batch by one request."""
        with _in_doubt():
            return _outcome(self._stream.append(batch.schema, [batch]))

    def new_job(self) -> Job:
        """A transaction of a new name."""
        return Job(f"load-{secrets.token_hex(12)}", self._stream.schema())

    def prepare(self, job: Job) -> None:
        """Nothing: the server makes room with the first part."""

    def stage(self, job: Job, part: int, batches: Iterator[pa.RecordBatch]) -> list[str]:
        """Sort a part's events and send them as parts of the transaction."""
        attempt = secrets.token_hex(6)
        sent: list[str] = []
        for run in runs_in_order(batches, job.schema.time):
            pieces = _Pieces(run)
            while pieces.first is not None:
                name = f"{part:06d}-{attempt}-{len(sent):04d}"
                self._stream.put_part(job.name, name, job.schema.arrow, pieces.take())
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
        """Have the server make the parts events."""
        with _in_doubt():
            return _outcome(
                self._stream.commit(job, sorted(staged), truncate, over, application, version)
            )

    def abort(self, job: str) -> None:
        """Have the server drop the parts."""
        self._stream.abort(job)

    def outcome(self, application: str, version: int) -> Outcome | None:
        """Not told by a server before the commit."""
        del application, version
        return None

    def epoch(self) -> int:
        """Not told by a server."""
        return 0


@contextlib.contextmanager
def _in_doubt() -> Iterator[None]:
    """Around a request that stores."""
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
    """Batches of a run, handed out until a part is full."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.first = next(batches, None)

    def take(self) -> Iterator[pa.RecordBatch]:
        """Batches of the next part, at least one."""
        size = 0
        while self.first is not None and size < PART_BYTES:
            batch, self.first = self.first, None
            yield batch
            size += batch.nbytes
            self.first = next(self._batches, None)
