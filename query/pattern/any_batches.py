"""Enumerates the matches of lists in batches, in reused arrays (fresh ones would cost page faults).
Walks only read lists, so threads can share them, except lists that are built per start.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from . import any_walk, outcomes
from .any_lists import ListEntries, Scratch
from .any_states import Tables
from .matches import Matches
from .search import MatchTable, Rows, Task

__all__ = ["MATCHES_MAX", "Batching", "Lists", "Room", "Walk"]

IntArray = npt.NDArray[np.int64]

MATCHES_MAX = 1 << 14
"""Matches per batch; small enough that their results stay in the CPU cache."""
ROWS_A_BATCH = 1 << 20


@dataclass(frozen=True)
class Lists:
    """The lists of one buffer.
    ``starts``: entries in result order (rows, if each start has its own lists); ``made``: index of
    each in build order.  ``stop``: per partition, the end of the rows that a match may contain.
    ``apart``: the entries of one start follow those of the previous start.
    """

    classes: npt.NDArray[np.int32]
    tables: Tables
    entries: ListEntries
    scratch: Scratch
    starts: IntArray
    groups: IntArray
    made: IntArray
    stop: IntArray
    apart: bool = False


class Room:
    def __init__(self) -> None:
        self._matches: list[IntArray] = []
        self._runs: list[IntArray] = []

    def table(self, matches: int, runs: int) -> MatchTable:
        if not self._matches or len(self._matches[0]) < matches:
            self._matches = [np.empty(matches, np.int64) for _ in range(5)]
        if not self._runs or len(self._runs[0]) < runs:
            self._runs = [np.empty(runs, np.int64) for _ in range(3)]
        return MatchTable(
            *(array[:matches] for array in self._matches), *(array[:runs] for array in self._runs)
        )


@dataclass
class Batching:
    """A pool of arrays for matches.
    ``alone``: lists are built per start, when it is walked.  ``width``: events of every match of a
    sequence, where event ``i`` has position ``i + 1``; otherwise 0.
    """

    longest: int | None
    alone: bool
    width: int
    _rooms: list[Room] = field(default_factory=list)
    _same: tuple[IntArray, ...] = ()

    @contextlib.contextmanager
    def room(self) -> Iterator[Room]:
        try:
            room = self._rooms.pop()
        except IndexError:
            room = Room()
        try:
            yield room
        finally:
            self._rooms.append(room)

    def even(self, count: int, found: MatchTable) -> Matches:
        """Matches of a sequence from their rows; all other arrays are the same for every batch."""
        width = self.width
        if not self._same:
            every = np.arange(MATCHES_MAX + 1, dtype=np.int64) * width
            index = np.tile(np.arange(width, dtype=np.int64), MATCHES_MAX)
            self._same = (np.full(MATCHES_MAX, width, np.int64), every, index, index + 1)
        length, runs, begin, place = self._same
        row = found.row[: count * width]
        return Matches(
            found.group[:count], row[::width], length[:count], found.number[:count],
            runs[: count + 1], row, begin[: len(row)], place[: len(row)], width,
        )  # fmt: skip


class Walk:
    def __init__(self, batching: Batching, lists: Lists, rows: Rows, task: Task) -> None:
        self.lists, self.rows, self.task = lists, rows, task
        self._batching = batching
        self.widest = int((lists.stop - rows.begin).max(initial=0))
        longest = batching.longest
        self._deepest = self.widest if longest is None else min(self.widest, longest)
        self._path, self._cursor, self._prefix = np.zeros((3, self._deepest + 2), np.int64)
        self._at = np.zeros(3, np.int64)
        self._one = np.zeros(2, np.int64)

    @property
    def start(self) -> int:
        return int(self._at[any_walk.START])

    @property
    def ended(self) -> bool:
        return self.start >= len(self.lists.starts)

    def stand(self, start: int, offset: int) -> None:
        """Move to match ``offset`` (from 0) of a start."""
        self._at[any_walk.START] = start
        if offset:
            lists, rows, group = self.lists, self.rows, self.lists.groups[start]
            low = int(lists.starts[start - 1]) + 1 if lists.apart and start else 1
            any_walk.descend(
                lists.starts[start], np.uint64(offset), low, self._batching.alone,
                lists.stop[group], lists.classes, lists.tables, rows.time, self.task,
                lists.entries, lists.scratch, self._one,
                np.empty(len(lists.entries.row), np.uint64), self._path, self._cursor, self._at,
            )  # fmt: skip

    def batch(self, most: int, step: int, room: Room) -> Matches:
        lists, rows, task = self.lists, self.rows, self.task
        batching, upto = self._batching, min(self.start + step, len(self.lists.starts))
        width = batching.width
        if width:
            found = room.table(most, most * width)
            count = any_walk.walk_even(
                lists.starts[:upto], lists.groups, width, rows.time, task, lists.entries,
                self._path, self._prefix, self._cursor, self._at, rows.number, found.row,
                found.group, found.number,
            )  # fmt: skip
            return batching.even(count, found)
        runs = max(self._deepest, min(ROWS_A_BATCH, most * max(self._deepest, 1)))
        found = room.table(most, runs)
        state = np.zeros(8, np.int64)
        any_walk.walk(
            lists.starts[:upto], lists.groups, batching.alone, lists.stop, lists.classes,
            lists.tables, rows, task, lists.entries, lists.scratch, self._one, self._path,
            self._cursor, self._at, state, found,
        )  # fmt: skip
        n, r = int(state[outcomes.MATCHES]), int(state[outcomes.RUNS])
        first = np.concatenate([[0], np.cumsum(found.length[:n])]).astype(np.int64)
        return Matches(
            found.group[:n], found.start[:n], found.length[:n], found.number[:n], first,
            found.row[:r], found.begin[:r], found.place[:r],
        )  # fmt: skip
