"""Writing through a Chronicle server: every task sends a part, the driver commits the transaction.

Purpose
    The :class:`~chronicle.spark_connector.sink.Sink` for ``option("url", ...)``, when executors do
    not see the store's directory, or when a server has it open.

Guarantee
    Those of ``/v1/streams/{s}/transactions``: parts are invisible until the commit names them, a
    commit that is asked for again does nothing, and a part of a transaction that has ended is
    refused.  Every attempt of a task sends a part of its own name.

Limits
    A part is one request body: the server's ``CHRONICLE_MAX_PART_BYTES`` bounds it, so larger
    tasks send several.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from ..errors import StreamNotFound
from ..schema import StreamSchema
from .options import Options
from .served import remote_of, schema_of
from .sink import Job, Outcome, same_time
from .sorting import runs_in_order

__all__ = ["PART_BYTES", "ServedSink"]

PART_BYTES = 48 << 20
"""Arrow bytes after which a task begins another part."""


class ServedSink:
    """Writes through a server; see the module."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._remote = remote_of(options)
        self._stream = f"/v1/streams/{quote(options.stream or '', safe='')}"

    def _transaction(self, job: str) -> str:
        return f"{self._stream}/transactions/{quote(job, safe='')}"

    def prepare(self, wanted: StreamSchema | None) -> Job:
        """Find or create the stream, and name a transaction."""
        return Job(f"spark-{secrets.token_hex(12)}", self._found(wanted), None)

    def _found(self, wanted: StreamSchema | None) -> StreamSchema:
        try:
            schema = schema_of(self._remote.json("GET", self._stream))
        except StreamNotFound as error:
            if wanted is None:
                raise StreamNotFound(
                    f"{error}; give the option 'time' (the name of the time column) to create it"
                ) from None
            body = {
                "name": self._options.stream,
                "time": wanted.time,
                "arrow_schema": base64.b64encode(wanted.arrow.serialize()).decode("ascii"),
                "codec": self._options.codec or "lz4",
                "retention": self._options.retention,
                "if_not_exists": True,
            }
            return schema_of(self._remote.json("POST", "/v1/streams", body=body))
        same_time(schema, self._options.time)
        return schema

    def make_room(self, job: Job) -> None:
        """Nothing: the server makes it with the first part."""

    def stage(self, job: Job, part: int, batches: Iterator[pa.RecordBatch]) -> list[Any]:
        """Sort a task's events and send them as parts of the transaction."""
        attempt = secrets.token_hex(6)
        sent: list[str] = []
        for run in runs_in_order(batches, job.schema.time):
            rest = _Rest(run)
            while rest.first is not None:
                name = f"{part:06d}-{attempt}-{len(sent):04d}"
                path = f"{self._transaction(job.name)}/parts/{name}"
                self._remote.send_batches("PUT", path, job.schema.arrow, rest.take())
                sent.append(name)
        return sent

    def commit(
        self,
        job: str,
        staged: Sequence[str],
        *,
        truncate: bool = False,
        application: str | None = None,
        version: int | None = None,
    ) -> Outcome:
        """Have the server make the parts events."""
        body = {"parts": sorted(staged), "truncate": truncate}
        if application is not None and version is not None:
            body |= {"app_id": application, "app_version": version}
        answer = self._remote.json("POST", f"{self._transaction(job)}/commit", body=body)
        return Outcome(answer["appended"], answer["late"], answer["replayed"])

    def abort(self, job: str) -> None:
        """Have the server drop the parts."""
        self._remote.json("DELETE", self._transaction(job))

    def outcome(self, application: str, version: int) -> Outcome | None:
        """Not told by a server before the commit; the commit itself says it."""
        del application, version
        return None

    def epoch(self) -> int:
        """Not told by a server."""
        return 0


class _Rest:
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
