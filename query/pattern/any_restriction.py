"""The restriction: what of a block's lists belongs to one first event.

Purpose
    The lists of :mod:`.any_diagram` serve many first events.  :func:`restrict` goes through them
    for one: what ends beyond its window is left out, and so is what conditions with the first event
    forbid.  What remains becomes entries as those of :mod:`.any_lists`, for :mod:`.any_walk` and
    :mod:`.any_count`.

Layout
    A list is gone through from its last candidate to its first, after the lists behind it; ``DOWN``
    is the first candidate that is done, ``TOP`` the first beyond the window, ``FIRST`` the last
    entry made.  ``ENTRY`` of a candidate is the entry at which the list is entered there.  Whoever
    enters a list further in front has it gone on with.

Guarantee
    Entries are on the way to a match that ends in the window: the walk meets no dead end.  A
    candidate is looked at once for a first event, however many ways lead to it.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np

from ...core.native import kernel
from . import functions
from .any_diagram import (
    ALL,
    BEGIN,
    CANNOT,
    CHILD,
    DOWN,
    END,
    ENDS,
    ENTRY,
    FAILED,
    FIRST,
    LAST,
    LONG,
    NEXT,
    OF,
    ONWARD,
    PLACE,
    ROW,
    SOME,
    STAMP,
    STAMPS,
    TOP,
    USED,
    candidate_behind,
    fits,
)
from .any_lists import EARLIEST

__all__ = ["restrict"]


@kernel
def restrict(turns, block, own, offsets, image, floats, shape, domain, diagram, marks, frames,
             entries, starts, progress, budget):  # fmt: skip
    """Go on with the entries of first events.

    Parameters
    ----------
    turns : int64 array
        First events of the block in the order of the result.
    marks : int32 array, one row per condition
        Scratch; zeros at first.
    frames : int64 array, a row per position and two more
        Scratch.
    starts : int64 array
        Filled with the entry of each first event, 0 for one without matches.
    progress : int64 array
        Of it first events done, and entries used, the end of lists counted.

    Returns
    -------
    int
        See :data:`.any_diagram.ALL`.
    """
    spent = np.int64(0)
    image, floats = functions.borrowed(image), functions.borrowed(floats)
    shape, domain = functions.all_borrowed(shape), functions.all_borrowed(domain)
    diagram, block = functions.all_borrowed(diagram), functions.all_borrowed(block)
    entries = functions.all_borrowed(entries)
    row, reach, transition, following, smaller, child_of, final = entries
    made, lists = diagram.made, diagram.lists
    origin = shape.origin
    used = progress[USED]
    room = row.shape[0]
    for i in range(progress[NEXT], turns.shape[0]):
        k = turns[i]
        root = block.root[k]
        starts[i] = 0
        progress[NEXT] = i
        progress[USED] = used
        if spent > budget:
            return LONG
        if root < 0:
            continue
        start = block.row[k]
        p = block.place[k]
        begin = offsets[block.group[k]]
        end = offsets[block.group[k] + 1]
        stop = block.stop[k]
        last = block.last[k]
        progress[STAMPS] += 1
        stamp = progress[STAMPS]
        if not own:
            for c in range(domain.joined.shape[0]):
                if shape.slots[shape.reads[c]] == origin and domain.joined[c]:
                    for j in range(domain.pairs[c, start], domain.pairs[c, start + 1]):
                        marks[c, domain.partner[j]] = stamp
        depth = 0
        frames[0, 0] = root
        frames[0, 1] = candidate_behind(
            made, np.int64(lists[root, BEGIN]), np.int64(lists[root, END]), start
        )
        fresh = True
        while depth >= 0:
            of = frames[depth, 0]
            to = frames[depth, 1]
            if fresh and lists[of, STAMP] != stamp:
                # rows behind the last of use are not looked at
                position = lists[of, OF]
                e = shape.first[position]
                limit = stop - 1
                if shape.first[position + 1] == e + 1:
                    limit = last[shape.target[e]]
                top = candidate_behind(
                    made, np.int64(lists[of, BEGIN]), np.int64(lists[of, END]), limit
                )
                lists[of, STAMP] = stamp
                lists[of, TOP] = top
                lists[of, DOWN] = top
                lists[of, FIRST] = 0
            fresh = False
            head = lists[of, FIRST]
            d = np.int64(lists[of, DOWN]) - 1
            spent += max(np.int64(0), d - to) + 1
            while d >= to:
                t = np.int64(made[d, PLACE])
                y = np.int64(made[d, ROW])
                alive = made[d, ENDS] < stop and y <= last[t]
                if alive and not own:
                    for c in range(shape.later[t], shape.asks[t + 1]):
                        if domain.joined[c]:
                            alive = alive and marks[c, y] == stamp
                        elif alive:
                            known = diagram.known[of]
                            known[origin] = start
                            truth = fits(
                                c, c + 1, -1, known, y, t, shape, domain, image, floats, begin, end
                            )
                            if truth < 0:
                                progress[FAILED] = y
                                return CANNOT
                            alive = truth > 0
                if alive:
                    onward = np.int64(made[d, ONWARD])
                    child = np.int64(made[d, CHILD])
                    inner = np.int32(0)
                    if onward == of:
                        inner = head
                    elif child >= 0:
                        if lists[onward, STAMP] != stamp or child < lists[onward, DOWN]:
                            depth += 1
                            frames[depth, 0] = onward
                            frames[depth, 1] = child
                            fresh = True
                            break
                        if child < lists[onward, TOP]:
                            inner = made[child, ENTRY]
                    if inner or made[d, LAST]:
                        if used == room:
                            return SOME
                        row[used] = y
                        reach[used] = EARLIEST
                        transition[used] = t
                        following[used] = head
                        smaller[used] = 0
                        child_of[used] = inner
                        final[used] = t if made[d, LAST] else -1
                        head = np.int32(used)
                        used += 1
                made[d, ENTRY] = head
                d -= 1
            lists[of, FIRST] = head
            lists[of, DOWN] = d + 1
            if not fresh:
                depth -= 1
        to = frames[0, 1]
        inner = made[to, ENTRY] if to < lists[root, TOP] else np.int32(0)
        ends_here = shape.ends[p] >= 0
        if shape.ends[p] > 0:
            ends_here = domain.behind[shape.ends[p] - 1, start] >= stop
        if inner or ends_here:
            if used == room:
                return SOME
            row[used] = start
            reach[used] = EARLIEST
            transition[used] = p
            following[used] = 0
            smaller[used] = 0
            child_of[used] = inner
            final[used] = p if ends_here else -1
            starts[i] = used
            used += 1
    progress[NEXT] = turns.shape[0]
    progress[USED] = used
    return ALL
