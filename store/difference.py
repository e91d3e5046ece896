"""The events of a later snapshot that an earlier one lacks, each once, in time order.

A snapshot is the stable sort by time of what was committed.  So among the events of one tick those
of the earlier commit come first, in the same order, and the rest is new::

    earlier   t=1: a b     t=2: c        t=5: d
    later     t=1: a b X   t=2: c        t=5: d Y    t=6: Z        new: X, Y, Z

Of the earlier snapshot only the ticks are needed.  Events that were deleted in between are
subtracted from it by tick and rank (``deletions``); updated ones count as new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .deletions import DeletedEvents
from .snapshot import Snapshot
from .tail import ticks_of

__all__ = ["added_events", "left_of", "shown_from"]


def added_events(
    earlier: Snapshot | None,
    later: Snapshot,
    start: int | None,
    end: int | None,
    columns: Sequence[str],
    check: Callable[[], None] | None = None,
    deleted: Sequence[DeletedEvents] = (),
) -> Iterator[pa.RecordBatch]:
    """Events of [start, end), in ticks, in ``later`` beyond ``earlier`` (None: empty), by batch."""
    start = shown_from(earlier, start)
    known, changed = left_of(earlier, start, end, check, deleted)
    wanted = list(columns)
    if known.size == 0:
        yield from later.scan(start, end, wanted, check=check)
        return
    time = later.schema.time
    needed = wanted if time in wanted else [*wanted, time]
    run_tick, run_length = 0, 0  # last tick of the previous batch, and its events so far
    for batch in later.scan(start, end, needed, check=check):
        ticks = ticks_of(batch, later.schema)
        begins = np.flatnonzero(np.concatenate(([True], ticks[1:] != ticks[:-1])))
        lengths = np.diff(np.append(begins, ticks.size))
        rank = np.arange(ticks.size) - np.repeat(begins, lengths)
        if run_length and ticks[0] == run_tick:
            rank[: lengths[0]] += run_length
        distinct = ticks[begins]
        low = np.searchsorted(known, distinct, "left")
        counts = np.searchsorted(known, distinct, "right") - low
        fresh = rank >= np.repeat(counts, lengths)
        if changed.any():
            place = np.minimum(rank + np.repeat(low, lengths), known.size - 1)
            fresh |= changed[place]
        run_length = int(rank[-1]) + 1
        run_tick = int(ticks[-1])
        if not fresh.any():
            continue
        chosen = batch if fresh.all() else batch.filter(pa.array(fresh))
        yield chosen.select(wanted) if needed is not wanted else chosen


def shown_from(snapshot: Snapshot | None, start: int | None) -> int | None:
    """Start of the range that a snapshot shows in full: events that reappear there are not new."""
    floor = None if snapshot is None else snapshot.state.floor
    if floor is None or start is None:
        return floor if start is None else start
    return max(floor, start)


def left_of(
    snapshot: Snapshot | None,
    start: int | None,
    end: int | None,
    check: Callable[[], None] | None = None,
    deleted: Sequence[DeletedEvents] = (),
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The ticks of a snapshot that later deletes left, in order, and which of them changed."""
    if snapshot is None:
        return np.empty(0, np.int64), np.empty(0, np.bool_)
    schema = snapshot.schema
    batches = snapshot.scan(start, end, [schema.time], check=check)
    parts = [ticks_of(batch, schema) for batch in batches]
    ticks = np.concatenate(parts) if parts else np.empty(0, np.int64)
    changed = np.zeros(ticks.size, np.bool_)
    for each in deleted:
        places = each.places(ticks)
        if each.changed:
            changed[places] = True
        else:
            ticks, changed = np.delete(ticks, places), np.delete(changed, places)
    return ticks, changed
