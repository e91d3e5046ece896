"""Request bodies: received in pieces, bounded in size and time, unpacked while parsed. ::

    socket --1 MiB pieces--> [<= 8 MiB memory | unnamed file] --> gunzip --> count --> parser
          event loop                worker thread                    worker thread

Neither the bytes on the wire nor the decoded ones exceed their limits, whatever a header says, so a
decompression bomb stops at the limit.  A client slower than ``Pace`` is disconnected.  Parsing
starts after the whole body has arrived: an append is atomic and its errors need a status.

``read_events`` parses a body into events before anything is stored; an error lists the first
invalid rows.  A number is a time only if ``precision`` names its unit; its magnitude is never used
to guess.

``POST /v1/ingest`` and ``/v1/ingest/preview`` run the pipeline of ``chronicle ingest`` on a body,
which a worker process reads.  All or nothing; a truncated file stores nothing, whatever
``on_error`` says.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
from starlette.requests import ClientDisconnect, Request

from ...catalog.streams import Stream, handle_of
from ...core.append_result import AppendResult
from ...core.options import option
from ...errors import ChronicleError, InvalidArgument, InvalidData, in_words_of
from ...formats.chunks import BadRow, BadRowPolicy, fail
from ...formats.dialect import Limits, ReadOptions, TextOptions, by_name
from ...formats.kinds import sniff_compression
from ...formats.layout import Layout
from ...formats.reader import EventReader, Look, look
from ...formats.sources import check_size, unpacked
from ...formats.times import TimeRule, parse_time_formats
from ...ingest import BadRows, Ingest, IngestReport, IngestRequest, InputSource
from ...ingest.request import Progress
from ...ingest.sinks import StoreSink
from ...schema import StreamSchema
from ..access.limits import ByteAccount
from ..http.replies import Problem
from ..http.streamed import Pace, Paced, too_slow

if TYPE_CHECKING:
    from ...formats.isolated import IsolatedReader
    from .state import Server

MEMORY_BYTES = 8 << 20
PIECE_BYTES = 1 << 20
SMALL_BYTES = 1 << 16
_ENCODINGS = {"": None, "identity": None, "gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}


class Body:
    """A received body; ``size`` is on the wire, ``encoding`` None, "gzip" or "zstd"."""

    def __init__(
        self,
        directory: Path | None,
        encoding: str | None,
        account: ByteAccount | None,
        *,
        hashed: bool = False,
    ) -> None:
        self._directory = directory
        self._account = account
        self._file = self._new_file()
        self._sha256 = hashlib.sha256() if hashed else None
        self._is_unpacked = False
        self.size = 0
        self.encoding = encoding

    def _new_file(self) -> IO[bytes]:
        return tempfile.SpooledTemporaryFile(
            max_size=MEMORY_BYTES, dir=None if self._directory is None else str(self._directory)
        )

    def write(self, piece: bytes) -> None:
        """Add bytes; may write to disk, so call it in a thread."""
        if self._account is not None:
            self._account.hold(len(piece))
        if self._sha256 is not None:
            self._sha256.update(piece)
        self._file.write(piece)
        self.size += len(piece)

    def content(self) -> bytes:
        self._file.seek(0)
        return self._file.read()

    def detect_encoding(self) -> None:
        if self.encoding is None:
            self._file.seek(0)
            self.encoding = sniff_compression(self._file.read(4))

    @property
    def position(self) -> int:
        """Bytes that have been read; the size, where this is not tracked."""
        return self.size

    @property
    def digest(self) -> str:
        assert self._sha256 is not None
        return self._sha256.hexdigest()

    def open(self, decoded_max: int, *, seekable: bool = False) -> IO[bytes]:
        """The decoded body as a file; more than ``decoded_max`` bytes raise ``ResourceLimit``.
        ``seekable`` copies a compressed body.
        """
        self._file.seek(0)
        hold = None if self._account is None else self._account.hold
        encoding = None if self._is_unpacked else self.encoding
        decoded = unpacked(self._file, encoding, decoded_max, hold)
        if encoding is None or not seekable:
            return decoded
        packed, self._file = self._file, self._new_file()
        with packed:
            while piece := decoded.read(PIECE_BYTES):
                self._file.write(piece)
        self._is_unpacked = True
        self._file.seek(0)
        return self._file

    def hold(self, size: int) -> None:
        if self._account is not None:
            self._account.hold(size)

    @contextmanager
    def handed_over(self) -> Iterator[int | bytes]:
        """The body as it was sent, for another process: its bytes, or its own descriptor."""
        if self.size <= SMALL_BYTES:
            yield self.content()
            return
        if isinstance(self._file, tempfile.SpooledTemporaryFile):
            self._file.rollover()
        self._file.flush()
        file = os.open(f"/proc/self/fd/{self._file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield file
        finally:
            os.close(file)

    def close(self) -> None:
        self._file.close()


class StoredFile(Body):
    """A file on the server's machine, read like a body; ``directory`` has decompressed copies."""

    def __init__(self, path: Path, directory: Path) -> None:
        super().__init__(directory, None, None)
        self._path = path
        self._file.close()
        self._file = path.open("rb")
        self.size = os.fstat(self._file.fileno()).st_size
        self._reader: int | None = None

    @property
    def position(self) -> int:
        """The read position of the worker process, or of this one."""
        if self._reader is None:
            return self.size if self._file.closed else self._file.tell()
        return os.lseek(self._reader, 0, os.SEEK_CUR)

    @contextmanager
    def handed_over(self) -> Iterator[int | bytes]:
        """The file, opened once more, since a reader moves the position of its descriptor."""
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._reader = file
            yield file
        finally:
            self._reader = None
            os.close(file)


def body_too_large(limit: int) -> Problem:
    return Problem(
        "body-too-large",
        f"the body is larger than {limit:,} bytes (CHRONICLE_MAX_BODY_BYTES); send it in parts",
        {"Connection": "close"},  # do not read the rest of it
    )


async def receive(
    request: Request,
    account: ByteAccount | None,
    *,
    body_max: int,
    pace: Pace,
    directory: Path | None = None,
    hashed: bool = False,
) -> Body:
    """Receive a body, to be closed; raises ``Problem`` (408, 413, 415) or ``ClientDisconnect``."""
    name = request.headers.get("content-encoding", "").strip().lower()
    if name not in _ENCODINGS:
        raise Problem(
            "unsupported-media-type",
            f"Content-Encoding is gzip or zstd, found {name!r}",
            {"Accept-Encoding": "gzip, zstd", "Connection": "close"},
        )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > body_max:
        raise body_too_large(body_max)
    body = Body(directory, _ENCODINGS[name], account, hashed=hashed)
    return await filled(body, pieces_of(request, body_max, pace))


async def filled(body: Body, received: AsyncGenerator[bytes, None]) -> Body:
    """The body with the pieces received; closed on an error."""
    pieces: list[bytes] = []
    gathered = 0
    try:
        async with contextlib.aclosing(received) as stream:
            async for piece in stream:
                pieces.append(piece)
                gathered += len(piece)
                if gathered >= PIECE_BYTES:
                    await asyncio.to_thread(body.write, b"".join(pieces))
                    pieces, gathered = [], 0
        if body.size + gathered <= MEMORY_BYTES:
            body.write(b"".join(pieces))
        else:
            await asyncio.to_thread(body.write, b"".join(pieces))
    except BaseException:
        body.close()
        raise
    return body


async def pieces_of(request: Request, body_max: int, pace: Pace) -> AsyncGenerator[bytes, None]:
    """The pieces of a body, as ``receive``; only time spent waiting for the client counts."""
    paced = Paced(pace)
    more = True
    while more:
        try:
            message = await paced.wait(request.receive())
        except TimeoutError:
            raise too_slow(pace, paced.moved) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece = message.get("body", b"")
        more = message.get("more_body", False)
        paced.moved += len(piece)
        if paced.moved > body_max:
            raise body_too_large(body_max)
        if piece:
            yield piece


def appended_json(stream: Stream, done: AppendResult) -> dict[str, Any]:
    """The figures of an append; with duplicates where the stream leaves them out."""
    names = ("appended", "late", "count", "version")
    counted = handle_of(stream).options.unique is not None
    return {name: getattr(done, name) for name in (*names, *["duplicates"] * counted)}


ROWS_LISTED = 20


class RefusedRows(InvalidData):
    """Invalid rows: the first of them, and whether reading stopped early (``more``)."""

    def __init__(self, rows: list[BadRow], more: bool) -> None:
        first = rows[0]
        count = f"{len(rows)} rows" if len(rows) > 1 else "one row"
        if more:
            count = f"at least {count}"
        super().__init__(
            f"nothing was appended: {count} cannot be read as events; {first}", row=first.row
        )
        self.errors = [bad_row_json(row) for row in rows]


def bad_row_json(row: BadRow) -> dict[str, Any]:
    reason, mark, hint = in_words_of("rest", row.reason).rpartition("; ")
    answer = {
        "row": row.row,
        "line": row.line,
        "column": row.column,
        "value": row.value,
        "reason": reason + mark + in_words_of_ingest(hint) if mark else hint,
    }
    return {key: value for key, value in answer.items() if value is not None}


def events_of(
    body: Body,
    format: str | None,
    layout: Layout,
    decoded_max: int,
    reader: IsolatedReader | None,
    *,
    on_bad: BadRowPolicy = fail,
    name: str = "body",
    reading_s: float | None = None,
    **options: Any,
) -> Iterator[pa.RecordBatch]:
    """The events of a body in batches, read by a worker, or here if ``reader`` is None; ``layout``
    learns the inferred schema, ``options`` go to ``EventReader``.
    """
    if reader is None:
        yield from EventReader(
            body.open(decoded_max, seekable=format in ("parquet", None)),
            format,
            layout=layout,
            on_bad=on_bad,
            name=name,
            compression=None,
            **options,
        )
        return
    taken = 0
    with body.handed_over() as source:
        for batch in reader.events(
            source,
            format,
            layout=layout,
            on_bad=on_bad,
            name=name,
            encoding=body.encoding,
            decoded_max=decoded_max,
            reading_s=reading_s,
            **options,
        ):
            taken += batch.nbytes
            check_size(taken, decoded_max)
            body.hold(batch.nbytes)
            yield batch


def time_format_of(schema: StreamSchema, precision: str | None) -> str:
    if schema.time_unit is not None:
        return precision or "iso"
    if precision is not None:
        raise InvalidArgument(
            f"precision={precision} makes no sense here: the time attribute {schema.time!r} counts "
            "plain integers"
        )
    return "ticks"


def read_events(
    body: Body,
    format: str,
    schema: StreamSchema,
    precision: str | None,
    decoded_max: int,
    reader: IsolatedReader | None = None,
    *,
    columns_max: int = Limits.columns,
    skip: bool = False,
    text: TextOptions | None = None,
) -> tuple[pa.Table, list[BadRow], int]:
    """Parse a body: a table in the stream's schema, the first bad rows (only with ``skip``) and
    their total; blocks.  Raises ``RefusedRows``, ``InvalidData``, ``SchemaMismatch``,
    ``ResourceLimit``.
    """
    layout = Layout(time_format=time_format_of(schema, precision), target=schema)
    limits = Limits(columns_max, unpacked_bytes=decoded_max, total_bytes=decoded_max)
    bad = _Listed(not skip)
    try:
        batches = list(
            events_of(
                body, format, layout, decoded_max, reader, on_bad=bad, text=text, limits=limits
            )
        )
    except pa.ArrowException as error:
        raise InvalidData(f"the body cannot be read as {format}: {error}") from None
    bad.judge()
    return pa.Table.from_batches(batches, schema=schema.arrow), bad.listed, bad.count


DECODED_FACTOR = 8

_OPTION = re.compile(
    r"--([a-z][a-z-]*)(?: ((?:COLUMN|append|skip|s|ms|us|ns|N|latin-1|utf-16-[bl]e|windows-1252)\b"
    r"|[,.](?= )|[^ ;]+(?= (?:reads|keeps|makes) )))?"
)
_WORDS = (
    ("pass time_format= ", "give time_format="),
    ("pass time_format=", "give time_format="),
)


@dataclass(frozen=True, kw_only=True)
class FileOptions(ReadOptions):
    """How a file that is a request's body is read."""

    name: str = option("body", "The file's name: its suffix tells the format.", longest=255)


@dataclass(frozen=True)
class IngestedFile:
    report: IngestReport
    bad: list[BadRow]

    def to_json(self) -> dict[str, Any]:
        report = self.report
        return {
            "stream": report.stream,
            "created": report.created,
            "appended": report.stored,
            "late": report.late,
            "count": report.count,
            "version": report.version,
            "rejected": report.bad,
            "errors": [bad_row_json(row) for row in self.bad],
        }


def look_at(
    server: Server, body: Body, options: FileOptions, stream: str | None, rows_max: int
) -> Look:
    """Preview the first rows of a file, as columns of ``stream`` if it exists; blocks."""
    body.detect_encoding()
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
    more |= {"name": options.name, "text": options.text}
    try:
        Layout(**layout, timeless=True)  # raises before a worker starts
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
    """Store a file in a stream; blocks.  ``strict``: a bad row refuses the file (``RefusedRows``).
    ``reading_s`` bounds the worker's time, ``decoded_max`` the bytes after decompression;
    ``chosen`` are further fields of ``chronicle.ingest.IngestRequest``.
    """
    body.detect_encoding()
    try:
        request = IngestRequest(
            [options.name],
            **by_name(replace(options, time_format=_rule(server, options)), ReadOptions),
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
    if isinstance(options.time_format, TimeRule):
        return options.time_format
    return parse_time_formats(
        options.time_format,
        zone=options.time_zone,
        ambiguous=options.ambiguous,
        tried=server.reader is None,
    )


def in_words_of_ingest(text: str) -> str:
    """Rewrite hints that name command line options to name request parameters."""
    for library, rest in _WORDS:
        text = text.replace(library, rest)
    return _OPTION.sub(
        _parameter, text.replace("--create", "create=true").replace("--no-header", "header=false")
    )


def _parameter(option: re.Match[str]) -> str:
    name = option[1].replace("-", "_")
    return f"{name}={option[2]}" if option[2] else name


class _Listed(BadRows):
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
        if self._refuses and self.listed:
            raise RefusedRows(self.listed, False)


class _FileIngest(Ingest):
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
        sink = StoreSink(server.database.path, request.stream, catalog=server.catalog)
        super().__init__(request, sink, bad_rows, progress)

    def sources(self) -> Sequence[InputSource]:
        return [InputSource(self._options.name, self._body.size)]

    def open_source(self, source: InputSource, layout: Layout, on_bad: BadRowPolicy) -> _Batches:
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
            text=self._options.text,
        )
        return _Batches(batches, self._listed, self._body)


class _Batches:
    def __init__(self, batches: Iterator[pa.RecordBatch], bad_rows: _Listed, body: Body) -> None:
        self._batches = batches
        self._bad_rows = bad_rows
        self._body = body
        self.rows = 0

    @property
    def consumed(self) -> int:
        return self._body.position

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch
        self._bad_rows.judge()
