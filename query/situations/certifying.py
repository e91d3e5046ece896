"""Certifies runs whose first row is the first row read of their partition, where a match uses them.
The run begins there if the previous row does not satisfy its condition, is further away than GAP,
or does not exist.
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
"""Word and time of the previous row; None if it does not matter."""


class Certifier(ABC):
    """Fetches previous rows on demand; ``known``: result per partition or stretch."""

    def __init__(self, compiled: CompiledSituations) -> None:
        self.compiled = compiled
        self.known: dict[int, Before] = {}

    @abstractmethod
    def rows_before(self, groups: Ints, rows: Ints) -> list[Before]:
        """The rows before some partitions, given the number of a row in each."""

    def certified(self, found: Found) -> Found:
        """Matches whose situations all begin where they seem to."""
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
