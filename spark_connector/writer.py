"""Batch writes: every task stages segments, the driver commits once.

Tasks that fail, run twice, or continue after an abort leave only staged files, which the commit
does not name.  With ``txnAppId`` and ``txnVersion`` a repeated write does nothing.
``mode("overwrite")`` replaces a time range in the same commit, or with ``truncate=true`` all
events.  Each task sorts its own events: range-partition by time before, or reads must merge
overlapping segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..errors import InvalidArgument, NotAStore, SchemaMismatch, StreamNotFound
from ..ingest.sink import Job, Over, Sink
from ..ingest.target import Target
from ..schema import StreamSchema
from .local import local_path
from .options import Options
from .overwriting import inside, replaced_range, replaces_range
from .types import WriteConversion, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["EventWriter", "StagedMessage", "open_sink", "stage_task"]


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """What the task of partition ``part`` staged, for the sink's commit."""

    part: int
    staged: list[Any]
    job: str = ""
    application: str | None = None
    version: int | None = None


def open_sink(options: Options, given: StructType | None = None) -> Sink:
    """The sink of the stream that the options name.

    With ``given`` (a DataFrame's schema) and the option ``time`` a missing stream is created.
    """
    path = None if options.path is None else local_path(options.path)
    target = Target(path, None, options.url, options.token, options.timeout, options.retries)
    sink = target.sink(options.stream or "")
    if given is not None:
        try:
            time = sink.describe().time
        except (NotAStore, StreamNotFound) as error:
            if options.time is None:
                raise type(error)(
                    f"{error}; give the option 'time' (the name of the time column) to create it"
                ) from None
            wanted = _schema_of(given, options.time)
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


def _schema_of(given: StructType, time: str) -> StreamSchema:
    arrow = arrow_schema(given)
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
    given: StructType,
    batches: Iterator[pa.RecordBatch],
    over: Over | None = None,
) -> tuple[int, list[Any]]:
    """Stage the events of the current task; returns its partition and what it staged."""
    context = TaskContext.get()
    part = 0 if context is None else context.partitionId()
    conversion = WriteConversion(given, job.schema)
    converted = (conversion(batch) for batch in batches if batch.num_rows)
    if over is not None:
        converted = (inside(batch, job.schema, over) for batch in converted)
    return part, sink.stage(job, part, converted)


class EventWriter(DataSourceArrowWriter):
    """Writes a DataFrame into a stream; pickled to executors."""

    def __init__(self, options: Options, given: StructType, overwrite: bool) -> None:
        ranged = replaces_range(options)
        if overwrite and not (options.truncate or ranged):
            raise InvalidArgument(
                "mode('overwrite') would remove every event of the stream; say so with "
                "option('truncate', 'true'), name a range of times with startTime and endTime, or "
                "use mode('append')"
            )
        if (options.truncate or ranged) and not overwrite:
            name = "truncate" if options.truncate else ranged
            raise InvalidArgument(f"option {name!r} needs mode('overwrite')")
        self.options = options
        self.given = given
        sink = open_sink(options, given)
        self.job = sink.new_job()
        self.over = replaced_range(options, self.job.schema) if ranged else None
        WriteConversion(given, self.job.schema)  # fail now instead of in every task
        sink.prepare(self.job)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        part, staged = stage_task(
            open_sink(self.options), self.job, self.given, iterator, self.over
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
