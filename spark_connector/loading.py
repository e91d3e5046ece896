"""Loading a DataFrame into a stream by a program that commits itself.

Purpose
    The pipeline range-partitions and sorts, stages the events in its tasks, and commits from the
    driver, so that it knows what the commit did.  ``df.write.format("chronicle")`` is for
    everybody else: there Spark commits, and tells nobody what came of it.

Guarantee
    Those of :mod:`chronicle.ingest.sink`.  Only what the attempts that Spark counts have staged is
    committed: it comes back as the result of the tasks.

Limits
    The path of a store that this process has open for writing must be visible to the executors all
    the same.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812

from ..ingest.sink import Job, Outcome, Sink
from ..schema import StreamSchema
from .writer import stage_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..ingest.target import Target

__all__ = ["load_sorted", "stored_keys", "ticks_of"]


@dataclass(frozen=True)
class _Stage:
    """Stages the rows of a task; picklable, for ``mapInArrow``."""

    sink: Sink
    job: Job
    given: T.StructType

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part, staged = stage_task(self.sink, self.job, self.given, batches)
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
) -> Outcome:
    """Range-partition rows by time, sort, stage and commit them.

    Parameters
    ----------
    rows : DataFrame
        With the stream's columns; others are left out.
    schema : StreamSchema
        Of the stream, which exists.
    parts : int
        Loading tasks.
    application : str
        Name of this work, committed once.
    order : sequence of str
        Columns that decide between equal times.
    committing : callable
        Told the application when everything is staged: from here on it may be stored.
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
        found = ordered.mapInArrow(stage, "staged binary").collect()
        results = sorted((pickle.loads(row["staged"]) for row in found), key=lambda one: one[0])
        staged = [item for _, items in results for item in items]
        committing(application)
        return sink.commit(job.name, staged, application=application, version=0)
    except BaseException:
        sink.abort(job.name)
        raise


def stored_keys(
    spark: SparkSession, target: Target, stream: str, keys: Sequence[str], first: int, last: int
) -> DataFrame:
    """Key columns of the stored events of a time range.

    ``first`` and ``last`` are as :func:`ticks_of` gives them, both inclusive.
    """
    from . import register

    register(spark)
    path = target.path if target.database is None else target.database.path
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
