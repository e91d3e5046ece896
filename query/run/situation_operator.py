"""Runs MATCH_SITUATIONS over a snapshot of a stream or the rows of a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ...core.threads import Check, Done, Task, in_order, processors
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..contract.explanation import Operator
from ..contract.operator import InstantRange, PartRun, instant_ranges
from ..plan.nodes import SituationMatch
from ..replay.replay_plan import ReplayPlan
from ..replay.situation_intervals import SituationRun, run_replayed
from ..replay.tree_runs import run_tree_runs
from ..situations.matching import details
from ..situations.stream import SituationStream
from .clause_operator import LIMITS, ClauseOperator
from .context import RunContext

RANGE_EVENTS = 1 << 21
"""Events per range from which on another thread is worth it."""


class SituationOperator(ClauseOperator[SituationMatch, SituationRun]):
    def __init__(self, node: SituationMatch, run: RunContext) -> None:
        super().__init__(node, run, SituationRun())

    def _results(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        node, check = self._node, self._run.control.check
        if node.stream is not None and node.part is not None:
            snapshot, metrics = self._run.snapshot(node.stream), self._done.metrics
            yield from node.part.run(PartRun(snapshot, node.compiled, metrics, check, LIMITS))
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
            self._expect(snapshot, plan, [self._done.metrics])
            yield from run_replayed(snapshot, node.compiled, plan, self._done, check, LIMITS)
            return
        stream = SituationStream(node.compiled, LIMITS, check)
        for batch in self._input():
            yield from stream.feed(batch)
        yield from stream.finish()
        self._done.figures = stream.figures()

    def _in_threads(
        self, snapshot: Snapshot, ranges: Sequence[InstantRange]
    ) -> Iterator[pa.RecordBatch]:
        """Time ranges in parallel; matches are ordered by their instants, hence by range."""
        compiled, metrics = self._node.compiled, [ScanMetrics() for _ in ranges]
        self._run.control.progress.expect(metrics, snapshot.count)

        def task(number: int) -> Task[pa.RecordBatch]:
            part, own = ranges[number], metrics[number]

            def run(check: Check) -> Done[pa.RecordBatch]:
                return Done([*part.run(PartRun(snapshot, compiled, own, check, LIMITS))])

            return run

        threads = min(processors(), len(ranges))
        yield from in_order(map(task, range(len(ranges))), threads, self._run.control.check)
        for own in metrics:
            self._done.metrics.add(own)
        self._done.figures = (("ranges_of_time", len(ranges)), ("threads", threads))

    def explain(self) -> Operator:
        node, source, figures = self._node, self._source(), self._figures()
        if node.part is not None:
            source = Operator("RangeOfTime", (("gives", node.part.describe()),), (), (source,))
        if node.tree is not None:
            shares = (("known_from_the_tree", f"{node.tree.known:.4%} of the stream"),)
            read = (("events_read", self._done.events),) if figures else ()
            source = Operator("TreeRuns", shares, read, (source,))
        if figures:
            figures += self._done.figures
        return Operator("MatchSituations", details(node.compiled), figures, (source,))


def _ranges(node: SituationMatch, snapshot: Snapshot) -> tuple[InstantRange, ...]:
    if processors() < 2 or snapshot.count < 2 * RANGE_EVENTS:
        return ()
    return instant_ranges(snapshot, node.compiled, snapshot.count // RANGE_EVENTS)
