"""Restricts a block's shared lists (``any_diagram``) to one first event, as in ``any_lists``.

A list is traversed from its last candidate to its first, after its child lists; entering it at an
earlier candidate resumes its traversal.  ``DOWN`` is the first candidate done, ``TOP`` the first
beyond the window, ``FIRST`` the last entry written, ``ENTRY`` of a candidate the entry at which the
list is entered there.  Every entry leads to a match in the window.  A candidate is examined once
per first event, however many paths lead to it.
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
    """Continue writing the entries of first events; returns a code as ``any_diagram.ALL``.
    ``turns``: first events in result order.  ``starts``: output, entry of each, or 0.  ``marks``,
    ``frames``: scratch.
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
                # skip candidates after the last useful row
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
