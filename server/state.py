"""What the requests of one server share.

Purpose
    A :class:`Server` is made by the application factory and found by routes through
    :func:`server_of`: the database, the settings, the gates, the threads.

Limits
    One per application; nothing here is global, so tests run many side by side.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import HTTPConnection

from ..errors import ChronicleError, ReadOnlyStore, StreamNotFound
from .guard import Guard
from .idempotency import IdempotencyKeys
from .limits import ByteBudget, Gate
from .metrics import Metrics, StreamFigures
from .pipe import Pipe
from .positions import Positions
from .problems import Problem
from .running import RunningQueries
from .settings import Settings
from .snapshots import PinnedSnapshots
from .tokens import TokenFile
from .transactions import Transactions

if TYPE_CHECKING:
    from ..database import Database
    from ..formats.isolated import IsolatedReader

__all__ = ["Server", "server_of"]

logger = logging.getLogger("chronicle.server")
Result = TypeVar("Result")
BUILDS_AT_ONCE = 2
WARM_WORKERS = 2
TIDY_EVERY_S = 60.0
STORE_GAUGES = (
    "events",
    "bytes",
    "log_bytes",
    "segments",
    "tail_events",
    "late_runs",
    "late_buffered",
    "late_total",
    "dirty_ranges",
    "dropped_events",
)
"""Figures of ``Stream.stats()`` that are summed over all streams; of lists, the length."""


class Server:
    """A database being served.

    Parameters
    ----------
    database : Database
        Open; whoever opened it closes it.
    settings : Settings
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database = database
        self.settings = settings
        self.metrics = Metrics()
        self.tokens = TokenFile(database.path, settings.token_file)
        self.guard = Guard(settings, self.tokens)
        self.running = RunningQueries()
        self.ready = False
        self.stopping = False
        wait_s = settings.queue_timeout_ms / 1000
        self.queries = Gate(
            "queries",
            settings.max_concurrent_queries,
            settings.max_waiting_queries,
            wait_s,
            settings.max_client_queries,
        )
        self.reads = Gate(
            "reads",
            settings.max_concurrent_reads,
            settings.max_waiting_queries,
            wait_s,
            settings.max_client_queries,
        )
        self.appends = Gate(
            "appends", settings.max_concurrent_appends, settings.max_waiting_queries * 4, wait_s
        )
        self.uploads = ByteBudget(settings.max_upload_memory_bytes)
        self.snapshots = PinnedSnapshots(
            database.snapshot, settings.snapshot_ttl_ms / 1000, settings.max_snapshots
        )
        self._keys = (
            None
            if database.mode == "r"
            else IdempotencyKeys(
                database.path, settings.idempotency_hours * 3600.0, self.version_of
            )
        )
        self.transactions = Transactions(database)
        self.positions = Positions(
            database, settings.position_ttl_hours * 3600.0, settings.max_positions
        )
        self._answers = ThreadPoolExecutor(
            settings.max_concurrent_queries + settings.max_concurrent_reads, "chronicle-answer"
        )
        self._workers = ThreadPoolExecutor(settings.max_concurrent_appends + 8, "chronicle-work")
        self._builders = ThreadPoolExecutor(BUILDS_AT_ONCE, "chronicle-build")
        self._watch()

    def _watch(self) -> None:
        metrics = self.metrics
        metrics.watch(
            "chronicle_queries_running", "Queries that run.", lambda: self.queries.running
        )
        metrics.watch(
            "chronicle_queries_waiting", "Queries that wait.", lambda: self.queries.waiting
        )
        metrics.watch("chronicle_reads_running", "Reads of events.", lambda: self.reads.running)
        metrics.watch("chronicle_appends_running", "Appends.", lambda: self.appends.running)
        metrics.watch("chronicle_upload_bytes", "Bytes held by uploads.", lambda: self.uploads.used)
        metrics.watch(
            "chronicle_snapshots_pinned", "Pinned versions of streams.", lambda: len(self.snapshots)
        )
        metrics.watch(
            "chronicle_idempotency_keys",
            "Remembered Idempotency-Keys.",
            lambda: len(self._keys or ()),
        )
        metrics.watch_store(self.store_gauges)

    @property
    def keys(self) -> IdempotencyKeys:
        """Remembered requests; raises :class:`ReadOnlyStore` when nothing can be appended here."""
        if self._keys is None:
            raise ReadOnlyStore(
                "the store is open for reading here; send what changes it to the server that writes"
            )
        return self._keys

    def store_gauges(self) -> dict[str, float]:
        """Sums over all streams of the numbers in their ``stats()``."""
        sums = dict.fromkeys(("streams", *STORE_GAUGES), 0.0)
        for name in self.database.streams():
            try:
                stats = self.database.stream(name).stats()
            except ChronicleError:
                continue  # dropped a moment ago
            sums["streams"] += 1
            for key in STORE_GAUGES:
                value = stats.get(key, 0)
                sums[key] += len(value) if isinstance(value, (list, tuple)) else value
        return sums

    def index_figures(self, may_read: Callable[[str], bool]) -> StreamFigures:
        """The figures of the indexes of those streams that may be read."""
        found = {}
        for name in self.database.streams():
            if may_read(name):
                with contextlib.suppress(ChronicleError):  # dropped a moment ago
                    found[name] = self.database.stream(name).indexes()
        return found

    def version_of(self, stream: str) -> int | None:
        """The present version of a stream; None when there is none."""
        try:
            with self.database.snapshot(stream) as snapshot:
                return int(snapshot.version)
        except StreamNotFound:
            return None

    @cached_property
    def reader(self) -> IsolatedReader | None:
        """What reads bodies outside of this process; None where that is not wanted."""
        if self.settings.isolation == "none":
            return None
        from ..formats.isolated import IsolatedReader

        return IsolatedReader(self.settings.body_memory_bytes)

    def warm_workers(self) -> None:
        """Have worker processes wait for work; blocks until they do."""
        if self.reader is not None:
            self.reader.pool.warm(WARM_WORKERS)
        self.database.warm_workers(WARM_WORKERS)

    def close_workers(self) -> None:
        """End the processes that read bodies; those of queries are the database's."""
        reader = self.__dict__.pop("reader", None)
        if reader is not None:
            reader.close()

    def forget_stream(self, stream: str) -> None:
        """Let go of everything that was kept for a stream that is no more."""
        self.snapshots.forget(stream)
        if self._keys is not None:
            self._keys.forget_stream(stream)

    async def call(self, function: Callable[..., Result], *args: object) -> Result:
        """Run blocking work of moderate length in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, function, *args)

    async def build(self, function: Callable[[], Result]) -> Result:
        """Run blocking work that may take minutes, a few at a time, out of the others' way."""
        return await asyncio.get_running_loop().run_in_executor(self._builders, function)

    def submit(self, pipe: Pipe, work: Callable[[], None]) -> Future[BaseException | None]:
        """Compute an answer in a thread; its error goes into the pipe and is the result."""

        def run() -> BaseException | None:
            try:
                work()
            except BaseException as error:
                if not isinstance(error, (ChronicleError, Problem)):
                    logger.exception("an answer failed")
                pipe.end(error)
                return error
            pipe.end()
            return None

        return self._answers.submit(run)

    def start(self) -> None:
        """Clear away what an earlier process left, and open the door; blocks."""
        self.tidy()
        self.ready = True

    def tidy(self) -> None:
        """Let go of what nobody has used for too long; blocks."""
        self.snapshots.sweep()
        if self._keys is not None:
            self.transactions.sweep()
            self.positions.sweep()

    def drain(self, seconds: float) -> None:
        """Be seen as stopping, and end what still runs after some time; on the event loop."""
        self.stopping = True
        asyncio.get_running_loop().call_later(seconds, self.running.cancel_all)

    def stop(self) -> None:
        """End what runs and let go of everything but the database; blocks."""
        self.stopping = True
        self.ready = False
        self.running.cancel_all()
        self._answers.shutdown(wait=True, cancel_futures=True)
        self._workers.shutdown(wait=True)
        self._builders.shutdown(wait=True, cancel_futures=True)
        self.close_workers()
        self.snapshots.close()
        if self._keys is not None:
            self._keys.close()


def server_of(connection: HTTPConnection) -> Server:
    """The server that a request came to."""
    server: Server = connection.app.state.server
    return server
