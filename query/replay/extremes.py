"""Check bounds of columns (``rounded_sums.Bounded``) against leaf entries and the tail."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...store.layout import ROW_ATTRIBUTES, ROWS_PER_ATTRIBUTE
from .rounded_sums import Bounded
from .timeline import Timeline, TimelinePart

__all__ = ["all_hold"]


def all_hold(needs: Iterable[Bounded], timeline: Timeline) -> bool:
    """Whether double columns have no number outside of their bounds."""
    return all(
        low >= one.low and high <= one.high
        for one in needs
        for part in timeline.parts
        for low, high in _ends(part, one.column)
    )


def _ends(part: TimelinePart, column: str) -> list[tuple[float, float]]:
    if part.leaves is None:
        assert part.tail is not None
        if column not in part.tail.batch.schema.names:
            return []
        values = part.tail.batch.column(column).drop_null().to_numpy(zero_copy_only=False)
        return [(float(values.min()), float(values.max()))] if len(values) else []
    schema = part.leaves.view.file.schema
    if column not in schema:
        return []
    place = [attribute.name for attribute in schema.payload].index(column)
    row = ROW_ATTRIBUTES + ROWS_PER_ATTRIBUTE * place
    present, low, high = part.leaves.table[row : row + 3]
    held = present > 0
    if not held.any():
        return []
    return [
        (
            float(np.min(low[held].view(np.float64))),
            float(np.max(high[held].view(np.float64))),
        )
    ]
