"""The diagram of the matches of first events under SKIP TILL ANY MATCH.

A match is a path through *entries*.  The entries of one list are the rows that can come next after
some events; they are linked by 32-bit index, and 0 ends every list::

    entry       transition   following    child              final           matches
    row r       which move   next entry   list of the state  state in which  matches that take this
                             of the list  after the move     a match ends    entry or a later one of
                                                             here, or -1     its list

What can follow some events depends only on the state of the pattern (``any_states``) and on the
events that later conditions still read (``any_pairs``).  So there is one list for each state and
combination of such events::

    A B C D   DEFINE C AS x > A.x, D AS x = B.x
    after a           (A; a)            b1 b2 b3
    after b1          (B; a, b1)        c1 c2       that are above a
    after c1, c2      (C; b1)           d1 d2       one list, entered after c1 or c2

Forward, every row of the window is offered to the lists that exist before it: it may be consumed,
which leads to another list, and passing over it may change the state, which ends the list and
leads to another one.  Backward, every move from which a match can end becomes an entry, and matches
are counted without enumerating them; counts are exact below 2^63 and saturate at ``MANY``.  First
events whose windows end at the same row share the lists if no condition reads them.

Variables that no condition reads cost one move per row, not one per combination; conditions that
keep ``n`` variables live cost up to the n-th power of the rows of a window.  Only pairs of events
of real partial matches are compared, so a condition fails only where it fails in the search.

``Source`` builds the lists of a buffer's first events in pieces, which reuse their arrays, so that
memory does not depend on the number of first events or matches.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...errors import ResourceLimit, SqlError
from . import machine
from .any_pairs import Pairing, know, trackers_of
from .any_states import FIRST, LAST, States, Tables, TooManyStates, classes_of, offsets_of
from .automaton import Automaton
from .machine import H_PATH, H_STRIDE, ROW_ROW, holds, with_path
from .search import DONE, LATEST, OUTPUT_FULL, OVERFLOW, SLICE, Task, horizon_of, overflow

if TYPE_CHECKING:
    from .buffers import PreparedRows
    from .conditions import ConditionPlan
    from .matcher import Groups

IntArray = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
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
    transition: Numbers
    following: Numbers
    child: Numbers
    final: Numbers


class Starts(NamedTuple):
    """First events: row and partition of each; per partition, the end of the rows that a match may
    contain.
    """

    row: IntArray
    group: IntArray
    stop: IntArray


class Joins(NamedTuple):
    """Conditions between events.  Those of a last event in state ``t`` are ``number[asks[t] ..
    asks[t + 1]]``; slots ``held[holds[t] .. holds[t + 1]]`` are read after it; ``own[t]``: its own
    slot, or -1.
    """

    asks: IntArray
    number: IntArray
    holds: IntArray
    held: IntArray
    own: IntArray


class Diagram(NamedTuple):
    """Scratch: moves, lists, the rows of the slots of each list, the newest list of each state, and
    a hash ``table`` of lists (a stamp, and a list).
    """

    moves: Numbers
    lists: Numbers
    rows: Numbers
    newest: Numbers
    table: Numbers
    counts: IntArray


ROW, FROM, TO, ON, TRANSITION = range(5)
"""Columns of a move: row, list (-1: none, a first event), list after consuming the row or -1, list
after passing over it, and its transition.
"""
STATE, OLDER, ENDED, HEAD, END = range(5)
"""Columns of a list: state; the next older list of the state; list after its end or -1; its first
entry, and the state in which a match ends before it.
"""
STAMPS, LISTS, MOVES = range(3)
"""Counts of a diagram: stamp of the first event, lists, moves."""


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
def list_of(state, source, row, joins, diagram):
    """The list of a state after ``row`` is consumed (-1: passed over) in list ``source`` (-1: for a
    first event); -1 without room.
    """
    lists, bound, table = diagram.lists, diagram.rows, diagram.table
    stamp = diagram.counts[STAMPS]
    low = joins.holds[state]
    high = joins.holds[state + 1]
    own = joins.own[state] if row >= 0 else np.int64(-1)
    mixed = np.uint64(state + 1)
    for i in range(low, high):
        s = joins.held[i]
        value = np.int64(row) if s == own else np.int64(bound[source, s])
        mixed = (mixed ^ np.uint64(value)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mask = table.shape[0] - 1
    at = np.int64(mixed >> np.uint64(20)) & mask
    while table[at, 0] == stamp:
        candidate = np.int64(table[at, 1])
        same = lists[candidate, STATE] == state and lists[candidate, ENDED] < 0
        if same:
            for i in range(low, high):
                s = joins.held[i]
                if bound[candidate, s] != (row if s == own else bound[source, s]):
                    same = False
                    break
        if same:
            return candidate
        at = (at + 1) & mask
    count = diagram.counts[LISTS]
    if count == lists.shape[0]:
        return np.int64(-1)
    diagram.counts[LISTS] = count + 1
    table[at, 0] = stamp
    table[at, 1] = count
    lists[count, STATE] = state
    lists[count, OLDER] = diagram.newest[state]
    lists[count, ENDED] = -1
    diagram.newest[state] = count
    for i in range(low, high):
        s = joins.held[i]
        bound[count, s] = row if s == own else bound[source, s]
    return count


@kernel
def draw(first, offsets, order, classes, tables, joins, image, floats, time, task, diagram, entries,
         made, progress, budget):  # fmt: skip
    """Continue with the entries of first events; returns a code of ``search``.  ``order``: rows
    that can continue a match, ascending.  ``made``: output, entry of each first event, or 0.
    """
    image, floats = machine.borrowed(image), machine.borrowed(floats)
    joins, tables = machine.all_borrowed(joins), machine.all_borrowed(tables)
    diagram, entries = machine.all_borrowed(diagram), machine.all_borrowed(entries)
    starts, groups, stops = first
    progress[SPENT] = 0
    i = progress[NEXT]
    while i < starts.shape[0]:
        progress[NEXT] = i
        if progress[SPENT] > budget:
            return SLICE
        g = groups[i]
        stop = window_end(time, starts[i], stops[g], task)
        j = i + 1
        while joins.held.shape[0] == 0 and j < starts.shape[0] and groups[j] == g:
            if window_end(time, starts[j], stops[g], task) != stop:
                break
            j += 1
        low = first_behind(order, np.int64(0), starts[i])
        rows = order[low : first_behind(order, low, stop - 1)]
        status = _forward(
            starts[i:j], rows, offsets[g], offsets[g + 1], classes, tables, joins, image, floats,
            diagram, progress, budget,
        )  # fmt: skip
        if status != DONE:
            return status
        if progress[USED] + diagram.counts[MOVES] > entries.row.shape[0]:
            return OUTPUT_FULL
        _backward(tables, diagram, entries, made[i:j], progress)
        i = j
    progress[NEXT] = i
    return DONE


@kernel
def _forward(starts, rows, begin, end, classes, tables, joins, image, floats, diagram, progress,
             budget):  # fmt: skip
    """Make the lists of first events, and the moves between them, by row."""
    moves, lists, bound, newest = diagram.moves, diagram.lists, diagram.rows, diagram.newest
    row_of = image[H_PATH] + ROW_ROW * image[H_STRIDE]
    depth = bound.shape[1]
    for q in range(newest.shape[0]):
        newest[q] = -1
    diagram.counts[STAMPS] += 1
    diagram.counts[LISTS] = 0
    drawn = np.int64(0)
    work = progress[SPENT]
    k = np.int64(0)
    x = np.int64(0)
    while x < rows.shape[0] or k < starts.shape[0]:
        if work > budget:
            progress[SPENT] = work
            return SLICE
        starting = k < starts.shape[0] and (x == rows.shape[0] or starts[k] <= rows[x])
        r = starts[k] if starting else rows[x]
        c = classes[r]
        fresh = diagram.counts[LISTS]  # lists from here on begin after the row
        if x < rows.shape[0] and rows[x] == r:
            x += 1
            low = tables.first[c]
            high = tables.first[c + 1]
            work += high - low
            for m in range(low, high):
                passed = tables.passed[m]
                if passed == tables.source[m]:
                    continue
                of = np.int64(newest[tables.source[m]])
                while of >= 0:
                    if of < fresh:
                        on = list_of(passed, of, np.int64(-1), joins, diagram)
                        if on < 0:
                            return OUTPUT_FULL
                        lists[of, ENDED] = on
                    of = np.int64(lists[of, OLDER])
            for m in range(low, high):
                s = tables.source[m]
                move = tables.transition[m]
                target = tables.target[move] if move >= 0 else np.int64(-1)
                newer = np.int64(-1)
                of = np.int64(newest[s])
                while of >= fresh:
                    newer = of
                    of = np.int64(lists[of, OLDER])
                if newer >= 0 and tables.passed[m] != s:
                    lists[newer, OLDER] = -1
                elif tables.passed[m] != s:
                    newest[s] = -1
                while of >= 0:
                    to = np.int64(-1)
                    if target >= 0:
                        fits = True
                        work += 1
                        if joins.asks[target] < joins.asks[target + 1]:
                            for h in range(joins.holds[s], joins.holds[s + 1]):
                                image[row_of + joins.held[h]] = bound[of, joins.held[h]]
                        for a in range(joins.asks[target], joins.asks[target + 1]):
                            place = tables.place[tables.places[target]]
                            truth = holds(
                                image, floats, joins.number[a], np.int64(0), depth, place, r, begin,
                                end, np.int64(0), np.bool_(True),
                            )  # fmt: skip
                            if truth < 0:
                                progress[FAILED] = r
                                return OVERFLOW
                            if truth == 0:
                                fits = False
                                break
                        if fits:
                            to = list_of(target, of, r, joins, diagram)
                            if to < 0:
                                return OUTPUT_FULL
                    on = np.int64(lists[of, ENDED])
                    if to >= 0 or on >= 0:
                        if drawn == moves.shape[0]:
                            return OUTPUT_FULL
                        moves[drawn, ROW] = r
                        moves[drawn, FROM] = of
                        moves[drawn, TO] = to
                        moves[drawn, ON] = on if on >= 0 else of
                        moves[drawn, TRANSITION] = move
                        drawn += 1
                    of = np.int64(lists[of, OLDER])
        if starting:
            k += 1
            move = tables.entry[c]
            to = list_of(tables.target[move], np.int64(-1), r, joins, diagram)
            if to < 0 or drawn == moves.shape[0]:
                return OUTPUT_FULL
            moves[drawn, ROW] = r
            moves[drawn, FROM] = -1
            moves[drawn, TO] = to
            moves[drawn, TRANSITION] = move
            drawn += 1
    diagram.counts[MOVES] = drawn
    progress[SPENT] = work
    return DONE


@kernel
def _backward(tables, diagram, entries, made, progress):
    """Write the entries of the moves from which a match can end; ``made``: of the first events."""
    moves, lists = diagram.moves, diagram.lists
    used = progress[USED]
    for of in range(diagram.counts[LISTS]):
        state = np.int64(lists[of, STATE])
        lists[of, HEAD] = 0
        lists[of, END] = state if tables.choice[state] >= 0 else -1
    k = made.shape[0] - 1
    high = diagram.counts[MOVES]
    while high > 0:
        row = moves[high - 1, ROW]
        low = high
        while low > 0 and moves[low - 1, ROW] == row:
            low -= 1
            to = np.int64(moves[low, TO])
            first = moves[low, FROM] < 0
            head = np.int64(0)
            end = np.int64(-1)
            if not first:
                head = np.int64(lists[moves[low, ON], HEAD])
                end = np.int64(lists[moves[low, ON], END])
            reaches = to >= 0 and (lists[to, END] >= 0 or lists[to, HEAD] != 0)
            if reaches:
                entries.row[used] = row
                entries.transition[used] = moves[low, TRANSITION]
                entries.following[used] = head
                entries.child[used] = lists[to, HEAD]
                entries.final[used] = lists[to, END]
                entries.matches[used] = plus(through(used, entries), entries.matches[head])
                head = used
                used += 1
            if first:
                made[k] = head
                k -= 1
            moves[low, TO] = head  # until the moves of the row are all done
            moves[low, ON] = end
        for q in range(low, high):
            of = np.int64(moves[q, FROM])
            if of >= 0:
                lists[of, HEAD] = moves[q, TO]
                lists[of, END] = moves[q, ON]
        high = low
    progress[USED] = used


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


LISTS_SHARE = 4
"""Moves for which there is room for one list."""


class Source:
    """Lists of a buffer's first events, some at a time; each piece may reuse the arrays of the
    last.  ``turns``: the first events in result order, if that is not the order in which their
    lists are built; then they are built together.
    """

    def __init__(
        self,
        first: Starts,
        turns: IntArray | None,
        offsets: IntArray,
        classes: Numbers,
        tables: Tables,
        joins: Joins,
        image: IntArray,
        time: IntArray,
        task: Task,
        context: Context,
    ) -> None:
        self._first = first
        self._turns = turns
        self._tables = tables
        self._slots = int(joins.held.max(initial=-1)) + 1
        self._context = context
        order = np.flatnonzero(classes >= 0)
        order = order[np.diff(tables.first)[classes[order]] > 0]
        self._arguments = (
            first, offsets, order, classes, tables, joins, image, image.view(np.float64), time,
            task,
        )  # fmt: skip
        self.entries = 0
        """Most entries at a time."""

    def _arrays(self, size: int) -> tuple[Diagram, Entries]:
        lists = max(size // LISTS_SHARE, 2)
        diagram = Diagram(
            np.empty((size, 5), np.int32), np.empty((lists, 5), np.int32),
            np.empty((lists, self._slots), np.int32), np.empty(len(self._tables.choice), np.int32),
            np.zeros((1 << (2 * lists - 1).bit_length(), 2), np.int32), np.zeros(3, np.int64),
        )  # fmt: skip
        numbers = [np.empty(size + 1, np.int32) for _ in range(4)]
        entries = Entries(np.empty(size + 1, np.int64), np.empty(size + 1, np.uint64), *numbers)
        entries.matches[0] = 0
        return diagram, entries

    @property
    def _bytes_an_entry(self) -> int:
        return 52 + (36 + 4 * self._slots) // LISTS_SHARE

    def pieces(self, check: Check) -> Iterator[Lists]:
        """Raises ResourceLimit where one first event needs too much memory."""
        count = len(self._first.row)
        most = min(self._context.memory_bytes // self._bytes_an_entry, 2**31 - 1)
        made, progress = np.zeros(count, np.int64), np.array([0, 1, 0, 0], np.int64)
        size, budget, done = ENTRIES_FIRST, SLICE_STEPS, 0
        diagram, entries = self._arrays(size)
        while done < count:
            before = int(progress[NEXT])
            status = draw(*self._arguments, diagram, entries, made, progress, budget)
            if status == OVERFLOW:
                raise self._context.not_computable(int(progress[FAILED]))
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
                raise self._context.too_large(int(self._first.row[upto]))
            if done < count and (full or size < ENTRIES_MAX):
                size *= 4
                diagram, entries = self._arrays(size)
            progress[NEXT], progress[USED] = done, 1

    def _piece(self, entries: Entries, made: IntArray, low: int, high: int) -> Lists:
        starts, groups = made[low:high], self._first.group[low:high]
        if self._turns is not None:
            starts, groups = starts[self._turns], groups[self._turns]
        some = starts > 0
        return Lists(entries, self._tables, starts[some], groups[some])


class DiagramSearch:
    """Draws the diagrams of one pattern.  ``why``: why the last buffer had none, or empty."""

    def __init__(
        self, automaton: Automaton, plan: ConditionPlan, pairing: Pairing, context: Context
    ) -> None:
        self._states = States(automaton)
        self._plan = plan
        self._pairing = pairing
        self._context = context
        self._one_row = automaton.length_max == 1 and not self._states.reaches_on
        self.why = ""

    def open(self, prepared: PreparedRows, groups: Groups, task: Task) -> Source | None:
        """Lists of the first events with complete windows; advances the groups past them."""
        self.why = ""
        try:
            classes, words, extras = classes_of(prepared.words, self._extras(prepared, groups))
            tables = self._states.tables(words, extras)
        except TooManyStates as error:
            self.why = str(error)
            return None
        if self._pairing.conditions and (np.diff(tables.places) > 1).any():
            self.why = "events can stand for several variables of a pattern of varying length"
            return None
        first = self._first_events(classes, tables.entry, groups, task)
        turns = None
        if groups.order is not None:
            turns = np.argsort(groups.order[first.row], kind="stable")
            if task.window >= 0 or self._pairing.places:  # built in result order
                first = Starts(first.row[turns], first.group[turns], first.stop)
                turns = None
        image = with_path(prepared.image, len(self._pairing.places) + 2)
        know(image, *trackers_of(self._plan, self._pairing))
        return Source(
            first, turns, groups.offsets, classes, tables, self._joins(tables), image,
            groups.time, task, self._context,
        )  # fmt: skip

    def _first_events(
        self, classes: Numbers, entry: IntArray, groups: Groups, task: Task
    ) -> Starts:
        """The first events with complete windows, by partition; advances the groups past them."""
        begin, stop = np.empty_like(groups.position), np.empty_like(groups.position)
        decide(
            classes, entry, groups.offsets, groups.position, groups.time, task,
            self._states.to_end, self._one_row, begin, stop,
        )  # fmt: skip
        rows = np.flatnonzero(classes >= 0)
        rows = rows[entry[classes[rows]] >= 0]
        owners = np.searchsorted(groups.offsets, rows, side="right") - 1
        some = (rows >= begin[owners]) & (rows < groups.position[owners])
        return Starts(rows[some], owners[some], stop)

    def _joins(self, tables: Tables) -> Joins:
        pairing = self._pairing
        positions = tables.place[tables.places[:-1]].tolist()
        conditions = [
            [a.origin.number for a in pairing.conditions if a.place == p] for p in positions
        ]
        held = [pairing.held[p] for p in positions]
        own = [pairing.places.index(p) if p in pairing.places else -1 for p in positions]
        return Joins(
            offsets_of([len(numbers) for numbers in conditions]), _flat(conditions),
            offsets_of([len(slots) for slots in held]), _flat(held), np.array(own, np.int64),
        )  # fmt: skip

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


def _flat(lists: list[list[int]] | list[tuple[int, ...]]) -> IntArray:
    return np.array([number for numbers in lists for number in numbers], np.int64)
