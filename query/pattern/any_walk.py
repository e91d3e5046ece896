"""The walk: every match of the lists, one after the other, from wherever it stopped.

Purpose
    :func:`walk` goes down the lists depth first and puts out each set of rows that is a match, with
    its preferred labeling.  It returns when a batch is full and goes on with the next call, so what
    it needs does not depend on how many matches there are.  :func:`walk_even` does the same for a
    sequence, whose matches differ in nothing but their rows.  :func:`descend` goes straight to the
    n-th match of a start, over the counts of :mod:`.any_count`.

Layout
    ``path[d]`` is the entry of the set's row ``d``; ``cursor[d]`` the entry to be looked at next
    behind it.  ``at`` holds where the walk stands: the start, the number of rows of the set, and
    whether the set is a match that waits to be put out.

Guarantee
    Each set once; those of one start in lexicographic order of their rows.  Every row that is added
    to a set belongs to a match, so the work is linear in what is put out.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from ...core.native import kernel
from .any_count import below, count_list, window_low
from .any_lists import PASS, start_alone
from .outcomes import DONE, MATCHES, OUTPUT_FULL, RUNS
from .search import begin_match, has_room, horizon_of

__all__ = ["DEPTH", "START", "WAITS", "descend", "walk", "walk_even"]

START, DEPTH, WAITS = range(3)


@kernel
def walk(starts, groups, alone, stop, classes, tables, rows, task, entries, scratch, one, path,
         cursor, at, state, output):  # fmt: skip
    """Put matches out until there are no more or there is no room for the next.

    ``starts``: entries of the starts, in the order of the result; rows instead when ``alone``, and
    the lists are then made for each start by itself.
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
    """The first entry from one on that a match within the horizon can go on with."""
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
    """Put out the rows of matches of ``width`` events each; returns how many.

    The arguments are those of :func:`walk`; the last event of a match is the only one that ends it.
    ``row`` takes the rows of one match after the other, ``group`` and ``numbers`` what is said of
    each; ``prefix``: scratch, the rows of the path.
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
        if at[WAITS] != 0:  # stands on a match
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
    """Stand before match ``left`` of a start, counted from 0, of which there are more than that.

    ``low``: no entry before it is one of the start's; ``stop``: end of the rows of its group;
    ``tail``: scratch, a word for each entry.
    """
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
