"""Keeps statements off the event loop that once took more than ``HELD_S`` there: a cost estimate
does not know of a cold disk.  The ban lasts a second, and doubles each time up to a minute.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ...core.caches import Lru

__all__ = ["Haste"]

HELD_S = 0.02

AWAY_MIN_S, AWAY_MAX_S = 1.0, 60.0
TEXTS_MAX = 1024


class Haste:
    def __init__(self) -> None:
        self._away: Lru[str, tuple[float, float]] = Lru(TEXTS_MAX)

    def may(self, text: str) -> bool:
        found = self._away.get(text)
        return found is None or time.monotonic() >= found[0]

    @contextmanager
    def watching(self, text: str) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            if ended - begun > HELD_S:
                found = self._away.get(text)
                away_s = AWAY_MIN_S if found is None else min(AWAY_MAX_S, 2 * found[1])
                self._away.put(text, (ended + away_s, away_s))
