"""Watermarks: up to which tick every event is taken as known.

Layout
    ::

        W = newest tick in order - DELAY - 1          a function of the source's history
        W = newest tick in order - DELAY              when no commit has come for IDLE AFTER

    The ``- 1`` leaves the newest tick open: more events of it may come, in order.

Guarantee
    A watermark never goes back.  A tick that lies more than :data:`AHEAD_SECONDS` beyond the wall
    clock does not move it: one broken clock must not make all events after it late.
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
    """How far beyond the wall clock a time may lie and count."""
    return float(os.environ.get("CHRONICLE_LIVE_AHEAD_SECONDS", AHEAD_SECONDS))


def watermark_of(snapshot: Snapshot, delay: int, idle: bool) -> int | None:
    """The watermark of a source; None as long as no tick is known.

    Parameters
    ----------
    delay : int
        Ticks.
    idle : bool
        Whether the source has been quiet for long enough.
    """
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
    """The watermark of several sources, each with whether it has been quiet for long enough.

    A quiet one does not hold the others back; where all are, all that there is is known.
    """
    waiting: list[int | None] = []
    quiet: list[int | None] = []
    for snapshot, idle in sources:
        (quiet if idle else waiting).append(watermark_of(snapshot, delay, idle))
    known = [each for each in waiting or quiet if each is not None]
    if waiting:
        return min(known) if len(known) == len(waiting) else None
    return max(known, default=None)
