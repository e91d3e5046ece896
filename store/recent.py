"""The latest commits with their events, for those who follow a stream while it grows.

Purpose
    A follower is told what each commit brought, in the order of commits.  The trees do not know
    that order: they sort by time.  The appends do, and have the events at hand; so, while somebody
    follows a stream, its latest commits are remembered with them.  Those from before the first
    follower came are read back from the write-ahead log, as far as that still tells of them.

Layout
    ::

        log:   CHECKPOINT 40 | 41 | 42 | EXTENT 43 | 44 | 45
                                                    '--'-- logged_commits
        memory:                                       46  47  48 ...  RecentCommits
                                                          '---------- those that were published

Guarantee
    The commits between two positions, each once, in order, or None where one of them is not
    remembered.  What is remembered takes no more than :data:`BYTES_MAX`, whatever the events are:
    a commit with many of them is remembered as the two states around it, and read from these.

Limits
    A commit is noted before it is as durable as it was promised to be: a follower asks up to the
    position that was published.  The states around a large commit keep the files open that they
    were made of, so there are at most :data:`LARGE_MAX`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ..core.soundness import require_sound
from ..errors import InvalidData
from ..schema import StreamSchema
from .catalog import log_name
from .deletions import DeletedEvents
from .difference import added_events
from .file_contract import Files
from .journal import Journal, append_of, decode_batch
from .log import read_log
from .prune import Prune
from .recovery import stream_manifest
from .segment import TICK_MAX, ScanMetrics
from .snapshot import Snapshot, StreamState
from .tail import ticks_of
from .tap import Spans

__all__ = ["BatchSnapshot", "Commit", "LargeCommit", "RecentCommits", "logged_commits"]

BYTES_MAX = 16 << 20
LARGE_BYTES = 2 << 20
"""A commit with more bytes than this is not kept in memory."""

LARGE_MAX = 8
COMMIT_BYTES = 2048
"""What a commit takes besides its events."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit.

    Attributes
    ----------
    position : int
        Its own; the commit before it has the number before.
    late : int
        Its events that were older than the newest one stored.
    events : pyarrow.RecordBatch
        In time order, ties as they came; in the columns that the stream had.
    """

    position: int
    late: int
    events: pa.RecordBatch

    @property
    def nbytes(self) -> int:
        """Bytes that it keeps in memory."""
        return COMMIT_BYTES + int(self.events.get_total_buffer_size())

    def batches(self, check: Callable[[], None] | None = None) -> Iterator[pa.RecordBatch]:
        """Its events."""
        if check is not None:
            check()
        if self.events.num_rows:
            yield self.events


@dataclass(frozen=True, slots=True)
class LargeCommit:
    """One commit, told by the states around it.

    Attributes
    ----------
    position, late : int
        As in :class:`Commit`.
    spans : tuple of (int, int)
        Ranges of ticks, outside of which the two states hold the same.
    changed : tuple of DeletedEvents
        What it deleted, for what came instead, or gave other values: these are told.
    """

    position: int
    late: int
    before: StreamState
    after: StreamState
    spans: Spans
    changed: tuple[DeletedEvents, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes that it keeps in memory, besides what the stream keeps anyway."""
        return LARGE_BYTES

    def batches(self, check: Callable[[], None] | None = None) -> Iterator[pa.RecordBatch]:
        """Its events, read from the trees; in time order, ties as they came."""
        earlier, later = Snapshot(self.before), Snapshot(self.after)
        for first, last in self.spans:
            end = None if last == TICK_MAX else last + 1
            names = later.schema.names
            yield from added_events(earlier, later, first, end, names, check, self.changed)


class RecentCommits:
    """The latest commits of a stream; any thread may ask.

    Parameters
    ----------
    position : int
        Of the last commit that is not noted.
    """

    def __init__(self, position: int) -> None:
        self._lock = threading.Lock()
        self._begun = position
        self._commits: deque[Commit | LargeCommit] = deque()
        self._bytes = 0
        self._large = 0

    def note(self, commit: Commit | LargeCommit) -> None:
        """A commit has happened; called in the order of positions."""
        with self._lock:
            self._commits.append(commit)
            self._count(commit, 1)
            while self._bytes > BYTES_MAX or self._large > LARGE_MAX:
                self._begun = self._forget_oldest()

    def cut(self, position: int) -> None:
        """The stream was truncated: what was before cannot be followed."""
        with self._lock:
            while self._commits:
                self._forget_oldest()
            self._begun = position

    def reshape(self, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        """Columns were renamed or dropped: tell what came before with those that there are now.

        What the states around a large commit hold is called what it was: up to there all is cut.
        """
        with self._lock:
            while self._large:
                self._begun = self._forget_oldest()
            self._commits = deque(
                replace(commit, events=change(commit.events))
                for commit in self._commits
                if isinstance(commit, Commit)
            )

    def between(self, after: int, upto: int) -> list[Commit | LargeCommit] | None:
        """The commits behind one position and up to another; None where one is not known."""
        with self._lock:
            if after < self._begun:
                return None
            found: list[Commit | LargeCommit] = []
            for commit in reversed(self._commits):
                if commit.position <= after:
                    break
                if commit.position <= upto:
                    found.append(commit)
        found.reverse()
        return found

    def _forget_oldest(self) -> int:
        commit = self._commits.popleft()
        self._count(commit, -1)
        return commit.position

    def _count(self, commit: Commit | LargeCommit, sign: int) -> None:
        self._bytes += sign * commit.nbytes
        self._large += sign * isinstance(commit, LargeCommit)


def logged_commits(files: Files, directory: str) -> tuple[int, list[Commit]]:
    """The latest commits that a stream's log tells of one by one.

    Returns
    -------
    int
        The position before the first of them.
    list of Commit

    Raises
    ------
    FileNotFoundError
        When the writer has just replaced the log.
    """
    manifest = stream_manifest(files, directory)
    path = f"{directory}/{log_name(manifest.log)}"
    records = [(record.kind, record.payload) for record in read_log(files, path).records]
    states = [at for at, (kind, payload) in enumerate(records) if append_of(kind, payload) is None]
    begin = 1 + max(states, default=0)
    journal = Journal.replay(records[:begin], manifest.schema, path)
    last = journal.last
    commits: list[Commit] = []
    for number, (kind, payload) in enumerate(records[begin:], 1):
        encoded = append_of(kind, payload)
        assert encoded is not None  # behind the last state there are appends only
        events = _sound(encoded, manifest.schema)
        ticks = ticks_of(events, manifest.schema)
        late = 0 if last is None else int(np.searchsorted(ticks, last))
        commits.append(Commit(journal.position + number, late, events))
        if late < len(ticks):
            last = int(ticks[-1])
    return journal.position, commits


def _sound(encoded: memoryview, schema: StreamSchema) -> pa.RecordBatch:
    """The events of a record; none where it has none, or where the stream does not take them."""
    try:
        events = decode_batch(encoded, schema)
        if events is not None:
            require_sound(events)
            return events
    except (InvalidData, pa.ArrowInvalid, OSError):
        pass  # set aside when the log is replayed: they are no part of the stream
    return pa.RecordBatch.from_arrays(
        [pa.array([], field.type) for field in schema.arrow], schema=schema.arrow
    )


class BatchSnapshot(Snapshot):
    """A few events as a snapshot of their stream, in the order that they are in.

    Parameters
    ----------
    events : pyarrow.RecordBatch
        In the schema's columns; need not be in time order.
    """

    def __init__(self, schema: StreamSchema, events: pa.RecordBatch) -> None:
        super().__init__(StreamState(schema, 0, 0, (), (), (), None, 0, 0, None, events.num_rows))
        self._events = events

    def _raw(
        self,
        columns: list[str],
        low: int,
        high: int,
        prune: Prune | None,
        dictionary: bool,
        metrics: ScanMetrics | None,
        limit: int | None,
    ) -> Iterator[pa.RecordBatch]:
        del prune, dictionary, metrics, limit  # what may be skipped, shortened, counted, cut
        ticks = ticks_of(self._events, self.schema)
        inside = (ticks >= low) & (ticks <= high)
        events = self._events if inside.all() else self._events.filter(pa.array(inside))
        if events.num_rows:
            yield events.select(columns)
