"""Frames in FROM: tables registered by the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ..contract.frames import Frame
from .from_operator import OperatorSite

__all__ = ["BoundFrame", "bind_frame"]


@dataclass(frozen=True)
class BoundFrame:
    frame: Frame

    @property
    def schema(self) -> pa.Schema:
        return self.frame.schema

    @property
    def streams(self) -> Sequence[str]:
        return ()

    @property
    def ordered_by(self) -> Sequence[str]:
        return ()


def bind_frame(site: OperatorSite) -> BoundFrame:
    return BoundFrame(site.frames[site.item.name.lower()])
