"""MATCH_SITUATIONS as it runs: over a snapshot of a stream, or over the rows of a query."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..contract.explanation import Operator
from ..pattern.compiled import MatchLimits
from ..plan.nodes import SituationMatch
from ..replay.replay_plan import ReplayPlan
from ..replay.situation_intervals import SituationRun, run_replayed
from ..replay.tree_runs import run_tree_runs
from ..situations.explained import details
from ..situations.stream import SituationStream
from ..split.situation_parts import SituationRange
from ..split.situation_split import situation_ranges
from .context import RunContext
from .scan_relations import figures_of
from .side_by_side import Task, processors, side_by_side

__all__ = ["SituationOperator"]

LIMITS = MatchLimits()
"""Budgets of every query."""
RANGE_EVENTS = 1 << 21
"""Events of a range that a thread is worth."""


class SituationOperator:
    """The matches as a relation of one execution."""

    def __init__(self, node: SituationMatch, run: RunContext) -> None:
        self._node = node
        self._run = run
        self._done = SituationRun()
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
            yield pa.RecordBatch.from_arrays(batch.columns, names=names)

    def _results(self) -> Iterator[pa.RecordBatch]:
        node, check = self._node, self._run.control.check
        if node.stream is not None and node.part is not None:
            snapshot, metrics = self._run.snapshot(node.stream), self._done.metrics
            yield from node.part.run(snapshot, node.compiled, metrics, check=check, limits=LIMITS)
            return
        if node.stream is not None and node.tree is not None:
            snapshot = self._run.snapshot(node.stream)
            yield from run_tree_runs(snapshot, node.compiled, node.tree, self._done, check, LIMITS)
            return
        if node.stream is not None:
            plan = node.replay or ReplayPlan("replay", "planned elsewhere")
            snapshot = self._run.snapshot(node.stream)
            ranges = _ranges(node, snapshot) if plan.intervals is None else ()
            if len(ranges) > 1:
                yield from self._in_threads(snapshot, ranges)
                return
            yield from run_replayed(snapshot, node.compiled, plan, self._done, check, LIMITS)
            return
        stream = SituationStream(node.compiled, LIMITS, check)
        for batch in self._input():
            yield from stream.feed(batch)
        yield from stream.finish()
        self._done.figures = stream.figures()

    def _in_threads(
        self, snapshot: Snapshot, ranges: Sequence[SituationRange]
    ) -> Iterator[pa.RecordBatch]:
        """Ranges of time side by side: matches come by their instants, so do those of ranges."""
        compiled, metrics = self._node.compiled, [ScanMetrics() for _ in ranges]

        def task(number: int) -> Task:
            part, own = ranges[number], metrics[number]
            return lambda check: part.run(snapshot, compiled, own, check=check, limits=LIMITS)

        threads = min(processors(), len(ranges))
        yield from side_by_side([*map(task, range(len(ranges)))], threads, self._run.control)
        for own in metrics:
            self._done.metrics.add(own)
        self._done.figures = (("ranges_of_time", len(ranges)), ("threads", threads))

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Run from the start; rows of the named columns."""
        wanted = list(self.schema.names if columns is None else columns)
        begun = time.perf_counter()
        for batch in self._results():
            self._rows += batch.num_rows
            self._seconds += time.perf_counter() - begun
            yield batch.select(wanted)
            begun = time.perf_counter()
        self._seconds += time.perf_counter() - begun

    def explain(self) -> Operator:
        """Pattern, what it implies, how it is searched; with figures when it has run."""
        node = self._node
        scan = (
            ("stream", node.stream or "subquery"),
            ("columns", tuple(node.compiled.input_columns)),
        )
        figures: tuple[tuple[str, int | float], ...] = ()
        below: tuple[tuple[str, int | float], ...] = ()
        if self._run.analyze:
            figures = (("rows", self._rows), ("time_ms", self._seconds * 1000))
            figures += self._done.figures
            below = figures_of(self._done.metrics) if node.stream is not None else ()
        source = Operator("Subquery" if node.stream is None else "Scan", scan, below)
        if node.part is not None:
            source = Operator("RangeOfTime", (("gives", node.part.describe()),), (), (source,))
        if node.replay is not None:
            plan = node.replay
            given = self._done.given if plan.spans is not None else None
            found = plan.figures(given) if self._run.analyze else ()
            source = Operator("Replay", plan.details(given), found, (source,))
        if node.tree is not None:
            known = (("known_from_the_tree", f"{node.tree.known:.4%} of the stream"),)
            read = (("events_read", self._done.events),) if self._run.analyze else ()
            source = Operator("TreeRuns", known, read, (source,))
        return Operator("MatchSituations", details(node.compiled), figures, (source,))


def _ranges(node: SituationMatch, snapshot: Snapshot) -> tuple[SituationRange, ...]:
    """Ranges of time to be run side by side; none where one thread is enough."""
    if processors() < 2 or snapshot.count < 2 * RANGE_EVENTS:
        return ()
    return situation_ranges(snapshot, node.compiled, snapshot.count // RANGE_EVENTS)
