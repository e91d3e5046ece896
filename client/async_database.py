"""The asyncio version of ``database``."""

from __future__ import annotations

import datetime as dt
import time as clock
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import InvalidArgument, QueryTimeout, StreamNotFound, no_rollup
from ..query.sql.first_word import only_reads
from ..schema import StreamSchema, stream_schema, stream_settings
from . import calls, server_calls
from .answers import damage_of, names_of, plan_of
from .async_jobs import AsyncJob
from .async_live import AsyncLive
from .async_stream import AsyncStream
from .async_transport import AsyncTransport
from .calls import Parameters
from .database import CATCH_UP_S
from .outgoing import altered, dropped_with_views
from .server_calls import Expiry
from .stream_calls import StreamCalls

if TYPE_CHECKING:
    from ..query.contract.explanation import Plan
    from .async_result import AsyncResult

__all__ = ["AsyncDatabase"]


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
        from .async_result import AsyncResult

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
        told = await self._transport.json(server_calls.begin_job(kind, asked))
        return AsyncJob(self._transport, told)

    async def job(self, job_id: str) -> AsyncJob:
        return AsyncJob(self._transport, await self._transport.json(server_calls.job(job_id)))

    async def jobs(self) -> list[dict[str, Any]]:
        return list((await self._transport.json(server_calls.list_jobs()))["jobs"])

    async def backups(self) -> list[dict[str, Any]]:
        return list((await self._transport.json(server_calls.list_backups()))["backups"])

    async def create_token(
        self,
        name: str,
        scopes: Iterable[str] = ("read",),
        streams: Iterable[str] = ("*",),
        expires: Expiry = None,
    ) -> dict[str, Any]:
        call = server_calls.make_token(name, scopes, streams, expires)
        return dict(await self._transport.json(call))

    async def tokens(self) -> list[dict[str, Any]]:
        return list((await self._transport.json(server_calls.list_tokens()))["tokens"])

    async def rotate_token(
        self, token_id: str, overlap: str | dt.timedelta = "1h", expires: Expiry = None
    ) -> dict[str, Any]:
        call = server_calls.rotate_token(token_id, overlap, expires)
        return dict(await self._transport.json(call))

    async def revoke_token(self, token_id: str) -> None:
        await self._transport.json(server_calls.revoke_token(token_id))

    async def revoke_all_tokens(self) -> list[str]:
        return list((await self._transport.json(server_calls.revoke_all_tokens()))["revoked"])

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
