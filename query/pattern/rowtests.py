"""Kernels for row-local conditions: tests set the bits of one word per row, pruning clears them.

A test clears the bits in ``bits`` of every row that fails it; nulls satisfy nothing, so the caller
adds a TRUE_B test on the validity of each nullable column.

=========  =================================================================
RANGE_F    ``low <= column <= high``; NaN (the greatest value) by ``flag``
RANGE_I    ``low <= column <= high``
TRUE_B     the boolean column ``a`` holds
COMPARE_F  column ``a`` op column ``b``, NaN equal to itself and greatest
COMPARE_I  column ``a`` op column ``b``
=========  =================================================================
"""

# ruff: noqa: SIM109
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from ...core.native import kernel, trailing_zeros
from .horizons import LATEST, within

__all__ = [
    "COMPARE_F",
    "COMPARE_I",
    "EQ",
    "GE",
    "GT",
    "LE",
    "LT",
    "NE",
    "RANGE_F",
    "RANGE_I",
    "TRUE_B",
    "feasible",
    "feasible_any",
    "run_tests",
]

RANGE_F, RANGE_I, TRUE_B, COMPARE_F, COMPARE_I = range(5)
LT, LE, GT, GE, EQ, NE = range(6)
BLOCK = 2048


@kernel
def run_tests(floats, integers, booleans, spec, low_f, high_f, low_i, high_i, bits, initial, words):
    """Set ``words`` to ``initial`` without the bits of failed tests.
    ``spec``: (tests, 4) int64: kind, column a, column b or flag, operator.
    """
    n = words.shape[0]
    ok = np.empty(BLOCK, np.bool_)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        size = stop - start
        word = words[start:stop]
        word[:] = initial
        for t in range(spec.shape[0]):
            kind = spec[t, 0]
            a = spec[t, 1]
            b = spec[t, 2]
            op = spec[t, 3]
            failed = ~bits[t]
            if kind == RANGE_F:
                low = low_f[t]
                high = high_f[t]
                x = floats[a, start:stop]
                if b:
                    for i in range(size):
                        ok[i] = not (x[i] < low)
                else:
                    for i in range(size):
                        ok[i] = (x[i] >= low) & (x[i] <= high)
            elif kind == RANGE_I:
                lo = low_i[t]
                hi = high_i[t]
                y = integers[a, start:stop]
                for i in range(size):
                    ok[i] = (y[i] >= lo) & (y[i] <= hi)
            elif kind == TRUE_B:
                z = booleans[a, start:stop]
                for i in range(size):
                    ok[i] = z[i]
            elif kind == COMPARE_F:
                # a > b is b < a, and a >= b is not a < b: one loop instead of four
                flipped = op == GT or op == LE
                wanted = op == LT or op == GT or op == EQ
                x = floats[b if flipped else a, start:stop]
                w = floats[a if flipped else b, start:stop]
                if op == EQ or op == NE:
                    for i in range(size):
                        same = (x[i] == w[i]) | ((x[i] != x[i]) & (w[i] != w[i]))
                        ok[i] = same == wanted
                else:
                    for i in range(size):
                        less = (x[i] < w[i]) | ((w[i] != w[i]) & (x[i] == x[i]))
                        ok[i] = less == wanted
            else:
                flipped = op == GT or op == LE
                wanted = op == LT or op == GT or op == EQ
                y = integers[b if flipped else a, start:stop]
                v = integers[a if flipped else b, start:stop]
                if op == EQ or op == NE:
                    for i in range(size):
                        ok[i] = (y[i] == v[i]) == wanted
                else:
                    for i in range(size):
                        ok[i] = (y[i] < v[i]) == wanted
            for i in range(size):
                word[i] &= failed | (np.uint64(0) - np.uint64(ok[i]))


@kernel
def _chain(follow):
    """Bits of the positions whose only successor is the next position."""
    chain = np.uint64(0)
    for p in range(min(63, follow.shape[0])):
        if follow[p] == np.uint64(1) << np.uint64(p + 1):
            chain |= np.uint64(1) << np.uint64(p)
    return chain


@kernel
def feasible(
    words, follow, finals, time, window, begins, ends_at, position, now, final, lookahead, lazy
):
    """Clear the bits from which no match can be completed, in one backward pass over each group,
    down to ``position[g]``.  Bit ``p`` of a row stays if the rows right after it can complete a
    match that ends within ``window`` of this row: exact for first rows, a necessary condition for
    others.  Rows that have not arrived count as able to complete anything at ``now``.  ``lazy``:
    star positions without a condition; they stay alive, also beyond the window, until a row has no
    bits at all, so rows where nothing else happens cost almost nothing.
    """
    ends = np.full(64, LATEST)
    fresh = np.full(64, LATEST)
    one = np.uint64(1)
    zero = np.uint64(0)
    chain = _chain(follow)
    strict = ~lazy
    feeds = zero  # successors of lazy positions
    rest = lazy
    while rest:
        p = trailing_zeros(rest)
        rest &= rest - one
        feeds |= follow[p] & ~(one << np.uint64(p))
    for g in range(begins.shape[0]):
        begin = max(begins[g], position[g])
        end = ends_at[g]
        usable = end if final else max(begin, end - lookahead)
        state = zero  # alive at the next row; lazy ones are in `idle`
        idle = zero
        if not final:
            state = strict
            idle = lazy
            ends[:] = time[usable] if usable < end else now
        if window < 0:
            for r in range(usable - 1, begin - 1, -1):
                alive = state | idle
                idle &= words[r]
                rest = words[r] & strict
                kept = rest & (finals | ((alive >> one) & chain))
                rest = rest & ~finals & ~chain if alive else zero
                while rest:
                    p = trailing_zeros(rest)
                    rest &= rest - one
                    if follow[p] & alive:
                        kept |= one << np.uint64(p)
                if alive & feeds:
                    rest = words[r] & lazy & ~idle
                    while rest:
                        p = trailing_zeros(rest)
                        rest &= rest - one
                        if follow[p] & alive:
                            idle |= one << np.uint64(p)
                words[r] = kept | idle
                state = kept
            continue
        news = idle  # lazy positions with a new end
        for r in range(usable - 1, begin - 1, -1):
            alive = state | idle
            live = words[r] & strict
            rest = live & (finals | ((alive >> one) & chain))
            if alive:
                rest |= live & ~chain
            hot = (state | news) & feeds
            idle &= words[r]
            if rest == 0 and hot == 0:
                words[r] = idle
                state = zero
                news = zero
                continue
            at = time[r]
            kept = zero
            while rest:
                p = trailing_zeros(rest)
                bit = one << np.uint64(p)
                rest &= rest - one
                best = at
                able = finals & bit != 0
                if not able:
                    best = LATEST
                    onward = follow[p] & alive
                    able = onward != 0
                    while onward:
                        q = trailing_zeros(onward)
                        onward &= onward - one
                        best = min(best, ends[q])
                if able and within(at, best, window):
                    kept |= bit
                    fresh[p] = best
            renewed = zero
            if hot:
                rest = words[r] & lazy
                while rest:
                    p = trailing_zeros(rest)
                    bit = one << np.uint64(p)
                    rest &= rest - one
                    best = ends[p] if idle & bit else LATEST
                    onward = follow[p] & hot
                    if idle & bit == 0 and onward == 0:
                        continue
                    while onward:
                        q = trailing_zeros(onward)
                        onward &= onward - one
                        best = min(best, ends[q])
                    if idle & bit == 0 or best < ends[p]:
                        renewed |= bit
                        fresh[p] = best
            rest = kept | renewed
            while rest:
                p = trailing_zeros(rest)
                rest &= rest - one
                ends[p] = fresh[p]
            idle |= renewed
            news = renewed
            words[r] = kept | idle
            state = kept


@kernel
def feasible_any(
    words, follow, finals, time, window, begins, ends_at, position, now, final, lookahead
):
    """As ``feasible``, when rows between two events of a match may be skipped."""
    ends = np.full(64, LATEST)
    fresh = np.full(64, LATEST)
    one = np.uint64(1)
    zero = np.uint64(0)
    for g in range(begins.shape[0]):
        begin = max(begins[g], position[g])
        end = ends_at[g]
        usable = end if final else max(begin, end - lookahead)
        state = zero
        if not final:
            state = ~zero
            ends[:] = time[usable] if usable < end else now
        for r in range(usable - 1, begin - 1, -1):
            rest = words[r]
            at = time[r]
            kept = zero
            while rest:
                p = trailing_zeros(rest)
                bit = one << np.uint64(p)
                rest &= rest - one
                best = at
                able = finals & bit != 0
                if not able:
                    best = LATEST
                    onward = follow[p] & state
                    able = onward != 0
                    while onward:
                        q = trailing_zeros(onward)
                        onward &= onward - one
                        best = min(best, ends[q])
                if able and within(at, best, window):
                    kept |= bit
                    fresh[p] = best
            words[r] = kept
            rest = kept
            while rest:
                p = trailing_zeros(rest)
                bit = one << np.uint64(p)
                rest &= rest - one
                if not state & bit or fresh[p] < ends[p]:
                    ends[p] = fresh[p]
            state |= kept
