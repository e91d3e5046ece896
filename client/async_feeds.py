"""The asyncio version of ``feeds``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pyarrow as pa

from ..errors import ConnectionFailed
from .async_transport import AsyncFeed, AsyncTransport
from .calls import Call
from .feeds import Following

__all__ = ["AsyncTail"]


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
