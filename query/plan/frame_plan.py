"""A frame under the values of one execution: all of its rows, whatever these are."""

from __future__ import annotations

from ..binding.frame_binding import BoundFrame
from .nodes import FrameRows
from .planner import Planning

__all__ = ["plan_frame"]


def plan_frame(bound: BoundFrame, planning: Planning) -> FrameRows:
    """Read the frame; the executor narrows what it takes of it."""
    return FrameRows(bound.frame)
