"""What every search is given and how it puts a match out: the frame around three inner loops.

Purpose
    :mod:`.contiguous`, :mod:`.jumping` and :mod:`.selection` walk through groups of rows in the
    same way and report matches in the same arrays; they differ in how an attempt goes on from one
    row to the next.  What they share is here: the bundles of arrays that they are called with, and
    the steps before and after an attempt.

Layout
    ::

        search(edges, <own scratch>, rows, task, state, output) -> why it returned

    Bundles are named tuples, which compiled code takes apart at no cost; their fields are arrays
    that keep their types from call to call.

Limits
    Kernels have the numbers of :mod:`.outcomes` compiled in.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from .horizons import horizon
from .outcomes import (
    LABELS,
    MATCHES,
    PAST_LAST,
    RUNS,
    SKIP_MISSING,
    SKIP_STUCK,
    TO_NEXT,
)

__all__ = [
    "Edges",
    "MatchTable",
    "Rows",
    "Task",
    "begin_match",
    "following_row",
    "has_room",
    "horizon_of",
    "search_end",
]

IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class Edges(NamedTuple):
    """The automaton: edges of position ``p`` are ``first[p] .. first[p + 1]``, preferred first.

    ``target`` and ``flag`` go with edges (see :mod:`.automaton`); ``bit[p]`` says which bit of a
    row's word belongs to position ``p``.
    """

    first: IntArray
    target: IntArray
    flag: IntArray
    bit: IntArray


class Rows(NamedTuple):
    """Rows sorted by partition: those of group ``g`` are ``begin[g] .. end[g]``.

    ``words[row]`` holds a row's bits.  ``position[g]`` is the next row at which a match may begin;
    it is read and written, so that a call can go on where the last one stopped.  No match is
    looked for that begins at ``stop[g]`` or behind.  ``seen``, ``number`` and ``time`` are those of
    :class:`.matcher.Groups`.
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
    """What is searched for, in numbers.

    ``window``: WITHIN in ticks, or -1.  ``now``: time of the newest row of the stream; ``final``:
    no rows will follow.  ``lookahead``: rows after a row that its conditions read.
    ``first_bits``: of the positions at which a match can begin; ``empty_match``: whether it can
    have no rows.  ``memo``: see the searches.  ``skip``, ``skip_member``: AFTER MATCH SKIP, and
    which positions SKIP TO means.  The last three are budgets: states tried from one start, matched
    rows of all matches that wait to be taken, and states until the call returns.
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
    """Matches found.

    Per match group, first row, length, number and runs; per run its first row, where that stands
    in the match, and position.
    """

    group: IntArray
    start: IntArray
    length: IntArray
    number: IntArray
    runs: IntArray
    row: IntArray
    begin: IntArray
    place: IntArray


@kernel
def search_end(begin, end, task):
    """End of the rows of a group whose conditions can be asked."""
    return end if task.final else max(begin, end - task.lookahead)


@kernel
def horizon_of(time, start, task):
    """Greatest tick of a match that begins at a row."""
    return horizon(time[start], task.window)


@kernel
def has_room(state, output, runs, labels, labels_max):
    """Whether another match can be put out."""
    return not (
        state[MATCHES] >= output.start.shape[0]
        or state[RUNS] + runs > output.row.shape[0]
        or state[LABELS] + labels > labels_max
    )


@kernel
def begin_match(state, output, group, start, length, number, labels):
    """Put a match out, whose runs follow; ``labels`` of its rows wait to be taken."""
    m = state[MATCHES]
    output.group[m] = group
    output.start[m] = start
    output.length[m] = length
    output.number[m] = number
    state[MATCHES] = m + 1
    state[LABELS] += labels


@kernel
def following_row(start, length, chosen, skip):
    """Where the search goes on after a match, or why it cannot, as a negative number.

    ``chosen``: the row that SKIP TO means, below the start when there is none.
    """
    if length == 0 or skip == TO_NEXT:
        return start + 1
    if skip == PAST_LAST:
        return start + length
    if chosen < 0:
        return -np.int64(SKIP_MISSING)
    if chosen <= start:
        return -np.int64(SKIP_STUCK)
    return chosen
