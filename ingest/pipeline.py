"""The embedded engine (``--engine arrow``): read, check, sort, store::

    sources --readers--> batches --> sort --> stage, commit      commit="end"
    sources --readers--> batches --> append                      commit="batch"

By default an ingest is atomic, and temporarily needs disk space for the events twice.  With
``commit="batch"`` each batch is atomic, and types cannot widen after the first one.

``ingest`` chooses between this engine and ``spark`` (executors): ``auto`` is ``spark`` if a master
is given and the inputs have ``SPARK_BYTES_MIN`` or more.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from ..core.append_result import AppendResult
from ..errors import (
    ChronicleError,
    InvalidArgument,
    InvalidData,
    MissingDependency,
    NotAStore,
    SchemaMismatch,
    StreamNotFound,
    UnsupportedType,
)
from ..formats.chunks import BadRowPolicy, regroup
from ..formats.dialect import Limits
from ..formats.layout import Layout, conform
from ..formats.reader import EventReader
from ..schema import StreamSchema
from ..store.external_sort import ExternalSort
from .request import BadRows, IngestReport, IngestRequest, InputSource, Progress, Silent, expand
from .sinks import Sink, Target


class TimeUnnamed(InvalidArgument):
    """A new stream needs the name of its time column."""


class SourceReader(Protocol):
    """Reads one source: an ``EventReader``, or one elsewhere."""

    @property
    def rows(self) -> int: ...

    @property
    def consumed(self) -> int:
        """Bytes of the source read so far."""
        ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


class Ingest:
    """One ingest by the embedded engine; subclasses may override the sources."""

    def __init__(
        self,
        request: IngestRequest,
        sink: Sink,
        bad_rows: BadRows,
        progress: Progress | None = None,
    ) -> None:
        self._request = request
        self._sink = sink
        self._bad_rows = bad_rows
        self._progress: Progress = progress or Silent()
        self.report = IngestReport(request.stream)
        self._before: int | None = None
        self._in_flight = 0
        self._stored = self._stream()
        self._layout: Layout = request.layout(self._stored)

    def _stream(self) -> StreamSchema | None:
        request = self._request
        try:
            schema = self._sink.describe()
        except (NotAStore, StreamNotFound) as error:
            if not request.create:
                raise StreamNotFound(
                    f"{error}; add --create and --time COLUMN to make it from the data"
                ) from None
            if request.time is None:
                raise TimeUnnamed(
                    f"the stream {request.stream!r} is to be made: give --time, the column that "
                    "holds the time of the events"
                ) from None
            return None
        if request.create:
            request.apply_if_exists(self._sink.count(), self.report)
        return schema

    def run(self) -> IngestReport:
        """Read everything and store it; an error gets a note on what is in the store."""
        report = self.report
        report.dry_run = self._request.dry_run
        began = time.perf_counter()
        try:
            if self._request.commit == "batch":
                self._store_as_read()
            else:
                self._store_at_end()
        except BaseException as error:
            self._account_for_what_was_stored()
            if report.stored == 0:
                self._bad_rows.discard()
            if report.created and report.stored == 0:
                with contextlib.suppress(ChronicleError):  # keep the original error
                    self._sink.drop()
                    report.created = False
            error.add_note(report.statement())
            raise
        finally:
            self._bad_rows.close()
            report.seconds = time.perf_counter() - began
            report.bad = self._bad_rows.count
            report.examples = self._bad_rows.examples
            report.bad_columns = self._bad_rows.columns
            report.quarantine = self._bad_rows.quarantine_file
            report.notes += self._layout.notes.values()
        return report

    # ------------------------------------------------------------------------------- the two ways

    def _store_at_end(self) -> None:
        directory = self._sink.sort_directory
        with ExternalSort(directory, convert=conform) as events:
            for batch in self._batches():
                if self._request.dry_run:
                    events.rows += batch.num_rows
                else:
                    events.add(batch, self._layout.time)
            schema = self._final_schema(events.rows)
            self.report.schema = schema
            if self._request.dry_run or events.rows == 0:
                return
            self._create(schema)
            self._progress.phase("storing", events.rows)
            batches = self._counted(regroup(events.batches(schema), self._request.batch_rows))
            self._begin_to_store(events.rows)
            if events.rows <= self._sink.append_rows:
                self._add(self._sink.append(pa.concat_batches(list(batches))))
            else:
                self._add(self._load(batches))

    def _load(self, batches: Iterator[pa.RecordBatch]) -> AppendResult:
        sink, job = self._sink, self._sink.new_job()
        try:
            sink.prepare(job)
            staged: list[Any] = sink.stage(job, 0, batches)
            return sink.commit(job.name, staged)
        except BaseException:
            with contextlib.suppress(Exception):  # else swept after a day
                sink.abort(job.name)
            raise

    def _store_as_read(self) -> None:
        schema: pa.Schema | None = None
        for batch in self._batches():
            if schema is None:
                schema = self._final_schema(batch.num_rows)
                self.report.schema = schema
                self._layout.settle()
                if not self._request.dry_run:
                    self._create(schema)
            if not self._layout.schema().equals(schema):
                raise SchemaMismatch(
                    "the data shows columns that its beginning did not; select the columns, or "
                    "leave out --commit batch"
                )
            if not self._request.dry_run:
                for start in range(0, batch.num_rows, self._request.batch_rows):
                    part = batch.slice(start, self._request.batch_rows)
                    self._begin_to_store(part.num_rows)
                    self._add(self._sink.append(conform(part, schema)))
        if schema is None:
            self._final_schema(0)

    def _create(self, schema: pa.Schema) -> None:
        if self._stored is None:
            made = StreamSchema(schema, self._layout.time)
            self._sink.create(made, **self._request.of_new_stream)
            self.report.created = True

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in batches:
            yield batch
            done += batch.num_rows
            self._progress.at(done)

    def _begin_to_store(self, rows: int) -> None:
        if self._before is None:
            self._before = 0 if self.report.created else self._sink.count()
        self._in_flight = rows

    def _account_for_what_was_stored(self) -> None:
        """Count a batch that was stored just before an interrupt."""
        if self._before is None or not self._in_flight:
            return
        with contextlib.suppress(ChronicleError):  # keep the original error
            gained = self._sink.count() - self._before
            self.report.stored += max(0, min(self._in_flight, gained))

    def _add(self, done: AppendResult) -> None:
        self.report.add(done)
        self.report.count = done.count
        self.report.version = done.version
        self._before, self._in_flight = done.count, 0

    def _final_schema(self, rows: int) -> pa.Schema:
        rows_left_out = self._bad_rows.count or self.report.broken_files
        if rows == 0 and (self._layout.target is None or rows_left_out):
            if self.report.broken_files:
                raise InvalidData(f"nothing could be read: {self.report.broken_files[0]}")
            reason = "no row could be read as an event" if self.report.rows else "there are no rows"
            first = (
                f"; the first bad one: {self._bad_rows.examples[0]}" if self._bad_rows.count else ""
            )
            raise InvalidData(f"{reason}{first}")
        return self._layout.schema()

    # ----------------------------------------------------------------------------------- reading

    def _batches(self) -> Iterator[pa.RecordBatch]:
        sources = self.sources()
        sizes = [source.size for source in sources]
        total = None if None in sizes else sum(size for size in sizes if size is not None)
        self._progress.phase("reading", total)
        for source in sources:
            try:
                yield from self._read(source)
                self.report.files += 1
            except (SchemaMismatch, UnsupportedType):
                raise
            except InvalidData as error:
                if self._request.on_error == "fail":
                    raise
                self.report.broken_files.append(str(error))

    def sources(self) -> Sequence[InputSource]:
        return expand(self._request.inputs)

    def open_source(
        self, source: InputSource, layout: Layout, on_bad: BadRowPolicy
    ) -> SourceReader:
        request = self._request
        return EventReader(
            source.path,
            request.format,
            layout=layout,
            on_bad=on_bad,
            live=request.commit == "batch",
            limits=Limits(columns=request.max_columns),
            text=request.text,
        )

    def _read(self, source: InputSource) -> Iterator[pa.RecordBatch]:
        report = self.report
        bad_before = self._bad_rows.count
        rows_before, bytes_before = report.rows, report.bytes
        reader = self.open_source(source, self._layout, self._bad_rows)
        try:
            for batch in reader:
                report.bytes = bytes_before + reader.consumed
                self._progress.at(report.bytes)
                yield batch
        finally:
            bad = self._bad_rows.count - bad_before
            report.rows = rows_before + reader.rows + bad
            report.bytes = bytes_before + reader.consumed


SPARK_ENGINE = "chronicle.spark_connector.pipeline"


SPARK_BYTES_MIN = 64 << 20
"""Below this, starting a Spark session takes longer than reading the input in one process."""


def choose_engine(request: IngestRequest) -> str:
    if request.engine != "auto":
        return request.engine
    if request.master is None:
        return "arrow"
    size = _known_bytes(request.inputs)
    return "arrow" if size is not None and size < SPARK_BYTES_MIN else "spark"


def _known_bytes(inputs: Sequence[str]) -> int | None:
    if any(item == "-" or "://" in item for item in inputs):
        return None
    try:
        sizes = [source.size for source in expand(inputs)]
    except InvalidArgument:
        return None  # the engine reports it
    return None if None in sizes else sum(size for size in sizes if size is not None)


def ingest(
    request: IngestRequest, target: Target, progress: Progress | None = None
) -> IngestReport:
    """Ingest files into a stream.

    A ChronicleError has a note on what is in the store; InvalidData names the row at fault.
    """
    if choose_engine(request) == "spark":
        return _ingest_by_spark(request, target, progress)
    with target.opened(dry_run=request.dry_run) as opened:
        bad_rows = BadRows(request.on_error, target.quarantine_path(request))
        return Ingest(request, opened.sink(request.stream), bad_rows, progress).run()


def _ingest_by_spark(
    request: IngestRequest, target: Target, progress: Progress | None
) -> IngestReport:
    if importlib.util.find_spec("pyspark") is None:
        raise MissingDependency(
            "--engine spark needs PySpark: pip install 'chronicle-eventstore[spark]' (and Java 17 "
            "or newer)"
        )
    try:
        engine = importlib.import_module(SPARK_ENGINE)
    except ModuleNotFoundError as error:
        if error.name != SPARK_ENGINE:
            raise MissingDependency(f"--engine spark needs {error.name}: install it") from None
        raise MissingDependency("this build of Chronicle has no Spark engine") from None
    report: IngestReport = engine.run(request, target, progress)
    return report
