"""Joins in a time window, optionally with equal keys (thesis, Definitions 2.12 and 2.13).

Both sides are in time order.  The right side is grouped by key (stable counting sort); two cursors
per key follow the left side, and the rows between them are its partners::

    left    t = 5  7 ...            right, key k   t = 1 3 | 4 6 9 | 11      low, high

Pairs are ordered by left, then right row; cost: pairs, plus rows if there are keys.

The incremental join finds a pair when its later event arrives.  Rows of one key form a chain,
newest first: ``head`` is the newest row per key, ``before`` the previous one per row::

    head[k] -> 17 -> 12 -> 5 -> -1

New rows of both sides, in time order, walk the other side's chain down to the first row that is too
old, then become the head of their own.  Each pair is found once (equal times: at the right row).
Cost: new rows and pairs; rows that are too recent for shifted bounds are skipped one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.native import kernel
from ..core.times import INT64_MAX, INT64_MIN

# mypy: disable-error-code="no-untyped-def"


IntArray = npt.NDArray[np.int64]
MOST, LEAST = np.int64(INT64_MAX), np.int64(INT64_MIN)


class Pairs(NamedTuple):
    """Row numbers; ``right`` is -1 without a partner."""

    left: IntArray
    right: IntArray


@kernel
def at_least(tick, other, by):
    """Whether ``tick >= other + by``, without overflow."""
    if by >= 0:
        return other <= MOST - by and tick >= other + by
    return other < LEAST - by or tick >= other + by


@kernel
def at_most(tick, other, by):
    """Whether ``tick <= other + by``, without overflow."""
    if by >= 0:
        return other > MOST - by or tick <= other + by
    return other >= LEAST - by and tick <= other + by


@kernel
def _ranges(tick, code, by_key, first, right_tick, before, behind, low, high):
    """Partners per left row, ``by_key[low] .. by_key[high]``; returns the number of pairs."""
    begin = first[:-1].copy()
    end = first[:-1].copy()
    total = 0
    for i in range(tick.shape[0]):
        k = code[i]
        low[i] = 0
        high[i] = 0
        if k < 0:
            continue
        b = begin[k]
        while b < first[k + 1] and not at_least(right_tick[by_key[b]], tick[i], -before):
            b += 1
        begin[k] = b
        e = max(end[k], b)
        while e < first[k + 1] and at_most(right_tick[by_key[e]], tick[i], behind):
            e += 1
        end[k] = e
        low[i] = b
        high[i] = e
        total += e - b
    return total


@kernel
def _fill(low, high, by_key, lonely, left, right):
    n = 0
    for i in range(low.shape[0]):
        for j in range(low[i], high[i]):
            left[n] = i
            right[n] = by_key[j]
            n += 1
        if lonely and low[i] >= high[i]:
            left[n] = i
            right[n] = -1
            n += 1


@kernel
def _group(code, first, out):
    for i in range(code.shape[0]):
        if code[i] >= 0:
            first[code[i] + 1] += 1
    for k in range(1, first.shape[0]):
        first[k] += first[k - 1]
    cursor = first.copy()
    for i in range(code.shape[0]):
        if code[i] >= 0:
            out[cursor[code[i]]] = i
            cursor[code[i]] += 1


def window_join(
    left_tick: IntArray,
    right_tick: IntArray,
    before: int,
    behind: int,
    left_code: IntArray | None = None,
    right_code: IntArray | None = None,
    *,
    keep_left: bool = False,
) -> Pairs:
    """Pairs with ``left - before <= right <= left + behind`` (ticks) and equal codes; negative ones
    have none.  ``keep_left``: left rows without a partner pair with -1.
    """
    left_code = np.zeros(len(left_tick), np.int64) if left_code is None else left_code
    right_code = np.zeros(len(right_tick), np.int64) if right_code is None else right_code
    codes = 1 + max(int(left_code.max(initial=0)), int(right_code.max(initial=0)))
    first = np.zeros(codes + 1, np.int64)
    by_key = np.zeros(len(right_tick), np.int64)
    _group(right_code, first, by_key)
    low, high = np.zeros(len(left_tick), np.int64), np.zeros(len(left_tick), np.int64)
    total = _ranges(left_tick, left_code, by_key, first, right_tick, before, behind, low, high)
    if keep_left:
        total += int((low >= high).sum())
    pairs = Pairs(np.empty(total, np.int64), np.empty(total, np.int64))
    _fill(low, high, by_key, keep_left, *pairs)
    return pairs


@kernel
def chain(code, head, before):
    """Add rows, in time order, to the chains of their keys; negative codes have none."""
    for i in range(code.shape[0]):
        before[i] = -1
        if code[i] >= 0:
            before[i] = head[code[i]]
            head[code[i]] = i


@kernel
def follow(
    left_tick, left_code, left_head, left_before, right_tick, right_code, right_head, right_before,
    left_old, right_old, before, behind, left_from, right_from,
):  # fmt: skip
    """Add rows from ``left_old`` and ``right_old`` on; the number of pairs, and per new row its
    first partner (-1: none) in ``left_from`` and ``right_from`` for ``fill_pairs``.
    """
    i, j = left_old, right_old
    pairs = 0
    while i < left_tick.shape[0] or j < right_tick.shape[0]:
        from_left = j >= right_tick.shape[0] or (
            i < left_tick.shape[0] and left_tick[i] <= right_tick[j]
        )
        if from_left:
            k = left_code[i]
            left_from[i - left_old] = -1
            if k >= 0:
                x = right_head[k]
                while x >= 0 and not at_most(right_tick[x], left_tick[i], behind):
                    x = right_before[x]
                left_from[i - left_old] = x
                while x >= 0 and at_least(right_tick[x], left_tick[i], -before):
                    pairs += 1
                    x = right_before[x]
                left_before[i] = left_head[k]
                left_head[k] = i
            i += 1
        else:
            k = right_code[j]
            right_from[j - right_old] = -1
            if k >= 0:
                x = left_head[k]
                while x >= 0 and not at_most(left_tick[x], right_tick[j], before):
                    x = left_before[x]
                right_from[j - right_old] = x
                while x >= 0 and at_least(left_tick[x], right_tick[j], -behind):
                    pairs += 1
                    x = left_before[x]
                right_before[j] = right_head[k]
                right_head[k] = j
            j += 1
    return pairs


@kernel
def fill_pairs(
    left_tick, left_before, right_tick, right_before, left_old, right_old, before, behind,
    left_from, right_from, left, right,
):  # fmt: skip
    """The pairs that ``follow`` counted."""
    n = 0
    for i in range(left_from.shape[0]):
        tick = left_tick[left_old + i]
        x = left_from[i]
        while x >= 0 and at_least(right_tick[x], tick, -before):
            left[n] = left_old + i
            right[n] = x
            n += 1
            x = right_before[x]
    for j in range(right_from.shape[0]):
        tick = right_tick[right_old + j]
        x = right_from[j]
        while x >= 0 and at_least(left_tick[x], tick, -behind):
            left[n] = x
            right[n] = right_old + j
            n += 1
            x = left_before[x]
    return n
