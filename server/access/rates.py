"""Rate limits per client (token buckets); the ``CLIENTS_MAX`` most recent clients are remembered,
and others start with a full bucket.  Lives on the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ...core.caches import Lru

__all__ = ["Buckets"]

CLIENTS_MAX = 10_000


class Buckets:
    """One bucket per client: ``per_s`` requests a second (0: no limit), ``burst`` at once."""

    def __init__(
        self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._left: Lru[str, tuple[float, float]] = Lru(CLIENTS_MAX)

    def wait_s(self, client: str) -> float:
        return max(0.0, 1.0 - self._filled(client)) / self._per_s if self._per_s else 0.0

    def take(self, client: str) -> None:
        if self._per_s:
            self._left.put(client, (self._filled(client) - 1.0, self._clock()))

    def _filled(self, client: str) -> float:
        left, at = self._left.get(client) or (self._burst, self._clock())
        return min(self._burst, left + (self._clock() - at) * self._per_s)
