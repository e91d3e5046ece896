"""Outputs the matches of a buffer's lists in batches, or counts them; applies OFFSET.

::

    source       first events of a buffer, with lists for all of them or for some at a time
    lists        counted; prefix sums map match number i to its start
    piece        matches i .. i + PIECE of the lists, walked by one thread
    batch        at most MATCHES_MAX matches, in the arrays of the previous batch

A short result starts no threads.  After ``ALONE_MATCHES`` the rest is divided by match number, also
inside one first event; sources that build lists during the walk are divided into parts first.  The
order is that of the starts, then that of ``selection``.  Memory is a few batches per thread.

Batches reuse their arrays, as fresh ones would cost page faults.  Walks only read lists, so threads
can share them, except lists that are built per start.

Matches are ordered by first row in the input.  Only starts with complete windows are searched, so
nothing is undone.  A buffer whose lists do not fit into memory, or that has too many states, is
left to ``selection``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ...core.threads import Busy, Check, Done, Task, in_order
from ...errors import ResourceLimit
from . import any_lists, search
from .any_lists import (
    BYTES_AN_ENTRY,
    FIRST,
    LAST,
    MANY,
    ListEntries,
    Scratch,
    States,
    Tables,
    TooManyStates,
    build_groups,
    classes_of,
    count_starts,
    decide,
    room_for,
    sums,
)
from .automaton import Automaton
from .columns import take_ranges
from .matches import Matches
from .search import MatchTable, Rows
from .search import Task as Search

if TYPE_CHECKING:
    from .buffers import PreparedRows
    from .matcher import Groups

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
    def __init__(self, batching: Batching, lists: Lists, rows: Rows, task: Search) -> None:
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
        return int(self._at[any_lists.START])

    @property
    def ended(self) -> bool:
        return self.start >= len(self.lists.starts)

    def stand(self, start: int, offset: int) -> None:
        """Move to match ``offset`` (from 0) of a start."""
        self._at[any_lists.START] = start
        if offset:
            lists, rows, group = self.lists, self.rows, self.lists.groups[start]
            low = int(lists.starts[start - 1]) + 1 if lists.apart and start else 1
            any_lists.descend(
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
            count = any_lists.walk_even(
                lists.starts[:upto], lists.groups, width, rows.time, task, lists.entries,
                self._path, self._prefix, self._cursor, self._at, rows.number, found.row,
                found.group, found.number,
            )  # fmt: skip
            return batching.even(count, found)
        runs = max(self._deepest, min(ROWS_A_BATCH, most * max(self._deepest, 1)))
        found = room.table(most, runs)
        state = np.zeros(8, np.int64)
        any_lists.walk(
            lists.starts[:upto], lists.groups, batching.alone, lists.stop, lists.classes,
            lists.tables, rows, task, lists.entries, lists.scratch, self._one, self._path,
            self._cursor, self._at, state, found,
        )  # fmt: skip
        n, r = int(state[search.MATCHES]), int(state[search.RUNS])
        first = np.concatenate([[0], np.cumsum(found.length[:n])]).astype(np.int64)
        return Matches(
            found.group[:n], found.start[:n], found.length[:n], found.number[:n], first,
            found.row[:r], found.begin[:r], found.place[:r],
        )  # fmt: skip


Found = TypeVar("Found")
Finish = Callable[[Matches], Found]

MATCHES_FIRST = 1 << 10
ALONE_MATCHES = 1 << 16
"""Matches that one thread outputs before others are started."""
PIECE_MATCHES = 1 << 16
PART_MATCHES = 1 << 18
SLICE_ENTRIES = 50_000_000
COUNTED_ALONE = 1 << 17


class Source(Protocol):
    def pieces(self, check: Check | None) -> Iterator[tuple[Lists, Search]]:
        """Lists of some first events at a time; each piece may reuse the arrays of the last."""

    def parts(self, threads: int) -> list[Source]:
        """The same first events in parts for threads."""

    def keep(self) -> None:
        """Keep the lists of the last piece valid."""


@dataclass(frozen=True)
class AtOnce:
    lists: Lists
    search: Search

    def pieces(self, check: Check | None) -> Iterator[tuple[Lists, Search]]:
        yield self.lists, self.search

    def parts(self, threads: int) -> list[Source]:
        return [self]

    def keep(self) -> None:
        """Nothing to do."""


class _Piece(NamedTuple):
    """Matches ``offset .. offset + size``, counted from the beginning of a start."""

    start: int
    offset: int
    size: int
    number: IntArray


class ListOutput:
    """Outputs the matches of lists.
    ``alone``: lists are built per start, when it is walked.  ``even``: the pattern is a sequence.
    ``numbered``: MATCH_NUMBER is read.  ``skip``: matches still to be omitted.
    """

    def __init__(
        self,
        text: str,
        describe_row: Callable[[int], str],
        longest: int | None,
        alone: bool,
        even: bool,
        threads: int,
        numbered: bool,
    ) -> None:
        self._text = text
        self._describe_row = describe_row
        self._batching = Batching(longest, alone, (longest or 0) if even and not alone else 0)
        self._alone = alone
        self._threads = threads
        self._numbered = numbered
        self.skip = 0
        self.busy = Busy()
        self._given = 0

    def put_out(
        self,
        source: Source,
        rows: Rows,
        weighted: bool,
        finish: Finish[Found],
        check: Check | None,
    ) -> Iterator[Found]:
        """Yield ``finish`` of every batch in order; it runs in the thread that made the batch,
        whose arrays are reused.  ``weighted``: one row per start, with its number of matches.
        """
        parts = source.parts(self._threads) if not self.skip else [source]
        if len(parts) == 1:
            for lists, task in source.pieces(check):
                if weighted:
                    yield finish(self._weights(lists, rows, task, check, self._threads))
                else:
                    yield from self._matches(lists, rows, task, finish, check)
            return
        if weighted or not self._numbered:
            yield from self._side_by_side(parts, rows, weighted, finish, check)
            return
        # MATCH_NUMBER depends on all earlier parts
        for found in self._side_by_side(parts, rows, False, Matches.kept, check):
            yield finish(found.numbered(rows.number))

    # -- walks ----------------------------------------------------------------------------------

    def _matches(
        self,
        lists: Lists,
        rows: Rows,
        task: Search,
        finish: Finish[Found],
        check: Check | None,
    ) -> Iterator[Found]:
        before = rows.number.copy() if self._threads > 1 else rows.number
        walk = Walk(self._batching, lists, rows, task)
        done = self._skipped(walk, check) if self.skip else 0
        most = MATCHES_FIRST
        # starts with own lists may have no match, and cost a window each
        step = max(1, SLICE_ENTRIES // (walk.widest + 1)) if self._alone else len(lists.starts)
        with self._batching.room() as room:
            while not walk.ended:
                dense = done > 4 * walk.start
                if self._threads > 1 and self._given > ALONE_MATCHES and dense:
                    pieces = self._cut(lists, rows._replace(number=before), task, done, check)
                    tasks = (self._walking(lists, rows, task, p, finish) for p in pieces)
                    yield from in_order(tasks, self._threads, check, self.busy)
                    rows.number[:] = before
                    return
                found = walk.batch(most, step, room)
                if check is not None:
                    check()
                count = len(found.start)
                if count == most:
                    most = min(MATCHES_MAX, most * 4)
                done += count
                self._given += count
                if count:
                    yield finish(found)

    def _cut(
        self, lists: Lists, rows: Rows, task: Search, done: int, check: Check | None
    ) -> Iterator[_Piece]:
        """Pieces of the matches after the first ``done``; advances ``rows.number`` past all."""
        counts = self._counted(lists, rows, task, check, self._threads)
        upto = np.empty_like(counts)
        sums(counts, upto)
        total, number, last = int(upto[-1]) if len(upto) else 0, rows.number, 0
        whole = counts.astype(np.int64)  # wraps only beyond any reachable MATCH_NUMBER
        while done < total:
            start = int(np.searchsorted(upto, np.uint64(done), side="right"))
            np.add.at(number, lists.groups[last:start], whole[last:start])
            last = start
            offset = done - (int(upto[start - 1]) if start else 0)
            own = number.copy()
            own[lists.groups[start]] += offset
            size = min(PIECE_MATCHES, total - done)
            yield _Piece(start, offset, size, own)
            done += size
        np.add.at(number, lists.groups[last:], whole[last:])

    def _walking(
        self, lists: Lists, rows: Rows, task: Search, piece: _Piece, finish: Finish[Found]
    ) -> Task[Found]:

        def run(check: Check) -> Done[Found]:
            own = rows._replace(number=piece.number)
            walk = Walk(self._batching, self._of_thread(lists), own, task)
            walk.stand(piece.start, piece.offset)
            found, left = [], piece.size
            with self._batching.room() as room:
                while left:
                    check()
                    batch = walk.batch(min(MATCHES_MAX, left), len(lists.starts), room)
                    left -= len(batch.start)
                    found.append(finish(batch))
            return Done(found)

        return run

    def _of_thread(self, lists: Lists) -> Lists:
        """Lists that a thread may modify: a copy if they are rebuilt for each start."""
        if not self._alone:
            return lists
        entries, scratch = room_for(len(lists.entries.row) - 1, len(lists.scratch.head))
        return replace(lists, entries=entries, scratch=scratch)

    def _side_by_side(
        self,
        parts: list[Source],
        rows: Rows,
        weighted: bool,
        finish: Finish[Found],
        check: Check | None,
    ) -> Iterator[Found]:

        def task(part: Source) -> Task[Found]:
            own = rows._replace(number=np.zeros_like(rows.number))
            pieces: list[Iterator[tuple[Lists, Search]]] = []

            def run(check: Check) -> Done[Found]:
                if not pieces:
                    pieces.append(part.pieces(check))
                found: list[Found] = []
                given = 0
                with self._batching.room() as room:
                    for lists, search in pieces[0]:
                        if weighted:
                            found.append(finish(self._weights(lists, own, search, check, 1)))
                            continue
                        walk = Walk(self._batching, lists, own, search)
                        done = 0
                        while not walk.ended:
                            if given > PART_MATCHES:
                                part.keep()
                                left = self._cut(lists, own, search, done, check)
                                rest = (self._walking(lists, own, search, p, finish) for p in left)
                                return Done(found, chain(rest, [run]))
                            batch = walk.batch(MATCHES_MAX, len(lists.starts), room)
                            count = len(batch.start)
                            check()
                            done += count
                            given += count
                            if count:
                                found.append(finish(batch))
                return Done(found)

            return run

        yield from in_order(map(task, parts), self._threads, check, self.busy)

    def _skipped(self, walk: Walk, check: Check | None) -> int:
        lists, rows = walk.lists, walk.rows
        counts = self._counted(lists, rows, walk.task, check, self._threads)
        upto = np.empty_like(counts)
        sums(counts, upto)
        skip = self.skip
        start = int(np.searchsorted(upto, np.uint64(min(skip, 2**63 - 1)), side="right"))
        np.add.at(rows.number, lists.groups[:start], counts[:start].astype(np.int64))
        passed = int(upto[start - 1]) if start else 0
        if start == len(counts):
            walk.stand(start, 0)
            self.skip = skip - passed
            return passed
        walk.stand(start, skip - passed)
        rows.number[lists.groups[start]] += skip - passed
        self.skip = 0
        return skip

    # -- counts ---------------------------------------------------------------------------------

    def _weights(
        self, lists: Lists, rows: Rows, task: Search, check: Check | None, threads: int
    ) -> Matches:
        counts = self._counted(lists, rows, task, check, threads)
        first = lists.starts if self._alone else lists.entries.row[lists.starts]
        if len(counts) and counts.max() >= MANY:
            row = int(first[int(np.argmax(counts))])
            raise ResourceLimit(
                f"more than {2**63 - 1} matches of pattern {self._text} begin "
                f"{self._describe_row(row)}; shorten WITHIN or narrow the conditions"
            )
        some = counts > 0
        first, owners = first[some], lists.groups[some]
        tables = lists.tables
        kinds = tables.entry[lists.classes[first]]
        places = tables.place[tables.places[tables.target[kinds]]]
        ones = np.ones(len(first), np.int64)
        runs = np.arange(len(first) + 1)
        return Matches(
            owners, first, ones, counts[some].view(np.int64), runs, first, ones - 1, places
        )

    def _counted(
        self, lists: Lists, rows: Rows, task: Search, check: Check | None, threads: int
    ) -> npt.NDArray[np.uint64]:
        back = np.empty_like(lists.made)
        back[lists.made] = np.arange(len(back))  # from build order to result order
        starts, groups = lists.starts[back], lists.groups[back]
        counts = np.zeros(len(back), np.uint64)
        size = len(lists.entries.row)

        def part(low: int, high: int, lists: Lists, tail: Any, progress: IntArray) -> None:
            count_starts(
                starts[low:high], groups[low:high], self._alone, lists.stop, lists.classes,
                lists.tables, rows.time, task, lists.entries, lists.scratch,
                np.zeros(2, np.int64), tail, progress, counts[low:high],
            )  # fmt: skip

        if threads > 1 and size > COUNTED_ALONE and (task.window >= 0 or self._alone):
            step = -(-len(back) // (8 * threads))

            def counting(low: int) -> Task[None]:
                def run(check: Check) -> Done[None]:
                    check()
                    own, tail = self._of_thread(lists), np.empty(size, np.uint64)
                    part(low, low + step, own, tail, np.array([1, 1, -1], np.int64))
                    return Done(())

                return run

            steps = map(counting, range(0, len(back), max(1, step)))
            for _ in in_order(steps, threads, check, self.busy):
                pass
        else:
            tail, progress = np.empty(size, np.uint64), np.array([1, 1, -1], np.int64)
            step = max(1, SLICE_ENTRIES // size)
            for low in range(0, len(back), step):
                part(low, low + step, lists, tail, progress)
                if check is not None:
                    check()
        found: npt.NDArray[np.uint64] = counts[lists.made]
        return found


class ListSearch:
    """Finds matches where every condition is about one row.  ``why``: why the last buffer could not
    be searched, or empty.  ``alone``: lists are built per start.
    """

    def __init__(self, automaton: Automaton, memory_bytes: int) -> None:
        self._states = States(automaton)
        self._memory_bytes = memory_bytes
        self._longest = automaton.length_max
        self.alone = self._states.reaches_on
        self.why = ""
        self.entries = 0

    @property
    def states(self) -> int:
        return self._states.count

    def open(self, prepared: PreparedRows, groups: Groups, task: Search) -> AtOnce | None:
        self.why = ""
        if prepared.careful:
            self.why = f"a condition cannot be computed in some events ({prepared.why})"
            return None
        try:
            classes, words, extras = classes_of(prepared.words, self._extras(prepared, groups))
            tables = self._states.tables(words, extras)
        except TooManyStates as error:
            self.why = str(error)
            return None
        position = groups.position.copy()
        begin, stop = np.empty_like(position), np.empty_like(position)
        one_row = self._longest == 1 and not self.alone
        decide(
            classes, tables.entry, groups.offsets, position, groups.time, task,
            self._states.to_end, one_row, begin, stop,
        )  # fmt: skip
        costs = self._costs(tables)
        included = classes[int(begin.min(initial=0)) : int(stop.max(initial=0))]
        seen = np.bincount(included[included >= 0], minlength=len(costs))
        size = int((seen * costs).sum())
        if size * BYTES_AN_ENTRY > self._memory_bytes or size >= 2**31 - 1:
            self.why = (
                f"the lists of {len(classes):,} events need more than {self._memory_bytes} bytes"
            )
            return None
        self.entries = max(self.entries, size)
        entries, scratch = room_for(size, self._states.count)
        order = groups.order
        if self.alone:
            rows = take_ranges(begin, position)
            rows = rows[classes[rows] >= 0]
            rows = rows[tables.entry[classes[rows]] >= 0]
            owners = np.searchsorted(groups.offsets, rows, side="right") - 1
            starts, first = rows, rows
        else:
            most = int(seen[tables.entry >= 0].sum())
            starts, owners = np.empty(most, np.int64), np.empty(most, np.int64)
            _, found = build_groups(
                begin, stop, position, classes, tables, groups.time, task.window, entries,
                scratch, starts, owners,
            )  # fmt: skip
            starts, owners = starts[:found], owners[:found]
            first = entries.row[starts]
        made = np.argsort(first if order is None else order[first], kind="stable")
        groups.position[:] = position
        lists = Lists(classes, tables, entries, scratch, starts[made], owners[made], made, stop)
        return AtOnce(lists, task)

    def _extras(self, prepared: PreparedRows, groups: Groups) -> IntArray:
        states = self._states
        extras = prepared.absent
        if states.from_start or states.to_end:
            extras = extras.copy()
            full = groups.offsets[1:] > groups.offsets[:-1]
            if states.from_start:
                extras[groups.offsets[:-1][full & ~groups.seen]] |= FIRST
            if states.to_end and groups.final:
                extras[groups.offsets[1:][full] - 1] |= LAST
        return extras

    @staticmethod
    def _costs(tables: Tables) -> IntArray:
        """Upper bound of the entries per row of each class."""
        each = (tables.transition >= 0).astype(np.int64) + (tables.passed != tables.source)
        summed = np.concatenate([[0], np.cumsum(each)])
        costs: IntArray = summed[tables.first[1:]] - summed[tables.first[:-1]]
        return costs + (tables.entry >= 0)
