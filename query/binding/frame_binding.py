"""Frames in FROM: tables that the program around the database has registered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ..contract.frames import Frame
from .from_operator import OperatorSite

__all__ = ["BoundFrame", "bind_frame"]


@dataclass(frozen=True)
class BoundFrame:
    """A frame as a relation; the statement is bound anew when another one has its name."""

    frame: Frame

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return self.frame.schema

    @property
    def streams(self) -> Sequence[str]:
        """It reads no stream."""
        return ()

    @property
    def ordered_by(self) -> Sequence[str]:
        """Nothing is known of its order."""
        return ()


def bind_frame(site: OperatorSite) -> BoundFrame:
    """The frame that the item names."""
    return BoundFrame(site.frames[site.item.name.lower()])
