"""From spans that contain every match to what is replayed.

Near spans are merged, and the surroundings of late events, which have no position, are added.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...core.sorting import order_of
from ...core.times import moved
from .context import PlanContext
from .partitions import PartitionSpans
from .replay_plan import ReplayIntervals
from .spans import Spans
from .timeline import Timeline

Ints = npt.NDArray[np.int64]


def dirty_spans(
    ranges: list[tuple[int, int]], timeline: Timeline, within: int | None, longest: int | None
) -> tuple[Spans, Ints, Ints]:
    """Positions that late events affect (at least one per range), and each range's ticks."""
    starts = np.array([first for first, _ in ranges], np.int64)
    ends = np.array([last for _, last in ranges], np.int64)
    low, high = timeline.lower(starts), timeline.upper(ends)
    first, last = starts, ends
    if longest is not None:
        low, high = low - longest + 1, high + longest - 1
    if within is not None:
        first, last = moved(starts, -within), moved(ends, within)
        in_time = timeline.lower(first), timeline.upper(last)
        low = in_time[0] if longest is None else np.maximum(low, in_time[0])
        high = in_time[1] if longest is None else np.minimum(high, in_time[1])
    # a range may lie between two base events: take one of them, so that it has a position
    low = np.clip(np.minimum(low, high - 1), 0, timeline.total - 1)
    high = np.clip(np.maximum(high, low + 1), 1, timeline.total)
    return Spans.of(low, high), starts, ends


def whole_ticks(spans: Spans, timeline: Timeline) -> Spans:
    if not len(spans):
        return spans
    first = timeline.lower(timeline.ticks_at(spans.starts))
    end = timeline.upper(timeline.ticks_at(spans.ends - 1))
    return Spans.of(first, end)


def intervals_of_stream(context: PlanContext, spans: Spans) -> ReplayIntervals:
    """What is replayed for spans of the stream that contain every match of the base events."""
    wants = context.wants
    around = (wants.before, wants.after)
    if wants.ties or wants.named:
        spans = whole_ticks(spans, context.timeline)
    if wants.partition_by and not wants.neighbours:
        around = (0, 0)
    spans, by_time = _with_late(context, spans, max(context.gap, sum(around)))
    return ReplayIntervals(spans, by_time, None, *around)


def intervals_of_partitions(context: PlanContext, found: PartitionSpans) -> ReplayIntervals:
    """The hull of partition intervals, and the surroundings of late events for all partitions."""
    if context.wants.named:
        found = found.whole_ticks(context.timeline)
    dirty, by_time = _with_late(context, Spans.empty(), 0)
    within = context.pattern.within
    if context.wants.previous and not context.wants.neighbours and within is not None:
        # avoid false predecessors across intervals of one partition
        found = found.bridged(context.timeline, within, dirty)
    rest = found.hull().joined(context.gap).minus(dirty)
    order = order_of(np.concatenate([dirty.starts, rest.starts]))
    spans = Spans(
        np.concatenate([dirty.starts, rest.starts])[order],
        np.concatenate([dirty.ends, rest.ends])[order],
    )
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return ReplayIntervals(
        spans, {int(place[number]): ticks for number, ticks in by_time.items()}, found
    )


def _with_late(
    context: PlanContext, spans: Spans, gap: int
) -> tuple[Spans, dict[int, tuple[int, int]]]:
    """Spans merged with those near late events, and the ticks by which these are read."""
    timeline, pattern = context.timeline, context.pattern
    dirty = context.late
    by_time: dict[int, tuple[int, int]] = {}
    if not dirty:
        return spans.joined(gap), by_time
    unsure, first, last = dirty_spans(dirty, timeline, pattern.within, pattern.longest)
    spans = whole_ticks(spans.union(unsure), timeline).joined(gap)
    hit = spans.touches(unsure)
    places, untils = timeline.lower(first), timeline.upper(last)
    for number in np.flatnonzero(hit).tolist():
        start, end = int(spans.starts[number]), int(spans.ends[number])
        low, high = timeline.tick(start), timeline.tick(end - 1)
        # late events in reach may lie before the first or after the last base event of the span
        near = np.flatnonzero((places <= end) & (untils >= start))
        if len(near):
            low, high = min(low, int(first[near].min())), max(high, int(last[near].max()))
        by_time[number] = (low, high)
    return spans, by_time
