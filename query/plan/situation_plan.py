"""Situations under the values of one execution."""

from __future__ import annotations

from ..binding.situation_binding import BoundSituations
from .nodes import SituationMatch
from .planner import Planning

__all__ = ["plan_situations"]


def plan_situations(bound: BoundSituations, planning: Planning) -> SituationMatch:
    """Fix the parameters for one execution."""
    compiled = bound.compiled_with(planning.folder)
    if bound.stream is None:
        return SituationMatch(compiled, None, planning.query(bound.query))
    return SituationMatch(compiled, bound.stream)
