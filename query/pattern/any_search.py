"""Finds matches of SKIP TILL ANY MATCH with lists, ordered by first row in the input.
Only starts with complete windows are searched, so nothing is undone.  A buffer whose lists do not
fit into memory, or that has too many states, is left to ``selection``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .any_batches import Lists
from .any_lists import BYTES_AN_ENTRY, build_groups, decide, room_for
from .any_output import AtOnce
from .any_states import FIRST, LAST, States, Tables, TooManyStates, classes_of
from .automaton import Automaton
from .groups import take_ranges
from .search import Task as Search

if TYPE_CHECKING:
    from .conditions import PreparedRows
    from .matcher import Groups

__all__ = ["ListSearch"]

IntArray = npt.NDArray[np.int64]


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
