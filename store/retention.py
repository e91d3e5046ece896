"""Retention: which events a stream no longer keeps.

Purpose
    ``retention="30 days"`` drops whole sealed segments whose newest event is older than that,
    counted from the newest event of the stream; a size drops the oldest.

Guarantee
    A segment that is written by appends spans at most a quarter of the age, so that at most one and
    a quarter of it is kept: the active segment is sealed when it spans more, an append is cut
    there, and events that are too old beside the newest of their append are not written.

Limits
    Late runs wait for their newest event, and so do segments of bulk loads and what compaction
    joins with late events.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .catalog import StreamManifest
from .options import retention_limits
from .segment import TICK_MAX, TICK_MIN

__all__ = ["expired", "retained", "span_max", "within_span"]


def span_max(age: int) -> int:
    """Ticks that a segment may span under a retention of so many."""
    return age // 4


def expired(ticks: npt.NDArray[np.int64], age: int | None) -> int:
    """How many events at the front of an append, which is in order, need not be kept at all."""
    if age is None:
        return 0
    return int(np.searchsorted(ticks, max(TICK_MIN, int(ticks[-1]) - age)))


def within_span(ticks: npt.NDArray[np.int64], first: int | None, age: int | None) -> int:
    """How many events from the front fit a segment that begins at ``first``, or with them."""
    if age is None:
        return len(ticks)
    begin = int(ticks[0]) if first is None else first
    last = min(TICK_MAX, begin + span_max(age))
    return max(1, int(np.searchsorted(ticks, last, "right")))


def retained(manifest: StreamManifest, newest: int | None) -> StreamManifest:
    """A manifest without the segments that are dropped when ``newest`` is the newest tick."""
    ticks, size = retention_limits(manifest.options.retention, manifest.schema)
    segments, runs, dropped = list(manifest.segments), list(manifest.runs), 0
    if ticks is not None and newest is not None:
        horizon = newest - ticks
        old = [e for e in (*segments, *runs) if e.last < horizon]
        segments = [e for e in segments if e not in old]
        runs = [e for e in runs if e not in old]
        dropped += sum(e.events for e in old)
    if size is not None:
        total = sum(e.bytes for e in (*segments, *runs))
        while segments and total > size:
            oldest = segments.pop(0)
            total -= oldest.bytes
            dropped += oldest.events
    if not dropped:
        return manifest
    return replace(
        manifest,
        segments=tuple(segments),
        runs=tuple(runs),
        dropped_events=manifest.dropped_events + dropped,
    )
