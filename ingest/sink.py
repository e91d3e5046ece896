"""The protocol for bulk loads, used by the command line, Spark and the server's transactions.

Parts of a *job* are staged invisibly, and one atomic, idempotent commit makes them visible
(``chronicle.store.staging``).  Sinks and jobs are picklable::

    driver      new_job, prepare ---- job ----.                    .--> commit (or abort)
    executors                                 '--> stage, stage ---'
                                                    |
                    StoreSink:   segments in <store>/streams/<s>/staging/<job>
                    ServerSink:  Arrow to the server, which stages the segments
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from ..schema import StreamSchema
from ..store.staging import StagingPlan

Over = tuple[int | None, int | None]
"""Time range to replace: ticks, half-open; None leaves a side open."""


@dataclass(frozen=True)
class Job:
    """A load to be staged; ``plan`` and ``newest`` (tick of the newest event) are for a store."""

    name: str
    schema: StreamSchema
    plan: StagingPlan | None = None
    newest: int | None = None


@dataclass(frozen=True)
class Outcome:
    """Result of an append or a commit; ``count`` and ``position`` (of the commit) are after it.

    ``late`` events were older than stored ones; ``duplicates`` were skipped by ``unique``;
    ``repeated``: it had been committed before, with these figures.
    """

    events: int
    late: int
    count: int | None = None
    position: int | None = None
    repeated: bool = False
    duplicates: int = 0


class Sink(Protocol):
    """A stream to load events into; it need not exist yet."""

    @property
    def append_rows(self) -> int:
        """Loads of up to this many events are appended instead of staged."""
        ...

    @property
    def sort_directory(self) -> str | None:
        """Directory for temporary files of a sort; None for the system's."""
        ...

    def describe(self) -> StreamSchema:
        """Schema of the stream; raises ``StreamNotFound`` or ``NotAStore`` without one."""
        ...

    def count(self) -> int: ...

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
        """Create the stream; returns its actual schema."""
        ...

    def drop(self) -> None: ...

    def append(self, batch: pa.RecordBatch) -> Outcome:
        """Store one batch durably and atomically."""
        ...

    def new_job(self) -> Job:
        """A job with a unique name; stores nothing (driver)."""
        ...

    def prepare(self, job: Job) -> None:
        """Create the job's staging area, without which tasks consider it aborted."""
        ...

    def stage(self, job: Job, part: int, batches: Iterator[pa.RecordBatch]) -> list[Any]:
        """Stage a part's events invisibly, in time order; ``part`` orders equal times (executor).

        Returns picklable items for ``commit``.
        """
        ...

    def commit(
        self,
        job: str,
        staged: Sequence[Any],
        *,
        truncate: bool = False,
        over: Over | None = None,
        application: str | None = None,
        version: int | None = None,
    ) -> Outcome:
        """Make everything staged visible atomically (driver).

        ``truncate`` removes all earlier events in the same commit, ``over`` those of a range that
        contains the staged ones.  A ``version`` not above the last one of ``application`` does
        nothing.
        """
        ...

    def abort(self, job: str) -> None:
        """Remove staged data; idempotent (driver)."""
        ...

    def outcome(self, application: str, version: int) -> Outcome | None:
        """Outcome of an earlier commit of an application's version; None if unknown."""
        ...

    def epoch(self) -> int:
        """Commit position of the stream's last truncation; 0 if none or unknown."""
        ...


def load(sink: Sink, batches: Iterator[pa.RecordBatch]) -> Outcome:
    job = sink.new_job()
    try:
        sink.prepare(job)
        return sink.commit(job.name, sink.stage(job, 0, batches))
    except BaseException:
        with contextlib.suppress(Exception):  # else swept after a day
            sink.abort(job.name)
        raise
