"""One run of a plan, in any process: leaves opened, root answered, and afterwards explained.

EXPLAIN shows DuckDB's plan and ours as one tree; scans are matched by columns, rows, then order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from ...core.json_text import JSON
from ...core.ownership import LOADING
from ..contract.cancellation import QueryControl
from ..contract.explanation import Operator, Plan
from ..contract.result import Result, result_of
from ..plan.nodes import (
    Leaf,
    PassThrough,
    QueryPlan,
    Relational,
    Scan,
    TreeAggregate,
    notes_of,
)
from ..relational.interface import RelationalQuery
from ..relational.scans import BATCH_ROWS, FailureBox, Scanned
from ..sql.sql_types import as_bigint, conform, declared_types, settle_types
from .context import RunContext
from .scan_relations import AggregateRelation, OperatorRelation, StreamRelation


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
            elapsed_ms = sum(request.seconds for request in dataset.requests) * 1000
            produced = sum(request.rows for request in dataset.requests)
            return relation.operator({**extra, "rows": produced, "time_ms": elapsed_ms}, analyzed)
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


class Execution:
    def __init__(self, plan: QueryPlan, run: RunContext) -> None:
        self._plan = plan
        self._run = run
        self._failures = FailureBox()
        root = plan.root
        self._opened: list[OpenLeaf] = []
        if isinstance(root, Relational):
            if root.inputs:
                with LOADING:
                    from ..relational.datasets import ScanDataset

            for name, leaf in root.inputs:
                relation = self._open(leaf)
                dataset = ScanDataset(relation, self._run.control, self._failures)
                self._opened.append(OpenLeaf(name, relation, dataset))
        else:
            self._leaf = self._open(root.input if isinstance(root, PassThrough) else root)

    def _open(self, leaf: Leaf) -> StreamRelation | AggregateRelation | OperatorRelation:
        if isinstance(leaf, Scan):
            return StreamRelation(leaf, self._run)
        if isinstance(leaf, TreeAggregate):
            return AggregateRelation(leaf, self._run)
        return OperatorRelation(leaf, self._run)

    # ------------------------------------------------------------------------ answers

    def result(self) -> Result:
        result = self._started()
        result.notes = notes_of(self._plan)
        return result

    def _started(self) -> Result:
        root = self._plan.root
        if isinstance(root, Relational):
            return self._relational(root)
        if isinstance(root, PassThrough):
            return self._picked(root)
        assert isinstance(self._leaf, AggregateRelation)
        return result_of(self._leaf.table(), self._explained_later)

    def _picked(self, root: PassThrough) -> Result:
        leaf, control = self._leaf, self._run.control
        columns = list(dict.fromkeys(picked.column for picked in root.columns))
        place_of = {column: place for place, column in enumerate(columns)}
        places = [place_of[picked.column] for picked in root.columns]
        known = leaf.schema
        fields = [pa.field(name, known.field(of).type) for name, of, _ in root.columns]
        schema = pa.schema(fields)
        whole = [i for i, picked in enumerate(root.columns) if picked.form == "BIGINT"]

        def batches() -> Iterator[pa.RecordBatch]:
            skip = root.skip
            for batch in leaf.scan(columns, None):
                control.check()
                skipped, skip = min(skip, batch.num_rows), max(0, skip - batch.num_rows)
                arrays = [batch.column(place) for place in places]
                made = pa.RecordBatch.from_arrays(arrays, schema=schema)
                for place in whole:
                    made = made.set_column(place, schema.names[place], as_bigint(made, place))
                for begin in range(skipped, made.num_rows, BATCH_ROWS):
                    yield made.slice(begin, BATCH_ROWS)

        declared = schema
        for place in whole:
            declared = declared.set(place, declared.field(place).with_type(pa.int64()))
        sums = [i for i, picked in enumerate(root.columns) if picked.form == "HUGEINT"]
        settled, rows = settle_types(batches(), declared, sums)
        if not settled.equals(declared):
            rows = (conform(batch, settled) for batch in rows)
        return Result(settled, rows, self._explained_later)

    def _relational(self, root: Relational) -> Result:
        answer = self._run.executor.run(self._query(root, self._run.control, self._failures))
        schema, batches = settle_types(answer.batches, answer.schema, answer.hugeints)
        for place in answer.jsons:
            schema = schema.set(place, schema.field(place).with_type(JSON))
        schema = declared_types(schema, root.outputs)
        if not schema.equals(answer.schema):
            batches = (conform(batch, schema) for batch in batches)
        return Result(schema, batches, self._explained_later, answer.close)

    def _query(
        self, root: Relational, control: QueryControl, failures: FailureBox
    ) -> RelationalQuery:
        inputs = {opened.name: opened.dataset for opened in self._opened}
        return RelationalQuery(root.sql, inputs, root.values, self._plan.text, control, failures)

    # ------------------------------------------------------------------------ plans

    def explained(self, begun: float) -> Plan:
        """The plan, after a run if analyzed; ``begun``: start of planning."""
        planned = time.perf_counter()
        root = self._operator(self._run.control, self._failures, self._run.analyze)
        figures = [("planning_ms", round((planned - begun) * 1000, 3))]
        if self._run.analyze:
            figures.append(("total_ms", round((time.perf_counter() - begun) * 1000, 3)))
        return Plan(self._plan.text, root, self._run.analyze, tuple(figures))

    def _explained_later(self) -> Plan:
        """The plan of a query that ran, without running it again."""
        return Plan(self._plan.text, self._operator(QueryControl(), FailureBox(), False))

    def _operator(self, control: QueryControl, failures: FailureBox, run: bool) -> Operator:
        root = self._plan.root
        if isinstance(root, Relational):
            document = self._run.executor.explain(self._query(root, control, failures), run)
            return self._noted(plan_of(document, self._opened, run))
        begun, rows = time.perf_counter(), 0
        for batch in self.result().batches() if run else ():
            rows += batch.num_rows
        elapsed_ms = (time.perf_counter() - begun) * 1000
        actual: dict[str, Any] = {"rows": rows, "time_ms": elapsed_ms}
        if isinstance(root, PassThrough):
            actual["Projections"] = list(dict.fromkeys(picked.column for picked in root.columns))
        return self._noted(self._leaf.operator(actual, run))

    def _noted(self, operator: Operator) -> Operator:
        notes = self._plan.notes
        if not notes:
            return operator
        return replace(operator, details=(*operator.details, ("notes", notes)))


def answer(plan: QueryPlan, run: RunContext) -> Result:
    return Execution(plan, run).result()
