"""Joins in a time window: pairs of two streams whose times, and perhaps keys, fit.

Purpose
    ``b.t BETWEEN a.t - before AND a.t + behind`` (thesis, Definitions 2.12 and 2.13), with or
    without ``a.k = b.k``.

Layout
    Both sides come in the order of time.  Rows of the right side are grouped by key with a stable
    counting sort, so that those of one key are in the order of time, too; two cursors for each key
    then follow the left side, and what lies between them are its partners::

        left    t = 5  7 ...            right, key k   t = 1 3 | 4 6 9 | 11      low, high

    A pair is put out once, in the order of the left side, then of the right; pairs are counted
    first, so results have their room exactly.

Guarantee
    Without keys the work is that of the pairs; with keys that of the rows and the pairs.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...core.times import INT64_MAX, INT64_MIN

__all__ = ["Pairs", "at_least", "at_most", "join_near", "window_join"]

IntArray = npt.NDArray[np.int64]
MOST, LEAST = np.int64(INT64_MAX), np.int64(INT64_MIN)


class Pairs(NamedTuple):
    """Rows of the left and of the right side, pair by pair; ``right`` is -1 where there is none."""

    left: IntArray
    right: IntArray


@kernel
def at_least(tick, other, by):
    """Whether a tick is at least so many ticks behind another, however near both are to an end."""
    if by >= 0:
        return other <= MOST - by and tick >= other + by
    return other < LEAST - by or tick >= other + by


@kernel
def at_most(tick, other, by):
    """Whether a tick is at most so many ticks behind another."""
    if by >= 0:
        return other > MOST - by or tick <= other + by
    return other >= LEAST - by and tick <= other + by


@kernel
def _ranges(tick, code, by_key, first, right_tick, before, behind, low, high):
    """Per left row, its partners: ``by_key[low] .. by_key[high]``; how many pairs there are."""
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
    """Pairs with ``left - before <= right <= left + behind`` and equal codes.

    Parameters
    ----------
    left_tick, right_tick : int64 array
        Ascending.
    before, behind : int
        In ticks; negative ones shift the window.
    left_code, right_code : int64 array, optional
        Keys as dense numbers; a negative one has no partner.
    keep_left : bool
        Left rows without a partner are pairs with -1.
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
def join_near(columns, others, distance, tile, near, left, right):
    """Pairs of points nearer than a distance, tile by tile: answers first, then compaction.

    ``columns`` (attributes, rows) and ``others`` (attributes, rows); ``near`` is scratch of the
    tile's size.  Returns how many pairs there are; those beyond the room of ``left`` are counted.
    """
    limit = distance * distance
    n = 0
    for begin in range(0, others.shape[1], tile):
        end = min(others.shape[1], begin + tile)
        size = end - begin
        inside = near[:size]
        for i in range(columns.shape[1]):
            for a in range(columns.shape[0]):
                x = columns[a, i]
                other = others[a, begin:end]  # slices from 0 on: these loops run on vectors
                if a == 0:
                    for j in range(size):
                        d = other[j] - x
                        inside[j] = d * d
                else:
                    for j in range(size):
                        d = other[j] - x
                        inside[j] += d * d
            for j in range(size):
                if inside[j] < limit:
                    if n < left.shape[0]:
                        left[n] = i
                        right[n] = begin + j
                    n += 1
    return n
