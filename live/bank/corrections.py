"""Corrections of a bank's matches by late events, computed only near those events.

::

    rows of a partition    . . A B . B . A B x C . . B . A . . .        x came late
                               [       neighbourhood      ]
                                 ^cut           ^ searches agree again

The partitions of late events are read from two windows before the first one to two windows behind
the last one, further where necessary.  There, *neighbourhoods* of rows are searched with and
without the late events.  They are extended on a side until each pattern has a cut before the late
events, and both searches agree behind them: at a bare row, or at the same open match.  At the end
of its partition a neighbourhood ends at the watermark.
Matches of both searches (same first and last event) without a late event, and all matches outside,
are unchanged; the others are reported.

A *cut* is a row at which a search of hits may begin, as no match covers the border before it::

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

Patterns that are added to a bank need their open matches at a watermark.  That search begins at a
cut (``free_rows``) more than a window before the watermark, in a stretch that is doubled until it
has one: matches from before the stretch end within a window of its begin, and one that covers a row
begins at most a window before it, so three windows mostly suffice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.times import INT64_MAX, INT64_MIN, moved
from ...query.pattern.columns import flat, numbers, take_ranges
from ...query.pattern.late_region import Late
from ...query.pattern.search import TO_NEXT, horizon, within
from .layer import Found, Layer, Room, empty_kept, kept_where
from .matches import BankMatches
from .pattern_bank import Arranged, Partitions, PatternBank
from .predicate_index import Columns
from .searching import Fresh, Hits, Kept

# mypy: disable-error-code="no-untyped-def"


IntArray = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NONE = np.int64(-1)
NOTHING_BEFORE = np.int64(INT64_MIN)
ROWS_NEAR = 8
LONGER = 4
NOWHERE = np.int64(1 << 62)
Scan = Callable[[int, int], pa.Table]
"""Events with ``low <= t <= high`` in time order, with the columns of the bank."""


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
    parts = layer.search(hits, fresh, empty_kept(), moved(bound, -1), room, skip=TO_NEXT).parts
    count = len(parts.query)
    cut, listed = np.zeros(count, np.int64), np.zeros((count, 2), np.int64)
    offsets = np.concatenate([[0], np.cumsum(fresh.count)]).astype(np.int64)
    made = _latest_free(
        parts.query, parts.partition, parts.first_row, parts.last_row, layer.window,
        fresh.tick, offsets, bound, low, cut, listed,
    )  # fmt: skip
    return listed[:made], cut[:made]


def hits_behind(hits: Hits, fresh: Fresh, listed: IntArray, cut: IntArray) -> Hits:
    """Hits at or after the cuts of listed pairs, and all hits of others."""
    if not len(listed):
        return hits
    count = len(fresh.count)
    query = np.repeat(np.arange(len(hits.first) - 1), np.diff(hits.first))
    pair, pairs = query * count + fresh.partition[hits.row], listed[:, 0] * count + listed[:, 1]
    at = np.minimum(np.searchsorted(pairs, pair), len(pairs) - 1)
    stays = (pairs[at] != pair) | (fresh.rank[hits.row] >= cut[at])
    first = np.concatenate([[0], np.cumsum(stays)])[hits.first]
    return Hits(first, hits.row[stays], hits.bits[stays])


# -- added patterns -----------------------------------------------------------------------------


def open_at(bank: PatternBank, layer: Layer, scan: Scan, first: int, watermark: int) -> None:
    """Set a layer's open matches at the bank's watermark; ``first`` is the stream's first tick."""
    assert layer.longest >= 0
    reach = max(1, layer.longest)
    while True:
        low = max(first, watermark - 3 * reach)
        places, table = bank.no_partitions(), scan(low, watermark)
        fresh, order = places.arrange(table)
        bound = np.full(len(places), min(watermark, INT64_MAX - 1) + 1)
        since = np.full(len(places), INT64_MIN if low <= first else low)
        hits = layer.hits(layer.read(Columns(table)), order, fresh, bank.room)
        begin = free_rows(layer, hits, fresh, bound, since, bank.room)
        if (begin[1] >= 0).all():
            break
        reach *= 2
    behind = hits_behind(hits, fresh, *begin)
    found = layer.search(behind, fresh, empty_kept(), watermark, bank.room)
    number = _numbers(places.keys, bank.partitions)
    shift = bank.partitions.count[number] - places.count
    bank.partitions.reach(number, places.tick, places.rank)
    kept = found.kept
    rank = kept.rank + np.repeat(shift[kept.partition], np.diff(kept.first))
    layer.kept = sorted_kept([kept._replace(partition=number[kept.partition], rank=rank)])


def _numbers(keys: pa.Table, places: Partitions) -> IntArray:
    """Partition of each key; one without columns."""
    return places.numbers_of(keys) if places.partition_by else np.zeros(1, np.int64)


def sorted_kept(parts: list[Kept]) -> Kept:
    """Several ``Kept``, merged by pattern and partition."""
    sizes = np.concatenate([np.diff(part.first) for part in parts])
    query = np.concatenate([part.query for part in parts])
    partition = np.concatenate([part.partition for part in parts])
    order = np.lexsort((partition, query))
    ends = np.cumsum(sizes)
    rows = take_ranges((ends - sizes)[order], ends[order])
    columns = (np.concatenate([part[i] for part in parts])[rows] for i in range(3, 7))
    first = np.concatenate([[0], np.cumsum(sizes[order])]).astype(np.int64)
    return Kept(query[order], partition[order], first, *columns)


# -- late events ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Corrected:
    """Matches gone or changed, and matches that hold now; one with a late event is in both."""

    gone: BankMatches
    found: BankMatches


@dataclass(frozen=True)
class _Stretch:
    """All events from tick ``low`` to ``high`` of the partitions of late events."""

    events: Arranged
    is_late: Bools
    keys: pa.Table
    low: int
    high: int

    @classmethod
    def read(cls, bank: PatternBank, scan: Scan, late: Late, low: int, high: int) -> _Stretch:
        table = scan(low, high)
        ticks, _ = numbers(flat(table.column(bank.time)), "i")
        is_late = late.among(np.asarray(ticks, np.int64))
        keys = table.select(bank.partition_by)
        events, _ = Arranged.of(table, bank.time, keys.filter(pa.array(is_late)))
        keys = keys.take(pa.array(events.order[events.offsets[:-1]]))
        return cls(events, is_late[events.order], keys, low, high)

    def keys_at(self, partition: IntArray) -> pa.Table:
        return self.keys.take(pa.array(partition)) if self.keys.num_columns else self.keys


@dataclass(frozen=True)
class _Near:
    """Neighbourhoods: disjoint, ascending ranges of rows, each within its partition."""

    partition: IntArray
    begin: IntArray
    end: IntArray

    def __len__(self) -> int:
        return len(self.begin)

    @classmethod
    def around(cls, bank: PatternBank, stretch: _Stretch) -> _Near:
        late, events = np.flatnonzero(stretch.is_late), stretch.events
        partition, begin, end = events.partition[late], late - ROWS_NEAR, late + ROWS_NEAR + 1
        if any(layer.passes_over for layer in bank.layers):
            tick, reach = events.tick[late], 2 * max(1, bank.longest) + 1
            back = events.first_rows(partition, moved(tick, -reach)) - 1
            ahead = events.first_rows(partition, moved(tick, reach)) + 1
            begin, end = np.minimum(begin, back), np.maximum(end, ahead)
        return cls(partition, begin, end).joined(events)

    def joined(self, events: Arranged) -> _Near:
        """Clipped to their partitions; overlapping ones merged."""
        begin = np.maximum(self.begin, events.offsets[self.partition])
        end = np.minimum(self.end, events.offsets[self.partition + 1])
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], np.maximum.accumulate(end[order])
        fresh = np.flatnonzero(np.concatenate([[True], begin[1:] >= end[:-1]]))
        last = np.append(fresh[1:], len(order)) - 1
        return _Near(self.partition[order[fresh]], begin[fresh], end[last])


class _Searched:
    """Neighbourhoods as partitions; ``whole``: begins its partition, ``tail``: ends it."""

    def __init__(
        self, bank: PatternBank, stretch: _Stretch, near: _Near, first: int, watermark: int
    ) -> None:
        self.near, self.bank, events = near, bank, stretch.events
        sizes = near.end - near.begin
        rows = take_ranges(near.begin, near.end)
        self.columns = Columns(events.table.take(pa.array(events.order[rows])))
        self.every = np.arange(len(rows))
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        every = np.repeat(np.arange(len(near)), sizes)
        rank = self.every - self.offsets[every]
        is_late, tick, among = stretch.is_late[rows], events.tick[rows], events.among[rows]
        self.new = Fresh(every, rank, tick, among, sizes)
        at = np.flatnonzero(is_late)
        ends = np.searchsorted(at, self.offsets)
        self.first, self.last = rank[at[ends[:-1]]], rank[at[ends[1:] - 1]]
        self.counts = np.diff(ends)
        self.stays = np.flatnonzero(~is_late)
        self.late_before = np.concatenate([[0], np.cumsum(is_late)]).astype(np.int64)
        shift = self.late_before[:-1] - self.late_before[self.offsets][every]
        self.old = Fresh(
            every[self.stays], (rank - shift)[self.stays], tick[self.stays], among[self.stays],
            sizes - self.counts,
        )  # fmt: skip
        self.at_begin = near.begin == events.offsets[near.partition]
        self.at_end = near.end == events.offsets[near.partition + 1]
        self.tail = self.at_end & (stretch.high >= watermark)
        self.whole = self.at_begin & (stretch.low <= first)
        self.begun = np.where(self.at_begin, stretch.low, tick[self.offsets[:-1]] + 1)
        self.begun[self.whole] = INT64_MIN
        self.bound = tick[self.offsets[:-1] + self.first]
        self.known = np.where(self.at_end, stretch.high, tick[self.offsets[1:] - 1] - 1)

    def search(self, layer: Layer) -> tuple[Found, Found, Bools, Bools]:
        """Results without and with the late events, and neighbourhoods too short on a side."""
        room, count = self.bank.room, len(self.near)
        before, behind = np.zeros((2, count), np.bool_)
        batch = layer.read(self.columns)
        near_first = (self.offsets[:-1] + self.first - 1)[self.first > 0]
        hits = layer.hits(batch, self.every, self.new, room, near_first)
        listed, cut, rejoins = bare_rows(hits, self.new, layer.passes, self.first, self.last)
        query, place = listed.T
        cut = np.where(self.whole[place] & (cut < 0), 0, cut)
        doubtful = cut < 0
        if doubtful.any():
            far = self.bound[place] - self.begun[place] > 2 * np.maximum(1, layer.window[query])
            before[place[doubtful & ~far]] = True
            cut[doubtful & ~far] = 0
            doubtful &= far
        if doubtful.any():
            cut[doubtful] = 0
            some = hits_behind(hits, self.new, listed, np.where(doubtful, 0, NOWHERE))
            found, free = free_rows(layer, some, self.new, self.bound, self.begun, room)
            at = np.searchsorted(query * count + place, found[:, 0] * count + found[:, 1])
            before[place[at[free < 0]]] = True
            cut[at] = np.maximum(free, 0)
        after = layer.search(
            hits_behind(hits, self.new, listed, cut), self.new, empty_kept(), self.known, room
        )
        hits = layer.hits(batch, self.stays, self.old, room)
        without = layer.search(
            hits_behind(hits, self.old, listed, cut), self.old, empty_kept(), self.known, room
        )
        behind |= self.last == np.diff(self.offsets) - 1
        apart = ~rejoins & ~self.tail[place]
        if apart.any():
            keys = (query * count + place)[apart]
            here, there = _stands(without.kept, keys, count), _stands(after.kept, keys, count)
            of = place[apart]
            open_ = there >= 0
            met = np.where(open_, here + self.counts[of] == there, here < 0)
            behind[of[~met | (open_ & (there <= self.last[of]))]] = True
        return without, after, before, behind & ~self.tail

    def changed(self, without: Found, after: Found) -> tuple[Bools, Bools]:
        """Which matches of the old search are gone or changed, and which of the new are new."""
        begin = self.offsets[after.parts.partition]
        held = self.late_before[begin + after.parts.last_row + 1]
        holds = held > self.late_before[begin + after.parts.first_row]
        both = np.concatenate([_events(without), _events(after)])
        if not len(both):
            return holds.copy(), holds
        order = np.lexsort(both.T)
        other = (both[order[1:]] != both[order[:-1]]).any(axis=1)
        number = np.empty(len(order), np.int64)
        number[order] = np.concatenate([[0], np.cumsum(other)])
        mine, theirs = number[: len(without.parts.query)], number[len(without.parts.query) :]
        said, same = np.zeros((2, len(order)), np.bool_)
        said[mine] = True
        fresh = holds | ~said[theirs]
        same[theirs[~fresh]] = True
        return ~same[mine], fresh


def _stands(kept: Kept, keys: IntArray, count: int) -> IntArray:
    """Rank at which the search of each (pattern, partition) has an open match; -1 without one."""
    mine = kept.query * count + kept.partition
    if not len(mine):
        return np.full(len(keys), -1)
    at = np.minimum(np.searchsorted(mine, keys), len(mine) - 1)
    return np.where(mine[at] == keys, kept.rank[kept.first[:-1]][at], -1)


def _events(found: Found) -> IntArray:
    parts = found.parts
    return np.stack(
        [
            parts.query, parts.partition, parts.first_tick, parts.first_among, parts.last_tick,
            parts.last_among,
        ],
        axis=1,
    )  # fmt: skip


def correct(bank: PatternBank, scan: Scan, late: Late, first: int, watermark: int) -> Corrected:
    """What late events, which ``scan`` finds, change up to the watermark; also corrects the bank's
    open matches.  ``first`` is the stream's first tick.
    """
    assert bank.longest >= 0
    reach = 2 * max(1, bank.longest)
    while True:
        low = max(first, int(late.tick[0]) - reach)
        high = min(watermark, INT64_MAX - 1, int(late.tick[-1]) + reach)
        stretch = _Stretch.read(bank, scan, late, low, high)
        searched = _near_late(bank, stretch, first, watermark)
        if searched is not None:
            return _applied(bank, stretch, *searched)
        reach *= 2


def _near_late(
    bank: PatternBank, stretch: _Stretch, first: int, watermark: int
) -> tuple[_Searched, list[tuple[Found, Found]]] | None:
    """Large enough neighbourhoods, and each layer's results without and with the late events; None
    when events beyond the stretch are needed.
    """
    near = _Near.around(bank, stretch)
    while True:
        searched = _Searched(bank, stretch, near, first, watermark)
        before, behind = np.zeros((2, len(near)), np.bool_)
        found = []
        for layer in bank.layers:
            without, after, short_before, short_behind = searched.search(layer)
            found.append((without, after))
            before |= short_before
            behind |= short_behind
        if not (before | behind).any():
            return searched, found
        if (before & searched.at_begin).any() or (behind & searched.at_end).any():
            return None
        rest = near.end - near.begin - searched.last
        begin = near.begin - np.where(before, LONGER * (searched.first + ROWS_NEAR), 0)
        end = near.end + np.where(behind, LONGER * (rest + ROWS_NEAR), 0)
        near = _Near(near.partition, begin, end).joined(stretch.events)


def _applied(
    bank: PatternBank, stretch: _Stretch, searched: _Searched, found: list[tuple[Found, Found]]
) -> Corrected:
    near, tail, events, places = searched.near, searched.tail, stretch.events, bank.partitions
    number = _numbers(stretch.keys, places)
    shift, ends = np.zeros(len(places), np.int64), np.zeros(len(places), np.bool_)
    shift[number] = np.bincount(events.partition[stretch.is_late], minlength=len(number))
    places.count += shift
    ended = number[near.partition[tail]]
    ends[ended] = True
    last = searched.offsets[1:][tail] - 1
    places.reach(ended, searched.new.tick[last], searched.new.among[last])

    def keys_at(mine: IntArray) -> pa.Table:
        return stretch.keys_at(near.partition[mine])

    gone, there = [bank.nothing()], [bank.nothing()]
    for layer, (without, after) in zip(bank.layers, found, strict=True):
        changed = searched.changed(without, after)
        for parts, one, some in zip((gone, there), (without, after), changed, strict=True):
            if some.any():
                parts.append(one.matches(layer.names, keys_at).where(some))
        kept = kept_where(layer.kept, ~ends[layer.kept.partition])
        more = np.repeat(shift[kept.partition], np.diff(kept.first))
        open_ = kept_where(after.kept, tail[after.kept.partition])
        of = near.partition[open_.partition]
        base = near.begin[open_.partition] - events.offsets[of + 1] + places.count[number[of]]
        rank = open_.rank + np.repeat(base, np.diff(open_.first))
        layer.kept = sorted_kept(
            [kept._replace(rank=kept.rank + more), open_._replace(partition=number[of], rank=rank)]
        )
    return Corrected(BankMatches.joined(gone), BankMatches.joined(there))
