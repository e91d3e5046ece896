"""The writer's side of a stream: appends, flushes, seals, compactions.

Large batches become leaves and are written once; the rest waits in the tail under the write-ahead
log; late events wait in their buffer under the same log, then in late runs (storage.md, decisions 5
to 8).  An append is atomic: one log record, or one replacement of the manifest, publishes it.

Concurrency: one lock serialises changes.  Log syncs happen outside of it.  Readers take the
published state, a reference, and never wait.  After a failed log sync the stream refuses changes
until it is opened again.

Large appends: full leaves are written directly, and the rest becomes the new tail, in one
commit::

    before    active segment |====|     tail |--|
    append                              events  |----------------------|
    after     active segment |====|==|======|== full |    active |==|  tail |-|

The reader's side of a stream: its last commit, without a lock or write access.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.append_result import AppendResult
from ..core.ownership import OwnedLock
from ..core.threads import Repeated
from ..errors import ChronicleError, InvalidArgument, SchemaMismatch, StoreClosed
from ..schema import StreamSchema
from .background import Compactor
from .catalog import StreamManifest, log_name
from .check import CheckReport, Problem
from .commits import Commits, Draft, Edit, seal
from .compaction import active_first, spill
from .conform import AppendRules, conform
from .deleting import Addition, Change, Choice
from .duplicates import Keys, RecentKeys, Sifted, keys_of
from .file_contract import Files
from .floor import expired, horizon, span_max, within_span
from .journal import Marks, RecordKind, encode_append, encode_state
from .log import LogWriter
from .merge import sort_nearly
from .moving import Moved, Stopped, figures_of, never, worth_moving
from .object_store import ObjectStore
from .options import DURABILITIES, StreamOptions
from .recent import LARGE_BYTES, Commit, CommitTap, LargeCommit
from .recovery import load_for_reading
from .schema_change import add_attribute
from .snapshot import Snapshot, StreamState, closed
from .tail import Tail, concat_batches, is_sorted, ticks_of
from .tap import Arrival, tick_ranges

PIECE_EVENTS = 1 << 20


def append_leaves(
    commits: Commits,
    rules: AppendRules,
    late: pa.RecordBatch | None,
    fresh: pa.RecordBatch,
    marks: Marks | None,
) -> None:
    """Write the leaves that tail and fresh events fill, then commit; the lock is held."""
    schema = rules.schema
    hold = commits.held()
    dropped = expired(ticks_of(fresh, schema), rules.retention_ticks, hold)
    fresh = fresh.slice(dropped)
    rows = fresh.num_rows + (0 if late is None else late.num_rows)
    last = int(ticks_of(fresh, schema)[-1])
    with Draft(commits) as draft:
        rest = _write_leaves(commits, rules, draft, fresh)
        active = draft.segment
        extent = None
        if active is not None:
            active.writer.sync()
            extent = active.writer.extent()
        journal = commits.journal.after(late, rows, last, Tail(schema, [rest]), marks)
        journal = replace(journal, extent=extent)
        if draft.entries or dropped:
            manifest = commits.manifest
            if dropped and rules.retention_ticks is not None:
                manifest = manifest.dropping(dropped, horizon(last, rules.retention_ticks, hold))
            manifest = replace(manifest, segments=manifest.segments.after(draft.entries))
            commits.apply(Edit(journal, active, manifest, draft.views))
        else:
            if draft.begun:
                commits.files.sync_directory(commits.directory)
            record = RecordKind.EXTENT, encode_state(journal, late)
            commits.apply(Edit(journal, active, record=record))


def _write_leaves(
    commits: Commits, rules: AppendRules, draft: Draft, fresh: pa.RecordBatch
) -> pa.RecordBatch:
    tail = commits.journal.tail
    arrow = rules.arrow
    rest = fresh
    events = 0 if draft.segment is None else draft.segment.writer.events
    if tail.rows:
        # fill up the tail to a leaf, so that most events are not copied
        wanted = max(1, rules.leaf_events - tail.rows % rules.leaf_events)
        head = concat_batches([tail.batch(), fresh.slice(0, wanted)], arrow)
        written = draft.writer().write(head, whole_leaves=True)
        left = head.num_rows - written
        consumed = min(wanted, fresh.num_rows)
        if left:
            rest = concat_batches([head.slice(written), fresh.slice(consumed)], arrow)
        else:
            rest = fresh.slice(consumed)
        _seal_when_full(rules, draft)
    while rest.num_rows:
        piece = rest.slice(0, PIECE_EVENTS)
        writer = draft.writer()
        span = within_span(ticks_of(piece, rules.schema), writer.first, rules.retention_ticks)
        written = writer.write(piece.slice(0, span), whole_leaves=span == piece.num_rows)
        rest = rest.slice(written)
        _seal_when_full(rules, draft, now=span < piece.num_rows)
        if written == 0:
            break
    if rest.num_rows and not draft.entries and draft.writer().events == events:
        # Repeated long strings are large here and small on disk: write them anyway.
        draft.writer().write(rest)
        rest = rest.slice(rest.num_rows)
    return rest


def _seal_when_full(rules: AppendRules, draft: Draft, *, now: bool = False) -> None:
    if draft.segment is not None:
        writer = draft.segment.writer
        if (now or writer.length >= rules.segment_bytes) and writer.events:
            draft.seal()


logger = logging.getLogger("chronicle.store")

BYTES_PER_LEAF = 2
"""A tail of this many times ``leaf_bytes``, in plain bytes, is written as a leaf."""
LATE_FEW = 64
"""The reach of an append covers all but 1/64 of its late events."""
LOG_BYTES_MAX = 16 << 20
LOG_RECORDS_MAX = 4096
"""Beyond these limits a log is replaced by a checkpoint, which bounds recovery time."""


class _Handle(ABC):
    """What a stream is, for its writer and for readers."""

    def __init__(self, files: Files, directory: str) -> None:
        self.files = files
        self.directory = directory

    @property
    @abstractmethod
    def manifest(self) -> StreamManifest: ...

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def schema(self) -> StreamSchema:
        return self.manifest.schema

    @property
    def layout(self) -> int:
        """Number of earlier renames, drops and type changes of columns."""
        return len(self.manifest.layouts)

    @property
    def options(self) -> StreamOptions:
        return self.manifest.options

    @property
    def owner(self) -> str | None:
        """Who alone may append; None without one."""
        return self.manifest.owner


@dataclass
class _Append:
    """The input of an append, and its outcome: what is stored and the log position that makes it
    durable.
    """

    batch: pa.RecordBatch
    ticks: npt.NDArray[np.int64]
    rules: AppendRules
    durable: bool
    marks: Marks | None
    keys: Keys | None
    duplicates: int = 0
    late: int = 0
    newest: int | None = None
    position: int = 0
    log: LogWriter = field(init=False)
    state: StreamState = field(init=False)

    @property
    def result(self) -> AppendResult:
        count = Snapshot(self.state).count
        return AppendResult(
            self.batch.num_rows, self.late, count, self.state.position, self.newest, self.duplicates
        )


class EventStream(_Handle):
    """A stream that is open for writing; made by ``store.Store``."""

    def __init__(self, files: Files, directory: str) -> None:
        super().__init__(files, directory)
        self.commits = Commits(files, directory)
        self._rules = AppendRules.of(self.commits.manifest)
        self._flusher: Repeated | None = None
        self._compactor = Compactor(self.commits)
        self._recent_keys = RecentKeys(self.commits)
        if self.options.durability == "interval":
            self._start_flusher()

    # -- what readers see ---------------------------------------------------------------------

    @property
    def manifest(self) -> StreamManifest:
        return self.commits.manifest

    @property
    def sound(self) -> bool:
        """Whether a failed append left nothing; False after a failed sync or rollback."""
        return self.commits.failed is None and not self.commits.log.failed

    def snapshot(self) -> Snapshot:
        """The stream at its last published commit."""
        self.commits.lock.check()
        return Snapshot(self.commits.published)

    def quiet(self) -> AbstractContextManager[Any]:
        """A context that holds back changes of the files."""
        return self.commits.lock

    def subscribe(self, listener: Callable[[StreamState], None]) -> None:
        """Call a listener with every published state, in order, in the committing thread."""
        self.commits.add_listener(listener)

    def unsubscribe(self, listener: Callable[[StreamState], None]) -> None:
        """Remove a listener; a running commit may call it once more."""
        self.commits.remove_listener(listener)

    def follow(self) -> CommitTap:
        """The tap of new commits, recorded until ``unfollow``; for any number of followers."""
        with self.commits.lock:
            tap = self.commits.open_tap()
            tap.followers += 1
            return tap

    def unfollow(self) -> None:
        with self.commits.lock:
            self.commits.unfollow()

    def tap(self) -> CommitTap:
        """The tap of new commits for callers of ``CommitTap.forget``; it stays open."""
        with self.commits.lock:
            tap = self.commits.open_tap()
            tap.forgetful = True
            return tap

    def marks(self) -> Marks:
        """JSON values stored with the events, by name, as of the last change."""
        with self.commits.lock:
            return self.commits.journal.marks

    # -- appending ----------------------------------------------------------------------------

    def append(
        self,
        data: pa.RecordBatch | pa.Table,
        durability: str | None = None,
        *,
        owner: str | None = None,
        marks: Marks | None = None,
    ) -> AppendResult:
        """Append events, in any time order, atomically.  ``marks`` are JSON values by name, stored
        in the same commit; None removes one.  ``SchemaMismatch``, ``InvalidData`` (a null),
        ``StreamOwned``.
        """
        job = self._job(data, durability, owner, marks)
        if not job.batch.num_rows and marks is None:
            return self._nothing()
        with self.commits.lock:
            self._append(job)
        self._settle(job)
        return job.result

    def append_each(
        self, batches: Sequence[pa.RecordBatch | pa.Table], durability: str | None = None
    ) -> list[AppendResult]:
        """Append batches as separate commits; returns results before the first failure."""
        jobs = [self._job(data, durability) for data in batches]
        done: list[_Append] = []
        with self.commits.lock:
            for job in jobs:
                try:
                    self._append(job)
                except Exception:
                    if not done:
                        raise
                    break
                done.append(job)
        if done:
            self._settle(done[-1])
        return [job.result for job in done]

    def _job(
        self,
        data: pa.RecordBatch | pa.Table,
        durability: str | None,
        owner: str | None = None,
        marks: Marks | None = None,
    ) -> _Append:
        self.commits.check_owner(owner)
        promise = durability or self.commits.manifest.options.durability
        if promise not in DURABILITIES:
            raise InvalidArgument(
                f"durability must be one of {', '.join(DURABILITIES)}, found {promise!r}"
            )
        rules = self._rules_of(self.commits.manifest)
        batch = conform(data, rules)
        ticks = ticks_of(batch, rules.schema) if batch.num_rows else np.empty(0, np.int64)
        if batch.num_rows > 1 and not is_sorted(ticks):
            batch = sort_nearly(batch, ticks)
            ticks = ticks_of(batch, rules.schema)
        if promise == "interval" and self._flusher is None:
            self._start_flusher()
        keys = self._keys(batch, ticks, rules)
        return _Append(batch, ticks, rules, promise == "commit", marks, keys)

    def _keys(
        self, batch: pa.RecordBatch, ticks: npt.NDArray[np.int64], rules: AppendRules
    ) -> Keys | None:
        if rules.unique is None or not batch.num_rows:
            return None
        return keys_of(batch, ticks, rules.unique, rules.schema)

    def _nothing(self) -> AppendResult:
        snapshot = self.snapshot()
        return AppendResult(0, 0, snapshot.count, snapshot.version)

    def _append(self, job: _Append) -> None:
        commits, last = self.commits, self.commits.journal.last
        commits.check_writable()
        if commits.manifest.schema is not job.rules.schema:
            raise SchemaMismatch(
                f"the columns of the stream {self.name!r} were altered meanwhile; append again"
            )
        sifted = self._sift(job)
        rules, batch, ticks = job.rules, job.batch, job.ticks
        rows = batch.num_rows
        if job.duplicates and not rows and job.marks is None:
            job.newest, job.state = last, commits.state()
            job.log, job.position = commits.log, commits.log.size  # as durable as the rest
            return
        cut = 0
        if last is not None and rows and ticks[0] < last:
            cut = int(np.searchsorted(ticks, last))
        late = batch.slice(0, cut) if cut else None
        if cut and last is not None:  # ignoring the few latest ones
            commits.note_reach(last - int(ticks[cut // LATE_FEW]))
        fresh = batch.slice(cut) if cut < rows else None
        wide = False
        if rules.retention_ticks is not None and fresh is not None:
            self._seal_when_wide(rules.retention_ticks, int(ticks[-1]))
            wide = int(ticks[-1]) - int(ticks[cut]) > span_max(rules.retention_ticks)
        tail = commits.journal.tail
        size = 0 if rules.fixed else batch.nbytes
        large = commits.tap is not None and batch.nbytes > LARGE_BYTES
        before = commits.state() if large else None
        if fresh is not None and (
            wide
            or tail.rows + rows - cut >= rules.leaf_events
            or tail.bytes + size >= BYTES_PER_LEAF * commits.manifest.options.leaf_bytes
        ):
            append_leaves(commits, rules, late, fresh, job.marks)
        else:
            newest = None if fresh is None else int(ticks[-1])
            journal = commits.journal.after(late, rows, newest, tail, job.marks)
            record = encode_append(batch, journal.events, job.marks)
            added = None if fresh is None else (fresh, int(ticks[cut]), size)
            commits.apply(Edit(journal, commits.active, record=record, added=added))
        if sifted is not None:
            self._recent_keys.committed(sifted)
        if commits.tap is not None:
            position = commits.journal.position
            span = None if fresh is None else (int(ticks[cut]), int(ticks[-1]))
            arrival = Arrival(position - 1, position, tick_ranges(ticks[:cut]), span, cut)
            commit: Commit | LargeCommit = Commit(position, cut, batch)
            if before is not None:
                spans = ((int(ticks[0]), int(ticks[-1])),)
                commit = LargeCommit(position, cut, before, commits.state(), spans)
            commits.tap.note(arrival, commit)
        self._tidy_quietly(rules)
        job.late, job.newest = cut, last
        job.state = commits.state()
        job.log, job.position = commits.log, commits.log.size

    def _sift(self, job: _Append) -> Sifted | None:
        manifest = self.commits.manifest
        if job.rules.options is not manifest.options:
            job.rules = self._rules_of(manifest)
            job.keys = self._keys(job.batch, job.ticks, job.rules)
        if job.keys is None or job.rules.unique is None:
            return None
        sifted = self._recent_keys.sift(job.keys, job.rules.unique)
        job.batch, job.ticks, job.duplicates = sifted.batch, sifted.ticks, sifted.duplicates
        return sifted

    def _settle(self, job: _Append) -> None:
        """Sync and publish what was appended up to a job."""
        if job.durable:
            self._sync(job.log, job.position)
        self.commits.publish(job.state)

    def _rules_of(self, manifest: StreamManifest) -> AppendRules:
        rules = self._rules
        if rules.schema is not manifest.schema or rules.options is not manifest.options:
            rules = self._rules = AppendRules.of(manifest)
        return rules

    # -- structural commits -------------------------------------------------------------------

    def _tidy_quietly(self, rules: AppendRules) -> None:
        try:
            self._tidy(rules)
        except (ChronicleError, OSError) as error:
            if self.commits.failed is not None:
                raise
            logger.warning("%s: %s", self.commits.directory, error)

    def _tidy(self, rules: AppendRules) -> None:
        commits = self.commits
        journal, log = commits.journal, commits.log
        full = log.size >= LOG_BYTES_MAX or log.records >= LOG_RECORDS_MAX
        if journal.late and (
            journal.late_rows >= self.options.late_events_max
            # the new log would contain them
            or (full and 2 * sum(batch.nbytes for batch in journal.late) >= LOG_BYTES_MAX)
        ):
            spill(commits)
            self._compactor.wake()
        elif full:
            commits.renew_log()
        if journal.last is not None:
            if rules.retention_ticks is not None:
                self._seal_when_wide(rules.retention_ticks, journal.last)
            if rules.moving_ticks is not None and worth_moving(commits):
                self._seal_when_wide(rules.moving_ticks, journal.last)

    def _seal_when_wide(self, age: int, last: int) -> None:
        first = active_first(self.commits)
        if first is not None and last - first > span_max(age):
            seal(self.commits)

    # -- maintenance --------------------------------------------------------------------------

    def flush(self) -> None:
        """Make every append so far durable, whatever its durability was."""
        with self.commits.lock:
            self.commits.check_writable()
            log, position = self.commits.log, self.commits.log.size
        self._sync(log, position)

    def seal(self) -> None:
        with self.commits.lock:
            self.commits.check_writable()
            seal(self.commits)
            state = self.commits.state()
        self.commits.publish(state)

    def compact(self) -> None:
        """Fold late events, and remove files that no reader needs."""
        self.commits.lock.check()
        self._compactor.run()

    def move(
        self, to: ObjectStore, owner: str, before: int | None, stopped: Stopped = never
    ) -> Moved:
        """Move the segments that end before a tick, or are due, to objects."""
        self.commits.lock.check()
        return self._compactor.move(to, owner, before, stopped)

    def delete(
        self, start: int | None = None, end: int | None = None, choose: Choice | None = None
    ) -> int:
        """Delete chosen events of [start, end), in ticks, durably; returns their number."""
        return self._rewrite("deleted from", *closed(start, end), choose=choose)

    def update(
        self, start: int | None, end: int | None, choose: Choice | None, change: Change
    ) -> int:
        """Change events durably, as ``delete``; ``change`` may not alter the time."""
        return self._rewrite("updated", *closed(start, end), choose=choose, change=change)

    def replace(self, first: int, last: int, addition: Addition) -> int:
        """Replace first <= t <= last in one commit; 0, without a change, if empty."""
        return self._rewrite("replaced", first, last, addition=addition)

    def _rewrite(self, doing: str, first: int, last: int, **how: Any) -> int:
        self.commits.lock.check()
        self.commits.check_owner(None)
        return self._compactor.rewrite(doing, first, last, **how)

    def add_attribute(
        self, name: str, type_: pa.DataType, nullable: bool = True, default: Any = None
    ) -> None:
        """Add an attribute; existing events have the default, nothing is rewritten."""
        self.alter(add_attribute, name, type_, nullable, default)

    def alter(
        self, change: Callable[..., None], *arguments: Any, owner: str | None = None, **more: Any
    ) -> None:
        """Apply a function of ``schema_change``, without concurrent compactions."""
        self.commits.lock.check()
        self.commits.check_owner(owner)
        with self._compactor.altered(more):
            self.commits.check_writable()
            change(self.commits, *arguments, **more)
            state = self.commits.state()
            flusher, self._flusher = self._flusher, None
        if flusher is not None:  # the next append starts one with the new interval
            flusher.stop()
        self.commits.publish(state)
        if self.options.durability == "interval":
            self._start_flusher()

    def stats(self) -> dict[str, Any]:
        with self.commits.lock:
            return figures_of(self.commits)

    def check_log(self, report: CheckReport) -> None:
        """Report a log on disk that is shorter than what was written."""
        log = self.commits.log
        try:
            size = self.commits.files.size(log.path)
        except FileNotFoundError:
            return  # readers report it
        if size < log.size:
            what = f"expected {log.size} bytes, found {size}: it was cut while it was open"
            report.problems.append(Problem(self.name, log.path, what))

    def close(self) -> None:
        """Make everything durable and close the files; idempotent."""
        if not self.commits.lock.here:
            return
        self._compactor.stop()
        with self.commits.lock:
            flusher = self._flusher
        if flusher is not None:
            flusher.stop()
        with self.commits.lock:
            self.commits.close()

    def _sync(self, log: LogWriter, position: int) -> None:
        try:
            log.sync(position)
        except Exception as error:
            with self.commits.lock:
                if log is not self.commits.log:
                    return  # replaced: its successor's durable checkpoint contains it
                if not isinstance(error, StoreClosed):
                    self.commits.fail(error)
            if isinstance(error, StoreClosed) and log.durable_size >= position:
                return  # closed just after it was made durable
            raise

    def _start_flusher(self) -> None:
        with self.commits.lock:
            if self._flusher is None and not self.commits.closed:
                self._flusher = Repeated(
                    self._sync_quietly, lambda: self.options.interval_ms / 1000, "chronicle-flusher"
                )

    def _sync_quietly(self) -> None:
        try:
            self.flush()
        except Exception:
            logger.exception("%s: sync in the background failed", self.commits.directory)


class StreamReader(_Handle):
    def __init__(self, files: Files, directory: str) -> None:
        super().__init__(files, directory)
        self._lock = OwnedLock(f"the stream in {directory}")
        self._seen: tuple[bytes, int] | None = None
        self._manifest: StreamManifest | None = None
        self._snapshot: Snapshot
        self.refresh()

    def refresh(self) -> None:
        """Load the last commit; cheap without one, since each changes manifest or log."""
        with self._lock:
            seen = self._look()
            if seen is not None and seen == self._seen:
                return
            self._manifest, state = load_for_reading(self.files, self.directory)
            self._snapshot = Snapshot(state)
            # from before loading: a commit in between is loaded again, never missed
            self._seen = seen

    def _look(self) -> tuple[bytes, int] | None:
        if self._manifest is None:
            return None
        try:
            return (
                self.files.read(f"{self.directory}/MANIFEST"),
                self.files.size(f"{self.directory}/{log_name(self._manifest.log)}"),
            )
        except FileNotFoundError:
            return None

    @property
    def manifest(self) -> StreamManifest:
        assert self._manifest is not None  # since the first refresh
        return self._manifest

    def snapshot(self) -> Snapshot:
        self._lock.check()
        return self._snapshot

    def stats(self) -> dict[str, Any]:
        state = self._snapshot.state
        return {
            "events": self._snapshot.count,
            "position": self._snapshot.version,
            "segments": len(state.segments),
            "late_runs": len(state.runs),
            "late_buffered": sum(leaf.events for leaf in state.late),
            "tail_events": state.tail_events,
            "dropped_events": state.dropped,
            "deleted_events": state.deleted,
            "bytes": state.segments.bytes + sum(run.length for run in state.runs),
            "manifest_version": state.manifest_version,
            "dirty_ranges": self._snapshot.dirty_ranges(),
        }

    def close(self) -> None:
        self._snapshot.state.close()
