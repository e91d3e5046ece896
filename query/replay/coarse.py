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

Cost
    Linear in leaves x symbols, vectorised; reads index nodes only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...store.prune import Prune, Pruner
from ...store.snapshot import Snapshot
from .spans import Spans
from .symbols import Outline
from .timeline import Timeline

__all__ = ["CoarseMap", "coarse_map"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class CoarseMap:
    """Buckets of the stream and the symbols they may hold.

    Attributes
    ----------
    starts, ends : int64[buckets]
        Positions.
    first, last : int64[buckets]
        Ticks, inclusive.
    alive : list of bool[buckets]
        Per symbol of the outline, where a match may have it.
    allowed : Spans
        Where matches may lie.
    """

    def __init__(
        self, starts: Ints, ends: Ints, first: Ints, last: Ints, alive: list[Mask], allowed: Spans
    ) -> None:
        self.starts = starts
        self.ends = ends
        self.first = first
        self.last = last
        self.alive = alive
        self.allowed = allowed

    def may_hold(self, symbol: int, start: int, end: int) -> bool:
        """Whether positions [start, end) may hold a symbol of a match."""
        low = int(np.searchsorted(self.ends, start, side="right"))
        high = int(np.searchsorted(self.starts, end, side="left"))
        return bool(self.alive[symbol][low:high].any())

    def events_alive(self, symbol: int) -> int:
        """Events of the buckets that may hold a symbol."""
        return int((self.ends - self.starts)[self.alive[symbol]].sum())


def coarse_map(
    snapshot: Snapshot, timeline: Timeline, pattern: Outline, low: int, high: int
) -> CoarseMap:
    """Build the map of a snapshot for an outline.

    Parameters
    ----------
    snapshot : Snapshot
    timeline : Timeline
        Of the snapshot.
    pattern : Outline
    low, high : int
        Positions that the query reads at all.
    """
    starts, ends, first, last = _buckets(timeline)
    inside = (ends > low) & (starts < high)
    symbols = pattern.symbols
    prunes = [symbol.prune for symbol in symbols]
    known: dict[Prune, Mask] = {}
    masks = []
    for prune in prunes:
        if prune is None:
            masks.append(inside)
            continue
        if prune not in known:
            known[prune] = _may_satisfy(timeline, prune, len(starts)) & inside
        masks.append(known[prune])
    alive = _sweep(masks, starts, ends, first, last, pattern)
    allowed = _allowed(alive, starts, ends, first, last, pattern)
    return CoarseMap(starts, ends, first, last, alive, allowed.clip(low, high))


def _buckets(timeline: Timeline) -> tuple[Ints, Ints, Ints, Ints]:
    starts, ends, first, last = [], [], [], []
    for part in timeline.parts:
        if part.leaves is not None:
            starts.append(part.start + part.leaves.starts[:-1])
            ends.append(part.start + part.leaves.starts[1:])
            first.append(part.leaves.first_ticks)
            last.append(part.leaves.last_ticks)
        elif part.tail is not None:
            starts.append(np.array([part.start]))
            ends.append(np.array([part.end]))
            first.append(np.array([part.tail.first]))
            last.append(np.array([part.tail.last]))
    if not starts:
        none = np.zeros(0, np.int64)
        return none, none, none, none
    return (
        np.concatenate(starts), np.concatenate(ends), np.concatenate(first), np.concatenate(last)
    )  # fmt: skip


def _may_satisfy(timeline: Timeline, prune: Prune, count: int) -> Mask:
    mask = np.ones(count, np.bool_)
    at = 0
    for part in timeline.parts:
        if part.leaves is None:
            at += 1  # the tail has no aggregates at hand
            continue
        assert part.view is not None
        table = part.leaves.table
        mask[at : at + table.shape[1]] = Pruner(prune, part.view.file.schema).mask(table)
        at += table.shape[1]
    return mask


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
    alive = [mask.copy() for mask in masks]
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
