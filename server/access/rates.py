"""How many requests a second a client may make: token buckets.

Purpose
    Gates bound what runs at once; a client whose requests are quick passes them as often as it
    likes.  A bucket fills at a steady rate up to a burst, and each request takes one from it.

Limits
    Counts by name: a token's id, or an address.  Remembers the :data:`CLIENTS_MAX` that came last;
    one that was forgotten begins with a full bucket.  Lives on the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ...core.caches import Lru

__all__ = ["Buckets"]

CLIENTS_MAX = 10_000


class Buckets:
    """One bucket for each client.

    Parameters
    ----------
    per_s : float
        Requests a second in the long run; 0 for no limit.
    burst : float
        Requests at once after a while without any.
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._left: Lru[str, tuple[float, float]] = Lru(CLIENTS_MAX)

    def wait_s(self, client: str) -> float:
        """Seconds until a client may make its next request; 0 for now."""
        return max(0.0, 1.0 - self._filled(client)) / self._per_s if self._per_s else 0.0

    def take(self, client: str) -> None:
        """Count a request."""
        if self._per_s:
            self._left.put(client, (self._filled(client) - 1.0, self._clock()))

    def _filled(self, client: str) -> float:
        left, at = self._left.get(client) or (self._burst, self._clock())
        return min(self._burst, left + (self._clock() - at) * self._per_s)
