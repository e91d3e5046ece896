"""What a bank has found and has open, told from the events: where patterns come, or late events.

Purpose
    A bank goes on from the hits of open matches.  :func:`open_at` makes those of patterns that come
    at a watermark; :func:`correct` says what late events change, and puts the open ones right.
    Both search a stretch of events anew, all patterns at once.

Where a search may begin
    What was before is forgotten at a row that no match covers, whichever row it began with::

        matches from any row     [====]   [=======]
                                   [===]       [======]
        rows                ......................|........|........ late event ....
                                 no cut here     cut: the last such row that lies more than the
                                                 window before the late event

    So the stretch is searched once as if AFTER MATCH SKIP TO NEXT ROW was said everywhere, which
    gives the cut of each (pattern, partition), and then again from there.  Matches that begin
    before the stretch end within a window behind its begin; a cut lies behind that, or the stretch
    is made longer.

What a late event changes
    The stretch is searched with the late events and without.  Matches that both have, by their
    first and last event, and that hold no late event are the same.  Where the stretch ends before
    the watermark, both searches must have come to the same open matches; else it is made longer.

Cost
    Events of the partitions that late events belong to, over some windows on both sides.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...compiled import kernel
from ...query.pattern.columns import flat, numbers
from ...query.pattern.groups import KeyCodes, take_ranges
from ...query.pattern.outcomes import TO_NEXT
from ...ticks import INT64_MAX, INT64_MIN
from .layer import Found, Layer, Room, empty_kept, kept_where
from .matches import BankMatches
from .partitions import Partitions
from .pattern_bank import PatternBank
from .searching import Fresh, Hits, Kept

__all__ = ["Corrected", "Late", "Scan", "correct", "open_at"]

IntArray = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Scan = Callable[[int, int], pa.Table]
"""Events with ``low <= t <= high`` in the order of time, with the columns of the bank."""


@dataclass(frozen=True)
class Late:
    """Ticks at which events have come late.

    Attributes
    ----------
    tick, before : int64 arrays
        Ascending ticks, and how many events each had before: those behind them are the late ones.
    events : pyarrow.Table
        The late events.
    """

    tick: IntArray
    before: IntArray
    events: pa.Table

    def among(self, ticks: IntArray) -> Bools:
        """Which of all events of a range, in the order of time, are late."""
        if not len(ticks):
            return np.zeros(0, np.bool_)
        at = np.searchsorted(self.tick, ticks)
        at[at == len(self.tick)] = 0
        index = np.arange(len(ticks)) - np.searchsorted(ticks, ticks, side="left")
        found: Bools = (self.tick[at] == ticks) & (index >= self.before[at])
        return found


@dataclass(frozen=True)
class Corrected:
    """What late events change: matches that are none any more, or others, and those that are now.

    A match that holds a late event is in both.
    """

    gone: BankMatches
    found: BankMatches


@dataclass(frozen=True)
class _Stretch:
    """Events of some partitions, in the order of these."""

    table: pa.Table
    places: Partitions
    fresh: Fresh
    order: IntArray
    offsets: IntArray

    @classmethod
    def of(cls, bank: PatternBank, table: pa.Table, keys: pa.Table | None = None) -> _Stretch:
        """``keys``: partitions whose numbers come first."""
        places = Partitions(bank.schema, bank.time, bank.partition_by)
        if keys is not None:
            places.numbers_of(keys)
        fresh, order = places.arrange(table)
        offsets = np.concatenate([[0], np.cumsum(places.count)]).astype(np.int64)
        return cls(table, places, fresh, order, offsets)


@kernel
def _latest_free(
    query, partition, first, last, window, tick, offsets, bound, low, whole, cut, listed
):
    """The cut of each (pattern, partition) with matches; False where one has none in sight.

    Matches come by pattern, partition and first row.  ``listed``: (pattern, partition) of each cut.
    """
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
        until = bound[p] - w
        left, right = begin, end
        while left < right:
            middle = (left + right) // 2
            if tick[middle] < until:
                left = middle + 1
            else:
                right = middle
        at = left - begin
        moved = False
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
            moved = True
        if moved and not whole and tick[begin + at] < low + w:
            return -1
        listed[count, 0] = query[i]
        listed[count, 1] = p
        cut[count] = at
        count += 1
        i = stop
    return count


def _searched(
    layer: Layer, stretch: _Stretch, bound: IntArray, low: int | None, room: Room
) -> tuple[IntArray, IntArray] | None:
    """Where the search of each (pattern, partition) begins: as one number, ascending, and a row."""
    fresh, places = stretch.fresh, stretch.places
    hits = layer.hits(stretch.table, stretch.order, fresh, room)
    upto = int(bound.max()) - 1 if len(bound) else INT64_MIN
    every = layer.search(hits, fresh, empty_kept(), upto, room, skip=TO_NEXT)
    count = len(every.query)
    cut, listed = np.zeros(count, np.int64), np.zeros((count, 2), np.int64)
    made = _latest_free(
        every.query, every.parts.partition, every.parts.first_row, every.parts.last_row,
        layer.window, fresh.tick, stretch.offsets, bound, 0 if low is None else low, low is None,
        cut, listed,
    )  # fmt: skip
    if made < 0:
        return None
    return listed[:made, 0] * max(1, len(places)) + listed[:made, 1], cut[:made]


def _replayed(
    layer: Layer, stretch: _Stretch, begin: tuple[IntArray, IntArray], upto: int, room: Room
) -> Found:
    """What the searches find that begin there, and have open at a watermark."""
    fresh = stretch.fresh
    hits = layer.hits(stretch.table, stretch.order, fresh, room)
    keys, cut = begin
    if len(keys):
        queries = len(hits.first) - 1
        query = np.repeat(np.arange(queries), np.diff(hits.first))
        key = query * max(1, len(stretch.places)) + fresh.partition[hits.row]
        at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        kept = (keys[at] != key) | (fresh.rank[hits.row] >= cut[at])
        sizes = np.bincount(query[kept], minlength=queries)
        first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        hits = Hits(first, hits.row[kept], hits.bits[kept])
    return layer.search(hits, fresh, empty_kept(), upto, room)


def open_at(bank: PatternBank, layer: Layer, scan: Scan, first: int, watermark: int) -> None:
    """Give a layer what its patterns have open at the bank's watermark.

    Parameters
    ----------
    scan : callable
        It gives the columns of the layer, too.
    first : int
        Tick of the first event there is.
    """
    assert layer.longest >= 0
    reach = max(1, layer.longest)
    while True:
        low = max(first, _less(watermark, 2 * reach))
        stretch = _Stretch.of(bank, scan(low, watermark))
        bound = np.full(len(stretch.places), min(watermark, INT64_MAX - 1) + 1)
        begin = _searched(layer, stretch, bound, None if low <= first else low, bank.room)
        if begin is not None:
            break
        reach *= 2
    found = _replayed(layer, stretch, begin, watermark, bank.room)
    layer.kept = _sorted([_moved(found.kept, stretch.places, bank.partitions)])


def _less(tick: int, ticks: int) -> int:
    return max(INT64_MIN, tick - ticks)


def _moved(kept: Kept, local: Partitions, places: Partitions) -> Kept:
    """What is kept, in the numbers of other partitions that have seen the same last events."""
    number = _numbers(local, places)
    shift = places.count[number] - local.count
    newer = local.tick > places.tick[number]
    newer |= (local.tick == places.tick[number]) & (local.rank > places.rank[number])
    places.tick[number[newer]] = local.tick[newer]
    places.rank[number[newer]] = local.rank[newer]
    rank = kept.rank + np.repeat(shift[kept.partition], np.diff(kept.first))
    return kept._replace(partition=number[kept.partition], rank=rank)


def _numbers(local: Partitions, places: Partitions) -> IntArray:
    if not local.partition_by:
        return np.zeros(1, np.int64)
    return places.numbers_of(local.keys) if len(local) else np.zeros(0, np.int64)


def _sorted(parts: list[Kept]) -> Kept:
    """What is kept of several, by pattern and partition."""
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


def correct(
    bank: PatternBank, scan: Scan, late: Late, first: int, watermark: int
) -> Corrected | None:
    """What late events change of what was found up to a watermark, the bank's; None: nothing.

    Parameters
    ----------
    scan : callable
        Of the events as they are now.
    first : int
        Tick of the first event there is.
    """
    if not len(late.tick) or not bank.layers:
        return None
    assert bank.longest >= 0
    window = max(1, bank.longest)
    back = ahead = 2 * window
    touched = Partitions(bank.schema, bank.time, bank.partition_by)
    codes = touched.numbers_of(late.events)
    since = np.full(len(touched), INT64_MAX)
    np.minimum.at(since, codes, _ticks(late.events, bank.time))
    while True:
        low = max(first, _less(int(late.tick[0]), back))
        high = min(watermark, int(late.tick[-1]) + ahead)
        table, is_late = _of_partitions(bank, scan(low, high), late, touched.keys)
        new = _Stretch.of(bank, table, touched.keys)
        old = _Stretch.of(bank, table.filter(pa.array(~is_late)), touched.keys)
        found: list[tuple[Layer, Found, Found]] = []
        for layer in bank.layers:
            begin = _searched(layer, new, since, None if low <= first else low, bank.room)
            if begin is None:
                break
            pair = [_replayed(layer, stretch, begin, high, bank.room) for stretch in (old, new)]
            found.append((layer, pair[0], pair[1]))
        if len(found) < len(bank.layers):
            back *= 2
            continue
        if high >= watermark or all(
            _rejoined(before.kept, after.kept, new, is_late) for _, before, after in found
        ):
            break
        ahead *= 2
    _put_right(bank, new, is_late, found, whole=high >= watermark)
    gone, there = [bank.nothing()], [bank.nothing()]
    for layer, before, after in found:
        changed = _changed(before, after, new, is_late)
        for parts, one, stretch, some in (
            (gone, before, old, changed[0]), (there, after, new, changed[1]),
        ):  # fmt: skip
            if some.any():
                parts.append(one.matches(layer.names, stretch.places.keys_at).where(some))
    return Corrected(BankMatches.joined(gone), BankMatches.joined(there))


def _ticks(table: pa.Table, time: str) -> IntArray:
    ticks, _ = numbers(flat(table.column(time)), "i")
    return np.ascontiguousarray(ticks, np.int64)


def _of_partitions(
    bank: PatternBank, table: pa.Table, late: Late, keys: pa.Table
) -> tuple[pa.Table, Bools]:
    """The events of some partitions, and which of them are late."""
    is_late = late.among(_ticks(table, bank.time))
    if not bank.partition_by:
        return table, is_late
    codes = KeyCodes(len(bank.partition_by))
    codes.encode([keys.column(name) for name in bank.partition_by])
    some = codes.count
    mine = codes.encode([table.column(name) for name in bank.partition_by]) < some
    return table.filter(pa.array(mine)), is_late[mine]


def _rejoined(before: Kept, after: Kept, new: _Stretch, is_late: Bools) -> bool:
    """Whether both searches are at the same rows, behind all late events."""
    flags = is_late[new.order]
    shift = np.add.reduceat(flags, new.offsets[:-1]).astype(np.int64)
    behind = np.zeros(len(shift), np.int64)  # a row behind the last late one of each partition
    at = np.flatnonzero(flags)
    np.maximum.at(behind, new.fresh.partition[at], new.fresh.rank[at] + 1)
    if not np.array_equal(before.query, after.query) or not np.array_equal(
        before.partition, after.partition
    ):
        return False
    here, there = before.rank[before.first[:-1]], after.rank[after.first[:-1]]
    return bool(
        (here + shift[before.partition] == there).all() and (there >= behind[after.partition]).all()
    )


def _put_right(
    bank: PatternBank,
    new: _Stretch,
    is_late: Bools,
    found: list[tuple[Layer, Found, Found]],
    *,
    whole: bool,
) -> None:
    """Count the late events, and take over what is open where the stretch goes to the watermark."""
    places = bank.partitions
    number = _numbers(new.places, places)
    more = np.add.reduceat(is_late[new.order], new.offsets[:-1]).astype(np.int64)
    shift = np.zeros(len(places), np.int64)
    shift[number] = more
    places.count += shift
    touched = np.zeros(len(places), np.bool_)
    touched[number] = True
    for layer, _, after in found:
        kept = layer.kept
        if whole:
            rest = kept_where(kept, ~touched[kept.partition])
            layer.kept = _sorted([rest, _moved(after.kept, new.places, places)])
        else:
            moved = np.repeat(shift[kept.partition], np.diff(kept.first))
            layer.kept = kept._replace(rank=kept.rank + moved)


def _changed(before: Found, after: Found, new: _Stretch, is_late: Bools) -> tuple[Bools, Bools]:
    """Which matches of the old search are gone or others, and which of the new one are new so."""
    sums = np.concatenate([[0], np.cumsum(is_late[new.order])])
    begin = new.offsets[after.parts.partition]
    holds = sums[begin + after.parts.last_row + 1] > sums[begin + after.parts.first_row]
    both = np.concatenate([_events(before), _events(after)])
    _, number = np.unique(both, axis=0, return_inverse=True)
    number = number.reshape(-1)
    mine, theirs = number[: len(before.query)], number[len(before.query) :]
    fresh = holds | ~np.isin(theirs, mine)
    return ~np.isin(mine, theirs[~fresh]), fresh


def _events(found: Found) -> IntArray:
    """First and last event of each match, as a row of numbers."""
    parts, first = found.parts, np.concatenate([[0], np.cumsum(found.runs)])[:-1].astype(np.int64)
    return np.stack(
        [
            found.query, parts.partition, parts.tick[first], parts.among[first], parts.last_tick,
            parts.last_among,
        ],
        axis=1,
    )  # fmt: skip
