"""Counts the matches that begin at a row, without enumerating them: paths through the lists after
it.  ``tail[e]`` is the number of matches that continue with entry ``e`` or a later entry of its
list.  Without a window one backward pass serves all starts; with one, each start costs the entries
in its window.  Counts are exact below 2^63 and saturate at ``MANY``.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from ...core.native import kernel
from .any_lists import PASS, start_alone
from .search import horizon_of

__all__ = ["MANY", "below", "count_list", "count_starts", "sums", "window_low"]

MANY = np.uint64(1 << 63)


@kernel
def _sum(a, b):
    """Saturating sum of two counts, each at most ``MANY``."""
    return min(a + b, MANY) if a < MANY and b < MANY else MANY


@kernel
def below(e, horizon, low, entries, tail):
    """Number of matches that take entry ``e`` next."""
    if entries.reach[e] > horizon:
        return np.uint64(0)
    inner = entries.child[e]
    found = tail[inner] if inner >= low else np.uint64(0)
    return _sum(found, np.uint64(1)) if entries.final[e] >= 0 else found


@kernel
def count_list(first, high, horizon, low, entries, tail):
    """Fill ``tail`` for entries ``first .. high``; entries before ``low`` count as 0."""
    for e in range(first, high):
        if entries.transition[e] == PASS:
            inner = entries.child[e]
            tail[e] = tail[inner] if inner >= low else np.uint64(0)
            continue
        rest = entries.following[e]
        own = below(e, horizon, low, entries, tail)
        tail[e] = _sum(own, tail[rest]) if rest >= low else own


@kernel
def window_low(start, stop, horizon, entries, time):
    """First entry in the window of a start; ``stop``: end of its group's rows."""
    first = entries.row[start]
    low = start
    while low > 1 and first <= entries.row[low - 1] < stop:
        if time[entries.row[low - 1]] > horizon:
            break
        low -= 1
    return low


@kernel
def sums(counts, upto):
    """Fill ``upto`` with the inclusive prefix sums of the counts."""
    total = np.uint64(0)
    for k in range(counts.shape[0]):
        total = _sum(total, counts[k])
        upto[k] = total


@kernel
def count_starts(
    starts, groups, alone, stop, classes, tables, time, task, entries, scratch, one, tail, progress,
    counts,
):  # fmt: skip
    """Count the matches of every start, in build order (rows when ``alone``).
    ``progress`` resumes a call: first entry in the window, first entry not counted, and the group;
    initially 1, 1 and -1.
    """
    low = progress[0]
    done = progress[1]  # used without a window
    group = progress[2]
    for k in range(starts.shape[0]):
        start = np.int64(starts[k])
        g = groups[k]
        if alone:
            start = start_alone(start, stop[g], classes, tables, time, task, entries, scratch, one)
            if start == 0:
                counts[k] = 0
                continue
        first = entries.row[start]
        horizon = horizon_of(time, first, task)
        if alone:
            low = np.int64(1)
        elif task.window >= 0:
            if g != group:
                group = g
                low = window_low(start, stop[g], horizon, entries, time)
            while low < start and time[entries.row[low]] > horizon:
                low += 1
        if task.window >= 0:
            done = low
        count_list(done, start, horizon, low, entries, tail)
        done = start
        counts[k] = below(start, horizon, low, entries, tail)
    progress[0] = low
    progress[1] = done
    progress[2] = group
