"""The writer's side of a stream: append, flush, seal, compact, and what makes them safe.

Purpose
    :class:`EventStream` turns batches into commits.  Large batches become leaves and are written once; what
    does not fill a leaf waits in the tail under the write-ahead log; late events wait in their buffer under the
    same log, then in late runs, until compaction folds them in (storage.md, decisions 5 to 8).

Guarantee
    An append is atomic: one record of the log, or one replacement of the manifest, makes all of it visible.
    With ``durability="commit"`` it is durable when :meth:`EventStream.append` returns; appends of several
    threads share one sync.  A failed append leaves the stream as it was.

Order of writes
    ::

        small append     log record -> sync of the log
        filled leaves    leaves -> sync of the segment -> log record (extent, new tail) -> sync of the log
        seal, spill,     new files -> sync -> new log with a checkpoint -> sync -> manifest
        compaction

    What a commit points to is durable before the commit is.

Concurrency
    One lock serialises changes; syncs of the log happen outside it.  Readers take the published state,
    a reference, and never wait.  A state is published when it is as durable as its append has promised.

Limits
    After a failed sync of the log the stream refuses changes until it is opened anew: what the disk holds is
    unknown then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import CorruptStore, InvalidArgument, StorageFailed, StorageFull, StoreClosed
from ..schema import StreamSchema
from .catalog import SegmentEntry, StreamManifest, log_name, segment_name
from .file_contract import Files
from .journal import Journal, RecordKind, encode_batch, encode_state, split_late
from .layout import table_rows
from .lock import live_leases
from .log import LogWriter
from .manifest import read_manifest, write_manifest
from .options import DURABILITIES, StreamOptions, retention_limits
from .recovery import Recovered, load, open_entry, state_of
from .segment import SegmentFile, SegmentView
from .segment_writer import Extent, SegmentWriter, leaf_events, plain_row_bytes
from .snapshot import Snapshot, StreamState
from .tail import Tail, add_late, concat_batches, sort_batch, ticks_of

__all__ = ["AppendResult", "EventStream"]

logger = logging.getLogger("chronicle.store")

PIECE_EVENTS = 1 << 20
"""A large batch is encoded in pieces of this many events."""

LOG_BYTES_MAX = 16 << 20
LOG_RECORDS_MAX = 16_384
"""A log that has grown to this is replaced by one that begins with a checkpoint."""


@dataclass(frozen=True)
class AppendResult:
    """What an append did.

    Attributes
    ----------
    appended : int
        Events added.
    late : int
        Those among them that were older than the newest stored event.
    count : int
        Events in the stream afterwards.
    """

    appended: int
    late: int
    count: int


class EventStream:
    """A stream that is open for writing; made by :class:`~chronicle.store.store.Store`.

    Parameters
    ----------
    files : Files
    directory : str
        Of the stream.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._lock = threading.RLock()
        self._compacting = threading.Lock()
        self._listeners: list[Callable[[StreamState], None]] = []
        self._closed = False
        self._failed: str | None = None
        self.folding: frozenset[int] = frozenset()
        found = load(files, directory)
        self._manifest = found.manifest
        self._journal = found.journal
        self._views = {
            entry.id: open_entry(files, directory, self._manifest, entry)
            for entry in (*self._manifest.segments, *self._manifest.runs)
        }
        self._writer: SegmentWriter | None = None
        self._active: SegmentFile | None = None
        self._last_active: tuple[Extent, SegmentView] | None = None
        self._next_id = self._manifest.next_id
        self._resume(found)
        self._sweep()
        self._published = self._state()
        self._flusher: _Flusher | None = None
        if self.options.durability == "interval":
            self._flusher = _Flusher(self._sync_quietly, self.options.interval_ms / 1000)

    # -- opening ------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, files: Files, directory: str, name: str, schema: StreamSchema, options: StreamOptions
    ) -> EventStream:
        """Create an empty stream in a directory that has none; it exists once its manifest does."""
        retention_limits(options.retention, schema)
        files.make_directory(directory)
        for leftover in files.list(directory):
            files.remove_tree(f"{directory}/{leftover}") if "." not in leftover else files.remove(
                f"{directory}/{leftover}"
            )
        manifest = StreamManifest(name, schema, options)
        log = LogWriter.create(files, f"{directory}/{log_name(1)}", 1)
        log.append(RecordKind.CHECKPOINT, encode_state(None, None, 0, 0, None, None))
        log.sync()
        log.close()
        write_manifest(files, directory, manifest.to_json())
        return cls(files, directory)

    def _resume(self, found: Recovered) -> None:
        """Go on where the log ends."""
        path = self._path(log_name(self._manifest.log))
        if found.torn:
            logger.warning(
                "%s: the log ends in an unfinished record; cut back to its last commit", path
            )
        self._log = LogWriter.reopen(self._files, path, found.log_length, found.log_records)
        if self._journal.extent is not None:
            self._next_id = max(self._next_id, self._journal.extent.segment_id + 1)
        self._restore_active()

    def _restore_active(self) -> None:
        """Have the writer of the active segment stand where the last commit left it."""
        if self._writer is not None:
            self._writer.close()
        self._writer = self._active = None
        extent = self._journal.extent
        if extent is None:
            return
        path = self._path(segment_name(extent.segment_id))
        if not self._files.exists(path):
            raise CorruptStore(f"{path} is missing; the log says it has {extent.length} bytes")
        schema = self._manifest.schema
        active = SegmentFile(self._files, path, extent.segment_id, schema)
        view = SegmentView.open_extent(active, extent)
        flank = dict(view.fragments)
        none = np.zeros((table_rows(schema), 0), np.int64)
        self._writer = SegmentWriter.resume(
            self._files,
            path,
            schema,
            self.options.codec,
            self.options.leaf_bytes,
            extent,
            [flank.get(level, none) for level in range(1, len(extent.levels) + 1)],
            {name: active.dictionary(name, pages) for name, pages in extent.pages.items() if pages},
        )
        self._active = active

    def _sweep(self) -> None:
        """Remove files that a crash has left over, and garbage that no reader can want."""
        named = {entry.file for entry in (*self._manifest.segments, *self._manifest.runs)}
        named.add(log_name(self._manifest.log))
        if self._journal.extent is not None:
            named.add(segment_name(self._journal.extent.segment_id))
        kept = {file for file, _ in self._collect_garbage()}
        for file in self._files.list(self._directory):
            if file.endswith((".seg", ".wal")) and file not in named and file not in kept:
                logger.info("%s: removing %s, which no commit names", self._directory, file)
                self._files.remove(self._path(file))

    # -- what readers see ---------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self._manifest.name

    @property
    def schema(self) -> StreamSchema:
        """Columns of the stream."""
        return self._manifest.schema

    @property
    def options(self) -> StreamOptions:
        """Settings of the stream."""
        return self._manifest.options

    def snapshot(self) -> Snapshot:
        """The stream at its last published commit."""
        return Snapshot(self._published)

    def quiet(self) -> AbstractContextManager[Any]:
        """Hold changes back, for those who look at the files while they must not change."""
        return self._lock

    def subscribe(self, listener: Callable[[StreamState], None]) -> None:
        """Call a listener with every published state, in order, from the thread that commits."""
        self._listeners.append(listener)

    def _active_view(self) -> SegmentView | None:
        if self._writer is None or self._active is None or self._journal.extent is None:
            return None
        extent = self._journal.extent
        if self._last_active is None or self._last_active[0] is not extent:
            self._active.data(extent.length)
            fragments = [
                (level.level, np.ascontiguousarray(level.view())) for level in self._writer.levels
            ]
            view = SegmentView.of_flank(self._active, fragments, extent)
            self._last_active = (extent, view)
        return self._last_active[1]

    def _state(self) -> StreamState:
        manifest = self._manifest
        return state_of(
            manifest,
            self._journal,
            tuple(self._views[entry.id] for entry in manifest.segments),
            tuple(self._views[entry.id] for entry in manifest.runs),
            self._active_view(),
        )

    def _publish(self, state: StreamState) -> None:
        with self._lock:
            if state.position > self._published.position or (
                state.manifest_version > self._published.manifest_version
            ):
                self._published = state
                for listener in self._listeners:
                    listener(state)

    # -- appending ----------------------------------------------------------------------------

    def append(
        self, data: pa.RecordBatch | pa.Table, durability: str | None = None
    ) -> AppendResult:
        """Append events atomically.

        Parameters
        ----------
        data : pyarrow.RecordBatch or pyarrow.Table
            In the columns and types of the stream's schema, in any time order.
        durability : str, optional
            ``commit``, ``interval`` or ``none`` instead of the stream's own.

        Returns
        -------
        AppendResult

        Raises
        ------
        StorageFull
            The disk is full; nothing was appended and the stream stays readable.
        """
        promise = durability or self.options.durability
        if promise not in DURABILITIES:
            raise InvalidArgument(
                f"durability must be one of {', '.join(DURABILITIES)}, found {promise!r}"
            )
        batch = _single(data, self.schema)
        if batch.num_rows == 0:
            return AppendResult(0, 0, self.snapshot().count)
        batch = sort_batch(batch, self.schema)
        with self._lock:
            self._writable()
            late, fresh = split_late(batch, self._journal.last, self.schema)
            if fresh is not None and self._fills_leaf(fresh):
                self._append_leaves(late, fresh)
            else:
                self._log.append(RecordKind.APPEND, [encode_batch(batch)])
                self._journal = self._advanced(late, fresh, self._journal.tail)
                if fresh is not None:
                    self._journal.tail.add(fresh)
            late_events = 0 if late is None else late.num_rows
            self._tidy_quietly()
            state = self._state()
            log, position = self._log, self._log.size
        if promise == "commit":
            self._sync(log, position)
        elif promise == "interval" and self._flusher is None:
            with self._lock:
                if self._flusher is None:
                    self._flusher = _Flusher(self._sync_quietly, self.options.interval_ms / 1000)
        self._publish(state)
        return AppendResult(batch.num_rows, late_events, Snapshot(state).count)

    def _writable(self) -> None:
        if self._closed:
            raise StoreClosed(f"stream {self.name!r} is closed; open the store again")
        if self._failed is not None:
            raise StorageFailed(
                f"stream {self.name!r} takes no changes since a sync failed ({self._failed}); "
                "close the store and open it again"
            )

    def _fills_leaf(self, fresh: pa.RecordBatch) -> bool:
        tail = self._journal.tail
        events = leaf_events(plain_row_bytes(self.schema), self.options.leaf_bytes)
        return (
            tail.rows + fresh.num_rows >= events
            or tail.bytes + fresh.nbytes >= 2 * self.options.leaf_bytes
        )

    def _advanced(
        self, late: pa.RecordBatch | None, fresh: pa.RecordBatch | None, tail: Tail
    ) -> Journal:
        """The journal after one more commit of these events."""
        journal = self._journal
        return replace(
            journal,
            position=journal.position + 1,
            last=journal.last if fresh is None else int(ticks_of(fresh, self.schema)[-1]),
            late=journal.late if late is None else add_late(journal.late, late, self.schema),
            late_total=journal.late_total + (0 if late is None else late.num_rows),
            tail=tail,
        )

    def _append_leaves(self, late: pa.RecordBatch | None, fresh: pa.RecordBatch) -> None:
        """Write the leaves that tail and fresh events fill, then commit."""
        first_id = self._next_id
        mark = None if self._writer is None else self._writer.mark()
        sealed: list[tuple[SegmentEntry, SegmentView]] = []
        try:
            rest = self._write_leaves(fresh, sealed)
            writer = self._writer
            extent = None
            if writer is not None:
                writer.sync()
                extent = writer.extent()
            journal = replace(self._advanced(late, fresh, Tail(self.schema, [rest])), extent=extent)
            if sealed:
                entries = tuple(entry for entry, _ in sealed)
                self._commit(
                    replace(self._manifest, segments=(*self._manifest.segments, *entries)),
                    journal,
                    {entry.id: view for entry, view in sealed},
                )
            else:
                if self._next_id != first_id:
                    self._files.sync_directory(self._directory)
                parts = encode_state(
                    extent, journal.last, journal.position, journal.late_total, rest, late
                )
                self._log.append(RecordKind.EXTENT, parts)
                self._journal = journal
        except BaseException:
            if self._failed is None:
                self._undo(mark if not sealed else None, first_id)
            raise

    def _undo(self, mark: Any, first_id: int) -> None:
        """Forget what a failed append or seal has written: new files, and bytes of the active one."""
        try:
            extent = self._journal.extent
            writer = self._writer
            if (
                mark is not None
                and writer is not None
                and extent is not None
                and (writer.segment_id == extent.segment_id)
            ):
                writer.rollback(mark)
            else:
                self._restore_active()
        except Exception as error:
            self._failed = str(error)
            logger.exception("%s: could not take back a failed append", self._directory)
        for segment_id in range(first_id, self._next_id):
            with suppress(Exception):  # removed at the next opening if not now
                self._files.remove(self._path(segment_name(segment_id)))

    def _write_leaves(
        self,
        fresh: pa.RecordBatch,
        sealed: list[tuple[SegmentEntry, SegmentView]],
    ) -> pa.RecordBatch:
        """Write whole leaves of tail and fresh events; return what is left for the new tail."""
        tail = self._journal.tail
        arrow = self.schema.arrow
        rest = fresh
        if tail.rows:
            # top up the tail with a leaf's worth so that the bulk is not copied
            step = leaf_events(plain_row_bytes(self.schema), self.options.leaf_bytes)
            wanted = max(1, step - tail.rows % step)
            head = concat_batches([tail.batch(), fresh.slice(0, wanted)], arrow)
            written = self._writer_here().write(head, whole_leaves=True)
            left = head.num_rows - written
            consumed = min(wanted, fresh.num_rows)
            if left:
                rest = concat_batches([head.slice(written), fresh.slice(consumed)], arrow)
            else:
                rest = fresh.slice(consumed)
            self._seal_when_full(sealed)
        while rest.num_rows:
            piece = rest.slice(0, PIECE_EVENTS)
            written = self._writer_here().write(piece, whole_leaves=True)
            rest = rest.slice(written)
            self._seal_when_full(sealed)
            if written == 0:
                break
        return rest

    def _writer_here(self) -> SegmentWriter:
        """Writer of the active segment, begun when there is none."""
        if self._writer is None:
            self._writer, self._active = self._new_segment()
        return self._writer

    def _new_segment(self) -> tuple[SegmentWriter, SegmentFile]:
        segment_id = self._next_id
        self._next_id += 1
        path = self._path(segment_name(segment_id))
        with suppress(FileNotFoundError):
            self._files.remove(path)
        writer = SegmentWriter(
            self._files,
            path,
            segment_id,
            self.schema,
            self.options.codec,
            self.options.leaf_bytes,
        )
        return writer, SegmentFile(self._files, path, segment_id, self.schema)

    def _seal_when_full(self, sealed: list[tuple[SegmentEntry, SegmentView]]) -> None:
        writer = self._writer
        if writer is not None and writer.length >= self.options.segment_bytes and writer.events:
            sealed.append(self._seal_writer(writer))
            self._writer = self._active = None

    def _seal_writer(self, writer: SegmentWriter) -> tuple[SegmentEntry, SegmentView]:
        """Finish a segment file and open it again as a reader would."""
        length = writer.seal()
        assert writer.first is not None and writer.last is not None
        entry = SegmentEntry(
            writer.segment_id,
            writer.events,
            writer.first,
            writer.last,
            length,
            len(self.schema.attributes),
        )
        writer.close()
        view = SegmentView.open_sealed(self._files, writer.path, entry.id, self.schema)
        return entry, view

    # -- structural commits -------------------------------------------------------------------

    def _commit(
        self, manifest: StreamManifest, journal: Journal, views: dict[int, SegmentView]
    ) -> None:
        """Replace manifest and log together: the one way to change more than the log can say.

        ``views`` are those of segments that the new manifest names and the old one does not.
        """
        manifest = self._retained(manifest)
        old, old_log = self._manifest, self._log
        named = {entry.file for entry in (*manifest.segments, *manifest.runs)}
        version = old.version + 1
        gone = [
            (entry.file, version) for entry in (*old.segments, *old.runs) if entry.file not in named
        ]
        if self._journal.extent is not None and journal.extent != self._journal.extent:
            file = segment_name(self._journal.extent.segment_id)
            still = journal.extent is not None and (
                journal.extent.segment_id == self._journal.extent.segment_id
            )
            if file not in named and not still:
                gone.append((file, version))
        manifest = replace(
            manifest,
            version=version,
            log=old.log + 1,
            next_id=self._next_id,
            garbage=(*self._collect_garbage(), *gone),
        )
        path = self._path(log_name(manifest.log))
        with suppress(FileNotFoundError):
            self._files.remove(path)
        log = LogWriter.create(self._files, path, manifest.log)
        try:
            late = concat_batches(journal.late, self.schema.arrow) if journal.late else None
            if late is not None:
                late = sort_batch(late, self.schema)
            tail = journal.tail.batch() if journal.tail.rows else None
            parts = encode_state(
                journal.extent, journal.last, journal.position, journal.late_total, tail, late
            )
            log.append(RecordKind.CHECKPOINT, parts)
            log.sync()
            self._files.sync_directory(self._directory)
        except BaseException:
            log.close()
            with suppress(Exception):
                self._files.remove(path)
            raise
        try:
            write_manifest(self._files, self._directory, manifest.to_json())
        except BaseException as error:
            log.close()
            if self._files_say(manifest.version):
                # the rename happened, only its durability is unknown: neither state is certain
                self._failed = str(error)
            else:
                with suppress(Exception):
                    self._files.remove(path)
            raise
        self._views.update(views)
        keep = {entry.id for entry in (*manifest.segments, *manifest.runs)}
        self._views = {i: view for i, view in self._views.items() if i in keep}
        self._manifest, self._journal, self._log = manifest, journal, log
        old_log.close()
        with suppress(FileNotFoundError):
            self._files.remove(self._path(log_name(old.log)))
        self._collect_garbage()

    def _files_say(self, version: int) -> bool:
        try:
            body = read_manifest(self._files, self._directory)
        except Exception:
            return True
        return body is not None and body["version"] == version

    def _retained(self, manifest: StreamManifest) -> StreamManifest:
        """Leave out the segments that retention drops."""
        ticks, size = retention_limits(manifest.options.retention, manifest.schema)
        segments, runs, dropped = list(manifest.segments), list(manifest.runs), 0
        newest = self._journal.last
        if ticks is not None and newest is not None:
            horizon = newest - ticks
            old = [e for e in (*segments, *runs) if e.last < horizon]
            segments = [e for e in segments if e not in old]
            runs = [e for e in runs if e not in old]
            dropped += sum(e.events for e in old)
        if size is not None:
            total = sum(e.bytes for e in (*segments, *runs))
            while segments and total > size:
                oldest = segments.pop(0)
                total -= oldest.bytes
                dropped += oldest.events
        if not dropped:
            return manifest
        return replace(
            manifest,
            segments=tuple(segments),
            runs=tuple(runs),
            dropped_events=manifest.dropped_events + dropped,
        )

    def _collect_garbage(self) -> tuple[tuple[str, int], ...]:
        """Remove files that no reader can want any more; return the others."""
        garbage = self._manifest.garbage
        if not garbage:
            return ()
        oldest = min(live_leases(self._files, self._directory), default=None)
        kept = []
        for file, version in garbage:
            if oldest is not None and oldest < version:
                kept.append((file, version))
                continue
            with suppress(FileNotFoundError):
                self._files.remove(self._path(file))
        return tuple(kept)

    def _tidy_quietly(self) -> None:
        """Tidy up; what fails for lack of space is tried again at the next append."""
        try:
            self._tidy()
        except StorageFull as error:
            if self._failed is not None:
                raise
            logger.warning("%s: %s", self._directory, error)

    def _tidy(self) -> None:
        """What a commit may leave to do: spill the late buffer, begin a new log."""
        late = sum(batch.num_rows for batch in self._journal.late)
        if late >= self.options.late_events_max:
            self._spill()
        elif self._log.size >= LOG_BYTES_MAX or self._log.records >= LOG_RECORDS_MAX:
            self._commit(self._manifest, self._journal, {})

    def _spill(self) -> None:
        """Write the late buffer as a late run; neighbours of similar size are merged.

        Each run is then at least twice as large as the next, so their number grows with the logarithm of
        the late events.  Runs that a compaction is folding are left alone.
        """
        from .compaction import merge_runs

        first_id = self._next_id
        try:
            writer, _ = self._new_segment()
            late = concat_batches(self._journal.late, self.schema.arrow)
            writer.write(sort_batch(late, self.schema))
            entry, view = self._seal_writer(writer)
            runs = [*self._manifest.runs, entry]
            views = {entry.id: view}
            while len(runs) > 1 and runs[-2].events < 2 * runs[-1].events:
                if runs[-2].id in self.folding:
                    break
                pair = [views.get(e.id) or self._views[e.id] for e in runs[-2:]]
                merged, _ = self._new_segment()
                merge_runs(pair, merged, self.schema)
                entry, view = self._seal_writer(merged)
                runs[-2:] = [entry]
                views[entry.id] = view
            self._files.sync_directory(self._directory)
            kept = {entry.id for entry in runs}
            self._commit(
                replace(self._manifest, runs=tuple(runs)),
                replace(self._journal, late=()),
                {i: view for i, view in views.items() if i in kept},
            )
        except BaseException:
            if self._failed is None:
                for segment_id in range(first_id, self._next_id):
                    with suppress(Exception):
                        self._files.remove(self._path(segment_name(segment_id)))
            raise
        for segment_id in range(first_id, self._next_id):
            if segment_id not in kept:  # an intermediate run of this very spill
                with suppress(FileNotFoundError):
                    self._files.remove(self._path(segment_name(segment_id)))

    # -- maintenance --------------------------------------------------------------------------

    def flush(self) -> None:
        """Make every append so far durable, whatever its promise was."""
        with self._lock:
            self._writable()
            log, position = self._log, self._log.size
        self._sync(log, position)

    def seal(self) -> None:
        """Write the tail and close the active segment, so that it never changes again."""
        with self._lock:
            self._writable()
            self._seal()
            state = self._state()
        self._publish(state)

    def _seal(self) -> None:
        """Seal within the lock; nothing happens on an empty stream."""
        tail = self._journal.tail
        if self._writer is None and not tail.rows:
            return
        first_id = self._next_id
        try:
            writer = self._writer_here()
            if tail.rows:
                writer.write(tail.batch())
            entry, view = self._seal_writer(writer)
            self._files.sync_directory(self._directory)
            self._writer = self._active = None
            self._commit(
                replace(self._manifest, segments=(*self._manifest.segments, entry)),
                replace(self._journal, extent=None, tail=Tail(self.schema)),
                {entry.id: view},
            )
        except BaseException:
            if self._failed is None:
                self._undo(None, first_id)
            raise

    def compact(self) -> None:
        """Fold late events into the segments that they belong to."""
        from .compaction import compact

        with self._compacting:
            compact(self)

    def add_attribute(self, name: str, type_: pa.DataType) -> None:
        """Add a nullable attribute; events stored so far have it null, segments are not rewritten."""
        with self._lock:
            self._writable()
            schema = self.schema.with_attribute(name, type_)
            self._seal()
            widened = tuple(_widened(batch, schema) for batch in self._journal.late)
            manifest = replace(self._manifest, schema=schema)
            journal = replace(
                self._journal,
                late=widened,
                tail=Tail(schema),
                position=self._journal.position + 1,
            )
            self._manifest_schema_commit(manifest, journal)
            state = self._state()
        self._publish(state)

    def _manifest_schema_commit(self, manifest: StreamManifest, journal: Journal) -> None:
        old = self._manifest
        self._manifest = replace(old, schema=manifest.schema)
        try:
            self._commit(manifest, journal, {})
        except BaseException:
            if self._manifest.version == old.version:
                self._manifest = old
            raise

    def stats(self) -> dict[str, Any]:
        """Figures about the stream, for people and metrics."""
        with self._lock:
            manifest, journal = self._manifest, self._journal
            snapshot = Snapshot(self._published)
            active = 0 if self._writer is None else self._writer.length
            entries = (*manifest.segments, *manifest.runs)
            return {
                "events": snapshot.count,
                "position": snapshot.version,
                "segments": len(manifest.segments) + (1 if self._writer is not None else 0),
                "late_runs": len(manifest.runs),
                "late_buffered": sum(batch.num_rows for batch in journal.late),
                "late_total": journal.late_total,
                "tail_events": journal.tail.rows,
                "dropped_events": manifest.dropped_events,
                "bytes": sum(entry.bytes for entry in entries) + active + self._log.size,
                "log_bytes": self._log.size,
                "manifest_version": manifest.version,
                "dirty_ranges": snapshot.dirty_ranges(),
            }

    def close(self) -> None:
        """Make everything durable and close the files; doing so again does nothing."""
        flusher = self._flusher
        if flusher is not None:
            flusher.stop()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                if self._failed is None:
                    self._log.sync()
            finally:
                self._log.close()
                if self._writer is not None:
                    self._writer.close()

    def _path(self, file: str) -> str:
        return f"{self._directory}/{file}"

    def _sync(self, log: LogWriter, position: int) -> None:
        try:
            log.sync(position)
        except StoreClosed:
            if log is self._log:
                raise
            # the log was replaced meanwhile: its successor's checkpoint holds the append, durably
        except Exception as error:
            self._failed = str(error)
            raise

    def _sync_quietly(self) -> None:
        """One tick of the interval flusher; a failure shows at the next append."""
        try:
            self.flush()
        except Exception:
            logger.exception("%s: sync in the background failed", self._directory)


class _Flusher:
    """Syncs at an interval until stopped."""

    def __init__(self, sync: Callable[[], None], seconds: float) -> None:
        self._sync = sync
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chronicle-flusher", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            self._sync()

    def stop(self) -> None:
        """Stop and wait for the thread."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _single(data: pa.RecordBatch | pa.Table, schema: StreamSchema) -> pa.RecordBatch:
    """One batch in the stream's schema, without a copy where the columns are contiguous."""
    if isinstance(data, pa.Table):
        columns = [
            column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            for column in data.columns
        ]
        columns = [
            pa.concat_arrays(c.chunks) if isinstance(c, pa.ChunkedArray) else c for c in columns
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    if data.schema is not schema.arrow:
        return pa.RecordBatch.from_arrays(data.columns, schema=schema.arrow)
    return data


def _widened(batch: pa.RecordBatch, schema: StreamSchema) -> pa.RecordBatch:
    """A batch with nulls in the attributes that it lacks."""
    missing = list(schema.arrow)[batch.num_columns :]
    return pa.RecordBatch.from_arrays(
        [*batch.columns, *(pa.nulls(batch.num_rows, field.type) for field in missing)],
        schema=schema.arrow,
    )
