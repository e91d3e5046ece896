"""Deletes and updates: segments rewritten without some of their events, or with other values.

Purpose
    :func:`delete_events` takes events out of a stream for good, whichever they are: those of a
    range of times, or those that a condition chooses.  :func:`update_events` gives these other
    values in their place, :func:`replace_events` puts finished segments where a range of times was.

Guarantee
    Atomic and durable when it returns: readers see all of the deleted events or none, after any
    accident.  Deleted is what was committed when the delete began and satisfies the condition; an
    append that goes on meanwhile is not waited for and not touched.  What is left is in the order
    that it had.  Snapshots that were taken before keep what they saw, in files that go when the
    last lease on them ends; no other file holds a deleted event, or what an updated one was,
    afterwards.

Algorithm
    The condition is evaluated once, over a snapshot, and gives tick and rank of each event
    (:mod:`.deletions`). Then, as in a compaction, the segments that hold one are written anew
    without them, while appends go on, and one manifest names the new ones. ::

        base     |==== 1 ====|==== 2 ====|==== 3 ====|== active ==| tail
        deleted        x        xxxxxxxxxxxxxx
        after    |=== 5 ===|=============|=== 6 ===| == active ==| tail       2 is not even read

    What is still in the log (the tail, the late buffer) goes into a segment first, where something
    of it is deleted: the log is begun anew with every manifest.  Late runs are folded where
    something of one is deleted, and otherwise left alone.

    What comes in the place of a range is in segments already (:mod:`.staging`): the manifest that
    no longer names the old ones names these.  What is rewritten is cut where the range begins, so
    that they fit in between.

Cost
    That of rewriting the segments which hold something; those of which all goes cost nothing, so a
    range of times costs a commit and the two segments at its ends.  Reading is as fast afterwards
    as it was before: there is nothing to be left out.  An update rewrites all that it touches.

Limits
    One delete, update or compaction at a time.  Needs free space for the rewritten segments before
    the old ones can go.  An update leaves the time of an event as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.threads import processors
from ..errors import ResourceLimit
from .catalog import SegmentEntry, StreamManifest
from .commits import Commits
from .compaction import ATTEMPTS, active_first, rewritten, show, spill
from .deletions import DeletedEvents, TickRun, write_deletion
from .draft import seal
from .edit import Edit
from .fold import Fold, events_between
from .leaving_out import without_rows
from .recent import LargeCommit
from .segment import TICK_MAX
from .snapshot import Snapshot, StreamState
from .tail import ticks_of
from .tap import Arrival, Spans, united

__all__ = ["Addition", "Change", "Choice", "delete_events", "replace_events", "update_events"]

THREADS_MAX = 4
"""Threads that rewrite: each holds some leaves of megabytes."""

Choice = Callable[[Snapshot], Iterable[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]]
"""Of the events of a snapshot, in its order and in pieces: their ticks, and which are to go."""


Change = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Of some events, in their order: the columns that change, of as many rows."""


class Addition(Protocol):
    """What comes into a stream with the commit of a delete.

    Attributes
    ----------
    spans : tuple of (int, int)
        Ranges of ticks that cover it, once it has joined.
    late : int
        Events of it that readers have to merge.
    """

    spans: Spans
    late: int

    def join(self, commits: Commits, edit: Edit) -> Edit:
        """The delete's change of the stream with it; the lock is held, and no tail is left."""
        ...

    def applied(self) -> None:
        """It has happened."""
        ...


class _Outdated(Exception):
    """Events were dropped since it was looked which are to go: look again."""


def delete_events(
    commits: Commits, first: int, last: int, choose: Choice | None, stopped: Callable[[], bool]
) -> int:
    """Delete the events with first <= t <= last, or those that are chosen among them.

    The caller sees to it that nothing else is compacted or deleted meanwhile.

    Parameters
    ----------
    choose : callable, optional
        Without it all of them; it may leave ticks beyond the range out.
    stopped : callable
        As for :func:`~.compaction.compact`.

    Returns
    -------
    int
        Events that are gone.

    Raises
    ------
    ResourceLimit
        The stream changed each time before it was done; nothing is deleted.
    StorageFull, StorageFailed
        Nothing is deleted; every event is there as before.
    """
    return _rewrite(commits, first, last, choose, None, None, stopped)


def update_events(
    commits: Commits,
    first: int,
    last: int,
    choose: Choice | None,
    change: Change,
    stopped: Callable[[], bool],
) -> int:
    """Give events with first <= t <= last, or those that are chosen among them, other values.

    As :func:`delete_events`; gives the number of events that were given to ``change``, which is
    called in order of time, as often as the stream has to be looked at.  What it raises ends the
    update, and nothing is changed.
    """
    return _rewrite(commits, first, last, choose, change, None, stopped)


def replace_events(
    commits: Commits, first: int, last: int, addition: Addition, stopped: Callable[[], bool]
) -> int:
    """Delete the events with first <= t <= last and bring others in by the same commit.

    As :func:`delete_events`; without any event to delete nothing happens, and 0 is the answer.
    """
    return _rewrite(commits, first, last, None, None, addition, stopped)


def _rewrite(
    commits: Commits,
    first: int,
    last: int,
    choose: Choice | None,
    change: Change | None,
    addition: Addition | None,
    stopped: Callable[[], bool],
) -> int:
    for _ in range(ATTEMPTS):
        with commits.lock:
            commits.check_writable()
            snapshot, dropped = Snapshot(commits.state()), commits.manifest.dropped_events
        deleted: DeletedEvents | None
        if choose is not None:
            deleted = DeletedEvents.chosen(choose(snapshot))
        else:
            deleted = DeletedEvents(first, last) if _events_in(snapshot, first, last) else None
        if deleted is None:
            return 0
        deleted = replace(deleted, changed=change is not None)
        removed = _Removed(commits, deleted, change, addition, dropped)
        try:
            if rewritten(commits, removed.begin, stopped):
                return removed.events
        except _Outdated:
            continue
    raise ResourceLimit(
        f"the stream {commits.manifest.name!r} changed during each of {ATTEMPTS} attempts to "
        f"{'delete' if change is None else 'update'}: nothing is done; try again when less is "
        "loaded, truncated or dropped"
    )


def _events_in(snapshot: Snapshot, first: int, last: int) -> int:
    """Events of a range of ticks, both inclusive."""
    return int(snapshot.aggregate((), first, None if last == TICK_MAX else last + 1).count)


class _Removed:
    """The attempts of one delete or update.

    Attributes
    ----------
    events : int
        What the last attempt has taken out or changed.
    """

    def __init__(
        self,
        commits: Commits,
        deleted: DeletedEvents,
        change: Change | None,
        addition: Addition | None,
        dropped: int,
    ) -> None:
        self._commits = commits
        self._deleted = deleted
        self._change = change
        self._addition = addition
        self._dropped = dropped
        self._fold: _Delete | None = None

    @property
    def events(self) -> int:
        return 0 if self._fold is None else self._fold.removed

    def begin(self) -> Fold | None:
        """Bring what is deleted into sealed files and choose those; None when there is nothing."""
        commits, deleted = self._commits, self._deleted
        self._fold = None
        with commits.lock:
            commits.check_writable()
            before = commits.manifest.version
            try:
                self._check_ranks()
                self._seal()
                self._check_ranks()
            except _Outdated:
                show(commits, before)
                raise
            manifest = commits.manifest
            whole: tuple[SegmentEntry, ...] = ()
            if self._change is None:
                whole = tuple(run for run in manifest.runs if deleted.covers(run.first, run.last))
            runs = tuple(run for run in manifest.runs if run not in whole)
            if not any(deleted.touches(run.first, run.last) for run in runs):
                runs = ()
            touched = any(deleted.touches(e.first, e.last) for e in manifest.segments)
            if not (runs or whole or touched):
                show(commits, before)
                return None
            commits.fold((*runs, *whole))
            views = commits.views.by_id(manifest)
            self._fold = _Delete(
                commits.schema, runs, manifest.segments, views,
                expires=commits.expires(exactly=False),
                deleted=deleted, change=self._change, addition=self._addition, whole=whole,
                begun=Snapshot(commits.state()), threads=min(THREADS_MAX, processors()),
            )  # fmt: skip
            if self._addition is not None:
                self._fold.horizon, self._fold.cold_bytes = deleted.first, 0
            return self._fold

    def _check_ranks(self) -> None:
        """Where events have gone, those of their ticks that are left may have other ranks."""
        if self._deleted.ticks is None:
            return
        if self._commits.manifest.dropped_events != self._dropped:
            raise _Outdated

    def _seal(self) -> None:
        """Write what of it is in the log, and in the active segment."""
        commits, deleted, schema = self._commits, self._deleted, self._commits.schema
        late = [ticks_of(batch, schema) for batch in commits.journal.late]
        if any(deleted.touches(int(ticks[0]), int(ticks[-1])) for ticks in late):
            spill(commits)
        touched = [e.last for e in commits.manifest.runs if deleted.touches(e.first, e.last)]
        newest = max((deleted.last, *(e.last for e in commits.manifest.runs if touched)))
        active_from = active_first(commits)
        if active_from is None:
            return
        if newest >= active_from or (touched and not commits.manifest.segments):
            seal(commits)


@dataclass
class _Delete(Fold):
    """The rewriting of a delete or update.

    Attributes
    ----------
    deleted : DeletedEvents
        Of an update, which events change.
    change : callable or None
        What becomes of them; they go without it.
    addition : Addition or None
        What comes instead.
    begun : Snapshot
        The stream when it began.
    whole : tuple of SegmentEntry
        Late runs of which nothing is left.
    removed : int
        Events left out or changed.
    before, told : StreamState, DeletedEvents
        The stream just before the commit, and which events it is told to be about.
    """

    deleted: DeletedEvents = field(kw_only=True)
    change: Change | None = field(kw_only=True)
    addition: Addition | None = field(kw_only=True)
    begun: Snapshot = field(kw_only=True)
    whole: tuple[SegmentEntry, ...] = ()
    removed: int = 0
    before: StreamState | None = None
    told: DeletedEvents | None = None

    def __post_init__(self) -> None:
        for entry in self.whole:
            self._count(entry)
        self._preparing = Thread(target=self.deleted.prepare, name="chronicle-deleted")
        self._preparing.start()

    def _count(self, entry: SegmentEntry) -> None:
        """All of a segment goes: of it, what retention still shows is deleted."""
        shown = entry.events
        if self.expires is not None and entry.first < self.expires:
            shown = events_between(self.views[entry.id], self.expires, TICK_MAX)
        self.removed += shown
        self.expired += entry.events - shown

    @property
    def keeps_codes(self) -> bool:
        return self.change is None  # which wants plain strings

    @property
    def sources(self) -> frozenset[int]:
        return super().sources | {entry.id for entry in self.whole}

    def drops(self, entry: SegmentEntry) -> bool:
        first = entry.first
        if self.expires is not None and first < self.expires <= entry.last:
            first = self.expires
        if self.change is not None or not self.deleted.covers(first, entry.last):
            return False
        self._count(entry)
        return True

    def touches(self, entry: SegmentEntry) -> bool:
        return self.deleted.touches(entry.first, entry.last)

    @property
    def in_turn(self) -> bool:
        return self.change is not None

    def begun_tick(self, group: Sequence[SegmentEntry]) -> TickRun:
        if not group:
            return TickRun()
        tick = group[0].first
        before = self.segments[: self.segments.index(group[0])]
        ending = (self.views[entry.id] for entry in before if entry.last == tick)
        return TickRun(tick, sum(events_between(view, tick, tick) for view in ending))

    def left(
        self, batch: pa.RecordBatch, before: int, given: bool = False
    ) -> tuple[pa.RecordBatch, int]:
        places = self.deleted.places(ticks_of(batch, self.schema), before)
        if not places.size:
            return batch, 0
        if self.change is not None:
            return _changed(batch, places, self.change), places.size
        return without_rows(batch, places, given=given), places.size

    def note(self, gone: int) -> None:
        self.removed += gone

    def ready(self, commits: Commits) -> None:
        """What has come meanwhile is older than the addition: it goes into files before it."""
        if self.addition is not None:
            seal(commits)
            if commits.journal.late:
                spill(commits)

    def edit(self, commits: Commits, manifest: StreamManifest) -> Edit:
        self._preparing.join()
        position = commits.journal.position + 1
        self.before, self.told = commits.state(), self._told(commits)
        noted = write_deletion(commits.files, commits.directory, position, self.told)
        edit = super().edit(commits, manifest)
        assert edit.manifest is not None
        manifest = edit.manifest  # what has expired is told
        edit = replace(
            edit,
            journal=replace(commits.journal, position=position),
            manifest=replace(
                manifest,
                deleted_events=manifest.deleted_events + (0 if self.change else self.removed),
                deletions=manifest.deletions.noted(noted),
            ),
            left=() if noted.file is None else (noted.file,),
        )
        return edit if self.addition is None else self.addition.join(commits, edit)

    def _told(self, commits: Commits) -> DeletedEvents:
        """What went, for those who follow: of a range, events may have come meanwhile that stay."""
        deleted = self.deleted
        if deleted.ticks is not None:
            return deleted
        now = _events_in(Snapshot(commits.state()), deleted.first, deleted.last)
        if now == self.removed:
            return deleted
        end = None if deleted.last == TICK_MAX else deleted.last + 1
        batches = self.begun.scan(deleted.first, end, [self.schema.time])
        ticks = (ticks_of(batch, self.schema) for batch in batches)
        told = DeletedEvents.chosen((each, np.ones(each.size, np.bool_)) for each in ticks)
        return replace(told or deleted, changed=deleted.changed)

    def applied(self, commits: Commits) -> None:
        assert self.before is not None
        assert self.told is not None
        position = commits.journal.position
        spans, told, late = self.deleted.spans, self.told.spans, 0
        if self.addition is not None:
            self.addition.applied()
            late = self.addition.late
            spans, told = (united((*each, *self.addition.spans)) for each in (spans, told))
        if commits.tap is not None:
            commits.tap.note(Arrival(position - 1, position, spans, None, late))
        if commits.recent is not None and not (self.change is None and self.addition is None):
            commits.recent.note(
                LargeCommit(position, late, self.before, commits.state(), told, (self.told,))
            )


def _changed(
    batch: pa.RecordBatch, places: npt.NDArray[np.int64], change: Change
) -> pa.RecordBatch:
    """A batch whose events at some places are what they become."""
    whole = places.size == batch.num_rows
    new = change(batch if whole else batch.take(pa.array(places)))
    mask = np.zeros(batch.num_rows, np.bool_)
    mask[places] = True
    order = np.arange(batch.num_rows)
    order[places] = batch.num_rows + np.arange(places.size)
    for name, values in zip(new.schema.names, new.columns, strict=True):
        at = batch.schema.get_field_index(name)
        if whole:
            column = values
        elif isinstance(values, pa.ExtensionArray) or pa.types.is_nested(values.type):
            column = pa.concat_arrays([batch.column(at), values]).take(pa.array(order))
        else:
            column = pc.replace_with_mask(batch.column(at), pa.array(mask), values)
        batch = batch.set_column(at, batch.schema.field(at), column)
    return batch
