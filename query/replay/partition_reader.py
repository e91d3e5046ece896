"""Read the rows of partition intervals: PARTITION BY columns first, other columns where needed.

Ranges near late events are read with all events, of any partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.times import INT64_MAX
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from .base_reader import read_arrays
from .column_gather import Piece
from .partition_spans import PartitionSpans, RowFlags
from .replay_plan import ReplayIntervals
from .spans import Spans
from .timeline import Timeline, near

__all__ = ["read_numbered", "read_partitions"]

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
