"""``Server``: the database, settings, limits and threads that the requests of one server share.
One per application, without globals, so that several can run in one process.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import HTTPConnection, Request

from ...api.database import catalog_of
from ...errors import ChronicleError, ReadOnlyStore, StreamNotFound
from ...store.files import RealFiles
from ...store.stream import EventStream
from ..access.auth import Authenticator, Principal, visible_to
from ..access.identity_provider import provider_of
from ..access.limits import ByteAccount, ByteBudget, Gate
from ..access.settings import Settings
from ..access.tokens import TokenFile, mark_guarded, server_directory
from ..http.replies import Problem
from ..http.streamed import Pace
from .answer_cache import AnswerCache
from .bodies import MEMORY_BYTES, Body, receive
from .feeds import Feed, Followers
from .gathering import Gathering
from .idempotency import IdempotencyKeys
from .jobs import Jobs
from .metrics import LIVE_GAUGES, Figures, LoadHistory, Metrics, Probe, StreamFigures
from .middleware import Drops
from .positions import PinnedSnapshots, Positions
from .query_log import QueryLog, RunningQueries, RunningQuery, telling
from .transactions import Transactions

if TYPE_CHECKING:
    from ...api.database import Database
    from ...formats.isolated import IsolatedReader
    from ...query.contract.access import Tell
    from ...query.engine import QueryEngine


logger = logging.getLogger("chronicle.server")
Result = TypeVar("Result")
BUILDS_AT_ONCE = 2
FOLLOW_THREADS = 4
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
    "deleted_events",
    "garbage_files",
    "garbage_bytes",
    "positions_dropped",
    "cold_segments",
    "cold_bytes",
    "due_segments",
    "due_bytes",
    "moved_segments",
    "moved_bytes",
)


class Server:
    """A database being served; whoever opened it closes it."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database = database
        self.catalog = catalog_of(database)
        self.catalog.serve_only_streams()
        self.settings = settings
        writes = database.mode != "r"
        self.directory = server_directory(database.path, create=True) if writes else None
        self.metrics = Metrics()
        self.tokens = TokenFile(database.path, settings.token_file)
        self.provider = provider_of(settings)
        self.authenticator = Authenticator(settings, self.tokens, self.provider)
        self.probe = Probe(self.catalog)
        self.query_log = QueryLog(settings.query_log_entries, settings.slow_query_ms)
        self.running = RunningQueries(self.query_log)
        self.drops = Drops()
        self.ready = False
        self.prepared = True
        self.stopping = False
        self.on_drain: list[Callable[[float], None]] = []
        """Called on the event loop with the seconds that running requests have to end."""
        self._reader: IsolatedReader | None = None
        self._one_reader = threading.Lock()
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
        self.followers_gate = Gate("followers", settings.max_followers, 0, wait_s)
        self.followers = Followers()
        self.gathering = Gathering(self)
        self.bodies = Gate("uploads", settings.max_concurrent_uploads, 0, wait_s)
        self.uploads = ByteBudget(settings.max_upload_memory_bytes)
        self.snapshots = PinnedSnapshots(
            self.catalog.snapshot, settings.snapshot_ttl_ms / 1000, settings.max_snapshots
        )
        self._keys = (
            None
            if self.directory is None
            else IdempotencyKeys(
                RealFiles(str(self.directory)),
                settings.idempotency_hours * 3600.0,
                self.version_of,
                self.sound,
            )
        )
        self.answers = AnswerCache(
            self.directory,
            settings.max_result_bytes,
            settings.result_ttl_ms / 1000,
        )
        self.jobs = Jobs(database.path, durable=database.mode != "r")
        self.transactions = Transactions(self.catalog)
        self.positions = Positions(
            self.catalog, settings.position_ttl_hours * 3600.0, settings.max_positions
        )
        self._answers = ThreadPoolExecutor(
            settings.max_concurrent_queries + settings.max_concurrent_reads, "chronicle-answer"
        )
        self._workers = ThreadPoolExecutor(settings.max_concurrent_appends + 8, "chronicle-work")
        self._follows = ThreadPoolExecutor(FOLLOW_THREADS, "chronicle-follow")
        self._builders = ThreadPoolExecutor(BUILDS_AT_ONCE, "chronicle-build")
        self.load = LoadHistory(self)
        self._watch()

    def _watch(self) -> None:
        watch = self.metrics.watch
        watch("queries_running", "Queries that run.", lambda: self.queries.running)
        watch("queries_waiting", "Queries that wait.", lambda: self.queries.waiting)
        watch("reads_running", "Reads of events.", lambda: self.reads.running)
        watch("followers_running", "Feeds that are followed.", lambda: len(self.followers))
        watch(
            "uploads_running", "Bodies of events received and stored.", lambda: self.bodies.running
        )
        watch("appends_running", "Appends.", lambda: self.appends.running)
        watch("upload_bytes", "Bytes held by uploads.", lambda: self.uploads.used)
        watch("snapshots_pinned", "Pinned versions of streams.", lambda: len(self.snapshots))
        watch("results_kept_bytes", "Answers kept as files.", lambda: self.answers.used)
        watch("idempotency_keys", "Remembered Idempotency-Keys.", lambda: len(self._keys or ()))
        self.metrics.watch_store(self.store_gauges)

    @property
    def keys(self) -> IdempotencyKeys:
        """Idempotency keys; raises ``ReadOnlyStore`` when the store is read-only here."""
        if self._keys is None:
            raise ReadOnlyStore(
                "the store is open for reading here; send what changes it to the server that writes"
            )
        return self._keys

    def require_writable(self) -> None:
        _ = self.keys

    @property
    def condition(self) -> str:
        if self.stopping:
            return "stopping"
        return "ready" if self.ready and self.prepared else "starting"

    def store_gauges(self) -> dict[str, float]:
        sums = dict.fromkeys(("streams", "streams_damaged", *STORE_GAUGES), 0.0)
        damaged = self.database.damaged()
        sums["streams_damaged"] += len(damaged)
        for name in self.database.streams():
            if name in damaged:
                continue
            try:
                stats = self.database.stream(name).stats()
            except ChronicleError:
                continue  # dropped meanwhile
            sums["streams"] += 1
            for key in STORE_GAUGES:
                value = stats.get(key, 0)
                sums[key] += len(value) if isinstance(value, (list, tuple)) else value
        moving = self.catalog.store.moving()
        since = None if moving is None else moving["failing_since"]
        sums["moves_failed_total"] = 0.0 if moving is None else float(moving["failed_total"])
        sums["moves_failing_seconds"] = 0.0 if since is None else max(0.0, time.time() - since)
        return sums

    def index_figures(self, may_read: Callable[[str], bool]) -> StreamFigures:
        figures = {}
        for name in self.database.streams():
            if may_read(name):
                with contextlib.suppress(ChronicleError):  # dropped meanwhile
                    figures[name] = self.database.stream(name).indexes()
        return figures

    def live_figures(self, may_read: Callable[[str], bool]) -> dict[str, Figures]:
        figures = {}
        for name in self.database.live_queries():
            if may_read(name):
                with contextlib.suppress(ChronicleError):  # dropped meanwhile
                    status = self.database.live(name).status()
                    figures[name] = {
                        **{each: float(status.get(each) or 0) for each in LIVE_GAUGES},
                        **self.catalog.live_statements.figures(name),
                        "lag_seconds": float(status["lag_ms"] or 0) / 1000,
                        "running": float(status["state"] in ("running", "catching up")),
                    }
        return figures

    def version_of(self, stream: str) -> int | None:
        try:
            return self.catalog.snapshot(stream).version
        except StreamNotFound:
            return None

    @property
    def reader(self) -> IsolatedReader | None:
        """Reads bodies in worker processes; None without isolation."""
        with self._one_reader:
            if self._reader is None and self.settings.isolation != "none":
                from ...formats.isolated import IsolatedReader

                self._reader = IsolatedReader(self.settings.body_memory_bytes)
            return self._reader

    def prepare(self) -> None:
        """Load the query engine and start worker processes, then be ready; blocks."""
        try:
            if self.reader is not None:
                self.reader.pool.warm(WARM_WORKERS)
            if self.catalog.isolation == "process":
                self.catalog.engine.executor.warm(WARM_WORKERS)
            with contextlib.closing(self.database.sql("SELECT 1")) as result:
                result.arrow()
            # later collections need not traverse the libraries' objects
            gc.collect()
            gc.freeze()
        except Exception:
            if not self.stopping:
                logger.exception("not everything could be prepared; requests load what they need")
        self.prepared = True

    def close_workers(self) -> None:
        with self._one_reader:
            reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def tell(self, principal: Principal) -> Tell:
        return telling(self.running, self.query_log, self.settings, principal)

    def engine_for(self, principal: Principal) -> QueryEngine:
        """What runs SQL for a principal, who sees only some streams and rows of system tables."""
        return self.catalog.engine.seen_by(visible_to(principal), self.tell(principal))

    def sound(self, stream: str) -> bool:
        try:
            handle = self.catalog.handle(stream)
        except StreamNotFound:  # it was not created
            return True
        return isinstance(handle, EventStream) and handle.sound

    def forget_stream(self, stream: str) -> None:
        self.snapshots.forget(stream)
        self.answers.clear()
        if self._keys is not None:
            self._keys.forget_stream(stream)

    async def call(self, function: Callable[..., Result], *args: object) -> Result:
        """Run blocking work of moderate length in a thread."""
        return await asyncio.wrap_future(self._put(self._workers, function, *args))

    async def follow(self, take: Callable[[], Result]) -> Result:
        return await asyncio.wrap_future(self._put(self._follows, take))

    async def close_feed(self, feed: Feed) -> None:
        with contextlib.suppress(Problem):  # the threads have ended
            await self.follow(feed.close)

    async def read(self, client: str, function: Callable[[], Result]) -> Result:
        """Run blocking work that reads events, in a read slot."""
        async with self.reads.held(client):
            return await self.call(function)

    @contextlib.asynccontextmanager
    async def queried(
        self, request_id: str, text: str, principal: Principal
    ) -> AsyncIterator[RunningQuery]:
        """A query in a slot, in the list of running ones for the block."""
        async with self.queries.held(principal.client):
            query = self.running.add(request_id, "query", text, principal)
            try:
                yield query
            finally:
                self.running.remove(query)

    async def build(self, function: Callable[[], Result]) -> Result:
        """Run blocking work that may take minutes in a thread pool of its own."""
        return await asyncio.wrap_future(self._put(self._builders, function))

    def _put(
        self, threads: ThreadPoolExecutor, function: Callable[..., Result], *args: object
    ) -> Future[Result]:
        try:
            return threads.submit(function, *args)
        except RuntimeError:  # the threads have ended
            raise Problem("not-ready", "the server is stopping; ask again") from None

    def receiving(
        self,
        request: Request,
        client: str,
        body_max: int,
        *,
        staged: bool = False,
        hashed: bool = False,
    ) -> AbstractAsyncContextManager[Body]:
        """Receive a request's body, for the block."""
        pace, directory = Pace.of(self.settings), self.directory
        body = partial(
            receive, request, body_max=body_max, pace=pace, directory=directory, hashed=hashed
        )
        return self.uploading(client, body, staged=staged)

    @contextlib.asynccontextmanager
    async def uploading(
        self,
        client: str,
        receive: Callable[[ByteAccount | None], Awaitable[Body]],
        *,
        staged: bool = False,
    ) -> AsyncIterator[Body]:
        """The body that ``receive`` makes, for the block; holds only an upload slot, so slow
        clients delay no append.  The memory of a ``staged`` one is bounded.
        """
        async with self.bodies.held(client):
            with self.uploads.account(client) as account:
                if staged:
                    account.hold(MEMORY_BYTES)
                with contextlib.closing(await receive(None if staged else account)) as body:
                    yield body

    def submit(self, work: Callable[[], None]) -> None:
        """Compute an answer in a thread."""
        self._put(self._answers, work)

    def start(self) -> None:
        """Clean up after an earlier process, then accept requests; blocks."""
        if self.database.mode != "r" and (self.tokens.any() or self.provider is not None):
            mark_guarded(self.database.path)
        self.tidy()
        self.ready = True

    def tidy(self) -> None:
        self.snapshots.sweep()
        self.answers.sweep()
        if self.provider is not None:
            self.provider.refresh()
        if self._keys is not None:
            self.tokens.save_uses()
            self._keys.tidy()
            self.transactions.sweep()
            self.positions.sweep()

    def drain(self, seconds: float) -> None:
        """Report that the server stops; cancel queries after ``seconds``.  On the event loop."""
        self.stopping = True
        self.followers.end()
        for begin in self.on_drain:
            begin(seconds)
        asyncio.get_running_loop().call_later(seconds, self.running.cancel_all)

    def stop(self) -> None:
        """Cancel running queries and close everything but the database; blocks."""
        self.stopping = True
        self.ready = False
        self.running.cancel_all()
        self._answers.shutdown(wait=True, cancel_futures=True)
        self._follows.shutdown(wait=True)
        self.jobs.stop()
        self._workers.shutdown(wait=True)
        self._builders.shutdown(wait=True, cancel_futures=True)
        self.close_workers()
        self.answers.clear()
        if self._keys is not None:
            self.tokens.save_uses()
            self._keys.close()


def server_of(connection: HTTPConnection) -> Server:
    server: Server = connection.app.state.server
    return server
