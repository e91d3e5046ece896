"""The floor of a stream: the tick before which retention shows nothing, at every commit.

Segments are dropped whole, when a manifest is replaced (see retention below).  Older events that
remain in a file, a late run or the log are hidden: ``Floors`` computes the *floor* of each state.

Guarantee: no event that retention keeps is hidden; expired events are shown only if they share a
leaf with the first one kept, or are late with times of that leaf.  A floor never goes back, except
after a truncation or a change of retention, before which hidden events are removed.

Which tick: for an age, the start of the first base leaf that reaches the horizon; for a size, of
the first leaf from which on the rest fits.  So it moves once per leaf, not per event, and the
states in between share everything. ::

    segment     | leaf | leaf | leaf | leaf |     | leaf | ...
    events      ..........|.....................................
                hidden    ^ floor  ^ horizon
                |- until a manifest drops the segment -|

Readers in other processes derive the floor from the manifest and its log.  The manifest has the
hold of its time, which keeps at least as much as the present one: they may show slightly more.

Limits: nothing is hidden of an unreadable segment, nor of the tail.  A size counts late runs by
their newest events and hides their events by tick; leaves that share a tick are both shown.

Retention: which segments and late runs a manifest drops.  An age counts from the newest in-order
event of the stream; a size keeps the newest events that fit.  Older events are hidden at every
commit.

Guarantee: nothing that is kept is dropped.  A segment written by appends spans at most a quarter of
the age, or an eighth of the size, so at most one and a quarter of either is on disk.

Holds: a roll-up must read events before they are dropped.  Ages then count from its ``Hold``::

    dropped          kept by the hold                               open windows
    ...........|=======================|===============|===========|- - - - - ->
            horizon             W - age      last - age      kept  W     last

Limits: late runs stay until the floor has passed their newest event; bulk-loaded segments, and
those joined with late events, until their newest is too old.  The newest segment always stays.

Hidden events: a snapshot shows nothing before the floor (``Snapshot.scan``, ``aggregate``).
Segments and late runs that end before it are left out of a state; positions in the first segment do
not change.  Counting what is hidden reads a path of nodes, and a leaf where the floor is inside of
one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import ChronicleError
from .catalog import StreamManifest, truncated_at
from .journal import Journal
from .layout import ROW_OFFSET
from .leaf_map import leaf_map
from .options import retention_limits
from .segment import TICK_MAX, TICK_MIN, Aggregation, SegmentView
from .segment_views import SegmentViews, ViewSource
from .snapshot import StreamState
from .tail import MemoryLeaf


@dataclass(frozen=True)
class Hold:
    """Retention counts as if ``newest`` were the newest tick, and keeps all events from ``first``
    on.
    """

    newest: int
    first: int


def together(holds: Sequence[Hold]) -> Hold | None:
    if not holds:
        return None
    return Hold(min(each.newest for each in holds), min(each.first for each in holds))


def horizon(newest: int, age: int, hold: Hold | None = None) -> int:
    """The tick before which nothing is kept, when ``newest`` is the newest one."""
    if hold is None:
        return max(TICK_MIN, newest - age)
    return max(TICK_MIN, min(min(newest, hold.newest) - age, hold.first))


def loosened(manifest: StreamManifest, retention: object) -> bool:
    """Whether another retention setting may keep more than the stream's."""
    age, size = manifest.retention_limits
    if age is None and size is None:
        return False
    setting = None if retention is None else str(retention)
    other, _ = retention_limits(setting, manifest.schema)
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
    ticks, size = manifest.retention_limits
    if ticks is None and size is None:
        return manifest
    entries = manifest.segments.after(manifest.runs)
    before = _floor(manifest)
    if ticks is not None and newest is not None:
        before = max(before, horizon(newest, ticks, hold))
    alive = entries.lasts >= before
    if size is not None:
        left = np.flatnonzero(alive)
        oldest_first = left[np.argsort(entries.lasts[left], kind="stable")]
        total = int(entries.bytes[left].sum()) + active
        for at in oldest_first[: None if active else -1].tolist():
            last, total = int(entries.lasts[at]), total - int(entries.bytes[at])
            if total < size or (hold is not None and last >= hold.first):
                break  # fits in part: the rest is hidden
            alive[at] = False
            before = max(before, min(TICK_MAX - 1, last) + 1)
    count = len(manifest.segments)
    behind = np.flatnonzero(alive[:count])
    at = int(behind[0]) if behind.size else count
    begin = int(entries.firsts[at]) if at < count else following
    while at and begin is not None and entries.lasts[at - 1] == begin and _floor(manifest) <= begin:
        at -= 1
        alive[at], begin = True, int(entries.firsts[at])
    # Late events are shown, too, for the times of the leaf that reaches the horizon.
    bound = before if begin is None else max(_floor(manifest), min(before, begin))
    alive[count:] = entries.lasts[count:] >= bound
    if alive.all():
        return manifest
    dropped = int(entries.events[~alive].sum())
    runs = tuple(run for run, stays in zip(manifest.runs, alive[count:], strict=True) if stays)
    manifest = replace(manifest, segments=manifest.segments.where(alive[:count]), runs=runs)
    return manifest.dropping(dropped, before)


def _floor(manifest: StreamManifest) -> int:
    return TICK_MIN if manifest.floor is None else manifest.floor


def leaf_at(view: SegmentView, tick: int) -> tuple[int, int] | None:
    """First and last tick of the first leaf that reaches a tick; None if none does."""
    leaves = leaf_map(view)
    at = int(np.searchsorted(leaves.last_ticks, tick))
    if at == len(leaves.last_ticks):
        return None
    return int(leaves.first_ticks[at]), int(leaves.last_ticks[at])


def events_shown(view: SegmentView, tick: int | None) -> tuple[int, int | None]:
    """Number of events of a segment from a tick on, and the time of the first of them."""
    if tick is None or view.first >= tick:
        return view.events, view.first
    sums = Aggregation(view.file.schema, (), tick)
    view.aggregate(sums)
    return sums.count, sums.first


logger = logging.getLogger("chronicle.store")

Held = Callable[[], Hold | None]


class _Stored(NamedTuple):
    """What a state is made of: the segments and late runs of a manifest, the active segment,
    the late buffer.
    """

    manifest: StreamManifest
    source: ViewSource
    active: SegmentView | None
    late: tuple[pa.RecordBatch, ...]

    def leaf(self, target: int) -> tuple[int, int]:
        """Start of the leaf at a tick (the tick between leaves), and the last tick of which that is
        true.
        """
        entries = self.manifest.segments
        at = int(np.searchsorted(entries.lasts, target))
        first = until = int(entries.firsts[at]) if at < len(entries) else TICK_MAX
        leaf = None
        if first < target:
            leaf = leaf_at(self.source.view(entries[at]), target)
        elif at == len(entries) and self.active is not None:
            leaf = leaf_at(self.active, target)
        if leaf is not None:
            first, until = leaf
        return min(first, target), until

    def base(self, tick: int) -> _Base:
        """The segments from a tick on."""
        entries, active = self.manifest.segments, self.active
        at = int(np.searchsorted(entries.lasts, tick))
        hidden, first = int(entries.events[:at].sum()), None
        if at < len(entries):
            first = int(entries.firsts[at])
            if first < tick:
                shown, first = events_shown(self.source.view(entries[at]), tick)
                hidden += int(entries.events[at]) - shown
        elif active is not None:
            shown, first = events_shown(active, tick)
            hidden += active.events - shown
            active = active if shown else None
        return _Base(self.source.sequence(entries, active, at), first, hidden, TICK_MAX)

    def fitting(self, excess: int) -> tuple[int, int | None]:
        """The tick that cuts off ``excess`` bytes, and the bytes up to it.  Base leaves count in
        time order, each with the late runs that end before the next; one leaf stays.  Monotonic in
        ``excess``, so a floor that was not stored is found again.
        """
        entries = self.manifest.segments
        firsts, starts = entries.firsts, np.concatenate(([0], np.cumsum(entries.bytes)))
        if self.active is None:
            starts = starts[:-1]
        else:
            firsts = np.append(firsts, self.active.first)
        if not len(firsts):
            return TICK_MAX, None
        order = sorted(self.manifest.runs, key=lambda run: run.last)
        ends = np.array([run.last for run in order], np.int64)
        late = np.concatenate(([0], np.cumsum([run.bytes for run in order], dtype=np.int64)))
        before = starts + late[np.searchsorted(ends, firsts)]
        at = int(np.searchsorted(before, excess))
        if not at:  # late runs older than the base suffice
            runs = int(np.searchsorted(late[1:], excess))
            return int(late[runs + 1]), int(ends[runs]) + 1
        view = self.active if at > len(entries) else self.source.view(entries[at - 1])
        assert view is not None
        leaves = leaf_map(view)
        ticks = leaves.first_ticks
        offsets = starts[at - 1] + leaves.table[ROW_OFFSET] + late[np.searchsorted(ends, ticks)]
        cut = int(np.searchsorted(offsets, excess))
        if cut < len(ticks):
            return int(offsets[cut]), int(ticks[cut])
        if at == len(firsts):
            return excess, int(ticks[-1])
        return int(before[at]), int(firsts[at])

    def cut(self, target: int | None, bound: int | None) -> _Base:
        tick, until = TICK_MIN, TICK_MAX
        try:
            if target is not None:
                tick, until = self.leaf(target)
            return self.base(tick if bound is None else max(tick, bound))._replace(until=until)
        except (ChronicleError, OSError) as error:
            logger.warning(
                "%s: what retention no longer keeps is shown until the segment can be read: %s",
                self.manifest.name, error,
            )  # fmt: skip
        entries, latest = self.manifest.segments, _later(target, bound)
        assert latest is not None
        at = int(np.searchsorted(entries.lasts, latest))
        first = None if self.active is None else self.active.first
        first = int(entries.firsts[at]) if at < len(entries) else first
        hidden = int(entries.events[:at].sum())
        return _Base(self.source.sequence(entries, self.active, at), first, hidden, until)

    def late_from(self, floor: int | None) -> _Late:
        runs: list[SegmentView] = []
        firsts: list[int] = []
        hidden = 0
        for entry in self.manifest.runs:
            if floor is not None and entry.last < floor:
                hidden += entry.events
                continue
            view = self.source.view(entry)
            runs.append(view)
            try:
                shown, first = events_shown(view, floor)
            except (ChronicleError, OSError) as error:
                logger.warning("%s: a late run is counted whole: %s", self.manifest.name, error)
                shown, first = entry.events, entry.first
            hidden += entry.events - shown
            firsts += [] if first is None else [first]
        hidden_in_runs = hidden
        leaves: list[MemoryLeaf] = []
        for batch in self.late:
            leaf = MemoryLeaf(batch, self.manifest.schema)
            if floor is not None and leaf.first < floor:
                old = int(leaf.ticks().searchsorted(floor))
                hidden += old
                if old == leaf.events:
                    continue
                leaf = MemoryLeaf(batch.slice(old), self.manifest.schema)
            leaves.append(leaf)
            firsts.append(leaf.first)
        first = min(firsts, default=TICK_MAX)
        return _Late(tuple(runs), tuple(leaves), first, hidden, hidden_in_runs)


class _Base(NamedTuple):
    """The base of a state from a tick on, the same for every horizon up to ``until``; ``first`` is
    the first time that is shown.
    """

    views: SegmentViews
    first: int | None
    hidden: int
    until: int


class _Late(NamedTuple):
    """The late events of a state from a floor on, their first time, and the number of hidden ones:
    all, in runs.
    """

    runs: tuple[SegmentView, ...]
    leaves: tuple[MemoryLeaf, ...]
    first: int
    hidden: int
    hidden_in_runs: int


class _Shown(NamedTuple):
    """What readers see of ``stored``, the same for every horizon up to ``until``."""

    stored: _Stored
    base: _Base
    late: _Late
    floor: int | None
    until: int


class Floors:
    """Makes the states of a stream, each with its ``floor``, which only goes up."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset, after a truncation or a change of retention."""
        self.floor: int | None = None
        self._shown: _Shown | None = None
        self._sized: tuple[StreamManifest | None, int, int | None] = None, 0, None

    def state(
        self, manifest: StreamManifest, journal: Journal, source: ViewSource,
        active: SegmentView | None, held: Held, *, pinned: bool = False,
    ) -> StreamState:  # fmt: skip
        """The state for readers; ``pinned``: use only the manifest's floor."""
        tail = journal.tail
        rows = tail.rows
        stored = _Stored(manifest, source, active, journal.late)
        _, base, late, floor, _ = self._shown_of(stored, journal, held, pinned)
        hidden = base.hidden + late.hidden
        before = _later(manifest.dropped_before, floor if hidden else None)
        written = 0 if active is None else active.events
        return StreamState(
            manifest.schema,
            journal.position,
            manifest.version,
            base.views,
            late.runs,
            late.leaves,
            (lambda: tail.leaf(rows)) if rows else None,
            rows,
            manifest.dropped_events + hidden,
            journal.last,
            manifest.stored_events + written - base.hidden - late.hidden_in_runs,
            manifest.deleted_events,
            manifest.deletions.newest,
            before,
            truncated_at(manifest.jobs),
            journal.marks,
            floor,
        )

    def _shown_of(self, stored: _Stored, journal: Journal, held: Held, pinned: bool) -> _Shown:
        target = None if pinned else self._target(stored, journal.last, None)
        shown = self._shown
        if (
            shown is not None
            and all(a is b for a, b in zip(shown.stored, stored, strict=True))
            and (target is None or target <= shown.until)
        ):
            return shown
        hold = None if pinned else held()
        if hold is not None:
            target = self._target(stored, journal.last, hold)
        bound = _later(stored.manifest.floor, self.floor)
        if (
            shown is not None
            and all(a is b for a, b in zip(shown.stored[:-1], stored[:-1], strict=True))
            and (target is None or target <= shown.base.until)
        ):
            base = shown.base  # only the late buffer is another
        else:
            base = stored.cut(target, bound)
        begin = journal.tail.first if base.first is None else base.first
        floor = target if target is None or begin is None else min(target, begin)
        floor = _later(floor, bound)
        late = stored.late_from(floor)
        until = base.until
        if target is not None and (begin is None or begin > target):
            until = min(until, TICK_MAX if begin is None else begin, late.first)
        self.floor = _later(floor, self.floor)
        self._shown = shown = _Shown(stored, base, late, floor, until)
        return shown

    def _target(self, stored: _Stored, last: int | None, hold: Hold | None) -> int | None:
        age, size = stored.manifest.retention_limits
        if age is not None:
            return None if last is None else horizon(last, age, hold)
        tick = None if size is None else self._fitting(stored, size)
        return tick if tick is None or hold is None else min(tick, hold.first)

    def _fitting(self, stored: _Stored, size: int) -> int | None:
        manifest, active = stored.manifest, stored.active
        taken = int(manifest.segments.bytes.sum()) + sum(run.bytes for run in manifest.runs)
        excess = taken + (0 if active is None else active.length) - size
        if excess <= 0:
            return None
        known, upto, tick = self._sized
        if known is not manifest or excess > upto:
            try:
                upto, tick = stored.fitting(excess)
            except (ChronicleError, OSError) as error:
                logger.warning("%s: cannot be cut to its size: %s", manifest.name, error)
                upto, tick = TICK_MAX, None
            self._sized = manifest, upto, tick
        return tick


def _later(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
