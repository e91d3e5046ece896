"""Which indexes to use: greedy inside a block, Pareto frontiers across blocks.

Algorithm 3.2 of the thesis.  Within a block the best ``k`` terms are the ``k`` rarest.  Across
blocks the best choice of ``k`` terms lies on the frontier of (replay cost, index cost), and
frontiers of disjoint sets of blocks combine.  One call of the cost model prices all pairs of two
halves, so that no Python runs per choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from .cost import Estimate, Model

__all__ = ["Assignment", "greedy", "optimal"]

Counts = tuple[int, ...]
"""Terms taken of each block, rarest first."""

FRONTIER_MAX = 16
PRIMARY, SECONDARY = 5, 6


@dataclass(frozen=True)
class Assignment:
    """The cheapest number of terms of every block; ``examined``: assignments compared."""

    counts: Counts
    estimate: Estimate
    examined: int


@dataclass(frozen=True)
class _Choices:
    counts: npt.NDArray[np.int64]
    priced: npt.NDArray[np.float64]

    def frontier(self) -> _Choices:
        """For each number of terms, the choices that no other beats in both costs."""
        terms = self.counts.sum(axis=1)
        order = np.lexsort((self.priced[:, SECONDARY], self.priced[:, PRIMARY], terms))
        kept = np.empty(len(order), np.int64)
        count = _unbeaten(order, terms, self.priced[:, SECONDARY].copy(), FRONTIER_MAX, kept)
        return _Choices(self.counts[kept[:count]], self.priced[kept[:count]])


@kernel
def _unbeaten(order, terms, secondary, most, kept):  # type: ignore[no-untyped-def]
    """Choices, by terms and primary cost, whose secondary cost is below all before."""
    count = 0
    here = -1
    of_these = 0
    cheapest = 0.0
    for i in range(order.shape[0]):
        at = order[i]
        if terms[at] != here:
            here = terms[at]
            of_these = 0
        elif secondary[at] >= cheapest or of_these >= most:
            continue
        cheapest = secondary[at]
        kept[count] = at
        count += 1
        of_these += 1
    return count


class _Examiner:
    def __init__(self, sizes: Sequence[int], model: Model) -> None:
        self.sizes = sizes
        self.model = model
        self.examined = 1  # taking nothing

    def priced(self, counts: npt.NDArray[np.int64]) -> _Choices:
        self.examined += len(counts)
        return _Choices(counts, self.model.table(counts))

    def best_of(self, low: int, high: int) -> _Choices:
        blocks = len(self.sizes)
        if high - low == 1:
            counts = np.zeros((self.sizes[low], blocks), np.int64)
            counts[:, low] = np.arange(1, self.sizes[low] + 1)
            return self.priced(counts)  # one choice per number of terms: already a frontier
        middle = (low + high) // 2
        left, right = self.best_of(low, middle), self.best_of(middle, high)
        pairs = (left.counts[:, None, :] + right.counts[None, :, :]).reshape(-1, blocks)
        both = self.priced(pairs)
        return _Choices(
            np.concatenate((left.counts, right.counts, both.counts)),
            np.concatenate((left.priced, right.priced, both.priced)),
        ).frontier()


def _selected(
    counts: npt.NDArray[np.int64], priced: npt.NDArray[np.float64], examined: int
) -> Assignment:
    return Assignment(tuple(counts.tolist()), Estimate(*priced.tolist()), examined)


def optimal(sizes: Sequence[int], model: Model) -> Assignment:
    """The cheapest assignment by Algorithm 3.2; ``sizes``: terms that each block offers."""
    nothing = np.zeros((1, len(sizes)), np.int64)
    taken = model.table(nothing)[0]
    if not sum(sizes):
        return _selected(nothing[0], taken, 1)
    examiner = _Examiner(sizes, model)
    found = examiner.best_of(0, len(sizes))
    total = found.priced[:, PRIMARY] + found.priced[:, SECONDARY]
    at = int(total.argmin())
    if total[at] < taken[PRIMARY] + taken[SECONDARY]:
        return _selected(found.counts[at], found.priced[at], examiner.examined)
    return _selected(nothing[0], taken, examiner.examined)


def greedy(order: Sequence[int], sizes: Sequence[int], model: Model) -> Assignment:
    """The cheapest prefix of the rarest terms; ``order``: block of each term, rarest first."""
    steps = np.zeros((len(order) + 1, len(sizes)), np.int64)
    for step, block in enumerate(order, 1):
        steps[step] = steps[step - 1]
        steps[step, block] += 1
    priced = model.table(steps)
    at = int((priced[:, PRIMARY] + priced[:, SECONDARY]).argmin())
    return _selected(steps[at], priced[at], len(steps))
