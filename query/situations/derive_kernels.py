"""Kernels that derive runs of rows whose condition holds, for all names (bits of a word) at once.

::

    word of p   00 01 01 11 11 10 10 00          bit 0:     [2 .. 6)
    time         1  2  3  4  5  6  7  8          bit 1:        [4 .... 8)

A finished run is a row of ``out``: partition, name, first tick, last tick (the one before its end),
numbers of its first and last row, and whether earlier rows may belong to it.  A run ends at the
first row of its partition that does not satisfy, or one gap after its last row.  Runs of zero
length or outside their duration bounds are omitted.  A finished run has a last tick below ``OPEN``.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from ...core.native import kernel, trailing_zeros

__all__ = ["COLUMNS", "OPEN", "derive_runs", "expire_runs", "open_runs"]

OPEN = np.int64(2**63 - 1)
"""Last tick of an open run."""

COLUMNS = 7
GROUP, NAME, START, UNTIL, FIRST, LAST, CUT = range(COLUMNS)


@kernel
def span_of(begin, end):
    """``end - begin``, saturated; requires begin <= end."""
    # compiled code may assume that a signed difference does not overflow
    return OPEN if begin < 0 and end > OPEN + begin else end - begin


@kernel
def _room(out, count):
    """The same rows with room for at least one word more of them."""
    if count + 64 <= out.shape[0]:
        return out
    larger = np.empty((2 * out.shape[0] + 64, COLUMNS), np.int64)
    for i in range(count):
        for j in range(COLUMNS):
            larger[i, j] = out[i, j]
    return larger


@kernel
def _finish(out, count, g, bits, end, last, start, first, cut, least, most):
    """Output the runs of some names of a partition; returns the new row count."""
    one = np.uint64(1)
    while bits:
        p = trailing_zeros(bits)
        bit = one << np.uint64(p)
        bits &= bits - one
        length = span_of(start[g, p], end)
        if length > 0 and least[p] <= length <= most[p]:
            out[count, GROUP] = g
            out[count, NAME] = p
            out[count, START] = start[g, p]
            out[count, UNTIL] = end - 1  # the length is positive
            out[count, FIRST] = first[g, p]
            out[count, LAST] = last
            out[count, CUT] = np.int64(cut[g] & bit != 0)
            count += 1
    return count


@kernel
def derive_runs(
    order, begin, stop, words, time, base, gap, least, most,
    word, seen, last_time, last_row, start, first, cut, out,
):  # fmt: skip
    """Process a batch; returns ``out``, possibly reallocated, and its row count.  ``order``: rows
    by partition (empty: one partition), ``begin[g] .. stop[g]``; arrays from ``word`` on: state.
    """
    count = np.int64(0)
    one = np.uint64(1)
    zero = np.uint64(0)
    grouped = order.shape[0] > 0
    for g in range(begin.shape[0]):
        low = begin[g]
        high = stop[g]
        if low >= high:
            continue
        word_before = word[g]
        row_before = last_row[g]
        time_before = last_time[g]
        known = seen[g]
        k = low
        while k < high:
            if gap < 0:  # skip rows with an unchanged word
                if grouped:
                    while k < high and words[order[k]] == word_before:
                        k += 1
                else:
                    while k < high and words[k] == word_before:
                        k += 1
                if k == high:
                    break
                if k > low:
                    row_before = base + (order[k - 1] if grouped else k - 1)
            r = order[k] if grouped else k
            now = time[r]
            if gap >= 0 and known and word_before and span_of(time_before, now) > gap:
                out = _room(out, count)
                count = _finish(
                    out, count, g, word_before, time_before + gap, row_before, start, first, cut,
                    least, most,
                )  # fmt: skip
                word_before = zero
            changed = words[r] ^ word_before
            if changed:
                ended = changed & word_before
                if ended:
                    out = _room(out, count)
                    count = _finish(
                        out, count, g, ended, now, row_before, start, first, cut, least, most
                    )
                    cut[g] &= ~ended
                begun = changed & ~word_before
                if not known and k == low:
                    cut[g] |= begun
                while begun:
                    p = trailing_zeros(begun)
                    begun &= begun - one
                    start[g, p] = now
                    first[g, p] = base + r
                word_before = words[r]
            known = True
            time_before = now
            row_before = base + r
            k += 1
        r = order[high - 1] if grouped else high - 1
        word[g] = word_before
        seen[g] = True
        last_time[g] = time[r]
        last_row[g] = base + r
    return out, count


@kernel
def expire_runs(
    until, gap, least, most, word, last_time, last_row, start, first, cut, out
):  # fmt: skip
    """End the runs that no row has continued for a gap by ``until[g]``; as ``derive_runs``."""
    count = np.int64(0)
    for g in range(word.shape[0]):
        if word[g] and last_time[g] <= until[g] and span_of(last_time[g], until[g]) >= gap:
            out = _room(out, count)
            count = _finish(
                out, count, g, word[g], last_time[g] + gap, last_row[g], start, first, cut, least,
                most,
            )  # fmt: skip
            word[g] = np.uint64(0)
            cut[g] = np.uint64(0)
    return out, count


@kernel
def open_runs(until, oldest, known, least, most, word, last_row, start, first, cut, out):
    """Open runs begun at ``oldest[p]`` or later; ``known``: only if sure to count by ``until``."""
    count = np.int64(0)
    one = np.uint64(1)
    for g in range(word.shape[0]):
        bits = word[g]
        if bits:
            out = _room(out, count)
        while bits:
            p = trailing_zeros(bits)
            bit = one << np.uint64(p)
            bits &= bits - one
            began = start[g, p]
            if began < oldest[p] or began > until[g]:
                continue
            if known and (most[p] != OPEN or span_of(began, until[g]) < least[p]):
                continue
            out[count, GROUP] = g
            out[count, NAME] = p
            out[count, START] = began
            out[count, UNTIL] = OPEN
            out[count, FIRST] = first[g, p]
            out[count, LAST] = last_row[g]
            out[count, CUT] = np.int64(cut[g] & bit != 0)
            count += 1
    return out, count
