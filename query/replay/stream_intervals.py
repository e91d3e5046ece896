"""Intervals of a pattern without partitions: spans that contain every match of the base events.

Blocks are looked up rarest first, each only where matches of those before can reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.sorting import places_in
from ...core.times import moved
from .candidates import find_candidates
from .choosing import Judge
from .coded_spans import coded_spans
from .fitting import fitted
from .intervals import candidate_spans, whole_ticks
from .lookups import Lookups
from .offers import Offer
from .rooms import Rooms
from .shared_columns import SharedColumn
from .shared_keys import keyed_spans, shared_by
from .spans import Spans

__all__ = ["StreamIntervals", "stream_intervals"]

Ints = npt.NDArray[np.int64]

DENSE = 64
"""Occurrences per chunk from which on a block is assumed to occur throughout."""


@dataclass(frozen=True)
class StreamIntervals:
    """The result of lookups; ``spans`` contain every match.  ``used``: terms looked up;
    ``too_frequent``: why the whole stream should be replayed (lookups ended there); ``shared`` and
    ``fitted``: what was tested on candidates and occurrences.
    """

    spans: Spans
    used: tuple[Offer, ...]
    too_frequent: str = ""
    shared: SharedColumn | None = None
    fitted: tuple[str, ...] = ()


def stream_intervals(lookups: Lookups, judge: Judge | None = None) -> StreamIntervals:
    """Intervals of the candidates of the picked terms; a judge may end the lookups early."""
    context, allowed = lookups.context, lookups.coarse.allowed
    picked, each = lookups.picked, lookups.bounds
    found: dict[int, Ints] = {}
    coded = _coded(lookups)
    if coded is not None:
        allowed = allowed.intersect(coded)
    spans = allowed
    order = lookups.order()
    asked = max(1, int(each.touches(spans).sum()))
    for number, block in enumerate(order):
        context.check()
        found[block] = lookups.occurrences(block, spans, coded)
        if not len(found[block]):
            return StreamIntervals(Spans.empty(), picked)
        why = "" if judge is None else judge.too_frequent(block, len(found[block]))
        if why:
            return StreamIntervals(allowed, picked, why)
        if block == order[-1]:
            break  # the last lookup
        if len(found[block]) > DENSE * len(lookups.chunks):
            reach = _reach_of(lookups, found[block])
        else:
            reach = _intervals(lookups, {block: found[block]})
        spans = spans.intersect(reach)
        if judge is not None:
            part = float(each.touches(spans).sum()) / asked
            left = order[number + 1 :]
            rest = [offer for offer in picked if offer.block in left and not lookups.knows(offer)]
            if judge.enough(spans, [(offer, part) for offer in rest]):
                used = tuple(offer for offer in picked if offer.block not in left)
                return StreamIntervals(spans, used)
    rooms = Rooms(lookups, found, spans)
    found = rooms.thinned(found)
    spans = _intervals(lookups, found, rooms).intersect(allowed)
    found = {block: at[_inside(at, spans)] for block, at in found.items()}
    known = shared_by(lookups, found)
    events = spans.joined(context.gap).total  # events that would be read
    fit = fitted(context, found, {}, events, "" if known is None else known[0].column)
    if fit.texts:
        found = dict(fit.found)
        if not all(map(len, found.values())):
            return StreamIntervals(Spans.empty(), picked, fitted=fit.texts)
        spans = _intervals(lookups, rooms.thinned(found), rooms).intersect(spans)
    keyed = keyed_spans(lookups, found, spans)
    if keyed is not None:
        return StreamIntervals(keyed[0], picked, shared=keyed[1], fitted=fit.texts)
    return StreamIntervals(spans, picked, fitted=fit.texts)


def _inside(places: Ints, spans: Spans) -> npt.NDArray[np.bool_]:
    if not len(spans):
        return np.zeros(len(places), np.bool_)
    at = places_in(spans.ends, places, "right")
    found: npt.NDArray[np.bool_] = at < len(spans)
    return found & (spans.starts[np.minimum(at, len(spans) - 1)] <= places)


def _coded(lookups: Lookups) -> Spans | None:
    found: Spans | None = None
    for one in lookups.context.pattern.shared:
        some = coded_spans(lookups, (one.column,), one.variables)
        if some is not None:
            found = some if found is None else found.intersect(some)
    return found


def _reach_of(lookups: Lookups, places: Ints) -> Spans:
    """What matches with an event at some places can reach, by chunk: cheap, two times per chunk."""
    context, each = lookups.context, lookups.bounds
    timeline, pattern = context.timeline, context.pattern
    first = np.searchsorted(places, each.starts)
    end = np.searchsorted(places, each.ends)
    held = np.flatnonzero(end > first)
    low, high = places[first[held]], places[end[held] - 1]
    starts, ends = np.zeros(len(held), np.int64), np.full(len(held), timeline.total)
    if pattern.within is not None:
        starts = timeline.lower(moved(timeline.ticks_at(low), -pattern.within))
        ends = timeline.upper(moved(timeline.ticks_at(high), pattern.within))
    if pattern.longest is not None:
        starts = np.maximum(starts, low - pattern.longest + 1)
        ends = np.minimum(ends, high + pattern.longest)
    return Spans.of(starts, ends)


def _intervals(lookups: Lookups, found: dict[int, Ints], rooms: Rooms | None = None) -> Spans:
    context = lookups.context
    pattern, timeline = context.pattern, context.timeline
    used = sorted(found)
    at = lookups.arranged(used)
    candidates = find_candidates(
        [found[number] for number in used], at.blocks, at.before, at.after, timeline,
        pattern.within, pattern.longest, ties=context.wants.ties,
    )  # fmt: skip
    ended = rooms.ended(candidates, used[-1]) if rooms is not None and at.trailing else None
    spans = candidate_spans(
        ended or candidates, timeline, at.leading, at.trailing and ended is None, pattern.within,
        pattern.longest,
    )  # fmt: skip
    return whole_ticks(spans, timeline) if context.wants.ties else spans
