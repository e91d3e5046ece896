"""Outputs the matches of a buffer's lists in batches, or counts them; applies OFFSET.

::

    source       first events of a buffer, with lists for all of them or for some at a time
    lists        counted; prefix sums map match number i to its start
    piece        matches i .. i + PIECE of the lists, walked by one thread
    batch        at most MATCHES_MAX matches, in the arrays of the previous batch

A short result starts no threads.  After ``ALONE_MATCHES`` the rest is divided by match number, also
inside one first event; sources that build lists during the walk are divided into parts first.  The
order is that of the starts, then that of ``selection``.  Memory is a few batches per thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ...core.threads import Busy, Check, Done, Task, in_order
from ...errors import ResourceLimit
from .any_batches import MATCHES_MAX, Batching, Lists, Walk
from .any_count import MANY, count_starts, sums
from .any_lists import room_for
from .matches import Matches
from .search import Rows
from .search import Task as Search

__all__ = ["AtOnce", "ListOutput", "Source"]

IntArray = npt.NDArray[np.int64]
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
