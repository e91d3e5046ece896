"""The writer's side of a stream: append, flush, seal, compact, and what makes them safe.

Purpose
    :class:`EventStream` turns batches into commits.  Large batches become leaves and are written
    once; what does not fill a leaf waits in the tail under the write-ahead log; late events wait
    in their buffer under the same log, then in late runs, until compaction folds them in
    (storage.md, decisions 5 to 8).

Guarantee
    An append is atomic: one record of the log, or one replacement of the manifest, makes all of it
    visible. With ``durability="commit"`` it is durable when :meth:`EventStream.append` returns;
    appends of several threads share one sync.  A failed append leaves the stream as it was.

Concurrency
    One lock serialises changes; syncs of the log happen outside it.  Readers take the published
    state, a reference, and never wait.  A state is published when it is as durable as its append
    has promised.

Limits
    After a failed sync of the log the stream refuses changes until it is opened anew: what the
    disk holds is unknown then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ..errors import InvalidArgument, StorageFull, StoreClosed
from ..schema import StreamSchema
from .catalog import SegmentEntry, StreamManifest
from .commits import Commits
from .compaction import compact, spill
from .file_contract import Files
from .journal import Journal, RecordKind, encode_batch, encode_state, split_late
from .log import LogWriter
from .options import DURABILITIES, StreamOptions
from .segment import SegmentView
from .segment_writer import leaf_events, plain_row_bytes
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
        self.commits = Commits(files, directory)
        self._compacting = threading.Lock()
        self._flusher: _Flusher | None = None
        if self.options.durability == "interval":
            self._flusher = _Flusher(self._sync_quietly, self.options.interval_ms / 1000)

    # -- opening ------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, files: Files, directory: str, name: str, schema: StreamSchema, options: StreamOptions
    ) -> EventStream:
        """Create an empty stream in a directory that has none."""
        Commits.initialise(files, directory, name, schema, options)
        return cls(files, directory)

    # -- what readers see ---------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self.commits.manifest.name

    @property
    def schema(self) -> StreamSchema:
        """Columns of the stream."""
        return self.commits.manifest.schema

    @property
    def options(self) -> StreamOptions:
        """Settings of the stream."""
        return self.commits.manifest.options

    def snapshot(self) -> Snapshot:
        """The stream at its last published commit."""
        return Snapshot(self.commits.published)

    def quiet(self) -> AbstractContextManager[Any]:
        """Hold changes back, for those who look at the files while they must not change."""
        return self.commits.lock

    def subscribe(self, listener: Callable[[StreamState], None]) -> None:
        """Call a listener with every published state, in order, from the thread that commits."""
        self.commits.listeners.append(listener)

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
        with self.commits.lock:
            self.commits.check_writable()
            late, fresh = split_late(batch, self.commits.journal.last, self.schema)
            if fresh is not None and self._fills_leaf(fresh):
                self._append_leaves(late, fresh)
            else:
                self.commits.log.append(RecordKind.APPEND, [encode_batch(batch)])
                self.commits.journal = self._advanced(late, fresh, self.commits.journal.tail)
                if fresh is not None:
                    self.commits.journal.tail.add(fresh)
            late_events = 0 if late is None else late.num_rows
            self._tidy_quietly()
            state = self.commits.state()
            log, position = self.commits.log, self.commits.log.size
        if promise == "commit":
            self._sync(log, position)
        elif promise == "interval" and self._flusher is None:
            with self.commits.lock:
                if self._flusher is None:
                    self._flusher = _Flusher(self._sync_quietly, self.options.interval_ms / 1000)
        self.commits.publish(state)
        return AppendResult(batch.num_rows, late_events, Snapshot(state).count)

    def _fills_leaf(self, fresh: pa.RecordBatch) -> bool:
        tail = self.commits.journal.tail
        events = leaf_events(plain_row_bytes(self.schema), self.options.leaf_bytes)
        return (
            tail.rows + fresh.num_rows >= events
            or tail.bytes + fresh.nbytes >= 2 * self.options.leaf_bytes
        )

    def _advanced(
        self, late: pa.RecordBatch | None, fresh: pa.RecordBatch | None, tail: Tail
    ) -> Journal:
        """The journal after one more commit of these events."""
        journal = self.commits.journal
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
        first_id = self.commits.next_id
        mark = None if self.commits.writer is None else self.commits.writer.mark()
        sealed: list[tuple[SegmentEntry, SegmentView]] = []
        try:
            rest = self._write_leaves(fresh, sealed)
            writer = self.commits.writer
            extent = None
            if writer is not None:
                writer.sync()
                extent = writer.extent()
            journal = replace(self._advanced(late, fresh, Tail(self.schema, [rest])), extent=extent)
            if sealed:
                entries = tuple(entry for entry, _ in sealed)
                self.commits.commit(
                    replace(
                        self.commits.manifest, segments=(*self.commits.manifest.segments, *entries)
                    ),
                    journal,
                    {entry.id: view for entry, view in sealed},
                )
            else:
                if self.commits.next_id != first_id:
                    self.commits.files.sync_directory(self.commits.directory)
                parts = encode_state(
                    extent, journal.last, journal.position, journal.late_total, rest, late
                )
                self.commits.log.append(RecordKind.EXTENT, parts)
                self.commits.journal = journal
        except BaseException:
            if self.commits.failed is None:
                self.commits.undo(mark if not sealed else None, first_id)
            raise

    def _write_leaves(
        self,
        fresh: pa.RecordBatch,
        sealed: list[tuple[SegmentEntry, SegmentView]],
    ) -> pa.RecordBatch:
        """Write whole leaves of tail and fresh events; return what is left for the new tail."""
        tail = self.commits.journal.tail
        arrow = self.schema.arrow
        rest = fresh
        if tail.rows:
            # top up the tail with a leaf's worth so that the bulk is not copied
            step = leaf_events(plain_row_bytes(self.schema), self.options.leaf_bytes)
            wanted = max(1, step - tail.rows % step)
            head = concat_batches([tail.batch(), fresh.slice(0, wanted)], arrow)
            written = self.commits.writer_here().write(head, whole_leaves=True)
            left = head.num_rows - written
            consumed = min(wanted, fresh.num_rows)
            if left:
                rest = concat_batches([head.slice(written), fresh.slice(consumed)], arrow)
            else:
                rest = fresh.slice(consumed)
            self._seal_when_full(sealed)
        while rest.num_rows:
            piece = rest.slice(0, PIECE_EVENTS)
            written = self.commits.writer_here().write(piece, whole_leaves=True)
            rest = rest.slice(written)
            self._seal_when_full(sealed)
            if written == 0:
                break
        return rest

    def _seal_when_full(self, sealed: list[tuple[SegmentEntry, SegmentView]]) -> None:
        writer = self.commits.writer
        if writer is not None and writer.length >= self.options.segment_bytes and writer.events:
            sealed.append(self.commits.seal_writer(writer))
            self.commits.writer = self.commits.active = None

    # -- structural commits -------------------------------------------------------------------

    def _tidy_quietly(self) -> None:
        """Tidy up; what fails for lack of space is tried again at the next append."""
        try:
            self._tidy()
        except StorageFull as error:
            if self.commits.failed is not None:
                raise
            logger.warning("%s: %s", self.commits.directory, error)

    def _tidy(self) -> None:
        """What a commit may leave to do: spill the late buffer, begin a new log."""
        late = sum(batch.num_rows for batch in self.commits.journal.late)
        if late >= self.options.late_events_max:
            spill(self.commits)
        elif self.commits.log.size >= LOG_BYTES_MAX or self.commits.log.records >= LOG_RECORDS_MAX:
            self.commits.commit(self.commits.manifest, self.commits.journal, {})

    # -- maintenance --------------------------------------------------------------------------

    def flush(self) -> None:
        """Make every append so far durable, whatever its promise was."""
        with self.commits.lock:
            self.commits.check_writable()
            log, position = self.commits.log, self.commits.log.size
        self._sync(log, position)

    def seal(self) -> None:
        """Write the tail and close the active segment, so that it never changes again."""
        with self.commits.lock:
            self.commits.check_writable()
            self.commits.seal()
            state = self.commits.state()
        self.commits.publish(state)

    def compact(self) -> None:
        """Fold late events into the segments that they belong to."""
        with self._compacting:
            compact(self.commits)

    def add_attribute(self, name: str, type_: pa.DataType) -> None:
        """Add a nullable attribute; it is null in events stored so far, nothing is rewritten."""
        with self.commits.lock:
            self.commits.check_writable()
            schema = self.schema.with_attribute(name, type_)
            self.commits.seal()
            widened = tuple(_widened(batch, schema) for batch in self.commits.journal.late)
            manifest = replace(self.commits.manifest, schema=schema)
            journal = replace(
                self.commits.journal,
                late=widened,
                tail=Tail(schema),
                position=self.commits.journal.position + 1,
            )
            self._manifest_schema_commit(manifest, journal)
            state = self.commits.state()
        self.commits.publish(state)

    def _manifest_schema_commit(self, manifest: StreamManifest, journal: Journal) -> None:
        old = self.commits.manifest
        self.commits.manifest = replace(old, schema=manifest.schema)
        try:
            self.commits.commit(manifest, journal, {})
        except BaseException:
            if self.commits.manifest.version == old.version:
                self.commits.manifest = old
            raise

    def stats(self) -> dict[str, Any]:
        """Figures about the stream, for people and metrics."""
        with self.commits.lock:
            manifest, journal = self.commits.manifest, self.commits.journal
            snapshot = Snapshot(self.commits.published)
            active = 0 if self.commits.writer is None else self.commits.writer.length
            entries = (*manifest.segments, *manifest.runs)
            return {
                "events": snapshot.count,
                "position": snapshot.version,
                "segments": len(manifest.segments) + (1 if self.commits.writer is not None else 0),
                "late_runs": len(manifest.runs),
                "late_buffered": sum(batch.num_rows for batch in journal.late),
                "late_total": journal.late_total,
                "tail_events": journal.tail.rows,
                "dropped_events": manifest.dropped_events,
                "bytes": sum(entry.bytes for entry in entries) + active + self.commits.log.size,
                "log_bytes": self.commits.log.size,
                "manifest_version": manifest.version,
                "dirty_ranges": snapshot.dirty_ranges(),
            }

    def close(self) -> None:
        """Make everything durable and close the files; doing so again does nothing."""
        flusher = self._flusher
        if flusher is not None:
            flusher.stop()
        with self.commits.lock:
            if self.commits.closed:
                return
            self.commits.closed = True
            try:
                if self.commits.failed is None:
                    self.commits.log.sync()
            finally:
                self.commits.log.close()
                if self.commits.writer is not None:
                    self.commits.writer.close()

    def _sync(self, log: LogWriter, position: int) -> None:
        try:
            log.sync(position)
        except StoreClosed:
            if log is self.commits.log:
                raise
            # the log was replaced meanwhile: its successor's checkpoint holds the append, durably
        except Exception as error:
            self.commits.failed = str(error)
            raise

    def _sync_quietly(self) -> None:
        """One tick of the interval flusher; a failure shows at the next append."""
        try:
            self.flush()
        except Exception:
            logger.exception("%s: sync in the background failed", self.commits.directory)


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
