"""How far a query has come: events read, of those expected; both only grow.

Pruned blocks are expected but not read; reads of fewer than ``WATCHED_EVENTS`` events and answers
from the tree are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

__all__ = ["WATCHED_EVENTS", "Progress"]

WATCHED_EVENTS = 1 << 17


class Counted(Protocol):
    """A counter of events read, such as the store's scan metrics."""

    events_read: int


class Progress:
    """Counters of a query; may be read from any thread while it runs."""

    def __init__(self) -> None:
        self._reads: list[tuple[Sequence[Counted], int, int]] = []

    def expect(
        self, counters: Sequence[Counted], most: int, exactly: Callable[[], int] | None = None
    ) -> None:
        """Announce a read of at most ``most`` events; ``exactly`` is called for large reads."""
        if most < WATCHED_EVENTS:
            return
        events = most if exactly is None else exactly()
        if events >= WATCHED_EVENTS:
            self._reads.append((counters, _read(counters), events))

    @property
    def events(self) -> tuple[int, int] | None:
        """Events read and expected; None if nothing is expected yet."""
        reads = list(self._reads)
        if not reads:
            return None
        done = sum(min(_read(counters) - before, events) for counters, before, events in reads)
        return done, sum(events for _, _, events in reads)


def _read(counters: Sequence[Counted]) -> int:
    return sum(counter.events_read for counter in counters)
