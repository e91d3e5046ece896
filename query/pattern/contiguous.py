"""The search for contiguous matches where conditions look at what is matched already.

Purpose
    :func:`match_contiguous` finds, from each starting row, the one match that the standard prefers,
    by depth-first search over ordered edges, event by event.  It tests a row against a position by
    one bit of a word; only conditions that look at the partial match run bytecode.  Patterns
    without such conditions take the search of :mod:`.jumping`.

Layout
    Rows are sorted by partition, then by order: group ``g`` is rows ``offsets[g] .. offsets[g +
    1]``.  ``position[g]`` is the next row at which a match may begin; it is read and written, so
    that a call can go on where the last one stopped.  ``words[row]`` holds the bits;
    ``bit[p]`` says which bit belongs to position ``p``.

    A match is put out as *runs*: rows in sequence at one position (see :class:`.matcher.Matches`).

Guarantee
    A row that is needed but not there yet ends the group with its start undecided, never with a
    wrong answer.  Where no condition depends on the path (some value could not be computed, and
    asking for it is a condition), a state that failed is not entered again: without a window its
    bit is cleared for good, with one it is remembered for the start.  So time is linear in rows
    times states, or rows in the window times states.

Limits
    Path-dependent conditions can make the search exponential: ``steps_max`` bounds each start.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np

from ...compiled import kernel_calling
from . import functions, machine, outcomes
from .image import H_PATH, H_STRIDE, ROW_ROW
from .machine import begin_path, extend_path, holds
from .outcomes import (
    BUDGET,
    DONE,
    ERROR_DEPTH,
    ERROR_ROW,
    FAIL,
    GROUP,
    LABELS,
    MATCH,
    MATCHES,
    MORE,
    OUTPUT_FULL,
    OVERFLOW,
    PAST_LAST,
    PATH_FULL,
    RUNS,
    SKIP_MISSING,
    SKIP_STUCK,
    SLICE,
    STEPS,
    TO_FIRST,
    TO_NEXT,
)

__all__ = ["match_contiguous"]


@kernel_calling(functions, machine, outcomes)
def match_contiguous(
    first, target, flag, bit, condition, image, floats, cursor, visited, visited_words, words,
    offsets, position, seen, number, time, window, now, final, lookahead, first_bits, empty_match,
    memo, skip, skip_member, steps_max, labels_max, slice_max, state,
    out_group, out_start, out_length, out_number, out_runs, out_row, out_begin, out_place,
):  # fmt: skip
    """Find the preferred matches of each group, from ``position`` on; see the module's docstring.

    ``condition``: bytecode condition of each position or -1.
    ``memo``: 0 conditions depend on the path; 1 no window: failed bits are cleared in ``words``; 2
    failures are kept in ``visited`` per start; 3 as 2, but for the whole group (no window).
    """
    one = np.uint64(1)
    groups = offsets.shape[0] - 1
    capacity = cursor.shape[0] - 2
    image, floats = functions.borrowed(image), functions.borrowed(floats)
    begin_path(image)  # column 0 stays as it is
    places = image[H_PATH]
    row_of = places + ROW_ROW * image[H_STRIDE]
    budget = slice_max
    for g in range(state[GROUP], groups):
        state[GROUP] = g
        begin = offsets[g]
        end = offsets[g + 1]
        usable = end if final else max(begin, end - lookahead)
        s = position[g]
        while s < usable:
            if not empty_match:
                while s < usable and words[s] & first_bits == 0:
                    s += 1
                if s >= usable:
                    break
            horizon = time[s] + window if window >= 0 else np.int64(9223372036854775807)
            if window >= 0 and horizon < time[s]:
                horizon = np.int64(9223372036854775807)
            waits = not final and now <= horizon
            # one attempt
            outcome = FAIL
            depth = np.int64(0)  # not a literal: it would compile what it is passed to twice
            deepest = np.int64(0)
            steps = 0
            cursor[0] = first[0]
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
                if row >= usable:  # not there, or there without the rows that its conditions read
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
                    if steps > steps_max:
                        state[ERROR_ROW] = s
                        state[ERROR_DEPTH] = depth
                        return BUDGET
                    truth = holds(
                        image, floats, which, depth, depth, q, row, begin, end, number[g] + 1, False
                    )
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
            if memo == 0 and steps > steps_max:
                state[ERROR_ROW] = s
                state[ERROR_DEPTH] = deepest
                return BUDGET
            if outcome == MORE:
                break
            following = s + 1
            if outcome == MATCH and depth == 0 and not empty_match:
                outcome = FAIL
            if outcome == MATCH:
                m = state[MATCHES]
                r = state[RUNS]
                if (
                    m >= out_start.shape[0]
                    or r + depth > out_row.shape[0]
                    or state[LABELS] + depth > labels_max
                ):
                    position[g] = s
                    return OUTPUT_FULL
                number[g] += 1
                out_group[m] = g
                out_start[m] = s
                out_length[m] = depth
                out_number[m] = number[g]
                before = np.int64(0)
                for i in range(depth):
                    p = image[places + i + 1]
                    if p != before:
                        out_row[r] = s + i
                        out_begin[r] = i
                        out_place[r] = p
                        before = p
                        r += 1
                out_runs[m] = r - state[RUNS]
                state[MATCHES] = m + 1
                state[RUNS] = r
                state[LABELS] += depth
                if depth > 0 and skip != TO_NEXT:
                    following = s + depth
                    if skip != PAST_LAST:
                        found = -1
                        for i in range(depth):
                            if skip_member[image[places + i + 1]]:
                                found = i
                                if skip == TO_FIRST:
                                    break
                        if found <= 0:
                            state[ERROR_ROW] = s
                            return SKIP_MISSING if found < 0 else SKIP_STUCK
                        following = s + found
            s = following
            position[g] = s
            budget -= steps + 1
            state[STEPS] += steps + 1
            if budget < 0:
                return SLICE
        position[g] = s
    state[GROUP] = groups
    return DONE
