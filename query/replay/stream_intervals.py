"""Intervals of a pattern without partitions: candidates of chosen terms, block by block.

Layout
    ::

        terms -> occurrences of the rarest block -> what its matches can reach
              -> occurrences of the next block there -> ... -> candidates -> intervals

Guarantee
    What is found contains every match of the base events; late events are added by
    :mod:`.late_ranges`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .candidates import find_candidates
from .choosing import Judge
from .intervals import candidate_spans, shift, whole_ticks
from .lookups import Lookups
from .offers import Offer
from .spans import Spans

__all__ = ["StreamIntervals", "stream_intervals"]

Ints = npt.NDArray[np.int64]

DENSE = 64
"""Occurrences of a block in a chunk from which it is clear that they lie all over it."""


@dataclass(frozen=True)
class StreamIntervals:
    """What lookups have found.

    Attributes
    ----------
    spans : Spans
        They contain every match.
    used : tuple of Offer
        Terms that were looked up.
    too_frequent : str
        Why the whole stream had better be replayed; the lookups were ended there.
    """

    spans: Spans
    used: tuple[Offer, ...]
    too_frequent: str = ""


def stream_intervals(lookups: Lookups, judge: Judge | None = None) -> StreamIntervals:
    """Intervals of the candidates of the terms that were picked.

    Parameters
    ----------
    lookups : Lookups
        With at least one term.
    judge : Judge, optional
        Asked after each lookup whether to go on; without one all are made.
    """
    context, allowed = lookups.context, lookups.coarse.allowed
    picked, each = lookups.picked, lookups.bounds
    found: dict[int, Ints] = {}
    spans = allowed
    order = lookups.order()
    asked = max(1, int(each.touches(spans).sum()))
    for number, block in enumerate(order):
        context.check()
        found[block] = lookups.occurrences(block, spans)
        if not len(found[block]):
            return StreamIntervals(Spans.empty(), picked)
        why = "" if judge is None else judge.too_frequent(block, len(found[block]))
        if why:
            return StreamIntervals(allowed, picked, why)
        if block == order[-1]:
            break  # nothing is looked up after it
        if len(found[block]) > DENSE * len(lookups.chunks):
            reach = _reach_of(lookups, found[block])
        else:
            reach = _intervals(lookups, {block: found[block]})
        spans = spans.intersect(reach)
        if judge is not None:
            part = float(each.touches(spans).sum()) / asked
            left = order[number + 1 :]
            if judge.enough(spans, [(offer, part) for offer in picked if offer.block in left]):
                used = tuple(offer for offer in picked if offer.block not in left)
                return StreamIntervals(spans, used)
    return StreamIntervals(_intervals(lookups, found).intersect(allowed), picked)


def _reach_of(lookups: Lookups, places: Ints) -> Spans:
    """What matches with an event at some places can reach, chunk by chunk.

    Says which chunks matter at all at the cost of two times each, where finding the interval
    of every place would cost more than it spares.
    """
    context, each = lookups.context, lookups.bounds
    timeline, pattern = context.timeline, context.pattern
    first = np.searchsorted(places, each.starts)
    end = np.searchsorted(places, each.ends)
    held = np.flatnonzero(end > first)
    low, high = places[first[held]], places[end[held] - 1]
    starts, ends = np.zeros(len(held), np.int64), np.full(len(held), timeline.total)
    if pattern.within is not None:
        starts = timeline.lower(shift(timeline.ticks_at(low), -pattern.within))
        ends = timeline.upper(shift(timeline.ticks_at(high), pattern.within))
    if pattern.longest is not None:
        starts = np.maximum(starts, low - pattern.longest + 1)
        ends = np.minimum(ends, high + pattern.longest)
    return Spans.of(starts, ends)


def _intervals(lookups: Lookups, found: dict[int, Ints]) -> Spans:
    """Intervals of the candidates made of some blocks."""
    context = lookups.context
    pattern, timeline = context.pattern, context.timeline
    used = sorted(found)
    at = lookups.arranged(used)
    candidates = find_candidates(
        [found[number] for number in used], at.blocks, at.before, at.after, timeline,
        pattern.within, pattern.longest, ties=context.wants.ties,
    )  # fmt: skip
    spans = candidate_spans(
        candidates, timeline, at.leading, at.trailing, pattern.within, pattern.longest
    )
    return whole_ticks(spans, timeline) if context.wants.ties else spans
