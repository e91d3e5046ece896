"""Blocks at a bounded distance: ``A Z{0,5} B``, ``A B+ C``, ``A B{1,3}``.

A gap may be bounded (``symbols.Room``): by a number of events, or because all of them satisfy the
condition of the symbol before.  Occurrences without another one in reach are dropped::

    position     0 1 2 3 4 5 6 7 8 9          A B+ C: every event between is a B
    B            . x x x . . x x . .          runs  1..3, 6..7
    C            . . . . x . . . . x          left: C at 4; the one at 9 is behind no run

Sound for contiguous matches of the stream: events are neighbours, and those of a gap obey its
condition.  The repeated symbol's occurrences are taken before any is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...core.sorting import places_in
from ...core.times import moved
from .candidates import Candidates
from .lookups import Lookups
from .spans import Spans

__all__ = ["Rooms"]

Ints = npt.NDArray[np.int64]
ROUNDS = 2
_FAR = 2**62


class Rooms:
    """Bounded gaps, given the ascending starts of all looked-up blocks in ``spans``."""

    def __init__(self, lookups: Lookups, found: Mapping[int, Ints], spans: Spans) -> None:
        self._pattern, self._timeline = lookups.context.pattern, lookups.context.timeline
        self._lengths = [len(block.symbols) for block in self._pattern.blocks]
        self._runs: dict[int, tuple[Ints, Ints]] = {}
        for block, at in found.items():
            if not self._pattern.room(block).repeats:
                continue
            alone = at if self._lengths[block] == 1 else lookups.last_symbol(block, spans)
            if alone is not None and len(alone):
                ends = np.append(np.flatnonzero(np.diff(alone) != 1), len(alone) - 1)
                self._runs[block] = alone, alone[ends[places_in(ends, np.arange(len(alone)))]]

    def thinned(self, found: Mapping[int, Ints]) -> dict[int, Ints]:
        """Occurrences with another one of each neighbouring block within reach."""
        left = dict(found)
        for _ in range(ROUNDS):
            before = sum(map(len, left.values()))
            for earlier, later in pairwise(sorted(left)):
                self._thin(left, earlier, later)
            if sum(map(len, left.values())) == before:
                break
        return left

    def _thin(self, left: dict[int, Ints], earlier: int, later: int) -> None:
        behind, begin = left[earlier] + self._lengths[earlier], left[later]
        if later == earlier + 1:
            until = self._last_of_room(earlier, behind - 1) + 1
        else:
            distance = self._pattern.distance(earlier, later)
            until = behind + (_FAR if distance is None else distance)
        if not len(behind) or not len(begin) or not np.any(until < begin[-1]):
            return
        first = places_in(begin, behind)
        near = np.append(begin, _FAR)[first] <= until
        left[earlier], behind, until = left[earlier][near], behind[near], until[near]
        # later occurrences reach further, so the last one before decides
        last = places_in(behind, begin, "right")
        left[later] = begin[begin <= np.append([-1], until)[last]]

    def _last_of_room(self, block: int, ends: Ints) -> Ints:
        """Last position of the gap behind a block, for each end of the block."""
        most = self._pattern.room(block).most
        last = np.full(len(ends), _FAR) if most is None else ends + most
        if block in self._runs:
            alone, until = self._runs[block]
            at = np.minimum(places_in(alone, ends), len(alone) - 1)
            last = np.minimum(last, np.where(alone[at] == ends, until[at], _FAR))
        return last

    def ended(self, found: Candidates, used: int) -> Candidates | None:
        """Candidates with their last possible events; None if only the window bounds them."""
        room = self._pattern.room(used)
        if used + 1 < len(self._lengths) or (room.most is None and used not in self._runs):
            return None
        last = np.minimum(self._last_of_room(used, found.farthest), self._timeline.total - 1)
        if self._pattern.within is not None:
            until = self._timeline.upper(moved(found.first_ticks, self._pattern.within)) - 1
            last = np.minimum(last, np.maximum(until, found.farthest))
        ticks = self._timeline.ticks_at(last)
        return replace(found, farthest=last, farthest_ticks=ticks)
