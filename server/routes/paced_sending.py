"""Sends blocks to a client within its ``Pace``; time spent making a block does not count.  A client
that is too slow is disconnected, so that it never takes a part for the whole.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from starlette.types import Scope, Send

from ..service.bodies import Pace
from ..service.middleware import ABORT, BrokenAnswer

__all__ = ["send_paced"]

logger = logging.getLogger("chronicle.server")


async def send_paced(
    scope: Scope, send: Send, pace: Pace, next_block: Callable[[], Awaitable[bytes | None]]
) -> None:
    """Send blocks until ``next_block`` gives None; raises ``BrokenAnswer`` if the client is too
    slow.
    """
    sent, waited = 0, 0.0
    try:
        while (block := await next_block()) is not None:
            message = {"type": "http.response.body", "body": block, "more_body": True}
            began = time.perf_counter()
            await asyncio.wait_for(send(message), max(0.0, pace.left(sent, waited)))
            waited += time.perf_counter() - began
            sent += len(block)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except TimeoutError:
        logger.warning(
            "request %s: the client took its answer too slowly; broken off after %d bytes",
            scope["state"]["request_id"],
            sent,
        )
        if ABORT in scope:
            scope[ABORT]()
        raise BrokenAnswer from None
