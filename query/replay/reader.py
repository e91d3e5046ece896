"""Read the events of replay intervals, and the rows around them, in the order of a full scan.

Spans near late events are read by time.  Rows next to intervals are neighbours in the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.times import INT64_MAX
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from .base_reader import read_positions
from .column_gather import Piece, read_stretches
from .replay_plan import ReplayIntervals
from .timeline import Timeline

__all__ = ["Piece", "read_spans"]

Ints = npt.NDArray[np.int64]

BATCH_EVENTS = 1 << 17
ALONE_EVENTS = 1 << 14
"""Spans from this length on are passed on leaf by leaf, not copied into larger batches."""


def read_spans(
    snapshot: Snapshot,
    timeline: Timeline,
    intervals: ReplayIntervals,
    columns: Sequence[str],
    metrics: ScanMetrics | None = None,
    check: Callable[[], None] | None = None,
    ties: bool = False,
) -> Iterator[Piece]:
    """Batches in stream order, with flags of interval rows.  With ``ties``, surrounding rows come
    with all others of their time, whose order may still change.
    """
    spans = intervals.spans
    output = pa.schema([snapshot.schema.arrow.field(name) for name in columns])
    first, last = _around(timeline, intervals, ties)
    alone = spans.ends - spans.starts >= ALONE_EVENTS
    alone[list(intervals.by_time)] = True
    stretches = np.stack([first, spans.starts, spans.ends, last], axis=1)
    # of long spans and spans by time only the surrounding rows are gathered here
    none = np.zeros((0, 4), np.int64)
    at, behind = 0, none
    for number in [*np.flatnonzero(alone).tolist(), len(spans)]:
        ahead = stretches[number : number + 1, [0, 1, 1, 1]]
        waiting = np.concatenate([behind, stretches[at:number], ahead])
        yield from read_stretches(timeline, output, waiting, metrics, check)
        if number == len(spans):
            break
        start, end = int(spans.starts[number]), int(spans.ends[number])
        ticks = intervals.by_time.get(number)
        if check is not None:
            check()
        if ticks is not None:
            stop = None if ticks[1] >= INT64_MAX else ticks[1] + 1
            for batch in snapshot.scan(ticks[0], stop, columns, metrics=metrics, check=check):
                yield batch, True
        else:
            for low in range(start, end, BATCH_EVENTS):
                if check is not None:
                    check()
                high = min(end, low + BATCH_EVENTS)
                for batch in read_positions(timeline, columns, output, low, high, metrics):
                    yield batch, True
        at, behind = number + 1, stretches[number : number + 1, [2, 2, 2, 3]]


def _around(timeline: Timeline, intervals: ReplayIntervals, ties: bool) -> tuple[Ints, Ints]:
    spans, total = intervals.spans, timeline.total
    first = np.maximum(spans.starts - intervals.before, 0)
    last = np.minimum(spans.ends + intervals.after, total)
    if ties and len(spans):
        lower = timeline.lower(timeline.ticks_at(first))
        first = np.where(first < spans.starts, lower, first)
        upper = timeline.upper(timeline.ticks_at(last - 1))
        last = np.where(last > spans.ends, upper, last)
    last[:-1] = np.minimum(last[:-1], spans.starts[1:])
    first[1:] = np.maximum(first[1:], last[:-1])
    return first, last
