"""``/readyz``: whether the store and SQL answer, checked at most once per ``KEEP_S`` seconds.  A
query slower than ``LIMIT_S`` counts as failed.  Error texts may name paths: they go to the log, not
to the client.
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
    def __init__(self, database: Database) -> None:
        self._database = database
        self._asked = float("-inf")
        self._found: str | None = None
        self._lock = asyncio.Lock()

    async def trouble(self) -> str | None:
        """What is wrong, for people; None when everything answers."""
        async with self._lock:
            if time.monotonic() - self._asked > KEEP_S:
                # in its own thread: the server's may all be waiting for a disk
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
