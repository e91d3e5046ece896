"""The streaming sink: every micro-batch is one bulk load with one commit.

A repeated batch is recognised by (query id or ``txnAppId``, batch id) and not stored twice.  Spark
makes separate writers for tasks and commit, so staged data is described in messages.  Micro-batches
become segments, which ``chronicle compact`` merges; prefer few, large batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ..errors import InvalidArgument
from .options import Options
from .types import WriteConversion
from .writer import StagedMessage, open_sink, stage_task

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["EventStreamWriter"]


class EventStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches into a stream; output mode ``complete`` is refused."""

    def __init__(self, options: Options, given: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidArgument(
                "a stream of events is append-only: use outputMode('append'), not 'complete'"
            )
        self.options = options
        self.given = given
        self.job = open_sink(options, given).new_job()
        WriteConversion(given, self.job.schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = batch = None
        if context is not None:
            query = context.getLocalProperty("sql.streaming.queryId")
            batch = context.getLocalProperty("streaming.sql.batchId")
        sink = open_sink(self.options)
        sink.prepare(self.job)
        part, staged = stage_task(sink, self.job, self.given, iterator)
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
