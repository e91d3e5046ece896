"""Decision diagram of the matches of first events; partial matches with equal futures share nodes.

Where conditions join two events, the continuations of a partial match depend only on the events
that later conditions still read.  ``draw`` builds, for a *block* of first events with overlapping
windows, one list of continuations per position and combination of rows still read.

Forward, position by position, every list gets its *candidates*: rows after the earliest row that
leads to it, in the window of the last first event that leads to it, that are partners of its bound
rows.  Backward, each candidate gets its child list, the entry point there, and the earliest row at
which a match through it ends::

    A B C D   DEFINE C AS x > A.x, D AS x = B.x          first events a1, a2
    after a1, a2      (A)             b1 b2 b3
    after b1          (B; b1)         c1 c2       whatever C > a says: tested per first event
    after c1, c2      (C; b1)         d1 d2       one list, entered after c1 or c2

``any_drawing.restrict`` tests the conditions with the first event, so that all first events share
lists.  With *own*, each has its own: for absences at the end of the pattern, where conditions with
the first event are so selective that sharing costs more, and where a condition fails that might be
evaluated for no first event at all.  A list is entered at the first candidate after the row that
leads to it, so variables that no condition reads cost one candidate per row, not one per
combination.  Absences distinguish lists by the next row that violates them.  Conditions that keep
``n`` variables live cost up to the n-th power of the rows of a window; the search costs one path
per combination.

Rows of one buffer are joined: rows by position, and the pairs that satisfy each condition.  A row
that is part of a match, or whose partner may still arrive, is never cleared.  Pairs that do not fit
into memory are not stored; their condition is evaluated again where needed.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...core.threads import Busy, Done, in_order
from ...core.threads import Task as PartTask
from . import any_pairs as partners
from . import machine
from . import machine as m
from .any_lists import window_end
from .any_pairs import Asking, CannotAsk, Pairing, Pairs, ask, first_behind
from .machine import H_PATH, H_STRIDE, ROW_ROW, with_path
from .search import Rows, Task, horizon_of

if TYPE_CHECKING:
    from .buffers import PreparedRows
    from .conditions import ConditionPlan


IntArray = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

ALL, SOME, CANNOT, LONG = range(4)
"""Return codes: complete; out of room; a condition failed; budget spent."""
NOWHERE_NEAR = np.int32(2147483647)


class Domain(NamedTuple):
    """Rows of a buffer and their joins.  Rows of position ``p``: ``row[place[p] .. place[p + 1]]``.
    ``behind[a, r]``: first row after ``r`` that violates absence ``a``.  Partners of row ``r``
    under condition ``c``: ``partner[pairs[c, r] .. pairs[c, r + 1]]`` if ``joined[c]``; otherwise
    ``spec[c]`` is evaluated.
    """

    words: npt.NDArray[np.uint64]
    time: IntArray
    stop: IntArray
    place: IntArray
    row: IntArray
    behind: IntArray
    joined: npt.NDArray[np.bool_]
    pairs: IntArray
    partner: Numbers
    spec: IntArray


class Block(NamedTuple):
    """First events in row order.  ``stop``: first row beyond the window.  ``last[k, p]``: last row
    that position ``p`` can have in a match of event ``k``, or -1; ``until[k, p]``: its maximum over
    the events up to ``k`` that share lists with it.  ``root``: the list after the event, or -1.
    """

    row: IntArray
    group: IntArray
    place: IntArray
    stop: IntArray
    last: IntArray
    until: IntArray
    root: IntArray


class Diagram(NamedTuple):
    """Candidates ``made[d]``, lists, ``ends`` of positions, and a hash ``table`` of lists by bound
    rows (a stamp, and a list), with columns as below.  ``known[l, s]``: row of slot ``s`` in list
    ``l``.
    """

    made: Numbers
    lists: Numbers
    known: Numbers
    ends: Numbers
    table: Numbers


ROW, PLACE, ONWARD, CHILD, LAST, ENDS, NEAREST, ENTRY = range(8)
"""Columns of a candidate: row, position, child list or -1, first candidate there; whether a match
can end with it; first row at which a match through it can end, and through it or a later candidate
of the list; its entry, for ``any_drawing.restrict``.
"""
OF, KEY, FAR, LOW, SINCE, BEGIN, END, AFTER, BEFORE, STAMP, TOP, DOWN, FIRST = range(13)
"""Columns of a list: position; owner, which is a partition or one first event; last first event
that leads to it; first row that does; row whose gap it tests; range of its candidates; neighbours
among the lists of the position; the others are for ``any_drawing.restrict``.
"""
HEAD, TAIL = range(2)
STAMPS, LISTS, DRAWN, FAILED, SPENT, NEXT, USED = range(7)
"""Progress: stamp, lists, candidates, failed row, rows examined; two for ``any_drawing``."""


@kernel
def list_of(p, row, source, key, far, holds, held, slot, gaps, behind, diagram, count, stamp):
    """Number of the list after position ``p`` at ``row``; equal to ``count`` when it is new.
    ``source``: the list in which the row is a candidate, or -1.  Passing all of ``Shape`` costs
    more than the work.
    """
    lists, known, ends, table = diagram.lists, diagram.known, diagram.ends, diagram.table
    held0 = holds[p]
    held1 = holds[p + 1]
    own = slot[p]
    gap = gaps[p]
    mixed = (np.uint64(key) << np.uint64(8)) ^ np.uint64(p + 1)
    since = np.int64(-1)
    if gap >= 0:
        since = behind[gap, row]
        mixed = (mixed ^ np.uint64(since)) * np.uint64(0x9E3779B97F4A7C15)
    for i in range(held0, held1):
        s = held[i]
        value = np.int64(row) if s == own else np.int64(known[source, s])
        mixed = (mixed ^ np.uint64(value)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mask = table.shape[0] - 1
    at = np.int64(mixed >> np.uint64(20)) & mask
    while table[at, 0] == stamp:
        found = np.int64(table[at, 1])
        same = lists[found, OF] == p and lists[found, KEY] == key
        same = same and (since < 0 or behind[gap, lists[found, SINCE]] == since)
        if same:
            for i in range(held0, held1):
                s = held[i]
                if known[found, s] != (row if s == own else known[source, s]):
                    same = False
                    break
        if same:
            lists[found, LOW] = min(row, lists[found, LOW])
            lists[found, FAR] = max(far, lists[found, FAR])
            return found
        at = (at + 1) & mask
    if count == lists.shape[0]:
        return count  # no room
    table[at, 0] = stamp
    table[at, 1] = count
    before = ends[p, TAIL]
    lists[count, OF] = p
    lists[count, KEY] = key
    lists[count, FAR] = far
    lists[count, LOW] = row
    lists[count, SINCE] = row
    lists[count, AFTER] = -1
    lists[count, BEFORE] = before
    lists[count, STAMP] = 0
    if before < 0:
        ends[p, HEAD] = count
    else:
        lists[before, AFTER] = count
    ends[p, TAIL] = count
    for i in range(held0, held1):
        s = held[i]
        known[count, s] = row if s == own else known[source, s]
    return count


@kernel
def fits(c0, c1, skip, known, y, q, shape, domain, image, floats, begin, end):
    """Whether conditions ``c0 .. c1`` except ``skip`` hold for row ``y``; -1: not computable."""
    depth = shape.keeps.shape[1]
    row_of = image[H_PATH] + ROW_ROW * image[H_STRIDE]
    for c in range(c0, c1):
        if c == skip:
            continue
        first = shape.reads[c]
        x = np.int64(known[shape.slots[first]])
        if domain.joined[c]:
            low = domain.pairs[c, x]
            high = domain.pairs[c, x + 1]
            stop = high
            while low < high:
                middle = (low + high) // 2
                if domain.partner[middle] < y:
                    low = middle + 1
                else:
                    high = middle
            if low == stop or domain.partner[low] != y:
                return 0
            continue
        for i in range(first, shape.reads[c + 1]):
            s = shape.slots[i]
            image[row_of + s] = known[s]
        truth = ask(domain.spec[c], image, floats, depth, q, x, y, begin, end)
        if truth <= 0:
            return truth
    return 1


@kernel
def candidate_behind(made, low, high, row):
    """First of the candidates ``low .. high`` of a list that comes after a row."""
    while low < high:
        middle = (low + high) // 2
        if made[middle, ROW] > row:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def reach_back(shape, domain, start, stop, last):
    """Per position the last row that can still lead to a match before ``stop``, or -1."""
    for i in range(shape.order.shape[0] - 1, -1, -1):
        p = shape.order[i]
        limit = stop if shape.ends[p] >= 0 else np.int64(-1)
        for e in range(shape.first[p], shape.first[p + 1]):
            t = shape.target[e]
            if t != p:
                limit = max(limit, last[t])
        rows = domain.row[domain.place[p] : domain.place[p + 1]]
        at = first_behind(rows, np.int64(0), limit - 1) - 1
        found = rows[at] if at >= 0 and rows[at] > start else np.int64(-1)
        for c in range(shape.later[p], shape.asks[p + 1]):
            if found >= 0 and domain.joined[c]:
                rows_of_it = domain.partner[domain.pairs[c, start] : domain.pairs[c, start + 1]]
                at = first_behind(rows_of_it, np.int64(0), found) - 1
                found = np.int64(rows_of_it[at]) if at >= 0 else np.int64(-1)
        last[p] = found


@kernel
def draw(block, own, offsets, image, floats, shape, domain, task, diagram, progress, budget):
    """Build the lists of a block; returns a code as ``ALL``, and only ALL is usable."""
    image, floats = machine.borrowed(image), machine.borrowed(floats)
    shape, domain = machine.all_borrowed(shape), machine.all_borrowed(domain)
    diagram, block = machine.all_borrowed(diagram), machine.all_borrowed(block)
    words, time = domain.words, domain.time
    one = np.uint64(1)
    made, lists_of, ends = diagram.made, diagram.lists, diagram.ends
    holds, held, slot, gaps, behind = shape.holds, shape.held, shape.slot, shape.gap, domain.behind
    until = block.until
    positions = ends.shape[0]
    for q in range(positions):
        ends[q, HEAD] = -1
        ends[q, TAIL] = -1
    progress[STAMPS] += 1
    stamp = progress[STAMPS]
    lists = np.int64(0)
    drawn = np.int64(0)
    spent = np.int64(0)
    for k in range(block.row.shape[0]):
        start = block.row[k]
        g = block.group[k]
        p = block.place[k]
        stop = window_end(time, start, domain.stop[g], horizon_of(time, start, task))
        block.stop[k] = stop
        spent += 1
        reach_back(shape, domain, start, stop, block.last[k])
        together = not own and k > 0 and block.group[k - 1] == g
        for q in range(positions):
            until[k, q] = max(block.last[k, q], until[k - 1, q] if together else np.int64(-1))
        possible = shape.ends[p] >= 0
        for e in range(shape.first[p], shape.first[p + 1]):
            possible |= block.last[k, shape.target[e]] >= 0
        block.root[k] = -1
        if possible:
            root = list_of(
                p, start, np.int64(-1), k if own else g, k, holds, held, slot, gaps, behind,
                diagram, lists, stamp,
            )  # fmt: skip
            if root == lists:
                if lists == lists_of.shape[0]:
                    return SOME
                lists += 1
            block.root[k] = root
    # forward: candidates
    for i in range(shape.order.shape[0]):
        p = shape.order[i]
        e0 = shape.first[p]
        e1 = shape.first[p + 1]
        of = np.int64(ends[p, HEAD])
        while of >= 0:
            if spent > budget:
                progress[SPENT] = spent
                return LONG
            known = diagram.known[of]
            low = np.int64(lists_of[of, LOW])
            since = lists_of[of, SINCE]
            key = np.int64(lists_of[of, KEY])
            far = np.int64(lists_of[of, FAR])
            g = block.group[far]
            if own and shape.origin >= 0:
                known[shape.origin] = block.row[key]
            lists_of[of, BEGIN] = drawn
            wanted = np.uint64(0)
            limit = np.int64(-1)
            for e in range(e0, e1):
                latest = until[far, shape.target[e]]
                if latest > low:
                    wanted |= one << np.uint64(shape.target[e] - 1)
                    limit = max(limit, latest)
            # source of the next rows: partners, the rows of one position, or all
            chosen = np.int64(-1)
            at = low + 1
            stop_at = limit + 1
            if e1 == e0 + 1 and wanted:
                t = shape.target[e0]
                lo = domain.place[t]
                rows = domain.row[lo : domain.place[t + 1]]
                at = first_behind(rows, np.int64(0), low)
                stop_at = first_behind(rows, at, limit)
                for c in range(shape.asks[t], shape.asks[t + 1] if own else shape.later[t]):
                    if not domain.joined[c]:
                        continue
                    x = known[shape.slots[shape.reads[c]]]
                    first = domain.pairs[c, x]
                    size = domain.pairs[c, x + 1] - first
                    if size < stop_at - at:
                        chosen = c
                        at = first
                        stop_at = first + size
                if chosen < 0:
                    at += lo
                    stop_at += lo
            latest_start = far  # last first event before the candidates
            if not own and at < stop_at:
                latest_start = min(far, first_behind(block.row, np.int64(0), low) - 1)
            shared = np.int64(-1)
            while at < stop_at:
                if e1 > e0 + 1:
                    y = at
                elif chosen >= 0:
                    y = np.int64(domain.partner[at])
                else:
                    y = domain.row[at]
                at += 1
                spent += 1
                if y <= low:
                    continue
                if y > limit:
                    break
                word = words[y] & wanted
                if word == 0:
                    continue
                e = e0
                while word >> np.uint64(shape.target[e] - 1) & one == 0:
                    e += 1
                t = shape.target[e]
                while latest_start < far and block.row[latest_start + 1] < y:
                    latest_start += 1
                if y > until[latest_start, t]:
                    continue
                if shape.absence[e] >= 0 and y > domain.behind[shape.absence[e], since]:
                    continue
                c1 = shape.asks[t + 1] if own else shape.later[t]
                if c1 - shape.asks[t] > (chosen >= 0):  # avoid an expensive call
                    truth = fits(
                        shape.asks[t], c1, chosen, known, y, t, shape, domain, image, floats,
                        offsets[g], offsets[g + 1],
                    )  # fmt: skip
                    if truth < 0:
                        progress[FAILED] = y
                        return CANNOT
                    if truth == 0:
                        continue
                if drawn == made.shape[0]:
                    return SOME
                onward = np.int64(-1)
                if shape.first[t + 1] > shape.first[t]:
                    mine = shape.slot[t]
                    alike = shape.gap[t] < 0 and (mine < 0 or not shape.keeps[t, mine])
                    if t == p and alike:
                        onward = of
                    elif alike and e1 == e0 + 1 and shared >= 0:
                        onward = shared
                        lists_of[onward, FAR] = max(lists_of[onward, FAR], latest_start)
                    else:
                        onward = list_of(
                            t, y, of, key, latest_start, holds, held, slot, gaps, behind, diagram,
                            lists, stamp,
                        )  # fmt: skip
                        if onward == lists:
                            if lists == lists_of.shape[0]:
                                return SOME
                            lists += 1
                        shared = onward
                made[drawn, ROW] = y
                made[drawn, PLACE] = t
                made[drawn, ONWARD] = onward
                drawn += 1
            lists_of[of, END] = drawn
            of = np.int64(lists_of[of, AFTER])
    # backward: child list of each candidate, and where its matches end
    for i in range(shape.order.shape[0] - 1, -1, -1):
        of = np.int64(ends[shape.order[i], TAIL])
        while of >= 0:
            stop = block.stop[lists_of[of, FAR]]
            begin = np.int64(lists_of[of, BEGIN])
            end = np.int64(lists_of[of, END])
            nearest = NOWHERE_NEAR
            before = np.int64(-1)
            at = np.int64(0)
            for d in range(end - 1, begin - 1, -1):
                y = np.int64(made[d, ROW])
                t = np.int64(made[d, PLACE])
                onward = np.int64(made[d, ONWARD])
                child = np.int64(-1)
                if onward == of:
                    if d + 1 < end:
                        child = np.int64(d + 1)
                elif onward >= 0:
                    first = np.int64(lists_of[onward, BEGIN])
                    beyond = np.int64(lists_of[onward, END])
                    if onward != before:
                        at = beyond
                        before = onward
                    if lists_of[onward, LOW] == y:  # all its candidates come after `y`
                        at = first
                    elif at - first > 16:
                        at = candidate_behind(made, first, at, y)
                    else:
                        while at > first and made[at - 1, ROW] > y:
                            at -= 1
                    if at < beyond:
                        child = at
                last = shape.ends[t] >= 0
                if shape.ends[t] > 0:
                    last = domain.behind[shape.ends[t] - 1, y] >= stop
                ending = NOWHERE_NEAR
                if last:
                    ending = np.int32(y)
                elif child >= 0:
                    ending = made[child, NEAREST]
                nearest = min(nearest, ending)
                made[d, CHILD] = child
                made[d, LAST] = last
                made[d, ENDS] = ending
                made[d, NEAREST] = nearest
            of = np.int64(lists_of[of, BEFORE])
    progress[LISTS] = lists
    progress[DRAWN] = drawn
    progress[SPENT] = spent
    return ALL


Words = npt.NDArray[np.uint64]
Check = Callable[[], None] | None

PART_TESTS, PARTS_MAX = 1_000_000, 1 << 10
"""Pairs to test that make a part, and most parts per condition."""
ROUNDS = 2
_COMPARED = {m.LT_F: "f", m.LE_F: "f", m.EQ_F: "f", m.LT_I: "i", m.LE_I: "i", m.EQ_I: "i"}


class JoinPlan:
    def __init__(self, plan: ConditionPlan, pairing: Pairing, memory_bytes: int) -> None:
        self.pairing = pairing
        self.pairs_max = memory_bytes // 16
        self.spec = _specs(plan, pairing)
        self.positions = len(plan.names)
        arrays, sets = plan.builder.arrays(), plan.builder.sets
        slots = {frozenset({plan.names[p]}): s for s, p in enumerate(pairing.places)}

        def of(name: str) -> IntArray:
            chosen = [(sets[i], steps) for i, steps in arrays[name].tolist()]
            known = [slots.get(c, -1) if c is not None and not s else -1 for c, s in chosen]
            return np.array(known, np.int64)

        # slot of each tracker of the image
        self.last, self.first = of("last_slot"), of("first_slot")


class PairedRows:
    """Rows of one buffer and their pairs; clears bits in the words of ``prepared``.
    ``image``: holds a path with bound slots.  ``group``: partition of each row, or None.
    ``before``, ``after``: rows of each position before and after narrowing.  ``failed``: a
    condition could not be computed for some pair.
    """

    def __init__(self, plan: JoinPlan, prepared: PreparedRows, rows: Rows, task: Task) -> None:
        self.plan = plan
        self.rows, self.task = rows, task
        self.words, self.absent = prepared.words, prepared.absent
        count, conditions = len(self.words), len(plan.spec)
        self.offsets = np.append(rows.begin, rows.end[-1:])
        single = len(self.offsets) <= 2
        self.group = None if single else np.repeat(np.arange(len(rows.end)), np.diff(self.offsets))
        self.image = with_path(prepared.image, len(plan.pairing.places) + 2)
        partners.know(self.image, plan.last, plan.first)
        none = np.zeros(0, np.int64)
        self.domain = Domain(
            self.words, rows.time, none, none, none, np.zeros((0, count), np.int64),
            np.zeros(conditions, np.bool_), np.empty((conditions, count + 1), np.int64),
            np.zeros(0, np.int32), plan.spec,
        )  # fmt: skip
        self.tested = self.pairs = 0
        self.before: dict[int, int] = {}
        self.after: dict[int, int] = {}
        self.failed = False
        asked = plan.pairing.asked
        self._single = [c for c, one in enumerate(asked) if len(one.slots) == 1]
        self.place_rows()

    def place_rows(self) -> None:
        place = np.zeros(self.plan.positions + 1, np.int64)
        row = np.empty(len(self.words), np.int64)
        while not partners.rows_by_place(self.words, place, row):
            row = np.empty(int(place[-1]), np.int64)
        self.domain = self.domain._replace(place=place, row=row)

    def rows_of(self, p: int) -> IntArray:
        place = self.domain.place
        return self.domain.row[place[p] : place[p + 1]]

    def groups_of(self, rows: IntArray) -> IntArray:
        return np.zeros(len(rows), np.int64) if self.group is None else self.group[rows]

    @property
    def counts(self) -> IntArray:
        return np.diff(self.domain.place)

    def shares(self, sampled: npt.NDArray[np.float64], within: float) -> npt.NDArray[np.float64]:
        """Selectivities among rows with partners; ``sampled``: where pairs were not made."""
        counts, found = self.counts, sampled.copy()
        for c in np.flatnonzero(self.domain.joined):
            one, first = self.plan.pairing.asked[c], self.domain.pairs[c]
            asked = counts[self.plan.pairing.places[one.slots[0]]] * counts[one.place] * within
            found[c] = min(1.0, (first[-1] - first[0]) / max(1.0, asked))
        return found

    def _asking(self, c: int) -> Asking:
        pairing, one = self.plan.pairing, self.plan.pairing.asked[c]
        left = self.rows_of(pairing.places[one.slots[0]])
        return Asking(
            one, self.plan.spec[c], len(pairing.places), left, self.groups_of(left),
            self.rows_of(one.place), self.image, self.offsets, self.rows, self.task,
        )  # fmt: skip

    def sample(self) -> npt.NDArray[np.float64]:
        """Estimated selectivity of each condition; 1 where a sampled pair cannot be computed."""
        shares = np.ones(len(self.plan.spec))
        for c in self._single:
            shares[c] = self._asking(c).share()
        return shares

    def join(self, within: float, threads: int, check: Check, busy: Busy) -> None:
        """Compute all pairs; ``within``: fraction of a position's rows in a window."""
        asked: dict[int, list[Asking]] = {}
        for c in self._single:
            asking = self._asking(c).by_keys()
            tests = len(asking.left) * len(asking.right) * within if threads > 1 else 0
            asked[c] = list(asking.parts(int(min(1 + tests // PART_TESTS, PARTS_MAX))))
        most = self.plan.pairs_max

        def task(part: Asking) -> PartTask[Pairs | None]:
            return lambda check: Done([part.pairs(most, check)])

        each = chain(*asked.values())
        found: Iterator[Pairs | None]
        if any(len(parts) > 1 for parts in asked.values()):
            found = in_order(map(task, each), threads, check, busy)
        else:
            found = (part.pairs(most - self.pairs, check) for part in each)
        blocks: list[npt.NDArray[np.int32]] = []
        try:
            for c, parts in asked.items():
                made = [one for one in islice(found, len(parts)) if one is not None]
                pairs = sum(len(one.partner) for one in made)
                if len(made) < len(parts) or pairs > most - self.pairs:
                    continue  # evaluated again where needed
                counts = np.concatenate([one.counts for one in made])
                left = self.rows_of(self.plan.pairing.places[parts[0].one.slots[0]])
                partners.first_of_rows(left, counts, self.pairs, self.domain.pairs[c])
                self.domain.joined[c] = True
                self.tested += sum(one.tested for one in made)
                self.pairs += pairs
                blocks += [one.partner for one in made]
        except CannotAsk:
            self.failed = True
        if blocks:
            self.domain = self.domain._replace(partner=np.concatenate(blocks))

    def narrow(self, prune: Callable[[Words], None]) -> None:
        pairing, task, rows = self.plan.pairing, self.task, self.rows
        places = sorted({a.place for a in pairing.asked} | set(pairing.places))
        of = {p: self.rows_of(p) for p in places}
        self.before = {p: len(r) for p, r in of.items()}
        mark = np.zeros(len(self.words), np.uint8)
        usable = np.maximum(rows.end - task.lookahead, rows.begin)
        known = np.full(len(usable), task.now, np.int64)
        there = usable < rows.end
        known[there] = rows.time[usable[there]]
        for _ in range(ROUNDS):
            cleared = 0
            for c in np.flatnonzero(self.domain.joined):
                one = pairing.asked[c]
                p = pairing.places[one.slots[0]]
                cleared += partners.narrow(
                    self.words, p, one.place, (p, one.place) in pairing.always, of[p],
                    self.groups_of(of[p]), self.domain.pairs[c], self.domain.partner,
                    of[one.place], known, rows.time, task, mark,
                )  # fmt: skip
            if not cleared:
                break
            prune(self.words)
        self.place_rows()
        self.after = {p: int(self.counts[p]) for p in places}


def _specs(plan: ConditionPlan, pairing: Pairing) -> IntArray:
    arrays = plan.builder.arrays()
    found = np.zeros((len(pairing.asked), 7), np.int64)
    for spec, one in zip(found, pairing.asked, strict=True):
        spec[partners.KIND], spec[partners.NUMBER] = partners.PROGRAM, one.number
        begin, end = arrays["begin"][one.number : one.number + 2]
        code = arrays["code"][begin:end].tolist()
        negated = code[-1][0] == m.NOT
        code = code[:-1] if negated else code
        if len(code) != 3 or len(one.slots) != 1 or code[2][0] not in _COMPARED or code[2][2]:
            continue
        load = m.LOAD_F if _COMPARED[code[2][0]] == "f" else m.LOAD_I
        (a, left, where, shift), (b, right, other, moved) = code[:2]
        if a != load or b != load or shift or moved or (where < 0) == (other < 0):
            continue
        turned = where < 0
        x, y = (right, left) if turned else (left, right)
        spec[:] = (partners.COMPARE, one.number, code[2][0], x, y, turned, negated)
    return found
