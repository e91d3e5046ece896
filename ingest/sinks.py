"""The target of an ingest, and bulk loads into it, also by Spark and the server's transactions.

Parts of a *job* are staged invisibly, and one atomic, idempotent commit makes them visible
(``chronicle.store.staging``).  Sinks have the same methods, of which ``new_job``, ``prepare``,
``commit`` and ``abort`` are for the driver, and ``stage`` for executors.  A commit with a
``version`` not above the last one of its ``application`` does nothing.  Up to ``append_rows``
events are appended instead of staged.  Sinks and jobs are picklable::

    driver      new_job, prepare ---- job ----.                    .--> commit (or abort)
    executors                                 '--> stage, stage ---'
                                                    |
                    StoreSink:   segments in <store>/streams/<s>/staging/<job>
                    ServerSink:  Arrow to the server, which stages the segments

Commits to a store use an open ``catalog`` if given, else open the store, waiting at most
``timeout`` seconds for the lock; staging needs none.  Tasks also extract index entries, so the
commit moves no data.  Older events go into segments of their own, so that only those become late
runs::

    stored   |=======|
    part        |--a--|--b--|        a becomes a late run, b a base segment

A server drops an open transaction after a day.  Attempts of a task name their parts uniquely.  A
part is one request body (``CHRONICLE_MAX_PART_BYTES``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..catalog.store_catalog import StoreCatalog, open_catalog
from ..client import RemoteDatabase, Transport, calls
from ..client.calls import Call, path_of
from ..client.conversion import append_result
from ..core.append_result import AppendResult
from ..core.times import INT64_MAX, INT64_MIN
from ..errors import (
    ConnectionFailed,
    InvalidArgument,
    NotAStore,
    StoreLocked,
    StreamNotFound,
)
from ..indexes.staged import announce, build_staged, taking_over
from ..schema import StreamSchema
from ..store.catalog import BulkCommit, committed, truncated_at
from ..store.external_sort import runs_in_order
from ..store.options import StreamOptions
from ..store.recovery import load
from ..store.staging import (
    StagedSegment,
    StagingPlan,
    abort_staged,
    commit_staged,
    new_job,
    prepare_staging,
    stage,
    staged_jobs,
    sweep_staging,
)
from ..store.store import Store
from .request import IngestRequest, quarantine_path

Over = tuple[int | None, int | None]
"""Time range to replace: ticks, half-open; None leaves a side open."""


@dataclass(frozen=True)
class Job:
    """A load to be staged; ``plan`` and ``newest`` (tick of the newest event) are for a store."""

    name: str
    schema: StreamSchema
    plan: StagingPlan | None = None
    newest: int | None = None


logger = logging.getLogger("chronicle.ingest")

LOCK_PAUSE_SECONDS = 0.2


class StoreSink:
    """Loads into a stream of the store at ``path``; ``catalog`` is the same store, open here."""

    append_rows = 65_536  # fewer do not fill a segment

    def __init__(
        self,
        path: str | os.PathLike[str],
        stream: str,
        *,
        catalog: StoreCatalog | None = None,
        timeout: float = 0.0,
    ) -> None:
        self._path = os.path.abspath(path)
        self.stream = stream
        self._catalog = catalog
        self._timeout = timeout

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_catalog": None}

    @property
    def sort_directory(self) -> str | None:
        return None if self._catalog is None else self._path

    # ------------------------------------------------------------------------------- the stream

    @contextlib.contextmanager
    def _store(self) -> Iterator[Store]:
        if self._catalog is not None:
            yield self._catalog.store
        else:
            with Store.open(self._path, mode="r") as store:
                yield store

    @contextlib.contextmanager
    def _writable(self) -> Iterator[Store]:
        if self._catalog is not None:
            yield self._catalog.store
            return
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                store = Store.open(self._path)
                break
            except StoreLocked:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(LOCK_PAUSE_SECONDS)
        with store:
            yield store

    def describe(self) -> StreamSchema:
        with self._store() as store:
            return store.stream(self.stream).schema

    def count(self) -> int:
        with self._store() as store:
            return store.stream(self.stream).snapshot().count

    def create(
        self, schema: StreamSchema, *, if_not_exists: bool = False, **settings: Any
    ) -> StreamSchema:
        """``settings`` are those of ``StreamOptions``."""
        options = StreamOptions(**settings)
        with self._writable() as store:
            made = store.create_stream(self.stream, schema, options, if_not_exists=if_not_exists)
            return made.schema

    def drop(self) -> None:
        if self._catalog is not None:
            self._catalog.drop_stream(self.stream)
        else:
            with self._writable() as store:
                store.drop_stream(self.stream)

    def append(self, batch: pa.RecordBatch | pa.Table) -> AppendResult:
        with self._writable() as store:
            return store.writer(self.stream).append(batch)

    # ------------------------------------------------------------------------------------- jobs

    def new_job(self) -> Job:
        """A new job; abandoned ones are swept first."""
        self.sweep()
        return self.job(new_job())

    def sweep(self, clock: Callable[[], float] = time.time) -> list[str]:
        """Remove jobs that were neither committed nor aborted for a day; returns their names."""
        with self._store() as store:
            return sweep_staging(store.files, store.directory_of(self.stream), clock=clock)

    def job(self, name: str) -> Job:
        with self._store() as store:
            stream = store.stream(self.stream)
            directory = store.directory_of(self.stream)
            span = stream.snapshot().time_range
            plan = StagingPlan(directory, name, stream.schema, stream.options, stream.layout)
            return Job(name, stream.schema, plan, None if span is None else span[1])

    def prepare(self, job: Job) -> None:
        plan = _plan_of(job)
        with self._store() as store:
            if not store.files.exists(plan.place):
                prepare_staging(store.files, plan)
                announce(store.files, plan.directory, plan.place)

    def stage(self, job: Job, part: int, batches: Iterator[pa.RecordBatch]) -> list[StagedSegment]:
        plan = _plan_of(job)
        runs = runs_in_order(batches, job.schema.time, directory=self.sort_directory)
        with self._store() as store:
            split = (half for run in runs for half in _split(run, job.schema.time, job.newest))
            staged = stage(store.files, plan, part, split)
            build_staged(store.files, plan.place, staged, job.schema)
            return staged

    def commit(
        self,
        job: str,
        staged: Sequence[StagedSegment],
        *,
        truncate: bool = False,
        over: Over | None = None,
        application: str | None = None,
        version: int | None = None,
    ) -> AppendResult:
        """Add the staged segments to the stream's manifest."""
        indexes = None if self._catalog is None else self._catalog.indexes_of(self.stream)
        done: BulkCommit | None = None
        with self._writable() as store:
            stream = store.writer(self.stream)
            try:
                with taking_over(stream, job, staged, indexes):
                    done = commit_staged(
                        stream,
                        job,
                        staged,
                        truncate=truncate,
                        over=None if over is None else _inclusive(over),
                        application=application,
                        version=version,
                    )
            except Exception:
                if done is None:
                    raise
                # The commit succeeded, so report it; the rest is repaired later.
                logger.exception("%s: what follows the commit of %s failed", self.stream, job)
            return _result_of(done, stream.snapshot().count)

    def abort(self, job: str) -> None:
        """Remove a job's directory; needs no lock, as only its own tasks use it."""
        with self._store() as store:
            abort_staged(store.files, store.directory_of(self.stream), job)

    def outcome(
        self, application: str | None, version: int | None, job: str = ""
    ) -> AppendResult | None:
        commit = committed(self.jobs(), job, application, version)
        return None if commit is None else _result_of(commit, self.count())

    def epoch(self) -> int:
        return truncated_at(self.jobs())

    def staged_jobs(self) -> list[str]:
        with self._store() as store:
            return staged_jobs(store.files, store.directory_of(self.stream))

    def jobs(self) -> dict[str, Any]:
        """The jobs recorded in the stream's manifest."""
        try:
            with self._store() as store:
                if self._catalog is not None:
                    return store.writer(self.stream).commits.manifest.jobs
                return load(store.files, store.directory_of(self.stream)).manifest.jobs
        except (NotAStore, StreamNotFound):
            return {}


def _plan_of(job: Job) -> StagingPlan:
    assert job.plan is not None, "a job of another kind of sink"
    return job.plan


def _inclusive(over: Over) -> tuple[int, int]:
    start, end = over
    first, last = INT64_MIN if start is None else start, INT64_MAX if end is None else end - 1
    if first > last:
        raise InvalidArgument("the range that is replaced has to end after its start")
    return first, last


def _result_of(done: BulkCommit, count: int) -> AppendResult:
    figures = (done.events, done.late, count, done.position)
    return AppendResult(*figures, duplicates=done.duplicates, repeated=done.repeated)


def _split(
    run: Iterator[pa.RecordBatch], time: str, newest: int | None
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Split a run at ``newest``; each half must be read to its end before the next."""
    if newest is None:
        yield run
        return
    crossing: list[pa.RecordBatch] = []

    def older() -> Iterator[pa.RecordBatch]:
        for batch in run:
            ticks = batch.column(time).cast(pa.int64()).to_numpy(zero_copy_only=False)
            rows = int(ticks.searchsorted(newest))
            if rows:
                yield batch.slice(0, rows)
            if rows < batch.num_rows:
                crossing.append(batch.slice(rows))
                return

    def rest() -> Iterator[pa.RecordBatch]:
        yield from crossing
        yield from run

    yield older()
    yield rest()


PART_BYTES = 48 << 20
"""Arrow bytes after which a task begins another part."""


class ServerSink:
    append_rows = 0  # one transaction, however small
    sort_directory = None

    def __init__(self, transport: Transport, stream: str) -> None:
        self._transport = transport
        self._stream = stream

    def describe(self) -> StreamSchema:
        return RemoteDatabase(self._transport).stream(self._stream).event_schema

    def count(self) -> int:
        return RemoteDatabase(self._transport).stream(self._stream).count

    def create(self, schema: StreamSchema, **settings: Any) -> StreamSchema:
        """``settings`` are those of ``RemoteDatabase.create_stream``."""
        made = RemoteDatabase(self._transport).create_stream(self._stream, schema, **settings)
        return made.event_schema

    def drop(self) -> None:
        RemoteDatabase(self._transport).drop_stream(self._stream)

    def append(self, batch: pa.RecordBatch) -> AppendResult:
        call = calls.append(self._stream)
        with _in_doubt():
            return append_result(self._transport.send(call, batch.schema, [batch]))

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
                path = path_of("streams", self._stream, "transactions", job.name, "parts", name)
                self._transport.send(Call("PUT", path), job.schema.arrow, pieces.take())
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
    ) -> AppendResult:
        body: dict[str, Any] = {"parts": sorted(staged), "truncate": truncate}
        if over is not None:
            body["replace"] = {"start": over[0], "end": over[1]}
        if application is not None and version is not None:
            body |= {"app_id": application, "app_version": version}
        path = "streams", self._stream, "transactions", job, "commit"
        with _in_doubt():
            return append_result(self._transport.ask("POST", *path, body=body, repeatable=True))

    def abort(self, job: str) -> None:
        self._transport.ask("DELETE", "streams", self._stream, "transactions", job)

    def outcome(self, application: str, version: int) -> AppendResult | None:
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


Sink = ServerSink | StoreSink
"""A stream to load events into; it need not exist yet."""


@dataclass(frozen=True)
class Target:
    """Exactly one of a store's directory, the catalog of an open one, and a server's url.

    ``timeout`` is in seconds, for the server or the writer's lock; ``retries`` is for requests.
    """

    path: str | os.PathLike[str] | None = None
    catalog: StoreCatalog | None = None
    url: str | None = None
    token: str | None = None
    timeout: float = 60.0
    retries: int = 3

    def __post_init__(self) -> None:
        if sum(place is not None for place in (self.path, self.catalog, self.url)) != 1:
            raise InvalidArgument("give one target: a store's path, a database, or a url")

    def quarantine_path(self, request: IngestRequest) -> Path:
        if request.quarantine is not None:
            return request.quarantine
        if self.url is not None:
            return quarantine_path("chronicle", request.stream)
        place = self.catalog.path if self.catalog is not None else self.path
        assert place is not None
        return quarantine_path(place, request.stream)

    @contextlib.contextmanager
    def opened(self, *, dry_run: bool) -> Iterator[Target]:
        """The target with its store open for writing and locked; unchanged for a dry run."""
        if self.path is None or dry_run:
            yield self
        else:
            with contextlib.closing(open_catalog(self.path)) as catalog:
                yield Target(catalog=catalog)

    def sink(self, stream: str) -> Sink:
        if self.url is not None:
            return ServerSink(Transport(self.url, self.token, self.timeout, self.retries), stream)
        if self.catalog is not None:
            return StoreSink(self.catalog.path, stream, catalog=self.catalog)
        assert self.path is not None
        return StoreSink(self.path, stream, timeout=self.timeout)
