"""Retention: which segments and late runs a manifest drops.

An age counts from the newest in-order event of the stream; a size keeps the newest events that fit.
Older events are hidden at every commit (``floor``).

Guarantee: nothing that is kept is dropped.  A segment written by appends spans at most a quarter of
the age, or an eighth of the size, so at most one and a quarter of either is on disk.

Holds: a roll-up must read events before they are dropped.  Ages then count from its ``Hold``::

    dropped          kept by the hold                               open windows
    ...........|=======================|===============|===========|- - - - - ->
            horizon             W - age      last - age      kept  W     last

Limits: late runs stay until the floor has passed their newest event; bulk-loaded segments, and
those joined with late events, until their newest is too old.  The newest segment always stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .catalog import StreamManifest
from .options import retention_limits
from .segment import TICK_MAX, TICK_MIN

__all__ = [
    "Hold",
    "expired",
    "horizon",
    "loosened",
    "retained",
    "span_max",
    "together",
    "within_span",
]


@dataclass(frozen=True)
class Hold:
    """Retention counts as if ``newest`` were the newest tick, and keeps all events from ``kept``
    on.
    """

    newest: int
    kept: int


def together(holds: Sequence[Hold]) -> Hold | None:
    if not holds:
        return None
    return Hold(min(each.newest for each in holds), min(each.kept for each in holds))


def horizon(newest: int, age: int, hold: Hold | None = None) -> int:
    """The tick before which nothing is kept, when ``newest`` is the newest one."""
    if hold is None:
        return max(TICK_MIN, newest - age)
    return max(TICK_MIN, min(min(newest, hold.newest) - age, hold.kept))


def loosened(manifest: StreamManifest, retention: object) -> bool:
    """Whether another retention setting may keep more than the stream's."""
    age, size = retention_limits(manifest.options.retention, manifest.schema)
    if age is None and size is None:
        return False
    given = None if retention is None else str(retention)
    other, _ = retention_limits(given, manifest.schema)
    return age is None or other is None or other > age


def span_max(age: int) -> int:
    return age // 4


def expired(ticks: npt.NDArray[np.int64], age: int | None, hold: Hold | None = None) -> int:
    """Number of leading events of a sorted append that need not be written."""
    if age is None:
        return 0
    return int(np.searchsorted(ticks, horizon(int(ticks[-1]), age, hold)))


def within_span(ticks: npt.NDArray[np.int64], first: int | None, age: int | None) -> int:
    """Number of leading events that fit a segment beginning at ``first``, or with them."""
    if age is None:
        return len(ticks)
    begin = int(ticks[0]) if first is None else first
    last = min(TICK_MAX, begin + span_max(age))
    return max(1, int(np.searchsorted(ticks, last, "right")))


def retained(
    manifest: StreamManifest,
    newest: int | None,
    hold: Hold | None = None,
    active: int = 0,
    following: int | None = None,
) -> StreamManifest:
    """A manifest without entirely expired segments and late runs.  Adjacent segments that share a
    visible tick go together, since ranks within a tick must not change.
    """
    ticks, size = retention_limits(manifest.options.retention, manifest.schema)
    if ticks is None and size is None:
        return manifest
    entries = manifest.segments.after(manifest.runs)
    before = _floor(manifest)
    if ticks is not None and newest is not None:
        before = max(before, horizon(newest, ticks, hold))
    kept = entries.lasts >= before
    if size is not None:
        left = np.flatnonzero(kept)
        oldest_first = left[np.argsort(entries.lasts[left], kind="stable")]
        total = int(entries.bytes[left].sum()) + active
        for at in oldest_first[: None if active else -1].tolist():
            last, total = int(entries.lasts[at]), total - int(entries.bytes[at])
            if total < size or (hold is not None and last >= hold.kept):
                break  # fits in part: the rest is hidden
            kept[at] = False
            before = max(before, min(TICK_MAX - 1, last) + 1)
    count = len(manifest.segments)
    behind = np.flatnonzero(kept[:count])
    at = int(behind[0]) if behind.size else count
    begin = int(entries.firsts[at]) if at < count else following
    while at and begin is not None and entries.lasts[at - 1] == begin and _floor(manifest) <= begin:
        at -= 1
        kept[at], begin = True, int(entries.firsts[at])
    # Late events are shown, too, for the times of the leaf that reaches the horizon.
    bound = before if begin is None else max(_floor(manifest), min(before, begin))
    kept[count:] = entries.lasts[count:] >= bound
    if kept.all():
        return manifest
    dropped = int(entries.events[~kept].sum())
    runs = tuple(run for run, stays in zip(manifest.runs, kept[count:], strict=True) if stays)
    manifest = replace(manifest, segments=manifest.segments.where(kept[:count]), runs=runs)
    return manifest.dropping(dropped, before)


def _floor(manifest: StreamManifest) -> int:
    return TICK_MIN if manifest.floor is None else manifest.floor
