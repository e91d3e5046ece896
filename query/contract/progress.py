"""How far a query has come: the events that it has read, of those that it is about to read.

Purpose
    What reads a stream for a query says once, before it begins, how many events lie ahead
    (:meth:`Progress.expect`), and hands over the counters that the store keeps in any case.  Who
    wants to know adds them up (:meth:`Progress.events`); the reading itself tells nothing.

Guarantee
    Never more is read than was expected, and both only grow.

Limits
    Expected is what is known so far: of two patterns that a recency join reads one after the other,
    the second counts from when it is planned.  Blocks that minima and maxima rule out are expected
    and not read.  Reads of fewer than :data:`WATCHED_EVENTS` end before anybody asks, and what the
    tree answers reads no events: neither is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

__all__ = ["WATCHED_EVENTS", "Progress"]

WATCHED_EVENTS = 1 << 17


class Counted(Protocol):
    """What counts the events that are read; the store's metrics of a scan."""

    events_read: int


class Progress:
    """See the module; asked from any thread, also while the query runs."""

    def __init__(self) -> None:
        self._reads: list[tuple[Sequence[Counted], int, int]] = []

    def expect(
        self, counters: Sequence[Counted], most: int, exactly: Callable[[], int] | None = None
    ) -> None:
        """Say that events are about to be read.

        Parameters
        ----------
        counters : sequence of ScanMetrics
            What counts them from now on.
        most : int
            That it is not more of them.
        exactly : callable, optional
            How many it is; asked only where it may be many.
        """
        if most < WATCHED_EVENTS:
            return
        events = most if exactly is None else exactly()
        if events >= WATCHED_EVENTS:
            self._reads.append((counters, _read(counters), events))

    @property
    def events(self) -> tuple[int, int] | None:
        """Events read, and expected; None where nothing was expected yet."""
        reads = list(self._reads)
        if not reads:
            return None
        done = sum(min(_read(counters) - before, events) for counters, before, events in reads)
        return done, sum(events for _, _, events in reads)


def _read(counters: Sequence[Counted]) -> int:
    return sum(counter.events_read for counter in counters)
