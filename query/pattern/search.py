"""What the kernels ``contiguous`` and ``selection`` share: arguments, codes, WITHIN.

``search(edges, <own scratch>, rows, task, state, output)`` returns a status.  Arguments are named
tuples, which compiled code unpacks at no cost; array types must not vary between calls.  Compiled
code may assume that signed arithmetic does not overflow, so kernels never subtract ticks: windows
are compared exactly for all 64-bit ticks.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...errors import SqlError

# Status of a call
(
    DONE, OUTPUT_FULL, PATH_FULL, BUDGET, SLICE, OVERFLOW, SKIP_MISSING, SKIP_STUCK, STACKS_FULL,
) = range(9)  # fmt: skip
# Entries of the state array; LABELS: labelled rows in the output; PAUSED: whether the search of one
# start was interrupted, whose variables stand from WALK on
GROUP, MATCHES, RUNS, ERROR_ROW, STEPS, ERROR_DEPTH, LABELS, PAUSED, WALK = range(9)
STATE_WORDS = WALK + 9
# Result of an attempt
FAIL, MATCH, MORE = range(3)
# AFTER MATCH SKIP
PAST_LAST, TO_NEXT, TO_FIRST, TO_LAST = range(4)


def overflow(text: str, where: str) -> SqlError:
    """The error for ``OVERFLOW``; ``where``: the event."""
    return SqlError(
        f"a condition of pattern {text} overflows its integers or divides by zero {where}"
    )


LATEST = np.int64(2**63 - 1)
"""The greatest tick.  Events may have it, so it is a sentinel only in minima."""


@kernel
def horizon(tick, window):
    """Greatest tick of a match that begins at ``tick``; ``window`` is negative without WITHIN."""
    return LATEST if window < 0 or tick > LATEST - window else tick + window


@kernel
def within(first, last, window):
    """Whether a match may span from ``first`` to ``last`` (first <= last)."""
    return last <= horizon(first, window)


IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class Edges(NamedTuple):
    """Edges of position ``p``: ``first[p] .. first[p + 1]``, preferred first; ``bit``: its bit."""

    first: IntArray
    target: IntArray
    flag: IntArray
    bit: IntArray


class Rows(NamedTuple):
    """Rows of group ``g`` are ``begin[g] .. end[g]``.  ``position[g]``: next row at which a match
    may begin; updated, so that calls can be resumed; ``stop[g]``: where to stop.
    """

    words: Words
    begin: IntArray
    end: IntArray
    stop: IntArray
    position: IntArray
    seen: npt.NDArray[np.bool_]
    number: IntArray
    time: IntArray


class Task(NamedTuple):
    """What is searched.  ``window``: WITHIN in ticks, or -1.  ``now``: newest tick of the stream.
    ``first_bits``: of first positions.  ``memo``: see the searches.  ``skip_member``: positions of
    SKIP TO.  Budgets: states per start, labelled rows per batch, states per call.
    """

    window: Any
    now: Any
    final: bool
    lookahead: int
    first_bits: Any
    empty_match: bool
    memo: int
    skip: int
    skip_member: npt.NDArray[np.bool_]
    steps_max: int
    labels_max: int
    slice_max: int


class MatchTable(NamedTuple):
    """Per match group, first row, length, number, runs; per run first row, its index, position."""

    group: IntArray
    start: IntArray
    length: IntArray
    number: IntArray
    runs: IntArray
    row: IntArray
    begin: IntArray
    place: IntArray


@kernel
def pause(state, walk):
    """Keep the variables of a walk; the call returns ``SLICE``, and the next one goes on."""
    state[PAUSED] = 1
    for i in range(len(walk)):
        state[WALK + i] = walk[i]
    return np.int64(SLICE)


@kernel
def resumed(state):
    state[PAUSED] = 0
    return (
        state[WALK], state[WALK + 1], state[WALK + 2], state[WALK + 3], state[WALK + 4],
        state[WALK + 5], state[WALK + 6], state[WALK + 7], state[WALK + 8],
    )  # fmt: skip


@kernel
def search_end(begin, end, task):
    """End of the rows of a group whose conditions can be evaluated."""
    return end if task.final else max(begin, end - task.lookahead)


@kernel
def horizon_of(time, start, task):
    """Greatest tick of a match that begins at row ``start``."""
    return horizon(time[start], task.window)


@kernel
def has_room(state, output, runs, labels, labels_max):
    """Whether another match fits the output."""
    return not (
        state[MATCHES] >= output.start.shape[0]
        or state[RUNS] + runs > output.row.shape[0]
        or state[LABELS] + labels > labels_max
    )


@kernel
def begin_match(state, output, group, start, length, number, labels):
    """Append a match, whose runs follow; ``labels``: its labelled rows."""
    m = state[MATCHES]
    output.group[m] = group
    output.start[m] = start
    output.length[m] = length
    output.number[m] = number
    state[MATCHES] = m + 1
    state[LABELS] += labels


@kernel
def following_row(start, length, chosen, skip):
    """Where the search continues after a match, or a negative error; ``chosen``: SKIP TO row."""
    if length == 0 or skip == TO_NEXT:
        return start + 1
    if skip == PAST_LAST:
        return start + length
    if chosen < 0:
        return -np.int64(SKIP_MISSING)
    if chosen <= start:
        return -np.int64(SKIP_STUCK)
    return chosen
