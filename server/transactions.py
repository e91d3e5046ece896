"""Parts of a large append, staged by many writers and committed by one.

Purpose
    A Spark job sends each partition as a *part* (from any executor, perhaps twice) and its driver
    commits the parts that it knows to be whole.  Until then nothing is visible; afterwards
    everything is.  Parts become sealed segments at once (:mod:`chronicle.store.staging`), with the
    runs of their indexes (:mod:`chronicle.indexes.staged`), so a commit moves no events.

Layout
    ::

        <store>/streams/<s>/staging/<job>/...              segments that nobody sees yet
        <store>/server/transactions/<job>/<part>.json      which segments a part consists of

    A job is ``<second of its first part, hexadecimal>-<hash of stream and transaction>``: the store
    tells its age by the first half, the server finds it by the second.

Guarantee
    A commit is atomic, durable and idempotent: the store remembers the last 256 transactions and
    the last version of every application.  A part of a transaction that has ended is refused.

Limits
    Parts that overlap in time are merged when they are read, until compaction, and so is a large
    part that is not in time order.  That a transaction was dropped is forgotten when the
    server restarts: a part that comes after that is staged in vain, and swept after a day.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from ..errors import ChronicleError, InvalidArgument, ReadOnlyStore
from ..indexes.staged import announce, build_staged, taking_over
from ..store import EventStream
from ..store.catalog import SegmentEntry
from ..store.staging import (
    BulkCommit,
    StagedSegment,
    StagingPlan,
    abort_staged,
    commit_staged,
    committed,
    prepare_staging,
    stage,
    sweep_staging,
)
from .ordering import runs_in_order
from .places import replace_file, server_directory
from .problems import Problem

if TYPE_CHECKING:
    from ..database import Database

__all__ = ["Commit", "Transactions"]

logger = logging.getLogger("chronicle.server")

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
SORT_BYTES = 32 << 20
"""Events of one part that are sorted at a time; see :mod:`chronicle.server.ordering`."""


@dataclass(frozen=True)
class Commit:
    """What is to be committed.

    Attributes
    ----------
    parts : tuple of str
        Their order decides between events of equal time.
    truncate : bool
        Remove every event that the stream had, in the same commit.
    application, version : str and int, optional
        Versions that are not above the application's last one do nothing.
    """

    parts: tuple[str, ...]
    truncate: bool = False
    application: str | None = None
    version: int | None = None


class Transactions:
    """The transactions of one database; all methods block.

    Parameters
    ----------
    clock : callable
        Seconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._root = server_directory(database.path) / "transactions"
        self._clock = clock
        self._guard = threading.Lock()
        self._ended: dict[str, float] = {}

    def put(
        self, stream: str, transaction: str, part: str, batches: Iterator[pa.RecordBatch]
    ) -> dict[str, Any]:
        """Stage a part; one of the same name is replaced.

        Raises
        ------
        Problem
            409 when the transaction has ended.
        """
        _check_name(part, "part")
        handle = self._writer(stream)
        job = self._job(handle, transaction)
        self._refuse_ended(handle, job, transaction)
        plan = self._plan(handle, job)
        try:
            runs = runs_in_order(batches, handle.schema.time, SORT_BYTES)
            staged = stage(handle.commits.files, plan, 0, runs)
            build_staged(handle.commits.files, plan.place, staged, plan.schema)
        except ChronicleError:
            self._refuse_ended(handle, job, transaction)
            raise
        receipt = self._root / job / f"{part}.json"
        receipt.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(receipt, orjson.dumps([asdict(item) for item in staged]))
        return {
            "part": part,
            "rows": sum(item.entry.events for item in staged),
            "bytes": sum(item.entry.bytes for item in staged),
        }

    def commit(self, stream: str, transaction: str, wanted: Commit) -> BulkCommit:
        """Make the listed parts events of the stream, and drop the others.

        Raises
        ------
        Problem
            404 when a part is not there.
        """
        handle = self._writer(stream)
        job = self._job(handle, transaction)
        jobs = handle.commits.manifest.jobs
        done: BulkCommit | None = committed(jobs, job, wanted.application, wanted.version)
        if done is None:
            staged = list(self._staged(job, transaction, wanted.parts))
            try:
                with taking_over(handle, job, staged, self._database.indexes_of(stream)):
                    done = commit_staged(
                        handle,
                        job,
                        staged,
                        truncate=wanted.truncate,
                        application=wanted.application,
                        version=wanted.version,
                    )
            except Exception:
                if done is None:
                    raise
                # What is committed is answered as committed; the rest is made good later.
                logger.exception("%s: what follows the commit of %s failed", stream, transaction)
        try:
            self._end(handle, job)
        except (ChronicleError, OSError) as error:
            logger.warning("%s: what %s staged is swept later: %s", stream, transaction, error)
        return done

    def abort(self, stream: str, transaction: str) -> None:
        """Drop a transaction's parts, and refuse further ones."""
        handle = self._writer(stream)
        self._end(handle, self._job(handle, transaction))

    def sweep(self) -> None:
        """Forget what nobody has committed or dropped for a day."""
        oldest = self._clock() - 24 * 3600
        for name in self._database.streams():
            with contextlib.suppress(ChronicleError):
                handle = self._writer(name)
                for job in sweep_staging(
                    handle.commits.files, handle.commits.directory, clock=self._clock
                ):
                    shutil.rmtree(self._root / job, ignore_errors=True)
        with self._guard:
            for job in [job for job, ended in self._ended.items() if ended < oldest]:
                del self._ended[job]

    def _writer(self, stream: str) -> EventStream:
        handle = self._database.stream(stream).handle
        if not isinstance(handle, EventStream):
            raise ReadOnlyStore("the store is open for reading; nothing can be written to it here")
        return handle

    def _job(self, handle: EventStream, transaction: str) -> str:
        """The store's name of a transaction: the one that it has, or a new one."""
        _check_name(transaction, "transaction")
        said = f"{handle.name}\n{transaction}".encode()
        suffix = "-" + hashlib.sha256(said).hexdigest()[:24]
        place = f"{handle.commits.directory}/staging"
        staged = handle.commits.files.list(place) if handle.commits.files.exists(place) else []
        known = [name.removeprefix("job:") for name in handle.commits.manifest.jobs]
        for job in (*self._ended, *known, *staged):
            if job.endswith(suffix):
                return job
        return f"{int(self._clock()):x}{suffix}"

    def _plan(self, handle: EventStream, job: str) -> StagingPlan:
        plan = StagingPlan(handle.commits.directory, job, handle.schema, handle.options)
        with self._guard:
            if not handle.commits.files.exists(plan.place):
                prepare_staging(handle.commits.files, plan)
                announce(handle.commits.files, plan.directory, plan.place)
        return plan

    def _staged(
        self, job: str, transaction: str, parts: tuple[str, ...]
    ) -> Iterator[StagedSegment]:
        for position, part in enumerate(dict.fromkeys(parts)):
            _check_name(part, "part")
            try:
                content = (self._root / job / f"{part}.json").read_bytes()
            except FileNotFoundError:
                raise Problem(
                    "not-found",
                    404,
                    f"the transaction {transaction!r} has no part {part!r}; nothing was committed, "
                    "stage the part again",
                ) from None
            for item in orjson.loads(content):
                yield StagedSegment(position, item["file"], SegmentEntry(**item["entry"]))

    def _end(self, handle: EventStream, job: str) -> None:
        with self._guard:
            self._ended[job] = self._clock()
        abort_staged(handle.commits.files, handle.commits.directory, job)
        shutil.rmtree(self._root / job, ignore_errors=True)

    def _refuse_ended(self, handle: EventStream, job: str, transaction: str) -> None:
        if job in self._ended or f"job:{job}" in handle.commits.manifest.jobs:
            raise Problem(
                "transaction-ended",
                409,
                f"the transaction {transaction!r} was committed or dropped; use a new name",
            )


def _check_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"the name of a {what} has 1 to 128 letters, digits, '.', '_' or '-', found {name!r}"
        )
