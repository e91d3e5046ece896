"""Runs that seem to begin where the reading began: which of them do.

Purpose
    Where only a part of the rows is read, a run whose first row is the first one read of its
    partition may have begun before.  A :class:`Certifier` asks for the row before, and only where a
    match uses such a run.

Guarantee
    A run begins where it seems to when the row of its partition before does not satisfy, or is
    further away than GAP, or does not exist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from .compiled import CompiledSituations
from .matching import Found

__all__ = ["Before", "Certifier"]

Ints = npt.NDArray[np.int64]
Before = tuple[int, int] | None
"""Word and time of the row before; None where there is none that matters."""


class Certifier(ABC):
    """The rows right before what is read, asked for when they matter.

    Attributes
    ----------
    known : dict of int to (int, int) or None
        Per number of a partition, or of a stretch of one, what is known of the row before.
    """

    def __init__(self, compiled: CompiledSituations) -> None:
        self.compiled = compiled
        self.known: dict[int, Before] = {}

    @abstractmethod
    def rows_before(self, groups: Ints, rows: Ints) -> list[Before]:
        """Find the rows before some partitions, given the number of a row in each."""

    def certified(self, found: Found) -> Found:
        """Matches whose situations begin where they seem to."""
        doubtful = np.argwhere(found.cut != 0)
        if not len(doubtful):
            return found
        groups, one = np.unique(found.group[doubtful[:, 0]], return_index=True)
        rows = found.first[doubtful[one, 0], doubtful[one, 1]]
        fresh = np.array([number not in self.known for number in groups.tolist()], np.bool_)
        if fresh.any():
            told = self.rows_before(groups[fresh], rows[fresh])
            self.known.update(zip(groups[fresh].tolist(), told, strict=True))
        kept = np.ones(len(found.instant), np.bool_)
        for i, name in doubtful.tolist():
            kept[i] &= self._begins(int(found.group[i]), name, int(found.starts[i, name]))
        return found.only(kept)

    def _begins(self, group: int, name: int, start: int) -> bool:
        before = self.known[group]
        if before is None:
            return True
        word, tick = before
        gap = self.compiled.gap
        return not word >> name & 1 or (gap is not None and start - tick > gap)
