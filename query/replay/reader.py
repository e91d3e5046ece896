"""Reading the events of replay intervals, with the rows around them that conditions may look at.

Purpose
    :func:`read_spans` yields batches in stream order, with flags which rows belong to an interval
    and which only surround one.  Base events are read by position, straight from the leaves, short
    spans together (see :mod:`.gather`); spans near late events are read by time through the
    snapshot, which merges them in.

Guarantee
    Rows come in the order of a full scan.  Between two intervals there is at least one surrounding
    row, and the rows right before and after each interval are those of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from .gather import Gathered, Piece
from .spans import Spans
from .timeline import Timeline

__all__ = ["Piece", "read_arrays", "read_positions", "read_spans"]

BATCH_EVENTS = 1 << 17
ALONE_EVENTS = 1 << 14
"""Spans from this length on are handed on as they lie in their leaves, not copied together."""


def read_arrays(
    timeline: Timeline,
    columns: Sequence[str],
    output: pa.Schema,
    first: int,
    end: int,
    metrics: ScanMetrics | None = None,
    dictionary: bool = False,
) -> Iterator[tuple[int, list[pa.Array]]]:
    """Columns of the base events at positions [first, end), leaf by leaf.

    Parameters
    ----------
    timeline : Timeline
    columns : sequence of str
    output : pyarrow.Schema
        Of the columns.
    first, end : int
    metrics : ScanMetrics, optional
    dictionary : bool
        Strings stored as codes stay encoded.

    Yields
    ------
    position : int
        Of the first event.
    arrays : list of pyarrow.Array
    """
    for part in timeline.parts:
        low, high = max(first, part.start), min(end, part.end)
        if low >= high:
            continue
        if part.tail is not None:
            batch = part.tail.batch.slice(low - part.start, high - low).select(list(columns))
            yield low, batch.columns
            continue
        leaves = part.leaves
        assert leaves is not None
        at = low
        for leaf, a, b in leaves.pieces(low - part.start, high - part.start):
            arrays = [
                leaves.view.column(leaf, field.name, a, b, type_=field.type, encoded=dictionary)
                for field in output
            ]
            if metrics is not None:
                metrics.blocks_read += 1
                metrics.events_read += b - a
            yield at, arrays
            at += b - a


def read_positions(
    timeline: Timeline,
    columns: Sequence[str],
    output: pa.Schema,
    first: int,
    end: int,
    metrics: ScanMetrics | None = None,
) -> Iterator[pa.RecordBatch]:
    """Base events at positions [first, end)."""
    for _, arrays in read_arrays(timeline, columns, output, first, end, metrics):
        yield pa.RecordBatch.from_arrays(arrays, schema=output)


def read_spans(
    snapshot: Snapshot,
    timeline: Timeline,
    spans: Spans,
    by_time: dict[int, tuple[int, int]],
    columns: Sequence[str],
    before: int,
    after: int,
    metrics: ScanMetrics | None = None,
    check: Callable[[], None] | None = None,
    ties: bool = False,
) -> Iterator[Piece]:
    """Events of spans and their surroundings; see the module.

    Parameters
    ----------
    snapshot : Snapshot
    timeline : Timeline
    spans : Spans
        More than ``before + after`` positions apart.
    by_time : dict of int to (int, int)
        Spans (by number) that are to be read by these ticks, inclusive.
    columns : sequence of str
    before, after : int
        Surrounding rows wanted on each side.
    metrics : ScanMetrics, optional
    check : callable, optional
        Called before each span; may raise.
    ties : bool
        Surrounding rows come with all others of their time, whose order may still change.
    """
    done = 0
    output = pa.schema([snapshot.schema.arrow.field(name) for name in columns])
    gathered = Gathered(timeline, output, metrics)
    for number, (start, end) in enumerate(
        zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)
    ):
        if check is not None:
            check()
        first = max(0, start - before)
        if ties and first < start:
            first = int(timeline.lower(timeline.ticks_at(np.array([first])))[0])
        yield from gathered.add(max(first, done), start, False)
        ticks = by_time.get(number)
        if ticks is not None:
            yield from gathered.flush()
            stop = None if ticks[1] >= 2**63 - 1 else ticks[1] + 1
            for batch in snapshot.scan(ticks[0], stop, columns, metrics=metrics, check=check):
                yield batch, True
        elif end - start < ALONE_EVENTS:
            yield from gathered.add(start, end, True)
        else:
            yield from gathered.flush()
            for first in range(start, end, BATCH_EVENTS):
                if check is not None:
                    check()
                last = min(end, first + BATCH_EVENTS)
                for batch in read_positions(timeline, columns, output, first, last, metrics):
                    yield batch, True
        last = done = min(timeline.total, end + after)
        if ties and last > end:
            last = done = int(timeline.upper(timeline.ticks_at(np.array([last - 1])))[0])
        if number + 1 < len(spans):
            last = done = min(last, int(spans.starts[number + 1]))
        yield from gathered.add(end, last, False)
    yield from gathered.flush()
