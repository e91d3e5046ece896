"""Deletes, updates and range replacements: segments rewritten without, or with changed, events.

Guarantee: atomic and durable on return.  It covers the events that were committed when it began;
concurrent appends are neither blocked nor changed.  Earlier snapshots keep what they saw, in files
that are removed when the last lease on them ends; no other file then holds a deleted event or an
old value.

Algorithm: the condition is evaluated once, over a snapshot, and gives tick and rank of each event
(``deletions``).  Then, as in a compaction, the segments that hold one are rewritten, and one
manifest names the new ones. ::

    base     |==== 1 ====|==== 2 ====|==== 3 ====|== active ==| tail
    deleted        x        xxxxxxxxxxxxxx
    after    |=== 5 ===|=============|=== 6 ===| == active ==| tail       2 is not even read

Affected parts of the tail and the late buffer are sealed first, affected late runs folded.
Replacements are staged segments (``staging``), named by the same manifest; rewritten segments are
cut where the range begins, so that they fit in between.

Limits: one delete, update or compaction at a time.  Needs free space for the rewritten segments.
An update cannot change the time of an event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ResourceLimit
from .catalog import StreamManifest
from .commits import Commits, Edit, seal
from .compaction import ATTEMPTS, Fold, active_first, events_between, rewritten, show, spill
from .deletions import DeletedEvents, TickRun, write_deletion
from .duplicates import without
from .recent import LargeCommit
from .segment import TICK_MAX
from .segment_list import SegmentEntry
from .snapshot import Snapshot, StreamState
from .tail import ticks_of
from .tap import Arrival, Spans, united

Choice = Callable[[Snapshot], Iterable[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]]
"""From a snapshot's events, in order and in pieces: their ticks and a mask of those chosen."""


Change = Callable[[pa.RecordBatch], pa.RecordBatch]
"""From some events, in order: the changed columns, with as many rows."""


class Addition(Protocol):
    """Segments that enter a stream with a delete; ``late`` events of them have to be merged."""

    late: int

    @property
    def spans(self) -> Spans: ...

    def join(self, commits: Commits, edit: Edit) -> Edit:
        """The delete's edit with the addition; the lock is held, and the tail is empty."""
        ...

    def applied(self) -> None: ...


class _Outdated(Exception):
    """Events were dropped since the condition was evaluated: evaluate it again."""


def rewrite_events(
    commits: Commits,
    first: int,
    last: int,
    stopped: Callable[[], bool],
    *,
    choose: Choice | None = None,
    change: Change | None = None,
    addition: Addition | None = None,
) -> int:
    """Delete the events with first <= t <= last, or those chosen among them, or ``change`` them (in
    each attempt once more); or replace all of them by an addition, if there are any.  Returns their
    number.  The caller excludes compactions.  ``ResourceLimit`` after too many concurrent changes.
    All or nothing.
    """
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
        deleted.prepare()
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
    return snapshot.events_between(first, None if last == TICK_MAX else last + 1)


@dataclass
class _Removed:
    commits: Commits
    deleted: DeletedEvents
    change: Change | None
    addition: Addition | None
    dropped: int
    fold: _Delete | None = None

    @property
    def events(self) -> int:
        return 0 if self.fold is None else self.fold.removed

    def begin(self) -> Fold | None:
        commits, deleted = self.commits, self.deleted
        self.fold = None
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
            if self.change is None:
                whole = tuple(run for run in manifest.runs if deleted.covers(run.first, run.last))
            runs = tuple(run for run in manifest.runs if run not in whole)
            if not any(deleted.touches(run.first, run.last) for run in runs):
                runs = ()
            touched = any(deleted.touches(e.first, e.last) for e in manifest.segments)
            if not (runs or whole or touched):
                show(commits, before)
                return None
            commits.fold((*runs, *whole))
            view_of = commits.views.of_manifest(manifest)
            self.fold = _Delete(
                commits.schema, runs, manifest.segments, view_of,
                expires=commits.expires(exactly=False),
                deleted=deleted, change=self.change, addition=self.addition, whole=whole,
                begun=Snapshot(commits.state()),
            )  # fmt: skip
            if self.addition is not None:
                self.fold.horizon, self.fold.cold_bytes = deleted.first, 0
            return self.fold

    def _check_ranks(self) -> None:
        """Raise ``_Outdated`` if drops may have changed ranks."""
        if self.deleted.ticks is None:
            return
        if self.commits.manifest.dropped_events != self.dropped:
            raise _Outdated

    def _seal(self) -> None:
        commits, deleted, schema = self.commits, self.deleted, self.commits.schema
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
    """The rewriting of a delete or update: ``deleted`` go, or ``change``; ``addition`` replaces
    them.  ``begun`` is the snapshot at its beginning, ``whole`` are late runs that lose all events;
    ``before`` and ``told`` are for followers.
    """

    deleted: DeletedEvents = field(kw_only=True)
    change: Change | None = field(kw_only=True)
    addition: Addition | None = field(kw_only=True)
    begun: Snapshot = field(kw_only=True)
    whole: tuple[SegmentEntry, ...] = ()
    removed: int = 0
    before: StreamState | None = None
    reported: DeletedEvents | None = None

    def __post_init__(self) -> None:
        for entry in self.whole:
            self._count(entry)

    def _count(self, entry: SegmentEntry) -> None:
        """Count a segment that goes as a whole: events that retention still shows are deleted."""
        shown = entry.events
        if self.expires is not None and entry.first < self.expires:
            shown = events_between(self.view_of(entry), self.expires, TICK_MAX)
        self.removed += shown
        self.expired += entry.events - shown

    @property
    def keeps_codes(self) -> bool:
        return self.change is None  # ``change`` needs plain strings

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

    def begun_tick(self, group: Sequence[SegmentEntry]) -> TickRun:
        if not group:
            return TickRun()
        tick = group[0].first
        before = self.segments[: self.segments.index(group[0])]
        ending = (self.view_of(entry) for entry in before if entry.last == tick)
        return TickRun(tick, sum(events_between(view, tick, tick) for view in ending))

    def rest(self, batch: pa.RecordBatch, before: int) -> pa.RecordBatch:
        places = self.deleted.places(ticks_of(batch, self.schema), before)
        if not places.size:
            return batch
        self.removed += places.size
        if self.change is not None:
            return _changed(batch, places, self.change)
        return without(batch, places)[0]

    def ready(self, commits: Commits) -> None:
        if self.addition is not None:
            seal(commits)
            if commits.journal.late:
                spill(commits)

    def edit(self, commits: Commits, manifest: StreamManifest) -> Edit:
        position = commits.journal.position + 1
        self.before, self.reported = commits.state(), self._reported(commits)
        noted = write_deletion(commits.files, commits.directory, position, self.reported)
        edit = super().edit(commits, manifest)
        assert edit.manifest is not None
        manifest = edit.manifest  # with expired events counted
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

    def _reported(self, commits: Commits) -> DeletedEvents:
        """The events reported to followers; late arrivals in a deleted range stay."""
        deleted = self.deleted
        if deleted.ticks is not None:
            return deleted
        now = _events_in(Snapshot(commits.state()), deleted.first, deleted.last)
        if now == self.removed:
            return deleted
        end = None if deleted.last == TICK_MAX else deleted.last + 1
        batches = self.begun.scan(deleted.first, end, [self.schema.time])
        ticks = (ticks_of(batch, self.schema) for batch in batches)
        reported = DeletedEvents.chosen((each, np.ones(each.size, np.bool_)) for each in ticks)
        return replace(reported or deleted, changed=deleted.changed)

    def applied(self, commits: Commits) -> None:
        assert self.before is not None
        assert self.reported is not None
        position = commits.journal.position
        spans, reported, late = self.deleted.spans, self.reported.spans, 0
        if self.addition is not None:
            self.addition.applied()
            late = self.addition.late
            spans, reported = (united((*each, *self.addition.spans)) for each in (spans, reported))
        commit = None
        if self.change is not None or self.addition is not None:
            commit = LargeCommit(
                position, late, self.before, commits.state(), reported, (self.reported,)
            )
        if commits.tap is not None:
            commits.tap.note(Arrival(position - 1, position, spans, None, late), commit)


def _changed(
    batch: pa.RecordBatch, places: npt.NDArray[np.int64], change: Change
) -> pa.RecordBatch:
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
