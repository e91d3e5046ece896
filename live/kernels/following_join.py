"""Incremental join of two streams in a time window: a pair is found when its later event arrives.

Rows of one key form a chain, newest first: ``head`` is the newest row per key, ``before`` the
previous one per row::

    head[k] -> 17 -> 12 -> 5 -> -1

New rows of both sides, in time order, walk the other side's chain down to the first row that is too
old, then become the head of their own.  Each pair is found once (equal times: at the right row).
Cost: new rows and pairs; rows that are too recent for shifted bounds are skipped one by one.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from ...core.native import kernel
from .window_join import at_least, at_most

__all__ = ["chain", "fill_pairs", "follow"]


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
