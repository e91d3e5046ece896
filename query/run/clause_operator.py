"""The common base of clauses over rows: input, and EXPLAIN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import pyarrow as pa

from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..contract.explanation import Operator
from ..contract.operator import MatchLimits
from ..plan.nodes import Match, SituationMatch
from ..replay.regions import regions_of
from ..replay.replay_plan import ReplayPlan
from ..replay.run_plan import ReplayRun
from .context import LeafOperator, RunContext

LIMITS = MatchLimits()

Node = TypeVar("Node", bound=Match | SituationMatch)
Done = TypeVar("Done", bound=ReplayRun)


class ClauseOperator(LeafOperator[Node], Generic[Node, Done]):
    def __init__(self, node: Node, run: RunContext, done: Done) -> None:
        super().__init__(node, run)
        self._done = done

    def _input(self) -> Iterator[pa.RecordBatch]:
        assert self._node.input is not None
        _, batches = self._run.rows(self._node.input)
        names = self._node.compiled.columns.arrow.names
        for batch in batches:
            self._done.events += batch.num_rows
            yield pa.RecordBatch.from_arrays(batch.columns, names=names)
        self._done.ended = True

    def _expect(
        self, snapshot: Snapshot, plan: ReplayPlan, counters: Sequence[ScanMetrics]
    ) -> None:
        """Announce how many events a run will read."""
        most = snapshot.count if plan.spans is None else plan.spans.total
        self._run.control.progress.expect(counters, most)

    def _figures(self) -> tuple[tuple[str, int | float], ...]:
        if not self._run.analyze:
            return ()
        return (("rows", self._rows), ("time_ms", self._seconds * 1000))

    def _source(self) -> Operator:
        node, analyze = self._node, self._run.analyze
        scan = (
            ("stream", node.stream or "subquery"),
            ("columns", tuple(node.compiled.input_columns)),
        )
        read = self._done.metrics.figures if analyze and node.stream is not None else ()
        source = Operator("Subquery" if node.stream is None else "Scan", scan, read)
        plan = node.replay
        if plan is None:
            return source
        regions = None
        if node.stream is not None:
            regions = regions_of(plan, self._run.snapshot(node.stream))
        rows = self._done.given if plan.spans is not None else None
        figures = plan.figures(rows) if analyze else ()
        return Operator("Replay", plan.details(rows), figures, (source,), regions)
