"""Batch filters: a result byte per event, then an order-preserving compaction (thesis, 4.3.2).

Neither pass branches on the result, so the cost does not depend on the selectivity.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from ...core.native import kernel

__all__ = ["compact", "norm_below"]


@kernel
def norm_below(columns, bound, square, out):
    """Which events (second axis of ``columns``) have a Euclidean norm below a bound."""
    limit = bound * bound
    n = out.shape[0]
    for a in range(columns.shape[0]):
        column = columns[a]
        if a == 0:
            for i in range(n):
                square[i] = column[i] * column[i]
        else:
            for i in range(n):
                square[i] += column[i] * column[i]
    for i in range(n):
        out[i] = square[i] < limit


@kernel
def compact(holds, out):
    """Numbers of the events that satisfy the predicate, ascending; returns how many."""
    n = 0
    for i in range(holds.shape[0]):
        out[n] = i
        n += int(holds[i])
    return n
