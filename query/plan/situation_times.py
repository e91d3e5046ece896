"""Conditions on times of matches, as a range of the instants at which the matches become known.

Points of a match have bounded distances from its instant (``situations.network``).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...core.times import INT64_MAX, INT64_MIN
from ...schema import StreamSchema
from ..binding.situation_binding import BoundSituations
from ..conditions.constants import Folder
from ..conditions.predicates import PredicateCompiler, all_of
from ..conditions.ranges import time_bounds
from ..situations.compiled import CompiledSituations
from ..situations.network import FAR

__all__ = ["instants_asked_for"]


def instants_asked_for(
    bound: BoundSituations, compiled: CompiledSituations, folder: Folder
) -> tuple[int, int] | None:
    """Inclusive ticks of the instants of all matches that pass; None without bounds."""
    low, high = INT64_MIN, INT64_MAX
    for column, conditions in bound.asked.items():
        point = compiled.point_of(column)
        if point is None:
            continue
        least, most = _bounds(column, conditions, compiled, folder)
        ahead, back = int(compiled.reach[point, -1]), int(compiled.reach[-1, point])
        if compiled.early and len(compiled.names) <= point < len(compiled.reach) - 1:
            back = min(back, 0)  # a known end is at or before the instant
        if least > INT64_MIN and back < FAR // 2:
            low = max(low, least - back)
        if most < INT64_MAX and ahead < FAR // 2:
            high = min(high, most + ahead)
    if low <= INT64_MIN and high >= INT64_MAX:
        return None
    return low, high


def _bounds(
    column: str,
    conditions: tuple[Any, ...],
    compiled: CompiledSituations,
    folder: Folder,
) -> tuple[int, int]:
    type_ = compiled.columns.arrow.field(compiled.time).type
    # unknown ends are null, so the column is not a stream's time
    fields = [pa.field("@time", type_, False), pa.field(column, type_)]
    schema = StreamSchema(pa.schema(fields), "@time")
    compiler = PredicateCompiler(schema, folder, lambda _: column)
    return time_bounds(all_of([compiler.compile(part) for part in conditions]).prune, column)
