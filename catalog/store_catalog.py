"""The parts of an open store, wired together: what the query layer, the server and the tools use.

:class:`StoreCatalog` has the store, the secondary indexes beside it, the views, and, once they are
asked for, the query engine and the live queries.  It implements the query layer's ``Catalog`` and
``Changes``.  ``Database`` is what users see of it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..core.ownership import LOADING, Owner
from ..errors import (
    InvalidArgument,
    StoreClosed,
    StreamExists,
    StreamNotFound,
    StreamOwned,
)
from ..schema import StreamSchema, stream_settings
from ..store.commits import Commits
from ..store.object_store import object_store
from ..store.options import StreamOptions
from ..store.schema_change import widen_attribute
from ..store.store import Store
from ..store.stream import EventStream, StreamReader
from ..store.views import StoredView, Views
from .streams import Stream, handle_of

if TYPE_CHECKING:
    from ..live.engine import LiveQueries
    from ..query.contract.catalog import Rollup
    from ..query.contract.frames import Frame
    from ..query.engine import QueryEngine
    from ..store.file_contract import Files
    from ..store.snapshot import Snapshot

logger = logging.getLogger("chronicle.database")

QUERY_MEMORY_BYTES = 1 << 30

_OPEN: weakref.WeakSet[StoreCatalog] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    for catalog in list(_OPEN):
        with contextlib.suppress(Exception):
            catalog.close()


class StoreCatalog:
    """An open store with its indexes, views, query engine and live queries."""

    def __init__(
        self,
        store: Store,
        memory_bytes: int = QUERY_MEMORY_BYTES,
        threads: int | None = None,
        isolation: str = "none",
    ) -> None:
        self.store = store
        self.path = Path(store.path)
        self.mode = str(store.mode)
        with LOADING:
            from ..indexes.manager import StoreIndexes

        self.indexes = StoreIndexes(store)
        self._views = Views(store.files, store.mode)
        self._streams: dict[str, Stream] = {}
        self.frames: Mapping[str, Frame] = {}
        """Registered frames, by lower-case name."""
        self.served = False
        self._engine: QueryEngine | None = None
        self._live: LiveQueries | None = None
        self._runs_live = False
        self._guard = threading.RLock()
        self.closed = False
        self.owner = Owner(f"the store {store.path}")
        _OPEN.add(self)
        self._memory_bytes = memory_bytes
        self._threads = threads or os.cpu_count() or 1
        self.isolation = isolation
        if store.mode == "rw":
            self._hold_for_rollups(store.files)

    # ------------------------------------------------------------------ streams

    def create_stream(
        self,
        name: str,
        schema: StreamSchema,
        *,
        retention: str | int | None = None,
        codec: str = "lz4",
        unique: str | Sequence[str] | None = None,
        within: str | int | None = None,
        if_not_exists: bool = False,
        options: Mapping[str, Any] | None = None,
        events: pa.Table | Iterable[pa.RecordBatch] | None = None,
    ) -> Stream:
        """Create a stream; the arguments are those of ``Database.create_stream``."""
        self.check_writable(f"create the stream {name!r}")
        try:
            settings = StreamOptions(
                codec=codec,
                retention=None if retention is None else str(retention),
                **stream_settings(options, unique, within),
            )
        except TypeError:
            valid = [field.name for field in fields(StreamOptions)]
            unknown = [name for name in options or () if name not in valid]
            raise InvalidArgument(
                f"unknown setting of a stream: {', '.join(unknown) or 'codec or retention twice'} "
                f"(options are {', '.join(valid)})"
            ) from None
        self.store.create_stream(name, schema, settings, if_not_exists=if_not_exists, events=events)
        return self.stream(name)

    def handle(self, name: str) -> EventStream | StreamReader:
        """The stream of the store; raises :class:`StreamNotFound` with the nearest names."""
        self.check_open()
        return self.store.stream(name)

    def stream(self, name: str) -> Stream:
        """What users have of a stream; the same object each time."""
        handle = self.handle(name)
        cached = self._streams.get(name)
        if cached is None or handle_of(cached) is not handle:
            cached = self._streams[name] = Stream(self, handle)
        return cached

    def streams(self) -> list[str]:
        self.check_open()
        return sorted(self.store.streams())

    def damaged(self) -> dict[str, str]:
        self.check_open()
        return self.store.damaged()

    def _remove_stream(self, name: str) -> None:
        self._streams.pop(name, None)
        try:
            with self.indexes.dropping(name):
                self.store.drop_stream(name)
        except OSError as error:
            if name in self.store.streams():
                raise
            # It is dropped; what others were writing beside it meanwhile is named by nothing.
            logger.warning("%s: not all files of the dropped stream were removed: %s", name, error)

    def drop_stream(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        self.check_writable(f"drop the stream {name!r}")
        if if_exists and name not in self.streams():
            return
        if self.store.files.exists("live"):
            self.live_statements.check_drop(name)
        if name in self.store.streams():
            self._drop_readers(name, cascade, "stream")
        self._remove_stream(name)

    def rename_stream(self, name: str, to: str) -> None:
        self.writer(name, "rename")
        if to == name:
            return
        self._check_unread(name)
        self._drop_readers(name, False, "stream")
        self._streams.pop(name, None)
        with self.indexes.dropping(name):
            self.store.rename_stream(name, to)
        self.indexes.attach(to)

    def widen_column(self, name: str, column: str, type_: pa.DataType) -> None:
        """Give an attribute a type that holds all values of its old one."""
        stream = self.writer(name, "alter a column of")
        self._check_unread(name)

        def change(commits: Commits) -> None:
            schema = commits.schema
            with self.indexes.widening(name, schema, schema.attribute(column), type_):
                widen_attribute(commits, column, type_)

        stream.alter(change)

    def alter_column(self, name: str, change: Callable[..., None], *values: Any) -> None:
        """Change an attribute of a stream; its index follows."""
        stream = self.writer(name, "alter a column of")
        self._check_unread(name)
        stream.alter(change, *values)
        self.indexes.follow(name)

    def _check_unread(self, name: str) -> None:
        """Refuse a change that would break live queries on the stream."""
        if self.store.files.exists("live"):
            self.live_statements.check_drop(name)

    def writer(self, name: str, what: str) -> EventStream:
        """The stream, if it can be changed."""
        self.check_open()
        return self.store.writer(name, what)

    def views(self) -> Mapping[str, StoredView]:
        """All views by name, sorted, with their queries, sources and columns."""
        self.check_open()
        return self._views.all()

    def create_view(self, view: StoredView, *, replace: bool = False) -> None:
        self.check_writable(f"create the view {view.name!r}")
        taken = [*self.store.streams(), *(() if replace else self._views.all())]
        if any(name.lower() == view.name.lower() for name in taken):
            raise StreamExists(f"{view.name!r} is the name of a stream or view already")
        self._views.keep(view)

    def drop_view(self, name: str, *, cascade: bool = False) -> None:
        self.check_writable(f"drop the view {name!r}")
        if name not in self._views.all():
            raise StreamNotFound(f"there is no view {name!r}")
        self._drop_readers(name, cascade, "view")
        self._views.drop([name])

    def _drop_readers(self, name: str, cascade: bool, what: str) -> None:
        """Drop the views that read a stream or view; refuse unless ``cascade``."""
        readers = self._views.reading(name)
        if readers and not cascade:
            raise StreamOwned(
                f"the {what} {name!r} is read by the views {', '.join(readers)}: drop them first, "
                f"or say DROP {what.upper()} ... CASCADE"
            )
        if readers:
            self._views.drop(readers)

    def serve_only_streams(self) -> None:
        """Drop all frames and refuse new ones: a server shares this store."""
        self.served, self.frames = True, {}

    def snapshot(self, name: str) -> Snapshot:
        """A consistent view of a stream as of now."""
        return self.view(self.handle(name))

    @staticmethod
    def view(handle: EventStream | StreamReader) -> Snapshot:
        """The newest snapshot of a handle; a reader looks at the last commit first."""
        if isinstance(handle, StreamReader):
            handle.refresh()
        return handle.snapshot()

    def _hold_for_rollups(self, files: Files) -> None:
        """Load live queries where there are roll-ups: retention waits for them."""
        if not files.exists("live"):
            return
        with LOADING:
            from ..live.definition import stored_definitions

        definitions, _ = stored_definitions(files)
        if any(definition.rollup is not None for definition in definitions.values()):
            _ = self.live_statements

    def await_live(self, stream: str) -> None:
        """After an append: wait for live queries whose lag is limited."""
        if self._live is not None:
            self._live.keep_up(stream)

    @property
    def live_statements(self) -> LiveQueries:
        """The engine of live queries."""
        self.check_open()
        with LOADING:
            from ..live.engine import LiveQueries

        with self._guard:
            if self._live is None:
                self._live = LiveQueries(self.store, lambda: self.engine, self._remove_stream)
                if self._runs_live:
                    self._live.start()
            return self._live

    def run_in_background(self) -> None:
        """Run live queries in this process, as soon as there are any."""
        self._runs_live = True
        if self.store.files.exists("live"):
            _ = self.live_statements

    def stream_schema(self, name: str) -> StreamSchema:
        """Schema of a stream; raises :class:`StreamNotFound`."""
        return self.handle(name).schema

    @property
    def changes(self) -> StoreCatalog:
        """The catalog itself: what statements may change."""
        return self

    def create_index(
        self,
        name: str,
        attribute: str,
        wait: bool = True,
        *,
        lag_events_max: int | None = None,
    ) -> None:
        """Build a secondary index; the arguments are those of :meth:`Stream.create_index`."""
        self.check_writable(f"index {name!r}")
        self.indexes.create(name, attribute, wait, lag_events_max)

    def drop_index(self, name: str, attribute: str) -> None:
        """Remove a secondary index; raises :class:`IndexNotFound`."""
        self.check_writable(f"drop an index of {name!r}")
        self.indexes.drop(name, attribute)

    def list_indexes(self, name: str) -> list[dict[str, Any]]:
        """The secondary indexes of a stream."""
        self.stream_schema(name)
        return list(self.indexes.list(name))

    def indexes_of(self, name: str) -> Any:
        """The built indexes of a stream, for plans; None without any."""
        return self.indexes.of(name)

    def rollups_of(self, name: str) -> Sequence[Rollup]:
        """The roll-ups of a stream, for plans."""
        if self._live is None and not self.store.files.exists("live"):
            return ()
        return self.live_statements.rollups_of(name)

    def stream_options(self, name: str) -> dict[str, Any]:
        """Settings of a stream."""
        return self.handle(name).options.to_json()

    def owner_rows(self, table: str) -> Sequence[Mapping[str, Any]]:
        """Rows of ``chronicle.settings``; a server adds its own."""
        shown = ("path", "mode", "isolation") if table == "settings" else ()
        return [{"name": name, "value": str(getattr(self, name))} for name in shown]

    @property
    def engine(self) -> QueryEngine:
        """What runs SQL over this database."""
        self.check_open()
        engine = self._engine
        if engine is None:
            with LOADING:
                from ..query.engine import QueryEngine

            with self._guard:
                if self._engine is None:
                    self._engine = QueryEngine(
                        self,
                        memory_bytes=self._memory_bytes,
                        threads=self._threads,
                        isolation=self.isolation,
                    )
                engine = self._engine
        return engine

    def close(self) -> None:
        if not self.owner.here:
            return
        with self._guard:
            if self.closed:
                return
            self.closed = True
            engine, self._engine = self._engine, None
            live, self._live = self._live, None
            self._streams.clear()
        try:
            if live is not None:
                live.close()
            if engine is not None:
                engine.close()
            self.indexes.close()
        finally:
            self.store.close()

    def check_open(self) -> None:
        self.owner.check()
        if self.closed:
            raise StoreClosed(f"the database {str(self.store.path)!r} was closed; open it again")

    def check_writable(self, what: str) -> None:
        self.check_open()
        self.store.check_writable(what)


def open_catalog(
    path: str | os.PathLike[str],
    mode: str = "rw",
    *,
    query_memory_bytes: int = QUERY_MEMORY_BYTES,
    query_threads: int | None = None,
    isolation: str = "none",
    live: bool = False,
    objects: str | None = None,
) -> StoreCatalog:
    """Open a store; the arguments are those of :func:`chronicle.open`."""
    if live and mode == "r":
        raise InvalidArgument("live queries run where the store is open for writing: mode='rw'")
    if objects is not None and mode == "r":
        raise InvalidArgument("segments are moved where the store is open for writing: mode='rw'")
    place = None if objects is None else object_store(objects)
    if mode not in ("rw", "r"):
        raise InvalidArgument(f"mode is 'rw' or 'r', found {mode!r}")
    if isolation not in ("none", "process"):
        raise InvalidArgument(f"isolation is 'none' or 'process', found {isolation!r}")
    if isinstance(path, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path):
        raise InvalidArgument(
            f"a store is a directory, found the address {path!r}; a server is spoken to by "
            "chronicle.connect(url) (docs/clients.md), by `chronicle sql --url`, or from Spark by "
            "option('url', ...)"
        )
    store = Store.open(path, mode=mode)
    catalog = StoreCatalog(store, query_memory_bytes, query_threads, isolation)
    try:
        if live:
            catalog.run_in_background()
        if place is not None:
            store.move_to(place)
    except BaseException:
        catalog.close()
        raise
    return catalog
