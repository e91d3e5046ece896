"""An operator in FROM of which only the ``EventOperator`` is written: binding, plan and run.

``event_operator(name, bind)`` makes the line for ``query.operators``; with it the table function
works ad hoc, in parts (Spark) and live, with late events (``live.instant_form``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ..core.times import INT64_MAX, INT64_MIN
from ..store.segment import ScanMetrics
from .contract.explanation import Operator
from .contract.operator import EventOperator, InstantRange, MatchLimits, PartRun
from .plan.nodes import EventRows
from .plan.planner import Planning
from .run.context import RunContext
from .run.scan_relations import figures_of


@dataclass(frozen=True)
class BoundEvents:
    """``instant``: the column of the output with the time at which a row becomes known."""

    operator: EventOperator
    stream: str
    instant: str

    @property
    def schema(self) -> pa.Schema:
        return self.operator.output_schema

    @property
    def streams(self) -> tuple[str, ...]:
        return (self.stream,)

    @property
    def ordered_by(self) -> tuple[str, ...]:
        return (self.instant,)


def plan_events(bound: BoundEvents, planning: Planning) -> EventRows:
    snapshot = planning.snapshot(bound.stream)
    if planning.part is not None:
        part = planning.part(snapshot, bound.operator)
        return EventRows(bound.operator, bound.stream, part)
    start, end = planning.bounds.get(bound.stream, (None, None))
    if start is None and end is None:
        return EventRows(bound.operator, bound.stream)
    low, high = INT64_MIN if start is None else start, INT64_MAX if end is None else end - 1
    part = InstantRange.of(snapshot, bound.operator, low, high)
    return EventRows(bound.operator, bound.stream, part)


class EventsOperator:
    def __init__(self, node: EventRows, run: RunContext) -> None:
        self._node = node
        self._run = run
        self._metrics = ScanMetrics()
        self._rows = 0

    @property
    def schema(self) -> pa.Schema:
        return self._node.schema

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        node, control = self._node, self._run.control
        snapshot = self._run.snapshot(node.stream)
        whole = InstantRange.of(snapshot, node.compiled, INT64_MIN, INT64_MAX)
        run = PartRun(snapshot, node.compiled, self._metrics, control.check, MatchLimits())
        for batch in (node.part or whole).run(run):
            self._rows += batch.num_rows
            yield batch if columns is None else batch.select(list(columns))

    def explain(self) -> Operator:
        node, analyze = self._node, self._run.analyze
        scan = (("stream", node.stream), ("columns", tuple(node.compiled.input_columns)))
        source = Operator("Scan", scan, figures_of(self._metrics) if analyze else ())
        details = () if node.part is None else (("gives", node.part.describe()),)
        figures = (("rows", self._rows),) if analyze else ()
        return Operator(type(node.compiled).__name__, details, figures, (source,))
