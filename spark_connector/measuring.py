"""Planned and actual I/O of reads by path, as PySpark 4.3 has no metrics for Python sources.

``plan_read`` says what a read would read and skip; with the option ``metricsPath`` tasks record
what they read, for ``read_metrics``.  Both are equal for a complete read of the same commit.  A
skipped block may be a node of many leaves; leaves outside the time range and events in the log do
not count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import InvalidArgument
from ..store import ScanMetrics, Store
from ..store.prune import Prune, Pruner
from ..store.segment import TICK_MAX, TICK_MIN, rows_within
from .local import LocalBackend, local_path
from .options import Options
from .queries import PinnedCatalog, query_engine
from .reader import ScanReader
from .task_metrics import CountedSnapshot
from .types import spark_schema

if TYPE_CHECKING:
    from .backend import EventPartition, ScanRequest


RECORD = pa.schema(
    [
        ("stream", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("stage", pa.int64()),
        ("partition", pa.int64()),
        ("attempt", pa.int64()),
        ("blocks_read", pa.int64()),
        ("blocks_skipped", pa.int64()),
        ("nodes_read", pa.int64()),
        ("bytes_read", pa.int64()),
        ("events_read", pa.int64()),
        ("seconds", pa.float64()),
    ]
)


# ------------------------------------------------------------------ before a read


@dataclass(frozen=True)
class PlannedRead:
    """Planned read of a partition: leaves, blocks that the filter excludes, events to decode."""

    start: int | None
    end: int | None
    blocks_read: int
    blocks_skipped: int
    events: int


@dataclass(frozen=True)
class ReadPlan:
    """What a read would touch; ``str()`` formats it."""

    stream: str
    parts: tuple[PlannedRead, ...]

    @property
    def blocks_read(self) -> int:
        return sum(part.blocks_read for part in self.parts)

    @property
    def blocks_skipped(self) -> int:
        return sum(part.blocks_skipped for part in self.parts)

    @property
    def events(self) -> int:
        return sum(part.events for part in self.parts)

    def __str__(self) -> str:
        lines = [
            f"{self.stream}: {len(self.parts)} partitions, {self.blocks_read} blocks to read, "
            f"{self.blocks_skipped} to skip, {self.events} events to decode"
        ]
        lines += [
            f"  [{part.start}, {part.end}): {part.blocks_read} read, {part.blocks_skipped} "
            f"skipped, {part.events} events"
            for part in self.parts
        ]
        return "\n".join(lines)


def plan_read(**options: object) -> ReadPlan:
    """What a read with these options would read and skip, without decoding events.

    Raises InvalidArgument for ``url`` and ``query``, and whatever the read would refuse.
    """
    asked = Options.parse({name: _text(value) for name, value in options.items()}, "r")
    if asked.path is None or asked.query is not None:
        raise InvalidArgument(
            "plan_read speaks of a stream by its 'path'; for a query use EXPLAIN (chronicle sql)"
        )
    backend = LocalBackend(asked)
    schema = backend.describe()
    reader = ScanReader(asked, spark_schema(schema.arrow, schema.select(asked.columns)))
    parts = []
    with Store.open(local_path(asked.path), mode="r") as store:
        for partition in backend.plan(reader.scan):
            found = ScanMetrics()
            _walk(store, asked.stream or "", reader.scan, partition, found)
            parts.append(
                PlannedRead(
                    partition.start,
                    partition.end,
                    found.blocks_read,
                    found.blocks_skipped,
                    found.events_read,
                )
            )
    return ReadPlan(asked.stream or "", tuple(parts))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _walk(
    store: Store, stream: str, scan: ScanRequest, partition: EventPartition, metrics: ScanMetrics
) -> None:
    catalog = PinnedCatalog(store, {stream: partition.pin})
    state = catalog.bounded(stream, partition.start, partition.end).state
    snapshot = _Walked(state, metrics)
    columns = list(dict.fromkeys(scan.columns))
    bounds = partition.start, partition.end
    if scan.filter is None:
        list(snapshot.scan(*bounds, columns, prune=scan.prune))
        return
    with query_engine(catalog) as engine:
        list(engine.scan(stream, snapshot, scan.filter, *bounds, columns, None))


class _Walked(CountedSnapshot):
    """A snapshot whose scans count what they would read, and read nothing."""

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        **how: Any,
    ) -> Iterator[pa.RecordBatch]:
        prune: Prune | None = how.get("prune")
        low = TICK_MIN if start is None else start
        last = TICK_MAX if end is None else end - 1
        for view in (*self.state.segments, *self.state.runs):
            if view.last < low or view.first > last:
                continue
            pruner = None if prune is None else Pruner(prune, view.file.schema)
            for leaf in view.leaves(low, last, pruner, self._metrics):
                self._metrics.events_read += sum(
                    end - first
                    for first, end in rows_within(leaf, max(low, view.since), last, pruner)
                )
        return iter(())


# ------------------------------------------------------------------- after a read


def read_metrics(directory: str | os.PathLike[str]) -> pa.Table:
    """Records of tasks below ``metricsPath``, a row per task attempt, failed ones included."""
    place = Path(local_path(os.fspath(directory)))
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in place.glob("*.json")]
    rows.sort(key=lambda row: [row[name] or 0 for name in ("stage", "partition", "attempt")])
    return pa.Table.from_pylist(rows, schema=RECORD)
