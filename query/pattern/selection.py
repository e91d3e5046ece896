"""Search for EVENT SELECTION: every set of events that is a match.

A match is a set of events (thesis, Definitions 2.15-2.17): two labelings of the same events count
once.  A *frame* is an event of the current set; its *threads* are the labelings, preferred first,
each a column of the path (``image``) with a parent in the previous frame.  Where no condition
depends on the path, threads at the same position are merged.

==========  ===========================================================================
contiguous  the next event is the next row
next        a thread takes the first row that satisfies anything it could continue with
any         a thread takes each row in turn that satisfies something it could continue with
==========  ===========================================================================

Each set is output once, with the labeling that the pattern prefers; sets of one first event are in
lexicographic order.  ``[^X]`` tests only skipped rows; at the end of the pattern, the rows after
the set until its window ends.  All sets of one first event must fit the output, because a start
with an incomplete window is rolled back.  Their number can be exponential; ``steps_max`` bounds
each start.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from . import machine
from .machine import H_PATH, H_STRIDE, ROW_PARENT, ROW_ROW, begin_path, extend_path, holds
from .search import (
    BUDGET,
    DONE,
    ERROR_DEPTH,
    ERROR_ROW,
    GROUP,
    MATCHES,
    OUTPUT_FULL,
    OVERFLOW,
    PATH_FULL,
    PAUSED,
    RUNS,
    SLICE,
    STEPS,
    begin_match,
    has_room,
    horizon_of,
    pause,
    resumed,
    search_end,
)

CONTIGUOUS, SKIP_NEXT, SKIP_ANY = range(3)


class Strategy(NamedTuple):
    """How events are selected.
    ``merge``: threads at one position are merged.  ``follow[p]``: bits of the successors of ``p``
    (all ones when bits are not positions).  ``start_words``: pruned bits for first rows; under SKIP
    TILL NEXT the rows' own words must not be pruned, because an event that leads nowhere still must
    not be skipped.  ``fresh``: empty, or per group the first new row; then only sets that end with
    a new row are output and none waits.  For contiguous sets: ``longest``: output only the longest
    set of each first row; ``taken``: empty, or whether a set ends at a row; then only the first set
    of each last row is output, which is the longest because starts ascend.
    """

    kind: int
    merge: bool
    follow: npt.NDArray[np.uint64]
    start_words: npt.NDArray[np.uint64]
    absent: npt.NDArray[np.int64]
    fresh: npt.NDArray[np.int64]
    longest: bool
    taken: npt.NDArray[np.bool_]


@kernel
def _put_out(state, output, task, image, g, s, depth, thread, number):
    """Output the first ``depth`` rows of the path as labeled by a thread; False: no room."""
    if not has_room(state, output, depth, np.int64(0), task.labels_max):
        return False
    threads = image[H_STRIDE]
    places = image[H_PATH]
    parents = places + ROW_PARENT * threads
    row_of = places + ROW_ROW * threads
    number[g] += 1
    r = state[RUNS]
    for i in range(depth - 1, -1, -1):
        output.row[r + i] = image[row_of + i]
        output.begin[r + i] = i
        output.place[r + i] = image[places + thread]
        thread = image[parents + thread]
    output.runs[state[MATCHES]] = depth
    state[RUNS] = r + depth
    begin_match(state, output, g, s, depth, number[g], np.int64(0))
    return True


@kernel
def match_selected(
    edges, condition, image, floats, frame, thread_done, stamp, strategy, rows, task, state, output
):  # fmt: skip
    """Find every match of each group under a strategy.
    ``frame``: (4, frames) scratch: first thread, end of threads, next row, absences seen.
    """
    first, target, flag, bit = edges
    words, begins, ends, stops, position, seen, number, time = rows
    kind, merge, follow, start_words, absent, fresh_rows, longest, taken = strategy
    incremental = taken.shape[0] > 0
    final = task.final
    one = np.uint64(1)
    groups = begins.shape[0]
    frames = frame.shape[1]
    threads = image[H_STRIDE]
    places = image[H_PATH]
    parents = places + ROW_PARENT * threads
    row_of = places + ROW_ROW * threads
    budget = task.slice_max
    stamps = np.int64(0)
    stamp[:] = 0
    image, floats = machine.borrowed(image), machine.borrowed(floats)
    conditional = False
    for p in range(condition.shape[0]):
        conditional |= condition[p] >= 0
    if conditional and not state[PAUSED]:
        begin_path(image)
    for g in range(state[GROUP], groups):
        state[GROUP] = g
        begin = begins[g]
        end = ends[g]
        usable = search_end(begin, end, task)
        stop = min(usable, stops[g])
        s = position[g]
        fresh = fresh_rows[g] if g < fresh_rows.shape[0] else np.int64(-1)
        while s < stop:
            while s < stop and start_words[s] & task.first_bits == 0:
                s += 1
            if s >= stop:
                break
            horizon = horizon_of(time, s, task)
            waits = not final and task.now <= horizon and fresh < 0
            match_count = state[MATCHES]
            run_count = state[RUNS]
            last_number = number[g]
            more = False
            steps = np.int64(0)
            longest_thread = np.int64(-1)
            longest_depth = np.int64(0)
            # number of events in the set; frame `depth` is its last one, frame 0 the entry
            depth = np.int64(0)
            if state[PAUSED]:
                (
                    depth, steps, match_count, run_count, last_number, longest_thread,
                    longest_depth, _, _,
                ) = resumed(state)  # fmt: skip
            else:
                thread_done[0] = 0
                frame[0, 0] = 0
                frame[1, 0] = 1
                frame[2, 0] = s
                frame[3, 0] = 0
            pause_at = steps + task.slice_max
            while depth >= 0 and not more:
                if steps > pause_at:
                    position[g] = s
                    return pause(state, (
                        depth, steps, match_count, run_count, last_number, longest_thread,
                        longest_depth,
                    ))  # fmt: skip
                low = frame[0, depth]
                high = frame[1, depth]
                x = frame[2, depth]
                # find the next row for this frame
                reach = x
                if depth == 0 and x > s:
                    depth -= 1
                    continue
                if kind == CONTIGUOUS and depth > 0 and x > image[row_of + depth - 1] + 1:
                    depth -= 1
                    continue
                wanted = np.uint64(0)
                alive = False
                for t in range(low, high):
                    if thread_done[t] == 0:
                        alive = True
                        wanted |= follow[image[places + t]]
                if not alive or wanted == 0:
                    depth -= 1
                    continue
                contiguous = kind == CONTIGUOUS or depth == 0
                if not contiguous:
                    while reach < usable and time[reach] <= horizon and words[reach] & wanted == 0:
                        frame[3, depth] |= absent[reach]
                        reach += 1
                        steps += 1
                if reach >= usable:
                    if fresh < 0 and (time[reach] <= horizon if reach < end else waits):
                        more = True
                    depth -= 1
                    continue
                if time[reach] > horizon:
                    depth -= 1
                    continue
                x = reach
                frame[2, depth] = x + 1
                passed = frame[3, depth]
                frame[3, depth] = passed | absent[x]
                # threads that take row x
                stamps += 1
                top = high
                for t in range(low, high):
                    if thread_done[t]:
                        continue
                    p = image[places + t]
                    satisfied = False
                    for c in range(first[p], first[p + 1]):
                        q = target[c]
                        if q < 0:
                            continue
                        if (words[x] >> np.uint64(bit[q])) & one == 0:
                            continue
                        steps += 1
                        if conditional:
                            which = condition[q]
                            if which >= 0:
                                truth = holds(
                                    image, floats, which, t, depth, q, x, begin, end,
                                    number[g] + 1, np.bool_(True),
                                )  # fmt: skip
                                if truth < 0:
                                    state[ERROR_ROW] = x
                                    state[ERROR_DEPTH] = truth
                                    return OVERFLOW
                                if truth == 0:
                                    continue
                        satisfied = True
                        flags = flag[c]
                        if flags & 1 and (x != begin or seen[g]):
                            continue
                        if flags & 2:  # no event follows the end of the partition
                            continue
                        if (flags >> 2) & passed:
                            continue
                        if merge:
                            if stamp[q] == stamps:
                                continue
                            stamp[q] = stamps
                        if top >= threads:
                            state[MATCHES] = match_count
                            state[RUNS] = run_count
                            number[g] = last_number
                            position[g] = s
                            return PATH_FULL
                        if conditional and extend_path(image, floats, t, top, depth, q, x):
                            state[ERROR_ROW] = x
                            state[ERROR_DEPTH] = 0
                            return OVERFLOW
                        image[places + top] = q
                        image[parents + top] = t
                        thread_done[top] = 0
                        top += 1
                    if satisfied and kind == SKIP_NEXT:
                        thread_done[t] = 1
                if steps > task.steps_max:
                    state[ERROR_ROW] = s
                    state[ERROR_DEPTH] = depth
                    return BUDGET
                if top == high:
                    continue
                if depth + 2 >= frames:
                    state[MATCHES] = match_count
                    state[RUNS] = run_count
                    number[g] = last_number
                    position[g] = s
                    return PATH_FULL
                image[row_of + depth] = x
                depth += 1
                frame[0, depth] = high
                frame[1, depth] = top
                frame[2, depth] = x + 1
                frame[3, depth] = 0
                # if the set is a match, the first thread that may stop labels it
                chosen = np.int64(-1)
                for t in range(high, top if x >= fresh else high):
                    p = image[places + t]
                    for c in range(first[p], first[p + 1]):
                        if target[c] >= 0:
                            continue
                        flags = flag[c]
                        if flags & 1:
                            continue
                        if flags & 2:
                            if x + 1 < end:
                                continue
                            if not final:
                                more = True
                                continue
                        if flags >> 2:  # absent until the window ends
                            y = x + 1
                            while (
                                y < usable and time[y] <= horizon and absent[y] & (flags >> 2) == 0
                            ):
                                y += 1
                                steps += 1
                            if y < usable:
                                if time[y] <= horizon:
                                    continue
                            elif time[y] <= horizon if y < end else waits:
                                more = True
                                continue
                        chosen = t
                        break
                    if chosen >= 0:
                        break
                if more:
                    break
                if chosen < 0 or (incremental and taken[x]):
                    continue
                if longest:  # output after the walk, when no longer set was found
                    longest_thread = chosen
                    longest_depth = depth
                elif not _put_out(state, output, task, image, g, s, depth, chosen, number):
                    state[MATCHES] = match_count
                    state[RUNS] = run_count
                    number[g] = last_number
                    position[g] = s
                    return OUTPUT_FULL
            if more:
                state[MATCHES] = match_count
                state[RUNS] = run_count
                number[g] = last_number
                break
            if longest_thread >= 0 and not _put_out(
                state, output, task, image, g, s, longest_depth, longest_thread, number
            ):
                position[g] = s
                return OUTPUT_FULL
            if incremental:
                ended = run_count
                for i in range(match_count, state[MATCHES]):
                    ended += output.runs[i]
                    taken[output.row[ended - 1]] = True
            s += 1
            position[g] = s
            budget -= steps + 1
            state[STEPS] += steps + 1
            if budget < 0:
                return SLICE
        position[g] = s
    state[GROUP] = groups
    return DONE
