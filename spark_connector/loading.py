"""Loading a DataFrame into a stream from a program that has the commit in its own hands.

Purpose
    The pipeline range-partitions and sorts, stages the events in its tasks, and commits from the
    driver, so that it knows what the commit did.  ``df.write.format("chronicle")`` is for
    everybody else: there Spark commits, and tells nobody what came of it.

Guarantee
    Those of :mod:`chronicle.spark_connector.sink`.  Only the staged segments of the attempts that
    Spark counts are committed: they come back as the result of the tasks.

Limits
    A store that this process has open for writing (:class:`DatabaseTarget`) is committed to
    through that handle; its path must be visible to the executors all the same.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812

from ..errors import NotAStore, StreamNotFound
from ..indexes.staged import taking_over
from ..schema import StreamSchema
from ..store import EventStream
from ..store.staging import abort_staged, commit_staged, committed, truncated_at
from .options import Options
from .sink import Job, Outcome, Sink, open_sink
from .writer import stage_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..database import Database
    from ..ingest.engines import Target
    from ..ingest.request import IngestRequest

__all__ = ["LoadTarget", "load_sorted", "target_of", "ticks_of"]


class LoadTarget:
    """The stream that a pipeline loads into.

    Parameters
    ----------
    options : Options
        Where it is.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.asked: str | None = None
        """The work whose commit was begun last."""

    def sink(self) -> Sink:
        """The sink of the options."""
        return open_sink(self.options)

    def existing(self) -> StreamSchema | None:
        """Schema of the stream; None when there is none."""
        from .backend import open_backend

        try:
            return open_backend(self.options).describe()
        except (NotAStore, StreamNotFound):
            return None

    def create(self, schema: StreamSchema) -> None:
        """Make the stream unless it exists."""
        self.sink().prepare(schema)

    def commit(self, job: Job, staged: Sequence[Any], application: str) -> Outcome:
        """Make staged events visible."""
        return self.sink().commit(job.name, staged, application=application, version=0)

    def abort(self, job: Job) -> None:
        """Remove what was staged."""
        self.sink().abort(job.name)

    def outcome(self, application: str, version: int) -> Outcome | None:
        """What an earlier commit of the same work did."""
        return self.sink().outcome(application, version)

    def epoch(self) -> int:
        """Position of the stream's last truncation: what was loaded before does not count."""
        return self.sink().epoch()

    def count(self) -> int | None:
        """Events in the stream; None when there is none."""
        from .backend import open_backend

        try:
            return open_backend(self.options).count()
        except (NotAStore, StreamNotFound):
            return None

    def keys(
        self, spark: SparkSession, keys: Sequence[str], first: int | None, last: int | None
    ) -> DataFrame | None:
        """Key columns of the stored events of a time range; None when there are none.

        ``first`` and ``last`` are as :func:`ticks_of` gives them, both inclusive.
        """
        if not self.count() or first is None or last is None:
            return None
        from . import register

        register(spark)
        reader = spark.read.format("chronicle").option("stream", self.options.stream or "")
        if self.options.path is not None:
            reader = reader.option("path", self.options.path)
        else:
            reader = reader.option("url", self.options.url or "")
            if self.options.token is not None:
                reader = reader.option("token", self.options.token)
        names = ",".join(f'"{key}"' for key in keys)
        return (
            reader.option("columns", names)
            .option("startTime", first)
            .option("endTime", last + 1)
            .load()
        )


class DatabaseTarget(LoadTarget):
    """A stream of a database that this process has open for writing."""

    def __init__(self, options: Options, database: Database) -> None:
        super().__init__(options)
        self.database = database

    def _handle(self) -> EventStream:
        handle = self.database.stream(self.options.stream or "").handle
        assert isinstance(handle, EventStream)
        return handle

    def create(self, schema: StreamSchema) -> None:
        """Make the stream unless it exists."""
        self.database.create_stream(
            self.options.stream or "",
            schema,
            codec=self.options.codec or "lz4",
            retention=self.options.retention,
            if_not_exists=True,
        )

    def commit(self, job: Job, staged: Sequence[Any], application: str) -> Outcome:
        """Make staged events visible, by the handle that holds the store."""
        handle = self._handle()
        indexes = self.database.indexes_of(self.options.stream or "")
        with taking_over(handle, job.name, staged, indexes):
            done = commit_staged(handle, job.name, staged, application=application, version=0)
        return Outcome(done.events, done.late, done.repeated)

    def abort(self, job: Job) -> None:
        """Remove what was staged."""
        commits = self._handle().commits
        abort_staged(commits.files, commits.directory, job.name)

    def outcome(self, application: str, version: int) -> Outcome | None:
        """What an earlier commit of the same work did."""
        try:
            jobs = self._handle().commits.manifest.jobs
        except StreamNotFound:
            return None
        found = committed(jobs, "", application, version)
        return None if found is None else Outcome(found.events, found.late, True)

    def epoch(self) -> int:
        """Position of the stream's last truncation."""
        try:
            return truncated_at(self._handle().commits.manifest.jobs)
        except StreamNotFound:
            return 0


def target_of(target: Target, request: IngestRequest) -> LoadTarget:
    """The stream that a request's target means."""
    path = target.path if target.database is None else target.database.path
    options = Options(
        path=None if path is None else str(path),
        url=target.url,
        token=target.token,
        stream=request.stream,
        codec=request.codec,
        retention=None if request.retention is None else str(request.retention),
    )
    if target.database is not None:
        return DatabaseTarget(options, target.database)
    return LoadTarget(options)


@dataclass(frozen=True)
class _Stage:
    """Stages the rows of a task; picklable, for ``mapInArrow``."""

    options: Options
    job: Job
    given: T.StructType

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part, staged = stage_task(open_sink(self.options), self.job, self.given, batches)
        yield pa.record_batch([pa.array([pickle.dumps((part, staged))])], names=["staged"])


def load_sorted(
    rows: DataFrame,
    schema: StreamSchema,
    target: LoadTarget,
    parts: int,
    application: str,
    *,
    order: Sequence[str] = (),
) -> Outcome:
    """Range-partition rows by time, sort, stage and commit them.

    Parameters
    ----------
    rows : DataFrame
        With the stream's columns; others are left out.
    schema : StreamSchema
        Of the stream, which exists.
    target : LoadTarget
    parts : int
        Loading tasks.
    application : str
        Name of this work, committed once.
    order : sequence of str
        Columns that decide between equal times.
    """
    from pyspark.sql import functions as F  # noqa: N812

    names = {name.lower() for name in schema.names}
    columns = [F.col(f"`{name}`") for name in rows.columns if name.lower() in names]
    time_column = F.col(f"`{schema.time}`")
    spread = rows.repartitionByRange(parts, time_column) if parts > 1 else rows.coalesce(1)
    ordered = spread.sortWithinPartitions(time_column, *order).select(*columns)
    sink = target.sink()
    job = sink.prepare(None)
    sink.make_room(job)
    try:
        stage = _Stage(target.options, job, ordered.schema)
        found = ordered.mapInArrow(stage, "staged binary").collect()
        results = sorted((pickle.loads(row["staged"]) for row in found), key=lambda one: one[0])
        target.asked = application
        return target.commit(job, [item for _, staged in results for item in staged], application)
    except BaseException:
        target.abort(job)
        raise


def ticks_of(column: str, type_: T.DataType) -> str:
    """SQL for a time column as the reader's options take it: microseconds, or the integer itself.

    Spark hands timestamps to Python in the zone of the driver's system; integers have none.
    """
    name = f"`{column}`"
    if isinstance(type_, T.TimestampType):
        return f"unix_micros({name})"
    if isinstance(type_, T.TimestampNTZType):
        return f"timestampdiff(MICROSECOND, timestamp_ntz'1970-01-01 00:00:00', {name})"
    return name
