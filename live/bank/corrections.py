"""Corrections by late events of the matches of a bank.

A correction reads the partitions of late events, from two windows before the first one to two
windows behind the last one, and further where necessary.  There it searches with and without the
late events, from a cut before them to where both searches agree again, or to the watermark::

    rows of a partition    . . A B . B . A B x C . . B . A . . .        x came late
                               [         searched         ]
                                 ^cut           ^ searches agree again

Matches of both searches, of the same events and without a late one, and all matches outside, are
unchanged; the others are reported.  Open matches at the watermark are replaced.  A *cut* is a row
at which a search may begin, as no match covers the border before it::

    hits of a pattern       A B B . . A B . B B x B .      . satisfies nothing, x is late
    bare row                            ^               the search of ``A B+ C`` has ended here
                                        |             cut: from here on what is near x
    matches from any row    [====]   [=======]
                              [===]       [======]
    rows                    ....................|........|........ x
                                 no cut here        cut: the last row that no match covers, more
                                                    than the window before x

For a bank only rows *near* late events are searched, more on a side until each pattern has a cut
before the late events, and both searches agree behind them: at a bare row, or at the same open
match.  If every event of a match must satisfy a condition, no match covers a *bare* row, which
satisfies none.  Other patterns, and those without a bare row near, are searched as with SKIP TO
NEXT ROW, and cut at a row that no such match covers.

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
from ...core.sorting import counted_order, first_at_least, firsts
from ...core.times import INT64_MAX, INT64_MIN, moved
from ...query.pattern.columns import KeyCodes, flat, numbers, take_ranges
from ...query.pattern.search import TO_NEXT, horizon, within
from .layer import BankMatches, Layer, Scratch, SearchResult, no_open_matches, open_where
from .pattern_bank import Partitions, PatternBank
from .searching import Fresh, Hits, OpenMatches

# mypy: disable-error-code="no-untyped-def"


IntArray = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NONE = np.int64(-1)
NOTHING_BEFORE = np.int64(INT64_MIN)
ROWS_NEAR = 4
LONGER = 8
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
    layer: Layer, hits: Hits, fresh: Fresh, bound: IntArray, low: IntArray, scratch: Scratch
) -> tuple[IntArray, IntArray]:
    """Per (pattern, partition) with matches from any row: the last row more than a window before
    ``bound`` that no match covers, or -1 where it may be an absent one.  ``bound`` and ``low``,
    before which rows are absent, are ticks per partition.

    Rows begin two windows before ``bound``.  Pairs that are not listed may be cut anywhere.
    """
    parts = layer.search(
        hits, fresh, no_open_matches(), moved(bound, -1), scratch, skip=TO_NEXT
    ).parts
    offsets = np.concatenate([[0], np.cumsum(fresh.count)]).astype(np.int64)
    size = len(parts.query)
    cut, listed = np.zeros(size, np.int64), np.zeros((size, 2), np.int64)
    count = _latest_free(
        parts.query, parts.partition, parts.first_row, parts.last_row, layer.window, fresh.tick,
        offsets, bound, low, cut, listed,
    )  # fmt: skip
    return listed[:count], cut[:count]


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
        places = Partitions(bank.schema, bank.time, bank.partition_by)
        table = scan(low, watermark)
        fresh, order = places.arrange(table)
        bound = np.full(len(places), min(watermark, INT64_MAX - 1) + 1)
        since = np.full(len(places), INT64_MIN if low <= first else low)
        hits = layer.hits(layer.read(table), order, fresh, bank.scratch)
        begin = free_rows(layer, hits, fresh, bound, since, bank.scratch)
        if (begin[1] >= 0).all():
            break
        reach *= 2
    behind = hits_behind(hits, fresh, *begin)
    result = layer.search(behind, fresh, no_open_matches(), watermark, bank.scratch)
    number = _numbers(places.keys.table, bank.partitions)
    shift = bank.partitions.count[number] - places.count
    bank.partitions.reach(number, places.tick, places.rank)
    open_matches = result.open_matches
    rank = open_matches.rank + np.repeat(shift[open_matches.partition], np.diff(open_matches.first))
    layer.open_matches = merged_open(
        [open_matches._replace(partition=number[open_matches.partition], rank=rank)]
    )


def _numbers(keys: pa.Table, places: Partitions) -> IntArray:
    """Partition of each key; one without columns."""
    return places.numbers_of(keys) if places.partition_by else np.zeros(1, np.int64)


def merged_open(parts: list[OpenMatches]) -> OpenMatches:
    """Several ``OpenMatches``, merged by pattern and partition."""
    sizes = np.concatenate([np.diff(part.first) for part in parts])
    query = np.concatenate([part.query for part in parts])
    partition = np.concatenate([part.partition for part in parts])
    order = np.lexsort((partition, query))
    ends = np.cumsum(sizes)
    rows = take_ranges((ends - sizes)[order], ends[order])
    columns = (np.concatenate([part[i] for part in parts])[rows] for i in range(3, 7))
    first = np.concatenate([[0], np.cumsum(sizes[order])]).astype(np.int64)
    return OpenMatches(query[order], partition[order], first, *columns)


# -- late events ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Late:
    """Ascending ticks with late events: the last ``count`` events of each tick."""

    tick: IntArray
    count: IntArray

    def among(self, ticks: IntArray) -> Bools | None:
        """Which events are late, given all ascending ticks; None if some are missing."""
        end = np.searchsorted(ticks, self.tick, side="right")
        begin = end - self.count
        if (begin < np.searchsorted(ticks, self.tick, side="left")).any():
            return None
        is_late: Bools = np.zeros(len(ticks), np.bool_)
        is_late[take_ranges(begin, end)] = True
        return is_late


@dataclass(frozen=True)
class Corrected:
    """Matches gone or changed, and matches that hold now; one with a late event is in both."""

    gone: BankMatches
    added: BankMatches


@kernel
def _first_rows(offsets, tick, partition, wanted, out):
    for i in range(partition.shape[0]):
        p = partition[i]
        out[i] = first_at_least(tick, offsets[p], offsets[p + 1], wanted[i])


@dataclass(frozen=True)
class Arranged:
    """Rows by partition and time: row ``i`` is row ``order[i]`` of those given in time order;
    partition ``p`` has the rows ``offsets[p] .. offsets[p + 1]``.
    """

    order: IntArray
    partition: IntArray
    tick: IntArray
    offsets: IntArray

    @classmethod
    def of(cls, tick: IntArray, code: IntArray, count: int) -> Arranged:
        """The rows with a code below ``count``, the number of their partition."""
        rows = np.flatnonzero(code < count)
        order, offsets = counted_order(code[rows], count)
        order = rows[order]
        return cls(order, code[order], tick[order], offsets)

    def first_rows(self, partition: IntArray, tick: IntArray) -> IntArray:
        """First row at or after a tick, per (partition, tick)."""
        out = np.empty(len(partition), np.int64)
        _first_rows(self.offsets, self.tick, partition, tick, out)
        return out

    def ranks(self, rows: IntArray) -> IntArray:
        """Rank of each row within its partition and tick."""
        return rows - self.first_rows(self.partition[rows], self.tick[rows])


@dataclass(frozen=True)
class _Stretch:
    """All events from tick ``low`` to ``high``; ``code`` is the number of the event's partition in
    ``keys``, the partitions of late events, or greater.
    """

    table: pa.Table
    tick: IntArray
    code: IntArray
    is_late: Bools
    keys: pa.Table
    low: int
    high: int

    @classmethod
    def read(
        cls, time: str, partition_by: list[str], scan: Scan, late: Late, low: int, high: int
    ) -> _Stretch | None:
        """None if a late event is missing."""
        table = scan(low, high).combine_chunks()  # many rows are taken from it
        ticks, _ = numbers(flat(table.column(time)), "i")
        tick = np.asarray(ticks, np.int64)
        is_late = late.among(tick)
        if is_late is None:
            return None
        codes, code = KeyCodes(max(1, len(partition_by))), np.zeros(len(tick), np.int64)
        keys = table.select(partition_by).slice(0, 1)
        if partition_by:
            events = table.select(partition_by).filter(pa.array(is_late))
            keys = events.take(pa.array(firsts(codes.encode(events.columns))[1]))
            code = codes.encode(table.select(partition_by).columns)
        return cls(table, tick, code, is_late, keys, low, high)

    @property
    def partitions(self) -> int:
        return self.keys.num_rows if self.keys.num_columns else 1

    def keys_at(self, partition: IntArray) -> pa.Table:
        return self.keys.take(pa.array(partition)) if self.keys.num_columns else self.keys


def _begins_piece(partition: IntArray, rank: IntArray) -> Bools:
    """Which rows, by partition and rank, do not follow the row before in their partition."""
    begins: Bools = np.diff(partition, prepend=-1) != 0
    begins |= np.diff(rank, prepend=0) != 1
    return begins


@kernel
def _near_late(tick, code, is_late, back, ahead, reach, size, near, row, rank, among):
    """Rows near late ones in time order, with their rank in the partition and within its tick.

    Of late row ``k``, ``back[k]`` rows before it and ``ahead[k]`` behind it are near, and where
    ``reach`` is not negative those up to so many ticks away, and one more.  ``size`` becomes the
    number of rows of each partition.  Returns the number of rows.
    """
    left = np.zeros(size.shape[0], np.int64)
    bound = np.full(size.shape[0], np.int64(INT64_MAX))
    k = back.shape[0]
    for i in range(code.shape[0] - 1, -1, -1):
        p = code[i]
        near[i] = False
        if p >= size.shape[0]:
            continue
        if is_late[i]:
            k -= 1
            left[p] = max(left[p], back[k])
            if reach >= 0:
                bound[p] = max(tick[i], INT64_MIN + reach + 1) - reach - 1
            near[i] = True
        elif tick[i] > bound[p]:
            left[p] = max(left[p] - 1, 1)
            near[i] = True
        elif left[p] > 0:
            left[p] -= 1
            near[i] = True
    left[:] = 0
    bound[:] = INT64_MIN
    last = np.empty(size.shape[0], np.int64)
    same = np.zeros(size.shape[0], np.int64)
    count = 0
    for i in range(code.shape[0]):
        p = code[i]
        if p >= size.shape[0]:
            continue
        same[p] = same[p] + 1 if size[p] > 0 and last[p] == tick[i] else 0
        last[p] = tick[i]
        if is_late[i]:
            left[p] = max(left[p], ahead[k])
            if reach >= 0:
                bound[p] = horizon(tick[i], reach + 1)
            k += 1
        elif tick[i] < bound[p]:
            left[p] = max(left[p] - 1, 1)
            near[i] = True
        elif left[p] > 0:
            left[p] -= 1
            near[i] = True
        if near[i]:
            row[count] = i
            rank[count] = size[p]
            among[count] = same[p]
            count += 1
        size[p] += 1
    return count


class _Near:
    """Rows near late events by partition, in *pieces*, whose rows follow each other in it; of these
    the pieces with the late events in ``again``.  Pieces are searched as partitions; ``whole``:
    begins its partition, ``tail``: ends it, ``lasting``: no larger piece replaces it.
    """

    def __init__(
        self,
        bank: PatternBank,
        stretch: _Stretch,
        extent: IntArray,
        again: Bools,
        first: int,
        watermark: int,
    ) -> None:
        self.bank, self.stretch = bank, stretch
        reach = -1
        if bank.layer.passes_over:
            reach = 2 * max(1, bank.layer.longest) + 1
        self.size = np.zeros(stretch.partitions, np.int64)
        row, rank, among = np.empty((3, len(stretch.tick)), np.int64)
        near_count = _near_late(
            stretch.tick, stretch.code, stretch.is_late, *extent, reach, self.size,
            np.empty(len(row), np.bool_), row, rank, among,
        )  # fmt: skip
        order, _ = counted_order(stretch.code[row[:near_count]], len(self.size))
        late_rows = np.flatnonzero(stretch.is_late)
        begins = _begins_piece(stretch.code[row[order]], rank[order])
        if not again.all():
            every = np.cumsum(begins) - 1
            late = np.flatnonzero(stretch.is_late[row[order]])
            wanted = np.zeros(len(order), np.bool_)  # by piece
            number = late_rows.searchsorted(row[order[late]])  # in time order
            wanted[every[late[again[number]]]] = True
            order, begins = order[wanted[every]], begins[wanted[every]]
        row, self.rank, among = row[order], rank[order], among[order]
        partition, tick, is_late = stretch.code[row], stretch.tick[row], stretch.is_late[row]
        begin = np.flatnonzero(begins)
        self.offsets = np.append(begin, len(row))
        self.partition, sizes = partition[begin], np.diff(self.offsets)
        self.table = stretch.table.take(pa.array(row))
        self.every = np.arange(len(row))
        every = np.repeat(np.arange(len(begin)), sizes)
        place = self.every - begin[every]
        self.new = Fresh(every, place, tick, among, sizes)
        at = np.flatnonzero(is_late)
        ends = np.searchsorted(at, self.offsets)
        self.first, self.last = place[at[ends[:-1]]], place[at[ends[1:] - 1]]
        self.counts = np.diff(ends)
        self.late, self.piece = late_rows.searchsorted(row[at]), every[at]
        """Numbers of the late events in time order, and the piece of each."""
        self.lasting = np.ones(len(begin), np.bool_)
        self.is_late, self.stays = is_late, np.flatnonzero(~is_late)
        self.late_before = np.concatenate([[0], np.cumsum(is_late)]).astype(np.int64)
        shift = self.late_before[:-1] - self.late_before[self.offsets][every]
        self.old = Fresh(
            every[self.stays], (place - shift)[self.stays], tick[self.stays], among[self.stays],
            sizes - self.counts,
        )  # fmt: skip
        self.at_begin = self.rank[begin] == 0
        self.at_end = self.rank[self.offsets[1:] - 1] == self.size[self.partition] - 1
        self.tail = self.at_end & (stretch.high >= watermark)
        self.whole = self.at_begin & (stretch.low <= first)
        self.begun = np.where(self.at_begin, stretch.low, tick[begin] + 1)
        self.begun[self.whole] = INT64_MIN
        self.bound = tick[begin + self.first]
        self.known = np.where(self.at_end, stretch.high, tick[self.offsets[1:] - 1] - 1)

    def __len__(self) -> int:
        return len(self.partition)

    def search(self, layer: Layer) -> tuple[SearchResult, SearchResult, Bools, Bools]:
        """Results without and with the late events, and neighbourhoods too short on a side."""
        scratch, count = self.bank.scratch, len(self)
        before, behind = np.zeros((2, count), np.bool_)
        batch = layer.read(self.table)
        beside_late = np.flatnonzero(self.is_late[1:] != self.is_late[:-1])
        beside_late = np.concatenate([beside_late, beside_late + 1])
        hits = layer.hits(batch, self.every, self.new, scratch, beside_late)
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
            pairs, free = free_rows(layer, some, self.new, self.bound, self.begun, scratch)
            at = np.searchsorted(query * count + place, pairs[:, 0] * count + pairs[:, 1])
            before[place[at[free < 0]]] = True
            cut[at] = np.maximum(free, 0)
        after = layer.search(
            hits_behind(hits, self.new, listed, cut),
            self.new,
            no_open_matches(),
            self.known,
            scratch,
        )
        hits = self._without_late(hits)
        without = layer.search(
            hits_behind(hits, self.old, listed, cut),
            self.old,
            no_open_matches(),
            self.known,
            scratch,
        )
        behind |= self.last == np.diff(self.offsets) - 1
        apart = ~rejoins & ~self.tail[place]
        if apart.any():
            keys = (query * count + place)[apart]
            here, there = (
                _stands(without.open_matches, keys, count),
                _stands(after.open_matches, keys, count),
            )
            of = place[apart]
            open_ = there >= 0
            met = np.where(open_, here + self.counts[of] == there, here < 0)
            behind[of[~met | (open_ & (there <= self.last[of]))]] = True
        return without, after, before, behind & ~self.tail

    def _without_late(self, hits: Hits) -> Hits:
        """The hits without the late events, as rows of ``old``."""
        stays = ~self.is_late[hits.row]
        first = np.concatenate([[0], np.cumsum(stays)])[hits.first]
        row = hits.row[stays]
        return Hits(first, row - self.late_before[row].astype(np.int32), hits.bits[stays])

    def keys_at(self, piece: IntArray) -> pa.Table:
        return self.stretch.keys_at(self.partition[piece])

    def changed(self, without: SearchResult, after: SearchResult) -> tuple[Bools, Bools]:
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
        emitted, same = np.zeros((2, len(order)), np.bool_)
        emitted[mine] = True
        fresh = holds | ~emitted[theirs]
        same[theirs[~fresh]] = True
        return ~same[mine], fresh


def _stands(kept: OpenMatches, keys: IntArray, count: int) -> IntArray:
    """Rank at which the search of each (pattern, partition) has an open match; -1 without one."""
    mine = kept.query * count + kept.partition
    if not len(mine):
        return np.full(len(keys), -1)
    at = np.minimum(np.searchsorted(mine, keys), len(mine) - 1)
    return np.where(mine[at] == keys, kept.rank[kept.first[:-1]][at], -1)


def _events(found: SearchResult) -> IntArray:
    parts = found.parts
    return np.stack(
        [
            parts.query, parts.partition, parts.first_tick, parts.first_among, parts.last_tick,
            parts.last_among,
        ],
        axis=1,
    )  # fmt: skip


def correct(
    bank: PatternBank, scan: Scan, late: Late, first: int, watermark: int
) -> Corrected | None:
    """What late events, which ``scan`` finds, change up to the watermark; also corrects the bank's
    open matches.  ``first`` is the stream's first tick.  None, and no change, if a late event is
    missing, or if events at the greatest tick, which a stretch does not reach, are needed.
    """
    assert bank.layer.longest >= 0
    if not len(late.tick):
        return Corrected(bank.nothing(), bank.nothing())
    reach, most = 2 * max(1, bank.layer.longest), min(watermark, INT64_MAX - 1)
    while True:
        low = max(first, int(late.tick[0]) - reach)
        high = min(most, int(late.tick[-1]) + reach)
        stretch = _Stretch.read(bank.time, bank.partition_by, scan, late, low, high)
        if stretch is None:
            return None
        searched = _searched(bank, stretch, first, watermark)
        if searched is not None:
            return _applied(bank, stretch, searched)
        if low == first and high == most:
            return None
        reach *= 2


_Round = tuple[_Near, SearchResult, SearchResult]
"""Pieces, and their results without and with the late events."""


def _searched(
    bank: PatternBank, stretch: _Stretch, first: int, watermark: int
) -> list[_Round] | None:
    """Rounds that search enough rows near late events, each the pieces that were too short in the
    one before; None when events beyond the stretch are needed.
    """
    count = int(stretch.is_late.sum())
    extent = np.full((2, count), ROWS_NEAR)
    again, searched_in = np.ones(count, np.bool_), np.zeros(count, np.int64)
    rounds: list[_Round] = []
    while True:
        near = _Near(bank, stretch, extent, again, first, watermark)
        searched_in[near.late] = len(rounds)
        without, after, before, behind = near.search(bank.layer)
        rounds.append((near, without, after))
        short = np.stack([before, behind])
        if not short.any():
            break
        if (short[0] & near.at_begin).any() or (short[1] & near.at_end).any():
            return None
        grows = np.zeros((2, count), np.bool_)
        grows[:, near.late] = short[:, near.piece]
        extent = np.where(grows, LONGER * extent, extent)
        again = grows[0] | grows[1]
    for number, (near, *_) in enumerate(rounds):
        near.lasting[near.piece] = searched_in[near.late] == number
    return rounds


def _applied(bank: PatternBank, stretch: _Stretch, rounds: list[_Round]) -> Corrected:
    places = bank.partitions
    number = _numbers(stretch.keys, places)
    ends = np.zeros(len(places), np.bool_)
    for near, *_ in rounds:
        near.tail &= near.lasting
        ended = number[near.partition[near.tail]]
        ends[ended] = True
        last = near.offsets[1:][near.tail] - 1
        places.reach(ended, near.new.tick[last], near.new.among[last])
    gone, there, layer = [bank.nothing()], [bank.nothing()], bank.layer
    open_matches = [open_where(layer.open_matches, ~ends[layer.open_matches.partition])]
    for near, without, after in rounds:
        changed = near.changed(without, after)
        for parts, one, some in zip((gone, there), (without, after), changed, strict=True):
            some &= near.lasting[one.parts.partition]
            if some.any():
                parts.append(one.matches(layer.names, near.keys_at).where(some))
        open_ = open_where(after.open_matches, near.tail[after.open_matches.partition])
        of = near.partition[open_.partition]
        begin = near.rank[near.offsets[open_.partition]]
        base = begin - near.size[of] + places.count[number[of]]
        rank = open_.rank + np.repeat(base, np.diff(open_.first))
        open_matches.append(open_._replace(partition=number[of], rank=rank))
    layer.open_matches = merged_open(open_matches)
    return Corrected(BankMatches.joined(gone), BankMatches.joined(there))
