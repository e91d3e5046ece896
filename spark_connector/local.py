"""Backend for ``option("path", ...)``: executors open the files of a shared directory.

Reading takes no lock.  Every task opens the commit of the plan's ``Pin``, which keeps its files for
``PIN_SECONDS``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ..errors import InvalidArgument
from ..schema import StreamSchema
from ..store import ScanMetrics, Store
from ..store.pins import Pin, catalog_of, open_pinned, pin_stream
from ..store.views import stored_views
from .backend import EventPartition, ScanRequest, partition_count
from .options import Options
from .task_metrics import counted, measured

if TYPE_CHECKING:
    from ..store import Snapshot


logger = logging.getLogger("chronicle.spark")

SEGMENTS_PER_PART = 8
"""With this many segments per partition, cuts at segment borders are balanced enough."""


class LocalBackend:
    def __init__(self, options: Options) -> None:
        assert options.path is not None
        self._path = local_path(options.path)
        self._stream = options.stream or ""
        self._metrics_path = (
            None if options.metrics_path is None else local_path(options.metrics_path)
        )

    def _open(self) -> Store:
        return Store.open(self._path, mode="r")

    def describe(self) -> StreamSchema:
        with self._open() as store:
            return store.stream(self._stream).schema

    def has_view(self, name: str) -> bool:
        with self._open() as store:
            return name.lower() in map(str.lower, stored_views(store.files))

    def count(self) -> int:
        with self._open() as store:
            return store.stream(self._stream).snapshot().count

    def plan(self, scan: ScanRequest) -> list[EventPartition]:
        """Pin the last commit and cut it at leaf borders, balanced by bytes."""
        with self._open() as store:
            directory = store.directory_of(self._stream)
            if self._stream not in store.streams():
                store.stream(self._stream)  # raises, with the known names
            if scan.filter is not None:
                self._check_filter(store, scan)
            pin = pin_stream(store.files, directory, position=scan.as_of)
            return [
                EventPartition(low, high, pin)
                for low, high in _cut(store, pin, scan)
                if _some(low, high)
            ]

    def read(self, scan: ScanRequest, partition: EventPartition) -> Iterator[pa.RecordBatch]:
        columns = list(dict.fromkeys(scan.columns))
        with (
            self._open() as store,
            measured(self._stream, partition, self._metrics_path) as metrics,
        ):
            if scan.filter is not None:
                yield from self._filtered(store, scan, partition, columns, metrics)
                return
            pin: Pin = partition.pin
            snapshot = open_pinned(store.files, pin, partition.start, partition.end)
            yield from snapshot.scan(
                partition.start,
                partition.end,
                columns,
                prune=scan.prune,
                limit=scan.limit,
                metrics=metrics,
            )

    def _check_filter(self, store: Store, scan: ScanRequest) -> None:
        """Run the filter on an empty stream, to report errors before tasks run."""
        from .queries import PinnedCatalog, query_engine

        assert scan.filter is not None
        catalog = PinnedCatalog(store, empty=True)
        columns = list(dict.fromkeys(scan.columns))
        with query_engine(catalog) as engine:
            snapshot = catalog.snapshot(self._stream)
            for _ in engine.scan(self._stream, snapshot, scan.filter, None, None, columns, None):
                pass

    def _filtered(
        self,
        store: Store,
        scan: ScanRequest,
        partition: EventPartition,
        columns: list[str],
        metrics: ScanMetrics,
    ) -> Iterator[pa.RecordBatch]:
        from .queries import PinnedCatalog, query_engine

        assert scan.filter is not None
        catalog = PinnedCatalog(store, {self._stream: partition.pin})
        snapshot = catalog.bounded(self._stream, partition.start, partition.end)
        with query_engine(catalog) as engine:
            yield from engine.scan(
                self._stream,
                counted(snapshot, metrics),
                scan.filter,
                partition.start,
                partition.end,
                columns,
                scan.limit,
            )

    def query_schema(self, text: str) -> pa.Schema:
        """Schema of a query's result, from streams without events."""
        from .queries import PinnedCatalog, bare, query_engine, query_tree

        query_tree(text)  # refuses other statements
        with self._open() as store, query_engine(PinnedCatalog(store, empty=True)) as engine:
            result = engine.run(text, read_only=True)
            try:
                return bare(result.schema)
            finally:
                result.close()

    def plan_query(self, text: str, parts: int | None) -> list[InputPartition]:
        """Cut a query into parts that run on the same pins."""
        from .queries import PinnedCatalog, QueryPartition, divided, query_engine

        with self._open() as store:
            catalog = PinnedCatalog(store, growing=True)
            with query_engine(catalog) as engine:
                _, cut = divided(text, engine, catalog, parts)
        logger.info("query in %d parts (%s): %s", len(cut.parts), cut.kind, cut.reason)
        return [QueryPartition(part, catalog.pins) for part in cut.parts]

    def run_query(self, text: str, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from .queries import PinnedCatalog, QueryPartition, query_engine

        if not isinstance(partition, QueryPartition):  # Spark's placeholder for an empty plan
            return
        with self._open() as store:
            catalog = PinnedCatalog(store, partition.pins, ticks=partition.part.ticks)
            with query_engine(catalog) as engine:
                result = engine.run_plan(partition.part.plan)
                try:
                    yield from result.batches()
                finally:
                    result.close()


def local_path(path: str) -> str:
    """An absolute path, also of a ``file:`` URI; InvalidArgument for other schemes."""
    if path.startswith("file:"):
        rest = path.removeprefix("file:")
        path = "/" + rest.lstrip("/")
    elif "://" in path:
        raise InvalidArgument(
            "option 'path' expects a directory of a file system that every node mounts, found "
            f"{path!r}"
        )
    return os.path.abspath(path)


def _some(low: int | None, high: int | None) -> bool:
    return low is None or high is None or low < high


def _cut(store: Store, pin: Pin, scan: ScanRequest) -> list[tuple[int | None, int | None]]:
    catalog = catalog_of(store.files, pin)
    entries = [
        entry
        for entry in catalog.segments
        if (scan.start is None or entry.last >= scan.start)
        and (scan.end is None or entry.first < scan.end)
    ]
    size = sum(entry.bytes for entry in entries)
    parts = partition_count(scan.parts, size)
    if parts > 1 and len(entries) >= SEGMENTS_PER_PART * parts:
        weight = np.cumsum([entry.bytes for entry in entries])
        goals = weight[-1] * np.arange(1, parts) / parts
        cuts = sorted({entries[int(at)].first for at in np.searchsorted(weight, goals)})
    else:
        snapshot = open_pinned(store.files, pin, scan.start, scan.end)
        if scan.parts is None:
            parts = partition_count(None, _bytes_of(snapshot))
        cuts = [low for low, _ in _fine(snapshot, parts, scan) if low is not None]
    low, high = scan.start, scan.end
    inside = [cut for cut in cuts if (low is None or cut > low) and (high is None or cut < high)]
    bounds: list[Any] = [low, *inside, high]
    return list(pairwise(bounds))


def _bytes_of(snapshot: Snapshot) -> int:
    state = snapshot.state
    return sum(view.length for view in (*state.segments, *state.runs))


def _fine(snapshot: Snapshot, parts: int, scan: ScanRequest) -> list[tuple[int | None, int | None]]:
    if scan.start is None and scan.end is None:
        return snapshot.ranges(parts)
    span = snapshot.time_range
    if span is None:
        return [(None, None)]
    finest = snapshot.ranges(4096)
    low = span[0] if scan.start is None else scan.start
    high = span[1] + 1 if scan.end is None else scan.end
    inside = [cut for cut, _ in finest if cut is not None and low < cut < high]
    step = max(1, -(-(len(inside) + 1) // parts))
    chosen = inside[step - 1 :: step]
    bounds: list[int | None] = [None, *chosen[: parts - 1], None]
    return list(pairwise(bounds))
