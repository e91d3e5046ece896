"""Loading a DataFrame with a commit by the driver, which therefore learns the outcome.

Only results of successful task attempts are committed.  The store's path must be visible to the
executors.
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
    """Key columns of the stored events from ``first`` to ``last`` (see ``ticks_of``), inclusive."""
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
    """SQL for a time column in the reader's units: microseconds, or the integer itself."""
    name = f"`{column}`"
    if isinstance(type_, T.TimestampType):
        return f"unix_micros({name})"
    if isinstance(type_, T.TimestampNTZType):
        return f"timestampdiff(MICROSECOND, timestamp_ntz'1970-01-01 00:00:00', {name})"
    return name
