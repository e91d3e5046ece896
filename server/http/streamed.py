"""Answers that are sent block by block, at the client's pace.

Blocks are sent within the client's ``Pace``; time spent making a block does not count.  A client
that is too slow is disconnected, so that it never takes a part for the whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .replies import Problem

if TYPE_CHECKING:
    from ..access.settings import Settings

T = TypeVar("T")
logger = logging.getLogger("chronicle.server")
ABORT = "chronicle.abort"
"""Key of the scope: a function that closes the connection at once."""


class BrokenAnswer(Exception):
    """An answer failed after its first byte; its cause has been logged."""


@dataclass(frozen=True)
class Pace:
    """How slow a client may be: ``silence_s`` without a byte, or for a body of any size; for each
    further second, ``bytes_per_s`` bytes must have come.
    """

    silence_s: float
    bytes_per_s: int

    @classmethod
    def of(cls, settings: Settings) -> Pace:
        return cls(settings.client_timeout_ms / 1000, settings.min_client_bytes_per_s)

    def left(self, moved: int, waited: float) -> float:
        """Seconds for the client's next byte, after ``moved`` bytes and ``waited`` seconds."""
        return min(self.silence_s, self.silence_s + moved / self.bytes_per_s - waited)


class Paced:
    """Waits for a client within its pace; the caller counts the bytes ``moved``."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._waited = 0.0
        self.moved = 0

    async def wait(self, moving: Awaitable[T]) -> T:
        """Raises ``TimeoutError``."""
        began = time.perf_counter()
        async with asyncio.timeout(max(0.0, self._pace.left(self.moved, self._waited))):
            moved = await moving
        self._waited += time.perf_counter() - began
        return moved


def too_slow(pace: Pace, size: int) -> Problem:
    return Problem(
        "request-timeout",
        f"the body came too slowly: {size:,} bytes, then none for a while; at most "
        f"{pace.silence_s:g} s without a byte (CHRONICLE_CLIENT_TIMEOUT_MS) and at "
        f"least {pace.bytes_per_s:,} bytes a second (CHRONICLE_MIN_CLIENT_BYTES_PER_S)",
        {"Connection": "close"},
    )


class Streamed(Response):
    """Without ``Content-Length``, unless the headers have it; a subclass makes the ``blocks``."""

    def __init__(
        self, headers: Mapping[str, str], media_type: str | None, pace: Pace, status: int = 200
    ) -> None:
        super().__init__(b"", status, headers, media_type)
        if "Content-Length" not in headers:
            self.raw_headers = [item for item in self.raw_headers if item[0] != b"content-length"]
        self._pace = pace

    @abstractmethod
    def blocks(self, receive: Receive) -> AsyncGenerator[bytes, None]:
        """The body, in pieces that may be empty."""

    async def end(self) -> None:
        """Release what the answer holds, whether it was sent or not."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        paced = Paced(self._pace)
        try:
            await send({**start, "headers": self.raw_headers})
            async with contextlib.aclosing(self.blocks(receive)) as blocks:
                async for block in blocks:
                    if not block:
                        continue
                    message = {"type": "http.response.body", "body": block, "more_body": True}
                    try:
                        await paced.wait(send(message))
                    except TimeoutError:
                        self._break_off(scope, paced.moved)
                    paced.moved += len(block)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await self.end()

    @staticmethod
    def _break_off(scope: Scope, sent: int) -> None:
        logger.warning(
            "request %s: the client took its answer too slowly; broken off after %d bytes",
            scope["state"]["request_id"],
            sent,
        )
        if ABORT in scope:
            scope[ABORT]()
        raise BrokenAnswer from None
