"""Blocks that lie near one another: ``A Z{0,5} B``, ``A B+ C``, ``A B{1,3}``.

Purpose
    A gap is any number of events within the window, unless the pattern says more
    (:class:`~.symbols.Room`): how many they are at most, or that all of them satisfy the condition
    of the symbol before.  :class:`Rooms` drops occurrences of blocks that have no other one in
    reach, and says where matches end whose last symbol repeats.

Layout
    ::

        position     0 1 2 3 4 5 6 7 8 9          A Z{0,2} B: at most two between
        A            x . . . . x . . . .
        B            . . . . x . . x . .          left: A at 5, B at 7

        position     0 1 2 3 4 5 6 7 8 9          A B+ C: every event between is a B
        B            . x x x . . x x . .          runs  1..3, 6..7
        C            . . . . x . . . . x          left: C at 4; the one at 9 is behind no run

Guarantee
    Sound: where nothing is passed over, the events of a match are neighbours, and those of a gap
    obey what the gap says.  Occurrences of the repeated symbol are taken as they were looked up,
    before any was dropped.

Limits
    Contiguous matches in the stream; under PARTITION BY places in a partition are not known.
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
    """See the module.

    Parameters
    ----------
    found : mapping of int to int64[n]
        Where the blocks that were looked up begin, ascending; all of them in some spans.
    spans : Spans
        Of the stream, in which matches lie.
    """

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
        """Occurrences that have another one of each neighbouring block within reach."""
        left = dict(found)
        for _ in range(ROUNDS):
            before = sum(map(len, left.values()))
            for earlier, later in pairwise(sorted(left)):
                self._thin(left, earlier, later)
            if sum(map(len, left.values())) == before:
                break
        return left

    def _thin(self, left: dict[int, Ints], earlier: int, later: int) -> None:
        """Drop occurrences of two blocks that were looked up, the one right after the other."""
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
        # what begins later reaches further, so the last one before tells
        last = places_in(behind, begin, "right")
        left[later] = begin[begin <= np.append([-1], until)[last]]

    def _last_of_room(self, block: int, ends: Ints) -> Ints:
        """The last position of the room behind a block, for each place at which that ends."""
        most = self._pattern.room(block).most
        last = np.full(len(ends), _FAR) if most is None else ends + most
        if block in self._runs:
            alone, until = self._runs[block]
            at = np.minimum(places_in(alone, ends), len(alone) - 1)
            last = np.minimum(last, np.where(alone[at] == ends, until[at], _FAR))
        return last

    def ended(self, found: Candidates, used: int) -> Candidates | None:
        """Candidates with their last possible events; None where the window alone says.

        Parameters
        ----------
        used : int
            The last block that was looked up.
        """
        room = self._pattern.room(used)
        if used + 1 < len(self._lengths) or (room.most is None and used not in self._runs):
            return None
        last = np.minimum(self._last_of_room(used, found.farthest), self._timeline.total - 1)
        if self._pattern.within is not None:
            until = self._timeline.upper(moved(found.first_ticks, self._pattern.within)) - 1
            last = np.minimum(last, np.maximum(until, found.farthest))
        ticks = self._timeline.ticks_at(last)
        return replace(found, farthest=last, farthest_ticks=ticks)
