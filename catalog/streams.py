"""One stream of a database: append, change, scan and aggregate events.

``Stream`` converts users' data to tables in the stream's schema, and times to ticks, and back.  A
read uses a snapshot of the time of the call.  Ranges ``[start, end)`` are half-open.  Times are
``datetime`` for timestamps (with a zone if the type has one; Arrow scalars where ``datetime`` is
too coarse or too narrow), ``int`` for plain ticks.  A ``filter`` for which block minima and maxima
say nothing skips no block, but is applied exactly.

Aggregates come from the tree, except minima and maxima of strings, binaries and decimals, and sums
of decimals and of the time itself, which read the events of the range.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..core.append_result import AppendResult
from ..core.ownership import LOADING
from ..core.times import time_of
from ..errors import InvalidArgument
from ..formats.kinds import columns_of
from ..formats.tables import tables_of
from ..schema import Attribute, Storage, StreamSchema
from ..store.schema_change import drop_attribute, rename_attribute, set_options
from ..store.snapshot import Snapshot
from ..store.stream import EventStream, StreamReader
from .tailing import Tail

if TYPE_CHECKING:
    from .store_catalog import StoreCatalog

FUNCTIONS = ("count", "sum", "min", "max", "avg", "first", "last")
_SCANNED = (Storage.STRING, Storage.BINARY, Storage.DECIMAL)


def _of_scalar(scalar: pa.Scalar) -> Any:
    """A Python value; an Arrow scalar for times that ``datetime`` cannot hold."""
    if pa.types.is_timestamp(scalar.type) and scalar.is_valid:
        return time_of(scalar.value, scalar.type)
    return scalar.as_py()


def _as_declared(value: Any, attribute: Attribute) -> Any:
    """A minimum or maximum in the attribute's type; the tree counts in ticks."""
    type_ = attribute.type
    if pa.types.is_timestamp(type_):
        return time_of(value, type_)
    if pa.types.is_date(type_):
        raw = pa.scalar(value, pa.int32() if pa.types.is_date32(type_) else pa.int64())
        return raw.cast(type_).as_py()
    if attribute.storage is Storage.BOOL:
        return bool(value)
    return value


def _by_scan(
    function: str, attribute: Attribute, snapshot: Snapshot, low: int | None, high: int | None
) -> Any:
    """An aggregate that the tree lacks, computed from the events."""
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
    """Aggregates over the events with ``low <= t < high`` (ticks), as ``Stream.aggregate``."""
    wanted = {name: (c,) if isinstance(c, str) else tuple(c) for name, c in functions.items()}
    for function in chain.from_iterable(wanted.values()):
        if function not in FUNCTIONS:
            raise InvalidArgument(f"the aggregates are {', '.join(FUNCTIONS)}, found {function!r}")
    schema = snapshot.schema
    attributes = {name: schema.attribute(name) for name in wanted}
    named = dict.fromkeys(a.name for a in attributes.values() if a.name != schema.time)
    answer = snapshot.aggregate(list(named), low, high)
    ends = cache(lambda name: snapshot.first_last(name, low, high))

    def value_of(function: str, name: str) -> Any:
        attribute = attributes[name]
        if function in ("first", "last"):
            scalar = ends(attribute.name)[0 if function == "first" else 1]
            return None if scalar is None else _of_scalar(scalar)
        if function in ("min", "max") and not attribute.comparable:
            raise InvalidArgument(
                f"{function} needs values that have an order; {name} is {attribute.type_name}"
            )
        is_decimal = attribute.storage is Storage.DECIMAL
        if function in ("sum", "avg") and not (attribute.summable or is_decimal):
            raise InvalidArgument(f"{function} needs numbers; {name} is {attribute.type}")
        if attribute.name == schema.time and function in ("count", "min", "max"):
            if function == "count":
                return answer.count
            ticks = answer.first if function == "min" else answer.last
            return None if ticks is None else schema.from_ticks(ticks)
        if function != "count" and (attribute.name == schema.time or attribute.storage in _SCANNED):
            return _by_scan(function, attribute, snapshot, low, high)
        value = getattr(answer[attribute.name], function)
        declared = function in ("min", "max") and value is not None
        return _as_declared(value, attribute) if declared else value

    return {
        name: {function: value_of(function, name) for function in listed}
        for name, listed in wanted.items()
    }


class Stream:
    """A stream of an open database, from ``Database.stream`` or ``Database.create_stream``."""

    __slots__ = ("_catalog", "_handle")

    def __init__(self, catalog: StoreCatalog, handle: EventStream | StreamReader) -> None:
        self._catalog = catalog
        self._handle = handle

    # ------------------------------------------------------------------ what it is

    @property
    def name(self) -> str:
        return self._handle.name

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the events."""
        return self._handle.schema.arrow

    @property
    def event_schema(self) -> StreamSchema:
        """The schema with the time attribute and storage types."""
        return self._handle.schema

    @property
    def time(self) -> str:
        """Name of the time attribute."""
        return self._handle.schema.time

    @property
    def count(self) -> int:
        """Number of stored events."""
        return self.snapshot().count

    @property
    def time_range(self) -> tuple[Any, Any] | None:
        """Times of the first and the last event, both inclusive; None if there is none."""
        snapshot = self.snapshot()
        span = snapshot.time_range
        if span is None:
            return None
        from_ticks = snapshot.schema.from_ticks
        return from_ticks(span[0]), from_ticks(span[1])

    def snapshot(self) -> Snapshot:
        """A consistent view of the stream, as of now."""
        return self._catalog.view(self._handle)

    def stats(self) -> dict[str, Any]:
        """Statistics of the stream: events, bytes, segments, late events."""
        self.snapshot()  # a reader looks at the last commit first
        return dict(self._handle.stats())

    # --------------------------------------------------------------------- writing

    def append(self, data: Any, durability: str | None = None) -> AppendResult:
        """Append events.

        Parameters
        ----------
        data : pyarrow.Table, RecordBatch or RecordBatchReader, pandas or polars frame, list of dict
            Or any object with ``__arrow_c_stream__``.  Columns and events in any order; nullable
            attributes may be missing.
        durability : {"commit", "interval", "none"}, optional
            Durability when this returns; by default the stream's setting.

        Returns
        -------
        AppendResult
            ``appended``, ``late`` (of these, older than what was stored), ``count`` (afterwards)
            and ``duplicates`` (left out, in a stream with ``unique``).  Atomic, except for a
            reader: it is appended in parts of about 64 MB, each of them atomic.

        Raises
        ------
        SchemaMismatch
            Unknown, missing or duplicate columns, or types that do not fit.
        InvalidData
            A value that does not fit, or a time that is missing or not a number; with the row.
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
            self._catalog.await_live(self.name)
        if result is None:
            snapshot = self.snapshot()
            return AppendResult(0, 0, snapshot.count, snapshot.version)
        return AppendResult(appended, late, result.count, result.version, newest, duplicates)

    def delete(self, where: str | None, start: object = None, end: object = None) -> int:
        """Delete events permanently: one commit, atomic, durable when this returns.

        Queries, indexes and live queries no longer see them; earlier snapshots do.

        Parameters
        ----------
        where : str or None
            A SQL predicate on one event; an event for which it is NULL stays.  None deletes all of
            the range.
        start, end : optional
            Half-open range ``[start, end)`` as in ``scan``; ``delete(None)`` empties the stream.

        Returns
        -------
        int
            Number of deleted events.

        Raises
        ------
        AttributeNotFound, InvalidArgument, SqlError, StorageFull, StorageFailed, ResourceLimit
            Nothing is deleted.
        StreamOwned
            The stream holds the rows of a live query.
        """
        low, high = self._writer("delete from").schema.tick_range(start, end)
        return self._catalog.engine.delete(self.name, where, low, high)

    def update(
        self,
        values: Mapping[str, str],
        where: str | None,
        start: object = None,
        end: object = None,
    ) -> int:
        """Update events: one commit, atomic, durable when this returns.

        Parameters
        ----------
        values : mapping of str to str
            By column, a SQL expression over the old event: ``{"altitude": "altitude * 0.3048"}``;
            a text is quoted: ``{"callsign": "'DLH123'"}``.  The time cannot be updated.
        where, start, end
            As in ``delete``; ``where=None`` updates all of the range.

        Returns
        -------
        int
            Number of updated events.

        Raises
        ------
        AttributeNotFound, InvalidArgument, InvalidData, SqlError
            Nothing is changed.
        StorageFull, StorageFailed, ResourceLimit
            Nothing is changed.
        StreamOwned
            The stream holds the rows of a live query.
        """
        low, high = self._writer("update").schema.tick_range(start, end)
        return self._catalog.engine.update(self.name, values, where, low, high)

    def flush(self) -> None:
        """Make all appended events durable."""
        self._writer("flush").flush()

    def seal(self) -> None:
        """Close the active segment; later events open a new one."""
        self._writer("seal").seal()

    def compact(self) -> None:
        """Fold late runs into their segments.

        Afterwards only files that a reader of an earlier state uses hold deleted events.
        """
        self._writer("compact").compact()
        self._catalog.indexes.purge(self.name)

    def add_column(
        self, name: str, type_: pa.DataType, *, nullable: bool = True, default: Any = None
    ) -> None:
        """Add an attribute at the end, without rewriting data.

        Parameters
        ----------
        default : value, optional
            Value in older events, and in appends without the column; null by default.  Required if
            ``nullable`` is false.

        Raises
        ------
        InvalidArgument, SchemaMismatch, UnsupportedType
        """
        self._writer("add a column to").add_attribute(name, type_, nullable, default)

    def widen_column(self, name: str, type_: pa.DataType) -> None:
        """Change an attribute's type to one that holds all values of the old type, without
        rewriting data.

        Raises
        ------
        AttributeNotFound
        InvalidArgument
            The type is not wider, or an index uses the old one.
        StreamOwned
            Live queries read the stream or write to it.
        """
        self._catalog.widen_column(self.name, name, type_)

    def drop_column(self, name: str) -> None:
        """Drop an attribute other than the time, with its index; one commit.

        Its values can no longer be read; ``compact`` removes them from the files.

        Raises
        ------
        AttributeNotFound, InvalidArgument
        StreamOwned
            Live queries read the stream or write to it.
        """
        self._catalog.alter_column(self.name, drop_attribute, name)

    def rename_column(self, name: str, to: str) -> None:
        """Rename an attribute, with its index, without rewriting data.

        Raises
        ------
        AttributeNotFound
        SchemaMismatch
            Another column has the name, or had it when a segment was written.
        StreamOwned
            Live queries read the stream or write to it.
        """
        self._catalog.alter_column(self.name, rename_attribute, name, to)

    def set_options(self, **options: Any) -> None:
        """Change options, as in ``Database.create_stream``; they apply to later writes.

        A shorter ``retention`` drops events at once, None ends it; a longer one restores none.

        Raises
        ------
        InvalidArgument
        """
        self._writer("alter").alter(set_options, **options)

    def create_index(
        self, attribute: str, *, wait: bool = True, lag_events_max: int | None = None
    ) -> None:
        """Build a secondary index on an attribute.

        Parameters ---------- attribute : str     An attribute, two (``"category, beat"``), or a
        value derived from events and those before     them (``"price - PREV(price) PARTITION BY
        symbol"``); see ``docs/indexes.md``. wait : bool     Whether to return only when it is
        built; else it is built in the background. lag_events_max : int, optional     An append
        after which more committed events than this lack index entries first builds them.
        """
        self._catalog.create_index(self.name, attribute, wait, lag_events_max=lag_events_max)

    def drop_index(self, attribute: str) -> None:
        """Drop the secondary index on an attribute; raises ``IndexNotFound``."""
        self._catalog.drop_index(self.name, attribute)

    def indexes(self) -> list[dict[str, Any]]:
        """Secondary indexes: attribute, state and covered fraction of each."""
        return self._catalog.list_indexes(self.name)

    def _writer(self, what: str) -> EventStream:
        self._catalog.check_writable(f"{what} {self.name!r}")
        assert isinstance(self._handle, EventStream)
        return self._handle

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
            Half-open range ``[start, end)``; an integer is in ticks, a time without a zone in UTC.
        columns : sequence of str, optional
            Columns in the order of the result; all by default.
        filter : str or pyarrow.compute.Expression, optional
            A SQL predicate such as ``"altitude > 10000 AND icao24 LIKE 'a%'"``, or an expression.
            In SQL NaN is the greatest value; in an expression NaN compares as in IEEE 754.
        limit : int, optional
            Maximum number of events.

        Returns
        -------
        pyarrow.RecordBatchReader
            Reads with bounded memory; close it, or read it to its end.

        Raises
        ------
        AttributeNotFound, InvalidArgument, SqlError
        """
        snapshot = self.snapshot()
        schema = snapshot.schema
        low, high = schema.tick_range(start, end)
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
            batches = self._catalog.engine.scan(
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
        """Read events as they are committed, in the order of commits.

        Parameters
        ----------
        after : int or str
            A commit (``AppendResult.version``; 0 is the beginning), the ``position`` of another
            tail, or ``"now"``.
        follow : bool
            Whether to wait for more events; otherwise the tail ends at the latest commit.
        where : str, optional
            A SQL predicate on one event.
        columns : sequence of str, optional
            Columns in the order of the result; all by default.

        Returns ------- Tail     An iterator of record batches, with ``Tail.position`` to resume
        from; close it, or use it as     a context manager.  A stream that another process writes is
        polled five times a second.

        Raises
        ------
        SnapshotExpired
            The stream's history no longer reaches back to ``after``.
        AttributeNotFound, InvalidArgument, SqlError
        """
        if isinstance(columns, str):
            raise InvalidArgument(f"columns is a list of names, found the text {columns!r}")
        self.snapshot()  # the database is open
        return Tail(self._catalog, self._handle, after, where, columns, follow)

    def aggregate(
        self,
        functions: Mapping[str, str | Iterable[str]],
        start: object = None,
        end: object = None,
    ) -> dict[str, dict[str, Any]]:
        """Aggregate attributes over ``[start, end)``, from the tree without reading its inner
        leaves.

        Parameters
        ----------
        functions : mapping of str to str or iterable of str
            By attribute: count, sum, min, max, avg, first, last.
        start, end : optional
            As in ``scan``.

        Returns ------- dict     ``{"altitude": {"avg": ..., "max": ...}}``; ``count`` counts values
        that are not null,     the others are None if there is none.  ``first`` and ``last`` are the
        attribute's values     in the first and in the last event.  Minima and maxima of strings,
        binaries and decimals,     and sums of decimals, need a scan.

        Raises
        ------
        AttributeNotFound, InvalidArgument
        """
        snapshot = self.snapshot()
        return aggregates_of(snapshot, functions, *snapshot.schema.tick_range(start, end))

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<chronicle.Stream {self.name!r} {self.count} events>"


def handle_of(stream: Stream) -> EventStream | StreamReader:
    """The store's stream, for the layers above."""
    return stream._handle


def describe(stream: Stream, *, full: bool) -> dict[str, Any]:
    """What a stream is and holds; if ``full`` with its settings, indexes and statistics."""
    schema, snapshot = stream.event_schema, stream.snapshot()
    described: dict[str, Any] = {
        "name": stream.name,
        "time": schema.time,
        "schema": columns_of(schema.arrow),
        "count": snapshot.count,
        "version": snapshot.version,
        "time_range": None,
    }
    if (span := snapshot.time_range) is not None:
        first, last = map(schema.from_ticks, span)
        ticks = {"first_ticks": span[0], "last_ticks": span[1]}
        described["time_range"] = {"first": first, "last": last, **ticks}
    if full:
        described["arrow_schema"] = base64.b64encode(schema.arrow.serialize()).decode()
        described |= schema.defaults_json()
        described["settings"] = handle_of(stream).options.to_json()
        described["indexes"] = stream.indexes()
        described["stats"] = stream.stats()
    return described


def append_each(
    stream: Stream, batches: Iterable[pa.RecordBatch | pa.Table], durability: str | None = None
) -> list[AppendResult]:
    """Append batches in order, each as one commit, with one sync for all.

    Gives a result for each, up to the first that failed; if that is the first of all, its error is
    raised.
    """
    handle = stream._writer("append to")
    tables = [table for batch in batches for table in tables_of(batch, handle.schema)]
    results = handle.append_each(tables, durability)
    stream._catalog.await_live(stream.name)
    return results


def _scan_expression(
    snapshot: Snapshot,
    expression: pc.Expression,
    low: int | None,
    high: int | None,
    names: list[str],
    limit: int | None,
) -> Iterator[pa.RecordBatch]:
    """A scan under an Arrow expression, which prunes blocks where possible and always filters."""
    with LOADING:
        from ..query.conditions.predicates import TICK_MAX, TICK_MIN
        from ..query.conditions.row_filters import ExpressionFilter, split_filter

    filter = ExpressionFilter.of(expression, snapshot.schema.names)
    split = split_filter(filter, snapshot.schema)
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
