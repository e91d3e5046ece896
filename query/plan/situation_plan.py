"""Situations under the values of one execution: compiled, and where matches can be."""

from __future__ import annotations

from ..binding.situation_binding import BoundSituations
from ..replay.cost import load_weights
from ..replay.situation_intervals import plan_situations_replay
from ..replay.tree_runs import plan_tree_runs
from .nodes import SituationMatch
from .planner import Planning

__all__ = ["plan_situations"]


def plan_situations(bound: BoundSituations, planning: Planning) -> SituationMatch:
    """Fix parameters and intervals for one execution."""
    catalog, folder = planning.catalog, planning.folder
    compiled = bound.compiled_with(folder)
    if bound.stream is None:
        return SituationMatch(compiled, None, planning.query(bound.query))
    snapshot = planning.snapshot(bound.stream)
    if planning.situations is not None:
        return SituationMatch(compiled, bound.stream, part=planning.situations(snapshot, compiled))
    if bound.strategy == "auto":
        tree = plan_tree_runs(snapshot, compiled, folder)
        if tree is not None:
            return SituationMatch(compiled, bound.stream, tree=tree)
    replay = plan_situations_replay(
        snapshot, compiled, catalog.indexes_of(bound.stream),
        bound.strategy, folder, load_weights(catalog.path), planning.control.check,
    )  # fmt: skip
    return SituationMatch(compiled, bound.stream, replay=replay)
