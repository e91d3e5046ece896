"""Groups of replay intervals of about the same number of events, as parts that can be sent.

Any group finds its matches without the others (under PARTITION BY, per partition); near late events
the rows of all partitions stay together.  A part keeps positions of the whole stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...core.sorting import order_of
from ..replay.partition_spans import PartitionSpans
from ..replay.replay_plan import ReplayIntervals, ReplayPlan
from ..replay.spans import Spans
from ..replay.timeline import Timeline
from .parts import MatchPart, SpanPart

__all__ = ["interval_parts"]

Ints = npt.NDArray[np.int64]
SPAN_EVENTS = 2048
"""Cost of starting an interval, in events."""


def interval_parts(
    plan: ReplayPlan, wanted: int, divided: Mapping[int, Sequence[MatchPart]] | None = None
) -> tuple[MatchPart, ...]:
    """Divide a plan's intervals into about ``wanted`` parts; ``divided``: existing parts, by
    number.
    """
    intervals, timeline = plan.intervals, plan.timeline
    assert intervals is not None
    assert timeline is not None
    spans = intervals.spans
    if not len(spans):
        return ()
    if intervals.partitions is not None:
        return _of_partitions(intervals, timeline, intervals.partitions, wanted)
    pieces = divided or {}
    found: list[MatchPart] = [part for parts in pieces.values() for part in parts]
    rest = np.delete(np.arange(len(spans)), list(pieces))
    if not len(rest):
        return tuple(found)
    starts, ends = spans.starts[rest], spans.ends[rest]
    for low, high in _groups(ends - starts, max(1, wanted - len(found))):
        numbers = enumerate(rest[low:high].tolist())
        by_time = {at: intervals.by_time[n] for at, n in numbers if n in intervals.by_time}
        mine = replace(intervals, spans=Spans(starts[low:high], ends[low:high]), by_time=by_time)
        found.append(_part(mine, timeline))
    return tuple(found)


def _groups(events: Ints, wanted: int) -> list[tuple[int, int]]:
    weight = np.cumsum(events + SPAN_EVENTS)
    goals = weight[-1] * np.arange(1, wanted) / wanted
    cuts = sorted({0, len(events), *(np.searchsorted(weight, goals) + 1).tolist()})
    return list(pairwise(cuts))


def _of_partitions(
    intervals: ReplayIntervals, timeline: Timeline, partitions: PartitionSpans, wanted: int
) -> tuple[MatchPart, ...]:
    """Ranges read by time stay whole, with all intervals that reach into them."""
    spans = intervals.spans
    inside, stride = partitions.inside, partitions.stride
    base = inside.starts // stride * stride
    starts, ends = inside.starts - base, inside.ends - base
    blocks = np.array(sorted(intervals.by_time), np.int64)
    # the first and the last block that an interval reaches into, if it does
    low = np.searchsorted(blocks, np.searchsorted(spans.ends, starts, side="right"))
    high = np.searchsorted(blocks, np.searchsorted(spans.starts, ends), side="left") - 1
    touching = high >= low
    clump = _clumps(low[touching], high[touching], len(blocks))
    rows = np.flatnonzero(~touching)
    clumps = int(clump[-1]) + 1 if len(blocks) else 0
    # units of work: single intervals, then blocks with all intervals that reach into them
    weights = spans.ends[blocks] - spans.starts[blocks]
    leading = np.searchsorted(clump, np.arange(clumps))
    at = np.concatenate([starts[rows], spans.starts[blocks[leading]]])
    weight = np.bincount(clump, weights, clumps).astype(np.int64)
    size = np.concatenate([(ends - starts)[rows], weight])
    order = order_of(at)
    found: list[MatchPart] = []
    for begin, end in _groups(size[order], wanted):
        units = order[begin:end]
        mine = np.zeros(len(inside), np.bool_)
        mine[rows[units[units < len(rows)]]] = True
        taken = np.isin(clump, units[units >= len(rows)] - len(rows))
        kept = blocks[taken]
        reaching = np.zeros(len(inside), np.bool_)
        if len(blocks):
            reaching[touching] = taken[low[touching]]
        mine |= reaching
        shown = _shown_for(partitions, mine)
        few = replace(
            partitions,
            keys=partitions.keys.on(None),
            inside=Spans(inside.starts[mine], inside.ends[mine]),
            shown=shown,
        )
        positions = _hull(Spans(inside.starts[mine], inside.ends[mine]), shown, stride)
        whole = Spans(spans.starts[kept], spans.ends[kept])
        positions = positions.minus(whole)
        begins = np.concatenate([positions.starts, whole.starts])
        ends = np.concatenate([positions.ends, whole.ends])
        ticks = [None] * len(positions) + [intervals.by_time[int(number)] for number in kept]
        placed = order_of(begins)
        by_time = {
            place: bounds
            for place, bounds in enumerate(ticks[i] for i in placed.tolist())
            if bounds is not None
        }
        placed_spans = Spans(begins[placed], ends[placed])
        own = replace(intervals, spans=placed_spans, by_time=by_time, partitions=few)
        found.append(_part(own, timeline))
    return tuple(found)


def _clumps(low: Ints, high: Ints, blocks: int) -> Ints:
    """Number each block; blocks that one interval touches share a number."""
    edges = np.zeros(blocks + 1, np.int64)
    np.add.at(edges, low, 1)
    np.add.at(edges, high, -1)
    linked = np.cumsum(edges)[:blocks] > 0  # to the next block
    found: Ints = np.concatenate([[0], np.cumsum(~linked)])[:blocks].astype(np.int64)
    return found


def _hull(inside: Spans, shown: Spans, stride: int) -> Spans:
    starts = np.concatenate([inside.starts, shown.starts])
    ends = np.concatenate([inside.ends, shown.ends])
    base = starts // stride * stride
    return Spans.of(starts - base, ends - base, SPAN_EVENTS)


def _shown_for(partitions: PartitionSpans, mine: npt.NDArray[np.bool_]) -> Spans:
    inside, shown, stride = partitions.inside, partitions.shown, partitions.stride
    if not len(shown):
        return shown
    code = shown.starts // stride
    first = np.searchsorted(inside.starts, shown.starts, side="right") - 1
    last = np.searchsorted(inside.starts, shown.ends, side="left")
    low = np.searchsorted(inside.starts, code * stride, side="left")
    high = np.searchsorted(inside.starts, (code + 1) * stride, side="left")
    first, last = np.maximum(first, low), np.minimum(last, high - 1)
    count = np.concatenate([[0], np.cumsum(mine)])
    near = (last >= first) & (count[np.maximum(last + 1, 0)] > count[np.maximum(first, 0)])
    return Spans(shown.starts[near], shown.ends[near])


def _part(intervals: ReplayIntervals, timeline: Timeline) -> SpanPart:
    spans = intervals.spans
    first = max(0, int(spans.starts[0]) - intervals.before)
    last = min(timeline.total - 1, int(spans.ends[-1]) + intervals.after - 1)
    ticks = [timeline.tick(first), timeline.tick(last)]
    ticks += [tick for pair in intervals.by_time.values() for tick in pair]
    part = next(part for part in timeline.parts if first < part.end)
    segment = None if part.view is None else part.view.file.segment_id
    return SpanPart(intervals, segment, part.start, min(ticks), max(ticks))
