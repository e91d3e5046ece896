"""The embedded database: one directory of event streams, opened, changed and queried.

Purpose
    :class:`Database` is the one place that wires the layers together: the store that keeps events,
    the secondary indexes beside it, and the query engine above both.  Every face of Chronicle
    (command line, server, Spark, ingest) goes through it.

Guarantee
    Loading this module loads neither DuckDB nor sqlglot; the first SQL text does.  A database
    opened with ``mode="r"`` changes nothing and takes no lock.  All methods may be called from any
    thread, and from no process but the one that opened it.  A program that ends without closing a
    database has it closed then.

Limits
    One process writes to a store at a time; others open it with ``mode="r"`` and see its last
    committed state as of each call.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .append_result import AppendResult
from .changing_database import ChangingDatabase
from .errors import (
    InvalidArgument,
    ReadOnlyStore,
    StoreClosed,
)
from .framed_database import FramedDatabase
from .live_database import LiveDatabase
from .ownership import LOADING, Owner
from .schema import StreamSchema, stream_schema
from .store import EventStream, Store, StreamOptions, StreamReader
from .store.object_store import object_store
from .store.views import Views
from .streams import Stream
from .uniqueness import stream_settings
from .viewing_database import ViewingDatabase

if TYPE_CHECKING:
    from .live.engine import LiveQueries
    from .query.contract.access import Access, Tell
    from .query.contract.cancellation import Cancellation, QueryControl
    from .query.contract.explanation import Plan
    from .query.contract.result import Result
    from .query.contract.rollups import Rollup
    from .query.engine import QueryEngine
    from .store import CheckReport, Snapshot

__all__ = ["Database", "open_database"]

logger = logging.getLogger("chronicle.database")

QUERY_MEMORY_BYTES = 1 << 30
"""Memory that the relational part of all running queries may take before it spills to disk."""

Parameters = Mapping[str, Any] | Sequence[Any]


_OPEN: weakref.WeakSet[Database] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    """Close what a program has left open, so that no thread is in the middle of it at the end."""
    for database in list(_OPEN):
        with contextlib.suppress(Exception):
            database.close()


class Database(ViewingDatabase, ChangingDatabase, LiveDatabase, FramedDatabase):
    """A store that is open; made by :func:`chronicle.open`, also a context manager.

    Parameters
    ----------
    store : Store
        Opened store; the database closes it.
    query_memory_bytes : int
        Memory limit of the relational executor.
    query_threads : int, optional
        Its threads; by default one per processor.
    isolation : {"none", "process"}
        Where it runs; see :func:`chronicle.open`.
    """

    def __init__(
        self,
        store: Store,
        *,
        query_memory_bytes: int = QUERY_MEMORY_BYTES,
        query_threads: int | None = None,
        isolation: str = "none",
    ) -> None:
        super().__init__()
        self._store = store
        with LOADING:
            from .indexes import StoreIndexes

        self._indexes = StoreIndexes(store)
        self._views = Views(store.files, store.mode)
        self._streams: dict[str, Stream] = {}
        self._engine: QueryEngine | None = None
        self._live: LiveQueries | None = None
        self._runs_live = False
        self._guard = threading.RLock()
        self._closed = False
        self._owner = Owner(f"the store {store.path}")
        _OPEN.add(self)
        self._query_memory_bytes = query_memory_bytes
        self._query_threads = query_threads or os.cpu_count() or 1
        self.isolation = isolation
        if store.mode == "rw":
            self._hold_for_rollups(store.files)

    @property
    def path(self) -> Path:
        """Directory of the store."""
        return Path(self._store.path)

    @property
    def mode(self) -> str:
        """``"rw"`` or ``"r"``."""
        return str(self._store.mode)

    @property
    def store(self) -> Store:
        """The store below; for the layers that check, repair and back up."""
        self._check_open()
        return self._store

    # ------------------------------------------------------------------ streams

    def create_stream(
        self,
        name: str,
        schema: pa.Schema | StreamSchema,
        time: str | None = None,
        *,
        retention: str | int | None = None,
        codec: str = "lz4",
        unique: str | Sequence[str] | None = None,
        within: str | int | None = None,
        if_not_exists: bool = False,
        options: Mapping[str, Any] | None = None,
        events: pa.Table | Iterable[pa.RecordBatch] | None = None,
    ) -> Stream:
        """Create a stream.

        Parameters
        ----------
        name : str
        schema : pyarrow.Schema
            Columns, the time attribute among them.
        time : str
            Name of the time attribute: a timestamp or an integer column.
        retention : str or int, optional
            ``"30 days"``, from the newest event, or a size such as ``"10 GB"``: exact to a leaf.
        codec : {"lz4", "zstd", "none"}
        unique, within : optional
            Columns of a key, ``"device, seq"``, and a span of time, ``"1 hour"``: an event with a
            key that is stored so near to it in time is not stored again.
        if_not_exists : bool
            Give back the stream when there is one with the same schema.
        options : mapping, optional
            Further settings, see :class:`chronicle.store.StreamOptions`.
        events : pyarrow.Table or iterable of pyarrow.RecordBatch, optional
            Events that a new stream holds from the beginning, in the schema's columns and any
            order: it is there with all of them, or not at all.  Of an iterable, such as a
            ``RecordBatchReader``, a few batches are held at a time.

        Raises
        ------
        StreamExists, InvalidArgument, InvalidData, UnsupportedType, ReadOnlyStore
        """
        self._check_writable(f"create the stream {name!r}")
        made = stream_schema(name, schema, time)
        try:
            settings = StreamOptions(
                codec=codec,
                retention=None if retention is None else str(retention),
                **stream_settings(options, unique, within),
            )
        except TypeError:
            known = [field.name for field in fields(StreamOptions)]
            unknown = [name for name in options or () if name not in known]
            raise InvalidArgument(
                f"unknown setting of a stream: {', '.join(unknown) or 'codec or retention twice'} "
                f"(options are {', '.join(known)})"
            ) from None
        self._store.create_stream(name, made, settings, if_not_exists=if_not_exists, events=events)
        return self.stream(name)

    def stream(self, name: str) -> Stream:
        """The stream of that name; raises :class:`StreamNotFound` with the nearest names."""
        self._check_open()
        handle = self._store.stream(name)
        known = self._streams.get(name)
        if known is None or known.handle is not handle:
            known = self._streams[name] = Stream(self, handle)
        return known

    def streams(self) -> list[str]:
        """Names of all streams, sorted."""
        self._check_open()
        return sorted(self._store.streams())

    def damaged(self) -> dict[str, str]:
        """Streams that are set aside because they cannot be opened, each with what is wrong.

        They are among :meth:`streams`, whatever is asked of one raises :class:`CorruptStore`, and
        the others are served.  :meth:`check` repairs them, :meth:`drop_stream` removes them.
        """
        self._check_open()
        return self._store.damaged()

    def _remove_stream(self, name: str) -> None:
        self._streams.pop(name, None)
        try:
            with self._indexes.dropping(name):
                self._store.drop_stream(name)
        except OSError as error:
            if name in self._store.streams():
                raise
            # It is dropped; what others were writing beside it meanwhile is named by nothing.
            logger.warning("%s: not all files of the dropped stream were removed: %s", name, error)

    # -------------------------------------------------------------------- query

    def sql(
        self,
        text: str,
        params: Parameters | None = None,
        timeout: float | None = None,
        *,
        read_only: bool = False,
        cancellation: Cancellation | None = None,
        visible: Callable[[str], bool] | None = None,
        allowed: Callable[[Access], None] | None = None,
        tell: Tell | None = None,
    ) -> Result:
        """Run one SQL statement.

        Parameters
        ----------
        text : str
            One statement of the dialect described in ``docs/sql.md``.
        params : mapping or sequence, optional
            Values for ``$name`` (mapping) or ``?`` and ``$1`` (sequence).
        timeout : float, optional
            Seconds after which the query, its result included, ends with :class:`QueryTimeout`.
        read_only : bool
            Refuse statements that change the store, whatever its mode.
        cancellation : Cancellation, optional
            A token by which another thread can end the query with :class:`QueryCancelled`.
        visible : callable, optional
            Says by name which streams exist for this caller; all unless given.
        allowed : callable, optional
            Called with what the statement reads and changes, before it is run; raises when it may
            not be.
        tell : callable, optional
            Gives this caller's rows of ``chronicle.queries`` and its like; see :meth:`told`.

        Returns
        -------
        Result
            Lazy: rows are computed as they are taken.

        Raises
        ------
        SqlError
            With line and column of what is wrong.
        """
        engine = self._query_engine().seen_by(visible, tell)
        return engine.run(
            text, params, timeout, read_only=read_only, cancellation=cancellation, allowed=allowed
        )

    def sql_at_once(
        self,
        text: str,
        timeout: float | None = None,
        *,
        visible: Callable[[str], bool] | None = None,
        **more: Any,
    ) -> Result | None:
        """Run a query, as :meth:`sql` does, if it is surely about a millisecond's work.

        For an event loop.  None for other statements, and for a text that was never run before.
        """
        return self._query_engine().seen_by(visible).at_once(text, timeout, **more)

    def access(self, text: str, visible: Callable[[str], bool] | None = None) -> Access:
        """What a statement reads and changes, without running it; ``visible`` as of :meth:`sql`.

        Raises
        ------
        SqlError
        """
        return self._query_engine().seen_by(visible).access(text)

    def explain(
        self,
        text: str,
        analyze: bool = False,
        params: Parameters | None = None,
        timeout: float | None = None,
        visible: Callable[[str], bool] | None = None,
        allowed: Callable[[Access], None] | None = None,
        tell: Tell | None = None,
    ) -> Plan:
        """Plan a query, and with ``analyze`` run it and say what it read.

        ``visible``, ``allowed`` and ``tell`` as of :meth:`sql`.

        Returns
        -------
        Plan
            ``str(plan)`` is a tree for people, ``plan.to_dict()`` the same for programs.
        """
        engine = self._query_engine().seen_by(visible, tell)
        return engine.explain(text, params, analyze=analyze, timeout=timeout, allowed=allowed)

    def snapshot(self, name: str) -> Snapshot:
        """A consistent view of a stream as of now, beside and below all writing."""
        self._check_open()
        return self.view(self._store.stream(name))

    @staticmethod
    def view(handle: EventStream | StreamReader) -> Snapshot:
        """The newest snapshot of a handle; a reader looks at the last commit first."""
        if isinstance(handle, StreamReader):
            handle.refresh()
        return handle.snapshot()

    # ------------------------------------------------------------- live queries

    def await_live(self, stream: str) -> None:
        """Wait for live queries with a limit on their lag, after an append to a stream."""
        if self._live is not None:
            self._live.keep_up(stream)

    @property
    def live_statements(self) -> LiveQueries:
        """Those who carry out statements about live queries."""
        self._check_open()
        with LOADING:
            from .live.engine import LiveQueries

        with self._guard:
            if self._live is None:
                self._live = LiveQueries(self._store, self._query_engine, self._remove_stream)
                if self._runs_live:
                    self._live.start()
            return self._live

    def run_in_background(self) -> None:
        """Have live queries run in this process, as soon as there are any."""
        self._runs_live = True
        if self._store.files.exists("live"):
            _ = self.live_statements

    # ------------------------------------------------- what the query layer asks (Catalog)

    def stream_schema(self, name: str) -> StreamSchema:
        """Schema of a stream; raises :class:`StreamNotFound`."""
        self._check_open()
        return self._store.stream(name).schema

    def append_arrow(self, name: str, data: pa.Table) -> AppendResult:
        """Append a table."""
        return self.stream(name).append(data)

    def create_index(
        self,
        name: str,
        attribute: str,
        wait: bool = True,
        *,
        lag_events_max: int | None = None,
    ) -> None:
        """Build a secondary index; the arguments are those of :meth:`Stream.create_index`."""
        self._check_writable(f"index {name!r}")
        self._indexes.create(name, attribute, wait, lag_events_max)

    def drop_index(self, name: str, attribute: str) -> None:
        """Remove a secondary index; raises :class:`IndexNotFound`."""
        self._check_writable(f"drop an index of {name!r}")
        self._indexes.drop(name, attribute)

    def list_indexes(self, name: str) -> list[dict[str, Any]]:
        """The secondary indexes of a stream."""
        self.stream_schema(name)
        return list(self._indexes.list(name))

    def indexes_of(self, name: str) -> Any:
        """The built indexes of a stream, for plans; None without any."""
        return self._indexes.of(name)

    def rollups_of(self, name: str) -> Sequence[Rollup]:
        """The roll-ups of a stream, for plans."""
        if self._live is None and not self._store.files.exists("live"):
            return ()
        return self.live_statements.rollups_of(name)

    def stream_options(self, name: str) -> dict[str, Any]:
        """Settings of a stream."""
        self._check_open()
        return self._store.stream(name).options.to_json()

    def told(self, table: str) -> Sequence[Mapping[str, Any]]:
        """Rows of ``chronicle.settings``; what runs is known to who runs it, a server."""
        shown = ("path", "mode", "isolation") if table == "settings" else ()
        return [{"name": name, "value": str(getattr(self, name))} for name in shown]

    def filtered_scan(
        self,
        name: str,
        snapshot: Snapshot,
        predicate: str,
        start: int | None,
        end: int | None,
        columns: list[str],
        limit: int | None,
        control: QueryControl | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Events of a snapshot that satisfy a SQL predicate; times in ticks."""
        return self._query_engine().scan(
            name, snapshot, predicate, start, end, columns, limit, control
        )

    def passing(
        self, name: str, snapshot: Snapshot, predicate: str, control: QueryControl | None = None
    ) -> pa.BooleanArray:
        """Of each event of a snapshot, in its order, whether it satisfies a SQL predicate."""
        return self._query_engine().passing(name, snapshot, predicate, control)

    def _query_engine(self) -> QueryEngine:
        self._check_open()
        engine = self._engine
        if engine is None:
            with LOADING:
                from .query.engine import QueryEngine

            with self._guard:
                if self._engine is None:
                    self._engine = QueryEngine(
                        self,
                        memory_bytes=self._query_memory_bytes,
                        threads=self._query_threads,
                        isolation=self.isolation,
                    )
                engine = self._engine
        return engine

    def begin_workers(self) -> None:
        """Start what makes the workers of an isolated executor, without waiting for it."""
        if self.isolation == "process":
            self._query_engine()

    def serves(self, seconds: float) -> bool:
        """Whether SQL is answered, within so long; trouble goes to the log."""
        return self._query_engine().serves(seconds)

    def warm_workers(self, count: int = 1) -> None:
        """Have workers of an isolated executor wait for queries; blocks until they do."""
        if self.isolation == "process":
            self._query_engine().warm(count)

    # ---------------------------------------------------------------- life cycle

    def backup(self, path: str | os.PathLike[str], *, name: str | None = None) -> None:
        """Write a consistent copy of the store, with its indexes, while writing goes on.

        To a new directory, or to objects (``s3://bucket/prefix``) under a ``name``, or the time.
        """
        self._check_open()
        self._store.backup(path, lambda target: self._indexes.backup(Path(target)), name)

    def check(self, repair: bool = False) -> CheckReport:
        """Verify every checksum, order and aggregate of the store, and every index.

        With ``repair``, save what can be saved of damaged streams and rebuild indexes that differ
        from their events.
        """
        with LOADING:
            from .store.check import CheckReport, Problem
            from .store.progress import each

        self._check_open()
        report = CheckReport()
        for what in each(("streams", "indexes")):
            if what == "streams":
                report = self._store.check(repair=repair)
                continue
            for problem in self._indexes.check(repair):
                name, _, said = problem.partition(": ")
                report.problems.append(Problem(name, "indexes", said))
        return report

    def close(self) -> None:
        """Flush and release the store; closing twice is fine, any other use afterwards is not.

        In a forked child this does nothing: the store is its parent's.
        """
        if not self._owner.here:
            return
        with self._guard:
            if self._closed:
                return
            self._closed = True
            engine, self._engine = self._engine, None
            live, self._live = self._live, None
            self._streams.clear()
        try:
            if live is not None:
                live.close()
            if engine is not None:
                engine.close()
            self._indexes.close()
        finally:
            self._store.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else self.mode
        return f"<chronicle.Database {str(self._store.path)!r} {state}>"

    def _check_open(self) -> None:
        self._owner.check()
        if self._closed:
            raise StoreClosed(f"the database {str(self._store.path)!r} was closed; open it again")

    def _check_writable(self, what: str) -> None:
        self._check_open()
        if self.mode == "r":
            raise ReadOnlyStore(
                f"cannot {what}: the store was opened with mode='r'; open it with mode='rw'"
            )


def open_database(
    path: str | os.PathLike[str],
    mode: str = "rw",
    *,
    query_memory_bytes: int = QUERY_MEMORY_BYTES,
    query_threads: int | None = None,
    isolation: str = "none",
    live: bool = False,
    objects: str | None = None,
) -> Database:
    """Open a store, as :func:`chronicle.open` documents it."""
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
    database = Database(
        store,
        query_memory_bytes=query_memory_bytes,
        query_threads=query_threads,
        isolation=isolation,
    )
    try:
        if live:
            database.run_in_background()
        if place is not None:
            store.move_to(place)
    except BaseException:
        database.close()
        raise
    return database
