"""The kinds of jobs: parameters, rights, work.  A job killed with the server is started again: each
kind is idempotent, or checks what the first run left.  (If that was between a delete's or update's
commit and the job's record, the second run reports no events.)  A backup has a new name below
``CHRONICLE_BACKUP_DIRECTORY``, jobs can write nowhere else, and an unfinished one is removed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, RootModel

from ...core.times import INT64_MAX
from ...errors import (
    ChronicleError,
    IndexExists,
    IndexNotFound,
    InvalidArgument,
    QueryCancelled,
    StorageFailed,
)
from ...indexes.index_key import index_key
from ...query.sql.dialect import parse_predicate
from ...store.backups import is_address, list_backups
from ...store.progress import each
from ...store.store import UNFINISHED
from ..access.auth import Principal
from ..service.jobs import Job, Work
from ..service.state import Server
from .event_changes import DeleteSpec, EventsSpec, UpdateSpec
from .exchange_jobs import ExportSpec, ImportSpec
from .job_specs import FILE_NAME, OfStore, OfStream

__all__ = ["JobSpec", "work_again"]

PROBLEMS_MAX = 100
LOOK_S = 0.1


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


class CalibrateSpec(OfStore):
    """Measure this machine for the cost models."""

    kind: Literal["calibrate"]

    def work(self, server: Server) -> Work:

        def calibrated(job: Job) -> dict[str, Any]:
            del job
            from ...query.replay.calibration import calibrate_patterns
            from ...query.replay.cost import save_weights
            from ...query.windows.calibration import calibrate
            from ...query.windows.cost import save_calibration

            path = server.database.path
            found: dict[str, Any] = {}
            for what in each(("windows", "patterns")):
                if what == "windows":
                    calibration = calibrate().calibration
                    save_calibration(path, calibration)
                    found[what] = dataclasses.asdict(calibration)
                else:
                    weights = calibrate_patterns()
                    save_weights(path, weights)
                    found[what] = dataclasses.asdict(weights)
            return found

        return calibrated


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
                found = server.database.move(
                    objects, stream=name, older_than=self.older_than, due=self.due
                )
                done |= {of: dataclasses.asdict(each) for of, each in found.items()}
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
        return index_key(self.attribute, server.database.stream_schema(self.stream)).name

    def check_new(self, server: Server) -> None:
        if any(f["attribute"] == self._key(server) for f in _indexes(server, self.stream)):
            raise IndexExists(f"there is an index on {self.stream} ({self._key(server)}) already")

    def work(self, server: Server) -> Work:
        name = self._key(server)

        def figures() -> dict[str, Any] | None:
            return next((f for f in _indexes(server, self.stream) if f["attribute"] == name), None)

        def built(job: Job) -> dict[str, Any]:
            if job.begun == 1 or figures() is None:
                server.database.create_index(
                    self.stream, name, wait=False, lag_events_max=self.lag_events_max
                )
            try:
                while (found := figures()) is not None and found["state"] == "building":
                    job.tell(found["covered"])
                    job.cancelled.wait(LOOK_S)
            except QueryCancelled:
                if job.cancelled.is_set():  # a stopping server keeps the index
                    with contextlib.suppress(ChronicleError):
                        server.database.drop_index(self.stream, name)
                raise
            if found is None:
                raise IndexNotFound(f"the index on {self.stream} ({name}) was dropped meanwhile")
            if found["problem"]:
                raise StorageFailed(f"the index on {self.stream} ({name}): {found['problem']}")
            return {"attribute": name, "entries": found["entries"], "bytes": found["bytes"]}

        return built


def _indexes(server: Server, stream: str) -> list[dict[str, Any]]:
    return server.database.list_indexes(stream)


class _OfEvents(EventsSpec, OfStream):
    """A change of events of one stream, in one commit."""

    def work(self, server: Server) -> Work:
        self.check()
        self.bounds(server.database.stream_schema(self.stream))
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
            | CalibrateSpec
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
