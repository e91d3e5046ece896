"""The embedded pipeline (``--engine arrow``): read, check, sort, store.

Purpose
    One pass over the sources turns them into checked batches in a spool (``spool.py``); when all
    of them have been read, the spool is merged in time order into the sink (``sinks.py``) as one
    commit.

Guarantee
    *All or nothing*: with ``commit="end"`` (the default) an error in the third of five files, a
    full disk, an interrupt or a crash leaves the stream as it was.  With ``commit="batch"`` each
    batch is stored as it is read, whole; the report says how many events are in.  What was stored
    is always in ``report``, whatever is raised; :meth:`Ingest.run` attaches its statement to the
    error.

Layout
    ::

        sources --readers--> batches --checks--> spool --merge--> sink      commit="end"
        sources --readers--> batches ----------------------------> sink      commit="batch"

Limits
    ``commit="end"`` needs disk space for the events twice for a while: once spooled, once stored.
    With ``commit="batch"`` types cannot widen after the first batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from ..errors import InvalidData, SchemaMismatch, UnsupportedType
from ..formats import EventReader, Layout, Limits, conform
from ..schema import StreamSchema
from .quarantine import BadRows
from .report import IngestReport, Progress, Silent
from .request import IngestRequest, Source, expand
from .sinks import Sink
from .spool import Spool

__all__ = ["Ingest"]


class Ingest:
    """One ingest by the embedded engine.

    Parameters
    ----------
    request : IngestRequest
    sink : Sink
        Its ``report`` is the one that is filled.
    bad_rows : BadRows
    progress : Progress, optional
    """

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
        self._layout: Layout = request.layout(sink.schema())
        self._read_before = 0

    @property
    def report(self) -> IngestReport:
        """What has been done so far."""
        return self._sink.report

    def run(self) -> IngestReport:
        """Read everything and store it.

        Raises
        ------
        ChronicleError
            With a note that says what is in the store.
        """
        report = self.report
        report.dry_run = self._request.dry_run
        began = time.perf_counter()
        try:
            if self._request.commit == "batch":
                self._store_as_read()
            else:
                self._store_at_end()
        except BaseException as error:
            if report.stored == 0:
                self._bad_rows.discard()
            self._sink.undo()
            error.add_note(report.statement())
            raise
        finally:
            self._bad_rows.close()
            report.seconds = time.perf_counter() - began
            report.bad = self._bad_rows.count
            report.examples = self._bad_rows.examples
            report.bad_columns = self._bad_rows.columns
            report.quarantine = self._bad_rows.kept
            report.notes += self._layout.notes.values()
        return report

    # ------------------------------------------------------------------------------- the two ways

    def _store_at_end(self) -> None:
        with Spool(self._sink.spool_directory or _temporary_directory()) as spool:
            for batch in self._batches():
                if self._request.dry_run:
                    spool.rows += batch.num_rows
                else:
                    spool.add(batch, self._layout.time)
            schema = self._final_schema(spool.rows)
            self.report.schema = schema
            if self._request.dry_run or spool.rows == 0:
                return
            self._create(schema)
            self._sink.load(spool.batches(schema), spool.rows, self._progress)

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
                    self._sink.append(conform(part, schema))
        if schema is None:
            self._final_schema(0)

    def _create(self, schema: pa.Schema) -> None:
        if self._sink.schema() is None:
            self._sink.create(StreamSchema(schema, self._layout.time))

    def _final_schema(self, rows: int) -> pa.Schema:
        """The schema of the events; an error when there is none to tell it from."""
        given_up = self._bad_rows.count or self.report.broken_files
        if rows == 0 and (self._layout.target is None or given_up):
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
        """Checked batches of all sources, in order."""
        sources = expand(self._request.inputs)
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

    def _read(self, source: Source) -> Iterator[pa.RecordBatch]:
        request, report = self._request, self.report
        bad_before = self._bad_rows.count
        rows_before, bytes_before = report.rows, report.bytes
        reader = EventReader(
            source.path,
            request.format,
            layout=self._layout,
            on_bad=self._bad_rows,
            separator=request.separator,
            columns=request.columns,
            nulls=request.nulls,
            live=request.commit == "batch",
            limits=Limits(columns=request.max_columns),
        )
        try:
            for batch in reader:
                report.bytes = bytes_before + reader.consumed
                self._progress.at(report.bytes)
                yield batch
        finally:
            bad = self._bad_rows.count - bad_before
            report.rows = rows_before + reader.rows + bad
            report.bytes = bytes_before + reader.consumed


def _temporary_directory() -> str:
    import tempfile

    return tempfile.gettempdir()
