"""The asyncio version of ``database``, ``stream`` and ``live``, by the steps of the same methods.
``count`` and ``time_range`` of a stream are methods here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import ConnectionFailed, InvalidArgument
from ..query.contract.result import Result
from ..query.sql.first_word import only_reads
from . import calls
from .async_transport import AsyncFeed, AsyncRows, AsyncTransport
from .calls import Call, Parameters
from .database import RemoteDatabase
from .live import Following, JobBase, LiveQueryBase, RemoteJob, RemoteLive
from .steps import awaited
from .stream import RemoteStream, StreamBase

if TYPE_CHECKING:
    from ..query.contract.explanation import Plan


class AsyncTail:
    """An async iterator of record batches and a context manager; first use sends the request."""

    def __init__(self, transport: AsyncTransport, call: Call) -> None:
        self._transport = transport
        self._following = Following(call, transport.where)
        self._feed: AsyncFeed | None = None
        self._told: AsyncIterator[tuple[pa.RecordBatch, object]] | None = None
        self._closed = False

    @property
    def position(self) -> str:
        """Pass it as ``after`` to resume behind the last batch."""
        return self._following.place

    @property
    def schema(self) -> pa.Schema | None:
        """Schema of the batches; None before the first answer."""
        return None if self._feed is None else self._feed.schema

    def __aiter__(self) -> AsyncTail:
        return self

    async def _connect(self) -> None:
        self._feed = await self._transport.feed(self._following.call())
        self._told = aiter(self._feed)

    async def __anext__(self) -> pa.RecordBatch:
        following = self._following
        if self._feed is None and not (self._closed or following.ended):
            await self._connect()  # errors of the request itself are raised at once
        while not (self._closed or following.ended):
            try:
                if self._feed is None:
                    await self._connect()
                assert self._told is not None
                async for told in self._told:
                    batch = following.take(told)  # type: ignore[arg-type]
                    if batch is not None:
                        return batch
                broken = ConnectionFailed(f"{self._transport.where} ended the feed")
            except ConnectionFailed as error:
                broken = error
            await self._drop()
            if not (self._closed or following.ended):
                await asyncio.sleep(following.pause(broken))
        raise StopAsyncIteration

    async def _drop(self) -> None:
        feed, self._feed, self._told = self._feed, None, None
        if feed is not None:
            await feed.close()

    async def close(self) -> None:
        self._closed = True
        await self._drop()

    async def __aenter__(self) -> AsyncTail:
        if self._feed is None:
            await self._connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncStream(StreamBase):
    """A stream of a server for asyncio; its methods are those of ``RemoteStream``, awaited."""

    def __init__(self, transport: AsyncTransport, name: str, told: Any) -> None:
        super().__init__(name, told, transport.where)
        self._transport = transport

    count = awaited(RemoteStream._count)
    time_range = awaited(RemoteStream._time_range)
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
        return AsyncTail(self._transport, self._calls.tail(after, follow, where, columns))


class AsyncLive(LiveQueryBase):
    """A live query for asyncio; its methods are those of ``RemoteLive``, awaited."""

    def __init__(self, transport: AsyncTransport, name: str, told: Any) -> None:
        super().__init__(name, told, transport.where)
        self._transport = transport

    status = awaited(RemoteLive.status)
    net = awaited(RemoteLive.net)
    pause = awaited(RemoteLive.pause)
    resume = awaited(RemoteLive.resume)
    refresh = awaited(RemoteLive.refresh)
    verify = awaited(RemoteLive.verify)
    drop = awaited(RemoteLive.drop)

    def rows(self, after: int = 0, follow: bool = False) -> AsyncTail:
        return AsyncTail(self._transport, calls.live_rows(self.name, after, follow))


class AsyncJob(JobBase):
    """A job for asyncio; its methods are those of ``RemoteJob``, awaited."""

    def __init__(self, transport: AsyncTransport, told: Any) -> None:
        super().__init__(told, transport.where)
        self._transport = transport

    status = awaited(RemoteJob.status)
    wait = awaited(RemoteJob.wait)
    cancel = awaited(RemoteJob.cancel)


class AsyncDatabase:
    """A server's database for asyncio, made by ``chronicle.aconnect``; an async context manager.

    Its methods are those of ``RemoteDatabase``, awaited.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    @property
    def url(self) -> str:
        return self._transport.where

    def _stream(self, name: str, told: Any) -> AsyncStream:
        return AsyncStream(self._transport, name, told)

    def _live(self, name: str, told: Any) -> AsyncLive:
        return AsyncLive(self._transport, name, told)

    def _job(self, told: Any) -> AsyncJob:
        return AsyncJob(self._transport, told)

    create_stream = awaited(RemoteDatabase.create_stream, AsyncStream)
    stream = awaited(RemoteDatabase.stream, AsyncStream)
    streams = awaited(RemoteDatabase.streams)
    damaged = awaited(RemoteDatabase.damaged)
    drop_stream = awaited(RemoteDatabase.drop_stream)
    rename_stream = awaited(RemoteDatabase.rename_stream)
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

    async def sql(
        self,
        text: str,
        params: Parameters | None = None,
        timeout: float | None = None,
        *,
        read_only: bool = False,
    ) -> AsyncResult:

        rows = await self._transport.rows(calls.query(text, params, timeout, read_only=read_only))
        if not only_reads(text):
            return AsyncResult(rows, None)
        return AsyncResult(rows, lambda: self.explain(text, params=params, timeout=timeout))

    async def close(self) -> None:
        await self._transport.close()

    def __await__(self) -> Generator[Any, None, AsyncDatabase]:
        return self._itself().__await__()

    async def _itself(self) -> AsyncDatabase:
        return self

    async def __aenter__(self) -> AsyncDatabase:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<chronicle.Database of {self.url}>"


class AsyncResult:
    """Rows of one statement, fetched as they are taken; its methods are those of ``Result``,
    awaited.

    Closing it, or leaving ``async with``, ends the query.
    """

    def __init__(self, rows: AsyncRows, explain: Callable[[], Awaitable[Plan]] | None) -> None:
        self._rows = rows
        self._explain = explain
        self._whole: Result | None = None
        self._started = False

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    async def plan(self) -> Plan | None:
        return None if self._explain is None else await self._explain()

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows in batches, once, in bounded memory."""
        if self._started:
            raise InvalidArgument(
                "the rows of this result were taken as batches; run the statement again"
            )
        self._started = True
        async for batch in self._rows:
            yield batch

    async def _result(self) -> Result:
        if self._whole is None:
            taken = [batch async for batch in self.batches()]
            self._whole = Result.of_table(pa.Table.from_batches(taken, self.schema))
        return self._whole

    async def arrow(self) -> pa.Table:
        return (await self._result()).arrow()

    async def df(self) -> Any:
        return (await self._result()).df()

    async def pl(self) -> Any:
        return (await self._result()).pl()

    async def fetchall(self) -> list[tuple[Any, ...]]:
        return (await self._result()).fetchall()

    async def fetchone(self) -> tuple[Any, ...] | None:
        return (await self._result()).fetchone()

    async def close(self) -> None:
        await self._rows.close()

    async def __aiter__(self) -> AsyncIterator[tuple[Any, ...]]:
        for row in await self.fetchall():
            yield row

    async def __aenter__(self) -> AsyncResult:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<chronicle.AsyncResult ({', '.join(self.columns)})>"
