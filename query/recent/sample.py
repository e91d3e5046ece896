"""Estimate how often a row pattern matches, from a few pieces of its stream."""

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
    """Result rows per event in a sample; without a match, half a match is assumed."""
    timeline = Timeline(snapshot)
    if not timeline.total:
        return 1.0
    size = min(PIECE_EVENTS, max(1, timeline.total // PIECES))
    starts = np.linspace(0, timeline.total - size, PIECES).astype(np.int64)
    lows, highs = timeline.ticks_at(starts), timeline.ticks_at(starts + size - 1)
    events = 0

    def batches() -> Iterator[pa.RecordBatch]:
        """The pieces one after the other; false matches across a seam do not matter."""
        nonlocal events
        before = None
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
            low = low if before is None else max(low, before + 1)
            before = high
            if low > high:
                continue
            for batch in snapshot.scan(low, high + 1, compiled.input_columns, check=check):
                events += batch.num_rows
                yield batch

    rows = sum(batch.num_rows for batch in compiled.run(batches(), check=check))
    return float(max(rows, 0.5) / max(events, 1))
