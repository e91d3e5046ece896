"""Plan of a frame: all of its rows; the executor filters them."""

from __future__ import annotations

from ..binding.frame_binding import BoundFrame
from .nodes import FrameRows
from .planner import Planning

__all__ = ["plan_frame"]


def plan_frame(bound: BoundFrame, planning: Planning) -> FrameRows:
    return FrameRows(bound.frame)
