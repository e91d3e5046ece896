"""The option ``query``: SQL planned once on the driver, run in parts on executors.

The parts (``chronicle.query.plan.division``) are disjoint, unordered, and give each row once.  The
division and its reason are logged as ``chronicle.spark`` (INFO).

The catalog has pinned streams, so that all processes see the same events.  The driver pins streams
as a query names them; executors open only these, read-only.  Indexes may be ahead of or behind the
pin: entries stay valid per segment, and uncovered segments are replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from sqlglot import exp

from ..errors import ReadOnlyStore, SqlError, StreamNotFound
from ..indexes.definitions import has_indexes
from ..indexes.stream_indexes import StreamIndexes
from ..query.contract.catalog import Changes, LiveStatements
from ..query.engine import QueryEngine
from ..query.plan.division import Part
from ..query.sql.dialect import parse_statement
from ..query.sql.statement_clauses import StatementNode
from ..schema import StreamSchema
from ..store.pins import Pin, open_pinned, pin_stream
from ..store.snapshot import Snapshot, StreamState
from ..store.store import Store
from ..store.views import StoredView, stored_views

MEMORY_BYTES = 512 << 20
"""Memory of a task's relational operators before they spill."""


class PinnedCatalog:
    """Streams as of pins; ``growing``: pin on first use (driver); ``empty``: without events."""

    def __init__(
        self,
        store: Store,
        pins: dict[str, Pin] | None = None,
        *,
        growing: bool = False,
        empty: bool = False,
        ticks: tuple[int | None, int | None] = (None, None),
    ) -> None:
        self._store = store
        self.pins = dict(pins or {})
        self._growing = growing
        self._empty = empty
        self._ticks = ticks
        self._snapshots: dict[str, Snapshot] = {}
        self._indexes: dict[str, StreamIndexes | None] = {}

    @property
    def mode(self) -> str:
        return "r"

    @property
    def live_statements(self) -> LiveStatements:
        raise ReadOnlyStore("statements about live queries are for the process that writes")

    def views(self) -> Mapping[str, StoredView]:
        return stored_views(self._store.files)

    def streams(self) -> list[str]:
        driver = self._growing or self._empty
        return self._store.streams() if driver else sorted(self.pins)

    @property
    def frames(self) -> dict[str, Any]:
        return {}

    def damaged(self) -> dict[str, str]:
        return {}

    def stream_schema(self, name: str) -> StreamSchema:
        return self.snapshot(name).schema

    def snapshot(self, name: str) -> Snapshot:
        """A stream as of its pin; the same object each time."""
        snapshot = self._snapshots.get(name)
        if snapshot is None:
            snapshot = self._snapshots[name] = self._opened(name)
        return snapshot

    def _opened(self, name: str) -> Snapshot:
        if self._empty:
            schema = self._store.stream(name).schema
            return Snapshot(StreamState(schema))
        pin = self.pins.get(name)
        if pin is None:
            if not self._growing:
                raise StreamNotFound(f"no stream {name!r} was pinned when the query was planned")
            self._store.stream(name)  # raises, with the known names
            pin = pin_stream(self._store.files, self._store.directory_of(name))
            self.pins[name] = pin
        return open_pinned(self._store.files, pin, *self._ticks)

    # -- indexes --------------------------------------------------------------------------------

    def indexes_of(self, name: str) -> StreamIndexes | None:
        """The built indexes of a stream, opened for reading; None without any."""
        if name not in self._indexes:
            self._indexes[name] = None if self._empty else self._opened_indexes(name)
        return self._indexes[name]

    def _opened_indexes(self, name: str) -> StreamIndexes | None:
        place = self._store.files.local_path(f"{self._store.directory_of(name)}/indexes")
        if place is None or not has_indexes(Path(place)):
            return None
        indexes = StreamIndexes(Path(place), False)
        if indexes.attributes:
            return indexes
        indexes.close()
        return None

    def close(self) -> None:
        opened, self._indexes = list(self._indexes.values()), {}
        for indexes in opened:
            if indexes is not None:
                indexes.close()

    def rollups_of(self, name: str) -> tuple[()]:
        return ()

    def list_indexes(self, name: str) -> list[dict[str, Any]]:
        indexes = self.indexes_of(name)
        if indexes is None:
            return []
        state = self.snapshot(name).state
        return [indexes.figures(attribute, state) for attribute in indexes.attributes]

    def stream_options(self, name: str) -> dict[str, Any]:
        return self._store.stream(name).options.to_json()

    def owner_rows(self, table: str) -> tuple[()]:
        return ()

    def bounded(self, name: str, start: int | None, end: int | None) -> Snapshot:
        """A stream's pin, opened for a time range only."""
        return open_pinned(self._store.files, self.pins[name], start, end)

    @property
    def changes(self) -> Changes:
        raise ReadOnlyStore("a query run by Spark reads only; change the store with chronicle sql")


def task_processors() -> int:
    """Processors of this task (``spark.task.cpus``); 1 on the driver."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return max(1, context.cpus()) if context is not None else 1


@contextmanager
def query_engine(catalog: PinnedCatalog) -> Iterator[QueryEngine]:
    """An engine over a catalog for the block, with a thread per processor of the task."""
    engine = QueryEngine(catalog, memory_bytes=MEMORY_BYTES, threads=task_processors())
    try:
        yield engine
    finally:
        engine.close()
        catalog.close()


def bare(schema: pa.Schema) -> pa.Schema:
    """The schema with all columns nullable."""
    return pa.schema([field.with_nullable(True) for field in schema])


class QueryPartition(InputPartition):
    def __init__(self, part: Part, pins: dict[str, Pin]) -> None:
        super().__init__(None)
        self.part = part
        self.pins = pins


def query_tree(text: str) -> Any:
    """The syntax tree of a query; SqlError for other statements."""
    tree = parse_statement(text)
    if isinstance(tree, StatementNode | exp.Insert) or not isinstance(tree, exp.Query):
        raise SqlError("option 'query' takes a SELECT; change the store with chronicle sql")
    return tree
