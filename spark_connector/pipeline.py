"""The ingest pipeline on Spark (``--engine spark``): files to events, in parallel.

::

    pieces of files                                     driver: find, sample, decide the schema
      | parse, convert, check          executors        rows, good and bad
      | derive, filter                 executors        Spark SQL expressions
      |---- bad rows --> fail / skip / quarantine       driver
      | first of each key              executors        also against what is stored
      | range-partition by time, sort  executors
      | load: one segment a task       executors        staged, invisible
      '--> commit                      driver           everything at once

A chunk of the inputs is committed atomically under a name derived from the files (with size and
mtime) and the request, so a repeated run skips stored chunks.  Parsed rows are persisted on the
executors' disks until the commit, as they are read twice: for the time ranges, and to load.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import InvalidArgument, NotAStore, SchemaMismatch, StreamNotFound
from ..formats.chunks import BadRow
from ..ingest.request import BadRows, IngestReport, Progress, Silent
from ..schema import StreamSchema
from .backend import local_path
from .inputs import (
    SPARK_FORMATS,
    SPLIT_BYTES,
    TRAIL,
    FileParser,
    FilePiece,
    SparkRowParser,
    find_pieces,
    for_spark,
    ipc_bytes,
    readable,
    row_schema,
    settle,
    total_bytes,
)
from .session import pipeline_session
from .types import arrow_schema, spark_schema
from .writer import load_sorted, stored_keys, time_ticks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..ingest.request import IngestRequest
    from ..ingest.sinks import Target


CHUNK_BYTES = 64 << 30
"""Input committed at once; larger inputs are committed in chunks."""

PARTITION_BYTES = 128 << 20
"""Approximate input of one loading task."""

UNIMPORTANT = (
    "engine", "master", "batch_rows", "commit", "create", "if_exists", "codec", "retention",
    "unique", "within", "quarantine", "dry_run", "split_bytes", "partitions", "resume",
)  # fmt: skip
"""Options that may differ between two runs of the same job."""

NAMES = [column.name for column in TRAIL]


@dataclass(frozen=True)
class Steps:
    """Steps of the pipeline beyond reading and storing.

    Attributes
    ----------
    derive : mapping of str to str
        Columns computed by Spark SQL expressions, in order; an existing name is replaced.
    where : str, optional
        Spark SQL predicate; rows for which it is not true are dropped.
    unique : sequence of str
        Key columns: only the first event of each key is stored, if the stream has none nearby.
    chunk_bytes, split_bytes, partitions : int
        Input of one commit; size above which several tasks read a file; loading tasks.
    resume : bool
        Skip chunks that an earlier run of the same job has committed.
    """

    derive: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    unique: Sequence[str] = ()
    chunk_bytes: int = CHUNK_BYTES
    split_bytes: int = SPLIT_BYTES
    partitions: int | None = None
    resume: bool = True


@dataclass
class PipelineReport(IngestReport):
    """Counters of a pipeline: ``rows == stored + bad + duplicates + filtered``.

    ``skipped`` of the ``chunks`` were stored before.  ``unsure``: a commit's outcome is unknown.
    """

    filtered: int = 0
    chunks: int = 0
    skipped: int = 0
    unsure: bool = field(default=False, repr=False)
    resumes: bool = field(default=True, repr=False)
    remote: bool = field(default=False, repr=False)

    def statement(self) -> str:
        if self.unsure:
            text = f"at least {self.stored:,} events are" if self.stored else "it is not known what"
            text += f" stored in {self.stream!r}: the commit at hand was not answered"
        elif self.stored == 0:
            text = f"nothing was stored in {self.stream!r}"
            if self.skipped:
                text += f" besides the chunks of an earlier run ({self.skipped} of {self.chunks})"
        else:
            text = f"{self.stored:,} events are stored in {self.stream!r}, each chunk of them whole"
        if self.dry_run or not (self.stored or self.skipped or self.unsure):
            return text
        if not self.resumes:
            return f"{text}; the rest is not"
        again = " with --if-exists append" if self.created and self.remote else ""
        return (
            f"{text}; the same command{again} goes on with the rest, as long as the files do not "
            "change"
        )

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {
            "filtered": self.filtered,
            "chunks": self.chunks,
            "skipped": self.skipped,
        }


def run(request: IngestRequest, target: Target, progress: Progress | None = None) -> PipelineReport:
    """Ingest by Spark, for the command line."""
    return run_pipeline(request, target, Steps(), progress=progress)


def run_pipeline(
    request: IngestRequest,
    target: Target,
    steps: Steps | None = None,
    *,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> PipelineReport:
    """Ingest files into a stream by Spark; executors must see the target.

    ``spark`` is the active session by default, else one for ``request.master``.  Raises InvalidData
    for the first bad row if ``on_error`` is ``fail``; nothing of its chunk is stored.
    """
    steps, progress = steps or Steps(), progress or Silent()
    report = PipelineReport(
        request.stream,
        engine="spark",
        dry_run=request.dry_run,
        resumes=steps.resume,
        remote=target.url is not None,
    )
    try:
        if spark is not None:
            return _Pipeline(request, target, steps, spark, progress, report).run()
        with pipeline_session(request.master, f"chronicle ingest {request.stream}") as session:
            return _Pipeline(request, target, steps, session, progress, report).run()
    except BaseException as error:  # here, since the session translates Spark's errors
        error.add_note(report.statement())
        raise


class _Pipeline:
    def __init__(
        self,
        request: IngestRequest,
        target: Target,
        steps: Steps,
        spark: SparkSession,
        progress: Progress,
        report: PipelineReport,
    ) -> None:
        self.request = request
        self.steps = steps
        self.spark = spark
        self.progress = progress
        if target.path is not None:
            target = replace(target, path=local_path(str(target.path)))
        self.target = target
        self.sink = target.sink(request.stream)
        self.missing = False
        self.unanswered: str | None = None
        self.bad_rows = BadRows(request.on_error, target.quarantine_path(request))
        self.report = report

    def run(self) -> PipelineReport:
        started = time.perf_counter()
        report = self.report
        try:
            pieces = find_pieces(self.request, self.spark, self.steps.split_bytes)
            report.files = len({piece.path for piece in pieces})
            existing = self._existing()
            self.missing = existing is None
            settled = settle(self.request, pieces, existing, self._opened)
            report.notes = list(settled.notes)
            if existing is None and not self.request.create:
                raise StreamNotFound(
                    f"there is no stream {self.request.stream!r}; create it with --create"
                )
            schema = self._schema(pieces, existing, settled.schema)
            report.schema = schema.arrow
            report.created = existing is None and not self.request.dry_run
            chunks = _chunks(pieces, self.steps.chunk_bytes)
            report.chunks = len(chunks)
            job = self._job(pieces)
            if existing and self.request.create and not self._goes_on(job, len(chunks)):
                self.request.apply_if_exists(self.sink.count(), report)
            for number, chunk in enumerate(chunks):
                self._chunk(job, number, chunk, settled.schema, schema)
            if not self.request.dry_run:
                self._create(schema)  # for inputs without a good row
            report.count = None if self.missing else self.sink.count()
        except BaseException:
            self._look_up()
            if report.stored == 0 and not report.unsure:
                self.bad_rows.discard()
            raise
        finally:
            self.bad_rows.close()
            report.seconds = time.perf_counter() - started
        report.quarantine = self.bad_rows.quarantine_file
        report.examples = self.bad_rows.examples
        report.bad_columns = self.bad_rows.columns
        return report

    def _goes_on(self, job: str, chunks: int) -> bool:
        """Whether an earlier run of this job created the stream, as far as the sink tells."""
        if not self.steps.resume:
            return False
        outcomes = (self.sink.outcome(f"{job} {number}", 0) for number in range(chunks))
        return self.sink.count() == 0 or any(done is not None for done in outcomes)

    def _existing(self) -> StreamSchema | None:
        with contextlib.suppress(NotAStore, StreamNotFound):
            return self.sink.describe()
        return None

    def _create(self, schema: StreamSchema) -> None:
        if self.missing:
            self.sink.create(schema, if_not_exists=True, **self.request.of_new_stream)
            self.missing = False

    def _committing(self, application: str) -> None:
        self.unanswered = application

    def _look_up(self) -> None:
        """After a failure, count the chunk of an unfinished commit if it succeeded."""
        if self.unanswered is None:
            return
        self.report.unsure = True
        with contextlib.suppress(Exception):  # keep the original error
            done = self.sink.outcome(self.unanswered, 0)
            if done is not None:
                self.report.add(done)
            # a server reports a commit only when it is repeated
            self.report.unsure = done is None and self.target.url is not None

    # ------------------------------------------------------------------- schema

    def _schema(
        self, pieces: list[FilePiece], existing: StreamSchema | None, read: StreamSchema
    ) -> StreamSchema:
        events = self._events(pieces[:1], read)
        schema = _with_derived(existing, read, events, list(self.steps.derive))
        for name in self.steps.unique:
            schema.attribute(name)
        return schema

    def _opened(self, piece: FilePiece) -> bytes:
        with readable(piece.path):
            if piece.format in SPARK_FORMATS.values():
                frame = self.spark.read.format(str(piece.format)).load(piece.path)
                return ipc_bytes(frame.limit(10_000).toArrow())
            row = self.spark.read.format("binaryFile").load(piece.path).select("content").first()
        return b"" if row is None else bytes(row["content"])

    # -------------------------------------------------------------------- rows

    def _parsed(self, pieces: Sequence[FilePiece], read: StreamSchema) -> DataFrame:
        schema = for_spark(read)
        output = spark_schema(row_schema(schema))
        first = pieces[0]
        if first.format in SPARK_FORMATS.values():
            from pyspark.sql import functions as F  # noqa: N812

            ranks = {piece.path: piece.index for piece in pieces}
            rows = (
                self.spark.read.format(str(first.format))
                .load([piece.path for piece in pieces])
                .select(
                    "*",
                    F.col("_metadata.file_path").alias("_path"),
                    F.col("_metadata.file_block_start").alias("_block"),
                    F.monotonically_increasing_id().alias("_row"),
                )
            )
            return rows.mapInArrow(SparkRowParser(self.request, schema, ranks), output)
        parser = FileParser(self.request, schema, tuple(pieces))
        tasks = self._tasks(pieces)
        return tasks.mapInArrow(parser, output)

    def _tasks(self, pieces: Sequence[FilePiece]) -> DataFrame:
        if pieces[0].remote:
            numbers = {piece.path: number for number, piece in enumerate(pieces)}
            piece_numbers = self.spark.createDataFrame(
                list(numbers.items()), "path string, piece int"
            )
            files = self.spark.read.format("binaryFile").load(list(numbers))
            return (
                files.select("path", "content")
                .join(piece_numbers, "path")
                .select("piece", "content")
            )
        count = max(1, min(len(pieces), 4 * self.spark.sparkContext.defaultParallelism))
        groups: list[list[int]] = [[] for _ in range(count)]
        sizes = [0] * count
        for number in sorted(range(len(pieces)), key=lambda n: pieces[n].start - pieces[n].end):
            lightest = sizes.index(min(sizes))
            groups[lightest].append(number)
            sizes[lightest] += pieces[number].end - pieces[number].start
        context = self.spark.sparkContext
        rows = context.parallelize([g for g in groups if g], count).flatMap(
            lambda group: [(number,) for number in group]
        )
        return self.spark.createDataFrame(rows, "piece int")

    def _events(self, pieces: Sequence[FilePiece], read: StreamSchema) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        rows = self._parsed(pieces, read)
        for name, expression in self.steps.derive.items():
            rows = rows.withColumn(name, F.expr(expression))
        return rows

    # ------------------------------------------------------------------- chunks

    def _job(self, pieces: Sequence[FilePiece]) -> str:
        files = sorted({(piece.path, piece.size, _changed(piece)) for piece in pieces})
        request = {
            name: value for name, value in vars(self.request).items() if name not in UNIMPORTANT
        }
        steps = vars(self.steps)
        steps = {name: value for name, value in steps.items() if name not in UNIMPORTANT}
        identity = json.dumps(
            [files, request, steps, self.sink.epoch()], default=str, sort_keys=True
        )
        return f"ingest {hashlib.sha256(identity.encode()).hexdigest()[:24]}"

    def _chunk(
        self,
        job: str,
        number: int,
        pieces: list[FilePiece],
        read: StreamSchema,
        schema: StreamSchema,
    ) -> None:
        report, size = self.report, total_bytes(pieces)
        if self.steps.resume and not self.request.dry_run:
            done = self.sink.outcome(f"{job} {number}", 0)
            if done is not None:
                report.skipped += 1
                report.notes.append(
                    f"chunk {number + 1} of {report.chunks} was stored by an earlier run "
                    f"({done.appended} events): skipped"
                )
                return
        self.progress.phase("reading", size)
        from pyspark import StorageLevel
        from pyspark.sql import functions as F  # noqa: N812

        rows = self._events(pieces, read).persist(StorageLevel.DISK_ONLY)
        try:
            time_column = F.col(f"`{schema.time}`")
            ticks = F.expr(time_ticks(schema.time, rows.schema[schema.time].dataType))
            faulty = F.col("_reason").isNotNull() | time_column.isNull()
            condition = F.lit(True) if self.steps.where is None else F.expr(self.steps.where)
            figures = rows.select(
                F.count(F.lit(1)).alias("rows"),
                F.count(F.when(faulty, 1)).alias("bad"),
                F.count(F.when(~faulty & F.coalesce(condition, F.lit(False)), 1)).alias("kept"),
                F.min(F.when(~faulty, ticks)).alias("first"),
                F.max(F.when(~faulty, ticks)).alias("last"),
            ).first()
            assert figures is not None
            report.bytes += size
            report.rows += figures["rows"]
            self.progress.at(size)
            if figures["bad"]:
                self._judge(rows.where(faulty))
                report.bad += figures["bad"]
            good = rows.where(~faulty & condition)
            report.filtered += figures["rows"] - figures["bad"] - figures["kept"]
            wanted = figures["kept"]
            if self.steps.unique:
                good = self._first_of_each(good, schema, figures["first"], figures["last"])
                wanted = good.count()
                report.duplicates += figures["kept"] - wanted
            if self.request.dry_run or wanted == 0:
                return
            self.progress.phase("storing", wanted)
            self._create(schema)  # only after the rows were checked
            parts = self.steps.partitions or max(
                1, min(-(-size // PARTITION_BYTES), 20_000), self._parallelism(wanted)
            )
            outcome = load_sorted(
                good,
                schema,
                self.sink,
                parts,
                f"{job} {number}",
                order=NAMES[-3:],
                committing=self._committing,
            )
            self.unanswered = None
            if outcome.repeated:  # a server reports a stored chunk only now
                report.skipped += 1
                report.duplicates += wanted
            else:
                report.add(outcome)
            self.progress.at(wanted)
        finally:
            rows.unpersist()

    def _parallelism(self, events: int) -> int:
        cores = int(self.spark.sparkContext.defaultParallelism)
        return max(1, min(cores, events // 200_000))

    def _judge(self, bad: DataFrame) -> None:
        names = [f"_{field.name}" for field in fields(BadRow)]
        for row in bad.orderBy(*NAMES[-3:]).select(*names).toLocalIterator():
            source, number, reason, line, column, value, record = row
            reason = reason or "the time is missing"
            self.bad_rows(BadRow(source or "", number, reason, line, column, value, record or ""))

    def _first_of_each(
        self, good: DataFrame, schema: StreamSchema, first: int | None, last: int | None
    ) -> DataFrame:
        """The first row in time of each key, without keys that the stream has."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        keys = [schema.resolve(name) for name in self.steps.unique]
        window = Window.partitionBy(*(F.col(f"`{key}`") for key in keys)).orderBy(
            F.col(f"`{schema.time}`"), *NAMES[-3:]
        )
        once = (
            good.withColumn("_rank", F.row_number().over(window))
            .where(F.col("_rank") == 1)
            .drop("_rank")
        )
        stored = None
        if not self.missing and first is not None and last is not None and self.sink.count():
            stored = stored_keys(self.spark, self.target, self.request.stream, keys, first, last)
        if stored is None:
            return once
        condition = [F.col(f"a.`{key}`").eqNullSafe(F.col(f"b.`{key}`")) for key in keys]
        matching = condition[0]
        for item in condition[1:]:
            matching = matching & item
        return once.alias("a").join(stored.distinct().alias("b"), matching, "left_anti")


def _chunks(pieces: list[FilePiece], chunk_bytes: int) -> list[list[FilePiece]]:
    if chunk_bytes < 1:
        raise InvalidArgument(f"chunk_bytes is at least 1, found {chunk_bytes}")
    chunks: list[list[FilePiece]] = []
    size = chunk_bytes
    for piece in pieces:
        if size >= chunk_bytes or chunks[-1][0].remote != piece.remote:
            chunks.append([])
            size = 0
        chunks[-1].append(piece)
        size += piece.end - piece.start
    return chunks


def _changed(piece: FilePiece) -> int:
    return 0 if piece.remote else os.stat(piece.path).st_mtime_ns


def _with_derived(
    existing: StreamSchema | None, read: StreamSchema, rows: DataFrame, derived: list[str]
) -> StreamSchema:
    if not derived:
        return existing or read
    row_schema = arrow_schema(rows.schema)
    if existing is not None:
        for name in derived:
            existing.attribute(name)
        return existing
    fields: Iterator[pa.Field] = (f for f in read.arrow if f.name not in derived)
    added = [row_schema.field(name).with_nullable(name != read.time) for name in derived]
    schema = pa.schema([*fields, *added])
    if read.time not in schema.names:
        raise SchemaMismatch(f"the derived columns take the place of the time {read.time!r}")
    return StreamSchema(schema, read.time)
