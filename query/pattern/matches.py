"""Batches of matches as runs of rows; the arrays of a batch may be reused for the next one."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...core.caches import lazy
from ...core.native import kernel

IntArray = npt.NDArray[np.int64]


@kernel
def _count_on(group, number, out):
    """Number each match within its group; ``number``: matches of each group so far, updated."""
    for i in range(group.shape[0]):
        g = group[i]
        number[g] += 1
        out[i] = number[g]


@dataclass(frozen=True)
class Matches:
    """A batch of matches as runs: consecutive rows at one position of the pattern.

    The runs of match ``i`` are ``runs[i] .. runs[i + 1]``.  ``A B+ C`` over rows 7 to 11::

        rows    7 | 8  9 10 | 11      row    7  8  11
        place   A | B  B  B | C       begin  0  1   4      place  A  B  C

    Per match: ``group`` (partition), ``start`` (first row), ``length`` in events, ``number``
    (MATCH_NUMBER).  Per run: first ``row``, its index ``begin`` in the match, position ``place``.
    ``width``: events of every match if all have as many and each event is a run, else 0.
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
        """Events of match ``i`` in ``rows`` and ``places``: ``first[i] .. first[i + 1]``."""
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
        """Row of every event of every match; requires a search with ``labels``."""
        if self.width:
            return self.row
        run = self._run_of_entry
        if len(run) == len(self.row):
            return self.row
        return self.row[run] + self._index_of_entry - self.begin[run]

    @lazy
    def places(self) -> IntArray:
        """Position of every event of every match; requires a search with ``labels``."""
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
        if self.width:  # the other arrays are the same for every batch
            return replace(
                self, group=self.group.copy(), start=self.start.copy(), number=self.number.copy(),
                row=self.row.copy(),
            )  # fmt: skip
        return Matches(
            self.group.copy(), self.start.copy(), self.length.copy(), self.number.copy(),
            self.runs.copy(), self.row.copy(), self.begin.copy(), self.place.copy(),
        )  # fmt: skip

    def numbered(self, number: IntArray) -> Matches:
        """The same with MATCH_NUMBERs that continue those of each group; updates ``number``."""
        own = np.empty(len(self.group), np.int64)
        _count_on(self.group, number, own)
        return replace(self, number=own)


def matches_of_sequence(group: IntArray, start: IntArray, number: IntArray, width: int) -> Matches:
    """Matches of ``width`` rows in order, event ``i`` at position ``i + 1``."""
    count, index = len(start), np.arange(width)
    return Matches(
        group, start, np.full(count, width), number, np.arange(count + 1) * width,
        (start[:, None] + index).ravel(), np.tile(index, count), np.tile(index + 1, count), width,
    )  # fmt: skip
