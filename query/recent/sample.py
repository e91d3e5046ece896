"""How often a row pattern matches, from a few pieces of its stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from ...store.snapshot import Snapshot
from ..pattern.compiled import CompiledMatch
from ..replay.timeline import Timeline

__all__ = ["rows_per_event"]

PIECES = 4
PIECE_EVENTS = 2048


def rows_per_event(
    snapshot: Snapshot, compiled: CompiledMatch, check: Callable[[], None] | None = None
) -> float:
    """Rows that a clause gives for an event, as pieces of the stream tell.

    Where they have no match, half a match is assumed.
    """
    timeline = Timeline(snapshot)
    if not timeline.total:
        return 1.0
    starts = np.unique(np.linspace(0, max(0, timeline.total - PIECE_EVENTS), PIECES).astype(int))
    events = rows = 0
    for start in starts.tolist():
        first, last = start, min(timeline.total, start + PIECE_EVENTS) - 1
        low, high = timeline.ticks_at(np.array([first, last], np.int64)).tolist()
        read = 0

        def batches(low: int = low, high: int = high) -> Iterator[pa.RecordBatch]:
            nonlocal read
            for batch in snapshot.scan(low, high + 1, compiled.input_columns, check=check):
                read += batch.num_rows
                yield batch

        rows += sum(batch.num_rows for batch in compiled.run(batches(), check=check))
        events += read
    return max(rows, 0.5) / max(events, 1)
