"""Lists: for each state, the rows that it can go on with so that a match comes of it.

Purpose
    One pass backward over the rows of a partition makes, for every state, the list of the rows that
    it can consume, and for each of them the earliest time at which a match through it can end.
    What is not in a list leads nowhere, so a walk over the lists meets no dead end.

Layout
    All lists lie in one array of entries, linked by number; 0 is the end of every list.  Entries
    are made from the last row to the first, so numbers ascend as rows descend::

        entry       transition   reach     following  smaller       child         final
        row r       which move   earliest  next entry next entry    list of the   state in which
                                 end       of the     that reaches  state after   a match ends with
                                           list       an earlier    it            this row, or -1
                                                      end

    Behind a row that satisfies an absence ``[^X]`` a state may be another one: there a list has an
    entry of transition :data:`PASS`, whose child is the list that it goes on with.

Guarantee
    With no absence, ends of one transition do not decrease along a list.  A walk that looks for the
    next entry with ``reach <= horizon`` by way of ``smaller`` therefore looks at no more entries
    than the state has transitions.

Limits
    Entries are numbered by 32 bits.  Rows are at most as many as fit a buffer.

Invariant
    Whether a state can go on is said by its list and its end, never by a time: events may have the
    first tick of 64 bits, and the last.
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
"""The least tick: of an entry that every horizon reaches."""
BYTES_AN_ENTRY = 40
"""What an entry takes, with the two words that counting may need."""


class ListEntries(NamedTuple):
    """See the module; one array per column."""

    row: IntArray
    reach: IntArray
    transition: npt.NDArray[np.int32]
    following: npt.NDArray[np.int32]
    smaller: npt.NDArray[np.int32]
    child: npt.NDArray[np.int32]
    final: npt.NDArray[np.int32]


class Scratch(NamedTuple):
    """Per state: its list so far, its earliest end, the state in which it ends; and new ones."""

    head: IntArray
    reach: IntArray
    end: IntArray
    fresh: IntArray


def room_for(entries: int, states: int) -> tuple[ListEntries, Scratch]:
    """Arrays for a number of entries, the end of the lists not counted."""
    n = entries + 1
    words = [np.empty(n, np.int64) for _ in range(2)]
    numbers = [np.empty(n, np.int32) for _ in range(5)]
    made = ListEntries(words[0], words[1], *numbers)
    made.row[0] = LATEST
    made.reach[0] = EARLIEST  # so that every look for an early end stops here
    made.transition[0] = 0
    made.following[0] = made.smaller[0] = made.child[0] = 0
    made.final[0] = -1
    head, reach, end = (np.empty(states, np.int64) for _ in range(3))
    return made, Scratch(head, reach, end, np.empty((states, 3), np.int64))


@kernel
def decide(classes, entry, offsets, position, time, task, to_end, alone, begin, stop):
    """Move each group past the starts whose windows are complete.

    ``begin[g] .. position[g]`` are then the rows that may start, ``begin[g] .. stop[g]`` those that
    a match of them may hold; equal where nothing is decided.  ``to_end``: a window that reaches the
    last row waits for the next one.  ``alone``: a match has one row.
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
    """Make the lists of rows ``low .. high``, and entries of the starts before ``decided``.

    ``ticks``: the window, or -1.  Returns the number of entries and of starts after that; both go
    on from ``used`` and ``found``.
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
    """Make the lists of all groups; returns the number of starts, from the last to the first."""
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
    """First row behind a start that is beyond its horizon."""
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
    """Make the lists of one start only; returns its entry, 0 when no match begins there.

    What ends a match is then decided by the rows of one window, as an absence at the end of the
    pattern needs it.
    """
    high = window_end(time, start, stop, horizon_of(time, start, task))
    _, found = build_list(
        start, high, start + 1, np.int64(0), classes, tables, time, task.window, entries, scratch,
        np.int64(1), one[:1], one[1:], np.int64(0),
    )  # fmt: skip
    return one[0] if found else np.int64(0)
