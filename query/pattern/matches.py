"""What searches find: matches as runs of rows.

Purpose
    Every search of a buffer hands its matches out as :class:`Matches`, a batch at a time, and
    everything behind it (measures, names, positions) reads them there.

Guarantee
    A batch may lie in arrays that the next one is put into: whoever wants to keep something copies
    it (:meth:`Matches.kept`), or asks for the next batch when it is done.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...core.caches import lazy
from ...core.native import kernel

__all__ = ["Matches"]

IntArray = npt.NDArray[np.int64]


@kernel
def _count_on(group, number, out):
    """Number each match within its group; ``number``: matches of each group so far."""
    for i in range(group.shape[0]):
        g = group[i]
        number[g] += 1
        out[i] = number[g]


@dataclass(frozen=True)
class Matches:
    """A batch of matches, as runs: rows that follow each other, at one position of the pattern.

    The runs of match ``i`` are ``runs[i] .. runs[i + 1]``, in order.  ``A B+ C`` over rows 7 to 11
    of a partition::

        rows    7 | 8  9 10 | 11      row    7  8  11
        place   A | B  B  B | C       begin  0  1   4      place  A  B  C

    Attributes
    ----------
    group, start, length, number : int64 arrays
        Per match: partition, first row, events, MATCH_NUMBER.
    runs : int64 array
        See above; one longer than there are matches.
    row, begin, place : int64 arrays
        Per run: its first row, the index of that in the match, and the position.
    width : int
        Events of every match, where all have as many and each event is a run; else 0.
    """

    group: IntArray
    start: IntArray
    length: IntArray
    number: IntArray
    runs: IntArray
    row: IntArray
    begin: IntArray
    place: IntArray
    width: int = 0

    @lazy
    def first(self) -> IntArray:
        """Entries of match ``i`` in :attr:`rows` and :attr:`places`: ``first[i] .. first[i+1]``."""
        if self.width:
            return self.runs
        return np.concatenate([[0], np.cumsum(self.length)]).astype(np.int64)

    @lazy
    def last_row(self) -> IntArray:
        """Last row of each match; of an empty one its start."""
        if not len(self.row):
            return self.start
        if self.width:
            return self.row[self.width - 1 :: self.width]
        last = np.maximum(self.runs[1:] - 1, 0)
        return np.where(
            self.length > 0, self.row[last] + self.length - 1 - self.begin[last], self.start
        )

    @lazy
    def rows(self) -> IntArray:
        """Row of every event of every match.  Use only what was made with ``labels``."""
        if self.width:
            return self.row
        run = self._run_of_entry
        if len(run) == len(self.row):
            return self.row
        return self.row[run] + self._index_of_entry - self.begin[run]

    @lazy
    def places(self) -> IntArray:
        """Position of every event of every match.  Use only what was made with ``labels``."""
        if self.width:
            return self.place
        run = self._run_of_entry
        return self.place if len(run) == len(self.row) else self.place[run]

    @lazy
    def _run_of_entry(self) -> IntArray:
        ends = np.append(self.begin[1:], 0)
        full = self.length > 0
        ends[self.runs[1:][full] - 1] = self.length[full]
        return np.repeat(np.arange(len(self.row)), ends - self.begin)

    @lazy
    def _index_of_entry(self) -> IntArray:
        return np.arange(self.first[-1]) - np.repeat(self.first[:-1], self.length)

    def kept(self) -> Matches:
        """The same in arrays of their own."""
        if self.width:  # the others are the same for every batch
            return replace(
                self, group=self.group.copy(), start=self.start.copy(), number=self.number.copy(),
                row=self.row.copy(),
            )  # fmt: skip
        return Matches(
            self.group.copy(), self.start.copy(), self.length.copy(), self.number.copy(),
            self.runs.copy(), self.row.copy(), self.begin.copy(), self.place.copy(),
        )  # fmt: skip

    def numbered(self, number: IntArray) -> Matches:
        """The same with MATCH_NUMBERs that go on from those of each group, which are moved on."""
        own = np.empty(len(self.group), np.int64)
        _count_on(self.group, number, own)
        return replace(self, number=own)
