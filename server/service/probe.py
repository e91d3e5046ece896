"""Whether the store and SQL answer, asked at most once a second.

Purpose
    ``/readyz`` is asked by balancers every few seconds, and by anybody who likes.  A
    :class:`Probe` looks at the store and asks whether the executor serves (in a worker, where
    it is isolated), for all who ask within
    :data:`KEEP_S` together.

Guarantee
    Trouble is reported without the error's text, which may name paths: that goes to the log.

Limits
    A query that takes longer than :data:`LIMIT_S` counts as one that is not answered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...api.database import Database

__all__ = ["Probe"]

logger = logging.getLogger("chronicle.server")
KEEP_S = 1.0
LIMIT_S = 10.0


class Probe:
    """Asks a database; lives on the event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asked = float("-inf")
        self._found: str | None = None
        self._lock = asyncio.Lock()

    async def trouble(self) -> str | None:
        """What is wrong, for people; None when everything answers."""
        async with self._lock:
            if time.monotonic() - self._asked > KEEP_S:
                # in a thread of its own: those of the server may all be waiting for a disk
                self._found = await asyncio.to_thread(self._ask)
                self._asked = time.monotonic()
            return self._found

    def _ask(self) -> str | None:
        what = "the store cannot be read"
        try:
            self._database.streams()
            what = "SQL cannot be answered"
            if self._database.serves(LIMIT_S):
                return None
        except Exception:
            logger.exception("not ready: %s", what)
        return f"{what}; the server's log says why"
