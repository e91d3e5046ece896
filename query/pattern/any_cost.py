"""What a search costs and what a tree costs, before either is run.

Purpose
    The tree pays for its pairs and lists; where few partial matches are to be expected the search
    has tried them all before those are made.  :func:`search_cost` says what the search of a buffer
    would take, from the number of rows of each position and from how often the conditions between
    them hold.

Layout
    Rows of position ``q`` come at rate ``n_q / span``.  A partial match of ``d`` events, the last
    one at ``p``, is tried with ``rate_q W / d`` rows at each ``q`` that may follow: the next event
    lies anywhere in what d ordered events leave of the window (W^d / d! in all).  Of those tries
    the conditions leave their share.

Limits
    Rows are taken to come evenly.  Costs are microseconds measured on one machine; only their
    ratios matter, and no choice depends on a factor of less than two.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .any_pairs import Asked

__all__ = ["CANDIDATE_COST", "EVENT_COST", "ROW_COST", "START_COST", "WORTH", "search_cost"]

IntArray = npt.NDArray[np.int64]

TRY_COST, WALK_COST = 0.15, 0.0005
"""Of a row that is tried with a partial match; of a row that is passed over."""
ROW_COST, EVENT_COST = 0.04, 0.2
"""Of joining: of a row of the buffer, and of one for each position that it may have."""
START_COST, CANDIDATE_COST = 0.6, 0.15
"""Of the lists of a first event, and of one of their candidates."""
WORTH = 1000.0
"""What a search must cost for anything else to be looked at, kernels that are not loaded yet."""
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
    """Microseconds that the search of a buffer is expected to take.

    Parameters
    ----------
    follow : list of list of int
        Positions that may follow each position; of the entry those that a match begins with.
    counts : int64 array
        Rows of each position.
    shares : float64 array
        How often each condition holds.
    rows : int
        Of the buffer.
    within : float
        Share of the buffer that a window takes, at most 1.
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
