"""Where events go: the one protocol for storing many events at once.

Purpose
    The command line, Spark and the server's transactions load alike: a *job* is prepared, its parts
    are staged where nobody sees them, by this process or by executors, and one commit makes them
    events.  :class:`~chronicle.ingest.store_sink.StoreSink` does it in a store's directory,
    :class:`~chronicle.ingest.server_sink.ServerSink` through a server.

Guarantee
    Those of :mod:`chronicle.store.staging`: nothing is visible before the commit, and the commit
    happens once however often it is asked for.  A sink is picklable, and so is a job.

Layout
    ::

        driver      new_job, prepare ---- job ----.                    .--> commit (or abort)
        executors                                 '--> stage, stage ---'
                                                        |
                        StoreSink:   segments in <store>/streams/<s>/staging/<job>
                        ServerSink:  Arrow to the server, which stages the segments

    A program that stages by itself calls :func:`load`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from ..schema import StreamSchema
from ..store.staging import StagingPlan

__all__ = ["Job", "Outcome", "Over", "Sink", "load"]

Over = tuple[int | None, int | None]
"""A range of times to replace: ticks, half-open; None leaves a side open."""


@dataclass(frozen=True)
class Job:
    """A load that is about to be staged.

    Attributes
    ----------
    schema : StreamSchema
        Of the stream.
    plan : StagingPlan or None
        Where a store stages.
    newest : int or None
        Tick of the newest event that a store had.
    """

    name: str
    schema: StreamSchema
    plan: StagingPlan | None = None
    newest: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What an append or a commit did.

    Attributes
    ----------
    events, late : int
        Events stored, and those among them that were older than stored ones.
    count : int or None
        Events in the stream afterwards, where that is known.
    position : int or None
        Commit position of the stream, where that is known.
    repeated : bool
        The same job or version had been committed before: the figures are those of then.
    duplicates : int
        Events that were left out because the stream, which has ``unique``, holds their keys.
    """

    events: int
    late: int
    count: int | None = None
    position: int | None = None
    repeated: bool = False
    duplicates: int = 0


class Sink(Protocol):
    """A stream that events are loaded into; it need not exist yet."""

    @property
    def append_rows(self) -> int:
        """A load of no more events than this is better appended than staged."""
        ...

    @property
    def sort_directory(self) -> str | None:
        """Directory for temporary files of a sort; None for the system's."""
        ...

    def describe(self) -> StreamSchema:
        """Schema of the stream; :class:`StreamNotFound` or :class:`NotAStore` without one."""
        ...

    def count(self) -> int:
        """Events in the stream."""
        ...

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
        """Make the stream; gives the schema that it has."""
        ...

    def drop(self) -> None:
        """Remove the stream."""
        ...

    def append(self, batch: pa.RecordBatch) -> Outcome:
        """Store one batch durably, or nothing of it."""
        ...

    def new_job(self) -> Job:
        """A job with a name that no other has; nothing is stored yet (driver)."""
        ...

    def prepare(self, job: Job) -> None:
        """Make the place where a job stages; without it a task takes the job for aborted."""
        ...

    def stage(self, job: Job, part: int, batches: Iterator[pa.RecordBatch]) -> list[Any]:
        """Store a part's events where nobody sees them, sorted by time (executor).

        Parameters
        ----------
        part : int
            Position of the part in the job; decides between equal times.
        batches : iterator of pyarrow.RecordBatch
            In the stream's schema and any order.

        Returns
        -------
        list
            What was staged, for ``commit``; picklable.
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
        """Make everything staged visible at once (driver).

        Parameters
        ----------
        truncate : bool
            Remove every event that the stream had, in the same commit.
        over : Over, optional
            Remove those of a range; what is staged has to lie in it.
        application, version : str and int, optional
            Versions that are not above the application's last one do nothing.
        """
        ...

    def abort(self, job: str) -> None:
        """Remove what was staged; doing so again does nothing (driver)."""
        ...

    def outcome(self, application: str, version: int) -> Outcome | None:
        """What an earlier commit of an application's version did; None where that is not known."""
        ...

    def epoch(self) -> int:
        """Commit position of the stream's last truncation; 0 without one, or where not known."""
        ...


def load(sink: Sink, batches: Iterator[pa.RecordBatch]) -> Outcome:
    """Stage events from this process and commit them: all of them, or none."""
    job = sink.new_job()
    try:
        sink.prepare(job)
        return sink.commit(job.name, sink.stage(job, 0, batches))
    except BaseException:
        with contextlib.suppress(Exception):  # swept after a day if not now
            sink.abort(job.name)
        raise
