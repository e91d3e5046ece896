"""Outputs the matches of a buffer's lists in batches, or counts them; applies OFFSET.

::

    source       first events of a buffer, whose lists are built some at a time
    lists        counted: prefix sums map match number i to its start
    piece        matches i .. i + PIECE of the lists, walked by one thread
    batch        at most MATCHES_MAX matches, in the arrays of the previous batch

A resumable depth-first walk enumerates the matches.  ``path[d]`` is the entry of the set's row
``d``; ``cursor[d]`` the entry to examine next after it.  ``at``: the start, the number of rows of
the set, and whether the set is a match not yet output.  Each set is output once; sets of one start
are in lexicographic order of their rows.  Every row that is added belongs to a match, so the work
is linear in the output.

A short result starts no threads.  After ``ALONE_MATCHES`` large lists are divided by match number,
also inside one first event.  The order is that of the starts, then that of ``selection``.  Batches
reuse their arrays, as fresh ones would cost page faults.

Matches are ordered by first row in the input.  Only starts with complete windows are searched, so
nothing is undone.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...core.threads import Busy, Check, Done, Task, in_order
from .any_diagram import MANY, Context, Lists, Source, plus, through
from .matches import Matches
from .search import MatchTable, Rows

IntArray = npt.NDArray[np.int64]
Found = TypeVar("Found")
Finish = Callable[[Matches], Found]

START, DEPTH, WAITS = range(3)
MATCHES_FIRST, MATCHES_MAX = 1 << 10, 1 << 14
"""Matches of the first batch, and most; small enough that their results stay in the CPU cache."""
ROWS_A_BATCH = 1 << 20
ALONE_MATCHES = 1 << 16
"""Matches that one thread outputs before others are started."""
PIECE_MATCHES = 1 << 16


@kernel
def sums(counts, upto):
    """Fill ``upto`` with the inclusive prefix sums of the counts."""
    total = np.uint64(0)
    for k in range(counts.shape[0]):
        total = plus(total, counts[k])
        upto[k] = total


@kernel
def walk(starts, groups, width, entries, tables, path, prefix, cursor, at, number, output):
    """Output matches until none are left or the next one does not fit; returns how many, and their
    rows.  ``width``: events of every match of a sequence, of which only rows are output; or 0.
    """
    row, _, transition, following, child, final = entries
    capacity = output.number.shape[0]
    row_capacity = output.row.shape[0]
    matches = np.int64(0)
    rows = np.int64(0)
    while at[START] < starts.shape[0]:
        k = at[START]
        g = groups[k]
        if at[DEPTH] == 0:
            e = np.int64(starts[k])
            path[0] = e
            cursor[0] = child[e]
            at[DEPTH] = 1
            at[WAITS] = final[e] >= 0
        depth = at[DEPTH]
        waits = at[WAITS] != 0
        count = number[g]
        for d in range(depth):
            prefix[d] = row[path[d]]
        while depth > 0:
            if waits:
                if matches == capacity or rows + depth > row_capacity:
                    at[DEPTH] = depth
                    at[WAITS] = 1
                    number[g] = count
                    return matches, rows
                for d in range(depth):
                    output.row[rows + d] = prefix[d]
                if width == 0:
                    _label(path, depth, transition, final, tables, matches, rows, output)
                count += 1
                output.group[matches] = g
                output.number[matches] = count
                matches += 1
                rows += depth
                waits = False
            e = np.int64(cursor[depth - 1])
            if e == 0:
                depth -= 1
                continue
            if depth == width - 1:  # every entry of the list ends a match
                while e != 0 and matches < capacity:
                    for d in range(depth):
                        output.row[rows + d] = prefix[d]
                    output.row[rows + depth] = row[e]
                    count += 1
                    output.group[matches] = g
                    output.number[matches] = count
                    matches += 1
                    rows += width
                    e = np.int64(following[e])
                cursor[depth - 1] = e
                if e != 0:
                    at[DEPTH] = depth
                    at[WAITS] = 0
                    number[g] = count
                    return matches, rows
                depth -= 1
                continue
            cursor[depth - 1] = following[e]
            path[depth] = e
            prefix[depth] = row[e]
            cursor[depth] = child[e]
            depth += 1
            waits = final[e] >= 0
        number[g] = count
        at[DEPTH] = 0
        at[START] += 1
    return matches, rows


@kernel
def _label(path, depth, transition, final, tables, match, rows, output):
    """Output the length of a match, and index and position of each of its rows."""
    output.length[match] = depth
    i = tables.choice[final[path[depth - 1]]]
    for d in range(depth - 1, -1, -1):
        move = transition[path[d]]
        output.begin[rows + d] = d
        output.place[rows + d] = tables.place[tables.places[tables.target[move]] + i]
        i = tables.parent[tables.parents[move] + i]


@kernel
def descend(start, left, entries, path, cursor, at):
    """Move to match ``left`` of a start, counted from 0; it must exist."""
    depth = 0
    e = np.int64(start)
    while True:
        path[depth] = e
        cursor[depth] = entries.child[e]
        depth += 1
        if entries.final[e] >= 0:
            if left == 0:
                at[DEPTH] = depth
                at[WAITS] = 1
                return
            left -= np.uint64(1)
        e = np.int64(entries.child[e])
        while left >= through(e, entries):
            left -= through(e, entries)
            e = np.int64(entries.following[e])
        cursor[depth - 1] = entries.following[e]


class MatchArrays:
    def __init__(self) -> None:
        self._matches: list[IntArray] = []
        self._rows: list[IntArray] = []

    def table(self, matches: int, rows: int) -> MatchTable:
        if not self._matches or len(self._matches[0]) < matches:
            self._matches = [np.empty(matches, np.int64) for _ in range(5)]
        if not self._rows or len(self._rows[0]) < rows:
            self._rows = [np.empty(rows, np.int64) for _ in range(3)]
        return MatchTable(
            *(array[:matches] for array in self._matches), *(array[:rows] for array in self._rows)
        )


@dataclass
class Batching:
    """A pool of arrays for matches.  ``longest``: most events of a match, or None.  ``width``:
    events of every match of a sequence, where event ``i`` has position ``i + 1``; otherwise 0.
    """

    longest: int | None
    width: int
    _pool: list[MatchArrays] = field(default_factory=list)
    _same: tuple[IntArray, ...] = ()

    @contextlib.contextmanager
    def room(self) -> Iterator[MatchArrays]:
        try:
            arrays = self._pool.pop()
        except IndexError:
            arrays = MatchArrays()
        try:
            yield arrays
        finally:
            self._pool.append(arrays)

    def matches(self, count: int, rows: int, table: MatchTable) -> Matches:
        if self.width:
            return self._even(count, table)
        first = np.concatenate([[0], np.cumsum(table.length[:count])]).astype(np.int64)
        row = table.row[:rows]
        return Matches(
            table.group[:count], row[first[:-1]], table.length[:count], table.number[:count], first,
            row, table.begin[:rows], table.place[:rows],
        )  # fmt: skip

    def _even(self, count: int, table: MatchTable) -> Matches:
        """Matches of a sequence from their rows; all other arrays are the same for every batch."""
        width = self.width
        if not self._same or len(self._same[0]) < count:
            every = np.arange(count + 1, dtype=np.int64) * width
            index = np.tile(np.arange(width, dtype=np.int64), count)
            self._same = (np.full(count, width, np.int64), every, index, index + 1)
        length, runs, begin, place = self._same
        row = table.row[: count * width]
        return Matches(
            table.group[:count], row[::width], length[:count], table.number[:count],
            runs[: count + 1], row, begin[: len(row)], place[: len(row)], width,
        )  # fmt: skip


class Walk:
    def __init__(self, batching: Batching, lists: Lists, rows: Rows) -> None:
        self._lists, self._number = lists, rows.number
        self._batching = batching
        deepest = int((rows.end - rows.begin).max(initial=0))
        self._deepest = max(1, min(deepest, batching.longest or deepest))
        self._path, self._cursor, self._prefix = np.zeros((3, self._deepest + 1), np.int64)
        self._at = np.zeros(3, np.int64)

    def stand(self, start: int, offset: int) -> None:
        """Move to match ``offset`` (from 0) of a start."""
        self._at[START] = start
        if offset:
            lists = self._lists
            descend(
                lists.starts[start], np.uint64(offset), lists.entries, self._path, self._cursor,
                self._at,
            )  # fmt: skip

    def batch(self, most: int, arrays: MatchArrays) -> Matches:
        lists, batching = self._lists, self._batching
        filled = arrays.table(most, max(self._deepest, min(ROWS_A_BATCH, most * self._deepest)))
        count, rows = walk(
            lists.starts, lists.groups, batching.width, lists.entries, lists.tables, self._path,
            self._prefix, self._cursor, self._at, self._number, filled,
        )  # fmt: skip
        return batching.matches(count, rows, filled)


class _Piece(NamedTuple):
    """Matches ``offset .. offset + size``, counted from the beginning of a start."""

    start: int
    offset: int
    size: int
    number: IntArray


class ListOutput:
    """Outputs the matches of lists.  ``skip``: matches still to be omitted."""

    def __init__(
        self, context: Context, longest: int | None, width: int, threads: int, busy: Busy
    ) -> None:
        self._context = context
        self._batching = Batching(longest, width)
        self._threads = threads
        self._busy = busy
        self._most = MATCHES_FIRST
        self._given = 0
        self.skip = 0

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
        for lists in source.pieces(check):
            if weighted:
                yield finish(self._weights(lists))
            else:
                yield from self._matches(lists, rows, finish, check)

    def _matches(
        self, lists: Lists, rows: Rows, finish: Finish[Found], check: Check | None
    ) -> Iterator[Found]:
        bounds = _bounds(lists)
        total = int(bounds[-1])
        walk = Walk(self._batching, lists, rows)
        done = min(self.skip, total)
        self.skip -= done
        _advance(rows.number, lists, bounds, 0, done)
        walk.stand(*_place(bounds, done))
        with self._batching.room() as arrays:
            while done < total:
                large = self._given > ALONE_MATCHES and total - done > PIECE_MATCHES
                if large and self._threads > 1:
                    pieces = _cut(lists, bounds, rows.number, done)
                    tasks = (self._walking(lists, rows, piece, finish) for piece in pieces)
                    yield from in_order(tasks, self._threads, check, self._busy)
                    return
                matches = walk.batch(self._most, arrays)
                if check is not None:
                    check()
                count = len(matches.start)
                if count == self._most:
                    self._most = min(MATCHES_MAX, self._most * 4)
                done += count
                self._given += count
                yield finish(matches)

    def _walking(
        self, lists: Lists, rows: Rows, piece: _Piece, finish: Finish[Found]
    ) -> Task[Found]:
        def run(check: Check) -> Done[Found]:
            walk = Walk(self._batching, lists, rows._replace(number=piece.number))
            walk.stand(piece.start, piece.offset)
            batches, left = [], piece.size
            with self._batching.room() as arrays:
                while left:
                    check()
                    batch = walk.batch(min(MATCHES_MAX, left), arrays)
                    left -= len(batch.start)
                    batches.append(finish(batch))
            return Done(batches)

        return run

    def _weights(self, lists: Lists) -> Matches:
        counts, tables = lists.counts, lists.tables
        first = lists.entries.row[lists.starts]
        if counts.max(initial=0) >= MANY:
            raise self._context.too_many(int(first[int(np.argmax(counts))]))
        states = tables.target[lists.entries.transition[lists.starts]]
        ones = np.ones(len(first), np.int64)
        return Matches(
            lists.groups, first, ones, counts.view(np.int64), np.arange(len(first) + 1), first,
            ones - 1, tables.place[tables.places[states]],
        )  # fmt: skip


Counts = npt.NDArray[np.uint64]


def _bounds(lists: Lists) -> Counts:
    """The matches of start ``i`` are ``bounds[i] .. bounds[i + 1]`` of all."""
    bounds = np.zeros(len(lists.starts) + 1, np.uint64)
    sums(lists.counts, bounds[1:])
    return bounds


def _place(bounds: Counts, match: int) -> tuple[int, int]:
    """The start of a match, and its number there, from 0."""
    start = int(np.searchsorted(bounds[1:], np.uint64(match), side="right"))
    return start, match - int(bounds[start])


def _advance(number: IntArray, lists: Lists, bounds: Counts, low: int, high: int) -> None:
    """Add matches ``low .. high`` to the numbers of their groups."""
    begin, end = _place(bounds, low)[0], _place(bounds, high)[0] + 1
    some = np.clip(bounds[begin : end + 1], np.uint64(low), np.uint64(high))
    np.add.at(number, lists.groups[begin:end], np.diff(some).astype(np.int64))


def _cut(lists: Lists, bounds: Counts, number: IntArray, done: int) -> Iterator[_Piece]:
    """Pieces of the matches after the first ``done``, the last of ``number``; advances it."""
    total = int(bounds[-1])
    while done < total:
        size = min(PIECE_MATCHES, total - done)
        yield _Piece(*_place(bounds, done), size, number.copy())
        _advance(number, lists, bounds, done, done + size)
        done += size
