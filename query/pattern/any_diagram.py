"""The diagram of the matches of a first event, where conditions compare events.

The continuations of a partial match depend only on the events that later conditions still read.
``draw`` makes, for each first event, one list per position and combination of rows still read; the
lists become those of ``any_lists``, and are counted and listed as those.

Forward, position by position, every list gets its *candidates*: rows after the earliest row that
leads to it, in the window, for which the conditions on its bound rows hold::

    A B C D   DEFINE C AS x > A.x, D AS x = B.x          first event a
    after a           (A)             b1 b2 b3
    after b1          (B; b1)         c1 c2       that are above a
    after c1, c2      (C; b1)         d1 d2       one list, entered after c1 or c2

Backward, every candidate from which a match can end becomes an entry.  A list is entered at the
first entry after the row that leads to it, so variables that no condition reads cost one candidate
per row, not one per combination.  Absences distinguish lists by the next row that violates them.
Conditions that keep ``n`` variables live cost up to the n-th power of the rows of a window; the
search costs one path per combination.

Only pairs of events of real partial matches are compared, in the order of the search, so a
condition fails only where it fails in the search.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.caches import lazy
from ...core.native import kernel
from . import machine
from .any_lists import (
    FAILED,
    NEXT,
    SPENT,
    USED,
    Context,
    Entries,
    FirstEvents,
    Source,
    Tables,
    add_entry,
    first_behind,
    new_entries,
    take_first_events,
    window_end,
)
from .any_pairs import (
    Pairing,
    Shape,
    filter_rows,
    is_equality,
    know,
    partners_of,
    specs_of,
    trackers_of,
)
from .automaton import ACCEPT, Automaton
from .machine import H_PATH, H_STRIDE, ROW_ROW, with_path
from .search import DONE, OUTPUT_FULL, OVERFLOW, SLICE, Task

if TYPE_CHECKING:
    from .buffers import PreparedRows
    from .conditions import ConditionPlan
    from .matcher import Groups

IntArray = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]


class Starts(NamedTuple):
    """First events: row, position and partition of each; per partition, the end of the rows that a
    match may contain.
    """

    row: IntArray
    place: IntArray
    group: IntArray
    stop: IntArray


class Domain(NamedTuple):
    """Rows of a buffer.  Rows of position ``p``: ``row[place[p] .. place[p + 1]]``.
    ``behind[a, r]``: first row after ``r`` that violates absence ``a``.  Condition ``c`` is encoded
    as ``spec[c]``.  Of an equality, the partners of the ``i``-th row of position ``left[c]`` are
    ``partner[ranges[b, 0] .. ranges[b, 1]]``, ``b = base[c] + i``; of others, ``base[c]`` is -1.
    """

    time: IntArray
    place: IntArray
    row: IntArray
    behind: IntArray
    spec: IntArray
    left: IntArray
    base: IntArray
    ranges: Numbers
    partner: IntArray


class Diagram(NamedTuple):
    """Scratch: candidates ``made[d]``, lists, first and last list of each position, and a hash
    ``table`` of lists by bound rows (a stamp, and a list), with columns as below.  ``known[l, s]``:
    """

    made: Numbers
    lists: Numbers
    known: Numbers
    ends: Numbers
    table: Numbers
    latest: IntArray
    counts: IntArray
    rows: IntArray
    places: Numbers
    marks: Numbers


ROW, PLACE, ONWARD, ENTRY = range(4)
"""Columns of a candidate: row, position, list after it or -1, first entry from it on in its list.
"""
OF, LOW, SINCE, BEGIN, END, AFTER, BEFORE = range(7)
"""Columns of a list: position; first row that leads to it; row whose gap it tests; range of its
candidates; neighbours among the lists of the position.
"""
HEAD, TAIL = range(2)
STAMPS, LISTS, DRAWN = range(3)
"""Counts of a diagram: stamp of the first event, lists, candidates."""


@kernel
def list_of(p, row, source, holds, held, own, behind, diagram):
    """The list after position ``p`` at ``row``, -1 without room.  ``source``: the list in which the
    row is a candidate, or -1.  ``own``: slot of ``p``; ``behind``: of its gap, or empty.  Passing
    all of ``Shape`` costs more than the work.
    """
    lists, bindings, table = diagram.lists, diagram.known, diagram.table
    stamp = diagram.counts[STAMPS]
    held0 = holds[p]
    held1 = holds[p + 1]
    mixed = np.uint64(p + 1)
    since = np.int64(-1)
    if behind.shape[0]:
        since = behind[row]
        mixed = (mixed ^ np.uint64(since)) * np.uint64(0x9E3779B97F4A7C15)
    for i in range(held0, held1):
        s = held[i]
        value = np.int64(row) if s == own else np.int64(bindings[source, s])
        mixed = (mixed ^ np.uint64(value)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mask = table.shape[0] - 1
    at = np.int64(mixed >> np.uint64(20)) & mask
    while table[at, 0] == stamp:
        candidate = np.int64(table[at, 1])
        same = lists[candidate, OF] == p
        same = same and (since < 0 or behind[lists[candidate, SINCE]] == since)
        if same:
            for i in range(held0, held1):
                s = held[i]
                if bindings[candidate, s] != (row if s == own else bindings[source, s]):
                    same = False
                    break
        if same:
            lists[candidate, LOW] = min(row, lists[candidate, LOW])
            return candidate
        at = (at + 1) & mask
    count = diagram.counts[LISTS]
    if count == lists.shape[0]:
        return np.int64(-1)
    diagram.counts[LISTS] = count + 1
    table[at, 0] = stamp
    table[at, 1] = count
    lists[count, OF] = p
    lists[count, LOW] = row
    lists[count, SINCE] = row
    before = diagram.ends[p, TAIL]
    lists[count, AFTER] = -1
    lists[count, BEFORE] = before
    if before < 0:
        diagram.ends[p, HEAD] = count
    else:
        lists[before, AFTER] = count
    diagram.ends[p, TAIL] = count
    for i in range(held0, held1):
        s = held[i]
        bindings[count, s] = row if s == own else bindings[source, s]
    return count


@kernel
def partners(x, left, base, ranges, partner):
    """Partners of row ``x``, one of the rows ``left``, whose ranges begin at ``base``."""
    at = base + first_behind(left, np.int64(0), x) - 1
    return partner[ranges[at, 0] : ranges[at, 1]]


@kernel
def reach_back(shape, domain, start, stop, latest):
    """Per position the last row that can still lead to a match before ``stop``, or -1."""
    for i in range(shape.order.shape[0] - 1, -1, -1):
        p = shape.order[i]
        limit = stop if shape.ends[p] >= 0 else np.int64(-1)
        for e in range(shape.first[p], shape.first[p + 1]):
            t = shape.target[e]
            if t != p:
                limit = max(limit, latest[t])
        rows = domain.row[domain.place[p] : domain.place[p + 1]]
        at = first_behind(rows, np.int64(0), limit - 1) - 1
        partner = rows[at] if at >= 0 and rows[at] > start else np.int64(-1)
        for c in range(shape.asks[p], shape.asks[p + 1]):
            equal = domain.base[c] >= 0 and shape.slots[shape.reads[c]] == shape.origin
            if partner >= 0 and equal:
                left = domain.row[domain.place[domain.left[c]] : domain.place[domain.left[c] + 1]]
                some = partners(start, left, domain.base[c], domain.ranges, domain.partner)
                at = first_behind(some, np.int64(0), partner) - 1
                partner = some[at] if at >= 0 and some[at] > start else np.int64(-1)
        latest[p] = partner


@kernel
def draw(first, offsets, image, floats, shape, domain, task, diagram, entries, made, progress,
         budget):  # fmt: skip
    """Continue with the entries of first events; returns a code of ``search``.
    ``made``: output, entry of each first event, or 0.
    """
    image, floats = machine.borrowed(image), machine.borrowed(floats)
    shape, domain = machine.all_borrowed(shape), machine.all_borrowed(domain)
    diagram, entries = machine.all_borrowed(diagram), machine.all_borrowed(entries)
    starts, places, groups, stops = first.row, first.place, first.group, first.stop
    progress[SPENT] = 0
    for i in range(progress[NEXT], starts.shape[0]):
        progress[NEXT] = i
        if progress[SPENT] > budget:
            return SLICE
        start = starts[i]
        p = places[i]
        g = groups[i]
        stop = window_end(domain.time, start, stops[g], task)
        reach_back(shape, domain, start, stop, diagram.latest)
        made[i] = 0
        progress[SPENT] += 1
        possible = shape.ends[p] >= 0
        for e in range(shape.first[p], shape.first[p + 1]):
            possible |= diagram.latest[shape.target[e]] >= 0
        if not possible:
            continue
        status = _forward(
            start, p, offsets[g], offsets[g + 1], image, floats, shape, domain, diagram, progress,
            budget,
        )  # fmt: skip
        if status != DONE:
            return status
        if progress[USED] + diagram.counts[DRAWN] + 1 > entries.row.shape[0]:
            return OUTPUT_FULL
        inner = _backward(stop, shape, domain, diagram, entries, progress)
        last = shape.ends[p] >= 0
        if shape.ends[p] > 0:
            last = domain.behind[shape.ends[p] - 1, start] >= stop
        if inner or last:
            used = progress[USED]
            add_entry(entries, used, start, p, 0, inner, p if last else -1)
            made[i] = used
            progress[USED] = used + 1
    progress[NEXT] = starts.shape[0]
    return DONE


@kernel
def _forward(start, place, begin, end, image, floats, shape, domain, diagram, progress, budget):
    """Make the lists of a first event and their candidates; list 0 follows the event."""
    made, lists, latest = diagram.made, diagram.lists, diagram.latest
    rows, places, marks = diagram.rows, diagram.places, diagram.marks
    row_of = image[H_PATH] + ROW_ROW * image[H_STRIDE]
    none = domain.row[:0]
    for q in range(diagram.ends.shape[0]):
        diagram.ends[q, HEAD] = -1
        diagram.ends[q, TAIL] = -1
    diagram.counts[STAMPS] += 1
    diagram.counts[LISTS] = 0
    drawn = np.int64(0)
    work = progress[SPENT]
    gap = shape.gap[place]
    behind = domain.behind[gap] if gap >= 0 else none
    list_of(
        place, start, np.int64(-1), shape.holds, shape.held, shape.slot[place], behind, diagram
    )  # fmt: skip
    for i in range(shape.order.shape[0]):
        p = shape.order[i]
        e0 = shape.first[p]
        e1 = shape.first[p + 1]
        of = np.int64(diagram.ends[p, HEAD])
        while of >= 0:
            if work > budget:
                progress[SPENT] = work
                return SLICE
            binding = diagram.known[of]
            low = np.int64(lists[of, LOW])
            since = lists[of, SINCE]
            if shape.origin >= 0:
                binding[shape.origin] = start
            number = np.int64(0)
            highest = low
            for e in range(e0, e1):
                t = shape.target[e]
                limit = latest[t]
                if shape.absence[e] >= 0:
                    limit = min(limit, domain.behind[shape.absence[e], since])
                # rows of the position, or partners if they are fewer
                candidates = domain.row[domain.place[t] : domain.place[t + 1]]
                at = first_behind(candidates, np.int64(0), low)
                stop_at = first_behind(candidates, at, limit)
                chosen = np.int64(-1)
                for c in range(shape.asks[t], shape.asks[t + 1]):
                    if domain.base[c] >= 0 and at < stop_at:
                        x = np.int64(binding[shape.slots[shape.reads[c]]])
                        q = domain.left[c]
                        left = domain.row[domain.place[q] : domain.place[q + 1]]
                        some = partners(x, left, domain.base[c], domain.ranges, domain.partner)
                        some_at = first_behind(some, np.int64(0), low)
                        some_stop = first_behind(some, some_at, limit)
                        if some_stop - some_at < stop_at - at:
                            chosen = c
                            candidates = some
                            at = some_at
                            stop_at = some_stop
                number = stop_at - at
                work += number + 1
                for j in range(number):
                    rows[j] = candidates[at + j]
                for c in range(shape.asks[t], shape.asks[t + 1]):
                    if c == chosen or number == 0:
                        continue
                    for s in shape.slots[shape.reads[c] : shape.reads[c + 1]]:
                        image[row_of + s] = binding[s]
                    x = np.int64(binding[shape.slots[shape.reads[c]]])
                    number = filter_rows(
                        domain.spec[c], image, floats, binding.shape[0], t, x, rows, number, begin,
                        end,
                    )  # fmt: skip
                    if number < 0:
                        progress[FAILED] = -1 - number
                        return OVERFLOW
                if e1 > e0 + 1:
                    for j in range(number):
                        marks[rows[j]] = t
                        highest = max(highest, rows[j])
            if e1 > e0 + 1:  # the rows of several positions in order
                number = np.int64(0)
                for y in range(low + 1, highest + 1):
                    if marks[y]:
                        rows[number] = y
                        places[number] = marks[y]
                        marks[y] = 0
                        number += 1
            if drawn + number > made.shape[0]:
                return OUTPUT_FULL
            lists[of, BEGIN] = drawn
            lists[of, END] = drawn + number
            shared = np.int64(-1)
            for j in range(number):
                y = rows[j]
                t = np.int64(places[j]) if e1 > e0 + 1 else shape.target[e0]
                gap = shape.gap[t]
                onward = np.int64(-1)
                if shape.first[t + 1] > shape.first[t]:
                    alike = gap < 0 and shape.slot[t] < 0
                    if t == p and alike:
                        onward = of
                    elif alike and e1 == e0 + 1 and shared >= 0:
                        onward = shared
                    else:
                        behind = domain.behind[gap] if gap >= 0 else none
                        onward = list_of(
                            t, y, of, shape.holds, shape.held, shape.slot[t], behind, diagram
                        )  # fmt: skip
                        if onward < 0:
                            return OUTPUT_FULL
                        shared = onward
                made[drawn, ROW] = y
                made[drawn, PLACE] = t
                made[drawn, ONWARD] = onward
                drawn += 1
            of = np.int64(lists[of, AFTER])
    diagram.counts[DRAWN] = drawn
    progress[SPENT] = work
    return DONE


@kernel
def _backward(stop, shape, domain, diagram, entries, progress):
    """Write the entries of a first event's candidates; the first of list 0, which comes last."""
    made, lists = diagram.made, diagram.lists
    used = progress[USED]
    head = np.int64(0)
    for i in range(shape.order.shape[0] - 1, -1, -1):
        of = np.int64(diagram.ends[shape.order[i], TAIL])
        while of >= 0:
            head = np.int64(0)
            before = np.int64(-1)
            at = np.int64(0)
            for d in range(np.int64(lists[of, END]) - 1, np.int64(lists[of, BEGIN]) - 1, -1):
                y = np.int64(made[d, ROW])
                t = np.int64(made[d, PLACE])
                onward = np.int64(made[d, ONWARD])
                inner = np.int64(0)
                if onward == of:
                    inner = head
                elif onward >= 0:
                    beyond = np.int64(lists[onward, END])
                    if onward != before:
                        at = beyond
                        before = onward
                    at = candidate_behind(made, np.int64(lists[onward, BEGIN]), at, y)
                    if at < beyond:
                        inner = np.int64(made[at, ENTRY])
                last = shape.ends[t] >= 0
                if shape.ends[t] > 0:
                    last = domain.behind[shape.ends[t] - 1, y] >= stop
                if inner or last:
                    add_entry(entries, used, y, t, head, inner, t if last else -1)
                    head = used
                    used += 1
                made[d, ENTRY] = head
            of = np.int64(lists[of, BEFORE])
    progress[USED] = used
    return head


@kernel
def candidate_behind(made, low, high, row):
    """First of the candidates ``low .. high`` of a list after a row, seen from the end."""
    while high > low and high - low <= 16 and made[high - 1, ROW] > row:
        high -= 1
    if high - low <= 16:
        return high
    while low < high:
        middle = (low + high) // 2
        if made[middle, ROW] > row:
            high = middle
        else:
            low = middle + 1
    return low


class JoinedSource(Source):
    """Lists where conditions compare events."""

    _bytes_an_entry = 160

    def __init__(
        self,
        shape: Shape,
        domain: Domain,
        image: IntArray,
        offsets: IntArray,
        task: Task,
        first: FirstEvents,
        places: IntArray,
        context: Context,
    ) -> None:
        super().__init__(first, _tables(len(shape.gap)), None, context)
        self._shape = shape
        self._domain = domain
        self._image = image
        self._offsets = offsets
        self._task = task
        self._starts = Starts(first.rows, places, first.groups, first.stop)
        self._slots = max(int(shape.slots.max(initial=-1)) + 1, 1)
        self._diagram: Diagram

    def _new_entries(self, size: int) -> Entries:
        positions, count = len(self._shape.gap), self._domain.behind.shape[1]
        self._diagram = Diagram(
            np.empty((size, 4), np.int32), np.empty((size, 7), np.int32),
            np.empty((size, self._slots), np.int32), np.empty((positions, 2), np.int32),
            np.zeros((1 << (2 * size - 1).bit_length(), 2), np.int32),
            np.empty(positions, np.int64), np.zeros(3, np.int64), np.empty(count, np.int64),
            np.empty(count, np.int32), np.zeros(count, np.int32),
        )  # fmt: skip
        return new_entries(size)

    def _build(self, entries: Entries, made: IntArray, progress: IntArray, budget: int) -> int:
        image = self._image
        status: int = draw(
            self._starts, self._offsets, image, image.view(np.float64), self._shape, self._domain,
            self._task, self._diagram, entries, made, progress, budget,
        )  # fmt: skip
        if status == OVERFLOW:
            raise self._context.not_computable(int(progress[FAILED]))
        return status


def _tables(positions: int) -> Tables:
    """Tables with positions as states: one labeling each."""
    each, none = np.arange(positions, dtype=np.int64), np.zeros(positions, np.int64)
    return Tables(none, none, none, none, each, each, each, none, each, each, none)


class JoinedSearch:
    """Finds matches where conditions compare events; ``why``: as in ``OneEventSearch``."""

    def __init__(
        self, automaton: Automaton, plan: ConditionPlan, pairing: Pairing, context: Context
    ) -> None:
        self._plan = plan
        self._pairing = pairing
        self._context = context
        self._follow = [[e.target for e in es if e.target != ACCEPT] for es in automaton.edges]
        self._longest = automaton.length_max
        self.why = ""

    @lazy
    def _specs(self) -> IntArray:
        return specs_of(self._plan, self._pairing)

    def open(self, prepared: PreparedRows, groups: Groups, task: Task) -> Source | None:
        """As ``OneEventSearch.open``."""
        self.why = ""
        pairing, words = self._pairing, prepared.words
        shape = pairing.shape
        assert shape is not None
        if not pairing.plain and len(words) and int(np.bitwise_count(words).max()) > 1:
            self.why = "events can stand for several variables of a pattern of varying length"
            return None
        positions = range(1, len(self._follow))
        rows = [np.flatnonzero(words & np.uint64(1 << (p - 1))) for p in positions]
        rows.insert(0, np.zeros(0, np.int64))
        places = np.full(len(words), -1, np.int32)
        for p in self._follow[0]:
            places[rows[p]] = p
        entry = np.arange(len(rows), dtype=np.int64)
        one_row = self._longest == 1 and not (shape.ends > 0).any()
        first = take_first_events(places, entry, groups, task, alone=bool(one_row))
        first = first.in_order(groups)
        image = with_path(prepared.image, len(pairing.places) + 2)
        know(image, *trackers_of(self._plan, pairing))
        domain = self._domain(rows, image, prepared, groups.time)
        return JoinedSource(
            shape, domain, image, groups.offsets, task, first,
            places[first.rows].astype(np.int64), self._context,
        )  # fmt: skip

    def _domain(
        self, rows: list[IntArray], image: IntArray, prepared: PreparedRows, time: IntArray
    ) -> Domain:
        queries, specs = self._pairing.asked, self._specs
        left = np.array([self._pairing.places[one.slots[0]] for one in queries], np.int64)
        base = np.full(len(queries), -1, np.int64)
        ranges, by_key, begun, used = [np.zeros((0, 2), np.int64)], [rows[0]], 0, 0
        for c, spec in enumerate(specs):
            if is_equality(spec):
                partners, partner = partners_of(spec, image, rows[left[c]], rows[queries[c].place])
                base[c] = begun
                ranges.append(partners + used)
                by_key.append(partner)
                begun += len(partners)
                used += len(partner)
        sizes = [0, *map(len, rows)]
        return Domain(
            time, np.cumsum(sizes), np.concatenate(rows),
            _behind(prepared.absent, self._pairing.masks), specs, left, base,
            np.concatenate(ranges).astype(np.int32), np.concatenate(by_key),
        )  # fmt: skip


def _behind(absent: IntArray, masks: tuple[int, ...]) -> IntArray:
    """For each absence and row, the first later row that violates the absence."""
    count = len(absent)
    following = np.full((len(masks), count), count, np.int64)
    for i, mask in enumerate(masks):
        hit = np.where(absent & mask, np.arange(count), count)[::-1]
        following[i, :-1] = np.minimum.accumulate(hit)[::-1][1:]
    return following
