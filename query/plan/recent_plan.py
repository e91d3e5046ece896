"""Recency joins under the values of one execution: sides planned, distance and condition fixed.

Purpose
    :func:`plan_recent` plans each side by its own kind and puts the values of parameters in.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from ...ticks import INT64_MAX, INT64_MIN
from ..binding.match_binding import BoundMatch
from ..binding.recent_binding import BoundRecent, BoundRows, BoundSide
from ..binding.situation_binding import BoundSituations
from .match_plan import plan_recognition
from .nodes import Match, QueryPlan, RecentJoin, RecentSide, Scan, SituationMatch
from .planner import Planning, bounded
from .situation_plan import plan_situations

__all__ = ["plan_recent"]


def plan_recent(bound: BoundRecent, planning: Planning) -> RecentJoin:
    """Fix parameters, and how each side is read, for one execution."""
    folder = planning.folder
    read = bound.condition.find_all(exp.Column) if bound.condition is not None else ()
    return RecentJoin(
        _side(bound.live, planning),
        _side(bound.archive, planning),
        bound.kind,
        bound.keys,
        bound.distance(folder),
        bound.unit,
        bound.greatest(folder),
        bound.condition_text(folder),
        tuple(dict.fromkeys(column.name for column in read)),
        bound.schema,
    )


def _side(side: BoundSide, planning: Planning) -> RecentSide:
    return RecentSide(_input(side.source, planning), side.columns, side.start, side.end)


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
