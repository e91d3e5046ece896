"""Jobs that export to and import from files with plain names in ``CHRONICLE_EXCHANGE_DIRECTORY``.
A file appears whole or not at all, and none is overwritten; an import is one commit.  An import
that was killed with the server has failed: whether it was stored is unknown.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from ...errors import InvalidArgument
from ...formats import write
from ...formats.kinds import WRITE_FORMATS, suffixes_of
from ...query.contract.cancellation import Cancellation
from ..access.auth import Principal
from ..access.server_directory import server_directory
from ..service.bodies import StoredFile
from ..service.event_parsing import bad_row_json
from ..service.file_ingest import FileOptions, ingest_file
from ..service.jobs import Job, Work
from ..service.state import Server
from .job_specs import FILE_NAME, OfStore

__all__ = ["ExportSpec", "ImportSpec"]

LOOK_S = 0.1
READING_S = 24 * 3600.0
DECODED_MAX = 1 << 62


def _place(server: Server, name: str) -> Path:
    directory = server.settings.exchange_directory
    if directory is None:
        raise InvalidArgument(
            "there is no place for files: set CHRONICLE_EXCHANGE_DIRECTORY, or use `chronicle sql "
            "-o` and `chronicle ingest`"
        )
    if not FILE_NAME.fullmatch(name):
        raise InvalidArgument(
            f"a file's name has 1 to 100 letters, digits or . _ -, found {name!r}"
        )
    return Path(directory) / name


@contextlib.contextmanager
def _ended_with(job: Job) -> Iterator[Cancellation]:
    cancellation = Cancellation()
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            if job.cancelled.is_set() or job.halted.is_set():
                cancellation.cancel()
                return

    watching = threading.Thread(target=look, name="chronicle-job-watch")
    watching.start()
    try:
        yield cancellation
    finally:
        over.set()
        watching.join()


class ExportSpec(OfStore):
    """Write the rows of a query, or a stream, to a file."""

    kind: Literal["export"]
    file: str = Field(
        description="Of the new file below CHRONICLE_EXCHANGE_DIRECTORY; its suffix tells the "
        "format: .parquet, .arrow, .csv, .ndjson, .json."
    )
    stream: str | None = Field(None, description="All events of this stream; or give sql.")
    sql: str | None = Field(None, description="One query.")

    def require(self, principal: Principal) -> None:
        if self.stream is None:
            super().require(principal)
        principal.require("operate")
        principal.require("read", self.stream)

    def check_new(self, server: Server) -> None:
        if _place(server, self.file).exists():
            raise InvalidArgument(f"there is a file {self.file!r} already; choose another name")

    def _query(self, server: Server) -> str:
        if (self.stream is None) == (self.sql is None):
            raise InvalidArgument("an export has either a stream or sql")
        if self.sql is not None:
            if server.database.access(self.sql).scope != "read":
                raise InvalidArgument("an export takes a query, found a statement that changes")
            return self.sql
        assert self.stream is not None
        server.database.stream(self.stream)
        return 'SELECT * FROM "' + self.stream.replace('"', '""') + '"'

    def work(self, server: Server) -> Work:
        target = _place(server, self.file)
        format, compression = suffixes_of(self.file) or (None, None)
        if format not in WRITE_FORMATS or compression is not None:
            raise InvalidArgument(
                f"a file is .parquet, .arrow, .csv, .ndjson or .json, found {self.file!r}"
            )
        text = self._query(server)

        def exported(job: Job) -> dict[str, Any]:
            if job.begun == 1:
                self.check_new(server)  # another job may have created it
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = target.with_name(f".{self.file}.{job.id}.{secrets.token_hex(4)}.part")
            for left in target.parent.glob(f".{self.file}.{job.id}.*.part"):
                left.unlink()  # left by a killed server
            rows = 0
            with _ended_with(job) as cancellation:
                result = server.database.sql(text, read_only=True, cancellation=cancellation)

                def counted() -> Iterator[Any]:
                    nonlocal rows
                    for batch in result.batches():
                        read, expected = cancellation.progress.events or (0, 0)
                        job.tell(min(1.0, read / expected) if expected else 0.0)
                        rows += batch.num_rows
                        yield batch

                try:
                    with contextlib.closing(result), open(part, "xb") as out:
                        as_file = "arrow file" if format == "arrow" else format
                        write(counted(), result.schema, as_file, out)
                        out.flush()
                        os.fsync(out.fileno())
                    os.replace(part, target)
                finally:
                    part.unlink(missing_ok=True)
            return {"file": self.file, "rows": rows, "bytes": target.stat().st_size}

        return exported


class ImportSpec(OfStore):
    """Store a file in a stream, as `POST /v1/ingest` does."""

    kind: Literal["import"]
    repeats: ClassVar[bool] = False  # would store the events twice
    file: str = Field(description="Of the file below CHRONICLE_EXCHANGE_DIRECTORY.")
    stream: str
    create: bool = False
    if_exists: Literal["fail", "append"] = "fail"
    time: str | None = Field(None, description="The time column; the stream's own.")
    time_format: str | list[str] = "auto"
    time_zone: str | None = Field(None, description="Of times without an offset; else UTC.")
    ambiguous: Literal["refuse", "earlier", "later"] = "refuse"
    time_of_day: str | None = Field(None, description="The column that goes with one of dates.")
    types: list[str] = Field(default_factory=list, description="Types: speed=double.")
    on_error: Literal["fail", "skip"] = "fail"
    encoding: str | None = Field(None, description="Of text, where it is not UTF-8.")
    delimiter: str | None = Field(None, description="Of CSV; else told from the header.")
    quote: str = '"'
    skip: int = Field(0, ge=0, description="Of CSV: lines to pass over, before the header.")
    header: bool | None = Field(None, description="Of CSV: whether a header names the columns.")
    columns: list[str] | None = None
    null: list[str] = Field(default_factory=list, description="Further spellings of null in CSV.")
    decimal: Literal[",", "."] | None = None
    sheet: str | None = Field(None, description="Of an Excel workbook; the first by default.")

    def require(self, principal: Principal) -> None:
        principal.require("operate")
        principal.require("write" if self.create else "ingest", self.stream)

    def check_new(self, server: Server) -> None:
        server.require_writable()

    def work(self, server: Server) -> Work:
        path = _place(server, self.file)
        if path.is_symlink() or not path.is_file():
            raise InvalidArgument(
                f"there is no file {self.file!r} in the server's CHRONICLE_EXCHANGE_DIRECTORY"
            )
        if not self.create:
            server.database.stream(self.stream)

        def imported(job: Job) -> dict[str, Any]:
            options = FileOptions(
                name=self.file, time=self.time, time_format=self.time_format,
                time_zone=self.time_zone, ambiguous=self.ambiguous, time_of_day=self.time_of_day,
                types=self.types, encoding=self.encoding, delimiter=self.delimiter,
                quote=self.quote, skip=self.skip, header=self.header, columns=self.columns,
                nulls=self.null, decimal=self.decimal, sheet=self.sheet,
            )  # fmt: skip
            scratch = server_directory(server.database.path, create=True)
            with contextlib.closing(StoredFile(path, scratch)) as body:
                done = ingest_file(
                    server, body, options, strict=self.on_error == "fail", reading_s=READING_S,
                    decoded_max=DECODED_MAX, progress=_Told(job), stream=self.stream,
                    create=self.create, if_exists=self.if_exists,
                )  # fmt: skip
            report = done.report
            return {
                "stream": self.stream,
                "created": report.created,
                "appended": report.stored,
                "late": report.late,
                "count": report.count,
                "version": report.version,
                "rejected": report.bad,
                "errors": [bad_row_json(row) for row in done.bad],
            }

        return imported


class _Told:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._total: int | None = None
        self._before = 0.0

    def phase(self, name: str, total: int | None) -> None:
        self._total = total
        self._before = 0.0 if name == "reading" else 0.5
        self._job.tell(self._before)

    def at(self, done: int) -> None:
        share = min(1.0, done / self._total) if self._total else 0.0
        self._job.tell(self._before + share / 2)
