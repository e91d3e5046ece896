"""Divide a pattern query into parts of about the same weight, which together find each match once:

=================================================  =====================================
the plan, the clause                               parts
=================================================  =====================================
replay intervals                                   groups of intervals, long ones divided
whole stream; WITHIN or a greatest length          time ranges between cuts
whole stream; PARTITION BY                         groups of partitions
anything else                                      one
=================================================  =====================================

Finding cuts reads a share of the stream (``parts.Budget``) on one processor.

Long replay intervals are divided in time, so that several executors share one.  Cuts (``cuts``) are
placed at nearby leaf borders; nothing is open at either end of the interval.  The parts find each
match of the interval once, with or without late events.  An interval stays whole if time cannot be
cut (``parts.reach_of``), a neighbour has events of the same time, it belongs to one partition, or
it has few events.

Other replay intervals are grouped into parts with about the same number of events.  Any group finds
its matches without the others (under PARTITION BY, per partition); near late events the rows of all
partitions stay together.  A part keeps positions of the whole stream.

A query over situations has the parts of its replay intervals, else ranges of instants, else groups
of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import order_of
from ...core.times import INT64_MAX
from ...store.snapshot import Snapshot
from ..contract.operator import (
    InstantRange,
    InstantRanges,
    Part,
    PartRun,
    Split,
    instant_ranges,
)
from ..pattern.compiled import CompiledMatch
from ..replay.partitions import PartitionSpans
from ..replay.replay_plan import ReplayIntervals, ReplayPlan
from ..replay.situation_intervals import SituationRun, by_time, instants_of, run_replayed
from ..replay.spans import Spans
from ..replay.timeline import Timeline
from ..situations.compiled import CompiledSituations
from .cuts import find_cut
from .parts import (
    MOST,
    Budget,
    Cut,
    RangePart,
    Reach,
    SharePart,
    SpanPart,
    independent,
    reach_of,
)

Ints = npt.NDArray[np.int64]


TRIES = 3


def find_cuts(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    reach: Reach,
    goals: Iterable[int],
    bounds: tuple[int, int],
    budget: Budget,
) -> tuple[list[Cut], int]:
    """Cuts near ascending ticks within ``bounds``, and at how many places there was none."""
    first, last = bounds
    cuts: list[Cut] = []
    failed = 0
    for goal in goals:
        tick = goal
        for _ in range(TRIES):
            # a part should be longer than its overlap
            earliest = reach.back(reach.back(tick))
            if tick > last or earliest <= (cuts[-1].last if cuts else first):
                break
            cut, looked = find_cut(snapshot, compiled, reach, tick)
            budget.left -= looked
            if cut is not None and cut.last <= last:
                cuts.append(cut)
                break
            failed += 1
            if budget.left < 0:
                break
            tick = reach.ahead(tick)
        if budget.left < 0:
            break
    return cuts, failed


def between(
    bounds: Sequence[Cut | None], compiled: CompiledMatch, reach: Reach, last: int = MOST
) -> list[RangePart]:
    """The parts between neighbouring cuts; ``last``: greatest tick that their matches can have."""
    alone = independent(compiled)
    parts = []
    for low, high in pairwise(bounds):
        before = reach.first if low is None else reach.before(low.tick)
        stop = after = MOST
        if high is not None:
            stop = min(last, reach.ahead(high.tick - 1)) if alone else high.last
            after = reach.after(max(stop, high.tick - 1))
        parts.append(RangePart(low, high, before, stop, after))
    return parts


def whole_ranges(
    snapshot: Snapshot, compiled: CompiledMatch, wanted: int
) -> tuple[tuple[RangePart, ...], str]:
    """About ``wanted`` ranges of all time and a description; or none and the reason."""
    reach = reach_of(snapshot, compiled)
    if isinstance(reach, str):
        return (), reach
    goals = [goal for goal, _ in snapshot.ranges(wanted) if goal is not None]
    ends = (reach.first, reach.last)
    cuts, failed = find_cuts(snapshot, compiled, reach, goals, ends, Budget(snapshot))
    if not cuts:
        if failed:
            return (), "no place was found in time that no match can cross"
        return (), "a match may reach over a large part of the stream"
    parts = between([None, *cuts, None], compiled, reach)
    carried = sum(len(cut.carried) for cut in cuts)
    description = f"{len(parts)} ranges of time"
    if independent(compiled):
        description += ", overlapping by what a match can reach"
    elif carried:
        description += f", {carried} rows carried over their cuts"
    return tuple(parts), description


LONG = 1.5
"""An interval of so many times the size of a part is divided."""
LEAST_EVENTS = 1 << 13
"""Shorter intervals are not worth a task of their own."""
BORDERS = 1024
"""Leaf borders considered, spread over the stream."""


def divided(
    snapshot: Snapshot, compiled: CompiledMatch, plan: ReplayPlan, wanted: int
) -> dict[int, list[RangePart]]:
    """Parts of the intervals that are too long, by number, for ``wanted`` parts in all."""
    intervals, timeline = plan.intervals, plan.timeline
    assert intervals is not None
    assert timeline is not None
    spans = intervals.spans
    if wanted < 2 or intervals.partitions is not None or not len(spans):
        return {}
    lengths = spans.ends - spans.starts
    size = spans.total / wanted
    long = np.flatnonzero(lengths > max(LONG * size, LEAST_EVENTS))
    if not len(long):
        return {}
    reach = reach_of(snapshot, compiled)
    if isinstance(reach, str):
        return {}
    borders = np.array([low for low, _ in snapshot.ranges(BORDERS) if low is not None], np.int64)
    places = timeline.lower(borders) if len(borders) else borders
    budget = Budget(snapshot)
    pieces: dict[int, list[RangePart]] = {}
    for number in long.tolist():
        low, high = _ticks(intervals, timeline, number)
        apart = (number == 0 or _ticks(intervals, timeline, number - 1)[1] < low) and (
            number + 1 == len(spans) or high < _ticks(intervals, timeline, number + 1)[0]
        )
        if not apart:
            continue
        count = round(float(lengths[number]) / size)
        at = spans.starts[number] + lengths[number] * np.arange(1, count) // count
        goals = timeline.ticks_at(at.astype(np.int64))
        if len(places):
            goals = _snapped(at, goals, places, borders, float(size) / 4)
        goals = np.unique(goals[(goals > low) & (goals <= high)])
        cuts, _ = find_cuts(snapshot, compiled, reach, goals.tolist(), (low, high), budget)
        if cuts:
            ends = Cut(low, last=low - 1), Cut(high + 1, last=high)
            pieces[number] = between([ends[0], *cuts, ends[1]], compiled, reach, high)
    return pieces


def _ticks(intervals: ReplayIntervals, timeline: Timeline, number: int) -> tuple[int, int]:
    ticks = intervals.by_time.get(number)
    if ticks is not None:
        return ticks
    low, high = int(intervals.spans.starts[number]), int(intervals.spans.ends[number])
    return timeline.tick(low), timeline.tick(high - 1)


def _snapped(at: Ints, ticks: Ints, places: Ints, borders: Ints, reach: float) -> Ints:
    right = np.searchsorted(places, at).clip(0, len(places) - 1)
    left = (right - 1).clip(0)
    nearest = np.where(np.abs(places[left] - at) < np.abs(places[right] - at), left, right)
    snapped: Ints = np.where(np.abs(places[nearest] - at) <= reach, borders[nearest], ticks)
    return snapped


SPAN_EVENTS = 2048
"""Cost of starting an interval, in events."""


def interval_parts(
    plan: ReplayPlan, wanted: int, divided: Mapping[int, Sequence[Part]] | None = None
) -> tuple[Part, ...]:
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
    parts_: list[Part] = [part for parts in pieces.values() for part in parts]
    rest = np.delete(np.arange(len(spans)), list(pieces))
    if not len(rest):
        return tuple(parts_)
    starts, ends = spans.starts[rest], spans.ends[rest]
    for low, high in _groups(ends - starts, max(1, wanted - len(parts_))):
        numbers = enumerate(rest[low:high].tolist())
        by_time = {at: intervals.by_time[n] for at, n in numbers if n in intervals.by_time}
        mine = replace(intervals, spans=Spans(starts[low:high], ends[low:high]), by_time=by_time)
        parts_.append(_part(mine, timeline))
    return tuple(parts_)


def _groups(events: Ints, wanted: int) -> list[tuple[int, int]]:
    weight = np.cumsum(events + SPAN_EVENTS)
    goals = weight[-1] * np.arange(1, wanted) / wanted
    cuts = sorted({0, len(events), *(np.searchsorted(weight, goals) + 1).tolist()})
    return list(pairwise(cuts))


def _of_partitions(
    intervals: ReplayIntervals, timeline: Timeline, partitions: PartitionSpans, wanted: int
) -> tuple[Part, ...]:
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
    parts: list[Part] = []
    for begin, end in _groups(size[order], wanted):
        units = order[begin:end]
        mine = np.zeros(len(inside), np.bool_)
        mine[rows[units[units < len(rows)]]] = True
        taken = np.isin(clump, units[units >= len(rows)] - len(rows))
        numbers = blocks[taken]
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
            chosen={},
        )
        positions = _hull(Spans(inside.starts[mine], inside.ends[mine]), shown, stride)
        whole = Spans(spans.starts[numbers], spans.ends[numbers])
        positions = positions.minus(whole)
        begins = np.concatenate([positions.starts, whole.starts])
        ends = np.concatenate([positions.ends, whole.ends])
        ticks = [None] * len(positions) + [intervals.by_time[int(number)] for number in numbers]
        placed = order_of(begins)
        by_time = {
            place: bounds
            for place, bounds in enumerate(ticks[i] for i in placed.tolist())
            if bounds is not None
        }
        placed_spans = Spans(begins[placed], ends[placed])
        own = replace(intervals, spans=placed_spans, by_time=by_time, partitions=few)
        parts.append(_part(own, timeline))
    return tuple(parts)


def _clumps(low: Ints, high: Ints, blocks: int) -> Ints:
    """Number each block; blocks that one interval touches share a number."""
    edges = np.zeros(blocks + 1, np.int64)
    np.add.at(edges, low, 1)
    np.add.at(edges, high, -1)
    linked = np.cumsum(edges)[:blocks] > 0  # to the next block
    clumps: Ints = np.concatenate([[0], np.cumsum(~linked)])[:blocks].astype(np.int64)
    return clumps


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
    # the row after an interval may be the first of the next one
    first = np.searchsorted(inside.starts, shown.starts, side="left") - 1
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


SHARES_MAX = 32
"""Most groups of partitions, because each reads the keys of the whole stream."""


def split_match(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    plan: ReplayPlan,
    parts: Callable[[float], int],
) -> Split:
    """Divide a query; ``parts(share of the stream read)``: parts to aim for."""
    numbered = compiled.numbered
    if numbered and not compiled.partition_by:
        if plan.spans is not None:
            return Split(interval_parts(plan, 1), "MATCH_NUMBER counts over the whole stream")
        return Split((None,), "MATCH_NUMBER counts over the whole stream")
    why = ""
    if plan.spans is not None:
        wanted = 1 if numbered else max(1, parts(plan.replayed()))
        pieces = divided(snapshot, compiled, plan, wanted)
        parts_ = interval_parts(plan, wanted, pieces)
        intervals = len(plan.spans if plan.partitions is None else plan.partitions.inside)
        description = f"{intervals} replay intervals in {len(parts_)} groups"
        if pieces:
            count = sum(map(len, pieces.values()))
            description = f"{count} ranges of time in {len(pieces)} long replay intervals"
            if intervals > len(pieces):
                description += f", {intervals - len(pieces)} others in {len(parts_) - count} groups"
        return Split(parts_, description)
    wanted = parts(1.0)
    if wanted <= 1:
        return Split((None,), "one part was asked for, or the stream is small")
    if numbered:
        why = "MATCH_NUMBER counts over a whole partition"
    else:
        ranges, why = whole_ranges(snapshot, compiled, wanted)
        if len(ranges) > 1:
            return Split(ranges, why)
    if compiled.partition_by:
        count = min(wanted, SHARES_MAX)
        last = INT64_MAX if snapshot.time_range is None else snapshot.time_range[1]
        shares = tuple(SharePart(share, count, last) for share in range(count))
        return Split(shares, f"{count} groups of partitions, because {why}")
    return Split((None,), f"one part, because {why}")


@dataclass(frozen=True, eq=False)
class SituationSpans(Part):
    """Some of the intervals of a replay plan, as a ``SpanPart``."""

    spans: Part

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        # the row before an interval may lie anywhere, and the one behind it bounds its time
        return None, None

    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        assert isinstance(self.spans, SpanPart)
        intervals, timeline = self.spans.placed(run.snapshot)
        plan = ReplayPlan("replay", intervals=intervals, timeline=timeline)
        done = SituationRun(run.metrics)
        return run_replayed(
            run.snapshot, run.compiled, plan, done, run.check or (lambda: None), run.limits
        )

    def describe(self) -> str:
        return self.spans.describe()


def split_situations(
    snapshot: Snapshot,
    compiled: CompiledSituations,
    plan: ReplayPlan,
    parts: Callable[[float], int],
) -> Split:
    span = snapshot.time_range
    if span is None:
        return Split((None,), "the stream has no events")
    if plan.spans is not None:
        spans = _spans(snapshot, compiled, plan, max(1, parts(plan.replayed())))
        intervals = len(plan.spans if plan.partitions is None else plan.partitions.inside)
        return Split(spans, f"{intervals} replay intervals in {len(spans)} groups")
    wanted = parts(1.0)
    if wanted <= 1:
        return Split((None,), "one part was asked for, or the stream is small")
    ranges = instant_ranges(snapshot, compiled, wanted)
    if len(ranges) > 1:
        return Split(ranges, f"{len(ranges)} ranges of time")
    why = "neither WITHIN nor durations bound how long a match takes"
    if compiled.reach is not None:
        why = "a match may reach over a large part of the stream"
    if compiled.partition_by:
        count = min(wanted, SHARES_MAX)
        shares = tuple(SharePart(share, count, span[1]) for share in range(count))
        return Split(shares, f"{count} groups of partitions, because {why}")
    return Split((None,), f"one part, because {why}")


def _spans(
    snapshot: Snapshot, compiled: CompiledSituations, plan: ReplayPlan, wanted: int
) -> tuple[Part, ...]:
    if by_time(snapshot, compiled):
        ranges = [
            InstantRange.of(snapshot, compiled, low, high)
            for low, high in instants_of(snapshot, compiled, plan)
        ]
        size = -(-len(ranges) // max(1, wanted))
        groups = [tuple(ranges[i : i + size]) for i in range(0, len(ranges), max(1, size))]
        return tuple(map(InstantRanges, groups))
    return tuple(map(SituationSpans, interval_parts(plan, wanted)))
