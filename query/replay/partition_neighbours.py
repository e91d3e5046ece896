"""The rows of partitions right before and after intervals, for ``^``, ``$``, NEXT and PREV.

Keys are read near the intervals first, and farther away only for partitions with missing rows.  The
rows are those of two passes over all keys, which are made instead once reading near intervals has
cost as much; the total cost is at most twice that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from .cost import READ_GAP, Weights
from .partition_keys import PartitionKeys
from .partition_spans import positions, ranks
from .spans import Spans

__all__ = ["FIRST_REACH", "rows_beside"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
FIRST_REACH = 1 << 10
"""Events on each side of an interval in which rows are searched first."""
FARTHER = 8
REGION_MOST = 1 << 22
"""Events whose keys are held at a time."""


def rows_beside(
    keys: PartitionKeys,
    total: int,
    intervals: tuple[Ints, Ints, Ints],
    before: int,
    after: int,
    weights: Weights | None = None,
) -> list[Ints]:
    """Positions of the ``before`` last rows before intervals (code, first, one past the last),
    nearest first, then of the rows after; -1 if there is none.
    """
    code, low, high = intervals
    weights = weights or Weights()
    sides = _Side(code, low, before, total, False), _Side(code, high, after, total, True)
    reach, spent = FIRST_REACH, 0.0
    while any(len(side.open) for side in sides):
        spans = Spans.empty()
        for side in sides:
            spans = spans.union(side.stretches(reach))
        spans = spans.joined(READ_GAP)
        spent += spans.total * weights.key + len(spans) * weights.interval
        if spent > total * weights.around or spans.total > REGION_MOST:
            _look_at_all(keys, total, sides)
            break
        codes = _codes(keys, spans)
        for side in sides:
            side.look(spans, codes, reach)
        reach *= FARTHER
    return [row for side in sides for row in side.found]


def _codes(keys: PartitionKeys, spans: Spans) -> Codes:
    out, done = np.empty(spans.total, np.int32), 0
    for start, end in zip(spans.starts.tolist(), spans.ends.tolist(), strict=True):
        for at, codes in keys.pieces(start, end):
            out[done + at - start : done + at - start + len(codes)] = codes
        done += end - start
    return out


@kernel
def _nearest(codes, begin, steps, code, forward, out):  # type: ignore[no-untyped-def]
    """Steps from each beginning to rows of a partition, as many as ``out`` has rows."""
    way = 1 if forward else -1
    for i in range(begin.shape[0]):
        at = begin[i]
        found = 0
        for step in range(steps[i]):
            if codes[at] == code[i]:
                out[found, i] = step
                found += 1
                if found == out.shape[0]:
                    break
            at += way


@dataclass
class _Side:
    """One side of intervals.  ``edge``: first position, or one past the last; ``found``: nearest
    first; ``open``: intervals with missing rows.
    """

    code: Ints
    edge: Ints
    count: int
    total: int
    forward: bool
    found: list[Ints] = field(init=False)
    open: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.found = [np.full(len(self.code), -1, np.int64) for _ in range(self.count)]
        self.open = np.arange(len(self.code) if self.count else 0)

    def stretches(self, reach: int) -> Spans:
        return Spans.of(*self._bounds(reach))

    def _bounds(self, reach: int) -> tuple[Ints, Ints]:
        edge = self.edge[self.open]
        if self.forward:
            return edge, np.minimum(edge + reach, self.total)
        return np.maximum(edge - reach, 0), edge

    def look(self, spans: Spans, codes: Codes, reach: int) -> None:
        if not len(self.open):
            return
        low, high = self._bounds(reach)
        first = low if self.forward else high - 1  # the event next to the interval
        inside = np.flatnonzero(high > low)
        number = np.searchsorted(spans.starts, first[inside], side="right") - 1
        before = np.concatenate(([0], np.cumsum(spans.ends - spans.starts)))
        begin = before[number] + first[inside] - spans.starts[number]
        steps = np.full((self.count, len(self.open)), -1, np.int64)
        some = np.full((self.count, len(inside)), -1, np.int64)
        wanted = self.code[self.open][inside]
        _nearest(codes, begin, (high - low)[inside], wanted, self.forward, some)
        steps[:, inside] = some
        for found, step in zip(self.found, steps, strict=True):
            there = step >= 0
            at = first + step if self.forward else first - step
            found[self.open[there]] = at[there]
        farther = (high < self.total) if self.forward else (low > 0)
        self.open = self.open[(steps[-1] < 0) & farther]

    def ranks(self, edges: Ints) -> list[Ints]:
        return [edges + i if self.forward else edges - 1 - i for i in range(self.count)]


def _look_at_all(keys: PartitionKeys, total: int, sides: tuple[_Side, _Side]) -> None:
    codes = [side.code[side.open] for side in sides]
    edges = np.concatenate([side.edge[side.open] for side in sides])
    rank = ranks(keys, total, np.concatenate(codes), edges)
    cut = len(codes[0])
    wanted = [*sides[0].ranks(rank[:cut]), *sides[1].ranks(rank[cut:])]
    of = [code for code, side in zip(codes, sides, strict=True) for _ in range(side.count)]
    rows = positions(keys, total, np.concatenate(of), np.concatenate(wanted))
    parts = iter(np.split(rows, np.cumsum([len(code) for code in of])[:-1]))
    for side in sides:
        for found in side.found:
            found[side.open] = next(parts)
