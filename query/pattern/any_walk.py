"""Resumable depth-first enumeration of the matches in lists, in batches.

``path[d]`` is the entry of the set's row ``d``; ``cursor[d]`` the entry to examine next after it.
``at``: the start, the number of rows of the set, and whether the set is a match not yet output.
Each set is output once; sets of one start are in lexicographic order of their rows.  Every row that
is added belongs to a match, so the work is linear in the output.
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
