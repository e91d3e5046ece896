"""Reading the events of replay intervals, with the rows around them that conditions may look at.

Purpose
    :func:`read_spans` yields batches in stream order, with flags which rows belong to an interval
    and which only surround one.  Base events are read by position, straight from the leaves, short
    spans together (see :mod:`.column_gather`); spans near late events are read by time through the
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
from ...ticks import INT64_MAX
from .base_reader import read_positions
from .column_gather import Gathered, Piece
from .replay_plan import ReplayIntervals
from .timeline import Timeline

__all__ = ["Piece", "read_spans"]

BATCH_EVENTS = 1 << 17
ALONE_EVENTS = 1 << 14
"""Spans from this length on are handed on as they lie in their leaves, not copied together."""


def read_spans(
    snapshot: Snapshot,
    timeline: Timeline,
    intervals: ReplayIntervals,
    columns: Sequence[str],
    metrics: ScanMetrics | None = None,
    check: Callable[[], None] | None = None,
    ties: bool = False,
) -> Iterator[Piece]:
    """Events of spans and their surroundings; see the module.

    Parameters
    ----------
    intervals : ReplayIntervals
        Of the stream, not of partitions; spans are more than ``before + after`` positions apart.
    check : callable, optional
        Called before each span; may raise.
    ties : bool
        Surrounding rows come with all others of their time, whose order may still change.
    """
    done = 0
    spans, before, after = intervals.spans, intervals.before, intervals.after
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
        ticks = intervals.by_time.get(number)
        if ticks is not None:
            yield from gathered.flush()
            stop = None if ticks[1] >= INT64_MAX else ticks[1] + 1
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
