"""EXPLAIN: DuckDB's plan and ours as one tree; scans are matched by columns, rows, then order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..contract.explanation import Operator
from ..relational.scans import Scanned
from .scan_relations import AggregateRelation, OperatorRelation, StreamRelation

__all__ = ["OpenLeaf", "plan_of"]


class OpenLeaf(NamedTuple):
    name: str
    relation: StreamRelation | AggregateRelation | OperatorRelation
    dataset: Scanned


_OURS = "PYTHON_ARROW_SCAN"
_SILENT = ("EXPLAIN_ANALYZE", "RESULT_COLLECTOR", "QUERY_ROOT")


def plan_of(document: str, leaves: Sequence[OpenLeaf], analyzed: bool) -> Operator:
    """The tree of ``EXPLAIN (FORMAT json)``; ``leaves`` in query order."""
    parsed = json.loads(document)
    if isinstance(parsed, dict):
        roots = parsed.get("operator") or parsed.get("children") or [parsed]
    else:
        roots = parsed
    remaining = list(leaves)
    nodes = [_operator(node, remaining, analyzed) for node in roots]
    return nodes[0] if len(nodes) == 1 else Operator("Query", inputs=tuple(nodes))


def _operator(node: dict[str, Any], remaining: list[OpenLeaf], analyzed: bool) -> Operator:
    name = str(node.get("name") or node.get("type") or "").strip()
    children = node.get("children") or []
    if name in _SILENT and len(children) == 1:
        return _operator(children[0], remaining, analyzed)
    extra = dict(node.get("extra_info") or {})
    rows = int(node.get("intermediate_rows") or node.get("operator_cardinality") or 0)
    milliseconds = float(node.get("timing") or node.get("operator_timing") or 0.0) * 1000
    if extra.get("Function") == _OURS:
        leaf = _leaf(extra, rows, remaining, analyzed)
        if leaf is not None:
            relation, dataset = leaf.relation, leaf.dataset
            spent = sum(request.seconds for request in dataset.requests) * 1000
            produced = sum(request.rows for request in dataset.requests)
            return relation.operator({**extra, "rows": produced, "time_ms": spent}, analyzed)
    for noise in ("Estimated Cardinality", "__estimated_cardinality__", "Function"):
        extra.pop(noise, None)
    details = tuple(
        (key.lower().replace(" ", "_"), tuple(map(str, v)) if isinstance(v, list) else str(v))
        for key, v in extra.items()
        if v not in ("", [], None)
    )
    figures = (("rows", rows), ("time_ms", milliseconds)) if analyzed else ()
    inputs = tuple(_operator(child, remaining, analyzed) for child in children)
    return Operator(_title(name), details, figures, inputs)


def _leaf(
    extra: dict[str, Any], rows: int, remaining: list[OpenLeaf], analyzed: bool
) -> OpenLeaf | None:
    projections = extra.get("Projections") or []
    columns = {projections} if isinstance(projections, str) else set(projections)
    fitting = [leaf for leaf in remaining if columns <= set(leaf.relation.schema.names)]
    if analyzed and len(fitting) > 1:
        exact = [
            leaf for leaf in fitting if rows in {request.rows for request in leaf.dataset.requests}
        ]
        fitting = exact or fitting
    if not fitting:
        return None
    if len(remaining) > 1:
        remaining.remove(fitting[0])
    return fitting[0]


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_")) or "Step"
