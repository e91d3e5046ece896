"""Outputs the matches of a buffer's lists in batches, or counts them; applies OFFSET.

::

    source       first events of a buffer, whose lists are built some at a time
    lists        counted: prefix sums map match number i to its start
    batch        at most MATCHES_MAX matches, in the arrays of the previous batch

A resumable depth-first walk enumerates the matches.  ``path[d]`` is the entry of the set's row
``d``; ``cursor[d]`` the entry to examine next after it.  ``at``: the start, the number of rows of
the set, and whether the set is a match not yet output.  Each set is output once; sets of one start
are in lexicographic order of their rows.  Every row that is added belongs to a match, so the work
is linear in the output.

Matches are ordered by first row in the input.  Only starts with complete windows are searched, so
nothing is undone.  Batches reuse their arrays, as fresh ones would cost page faults.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from .any_diagram import MANY, Check, Context, Lists, Source, plus, through
from .matches import Matches
from .search import MatchTable, Rows

IntArray = npt.NDArray[np.int64]
Result = TypeVar("Result")
Finish = Callable[[Matches], Result]

START, DEPTH, WAITS = range(3)
MATCHES_FIRST, MATCHES_MAX = 1 << 10, 1 << 14
"""Matches of the first batch, and most; small enough that their results stay in the CPU cache."""
ROWS_A_BATCH = 1 << 20


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


class ListOutput:
    """Outputs the matches of lists.
    ``longest``: most events of a match, or None.  ``width``: events of every match of a sequence,
    where event ``i`` has position ``i + 1``; otherwise 0.  ``skip``: matches still to be omitted.
    """

    def __init__(self, context: Context, longest: int | None, width: int) -> None:
        self._context = context
        self._longest = longest
        self._width = width
        self._most = MATCHES_FIRST
        self._table: MatchTable | None = None
        self._same: tuple[IntArray, ...] = ()
        self.skip = 0

    def put_out(
        self,
        source: Source,
        rows: Rows,
        weighted: bool,
        finish: Finish[Result],
        check: Check,
    ) -> Iterator[Result]:
        """Yield ``finish`` of every batch in order, whose arrays are reused.  ``weighted``: one row
        per start, with its number of matches.
        """
        for lists in source.pieces(check):
            if weighted:
                yield finish(self._weights(lists))
            else:
                yield from map(finish, self._matches(lists, rows, check))

    def _matches(self, lists: Lists, rows: Rows, check: Check) -> Iterator[Matches]:
        bounds = np.zeros(len(lists.starts) + 1, np.uint64)
        sums(lists.counts, bounds[1:])
        total = int(bounds[-1])
        done = min(self.skip, total)
        self.skip -= done
        deepest = int((rows.end - rows.begin).max(initial=0))
        deepest = max(1, min(deepest, self._longest or deepest))
        path, cursor, prefix = np.zeros((3, deepest + 1), np.int64)
        at = np.zeros(3, np.int64)
        if done:
            at[START] = np.searchsorted(bounds[1:], np.uint64(done), side="right")
            passed = np.diff(np.minimum(bounds, np.uint64(done))).astype(np.int64)
            np.add.at(rows.number, lists.groups, passed)
            left = np.uint64(done) - bounds[at[START]]
            if left:
                descend(lists.starts[at[START]], left, lists.entries, path, cursor, at)
        while done < total:
            output = self._room(deepest)
            count, used = walk(
                lists.starts, lists.groups, self._width, lists.entries, lists.tables, path, prefix,
                cursor, at, rows.number, output,
            )  # fmt: skip
            if check is not None:
                check()
            if count == self._most:
                self._most = min(MATCHES_MAX, self._most * 4)
            done += count
            yield self._batch(count, used, output)

    def _room(self, deepest: int) -> MatchTable:
        most = self._most
        rows = max(deepest, min(ROWS_A_BATCH, most * deepest))
        table = self._table
        if table is None or len(table.number) < most or len(table.row) < rows:
            sizes = [most] * 5 + [rows] * 3
            self._table = table = MatchTable(*(np.empty(size, np.int64) for size in sizes))
        return table

    def _batch(self, count: int, rows: int, table: MatchTable) -> Matches:
        if self._width:
            return self._even(count, table)
        first = np.concatenate([[0], np.cumsum(table.length[:count])]).astype(np.int64)
        row = table.row[:rows]
        return Matches(
            table.group[:count], row[first[:-1]], table.length[:count], table.number[:count], first,
            row, table.begin[:rows], table.place[:rows],
        )  # fmt: skip

    def _even(self, count: int, table: MatchTable) -> Matches:
        """Matches of a sequence from their rows; all other arrays are the same for every batch."""
        width = self._width
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
