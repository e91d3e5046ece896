"""The client for asyncio: the blocking client, each call in a thread
(``docs/decisions/0017-async-client.md``).

Databases, streams, live queries, jobs and results have the methods of the blocking ones, awaited;
what is a property there and sends a request is a method here.  Cancelling a task shuts down the
connection that its call waits on, which ends the query on the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import pyarrow as pa

from ..query.contract.result import Result
from ..schema import StreamSchema
from .database import RemoteDatabase
from .live import RemoteFeed, RemoteJob, RemoteLive
from .stream import RemoteStream
from .transport import RunningCall

if TYPE_CHECKING:
    from ..query.contract.explanation import Plan

P = ParamSpec("P")
B = TypeVar("B")
T = TypeVar("T")

THREADS_MAX = 4096
"""Calls that wait at a time; each has a thread."""


class Threads:
    """Runs calls of a blocking client."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS_MAX, "chronicle-client")

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = RunningCall()
        work = partial(call.run, partial(function, *args, **kwargs))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except asyncio.CancelledError:
            call.cancel()
            raise


class Awaited(Generic[B]):
    """An object for asyncio over one of the blocking client."""

    def __init__(self, threads: Threads, blocking: B) -> None:
        self._threads = threads
        self._blocking = blocking

    def __repr__(self) -> str:
        return repr(self._blocking)


@overload
def awaited(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...


@overload
def awaited(
    method: Callable[Concatenate[Any, P], Any], result: type[T]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...


def awaited(method: Any, result: Any = None) -> Any:
    """The method of an ``Awaited`` object that runs a blocking one; ``result`` wraps its result."""

    @wraps(method)
    async def waits(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = await self._threads.run(method, self._blocking, *args, **kwargs)
        return answer if result is None else result(self._threads, answer)

    return waits


class AsyncRows(Awaited[pa.RecordBatchReader]):
    """Batches of a finite answer."""

    @property
    def schema(self) -> pa.Schema:
        return self._blocking.schema

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        async for batch in _each(self._threads, self._blocking):
            yield batch

    close = awaited(pa.RecordBatchReader.close)


async def _each(threads: Threads, batches: Any) -> AsyncIterator[pa.RecordBatch]:
    while (batch := await threads.run(next, batches, None)) is not None:
        yield batch


class AsyncClosing:
    """Closed at the end of ``async with``."""

    close: Callable[..., Coroutine[Any, Any, None]]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncTail(AsyncClosing):
    """An async iterator of record batches and a context manager; first use sends the request."""

    def __init__(self, threads: Threads, after: str | int, begin: Callable[[], RemoteFeed]) -> None:
        self._threads = threads
        self._after = str(after)
        self._begin = begin
        self._feed: RemoteFeed | None = None

    @property
    def position(self) -> str:
        """Pass it as ``after`` to resume behind the last batch."""
        return self._after if self._feed is None else self._feed.position

    @property
    def schema(self) -> pa.Schema | None:
        """Schema of the batches; None before the first answer."""
        return None if self._feed is None else self._feed.schema

    def __aiter__(self) -> AsyncTail:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        if self._feed is None:
            self._feed = await self._threads.run(self._begin)
        batch = await self._threads.run(next, self._feed, None)
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def close(self) -> None:
        if self._feed is not None:
            self._feed.close()

    async def __aenter__(self) -> AsyncTail:
        self._feed = self._feed or await self._threads.run(self._begin)
        return self


class AsyncStream(Awaited[RemoteStream]):
    """A stream of a server for asyncio; its methods are those of ``RemoteStream``, awaited."""

    @property
    def name(self) -> str:
        return self._blocking.name

    @property
    def schema(self) -> pa.Schema:
        return self._blocking.schema

    @property
    def event_schema(self) -> StreamSchema:
        """The schema with its time attribute and storage types."""
        return self._blocking.event_schema

    @property
    def time(self) -> str:
        return self._blocking.time

    async def count(self) -> int:
        return await self._threads.run(lambda: self._blocking.count)

    async def time_range(self) -> tuple[Any, Any] | None:
        return await self._threads.run(lambda: self._blocking.time_range)

    stats = awaited(RemoteStream.stats)
    append = awaited(RemoteStream.append)
    delete = awaited(RemoteStream.delete)
    update = awaited(RemoteStream.update)
    add_column = awaited(RemoteStream.add_column)
    widen_column = awaited(RemoteStream.widen_column)
    drop_column = awaited(RemoteStream.drop_column)
    rename_column = awaited(RemoteStream.rename_column)
    set_options = awaited(RemoteStream.set_options)
    create_index = awaited(RemoteStream.create_index)
    drop_index = awaited(RemoteStream.drop_index)
    indexes = awaited(RemoteStream.indexes)
    aggregate = awaited(RemoteStream.aggregate)
    keep_position = awaited(RemoteStream.keep_position)
    drop_position = awaited(RemoteStream.drop_position)
    scan = awaited(RemoteStream.scan, AsyncRows)
    changes = awaited(RemoteStream.changes, AsyncRows)

    def tail(
        self,
        after: str | int = "now",
        *,
        follow: bool = True,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> AsyncTail:
        """As ``RemoteStream.tail``, for ``async with`` and ``async for``."""
        begin = partial(self._blocking.tail, after, follow=follow, where=where, columns=columns)
        return AsyncTail(self._threads, after, begin)


class AsyncLive(Awaited[RemoteLive]):
    """A live query for asyncio; its methods are those of ``RemoteLive``, awaited."""

    def __init__(self, threads: Threads, blocking: RemoteLive) -> None:
        super().__init__(threads, blocking)
        self.name, self.sql, self.sink = blocking.name, blocking.sql, blocking.sink

    status = awaited(RemoteLive.status)
    net = awaited(RemoteLive.net)
    pause = awaited(RemoteLive.pause)
    resume = awaited(RemoteLive.resume)
    refresh = awaited(RemoteLive.refresh)
    verify = awaited(RemoteLive.verify)
    drop = awaited(RemoteLive.drop)

    def rows(self, after: int = 0, follow: bool = False) -> AsyncTail:
        return AsyncTail(self._threads, after, partial(self._blocking.rows, after, follow))


class AsyncJob(Awaited[RemoteJob]):
    """A job for asyncio; its methods are those of ``RemoteJob``, awaited."""

    def __init__(self, threads: Threads, blocking: RemoteJob) -> None:
        super().__init__(threads, blocking)
        self.id, self.kind = blocking.id, blocking.kind

    status = awaited(RemoteJob.status)
    wait = awaited(RemoteJob.wait)
    cancel = awaited(RemoteJob.cancel)


class AsyncResult(AsyncClosing, Awaited[Result]):
    """Rows of one statement, fetched as they are taken; its methods are those of ``Result``,
    awaited.

    Closing it, or leaving ``async with``, ends the query.
    """

    @property
    def schema(self) -> pa.Schema:
        return self._blocking.schema

    @property
    def columns(self) -> list[str]:
        return self._blocking.columns

    async def plan(self) -> Plan | None:
        return await self._threads.run(lambda: self._blocking.plan)

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows in batches, once, in bounded memory."""
        async for batch in _each(self._threads, self._blocking.batches()):
            yield batch

    arrow = awaited(Result.arrow)
    df = awaited(Result.df)
    pl = awaited(Result.pl)
    fetchall = awaited(Result.fetchall)
    fetchone = awaited(Result.fetchone)
    close = awaited(Result.close)

    async def __aiter__(self) -> AsyncIterator[tuple[Any, ...]]:
        for row in await self.fetchall():
            yield row


class AsyncDatabase(AsyncClosing, Awaited[RemoteDatabase]):
    """A server's database for asyncio, made by ``chronicle.aconnect``; an async context manager.

    Its methods are those of ``RemoteDatabase``, awaited.
    """

    @property
    def url(self) -> str:
        return self._blocking.url

    create_stream = awaited(RemoteDatabase.create_stream, AsyncStream)
    stream = awaited(RemoteDatabase.stream, AsyncStream)
    streams = awaited(RemoteDatabase.streams)
    damaged = awaited(RemoteDatabase.damaged)
    drop_stream = awaited(RemoteDatabase.drop_stream)
    rename_stream = awaited(RemoteDatabase.rename_stream)
    sql = awaited(RemoteDatabase.sql, AsyncResult)
    explain = awaited(RemoteDatabase.explain)
    create_live = awaited(RemoteDatabase.create_live, AsyncLive)
    live = awaited(RemoteDatabase.live, AsyncLive)
    create_rollup = awaited(RemoteDatabase.create_rollup, AsyncLive)
    rollup = awaited(RemoteDatabase.rollup, AsyncLive)
    rollups = awaited(RemoteDatabase.rollups)
    live_queries = awaited(RemoteDatabase.live_queries)
    run_live = awaited(RemoteDatabase.run_live)
    start_job = awaited(RemoteDatabase.start_job, AsyncJob)
    job = awaited(RemoteDatabase.job, AsyncJob)
    jobs = awaited(RemoteDatabase.jobs)
    backups = awaited(RemoteDatabase.backups)
    create_token = awaited(RemoteDatabase.create_token)
    tokens = awaited(RemoteDatabase.tokens)
    rotate_token = awaited(RemoteDatabase.rotate_token)
    revoke_token = awaited(RemoteDatabase.revoke_token)
    revoke_all_tokens = awaited(RemoteDatabase.revoke_all_tokens)
    close = awaited(RemoteDatabase.close)

    def __await__(self) -> Generator[Any, None, AsyncDatabase]:
        return self._itself().__await__()

    async def _itself(self) -> AsyncDatabase:
        return self
