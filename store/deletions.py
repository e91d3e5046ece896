"""Deletions: the events that a delete removed, by tick and rank.

A delete identifies its events in a snapshot: a time range, or each event by its tick and its rank
among the events of that tick.  Rewriting leaves these out; a follower subtracts them from what it
has seen.  An update identifies its events in the same way; they keep tick and rank.

Why it works: a snapshot is the stable sort by time of what was committed.  Appends, seals, spills
and compactions add events behind those of the same tick and change no order: until some are
removed, tick and rank identify the same event in every later snapshot. ::

    snapshot     t=1: a b c     t=2: d          deleted: (1, 1), (2, 0)
    later        t=1: a b c X   t=2: d Y        the same: b and d
    afterwards   t=1: a c X     t=2: Y

Layout: a manifest remembers the latest ``KNOWN_MAX`` deletions: commit position, first and last
tick, file (null for a whole range); of an update, also ``true``.  The file is garbage from its
commit on: it stays as long as a reader, who may need it, leases an earlier version. ::

    00000042.gone    b"CHRONDEL"  events (uint64)  XXH3-64 of what follows (uint64)
                     ticks, then ranks (int64 each), both Zstandard, each behind its length
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from ..core.caches import lazy
from ..core.sorting import places_in
from ..errors import CorruptBlock
from .file_contract import Files
from .tap import Spans, tick_ranges

KNOWN_MAX = 128

Ints = npt.NDArray[np.int64]

_MAGIC = b"CHRONDEL"
_HEAD = struct.Struct("<8sQQ")
_LENGTH = struct.Struct("<Q")


class TickRun:
    """Counts the events of the newest tick in a sequence that is read batch by batch."""

    def __init__(self, tick: int | None = None, events: int = 0) -> None:
        self._tick = tick
        self._events = events

    def so_far(self, tick: int) -> int:
        """Events of a tick that have been read, if it is the newest."""
        return self._events if tick == self._tick else 0

    def before(self, ticks: Ints) -> int:
        """Earlier events of the first tick of a batch; the batch then counts as read."""
        first, newest = int(ticks[0]), int(ticks[-1])
        before = self.so_far(first)
        own = ticks.size - int(ticks.searchsorted(newest))
        self._tick, self._events = newest, own + (before if first == newest else 0)
        return before


@dataclass(frozen=True, eq=False)
class DeletedEvents:
    """The events of a delete (update, if ``changed``): a whole range, or sorted ticks and ranks."""

    first: int
    last: int
    ticks: Ints | None = None
    ranks: Ints | None = None
    changed: bool = False

    @classmethod
    def chosen(cls, batches: Iterable[tuple[Ints, npt.NDArray[np.bool_]]]) -> DeletedEvents | None:
        """From (ticks, mask) of a snapshot's events in order; None when none is chosen."""
        run = TickRun()
        ticks, ranks = [], []
        for times, wanted in batches:
            if not times.size:
                continue
            before = run.before(times)
            places = np.flatnonzero(wanted)
            if places.size:
                ticks.append(times[places])
                ranks.append(places - places_in(times, ticks[-1]))
                ranks[-1][ticks[-1] == times[0]] += before
        if not ticks:
            return None
        joined = np.concatenate(ticks)
        return cls(int(joined[0]), int(joined[-1]), joined, np.concatenate(ranks))

    @lazy
    def spans(self) -> Spans:
        """Ranges of ticks that cover them."""
        return ((self.first, self.last),) if self.ticks is None else tick_ranges(self.ticks)

    @lazy
    def body(self) -> bytes:
        body = b""
        for column in (self.ticks, self.ranks):
            assert column is not None
            packed = pa.compress(column.tobytes(), "zstd", asbytes=True)
            body += _LENGTH.pack(len(packed)) + packed
        return body

    def prepare(self) -> None:
        """Compute the lazy parts before the commit, whose lock others wait for."""
        if self.ticks is not None:
            self.spans, self.body  # noqa: B018

    def touches(self, first: int, last: int) -> bool:
        """Whether an event with first <= t <= last may be among them."""
        if self.ticks is None:
            return first <= self.last and self.first <= last
        return bool(self.ticks.searchsorted(first) < self.ticks.searchsorted(last, "right"))

    def covers(self, first: int, last: int) -> bool:
        """Whether every event with first <= t <= last is certainly among them."""
        return self.ticks is None and self.first <= first and last <= self.last

    def places(self, ticks: Ints, before: int = 0) -> Ints:
        """Their places in a snapshot's ticks; ``before`` counts earlier events of the first."""
        if not ticks.size:
            return np.empty(0, np.int64)
        if self.ticks is None or self.ranks is None:
            low, high = ticks.searchsorted(self.first), ticks.searchsorted(self.last, "right")
            return np.arange(low, high)
        low = self.ticks.searchsorted(ticks[0])
        high = self.ticks.searchsorted(ticks[-1], "right")
        wanted, ranks = self.ticks[low:high], self.ranks[low:high].copy()
        ranks[wanted == ticks[0]] -= before
        places = places_in(ticks, wanted) + ranks
        there = (ranks >= 0) & (places < ticks.size)
        there[there] = ticks[places[there]] == wanted[there]
        return places[there]


@dataclass(frozen=True)
class RecordedDeletion:
    """A delete in the manifest; ``file`` is None when the whole range was deleted."""

    position: int
    first: int
    last: int
    file: str | None
    changed: bool = False

    def load(self, files: Files, directory: str) -> DeletedEvents:
        """Its events; ``FileNotFoundError`` when the file was collected as garbage."""
        if self.file is None:
            return DeletedEvents(self.first, self.last, changed=self.changed)
        path = f"{directory}/{self.file}"
        data = files.read(path)
        if len(data) < _HEAD.size:
            raise CorruptBlock("it is too short for a list of deleted events", path, 0)
        magic, events, sign = _HEAD.unpack_from(data)
        if magic != _MAGIC or xxhash.xxh3_64_intdigest(data[_HEAD.size :]) != sign:
            raise CorruptBlock("the list of deleted events does not verify", path, 0)
        columns: list[Ints] = []
        at = _HEAD.size
        for _ in range(2):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            plain = pa.decompress(data[at : at + length], 8 * events, "zstd", asbytes=True)
            columns.append(np.frombuffer(plain, np.int64))
            at += length
        ticks, ranks = columns
        return DeletedEvents(self.first, self.last, ticks, ranks, self.changed)


def write_deletion(
    files: Files, directory: str, position: int, deleted: DeletedEvents
) -> RecordedDeletion:
    """Write a delete's file durably, except for its name, before the commit."""
    if deleted.ticks is None or deleted.ranks is None:
        return RecordedDeletion(position, deleted.first, deleted.last, None, deleted.changed)
    file = f"{position:08d}.gone"
    body = deleted.body
    path = f"{directory}/{file}"
    if files.exists(path):  # of an attempt that failed before its manifest
        files.remove(path)
    with files.create(path) as out:
        out.writev([_HEAD.pack(_MAGIC, deleted.ticks.size, xxhash.xxh3_64_intdigest(body)), body])
        out.sync()
    return RecordedDeletion(position, deleted.first, deleted.last, file, deleted.changed)


@dataclass(frozen=True)
class RecordedDeletions:
    """The latest deletes in commit order; ``forgotten`` is the last position before them, or 0."""

    forgotten: int = 0
    recorded: tuple[RecordedDeletion, ...] = ()

    def noted(self, deletion: RecordedDeletion) -> RecordedDeletions:
        deletions = (*self.recorded, deletion)
        gone = deletions[:-KNOWN_MAX]
        return RecordedDeletions(
            gone[-1].position if gone else self.forgotten, deletions[-KNOWN_MAX:]
        )

    def after(self, position: int) -> Sequence[RecordedDeletion] | None:
        if position < self.forgotten:
            return None
        return [each for each in self.recorded if each.position > position]

    @property
    def has_updates(self) -> bool:
        """Whether it holds an update, which older releases cannot read."""
        return any(each.changed for each in self.recorded)

    @property
    def newest(self) -> int:
        """Commit position of the newest; 0 without one."""
        return self.recorded[-1].position if self.recorded else self.forgotten

    def since(self, position: int) -> bool:
        return position < self.newest

    def to_json(self) -> dict[str, Any]:
        deletions = [
            [each.position, each.first, each.last, each.file, *([True] if each.changed else [])]
            for each in self.recorded
        ]
        return {"forgotten": self.forgotten, "known": deletions}

    @classmethod
    def from_json(cls, document: dict[str, Any] | None) -> RecordedDeletions:
        if document is None:
            return cls()
        return cls(
            document["forgotten"], tuple(RecordedDeletion(*each) for each in document["known"])
        )
