"""Reads of a store by Spark: the files by ``path`` (``LocalBackend``), a server by ``url``.

The driver cuts a ``ScanRequest`` into disjoint partitions of one commit, which executors read, so
repeated runs see the same events, until compaction or retention has removed the commit's files.

By path, executors open the files of a shared directory, without a lock.  Every task opens the
commit of the plan's ``Pin``, which keeps its files for ``PIN_SECONDS``.

A server sends a stream as Arrow over HTTP.  ``GET .../partitions`` pins a version on the server for
``CHRONICLE_SNAPSHOT_TTL_MS`` after its last use (default ten minutes); an expired one answers 410,
an error.  ``pushFilters`` narrows only the time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ..client import RemoteDatabase, RemoteStream, Transport
from ..client.calls import events, query
from ..errors import InvalidArgument
from ..schema import StreamSchema
from ..store.pins import Pin, catalog_of, open_pinned, pin_stream
from ..store.store import Store
from ..store.views import stored_views
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


logger = logging.getLogger("chronicle.spark")

SEGMENTS_PER_PART = 8
"""With this many segments per partition, cuts at segment borders are balanced enough."""


class LocalStream:
    """A stream of a store that this process opens; it need not have a name, for queries only."""

    def __init__(self, options: Options) -> None:
        assert options.path is not None
        self._path = local_path(options.path)
        self._stream = options.stream or ""

    def _open(self) -> Store:
        return Store.open(self._path, mode="r")

    def describe(self) -> StreamSchema:
        with self._open() as store:
            return store.stream(self._stream).schema


class LocalBackend(LocalStream):
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
                for low, high in _time_ranges(store, pin, scan)
                if _some(low, high)
            ]

    def read(self, scan: ScanRequest, partition: EventPartition) -> Iterator[pa.RecordBatch]:
        columns = list(dict.fromkeys(scan.columns))
        with self._open() as store:
            if scan.filter is not None:
                yield from self._filtered(store, scan, partition, columns)
                return
            pin: Pin = partition.pin
            snapshot = open_pinned(store.files, pin, partition.start, partition.end)
            yield from snapshot.scan(
                partition.start,
                partition.end,
                columns,
                prune=scan.prune,
                limit=scan.limit,
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
    ) -> Iterator[pa.RecordBatch]:
        from .queries import PinnedCatalog, query_engine

        assert scan.filter is not None
        catalog = PinnedCatalog(store, {self._stream: partition.pin})
        snapshot = catalog.bounded(self._stream, partition.start, partition.end)
        with query_engine(catalog) as engine:
            yield from engine.scan(
                self._stream,
                snapshot,
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
        with (
            self._open() as store,
            query_engine(PinnedCatalog(store, empty=True)) as engine,
            engine.run(text, read_only=True) as result,
        ):
            return bare(result.schema)

    def plan_query(self, text: str, parts: int | None) -> list[InputPartition]:
        """Cut a query into parts that run on the same pins."""
        from ..query.plan.division import divide
        from .queries import PinnedCatalog, QueryPartition, query_engine, query_tree

        with self._open() as store:
            catalog = PinnedCatalog(store, growing=True)
            with query_engine(catalog) as engine:
                plan = engine.plan(query_tree(text), text)
                cut = divide(plan, catalog.snapshot, partial(partition_count, parts))
        logger.info("query in %d parts (%s): %s", len(cut.parts), cut.kind, cut.reason)
        return [QueryPartition(part, catalog.pins) for part in cut.parts]

    def run_query(self, text: str, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from .queries import PinnedCatalog, QueryPartition, query_engine

        if not isinstance(partition, QueryPartition):  # Spark's placeholder for an empty plan
            return
        with self._open() as store:
            catalog = PinnedCatalog(store, partition.pins, ticks=partition.part.ticks)
            with query_engine(catalog) as engine, engine.run_plan(partition.part.plan) as result:
                yield from result.batches()


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


def _time_ranges(store: Store, pin: Pin, scan: ScanRequest) -> list[tuple[int | None, int | None]]:
    catalog = catalog_of(store.files, pin)
    entries = [
        entry
        for entry in catalog.segments
        if (scan.start is None or entry.last >= scan.start)
        and (scan.end is None or entry.first < scan.end)
    ]
    parts = partition_count(scan.parts, sum(entry.bytes for entry in entries))
    if parts == 1 or len(entries) < SEGMENTS_PER_PART * parts:
        snapshot = open_pinned(store.files, pin, scan.start, scan.end)
        return snapshot.ranges(parts, scan.start, scan.end)
    weight = np.cumsum([entry.bytes for entry in entries])
    goals = weight[-1] * np.arange(1, parts) / parts
    cuts = sorted({entries[int(at)].first for at in np.searchsorted(weight, goals)})
    low, high = scan.start, scan.end
    inside = [cut for cut in cuts if (low is None or cut > low) and (high is None or cut < high)]
    return list(pairwise([low, *inside, high]))


class ServerStream:
    """A stream behind a server; it need not have a name, for queries only."""

    def __init__(self, options: Options) -> None:
        assert options.url is not None
        self.transport = Transport(options.url, options.token, options.timeout, options.retries)
        self.stream = options.stream or ""

    def opened(self) -> RemoteStream:
        return RemoteDatabase(self.transport).stream(self.stream)

    def describe(self) -> StreamSchema:
        return self.opened().event_schema


class ServerBackend(ServerStream):
    def has_view(self, name: str) -> bool:
        text = (
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main' AND "
            "table_type = 'VIEW'"
        )
        views = self.transport.batches(query(text)).read_all()
        return name.lower() in map(str.lower, views.column(0).to_pylist())

    def count(self) -> int:
        return self.opened().count

    def plan(self, scan: ScanRequest) -> list[EventPartition]:
        """Have the server pin a version and cut it; a wrong predicate fails before tasks run."""
        if scan.filter is not None:
            self.transport.batches(events(self.stream, None, scan.filter, 0)).read_all()
        cut = {"parts": scan.parts, "start": scan.start, "end": scan.end, "version": scan.as_of}
        answer = self.transport.ask("GET", "streams", self.stream, "partitions", query=cut)
        return [
            EventPartition(part["start"], part["end"], answer["version"])
            for part in answer["partitions"]
        ]

    def read(self, scan: ScanRequest, partition: EventPartition) -> Iterator[pa.RecordBatch]:
        call = events(
            self.stream,
            list(dict.fromkeys(scan.columns)) or None,
            scan.filter,
            scan.limit,
            start=partition.start,
            end=partition.end,
            version=partition.pin,
        )
        return iter(self.transport.batches(call))

    def query_schema(self, text: str) -> pa.Schema:
        """Schema of a query's result, from an answer without rows."""
        return self.transport.batches(query(text, limit=0)).read_all().schema

    def plan_query(self, text: str, parts: int | None) -> list[InputPartition]:
        """One partition: the server runs the query."""
        if parts is not None and parts > 1:
            raise InvalidArgument(
                "a query behind a url runs in the server, in one piece; leave out the option "
                "'numPartitions', or read the store by its 'path'"
            )
        return [InputPartition(text)]

    def run_query(self, text: str, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        return iter(self.transport.batches(query(text)))


Backend = LocalBackend | ServerBackend


def open_backend(options: Options) -> Backend:
    return LocalBackend(options) if options.path is not None else ServerBackend(options)
