"""Kernels that select the stored rows a step must examine; the others are in no match."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from ...core.native import kernel, trailing_zeros
from .horizons import LATEST, horizon, within

__all__ = ["completing", "expire", "has_last_event", "next_start"]


@kernel
def next_start(words, rows, end, first_bits):
    """Move each of ``rows`` to the next row at which a match may begin, at most to its end."""
    for i in range(rows.shape[0]):
        r = rows[i]
        while r < end[i] and words[r] & first_bits == 0:
            r += 1
        rows[i] = r


@kernel
def expire(time, rows, end, window, now):
    """Move each of ``rows`` past rows whose window is over, at most to its end."""
    for i in range(rows.shape[0]):
        r = rows[i]
        while r < end[i] and horizon(time[r], window) < now:
            r += 1
        rows[i] = r


@kernel
def has_last_event(words, begin, end, finals, out):
    """Whether a match may end at one of the rows ``begin .. end`` of each group."""
    for i in range(begin.shape[0]):
        out[i] = False
        for r in range(begin[i], end[i]):
            if words[r] & finals != 0:
                out[i] = True
                break


@kernel
def completing(words, follow, finals, time, window, begin, fresh, end, skipping):
    """Clear the bits from which no row at or after ``fresh[g]`` can complete a match; as
    ``feasible_any`` (``skipping``) and ``feasible``, but for present rows only: later completions
    are found later.
    """
    ends = np.full(64, LATEST)
    best_of = np.full(64, LATEST)
    one = np.uint64(1)
    zero = np.uint64(0)
    for g in range(begin.shape[0]):
        state = zero
        for r in range(end[g] - 1, begin[g] - 1, -1):
            rest = words[r]
            at = time[r]
            kept = zero
            while rest:
                p = trailing_zeros(rest)
                bit = one << np.uint64(p)
                rest &= rest - one
                able = finals & bit != 0 and r >= fresh[g]
                best = at if able else LATEST
                onward = follow[p] & state
                able = able or onward != 0
                while onward:
                    q = trailing_zeros(onward)
                    onward &= onward - one
                    best = min(best, ends[q])
                if able and within(at, best, window):
                    kept |= bit
                    best_of[p] = best
            words[r] = kept
            rest = kept
            while rest:
                p = trailing_zeros(rest)
                bit = one << np.uint64(p)
                rest &= rest - one
                if not (skipping and state & bit) or best_of[p] < ends[p]:
                    ends[p] = best_of[p]
            state = state | kept if skipping else kept
