"""Which answers are not computed on the event loop again, whatever is estimated of them.

Purpose
    What is surely little work runs where it arrives (:mod:`...query.plan.small_queries`).  An
    estimate knows nothing of a cold disk.  :class:`Haste` looks at what such an answer took, and
    keeps one that held the loop away from it: for a second, since a busy machine makes one slow
    now and then, and for twice as long each time that it happens again.

Limits
    Remembers :data:`TEXTS_MAX` texts; lives on the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ...core.caches import Lru

__all__ = ["Haste"]

HELD_S = 0.02
"""Seconds that an answer may hold the loop."""

AWAY_MIN_S, AWAY_MAX_S = 1.0, 60.0
TEXTS_MAX = 1024


class Haste:
    """See the module."""

    def __init__(self) -> None:
        self._away: Lru[str, tuple[float, float]] = Lru(TEXTS_MAX)

    def may(self, text: str) -> bool:
        """Whether an answer may be computed on the loop."""
        found = self._away.get(text)
        return found is None or time.monotonic() >= found[0]

    @contextmanager
    def watching(self, text: str) -> Iterator[None]:
        """Around the computation of an answer."""
        begun = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            if ended - begun > HELD_S:
                found = self._away.get(text)
                away_s = AWAY_MIN_S if found is None else min(AWAY_MAX_S, 2 * found[1])
                self._away.put(text, (ended + away_s, away_s))
