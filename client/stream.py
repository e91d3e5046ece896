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
from .calls import Call, listed, path_of
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
from .transport import Transport


class RemoteStream:
    """A stream of a server, made by ``RemoteDatabase.stream`` and ``create_stream``."""

    def __init__(self, transport: Transport, name: str, described: Any) -> None:
        self._transport = transport
        self._name = name
        self._schema = schema_of(described, transport.where)

    def _ask(self, method: str, *what: str, **more: Any) -> Any:
        return self._transport.ask(method, "streams", self._name, *what, **more)

    def _describe(self) -> Any:
        described = self._ask("GET")
        self._schema = schema_of(described, self._transport.where)
        return described

    # ------------------------------------------------------------------ what it is

    @property
    def name(self) -> str:
        return self._name

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

    @property
    def count(self) -> int:
        """Number of stored events; a request."""
        return int(self._describe()["count"])

    @property
    def time_range(self) -> tuple[Any, Any] | None:
        """Times of the first and the last event, inclusive; a request."""
        span = self._describe()["time_range"]
        if span is None:
            return None
        from_ticks = self._schema.from_ticks
        return from_ticks(span["first_ticks"]), from_ticks(span["last_ticks"])

    def stats(self) -> dict[str, Any]:
        """Statistics: events, bytes, segments, late events."""
        return dict(self._describe()["stats"])

    # --------------------------------------------------------------------- writing

    def _tables(self, data: Any) -> Iterator[pa.Table]:
        schema = self._schema
        try:
            return begun(data, schema)
        except SchemaMismatch:
            self._describe()  # another client may have added a column
            if not may_fit(data, schema, self._schema):
                raise
            return begun(data, self._schema)

    def append(
        self, data: Any, durability: str | None = None, *, idempotency_key: str | None = None
    ) -> AppendResult:
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
        appended = late = duplicates = 0
        done = None
        for number, table in enumerate(self._tables(data)):
            key = idempotency_key
            if key is not None and number:
                key = f"{key}/{number}"
            call = calls.append(self._name, durability, key)
            try:
                batches = table.to_batches(PIECE_ROWS)
                answer = self._transport.send(call, table.schema, batches)
            except ConnectionFailed as error:
                if idempotency_key is None:
                    error.add_note(SENT_ONCE)
                raise
            done = append_result(answer)
            appended += done.appended
            late += done.late
            duplicates += done.duplicates
        assert done is not None  # even empty data gives one table
        return AppendResult(appended, late, done.count, done.version, duplicates=duplicates)

    def delete(self, where: str | None, start: object = None, end: object = None) -> int:
        """As ``Stream.delete``; ``ConnectionFailed`` if the outcome is unknown: repeating is
        harmless.
        """
        return int(self._change("delete", where, start, end)["deleted"])

    def update(
        self, values: Mapping[str, str], where: str | None, start: object = None, end: object = None
    ) -> int:
        """As ``Stream.update``; ``ConnectionFailed`` if the outcome is unknown."""
        return int(self._change("update", where, start, end, set=dict(values))["updated"])

    def _change(
        self, what: str, where: str | None, start: object, end: object, **body: object
    ) -> Any:
        bounds = calls.bounds(self._schema, start, end)
        body["where"] = "true" if where is None else where
        return self._ask("POST", what, body={**bounds, **body})

    def _alter(self, statement: str) -> None:
        self._transport.batches(calls.query(statement)).read_all()
        self._describe()

    def add_column(
        self, name: str, type_: pa.DataType, *, nullable: bool = True, default: Any = None
    ) -> None:
        """As ``Stream.add_column``."""
        self._alter(column_added(self.name, name, type_, nullable, default))

    def widen_column(self, name: str, type_: pa.DataType) -> None:
        """Change an attribute to a type that holds all its values."""
        self._alter(column_widened(self.name, name, type_))

    def drop_column(self, name: str) -> None:
        """Drop an attribute other than the time, with its index."""
        self._alter(altered(self.name, "DROP COLUMN", name))

    def rename_column(self, name: str, to: str) -> None:
        """Rename an attribute; its index follows."""
        self._alter(altered(self.name, "RENAME COLUMN", name, to))

    def set_options(self, /, **options: Any) -> None:
        """As ``Stream.set_options``."""
        self._alter(settings_changed(self.name, options))

    def create_index(
        self, attribute: str, *, wait: bool = True, lag_events_max: int | None = None
    ) -> None:
        """Index an attribute; in the background unless ``wait``."""
        query = {"wait": str(wait).lower(), "lag_events_max": lag_events_max}
        self._ask("POST", "indexes", attribute, query=query)

    def drop_index(self, attribute: str) -> None:
        """Remove an attribute's index; raises ``IndexNotFound``."""
        self._ask("DELETE", "indexes", attribute)

    def indexes(self) -> list[dict[str, Any]]:
        """The secondary indexes: attribute, state and covered fraction."""
        return list(self._ask("GET", "indexes")["indexes"])

    # --------------------------------------------------------------------- reading

    def scan(
        self,
        start: object = None,
        end: object = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        *,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """As ``Stream.scan``; ``filter`` is a SQL predicate such as ``"altitude > 10000"``."""
        bounds = calls.bounds(self._schema, start, end)
        call = calls.events(self._name, columns, predicate_of(filter), limit, **bounds)
        return self._transport.batches(call)

    def tail(
        self,
        after: str | int = "now",
        *,
        follow: bool = True,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> RemoteFeed:
        """Follow commits; as ``Stream.tail``."""
        query = {"after": after, "follow": follow, "where": where, "columns": listed(columns)}
        path = path_of("streams", self._name, "tail")
        return RemoteFeed(self._transport, Call("GET", path, query))

    def aggregate(
        self, functions: Mapping[str, str | Iterable[str]], start: object = None, end: object = None
    ) -> dict[str, dict[str, Any]]:
        """As ``Stream.aggregate``; attributes with equal functions share one snapshot."""
        bounds = calls.bounds(self._schema, start, end)
        values: dict[str, dict[str, Any]] = {}
        for wanted, names in grouped_by_functions(functions, self._schema):
            query = {"attribute": listed(names), "functions": ",".join(wanted), **bounds}
            answer = self._ask("GET", "aggregate", query=query)
            values |= {name: values_of(answer, name, wanted, self._schema) for name in names}
        return {name: values.get(name, {}) for name in functions}

    # ------------------------------------------------------------------- positions

    def keep_position(self, at: int | None = None, after: str | None = None) -> str | None:
        """Keep a commit ``at`` a version (default: the last), to read later events relative to it.

        With ``after``, a position that is renewed, only if something was committed after it.
        Returns the position's name, or None if nothing is new (``docs/rest.md``).
        """
        name = self._ask("POST", "positions", body={"at": at, "after": after})["position"]
        return None if name is None else str(name)

    def drop_position(self, position: str) -> None:
        """Drop a position."""
        self._ask("DELETE", "positions", position)

    def changes(
        self,
        after: str | None,
        until: str,
        columns: Sequence[str] | None = None,
        *,
        start: object = None,
        end: object = None,
    ) -> pa.RecordBatchReader:
        """Events committed after one position (None: the beginning) and up to another.

        Each occurs once, in time order; repeating the call returns the same.
        """
        bounds = calls.bounds(self._schema, start, end)
        call = calls.new_events(self._name, after, until, columns, **bounds)
        return self._transport.batches(call)

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<chronicle.Stream {self.name!r} of {self._transport.where}>"
