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

``any_restriction`` tests the conditions with the first event, so that all first events share lists.
With *own*, each has its own: for absences at the end of the pattern, where conditions with the
first event are so selective that sharing costs more, and where a condition fails that might be
evaluated for no first event at all.  A list is entered at the first candidate after the row that
leads to it, so variables that no condition reads cost one candidate per row, not one per
combination.  Absences distinguish lists by the next row that violates them.  Conditions that keep
``n`` variables live cost up to the n-th power of the rows of a window; the search costs one path
per combination.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from . import functions
from .any_lists import window_end
from .any_partners import ask, first_behind
from .image import H_PATH, H_STRIDE, ROW_ROW
from .search import horizon_of

__all__ = [
    "ALL",
    "CANNOT",
    "LONG",
    "NOWHERE_NEAR",
    "SOME",
    "Block",
    "Diagram",
    "Domain",
    "candidate_behind",
    "draw",
    "fits",
]

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
of the list; its entry, for ``any_restriction``.
"""
OF, KEY, FAR, LOW, SINCE, BEGIN, END, AFTER, BEFORE, STAMP, TOP, DOWN, FIRST = range(13)
"""Columns of a list: position; owner, which is a partition or one first event; last first event
that leads to it; first row that does; row whose gap it tests; range of its candidates; neighbours
among the lists of the position; the others are for ``any_restriction``.
"""
HEAD, TAIL = range(2)
STAMPS, LISTS, DRAWN, FAILED, SPENT, NEXT, USED = range(7)
"""Progress: stamp, lists, candidates, failed row, rows examined; two for ``any_restriction``."""


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
    image, floats = functions.borrowed(image), functions.borrowed(floats)
    shape, domain = functions.all_borrowed(shape), functions.all_borrowed(domain)
    diagram, block = functions.all_borrowed(diagram), functions.all_borrowed(block)
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
