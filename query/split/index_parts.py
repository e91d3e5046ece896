"""Parts by match number, where one window holds more matches than a part should.

Every process counts the range itself on the same snapshot, so each match belongs to exactly one
share.  Only for SKIP TILL ANY MATCH with one row per match.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..pattern.any_choice import Selecting
from ..pattern.compiled import CompiledMatch
from ..pattern.matcher import Groups
from ..pattern.matches import Matches
from .parts import MatchPart, PartRun, RangePart, RangeStream

__all__ = ["IndexPart", "Weighing", "weigh"]

Ints = npt.NDArray[np.int64]


class Weighing(RangeStream):
    """Counts the matches that begin in a range, without output.  ``ticks`` and ``weights``: times
    of first events, and how many matches begin there.
    """

    def __init__(self, run: PartRun) -> None:
        super().__init__(run.compiled, run.limits, run.check)
        self.ticks: list[Ints] = []
        self.weights: list[Ints] = []

    def _results(self, matches: Matches, groups: Groups) -> tuple[Ints, pa.Table]:
        mine = self.mine(self._sequence_of(matches.start))
        self.ticks.append(groups.time[matches.start[mine]])
        self.weights.append(matches.number[mine])
        return np.zeros(0, np.int64), pa.table({})

    def _put_out(self, watermark: int) -> Iterator[pa.RecordBatch]:
        self.pending = []
        return iter(())


def weigh(part: RangePart, run: PartRun) -> tuple[Ints, Ints]:
    """Times of the first events in a range, and how many matches begin there."""
    compiled = run.compiled
    clause = replace(compiled.clause, rows="one", measures=())
    counted = Selecting(compiled.selecting.wanted, weighted=True)
    bare: CompiledMatch = replace(
        compiled, clause=clause, measures=(), selecting=counted, _schema=None
    )
    counting = run._replace(compiled=bare)
    stream = Weighing(counting)
    for _ in part.fed(counting, stream):
        pass
    none = [np.zeros(0, np.int64)]
    return np.concatenate(none + stream.ticks), np.concatenate(none + stream.weights)


@dataclass(frozen=True)
class IndexPart(MatchPart):
    """Share ``share`` of ``shares`` of the matches that begin in a range, by match number.  The
    clause must find its matches independently of each other.
    """

    range: RangePart
    share: int
    shares: int

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return self.range.ticks

    def _rows(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        total = int(weigh(self.range, run)[1].sum())
        low = total * self.share // self.shares
        left = total * (self.share + 1) // self.shares - low
        if not left:
            return
        selecting = replace(run.compiled.selecting, skip=low)
        skipping = run._replace(compiled=replace(run.compiled, selecting=selecting))
        stream = RangeStream(skipping.compiled, run.limits, run.check)
        for batch in self.range.fed(skipping, stream):
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return

    def describe(self) -> str:
        return f"matches {self.share + 1} of {self.shares} shares of {self.range.describe()}"
