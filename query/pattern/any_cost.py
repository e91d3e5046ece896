"""Cost model for SKIP TILL ANY MATCH: the expected cost of a backtracking search.

A partial match of ``d`` events ending at ``p`` is tried with ``rate_q W / d`` rows at each
successor ``q`` (``rate_q = n_q / span``): the next event lies anywhere in the rest of the window
that ``d`` ordered events leave (W^d / d! in all).  Conditions let their selectivity pass.  Rows are
assumed to be evenly distributed.  Costs are microseconds; no choice depends on a factor below two.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .any_pairs import Asked

__all__ = ["CANDIDATE_COST", "EVENT_COST", "ROW_COST", "START_COST", "WORTH", "search_cost"]

IntArray = npt.NDArray[np.int64]

TRY_COST, WALK_COST = 0.15, 0.0005
"""Per row tried with a partial match; per row skipped."""
ROW_COST, EVENT_COST = 0.04, 0.2
"""Of joining: per row of the buffer, and per row and position."""
START_COST, CANDIDATE_COST = 0.6, 0.15
"""Of lists: per first event, and per candidate."""
WORTH = 1000.0
"""Minimum search cost before alternatives are considered; includes loading kernels."""
DEPTH_MAX = 64
ENOUGH = 1e12


def search_cost(
    follow: list[list[int]],
    counts: IntArray,
    asked: tuple[Asked, ...],
    shares: npt.NDArray[np.float64],
    rows: int,
    within: float,
) -> float:
    """Expected microseconds of searching a buffer.
    ``follow``: successors of each position; ``counts``: its rows; ``shares``: selectivities;
    ``within``: fraction of the buffer that a window covers.
    """
    number = counts.tolist()
    held = [1.0] * len(number)
    for one, share in zip(asked, shares.tolist(), strict=True):
        held[one.place] *= share
    starts = float(sum(number[p] for p in follow[0]))
    if not starts:
        return 0.0
    reached = {p: number[p] / starts for p in follow[0]}
    tries, partial = 0.0, 1.0
    for depth in range(1, DEPTH_MAX):
        following: dict[int, float] = {}
        for p, ways in reached.items():
            for q in follow[p]:
                tried = ways * number[q] * within / depth
                tries += tried
                following[q] = following.get(q, 0.0) + tried * held[q]
        reached = {p: ways for p, ways in following.items() if ways}
        partial += sum(reached.values())
        if not reached or partial > ENOUGH:
            break
    return starts * (tries * TRY_COST + partial * rows * within / 2 * WALK_COST)
