"""Depth-first search for contiguous matches whose conditions read the partial match.

Finds, from each start, the match that the standard prefers.  A missing row leaves its start
undecided.  Where no condition depends on the path (they only raise errors), failed states are
memoised: without a window by clearing the bit for good, with one for the current start; also for
the start where conditions see no other row of the path.  Time is then linear in rows times states,
or, per start, rows in the window times states; otherwise it can be exponential, bounded by
``steps_max`` per start.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np

from ...core.native import kernel
from . import machine
from .attempts import has_stack, restore_path, save_path
from .machine import H_PATH, H_STRIDE, ROW_ROW, begin_path, extend_path, holds
from .search import (
    BUDGET,
    DONE,
    ERROR_DEPTH,
    ERROR_ROW,
    FAIL,
    GROUP,
    MATCH,
    MATCHES,
    MORE,
    OUTPUT_FULL,
    OVERFLOW,
    PATH_FULL,
    RUNS,
    SLICE,
    STACKS_FULL,
    STEPS,
    TO_FIRST,
    TO_LAST,
    begin_match,
    following_row,
    has_room,
    horizon_of,
    search_end,
)


@kernel
def match_contiguous(
    edges, condition, image, floats, cursor, visited, visited_words, rows, task,
    attempts, state, output
):  # fmt: skip
    """Find the preferred matches of each group, from ``position`` on.  ``task.memo``: 0 conditions
    depend on the path; 1 no window, failed bits are cleared in ``words``; 2 failures are stored in
    ``visited`` per start; 3 as 2, but for the whole group (no window).
    """
    first, target, flag, bit = edges
    words, begins, ends, stops, position, seen, number, time = rows
    memo, final = task.memo, task.final
    one = np.uint64(1)
    groups = begins.shape[0]
    capacity = cursor.shape[0] - 2
    image, floats = machine.borrowed(image), machine.borrowed(floats)
    begin_path(image)  # column 0 never changes
    places = image[H_PATH]
    row_of = places + ROW_ROW * image[H_STRIDE]
    budget = task.slice_max
    waits_for_rows = attempts.start.shape[0] > 0
    for g in range(state[GROUP], groups):
        state[GROUP] = g
        begin = begins[g]
        end = ends[g]
        usable = search_end(begin, end, task)
        stop = min(usable, stops[g])
        s = position[g]
        while s < stop:
            if not task.empty_match:
                while s < stop and words[s] & task.first_bits == 0:
                    s += 1
                if s >= stop:
                    break
            horizon = horizon_of(time, s, task)
            waits = not final and task.now <= horizon
            # one attempt
            outcome = FAIL
            depth = np.int64(0)  # int64, not a literal: one type for the variable
            deepest = np.int64(0)
            steps = 0
            cursor[0] = first[0]
            at = has_stack(attempts, g, s)
            if at >= 0:
                depth, deepest, steps = restore_path(attempts.stack, at, s, cursor, image)
                if depth < 0:
                    position[g] = s
                    return PATH_FULL
            while True:
                p = image[places + depth]
                c = cursor[depth]
                row = s + depth
                if c == first[p + 1]:
                    if depth == 0:
                        break
                    if memo == 1:
                        words[row - 1] &= ~(one << np.uint64(bit[p]))
                    elif memo >= 2:
                        base = (row - 1 - (s if memo == 2 else 0)) * visited_words
                        visited[base + (p >> 6)] |= one << np.uint64(p & 63)
                    depth -= 1
                    continue
                cursor[depth] = c + 1
                flags = flag[c]
                if flags & 1 and (row != begin or seen[g]):
                    continue
                if flags & 2:
                    if row < end:
                        continue
                    if not final:
                        outcome = MORE
                        break
                q = target[c]
                if q < 0:
                    outcome = MATCH
                    break
                if row >= usable:  # missing, or rows that its conditions read are missing
                    if time[row] <= horizon if row < end else waits:
                        outcome = MORE
                        break
                    continue
                if time[row] > horizon:
                    continue
                if (words[row] >> np.uint64(bit[q])) & one == 0:
                    continue
                steps += 1
                if memo >= 2:
                    if depth >= capacity:
                        position[g] = s
                        return PATH_FULL
                    base = (row - (s if memo == 2 else 0)) * visited_words
                    if (visited[base + (q >> 6)] >> np.uint64(q & 63)) & one:
                        continue
                which = condition[q]
                if which >= 0:
                    if steps > task.steps_max:
                        state[ERROR_ROW] = s
                        state[ERROR_DEPTH] = depth
                        return BUDGET
                    truth = holds(
                        image, floats, which, depth, depth, q, row, begin, end, number[g] + 1,
                        np.bool_(False),
                    )  # fmt: skip
                    if truth < 0:
                        state[ERROR_ROW] = row
                        state[ERROR_DEPTH] = truth
                        return OVERFLOW
                    if truth == 0:
                        continue
                if depth >= capacity:
                    position[g] = s
                    return PATH_FULL
                if extend_path(image, floats, depth, depth + 1, depth, q, row):
                    state[ERROR_ROW] = row
                    state[ERROR_DEPTH] = 0
                    return OVERFLOW
                image[row_of + depth] = row
                depth += 1
                deepest = max(deepest, depth)
                image[places + depth] = q
                cursor[depth] = first[q]
            if memo == 2:
                visited[: (deepest + 1) * visited_words] = 0
            if memo == 0 and steps > task.steps_max:
                state[ERROR_ROW] = s
                state[ERROR_DEPTH] = deepest
                return BUDGET
            if outcome == MORE:
                if not waits_for_rows:
                    break
                position[g] = s
                if not save_path(attempts, g, s, depth, deepest, steps, cursor, image):
                    return STACKS_FULL
                if not attempts.go_on:
                    break
                s += 1
                position[g] = s
                continue
            following = s + 1
            if outcome == MATCH and (depth > 0 or task.empty_match):
                if not has_room(state, output, depth, depth, task.labels_max):
                    position[g] = s
                    return OUTPUT_FULL
                number[g] += 1
                chosen = np.int64(-1)
                wanted = task.skip == TO_FIRST or task.skip == TO_LAST
                r = state[RUNS]
                before = np.int64(0)
                for i in range(depth):
                    p = image[places + i + 1]
                    if p != before:
                        output.row[r] = s + i
                        output.begin[r] = i
                        output.place[r] = p
                        before = p
                        r += 1
                    if wanted and task.skip_member[p]:
                        chosen = s + i
                        wanted = task.skip == TO_LAST
                output.runs[state[MATCHES]] = r - state[RUNS]
                state[RUNS] = r
                begin_match(state, output, g, s, depth, number[g], depth)
                following = following_row(s, depth, chosen, task.skip)
                if following < 0:
                    state[ERROR_ROW] = s
                    return -following
            s = following
            position[g] = s
            budget -= steps + 1
            state[STEPS] += steps + 1
            if budget < 0:
                return SLICE
        position[g] = s
    state[GROUP] = groups
    return DONE
