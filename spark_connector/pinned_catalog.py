"""The query engine over pinned streams: the same SQL, in any process, on the same events.

Purpose
    :class:`PinnedCatalog` shows streams of a store to :class:`~chronicle.query.engine.QueryEngine`
    as of pins.  The driver makes the pins as a query names streams; executors open the very same
    ones.

Guarantee
    Read only.  A stream that the driver did not pin is not there for an executor.

Indexes
    A stream's secondary indexes are opened for reading beside the writer, when a plan first asks
    for them.  They may be ahead of the pin or behind it: what an index says of a segment stays
    true, and what it does not cover is replayed.  An index that cannot be opened costs time, not
    answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..errors import ReadOnlyStore, StreamNotFound
from ..indexes.definitions import has_indexes
from ..indexes.stream_indexes import StreamIndexes
from ..query.contract.live import LiveStatements
from ..query.engine import QueryEngine
from ..schema import StreamSchema
from ..store import Snapshot, Store
from ..store.pins import Pin, open_pinned, pin_stream
from ..store.snapshot import StreamState
from ..store.views import KeptView, kept_views

__all__ = ["PinnedCatalog", "bare", "query_engine", "task_processors"]


MEMORY_BYTES = 512 << 20
"""Memory of one task's relational operators before they spill."""


class PinnedCatalog:
    """Streams as of pins.

    Parameters
    ----------
    store : Store
        Opened for reading.
    pins : dict of str to Pin
        By name; extended while `growing`.
    growing : bool
        Pin streams as they are asked for (driver).
    empty : bool
        Show streams without their events, to learn what a query's result looks like.
    ticks : (int or None, int or None)
        Half-open range of time that is read of a stream: only its segments are opened.
    """

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
    def path(self) -> Path | None:
        """Directory of the store, where it has one."""
        local = self._store.files.local_path("")
        return None if local is None else Path(local)

    @property
    def mode(self) -> str:
        """Always ``"r"``."""
        return "r"

    @property
    def live_statements(self) -> LiveStatements:
        """None: they are for the process that writes to the store."""
        raise ReadOnlyStore("statements about live queries are for the process that writes")

    def views(self) -> Mapping[str, KeptView]:
        """The views of the store, as of now."""
        return kept_views(self._store.files)

    def streams(self) -> list[str]:
        """Names of all streams."""
        driver = self._growing or self._empty
        return self._store.streams() if driver else sorted(self.pins)

    @property
    def frames(self) -> dict[str, Any]:
        """None: they stay in the process that registered them."""
        return {}

    def damaged(self) -> dict[str, str]:
        """None of those that were pinned."""
        return {}

    def stream_schema(self, name: str) -> StreamSchema:
        """Schema of a stream."""
        return self.snapshot(name).schema

    def snapshot(self, name: str) -> Snapshot:
        """A stream as of its pin; the same object each time."""
        found = self._snapshots.get(name)
        if found is None:
            found = self._snapshots[name] = self._opened(name)
        return found

    def _opened(self, name: str) -> Snapshot:
        if self._empty:
            schema = self._store.stream(name).schema
            return Snapshot(StreamState(schema, 0, 0, (), (), (), None, 0, 0, None, 0))
        pin = self.pins.get(name)
        if pin is None:
            if not self._growing:
                raise StreamNotFound(f"no stream {name!r} was pinned when the query was planned")
            self._store.stream(name)  # raises, with the names that there are
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
        found = StreamIndexes(Path(place), False)
        if found.attributes:
            return found
        found.close()
        return None

    def close(self) -> None:
        """Close the indexes that were opened."""
        opened, self._indexes = list(self._indexes.values()), {}
        for indexes in opened:
            if indexes is not None:
                indexes.close()

    def rollups_of(self, name: str) -> tuple[()]:
        """None: executors read the stream itself."""
        return ()

    def list_indexes(self, name: str) -> list[dict[str, Any]]:
        """Coverage, runs and size of the indexes of a stream."""
        indexes = self.indexes_of(name)
        if indexes is None:
            return []
        state = self.snapshot(name).state
        return [indexes.figures(attribute, state) for attribute in indexes.attributes]

    def stream_options(self, name: str) -> dict[str, Any]:
        """Settings of a stream."""
        return self._store.stream(name).options.to_json()

    def told(self, table: str) -> tuple[()]:
        """Nothing: what runs is known elsewhere."""
        return ()

    def bounded(self, name: str, start: int | None, end: int | None) -> Snapshot:
        """A stream's pin, opened for a time range only."""
        return open_pinned(self._store.files, self.pins[name], start, end)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise ReadOnlyStore("a query run by Spark reads only; change the store with chronicle sql")

    append_arrow = delete_events = update_events = create_stream = drop_stream = _refuse
    add_column = widen_column = rename_column = drop_column = create_index = drop_index = _refuse
    set_options = rename_stream = create_view = drop_view = _refuse


def task_processors() -> int:
    """Processors that Spark gives this task (``spark.task.cpus``); on the driver 1."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return max(1, context.cpus()) if context is not None else 1


@contextmanager
def query_engine(catalog: PinnedCatalog) -> Iterator[QueryEngine]:
    """An engine over a catalog, for the length of the block.

    It uses as many threads as its task has processors.
    """
    engine = QueryEngine(catalog, memory_bytes=MEMORY_BYTES, threads=task_processors())
    try:
        yield engine
    finally:
        engine.close()
        catalog.close()


def bare(schema: pa.Schema) -> pa.Schema:
    """A result's schema in which every column may be null."""
    return pa.schema([field.with_nullable(True) for field in schema])
