"""A stream of a server: the methods of ``Stream``, over REST with Arrow both ways.

Times, values and errors are those of the embedded stream; an append is atomic and retried only with
an ``idempotency_key``.  Reads use a snapshot of the time of the call.  The schema is the last one
received: on opening, describing, or after a failed append.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ..core.append_result import AppendResult
from ..errors import ConnectionFailed, SchemaMismatch
from ..schema import StreamSchema
from . import calls
from .calls import Call, StreamCalls
from .conversion import (
    PIECE_ROWS,
    SENT_ONCE,
    altered,
    append_result,
    begun,
    column_added,
    column_widened,
    grouped_by_functions,
    may_fit,
    predicate_of,
    schema_of,
    settings_changed,
    values_of,
)
from .live import RemoteFeed
from .steps import Download, Read, Steps, Upload, Work, blocking
from .transport import Transport


class StreamBase:
    """Base of the blocking and the asynchronous stream."""

    def __init__(self, name: str, described: Any, where: str) -> None:
        self._calls = StreamCalls(name)
        self._where = where
        self._described(described)

    def _described(self, described: Any) -> Any:
        """Take the schema from a description; returns the description."""
        self._schema = schema_of(described, self._where)
        return described

    @property
    def name(self) -> str:
        return self._calls.name

    @property
    def schema(self) -> pa.Schema:
        return self._schema.arrow

    @property
    def event_schema(self) -> StreamSchema:
        """The schema with its time attribute and storage types."""
        return self._schema

    @property
    def time(self) -> str:
        return self._schema.time

    def _describe(self) -> Steps[Any]:
        return self._described((yield self._calls.describe()))

    def _tables(self, data: Any) -> Steps[Iterator[pa.Table]]:
        schema = self._schema
        try:
            tables: Iterator[pa.Table] = yield Work(lambda: begun(data, schema))
        except SchemaMismatch:
            yield from self._describe()  # another client may have added a column
            present = self._schema
            if not may_fit(data, schema, present):
                raise
            tables = yield Work(lambda: begun(data, present))
        return tables

    def _alter(self, statement: str) -> Steps[None]:
        yield Download(calls.query(statement))
        yield from self._describe()

    def __repr__(self) -> str:
        return f"<chronicle.Stream {self.name!r} of {self._where}>"


class RemoteStream(StreamBase):
    """A stream of a server, made by ``RemoteDatabase.stream`` and ``create_stream``."""

    def __init__(self, transport: Transport, name: str, described: Any) -> None:
        super().__init__(name, described, transport.where)
        self._transport = transport

    # ------------------------------------------------------------------ what it is

    @blocking
    def _count(self) -> Steps[int]:
        return int((yield from self._describe())["count"])

    @blocking
    def _time_range(self) -> Steps[tuple[Any, Any] | None]:
        span = (yield from self._describe())["time_range"]
        if span is None:
            return None
        from_ticks = self._schema.from_ticks
        return from_ticks(span["first_ticks"]), from_ticks(span["last_ticks"])

    @property
    def count(self) -> int:
        """Number of stored events; a request."""
        return self._count()

    @property
    def time_range(self) -> tuple[Any, Any] | None:
        """Times of the first and the last event, inclusive; a request."""
        return self._time_range()

    @blocking
    def stats(self) -> Steps[dict[str, Any]]:
        """Statistics: events, bytes, segments, late events."""
        return dict((yield from self._describe())["stats"])

    # --------------------------------------------------------------------- writing

    @blocking
    def append(
        self, data: Any, durability: str | None = None, *, idempotency_key: str | None = None
    ) -> Steps[AppendResult]:
        """Append events.

        Parameters
        ----------
        data, durability
            As of ``Stream.append``; a reader is appended in parts of about 64 MB, each atomic.
        idempotency_key : str, optional
            Up to 240 characters, unique to this append.  It makes retries safe, by this call and by
            a later one with the same data, and costs the server two more disk writes.

        Raises
        ------
        ConnectionFailed
            Without a key also when it is unknown whether the events were stored.
        """
        appended = late = duplicates = number = 0
        done = None
        tables = yield from self._tables(data)
        while (table := (yield Work(lambda: next(tables, None)))) is not None:
            key = idempotency_key
            if key is not None and number:
                key = f"{key}/{number}"
            call = self._calls.append(durability, key)
            try:
                answer = yield Upload(call, table.schema, table.to_batches(PIECE_ROWS))
            except ConnectionFailed as error:
                if idempotency_key is None:
                    error.add_note(SENT_ONCE)
                raise
            done = append_result(answer)
            appended += done.appended
            late += done.late
            duplicates += done.duplicates
            number += 1
        assert done is not None  # even empty data gives one table
        return AppendResult(appended, late, done.count, done.version, duplicates=duplicates)

    @blocking
    def delete(self, where: str | None, start: object = None, end: object = None) -> Steps[int]:
        """As ``Stream.delete``; ``ConnectionFailed`` if the outcome is unknown: repeating is
        harmless.
        """
        call = self._calls.change("delete", where, **calls.bounds(self._schema, start, end))
        return int((yield call)["deleted"])

    @blocking
    def update(
        self,
        values: Mapping[str, str],
        where: str | None,
        start: object = None,
        end: object = None,
    ) -> Steps[int]:
        """As ``Stream.update``; ``ConnectionFailed`` if the outcome is unknown."""
        bounds = calls.bounds(self._schema, start, end)
        call = self._calls.change("update", where, set=dict(values), **bounds)
        return int((yield call)["updated"])

    @blocking
    def add_column(
        self, name: str, type_: pa.DataType, *, nullable: bool = True, default: Any = None
    ) -> Steps[None]:
        """As ``Stream.add_column``."""
        yield from self._alter(column_added(self.name, name, type_, nullable, default))

    @blocking
    def widen_column(self, name: str, type_: pa.DataType) -> Steps[None]:
        """Change an attribute to a type that holds all its values."""
        yield from self._alter(column_widened(self.name, name, type_))

    @blocking
    def drop_column(self, name: str) -> Steps[None]:
        """Drop an attribute other than the time, with its index."""
        yield from self._alter(altered(self.name, "DROP COLUMN", name))

    @blocking
    def rename_column(self, name: str, to: str) -> Steps[None]:
        """Rename an attribute; its index follows."""
        yield from self._alter(altered(self.name, "RENAME COLUMN", name, to))

    @blocking
    def set_options(self, /, **options: Any) -> Steps[None]:
        """As ``Stream.set_options``."""
        yield from self._alter(settings_changed(self.name, options))

    @blocking
    def create_index(
        self, attribute: str, *, wait: bool = True, lag_events_max: int | None = None
    ) -> Steps[None]:
        """Index an attribute; in the background unless ``wait``."""
        query = {"wait": str(wait).lower(), "lag_events_max": lag_events_max}
        yield self._calls.index(attribute, "POST", **query)

    @blocking
    def drop_index(self, attribute: str) -> Steps[None]:
        """Remove an attribute's index; raises ``IndexNotFound``."""
        yield self._calls.index(attribute, "DELETE")

    @blocking
    def indexes(self) -> Steps[list[dict[str, Any]]]:
        """The secondary indexes: attribute, state and covered fraction."""
        return list((yield Call("GET", f"{self._calls.path}/indexes"))["indexes"])

    # --------------------------------------------------------------------- reading

    @blocking
    def scan(
        self,
        start: object = None,
        end: object = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        *,
        limit: int | None = None,
    ) -> Steps[pa.RecordBatchReader]:
        """As ``Stream.scan``; ``filter`` is a SQL predicate such as ``"altitude > 10000"``."""
        bounds = calls.bounds(self._schema, start, end)
        call = self._calls.events(columns, predicate_of(filter), limit, **bounds)
        return (yield Read(call))

    def tail(
        self,
        after: str | int = "now",
        *,
        follow: bool = True,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> RemoteFeed:
        """Follow commits; as ``Stream.tail``."""
        return RemoteFeed(self._transport, self._calls.tail(after, follow, where, columns))

    @blocking
    def aggregate(
        self,
        functions: Mapping[str, str | Iterable[str]],
        start: object = None,
        end: object = None,
    ) -> Steps[dict[str, dict[str, Any]]]:
        """As ``Stream.aggregate``; attributes with equal functions share one snapshot."""
        bounds = calls.bounds(self._schema, start, end)
        values: dict[str, dict[str, Any]] = {}
        for wanted, names in grouped_by_functions(functions, self._schema):
            answer = yield self._calls.aggregate(names, wanted, **bounds)
            values |= {name: values_of(answer, name, wanted, self._schema) for name in names}
        return {name: values.get(name, {}) for name in functions}

    # ------------------------------------------------------------------- positions

    @blocking
    def keep_position(self, at: int | None = None, after: str | None = None) -> Steps[str | None]:
        """Keep a commit ``at`` a version (default: the last), to read later events relative to it.

        With ``after``, a position that is renewed, only if something was committed after it.
        Returns the position's name, or None if nothing is new (``docs/rest.md``).
        """
        name = (yield self._calls.keep_position(at=at, after=after))["position"]
        return None if name is None else str(name)

    @blocking
    def drop_position(self, position: str) -> Steps[None]:
        """Drop a position."""
        yield self._calls.drop_position(position)

    @blocking
    def changes(
        self,
        after: str | None,
        until: str,
        columns: Sequence[str] | None = None,
        *,
        start: object = None,
        end: object = None,
    ) -> Steps[pa.RecordBatchReader]:
        """Events committed after one position (None: the beginning) and up to another.

        Each occurs once, in time order; repeating the call returns the same.
        """
        bounds = calls.bounds(self._schema, start, end)
        return (yield Read(self._calls.new_events(after, until, columns, **bounds)))

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True
