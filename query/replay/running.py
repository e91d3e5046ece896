"""Running a planned pattern query."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..match import CompiledMatch, MatchLimits
from .masked import IntervalStream
from .partition_reader import read_partitions
from .reader import read_spans
from .replay_plan import ReplayPlan

__all__ = ["ReplayRun", "run_match"]


@dataclass
class ReplayRun:
    """What a run has touched; read it when the run has ended.

    Attributes
    ----------
    metrics : ScanMetrics
    rows : int
        Results.
    events : int
        Events given to the matcher.
    milliseconds : float
    """

    metrics: ScanMetrics = field(default_factory=ScanMetrics)
    rows: int = 0
    events: int = 0
    milliseconds: float = 0.0


def run_match(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    plan: ReplayPlan,
    *,
    run: ReplayRun | None = None,
    check: Callable[[], None] | None = None,
    limits: MatchLimits | None = None,
) -> Iterator[pa.RecordBatch]:
    """Match where the plan says.

    Parameters
    ----------
    snapshot : Snapshot
        That of the plan.
    compiled : CompiledMatch
    plan : ReplayPlan
    run : ReplayRun, optional
        Added to.
    check : callable, optional
        Called now and then; may raise to stop.
    limits : MatchLimits, optional

    Yields
    ------
    RecordBatch
        The rows of a full replay, in its order.
    """
    run = run or ReplayRun()
    for batch in _batches(snapshot, compiled, plan, run, check, limits):
        run.rows += batch.num_rows
        yield batch


def _batches(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    plan: ReplayPlan,
    run: ReplayRun,
    check: Callable[[], None] | None,
    limits: MatchLimits | None,
) -> Iterator[pa.RecordBatch]:
    begun = time.perf_counter()
    columns = compiled.input_columns
    if plan.spans is None:
        scan = snapshot.scan(columns=columns, metrics=run.metrics, check=check)
        yield from compiled.run(_counted(scan, run), check=check, limits=limits)
    elif len(plan.spans):
        assert plan.timeline is not None
        stream = IntervalStream(compiled, limits or MatchLimits(), check)
        if plan.partitions is not None:
            pieces = read_partitions(
                snapshot, plan.timeline, plan.spans, plan.by_time, plan.partitions, columns,
                run.metrics, check,
            )  # fmt: skip
        else:
            pieces = read_spans(
                snapshot, plan.timeline, plan.spans, plan.by_time, columns, plan.before,
                plan.after, run.metrics, check, len(compiled.order_by) > 1,
            )  # fmt: skip
        for batch, within in pieces:
            run.events += batch.num_rows
            yield from stream.feed_piece(batch, within)
        yield from stream.finish()
    run.milliseconds = (time.perf_counter() - begun) * 1000
    plan.given = run.events


def _counted(batches: Iterator[pa.RecordBatch], run: ReplayRun) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        run.events += batch.num_rows
        yield batch
