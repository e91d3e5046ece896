"""Run a planned pattern query."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..pattern.compiled import CompiledMatch, MatchLimits
from .interval_stream import IntervalStream
from .partition_reader import read_partitions
from .reader import read_spans
from .replay_plan import ReplayIntervals, ReplayPlan
from .timeline import Timeline

__all__ = ["ReplayRun", "run_intervals", "run_match"]


@dataclass
class ReplayRun:
    """Metrics of a run: result ``rows``, and ``events`` fed to the matcher.  ``ended``: everything
    was matched, not stopped early by the consumer.
    """

    metrics: ScanMetrics = field(default_factory=ScanMetrics)
    rows: int = 0
    events: int = 0
    milliseconds: float = 0.0
    ended: bool = False

    @property
    def given(self) -> int | None:
        return self.events if self.ended else None


def run_match(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    plan: ReplayPlan,
    *,
    run: ReplayRun | None = None,
    check: Callable[[], None] | None = None,
    limits: MatchLimits | None = None,
) -> Iterator[pa.RecordBatch]:
    return run_intervals(
        snapshot, compiled, plan.intervals, plan.timeline, run=run, check=check, limits=limits
    )


def run_intervals(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    intervals: ReplayIntervals | None,
    timeline: Timeline | None,
    *,
    run: ReplayRun | None = None,
    check: Callable[[], None] | None = None,
    limits: MatchLimits | None = None,
) -> Iterator[pa.RecordBatch]:
    """Match within intervals (None: the whole stream); rows and order of a full replay."""
    run = run or ReplayRun()
    begun = time.perf_counter()
    for batch in _batches(snapshot, compiled, intervals, timeline, run, check, limits):
        run.rows += batch.num_rows
        yield batch
    run.milliseconds = (time.perf_counter() - begun) * 1000
    run.ended = True


def _batches(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    intervals: ReplayIntervals | None,
    timeline: Timeline | None,
    run: ReplayRun,
    check: Callable[[], None] | None,
    limits: MatchLimits | None,
) -> Iterator[pa.RecordBatch]:
    columns = compiled.input_columns
    if intervals is None:
        scan = snapshot.scan(columns=columns, metrics=run.metrics, check=check)
        yield from compiled.run(_counted(scan, run), check=check, limits=limits)
        return
    if not len(intervals.spans):
        return
    assert timeline is not None
    stream = IntervalStream(compiled, limits or MatchLimits(), check)
    if intervals.partitions is not None:
        pieces = read_partitions(
            snapshot, timeline, intervals, intervals.partitions, columns, run.metrics, check
        )
    else:
        ties = len(compiled.order_by) > 1
        pieces = read_spans(snapshot, timeline, intervals, columns, run.metrics, check, ties)
    for batch, within in pieces:
        run.events += batch.num_rows
        yield from stream.feed_piece(batch, within)
    yield from stream.finish()


def _counted(batches: Iterator[pa.RecordBatch], run: ReplayRun) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        run.events += batch.num_rows
        yield batch
