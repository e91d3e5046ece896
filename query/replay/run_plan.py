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
from typing import Any

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
from .partitions import PartitionSpans, RowFlags
from .reading import Piece, read_spans
from .replay_plan import ReplayIntervals, ReplayPlan
from .spans import Spans
from .timeline import Timeline, near, read_arrays

NEAR_ROWS = 16_384
"""Selected rows nearer than this are read together: a seek costs about as much."""
BATCH_ROWS = 1 << 16


def read_partitions(
    snapshot: Snapshot,
    timeline: Timeline,
    intervals: ReplayIntervals,
    partitions: PartitionSpans,
    columns: Sequence[str],
    metrics: ScanMetrics | None = None,
    check: Callable[[], None] | None = None,
) -> Iterator[Piece]:
    """Rows of partition intervals in stream order, with which may match.  Ranges read by time are
    for all partitions.
    """
    check = check or (lambda: None)
    output = pa.schema([snapshot.schema.arrow.field(name) for name in columns])
    flags = RowFlags(partitions)
    spans = intervals.spans
    bounds = zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)
    gathered = _Gathered(output)
    for number, (start, end) in enumerate(bounds):
        check()
        ticks = intervals.by_time.get(number)
        if ticks is not None:
            yield from gathered.flush()
            stop = None if ticks[1] >= INT64_MAX else ticks[1] + 1
            for batch in snapshot.scan(ticks[0], stop, columns, metrics=metrics, check=check):
                yield batch, True
            continue
        for some in _selected(timeline, partitions, flags, start, end, columns, output, metrics):
            check()
            gathered.add(some.arrays, some.rows, some.flags == 2)
            if gathered.rows >= BATCH_ROWS:
                yield from gathered.flush()
    yield from gathered.flush()


def read_numbered(
    timeline: Timeline,
    spans: Spans,
    partitions: PartitionSpans,
    columns: Sequence[str],
    metrics: ScanMetrics | None = None,
    check: Callable[[], None] | None = None,
) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int64]]]:
    """Rows inside of partition intervals in stream order, with the numbers of the intervals."""
    check = check or (lambda: None)
    output = pa.schema([timeline.schema.arrow.field(name) for name in columns])
    flags, inside = RowFlags(partitions), partitions.inside
    gathered = _Gathered(output)
    for start, end in zip(spans.starts.tolist(), spans.ends.tolist(), strict=True):
        for some in _selected(timeline, partitions, flags, start, end, columns, output, metrics):
            check()
            places = some.codes * partitions.stride + some.positions
            gathered.add(
                some.arrays, some.rows, np.searchsorted(inside.starts, places, side="right") - 1
            )
            if gathered.rows >= BATCH_ROWS:
                yield from gathered.flush()
    yield from gathered.flush()


@dataclass(frozen=True)
class _Selected:
    arrays: Sequence[pa.Array]
    rows: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint8]


def _selected(
    timeline: Timeline, partitions: PartitionSpans, flags: RowFlags, start: int, end: int,
    columns: Sequence[str], output: pa.Schema, metrics: ScanMetrics | None,
) -> Iterator[_Selected]:  # fmt: skip
    for at, codes in partitions.keys.pieces(start, end):
        found = flags.of(codes, at)
        rows = np.flatnonzero(found)
        for low, high in near(rows, NEAR_ROWS):
            first, last = at + int(rows[low]), at + int(rows[high - 1]) + 1
            for place, arrays in read_arrays(
                timeline, columns, output, first, last, metrics, dictionary=True
            ):
                here = rows[low:high] + at
                here = here[(here >= place) & (here < place + len(arrays[0]))]
                yield _Selected(arrays, here - place, here, codes[here - at], found[here - at])


class _Gathered:
    def __init__(self, output: pa.Schema) -> None:
        self._output = output
        self._parts: list[list[pa.Array]] = []
        self._marks: list[npt.NDArray[Any]] = []
        self.rows = 0

    def add(
        self, arrays: Sequence[pa.Array], rows: npt.NDArray[np.int64], marks: npt.NDArray[Any]
    ) -> None:
        if len(rows) < len(arrays[0]):
            together = pa.RecordBatch.from_arrays(list(arrays), self._output.names)
            arrays = together.take(pa.array(rows)).columns  # one call, not one a column
        plain = [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in arrays]
        self._parts.append(plain)
        self._marks.append(marks)
        self.rows += len(rows)

    def flush(self) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[Any]]]:
        if self.rows:
            columns = [
                pa.concat_arrays([part[i] for part in self._parts])
                for i in range(len(self._output))
            ]
            yield (
                pa.RecordBatch.from_arrays(columns, schema=self._output),
                np.concatenate(self._marks),
            )
        self._parts, self._marks, self.rows = [], [], 0


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
        self._fed = 0
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
            edges = np.flatnonzero(np.diff(within, prepend=False, append=False)) + self._fed
            self._add(edges[::2], edges[1::2])
        elif within:
            self._add(np.array([self._fed]), np.array([self._fed + rows]))
        self._fed += rows
        yield from self.feed(batch)
        self._forget()

    def _add(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        known = self._ends
        if len(known) and len(starts) and known[-1] == starts[0]:
            known, starts = known[:-1], starts[1:]
        self._starts = np.concatenate([self._starts, starts])
        self._ends = np.concatenate([known, ends])

    def _forget(self) -> None:
        if len(self._starts) > 4096 and len(self.sequence):
            done = int(np.searchsorted(self._ends, int(self.sequence.min()), side="right"))
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
        if self._sequence is None or not len(self._sequence):
            return self.next_sequence - len(self.codes)
        return int(self._sequence[0])

    def inside(self, sequence: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        found = np.empty(len(sequence), np.bool_)
        _mark_inside(sequence, self._starts, self._ends, found)
        return found


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
