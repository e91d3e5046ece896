"""The client for asyncio: HTTP over httpx2 (``docs/decisions/0017-async-client.md``), with the
rules of ``transport``; databases, streams, live queries and jobs by the steps of the blocking
methods.  ``count`` and ``time_range`` of a stream are methods here.  Cancelling a task closes its
connection, which ends the query on the server.  One event loop for each transport.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import ConnectionFailed, InvalidArgument, MissingDependency, StoreClosed
from ..query.contract.result import Result
from ..query.sql.first_word import only_reads
from . import calls
from .calls import Call, Parameters
from .database import RemoteDatabase
from .live import Following, JobBase, LiveQueryBase, RemoteJob, RemoteLive
from .steps import awaited
from .stream import RemoteStream, StreamBase
from .transport import (
    ARROW,
    IDLE_S,
    JSON,
    RETRIES,
    TIMEOUT_S,
    TRUNCATED,
    ArrowDecoder,
    Refusal,
    Told,
    address_of,
    arrow_chunks,
    cut_error,
    pauses,
    refusal,
)

if TYPE_CHECKING:
    import httpx2

    from ..query.contract.explanation import Plan

Body = Callable[[], bytes | AsyncIterator[bytes] | None]


class AsyncTransport:
    """Requests to one server; parameters as of ``Transport``."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = TIMEOUT_S,
        retries: int = RETRIES,
    ) -> None:
        try:
            import httpx2
        except ImportError:
            raise MissingDependency(
                "aconnect needs httpx2: pip install 'chronicle-eventstore[async]'; "
                "chronicle.connect does without"
            ) from None
        self.address = address_of(url)
        self.where = self.address.where
        self._retries = retries
        self._httpx = httpx2
        self._client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else None,
            verify=ssl.create_default_context() if self.address.secure else False,
            timeout=timeout,
            limits=httpx2.Limits(keepalive_expiry=IDLE_S),
            trust_env=False,  # like the blocking client
        )

    async def json(self, call: Call) -> Any:
        return await self._decoded(await self._request(call, JSON, lambda: call.payload))

    async def rows(self, call: Call) -> AsyncRows:
        return AsyncRows(await self.feed(call), call.may_be_cut)

    async def feed(self, call: Call) -> AsyncFeed:
        feed = AsyncFeed(self, await self._request(call, ARROW, lambda: call.payload))
        await feed.begin()
        return feed

    async def send(self, call: Call, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Any:

        async def pieces() -> AsyncIterator[bytes]:
            for piece in arrow_chunks(schema, batches):
                yield piece

        retries = self._retries if call.repeatable else 0
        return await self._decoded(await self._request(call, JSON, pieces, retries))

    async def close(self) -> None:
        await self._client.aclose()

    async def _request(
        self, call: Call, accepted: str, body: Body, retries: int | None = None
    ) -> httpx2.Response:
        if self._client.is_closed:
            raise StoreClosed(f"the connection to {self.where} was closed; connect again")
        for pause in pauses(self._retries if retries is None else retries):
            try:
                response = await self._sent(call, accepted, body())
                if response.status_code < 400:
                    return response
                refused = await self._refused(response)
            except (self._httpx.ConnectError, self._httpx.ConnectTimeout) as error:
                if pause is None:
                    raise self.address.away(error) from None
            except self._httpx.TransportError as error:
                if pause is None or not call.again:
                    raise self.address.broke_off(error) from None
            else:
                if pause is None or not refused.passes(call.again):
                    raise refused.error()
                pause = refused.pause_after(pause)
            await asyncio.sleep(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _sent(
        self, call: Call, accepted: str, body: bytes | AsyncIterator[bytes] | None
    ) -> httpx2.Response:
        headers = {"Accept": accepted, "Accept-Encoding": "identity", **call.headers}
        if body is not None:
            headers["Content-Type"] = JSON if isinstance(body, bytes) else ARROW
        url = self.where + self.address.base + call.target
        request = self._client.build_request(call.method, url, headers=headers, content=body)
        return await self._client.send(request, stream=True)

    async def _refused(self, response: httpx2.Response) -> Refusal:
        text = await response.aread()
        later = response.headers.get("Retry-After")
        return refusal(response.status_code, text, self.where, later)

    async def _decoded(self, response: httpx2.Response) -> Any:
        try:
            text = await response.aread()
        except self._httpx.TransportError as error:
            raise self.address.broke_off(error) from None
        return self.address.decoded(text)


class AsyncFeed:
    """Batches of an answer with their metadata."""

    schema: pa.Schema

    def __init__(self, transport: AsyncTransport, response: httpx2.Response) -> None:
        self.transport = transport
        self._response = response
        self._pieces = response.aiter_raw()
        self._held = b""
        self._decoder = ArrowDecoder()

    async def begin(self) -> None:
        try:
            while self._decoder.schema is None and not self._decoder.ended:
                await self._step()
            if self._decoder.schema is None:
                raise self.transport.address.broke_off("an Arrow stream without a schema")
        except BaseException:
            await self.close()
            raise
        self.schema = self._decoder.schema

    async def _step(self) -> Told | None:
        try:
            return self._decoder.feed(await self._exactly(self._decoder.needed))
        except (pa.ArrowInvalid, EOFError, self.transport._httpx.TransportError) as error:
            raise self.transport.address.broke_off(error) from None

    async def _exactly(self, size: int) -> bytes:
        pieces, length = [self._held], len(self._held)
        while length < size:
            piece = await anext(self._pieces, b"")
            if not piece:
                raise EOFError("its end is missing")
            pieces.append(piece)
            length += len(piece)
        whole = b"".join(pieces)
        self._held = whole[size:]
        return whole[:size]

    async def __aiter__(self) -> AsyncIterator[Told]:
        while not self._decoder.ended:
            batch = await self._step()
            if batch is not None:
                yield batch

    async def finish(self) -> None:
        async for _ in self._pieces:
            pass

    async def close(self) -> None:
        await self._response.aclose()


class AsyncRows:
    """Batches of a finite answer."""

    def __init__(self, feed: AsyncFeed, may_be_cut: bool) -> None:
        self.schema = feed.schema
        self._feed = feed
        self._may_be_cut = may_be_cut

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        try:
            async for batch, marks in self._feed:
                if TRUNCATED in marks and not self._may_be_cut:
                    raise cut_error(self._feed.transport.where)
                yield batch
            await self._feed.finish()
        finally:
            await self._feed.close()

    async def close(self) -> None:
        await self._feed.close()


class AsyncTail:
    """An async iterator of record batches and a context manager; first use sends the request."""

    def __init__(self, transport: AsyncTransport, call: Call) -> None:
        self._transport = transport
        self._following = Following(call, transport.where)
        self._feed: AsyncFeed | None = None
        self._marked: AsyncIterator[tuple[pa.RecordBatch, object]] | None = None
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
        self._marked = aiter(self._feed)

    async def __anext__(self) -> pa.RecordBatch:
        following = self._following
        if self._feed is None and not (self._closed or following.ended):
            await self._connect()  # errors of the request itself are raised at once
        while not (self._closed or following.ended):
            try:
                if self._feed is None:
                    await self._connect()
                assert self._marked is not None
                async for marked in self._marked:
                    batch = following.take(marked)  # type: ignore[arg-type]
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
        feed, self._feed, self._marked = self._feed, None, None
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

    def __init__(self, transport: AsyncTransport, name: str, described: Any) -> None:
        super().__init__(name, described, transport.where)
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

    def __init__(self, transport: AsyncTransport, name: str, described: Any) -> None:
        super().__init__(name, described, transport.where)
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

    def __init__(self, transport: AsyncTransport, described: Any) -> None:
        super().__init__(described, transport.where)
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

    def _stream(self, name: str, described: Any) -> AsyncStream:
        return AsyncStream(self._transport, name, described)

    def _live(self, name: str, described: Any) -> AsyncLive:
        return AsyncLive(self._transport, name, described)

    def _job(self, described: Any) -> AsyncJob:
        return AsyncJob(self._transport, described)

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
