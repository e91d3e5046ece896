"""Runs MATCH_RECOGNIZE over a snapshot of a stream or the rows of a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from ..contract.explanation import Operator
from ..contract.operator import PartRun
from ..plan.nodes import Match
from ..replay.replay_plan import ReplayPlan
from ..replay.run_plan import ReplayRun, run_match
from .clause_operator import LIMITS, ClauseOperator
from .context import RunContext


class MatchOperator(ClauseOperator[Match, ReplayRun]):
    def __init__(self, node: Match, run: RunContext) -> None:
        super().__init__(node, run, ReplayRun())
        # a plan is reused, figures belong to one execution
        selecting = node.compiled.selecting.of_run()
        self._compiled = replace(node.compiled, selecting=selecting)

    def _results(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if not self._node.counted:
            yield from self._matches(columns)
            return
        schema = pa.schema([self.schema.field(name) for name in columns])
        for batch in self._matches(()):  # count(*) asks for the first column
            nulls = [pa.nulls(batch.num_rows, field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(nulls, schema=schema)

    def _matches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        node, check = self._node, self._run.control.check
        compiled = self._compiled
        if node.part is None:  # a part may need columns that are not read, to identify results
            compiled = compiled.computing(columns)
        if node.stream is None:
            return compiled.run(self._input(), check=check, limits=LIMITS)
        snapshot = self._run.snapshot(node.stream)
        if node.part is not None:
            return node.part.run(PartRun(snapshot, compiled, self._done.metrics, check, LIMITS))
        plan = node.replay or ReplayPlan("replay", "planned elsewhere")
        self._expect(snapshot, plan, [self._done.metrics])
        return run_match(snapshot, compiled, plan, run=self._done, check=check, limits=LIMITS)

    def explain(self) -> Operator:
        figures = self._figures()
        if figures:
            figures += self._compiled.selecting.figures()
        return Operator("MatchRecognize", self._compiled.details(), figures, (self._source(),))
