"""Cost-based join orders for the names of a pattern, from moving averages.

::

    cost of a step  = partial matches so far * (2 log2 n searches a constraint + what is found)
    what is found   = n * product of the shares of the constraints to names joined before

No order joins an unconstrained name while a constrained one is left.  Up to ``EXACT_MAX`` names the
optimum is found by dynamic programming.  Changing the order needs no migration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from math import log2

import numpy as np
import numpy.typing as npt

from .network import Masks
from .relations import ALL, relations_in

__all__ = ["ALPHA", "Statistics", "join_orders"]

ALPHA = 0.01
"""Weight of one search in the moving averages."""
DRIFT = 0.2
"""Relative change of an average that triggers a new choice of orders."""
EXACT_MAX = 8

_SHARES = (
    0.445, 0.0049, 0.01, 0.0049, 0.03, 0.0049, 0.0006, 0.0049, 0.03, 0.0049, 0.01, 0.0049, 0.445,
)  # fmt: skip
"""Initial selectivity of each relation: table 5.3 of the thesis."""

SIZE_FIRST = 100.0

FloatArray = npt.NDArray[np.float64]


@dataclass
class Statistics:
    sizes: FloatArray
    shares: FloatArray
    _seen: tuple[FloatArray, FloatArray] = field(init=False)

    def __post_init__(self) -> None:
        self.remember()

    @classmethod
    def first(cls, masks: Masks) -> Statistics:
        shares = [
            [min(1.0, sum(_SHARES[i] for i in relations_in(mask))) for mask in row] for row in masks
        ]
        return cls(np.full(len(masks), SIZE_FIRST), np.array(shares, np.float64))

    def remember(self) -> None:
        self._seen = (self.sizes.copy(), self.shares.copy())

    @property
    def drifted(self) -> bool:
        sizes, shares = self._seen
        return bool(
            (np.abs(self.sizes - sizes) > DRIFT * np.maximum(sizes, 1.0)).any()
            or (np.abs(self.shares - shares) > DRIFT * np.maximum(shares, 0.001)).any()
        )


def join_orders(implied: Masks, statistics: Statistics) -> npt.NDArray[np.int64]:
    """Per trigger name, all names in join order."""
    count = len(implied)
    choose = _exact if count <= EXACT_MAX else _greedy
    return np.array([choose(first, implied, statistics) for first in range(count)], np.int64)


def _step(
    joined: tuple[int, ...], name: int, implied: Masks, statistics: Statistics
) -> tuple[float, float]:
    """Cost of one search of a name's buffer, and the expected number of results."""
    size = max(float(statistics.sizes[name]), 1.0)
    found, searches = size, 1
    for other in joined:
        if implied[name][other] != ALL:
            found *= float(statistics.shares[name, other])
            searches += 1
    return searches * 2 * log2(size + 1) + found, found


def _next(joined: tuple[int, ...], implied: Masks) -> list[int]:
    left = [i for i in range(len(implied)) if i not in joined]
    tied = [i for i in left if any(implied[i][j] != ALL for j in joined)]
    return tied or left


def _greedy(first: int, implied: Masks, statistics: Statistics) -> list[int]:
    order = [first]
    while len(order) < len(implied):
        joined = tuple(order)
        costs = {i: _step(joined, i, implied, statistics) for i in _next(joined, implied)}
        order.append(min(costs, key=lambda i: (costs[i], i)))
    return order


def _exact(first: int, implied: Masks, statistics: Statistics) -> list[int]:
    """Cheapest order by dynamic programming: the results of a set do not depend on its order."""
    count = len(implied)
    others = [i for i in range(count) if i != first]
    best: dict[frozenset[int], tuple[float, float, tuple[int, ...]]] = {
        frozenset((first,)): (0.0, 1.0, (first,))
    }
    for size in range(count - 1):
        for chosen in combinations(others, size):
            found = best.get(frozenset((first, *chosen)))
            if found is None:
                continue
            cost, partial, order = found
            for name in _next(order, implied):
                step, share = _step(order, name, implied, statistics)
                key = frozenset((*order, name))
                candidate = (cost + partial * step, partial * share, (*order, name))
                if key not in best or candidate[0] < best[key][0]:
                    best[key] = candidate
    return list(best[frozenset(range(count))][2])
