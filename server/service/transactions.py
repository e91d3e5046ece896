"""Large appends in parts: staged by many writers, committed by one.

A Spark job sends each partition as a *part* (from any executor, perhaps twice), and its driver
commits the complete parts.  A part becomes sealed segments with index runs at once
(``ingest.sinks``), so a commit moves no events. ::

    <store>/streams/<s>/staging/<job>/...              staged segments
    <store>/server/transactions/<job>/<part>.json      the segments of a part

A job is ``<second of its first part, hexadecimal>-<hash of stream and transaction>``: the first
half gives its age, the second identifies it.  A commit is atomic, durable and idempotent: the store
records the last 256 transactions and the last version of every application.  A part of an ended
transaction is refused; but a restart forgets aborted ones, whose later parts are swept after a day.
Parts that overlap in time are merged on reads until compaction.
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

from ...core.append_result import AppendResult
from ...errors import ChronicleError, InvalidArgument
from ...ingest.sinks import Over, StoreSink
from ...store.segment_list import SegmentEntry
from ...store.staging import StagedSegment
from ..access.tokens import replace_file, server_directory
from ..http.replies import Problem

if TYPE_CHECKING:
    from ...catalog.store_catalog import StoreCatalog


logger = logging.getLogger("chronicle.server")

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class Commit:
    """The order of ``parts`` decides between events of equal time.  ``truncate`` removes all
    earlier events, ``over`` those of a range; a ``version`` not above the ``application``'s last
    does nothing.
    """

    parts: tuple[str, ...]
    truncate: bool = False
    over: Over | None = None
    application: str | None = None
    version: int | None = None


class Transactions:
    def __init__(self, catalog: StoreCatalog, clock: Callable[[], float] = time.time) -> None:
        self._catalog = catalog
        self._root = server_directory(catalog.path) / "transactions"
        self._clock = clock
        self._guard = threading.Lock()
        self._ended: dict[str, float] = {}

    def put(
        self, stream: str, transaction: str, part: str, batches: Iterator[pa.RecordBatch]
    ) -> dict[str, Any]:
        """Stage a part, replacing one of that name; raises ``Problem`` (409) if the transaction
        ended.
        """
        _check_name(part, "part")
        sink = self._sink(stream)
        with self._guard:  # parts that come at once have one job
            name = self._job(sink, transaction)
            self._refuse_ended(sink, name, transaction)
            job = sink.job(name)
            sink.prepare(job)
        try:
            staged = sink.stage(job, 0, batches)
        except ChronicleError:
            self._refuse_ended(sink, name, transaction)
            raise
        receipt = self._root / name / f"{part}.json"
        receipt.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(receipt, orjson.dumps([asdict(item) for item in staged]))
        return {
            "part": part,
            "rows": sum(item.entry.events for item in staged),
            "bytes": sum(item.entry.bytes for item in staged),
        }

    def commit(self, stream: str, transaction: str, wanted: Commit) -> AppendResult:
        """Commit the listed parts and drop the others; raises ``Problem`` (404)."""
        sink = self._sink(stream)
        job = self._job(sink, transaction)
        done = sink.outcome(wanted.application, wanted.version, job)
        if done is None:
            done = sink.commit(
                job,
                list(self._staged(job, transaction, wanted.parts)),
                truncate=wanted.truncate,
                over=wanted.over,
                application=wanted.application,
                version=wanted.version,
            )
        try:
            self._end(sink, job)
        except (ChronicleError, OSError) as error:
            logger.warning("%s: what %s staged is swept later: %s", stream, transaction, error)
        return done

    def abort(self, stream: str, transaction: str) -> None:
        sink = self._sink(stream)
        self._end(sink, self._job(sink, transaction))

    def sweep(self) -> None:
        oldest = self._clock() - 24 * 3600
        for name in self._catalog.streams():
            with contextlib.suppress(ChronicleError):
                for job in self._sink(name).sweep(self._clock):
                    shutil.rmtree(self._root / job, ignore_errors=True)
        with self._guard:
            for job in [job for job, ended in self._ended.items() if ended < oldest]:
                del self._ended[job]

    def _sink(self, stream: str) -> StoreSink:
        name = self._catalog.writer(stream, "write to").name
        return StoreSink(self._catalog.path, name, catalog=self._catalog)

    def _job(self, sink: StoreSink, transaction: str) -> str:
        _check_name(transaction, "transaction")
        identity = f"{sink.stream}\n{transaction}".encode()
        suffix = "-" + hashlib.sha256(identity).hexdigest()[:24]
        for job in (*self._ended, *sink.jobs(), *sink.staged_jobs()):
            if job.endswith(suffix):
                return job.removeprefix("job:")
        return f"{int(self._clock()):x}{suffix}"

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
                    f"the transaction {transaction!r} has no part {part!r}; nothing was committed, "
                    "stage the part again",
                ) from None
            for item in orjson.loads(content):
                yield StagedSegment(position, item["file"], SegmentEntry(**item["entry"]))

    def _end(self, sink: StoreSink, job: str) -> None:
        with self._guard:
            self._ended[job] = self._clock()
        sink.abort(job)
        shutil.rmtree(self._root / job, ignore_errors=True)

    def _refuse_ended(self, sink: StoreSink, job: str, transaction: str) -> None:
        if job in self._ended or f"job:{job}" in sink.jobs():
            raise Problem(
                "transaction-ended",
                f"the transaction {transaction!r} was committed or dropped; use a new name",
            )


def _check_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"the name of a {what} has 1 to 128 letters, digits, '.', '_' or '-', found {name!r}"
        )
