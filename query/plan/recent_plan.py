"""Plan of a recency join: both sides, and which runs first and narrows the other at run time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...core.times import INT64_MAX, INT64_MIN
from ..binding.match_binding import BoundMatch, BoundSituations
from ..binding.recent_binding import BoundRecent, BoundRows, BoundSide
from ..conditions.constants import Folder
from ..pattern.compiled import CompiledMatch
from ..recent.narrowing import (
    Choice,
    SideCost,
    choose,
    factor_of,
    narrow,
    obstacle,
    regions_of_spans,
    rows_per_event,
)
from ..replay.context import Costs
from ..replay.planning import plan_match
from ..replay.replay_plan import ReplayPlan
from ..replay.spans import READ_GAP
from .match_plan import plan_recognition, plan_situations
from .nodes import Match, QueryPlan, RecentJoin, RecentSide, Scan, SituationMatch
from .planner import Planning, bounded

PATH_COST = 3.0
"""Relative cost of an event with path-dependent conditions."""


@dataclass(frozen=True)
class _Outlook:
    """Estimates for a side: events to replay, rows (-1: unknown), and why it cannot be narrowed."""

    compiled: CompiledMatch | None
    stream: str | None
    events: float
    total: int
    rows: float
    obstacle: str


def plan_recent(bound: BoundRecent, planning: Planning) -> RecentJoin:
    folder = planning.folder
    distance = bound.distance(folder)
    live, archive = (_outlook(side.source, planning) for side in (bound.live, bound.archive))
    costs = [
        _cost(mine, other, distance, bound.unit, planning)
        for mine, other in ((live, archive), (archive, live))
    ]
    chosen = choose(bound.hint, bound.kind, *costs)
    sides, chosen = _inputs(bound, (live, archive), chosen, distance, planning)
    return RecentJoin(
        _side(bound, bound.live, live, sides[0], folder),
        _side(bound, bound.archive, archive, sides[1], folder),
        bound.kind,
        bound.keys,
        distance,
        bound.unit,
        bound.greatest(folder),
        bound.condition_text(bound.condition, folder),
        _read(bound.condition),
        bound.schema,
        chosen.order,
        chosen.why,
    )


def _side(
    bound: BoundRecent, side: BoundSide, outlook: _Outlook, node: Any, folder: Folder
) -> RecentSide:
    strategy = side.source.strategy if isinstance(side.source, BoundMatch) else "auto"
    condition = bound.condition_text(side.condition, folder)
    return RecentSide(
        node, side.columns, side.start, side.end, outlook.events, outlook.obstacle, strategy,
        condition, _read(side.condition),
    )  # fmt: skip


def _read(condition: Any) -> tuple[str, ...]:
    read = () if condition is None else condition.find_all(exp.Column)
    return tuple(dict.fromkeys(column.name for column in read))


# ------------------------------------------------------------------------------- costs


def _outlook(source: Any, planning: Planning) -> _Outlook:
    if isinstance(source, BoundRows) and source.stream is not None:
        count = planning.snapshot(source.stream).count
        return _Outlook(None, source.stream, count, count, count, "")
    if not isinstance(source, BoundMatch) or source.stream is None or planning.part is not None:
        streams = source.streams or ()
        count = max((planning.snapshot(name).count for name in streams), default=0)
        return _Outlook(None, None, count, count, count, "it is no row pattern over a stream")
    compiled = source.compiled_with(planning.folder)
    snapshot = planning.snapshot(source.stream)
    plan = plan_match(
        snapshot, compiled, planning.catalog.indexes_of(source.stream), source.strategy,
        folder=planning.folder, check=planning.control.check, locate=False,
    )  # fmt: skip
    events = _expected(plan, snapshot.count)
    estimate = plan.choice.estimate if plan.choice.picked else None
    rows = -1.0 if estimate is None else estimate.intervals
    return _Outlook(compiled, source.stream, events, snapshot.count, rows, obstacle(compiled))


def _expected(plan: ReplayPlan, count: int) -> float:
    if plan.reason or plan.choice.picked is None:
        return float(count)
    if plan.choice.picked and plan.choice.estimate is not None:
        return float(plan.choice.estimate.events)
    return float(plan.allowed)


def _cost(
    mine: _Outlook, other: _Outlook, distance: int | None, unit: pa.DataType,
    planning: Planning,
) -> SideCost:  # fmt: skip
    compiled = mine.compiled

    def rows() -> float:
        if mine.rows >= 0:
            return mine.rows
        assert compiled is not None
        assert mine.stream is not None
        snapshot = planning.snapshot(mine.stream)
        return mine.total * rows_per_event(snapshot, compiled, planning.control.check)

    event = Costs.event
    if compiled is not None:
        event = Costs.keyed if compiled.partition_by else Costs.event
        event *= PATH_COST if compiled.conditions.path_dependent else 1.0
    region = float(other.total)
    span = planning.snapshot(other.stream).time_range if other.stream is not None else None
    if distance is not None and span is not None:
        assert other.stream is not None
        schema = planning.snapshot(other.stream).schema
        ticks = (span[1] - span[0] + 1) * factor_of(schema.arrow.field(schema.time).type, unit)
        # gaps between near regions are read, too
        region = min(region, other.total * distance / ticks + READ_GAP)
    return SideCost(mine.events, event, mine.total, rows, region, mine.obstacle)


# -------------------------------------------------------------------------------- sides


def _inputs(
    bound: BoundRecent, outlooks: tuple[_Outlook, _Outlook], chosen: Choice, distance: int | None,
    planning: Planning,
) -> tuple[list[Any], Choice]:  # fmt: skip
    sources = (bound.live.source, bound.archive.source)
    if chosen.order == "both":
        narrowed = _both(bound, outlooks, distance, planning)
        if narrowed is not None:
            return narrowed
        chosen = Choice("live_first", "both sides are not row patterns that something bounds")
    later = {"live_first": 1, "archive_first": 0}.get(chosen.order)
    nodes: list[Any] = []
    for number, (source, outlook) in enumerate(zip(sources, outlooks, strict=True)):
        if number == later and outlook.compiled is not None and not outlook.obstacle:
            nodes.append(Match(outlook.compiled, outlook.stream))
        else:
            nodes.append(_input(source, planning))
    return nodes, chosen


def _both(
    bound: BoundRecent, outlooks: tuple[_Outlook, _Outlook], distance: int | None,
    planning: Planning,
) -> tuple[list[Any], Choice] | None:  # fmt: skip
    """Both sides, each narrowed by the other's intervals; None if impossible."""
    if bound.live.time != bound.archive.time or any(
        outlook.compiled is None or outlook.obstacle for outlook in outlooks
    ):
        return None
    sources = (bound.live.source, bound.archive.source)
    first = 0 if outlooks[0].events <= outlooks[1].events else 1
    nodes: list[Any] = [None, None]
    nodes[first] = _input(sources[first], planning)
    for number in (1 - first, first):
        outlook, other = outlooks[number], nodes[1 - number].replay
        if other is None or other.intervals is None:
            return None
        assert outlook.compiled is not None
        assert outlook.stream is not None
        narrowed = narrow(
            planning.snapshot(outlook.stream), outlook.compiled,
            planning.catalog.indexes_of(outlook.stream), sources[number].strategy,
            regions_of_spans(other.intervals, other.timeline, distance, bool(number)),
            planning.control.check,
        )  # fmt: skip
        if narrowed.part is not None:
            nodes[number] = Match(outlook.compiled, outlook.stream, part=narrowed.part)
            return _narrowed(nodes, number)
        if narrowed.replay is None:
            return None
        nodes[number] = Match(outlook.compiled, outlook.stream, replay=narrowed.replay)
    needed = [node.replay.needed for node in nodes]
    return _narrowed(nodes, 0 if needed[0] <= needed[1] else 1)


def _narrowed(nodes: list[Any], first: int) -> tuple[list[Any], Choice]:
    order = ("live_first", "archive_first")[first]
    why = "both: the intervals of each side have narrowed the other"
    return nodes, Choice(order, why)


def _input(
    source: Any, planning: Planning
) -> Match | SituationMatch | RecentJoin | Scan | QueryPlan:
    if isinstance(source, BoundMatch):
        return plan_recognition(source, planning)
    if isinstance(source, BoundSituations):
        return plan_situations(source, planning)
    if isinstance(source, BoundRecent):
        return plan_recent(source, planning)
    assert isinstance(source, BoundRows)
    if source.stream is None:
        return planning.query(source.query)
    schema = planning.snapshot(source.stream).schema
    return bounded(Scan(source.stream, schema, INT64_MIN, INT64_MAX), planning)
