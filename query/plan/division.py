"""Division of a plan into parts for other processes, each a plan of its own.

Parts are disjoint, unordered, and their union is the result.  A part can be pickled and needs only
the snapshot of its stream, within ``Part.ticks``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...core.times import half_open
from ...store.snapshot import Snapshot
from ..contract.operator import split_instants
from ..replay.replay_plan import ReplayIntervals, ReplayPlan
from ..split.planning import SituationSpans, interval_parts, split_match, split_situations
from ..windows.spec import CalendarWindows, TimeWindows
from .nodes import (
    EventRows,
    Leaf,
    Match,
    QueryPlan,
    RecentJoin,
    RecentSide,
    Scan,
    SituationMatch,
    WindowAggregate,
    WindowedEvents,
)

Ticks = tuple[int | None, int | None]


@dataclass(frozen=True)
class Part:
    """``ticks`` is the half-open range of its stream that it reads."""

    plan: QueryPlan
    ticks: Ticks
    description: str

    def __str__(self) -> str:
        return self.description


@dataclass(frozen=True)
class Division:
    """A query in parts; ``kind`` is that of ``cuts``, or ``none`` for an empty result."""

    kind: str
    parts: tuple[Part, ...]
    reason: str


def divide(
    plan: QueryPlan, snapshot: Callable[[str], Snapshot], wanted: Callable[[int], int]
) -> Division:
    """Divide a plan; ``wanted`` gives the number of parts from the bytes to read."""
    leaf = _only_leaf(plan)
    if leaf is None:
        return _whole(plan, plan.reason or "its source is not divided")
    stream = _stream(leaf)
    at_hand = snapshot(stream)
    size = sum(view.length for view in (*at_hand.state.segments, *at_hand.state.runs))
    if isinstance(leaf, RecentJoin):
        return _recent(plan, leaf, at_hand, wanted(size))
    if isinstance(leaf, Match | SituationMatch | EventRows):
        return _clause(plan, leaf, at_hand, lambda share: wanted(int(size * share)))
    if isinstance(leaf, WindowAggregate | WindowedEvents) and isinstance(
        leaf.windows, CalendarWindows
    ):
        return _whole(plan, "windows that follow the calendar are not cut")
    count = wanted(size)
    ranges = at_hand.ranges(count) if count > 1 else []
    if len(ranges) <= 1:
        return _whole(plan, "one part was asked for, or the stream is small")
    cut = [_range(plan, leaf, low, high) for low, high in ranges]
    parts = tuple(part for part in cut if part is not None)
    return Division(plan.cut if parts else "none", parts, "time ranges at leaf borders")


def _whole(plan: QueryPlan, reason: str) -> Division:
    part = Part(_portable(plan), (None, None), "the whole query")
    return Division("whole", (part,), reason)


def _portable(plan: QueryPlan) -> QueryPlan:
    """A plan without references to snapshots: row patterns have intervals instead."""
    return plan.over(*map(_portable_leaf, plan.leaves))


def _portable_leaf(leaf: Leaf) -> Leaf:
    if isinstance(leaf, WindowAggregate | WindowedEvents) and isinstance(leaf.events, QueryPlan):
        return replace(leaf, events=_portable(leaf.events))
    if isinstance(leaf, RecentJoin):
        live, archive = _portable_side(leaf.live), _portable_side(leaf.archive)
        return replace(leaf, live=live, archive=archive)
    if not isinstance(leaf, Match | SituationMatch):
        return leaf
    if leaf.input is not None:
        return replace(leaf, input=_portable(leaf.input), replay=None)
    if leaf.replay is None or leaf.replay.spans is None:
        return replace(leaf, replay=None)
    parts = interval_parts(leaf.replay, 1)
    if parts:
        part = SituationSpans(parts[0]) if isinstance(leaf, SituationMatch) else parts[0]
        return replace(leaf, replay=None, part=part)
    nowhere = ReplayPlan(leaf.replay.strategy, intervals=ReplayIntervals(leaf.replay.spans))
    return replace(leaf, replay=nowhere)


def _portable_side(side: RecentSide) -> RecentSide:
    node = side.input
    if isinstance(node, QueryPlan):
        return replace(side, input=_portable(node))
    portable: Any = _portable_leaf(node)
    return replace(side, input=portable)


_Divided = Scan | WindowAggregate | WindowedEvents | Match | SituationMatch | EventRows | RecentJoin


def _only_leaf(plan: QueryPlan) -> _Divided | None:
    if plan.cut == "whole":
        return None
    leaf = plan.leaf
    if isinstance(leaf, RecentJoin) and not _cut_by_ends(leaf):
        return None
    return leaf if isinstance(leaf, _Divided) else None


def _cut_by_ends(leaf: RecentJoin) -> bool:
    """Whether live rows that end in a time range can be found without reading all others."""
    live = leaf.live.input
    if not isinstance(live, Match) or live.stream is None or leaf.live.obstacle:
        return False
    return live.compiled.within is not None and leaf.distance is not None


def _stream(leaf: _Divided) -> str:
    if isinstance(leaf, RecentJoin):
        assert isinstance(leaf.live.input, Match)
        leaf = leaf.live.input
    assert leaf.stream is not None
    return leaf.stream


def _range(
    plan: QueryPlan,
    leaf: Scan | WindowAggregate | WindowedEvents,
    low: int | None,
    high: int | None,
) -> Part | None:
    label = f"{plan.cut} of time [{'' if low is None else low}, {'' if high is None else high})"
    if isinstance(leaf, Scan):
        scan = _narrowed(leaf, low, high)
        part: Leaf = scan
    else:
        assert isinstance(leaf.windows, TimeWindows)
        # bound on the events of windows that start in the range
        until = None if high is None else high + leaf.windows.size - 1
        events = leaf.events
        read = events if isinstance(events, Scan) else events.leaf
        assert isinstance(read, Scan)
        scan = _narrowed(read, low, until)
        narrowed = scan if isinstance(events, Scan) else events.over(scan)
        part = replace(leaf, events=narrowed, starts=(low, high))
    if scan.low > scan.high:
        return None
    return Part(plan.over(part), half_open(scan.low, scan.high), label)


def _narrowed(scan: Scan, low: int | None, high: int | None) -> Scan:
    least = scan.low if low is None else max(scan.low, low)
    return replace(scan, low=least, high=scan.high if high is None else min(scan.high, high - 1))


def _clause(
    plan: QueryPlan,
    leaf: Match | SituationMatch | EventRows,
    snapshot: Snapshot,
    wanted: Callable[[float], int],
) -> Division:
    reason = ""
    if isinstance(leaf, EventRows):
        split = split_instants(snapshot, leaf.compiled, wanted(1.0))
    elif leaf.replay is None:
        return _whole(plan, "few events are read")
    else:
        if leaf.replay.reason:
            reason = f"; the whole stream is replayed: {leaf.replay.reason}"
        if isinstance(leaf, Match):
            split = split_match(snapshot, leaf.compiled, leaf.replay, wanted)
        else:
            split = split_situations(snapshot, leaf.compiled, leaf.replay, wanted)
        leaf = replace(leaf, replay=None)
    reason = split.reason + reason
    if split.parts == (None,):
        return _whole(plan, reason)
    parts = tuple(
        Part(plan.over(replace(leaf, part=part)), part.ticks, part.describe())
        for part in split.parts
        if part is not None
    )
    return Division("match" if parts else "none", parts, reason)


def _recent(plan: QueryPlan, leaf: RecentJoin, snapshot: Snapshot, count: int) -> Division:
    """Parts of a recency join: live rows that end in a range, with all partners."""
    ranges = snapshot.ranges(count) if count > 1 else []
    if len(ranges) <= 1:
        return _whole(plan, "one part was asked for, or the stream is small")
    live = leaf.live.input
    assert isinstance(live, Match)
    bare = replace(
        leaf, live=replace(leaf.live, input=replace(live, replay=None, part=None)),
        archive=_portable_side(leaf.archive), order="live_first", why="a part of the live rows",
    )  # fmt: skip
    parts = []
    for low, high in ranges:
        label = f"live rows that end in [{'' if low is None else low}, "
        label += f"{'' if high is None else high})"
        parts.append(Part(plan.over(replace(bare, ends=(low, high))), (None, None), label))
    return Division("recent", tuple(parts), "ranges of time in which live rows end")
