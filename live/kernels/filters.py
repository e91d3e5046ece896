"""Filters in batches: every event's answer as a byte, then one pass that compacts in order.

Purpose
    Thesis, section 4.3.2: evaluating writes answers where the event stands, a second pass makes the
    list of those that hold.  Neither depends on how many hold, so a batch costs the same at any
    selectivity.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from ...core.native import kernel

__all__ = ["compact", "norm_below"]


@kernel
def norm_below(columns, bound, square, out):
    """Which events have a Euclidean norm below a bound; ``columns`` is (attributes, events).

    ``square``: scratch, as long as ``out`` and of the columns' type.
    """
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
    """Numbers of the events that hold, in order; how many there are."""
    n = 0
    for i in range(holds.shape[0]):
        out[n] = i
        n += int(holds[i])
    return n
