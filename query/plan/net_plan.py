"""Plan of NET: the time range to read."""

from __future__ import annotations

from ..binding.net_binding import DIFFERENCE, BoundNet
from ..conditions.predicates import PredicateCompiler, all_of
from ..conditions.ranges import time_bounds
from .nodes import NetRows, Scan
from .planner import Planning, bounded

__all__ = ["plan_net"]


def plan_net(bound: BoundNet, planning: Planning) -> NetRows:
    schema = bound.changes
    compiler = PredicateCompiler(
        schema, planning.folder, lambda column: column.name.lower() if column.name else None
    )
    prune = all_of([compiler.compile(part) for part in bound.conditions]).prune
    low, high = time_bounds(prune if bound.conditions else None, schema.time)
    scan = bounded(Scan(bound.stream, schema, low, high), planning)
    return NetRows(scan, bound.schema, DIFFERENCE in schema)
