"""Columns of base events by position, for lookups and intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ...store.segment import ScanMetrics
from .timeline import Timeline

__all__ = ["read_arrays", "read_positions"]


def read_arrays(
    timeline: Timeline,
    columns: Sequence[str],
    output: pa.Schema,
    first: int,
    end: int,
    metrics: ScanMetrics | None = None,
    dictionary: bool = False,
) -> Iterator[tuple[int, list[pa.Array]]]:
    """Columns of positions [first, end) by leaf, with the first position of each."""
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
        for leaf, a, b in leaves.pieces(low - part.start, high - part.start, output.names):
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
    for _, arrays in read_arrays(timeline, columns, output, first, end, metrics):
        yield pa.RecordBatch.from_arrays(arrays, schema=output)
