"""Interface between Spark's read protocol and a store, by path or by url.

The driver cuts a ``ScanRequest`` into disjoint partitions of one commit, which executors read, so
repeated runs see the same events, until compaction or retention has removed the commit's files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ..schema import StreamSchema
from .options import Options

if TYPE_CHECKING:
    from ..store.prune import Prune


PARTITION_BYTES = 64 << 20
"""Target size of a partition: a task costs about 30 ms, reading this much about 100 ms."""

PARTITIONS_MAX = 20_000
"""Most partitions by size, to bound the driver's planning."""


@dataclass(frozen=True)
class ScanRequest:
    """A scan of a stream: half-open ticks, a SQL predicate, the first ``limit`` events.

    ``prune`` only skips blocks, as Spark filters again; ``as_of`` is a commit position.
    """

    columns: tuple[str, ...]
    start: int | None = None
    end: int | None = None
    filter: str | None = None
    limit: int | None = None
    batch_size: int = 65_536
    prune: Prune | None = None
    as_of: int | None = None
    parts: int | None = None


class EventPartition(InputPartition):
    """A time range (half-open ticks, None is open) at a pinned commit."""

    def __init__(self, start: int | None, end: int | None, pin: Any) -> None:
        super().__init__(None)
        self.start = start
        self.end = end
        self.pin = pin

    def __repr__(self) -> str:
        return f"EventPartition([{self.start}, {self.end}))"


def time_bounds(options: Options, schema: StreamSchema) -> tuple[int | None, int | None]:
    """``startTime`` and ``endTime`` in ticks; numbers are microseconds, or integer ticks."""
    return _ticks(options.start_time, schema), _ticks(options.end_time, schema)


def _ticks(text: str | None, schema: StreamSchema) -> int | None:
    if text is None:
        return None
    stripped = text.strip()
    if stripped.lstrip("+-").isdigit() and (schema.time_unit is None or len(stripped) > 4):
        number = int(stripped)
        if schema.time_unit is None:
            return schema.to_ticks(number)
        return schema.to_ticks(pa.scalar(number, pa.timestamp("us")))
    return schema.to_ticks(stripped)


def partition_count(wanted: int | None, stored_bytes: int) -> int:
    """Number of partitions: ``wanted``, else one per ``PARTITION_BYTES``."""
    if wanted is not None:
        return wanted
    return min(PARTITIONS_MAX, max(1, -(-stored_bytes // PARTITION_BYTES)))


def rebatch(
    batches: Iterator[pa.RecordBatch], rows: int, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Merge or slice batches to about ``rows`` rows; those of half the size are not copied."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        chosen = batch.select(names) if batch.schema.names != list(names) else batch
        if held and (count + chosen.num_rows > rows or 2 * chosen.num_rows >= rows):
            yield _joined(held)
            held, count = [], 0
        if 2 * chosen.num_rows >= rows:
            for offset in range(0, chosen.num_rows, rows):
                yield chosen.slice(offset, rows)
            continue
        held.append(chosen)
        count += chosen.num_rows
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
