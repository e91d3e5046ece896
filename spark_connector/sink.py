"""Where a write goes: a store's directory, or a server in front of one.

Purpose
    :class:`Sink` is the writing counterpart of
    :class:`~chronicle.spark_connector.backend.Backend`: prepare a job on the driver, stage parts
    on executors, commit or abort once.

Guarantee
    Those of :mod:`chronicle.store.staging`: nothing is visible before the commit, and the commit
    happens once however often it is asked for.

Layout
    ::

        driver      prepare ---- job, schema ----.                    .--> commit (or abort)
        executors                                '--> stage, stage ---'
                                                       |
                        path: segments in <store>/streams/<s>/staging/<job>
                        url:  Arrow to the server, which stages the segments

Limits
    A commit by path opens the store for writing: it waits for at most ``timeout`` seconds while
    another process holds the store, then gives up with :class:`~chronicle.errors.StoreLocked`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from ..errors import NotAStore, SchemaMismatch, StoreLocked, StreamNotFound
from ..indexes.staged import announce, build_staged, taking_over
from ..schema import StreamSchema
from ..store import EventStream, Store, StreamOptions
from ..store.recovery import load
from ..store.staging import (
    StagedSegment,
    StagingPlan,
    abort_staged,
    commit_staged,
    committed,
    new_job,
    prepare_staging,
    stage,
    sweep_staging,
    truncated_at,
)
from .local import local_path
from .options import Options
from .sorting import runs_in_order

__all__ = [
    "Job",
    "LocalSink",
    "Outcome",
    "Sink",
    "open_sink",
    "opened_for_writing",
    "same_time",
]

LOCK_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Job:
    """A prepared write; picklable.

    Attributes
    ----------
    name : str
    schema : StreamSchema
        Of the stream.
    plan : object
        The sink's own.
    """

    name: str
    schema: StreamSchema
    plan: Any


@dataclass(frozen=True)
class Outcome:
    """What a commit did.

    Attributes
    ----------
    events, late : int
        Events stored, and those among them that were older than stored ones.
    repeated : bool
        The same write had been committed before; nothing was done.
    """

    events: int
    late: int
    repeated: bool


class Sink(Protocol):
    """Takes the writes of one DataFrame."""

    def prepare(self, wanted: StreamSchema | None) -> Job:
        """Find the stream, or create it with the schema wanted (driver)."""
        ...

    def make_room(self, job: Job) -> None:
        """Make the place where a job stages; without it a task takes the job for aborted."""
        ...

    def stage(self, job: Job, part: int, batches: Iterator[pa.RecordBatch]) -> list[Any]:
        """Store events where nobody sees them yet (executor); batches in the stream's schema."""
        ...

    def commit(
        self,
        job: str,
        staged: Sequence[Any],
        *,
        truncate: bool = False,
        application: str | None = None,
        version: int | None = None,
    ) -> Outcome:
        """Make everything staged visible at once (driver)."""
        ...

    def abort(self, job: str) -> None:
        """Remove what was staged (driver)."""
        ...

    def outcome(self, application: str, version: int) -> Outcome | None:
        """What an earlier commit of an application's version did; None where that is not known."""
        ...

    def epoch(self) -> int:
        """Commit position of the stream's last truncation; 0 without one."""
        ...


def open_sink(options: Options) -> Sink:
    """The sink that the options ``path`` or ``url`` name."""
    if options.path is not None:
        return LocalSink(options)
    from .served_sink import ServedSink

    return ServedSink(options)


@contextlib.contextmanager
def opened_for_writing(path: str, timeout: float) -> Iterator[Store]:
    """The store at a path as its writer, waiting while another process is."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            store = Store.open(path)
            break
        except StoreLocked:
            if time.monotonic() >= deadline:
                raise
            time.sleep(LOCK_PAUSE_SECONDS)
    with store:
        yield store


class LocalSink:
    """Writes into a store's directory that all nodes see."""

    def __init__(self, options: Options) -> None:
        assert options.path is not None
        self._path = local_path(options.path)
        self._stream = options.stream or ""
        self._options = options

    def prepare(self, wanted: StreamSchema | None) -> Job:
        """Find or create the stream, and name a job."""
        name = new_job()
        schema, settings = self._found(wanted)
        with Store.open(self._path, mode="r") as store:
            directory = store.directory_of(self._stream)
            sweep_staging(store.files, directory)
        return Job(name, schema, StagingPlan(directory, name, schema, settings))

    def make_room(self, job: Job) -> None:
        """Make the job's directory."""
        with Store.open(self._path, mode="r") as store:
            prepare_staging(store.files, job.plan)
            announce(store.files, job.plan.directory, job.plan.place)

    def _found(self, wanted: StreamSchema | None) -> tuple[StreamSchema, StreamOptions]:
        try:
            with Store.open(self._path, mode="r") as store:
                stream = store.stream(self._stream)
                same_time(stream.schema, self._options.time)
                return stream.schema, stream.options
        except (NotAStore, StreamNotFound) as error:
            if wanted is None:
                raise type(error)(
                    f"{error}; give the option 'time' (the name of the time column) to create it"
                ) from None
        settings = StreamOptions(
            codec=self._options.codec or "lz4", retention=self._options.retention
        )
        with opened_for_writing(self._path, self._options.timeout) as store:
            made = store.create_stream(self._stream, wanted, settings, if_not_exists=True)
            return made.schema, made.options

    def stage(self, job: Job, part: int, batches: Iterator[pa.RecordBatch]) -> list[Any]:
        """Sort a task's events and write them as segments, with the runs of their indexes."""
        plan: StagingPlan = job.plan
        with Store.open(self._path, mode="r") as store:
            staged = stage(store.files, plan, part, runs_in_order(batches, job.schema.time))
            build_staged(store.files, plan.place, staged, job.schema)
            return list(staged)

    def commit(
        self,
        job: str,
        staged: Sequence[StagedSegment],
        *,
        truncate: bool = False,
        application: str | None = None,
        version: int | None = None,
    ) -> Outcome:
        """Name the staged segments in the stream's manifest."""
        with opened_for_writing(self._path, self._options.timeout) as store:
            stream = store.stream(self._stream)
            assert isinstance(stream, EventStream)
            with taking_over(stream, job, staged):
                done = commit_staged(
                    stream, job, staged, truncate=truncate, application=application, version=version
                )
        return Outcome(done.events, done.late, done.repeated)

    def abort(self, job: str) -> None:
        """Remove a job's directory; needs no lock, because only its own tasks know it."""
        with Store.open(self._path, mode="r") as store:
            abort_staged(store.files, store.directory_of(self._stream), job)

    def outcome(self, application: str, version: int) -> Outcome | None:
        """What an earlier commit of an application's version did; None when there was none."""
        found = committed(self._jobs(), "", application, version)
        return None if found is None else Outcome(found.events, found.late, True)

    def epoch(self) -> int:
        """Commit position of the stream's last truncation."""
        return truncated_at(self._jobs())

    def _jobs(self) -> dict[str, Any]:
        try:
            with Store.open(self._path, mode="r") as store:
                directory = store.directory_of(self._stream)
                return load(store.files, directory).manifest.jobs
        except (NotAStore, StreamNotFound):
            return {}


def same_time(schema: StreamSchema, time_column: str | None) -> None:
    """Refuse an option ``time`` that names another column than the stream's."""
    if time_column is not None and time_column.lower() != schema.time.lower():
        raise SchemaMismatch(
            f"option 'time' says {time_column!r}; the stream's time attribute is {schema.time!r}"
        )
