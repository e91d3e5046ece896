"""Retention: which events a stream no longer keeps, and which files go.

Purpose
    ``retention="30 days"`` keeps what is no older than that, counted from the newest event of the
    stream in order; a size keeps the newest that fit.  What is older is hidden at every commit
    (:mod:`.floor`); here is which segments and late runs are dropped with a manifest.

Guarantee
    Nothing that is kept is dropped.  A segment that is written by appends spans at most a quarter
    of the age, or has an eighth of the size, so that at most one and a quarter of the age, and one
    and a quarter of the size, lie on the disk: the active segment is sealed when it spans more, an
    append is cut there, and events that are too old beside the newest of their append are not
    written.

Who holds it back
    What is made of events and is to outlive them, a roll-up, has to have taken them in before they
    are dropped.  A :class:`Hold` says how far that is: ages then count from there::

        dropped          kept by the hold                               open windows
        ...........|=======================|===============|===========|- - - - - ->
                horizon             W - age      last - age      kept  W     last

Limits
    The files of late runs wait until the floor has passed their newest event, those of bulk loads
    and what compaction joins with late events until theirs is too old; what is too old in them is
    hidden meanwhile, and a compaction that is asked for leaves it out.  The newest segment stays,
    whatever its size is.
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


def loosened(manifest: StreamManifest, retention: object) -> bool:
    """Whether a stream's retention keeps no more than another one, as a setting, may keep."""
    age, size = retention_limits(manifest.options.retention, manifest.schema)
    if age is None and size is None:
        return False
    given = None if retention is None else str(retention)
    other, _ = retention_limits(given, manifest.schema)
    return age is None or other is None or other > age


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


def retained(
    manifest: StreamManifest,
    newest: int | None,
    hold: Hold | None = None,
    active: int = 0,
    following: int | None = None,
) -> StreamManifest:
    """A manifest without the segments and late runs of which nothing is kept.

    A segment that ends with the time that the next one begins with stays, unless that is hidden:
    of one time all events go or none, so that they are told apart by their ranks.

    Parameters
    ----------
    newest : int or None
        Newest tick in order.
    active : int
        Bytes of the segment that is being written.
    following : int or None
        First tick behind the sealed segments.
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
                break  # some of it fits: the others of its leaves are hidden
            kept[at] = False
            before = max(before, min(TICK_MAX - 1, last) + 1)
    count = len(manifest.segments)
    behind = np.flatnonzero(kept[:count])
    at = int(behind[0]) if behind.size else count
    begin = int(entries.firsts[at]) if at < count else following
    while at and begin is not None and entries.lasts[at - 1] == begin and _floor(manifest) <= begin:
        at -= 1
        kept[at], begin = True, int(entries.firsts[at])
    # Of the times of a leaf that reaches the horizon everything is shown, what came late as well.
    bound = before if begin is None else max(_floor(manifest), min(before, begin))
    kept[count:] = entries.lasts[count:] >= bound
    if kept.all():
        return manifest
    dropped = int(entries.events[~kept].sum())
    runs = tuple(run for run, stays in zip(manifest.runs, kept[count:], strict=True) if stays)
    manifest = replace(manifest, segments=manifest.segments.where(kept[:count]), runs=runs)
    return manifest.dropping(dropped, before)


def _floor(manifest: StreamManifest) -> int:
    """How far the floor has come, as a tick."""
    return TICK_MIN if manifest.floor is None else manifest.floor
