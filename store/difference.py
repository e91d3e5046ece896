"""What a later snapshot of a stream holds beyond an earlier one.

Guarantee
    Every event that was committed in between, of a range of times, exactly once, in time order,
    ties in order of arrival.

Why it works
    A snapshot is the stable sort by time of what was committed.  So among the events of one tick
    those of the earlier commit come first, in the same order, and what the later commit has beyond
    their number is new:

    ::

        earlier   t=1: a b     t=2: c        t=5: d
        later     t=1: a b X   t=2: c        t=5: d Y    t=6: Z        new: X, Y, Z

    Of the earlier snapshot only the ticks are needed.

    Of what was deleted in between, the events that the earlier commit held are known by tick and
    rank (:mod:`.deletions`): taken off, what is left of it comes first, as before.  An event that
    was updated in between counts as new: it is told again, with its new values.

Limits
    Both are of one stream that was not truncated in between.
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
    """The events that a snapshot holds beyond another.

    Parameters
    ----------
    earlier : Snapshot or None
        None is the stream before its first event.
    start, end : int or None
        Ticks, half-open.
    columns : sequence of str
        Columns wanted, in that order.
    check : callable, optional
        Called between blocks; what it raises ends the read.
    deleted : sequence of DeletedEvents
        What was deleted or updated in between, in order of commits.

    Yields
    ------
    pyarrow.RecordBatch
        Not empty.
    """
    start = shown_from(earlier, start)
    known, changed = left_of(earlier, start, end, check, deleted)
    wanted = list(columns)
    if known.size == 0:
        yield from later.scan(start, end, wanted, check=check)
        return
    time = later.schema.time
    needed = wanted if time in wanted else [*wanted, time]
    run_tick, run_length = 0, 0  # the tick at the end of the batch before, and its events so far
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
    """Where a range begins in which a snapshot shows all that it has.

    What retention hides there is not new when a rewriting shows some of it again.
    """
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
    """What later deletes have left of a snapshot in a range: ticks, in order, and which changed."""
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
