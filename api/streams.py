"""One stream as its users see it: events in, events and aggregates out.

Purpose
    :class:`Stream` is the facade over a stored stream.  It turns what users have (tables, data
    frames, lists of dicts, times as ``datetime`` or text) into what the store takes (tables in the
    stream's schema, times as ticks) and back.

Guarantee
    Reading works on a consistent snapshot taken when the call is made.  ``[start, end)`` is
    half-open everywhere.  Times come out as what the stream declares: ``datetime`` for timestamps
    (with a zone when the type has one), ``int`` for plain ticks.

Limits
    A ``filter`` that min/max says nothing about is still applied exactly; it just skips no block.

Also here:

* Aggregates of a stream as its users see them: values in the types that the stream declares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..core.append_result import AppendResult
from ..core.ownership import LOADING
from ..core.times import time_of
from ..errors import InvalidArgument, ReadOnlyStore
from ..formats.tables import tables_of
from ..schema import Attribute, Storage, StreamSchema
from ..store import EventStream, Snapshot, StreamReader
from .tailing import Tail

if TYPE_CHECKING:
    from .database import Database

FUNCTIONS = ("count", "sum", "min", "max", "avg", "first", "last")
_SCANNED = (Storage.STRING, Storage.BINARY, Storage.DECIMAL)


def _has_sum(attribute: Attribute) -> bool:
    return attribute.summable or attribute.storage is Storage.DECIMAL


def _of_scalar(scalar: pa.Scalar) -> Any:
    """A Python value; times that ``datetime`` cannot hold stay Arrow scalars."""
    if pa.types.is_timestamp(scalar.type) and scalar.is_valid:
        return time_of(scalar.value, scalar.type)
    return scalar.as_py()


def _as_declared(value: Any, attribute: Attribute, schema: StreamSchema) -> Any:
    """A minimum or maximum as the attribute's type has it; the tree counts in ticks."""
    type_ = attribute.type
    if pa.types.is_timestamp(type_):
        return time_of(value, type_)
    if pa.types.is_date(type_):
        raw = pa.scalar(value, pa.int32() if pa.types.is_date32(type_) else pa.int64())
        return raw.cast(type_).as_py()
    if attribute.storage is Storage.BOOL:
        return bool(value)
    return value


def _of_time(
    function: str, answer: Any, snapshot: Snapshot, low: int | None, high: int | None
) -> Any:
    """An aggregate of the time attribute itself."""
    schema = snapshot.schema
    if function == "count":
        return answer.count
    if function in ("min", "max"):
        ticks = answer.first if function == "min" else answer.last
        return None if ticks is None else schema.from_ticks(ticks)
    return _by_scan(function, schema.attribute(schema.time), snapshot, low, high)


def _by_scan(
    function: str, attribute: Attribute, snapshot: Snapshot, low: int | None, high: int | None
) -> Any:
    """An aggregate that the tree does not hold, from the events."""
    best: Any = None
    total: Any = None
    count = 0
    compare: dict[str, Callable[[Any, Any], Any]] = {"min": min, "max": max}
    for batch in snapshot.scan(low, high, [attribute.name]):
        column = batch.column(0)
        count += len(column) - column.null_count
        if len(column) == column.null_count:
            continue
        if function in compare:
            value = pc.min_max(column)[function].as_py()
            best = value if best is None else compare[function](best, value)
        else:
            wide = column.cast(pa.decimal128(38, getattr(attribute.type, "scale", 0)))
            value = pc.sum(wide).as_py()
            total = value if total is None else total + value
    if function in compare or total is None:
        return best
    if function == "avg":
        return float(total / count)
    return int(total) if pa.types.is_integer(attribute.type) else total


def aggregates_of(
    snapshot: Snapshot,
    functions: Mapping[str, str | Iterable[str]],
    low: int | None,
    high: int | None,
) -> dict[str, dict[str, Any]]:
    """Aggregate attributes over the events with low <= t < high, as :meth:`Stream.aggregate`.

    Raises
    ------
    AttributeNotFound, InvalidArgument
    """
    schema = snapshot.schema
    wanted: list[tuple[str, Attribute, tuple[str, ...]]] = []
    names: list[str] = []
    for given, asked in functions.items():
        attribute = schema.attribute(given)
        listed = (asked,) if isinstance(asked, str) else tuple(asked)
        for function in listed:
            if function not in FUNCTIONS:
                raise InvalidArgument(
                    f"the aggregates are {', '.join(FUNCTIONS)}, found {function!r}"
                )
        wanted.append((given, attribute, listed))
        if attribute.name != schema.time and attribute.name not in names:
            names.append(attribute.name)
    answer = snapshot.aggregate(names, low, high)
    result: dict[str, dict[str, Any]] = {}
    for given, attribute, listed in wanted:
        values: dict[str, Any] = {}
        ends = None
        element = None if attribute.name == schema.time else answer[attribute.name]
        for function in listed:
            if function in ("first", "last"):
                if ends is None:
                    ends = snapshot.first_last(attribute.name, low, high)
                scalar = ends[0 if function == "first" else 1]
                values[function] = None if scalar is None else _of_scalar(scalar)
            elif function in ("min", "max") and not attribute.comparable:
                raise InvalidArgument(
                    f"{function} needs values that have an order; {given} is {attribute.type_name}"
                )
            elif function in ("sum", "avg") and not _has_sum(attribute):
                raise InvalidArgument(f"{function} needs numbers; {given} is {attribute.type}")
            elif element is None:
                values[function] = _of_time(function, answer, snapshot, low, high)
            elif function == "count":
                values[function] = element.count
            elif attribute.storage in _SCANNED:
                values[function] = _by_scan(function, attribute, snapshot, low, high)
            else:
                value = getattr(element, function)
                if function in ("min", "max") and value is not None:
                    value = _as_declared(value, attribute, schema)
                values[function] = value
        result[given] = values
    return result


class Stream:
    """A stream of an open database; made by :meth:`Database.stream` and :meth:`create_stream`."""

    __slots__ = ("_database", "handle")

    def __init__(self, database: Database, handle: EventStream | StreamReader) -> None:
        self._database = database
        self.handle = handle

    # ------------------------------------------------------------------ what it is

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self.handle.name

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of its events."""
        return self.handle.schema.arrow

    @property
    def event_schema(self) -> StreamSchema:
        """The schema with its time attribute and storage types."""
        return self.handle.schema

    @property
    def time(self) -> str:
        """Name of the time attribute."""
        return self.handle.schema.time

    @property
    def count(self) -> int:
        """Number of events stored."""
        return self.snapshot().count

    @property
    def time_range(self) -> tuple[Any, Any] | None:
        """Times of the first and of the last event, both inclusive; None when there is none."""
        snapshot = self.snapshot()
        span = snapshot.time_range
        if span is None:
            return None
        from_ticks = snapshot.schema.from_ticks
        return from_ticks(span[0]), from_ticks(span[1])

    def snapshot(self) -> Snapshot:
        """A consistent view of the stream as of now."""
        return self._database.view(self.handle)

    def stats(self) -> dict[str, Any]:
        """Figures of the stream: events, bytes, segments, late events."""
        self.snapshot()  # a reader looks at the last commit first
        return dict(self.handle.stats())

    # --------------------------------------------------------------------- writing

    def append(self, data: Any, durability: str | None = None) -> AppendResult:
        """Append events.

        Parameters
        ----------
        data : pyarrow.Table, RecordBatch or RecordBatchReader, pandas or polars frame, list of dict
            Or any object with ``__arrow_c_stream__``.  Columns in any order; nullable attributes
            may be missing.  Need not be sorted by time.
        durability : {"commit", "interval", "none"}, optional
            What the store promises when this returns; the stream's setting by default.

        Returns
        -------
        AppendResult
            ``appended``, ``late`` (of these, older than what was stored), ``count`` (afterwards)
            and ``duplicates`` (left out, in a stream with ``unique``).  Atomic, except for a
            reader: that is appended in parts of about 64 MB, each of them atomic.

        Raises
        ------
        SchemaMismatch
            Unknown, missing or duplicate columns, or types that do not fit.
        InvalidData
            A value that does not fit, a time that is missing or not a number; with the row.
        """
        handle = self._writer("append to")
        result = None
        appended = late = duplicates = 0
        newest = None
        for table in tables_of(data, handle.schema):
            result = handle.append(table, durability)
            newest = result.newest if not appended else newest
            appended += result.appended
            late += result.late
            duplicates += result.duplicates
            self._database.await_live(self.name)
        if result is None:
            snapshot = self.snapshot()
            return AppendResult(0, 0, snapshot.count, snapshot.version)
        return AppendResult(appended, late, result.count, result.version, newest, duplicates)

    def append_each(
        self, batches: Iterable[pa.RecordBatch | pa.Table], durability: str | None = None
    ) -> list[AppendResult]:
        """Append batches in order, each as a commit of its own, all made durable together.

        Returns
        -------
        list of AppendResult
            One for each batch, or for those before the first that could not be appended; that one
            raises when it comes first.
        """
        handle = self._writer("append to")
        tables = [table for batch in batches for table in tables_of(batch, handle.schema)]
        results = handle.append_each(tables, durability)
        self._database.await_live(self.name)
        return results

    def delete(self, where: str | None, start: object = None, end: object = None) -> int:
        """Delete events for good: one commit, atomic, durable when this returns.

        Queries, indexes and live queries no longer see them; snapshots that were taken before do.

        Parameters
        ----------
        where : str or None
            A SQL predicate on one event; an event for which it is NULL stays.  None deletes all of
            the range.
        start, end : optional
            Half-open range ``[start, end)`` as in :meth:`scan`; ``delete(None)`` empties the
            stream.

        Returns
        -------
        int
            Events deleted.

        Raises
        ------
        AttributeNotFound, InvalidArgument, SqlError
            Nothing is deleted.
        StreamOwned
            The stream holds the rows of a live query.
        StorageFull, StorageFailed, ResourceLimit
            Nothing is deleted.
        """
        schema = self._writer("delete from").schema
        low = None if start is None else schema.to_ticks(start)
        high = None if end is None else schema.to_ticks(end)
        return self._database.delete_where(self.name, where, low, high)

    def update(
        self,
        values: Mapping[str, str],
        where: str | None,
        start: object = None,
        end: object = None,
    ) -> int:
        """Give events other values: one commit, atomic, durable when this returns.

        Parameters
        ----------
        values : mapping of str to str
            By column, a SQL expression over the event as it was: ``{"altitude": "altitude *
            0.3048"}``; a text in quotes: ``{"callsign": "'DLH123'"}``.  Not the time.
        where, start, end
            As of :meth:`delete`; ``where=None`` updates all of the range.

        Returns
        -------
        int
            Events that satisfy the predicate; all of them hold the new values.

        Raises
        ------
        AttributeNotFound, InvalidArgument, InvalidData, SqlError
            Nothing is changed.
        StreamOwned
            The stream holds the rows of a live query.
        StorageFull, StorageFailed, ResourceLimit
            Nothing is changed.
        """
        schema = self._writer("update").schema
        low = None if start is None else schema.to_ticks(start)
        high = None if end is None else schema.to_ticks(end)
        return self._database.update_where(self.name, values, where, low, high)

    def flush(self) -> None:
        """Make everything appended so far durable."""
        self._writer("flush").flush()

    def seal(self) -> None:
        """Close the active segment; later events open a new one."""
        self._writer("seal").seal()

    def compact(self) -> None:
        """Fold late runs into the segments they belong to.

        Afterwards no file of the stream holds an event that was deleted, but for those that a
        reader of an earlier state still holds.
        """
        self._writer("compact").compact()
        self._database.purge_indexes(self.name)

    def add_column(
        self, name: str, type_: pa.DataType, *, nullable: bool = True, default: Any = None
    ) -> None:
        """Add an attribute at the end.  Nothing is rewritten.

        Parameters
        ----------
        default : value, optional
            What events from before read as, and those of appends that leave the column out; null
            when not given.  Needed where ``nullable`` is false.

        Raises
        ------
        InvalidArgument, SchemaMismatch, UnsupportedType
        """
        self._database.add_column(self.name, name, type_, nullable, default)

    def widen_column(self, name: str, type_: pa.DataType) -> None:
        """Give an attribute a type that holds all values of its old one.  Nothing is rewritten.

        Raises
        ------
        AttributeNotFound
        InvalidArgument
            The type is not wider, or an index goes by the old one.
        StreamOwned
            Live queries read the stream, or put their results into it.
        """
        self._database.widen_column(self.name, name, type_)

    def drop_column(self, name: str) -> None:
        """Drop an attribute other than the time, with its index; one commit.

        Its values are read by nobody any more; :meth:`compact` takes them out of the files.

        Raises
        ------
        AttributeNotFound, InvalidArgument
        StreamOwned
            Live queries read the stream, or put their results into it.
        """
        self._database.drop_column(self.name, name)

    def rename_column(self, name: str, to: str) -> None:
        """Give an attribute another name; its index follows.  Nothing is rewritten.

        Raises
        ------
        AttributeNotFound
        SchemaMismatch
            Another column has that name, or had it when a segment was written.
        StreamOwned
            Live queries read the stream, or put their results into it.
        """
        self._database.rename_column(self.name, name, to)

    def set_options(self, **options: Any) -> None:
        """Change settings, as :meth:`chronicle.Database.create_stream` takes them.

        What is written from now on follows them; a shorter ``retention`` drops events at once,
        None ends it; a longer one brings none back.

        Raises
        ------
        InvalidArgument
        """
        self._database.set_options(self.name, options)

    def create_index(
        self, attribute: str, *, wait: bool = True, lag_events_max: int | None = None
    ) -> None:
        """Build a secondary index on an attribute, in the background when ``wait`` is false.

        In place of an attribute may stand two, ``"category, beat"``, or a value derived from events
        and those before them, ``"price - PREV(price) PARTITION BY symbol"``; see
        ``docs/indexes.md``.
        Under load, indexes lag behind the events.  With ``lag_events_max``, an append that leaves
        more committed events than that outside of this index builds what is missing first.
        """
        self._database.create_index(self.name, attribute, wait, lag_events_max=lag_events_max)

    def drop_index(self, attribute: str) -> None:
        """Remove the secondary index on an attribute; raises :class:`IndexNotFound`."""
        self._database.drop_index(self.name, attribute)

    def indexes(self) -> list[dict[str, Any]]:
        """The stream's secondary indexes: attribute, state and covered fraction of each."""
        return self._database.list_indexes(self.name)

    def _writer(self, what: str) -> EventStream:
        handle = self.handle
        if isinstance(handle, StreamReader):
            raise ReadOnlyStore(
                f"cannot {what} {self.name!r}: the store was opened with mode='r'; open it with "
                "mode='rw'"
            )
        return handle

    # --------------------------------------------------------------------- reading

    def scan(
        self,
        start: object = None,
        end: object = None,
        columns: Sequence[str] | None = None,
        filter: str | pc.Expression | None = None,
        *,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Read events in time order.

        Parameters
        ----------
        start, end : datetime, str, int or date, optional
            Half-open range ``[start, end)``; see :meth:`StreamSchema.to_ticks`.
        columns : sequence of str, optional
            Columns to read, in the order they shall have; all by default.
        filter : str or pyarrow.compute.Expression, optional
            A SQL predicate such as ``"altitude > 10000 AND icao24 LIKE 'a%'"``, or an expression.
            SQL counts NaN as the greatest value; in an expression NaN compares as in IEEE 754.
        limit : int, optional
            Stop after so many events.

        Returns
        -------
        pyarrow.RecordBatchReader
            Bounded memory; close it, or read it to its end.

        Raises
        ------
        AttributeNotFound, InvalidArgument, SqlError
        """
        snapshot = self.snapshot()
        schema = snapshot.schema
        low = None if start is None else schema.to_ticks(start)
        high = None if end is None else schema.to_ticks(end)
        if isinstance(columns, str):
            raise InvalidArgument(f"columns is a list of names, found the text {columns!r}")
        names = schema.select(columns)
        if len(set(names)) != len(names):
            raise InvalidArgument(f"each column can be read once, found {', '.join(names)}")
        if limit is not None and limit < 0:
            raise InvalidArgument(f"limit is a number of events, found {limit}")
        output = pa.schema([schema.arrow.field(name) for name in names])
        batches: Iterator[pa.RecordBatch]
        if filter is None:
            batches = snapshot.scan(low, high, names, limit=limit)
        elif isinstance(filter, str):
            batches = self._database.filtered_scan(
                self.name, snapshot, filter, low, high, names, limit
            )
        elif isinstance(filter, pc.Expression):
            batches = _scan_expression(snapshot, filter, low, high, names, limit)
        else:
            raise InvalidArgument(
                "filter is a SQL predicate or a pyarrow.compute.Expression, found "
                f"{type(filter).__name__}"
            )
        return pa.RecordBatchReader.from_batches(output, batches)

    def tail(
        self,
        after: str | int = "now",
        *,
        follow: bool = True,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Tail:
        """Read what is appended, as it is committed, in the order of commits.

        Parameters
        ----------
        after : int or str
            A commit (``AppendResult.version``; 0 is the beginning), the ``position`` of another
            tail, or ``"now"``.
        follow : bool
            Whether to wait for more at the end; otherwise what is there now is all.
        where : str, optional
            A SQL predicate on one event.
        columns : sequence of str, optional
            In the order they shall have; all by default.

        Returns
        -------
        Tail
            An iterator of record batches, with :attr:`Tail.position` to go on from; close it, or
            use it as a context manager.  A stream that another process writes is looked at five
            times a second.

        Raises
        ------
        SnapshotExpired
            When that place of the stream is no longer known.
        AttributeNotFound, InvalidArgument, SqlError
        """
        if isinstance(columns, str):
            raise InvalidArgument(f"columns is a list of names, found the text {columns!r}")
        self.snapshot()  # the database is open
        return Tail(self._database, self.handle, after, where, columns, follow)

    def aggregate(
        self,
        functions: Mapping[str, str | Iterable[str]],
        start: object = None,
        end: object = None,
    ) -> dict[str, dict[str, Any]]:
        """Aggregate attributes over ``[start, end)`` from the tree, not from its inner leaves.

        Parameters
        ----------
        functions : mapping of str to str or iterable of str
            Per attribute, functions among count, sum, min, max, avg, first, last.
        start, end : optional
            As in :meth:`scan`.

        Returns
        -------
        dict
            ``{"altitude": {"avg": ..., "max": ...}}``; ``count`` counts values that are not null,
            the others are None when there is none.  ``first`` and ``last`` are the attribute's
            values in the first and in the last event.  Minima and maxima of strings, binaries and
            decimals, and sums of decimals, are not in the tree: they cost a scan.
        """
        snapshot = self.snapshot()
        schema = snapshot.schema
        low = None if start is None else schema.to_ticks(start)
        high = None if end is None else schema.to_ticks(end)
        return aggregates_of(snapshot, functions, low, high)

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<chronicle.Stream {self.name!r} {self.count} events>"


def _scan_expression(
    snapshot: Snapshot,
    expression: pc.Expression,
    low: int | None,
    high: int | None,
    names: list[str],
    limit: int | None,
) -> Iterator[pa.RecordBatch]:
    """A scan under an Arrow expression: it prunes as far as its text says, and is applied."""
    with LOADING:
        from ..query.conditions.pushed_filters import split_filter
        from ..query.conditions.ranges import TICK_MAX, TICK_MIN

    split = split_filter(expression, snapshot.schema)
    first = max(split.low, TICK_MIN if low is None else low)
    last = min(split.high, TICK_MAX if high is None else high - 1)
    if first > last:
        return iter(())
    return snapshot.scan(
        None if first == TICK_MIN else first,
        None if last == TICK_MAX else last + 1,
        names,
        prune=split.prune,
        filter=split.rest,
        limit=limit,
    )
