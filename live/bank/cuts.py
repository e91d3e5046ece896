"""Cuts: rows at which a search of hits may begin, as no match covers the border before them.

::

    hits of a pattern       A B B . . A B . B B x B .      . satisfies nothing, x is late
    bare row                            ^               the search of ``A B+ C`` has ended here
                                        |             cut: from here on what is near x
    matches from any row    [====]   [=======]
                              [===]       [======]
    rows                    ....................|........|........ x
                                 no cut here        cut: the last row that no match covers, more
                                                    than the window before x

If every event of a match must satisfy a condition, no match covers a *bare* row, which satisfies
none.  Other patterns, and those without a bare row near, are searched as with SKIP TO NEXT ROW, and
cut at a row that no such match covers.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...core.times import INT64_MIN, moved
from ...query.pattern.search import TO_NEXT, horizon, within
from .layer import Layer, Room, empty_kept
from .searching import Fresh, Hits

__all__ = ["bare_rows", "free_rows", "hits_behind"]

IntArray = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NONE = np.int64(-1)
NOTHING_BEFORE = np.int64(INT64_MIN)


@kernel
def _bare(first, row, partition, rank, passes, late, last_late, size, listed, cut, rejoins):
    """See ``bare_rows``; the number of (pattern, partition) pairs."""
    count = 0
    for q in range(first.shape[0] - 1):
        h = first[q]
        while h < first[q + 1]:
            p = partition[row[h]]
            run = np.int64(0)
            newest = NONE
            before = np.int64(-2)
            behind = 0
            while h < first[q + 1] and partition[row[h]] == p:
                r = rank[row[h]]
                if r != before:
                    if r < late[p]:
                        if r != before + 1:
                            run = r
                        newest = r
                    if r > last_late[p]:
                        behind += 1
                    before = r
                h += 1
            at = run if newest >= 0 and newest == late[p] - 1 else late[p]
            listed[count, 0] = q
            listed[count, 1] = p
            cut[count] = at if at > 0 and not passes[q] else NONE
            rejoins[count] = not passes[q] and behind < size[p] - 1 - last_late[p]
            count += 1
    return count


def bare_rows(
    hits: Hits, fresh: Fresh, passes: Bools, late: IntArray, last_late: IntArray
) -> tuple[IntArray, IntArray, Bools]:
    """Cuts at bare rows before late events, per (pattern, partition) with hits, ascending; -1
    without one.  Also whether a bare row follows.  ``late`` and ``last_late`` are ranks of the
    first and last late event per partition; ``passes``: matches may skip events.
    """
    most = len(hits.row)
    listed, cut = np.empty((most, 2), np.int64), np.empty(most, np.int64)
    rejoins = np.empty(most, np.bool_)
    count = _bare(
        hits.first, hits.row, fresh.partition, fresh.rank, passes, late, last_late, fresh.count,
        listed, cut, rejoins,
    )  # fmt: skip
    return listed[:count], cut[:count], rejoins[:count]


@kernel
def _latest_free(query, partition, first, last, window, tick, offsets, bound, low, cut, listed):
    """See ``free_rows``; matches are sorted by pattern, partition and first row."""
    n = query.shape[0]
    count = 0
    i = 0
    while i < n:
        stop = i
        while stop < n and query[stop] == query[i] and partition[stop] == partition[i]:
            stop += 1
        p = partition[i]
        w = window[query[i]]
        begin, end = offsets[p], offsets[p + 1]
        left, right = begin, end
        while left < right:
            middle = (left + right) // 2
            if horizon(tick[middle], w) < bound[p]:
                left = middle + 1
            else:
                right = middle
        at = left - begin
        back = False
        while True:
            covering = -1
            for k in range(i, stop):
                if first[k] >= at:
                    break
                if last[k] >= at:
                    covering = k
                    break
            if covering < 0:
                break
            at = first[covering]
            back = True
        listed[count, 0] = query[i]
        listed[count, 1] = p
        cut[count] = at
        if back and low[p] > NOTHING_BEFORE:
            here = tick[begin + at]
            if here < low[p] or (w > 0 and within(low[p], here, w - 1)):
                cut[count] = NONE
        count += 1
        i = stop
    return count


def free_rows(
    layer: Layer, hits: Hits, fresh: Fresh, bound: IntArray, low: IntArray, room: Room
) -> tuple[IntArray, IntArray]:
    """Last uncovered rows before ``bound`` (tick per partition), per (pattern, partition), or -1.

    Rows begin two windows before ``bound``; all absent rows lie before ``low``.  Pairs that are not
    listed may be cut anywhere.
    """
    every = layer.search(hits, fresh, empty_kept(), moved(bound, -1), room, skip=TO_NEXT)
    count = len(every.query)
    cut, listed = np.zeros(count, np.int64), np.zeros((count, 2), np.int64)
    offsets = np.concatenate([[0], np.cumsum(fresh.count)]).astype(np.int64)
    made = _latest_free(
        every.query, every.parts.partition, every.parts.first_row, every.parts.last_row,
        layer.window, fresh.tick, offsets, bound, low, cut, listed,
    )  # fmt: skip
    return listed[:made], cut[:made]


@kernel
def _behind(first, row, bits, partition, rank, listed, cut, out_first, out_row, out_bits):
    """See ``hits_behind``."""
    count = 0
    at = 0
    for q in range(first.shape[0] - 1):
        out_first[q] = count
        for h in range(first[q], first[q + 1]):
            p = partition[row[h]]
            while at < cut.shape[0] and (
                listed[at, 0] < q or (listed[at, 0] == q and listed[at, 1] < p)
            ):
                at += 1
            mine = at < cut.shape[0] and listed[at, 0] == q and listed[at, 1] == p
            if not mine or rank[row[h]] >= cut[at]:
                out_row[count] = row[h]
                out_bits[count] = bits[h]
                count += 1
    out_first[first.shape[0] - 1] = count
    return count


def hits_behind(hits: Hits, fresh: Fresh, listed: IntArray, cut: IntArray) -> Hits:
    """Hits at or after the cuts of listed pairs, and all hits of others."""
    if not len(listed):
        return hits
    some = Hits(np.empty_like(hits.first), np.empty_like(hits.row), np.empty_like(hits.bits))
    count = _behind(*hits, fresh.partition, fresh.rank, listed, cut, *some)
    return Hits(some.first, some.row[:count], some.bits[:count])
