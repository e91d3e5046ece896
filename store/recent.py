"""The latest commits, in commit order, for followers of a growing stream: tails and live queries.

While a stream has followers, its commits are cached; those from before the first follower are read
from the write-ahead log, as far as it goes::

    log:   CHECKPOINT 40 | 41 | 42 | EXTENT 43 | 44 | 45
                                                '--'-- logged_commits
    memory:                                       46  47  48 ...  CommitTap
                                                      '---------- published ones

Of each commit the tap has the ticks (a live query reads a stream in time order, behind a watermark,
and must know which commits brought events before it, and where) and, of the latest ones, the
events.  These take at most ``BYTES_MAX``: a large commit is stored as the two states around it,
which keep files open, so there are at most ``LARGE_MAX``.  Above ``ARRIVALS_MAX`` commits the
oldest ones are joined.

Guarantee: every commit is noted before readers see it, and before it is durable: followers ask only
up to the published position.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
import pyarrow as pa

from ..core.soundness import require_sound
from ..errors import InvalidData
from ..schema import StreamSchema
from .catalog import log_name
from .changes import added_events
from .deletions import DeletedEvents
from .file_contract import Files
from .journal import Journal, append_of, decode_batch
from .log import read_log
from .recovery import stream_manifest
from .segment import TICK_MAX, Scan
from .snapshot import Snapshot, StreamState
from .tail import ticks_of
from .tap import Arrival, Spans, joined

ARRIVALS_MAX = 4096
BYTES_MAX = 16 << 20
LARGE_BYTES = 4 << 20
"""A commit with more bytes than this is not cached in memory."""

LARGE_MAX = 8
COMMIT_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: its events in time order, ties in arrival order, in the columns of that time."""

    position: int
    late: int
    events: pa.RecordBatch

    @property
    def nbytes(self) -> int:
        return COMMIT_BYTES + int(self.events.get_total_buffer_size())

    def batches(self, check: Callable[[], None] | None = None) -> Iterator[pa.RecordBatch]:
        if check is not None:
            check()
        if self.events.num_rows:
            yield self.events


@dataclass(frozen=True, slots=True)
class LargeCommit:
    """A commit as the states around it, equal outside of ``spans``; ``changed`` events are new."""

    position: int
    late: int
    before: StreamState
    after: StreamState
    spans: Spans
    changed: tuple[DeletedEvents, ...] = ()

    @property
    def nbytes(self) -> int:
        return LARGE_BYTES

    def batches(self, check: Callable[[], None] | None = None) -> Iterator[pa.RecordBatch]:
        """Its events, read from the trees; in time order, ties in order of arrival."""
        earlier, later = Snapshot(self.before), Snapshot(self.after)
        for first, last in self.spans:
            end = None if last == TICK_MAX else last + 1
            names = later.schema.names
            yield from added_events(earlier, later, first, end, names, check, self.changed)


class CommitTap:
    """The latest commits of a stream that has ``followers``, or a ``forgetful`` user."""

    def __init__(self, position: int) -> None:
        self.followers = 0
        self.forgetful = False
        self._lock = threading.Lock()
        self._begun = self._read_from = position
        self._arrivals: deque[Arrival] = deque()
        self._commits: deque[Commit | LargeCommit] = deque()
        self._bytes = self._large = 0

    def note(self, arrival: Arrival, commit: Commit | LargeCommit | None = None) -> None:
        """Add a commit, in the order of positions; with its events, if it brought any."""
        with self._lock:
            self._arrivals.append(arrival)
            if len(self._arrivals) > ARRIVALS_MAX:
                oldest = [self._arrivals.popleft() for _ in range(ARRIVALS_MAX // 2)]
                self._arrivals.appendleft(joined(oldest))
            if commit is not None:
                self._commits.append(commit)
                self._count(commit, 1)
            while self._bytes > BYTES_MAX or self._large > LARGE_MAX:
                self._forget_events(self._commits[0].position)

    def cut(self, position: int) -> None:
        """Forget all commits up to a position, from which followers cannot continue."""
        with self._lock:
            self._begun = position
            self._arrivals.clear()
            self._forget_events(position)

    def forget(self, upto: int) -> None:
        """Forget the commits up to a position, unless there are followers."""
        with self._lock:
            if self.followers:
                return
            while self._arrivals and self._arrivals[0].position <= upto:
                self._begun = self._arrivals.popleft().position
            self._forget_events(upto)

    def reshape(self, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        """Adapt events to renamed or dropped columns; forgets all up to the last large commit."""
        with self._lock:
            while self._large:
                self._forget_events(self._commits[0].position)
            self._commits = deque(
                replace(commit, events=change(commit.events))
                for commit in self._commits
                if isinstance(commit, Commit)
            )

    def between(self, after: int, upto: int) -> list[Arrival] | None:
        """Ticks of the commits after one position and up to another; None where unknown."""
        with self._lock:
            if after < self._begun:
                return None
            return [each for each in self._arrivals if after < each.position and each.since < upto]

    def commits(self, after: int, upto: int) -> list[Commit | LargeCommit] | None:
        """As ``between``, with the events."""
        with self._lock:
            if after < self._read_from:
                return None
            recent = takewhile(lambda each: each.position > after, reversed(self._commits))
            return [each for each in recent if each.position <= upto][::-1]

    def late_events(self, after: int, upto: int) -> list[pa.RecordBatch] | None:
        """The late events of ``commits``, by commit; None if one of these is large."""
        commits = self.commits(after, upto)
        late = [each for each in commits or () if each.late]
        if commits is None or any(isinstance(each, LargeCommit) for each in late):
            return None
        return [each.events.slice(0, each.late) for each in late if isinstance(each, Commit)]

    def _forget_events(self, upto: int) -> None:
        self._read_from = max(self._read_from, upto)
        while self._commits and self._commits[0].position <= upto:
            self._count(self._commits.popleft(), -1)

    def _count(self, commit: Commit | LargeCommit, sign: int) -> None:
        self._bytes += sign * commit.nbytes
        self._large += sign * isinstance(commit, LargeCommit)


def logged_commits(files: Files, directory: str) -> tuple[int, list[Commit]]:
    """The commits that are single records of the log, and the position before them."""
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
        assert encoded is not None  # only appends follow the last state
        events = _sound(encoded, manifest.schema)
        ticks = ticks_of(events, manifest.schema)
        late = 0 if last is None else int(np.searchsorted(ticks, last))
        commits.append(Commit(journal.position + number, late, events))
        if late < len(ticks):
            last = int(ticks[-1])
    return journal.position, commits


def _sound(encoded: memoryview, schema: StreamSchema) -> pa.RecordBatch:
    try:
        events = decode_batch(encoded, schema)
        if events is not None:
            require_sound(events)
            return events
    except (InvalidData, pa.ArrowInvalid, OSError):
        pass  # set aside in replays: not part of the stream
    return pa.RecordBatch.from_pylist([], schema.arrow)


class BatchSnapshot(Snapshot):
    """A few events, in any order, with a snapshot's interface."""

    def __init__(self, schema: StreamSchema, events: pa.RecordBatch) -> None:
        super().__init__(StreamState(schema, stored=events.num_rows))
        self._events = events

    def _raw(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        ticks = ticks_of(self._events, self.schema)
        inside = (ticks >= scan.first) & (ticks <= scan.last)
        events = self._events if inside.all() else self._events.filter(pa.array(inside))
        if events.num_rows:
            yield events.select(scan.columns)
