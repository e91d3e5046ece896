"""Counting: how many matches begin at a row, without walking one of them.

Purpose
    The matches that begin at a row are the ways through the lists behind it.  One pass over the
    entries within its window, from the last to the first, adds them up; without a window one pass
    serves all starts.

Layout
    ``tail[e]`` is the number of matches that go on with entry ``e`` or one that follows it in its
    list.

Guarantee
    Counts are exact below 2^63.  Sums stop there instead of wrapping: :data:`MANY` says "2^63 or
    more", and stays so whatever is added.

Limits
    With a window, a start costs as much as there are entries in its window, however many matches
    they make.
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
    """Of two counts, each at most :data:`MANY`."""
    return min(a + b, MANY) if a < MANY and b < MANY else MANY


@kernel
def below(e, horizon, low, entries, tail):
    """Matches that take an entry next."""
    if entries.reach[e] > horizon:
        return np.uint64(0)
    inner = entries.child[e]
    found = tail[inner] if inner >= low else np.uint64(0)
    return _sum(found, np.uint64(1)) if entries.final[e] >= 0 else found


@kernel
def count_list(first, high, horizon, low, entries, tail):
    """Fill ``tail`` for the entries ``first .. high``; those before ``low`` count for nothing."""
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
    """First entry of those within the window of a start; ``stop``: end of its group's rows."""
    first = entries.row[start]
    low = start
    while low > 1 and first <= entries.row[low - 1] < stop:
        if time[entries.row[low - 1]] > horizon:
            break
        low -= 1
    return low


@kernel
def sums(counts, upto):
    """Fill ``upto`` with the sum of the counts up to and with each."""
    total = np.uint64(0)
    for k in range(counts.shape[0]):
        total = _sum(total, counts[k])
        upto[k] = total


@kernel
def count_starts(
    starts, groups, alone, stop, classes, tables, time, task, entries, scratch, one, tail, progress,
    counts,
):  # fmt: skip
    """Matches of every start, the starts in the order in which their entries were made.

    As for :func:`.any_walk.walk`, ``starts`` are rows when ``alone``.  ``progress`` lets a call go
    on where the last one stopped: the first entry within the window, the first that is not counted
    yet, and the group; at first 1, 1 and -1.
    """
    low = progress[0]
    done = progress[1]  # of use when there is no window
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
