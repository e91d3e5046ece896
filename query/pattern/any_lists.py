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

The states are those of a deterministic automaton over sets of labelings (a subset construction),
built lazily.  The continuations of a set of events depend only on the positions that its labelings
have reached.  A state is these positions in preference order, the absences ``[^X]`` violated since
its last event, and, with ``$``, whether that event is the last of the partition.  State 0 is the
entry.  The effect of a row depends on its *class*::

    class of a row  (word, extra)     extra: absences, FIRST, LAST
    consume         state, class  ->  a transition: next state, parent of each position
    pass over       state, class  ->  a state

The first position of a state at which the match may end belongs to the labeling that the pattern
prefers.  Beyond ``STATES_MAX``, ``CLASSES_MAX`` or ``MOVES_MAX`` ``TooManyStates`` is raised.

Matches that begin at a row are counted without enumerating them, as paths through the lists after
it.  ``tail[e]`` is the number of matches that continue with entry ``e`` or a later entry of its
list.  Without a window one backward pass serves all starts; with one, each start costs the entries
in its window.  Counts are exact below 2^63 and saturate at ``MANY``.

A resumable depth-first walk enumerates the matches in batches.  ``path[d]`` is the entry of the
set's row ``d``; ``cursor[d]`` the entry to examine next after it.  ``at``: the start, the number of
rows of the set, and whether the set is a match not yet output.  Each set is output once; sets of
one start are in lexicographic order of their rows.  Every row that is added belongs to a match, so
the work is linear in the output.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from .automaton import ACCEPT, ANCHOR_END, ANCHOR_START, Automaton
from .search import (
    DONE,
    LATEST,
    MATCHES,
    OUTPUT_FULL,
    RUNS,
    begin_match,
    has_room,
    horizon_of,
    within,
)

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


Words = npt.NDArray[np.uint64]

FIRST, LAST = 1 << 61, 1 << 62
"""Bits of ``extra``: the first row of a partition (``^``), and its last (``$``)."""
STATES_MAX = 256
CLASSES_MAX = 4096
MOVES_MAX = 20_000


class TooManyStates(Exception):
    """The pattern has too many states over these rows for lists to pay."""


class Tables(NamedTuple):
    """Moves of class ``c`` are ``first[c] .. first[c + 1]``: from ``source``, consuming the row
    takes ``transition`` (-1: impossible), passing over it leads to ``passed``; ``entry[c]`` for a
    first row.  Transitions: ``target`` state, whose labeling ``i`` extends ``parent[parents + i]``.
    Positions of a state begin at ``place[places[state]]``; ``choice``: labeling with which the
    match may end, or -1.
    """

    first: IntArray
    source: IntArray
    transition: IntArray
    passed: IntArray
    entry: IntArray
    target: IntArray
    parents: IntArray
    parent: IntArray
    places: IntArray
    place: IntArray
    choice: IntArray


class _State(NamedTuple):
    threads: tuple[int, ...]
    absent: int
    last: bool


class States:
    """The automaton; grows with the row classes it meets.  At most 64 positions."""

    def __init__(self, automaton: Automaton) -> None:
        self.edges = automaton.edges
        every = [edge for edges in automaton.edges for edge in edges]
        self.absences = bool(automaton.absences)
        self.from_start = any(edge.anchor & ANCHOR_START for edge in every)
        self.to_end = any(edge.anchor & ANCHOR_END for edge in every)
        self.reaches_on = any(edge.target == ACCEPT and edge.absent for edge in every)
        """Rows after the last event matter: an absence ends the pattern."""
        self._number: dict[_State, int] = {}
        self._states: list[_State] = []
        self._follow: list[int] = []
        self._asked: list[int] = []
        self._choice: list[int] = []
        self._moves: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._transitions: dict[tuple[int, tuple[int, ...]], int] = {}
        self._add(_State((0,), 0, False))

    @property
    def count(self) -> int:
        return len(self._states)

    def _add(self, state: _State) -> int:
        number = self._number.get(state)
        if number is not None:
            return number
        if len(self._states) >= STATES_MAX:
            raise TooManyStates(f"the pattern has more than {STATES_MAX} states")
        number = len(self._states)
        self._number[state] = number
        self._states.append(state)
        follow = asked = 0
        choice = -1
        for i, p in enumerate(state.threads):
            for edge in self.edges[p]:
                asked |= edge.absent
                if edge.target != ACCEPT:
                    follow |= 1 << (edge.target - 1)
                    continue
                blocked = edge.anchor & ANCHOR_START or edge.absent & state.absent
                if choice < 0 and not blocked and (state.last or not edge.anchor & ANCHOR_END):
                    choice = i
        self._follow.append(follow)
        self._asked.append(asked)
        self._choice.append(choice if number else -1)
        return number

    def _move(self, number: int, word: int, extra: int) -> tuple[int, int]:
        """Transition for consuming a row, or -1, and state after passing over it."""
        key = (number, word & self._follow[number], extra & (self._asked[number] | FIRST | LAST))
        found = self._moves.get(key)
        if found is not None:
            return found
        if len(self._moves) >= MOVES_MAX:
            raise TooManyStates(f"the pattern has more than {MOVES_MAX} moves between its states")
        state = self._states[number]
        threads: list[int] = []
        parents: list[int] = []
        for i, p in enumerate(state.threads):
            for edge in self.edges[p]:
                q = edge.target
                if q == ACCEPT or q in threads or not word >> (q - 1) & 1:
                    continue
                if edge.anchor & ANCHOR_END or edge.absent & state.absent:
                    continue
                if edge.anchor & ANCHOR_START and (number or not extra & FIRST):
                    continue
                threads.append(q)
                parents.append(i)
        transition = -1
        if threads:
            target = self._add(_State(tuple(threads), 0, bool(extra & LAST)))
            transition = self._transitions.setdefault(
                (target, tuple(parents)), len(self._transitions)
            )
        absent = state.absent | (extra & self._asked[number])
        passed = number if absent == state.absent else self._add(state._replace(absent=absent))
        self._moves[key] = transition, passed
        return transition, passed

    def tables(self, words: Words, extras: IntArray) -> Tables:
        moves: list[list[tuple[int, int, int]]] = [[] for _ in range(len(words))]
        entry = np.full(len(words), -1, np.int64)
        waiting, known = [0], {0}
        while waiting:
            number = waiting.pop()
            follow, asked = self._follow[number], self._asked[number]
            masked = np.empty((len(words), 2), np.uint64)
            masked[:, 0] = words & np.uint64(follow)
            masked[:, 1] = extras.view(np.uint64) & np.uint64(asked | FIRST | LAST)
            kinds, which = np.unique(masked, axis=0, return_inverse=True)
            found = [self._move(number, int(word), int(extra)) for word, extra in kinds]
            for c, kind in enumerate(which.reshape(-1).tolist()):
                transition, passed = found[kind]
                if number == 0:
                    entry[c] = transition
                elif transition >= 0 or passed != number:
                    moves[c].append((number, transition, passed))
            targets = [target for target, _ in self._transitions]
            reached = {targets[transition] for transition, _ in found if transition >= 0}
            if number:
                reached |= {passed for _, passed in found}
            waiting += sorted(reached - known)
            known |= reached
        flat = np.array([move for listed in moves for move in listed], np.int64).reshape(-1, 3)
        sizes = [len(parents) for _, parents in self._transitions]
        threads = [len(state.threads) for state in self._states]
        return Tables(
            _offsets([len(listed) for listed in moves]),
            np.ascontiguousarray(flat[:, 0]),
            np.ascontiguousarray(flat[:, 1]),
            np.ascontiguousarray(flat[:, 2]),
            entry,
            np.array([target for target, _ in self._transitions], np.int64),
            _offsets(sizes),
            np.array([i for _, parents in self._transitions for i in parents], np.int64),
            _offsets(threads),
            np.array([p for state in self._states for p in state.threads], np.int64),
            np.array(self._choice, np.int64),
        )


def _offsets(sizes: list[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def classes_of(words: Words, extras: IntArray) -> tuple[npt.NDArray[np.int32], Words, IntArray]:
    """Class of each row (-1: no bits), and word and extra of each class; raises TooManyStates."""
    classes = np.empty(len(words), np.int32)
    known = np.zeros((2, CLASSES_MAX), np.uint64)
    count = _classify(words, extras.view(np.uint64), classes, known)
    if count < 0:
        raise TooManyStates(f"rows satisfy more than {CLASSES_MAX} combinations of the conditions")
    return classes, known[0, :count], known[1, :count].view(np.int64)


@kernel
def _classify(words, extras, classes, known):
    """Number the distinct pairs by open addressing; -1 when there are too many."""
    size = 4 * known.shape[1]
    slots = np.full(size, np.int32(-1), np.int32)
    count = 0
    for r in range(words.shape[0]):
        word = words[r]
        extra = extras[r]
        if word == 0 and extra == 0:
            classes[r] = -1
            continue
        mixed = (word ^ (extra * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xD6E8FEB86659FD93)
        at = np.int64((mixed >> np.uint64(32)) % np.uint64(size))
        while True:
            c = slots[at]
            if c < 0:
                if count == known.shape[1]:
                    return -1
                slots[at] = count
                known[0, count] = word
                known[1, count] = extra
                classes[r] = count
                count += 1
                break
            if known[0, c] == word and known[1, c] == extra:
                classes[r] = c
                break
            at = (at + 1) % size
    return count


MANY = np.uint64(1 << 63)


@kernel
def _sum(a, b):
    """Saturating sum of two counts, each at most ``MANY``."""
    return min(a + b, MANY) if a < MANY and b < MANY else MANY


@kernel
def below(e, horizon, low, entries, tail):
    """Number of matches that take entry ``e`` next."""
    if entries.reach[e] > horizon:
        return np.uint64(0)
    inner = entries.child[e]
    found = tail[inner] if inner >= low else np.uint64(0)
    return _sum(found, np.uint64(1)) if entries.final[e] >= 0 else found


@kernel
def count_list(first, high, horizon, low, entries, tail):
    """Fill ``tail`` for entries ``first .. high``; entries before ``low`` count as 0."""
    for e in range(first, high):
        if entries.transition[e] == PASS:
            inner = entries.child[e]
            tail[e] = tail[inner] if inner >= low else np.uint64(0)
            continue
        rest = entries.following[e]
        own = below(e, horizon, low, entries, tail)
        tail[e] = _sum(own, tail[rest]) if rest >= low else own


@kernel
def window_low(start, stop, horizon, entries, time):
    """First entry in the window of a start; ``stop``: end of its group's rows."""
    first = entries.row[start]
    low = start
    while low > 1 and first <= entries.row[low - 1] < stop:
        if time[entries.row[low - 1]] > horizon:
            break
        low -= 1
    return low


@kernel
def sums(counts, upto):
    """Fill ``upto`` with the inclusive prefix sums of the counts."""
    total = np.uint64(0)
    for k in range(counts.shape[0]):
        total = _sum(total, counts[k])
        upto[k] = total


@kernel
def count_starts(
    starts, groups, alone, stop, classes, tables, time, task, entries, scratch, one, tail, progress,
    counts,
):  # fmt: skip
    """Count the matches of every start, in build order (rows when ``alone``).
    ``progress`` resumes a call: first entry in the window, first entry not counted, and the group;
    initially 1, 1 and -1.
    """
    low = progress[0]
    done = progress[1]  # used without a window
    group = progress[2]
    for k in range(starts.shape[0]):
        start = np.int64(starts[k])
        g = groups[k]
        if alone:
            start = start_alone(start, stop[g], classes, tables, time, task, entries, scratch, one)
            if start == 0:
                counts[k] = 0
                continue
        first = entries.row[start]
        horizon = horizon_of(time, first, task)
        if alone:
            low = np.int64(1)
        elif task.window >= 0:
            if g != group:
                group = g
                low = window_low(start, stop[g], horizon, entries, time)
            while low < start and time[entries.row[low]] > horizon:
                low += 1
        if task.window >= 0:
            done = low
        count_list(done, start, horizon, low, entries, tail)
        done = start
        counts[k] = below(start, horizon, low, entries, tail)
    progress[0] = low
    progress[1] = done
    progress[2] = group


START, DEPTH, WAITS = range(3)


@kernel
def walk(starts, groups, alone, stop, classes, tables, rows, task, entries, scratch, one, path,
         cursor, at, state, output):  # fmt: skip
    """Output matches until none are left or the next one does not fit.  ``starts``: entries in
    result order; rows when ``alone``, where the lists are built for each start.
    """
    row, reach, transition, following, smaller, child, final = entries
    target, parents, parent = tables.target, tables.parents, tables.parent
    places, place, choice = tables.places, tables.place, tables.choice
    while at[START] < starts.shape[0]:
        k = at[START]
        g = groups[k]
        if at[DEPTH] == 0:
            e = np.int64(starts[k])
            if alone:
                e = start_alone(e, stop[g], classes, tables, rows.time, task, entries, scratch, one)
                if e == 0:
                    at[START] += 1
                    continue
            path[0] = e
            cursor[0] = child[e]
            at[DEPTH] = 1
            at[WAITS] = final[e] >= 0
        horizon = horizon_of(rows.time, row[path[0]], task)
        depth = at[DEPTH]
        waits = at[WAITS] != 0
        while depth > 0:
            if waits:
                if not has_room(state, output, depth, 0, task.labels_max):
                    at[DEPTH] = depth
                    at[WAITS] = 1
                    return OUTPUT_FULL
                r = state[RUNS]
                i = choice[final[path[depth - 1]]]
                for d in range(depth - 1, -1, -1):
                    e = path[d]
                    move = transition[e]
                    output.row[r + d] = row[e]
                    output.begin[r + d] = d
                    output.place[r + d] = place[places[target[move]] + i]
                    i = parent[parents[move] + i]
                rows.number[g] += 1
                output.runs[state[MATCHES]] = depth
                state[RUNS] = r + depth
                begin_match(state, output, g, row[path[0]], depth, rows.number[g], 0)
            e = cursor[depth - 1]
            while True:
                if reach[e] > horizon:
                    e = np.int64(smaller[e])
                elif transition[e] == PASS:
                    e = np.int64(child[e])
                else:
                    break
            if e == 0:
                depth -= 1
                waits = False
                continue
            cursor[depth - 1] = following[e]
            path[depth] = e
            cursor[depth] = child[e]
            depth += 1
            waits = final[e] >= 0
        at[DEPTH] = 0
        at[START] += 1
    return DONE


@kernel
def _next(e, horizon, reach, transition, smaller, child):
    """The first entry from ``e`` on that a match within the horizon can use."""
    while True:
        if reach[e] > horizon:
            e = np.int64(smaller[e])
        elif transition[e] == PASS:
            e = np.int64(child[e])
        else:
            return e


@kernel
def walk_even(starts, groups, width, time, task, entries, path, prefix, cursor, at, number, row,
              group, numbers):  # fmt: skip
    """Output rows, groups and numbers of matches of ``width`` events; returns how many.
    Only the last event of a match ends it.
    """
    rows_of, reach, transition, following, smaller, child, _ = entries
    room = numbers.shape[0]
    found = np.int64(0)
    last = width - 1
    while at[START] < starts.shape[0]:
        k = at[START]
        g = groups[k]
        if at[DEPTH] == 0:
            path[0] = starts[k]
            cursor[0] = child[path[0]]
            at[DEPTH] = 1
            at[WAITS] = np.int64(width == 1)
        horizon = horizon_of(time, rows_of[path[0]], task)
        depth = at[DEPTH]
        if at[WAITS] != 0:  # at a match
            if found == room:
                return found
            for d in range(width):
                row[found * width + d] = rows_of[path[d]]
            number[g] += 1
            group[found] = g
            numbers[found] = number[g]
            found += 1
            at[WAITS] = 0
            depth -= 1
        for d in range(depth):
            prefix[d] = rows_of[path[d]]
        while depth > 0:
            e = _next(cursor[depth - 1], horizon, reach, transition, smaller, child)
            if e == 0:
                depth -= 1
                continue
            if depth < last:
                cursor[depth - 1] = following[e]
                path[depth] = e
                prefix[depth] = rows_of[e]
                cursor[depth] = child[e]
                depth += 1
                continue
            count = number[g]
            while e != 0 and found < room:
                base = found * width
                for d in range(last):
                    row[base + d] = prefix[d]
                row[base + last] = rows_of[e]
                count += 1
                group[found] = g
                numbers[found] = count
                found += 1
                e = _next(np.int64(following[e]), horizon, reach, transition, smaller, child)
            number[g] = count
            if e != 0:
                cursor[depth - 1] = e
                at[DEPTH] = depth
                return found
            depth -= 1
        at[DEPTH] = 0
        at[START] += 1
    return found


@kernel
def descend(start, left, low, alone, stop, classes, tables, time, task, entries, scratch, one, tail,
            path, cursor, at):  # fmt: skip
    """Move to match ``left`` of a start, counted from 0; it must exist."""
    if alone:
        start = start_alone(start, stop, classes, tables, time, task, entries, scratch, one)
    horizon = horizon_of(time, entries.row[start], task)
    if task.window >= 0 and not alone:
        low = window_low(start, stop, horizon, entries, time)
    count_list(low, start, horizon, low, entries, tail)
    path[0] = start
    depth = 1
    e = start
    while True:
        at[DEPTH] = depth
        at[WAITS] = 0
        if entries.final[e] >= 0:
            if left == 0:
                at[WAITS] = 1
                cursor[depth - 1] = entries.child[e]
                return
            left -= np.uint64(1)
        e = np.int64(entries.child[e])
        while True:
            if entries.reach[e] > horizon:
                e = np.int64(entries.smaller[e])
                continue
            if entries.transition[e] == PASS:
                e = np.int64(entries.child[e])
                continue
            inside = below(e, horizon, low, entries, tail)
            if left < inside:
                break
            left -= inside
            e = np.int64(entries.following[e])
        cursor[depth - 1] = entries.following[e]
        path[depth] = e
        depth += 1
