"""What is indexed at one moment: the picture that a query plans with.

Purpose
    :class:`Catalogue` names the runs and times that there are.  It does not change; what it names
    may be replaced while a query reads it, which :class:`RunsChanged` tells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from .runs import Run
from .storage import time_key

__all__ = ["Catalogue", "RunsChanged", "TimeRange", "blocks_of", "descriptor_of"]


class RunsChanged(Exception):
    """A run was replaced, dropped or set aside while a query was using it; plan again."""


@dataclass(frozen=True)
class TimeRange:
    """Times of positions [first, end) of a segment are stored."""

    segment: int
    first: int
    end: int
    generation: int
    size: int


@dataclass(frozen=True)
class Catalogue:
    """What is indexed at one moment.

    Attributes
    ----------
    attributes : mapping of str to int
        Indexed attributes and the identifiers of their indexes; none where no run can be read.
    runs : mapping of (index, segment) to tuple of Run
        In order of position.
    """

    attributes: Mapping[str, int]
    runs: Mapping[tuple[int, int], tuple[Run, ...]]
    times: Mapping[int, tuple[TimeRange, ...]]


def descriptor_of(times: TimeRange) -> tuple[bytes, bytes]:
    """Key and value that make the times of a range exist."""
    record = {"end": times.end, "generation": times.generation, "size": times.size}
    return time_key(times.segment, times.first), json.dumps(record).encode()


def blocks_of(run: Run) -> list[tuple[bytes, int]]:
    """Kinds and numbers of all blocks that a run has."""
    blocks = [(kind, block) for kind in (b"k", b"p") for block in range(run.blocks)]
    if run.listed:
        blocks.append((b"n", 0))
    if run.text == "dictionary":
        blocks.append((b"s", 0))
    return blocks
