"""Which indexes to use: greedy inside a block, Pareto frontiers across blocks.

Purpose
    Algorithm 3.2 of the thesis.  Within a basic block the best ``k`` terms are the ``k`` rarest.
    Across blocks neither that nor combining optima is right, but the best choice of ``k`` terms
    lies on the frontier of (replay cost, index cost), and frontiers of disjoint sets of blocks
    combine.

Guarantee
    Each choice that is looked at is an assignment of a number of terms to every block;
    ``examined`` counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .cost import Estimate

__all__ = ["Choice", "Selection", "greedy", "optimal"]

Counts = tuple[int, ...]
"""Terms taken of each block, rarest first."""

FRONTIER_MAX = 16


@dataclass(frozen=True)
class Choice:
    """Terms per block, and what they are expected to cost."""

    counts: Counts
    estimate: Estimate


@dataclass(frozen=True)
class Selection:
    """The cheapest choice and how many were looked at."""

    choice: Choice
    examined: int


class _Examiner:
    def __init__(self, evaluate: Callable[[Counts], Estimate]) -> None:
        self.evaluate = evaluate
        self.known: dict[Counts, Choice] = {}

    def __call__(self, counts: Counts) -> Choice:
        found = self.known.get(counts)
        if found is None:
            found = self.known[counts] = Choice(counts, self.evaluate(counts))
        return found


def optimal(sizes: Sequence[int], evaluate: Callable[[Counts], Estimate]) -> Selection:
    """The cheapest choice by Algorithm 3.2.

    Parameters
    ----------
    sizes : sequence of int
        Terms that each block offers.
    evaluate : callable
        Estimate of an assignment.
    """
    examine = _Examiner(evaluate)
    blocks = len(sizes)
    total = sum(sizes)

    def frontiers(low: int, high: int) -> list[list[Choice]]:
        result: list[list[Choice]] = [[] for _ in range(total + 1)]
        if high - low == 1:
            for k in range(sizes[low] + 1):
                counts = (0,) * low + (k,) + (0,) * (blocks - high)
                result[k].append(examine(counts))
            return result
        middle = (low + high) // 2
        left, right = frontiers(low, middle), frontiers(middle, high)
        for k in range(total + 1):
            combined = [
                examine(tuple(a + b for a, b in zip(x.counts, y.counts, strict=True)))
                for i in range(k + 1)
                for x in left[i]
                for y in right[k - i]
            ]
            result[k] = _pareto(combined)
        return result

    if not blocks:
        return Selection(examine(()), 1)
    best = min(
        (choice for frontier in frontiers(0, blocks) for choice in frontier),
        key=lambda choice: choice.estimate.total_ns,
    )
    return Selection(best, len(examine.known))


def _pareto(choices: list[Choice]) -> list[Choice]:
    """Choices that no other beats in both costs."""
    ordered = sorted(choices, key=lambda c: (c.estimate.primary_ns, c.estimate.secondary_ns))
    kept: list[Choice] = []
    cheapest = float("inf")
    for choice in ordered:
        if choice.estimate.secondary_ns < cheapest:
            kept.append(choice)
            cheapest = choice.estimate.secondary_ns
    return kept[:FRONTIER_MAX]


def greedy(
    order: Sequence[int], sizes: Sequence[int], evaluate: Callable[[Counts], Estimate]
) -> Selection:
    """The cheapest of taking the 0, 1, 2, ... rarest terms.

    Parameters
    ----------
    order : sequence of int
        Block of each term, rarest first.
    sizes : sequence of int
    evaluate : callable
    """
    counts = [0] * len(sizes)
    best = Choice(tuple(counts), evaluate(tuple(counts)))
    for block in order:
        counts[block] += 1
        choice = Choice(tuple(counts), evaluate(tuple(counts)))
        if choice.estimate.total_ns < best.estimate.total_ns:
            best = choice
    return Selection(best, len(order) + 1)
