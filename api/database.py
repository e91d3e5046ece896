"""The embedded database: one directory of event streams, opened, changed and queried.

:class:`Database` wires the layers together: the store that keeps events, the secondary indexes
beside it, the query engine and the live queries above.  Every face (command line, server, Spark,
ingest) uses it.

Guarantees
    Loading this module loads neither DuckDB nor sqlglot; the first SQL text does.  ``mode="r"``
    changes nothing and takes no lock.  Any thread of the process that opened a database may call
    its methods.  A database that is still open when the program ends is closed then.

Limits
    One process writes to a store at a time; others open it with ``mode="r"`` and see the last
    commit as of each call.
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
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..core.append_result import AppendResult
from ..core.ownership import LOADING, Owner
from ..core.suggestion import did_you_mean
from ..errors import (
    InvalidArgument,
    ReadOnlyStore,
    StoreClosed,
    StreamExists,
    StreamNotFound,
    StreamOwned,
    no_rollup,
)
from ..schema import StreamSchema, stream_schema, stream_settings
from ..store.commits import Commits
from ..store.moving import Moved, move_due
from ..store.object_store import object_store
from ..store.options import StreamOptions, retention_limits
from ..store.progress import each
from ..store.schema_change import drop_attribute, rename_attribute, set_options, widen_attribute
from ..store.segment import TICK_MAX, TICK_MIN
from ..store.store import Store
from ..store.stream import EventStream, StreamReader
from ..store.views import StoredView, Views
from .streams import Stream

if TYPE_CHECKING:
    from ..live.engine import LiveHandle, LiveQueries
    from ..query.contract.access import Access, Tell
    from ..query.contract.cancellation import Cancellation
    from ..query.contract.catalog import Rollup
    from ..query.contract.explanation import Plan
    from ..query.contract.frames import Frame
    from ..query.contract.result import Result
    from ..query.engine import QueryEngine
    from ..store.check import CheckReport
    from ..store.deleting import Change, Choice
    from ..store.file_contract import Files
    from ..store.snapshot import Snapshot

logger = logging.getLogger("chronicle.database")

QUERY_MEMORY_BYTES = 1 << 30

Parameters = Mapping[str, Any] | Sequence[Any]


_OPEN: weakref.WeakSet[Database] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    for database in list(_OPEN):
        with contextlib.suppress(Exception):
            database.close()


class Database:
    """An open store; :func:`chronicle.open` makes it.  Also a context manager."""

    def __init__(
        self,
        store: Store,
        *,
        query_memory_bytes: int = QUERY_MEMORY_BYTES,
        query_threads: int | None = None,
        isolation: str = "none",
    ) -> None:
        self._store = store
        with LOADING:
            from ..indexes.manager import StoreIndexes

        self._indexes = StoreIndexes(store)
        self._views = Views(store.files, store.mode)
        self._streams: dict[str, Stream] = {}
        self._frames: dict[str, Frame] = {}
        self._frames_guard = threading.Lock()
        self._served = False
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
            ``"30 days"`` before the newest event, or a size such as ``"10 GB"``: exact to a leaf.
        codec : {"lz4", "zstd", "none"}
        unique, within : optional
            Columns of a key, ``"device, seq"``, and a span of time, ``"1 hour"``: an event is not
            stored again if one with its key is stored within that time.
        if_not_exists : bool
            Return the existing stream if it has the same schema.
        options : mapping, optional
            Further settings, see :class:`chronicle.store.StreamOptions`.
        events : pyarrow.Table or iterable of pyarrow.RecordBatch, optional
            First events, in any order.  The stream is created with all of them or not at all; a few
            batches of an iterable are in memory at a time.

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
            valid = [field.name for field in fields(StreamOptions)]
            unknown = [name for name in options or () if name not in valid]
            raise InvalidArgument(
                f"unknown setting of a stream: {', '.join(unknown) or 'codec or retention twice'} "
                f"(options are {', '.join(valid)})"
            ) from None
        self._store.create_stream(name, made, settings, if_not_exists=if_not_exists, events=events)
        return self.stream(name)

    def stream(self, name: str) -> Stream:
        """The stream of that name; raises :class:`StreamNotFound` with the nearest names."""
        self._check_open()
        handle = self._store.stream(name)
        cached = self._streams.get(name)
        if cached is None or cached.handle is not handle:
            cached = self._streams[name] = Stream(self, handle)
        return cached

    def streams(self) -> list[str]:
        """Names of all streams, sorted."""
        self._check_open()
        return sorted(self._store.streams())

    def damaged(self) -> dict[str, str]:
        """Streams that cannot be opened, each with the reason.

        :meth:`streams` lists them; other calls on them raise :class:`CorruptStore`.  :meth:`check`
        repairs them, :meth:`drop_stream` removes them.
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

    def set_options(self, name: str, options: Mapping[str, Any]) -> None:
        """Change settings of a stream."""
        self._written(name, "alter").alter(set_options, **options)

    def drop_stream(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Remove a stream, its events and its indexes; raises :class:`StreamNotFound`.

        Refused (:class:`StreamOwned`) while views read it, unless ``cascade`` drops them too.
        """
        self._check_writable(f"drop the stream {name!r}")
        if if_exists and name not in self.streams():
            return
        if self._store.files.exists("live"):
            self.live_statements.check_drop(name)
        if name in self._store.streams():
            self._drop_readers(name, cascade, "stream")
        self._remove_stream(name)

    def rename_stream(self, name: str, to: str) -> None:
        """Rename a stream; existing handles of it become invalid.

        Raises
        ------
        StreamNotFound, StreamExists, InvalidArgument
        StreamOwned
            Live queries or views read it, or live queries write their results into it.
        """
        self._written(name, "rename")
        if to == name:
            return
        self._check_unread(name)
        self._drop_readers(name, False, "stream")
        self._streams.pop(name, None)
        with self._indexes.dropping(name):
            self._store.rename_stream(name, to)
        self._indexes.attach(to)

    # --------------------------------------------------------------- columns

    def add_column(
        self,
        name: str,
        column: str,
        type_: pa.DataType,
        nullable: bool = True,
        default: Any = None,
    ) -> None:
        """Add an attribute to a stream."""
        stream = self._written(name, "add a column to")
        stream.add_attribute(column, type_, nullable, default)

    def widen_column(self, name: str, column: str, type_: pa.DataType) -> None:
        """Give an attribute a type that holds all values of its old one."""
        stream = self._written(name, "alter a column of")
        self._check_unread(name)

        def change(commits: Commits) -> None:
            with self._indexes.widening(name, commits.schema.attribute(column), type_):
                widen_attribute(commits, column, type_)

        stream.alter(change)

    def rename_column(self, name: str, column: str, to: str) -> None:
        """Give an attribute another name; its index follows."""
        stream = self._written(name, "rename a column of")
        self._check_unread(name)
        stream.alter(rename_attribute, column, to)
        self._indexes.follow(name)

    def drop_column(self, name: str, column: str) -> None:
        """Drop an attribute, with its index."""
        stream = self._written(name, "drop a column of")
        self._check_unread(name)
        stream.alter(drop_attribute, column)
        self._indexes.follow(name)

    def _check_unread(self, name: str) -> None:
        """Refuse a change that would break live queries on the stream."""
        if self._store.files.exists("live"):
            self.live_statements.check_drop(name)

    # ---------------------------------------------------------------- events

    def _written(self, name: str, what: str) -> EventStream:
        """The stream, if it can be changed."""
        self._check_writable(f"{what} {name!r}")
        handle = self._store.stream(name)
        assert isinstance(handle, EventStream)
        return handle

    def delete_events(
        self, name: str, start: int | None, end: int | None, choose: Choice | None
    ) -> int:
        """Delete events of ``[start, end)`` in ticks, or the chosen ones; returns their number."""
        return self._written(name, "delete from").delete(start, end, choose)

    def update_events(
        self, name: str, start: int | None, end: int | None, choose: Choice | None, change: Change
    ) -> int:
        """Update events of ``[start, end)`` in ticks, or the chosen ones; returns their number."""
        return self._written(name, "update").update(start, end, choose, change)

    def move(
        self,
        to: str,
        *,
        stream: str | None = None,
        older_than: str | int | None = None,
        due: bool = False,
    ) -> dict[str, Moved]:
        """Move sealed segments to object storage; queries read them there.

        Their inner nodes stay local: plans, and aggregates over whole leaves, read no object.

        Parameters
        ----------
        to : str
            ``s3://bucket/prefix`` or ``file:///directory``.
        stream : str, optional
            All streams by default, except results of live queries.
        older_than : str or int, optional
            Least age of the youngest event of a segment, ``"90 days"`` or a number of ticks, before
            the newest event of the stream; all sealed segments by default.
        due : bool
            Move what the streams' settings ``move_after`` and ``keep_local_bytes`` demand.

        Returns
        -------
        dict
            Segments and bytes moved, by stream.

        Raises
        ------
        InvalidArgument
            The address or the age is malformed.
        StorageFailed
            Objects cannot be written or read back.  Segments moved before stay moved.
        """
        objects = object_store(to)
        if due and older_than is not None:
            raise InvalidArgument("due goes by the settings of the streams: leave out older_than")
        owner = self._store.identity
        named = [stream] if stream is not None else self._store.streams()
        done = {}
        for name in each(named):
            handle = self._written(name, "move")
            if due:
                done[name] = move_due(handle, objects, owner)
                continue
            if stream is None and handle.commits.manifest.owner is not None:
                continue
            done[name] = handle.move(objects, owner, _before(handle, older_than))
        return done

    def moving(self) -> dict[str, Any] | None:
        """State of background moves, where the store was opened with ``objects``; else None.

        Keys: ``objects`` (the address), ``state`` (``"waiting"`` or ``"failing"``), ``error``,
        ``failing_since`` (Unix time), ``failures`` in a row, ``failed_total``, ``next_try_s``.
        """
        return self._store.moving()

    def purge_indexes(self, name: str) -> None:
        """Remove deleted entries from the files of a stream's indexes."""
        self._indexes.purge(name)

    # ----------------------------------------------------------------- views

    def views(self) -> Mapping[str, StoredView]:
        """All views by name, sorted, with their queries, sources and columns."""
        self._check_open()
        return self._views.all()

    def create_view(self, view: StoredView, *, replace: bool = False) -> None:
        """Save a view whose query was checked; raises :class:`StreamExists`."""
        self._check_writable(f"create the view {view.name!r}")
        taken = [*self._store.streams(), *(() if replace else self._views.all())]
        if any(name.lower() == view.name.lower() for name in taken):
            raise StreamExists(f"{view.name!r} is the name of a stream or view already")
        self._views.keep(view)

    def drop_view(self, name: str, *, cascade: bool = False) -> None:
        """Remove a view, with ``cascade`` also those that read it.

        Raises
        ------
        StreamNotFound, StreamOwned
        """
        self._check_writable(f"drop the view {name!r}")
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

    # ---------------------------------------------------------------- frames

    @property
    def frames(self) -> Mapping[str, Frame]:
        """Registered frames, by lower-case name."""
        return self._frames

    def register(self, name: str, frame: Any) -> None:
        """Let SQL name a table of this program as if it were a stream.

        Only queries of this object see it: no server over it, no live query, no Spark job.  A frame
        takes precedence over a stream that is created later under its name.

        Parameters
        ----------
        name : str
            Case-insensitive; replaces an earlier frame of that name.
        frame : Table, RecordBatch, RecordBatchReader, Dataset, data frame or list of dicts
            Of pyarrow, pandas or polars.  A reader is read at once, a dataset by each query.  Named
            levels of a pandas index become columns.  Times with a zone are converted to UTC.

        Raises
        ------
        InvalidArgument
            A stream has that name, or the frame is no table.
        InvalidData
            Arrow data is not sound.

        Examples
        --------
        >>> db.register("fleet", pandas.read_csv("fleet.csv"))
        >>> db.sql("SELECT * FROM flights JOIN fleet USING (icao24)").df()
        """
        with LOADING:
            from ..query.contract.frames import frame_of

        if not isinstance(name, str) or not name or "\x00" in name:
            raise InvalidArgument(f"a frame is registered under a name, found {name!r}")
        if self._served:
            raise InvalidArgument(
                "frames are for the program that opens a store, and a server is over this one; "
                "open the store once more with mode='r' for queries of the program's own"
            )
        existing = (*self.streams(), *self.views())
        taken = [other for other in existing if other.lower() == name.lower()]
        if taken:
            raise InvalidArgument(
                f"there is a stream or view {taken[0]!r}; give the frame another name"
            )
        made = frame_of(name, frame)
        with self._frames_guard:
            self._frames = {**self._frames, name.lower(): made}

    def unregister(self, name: str) -> None:
        """Remove a frame and release its data; raises :class:`InvalidArgument`."""
        with self._frames_guard:
            frame = self._frames.get(name.lower())
            if frame is None:
                hint = did_you_mean(name, self._frames)
                raise InvalidArgument(f"no frame {name!r} is registered{hint}")
            self._frames = {key: f for key, f in self._frames.items() if f is not frame}
        frame.forget()

    def serve_only_streams(self) -> None:
        """Drop all frames and refuse new ones: a server shares this database."""
        with self._frames_guard:
            self._served, self._frames = True, {}

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
            One statement (``docs/sql.md``).
        params : mapping or sequence, optional
            Values for ``$name`` (mapping) or ``?`` and ``$1`` (sequence).
        timeout : float, optional
            Seconds after which the query, its result included, ends with :class:`QueryTimeout`.
        read_only : bool
            Refuse statements that change the store.
        cancellation : Cancellation, optional
            Lets another thread end the query with :class:`QueryCancelled`.
        visible : callable, optional
            Whether a stream of that name exists for this caller; all by default.
        allowed : callable, optional
            Called before the run with what the statement reads and changes; raises to refuse it.
        tell : callable, optional
            This caller's rows of ``chronicle.queries`` and other system tables; see :meth:`told`.

        Returns
        -------
        Result
            Lazy: rows are computed as they are taken.

        Raises
        ------
        SqlError
            With line and column.
        """
        engine = self.engine.seen_by(visible, tell)
        return engine.run(
            text, params, timeout, read_only=read_only, cancellation=cancellation, allowed=allowed
        )

    def access(self, text: str, visible: Callable[[str], bool] | None = None) -> Access:
        """What a statement reads and changes, without running it; raises :class:`SqlError`."""
        return self.engine.seen_by(visible).access(text)

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
        """Plan a query; with ``analyze``, run it and count what it read.

        The arguments are those of :meth:`sql`.

        Returns
        -------
        Plan
            ``str(plan)`` is a tree for people, ``plan.to_dict()`` the same for programs.
        """
        engine = self.engine.seen_by(visible, tell)
        return engine.explain(text, params, analyze=analyze, timeout=timeout, allowed=allowed)

    def snapshot(self, name: str) -> Snapshot:
        """A consistent view of a stream as of now."""
        self._check_open()
        return self.view(self._store.stream(name))

    @staticmethod
    def view(handle: EventStream | StreamReader) -> Snapshot:
        """The newest snapshot of a handle; a reader looks at the last commit first."""
        if isinstance(handle, StreamReader):
            handle.refresh()
        return handle.snapshot()

    # ------------------------------------------------------------- live queries

    def create_live(
        self,
        name: str,
        sql: str,
        *,
        into: str | None = None,
        start: object = "first",
        delay: object = None,
        idle: object = None,
        late: object = "correct",
        emit: object = "close",
        options: Mapping[str, Any] | None = None,
        if_not_exists: bool = False,
    ) -> LiveHandle:
        """Save a continuous query: its results are put into a stream as they become final.

        Parameters
        ----------
        name : str
            Of the live query, and of the stream of its results unless ``into`` names one.
        sql : str
            A SELECT; ``docs/live.md`` says which.
        into : str, optional
            A stream that several live queries with the same columns share.
        start : "first", "now" or time
            Where results begin.
        delay : timedelta, int or str, optional
            How long to wait for late events; an int where times are integers.
        idle : "never", timedelta or str, optional
            Wall clock without a commit after which the newest time is final; a second.
        late : "correct", "ignore", timedelta, int or str
            What late events do; a duration corrects results that far behind the watermark.
        emit : "close", timedelta or str
            Emit when results are final, or on change at most this often.
        options : mapping, optional
            What follows WITH: ``retention`` and ``durability`` of the results, ``lag_events_max``,
            ``state_bytes_max``, ``on_truncate``, ``store``, ``webhook``.
        if_not_exists : bool
            Return the existing live query of that name.

        Raises
        ------
        SqlError
            With line and column of what cannot be live, and what to write instead.
        """
        with LOADING:
            from ..live.engine import request_of

        request = request_of(
            name, sql, into, start, delay, idle, late, emit, options or {}, if_not_exists
        )
        self.live_statements.create(request)
        return self.live(name)

    def create_rollup(
        self,
        name: str,
        sql: str,
        *,
        delay: object = None,
        idle: object = None,
        options: Mapping[str, Any] | None = None,
        if_not_exists: bool = False,
    ) -> LiveHandle:
        """Save window aggregates that outlive their events and answer queries in their place.

        Parameters
        ----------
        name : str
            Of the roll-up, and of the stream of its results.
        sql : str
            ``SELECT window_start, keys, aggregates FROM TUMBLE(...) GROUP BY ...``
            (``docs/rollups.md``).
        delay, idle, options, if_not_exists : optional
            As of :meth:`create_live`.

        Returns
        -------
        LiveHandle
            ``status()``, ``net()``, ``verify()``, ``refresh()``, ``drop()``.

        Raises
        ------
        SqlError
            With line and column of what a roll-up cannot have.
        """
        with LOADING:
            from ..live.engine import request_of

        request = request_of(
            name, sql, None, "first", delay, idle, "correct", "close", options or {}, if_not_exists
        )
        self.live_statements.create(replace(request, rollup=True))
        return self.rollup(name)

    def rollup(self, name: str) -> LiveHandle:
        """The roll-up of that name; raises :class:`StreamNotFound`."""
        names = self.rollups()
        if name not in names:
            raise no_rollup(name, names)
        return self.live(name)

    def rollups(self) -> list[str]:
        """Names of all roll-ups, sorted."""
        return self.live_statements.rollups()

    def _hold_for_rollups(self, files: Files) -> None:
        """Load live queries where there are roll-ups: retention waits for them."""
        if not files.exists("live"):
            return
        with LOADING:
            from ..live.definition import stored_definitions

        definitions, _ = stored_definitions(files)
        if any(definition.rollup is not None for definition in definitions.values()):
            _ = self.live_statements

    def live(self, name: str) -> LiveHandle:
        """The live query of that name; raises :class:`StreamNotFound`."""
        with LOADING:
            from ..live.engine import LiveHandle

        return LiveHandle(self.live_statements, name)

    def live_queries(self) -> list[str]:
        """Names of all live queries, sorted."""
        return self.live_statements.names()

    def run_live(self, until: str = "caught up", timeout: float | None = None) -> None:
        """Return when every live query has processed every commit so far.

        Without ``live=True`` the work is done in this call.  Raises :class:`QueryTimeout` after
        ``timeout`` seconds.
        """
        if until != "caught up":
            raise InvalidArgument(f"until is 'caught up', found {until!r}")
        self.live_statements.run(timeout)

    def await_live(self, stream: str) -> None:
        """After an append: wait for live queries whose lag is limited."""
        if self._live is not None:
            self._live.keep_up(stream)

    @property
    def live_statements(self) -> LiveQueries:
        """The engine of live queries."""
        self._check_open()
        with LOADING:
            from ..live.engine import LiveQueries

        with self._guard:
            if self._live is None:
                self._live = LiveQueries(self._store, lambda: self.engine, self._remove_stream)
                if self._runs_live:
                    self._live.start()
            return self._live

    def run_in_background(self) -> None:
        """Run live queries in this process, as soon as there are any."""
        self._runs_live = True
        if self._store.files.exists("live"):
            _ = self.live_statements

    # ------------------------------------------------- what the query layer asks (Catalog)

    def stream_schema(self, name: str) -> StreamSchema:
        """Schema of a stream; raises :class:`StreamNotFound`."""
        self._check_open()
        return self._store.stream(name).schema

    @property
    def changes(self) -> Database:
        """The database itself: what statements may change."""
        return self

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
        """Rows of ``chronicle.settings``; a server adds its own."""
        shown = ("path", "mode", "isolation") if table == "settings" else ()
        return [{"name": name, "value": str(getattr(self, name))} for name in shown]

    @property
    def engine(self) -> QueryEngine:
        """What runs SQL over this database."""
        self._check_open()
        engine = self._engine
        if engine is None:
            with LOADING:
                from ..query.engine import QueryEngine

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
        """Start the isolation workers' parent process, without waiting for it."""
        if self.isolation == "process":
            _ = self.engine

    def serves(self, seconds: float) -> bool:
        """Whether SQL is answered within that time; failures go to the log."""
        return self.engine.serves(seconds)

    def warm_workers(self, count: int = 1) -> None:
        """Start isolation workers; blocks until they wait for queries."""
        if self.isolation == "process":
            self.engine.warm(count)

    # ---------------------------------------------------------------- life cycle

    def backup(self, path: str | os.PathLike[str], *, name: str | None = None) -> None:
        """Write a consistent copy of the store and its indexes while writers go on.

        To a new directory, or to objects (``s3://bucket/prefix``) under ``name``, or the time.
        """
        self._check_open()
        self._store.backup(path, lambda target: self._indexes.backup(Path(target)), name)

    def check(self, repair: bool = False) -> CheckReport:
        """Verify every checksum, order and aggregate of the store, and every index.

        ``repair`` saves what can be saved of damaged streams and rebuilds wrong indexes.
        """
        with LOADING:
            from ..store.check import CheckReport, Problem
            from ..store.progress import each

        self._check_open()
        report = CheckReport()
        for what in each(("streams", "indexes")):
            if what == "streams":
                report = self._store.check(repair=repair)
                continue
            for problem in self._indexes.check(repair):
                name, _, text = problem.partition(": ")
                report.problems.append(Problem(name, "indexes", text))
        return report

    def close(self) -> None:
        """Flush and release the store; closing twice is fine.  A no-op in a forked child."""
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


def _before(handle: EventStream, older_than: str | int | None) -> int:
    """The first tick that is younger than ``older_than``."""
    if older_than is None:
        return TICK_MAX
    age, size = retention_limits(str(older_than), handle.schema)
    if age is None or size is not None:
        raise InvalidArgument(f"older_than is an age such as '90 days', found {older_than!r}")
    span = handle.snapshot().time_range
    return TICK_MIN if span is None else max(TICK_MIN, span[1] - age)
