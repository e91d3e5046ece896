"""The diagram of the matches of first events, for conditions on single events.

A match is a path through *entries*.  The entries of one list are the rows that can come next in one
state of the pattern; they are linked by 32-bit index, and 0 ends every list::

    entry       transition   following    child              final           matches
    row r       which move   next entry   list of the state  state in which  matches that take this
                             of the list  after the move     a match ends    entry or a later one of
                                                             here, or -1     its list

Only rows that lead to a match have entries.  Entries are made from the last row of a window to the
first, so matches are counted as the lists are built, without enumerating them; counts are exact
below 2^63 and saturate at ``MANY``.  First events whose windows end at the same row share lists;
without a window these are all of a partition.

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

``Source`` builds the lists of a buffer's first events in pieces, which reuse their arrays, so that
memory does not depend on the number of first events or matches.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...errors import ResourceLimit, SqlError
from .automaton import ACCEPT, ANCHOR_END, ANCHOR_START, Automaton
from .search import DONE, LATEST, OUTPUT_FULL, SLICE, Task, horizon_of, overflow

if TYPE_CHECKING:
    from .buffers import PreparedRows
    from .matcher import Groups

IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Check = Callable[[], None] | None

MANY = np.uint64(1 << 63)
ENTRIES_FIRST, ENTRIES_MAX = 1 << 13, 1 << 17
"""Room for entries at first, and at most unless one first event needs more (the CPU cache)."""
SLICE_STEPS = 4_000_000
"""Rows examined between two cancellation checks."""
NEXT, USED, SPENT, FAILED = range(4)
"""Progress of a build: next first event, entries used, rows examined, row without a result."""


class Entries(NamedTuple):
    row: IntArray
    matches: npt.NDArray[np.uint64]
    transition: npt.NDArray[np.int32]
    following: npt.NDArray[np.int32]
    child: npt.NDArray[np.int32]
    final: npt.NDArray[np.int32]


def new_entries(entries: int) -> Entries:
    n = entries + 1
    numbers = [np.empty(n, np.int32) for _ in range(4)]
    made = Entries(np.empty(n, np.int64), np.empty(n, np.uint64), *numbers)
    made.matches[0] = 0
    return made


@kernel
def plus(a, b):
    """Saturating sum of two counts, each at most ``MANY``."""
    return min(a + b, MANY) if a < MANY and b < MANY else MANY


@kernel
def through(e, entries):
    """Number of matches that take entry ``e`` next."""
    inner = entries.matches[entries.child[e]]
    return plus(inner, np.uint64(1)) if entries.final[e] >= 0 else inner


@kernel
def add_entry(entries, used, row, transition, following, child, final):
    entries.row[used] = row
    entries.transition[used] = transition
    entries.following[used] = following
    entries.child[used] = child
    entries.final[used] = final
    entries.matches[used] = plus(through(used, entries), entries.matches[following])


@kernel
def first_behind(rows, low, row):
    """Binary search in ascending rows, from ``low`` on: first entry after ``row``."""
    high = rows.shape[0]
    while low < high:
        middle = (low + high) // 2
        if rows[middle] > row:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def window_end(time, start, stop, task):
    """First row from ``start`` on that lies beyond the window of a match that begins there."""
    return start + first_behind(time[start:stop], np.int64(0), horizon_of(time, start, task))


@kernel
def decide(classes, entry, offsets, position, time, task, to_end, alone, begin, stop):
    """Advance each group past the starts with complete windows: ``begin .. position`` may start
    matches in ``begin .. stop``.  ``to_end``: a window that reaches the last row waits for another
    row.  ``alone``: matches have one row.
    """
    for g in range(offsets.shape[0] - 1):
        end = offsets[g + 1]
        usable = end if task.final else max(offsets[g], end - task.lookahead)
        latest = LATEST
        if not task.final and usable > offsets[g]:
            latest = time[usable] if usable < end else task.now
            if to_end:
                latest = min(latest, time[end - 1])
        s = position[g]
        begin[g] = s
        last = np.int64(-1)
        while s < usable:
            c = classes[s]
            if c >= 0 and entry[c] >= 0:
                waits = not task.final and not alone
                if waits and (task.window < 0 or horizon_of(time, s, task) >= latest):
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
def build(starts, groups, stops, order, classes, tables, time, task, states, entries, made,
          progress, budget):  # fmt: skip
    """Continue building the lists of first events; returns a code of ``search``.
    ``order``: rows that can continue a match, ascending.  ``states``: scratch, per state the head
    of its list and the state in which a match ends, and their new values.  ``made``: output, entry
    of each first event, or 0.
    """
    i = progress[NEXT]
    progress[SPENT] = 0
    while i < starts.shape[0]:
        if progress[SPENT] > budget:
            return SLICE
        g = groups[i]
        stop = window_end(time, starts[i], stops[g], task)
        j = i + 1
        while j < starts.shape[0] and groups[j] == g:
            if window_end(time, starts[j], stops[g], task) != stop:
                break
            j += 1
        low = first_behind(order, np.int64(0), starts[i])
        rows = order[low : first_behind(order, low, stop - 1)]
        used = _build_rows(starts[i:j], rows, classes, tables, states, entries, made[i:j], progress)
        if used < 0:
            return OUTPUT_FULL
        progress[USED] = used
        i = j
        progress[NEXT] = i
    return DONE


@kernel
def _build_rows(starts, rows, classes, tables, states, entries, made, progress):
    """Build the lists of first events with one end; returns the entries used, -1: too many."""
    head, end, fresh_head, fresh_end = states
    target, choice = tables.target, tables.choice
    used = progress[USED]
    capacity = entries.row.shape[0] - starts.shape[0]
    for q in range(head.shape[0]):
        head[q] = 0
        end[q] = q if choice[q] >= 0 else -1
    k = starts.shape[0] - 1
    for x in range(rows.shape[0] - 1, -2, -1):
        r = rows[x] if x >= 0 else np.int64(-1)
        while k >= 0 and starts[k] >= r:
            move = tables.entry[classes[starts[k]]]
            t = target[move]
            made[k] = 0
            if end[t] >= 0 or head[t] != 0:
                add_entry(entries, used, starts[k], move, 0, head[t], end[t])
                made[k] = used
                used += 1
            k -= 1
        if x < 0:
            break
        first = tables.first[classes[r]]
        moves = tables.first[classes[r] + 1] - first
        if used + moves > capacity:
            return np.int64(-1)
        for m in range(moves):
            passed = tables.passed[first + m]
            move = tables.transition[first + m]
            fresh_head[m] = head[passed]
            fresh_end[m] = end[passed]
            if move >= 0:
                t = target[move]
                if end[t] >= 0 or head[t] != 0:
                    add_entry(entries, used, r, move, head[passed], head[t], end[t])
                    fresh_head[m] = used
                    used += 1
        for m in range(moves):
            s = tables.source[first + m]
            head[s] = fresh_head[m]
            end[s] = fresh_end[m]
    progress[SPENT] += rows.shape[0] + starts.shape[0]
    return used


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
        follow = absent = 0
        choice = -1
        for i, p in enumerate(state.threads):
            for edge in self.edges[p]:
                absent |= edge.absent
                if edge.target != ACCEPT:
                    follow |= 1 << (edge.target - 1)
                    continue
                blocked = edge.anchor & ANCHOR_START or edge.absent & state.absent
                if choice < 0 and not blocked and (state.last or not edge.anchor & ANCHOR_END):
                    choice = i
        self._follow.append(follow)
        self._asked.append(absent)
        self._choice.append(choice if number else -1)
        return number

    def _move(self, number: int, word: int, extra: int) -> tuple[int, int]:
        """Transition for consuming a row, or -1, and state after passing over it."""
        key = (number, word & self._follow[number], extra & (self._asked[number] | FIRST | LAST))
        cached = self._moves.get(key)
        if cached is not None:
            return cached
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
        waiting, visited = [0], {0}
        while waiting:
            number = waiting.pop()
            follow, absent = self._follow[number], self._asked[number]
            masked = np.empty((len(words), 2), np.uint64)
            masked[:, 0] = words & np.uint64(follow)
            masked[:, 1] = extras.view(np.uint64) & np.uint64(absent | FIRST | LAST)
            kinds, which = np.unique(masked, axis=0, return_inverse=True)
            results = [self._move(number, int(word), int(extra)) for word, extra in kinds]
            for c, kind in enumerate(which.reshape(-1).tolist()):
                transition, passed = results[kind]
                if number == 0:
                    entry[c] = transition
                elif transition >= 0 or passed != number:
                    moves[c].append((number, transition, passed))
            targets = [target for target, _ in self._transitions]
            reached = {targets[transition] for transition, _ in results if transition >= 0}
            if number:
                reached |= {passed for _, passed in results}
            waiting += sorted(reached - visited)
            visited |= reached
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
    pairs = np.zeros((2, CLASSES_MAX), np.uint64)
    count = _classify(words, extras.view(np.uint64), classes, pairs)
    if count < 0:
        raise TooManyStates(f"rows satisfy more than {CLASSES_MAX} combinations of the conditions")
    return classes, pairs[0, :count], pairs[1, :count].view(np.int64)


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


@dataclass(frozen=True)
class Lists:
    """Lists of some first events: the entry and the partition of each, in result order."""

    entries: Entries
    tables: Tables
    starts: IntArray
    groups: IntArray

    @property
    def counts(self) -> npt.NDArray[np.uint64]:
        """Number of matches of each first event."""
        counts: npt.NDArray[np.uint64] = self.entries.matches[self.starts]
        return counts


@dataclass(frozen=True)
class FirstEvents:
    """Rows that begin a match if anything follows them, and their partitions.
    ``stop``: per partition, the end of the rows that a match may contain.
    """

    rows: IntArray
    groups: IntArray
    stop: IntArray

    def in_order(self, groups: Groups) -> FirstEvents:
        """The same in the order of the input."""
        if groups.order is None:
            return self
        turns = np.argsort(groups.order[self.rows], kind="stable")
        return FirstEvents(self.rows[turns], self.groups[turns], self.stop)


def take_first_events(
    classes: npt.NDArray[np.int32],
    entry: IntArray,
    groups: Groups,
    task: Task,
    to_end: bool = False,
    alone: bool = False,
) -> FirstEvents:
    """The first events with complete windows, by partition; advances the groups past them."""
    begin, stop = np.empty_like(groups.position), np.empty_like(groups.position)
    decide(
        classes, entry, groups.offsets, groups.position, groups.time, task, to_end, alone, begin,
        stop,
    )  # fmt: skip
    rows = np.flatnonzero(classes >= 0)
    rows = rows[entry[classes[rows]] >= 0]
    owners = np.searchsorted(groups.offsets, rows, side="right") - 1
    some = (rows >= begin[owners]) & (rows < groups.position[owners])
    return FirstEvents(rows[some], owners[some], stop)


@dataclass(frozen=True)
class Context:
    """Memory for lists, and the errors of a pattern; ``describe_row``: says where it begins."""

    text: str
    describe_row: Callable[[int], str]
    memory_bytes: int

    def too_large(self, row: int) -> ResourceLimit:
        return ResourceLimit(
            f"the lists of the matches of pattern {self.text} that begin {self.describe_row(row)} "
            f"need more than {self.memory_bytes} bytes; narrow WITHIN or the conditions"
        )

    def too_many(self, row: int) -> ResourceLimit:
        return ResourceLimit(
            f"more than {2**63 - 1} matches of pattern {self.text} begin {self.describe_row(row)}; "
            "shorten WITHIN or narrow the conditions"
        )

    def not_computable(self, row: int) -> SqlError:
        return overflow(self.text, self.describe_row(row))


class Source(ABC):
    """Lists of a buffer's first events, some at a time; each piece may reuse the arrays of the
    last.  ``turns``: the first events in result order, if that is not the order in which their
    lists are built; then they are built together.
    """

    _bytes_an_entry = 32
    """Memory of an entry and of what is needed to build it."""

    def __init__(
        self, first: FirstEvents, tables: Tables, turns: IntArray | None, context: Context
    ) -> None:
        self._first = first
        self._tables = tables
        self._turns = turns
        self._context = context
        self.entries = 0
        """Most entries at a time."""

    def _new_entries(self, size: int) -> Entries:
        return new_entries(size)

    @abstractmethod
    def _build(self, entries: Entries, made: IntArray, progress: IntArray, budget: int) -> int:
        """Continue building; a code of ``search``."""

    def pieces(self, check: Check) -> Iterator[Lists]:
        """Raises ResourceLimit where one first event needs too much memory."""
        count = len(self._first.rows)
        most = min(self._context.memory_bytes // self._bytes_an_entry, 2**31 - 1)
        made, progress = np.zeros(count, np.int64), np.array([0, 1, 0, 0], np.int64)
        size, budget, done = ENTRIES_FIRST, SLICE_STEPS, 0
        entries = self._new_entries(size)
        while done < count:
            before = int(progress[NEXT])
            status = self._build(entries, made, progress, budget)
            if check is not None:
                check()
            upto = int(progress[NEXT])
            if status == SLICE:
                budget = SLICE_STEPS if upto > before else budget * 2
                continue
            self.entries = max(self.entries, int(progress[USED]) - 1)
            full = status == OUTPUT_FULL and (upto == done or self._turns is not None)
            if not full:
                yield self._piece(entries, made, done, upto)
                done = upto
            if full and size * 4 > most:
                raise self._context.too_large(int(self._first.rows[upto]))
            if done < count and (full or size < ENTRIES_MAX):
                size *= 4
                entries = self._new_entries(size)
            progress[NEXT], progress[USED] = done, 1

    def _piece(self, entries: Entries, made: IntArray, low: int, high: int) -> Lists:
        starts, groups = made[low:high], self._first.groups[low:high]
        if self._turns is not None:
            starts, groups = starts[self._turns], groups[self._turns]
        some = starts > 0
        return Lists(entries, self._tables, starts[some], groups[some])


class Scratch(NamedTuple):
    """Per state: head of its list, state in which a match ends; and their new values."""

    head: IntArray
    end: IntArray
    fresh_head: IntArray
    fresh_end: IntArray


class OneEventSource(Source):
    """Lists where every condition is about one event."""

    def __init__(
        self,
        classes: npt.NDArray[np.int32],
        states: int,
        time: IntArray,
        task: Task,
        first: FirstEvents,
        tables: Tables,
        turns: IntArray | None,
        context: Context,
    ) -> None:
        super().__init__(first, tables, turns, context)
        self._classes = classes
        self._time = time
        self._task = task
        order = np.flatnonzero(classes >= 0)
        self._order = order[np.diff(tables.first)[classes[order]] > 0]
        self._scratch = Scratch(*np.empty((4, states), np.int64))

    def _build(self, entries: Entries, made: IntArray, progress: IntArray, budget: int) -> int:
        first = self._first
        status: int = build(
            first.rows, first.groups, first.stop, self._order, self._classes, self._tables,
            self._time, self._task, self._scratch, entries, made, progress, budget,
        )  # fmt: skip
        return status


class OneEventSearch:
    """Finds matches where every condition is about one event.  ``why``: why the last buffer could
    not be searched, or empty.
    """

    def __init__(self, automaton: Automaton, context: Context) -> None:
        self._states = States(automaton)
        self._context = context
        self._one_row = automaton.length_max == 1 and not self._states.reaches_on
        self.why = ""

    def open(self, prepared: PreparedRows, groups: Groups, task: Task) -> Source | None:
        """Lists of the first events with complete windows; advances the groups past them."""
        self.why = ""
        states = self._states
        try:
            classes, words, extras = classes_of(prepared.words, self._extras(prepared, groups))
            tables = states.tables(words, extras)
        except TooManyStates as error:
            self.why = str(error)
            return None
        first = take_first_events(classes, tables.entry, groups, task, states.to_end, self._one_row)
        turns = None
        if task.window >= 0:  # each window has its lists: they are built in result order
            first = first.in_order(groups)
        elif groups.order is not None:
            turns = np.argsort(groups.order[first.rows], kind="stable")
        return OneEventSource(
            classes, states.count, groups.time, task, first, tables, turns, self._context
        )

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
