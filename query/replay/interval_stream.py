"""The streaming matcher over replay intervals: surrounding rows are visible but never match.

With intervals that contain every match, results and order are those of a full replay: skips and
MATCH_NUMBER depend only on matches, every match lies in one interval, and between intervals neither
search finds anything.  ``^`` and ``$`` are right because an interval that does not begin (end) the
stream has a row before (after) it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ..pattern.compiled import CompiledMatch
from ..pattern.match_stream import MatchStream
from ..pattern.matcher import MatchLimits

__all__ = ["IntervalStream"]


@kernel
def _mark_inside(sequence, starts, ends, out):  # type: ignore[no-untyped-def]
    """Flag the numbers that lie in spans; fast where neighbours lie in the same span."""
    low = np.int64(0)
    high = np.int64(0)
    inside = False
    for i in range(sequence.shape[0]):
        here = sequence[i]
        if here < low or here >= high:
            at = np.searchsorted(ends, here, side="right")  # the first that ends behind it
            inside = at < starts.shape[0] and starts[at] <= here
            if inside:
                low = starts[at]
                high = ends[at]
            else:
                low = ends[at - 1] if at > 0 else np.int64(-9223372036854775807)
                high = starts[at] if at < starts.shape[0] else np.int64(9223372036854775807)
        out[i] = inside


class IntervalStream(MatchStream):
    def __init__(
        self,
        compiled: CompiledMatch,
        limits: MatchLimits,
        check: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(compiled, limits, check, mask=self.inside)
        self._fed = 0
        # sequence numbers at which the rows of intervals begin and end
        self._starts, self._ends = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def feed_piece(
        self, batch: pa.RecordBatch, within: bool | npt.NDArray[np.bool_]
    ) -> Iterator[pa.RecordBatch]:
        """Feed rows of an interval (``within``) or around one."""
        rows = batch.num_rows
        if rows == 0:
            return
        if not isinstance(within, bool):
            edges = np.flatnonzero(np.diff(within, prepend=False, append=False)) + self._fed
            self._add(edges[::2], edges[1::2])
        elif within:
            self._add(np.array([self._fed]), np.array([self._fed + rows]))
        self._fed += rows
        yield from self.feed(batch)
        self._forget()

    def _add(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        known = self._ends
        if len(known) and len(starts) and known[-1] == starts[0]:
            known, starts = known[:-1], starts[1:]
        self._starts = np.concatenate([self._starts, starts])
        self._ends = np.concatenate([known, ends])

    def _forget(self) -> None:
        if len(self._starts) > 4096 and len(self.sequence):
            done = int(np.searchsorted(self._ends, int(self.sequence.min()), side="right"))
            self._starts, self._ends = self._starts[done:], self._ends[done:]

    def masks(self) -> bool:
        """Whether one of the searched rows lies outside of the intervals."""
        last = len(self._starts) - 1
        return (
            last < 0
            or self._starts[last] > self.first_searched
            or self._ends[last] < self.next_sequence
        )

    @property
    def first_searched(self) -> int:
        if self._sequence is None or not len(self._sequence):
            return self.next_sequence - len(self.codes)
        return int(self._sequence[0])

    def inside(self, sequence: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        found = np.empty(len(sequence), np.bool_)
        _mark_inside(sequence, self._starts, self._ends, found)
        return found
