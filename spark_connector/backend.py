"""What a reader needs of a store, whether it lies on a shared file system or behind a server.

Purpose
    :class:`Backend` is the narrow waist between Spark's reading protocol and Chronicle.  A reader
    describes what it wants as a :class:`ScanRequest`, asks the backend to cut it into partitions on
    the driver, and to read one partition on an executor.

Guarantee
    A plan is pinned: every partition names the same commit position, so two runs of one DataFrame
    see the same events although the stream grows meanwhile.  The partitions of a plan are disjoint
    and cover the scan.

Limits
    A pinned position stays readable while the store keeps the files that it needs; after a
    compaction or retention has removed them a read ends with an error that says so, and ``load()``
    plans anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ..schema import StreamSchema
from .options import Options

if TYPE_CHECKING:
    from ..store.prune import Prune

__all__ = ["Backend", "EventPartition", "ScanRequest", "time_bounds"]

PARTITION_BYTES = 64 << 20
"""Size that a partition should have: a task costs about 30 ms, reading this much about 100 ms."""

PARTITIONS_MAX = 20_000
"""More partitions than this are made larger instead: planning is the driver's work."""


@dataclass(frozen=True)
class ScanRequest:
    """What is read of a stream.

    Attributes
    ----------
    columns : tuple of str
        In the stream's spelling.
    start, end : int or None
        Ticks, half-open.
    filter : str or None
        SQL predicate.
    limit : int or None
        The first so many events in time order.
    batch_size : int
        Rows of a batch handed to Spark.
    prune : Prune or None
        Blocks to skip; Spark applies the filters that this came from itself.
    as_of : int or None
        Commit position to read; None is the latest at planning.
    parts : int or None
        Partitions to aim for; None is by size.
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
    """A time range of a stream at one commit position.

    Parameters
    ----------
    start, end : int or None
        Ticks, half-open; None is open.
    pin : object
        The backend's name of the commit position; pickled.
    """

    def __init__(self, start: int | None, end: int | None, pin: Any) -> None:
        super().__init__(None)
        self.start = start
        self.end = end
        self.pin = pin

    def __repr__(self) -> str:
        return f"EventPartition([{self.start}, {self.end}))"


class Backend(Protocol):
    """One stream, on a path or behind a url."""

    def describe(self) -> StreamSchema:
        """The stream's schema, as of now."""
        ...

    def has_view(self, name: str) -> bool:
        """Whether there is a view of that name."""
        ...

    def count(self) -> int:
        """Events in the stream, as of now."""
        ...

    def plan(self, scan: ScanRequest) -> list[EventPartition]:
        """Cut a scan into partitions (driver)."""
        ...

    def read(self, scan: ScanRequest, partition: EventPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition (executor); batches hold at least the scan's columns."""
        ...

    def query_schema(self, text: str) -> pa.Schema:
        """Schema of a query's result (driver)."""
        ...

    def plan_query(self, text: str, parts: int | None) -> list[InputPartition]:
        """Cut a query into partitions that together give its rows (driver)."""
        ...

    def run_query(self, text: str, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run one partition of a query (executor)."""
        ...


def time_bounds(options: Options, schema: StreamSchema) -> tuple[int | None, int | None]:
    """The options ``startTime`` and ``endTime`` as ticks.

    A number is a count of microseconds since the epoch, as everywhere in Spark; for a stream whose
    time is a plain integer it is that integer.

    Raises
    ------
    InvalidArgument
        When one is no time, or finer than the stream's unit.
    """
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
    """Number of partitions: as wanted, else one for each :data:`PARTITION_BYTES`."""
    if wanted is not None:
        return wanted
    return min(PARTITIONS_MAX, max(1, -(-stored_bytes // PARTITION_BYTES)))


def rebatch(
    batches: Iterator[pa.RecordBatch], rows: int, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Gather small batches, and slice large ones, towards `rows` rows each.

    A batch of at least half the size is passed on as it is: copying it would cost more than the
    smaller number of batches saves.
    """
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
