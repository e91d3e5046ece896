"""The asyncio version of ``jobs``."""

from __future__ import annotations

import asyncio
from typing import Any

from ..errors import ConnectionFailed
from . import server_calls
from .async_transport import AsyncTransport
from .jobs import Tell, Waiting

__all__ = ["AsyncJob"]


class AsyncJob:
    """A job for asyncio; its methods are those of ``RemoteJob``, awaited."""

    def __init__(self, transport: AsyncTransport, told: Any) -> None:
        self._transport = transport
        self.id: str = told["job_id"]
        self.kind: str = told["kind"]

    async def status(self) -> dict[str, Any]:
        return dict(await self._transport.json(server_calls.job(self.id)))

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
        await self._transport.json(server_calls.job(self.id, "DELETE"))

    def __repr__(self) -> str:
        return f"<chronicle.Job {self.id!r} ({self.kind}) of {self._transport.where}>"
