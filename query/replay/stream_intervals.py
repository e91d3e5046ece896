"""Intervals of a pattern without partitions: spans that contain every match of the base events.

Blocks are looked up rarest first, each only where matches of those before can reach.

Blocks can be at a bounded distance: ``A Z{0,5} B``, ``A B+ C``, ``A B{1,3}``.  A gap may be bounded
(``symbols.Room``): by a number of events, or because all of them satisfy the condition of the
symbol before.  Occurrences without another one in reach are dropped::

    position     0 1 2 3 4 5 6 7 8 9          A B+ C: every event between is a B
    B            . x x x . . x x . .          runs  1..3, 6..7
    C            . . . . x . . . . x          left: C at 4; the one at 9 is behind no run

Sound for contiguous matches of the stream: events are neighbours, and those of a gap obey its
condition.  The repeated symbol's occurrences are taken before any is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...core.sorting import places_in
from ...core.times import moved
from .candidates import Candidates, find_candidates
from .choosing import Judge
from .coded_spans import coded_spans
from .fitting import fitted
from .intervals import candidate_spans, whole_ticks
from .lookups import Lookups
from .offers import Offer
from .partition_intervals import keyed_spans, shared_by
from .spans import Spans
from .symbols import SharedColumn

Ints = npt.NDArray[np.int64]
ROUNDS = 2
_FAR = 2**62


class Rooms:
    """Bounded gaps, given the ascending starts of all looked-up blocks in ``spans``."""

    def __init__(self, lookups: Lookups, found: Mapping[int, Ints], spans: Spans) -> None:
        self._pattern, self._timeline = lookups.context.pattern, lookups.context.timeline
        self._lengths = [len(block.symbols) for block in self._pattern.blocks]
        self._runs: dict[int, tuple[Ints, Ints]] = {}
        for block, at in found.items():
            if not self._pattern.room(block).repeats:
                continue
            alone = at if self._lengths[block] == 1 else lookups.last_symbol(block, spans)
            if alone is not None and len(alone):
                ends = np.append(np.flatnonzero(np.diff(alone) != 1), len(alone) - 1)
                self._runs[block] = alone, alone[ends[places_in(ends, np.arange(len(alone)))]]

    def thinned(self, found: Mapping[int, Ints]) -> dict[int, Ints]:
        """Occurrences with another one of each neighbouring block within reach."""
        left = dict(found)
        for _ in range(ROUNDS):
            before = sum(map(len, left.values()))
            for earlier, later in pairwise(sorted(left)):
                self._thin(left, earlier, later)
            if sum(map(len, left.values())) == before:
                break
        return left

    def _thin(self, left: dict[int, Ints], earlier: int, later: int) -> None:
        behind, begin = left[earlier] + self._lengths[earlier], left[later]
        if later == earlier + 1:
            until = self._last_of_room(earlier, behind - 1) + 1
        else:
            distance = self._pattern.distance(earlier, later)
            until = behind + (_FAR if distance is None else distance)
        if not len(behind) or not len(begin) or not np.any(until < begin[-1]):
            return
        first = places_in(begin, behind)
        near = np.append(begin, _FAR)[first] <= until
        left[earlier], behind, until = left[earlier][near], behind[near], until[near]
        # later occurrences reach further, so the last one before decides
        last = places_in(behind, begin, "right")
        left[later] = begin[begin <= np.append([-1], until)[last]]

    def _last_of_room(self, block: int, ends: Ints) -> Ints:
        """Last position of the gap behind a block, for each end of the block."""
        most = self._pattern.room(block).most
        last = np.full(len(ends), _FAR) if most is None else ends + most
        if block in self._runs:
            alone, until = self._runs[block]
            at = np.minimum(places_in(alone, ends), len(alone) - 1)
            last = np.minimum(last, np.where(alone[at] == ends, until[at], _FAR))
        return last

    def ended(self, found: Candidates, used: int) -> Candidates | None:
        """Candidates with their last possible events; None if only the window bounds them."""
        room = self._pattern.room(used)
        if used + 1 < len(self._lengths) or (room.most is None and used not in self._runs):
            return None
        last = np.minimum(self._last_of_room(used, found.farthest), self._timeline.total - 1)
        if self._pattern.within is not None:
            until = self._timeline.upper(moved(found.first_ticks, self._pattern.within)) - 1
            last = np.minimum(last, np.maximum(until, found.farthest))
        ticks = self._timeline.ticks_at(last)
        return replace(found, farthest=last, farthest_ticks=ticks)


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
