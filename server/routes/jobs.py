"""Routes of jobs, and their kinds; ``service.jobs`` runs them.  A job that was accepted (202) is
durable: it is done, or says why not.  Work on the whole store needs ``operate`` on all streams; a
change of one stream needs the rights of its own route.

A job killed with the server is started again: each kind is idempotent, or checks what the first run
left.  (If that was between a delete's or update's commit and the job's record, the second run
reports no events.)

Exports and imports use files with plain names in ``CHRONICLE_EXCHANGE_DIRECTORY``.  A file appears
whole or not at all, and none is overwritten; an import is one commit.  An import that was killed
with the server has failed: whether it was stored is unknown.

A backup has a new name below ``CHRONICLE_BACKUP_DIRECTORY``, jobs can write nowhere else, and an
unfinished one is removed.  The list of backups there shows all streams, so it needs ``operate`` on
all of them.  ``chronicle backups`` lists any other directory or address.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
import shutil
import time
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from fastapi import Response
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, RootModel

from ...core.options import options_from
from ...core.sql_text import quoted_name
from ...core.times import INT64_MAX
from ...errors import (
    ChronicleError,
    Forbidden,
    IndexExists,
    IndexNotFound,
    InvalidArgument,
    QueryCancelled,
    StorageFailed,
)
from ...formats.kinds import WRITE_FORMATS, suffixes_of
from ...formats.writers import write
from ...indexes.index_key import index_key
from ...query.sql.dialect import parse_predicate
from ...store.backup import is_address, list_backups
from ...store.progress import each
from ...store.store import UNFINISHED
from ..access.auth import Principal
from ..access.tokens import server_directory
from ..http.replies import Problem, reply
from ..service.bodies import FileOptions, StoredFile, ingest_file
from ..service.jobs import Job, Work
from ..service.state import Server
from . import answers
from .answers import Json
from .route import Call, Called, Routes
from .streams import DeleteSpec, EventsSpec, UpdateSpec

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of backups and files: no path out of the directory."""


class OfStore(BaseModel):
    """Work on the whole store."""

    model_config = ConfigDict(extra="forbid")
    repeats: ClassVar[bool] = True
    """Whether it may run again when its progress is unknown."""

    def require(self, principal: Principal) -> None:
        """Raise ``Forbidden`` unless the principal may have it done."""
        principal.require("operate")
        if not principal.everywhere:
            raise Forbidden(
                "a job over the whole store takes the scope 'operate' on all streams; compact "
                "and move take a list of streams"
            )

    def check_new(self, server: Server) -> None:
        """Refuse what exists already; called when a job is created.  Blocks."""

    @abstractmethod
    def work(self, server: Server) -> Work:
        """The function to run; raises if it clearly cannot succeed.  Blocks."""


class OfStream(OfStore):
    """A change of one stream, with the rights of its own route."""

    stream: str

    def require(self, principal: Principal) -> None:
        principal.require("operate")
        principal.require("admin", self.stream)


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
            if server.catalog.engine.access(self.sql).scope != "read":
                raise InvalidArgument("an export takes a query, found a statement that changes")
            return self.sql
        assert self.stream is not None
        server.database.stream(self.stream)
        return f"SELECT * FROM {quoted_name(self.stream)}"

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
            result = server.database.sql(text, read_only=True, cancellation=job.cancellation)

            def counted() -> Iterator[Any]:
                nonlocal rows
                for batch in result.batches():
                    read, expected = job.cancellation.progress.events or (0, 0)
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
    on_error: Literal["fail", "skip"] = Field(
        "fail", validation_alias=AliasChoices("bad_rows", "on_error")
    )
    encoding: str | None = Field(None, description="Of text, where it is not UTF-8.")
    delimiter: str | None = Field(None, description="Of CSV; else inferred from the header.")
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
            options = options_from(FileOptions, {**vars(self), "name": self.file}, {})
            scratch = server_directory(server.database.path, create=True)
            with contextlib.closing(StoredFile(path, scratch)) as body:
                done = ingest_file(
                    server, body, options, strict=self.on_error == "fail", reading_s=READING_S,
                    decoded_max=DECODED_MAX, progress=_JobProgress(job), stream=self.stream,
                    create=self.create, if_exists=self.if_exists,
                )  # fmt: skip
            return done.to_json()

        return imported


class _JobProgress:
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


PROBLEMS_MAX = 100


def _timestamp() -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


class BackupSpec(OfStore):
    """Make a consistent copy of the store while writes continue."""

    kind: Literal["backup"]
    name: str = Field(
        default_factory=_timestamp,
        description="Of the new directory below CHRONICLE_BACKUP_DIRECTORY; by default the time.",
    )

    def work(self, server: Server) -> Work:
        directory = server.settings.backup_directory
        if directory is None:
            raise InvalidArgument(
                "there is no place for backups: set CHRONICLE_BACKUP_DIRECTORY, or use `chronicle "
                "backup` where the server runs"
            )
        if not FILE_NAME.fullmatch(self.name):
            raise InvalidArgument(
                f"a backup's name has 1 to 100 letters, digits or . _ -, found {self.name!r}"
            )
        if is_address(directory):
            return self._to_objects(server, str(directory))
        target = Path(directory) / self.name

        def copied(job: Job) -> dict[str, Any]:
            if job.begun > 1 and target.is_dir():  # left by a killed process
                if (target / UNFINISHED).exists() or not any(target.iterdir()):
                    shutil.rmtree(target)
                else:
                    return {"name": self.name}
            target.mkdir(mode=0o700, parents=True)  # raises if another job created it
            try:
                server.database.backup(target)
            except BaseException:
                shutil.rmtree(target, ignore_errors=True)
                raise
            return {"name": self.name}

        return copied

    def _to_objects(self, server: Server, address: str) -> Work:
        def sent(job: Job) -> dict[str, Any]:
            whole = (each.name for each in list_backups(address) if each.state == "whole")
            if job.begun == 1 or self.name not in whole:  # else a killed process completed it
                server.database.backup(address, name=self.name)
            return {"name": self.name}

        return sent

    def check_new(self, server: Server) -> None:
        directory = server.settings.backup_directory
        if directory is None or is_address(directory):  # checked by the job itself
            return
        if (Path(directory) / self.name).exists():
            raise InvalidArgument(f"there is a backup {self.name!r} already; choose another name")


class CheckSpec(OfStore):
    """Verify every checksum, order and aggregate; repairs nothing."""

    kind: Literal["check"]

    def work(self, server: Server) -> Work:

        def checked(job: Job) -> dict[str, Any]:
            del job
            report = server.database.check()
            return {
                "ok": report.ok,
                "streams": report.streams,
                "segments": report.segments,
                "blocks": report.blocks,
                "events": report.events,
                "deleted_events": report.deleted_events,
                "problems": [str(problem) for problem in report.problems[:PROBLEMS_MAX]],
                "notes": report.notes[:PROBLEMS_MAX],
            }

        return checked


class CompactSpec(OfStore):
    """Merge late events into the segments that they belong to."""

    kind: Literal["compact"]
    streams: list[str] | None = Field(None, description="Which; all by default.")

    def require(self, principal: Principal) -> None:
        if not self.streams:
            super().require(principal)
        for name in self.streams or ():
            principal.require("operate", name)

    def work(self, server: Server) -> Work:
        for name in self.streams or ():
            server.database.stream(name)

        def compacted(job: Job) -> dict[str, Any]:
            del job
            there = server.database.streams
            names = there() if self.streams is None else self.streams
            for name in each(names):
                if self.streams is not None or name in there():  # not dropped meanwhile
                    server.database.stream(name).compact()
            return {"streams": names}

        return compacted


class MoveSpec(CompactSpec):
    """Move sealed segments to the server's object storage; queries still find them."""

    kind: Literal["move"]  # type: ignore[assignment]
    older_than: str | None = Field(
        None,
        description="Age of the youngest event of a segment that moves, as '90 days', beside the "
        "newest of its stream; all that is sealed by default.",
    )
    due: bool = Field(
        False, description="Only what the streams' `move_after` and `keep_local_bytes` say."
    )

    def work(self, server: Server) -> Work:
        objects = server.settings.objects
        if objects is None:
            raise InvalidArgument(
                "there is no place for objects: set CHRONICLE_OBJECTS, or use `chronicle move` "
                "while the server is stopped"
            )
        if self.due and self.older_than is not None:
            raise InvalidArgument("due goes by the settings of the streams: leave out older_than")
        for name in self.streams or ():
            server.database.stream(name)

        def moved(job: Job) -> dict[str, Any]:
            del job
            done: dict[str, Any] = {}
            for name in [None] if self.streams is None else self.streams:
                reports = server.database.move(
                    objects, stream=name, older_than=self.older_than, due=self.due
                )
                done |= {of: dataclasses.asdict(each) for of, each in reports.items()}
            return {"streams": done}

        return moved


class IndexSpec(OfStream):
    """Create an index and build it for the stored events."""

    kind: Literal["index"]
    attribute: str = Field(description="What is indexed, as in CREATE INDEX.")
    lag_events_max: int | None = Field(
        None,
        ge=0,
        le=INT64_MAX,
        description="Events that may wait for it before appends wait for it.",
    )

    def _key(self, server: Server) -> str:
        return index_key(self.attribute, server.catalog.stream_schema(self.stream)).name

    def check_new(self, server: Server) -> None:
        if any(f["attribute"] == self._key(server) for f in _indexes(server, self.stream)):
            raise IndexExists(f"there is an index on {self.stream} ({self._key(server)}) already")

    def work(self, server: Server) -> Work:
        name = self._key(server)

        def figures() -> dict[str, Any] | None:
            return next((f for f in _indexes(server, self.stream) if f["attribute"] == name), None)

        def built(job: Job) -> dict[str, Any]:
            if job.begun == 1 or figures() is None:
                server.catalog.create_index(
                    self.stream, name, wait=False, lag_events_max=self.lag_events_max
                )
            try:
                while (state := figures()) is not None and state["state"] == "building":
                    job.tell(state["covered"])
                    time.sleep(LOOK_S)
            except QueryCancelled:
                if job.cancelled:  # a stopping server keeps the index
                    with contextlib.suppress(ChronicleError):
                        server.catalog.drop_index(self.stream, name)
                raise
            if state is None:
                raise IndexNotFound(f"the index on {self.stream} ({name}) was dropped meanwhile")
            if state["problem"]:
                raise StorageFailed(f"the index on {self.stream} ({name}): {state['problem']}")
            return {"attribute": name, "entries": state["entries"], "bytes": state["bytes"]}

        return built


def _indexes(server: Server, stream: str) -> list[dict[str, Any]]:
    return server.catalog.list_indexes(stream)


class _OfEvents(EventsSpec, OfStream):
    """A change of events of one stream, in one commit."""

    def work(self, server: Server) -> Work:
        self.check()
        self.bounds(server.catalog.stream_schema(self.stream))
        for text in self.expressions():
            parse_predicate(text)

        def changed(job: Job) -> dict[str, Any]:
            del job
            return self.apply(server.database.stream(self.stream))

        return changed


class DeleteJobSpec(_OfEvents, DeleteSpec):
    """Delete events for good."""

    model_config = ConfigDict(json_schema_extra={})
    kind: Literal["delete"]


class UpdateJobSpec(_OfEvents, UpdateSpec):
    """Give events other values."""

    model_config = ConfigDict(json_schema_extra={})
    kind: Literal["update"]
    repeats: ClassVar[bool] = False  # altitude = altitude * 2 is not idempotent


class JobSpec(
    RootModel[
        Annotated[
            BackupSpec
            | CheckSpec
            | CompactSpec
            | MoveSpec
            | IndexSpec
            | DeleteJobSpec
            | UpdateJobSpec
            | ExportSpec
            | ImportSpec,
            Field(discriminator="kind"),
        ]
    ]
):
    """Work to do."""


def work_again(server: Server, job: Job) -> Work:
    """The work of an earlier process's job; raises if it cannot continue."""
    spec = JobSpec.model_validate(job.asked).root
    if job.state == "running" and not spec.repeats:
        raise ChronicleError(
            "the server ended while it ran: whether it was done is not known; look, and ask again"
        )
    return spec.work(server)


routes = Routes("jobs", "/v1")


@routes.post("/jobs", "Begin a job", answers.Job, 202, needs="operate", example={"kind": "check"})
def begin_job(call: Call, spec: JobSpec) -> Response:
    """Answers at once; `GET` of its `Location` gives progress and outcome."""
    work, server = spec.root, call.server
    work.require(call.principal)
    work.check_new(server)
    described = work.model_dump(mode="json", exclude_none=True)
    job = server.jobs.start(described, call.principal.owner, work.work(server))
    return reply(job.to_json(), 202, {"Location": f"/v1/jobs/{job.id}"})


@routes.get("/jobs", "List jobs", answers.Jobs, needs="operate")
async def list_jobs(call: Call) -> Json:
    """Waiting and running jobs, and the last that ended; without all streams, your own."""
    jobs = call.server.jobs.list()
    return {"jobs": [job.to_json() for job in jobs if _visible(job, call.principal)]}


@routes.get("/jobs/{job_id}", "Describe a job", answers.Job, needs="operate")
async def describe_job(call: Call, job_id: str) -> Json:
    """Its progress, or how it ended."""
    return _visible_job(call, job_id).to_json()


@routes.delete("/jobs/{job_id}", "Cancel a job", status=204, needs="operate")
def cancel_job(call: Call, job_id: str) -> None:
    """It ends before its next step; a job that has ended is unchanged."""
    call.server.jobs.cancel(_visible_job(call, job_id))


def _visible(job: Job, principal: Principal) -> bool:
    return principal.everywhere or job.owner == principal.owner


def _visible_job(call: Called, job_id: str) -> Job:
    job = call.server.jobs.find(job_id)
    if job is None or not _visible(job, call.principal):
        raise Problem("not-found", f"there is no job {job_id!r}; GET /v1/jobs lists them")
    return job


@routes.get(
    "/backups", "List backups", answers.Backups, needs="operate", everywhere="to list backups"
)
def backups(call: Call) -> Json:
    """When each was made and what it holds, oldest first; unfinished ones last."""
    place = call.server.settings.backup_directory
    there = place is not None and (is_address(place) or Path(place).is_dir())
    listed = list_backups(place) if there and place is not None else []
    return {"configured": place is not None, "backups": [each.to_json() for each in listed]}
