"""Retention: which events a stream no longer keeps.

Purpose
    ``retention="30 days"`` drops whole sealed segments whose newest event is older than that,
    counted from the newest event of the stream; a size drops the oldest, late runs among them, by
    their newest events.

Guarantee
    A segment that is written by appends spans at most a quarter of the age, so that at most one and
    a quarter of it is kept: the active segment is sealed when it spans more, an append is cut
    there, and events that are too old beside the newest of their append are not written.

Who holds it back
    What is made of events and is to outlive them, a roll-up, has to have taken them in before they
    are dropped.  A :class:`Hold` says how far that is: ages then count from there::

        dropped          kept by the hold                               open windows
        ...........|=======================|===============|===========|- - - - - ->
                horizon             W - age      last - age      kept  W     last

Limits
    Late runs wait for their newest event, and so do segments of bulk loads and what compaction
    joins with late events; a compaction that is asked for leaves out what is too old, so that the
    age is exact then.  The newest segment is not dropped for its size: where it alone is larger
    than that, such a compaction leaves out its oldest leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .catalog import StreamManifest
from .options import retention_limits
from .segment import TICK_MAX, TICK_MIN, SegmentView
from .snapshot import leaf_sizes

__all__ = [
    "Hold",
    "expired",
    "first_kept",
    "horizon",
    "retained",
    "span_max",
    "together",
    "within_span",
]


@dataclass(frozen=True)
class Hold:
    """What one who has yet to take events in needs of a stream.

    Attributes
    ----------
    newest : int
        Retention counts as if no event behind this tick had come.
    kept : int
        Events of this tick or later are kept, whatever the retention.
    """

    newest: int
    kept: int


def together(holds: Sequence[Hold]) -> Hold | None:
    """What all of some need; None without any."""
    if not holds:
        return None
    return Hold(min(each.newest for each in holds), min(each.kept for each in holds))


def horizon(newest: int, age: int, hold: Hold | None = None) -> int:
    """The tick before which nothing is kept, when ``newest`` is the newest one."""
    if hold is None:
        return max(TICK_MIN, newest - age)
    return max(TICK_MIN, min(min(newest, hold.newest) - age, hold.kept))


def span_max(age: int) -> int:
    """Ticks that a segment may span under a retention of so many."""
    return age // 4


def expired(ticks: npt.NDArray[np.int64], age: int | None, hold: Hold | None = None) -> int:
    """How many events at the front of an append, which is in order, need not be kept at all."""
    if age is None:
        return 0
    return int(np.searchsorted(ticks, horizon(int(ticks[-1]), age, hold)))


def within_span(ticks: npt.NDArray[np.int64], first: int | None, age: int | None) -> int:
    """How many events from the front fit a segment that begins at ``first``, or with them."""
    if age is None:
        return len(ticks)
    begin = int(ticks[0]) if first is None else first
    last = min(TICK_MAX, begin + span_max(age))
    return max(1, int(np.searchsorted(ticks, last, "right")))


def first_kept(
    manifest: StreamManifest,
    segments: Sequence[SegmentView],
    newest: int | None,
    hold: Hold | None,
) -> int | None:
    """The tick before which a stream keeps no event, exact by leaves; None where it keeps all.

    Parameters
    ----------
    segments : sequence of SegmentView
        Those that the manifest names.
    """
    age, size = retention_limits(manifest.options.retention, manifest.schema)
    if size is None:
        return None if age is None or newest is None else horizon(newest, age, hold)
    if int(manifest.segments.bytes.sum()) <= size:
        return None
    ticks, lengths = leaf_sizes(segments)
    fitting = int((np.cumsum(lengths[::-1]) <= size).sum())
    first = int(ticks[-max(1, fitting)])
    return first if hold is None else min(first, hold.kept)


def retained(
    manifest: StreamManifest, newest: int | None, hold: Hold | None = None
) -> StreamManifest:
    """A manifest without the segments that are dropped when ``newest`` is the newest tick."""
    ticks, size = retention_limits(manifest.options.retention, manifest.schema)
    if ticks is None and size is None:
        return manifest
    entries = manifest.segments.after(manifest.runs)
    kept = np.ones(len(entries), np.bool_)
    before = TICK_MIN
    if ticks is not None and newest is not None:
        before = horizon(newest, ticks, hold)
        kept &= entries.lasts >= before
    if size is not None:
        left = np.flatnonzero(kept)
        oldest_first = left[np.argsort(entries.lasts[left], kind="stable")]
        total = int(entries.bytes[left].sum())
        for at in oldest_first[:-1].tolist():  # a size smaller than the newest one leaves that
            last = int(entries.lasts[at])
            if total <= size or (hold is not None and last >= hold.kept):
                break
            total -= int(entries.bytes[at])
            kept[at] = False
            before = max(before, min(TICK_MAX - 1, last) + 1)
    if kept.all():
        return manifest
    dropped = int(entries.events[~kept].sum())
    count = len(manifest.segments)
    runs = tuple(run for run, stays in zip(manifest.runs, kept[count:], strict=True) if stays)
    manifest = replace(manifest, segments=manifest.segments.where(kept[:count]), runs=runs)
    return manifest.dropping(dropped, before)
