"""Deletions: which events a stream no longer holds, told by time and rank.

Purpose
    A delete names its events once, as they stood in a snapshot: those of a range of times, or each
    by its tick and its rank among the events of that tick.  What rewrites the segments leaves these
    out; who follows the stream from a commit before the delete takes them off what it has seen.
    An update names the events that it changes in the same way; they keep tick and rank.

Why it works
    A snapshot is the stable sort by time of what was committed.  Appends, seals, spills and
    compactions add events behind those of the same tick and change no order: tick and rank name
    the same event in every later snapshot, until some go.

    ::

        snapshot     t=1: a b c     t=2: d          deleted: (1, 1), (2, 0)
        later        t=1: a b c X   t=2: d Y        the same: b and d
        afterwards   t=1: a c X     t=2: Y

Layout
    A manifest remembers the latest :data:`KNOWN_MAX` deletions: commit position, first and last
    tick, and the file with ticks and ranks, null where all events of the range went; of an update,
    also ``true``. ::

        00000042.gone    b"CHRONDEL"  events (uint64)  XXH3-64 of what follows (uint64)
                         ticks, then ranks (int64 each), both Zstandard, each behind its length

    The file is garbage from its commit on: it stays as long as a reader holds an earlier version,
    which is as long as somebody may ask what came after that.  It holds times and nothing else.

Limits
    Ticks and ranks take 16 bytes in memory for each event of a delete.
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
from ..core.native import kernel
from ..errors import CorruptBlock
from .file_contract import Files
from .tap import Spans, tick_ranges

__all__ = ["DeletedEvents", "KnownDeletion", "KnownDeletions", "TickRun", "write_deletion"]

KNOWN_MAX = 128

Ints = npt.NDArray[np.int64]

_MAGIC = b"CHRONDEL"
_HEAD = struct.Struct("<8sQQ")
_LENGTH = struct.Struct("<Q")


@kernel
def _rank(ticks, places, before, ranks):  # type: ignore[no-untyped-def]
    """Ranks of the events at ascending places among those of their ticks.

    ``before``: so many events of the first tick have come before.
    """
    seen = 0
    begin = 0
    for k in range(places.size):
        place = places[k]
        tick = ticks[place]
        if seen == 0 or ticks[begin] != tick:
            at = place
            while at > seen and ticks[at - 1] == tick:
                at -= 1
            begin = at
        seen = place + 1
        ranks[k] = place - begin
        if tick == ticks[0]:
            ranks[k] += before


@kernel
def _find(ticks, wanted, ranks, before, places):  # type: ignore[no-untyped-def]
    """Where events stand that are given by ascending ticks, and ranks; gives how many there are.

    From one to the next in steps that double: they are few among many, or close to each other.
    """
    at = 0
    found = 0
    for k in range(wanted.size):
        tick = wanted[k]
        if at < ticks.size and ticks[at] < tick:
            step = 1
            while at + step < ticks.size and ticks[at + step] < tick:
                at += step
                step += step
            past = min(at + step, ticks.size)
            while past - at > 1:  # ticks[at] < tick <= ticks[past]
                middle = (at + past) >> 1
                if ticks[middle] < tick:
                    at = middle
                else:
                    past = middle
            at = past
        rank = ranks[k]
        if tick == ticks[0]:
            rank -= before
        place = at + rank
        if rank >= 0 and place < ticks.size and ticks[place] == tick:
            places[found] = place
            found += 1
    return found


class TickRun:
    """The events of the newest tick of a sequence that is read batch by batch."""

    def __init__(self, tick: int | None = None, events: int = 0) -> None:
        self._tick = tick
        self._events = events

    def so_far(self, tick: int) -> int:
        """Events of a tick that have been read, unless newer ones have."""
        return self._events if tick == self._tick else 0

    def before(self, ticks: Ints) -> int:
        """Events of the first tick of a batch that came before it; the batch counts as read."""
        first, newest = int(ticks[0]), int(ticks[-1])
        before = self.so_far(first)
        own = ticks.size - int(ticks.searchsorted(newest))
        self._tick, self._events = newest, own + (before if first == newest else 0)
        return before


@dataclass(frozen=True, eq=False)
class DeletedEvents:
    """What one delete takes out of a stream.

    Attributes
    ----------
    first, last : int
        Ticks, inclusive, outside of which nothing is deleted.
    ticks, ranks : int64[events] or None
        In order of both; None where every event of the range is deleted.
    changed : bool
        They are still there, with other values.
    """

    first: int
    last: int
    ticks: Ints | None = None
    ranks: Ints | None = None
    changed: bool = False

    @classmethod
    def chosen(cls, batches: Iterable[tuple[Ints, npt.NDArray[np.bool_]]]) -> DeletedEvents | None:
        """Events of a snapshot, read in its order: ticks, and which are to go; None for none."""
        run = TickRun()
        ticks, ranks = [], []
        for times, wanted in batches:
            if not times.size:
                continue
            before = run.before(times)
            places = np.flatnonzero(wanted)
            if places.size:
                ticks.append(times[places])
                ranks.append(np.empty(places.size, np.int64))
                _rank(_frozen(times), _frozen(places), before, ranks[-1])
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
        """Ticks and ranks as their file has them."""
        body = b""
        for column in (self.ticks, self.ranks):
            assert column is not None
            packed = pa.compress(column.tobytes(), "zstd", asbytes=True)
            body += _LENGTH.pack(len(packed)) + packed
        return body

    def prepare(self) -> None:
        """Find out now what a commit asks for while others wait for it; any thread may."""
        if self.ticks is not None:
            self.spans, self.body  # noqa: B018

    def touches(self, first: int, last: int) -> bool:
        """Whether an event with first <= t <= last may be among them."""
        if self.ticks is None:
            return first <= self.last and self.first <= last
        return bool(self.ticks.searchsorted(first) < self.ticks.searchsorted(last, "right"))

    def covers(self, first: int, last: int) -> bool:
        """Whether every event with first <= t <= last is among them, for all that is known here."""
        return self.ticks is None and self.first <= first and last <= self.last

    def places(self, ticks: Ints, before: int = 0) -> Ints:
        """Where they stand among the ticks of events in the order of a snapshot.

        Parameters
        ----------
        before : int
            So many events of the first tick have come before.
        """
        if not ticks.size:
            return np.empty(0, np.int64)
        if self.ticks is None or self.ranks is None:
            low, high = ticks.searchsorted(self.first), ticks.searchsorted(self.last, "right")
            return np.arange(low, high)
        low = self.ticks.searchsorted(ticks[0])
        high = self.ticks.searchsorted(ticks[-1], "right")
        places = np.empty(high - low, np.int64)
        found = _find(
            _frozen(ticks), _frozen(self.ticks[low:high]), _frozen(self.ranks[low:high]), before,
            places,
        )  # fmt: skip
        return places[:found]


def _frozen(array: Ints) -> Ints:
    """A read-only view: kernels are then compiled once."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True)
class KnownDeletion:
    """A delete as the manifest remembers it; ``file`` is None where all of the range went."""

    position: int
    first: int
    last: int
    file: str | None
    changed: bool = False

    def load(self, files: Files, directory: str) -> DeletedEvents:
        """What it took out.

        Raises
        ------
        FileNotFoundError
            No reader of an earlier version was left, and the file has gone.
        CorruptBlock
        """
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
) -> KnownDeletion:
    """Make a delete durable, but for the name of its file, before the commit that names it."""
    if deleted.ticks is None or deleted.ranks is None:
        return KnownDeletion(position, deleted.first, deleted.last, None, deleted.changed)
    file = f"{position:08d}.gone"
    body = deleted.body
    path = f"{directory}/{file}"
    if files.exists(path):  # of a try that did not get as far as the manifest
        files.remove(path)
    with files.create(path) as out:
        out.writev([_HEAD.pack(_MAGIC, deleted.ticks.size, xxhash.xxh3_64_intdigest(body)), body])
        out.sync()
    return KnownDeletion(position, deleted.first, deleted.last, file, deleted.changed)


@dataclass(frozen=True)
class KnownDeletions:
    """The latest deletes of a stream.

    Attributes
    ----------
    forgotten : int
        Commit position of the newest delete that is not among them; 0 without one.
    known : tuple of KnownDeletion
        In order of commits.
    """

    forgotten: int = 0
    known: tuple[KnownDeletion, ...] = ()

    def noted(self, deletion: KnownDeletion) -> KnownDeletions:
        """With one more, the oldest forgotten where they are too many."""
        known = (*self.known, deletion)
        gone = known[:-KNOWN_MAX]
        return KnownDeletions(gone[-1].position if gone else self.forgotten, known[-KNOWN_MAX:])

    def after(self, position: int) -> Sequence[KnownDeletion] | None:
        """The deletes behind a commit; None where not all of them are known."""
        if position < self.forgotten:
            return None
        return [each for each in self.known if each.position > position]

    @property
    def has_updates(self) -> bool:
        """Whether an update is among them, which older releases cannot read."""
        return any(each.changed for each in self.known)

    @property
    def newest(self) -> int:
        """Commit position of the newest; 0 without one."""
        return self.known[-1].position if self.known else self.forgotten

    def since(self, position: int) -> bool:
        """Whether something was deleted behind a commit."""
        return position < self.newest

    def to_json(self) -> dict[str, Any]:
        """A form for the manifest."""
        known = [
            [each.position, each.first, each.last, each.file, *([True] if each.changed else [])]
            for each in self.known
        ]
        return {"forgotten": self.forgotten, "known": known}

    @classmethod
    def from_json(cls, document: dict[str, Any] | None) -> KnownDeletions:
        """Read what :meth:`to_json` wrote; none of a release that could not delete."""
        if document is None:
            return cls()
        return cls(document["forgotten"], tuple(KnownDeletion(*each) for each in document["known"]))
