"""Where events go: a stream of an embedded store, or a stream of a server.

Purpose
    The pipeline reads, checks and sorts; a *sink* stores.  :class:`EmbeddedSink` bulk-loads
    segments into the store of this process, the command line's ``ServedSink`` sends parts of a
    transaction to a server.  Both have the same two ways to store:

    ``load``    everything, in time order, becomes visible in one atomic commit
    ``append``  one batch, atomic and durable by itself

Guarantee
    When ``load`` fails or is interrupted, the stream has exactly the events that it had before,
    and a stream that was made for this ingest is removed again.

Limits
    Events older than the newest stored one become a late run of the stream as a whole; compaction
    folds it in later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from ..database import Database
from ..errors import InvalidArgument, ReadOnlyStore, StreamNotFound
from ..schema import StreamSchema
from ..store import EventStream
from .report import IngestReport, Progress
from .request import IngestRequest
from .spool import regroup

__all__ = ["EmbeddedSink", "Sink"]

SMALL_ROWS = 65_536
"""A load of no more events is one ordinary append: it fills no segment of its own."""


class Sink(Protocol):
    """A stream to store events in."""

    report: IngestReport

    @property
    def spool_directory(self) -> str | None:
        """Directory for temporary files; None for the system's."""
        ...

    def schema(self) -> StreamSchema | None:
        """Schema of the stream; None when it is to be made."""
        ...

    def create(self, schema: StreamSchema) -> None:
        """Make the stream."""
        ...

    def load(self, batches: Iterator[pa.RecordBatch], rows: int, progress: Progress) -> None:
        """Store everything, or nothing."""
        ...

    def append(self, batch: pa.RecordBatch) -> None:
        """Store one batch, or nothing of it."""
        ...

    def undo(self) -> None:
        """Remove the stream again if it was made here and nothing is in it."""
        ...


class EmbeddedSink:
    """Stores into a stream of an open database.

    Parameters
    ----------
    database : Database, optional
        Opened for writing; for reading, or None, when it is a dry run.
    request : IngestRequest
    report : IngestReport
        Told what was stored.

    Raises
    ------
    StreamNotFound, StreamExists
        When there is no such stream and none is to be made, or one that was to be made.
    """

    def __init__(
        self, database: Database | None, request: IngestRequest, report: IngestReport
    ) -> None:
        self._opened = database
        self._request = request
        self.report = report
        names = [] if database is None else database.streams()
        self._found = request.stream in names
        if self._found:
            request.found_existing(self._database.stream(request.stream).count, report)
            return
        if not request.create:
            known = f"there are {', '.join(names)}" if names else "there are none yet"
            raise StreamNotFound(
                f"there is no stream {request.stream!r} ({known}); add --create and --time COLUMN "
                "to make it from the data"
            )
        if request.time is None:
            raise InvalidArgument(
                f"the stream {request.stream!r} is to be made: give --time, the column that holds "
                "the time of the events"
            )

    @property
    def _database(self) -> Database:
        assert self._opened is not None, "only a dry run goes without a database"
        return self._opened

    @property
    def spool_directory(self) -> str | None:
        """The store's own directory: it is on the disk that has room for the events."""
        return None if self._opened is None else str(self._opened.path)

    def schema(self) -> StreamSchema | None:
        """Schema of the stream; None when it is to be made."""
        return self._database.stream(self._request.stream).event_schema if self._found else None

    def create(self, schema: StreamSchema) -> None:
        """Make the stream."""
        self._database.create_stream(
            self._request.stream,
            schema,
            retention=self._request.retention,
            codec=self._request.codec,
        )
        self.report.created = True

    def _writer(self) -> EventStream:
        handle = self._database.stream(self._request.stream).handle
        if not isinstance(handle, EventStream):
            raise ReadOnlyStore(f"{self._database.path} is open for reading only")
        return handle

    def append(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append a batch, durably."""
        result = self._writer().append(batch)
        self.report.stored += result.appended
        self.report.late += result.late
        self.report.count = result.count

    def load(self, batches: Iterator[pa.RecordBatch], rows: int, progress: Progress) -> None:
        """Bulk-load: segments are written beside the stream and become part of it in one commit."""
        progress.phase("storing", rows)
        if rows <= SMALL_ROWS:
            table = list(_counted(batches, progress))
            if table:
                self.append(pa.Table.from_batches(table))
            return
        from ..store.staging import (
            StagingPlan,
            abort_staged,
            commit_staged,
            new_job,
            prepare_staging,
            stage,
        )

        store = self._database.store
        handle = self._writer()
        directory = store.directory_of(handle.name)
        job = new_job()
        counted = _counted(regroup(batches, self._request.batch_rows), progress)
        try:
            plan = StagingPlan(directory, job, handle.schema, handle.options)
            prepare_staging(store.files, plan)
            with handle.snapshot() as snapshot:
                stored = snapshot.time_range
            runs = _split(counted, handle.schema.time, None if stored is None else stored[1])
            staged = stage(store.files, plan, 0, runs)
            done = commit_staged(handle, job, staged)
        except BaseException:
            with contextlib.suppress(Exception):  # swept at a later opening if not now
                abort_staged(store.files, directory, job)
            raise
        self.report.stored += done.events
        self.report.late += done.late
        with handle.snapshot() as snapshot:
            self.report.count = snapshot.count

    def undo(self) -> None:
        """Remove the stream again if it was made here and nothing is in it."""
        if self.report.created and self.report.stored == 0:
            self._database.drop_stream(self._request.stream)
            self.report.created = False


def _counted(batches: Iterator[pa.RecordBatch], progress: Progress) -> Iterator[pa.RecordBatch]:
    done = 0
    for batch in batches:
        yield batch
        done += batch.num_rows
        progress.at(done)


def _split(
    batches: Iterator[pa.RecordBatch], time: str, last: int | None
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Runs of batches in time order: what is older than ``last``, and what is not.

    Each run has to be read to its end before the next one is asked for.
    """
    if last is None:
        yield batches
        return
    newer: list[pa.RecordBatch] = []

    def older() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ticks = batch.column(batch.schema.get_field_index(time)).cast(pa.int64())
            rows = int(ticks.to_numpy(zero_copy_only=False).searchsorted(last))
            if rows:
                yield batch.slice(0, rows)
            if rows < batch.num_rows:
                newer.append(batch.slice(rows))
                return

    def rest() -> Iterator[pa.RecordBatch]:
        yield from newer
        yield from batches

    yield older()
    yield rest()
