"""Kernels that join rows: for each condition between two variables, the pairs that satisfy it.

``join`` tests each pair in a window once; ``narrow`` clears rows without partners.  A pair is
stored if and only if ``machine.holds`` is true for it.  Partners of row ``x`` are
``partner[first[x] .. first[x + 1]]``, later rows in order.  Encoding of a condition::

    kind     EQUAL     lookup by the keys of both sides
             COMPARE   comparison of two columns of the image
             PROGRAM   bytecode
    number   of its bytecode
    op, x, y, turned, negated    COMPARE: operator; columns of both rows; whether y is the left
                                 operand; whether the result is negated
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel, trailing_zeros
from . import functions
from .functions import value_at
from .image import H_FIRST_N, H_LAST_N, H_PATH, H_STRIDE, ROW_LAST, ROW_ROW
from .machine import EQ_F, LE_F, LE_I, LT_F, LT_I, holds
from .search import horizon_of

__all__ = [
    "COMPARE",
    "EQUAL",
    "FAILED",
    "PROGRAM",
    "Buffer",
    "ask",
    "count_by_place",
    "first_of_rows",
    "join",
    "know",
    "narrow",
    "rows_by_place",
]

IntArray = npt.NDArray[np.int64]

EQUAL, COMPARE, PROGRAM = range(3)
KIND, NUMBER, OP, X_COLUMN, Y_COLUMN, TURNED, NEGATED = range(7)
FAILED = -1
"""A condition cannot be computed."""
NEXT, USED, TESTED, LOW = range(4)


class Buffer(NamedTuple):
    """What conditions read: the image as integers and as floats, and the ends of the partitions."""

    image: IntArray
    floats: npt.NDArray[np.float64]
    offsets: IntArray


@kernel
def count_by_place(words, count):
    """Count the rows of each position; bit 0 is position 1."""
    one = np.uint64(1)
    for r in range(words.shape[0]):
        rest = words[r]
        while rest:
            count[trailing_zeros(rest) + 1] += 1
            rest &= rest - one


@kernel
def rows_by_place(words, place, row):
    """Rows of bit ``i`` as ``row[place[i + 1] .. place[i + 2]]`` (bit 0 is position 1); False when
    ``row`` is too small.
    """
    place[:] = 0
    one = np.uint64(1)
    for r in range(words.shape[0]):
        rest = words[r]
        while rest:
            place[trailing_zeros(rest) + 2] += 1
            rest &= rest - one
    for i in range(1, place.shape[0]):
        place[i] += place[i - 1]
    if place[-1] > row.shape[0]:
        return False
    at = place[1:].copy()
    for r in range(words.shape[0]):
        rest = words[r]
        while rest:
            i = trailing_zeros(rest)
            row[at[i]] = r
            at[i] += 1
            rest &= rest - one
    return True


@kernel
def first_of_rows(rows, counts, begun, first):
    """Fill ``first`` for all rows from the pair counts of some; first pair: ``begun``."""
    at = 0
    for i in range(rows.shape[0]):
        first[at : rows[i] + 1] = begun
        at = rows[i] + 1
        begun += counts[i]
    first[at:] = begun


@kernel
def know(image, last, first):
    """Initialise a path on which slot ``s`` is the row at depth ``s``, and its trackers."""
    stride = image[H_STRIDE]
    at = image[H_PATH] + ROW_LAST * stride
    for i in range(image[H_LAST_N]):
        image[at + i * stride] = last[i]
    at += image[H_LAST_N] * stride
    for i in range(image[H_FIRST_N]):
        image[at + i * stride] = first[i]


@kernel
def compare(op, image, floats, left, x, right, y):
    """Compare two values: 1 or 0, -2 where one is null, -1 when not computable."""
    a_i, a_f, a_null = value_at(image, floats, left, x)
    b_i, b_f, b_null = value_at(image, floats, right, y)
    if a_null or b_null:
        return -1 if max(a_null, b_null) == 2 else -2
    if op == LT_F:
        truth = a_f < b_f or (b_f != b_f and a_f == a_f)
    elif op == LE_F:
        truth = a_f <= b_f or b_f != b_f
    elif op == EQ_F:
        truth = a_f == b_f or (a_f != a_f and b_f != b_f)
    elif op == LT_I:
        truth = a_i < b_i
    elif op == LE_I:
        truth = a_i <= b_i
    else:
        truth = a_i == b_i
    return np.int64(truth)


@kernel
def ask(spec, image, floats, depth, place, x, y, begin, end):
    """Whether a condition holds for row ``y``: 1, 0, or ``FAILED``; ``x``: its only other row."""
    if spec[KIND] != PROGRAM:
        if spec[TURNED]:
            truth = compare(spec[OP], image, floats, spec[Y_COLUMN], y, spec[X_COLUMN], x)
        else:
            truth = compare(spec[OP], image, floats, spec[X_COLUMN], x, spec[Y_COLUMN], y)
        if truth == -1:
            return FAILED
        if truth < 0:
            return 0
        return 1 - truth if spec[NEGATED] else truth
    truth = holds(
        image, floats, spec[NUMBER], np.int64(0), depth, place, y, begin, end, np.int64(0),
        np.bool_(True),
    )  # fmt: skip
    return FAILED if truth < 0 else truth


@kernel
def first_behind(rows, low, row):
    """Binary search in ascending rows, from ``low`` on: first entry after ``row``."""
    high = rows.shape[0]
    while low < high:
        middle = (low + high) // 2
        if rows[middle] > row:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def first_key(keys, key):
    """Binary search in ascending keys: first entry that is not below ``key``."""
    low = np.int64(0)
    high = keys.shape[0]
    while low < high:
        middle = (low + high) // 2
        if keys[middle] >= key:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def join(spec, asking, slot, depth, place, left, groups, right, key, keys, keyed, time, task,
         budget, progress, counts, partner):  # fmt: skip
    """Continue joining ``left`` (in ``groups``) and ``right``; 1: done, 0: out of room or budget,
    or FAILED.  EQUAL: ``key`` per entry of ``left`` or negative; sorted ``keys`` of ``right`` and
    their rows ``keyed``.  ``progress``: next entry of ``left``, pairs, tests, first entry of
    ``right`` to try.
    """
    image, floats, offsets = asking
    image, floats = functions.borrowed(image), functions.borrowed(floats)
    row_of = image[H_PATH] + ROW_ROW * image[H_STRIDE]
    used = progress[USED]
    low = progress[LOW]
    tested = np.int64(0)
    for i in range(progress[NEXT], left.shape[0]):
        if tested > budget:
            progress[NEXT] = i
            progress[USED] = used
            progress[LOW] = low
            progress[TESTED] += tested
            return 0
        x = np.int64(left[i])
        begin = offsets[groups[i]]
        end = offsets[groups[i] + 1]
        horizon = horizon_of(time, x, task)
        if spec[KIND] == PROGRAM:
            image[row_of + slot] = x
        before = used
        equal = spec[KIND] == EQUAL
        if equal:
            if key[i] < 0:
                counts[i] = 0
                continue
            j = first_key(keys, key[i])
            j = first_behind(keyed[: first_key(keys, key[i] + 1)], j, x)
        else:
            while low < right.shape[0] and right[low] <= x:
                low += 1
            j = low
        stop = keyed.shape[0] if equal else right.shape[0]
        while j < stop:
            if equal:
                if keys[j] != key[i]:
                    break
                y = keyed[j]
            else:
                y = right[j]
            if y >= end or time[y] > horizon:
                break
            tested += 1
            truth = np.int64(1)
            if not equal:
                truth = ask(spec, image, floats, depth, place, x, y, begin, end)
                if truth < 0:
                    return FAILED
            if truth:
                if used == partner.shape[0]:
                    progress[NEXT] = i
                    progress[USED] = before
                    progress[LOW] = low
                    progress[TESTED] += tested
                    return 0
                partner[used] = y
                used += 1
            j += 1
        counts[i] = used - before
    progress[NEXT] = left.shape[0]
    progress[USED] = used
    progress[TESTED] += tested
    return 1


@kernel
def narrow(words, p, q, must, left, groups, first, partner, right, known, time, task, mark):
    """Clear position ``p`` of rows without a partner at ``q``, and vice versa; returns the bits
    cleared.  ``must``: matches with ``p`` have ``q``; a row stays while its partner may arrive,
    after ``known``.
    """
    one = np.uint64(1)
    own = one << np.uint64(p - 1)
    other = one << np.uint64(q - 1)
    cleared = 0
    for i in range(left.shape[0]):
        x = left[i]
        if words[x] & own == 0:
            continue
        found = False
        for j in range(first[x], first[x + 1]):
            y = partner[j]
            if words[y] & other:
                mark[y] = 1
                found = True
        complete = task.final or horizon_of(time, x, task) < known[groups[i]]
        if not found and must and complete:
            words[x] &= ~own
            cleared += 1
    for i in range(right.shape[0]):
        y = right[i]
        if words[y] & other and mark[y] == 0:
            words[y] &= ~other
            cleared += 1
        mark[y] = 0
    return cleared
