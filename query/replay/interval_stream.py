"""The matcher over replay intervals: rows around intervals are seen but never matched.

Purpose
    :class:`IntervalStream` is the ordinary streaming matcher with one difference: in rows that
    only surround intervals no variable holds.  PREV, NEXT and measures read them as they are; no
    match can contain one, so none reaches from one interval into another.

Guarantee
    With intervals that contain every match, the results are those of a full replay, in the same
    order: skips and MATCH_NUMBER depend only on matches, every match lies in one interval, and
    between intervals a search finds nothing in either run.  ``^`` and ``$`` stay right because an
    interval that does not begin (end) the stream has a row before (after) it.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..pattern.compiled import CompiledMatch
from ..pattern.match_stream import MatchStream
from ..pattern.matcher import MatchLimits

__all__ = ["IntervalStream"]


class IntervalStream(MatchStream):
    """See the module."""

    def __init__(
        self,
        compiled: CompiledMatch,
        limits: MatchLimits,
        check: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(compiled, limits, check, mask=self.inside)
        self._fed = 0
        self._starts: list[int] = []  # sequence numbers at which rows of an interval begin
        self._ends: list[int] = []

    def feed_piece(
        self, batch: pa.RecordBatch, within: bool | npt.NDArray[np.bool_]
    ) -> Iterator[pa.RecordBatch]:
        """Take rows of an interval (``within``) or rows around one."""
        rows = batch.num_rows
        if rows == 0:
            return
        if within is True or (within is not False and within.all()):
            self._inside(0, rows)
        elif within is not False:
            edges = np.flatnonzero(np.diff(within, prepend=False, append=False)).tolist()
            for first, end in zip(edges[::2], edges[1::2], strict=True):
                self._inside(first, end)
        self._fed += rows
        yield from self.feed(batch)
        self._forget()

    def _inside(self, first: int, end: int) -> None:
        """Note that rows of the batch at hand belong to an interval."""
        if self._ends and self._ends[-1] == self._fed + first:
            self._ends[-1] = self._fed + end
        else:
            self._starts.append(self._fed + first)
            self._ends.append(self._fed + end)

    def _forget(self) -> None:
        """Drop what lies before every row that is kept."""
        if len(self._starts) > 4096 and len(self.sequence):
            done = bisect.bisect_right(self._ends, int(self.sequence.min()))
            del self._starts[:done]
            del self._ends[:done]

    def inside(self, sequence: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which rows, by their number in the input, belong to an interval."""
        starts, ends = np.array(self._starts, np.int64), np.array(self._ends, np.int64)
        if not len(starts):
            return np.zeros(len(sequence), np.bool_)
        at = np.searchsorted(starts, sequence, side="right") - 1
        found: npt.NDArray[np.bool_] = (at >= 0) & (sequence < ends[np.maximum(at, 0)])
        return found
