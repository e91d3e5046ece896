"""What comes of the lists of a buffer: its matches in batches, or their number.

Purpose
    :class:`ListOutput` walks lists, however they were made, counts what is in them, and leaves out
    as many matches at the beginning as OFFSET says.  Lists are only read: where many matches are in
    them, several threads walk, each from another match on.

Layout
    ::

        source       first events of a buffer; lists of all of them at once, or of some at a time
        lists        counted, the sums say with which start match i begins
        piece        matches i .. i + PIECE of the lists, walked by one thread
        batch        at most MATCHES_MAX matches, put into the arrays of the one before

    First events are walked where they are until :data:`ALONE_MATCHES` matches were put out, so a
    short answer starts no thread; what is left is then cut by the number of the match, wherever the
    matches of one first event begin or end.  Sources that make their lists while they are walked
    are divided first, and a part that has more than :data:`PART_MATCHES` matches hands over what
    is left of it, to be cut in the same way.

Guarantee
    Matches come in the order of the starts that it is given, those of one start as
    :mod:`.selection` finds them, in any number of threads.  Memory is that of a few batches for
    each thread, whatever the number of matches.
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
"""Matches of a run that one thread puts out before others are started."""
PIECE_MATCHES = 1 << 16
PART_MATCHES = 1 << 18
SLICE_ENTRIES = 50_000_000
"""Entries that may be looked at between two questions whether to go on."""
COUNTED_ALONE = 1 << 17
"""Entries up to which one thread counts."""


class Source(Protocol):
    """First events, and lists of them."""

    def pieces(self, check: Check | None) -> Iterator[tuple[Lists, Search]]:
        """Lists, some first events at a time: the next may take the arrays of the last."""

    def parts(self, threads: int) -> list[Source]:
        """The same first events in parts that threads may go through side by side."""

    def keep(self) -> None:
        """The lists that were given last stay as they are."""


@dataclass(frozen=True)
class AtOnce:
    """The lists of all first events of a buffer."""

    lists: Lists
    search: Search

    def pieces(self, check: Check | None) -> Iterator[tuple[Lists, Search]]:
        """The one piece."""
        yield self.lists, self.search

    def parts(self, threads: int) -> list[Source]:
        """Itself: threads share the lists."""
        return [self]

    def keep(self) -> None:
        """They do so anyway."""


class _Piece(NamedTuple):
    """Matches ``offset .. offset + size`` of the start and of those behind it."""

    start: int
    offset: int
    size: int
    number: IntArray


class ListOutput:
    """Puts out what is in lists.

    Parameters
    ----------
    text : str
        The pattern, for errors.
    describe_row : callable
        Says which event a row is, for errors.
    longest : int or None
        Most events of a match.
    alone : bool
        Whether each start has lists of its own, which are made when it is walked.
    even : bool
        Whether the pattern is a sequence: position ``i`` is that of event ``i`` of every match.
    threads : int
        Most that may be used.
    numbered : bool
        Whether somebody asks for MATCH_NUMBER.

    Attributes
    ----------
    skip : int
        Matches still to be left out, from the first one on.
    busy : Busy
        What threads did.
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
        """What is made of every batch of the matches of a buffer, in order.

        Parameters
        ----------
        weighted : bool
            One row per start instead of its matches; ``number`` says how many these are.
        finish : callable
            Called in the thread that found the matches, whose arrays are then used again.
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
        # how many matches there were before is known when their turn has come
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
        """Every match, in batches that begin small; in threads when there are many."""
        before = rows.number.copy() if self._threads > 1 else rows.number
        walk = Walk(self._batching, lists, rows, task)
        done = self._skipped(walk, check) if self.skip else 0
        most = MATCHES_FIRST
        # starts that have lists of their own can be without a match, and cost a window each
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
        """Pieces of the matches behind the first ``done``; ``rows.number`` is moved past all."""
        counts = self._counted(lists, rows, task, check, self._threads)
        upto = np.empty_like(counts)
        sums(counts, upto)
        total, number, last = int(upto[-1]) if len(upto) else 0, rows.number, 0
        whole = counts.astype(np.int64)  # wraps where MATCH_NUMBER never gets to
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
        """The walk of one piece."""

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
        """Lists that a thread may change: those that are made again for each start."""
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
        """Parts of the first events in threads."""

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
        """Stand before the first match that is not left out; how many are, in these lists."""
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
        """One row per start that has matches, which are counted.

        Raises
        ------
        ResourceLimit
            When 2^63 matches or more begin with one event.
        """
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
        """Matches of each start in the order of the result."""
        back = np.empty_like(lists.made)
        back[lists.made] = np.arange(len(back))  # from the order of making to that of the result
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
