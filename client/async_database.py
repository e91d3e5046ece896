"""The asyncio version of ``database``, ``stream`` and ``live``, with the same methods.  ``count``,
``time_range`` and ``stats`` of a stream are methods here.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time as clock
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..core.append_result import AppendResult
from ..errors import (
    ConnectionFailed,
    InvalidArgument,
    QueryTimeout,
    SchemaMismatch,
    StreamNotFound,
    no_rollup,
)
from ..query.contract.result import Result
from ..query.sql.first_word import only_reads
from ..schema import StreamSchema, stream_schema, stream_settings
from . import calls
from .answers import (
    append_result,
    damage_of,
    grouped_by_functions,
    names_of,
    plan_of,
    schema_of,
    status_of,
    time_range_of,
    values_of,
)
from .async_transport import AsyncFeed, AsyncRows, AsyncTransport
from .calls import Call, Expiry, Parameters, StreamCalls
from .database import CATCH_UP_S
from .live import Following, Tell, Waiting
from .outgoing import (
    PIECE_ROWS,
    SENT_ONCE,
    altered,
    begun,
    column_added,
    column_widened,
    dropped_with_views,
    key_of_part,
    may_fit,
    predicate_of,
    settings_changed,
)
from .stream import KnownStream

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


class AsyncStream(KnownStream):
    """A stream of a server for asyncio; its methods are those of ``RemoteStream``, awaited."""

    def __init__(self, transport: AsyncTransport, name: str, told: Any) -> None:
        super().__init__(name, told, transport.where)
        self._transport = transport

    async def count(self) -> int:
        return int((await self._describe())["count"])

    async def time_range(self) -> tuple[Any, Any] | None:
        return time_range_of(await self._describe(), self._schema)

    async def stats(self) -> dict[str, Any]:
        return dict((await self._describe())["stats"])

    async def _describe(self) -> Any:
        return self._told(await self._transport.json(self._calls.describe()))

    async def append(
        self, data: Any, durability: str | None = None, *, idempotency_key: str | None = None
    ) -> AppendResult:
        """As ``RemoteStream.append``; converts the data in a thread."""
        appended = late = duplicates = number = 0
        done = None
        tables = await self._tables(data)
        while (table := await asyncio.to_thread(next, tables, None)) is not None:
            call = self._calls.append(durability, key_of_part(idempotency_key, number))
            batches = table.to_batches(PIECE_ROWS)
            try:
                answer = await self._transport.send(call, table.schema, batches)
            except ConnectionFailed as error:
                if idempotency_key is None:
                    error.add_note(SENT_ONCE)
                raise
            done = append_result(answer)
            appended += done.appended
            late += done.late
            duplicates += done.duplicates
            number += 1
        assert done is not None  # even empty data gives one table
        return AppendResult(appended, late, done.count, done.version, duplicates=duplicates)

    async def _tables(self, data: Any) -> Iterator[pa.Table]:
        known = self._schema
        try:
            return await asyncio.to_thread(begun, data, known)
        except SchemaMismatch:
            await self._describe()  # another client may have added a column
            if not may_fit(data, known, self._schema):
                raise
            return await asyncio.to_thread(begun, data, self._schema)

    async def delete(self, where: str | None, start: object = None, end: object = None) -> int:
        call = self._calls.delete(where, **calls.bounds(self._schema, start, end))
        return int((await self._transport.json(call))["deleted"])

    async def update(
        self,
        values: Mapping[str, str],
        where: str | None,
        start: object = None,
        end: object = None,
    ) -> int:
        call = self._calls.update(values, where, **calls.bounds(self._schema, start, end))
        return int((await self._transport.json(call))["updated"])

    async def add_column(
        self, name: str, type_: pa.DataType, *, nullable: bool = True, default: Any = None
    ) -> None:
        await self._alter(column_added(self.name, name, type_, nullable, default))

    async def widen_column(self, name: str, type_: pa.DataType) -> None:
        await self._alter(column_widened(self.name, name, type_))

    async def drop_column(self, name: str) -> None:
        await self._alter(altered(self.name, "DROP COLUMN", name))

    async def rename_column(self, name: str, to: str) -> None:
        await self._alter(altered(self.name, "RENAME COLUMN", name, to))

    async def set_options(self, **options: Any) -> None:
        await self._alter(settings_changed(self.name, options))

    async def _alter(self, statement: str) -> None:
        async for _ in await self._transport.rows(calls.query(statement)):
            pass
        await self._describe()

    async def create_index(
        self, attribute: str, *, wait: bool = True, lag_events_max: int | None = None
    ) -> None:
        call = self._calls.create_index(attribute, wait=wait, lag_events_max=lag_events_max)
        await self._transport.json(call)

    async def drop_index(self, attribute: str) -> None:
        await self._transport.json(self._calls.drop_index(attribute))

    async def indexes(self) -> list[dict[str, Any]]:
        return list((await self._transport.json(self._calls.indexes()))["indexes"])

    async def scan(
        self,
        start: object = None,
        end: object = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        *,
        limit: int | None = None,
    ) -> AsyncRows:
        """As ``RemoteStream.scan``: an async iterator of record batches, with a schema."""
        bounds = calls.bounds(self._schema, start, end)
        call = self._calls.events(columns, predicate_of(filter), limit, **bounds)
        return await self._transport.rows(call)

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

    async def aggregate(
        self,
        functions: Mapping[str, str | Iterable[str]],
        start: object = None,
        end: object = None,
    ) -> dict[str, dict[str, Any]]:
        bounds = calls.bounds(self._schema, start, end)
        found: dict[str, dict[str, Any]] = {}
        for wanted, names in grouped_by_functions(functions, self._schema):
            answer = await self._transport.json(self._calls.aggregate(names, wanted, **bounds))
            found |= {name: values_of(answer, name, wanted, self._schema) for name in names}
        return {name: found.get(name, {}) for name in functions}

    async def keep_position(self, at: int | None = None, after: str | None = None) -> str | None:
        name = (await self._transport.json(self._calls.keep_position(at=at, after=after)))[
            "position"
        ]
        return None if name is None else str(name)

    async def drop_position(self, position: str) -> None:
        await self._transport.json(self._calls.drop_position(position))

    async def changes(
        self,
        after: str | None,
        until: str,
        columns: Sequence[str] | None = None,
        *,
        start: object = None,
        end: object = None,
    ) -> AsyncRows:
        bounds = calls.bounds(self._schema, start, end)
        return await self._transport.rows(self._calls.new_events(after, until, columns, **bounds))


class AsyncLive:
    """A live query for asyncio; its methods are those of ``RemoteLive``, awaited."""

    def __init__(
        self,
        transport: AsyncTransport,
        name: str,
        caught_up: Callable[[], Awaitable[None]],
        told: Any,
    ) -> None:
        self._transport = transport
        self._caught_up = caught_up
        self._times: StreamSchema | None = None
        self.name = name
        self.sql: str = told["sql"]
        self.sink: str = told["sink"]

    async def status(self) -> dict[str, Any]:
        return status_of(await self._ask("GET"), await self._schema())

    def rows(self, after: int = 0, follow: bool = False) -> AsyncTail:
        return AsyncTail(self._transport, calls.live_rows(self.name, after, follow))

    async def net(self, start: object = None, end: object = None) -> pa.Table:
        schema = await self._schema() if (start, end) != (None, None) else None
        rows = await self._transport.rows(calls.net(self.name, schema, start, end))
        return pa.Table.from_batches([batch async for batch in rows], rows.schema)

    async def pause(self) -> None:
        await self._ask("POST", "pause")

    async def resume(self) -> None:
        await self._ask("POST", "resume")

    async def refresh(self, start: object = None, end: object = None) -> None:
        await self._ask("POST", "refresh", **calls.bounds(await self._schema(), start, end))

    async def verify(self) -> int:
        await self._caught_up()
        return int((await self._ask("POST", "verify"))["differences"])

    async def drop(self, keep_results: bool = False) -> None:
        await self._ask("DELETE", keep_results=str(keep_results).lower())

    async def _ask(self, method: str, what: str = "", **query: object | None) -> Any:
        return await self._transport.json(calls.live(self.name, what, method, **query))

    async def _schema(self) -> StreamSchema:
        if self._times is None:
            told = await self._transport.json(StreamCalls(self.sink).describe())
            self._times = schema_of(told, self._transport.where)
        return self._times

    def __repr__(self) -> str:
        return f"<chronicle.LiveQuery {self.name!r} of {self._transport.where}>"


class AsyncJob:
    """A job for asyncio; its methods are those of ``RemoteJob``, awaited."""

    def __init__(self, transport: AsyncTransport, told: Any) -> None:
        self._transport = transport
        self.id: str = told["job_id"]
        self.kind: str = told["kind"]

    async def status(self) -> dict[str, Any]:
        return dict(await self._transport.json(calls.job(self.id)))

    async def wait(self, timeout: float | None = None, tell: Tell | None = None) -> dict[str, Any]:
        waiting = Waiting(self.id, timeout, tell)
        while True:
            try:
                status = await self.status()
            except ConnectionFailed as error:
                waiting.broken(error)
            else:
                if waiting.heard(status):
                    return waiting.result
            await asyncio.sleep(waiting.pause())

    async def cancel(self) -> None:
        await self._transport.json(calls.job(self.id, "DELETE"))

    def __repr__(self) -> str:
        return f"<chronicle.Job {self.id!r} ({self.kind}) of {self._transport.where}>"


class AsyncDatabase:
    """A server's database for asyncio, made by ``chronicle.aconnect``; an async context manager.

    Its methods are those of ``RemoteDatabase``, awaited.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    @property
    def url(self) -> str:
        return self._transport.where

    async def create_stream(
        self,
        name: str,
        schema: pa.Schema | StreamSchema,
        time: str | None = None,
        *,
        retention: str | int | None = None,
        codec: str = "lz4",
        unique: str | Sequence[str] | None = None,
        within: str | int | None = None,
        if_not_exists: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> AsyncStream:
        made = stream_schema(name, schema, time)
        call = StreamCalls(name).create(
            made, codec, retention, stream_settings(options, unique, within), if_not_exists
        )
        return AsyncStream(self._transport, name, await self._transport.json(call))

    async def stream(self, name: str) -> AsyncStream:
        told = await self._transport.json(StreamCalls(name).describe())
        return AsyncStream(self._transport, name, told)

    async def streams(self) -> list[str]:
        return names_of((await self._transport.json(calls.list_streams()))["streams"])

    async def damaged(self) -> dict[str, str]:
        return damage_of((await self._transport.json(calls.list_streams()))["streams"])

    async def drop_stream(
        self, name: str, *, if_exists: bool = False, cascade: bool = False
    ) -> None:
        try:
            if cascade:
                await self._transport.json(StreamCalls(name).describe())  # it is there
                async for _ in await self._transport.rows(calls.query(dropped_with_views(name))):
                    pass
                return
            await self._transport.json(StreamCalls(name).drop())
        except StreamNotFound:
            if not if_exists:
                raise

    async def rename_stream(self, name: str, to: str) -> None:
        async for _ in await self._transport.rows(calls.query(altered(name, "RENAME", "", to))):
            pass

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

    async def explain(
        self,
        text: str,
        analyze: bool = False,
        params: Parameters | None = None,
        timeout: float | None = None,
    ) -> Plan:
        return plan_of(await self._transport.json(calls.explain(text, analyze, params, timeout)))

    async def create_live(
        self,
        name: str,
        sql: str,
        *,
        into: str | None = None,
        start: object = "first",
        delay: object = None,
        idle: object = None,
        late: object = "correct",
        emit: object = "close",
        options: Mapping[str, Any] | None = None,
        if_not_exists: bool = False,
    ) -> AsyncLive:
        call = calls.create_live(
            name,
            sql,
            into=into,
            start=start,
            delay=delay,
            idle=idle,
            late=late,
            emit=emit,
            options=options,
            if_not_exists=if_not_exists,
        )
        return self._live(name, await self._transport.json(call))

    async def live(self, name: str) -> AsyncLive:
        return self._live(name, await self._transport.json(calls.live(name)))

    async def create_rollup(
        self,
        name: str,
        sql: str,
        *,
        delay: object = None,
        idle: object = None,
        options: Mapping[str, Any] | None = None,
        if_not_exists: bool = False,
    ) -> AsyncLive:
        call = calls.create_live(
            name,
            sql,
            delay=delay,
            idle=idle,
            options=options,
            if_not_exists=if_not_exists,
            rollup=True,
        )
        return self._live(name, await self._transport.json(call))

    async def rollup(self, name: str) -> AsyncLive:
        names = await self.rollups()
        if name not in names:
            raise no_rollup(name, names)
        return await self.live(name)

    async def rollups(self) -> list[str]:
        told = (await self._transport.json(calls.list_live()))["live"]
        return names_of([each for each in told if each["rollup"]])

    def _live(self, name: str, told: Any) -> AsyncLive:
        return AsyncLive(self._transport, name, self.run_live, told)

    async def live_queries(self) -> list[str]:
        return names_of((await self._transport.json(calls.list_live()))["live"])

    async def run_live(self, until: str = "caught up", timeout: float | None = None) -> None:
        if until != "caught up":
            raise InvalidArgument(f"until is 'caught up', found {until!r}")
        ends = None if timeout is None else clock.monotonic() + timeout
        while True:
            left = CATCH_UP_S if ends is None else min(CATCH_UP_S, ends - clock.monotonic())
            try:
                await self._transport.json(calls.caught_up(max(0.001, left)))
                return
            except QueryTimeout:
                if ends is not None and clock.monotonic() >= ends:
                    raise

    async def start_job(self, kind: str, **asked: Any) -> AsyncJob:
        told = await self._transport.json(calls.begin_job(kind, asked))
        return AsyncJob(self._transport, told)

    async def job(self, job_id: str) -> AsyncJob:
        return AsyncJob(self._transport, await self._transport.json(calls.job(job_id)))

    async def jobs(self) -> list[dict[str, Any]]:
        return list((await self._transport.json(calls.list_jobs()))["jobs"])

    async def backups(self) -> list[dict[str, Any]]:
        return list((await self._transport.json(calls.list_backups()))["backups"])

    async def create_token(
        self,
        name: str,
        scopes: Iterable[str] = ("read",),
        streams: Iterable[str] = ("*",),
        expires: Expiry = None,
    ) -> dict[str, Any]:
        call = calls.make_token(name, scopes, streams, expires)
        return dict(await self._transport.json(call))

    async def tokens(self) -> list[dict[str, Any]]:
        return list((await self._transport.json(calls.list_tokens()))["tokens"])

    async def rotate_token(
        self, token_id: str, overlap: str | dt.timedelta = "1h", expires: Expiry = None
    ) -> dict[str, Any]:
        call = calls.rotate_token(token_id, overlap, expires)
        return dict(await self._transport.json(call))

    async def revoke_token(self, token_id: str) -> None:
        await self._transport.json(calls.revoke_token(token_id))

    async def revoke_all_tokens(self) -> list[str]:
        return list((await self._transport.json(calls.revoke_all_tokens()))["revoked"])

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
