"""The search over lists: one buffer of rows in, matches out in the order of the result.

Purpose
    :class:`ListSearch` puts the parts together: classes of rows and states, the starts that are
    decided, their lists, and then the walk, or counts in its place.

Guarantee
    Matches come in the order of their first rows in the input, whatever partition they belong to,
    those of one first row as :mod:`.selection` finds them.  Only starts whose window is complete
    are searched, so nothing is ever undone, and the next buffer begins with the others.  Memory is
    that of the lists and one batch, whatever the number of matches.

Limits
    A buffer whose lists do not fit the memory of the query, or that has more states than pay, is
    left to :mod:`.selection`; ``why`` then says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...errors import ResourceLimit
from . import outcomes
from .any_count import MANY, count_starts
from .any_lists import BYTES_AN_ENTRY, ListEntries, Scratch, build_groups, decide, room_for
from .any_states import FIRST, LAST, States, Tables, TooManyStates, classes_of
from .any_walk import START, descend, walk
from .automaton import Automaton
from .groups import take_ranges
from .search import MatchTable, Rows, Task

if TYPE_CHECKING:
    from .conditions import PreparedRows
    from .matcher import Groups

__all__ = ["Batch", "ListSearch", "Lists"]

IntArray = npt.NDArray[np.int64]
MATCHES_FIRST = 1 << 10
MATCHES_MAX = 1 << 16
ROWS_A_BATCH = 1 << 20
SLICE_ENTRIES = 50_000_000
"""Entries that may be looked at between two questions whether to go on."""


@dataclass
class Batch:
    """Matches as :class:`.matcher.Matches` has them: one run per row."""

    group: IntArray
    start: IntArray
    length: IntArray
    number: IntArray
    row: IntArray
    begin: IntArray
    place: IntArray


@dataclass
class Lists:
    """The lists of one buffer.

    Attributes
    ----------
    starts, groups : integer arrays
        Entries of the starts in the order of the result (rows, when each start has lists of its
        own), and their groups.
    made : integer array
        For each start, in that order, which one it was when the entries were made.
    stop : int64 array
        Per group, the end of the rows that a match may hold.
    """

    classes: npt.NDArray[np.int32]
    tables: Tables
    entries: ListEntries
    scratch: Scratch
    starts: IntArray
    groups: IntArray
    made: IntArray
    stop: IntArray


class ListSearch:
    """Finds the matches of SKIP TILL ANY MATCH where every condition is about one row.

    Parameters
    ----------
    text : str
        The pattern, for errors.
    memory_bytes : int
        For the lists of one buffer.
    describe_row : callable
        Says which event a row is, for errors.

    Attributes
    ----------
    why : str
        Why the last buffer could not be searched; empty when it could.
    skip : int
        Matches still to be left out, from the first one on.
    entries : int
        Most entries that the lists of a buffer had room for.
    states : int
        States so far.
    """

    def __init__(
        self,
        automaton: Automaton,
        text: str,
        memory_bytes: int,
        describe_row: Callable[[int], str],
    ) -> None:
        self._states = States(automaton)
        self._text = text
        self._memory_bytes = memory_bytes
        self._describe_row = describe_row
        longest = automaton.length_max
        self._longest = longest
        self._alone = self._states.reaches_on
        self.why = ""
        self.skip = 0
        self.entries = 0
        self._one = np.zeros(2, np.int64)

    @property
    def states(self) -> int:
        """States so far."""
        return self._states.count

    def open(self, prepared: PreparedRows, groups: Groups, task: Task) -> Lists | None:
        """Make the lists of a buffer and move its groups on; None when ``why`` forbids it."""
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
        one_row = self._longest == 1 and not self._alone
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
        if self._alone:
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
        return Lists(classes, tables, entries, scratch, starts[made], owners[made], made, stop)

    def _extras(self, prepared: PreparedRows, groups: Groups) -> IntArray:
        """What rows are besides their words: absences that they end, ends of a partition."""
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
        """Most entries that a row of each class can have."""
        each = (tables.transition >= 0).astype(np.int64) + (tables.passed != tables.source)
        summed = np.concatenate([[0], np.cumsum(each)])
        costs: IntArray = summed[tables.first[1:]] - summed[tables.first[:-1]]
        return costs + (tables.entry >= 0)

    def matches(
        self, lists: Lists, rows: Rows, task: Task, check: Callable[[], None] | None
    ) -> Iterator[Batch]:
        """Every match, in batches that begin small."""
        widest = int((lists.stop - rows.begin).max(initial=0))
        deepest = widest if self._longest is None else min(widest, self._longest)
        path, cursor = np.zeros(deepest + 2, np.int64), np.zeros(deepest + 2, np.int64)
        at = np.zeros(3, np.int64)
        if self.skip:
            self._skip(lists, rows, task, path, cursor, at, check)
        state = np.zeros(8, np.int64)
        most = MATCHES_FIRST
        # starts that have lists of their own can be without a match, and cost a window each
        step = max(1, SLICE_ENTRIES // (widest + 1)) if self._alone else len(lists.starts)
        upto = min(step, len(lists.starts))
        while True:
            room = max(deepest, min(ROWS_A_BATCH, most * max(deepest, 1)))
            output = MatchTable(*(np.empty(n, np.int64) for n in (most,) * 5 + (room,) * 3))
            status = walk(
                lists.starts[:upto], lists.groups, self._alone, lists.stop, lists.classes,
                lists.tables, rows, task, lists.entries, lists.scratch, self._one, path, cursor,
                at, state, output,
            )  # fmt: skip
            if check is not None:
                check()
            n, r = int(state[outcomes.MATCHES]), int(state[outcomes.RUNS])
            if n:
                yield Batch(
                    output.group[:n], output.start[:n], output.length[:n], output.number[:n],
                    output.row[:r], output.begin[:r], output.place[:r],
                )  # fmt: skip
            state[:] = 0
            if status != outcomes.DONE:
                most = min(MATCHES_MAX, most * 4)
            elif upto == len(lists.starts):
                return
            else:
                upto = min(upto + step, len(lists.starts))

    def weights(
        self, lists: Lists, rows: Rows, task: Task, check: Callable[[], None] | None
    ) -> Iterator[Batch]:
        """One row per start instead of its matches; ``number`` says how many these are.

        Raises
        ------
        ResourceLimit
            When 2^63 matches or more begin with one event.
        """
        counts, _, _ = self._counted(lists, rows, task, check)
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
        yield Batch(owners, first, ones, counts[some].view(np.int64), first, ones - 1, places)

    def _counted(
        self, lists: Lists, rows: Rows, task: Task, check: Callable[[], None] | None
    ) -> tuple[Any, Any, int]:
        """Matches of each start in the order of the result; counts of entries; first of them."""
        back = np.empty_like(lists.made)
        back[lists.made] = np.arange(len(back))  # from the order of making to that of the result
        starts, groups = lists.starts[back], lists.groups[back]
        counts = np.zeros(len(back), np.uint64)
        tail = np.zeros(len(lists.entries.row), np.uint64)
        progress = np.array([1, 1, -1], np.int64)
        step = max(1, SLICE_ENTRIES // len(tail))
        for k in range(0, len(back), step):
            part = slice(k, k + step)
            count_starts(
                starts[part], groups[part], self._alone, lists.stop, lists.classes, lists.tables,
                rows.time, task, lists.entries, lists.scratch, self._one, tail, progress,
                counts[part],
            )  # fmt: skip
            if check is not None:
                check()
        return counts[lists.made], tail, int(progress[0])

    def _skip(
        self,
        lists: Lists,
        rows: Rows,
        task: Task,
        path: IntArray,
        cursor: IntArray,
        at: IntArray,
        check: Callable[[], None] | None,
    ) -> None:
        """Stand before the first match that is not left out."""
        counts, tail, low = self._counted(lists, rows, task, check)
        left, k = self.skip, 0
        while k < len(counts) and left >= int(counts[k]):
            left -= int(counts[k])
            rows.number[lists.groups[k]] += int(counts[k])
            k += 1
        at[START] = k
        self.skip = left
        if k == len(counts) or not left:
            return
        one = Lists(
            lists.classes, lists.tables, lists.entries, lists.scratch, lists.starts[k : k + 1],
            lists.groups[k : k + 1], np.zeros(1, np.int64), lists.stop,
        )  # fmt: skip
        _, tail, low = self._counted(one, rows, task, check)
        start = int(self._one[0]) if self._alone else int(lists.starts[k])
        tick = int(rows.time[lists.entries.row[start]])
        horizon = tick + task.window if task.window >= 0 else 2**63 - 1
        descend(
            start, np.uint64(left), np.int64(horizon), low, lists.entries, tail, path, cursor, at
        )
        rows.number[lists.groups[k]] += left
        self.skip = 0
