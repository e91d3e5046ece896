"""MATCH_RECOGNIZE as it runs: over a snapshot of a stream, or over the rows of a query.

Guarantee
    Only the columns that the clause needs are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from ..contract.explanation import Operator
from ..pattern.compiled import MatchLimits
from ..plan.nodes import Match
from ..replay.replay_plan import ReplayPlan
from ..replay.run_plan import ReplayRun, run_match
from .context import RunContext
from .scan_relations import figures_of

__all__ = ["MatchOperator"]

LIMITS = MatchLimits()
"""Budgets of every pattern query."""


class MatchOperator:
    """The matches as a relation of one execution."""

    def __init__(self, node: Match, run: RunContext) -> None:
        self._node = node
        # a plan is kept from one execution to the next, figures are of one
        selecting = replace(node.compiled.selecting)
        self._compiled = replace(node.compiled, selecting=selecting)
        self._run = run
        self._done = ReplayRun()
        self._rows = 0
        self._seconds = 0.0

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result."""
        return self._node.schema

    def _input(self) -> Iterator[pa.RecordBatch]:
        """Rows of the query below."""
        assert self._node.input is not None
        _, batches = self._run.rows(self._node.input)
        names = self._node.compiled.columns.arrow.names
        for batch in batches:
            self._done.events += batch.num_rows
            yield pa.RecordBatch.from_arrays(batch.columns, names=names)
        self._done.ended = True

    def _results(self) -> Iterator[pa.RecordBatch]:
        node, check = self._node, self._run.control.check
        compiled = self._compiled
        if node.stream is None:
            return compiled.run(self._input(), check=check, limits=LIMITS)
        snapshot = self._run.snapshot(node.stream)
        if node.part is not None:
            return node.part.run(snapshot, compiled, self._done.metrics, check=check, limits=LIMITS)
        plan = node.replay or ReplayPlan("replay", "planned elsewhere")
        return run_match(snapshot, compiled, plan, run=self._done, check=check, limits=LIMITS)

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Run the matcher from the start; rows of the named columns."""
        wanted = list(self.schema.names if columns is None else columns)
        begun = time.perf_counter()
        for batch in self._results():
            self._rows += batch.num_rows
            self._seconds += time.perf_counter() - begun
            yield batch.select(wanted)
            begun = time.perf_counter()
        self._seconds += time.perf_counter() - begun

    def explain(self) -> Operator:
        """Pattern, program, how conditions are evaluated; with figures when it has run."""
        node, compiled, plan = self._node, self._compiled, self._node.replay
        scan = (("stream", node.stream or "subquery"), ("columns", tuple(compiled.input_columns)))
        figures: tuple[tuple[str, int | float], ...] = ()
        below: tuple[tuple[str, int | float], ...] = ()
        if self._run.analyze:
            figures = (("rows", self._rows), ("time_ms", self._seconds * 1000))
            figures += compiled.selecting.figures()
            below = figures_of(self._done.metrics) if node.stream is not None else ()
        source = Operator("Subquery" if node.stream is None else "Scan", scan, below)
        if plan is not None:
            given = self._done.given if plan.spans is not None else None
            found = plan.figures(given) if self._run.analyze else ()
            source = Operator("Replay", plan.details(given), found, (source,))
        return Operator("MatchRecognize", compiled.details(), figures, (source,))
