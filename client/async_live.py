"""The asyncio version of ``live``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa

from ..schema import StreamSchema
from . import calls
from .answers import schema_of, status_of
from .async_feeds import AsyncTail
from .async_transport import AsyncTransport
from .stream_calls import StreamCalls

__all__ = ["AsyncLive"]


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
