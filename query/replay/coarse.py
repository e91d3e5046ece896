"""The coarse pattern map: which leaves can hold which symbol of a match.

Thesis section 3.4.3, "Adaption to Non-Uniform Data".  Minimum and maximum of a symbol's attributes
exclude leaves of the TAB+-tree; a forward and a backward sweep over the symbols, never further than
the window, exclude leaves that no match can reach::

    bucket      0   1   2   3   4   5        one per leaf; the tail is one more
    A may be    x   x           x            min/max
    B may be            x   x       x
    A B within one bucket's length:  A in 1, 4   B in 2, 5      3 is out of A's reach

If few leaves remain, their zones of 512 events replace them.  Cost: linear in buckets x symbols;
reads index nodes and the headers of at most ``ZONED_LEAVES`` leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...core.sorting import places_in
from ...core.times import moved
from ...store.prune import Prune
from .buckets import Histogram
from .spans import Spans
from .symbols import Outline
from .timeline import Timeline

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

ZONED_LEAVES = 64
"""Most leaves whose zones are read, if they are few and the others are excluded."""


class CoarseMap:
    """Buckets of the stream and the symbols they may hold.  ``starts`` and ``ends`` are positions,
    ``first`` and ``last`` inclusive ticks of the buckets.  Per symbol, ``alive`` marks buckets
    where a match may have it, ``possible`` those where some event may satisfy it.  ``allowed``:
    positions where matches may lie.
    """

    def __init__(
        self, histogram: Histogram, alive: list[Mask], possible: list[Mask], allowed: Spans
    ) -> None:
        self.histogram = histogram
        self.starts = histogram.starts
        self.ends = histogram.ends
        self.first = histogram.first
        self.last = histogram.last
        self.alive = alive
        self.possible = possible
        self.allowed = allowed

    def may_hold(self, symbol: int, start: int, end: int) -> bool:
        """Whether positions [start, end) may hold a symbol of a match."""
        low = int(np.searchsorted(self.ends, start, side="right"))
        high = int(np.searchsorted(self.starts, end, side="left"))
        return bool(self.alive[symbol][low:high].any())

    def narrowed(self, spans: Spans) -> CoarseMap:
        allowed = self.allowed.intersect(spans)
        return CoarseMap(self.histogram, self.alive, self.possible, allowed)

    def events_allowed(self) -> Ints:
        spans = self.allowed
        total = np.concatenate(([0], np.cumsum(spans.ends - spans.starts)))

        def below(positions: Ints) -> Ints:
            at = places_in(spans.starts, positions, "right") - 1
            span = np.maximum(at, 0)
            inside = np.minimum(positions, spans.ends[span]) - spans.starts[span]
            return np.where(at >= 0, total[span] + inside, 0)

        if not len(spans):
            return np.zeros(len(self.starts), np.int64)
        return below(self.ends) - below(self.starts)


def coarse_map(
    timeline: Timeline,
    pattern: Outline,
    low: int,
    high: int,
    *,
    zones: bool = True,
    ties: bool = False,
    histogram: Histogram | None = None,
) -> CoarseMap:
    """The map over positions [low, high), by default refined by zones.  ``ties``: events of one
    time may come in any order, even across buckets.
    """
    histogram = histogram or Histogram.of(timeline)
    tied = timeline if ties else None
    mapped = _mapped(histogram, pattern, low, high, tied)
    left = Spans(mapped.starts, mapped.ends).touches(mapped.allowed)
    many = min(ZONED_LEAVES, len(left) // 2)
    if zones and 0 < left.sum() <= many:
        mapped = _mapped(histogram.zoned(left), pattern, low, high, tied)
    return mapped


def _mapped(
    histogram: Histogram, pattern: Outline, low: int, high: int, tied: Timeline | None
) -> CoarseMap:
    if not histogram.parts:
        return CoarseMap(histogram, [], [], Spans.empty())
    starts, ends, first, last = histogram.starts, histogram.ends, histogram.first, histogram.last
    inside = (ends > low) & (starts < high)
    everywhere = bool(inside.all())
    masks_of: dict[Prune | None, Mask] = {}
    masks = []
    for symbol in pattern.symbols:
        if symbol.prune not in masks_of:
            held = histogram.may_satisfy(symbol.prune)
            masks_of[symbol.prune] = held if everywhere else held & inside
        masks.append(masks_of[symbol.prune])
    reach = histogram.reachable(
        pattern.within, pattern.longest, lambda: _reachable(starts, ends, first, last, pattern)
    )
    here = np.arange(len(starts))
    beside = (here, here)
    if tied is not None:  # buckets that share a tick with this one
        beside = (
            np.searchsorted(last, first, side="left"),
            np.searchsorted(first, last, side="right") - 1,
        )
    alive = _sweep(masks, reach, beside)
    allowed = _allowed(alive, starts, ends, first, last, pattern, tied)
    return CoarseMap(histogram, alive, masks, allowed.clip(low, high))


def _reachable(
    starts: Ints, ends: Ints, first: Ints, last: Ints, pattern: Outline
) -> tuple[Ints, Ints]:
    """First bucket where a match that ends in each begins; one past the last where it ends."""
    count = len(starts)
    back, ahead = np.zeros(count, np.int64), np.full(count, count, np.int64)
    if pattern.within is not None:
        back = np.maximum(back, np.searchsorted(last, moved(first, -pattern.within), side="left"))
        ahead = np.minimum(ahead, np.searchsorted(first, moved(last, pattern.within), side="right"))
    if pattern.longest is not None:
        back = np.maximum(back, np.searchsorted(ends, starts - pattern.longest + 1, side="right"))
        ahead = np.minimum(ahead, np.searchsorted(starts, ends + pattern.longest - 1, side="left"))
    return back, ahead


def _sweep(
    masks: Sequence[Mask], reach: tuple[Ints, Ints], beside: tuple[Ints, Ints]
) -> list[Mask]:
    """Clear what no match can reach from a neighbouring symbol, forward, then backward.
    ``beside``: first and last bucket whose events may precede or follow those of each.
    """
    back, ahead = reach
    count = len(back)
    here = np.arange(count)
    # all events of a match lie within one window of each of them
    near = np.ones(count, np.bool_)
    for mask in {id(mask): mask for mask in masks}.values():
        if mask.all():
            continue
        held = np.concatenate(([0], np.cumsum(mask)))
        near &= held[np.maximum(ahead, here + 1)] > held[np.minimum(back, here)]
    back, ahead = np.minimum(back, beside[0]), np.maximum(ahead, beside[1] + 1)
    alive = [mask & near for mask in masks]
    for i in range(1, len(alive)):
        before = np.concatenate(([0], np.cumsum(alive[i - 1])))
        alive[i] &= before[beside[1] + 1] > before[back]
    for i in range(len(alive) - 2, -1, -1):
        after = np.concatenate(([0], np.cumsum(alive[i + 1])))
        alive[i] &= after[ahead] > after[beside[0]]
    return alive


def _allowed(
    alive: list[Mask], starts: Ints, ends: Ints, first: Ints, last: Ints, pattern: Outline,
    tied: Timeline | None,
) -> Spans:  # fmt: skip
    if not alive:
        return Spans.of(starts[:1], ends[-1:])
    total = int(ends[-1]) if len(ends) else 0
    around = (starts, ends, first, last, pattern, tied)
    from_first = _reach(alive[0], *around, pattern.leading, True, total)
    from_last = _reach(alive[-1], *around, True, pattern.trailing, total)
    return from_first.intersect(from_last)


def _reach(
    mask: Mask, starts: Ints, ends: Ints, first: Ints, last: Ints, pattern: Outline,
    tied: Timeline | None, backward: bool, forward: bool, total: int,
) -> Spans:  # fmt: skip
    chosen = np.flatnonzero(mask)
    low, high = starts[chosen], ends[chosen]
    if tied is not None:
        low = np.minimum(low, tied.lower(first[chosen]))
        high = np.maximum(high, tied.upper(last[chosen]))
    if backward:
        low = np.zeros(len(chosen), np.int64)
        if pattern.within is not None and len(chosen):
            bucket = np.searchsorted(last, moved(first[chosen], -pattern.within), side="left")
            low = np.maximum(low, starts[np.minimum(bucket, chosen)])
        if pattern.longest is not None:
            low = np.maximum(low, starts[chosen] - pattern.longest + 1)
    if forward:
        high = np.full(len(chosen), total, np.int64)
        if pattern.within is not None and len(chosen):
            bucket = np.searchsorted(first, moved(last[chosen], pattern.within), side="right") - 1
            high = np.minimum(high, ends[np.maximum(bucket, chosen)])
        if pattern.longest is not None:
            high = np.minimum(high, ends[chosen] + pattern.longest - 1)
    return Spans.of(low, high)
