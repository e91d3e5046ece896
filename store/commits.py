"""Commits: the state of a stream and its changes; only ``Commits.apply`` changes it.

Guarantee: files are complete and durable before a commit names them.  A failed change leaves
manifest, journal and writer unchanged; if the outcome is unknown, ``failed`` says why and every
later change is refused.  The order of writes::

    filled leaves    leaves -> sync of the segment -> log record (extent, new tail) -> sync
    seal, spill,     new files -> sync -> new log with a checkpoint -> sync -> manifest
    compaction

Concurrency: callers hold ``Commits.lock``, except for ``publish`` and the listener methods.
Readers take the reference ``published`` and never wait.

An ``Edit`` is the state after a change as one value, which ``Commits.apply`` installs.  A
``record`` is durable once the log is synced; a ``manifest`` replaces manifest and log together.

Drafts: segments that are written for an edit, and rolled back when their block raises.

Creates a stream in a directory; it exists once its manifest does.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from ..core.ownership import OwnedLock
from ..errors import CorruptStore, StorageFailed, StorageFull, StoreClosed, StreamOwned
from ..schema import StreamSchema
from .catalog import (
    QUARANTINE,
    StreamManifest,
    first_id,
    log_name,
    new_identity,
    truncated_at,
    write_manifest,
)
from .file_contract import Files
from .floor import Floors, Hold, horizon, retained, together
from .journal import Journal, RecordKind, install
from .layout import table_rows
from .log import LogWriter
from .manifest_pages import PAGE, commit_manifest
from .options import StreamOptions, settled
from .pins import collect_garbage, remove_quietly
from .recent import CommitTap
from .recovery import Recovered, load
from .segment import Root, SegmentView
from .segment_file import SegmentFile
from .segment_list import COUNTER_BITS, SegmentEntry, SegmentList, segment_name
from .segment_views import ViewSource
from .segment_writer import Extent, SegmentWriter
from .snapshot import StreamState
from .tail import Tail


class ActiveSegment(NamedTuple):
    """The segment that is being written, with its reader's view of the file."""

    writer: SegmentWriter
    file: SegmentFile

    @classmethod
    def begin(
        cls, files: Files, directory: str, number: int, schema: StreamSchema, options: StreamOptions
    ) -> ActiveSegment:
        path = f"{directory}/{segment_name(number)}"
        with suppress(FileNotFoundError):
            files.remove(path)
        writer = SegmentWriter(files, path, number, schema, options.codec, options.leaf_bytes)
        return cls(writer, SegmentFile(files, path, number, schema))

    @classmethod
    def resume(
        cls,
        files: Files,
        directory: str,
        extent: Extent,
        schema: StreamSchema,
        options: StreamOptions,
    ) -> ActiveSegment:
        path = f"{directory}/{segment_name(extent.segment_id)}"
        file = SegmentFile(files, path, extent.segment_id, schema)
        flank = dict(SegmentView.open_extent(file, extent).fragments)
        none = np.zeros((table_rows(schema), 0), np.int64)
        writer = SegmentWriter.resume(
            files,
            path,
            schema,
            options.codec,
            options.leaf_bytes,
            extent,
            [flank.get(level, none) for level in range(1, len(extent.levels) + 1)],
            {name: file.dictionary(name, pages) for name, pages in extent.pages.items() if pages},
        )
        return cls(writer, file)

    def view(self, extent: Extent) -> SegmentView:
        """The committed part for readers; the writer must stand at the extent."""
        self.file.data(extent.length)
        flank = [(level.level, np.ascontiguousarray(level.view())) for level in self.writer.levels]
        return SegmentView.of_flank(self.file, flank, extent)


@dataclass(frozen=True, eq=False)
class Edit:
    """The state of a stream after a change.

    ``manifest``: None when the record contains the whole change.
    ``views``: of segments and late runs that are new in the manifest.
    ``added``: events that the record adds to the tail: arguments of ``tail.Tail.add``.
    ``left``: files that only readers of earlier versions need.
    ``source``: replaces the source of all views, when segments are to be read differently.
    """

    journal: Journal
    active: ActiveSegment | None
    manifest: StreamManifest | None = None
    views: Mapping[int, SegmentView] = field(default_factory=dict)
    record: tuple[RecordKind, list[Any]] | None = None
    added: tuple[pa.RecordBatch, int, int] | None = None
    left: tuple[str, ...] = ()
    source: ViewSource | None = None


logger = logging.getLogger("chronicle.store")

FIGURES = (
    "spills",
    "compactions",
    "compaction_seconds",
    "events_rewritten",
    "manifest_commits",
    "positions_dropped",
    "moved_segments",
    "moved_bytes",
)


REACH_KEPT = 0.98
"""Decay factor of the reach at each append with late events."""


class Commits:
    """The committed state of a stream that is open for writing.

    ``published``: the state for readers.
    ``failed``: why changes are refused.
    ``folding``: late runs that a compaction is folding; nothing else may replace them.
    ``reach``: recent lateness of events, in ticks; 0 while unknown.
    ``tap``: receives commits with events, while somebody follows the stream.
    ``stored_version``: version of the manifest in the object store, as far as is known; else 0.
    ``holders``: give the ``retention.Hold`` of consumers that have yet to read events.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self.files = files
        self.directory = directory
        self.lock = OwnedLock(f"the stream in {directory}")
        self._publishing = threading.Lock()
        self.listeners: tuple[Callable[[StreamState], None], ...] = ()
        self._listening = threading.RLock()  # re-entrant: finalisers remove listeners
        self.tap: CommitTap | None = None
        self.holders: tuple[Callable[[], Hold], ...] = ()
        self.stored_version = 0
        self.closed = False
        self.failed: str | None = None
        self.folding: frozenset[int] = frozenset()
        self.reach = 0.0
        self.figures: dict[str, float] = dict.fromkeys(FIGURES, 0)
        loaded = load(files, directory)
        # Names may be visible but not durable after a crash or a failed sync: sync them
        # before anything is removed or depends on them.
        files.sync_directory(directory)
        self.manifest = loaded.manifest
        self.journal = loaded.journal
        self.views = ViewSource(files, directory, self.manifest)
        self._sources = weakref.WeakSet((self.views,))
        if self.views.eager:
            self.views.open_all()
        self._last_active: tuple[Extent, SegmentView] | None = None
        self._floors = Floors()
        # the hold at the last close, until holders register
        self._inherited = None if self.manifest.hold is None else Hold(*self.manifest.hold)
        self.next_id = self.manifest.next_id
        if not self.manifest.identity:  # from an old release
            self.next_id += new_identity() << COUNTER_BITS
        self._carry_over = False
        self._resume(loaded)
        self._sweep()
        self._carry_records_over()
        self.published = self.state()
        self._inherited = None

    @property
    def schema(self) -> StreamSchema:
        return self.manifest.schema

    @property
    def options(self) -> StreamOptions:
        return self.manifest.options

    def held(self) -> Hold | None:
        return self._inherited or together([holder() for holder in self.holders])

    def hold(self, holder: Callable[[], Hold]) -> None:
        self.holders = (*self.holders, holder)

    def release(self, holder: Callable[[], Hold]) -> None:
        self.holders = tuple(each for each in self.holders if each != holder)

    def _resume(self, loaded: Recovered) -> None:
        path = self.path(log_name(self.manifest.log))
        if loaded.torn:
            logger.warning(
                "%s: the log ends in an unfinished record; cut back to its last commit", path
            )
        if loaded.journal.refused:
            self._set_aside(path, loaded.journal.refused)
        self.log = LogWriter.reopen(self.files, path, loaded.log_length, loaded.log_records)
        intact = loaded.log_records == 1 or loaded.log_length == self.manifest.log_bytes
        intact = intact and bool(self.manifest.identity)  # else a new log assigns one
        self._carry_over = loaded.torn or not intact or bool(loaded.journal.refused)
        if self.journal.extent is not None:
            self.next_id = max(self.next_id, self.journal.extent.segment_id + 1)
        self.active = self._resumed()

    def _set_aside(self, path: str, refused: tuple[tuple[int, str], ...]) -> None:
        quarantine = self.path(QUARANTINE)
        self.files.make_directory(quarantine)
        with suppress(FileExistsError):
            self.files.link(path, f"{quarantine}/{log_name(self.manifest.log)}")
        self.files.sync_directory(quarantine)
        for _, reason in refused:
            logger.error("%s; its events are set aside in %s", reason, quarantine)

    def _carry_records_over(self) -> None:
        """Copy the records of an earlier session to a new log.  A sync of the old one may have
        failed: the kernel still shows its bytes but no longer writes them, and a second sync would
        claim success.  Only the manifest of a closed log proves that no sync failed.
        """
        if self._carry_over:
            try:
                self.renew_log()
            except StorageFull as error:
                logger.warning("%s: no space for a new log (%s)", self.directory, error)

    def finish_log(self) -> None:
        """Make the log durable and record its length, to detect truncation and to reuse it."""
        self.log.sync()
        if self.log.records == 1 or self.log.size == self.manifest.log_bytes:
            return
        manifest = replace(
            self.manifest,
            version=self.manifest.version + 1,
            events=self.manifest.stored_events + self.journal.rows,
            position=self.journal.position,
            log_bytes=self.log.size,
            floor=None if self.options.retention is None else self._floors.floor,
        )
        try:
            write_manifest(self.files, self.directory, manifest.to_json())
        except (StorageFull, StorageFailed) as error:
            logger.info("%s: how long its log is stays unsaid (%s)", self.directory, error)

    def _resumed(self) -> ActiveSegment | None:
        extent = self.journal.extent
        if extent is None:
            return None
        path = self.path(segment_name(extent.segment_id))
        if not self.files.exists(path):
            raise CorruptStore(f"{path} is missing; the log says it has {extent.length} bytes")
        return ActiveSegment.resume(self.files, self.directory, extent, self.schema, self.options)

    def _sweep(self) -> None:
        named = {*self.manifest.segments.files(), *(run.file for run in self.manifest.runs)}
        present = self.files.list(self.directory)
        lost = named.difference(present)
        if lost:
            raise CorruptStore(
                f"{self.path(min(lost))} is missing"
                + (f", and {len(lost) - 1} other segments" if len(lost) > 1 else "")
            )
        named.add(log_name(self.manifest.log))
        named.update(page.file for page in self.manifest.segments.pages)
        if self.journal.extent is not None:
            named.add(segment_name(self.journal.extent.segment_id))
        named.update(file for file, _ in self.collect_garbage())
        for file in present:
            if file.endswith((".seg", ".wal", ".gone", PAGE)) and file not in named:
                logger.info("%s: removing %s, which no commit names", self.directory, file)
                self._remove_quietly(file)

    def active_view(self) -> SegmentView | None:
        active, extent = self.active, self.journal.extent
        if active is None or extent is None:
            return None
        if self._last_active is None or self._last_active[0] is not extent:
            self._last_active = (extent, active.view(extent))
        return self._last_active[1]

    def state(self) -> StreamState:
        """The current state for readers; most of its parts are shared between commits."""
        active = self.active_view()
        written = active if active is not None and active.events else None
        return self._floors.state(self.manifest, self.journal, self.views, written, self.held)

    def hides(self) -> bool:
        return self.state().dropped > self.manifest.dropped_events

    def expires(self, *, exactly: bool) -> int | None:
        """The tick before which a rewriting drops events (``exactly``: not only hidden ones)."""
        floor = self.state().floor
        age, _ = self.manifest.retention_limits
        if not exactly or age is None or self.journal.last is None:
            return floor
        begin = horizon(self.journal.last, age, self.held())
        return begin if floor is None else max(begin, floor)

    def publish(self, state: StreamState) -> None:
        """Show readers a state, unless they see a newer one already."""
        if self.listeners:
            with self.lock:
                if self._replace_published(state):
                    for listener in self.listeners:
                        listener(state)
        else:
            self._replace_published(state)

    def _replace_published(self, state: StreamState) -> bool:
        with self._publishing:
            newer = state.position > self.published.position or (
                state.manifest_version > self.published.manifest_version
            )
            if newer:
                self.published = state
            return newer

    def check_owner(self, owner: str | None) -> None:
        """Refuse changes of the events by anybody but the stream's owner, if any."""
        if self.manifest.owner is not None and owner != self.manifest.owner:
            raise StreamOwned(
                f"the stream {self.manifest.name!r} holds what live queries put out, and nobody "
                "else can change that; change the live query, or write to a stream of your own"
            )

    def check_writable(self) -> None:
        """Refuse a change if the stream is closed, failed, or lacks space for a log."""
        if self.closed:
            raise StoreClosed(f"stream {self.manifest.name!r} is closed; open the store again")
        if self.failed is not None:
            raise StorageFailed(
                f"stream {self.manifest.name!r} takes no changes since a sync failed "
                f"({self.failed}); close the store and open it again"
            )
        if self._carry_over:
            self.renew_log()

    def note_reach(self, lateness: int) -> None:
        """Update the reach with the lateness of an append; older values decay."""
        self.reach = max(float(lateness), REACH_KEPT * self.reach)

    def note_reported(self, version: int) -> None:
        self.stored_version = version

    def new_segment(self, schema: StreamSchema | None = None) -> ActiveSegment:
        """Create a segment file that nothing names yet; by default in the stream's schema."""
        number = self.next_id
        self.next_id += 1
        return ActiveSegment.begin(
            self.files, self.directory, number, schema or self.schema, self.options
        )

    def seal_writer(self, writer: SegmentWriter) -> tuple[SegmentEntry, SegmentView]:
        entry = writer.seal(len(self.manifest.layouts))
        writer.close()
        view = SegmentView.open_sealed(self.files, writer.path, entry.id, writer.schema)
        return entry, view

    def take_back(self, drafted: ActiveSegment | None, first_id: int) -> None:
        """Undo a failed edit: reopen the active segment as it was committed, remove new files."""
        try:
            if drafted is not self.active and drafted is not None:
                drafted.writer.close()
            if self.active is not None:
                extent = self.journal.extent
                if drafted is self.active and extent is not None:  # else it was sealed
                    self.active.writer.truncate(extent.length)
                self.active.writer.close()
                self.active = self._resumed()
        except Exception as error:
            self.fail(error)
            logger.exception("%s: could not take back a failed change", self.directory)
        self.discard(range(first_id, self.next_id))

    def fail(self, error: BaseException) -> None:
        """Refuse changes from here on; the next opening finds what is stored."""
        self.failed = str(error)

    def discard(self, segment_ids: Iterable[int]) -> None:
        """Remove segment files that nothing names; the next opening retries failures."""
        for segment_id in segment_ids:
            with suppress(Exception):
                self.files.remove(self.path(segment_name(segment_id)))

    def apply(self, edit: Edit) -> None:
        """Make an edit the state of the stream; the only way to change it."""
        if edit.manifest is not None:
            self._replace(edit, edit.manifest)
            return
        assert edit.record is not None
        self.log.append(*edit.record)
        self.journal, self.active = edit.journal, edit.active
        if edit.added is not None:
            edit.journal.tail.add(*edit.added)

    def renew_log(self) -> None:
        self.apply(Edit(self.journal, self.active, self.manifest))

    def _replace(self, edit: Edit, manifest: StreamManifest) -> None:
        old, old_log, old_active = self.manifest, self.log, self.active
        journal = edit.journal
        hold = self.held()
        retention = manifest.options.retention
        if (truncated_at(manifest.jobs), retention) != (
            truncated_at(old.jobs), old.options.retention
        ):  # fmt: skip
            self._floors.forget()
            manifest = replace(manifest, floor=None)
        elif self._floors.floor is not None:  # else none was computed yet
            manifest = replace(manifest, floor=None if retention is None else self._floors.floor)
        length, following = 0, journal.tail.first
        if edit.active is not None and edit.active.writer.events:
            length, following = edit.active.writer.length, edit.active.writer.first
        manifest = retained(manifest, journal.last, hold, length, following)
        version = old.version + 1
        left_segments = old.segments.missing(manifest.segments)
        runs_named = {entry.id for entry in manifest.runs}
        left_runs = [entry for entry in old.runs if entry.id not in runs_named]
        left = (*edit.left, *left_segments.files(), *(entry.file for entry in left_runs))
        gone = [(file, version) for file in left]
        if self.journal.extent is not None and journal.extent != self.journal.extent:
            file = segment_name(self.journal.extent.segment_id)
            still = journal.extent is not None and (
                journal.extent.segment_id == self.journal.extent.segment_id
            )
            named = self.journal.extent.segment_id
            if not still and manifest.segments.find(named) is None and named not in runs_named:
                gone.append((file, version))
        manifest = replace(
            manifest,
            version=version,
            log=old.log + 1,
            next_id=self.next_id,
            events=manifest.stored_events + journal.rows,
            position=journal.position,
            log_bytes=None,
            garbage=(*self.collect_garbage(), *gone),
            hold=None if hold is None else (hold.newest, hold.first),
        )
        journal = replace(journal, events=manifest.events, identity=manifest.identity)
        manifest, log = commit_manifest(
            self.files, self.directory, old, manifest, journal,
            lambda entry: self._root_of(entry, edit), self.fail,
        )  # fmt: skip
        for source in list(self._sources):
            source.part(old, left_segments, left_runs)
        if edit.source is not None:
            self.views = edit.source
            self._sources.add(edit.source)
        self.views.after(manifest, edit.views)
        self.manifest, self.journal, self.log, self.active = manifest, journal, log, edit.active
        self._carry_over = False
        self.count(manifest_commits=1)
        self.discard(i for i in edit.views if i not in self.views)  # dropped by retention
        # The commit has happened: later failures must not look like a failed commit.
        old_log.close()
        if old_active is not None and old_active is not edit.active:
            old_active.writer.close()
        self._remove_quietly(log_name(old.log))
        self.collect_garbage()

    def _root_of(self, entry: SegmentEntry, edit: Edit) -> Root | None:
        view = edit.views.get(entry.id) or self.views.cached(entry.id)
        return None if view is None else view.root()

    def add_listener(self, listener: Callable[[StreamState], None]) -> None:
        with self._listening:
            self.listeners = (*self.listeners, listener)

    def remove_listener(self, listener: Callable[[StreamState], None]) -> None:
        """Remove one registration of a listener; does not wait for a commit."""
        with self._listening:
            listeners = list(self.listeners)
            listeners.remove(listener)
            self.listeners = tuple(listeners)

    def open_tap(self) -> CommitTap:
        """The tap of new commits, shared by all callers."""
        if self.tap is None:
            self.tap = CommitTap(self.journal.position)
        return self.tap

    def unfollow(self) -> None:
        """End a follower of the tap; the last one closes it, unless live queries use it."""
        tap = self.open_tap()
        tap.followers -= 1
        if not (tap.followers or tap.forgetful):
            self.tap = None

    def count(self, **more: float) -> None:
        for name, amount in more.items():
            self.figures[name] += amount

    def fold(self, runs: Iterable[SegmentEntry] = ()) -> None:
        """Set the late runs that a compaction is folding; none without an argument."""
        self.folding = frozenset(entry.id for entry in runs)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        try:
            if self.failed is None:
                self.finish_log()
        finally:
            self.log.close()
            if self.active is not None:
                self.active.writer.close()

    def collect_garbage(self) -> tuple[tuple[str, int], ...]:
        """Remove files that no reader needs; returns the others, limited in size."""
        listed = self.manifest.garbage
        if not listed:
            return ()
        stored = int(self.manifest.segments.bytes.sum())
        stored += sum(entry.bytes for entry in self.manifest.runs)
        active = 0 if self.journal.extent is None else self.journal.extent.length
        bytes_max = self.options.kept_bytes_max + active + stored
        left, dropped = collect_garbage(self.files, self.directory, listed, bytes_max)
        self.count(positions_dropped=dropped)
        return left

    def _remove_quietly(self, file: str) -> bool:
        return remove_quietly(self.files, self.directory, file)

    def path(self, file: str) -> str:
        return f"{self.directory}/{file}"


class Draft:
    """A context for writing segments; the caller holds the stream's lock."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._first_id = commits.next_id
        self.segment = commits.active
        self.entries: list[SegmentEntry] = []
        self.views: dict[int, SegmentView] = {}

    @property
    def begun(self) -> bool:
        return self._commits.next_id != self._first_id

    def writer(self) -> SegmentWriter:
        if self.segment is None:
            self.segment = self._commits.new_segment()
        return self.segment.writer

    def seal(self) -> None:
        assert self.segment is not None
        writer, self.segment = self.segment.writer, None
        entry, view = self._commits.seal_writer(writer)
        self.entries.append(entry)
        self.views[entry.id] = view

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._commits.failed is None:
            self._commits.take_back(self.segment, self._first_id)


def seal(commits: Commits) -> None:
    """Write the tail and seal the active segment; no-op on an empty stream."""
    tail = commits.journal.tail
    if commits.active is None and not tail.rows:
        return
    with Draft(commits) as draft:
        writer = draft.writer()
        if tail.rows:
            writer.write(tail.batch())
        draft.seal()
        manifest, journal = commits.manifest, commits.journal
        commits.apply(
            Edit(
                replace(journal, extent=None, tail=Tail(commits.schema)),
                None,
                replace(manifest, segments=manifest.segments.after(draft.entries)),
                draft.views,
            )
        )


def initialise(
    files: Files,
    directory: str,
    name: str,
    schema: StreamSchema,
    options: StreamOptions,
    owner: str | None = None,
    fill: Callable[[], Sequence[SegmentEntry]] = tuple,
) -> None:
    """Make a directory a stream; ``fill`` adds first segments; ``owner`` alone may change it."""
    options = settled(options, schema)
    files.remove_tree(directory)  # leftovers of an interrupted creation
    files.make_directory(directory)
    segments = SegmentList.of(fill())
    events = int(segments.events.sum())
    identity = new_identity()
    journal = replace(Journal.empty(schema), events=events, identity=identity)
    if len(segments):
        journal = replace(journal, position=1, last=segments[-1].last)
    manifest = StreamManifest(
        name,
        schema,
        options,
        next_id=first_id(identity),
        segments=segments,
        events=events,
        position=journal.position,
        owner=owner,
    )
    install(files, directory, manifest, journal)
