"""The embedded database: one directory of event streams, opened, changed and queried.

:class:`Database` is what users have of an open store; the parts and their wiring are in
``catalog/store_catalog.py``.

Guarantees
    Loading this module loads neither DuckDB nor sqlglot; the first SQL text does.  ``mode="r"``
    changes nothing and takes no lock.  Any thread of the process that opened a database may call
    its methods.  A database that is still open when the program ends is closed then.

Limits
    One process writes to a store at a time; others open it with ``mode="r"`` and see the last
    commit as of each call.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from ..catalog.store_catalog import StoreCatalog, open_catalog
from ..catalog.streams import Stream
from ..core.closing import Closing
from ..core.ownership import LOADING
from ..core.sql_text import parameters_of
from ..core.suggestion import did_you_mean
from ..errors import InvalidArgument, SqlError, StreamExists, no_rollup
from ..schema import StreamSchema, stream_schema
from ..store.moving import Moved, move_due
from ..store.object_store import object_store
from ..store.options import retention_limits
from ..store.progress import each
from ..store.segment import TICK_MAX, TICK_MIN
from ..store.stream import EventStream

if TYPE_CHECKING:
    from ..ingest import IngestReport
    from ..live.engine import LiveHandle
    from ..query.contract.cancellation import Cancellation
    from ..query.contract.explanation import Plan
    from ..query.contract.frames import Frame
    from ..query.contract.result import Result
    from ..query.engine import QueryEngine
    from ..store.check import CheckReport

Parameters = Mapping[str, Any] | Sequence[Any]
T = TypeVar("T")


class Database(Closing):
    """An open store; :func:`chronicle.open` makes it.  Also a context manager."""

    def __init__(self, catalog: StoreCatalog, *, frames: bool = False) -> None:
        self._catalog = catalog
        self._frames_guard = threading.Lock()
        self._finds_frames = frames

    @property
    def path(self) -> Path:
        """Directory of the store."""
        return self._catalog.path

    @property
    def mode(self) -> str:
        """``"rw"`` or ``"r"``."""
        return self._catalog.mode

    # ------------------------------------------------------------------ streams

    def create_stream(
        self,
        name: str,
        schema: Any,
        time: str | None = None,
        *,
        retention: str | int | None = None,
        codec: str = "lz4",
        unique: str | Sequence[str] | None = None,
        within: str | int | None = None,
        if_not_exists: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Stream:
        """Create a stream.

        Parameters
        ----------
        name : str
        schema : pyarrow.Schema, or data
            Columns, the time attribute among them; or what :meth:`ingest` takes, which is stored.
        time : str
            Name of the time attribute: a timestamp or an integer column.  Data that has one column
            like a time needs no name.
        retention : str or int, optional
            ``"30 days"`` before the newest event, or a size such as ``"10 GB"``: exact to a leaf.
        codec : {"lz4", "zstd", "none"}
        unique, within : optional
            Columns of a key, ``"device, seq"``, and a span of time, ``"1 hour"``: an event is not
            stored again if one with its key is stored within that time.
        if_not_exists : bool
            Return the existing stream if it has the same schema; data is stored in a new one only.
        options : mapping, optional
            Further settings, see :class:`chronicle.store.StreamOptions`.

        Raises
        ------
        StreamExists, InvalidArgument, InvalidData, UnsupportedType, ReadOnlyStore
        """
        settings: dict[str, Any] = {"retention": retention, "codec": codec}
        settings |= {"unique": unique, "within": within}
        if isinstance(schema, (pa.Schema, StreamSchema)):
            settings |= {"if_not_exists": if_not_exists, "options": options}
            return self._catalog.create_stream(name, stream_schema(name, schema, time), **settings)
        if options is not None:
            raise InvalidArgument("options go with a schema; append the data afterwards")
        if name in self and not if_not_exists:
            raise StreamExists(f"there is a stream {name!r} already; ingest() appends to it")
        if name not in self:
            texts = {
                key: v if key == "unique" or v is None else str(v) for key, v in settings.items()
            }
            self.ingest(schema, name, time, if_exists="fail", **texts)
        return self.stream(name)

    def ingest(
        self, source: Any, stream: str, time: str | None = None, **options: Any
    ) -> IngestReport:
        """Append the events of files or tables to a stream, which is created if there is none.

        All or nothing; the order of the events does not matter, and memory is bounded.

        Parameters
        ----------
        source : path, table, or several of them
            Files, directories and globs that ``chronicle ingest`` reads; a frame of pandas or
            polars, a table, batch or reader of Arrow, a relation of DuckDB, a list of dicts, or
            anything else with ``__arrow_c_stream__``; a list or generator of these.
        stream : str
        time : str, optional
            Column with the time of the events, for a new stream whose data has several like a time.
        options : optional
            Those of ``chronicle ingest`` (``docs/cli.md``), with underscores: ``types``,
            ``select``, ``time_format``, ``on_error="skip"``, ...

        Returns
        -------
        IngestReport
            ``stored``, ``bad``, ``notes`` and other figures.

        Raises
        ------
        InvalidArgument, InvalidData, SchemaMismatch, StreamExists, UnsupportedType, ReadOnlyStore
            Nothing was stored.
        """
        self._catalog.check_writable(f"ingest into {stream!r}")
        with LOADING:
            from ..ingest.tables import ingest_any

        return ingest_any(self._catalog, source, stream, time, options)

    def stream(self, name: str) -> Stream:
        """The stream of that name, as ``db[name]``; raises :class:`StreamNotFound`."""
        return self._catalog.stream(name)

    __getitem__ = stream

    def __contains__(self, name: object) -> bool:
        return name in self.streams()

    def __iter__(self) -> Iterator[str]:
        return iter(self.streams())

    def streams(self) -> list[str]:
        """Names of all streams, sorted."""
        return self._catalog.streams()

    def damaged(self) -> dict[str, str]:
        """Streams that cannot be opened, each with the reason.

        :meth:`streams` lists them; other calls on them raise :class:`CorruptStore`.  :meth:`check`
        repairs them, :meth:`drop_stream` removes them.
        """
        return self._catalog.damaged()

    def drop_stream(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Remove a stream, its events and its indexes; raises :class:`StreamNotFound`.

        Refused (:class:`StreamOwned`) while views read it, unless ``cascade`` drops them too.
        """
        self._catalog.drop_stream(name, if_exists=if_exists, cascade=cascade)

    def rename_stream(self, name: str, to: str) -> None:
        """Rename a stream; existing handles of it become invalid.

        Raises
        ------
        StreamNotFound, StreamExists, InvalidArgument
        StreamOwned
            Live queries or views read it, or live queries write their results into it.
        """
        self._catalog.rename_stream(name, to)

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
        owner = self._catalog.store.identity
        named = [stream] if stream is not None else self._catalog.store.streams()
        done = {}
        for name in each(named):
            handle = self._catalog.writer(name, "move")
            if due:
                done[name] = move_due(handle, objects, owner)
                continue
            if stream is None and handle.commits.manifest.owner is not None:
                continue
            done[name] = handle.move(objects, owner, _before(handle, older_than))
        return done

    # ---------------------------------------------------------------- frames

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
        if self._catalog.served:
            raise InvalidArgument(
                "frames are for the program that opens a store, and a server is over this one; "
                "open the store once more with mode='r' for queries of the program's own"
            )
        existing = (*self.streams(), *self._catalog.views())
        taken = [other for other in existing if other.lower() == name.lower()]
        if taken:
            raise InvalidArgument(
                f"there is a stream or view {taken[0]!r}; give the frame another name"
            )
        made = frame_of(name, frame)
        with self._frames_guard:
            self._catalog.frames = {**self._catalog.frames, name.lower(): made}

    def unregister(self, name: str) -> None:
        """Remove a frame and release its data; raises :class:`InvalidArgument`."""
        with self._frames_guard:
            frames = self._catalog.frames
            frame = frames.get(name.lower())
            if frame is None:
                hint = did_you_mean(name, frames)
                raise InvalidArgument(f"no frame {name!r} is registered{hint}")
            self._catalog.frames = {key: f for key, f in frames.items() if f is not frame}
        frame.forget()

    # -------------------------------------------------------------------- query

    def sql(
        self,
        text: str,
        /,
        params: Parameters | None = None,
        timeout: float | None = None,
        *,
        read_only: bool = False,
        cancellation: Cancellation | None = None,
        **values: Any,
    ) -> Result:
        """Run one SQL statement.

        Parameters
        ----------
        text : str
            One statement (``docs/sql.md``).  A name that is no stream may be a variable of the
            caller that holds a table, as in :meth:`register`, unless the store was opened with
            ``frames=False``.
        params : mapping or sequence, optional
            Values for ``$name`` (mapping) or ``?`` and ``$1`` (sequence).
        timeout : float, optional
            Seconds after which the query, its result included, ends with :class:`QueryTimeout`.
        read_only : bool
            Refuse statements that change the store.
        cancellation : Cancellation, optional
            Lets another thread end the query with :class:`QueryCancelled`.
        values : optional
            Values for ``$name``: ``db.sql("... WHERE altitude > $low", low=3000)``.

        Returns
        -------
        Result
            Lazy: rows are computed as they are taken.

        Raises
        ------
        SqlError
            With line and column.
        """
        given = parameters_of(params, values)

        def run(engine: QueryEngine) -> Result:
            return engine.run(text, given, timeout, read_only=read_only, cancellation=cancellation)

        return self._with_frames_of(sys._getframe(1), run)

    def explain(
        self,
        text: str,
        /,
        analyze: bool = False,
        params: Parameters | None = None,
        timeout: float | None = None,
        **values: Any,
    ) -> Plan:
        """Plan a query; with ``analyze``, run it and count what it read.

        The arguments are those of :meth:`sql`.

        Returns
        -------
        Plan
            ``str(plan)`` is a tree for people, ``plan.to_dict()`` the same for programs.
        """
        given = parameters_of(params, values)
        return self._with_frames_of(
            sys._getframe(1),
            lambda engine: engine.explain(text, given, analyze=analyze, timeout=timeout),
        )

    def _with_frames_of(self, caller: FrameType, run: Callable[[QueryEngine], T]) -> T:
        """Run a statement; names that are no streams may be variables of the caller."""
        engine = self._catalog.engine
        found: dict[str, Frame] = {}
        while True:
            try:
                return run(engine)
            except SqlError as error:
                name = error.unknown
                if not self._finds_frames or name is None or name.lower() in found:
                    raise
                frame = _frame_in(caller, name)
                if frame is None:
                    raise
                found[name.lower()] = frame
            engine = _with_frames(self._catalog, found)

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
        self._catalog.live_statements.create(request)
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
        self._catalog.live_statements.create(replace(request, rollup=True))
        return self.rollup(name)

    def rollup(self, name: str) -> LiveHandle:
        """The roll-up of that name; raises :class:`StreamNotFound`."""
        names = self.rollups()
        if name not in names:
            raise no_rollup(name, names)
        return self.live(name)

    def rollups(self) -> list[str]:
        """Names of all roll-ups, sorted."""
        return self._catalog.live_statements.rollups()

    def live(self, name: str) -> LiveHandle:
        """The live query of that name; raises :class:`StreamNotFound`."""
        with LOADING:
            from ..live.engine import LiveHandle

        return LiveHandle(self._catalog.live_statements, name)

    def live_queries(self) -> list[str]:
        """Names of all live queries, sorted."""
        return self._catalog.live_statements.names()

    def run_live(self, until: str = "caught up", timeout: float | None = None) -> None:
        """Return when every live query has processed every commit so far.

        Without ``live=True`` the work is done in this call.  Raises :class:`QueryTimeout` after
        ``timeout`` seconds.
        """
        if until != "caught up":
            raise InvalidArgument(f"until is 'caught up', found {until!r}")
        self._catalog.live_statements.run(timeout)

    # ---------------------------------------------------------------- life cycle

    def backup(self, path: str | os.PathLike[str], *, name: str | None = None) -> None:
        """Write a consistent copy of the store and its indexes while writers go on.

        To a new directory, or to objects (``s3://bucket/prefix``) under ``name``, or the time.
        """
        catalog = self._catalog
        catalog.check_open()
        catalog.store.backup(path, lambda target: catalog.indexes.backup(Path(target)), name)

    def check(self, repair: bool = False) -> CheckReport:
        """Verify every checksum, order and aggregate of the store, and every index.

        ``repair`` saves what can be saved of damaged streams and rebuilds wrong indexes.
        """
        with LOADING:
            from ..store.check import CheckReport, Problem
            from ..store.progress import each

        self._catalog.check_open()
        report = CheckReport()
        for what in each(("streams", "indexes")):
            if what == "streams":
                report = self._catalog.store.check(repair=repair)
                continue
            for problem in self._catalog.indexes.check(repair):
                name, _, text = problem.partition(": ")
                report.problems.append(Problem(name, "indexes", text))
        return report

    def close(self) -> None:
        """Flush and release the store; closing twice is fine.  A no-op in a forked child."""
        self._catalog.close()

    def __repr__(self) -> str:
        state = "closed" if self._catalog.closed else self.mode
        return f"<chronicle.Database {str(self.path)!r} {state}>"


def catalog_of(database: Database) -> StoreCatalog:
    """The parts of a database, for the layers above."""
    return database._catalog


def open_database(
    path: str | os.PathLike[str], mode: str = "rw", *, frames: bool = False, **options: Any
) -> Database:
    """Open a store; the arguments are those of :func:`chronicle.open`, ``frames`` apart: programs
    of the package find no frames in their variables.
    """
    return Database(open_catalog(path, mode, **options), frames=frames)


def _with_frames(catalog: StoreCatalog, found: Mapping[str, Frame]) -> QueryEngine:
    from ..query.contract.access import WithFrames

    return catalog.engine.over_catalog(WithFrames(catalog, {**catalog.frames, **found}))


def _frame_in(caller: FrameType, name: str) -> Frame | None:
    """A table that is a variable of a function or its module; None if there is none."""
    from ..query.contract.frames import frame_if_table

    for variables in (caller.f_locals, caller.f_globals):
        if name in variables:
            return frame_if_table(name, variables[name])
    return None


def _before(handle: EventStream, older_than: str | int | None) -> int:
    """The first tick that is younger than ``older_than``."""
    if older_than is None:
        return TICK_MAX
    age, size = retention_limits(str(older_than), handle.schema)
    if age is None or size is not None:
        raise InvalidArgument(f"older_than is an age such as '90 days', found {older_than!r}")
    span = handle.snapshot().time_range
    return TICK_MIN if span is None else max(TICK_MIN, span[1] - age)
