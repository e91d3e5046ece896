"""The coarse pattern map: which leaves can hold which symbol of a match.

Purpose
    Thesis section 3.4.3, "Adaption to Non-Uniform Data".  The entries of the TAB+-tree just above
    the leaves are a histogram of the stream in time.  Per symbol the minimum and maximum of its
    attributes exclude leaves; a sweep forward and one backward over the symbols in order, never
    further than the window, exclude leaves that no match can reach.  What is left costs no index
    read to know.

Layout
    ::

        bucket      0   1   2   3   4   5        one per leaf; the tail is one more
        A may be    x   x           x            min/max
        B may be            x   x       x
        A B within one bucket's length:  A in 1, 4   B in 2, 5      3 is out of A's reach

    Where that leaves few leaves, their zones of 512 events take their place and the sweep is made
    once more.

Cost
    Linear in buckets x symbols, vectorised; reads index nodes, and the heads of at most
    :data:`ZONED_LEAVES` leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...store.layout import ROW_COUNT, ROW_FIRST, ROW_LAST
from ...store.prune import Prune, Pruner
from .spans import Spans
from .symbols import Outline
from .timeline import Timeline, TimelinePart

__all__ = ["Buckets", "CoarseMap", "coarse_map"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

ZONED_LEAVES = 64
"""Leaves of which the zones are looked at: when they are few, and the others are excluded."""


@dataclass(frozen=True)
class Buckets:
    """Buckets of one part of the timeline, and the index entries that describe them.

    Attributes
    ----------
    starts, ends : int64[buckets]
        Positions.
    first, last : int64[buckets]
        Ticks, inclusive.
    table : int64[rows, buckets] or None
        Entries, as :mod:`chronicle.store.layout` has them; None for the tail.
    """

    part: TimelinePart
    starts: Ints
    ends: Ints
    first: Ints
    last: Ints
    table: Ints | None

    @classmethod
    def of(cls, part: TimelinePart) -> Buckets:
        """One bucket per leaf; one for the tail, of which only the times are known."""
        leaves = part.leaves
        if leaves is not None:
            starts = part.start + leaves.starts
            return cls(
                part, starts[:-1], starts[1:], leaves.first_ticks, leaves.last_ticks, leaves.table
            )
        assert part.tail is not None
        one = [np.array([x]) for x in (part.start, part.end, part.tail.first, part.tail.last)]
        return cls(part, one[0], one[1], one[2], one[3], None)

    def may_satisfy(self, prune: Prune) -> Mask:
        """Buckets in which some event may satisfy a condition."""
        if self.table is None:
            return np.ones(len(self.starts), np.bool_)
        assert self.part.view is not None
        return Pruner(prune, self.part.view.file.schema).mask(self.table)

    def zoned(self, chosen: Mask) -> Buckets:
        """With the zones of some leaves in place of the leaves."""
        leaves = self.part.leaves
        if self.table is None or leaves is None or not chosen.any():
            return self
        tables, starts = [], []
        done = 0
        for number in [*np.flatnonzero(chosen).tolist(), len(self.starts)]:
            if done < number:
                tables.append(self.table[:, done:number])
                starts.append(self.starts[done:number])
            if number < len(self.starts):
                zones = leaves.leaf(number).zones
                tables.append(zones)
                within = np.cumsum(zones[ROW_COUNT]) - zones[ROW_COUNT]
                starts.append(self.starts[number] + within)
            done = number + 1
        table = np.concatenate(tables, axis=1)
        begins = np.concatenate(starts)
        ends = begins + table[ROW_COUNT]
        return Buckets(self.part, begins, ends, table[ROW_FIRST], table[ROW_LAST], table)


class CoarseMap:
    """Buckets of the stream and the symbols they may hold.

    Attributes
    ----------
    parts : sequence of Buckets
        The buckets by part of the timeline, with what is known of them.
    starts, ends : int64[buckets]
        Positions.
    first, last : int64[buckets]
        Ticks, inclusive.
    alive : list of bool[buckets]
        Per symbol of the outline, where a match may have it.
    possible : list of bool[buckets]
        Per symbol, where some event may satisfy it, in a match or not.
    allowed : Spans
        Where matches may lie.
    """

    def __init__(
        self, parts: Sequence[Buckets], starts: Ints, ends: Ints, first: Ints, last: Ints,
        alive: list[Mask], possible: list[Mask], allowed: Spans,
    ) -> None:  # fmt: skip
        self.parts = parts
        self.starts = starts
        self.ends = ends
        self.first = first
        self.last = last
        self.alive = alive
        self.possible = possible
        self.allowed = allowed

    def may_hold(self, symbol: int, start: int, end: int) -> bool:
        """Whether positions [start, end) may hold a symbol of a match."""
        low = int(np.searchsorted(self.ends, start, side="right"))
        high = int(np.searchsorted(self.starts, end, side="left"))
        return bool(self.alive[symbol][low:high].any())

    def narrowed(self, spans: Spans) -> CoarseMap:
        """The same where only some positions matter."""
        return CoarseMap(
            self.parts, self.starts, self.ends, self.first, self.last, self.alive, self.possible,
            self.allowed.intersect(spans),
        )  # fmt: skip

    def events_allowed(self) -> Ints:
        """Events of each bucket that lie in :attr:`allowed`."""
        spans = self.allowed
        total = np.concatenate(([0], np.cumsum(spans.ends - spans.starts)))

        def below(positions: Ints) -> Ints:
            at = np.searchsorted(spans.starts, positions, side="right") - 1
            known = np.maximum(at, 0)
            inside = np.minimum(positions, spans.ends[known]) - spans.starts[known]
            return np.where(at >= 0, total[known] + inside, 0)

        if not len(spans):
            return np.zeros(len(self.starts), np.int64)
        return below(self.ends) - below(self.starts)


def coarse_map(
    timeline: Timeline, pattern: Outline, low: int, high: int, *, zones: bool = True
) -> CoarseMap:
    """Build the map of a snapshot for an outline.

    Parameters
    ----------
    timeline : Timeline
        Of the snapshot.
    low, high : int
        Positions that the query reads at all.
    zones : bool
        Whether to look at the zones of the leaves that are left.
    """
    parts = [Buckets.of(part) for part in timeline.parts]
    found = _mapped(parts, pattern, low, high)
    left = Spans(found.starts, found.ends).touches(found.allowed)
    if zones and 0 < left.sum() <= min(ZONED_LEAVES, len(left) // 2):
        at = 0
        for number, entries in enumerate(parts):
            parts[number] = entries.zoned(left[at : at + len(entries.starts)])
            at += len(entries.starts)
        found = _mapped(parts, pattern, low, high)
    return found


def _mapped(parts: Sequence[Buckets], pattern: Outline, low: int, high: int) -> CoarseMap:
    if not parts:
        none = np.zeros(0, np.int64)
        return CoarseMap(parts, none, none, none, none, [], [], Spans.empty())
    starts = np.concatenate([entries.starts for entries in parts])
    ends = np.concatenate([entries.ends for entries in parts])
    first = np.concatenate([entries.first for entries in parts])
    last = np.concatenate([entries.last for entries in parts])
    inside = (ends > low) & (starts < high)
    known: dict[Prune | None, Mask] = {None: inside}
    masks = []
    for symbol in pattern.symbols:
        prune = symbol.prune
        if prune not in known:
            assert prune is not None
            known[prune] = np.concatenate([e.may_satisfy(prune) for e in parts]) & inside
        masks.append(known[prune])
    alive = _sweep(masks, starts, ends, first, last, pattern)
    allowed = _allowed(alive, starts, ends, first, last, pattern)
    return CoarseMap(parts, starts, ends, first, last, alive, masks, allowed.clip(low, high))


def _sweep(
    masks: Sequence[Mask], starts: Ints, ends: Ints, first: Ints, last: Ints, pattern: Outline
) -> list[Mask]:
    """Clear what no match can reach from a neighbouring symbol, forward, then backward."""
    count = len(starts)
    here = np.arange(count)
    back = np.zeros(count, np.int64)  # first bucket that a match ending in this one can begin in
    ahead = np.full(count, count, np.int64)  # one past the last that it can end in
    if pattern.within is not None:
        back = np.maximum(back, np.searchsorted(last, _minus(first, pattern.within), side="left"))
        ahead = np.minimum(ahead, np.searchsorted(first, _plus(last, pattern.within), side="right"))
    if pattern.longest is not None:
        back = np.maximum(back, np.searchsorted(ends, starts - pattern.longest + 1, side="right"))
        ahead = np.minimum(ahead, np.searchsorted(starts, ends + pattern.longest - 1, side="left"))
    # all events of a match lie within one window of each of them
    near = np.ones(count, np.bool_)
    for mask in {id(mask): mask for mask in masks}.values():
        if mask.all():
            continue
        held = np.concatenate(([0], np.cumsum(mask)))
        near &= held[np.maximum(ahead, here + 1)] > held[np.minimum(back, here)]
    alive = [mask & near for mask in masks]
    for i in range(1, len(alive)):
        before = np.concatenate(([0], np.cumsum(alive[i - 1])))
        alive[i] &= before[here + 1] > before[back]
    for i in range(len(alive) - 2, -1, -1):
        after = np.concatenate(([0], np.cumsum(alive[i + 1])))
        alive[i] &= after[ahead] > after[here]
    return alive


def _minus(ticks: Ints, distance: int) -> Ints:
    """Difference that does not wrap below."""
    least = -(2**63)
    bound = min(distance, 2**63 - 1)
    return np.where(ticks < least + bound, least, ticks - bound)


def _plus(ticks: Ints, distance: int) -> Ints:
    """Sum that does not wrap above."""
    most = 2**63 - 1
    bound = min(distance, most)
    return np.where(ticks > most - bound, most, ticks + bound)


def _allowed(
    alive: list[Mask], starts: Ints, ends: Ints, first: Ints, last: Ints, pattern: Outline
) -> Spans:
    """Positions where a match may lie, from where its first and its last symbol may."""
    if not alive:
        return Spans.of(starts[:1], ends[-1:])
    total = int(ends[-1]) if len(ends) else 0
    from_first = _reach(alive[0], starts, ends, first, last, pattern, pattern.leading, True, total)
    from_last = _reach(alive[-1], starts, ends, first, last, pattern, True, pattern.trailing, total)
    return from_first.intersect(from_last)


def _reach(
    mask: Mask, starts: Ints, ends: Ints, first: Ints, last: Ints, pattern: Outline,
    backward: bool, forward: bool, total: int,
) -> Spans:  # fmt: skip
    """Buckets of a mask and what a match that has a symbol in them can reach on each side."""
    chosen = np.flatnonzero(mask)
    low, high = starts[chosen], ends[chosen]
    if backward:
        low = np.zeros(len(chosen), np.int64)
        if pattern.within is not None and len(chosen):
            bucket = np.searchsorted(last, _minus(first[chosen], pattern.within), side="left")
            low = np.maximum(low, starts[np.minimum(bucket, chosen)])
        if pattern.longest is not None:
            low = np.maximum(low, starts[chosen] - pattern.longest + 1)
    if forward:
        high = np.full(len(chosen), total, np.int64)
        if pattern.within is not None and len(chosen):
            bucket = np.searchsorted(first, _plus(last[chosen], pattern.within), side="right") - 1
            high = np.minimum(high, ends[np.maximum(bucket, chosen)])
        if pattern.longest is not None:
            high = np.minimum(high, ends[chosen] + pattern.longest - 1)
    return Spans.of(low, high)
