"""Runs a planned pattern query.

Under PARTITION BY, the key columns are read first, other columns where needed.  Ranges near late
events are read with all events, of any partition.

The matcher sees rows around intervals, but they never match.  With intervals that contain every
match, results and order are those of a full replay: skips and MATCH_NUMBER depend only on matches,
every match lies in one interval, and between intervals neither search finds anything.  ``^`` and
``$`` are right because an interval that does not begin (end) the stream has a row before (after)
it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.times import INT64_MAX
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..contract.operator import MatchLimits
from ..pattern.compiled import CompiledMatch
from ..pattern.match_stream import MatchStream
from .partitions import FIRST_EVENTS, INSIDE, PIECE_EVENTS, ROWS_HELD, PartitionSpans, RowFlags
from .reading import Piece, read_rows, read_spans
from .replay_plan import ReplayIntervals, ReplayPlan
from .spans import Spans
from .timeline import Timeline

FIRST_ROWS, BATCH_ROWS = 1 << 12, 1 << 16
"""Rows in the first and in the largest batch: a small LIMIT should not wait for a large one."""
Ints = npt.NDArray[np.int64]


def read_partitions(
    snapshot: Snapshot,
    timeline: Timeline,
    intervals: ReplayIntervals,
    partitions: PartitionSpans,
    columns: Sequence[str],
    metrics: ScanMetrics | None = None,
    check: Callable[[], None] | None = None,
    coded: str | None = None,
) -> Iterator[Piece]:
    """Rows of partition intervals in stream order, with which may match.  Ranges read by time are
    for all partitions; of ``coded`` codes are kept where possible.
    """
    output = pa.schema([snapshot.schema.arrow.field(name) for name in columns])
    flags, spans, check = RowFlags(partitions), intervals.spans, check or (lambda: None)
    begin = 0
    for number in [*sorted(intervals.by_time), len(spans)]:
        between = Spans(spans.starts[begin:number], spans.ends[begin:number])
        for rows, _, mark in _chosen(between, partitions, flags, check):
            yield read_rows(timeline, output, rows, metrics, coded), mark == INSIDE
        if number < len(spans):
            first, last = intervals.by_time[number]
            stop = None if last >= INT64_MAX else last + 1
            for batch in snapshot.scan(first, stop, columns, metrics=metrics, check=check):
                yield batch, True
        begin = number + 1


def read_numbered(
    timeline: Timeline,
    spans: Spans,
    partitions: PartitionSpans,
    columns: Sequence[str],
    metrics: ScanMetrics | None = None,
    check: Callable[[], None] | None = None,
) -> Iterator[tuple[pa.RecordBatch, Ints]]:
    """Rows inside of partition intervals in stream order, with the numbers of the intervals."""
    output = pa.schema([timeline.schema.arrow.field(name) for name in columns])
    flags, starts = RowFlags(partitions), partitions.inside.starts
    for rows, codes, _ in _selected(spans, partitions, flags, check or (lambda: None)):
        places = codes * partitions.stride + rows
        numbers = np.searchsorted(starts, places, side="right") - 1
        yield read_rows(timeline, output, rows, metrics), numbers


def _chosen(
    spans: Spans, partitions: PartitionSpans, flags: RowFlags, check: Callable[[], None]
) -> Iterator[tuple[Ints, Ints, npt.NDArray[np.uint8]]]:
    """``_selected``, or what an earlier run of the plan selected, if that were few rows."""
    if not len(spans):
        return
    key = (int(spans.starts[0]), int(spans.ends[-1]), len(spans))
    if key in partitions.chosen:
        yield from partitions.chosen[key]
        return
    kept, count = [], 0
    for part in _selected(spans, partitions, flags, check):
        count += len(part[0])
        if count <= ROWS_HELD:
            kept.append(part)
        yield part
    if count <= ROWS_HELD:
        partitions.chosen[key] = kept


def _selected(
    spans: Spans, partitions: PartitionSpans, flags: RowFlags, check: Callable[[], None]
) -> Iterator[tuple[Ints, Ints, npt.NDArray[np.uint8]]]:
    """Positions in intervals of their partition, with its code and their flags."""
    waiting: list[tuple[Ints, Ints, npt.NDArray[np.uint8]]] = []
    count, full = 0, FIRST_ROWS
    for positions, codes in partitions.events(spans, FIRST_EVENTS, PIECE_EVENTS, check):
        marks = flags.of(codes, positions)
        rows = np.flatnonzero(marks)
        waiting.append((positions[rows], codes[rows], marks[rows]))
        count += len(rows)
        if count >= full:
            yield _joined(waiting)
            waiting, count, full = [], 0, BATCH_ROWS
    if count:
        yield _joined(waiting)


def _joined(
    parts: Sequence[tuple[Ints, Ints, npt.NDArray[np.uint8]]],
) -> tuple[Ints, Ints, npt.NDArray[np.uint8]]:
    rows, codes, flags = (np.concatenate(some) for some in zip(*parts, strict=True))
    return rows, codes, flags


@kernel
def _mark_inside(sequence, starts, ends, out):  # type: ignore[no-untyped-def]
    """Flag the numbers that lie in spans; fast where neighbours lie in the same span."""
    low = np.int64(0)
    high = np.int64(0)
    inside = False
    for i in range(sequence.shape[0]):
        here = sequence[i]
        if here < low or here >= high:
            at = np.searchsorted(ends, here, side="right")  # the first that ends behind it
            inside = at < starts.shape[0] and starts[at] <= here
            if inside:
                low = starts[at]
                high = ends[at]
            else:
                low = ends[at - 1] if at > 0 else np.int64(-9223372036854775807)
                high = starts[at] if at < starts.shape[0] else np.int64(9223372036854775807)
        out[i] = inside


class IntervalStream(MatchStream):
    def __init__(
        self,
        compiled: CompiledMatch,
        limits: MatchLimits,
        check: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(compiled, limits, check, mask=self.inside)
        self.fed = 0
        # sequence numbers at which the rows of intervals begin and end
        self._starts, self._ends = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def feed_piece(
        self, batch: pa.RecordBatch, within: bool | npt.NDArray[np.bool_]
    ) -> Iterator[pa.RecordBatch]:
        """Feed rows of an interval (``within``) or around one."""
        rows = batch.num_rows
        if rows == 0:
            return
        if not isinstance(within, bool):
            edges = np.flatnonzero(np.diff(within, prepend=False, append=False)) + self.fed
            self._add(edges[::2], edges[1::2])
        elif within:
            self._add(np.array([self.fed]), np.array([self.fed + rows]))
        self.fed += rows
        yield from self.feed(batch)
        self._forget()

    def _add(self, starts: Ints, ends: Ints) -> None:
        ends_before = self._ends
        if len(ends_before) and len(starts) and ends_before[-1] == starts[0]:
            ends_before, starts = ends_before[:-1], starts[1:]
        self._starts = np.concatenate([self._starts, starts])
        self._ends = np.concatenate([ends_before, ends])

    def _forget(self) -> None:
        if len(self._starts) > 4096 and len(self.codes):
            done = int(np.searchsorted(self._ends, self.first_searched, side="right"))
            self._starts, self._ends = self._starts[done:], self._ends[done:]

    def masks(self) -> bool:
        """Whether one of the searched rows lies outside of the intervals."""
        last = len(self._starts) - 1
        return (
            last < 0
            or self._starts[last] > self.first_searched
            or self._ends[last] < self.next_sequence
        )

    @property
    def first_searched(self) -> int:
        return int(self._earlier[0]) if len(self._earlier) else self.next_sequence - len(self.codes)

    def inside(self, sequence: Ints) -> npt.NDArray[np.bool_]:
        inside = np.empty(len(sequence), np.bool_)
        _mark_inside(sequence, self._starts, self._ends, inside)
        return inside


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
        scan = snapshot.scan(
            columns=columns, dictionary=compiled.in_time_order, metrics=run.metrics, check=check
        )
        yield from compiled.run(_counted(scan, run), check=check, limits=limits)
        return
    if not len(intervals.spans):
        return
    assert timeline is not None
    stream = IntervalStream(compiled, limits or MatchLimits(), check)
    if intervals.partitions is not None:
        pieces = read_partitions(
            snapshot, timeline, intervals, intervals.partitions, columns, run.metrics, check,
            stream.coded,
        )  # fmt: skip
    else:
        ties = len(compiled.order_by) > 1
        pieces = read_spans(
            snapshot, timeline, intervals, columns, run.metrics, check, ties,
            compiled.in_time_order, stream.coded,
        )  # fmt: skip
    for batch, within in pieces:
        run.events += batch.num_rows
        yield from stream.feed_piece(batch, within)
    yield from stream.finish()


def _counted(batches: Iterator[pa.RecordBatch], run: ReplayRun) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        run.events += batch.num_rows
        yield batch
