"""Plans of row patterns and situations: parameter values, and where matches can be.

Conditions on times of situations become a range of instants at which their matches become known.
Points of a match have bounded distances from its instant (``situations.network``).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...core.times import INT64_MAX, INT64_MIN
from ...schema import StreamSchema
from ...store.snapshot import Snapshot
from ..binding.match_binding import BoundMatch, BoundSituations
from ..conditions.constants import Folder
from ..conditions.predicates import PredicateCompiler, all_of, time_bounds
from ..contract.operator import NOTHING, InstantRange
from ..replay.filtering import local_stream, plan_subquery, restricted
from ..replay.planning import cached_plan, plan_match
from ..replay.situation_intervals import plan_situations_replay
from ..replay.tree_runs import plan_tree_runs
from ..situations.compiled import CompiledSituations
from ..situations.network import LIMIT
from .nodes import Match, SituationMatch
from .planner import Planning


def plan_recognition(bound: BoundMatch, planning: Planning) -> Match:
    catalog, folder, check = planning.catalog, planning.folder, planning.control.check
    compiled = bound.compiled_with(folder)
    if bound.stream is not None and planning.part is not None:
        return Match(
            compiled, bound.stream, part=planning.part(planning.snapshot(bound.stream), compiled)
        )
    if bound.stream is not None:
        plan = cached_plan if compiled is bound.compiled else plan_match
        replay = plan(
            planning.snapshot(bound.stream), compiled, catalog.indexes_of(bound.stream),
            bound.strategy, folder=folder, check=check,
        )  # fmt: skip
        return Match(compiled, bound.stream, replay=replay, counted=bound.counted)
    under = local_stream(bound.query, catalog.streams())
    if under is None:
        return Match(compiled, None, planning.query(bound.query), counted=bound.counted)
    snapshot = planning.snapshot(under)
    replay = plan_subquery(
        snapshot, compiled, bound.query, catalog.indexes_of(under), bound.strategy, folder,
        check,
    )  # fmt: skip
    query = bound.query
    if replay.spans is not None:
        query = restricted(query, replay, snapshot.schema)
    return Match(compiled, None, planning.query(query), replay, counted=bound.counted)


def requested_instants(
    bound: BoundSituations, compiled: CompiledSituations, folder: Folder
) -> tuple[int, int] | None:
    """Inclusive ticks of the instants of all matches that pass; None without bounds."""
    low, high = INT64_MIN, INT64_MAX
    for column, conditions in bound.asked.items():
        point = compiled.point_of(column)
        if point is None:
            continue
        least, most = _bounds(column, conditions, compiled, folder)
        ahead, back = int(compiled.distances[point, -1]), int(compiled.distances[-1, point])
        if compiled.early and len(compiled.names) <= point < len(compiled.distances) - 1:
            back = min(back, 0)  # a known end is at or before the instant
        if least > INT64_MIN and back < LIMIT // 2:
            low = max(low, least - back)
        if most < INT64_MAX and ahead < LIMIT // 2:
            high = min(high, most + ahead)
    if low <= INT64_MIN and high >= INT64_MAX:
        return None
    return low, high


def _bounds(
    column: str,
    conditions: tuple[Any, ...],
    compiled: CompiledSituations,
    folder: Folder,
) -> tuple[int, int]:
    type_ = compiled.columns.arrow.field(compiled.time).type
    schema = StreamSchema(pa.schema([pa.field(column, type_, False)]), column)
    compiler = PredicateCompiler(schema, folder, lambda _: column)
    return time_bounds(all_of([compiler.compile(part) for part in conditions]).prune, column)


RANGE_EVENTS = 1 << 16
"""Ranges up to this number of events are read without further search."""
RANGE_SHARE = 0.25


def plan_situations(bound: BoundSituations, planning: Planning) -> SituationMatch:
    catalog, folder = planning.catalog, planning.folder
    compiled = bound.compiled_with(folder)
    if bound.stream is None:
        return SituationMatch(compiled, None, planning.query(bound.query))
    snapshot = planning.snapshot(bound.stream)
    if planning.part is not None:
        return SituationMatch(compiled, bound.stream, part=planning.part(snapshot, compiled))
    low, high = planning.bounds.get(bound.stream, (None, None))
    if low is not None and high is not None and low >= high:
        return SituationMatch(compiled, bound.stream, part=NOTHING)
    part, events = None, snapshot.count
    if bound.strategy == "auto":
        part = _requested_range(bound, compiled, planning, snapshot)
        if part is not None:
            events = part.events(snapshot)
            if events <= max(RANGE_EVENTS, RANGE_SHARE * snapshot.count):
                return SituationMatch(compiled, bound.stream, part=part)
        tree = plan_tree_runs(snapshot, compiled, folder)
        if tree is not None and (1 - tree.known) * snapshot.count < events:
            return SituationMatch(compiled, bound.stream, tree=tree)
    replay = plan_situations_replay(
        snapshot, compiled, catalog.indexes_of(bound.stream),
        bound.strategy, folder, planning.control.check,
    )  # fmt: skip
    if part is not None and events < replay.replayed() * snapshot.count:
        return SituationMatch(compiled, bound.stream, part=part)
    return SituationMatch(compiled, bound.stream, replay=replay)


def _requested_range(
    bound: BoundSituations, compiled: CompiledSituations, planning: Planning, snapshot: Snapshot
) -> InstantRange | None:
    """The time range that the SELECT restricts matches to; None for all."""
    span = snapshot.time_range
    requested = requested_instants(bound, compiled, planning.folder)
    if requested is None or span is None:
        return None
    low, high = max(requested[0], INT64_MIN), min(requested[1], span[1])
    if low <= span[0] and high >= span[1]:
        return None
    return InstantRange.of(snapshot, compiled, low, high)
