"""A file that was sent as a body: looked at, or ingested by the pipeline of the command line.

Purpose
    :func:`look_at` and :func:`ingest_file` are what ``POST /v1/ingest/preview`` and ``POST
    /v1/ingest`` do, in a thread.  The second is ``chronicle ingest``
    (:class:`chronicle.ingest.Ingest`) with another source: a body, which a worker reads.

Guarantee
    All or nothing, as on the command line: the stream is made, and events are in it, when every row
    of the file was read.  A file that breaks off stores nothing, ``on_error=skip`` or not; that is
    of rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...errors import ChronicleError
from ...formats import BadRow, BadRowPolicy, Layout, Limits
from ...formats.dialect import TextOptions
from ...formats.looking import Look, look
from ...formats.time_rules import TimeRule, parse_time_formats
from ...ingest import BadRows, Ingest, IngestReport, IngestRequest, InputSource
from ...ingest.report import Progress
from ...ingest.store_sink import StoreSink
from .bodies import Body
from .event_parsing import ROWS_LISTED, RefusedRows, events_of
from .state import Server

__all__ = ["FileOptions", "IngestedFile", "in_words_of_ingest", "ingest_file", "look_at"]

DECODED_FACTOR = 8
"""How much larger than its limit on the wire a file may become when it is decompressed."""

_OPTION = re.compile(
    r"--([a-z][a-z-]*)(?: ((?:COLUMN|append|skip|s|ms|us|ns|N|latin-1|utf-16-[bl]e|windows-1252)\b"
    r"|[,.](?= )))?"
)
_WORDS = (
    ("pass time_format= ", "give time_format="),
    ("pass time_format=", "give time_format="),
    ("give their names by columns= when", "give their names (columns=) when"),
    ("give it the type string to", "give it the type string (types=) to"),
)
"""Of hints that appends have other words for."""


@dataclass(frozen=True)
class FileOptions(TextOptions):
    """How a file is to be read; see :class:`chronicle.ingest.IngestRequest`."""

    name: str = "body"
    format: str | None = None
    time: str | None = None
    time_format: str | Sequence[str] = "auto"
    time_zone: str | None = None
    ambiguous: str = "refuse"
    time_of_day: str | None = None
    types: Sequence[str] = ()
    rename: dict[str, str] | None = None
    select: Sequence[str] | None = None
    flatten: str | None = None

    def reading(self) -> dict[str, Any]:
        """Those that readers take beside the layout."""
        return {"text": self.text, "flatten": self.flatten}


@dataclass(frozen=True)
class IngestedFile:
    """What an ingest did.

    Attributes
    ----------
    bad : list of BadRow
        The first rows that were left out.
    """

    report: IngestReport
    bad: list[BadRow]


def look_at(
    server: Server, body: Body, options: FileOptions, stream: str | None, rows_max: int
) -> Look:
    """The beginning of a file; blocks.

    Parameters
    ----------
    stream : str, optional
        Whose columns it is to be read as, if there is such a stream.
    """
    body.tell_encoding()
    rule = _rule(server, options)
    target = None
    if stream is not None and stream in server.database.streams():
        target = server.database.stream(stream).event_schema
    layout: dict[str, Any] = {
        "time": options.time,
        "time_format": rule,
        "time_of_day": options.time_of_day,
        "types": list(options.types),
        "rename": options.rename,
        "select": options.select,
        "target": target,
    }
    settings = server.settings
    most = DECODED_FACTOR * settings.max_body_bytes
    limits = Limits(settings.max_columns, settings.max_decoded_bytes, unpacked_bytes=most)
    more: dict[str, Any] = {"rows_max": rows_max, "layout": layout, "limits": limits}
    more |= {"name": options.name, **options.reading()}
    try:
        Layout(**layout, timeless=True)  # what is wrong with these is said before a worker starts
        if server.reader is None:
            return look(lambda: body.open(most, seekable=True), options.format, **more)
        with body.handed_over() as source:
            return server.reader.look(
                source, options.format, encoding=body.encoding, decoded_max=most, **more
            )
    except ChronicleError as error:
        error.args = (in_words_of_ingest(str(error)), *error.args[1:])
        raise


def ingest_file(
    server: Server,
    body: Body,
    options: FileOptions,
    *,
    strict: bool,
    reading_s: float | None = None,
    decoded_max: int | None = None,
    progress: Progress | None = None,
    **chosen: Any,
) -> IngestedFile:
    """Store a file in a stream; blocks.

    Parameters
    ----------
    strict : bool
        Whether a bad row refuses the file.
    reading_s : float, optional
        How long a worker may read; the time of a request by default.
    decoded_max : int, optional
        Most bytes that it may be unpacked; by default so much as a part of a transaction may.
    progress : Progress, optional
        Told how far it is.
    chosen
        ``stream``, ``create``, ``if_exists``, ``retention``, ``codec`` and ``dry_run`` of
        :class:`chronicle.ingest.IngestRequest`.

    Raises
    ------
    RefusedRows
        With the first bad rows.
    """
    body.tell_encoding()
    try:
        request = IngestRequest(
            inputs=[options.name],
            time=options.time,
            time_format=_rule(server, options),
            time_of_day=options.time_of_day,
            format=options.format,
            types=options.types,
            rename=options.rename or {},
            select=options.select,
            flatten=options.flatten,
            **options.by_name(),
            max_columns=server.settings.max_columns,
            **chosen,
        )
        bad_rows = _Listed(strict)
        if decoded_max is None:
            decoded_max = DECODED_FACTOR * server.settings.max_part_bytes
        limits = {"reading_s": reading_s, "decoded_max": decoded_max}
        work = _FileIngest(request, server, body, options, bad_rows, limits, progress)
        return IngestedFile(work.run(), bad_rows.listed)
    except ChronicleError as error:
        error.args = (in_words_of_ingest(str(error)), *error.args[1:])
        raise


def _rule(server: Server, options: FileOptions) -> TimeRule:
    """How times are read; a pattern is tried where the file is read, not in this process."""
    return parse_time_formats(
        options.time_format,
        zone=options.time_zone,
        ambiguous=options.ambiguous,
        tried=server.reader is None,
    )


def in_words_of_ingest(text: str) -> str:
    """A message whose hints name parameters instead of options of the command line."""
    for library, rest in _WORDS:
        text = text.replace(library, rest)
    return _OPTION.sub(
        _parameter, text.replace("--create", "create=true").replace("--no-header", "header=false")
    )


def _parameter(option: re.Match[str]) -> str:
    name = option[1].replace("-", "_")
    return f"{name}={option[2]}" if option[2] else name


class _Listed(BadRows):
    """Bad rows, of which the first are told."""

    def __init__(self, strict: bool) -> None:
        super().__init__("skip")
        self._refuses = strict
        self.listed: list[BadRow] = []

    def __call__(self, bad: BadRow) -> None:
        super().__call__(bad)
        if len(self.listed) < ROWS_LISTED:
            self.listed.append(bad)
        elif self._refuses:
            raise RefusedRows(self.listed, True)

    def judge(self) -> None:
        """Refuse a file that was read and has bad rows, where these do."""
        if self._refuses and self.listed:
            raise RefusedRows(self.listed, False)


class _FileIngest(Ingest):
    """The pipeline, whose source is a body."""

    def __init__(
        self,
        request: IngestRequest,
        server: Server,
        body: Body,
        options: FileOptions,
        bad_rows: _Listed,
        limits: dict[str, Any],
        progress: Progress | None,
    ) -> None:
        self._server = server
        self._body = body
        self._options = options
        self._listed = bad_rows
        self._read_within = limits
        database = server.database
        sink = StoreSink(database.path, request.stream, database=database)
        super().__init__(request, sink, bad_rows, progress)

    def sources(self) -> Sequence[InputSource]:
        """The body."""
        return [InputSource(self._options.name, self._body.size)]

    def open_source(self, source: InputSource, layout: Layout, on_bad: BadRowPolicy) -> _Batches:
        """Have a worker read it."""
        server = self._server
        batches = events_of(
            self._body,
            self._options.format,
            layout,
            reader=server.reader,
            on_bad=on_bad,
            name=source.path,
            limits=Limits(
                server.settings.max_columns, unpacked_bytes=self._read_within["decoded_max"]
            ),
            **self._read_within,
            **self._options.reading(),
        )
        return _Batches(batches, self._listed, self._body)


class _Batches:
    """Batches of a file, counted."""

    def __init__(self, batches: Iterator[pa.RecordBatch], bad_rows: _Listed, body: Body) -> None:
        self._batches = batches
        self._bad_rows = bad_rows
        self._body = body
        self.rows = 0

    @property
    def consumed(self) -> int:
        """Bytes that were read, as far as that is known."""
        return self._body.position

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch
        self._bad_rows.judge()
