"""Plan of situations: parameter values, and where matches can be."""

from __future__ import annotations

from ...core.times import INT64_MIN
from ...store.snapshot import Snapshot
from ..binding.situation_binding import BoundSituations
from ..replay.cost import load_weights
from ..replay.situation_intervals import plan_situations_replay
from ..replay.tree_runs import plan_tree_runs
from ..situations.compiled import CompiledSituations
from ..split.situation_parts import SituationRange
from .nodes import SituationMatch
from .planner import Planning
from .situation_times import instants_asked_for

__all__ = ["plan_situations"]

RANGE_EVENTS = 1 << 16
"""Ranges up to this number of events are read without further search."""
RANGE_SHARE = 0.25


def plan_situations(bound: BoundSituations, planning: Planning) -> SituationMatch:
    catalog, folder = planning.catalog, planning.folder
    compiled = bound.compiled_with(folder)
    if bound.stream is None:
        return SituationMatch(compiled, None, planning.query(bound.query))
    snapshot = planning.snapshot(bound.stream)
    if planning.situations is not None:
        return SituationMatch(compiled, bound.stream, part=planning.situations(snapshot, compiled))
    low, high = planning.bounds.get(bound.stream, (None, None))
    if low is not None and high is not None and low >= high:
        return SituationMatch(compiled, bound.stream, part=SituationRange(1, 0, 0, None))
    part, events = None, snapshot.count
    if bound.strategy == "auto":
        part = _asked(bound, compiled, planning, snapshot)
        if part is not None:
            events = part.events(snapshot)
            if events <= max(RANGE_EVENTS, RANGE_SHARE * snapshot.count):
                return SituationMatch(compiled, bound.stream, part=part)
        tree = plan_tree_runs(snapshot, compiled, folder)
        if tree is not None and (1 - tree.known) * snapshot.count < events:
            return SituationMatch(compiled, bound.stream, tree=tree)
    replay = plan_situations_replay(
        snapshot, compiled, catalog.indexes_of(bound.stream),
        bound.strategy, folder, load_weights(catalog.path), planning.control.check,
    )  # fmt: skip
    if part is not None and events < replay.replayed() * snapshot.count:
        return SituationMatch(compiled, bound.stream, part=part)
    return SituationMatch(compiled, bound.stream, replay=replay)


def _asked(
    bound: BoundSituations, compiled: CompiledSituations, planning: Planning, snapshot: Snapshot
) -> SituationRange | None:
    """The time range that the SELECT restricts matches to; None for all."""
    span = snapshot.time_range
    asked = instants_asked_for(bound, compiled, planning.folder)
    if asked is None or span is None:
        return None
    low, high = max(asked[0], INT64_MIN), min(asked[1], span[1])
    if low <= span[0] and high >= span[1]:
        return None
    return SituationRange.of(snapshot, compiled, low, high)
