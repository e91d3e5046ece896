"""The events that are new between two commits of a stream, for followers.

Every event that was committed after the first pin and up to the second is given exactly once, in
time order, ties in order of arrival (see below), unless it was deleted up to the second or
dropped by retention.  Ranges that may differ come from the manifests and then from the trees'
counts, without reading an event.  A truncation cannot be followed: it raises ``SnapshotExpired``.

The difference of two snapshots: a snapshot is the stable sort by time of what was committed.  So
among the events of one tick those of the earlier commit come first, in the same order, and the rest
is new::

    earlier   t=1: a b     t=2: c        t=5: d
    later     t=1: a b X   t=2: c        t=5: d Y    t=6: Z        new: X, Y, Z

Of the earlier snapshot only the ticks are needed.  Events that were deleted in between are
subtracted from it by tick and rank (``deletions``); updated ones count as new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.sorting import places_in
from ..errors import CorruptBlock, SnapshotExpired
from .catalog import truncated_at
from .deletions import DeletedEvents, TickRun
from .file_contract import Files
from .pins import Pin, catalog_of, journal_of, open_pinned
from .segment import TICK_MAX, TICK_MIN
from .snapshot import Snapshot
from .tail import ticks_of
from .tap import disjoint


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
    ticks_before, changed = left_of(earlier, start, end, check, deleted)
    wanted = list(columns)
    if ticks_before.size == 0:
        yield from later.scan(start, end, wanted, check=check)
        return
    time = later.schema.time
    needed = wanted if time in wanted else [*wanted, time]
    run = TickRun()
    for batch in later.scan(start, end, needed, check=check):
        ticks = ticks_of(batch, later.schema)
        rank = np.arange(ticks.size) - places_in(ticks, ticks)
        rank[ticks == ticks[0]] += run.before(ticks)
        low = places_in(ticks_before, ticks)
        fresh = rank >= places_in(ticks_before, ticks, "right") - low
        if changed.any():
            fresh |= changed[np.minimum(rank + low, ticks_before.size - 1)]
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


PIECES_MAX = 65_536


@dataclass(frozen=True)
class NewRange:
    """A half-open tick range with new events among ``stored`` ones, the cost of reading it."""

    start: int | None
    end: int | None
    events: int
    stored: int


def changed_spans(files: Files, before: Pin | None, after: Pin) -> list[tuple[int, int]]:
    """Inclusive, disjoint tick ranges outside of which two commits (None: empty) are equal."""
    if before is None:
        return [(TICK_MIN, TICK_MAX)]
    truncated = truncated_at(after.manifest["jobs"])
    if before.position < truncated:
        raise SnapshotExpired(
            f"the stream {after.manifest['name']!r} was truncated in commit {truncated}; "
            f"what came after commit {before.position} can no longer be told: follow it anew, with "
            "a new checkpoint"
        )
    old, new = catalog_of(files, before), catalog_of(files, after)
    old_journal, new_journal = journal_of(before), journal_of(after)
    before_that, after_that = (each.segments.after(each.runs) for each in (old, new))
    changed = (*after_that.missing(before_that), *before_that.missing(after_that))
    spans = [(entry.first, entry.last) for entry in changed]
    for journal in (old_journal, new_journal):
        for batch in journal.late:
            ticks = ticks_of(batch, new.schema if journal is new_journal else old.schema)
            spans.append((int(ticks[0]), int(ticks[-1])))
    if new_journal.last is not None:
        low = TICK_MIN if old_journal.last is None else old_journal.last
        # a bulk load may have left `last` one tick beyond its events
        spans.append((max(TICK_MIN, low - 1), TICK_MAX))
    return disjoint(spans)


def new_ranges(files: Files, before: Pin | None, after: Pin) -> list[NewRange]:
    """Disjoint ranges with new events, in time order; ``before`` None is the empty stream."""
    ranges: list[NewRange] = []
    deleted = deleted_between(files, before, after)
    for first, last in changed_spans(files, before, after):
        start = None if first == TICK_MIN else first
        end = None if last == TICK_MAX else last + 1
        later = open_pinned(files, after, start, end)
        earlier = None if before is None else open_pinned(files, before, start, end)
        start = shown_from(later, shown_from(earlier, start))
        if start is not None and end is not None and start >= end:
            continue
        fewer = any(each.touches(first, last) for each in deleted)
        left = None
        if fewer:
            ticks, changed = left_of(earlier, start, end, None, deleted)
            left = ticks[~changed]
        for low, high in _pieces(later, start, end):
            stored = later.events_between(low, high)
            if left is not None:
                earlier_events = _between(left, low, high)
            else:
                earlier_events = 0 if earlier is None else earlier.events_between(low, high)
            if stored > earlier_events:
                ranges.append(NewRange(low, high, stored - earlier_events, stored))
    return ranges


def deleted_between(files: Files, before: Pin | None, after: Pin) -> list[DeletedEvents]:
    """Deletes and updates between two commits; ``SnapshotExpired`` when no longer known."""
    if before is None:
        return []
    deletions = after.outline.deletions.after(before.position)
    try:
        if deletions is not None:
            upto = (each for each in deletions if each.position <= after.position)
            return [each.load(files, after.directory) for each in upto]
    except (FileNotFoundError, CorruptBlock):
        pass  # no lease kept the earlier files, or they are damaged
    raise SnapshotExpired(
        f"events of the stream {after.manifest['name']!r} were deleted or updated since commit "
        f"{before.position}, "
        "and what came after that commit can no longer be told: follow it anew, with a new "
        "checkpoint"
    )


def _between(ticks: npt.NDArray[np.int64], start: int | None, end: int | None) -> int:
    low = 0 if start is None else int(ticks.searchsorted(start))
    return (ticks.size if end is None else int(ticks.searchsorted(end))) - low


def _pieces(
    snapshot: Snapshot, start: int | None, end: int | None
) -> Iterator[tuple[int | None, int | None]]:
    low = start
    for cut, _ in snapshot.ranges(PIECES_MAX):
        if cut is None or (start is not None and cut <= start):
            continue
        if end is not None and cut >= end:
            break
        yield low, cut
        low = cut
    yield low, end


def new_events(
    files: Files,
    before: Pin | None,
    after: Pin,
    start: int | None,
    end: int | None,
    columns: Sequence[str],
    check: Callable[[], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The new events of [start, end), in ticks, in time order; ``check`` may end the read."""
    later = open_pinned(files, after, start, end)
    earlier = None if before is None else open_pinned(files, before, start, end)
    deleted = deleted_between(files, before, after)
    yield from added_events(earlier, later, start, end, columns, check, deleted)


def rows_between(
    batches: Iterator[pa.RecordBatch], skip: int, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """The rows of batches behind the first ``skip``, at most ``limit``."""
    left = limit
    if left == 0:
        return
    for batch in batches:
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        chosen = batch.slice(skip) if left is None else batch.slice(skip, left)
        skip = 0
        if left is not None:
            left -= chosen.num_rows
        yield chosen
        if left == 0:
            return
