"""What is indexed at one moment; an immutable ``Catalogue`` for query planning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from .runs import Run
from .storage import time_key

__all__ = ["Catalogue", "RunsChanged", "TimeRange", "blocks_of", "descriptor_of"]


class RunsChanged(Exception):
    """A run was replaced, dropped or set aside during a query; plan again."""


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
    """Identifiers by attribute (none if unreadable), runs by (index, segment), times by segment."""

    attributes: Mapping[str, int]
    runs: Mapping[tuple[int, int], tuple[Run, ...]]
    times: Mapping[int, tuple[TimeRange, ...]]


def descriptor_of(times: TimeRange) -> tuple[bytes, bytes]:
    """Key and value of the descriptor that makes a range's times exist."""
    record = {"end": times.end, "generation": times.generation, "size": times.size}
    return time_key(times.segment, times.first), json.dumps(record).encode()


def blocks_of(run: Run) -> list[tuple[bytes, int]]:
    blocks = [(kind, block) for kind in (b"k", b"p") for block in range(run.blocks)]
    if run.listed:
        blocks.append((b"n", 0))
    if run.text == "dictionary":
        blocks.append((b"s", 0))
    return blocks
