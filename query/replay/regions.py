"""What of a stream's history a query read and what it skipped, coarse enough to draw.

Regions are in time order and their events add up to the base events; beyond ``REGIONS_MAX``, the
narrowest gaps are closed.  Late events outside of the base are not counted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...store.prune import Prune
from ...store.snapshot import Snapshot
from ..contract.explanation import Regions
from .buckets import Buckets
from .partitions import PartitionSpans
from .replay_plan import ReplayPlan
from .spans import Spans
from .timeline import Timeline

REGIONS_MAX = 2000
LANES_MAX = 50
LANE_SPANS_MAX = 200
"""Ranges of a lane; more would be narrower than a pixel."""

Ints = npt.NDArray[np.int64]


def regions_of(plan: ReplayPlan | None, snapshot: Snapshot, kind: str = "replayed") -> Regions:
    """The regions of a plan over its snapshot; ``kind``: what was done."""
    if snapshot.time_range is None:
        return Regions(unit=snapshot.schema.time_unit)
    if plan is None or plan.spans is None or plan.timeline is None:
        first, last = snapshot.time_range
        return Regions(((first, last, kind, snapshot.count),), snapshot.schema.time_unit)
    parts = plan.partitions
    if parts is None:
        return _drawn(plan.spans, plan.timeline, kind, snapshot)
    lanes = _lanes(parts, plan.timeline)
    drawn = _drawn(plan.spans, plan.timeline, "read", snapshot)
    return replace(drawn, lanes=lanes, partitions=parts.partitions)


def regions_of_scan(
    snapshot: Snapshot, low: int, high: int, prune: Prune | None = None, kind: str = "read"
) -> Regions:
    """The regions of a scan of inclusive ticks, pruned by leaves; ``kind``: read or aggregated."""
    if snapshot.time_range is None:
        return Regions(unit=snapshot.schema.time_unit)
    timeline = Timeline(snapshot)
    starts, ends = [], []
    for part in timeline.parts:
        buckets = Buckets.of(part)
        chosen = (buckets.first <= high) & (buckets.last >= low)
        if prune is not None:
            chosen &= buckets.may_satisfy(prune)
        starts.append(buckets.starts[chosen])
        ends.append(buckets.ends[chosen])
    none = [np.zeros(0, np.int64)]
    begins, closes = np.concatenate(starts or none), np.concatenate(ends or none)
    if len(begins):
        apart = np.flatnonzero(begins[1:] != closes[:-1])
        begins = begins[np.concatenate(([0], apart + 1))]
        closes = closes[np.concatenate((apart, [len(closes) - 1]))]
        first = int(timeline.lower(np.array([low]))[0])
        end = int(timeline.upper(np.array([high]))[0])
        return _drawn(Spans(begins, closes).clip(first, end), timeline, kind, snapshot)
    return _drawn(Spans(begins, closes), timeline, kind, snapshot)


def _drawn(spans: Spans, timeline: Timeline, kind: str, snapshot: Snapshot) -> Regions:
    unit, total = snapshot.schema.time_unit, timeline.total
    assert snapshot.time_range is not None
    first, last = snapshot.time_range
    if not len(spans) or not total:
        return Regions(((first, last, "skipped", total),), unit)
    starts_at, ends_at, begins, ends = _widest(spans, REGIONS_MAX // 2)
    inside = np.concatenate(([0], np.cumsum(spans.ends - spans.starts)))
    events = inside[ends + 1] - inside[begins]
    ticks = timeline.ticks_at(np.stack([starts_at, ends_at - 1], axis=1).reshape(-1))
    bars: list[tuple[int, int, str, int]] = []
    position, tick = 0, first
    for place in range(len(begins)):
        left, right = int(ticks[2 * place]), int(ticks[2 * place + 1])
        if starts_at[place] > position:
            bars.append((tick, left, "skipped", int(starts_at[place]) - position))
        bars.append((left, right, kind, int(events[place])))
        hidden = int(ends_at[place] - starts_at[place]) - int(events[place])
        position, tick = int(ends_at[place]) - hidden, right
    if total > position:
        bars.append((tick, last, "skipped", total - position))
    return Regions(tuple(bars), unit, cut=len(begins) < len(spans))


def _widest(spans: Spans, most: int) -> tuple[Ints, Ints, Ints, Ints]:
    """At most ``most`` spans, the narrowest gaps closed, with first and last original span."""
    gaps = spans.starts[1:] - spans.ends[:-1]
    breaks_most = min(len(gaps), most - 1)
    breaks = np.sort(np.argsort(-gaps, kind="stable")[:breaks_most])
    begins = np.concatenate(([0], breaks + 1))
    ends = np.concatenate((breaks, [len(spans) - 1]))
    return spans.starts[begins], spans.ends[ends], begins, ends


def _lanes(
    parts: PartitionSpans, timeline: Timeline
) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
    inside = parts.inside
    codes = inside.starts // parts.stride
    distinct, first = np.unique(codes, return_index=True)
    if not len(distinct) or not timeline.total:
        return ()
    lengths = np.add.reduceat(inside.ends - inside.starts, first)
    last = np.append(first[1:], len(codes))
    lanes = []
    for place in np.argsort(-lengths, kind="stable")[:LANES_MAX].tolist():
        own, code = slice(first[place], last[place]), int(distinct[place])
        shift = code * parts.stride
        starts, ends, _, _ = _widest(
            Spans(inside.starts[own] - shift, inside.ends[own] - shift), LANE_SPANS_MAX
        )
        last_of = np.minimum(ends, timeline.total) - 1
        ticks = timeline.ticks_at(np.stack([starts, last_of], axis=1).reshape(-1)).tolist()
        key = ", ".join("NULL" if one is None else str(one) for one in parts.keys.key(code))
        lanes.append((key, tuple(zip(ticks[::2], ticks[1::2], strict=True))))
    return tuple(lanes)
