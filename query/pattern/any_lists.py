"""Continuation lists: for each automaton state, the rows that it can consume on the way to a match.

One backward pass over a partition builds them, with the earliest time at which a match through each
entry can end; rows that lead nowhere are in no list.  All lists share one array of entries, linked
by 32-bit index; 0 ends every list.  Entries are made from the last row to the first::

    entry       transition   reach     following  smaller       child         final
    row r       which move   earliest  next entry next entry    list of the   state in which
                             end       of the     that reaches  state after   a match ends with
                                       list       an earlier    it            this row, or -1
                                                  end

A row that violates an absence ``[^X]`` can change a state; the list then has an entry with
transition ``PASS`` whose child is the list that continues it.  Without absences, the ends of one
transition do not decrease along a list, so following ``smaller`` to the next entry within the
horizon examines at most as many entries as the state has transitions.  Whether a state can continue
is recorded by its list and its end, never by a sentinel time: events may have any tick.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from .horizons import LATEST, within
from .search import horizon_of

__all__ = [
    "PASS",
    "ListEntries",
    "Scratch",
    "build_groups",
    "build_list",
    "decide",
    "room_for",
    "start_alone",
]

IntArray = npt.NDArray[np.int64]

PASS = -1
EARLIEST = np.int64(-(2**63))
"""The least tick; the reach of an entry that every horizon includes."""
BYTES_AN_ENTRY = 40


class ListEntries(NamedTuple):
    row: IntArray
    reach: IntArray
    transition: npt.NDArray[np.int32]
    following: npt.NDArray[np.int32]
    smaller: npt.NDArray[np.int32]
    child: npt.NDArray[np.int32]
    final: npt.NDArray[np.int32]


class Scratch(NamedTuple):
    """Per state: head of its list, earliest end, state in which it ends; and their new values."""

    head: IntArray
    reach: IntArray
    end: IntArray
    fresh: IntArray


def room_for(entries: int, states: int) -> tuple[ListEntries, Scratch]:
    n = entries + 1
    words = [np.empty(n, np.int64) for _ in range(2)]
    numbers = [np.empty(n, np.int32) for _ in range(5)]
    made = ListEntries(words[0], words[1], *numbers)
    made.row[0] = LATEST
    made.reach[0] = EARLIEST  # sentinel: every search for an early end stops here
    made.transition[0] = 0
    made.following[0] = made.smaller[0] = made.child[0] = 0
    made.final[0] = -1
    head, reach, end = (np.empty(states, np.int64) for _ in range(3))
    return made, Scratch(head, reach, end, np.empty((states, 3), np.int64))


@kernel
def decide(classes, entry, offsets, position, time, task, to_end, alone, begin, stop):
    """Advance each group past the starts with complete windows: ``begin .. position`` may start
    matches in ``begin .. stop``.  ``to_end``: a window that reaches the last row waits for another
    row.
    """
    for g in range(offsets.shape[0] - 1):
        end = offsets[g + 1]
        usable = end if task.final else max(offsets[g], end - task.lookahead)
        known = LATEST
        if not task.final and usable > offsets[g]:
            known = time[usable] if usable < end else task.now
            if to_end:
                known = min(known, time[end - 1])
        s = position[g]
        begin[g] = s
        last = np.int64(-1)
        while s < usable:
            c = classes[s]
            if c >= 0 and entry[c] >= 0:
                waits = not task.final and not alone
                if waits and (task.window < 0 or horizon_of(time, s, task) >= known):
                    break
                last = s
            s += 1
        position[g] = s
        stop[g] = begin[g]
        if last >= 0:
            horizon = horizon_of(time, last, task)
            r = last
            while r < usable and time[r] <= horizon:
                r += 1
            stop[g] = r


@kernel
def build_list(low, high, decided, group, classes, tables, time, ticks, entries, scratch, used,
               starts, groups, found):  # fmt: skip
    """Build the lists of rows ``low .. high``, and entries for the starts before ``decided``;
    appends after ``used`` and ``found`` and returns their new values.  ``ticks``: the window, or
    -1.
    """
    row, reach, transition, following, smaller, child, final = entries
    head, nearest, end, fresh = scratch
    target, choice = tables.target, tables.choice
    for q in range(head.shape[0]):
        head[q] = 0
        nearest[q] = LATEST
        end[q] = q if choice[q] >= 0 else -1
    for r in range(high - 1, low - 1, -1):
        c = classes[r]
        if c < 0:
            continue
        at = time[r]
        if r < decided and tables.entry[c] >= 0:
            t = target[tables.entry[c]]
            best = at if end[t] >= 0 else nearest[t]
            if (end[t] >= 0 or head[t] != 0) and within(at, best, ticks):
                row[used] = r
                reach[used] = best
                transition[used] = tables.entry[c]
                following[used] = 0
                smaller[used] = 0
                child[used] = head[t]
                final[used] = end[t]
                starts[found] = used
                groups[found] = group
                found += 1
                used += 1
        first = tables.first[c]
        moves = tables.first[c + 1] - first
        for m in range(moves):
            s = tables.source[first + m]
            p = tables.passed[first + m]
            move = tables.transition[first + m]
            list_ = head[p]
            near = nearest[p]
            ends = end[p]
            if p != s and list_ != 0:
                row[used] = r
                reach[used] = EARLIEST
                transition[used] = PASS
                following[used] = 0
                smaller[used] = 0
                child[used] = list_
                final[used] = -1
                list_ = used
                used += 1
            if move >= 0:
                t = target[move]
                best = at if end[t] >= 0 else nearest[t]
                if (end[t] >= 0 or head[t] != 0) and within(at, best, ticks):
                    row[used] = r
                    reach[used] = best
                    transition[used] = move
                    following[used] = list_
                    j = list_
                    while j != 0 and transition[j] != PASS and reach[j] >= best:
                        j = smaller[j]
                    smaller[used] = j
                    child[used] = head[t]
                    final[used] = end[t]
                    list_ = used
                    used += 1
                    near = min(near, best)
            fresh[m, 0] = list_
            fresh[m, 1] = near
            fresh[m, 2] = ends
        for m in range(moves):
            s = tables.source[first + m]
            head[s] = fresh[m, 0]
            nearest[s] = fresh[m, 1]
            end[s] = fresh[m, 2]
    return used, found


@kernel
def build_groups(begin, stop, position, classes, tables, time, ticks, entries, scratch, starts,
                 groups):  # fmt: skip
    """Build the lists of all groups; returns the counts of entries and starts, last start first."""
    used = np.int64(1)
    found = np.int64(0)
    for g in range(begin.shape[0]):
        if stop[g] > begin[g]:
            used, found = build_list(
                begin[g], stop[g], position[g], g, classes, tables, time, ticks, entries, scratch,
                used, starts, groups, found,
            )  # fmt: skip
    return used, found


@kernel
def window_end(time, start, stop, horizon):
    """First row from ``start`` on that lies beyond its horizon."""
    low = start
    high = stop
    while low < high:
        middle = (low + high) // 2
        if time[middle] <= horizon:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def start_alone(start, stop, classes, tables, time, task, entries, scratch, one):
    """Build the lists of one start (absence at the end of the pattern); its entry, or 0."""
    high = window_end(time, start, stop, horizon_of(time, start, task))
    _, found = build_list(
        start, high, start + 1, np.int64(0), classes, tables, time, task.window, entries, scratch,
        np.int64(1), one[:1], one[1:], np.int64(0),
    )  # fmt: skip
    return one[0] if found else np.int64(0)
