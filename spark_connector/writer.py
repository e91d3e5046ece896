"""Batch writes: every task stages segments, the driver commits once.

Tasks that fail, run twice, or continue after an abort leave only staged files, which the commit
does not name.  With ``txnAppId`` and ``txnVersion`` a repeated write does nothing.
``mode("overwrite")`` replaces a time range in the same commit, or with ``truncate=true`` all
events.  Each task sorts its own events: range-partition by time before, or reads must merge
overlapping segments.

An overwrite replaces the range ``startTime`` to ``endTime``, or ``replaceWhere``: the events that a
SELECT with it would return, which must be a time range.

Streaming sink: every micro-batch is one bulk load with one commit.  A repeated batch is recognised
by (query id or ``txnAppId``, batch id) and not stored twice.  Spark makes separate writers for
tasks and commit, so staged data is described in messages.  Micro-batches become segments, which
``chronicle compact`` merges; prefer few, large batches.

``load_sorted`` writes a DataFrame with a commit by the driver, which therefore learns the outcome.
Only results of successful task attempts are committed.  The store's path must be visible to the
executors.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ..core.append_result import AppendResult
from ..core.times import time_text
from ..errors import InvalidArgument, InvalidData, NotAStore, SchemaMismatch, StreamNotFound
from ..ingest.sinks import Job, Over, Sink, Target
from ..schema import StreamSchema
from ..store.tail import ticks_of
from .backend import local_path, time_bounds
from .options import Options
from .types import WriteConversion, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def replaced_range(options: Options, schema: StreamSchema) -> Over:
    """The range in ticks; SqlError if ``replaceWhere`` is no time range."""
    if options.replace_where is not None:
        return _range_of(options.replace_where, schema)
    start, end = time_bounds(options, schema)
    if start is not None and end is not None and start >= end:
        raise InvalidArgument(
            f"expected endTime after startTime, found {options.start_time} and {options.end_time}"
        )
    return start, end


def _range_of(predicate: str, schema: StreamSchema) -> Over:
    from ..store.files import ScratchFiles
    from ..store.store import Store
    from .queries import PinnedCatalog, query_engine

    with Store.open("scratch", files=ScratchFiles()) as store:
        store.create_stream("stream", schema)
        with query_engine(PinnedCatalog(store, empty=True)) as engine:
            return engine.time_range("stream", predicate)


def inside(batch: pa.RecordBatch, schema: StreamSchema, over: Over) -> pa.RecordBatch:
    """The batch, if all its events are in the range; else InvalidData."""
    if batch.column(schema.time).null_count:
        return batch  # refused at the write, with the column's name
    start, end = over
    ticks = ticks_of(batch, schema)
    outside = np.zeros(ticks.size, np.bool_)
    if start is not None:
        outside |= ticks < start
    if end is not None:
        outside |= ticks >= end
    if outside.any():
        tick = int(ticks[outside][0])
        shown = tick if schema.time_unit is None else time_text(tick, schema.time_type)
        raise InvalidData(
            f"an event at {shown} is not in the range that mode('overwrite') replaces: filter the "
            "DataFrame, or replace a longer range"
        )
    return batch


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """What the task of partition ``part`` staged, for the sink's commit."""

    part: int
    staged: list[Any]
    job: str = ""
    application: str | None = None
    version: int | None = None


def open_sink(options: Options, frame_schema: StructType | None = None) -> Sink:
    """The sink of the stream that the options name.

    With ``frame_schema`` (that of a DataFrame) and the option ``time`` a missing stream is created.
    """
    path = None if options.path is None else local_path(options.path)
    target = Target(path, None, options.url, options.token, options.timeout, options.retries)
    sink = target.sink(options.stream or "")
    if frame_schema is not None:
        try:
            time = sink.describe().time
        except (NotAStore, StreamNotFound) as error:
            if options.time is None:
                raise type(error)(
                    f"{error}; give the option 'time' (the name of the time column) to create it"
                ) from None
            wanted = _schema_of(frame_schema, options.time)
            sink.create(
                wanted, codec=options.codec or "lz4", retention=options.retention,
                unique=options.unique, within=options.within, if_not_exists=True,
            )  # fmt: skip
        else:
            if options.time is not None and options.time.lower() != time.lower():
                raise SchemaMismatch(
                    f"option 'time' says {options.time!r}; the stream's time attribute is {time!r}"
                )
    return sink


def _schema_of(frame_schema: StructType, time: str) -> StreamSchema:
    arrow = arrow_schema(frame_schema)
    name = {field.name.lower(): field.name for field in arrow}.get(time.lower())
    if name is None:
        raise SchemaMismatch(
            f"option 'time' names {time!r}; the DataFrame has {', '.join(arrow.names)}"
        )
    # As in Spark's tables: a later DataFrame may have nulls even if this one has none.
    fields = [pa.field(f.name, f.type, f.name != name) for f in arrow]
    return StreamSchema(pa.schema(fields), name)


def stage_task(
    sink: Sink,
    job: Job,
    frame_schema: StructType,
    batches: Iterator[pa.RecordBatch],
    over: Over | None = None,
) -> tuple[int, list[Any]]:
    """Stage the events of the current task; returns its partition and what it staged."""
    context = TaskContext.get()
    part = 0 if context is None else context.partitionId()
    conversion = WriteConversion(frame_schema, job.schema)
    converted = (conversion(batch) for batch in batches if batch.num_rows)
    if over is not None:
        converted = (inside(batch, job.schema, over) for batch in converted)
    return part, sink.stage(job, part, converted)


class EventWriter(DataSourceArrowWriter):
    """Writes a DataFrame into a stream; pickled to executors."""

    def __init__(self, options: Options, frame_schema: StructType, overwrite: bool) -> None:
        ranged = options.given("replace_where", "start_time", "end_time")
        if overwrite and not (options.truncate or ranged):
            raise InvalidArgument(
                "mode('overwrite') would remove every event of the stream; say so with "
                "option('truncate', 'true'), name a range of times with startTime and endTime, or "
                "use mode('append')"
            )
        if (options.truncate or ranged) and not overwrite:
            name = "truncate" if options.truncate else ranged[0]
            raise InvalidArgument(f"option {name!r} needs mode('overwrite')")
        self.options = options
        self.frame_schema = frame_schema
        sink = open_sink(options, frame_schema)
        self.job = sink.new_job()
        self.over = replaced_range(options, self.job.schema) if ranged else None
        WriteConversion(frame_schema, self.job.schema)  # fail now instead of in every task
        sink.prepare(self.job)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        part, staged = stage_task(
            open_sink(self.options), self.job, self.frame_schema, iterator, self.over
        )
        return StagedMessage(part, staged)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = [
            item
            for message in messages
            if isinstance(message, StagedMessage)
            for item in message.staged
        ]
        open_sink(self.options).commit(
            self.job.name,
            staged,
            truncate=self.options.truncate,
            over=self.over,
            application=self.options.txn_app_id,
            version=self.options.txn_version,
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        open_sink(self.options).abort(self.job.name)


class EventStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches into a stream; output mode ``complete`` is refused."""

    def __init__(self, options: Options, frame_schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidArgument(
                "a stream of events is append-only: use outputMode('append'), not 'complete'"
            )
        self.options = options
        self.frame_schema = frame_schema
        self.job = open_sink(options, frame_schema).new_job()
        WriteConversion(frame_schema, self.job.schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = batch = None
        if context is not None:
            query = context.getLocalProperty("sql.streaming.queryId")
            batch = context.getLocalProperty("streaming.sql.batchId")
        sink = open_sink(self.options)
        sink.prepare(self.job)
        part, staged = stage_task(sink, self.job, self.frame_schema, iterator)
        application = self.options.txn_app_id or (f"query {query}" if query else None)
        version = None if batch is None else int(batch)
        return StagedMessage(part, staged, self.job.name, application, version)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        done = [message for message in messages if isinstance(message, StagedMessage)]
        if not done:
            return
        application = done[0].application
        open_sink(self.options).commit(
            done[0].job,
            [item for message in done for item in message.staged],
            application=application,
            version=None if application is None else batchId,
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what a micro-batch staged; the rest is swept after a day."""
        sink = open_sink(self.options)
        for job in {m.job for m in messages if isinstance(m, StagedMessage)}:
            sink.abort(job)


@dataclass(frozen=True)
class _Stage:
    sink: Sink
    job: Job
    frame_schema: T.StructType

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part, staged = stage_task(self.sink, self.job, self.frame_schema, batches)
        yield pa.record_batch([pa.array([pickle.dumps((part, staged))])], names=["staged"])


def load_sorted(
    rows: DataFrame,
    schema: StreamSchema,
    sink: Sink,
    parts: int,
    application: str,
    *,
    order: Sequence[str] = (),
    committing: Callable[[str], None] = lambda _: None,
) -> AppendResult:
    """Range-partition rows by time into ``parts`` tasks, sort, stage and commit them.

    ``order`` columns order equal times.  ``application`` is committed at most once; ``committing``
    is called with it before the commit.
    """
    from pyspark.sql import functions as F  # noqa: N812

    names = {name.lower() for name in schema.names}
    columns = [F.col(f"`{name}`") for name in rows.columns if name.lower() in names]
    time_column = F.col(f"`{schema.time}`")
    spread = rows.repartitionByRange(parts, time_column) if parts > 1 else rows.coalesce(1)
    ordered = spread.sortWithinPartitions(time_column, *order).select(*columns)
    job = sink.new_job()
    sink.prepare(job)
    try:
        stage = _Stage(sink, job, ordered.schema)
        staged_rows = ordered.mapInArrow(stage, "staged binary").collect()
        results = sorted(
            (pickle.loads(row["staged"]) for row in staged_rows), key=lambda one: one[0]
        )
        staged = [item for _, items in results for item in items]
        committing(application)
        return sink.commit(job.name, staged, application=application, version=0)
    except BaseException:
        sink.abort(job.name)
        raise


def stored_keys(
    spark: SparkSession, target: Target, stream: str, keys: Sequence[str], first: int, last: int
) -> DataFrame:
    """Key columns of the stored events from ``first`` to ``last`` (see ``ticks_of``), inclusive."""
    from . import register

    register(spark)
    path = target.path if target.catalog is None else target.catalog.path
    options = {
        "path": path,
        "url": target.url,
        "token": target.token,
        "stream": stream,
        "columns": ",".join(f'"{key}"' for key in keys),
        "startTime": first,
        "endTime": last + 1,
    }
    reader = spark.read.format("chronicle")
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, str(value))
    return reader.load()


def time_ticks(column: str, type_: T.DataType) -> str:
    """SQL for a time column in the reader's units: microseconds, or the integer itself."""
    name = f"`{column}`"
    if isinstance(type_, T.TimestampType):
        return f"unix_micros({name})"
    if isinstance(type_, T.TimestampNTZType):
        return f"timestampdiff(MICROSECOND, timestamp_ntz'1970-01-01 00:00:00', {name})"
    return name
