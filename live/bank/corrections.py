"""Corrections of a bank's matches by late events, computed only near those events.

::

    rows of a partition    . . A B . B . A B x C . . B . A . . .        x came late
                               [       neighbourhood      ]
                                 ^cut           ^ searches agree again

A *neighbourhood* of rows is searched with and without the late events.  It is extended on a side
until each pattern has a cut before the late events (``cuts``), and both searches agree behind them:
at a bare row, or at the same open match.  At the end of its partition it ends at the watermark.
Matches of both searches (same first and last event) without a late event, and all matches outside,
are unchanged; the others are reported.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.times import INT64_MIN
from .arranged import Arranged
from .cuts import bare_rows, free_rows, hits_behind
from .layer import Found, Layer, empty_kept, kept_where
from .matches import BankMatches
from .pattern_bank import PatternBank
from .predicate_index import Columns
from .regions import sorted_kept
from .searching import Fresh, Kept

__all__ = ["Corrected", "correct"]

IntArray = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
ROWS_NEAR = 8
LONGER = 4
NOWHERE = np.int64(1 << 62)


@dataclass(frozen=True)
class Corrected:
    """Matches gone or changed, and matches that hold now; one with a late event is in both."""

    gone: BankMatches
    found: BankMatches


@dataclass(frozen=True)
class _Late:
    partition: IntArray
    place: IntArray


@dataclass(frozen=True)
class _Near:
    """Neighbourhoods: disjoint, ascending ranges of places; ``done`` if large enough."""

    partition: IntArray
    begin: IntArray
    end: IntArray
    done: Bools
    name: IntArray

    def __len__(self) -> int:
        return len(self.begin)

    @classmethod
    def around(cls, bank: PatternBank, events: Arranged, late: _Late) -> _Near:
        partition, place = late.partition, late.place
        begin, end = place - ROWS_NEAR, place + ROWS_NEAR + 1
        if any(layer.passes_over for layer in bank.layers):
            tick, reach = events.ticks(partition, place), 2 * max(1, bank.longest) + 1
            begin = np.minimum(begin, events.places(partition, tick - reach) - 1)
            end = np.maximum(end, events.places(partition, tick + reach) + 1)
        none = np.full(len(place), -1)
        return cls(partition, begin, end, none > 0, none).joined(events)

    def joined(self, events: Arranged) -> _Near:
        """Clipped to their partitions; overlapping ones merged, to be searched again."""
        begin, end = np.maximum(self.begin, 0), np.minimum(self.end, events.size[self.partition])
        base = (np.cumsum(events.size) - events.size)[self.partition]
        order = np.argsort(base + begin, kind="stable")
        begins, ends = (base + begin)[order], np.maximum.accumulate((base + end)[order])
        fresh = np.flatnonzero(np.concatenate([[True], begins[1:] >= ends[:-1]]))
        last = np.append(fresh[1:], len(order)) - 1
        alone = fresh == last
        partition, base = self.partition[order[fresh]], base[order[fresh]]
        return _Near(
            partition, begins[fresh] - base, ends[last] - base,
            self.done[order[fresh]] & alone, self.name[order[fresh]],
        )  # fmt: skip


class _Searched:
    """Neighbourhoods as partitions; ``whole``: begins its partition, ``tail``: ends it."""

    def __init__(
        self, bank: PatternBank, events: Arranged, near: _Near, late: _Late, first: int,
        watermark: int,
    ) -> None:  # fmt: skip
        self.near, self.bank = near, bank
        rows = events.read(near.partition, near.begin, near.end)
        self.columns = Columns(events.table(bank.columns, rows))
        self.every = np.arange(len(rows.tick))
        self.offsets, count = rows.offsets, len(near)
        sizes = np.diff(self.offsets)
        at, mine = _within(events, near, late)
        self.is_late = np.zeros(len(rows.tick), np.bool_)
        self.is_late[at] = True
        local = at - self.offsets[mine]
        ends = np.searchsorted(mine, np.arange(count + 1))
        self.first, self.last = local[ends[:-1]], local[ends[1:] - 1]
        self.counts = np.diff(ends)
        every = np.repeat(np.arange(count), sizes)
        rank = np.arange(len(every)) - self.offsets[every]
        self.new = Fresh(every, rank, rows.tick, rows.among, sizes)
        self.stays = np.flatnonzero(~self.is_late)
        self.late_before = np.concatenate([[0], np.cumsum(self.is_late)]).astype(np.int64)
        gone = self.late_before[self.offsets]
        shift = self.late_before[:-1] - gone[every]
        self.old = Fresh(
            every[self.stays], (rank - shift)[self.stays], rows.tick[self.stays],
            rows.among[self.stays], sizes - np.diff(gone),
        )  # fmt: skip
        at_end = near.end == events.size[near.partition]
        self.tail = at_end & (events.last >= watermark)
        self.whole = (near.begin == 0) & (events.first <= first)
        self.begun = np.where(near.begin > 0, rows.tick[self.offsets[:-1]] + 1, events.first)
        self.begun[self.whole] = INT64_MIN
        self.bound = rows.tick[self.offsets[:-1] + self.first]
        self.known = np.where(
            at_end, min(events.last, watermark), rows.tick[self.offsets[1:] - 1] - 1
        )

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
        mine, theirs = number[: len(without.query)], number[len(without.query) :]
        said, same = np.zeros((2, len(order)), np.bool_)
        said[mine] = True
        fresh = holds | ~said[theirs]
        same[theirs[~fresh]] = True
        return ~same[mine], fresh


def _within(events: Arranged, near: _Near, late: _Late) -> tuple[IntArray, IntArray]:
    base = np.cumsum(events.size) - events.size
    begins = base[near.partition] + near.begin
    at = base[late.partition] + late.place
    mine = np.searchsorted(begins, at, side="right") - 1
    inside = (mine >= 0) & (at < (base[near.partition] + near.end)[np.maximum(mine, 0)])
    mine, at = mine[inside], at[inside]
    offsets = np.cumsum(near.end - near.begin) - (near.end - near.begin)
    return offsets[mine] + at - begins[mine], mine


def _stands(kept: Kept, keys: IntArray, count: int) -> IntArray:
    """Rank at which the search of each (pattern, partition) has an open match; -1 without one."""
    mine = kept.query * count + kept.partition
    if not len(mine):
        return np.full(len(keys), -1)
    at = np.minimum(np.searchsorted(mine, keys), len(mine) - 1)
    return np.where(mine[at] == keys, kept.rank[kept.first[:-1]][at], -1)


def _events(found: Found) -> IntArray:
    parts, first = found.parts, np.concatenate([[0], np.cumsum(found.runs)])[:-1].astype(np.int64)
    return np.stack(
        [
            found.query, parts.partition, parts.tick[first], parts.among[first], parts.last_tick,
            parts.last_among,
        ],
        axis=1,
    )  # fmt: skip


@dataclass(frozen=True)
class _Outcome:
    """Results, by layer, of neighbourhoods searched together; ``base`` is the name of the first."""

    searched: _Searched
    base: int
    found: list[tuple[Found, Found]]

    def counts(self, names: IntArray) -> Bools:
        """Which of its neighbourhoods are final."""
        return np.isin(self.base + np.arange(len(self.searched.near)), names)


def correct(
    bank: PatternBank,
    events: Arranged,
    late: tuple[IntArray, IntArray],
    first: int,
    watermark: int,
) -> Corrected | None:
    """Changes by ``late`` events (partition and place, ascending, already in ``events``).  None,
    without effect, when events beyond ``events`` are needed; ``first`` is the stream's first tick.
    """
    assert bank.longest >= 0
    held, named = _Late(*late), 0
    near = _Near.around(bank, events, held)
    outcomes: list[_Outcome] = []
    while not near.done.all():
        some = np.flatnonzero(~near.done)
        part = _Near(
            near.partition[some], near.begin[some], near.end[some], near.done[some], near.name[some]
        )
        searched = _Searched(bank, events, part, held, first, watermark)
        before, behind = np.zeros((2, len(part)), np.bool_)
        outcome = _Outcome(searched, named, [])
        for layer in bank.layers:
            without, after, short_before, short_behind = searched.search(layer)
            outcome.found.append((without, after))
            before |= short_before
            behind |= short_behind
        outcomes.append(outcome)
        if (before & (part.begin == 0)).any() or (
            behind & (part.end == events.size[part.partition])
        ).any():
            return None
        near.done[some] = ~(before | behind)
        near.name[some] = named + np.arange(len(part))
        named += len(part)
        near.begin[some] -= np.where(before, LONGER * (searched.first + ROWS_NEAR), 0)
        rest = np.diff(searched.offsets) - searched.last
        near.end[some] += np.where(behind, LONGER * (rest + ROWS_NEAR), 0)
        near = near.joined(events)
    return _told(bank, events, held, outcomes, near.name)


def _told(
    bank: PatternBank, events: Arranged, late: _Late, outcomes: list[_Outcome], names: IntArray
) -> Corrected:
    """The changes; also corrects the bank's open matches."""
    gone, there = [bank.nothing()], [bank.nothing()]
    open_: list[list[Kept]] = [[] for _ in bank.layers]
    touched = np.unique(late.partition)
    number = np.zeros(len(events.size), np.int64)
    if bank.partition_by:
        number[touched] = bank.partitions.numbers_of(events.partitions.keys_at(touched))
    places = bank.partitions
    more = np.bincount(late.partition, minlength=len(events.size))[touched]
    shift, ends = np.zeros(len(places), np.int64), np.zeros(len(places), np.bool_)
    shift[number[touched]] = more
    places.count += shift
    for outcome in outcomes:
        searched, counts = outcome.searched, outcome.counts(names)
        near, tail = searched.near, searched.tail & counts
        ends[number[near.partition[tail]]] = True
        _newest(bank, searched, number[near.partition], tail)

        def keys_at(mine: IntArray, near: _Near = near) -> pa.Table:
            return events.partitions.keys_at(near.partition[mine])

        for i, (layer, (without, after)) in enumerate(zip(bank.layers, outcome.found, strict=True)):
            changed = searched.changed(without, after)
            for parts, one, some in zip((gone, there), (without, after), changed, strict=True):
                mine = some & counts[one.parts.partition]
                if mine.any():
                    parts.append(one.matches(layer.names, keys_at).where(mine))
            kept = kept_where(after.kept, tail[after.kept.partition])
            of = near.partition[kept.partition]
            moved = near.begin[kept.partition] + places.count[number[of]] - events.size[of]
            rank = kept.rank + np.repeat(moved, np.diff(kept.first))
            open_[i].append(kept._replace(partition=number[of], rank=rank))
    for layer, ended in zip(bank.layers, open_, strict=True):
        kept = kept_where(layer.kept, ~ends[layer.kept.partition])
        moved = np.repeat(shift[kept.partition], np.diff(kept.first))
        layer.kept = sorted_kept([kept._replace(rank=kept.rank + moved), *ended])
    return Corrected(BankMatches.joined(gone), BankMatches.joined(there))


def _newest(bank: PatternBank, searched: _Searched, number: IntArray, tail: Bools) -> None:
    places, last = bank.partitions, searched.offsets[1:] - 1
    tick, rank = searched.new.tick[last], searched.new.among[last]
    newer = (tick > places.tick[number]) | (
        (tick == places.tick[number]) & (rank > places.rank[number])
    )
    newer &= tail
    places.tick[number[newer]] = tick[newer]
    places.rank[number[newer]] = rank[newer]
