"""Depth-first search for contiguous matches; it jumps over stars.

From each start it finds the match that the standard prefers.  A missing row leaves its start
undecided.

A *star* is a position without a condition that has an edge to itself, preferred to all others
(greedy) or to none (reluctant); its other edges are its *exits*.  In ``A Z* B`` with such a ``Z``
the search goes directly to the last (reluctant: the next) row that may follow, and backtracks.  A
frame is a run of rows at one position: one row, or any number at a star::

    S0 Z* S1 over 8 rows      S0 | Z Z Z Z Z Z | S1        frames: place   S0  Z  S1
                               0   1 2 3 4 5 6    7                 upto    1  7   8

``upto`` is the row after the run; at a star it is the *candidate*, the row at which the exits are
tried.  Matches are output as such runs (``matches.Matches``).

Candidates come in the order in which a search event by event reaches them, and a missing row leaves
a start undecided where that search would, so the result is the match that the standard prefers.
Once a candidate of a star has failed, all later ones have failed or are irrelevant, however the
star is entered: ``known`` stores the first such row, for one start under a window, otherwise for
all starts whose stars end at the same row.  Other failed states are memoised as in ``contiguous``.
So each start examines a row once per star and state, and without a window so does the whole search.
A row that cannot be matched (it surrounds a replay interval) has no bits and ends every run.  With
a window, rows must be in time order; otherwise stars are walked row by row.

Conditions that read the partial match are asked of one row after the other, so there are no stars
then: a frame is a row, and a column of the path in ``image``.  Failed states are stored only where
they fail on every way to them, else time can be exponential; ``steps_max`` bounds it per start.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from . import machine
from .attempts import has_stack, restore_attempt, save_attempt, star_end
from .automaton import ACCEPT, Automaton
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
    PAUSED,
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
    pause,
    resumed,
    search_end,
)

if TYPE_CHECKING:
    from .conditions import ConditionPlan


GREEDY, RELUCTANT, ANYWHERE = 1, 2, 4


class Stars(NamedTuple):
    """The stars of a pattern.  ``kind``: 0, or ``GREEDY`` or ``RELUCTANT``, plus ``ANYWHERE`` if
    the match may end after the star, so that every row is a candidate.  ``exits``: bits of the
    positions after a star.  ``first``, ``last``: edges to try; of a star only the exits.
    """

    bits: Any
    kind: npt.NDArray[np.int64]
    exits: npt.NDArray[np.uint64]
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]

    @property
    def positions(self) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self.kind).tolist())

    def without(self, first: npt.NDArray[np.int64]) -> Stars:
        none = np.zeros(len(self.kind), np.int64)
        return Stars(np.uint64(0), none, self.exits, first[:-1].copy(), first[1:].copy())


def stars_of(automaton: Automaton, plan: ConditionPlan) -> Stars:
    tested = 0
    for test in plan.tests.tests:
        tested |= test.bits
    edges_first, _, _ = automaton.tables
    first, last = edges_first[:-1].copy(), edges_first[1:].copy()
    kind = np.zeros(len(automaton.names), np.int64)
    exits = np.zeros(len(automaton.names), np.uint64)
    for p, edges in enumerate(automaton.edges):
        if p == 0 or (tested >> int(plan.bit[p])) & 1 or plan.condition[p] >= 0:
            continue
        loops = [i for i, e in enumerate(edges) if e.target == p and not e.anchor | e.absent]
        if not loops or loops[0] not in (0, len(edges) - 1):
            continue
        greedy = loops[0] == 0
        others = [edge for edge in edges if edge.target != p]
        if len(others) != len(edges) - 1:  # a second edge to itself, with an anchor
            continue
        first[p] += greedy
        last[p] -= not greedy
        kind[p] = GREEDY if greedy else RELUCTANT
        bits = 0
        for edge in others:
            if edge.target == ACCEPT:
                kind[p] |= ANYWHERE
            else:
                bits |= 1 << int(plan.bit[edge.target])
        exits[p] = bits
    every = sum(1 << b for b in set(plan.bit[kind > 0].tolist()))
    return Stars(np.uint64(every), kind, exits, first, last)


@kernel
def _holds_for_row(
    which, image, floats, depth, steps, place, start, row, begin, end, number, task, state
):  # fmt: skip
    """Whether a condition on the path holds for a row: 1, 0, or a negative error."""
    if which < 0:
        return np.int64(1)
    if steps > task.steps_max:
        state[ERROR_ROW] = start
        state[ERROR_DEPTH] = depth
        return -np.int64(BUDGET)
    truth = holds(
        image, floats, which, depth, depth, place, row, begin, end, number, np.bool_(False)
    )
    if truth < 0:
        state[ERROR_ROW] = row
        state[ERROR_DEPTH] = truth
        return -np.int64(OVERFLOW)
    return np.int64(truth)


@kernel
def _put_out(frame, top, group, start, number, task, state, output):
    """Output the match of the frames up to ``top``; as ``following_row``."""
    chosen = np.int64(-1)
    wanted = task.skip == TO_FIRST or task.skip == TO_LAST
    r = state[RUNS]
    before = np.int64(0)
    for at in range(4, top + 4, 4):
        p = frame[at]
        if p != before:
            output.row[r] = frame[at - 2]
            output.begin[r] = frame[at - 2] - start
            output.place[r] = p
            before = p
            r += 1
        if wanted and task.skip_member[p]:
            wanted = task.skip == TO_LAST
            chosen = frame[at + 2] - 1 if wanted else frame[at - 2]
    output.runs[state[MATCHES]] = r - state[RUNS]
    state[RUNS] = r
    length = frame[top + 2] - start
    begin_match(state, output, group, start, length, number, length)
    return following_row(start, length, chosen, task.skip)


@kernel
def match_contiguous(
    edges, stars, condition, image, floats, frame, visited, visited_words, known, rows, task,
    attempts, state, output,
):  # fmt: skip
    """Find the preferred matches of each group, from ``position`` on.
    ``condition``: empty where bits decide; else there are no stars.  ``frame``: scratch, four words
    each: place, cursor, upto, first candidate.  ``known``: scratch, per position the owner of the
    entry, and the row from which all candidates fail.  ``task.memo``: 0 conditions depend on the
    path; 1 no window, failed bits are cleared in ``words``; 2 failures are stored in ``visited``
    per start; 3 as 2, but for the whole group (no window).
    """
    _, target, flag, bit = edges
    star_bits, kind, exits, edges_from, edges_to = stars
    words, begins, ends, stops, position, seen, number, time = rows
    memo, final = task.memo, task.final
    one = np.uint64(1)
    groups = begins.shape[0]
    capacity = frame.shape[0] // 4 - 2
    image, floats = machine.borrowed(image), machine.borrowed(floats)
    conditional = condition.shape[0] > 0
    places = image[H_PATH]
    row_of = places + ROW_ROW * image[H_STRIDE]
    if conditional and not state[PAUSED]:
        begin_path(image)
    budget = task.slice_max
    waits_for_rows = attempts.start.shape[0] > 0
    for i in range(0 if state[PAUSED] else known.shape[0]):
        known[i] = -1
    for g in range(state[GROUP], groups):
        state[GROUP] = g
        begin = begins[g]
        end = ends[g]
        usable = search_end(begin, end, task)
        stop = min(usable, stops[g])
        s = position[g]
        reach = np.int64(-1)  # end of the stars of the current start
        while s < stop:
            if not task.empty_match:
                while s < stop and words[s] & task.first_bits == 0:
                    s += 1
                if s >= stop:
                    break
            horizon = horizon_of(time, s, task)
            waits = not final and task.now <= horizon
            ready = False  # whether `reach` is that of this start
            past = np.int64(-1)  # no candidates from here on
            open_end = False  # whether the window may contain rows to come
            owner = np.int64(-1)  # owner of valid entries of `known`
            # one attempt
            outcome = FAIL
            top = np.int64(0)  # offset of the top frame, in words
            marked = np.int64(0)
            deepest = np.int64(0)
            steps = np.int64(0)
            frame[0] = 0
            frame[1] = edges_from[0]
            frame[2] = s
            again = True  # whether the current edge is retried after resuming
            at = has_stack(attempts, g, s)
            if state[PAUSED]:
                top, frame[1], deepest, steps, walked, reach, past, waited, owner = resumed(state)
                ready, open_end = walked != 0, waited != 0
            elif at >= 0:
                top, marked, was_ready, walked, steps = restore_attempt(
                    attempts.stack, at, s, conditional, image, frame, known, visited, visited_words
                )
                if top < 0:
                    position[g] = s
                    return PATH_FULL
                if was_ready:
                    ready = True
                    reach, past = star_end(words, time, walked, usable, horizon, star_bits)
                    owner = s if memo == 2 else reach
                    if reach == usable:
                        open_end = time[usable] <= horizon if usable < end else waits
            pause_at = steps + task.slice_max
            while True:
                if memo == 0 and steps > pause_at:  # others take few states for each start
                    position[g] = s
                    return pause(state, (
                        top, frame[1], deepest, steps, np.int64(ready), reach, past,
                        np.int64(open_end), owner,
                    ))  # fmt: skip
                p = frame[top]
                c = frame[top + 1]
                row = frame[top + 2]
                if c == edges_to[p]:
                    if top == 0:
                        break
                    loop = kind[p]
                    if loop == 0:
                        if memo == 1:
                            words[row - 1] &= ~(one << np.uint64(bit[p]))
                        elif memo >= 2:
                            away = row - 1 - (s if memo == 2 else 0)
                            visited[away * visited_words + (p >> 6)] |= one << np.uint64(p & 63)
                            marked = max(marked, away + 1)
                        top -= 4
                        continue
                    # the next candidate
                    low = frame[top + 3]
                    wanted = exits[p]
                    limited = known[2 * p] == owner
                    if loop & GREEDY:
                        k = row - 1
                        if not loop & ANYWHERE:
                            while k >= low and words[k] & wanted == 0:
                                k -= 1
                        steps += row - k
                        known[2 * p + 1] = min(known[2 * p + 1], max(low, k + 1))
                        within = k >= low
                    else:
                        high = reach + 1 if loop & ANYWHERE else past
                        if limited:
                            high = min(high, known[2 * p + 1])
                        k = row + 1
                        if not loop & ANYWHERE:
                            while k < high and words[k] & wanted == 0:
                                k += 1
                        steps += k - row
                        within = k < high
                        if not within:
                            if not limited and open_end:
                                outcome = MORE
                                frame[top + 2] = k - 1  # no candidate up to there
                                again = False
                                break
                            known[2 * p] = owner
                            known[2 * p + 1] = min(low, high)
                    if within:
                        frame[top + 1] = edges_from[p]
                        frame[top + 2] = k
                    else:
                        top -= 4
                    continue
                frame[top + 1] = c + 1
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
                c = edges_from[q]
                k = row + 1
                loop = kind[q]
                if loop == 0:
                    if memo >= 2:
                        away = row - (s if memo == 2 else 0)
                        if memo == 2 and away >= capacity:
                            position[g] = s
                            return PATH_FULL
                        done = visited[away * visited_words + (q >> 6)]
                        if (done >> np.uint64(q & 63)) & one:
                            continue
                else:
                    if not ready:
                        ready = True
                        reach = max(reach, k)
                        walked = reach
                        reach, past = star_end(words, time, reach, usable, horizon, star_bits)
                        steps += reach - walked
                        owner = s if memo == 2 else reach
                        if reach == usable:
                            open_end = time[usable] <= horizon if usable < end else waits
                    # as if the candidate after the first one had failed
                    c = edges_to[q]
                    k = row
                    if loop & GREEDY:
                        if known[2 * q] != owner:
                            if open_end:
                                outcome = MORE
                                break
                            known[2 * q] = owner
                            known[2 * q + 1] = reach + 1 if loop & ANYWHERE else past
                        k = known[2 * q + 1]
                if conditional:
                    depth = top >> 2
                    truth = _holds_for_row(
                        condition[q], image, floats, depth, steps, q, s, row, begin, end,
                        number[g] + 1, task, state,
                    )  # fmt: skip
                    if truth < 0:
                        return -truth
                    if truth == 0:
                        continue
                top += 4
                if top >= 4 * capacity:
                    position[g] = s
                    return PATH_FULL
                if conditional:
                    depth = top >> 2
                    if extend_path(image, floats, depth - 1, depth, depth - 1, q, row):
                        state[ERROR_ROW] = row
                        state[ERROR_DEPTH] = 0
                        return OVERFLOW
                    image[row_of + depth - 1] = row
                    image[places + depth] = q
                    deepest = max(deepest, depth)
                frame[top] = q
                frame[top + 1] = c
                frame[top + 2] = k
                frame[top + 3] = row + 1
            saved = True
            if outcome == MORE and waits_for_rows:
                saved = save_attempt(
                    attempts, g, s, top, marked if memo == 2 else np.int64(0), np.int64(ready),
                    reach, steps, again, conditional, image, frame, known, visited, visited_words,
                )  # fmt: skip
            if memo == 2 and marked > 0:
                for i in range(marked * visited_words):
                    visited[i] = 0
            if memo == 0 and steps > task.steps_max:
                state[ERROR_ROW] = s
                state[ERROR_DEPTH] = deepest
                return BUDGET
            if outcome == MORE:
                if not saved:
                    position[g] = s
                    return STACKS_FULL
                break
            following = s + 1
            length = frame[top + 2] - s
            if outcome == MATCH and (length > 0 or task.empty_match):
                if not has_room(state, output, top // 4, length, task.labels_max):
                    position[g] = s
                    return OUTPUT_FULL
                number[g] += 1
                following = _put_out(frame, top, g, s, number[g], task, state, output)
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


@kernel
def match_sequence(bits, rows, task, room, state, output):
    """``match_contiguous`` where bits decide and event ``i`` of a match has position ``i + 1``,
    whose bit is ``bits[i]``.  Of a match only group, start and number are output, of ``room`` at
    most.
    """
    words, begins, ends, stops, position, _, numbers, time = rows
    length = bits.shape[0]
    member = np.int64(-1)  # the event that SKIP TO means
    for i in range(length):
        if task.skip_member[i + 1] and (member < 0 or task.skip == TO_LAST):
            member = i
    budget, count, status = task.slice_max, state[MATCHES], np.int64(DONE)
    for g in range(state[GROUP], begins.shape[0]):
        state[GROUP] = g
        end, number, s = ends[g], numbers[g], position[g]
        usable = search_end(begins[g], end, task)
        stop = min(usable, stops[g])
        while s < stop and status == DONE:
            if words[s] & bits[0] == 0:
                s += 1
                continue
            horizon = horizon_of(time, s, task)
            most = min(s + length, usable)
            row = s + 1
            while row < most and words[row] & bits[row - s] != 0 and time[row] <= horizon:
                row += 1
            following = s + 1
            if row == s + length:
                if count == room:
                    status = OUTPUT_FULL
                    break
                number += 1
                output.group[count] = g
                output.start[count] = s
                output.number[count] = number
                count += 1
                following = following_row(
                    s, length, s + member if member >= 0 else member, task.skip
                )
                if following < 0:
                    state[ERROR_ROW] = s
                    status = -following
                    break
            elif row >= usable:
                waits = not task.final and task.now <= horizon
                if time[row] <= horizon if row < end else waits:
                    break  # undecided
            budget -= row - s + 1
            s = following
            if budget < 0:
                status = SLICE
        numbers[g] = number
        position[g] = s
        if status != DONE:
            break
    if status == DONE:
        state[GROUP] = begins.shape[0]
    state[STEPS] += task.slice_max - budget
    state[MATCHES] = count
    return status
