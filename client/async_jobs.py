"""A job of a server, for asyncio; see :mod:`.jobs` for what its methods do."""

from __future__ import annotations

import asyncio
from typing import Any

from ..errors import ConnectionFailed
from . import server_calls
from .async_transport import AsyncTransport
from .jobs import Tell, Waiting

__all__ = ["AsyncJob"]


class AsyncJob:
    """A job by its id; made by :meth:`.AsyncDatabase.start_job` and ``job``."""

    def __init__(self, transport: AsyncTransport, told: Any) -> None:
        self._transport = transport
        self.id: str = told["job_id"]
        self.kind: str = told["kind"]

    async def status(self) -> dict[str, Any]:
        """What was asked, ``state``, ``progress`` from 0 to 1, times, ``result`` or ``error``."""
        return dict(await self._transport.json(server_calls.job(self.id)))

    async def wait(self, timeout: float | None = None, tell: Tell | None = None) -> dict[str, Any]:
        """Return what the job has come to, when it is done; as :meth:`.RemoteJob.wait`."""
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
        """End it before its next step; one that has ended stays as it is."""
        await self._transport.json(server_calls.job(self.id, "DELETE"))

    def __repr__(self) -> str:
        return f"<chronicle.Job {self.id!r} ({self.kind}) of {self._transport.where}>"
