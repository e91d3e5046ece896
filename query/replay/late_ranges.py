"""From spans to what is replayed: near spans merged, late events (without position) added."""

from __future__ import annotations

import numpy as np

from ...core.sorting import order_of
from .context import PlanContext
from .intervals import dirty_spans, whole_ticks
from .partition_spans import PartitionSpans
from .replay_plan import ReplayIntervals
from .spans import Spans

__all__ = ["intervals_of_partitions", "intervals_of_stream"]


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
