"""Watermarks: the tick up to which all events are assumed to have arrived.

::

    W = newest tick in order - DELAY - 1          a function of the source's history
    W = newest tick in order - DELAY              without a commit for IDLE AFTER

The ``- 1`` leaves the newest tick open.  Ticks more than ``AHEAD_SECONDS`` beyond the wall clock do
not advance it, so that one wrong clock does not make all later events late.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from ..core.times import INT64_MIN
from ..store.snapshot import Snapshot

__all__ = ["AHEAD_SECONDS", "combined_watermark", "watermark_of"]

AHEAD_SECONDS = 3600.0
"""Default of ``CHRONICLE_LIVE_AHEAD_SECONDS``."""


def ahead_seconds() -> float:
    """Seconds by which an event time may exceed the wall clock and still count."""
    return float(os.environ.get("CHRONICLE_LIVE_AHEAD_SECONDS", AHEAD_SECONDS))


def watermark_of(snapshot: Snapshot, delay: int, idle: bool) -> int | None:
    """A source's watermark with ``delay`` in ticks; None while no tick is known."""
    last = snapshot.state.last
    per_second = snapshot.schema.ticks_per_second
    if last is not None and per_second is not None:
        limit = int((time.time() + ahead_seconds()) * per_second)
        if last > limit:
            last = snapshot.aggregate((), None, limit + 1).last
    if last is None:
        return None
    known = last - delay - (0 if idle else 1)
    return known if known >= INT64_MIN else None


def combined_watermark(sources: Iterable[tuple[Snapshot, bool]], delay: int) -> int | None:
    """The watermark of (snapshot, idle) sources: the least of those not idle, else the greatest."""
    waiting: list[int | None] = []
    quiet: list[int | None] = []
    for snapshot, idle in sources:
        (quiet if idle else waiting).append(watermark_of(snapshot, delay, idle))
    known = [each for each in waiting or quiet if each is not None]
    if waiting:
        return min(known) if len(known) == len(waiting) else None
    return max(known, default=None)
