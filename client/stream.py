"""A stream of a server: what ``chronicle.connect(url).stream(name)`` gives.

Purpose
    The methods of :class:`chronicle.streams.Stream`, over REST with Arrow both ways.

Guarantee
    Times, values and errors are those of the embedded stream.  Reading works on a snapshot that the
    server takes when the call is made, and an answer that broke off is an error.  An append is
    atomic as there; it is sent again only under an ``idempotency_key``.

Limits
    The schema is what the server told last: when the stream was opened, described or appended to in
    vain.  ``filter`` is a SQL predicate; an Arrow expression stays on the side that made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ..core.append_result import AppendResult
from ..errors import ConnectionFailed, SchemaMismatch
from . import calls
from .answers import (
    append_result,
    grouped_by_functions,
    time_range_of,
    values_of,
)
from .feeds import RemoteFeed
from .known_stream import KnownStream
from .outgoing import (
    PIECE_ROWS,
    SENT_ONCE,
    altered,
    begun,
    column_added,
    column_widened,
    key_of_part,
    may_fit,
    predicate_of,
    settings_changed,
)
from .transport import Transport

__all__ = ["RemoteStream"]


class RemoteStream(KnownStream):
    """A stream of a server; made by :meth:`.RemoteDatabase.stream` and ``create_stream``."""

    def __init__(self, transport: Transport, name: str, told: Any) -> None:
        super().__init__(name, told, transport.where)
        self._transport = transport

    # ------------------------------------------------------------------ what it is

    @property
    def count(self) -> int:
        """Number of events stored; asks the server."""
        return int(self._describe()["count"])

    @property
    def time_range(self) -> tuple[Any, Any] | None:
        """Times of the first and of the last event, both inclusive; asks the server."""
        return time_range_of(self._describe(), self._schema)

    def stats(self) -> dict[str, Any]:
        """Figures of the stream: events, bytes, segments, late events."""
        return dict(self._describe()["stats"])

    def _describe(self) -> Any:
        return self._told(self._transport.json(self._calls.describe()))

    # --------------------------------------------------------------------- writing

    def append(
        self, data: Any, durability: str | None = None, *, idempotency_key: str | None = None
    ) -> AppendResult:
        """Append events.

        Parameters
        ----------
        data, durability
            As of :meth:`chronicle.streams.Stream.append`; a reader is appended in parts of about
            64 MB, each of them atomic.
        idempotency_key : str, optional
            Any text of up to 240 characters that no other append has.  With one, an append whose
            answer was lost is sent again without being stored twice, by this call and by another
            one with the same data.  It costs the server two more writes to its disk.

        Raises
        ------
        ConnectionFailed
            Without a key also when it is not known whether the events were stored.
        """
        appended = late = duplicates = 0
        done = None
        for number, table in enumerate(self._tables(data)):
            call = self._calls.append(durability, key_of_part(idempotency_key, number))
            try:
                answer = self._transport.send(call, table.schema, table.to_batches(PIECE_ROWS))
            except ConnectionFailed as error:
                if idempotency_key is None:
                    error.add_note(SENT_ONCE)
                raise
            done = append_result(answer)
            appended += done.appended
            late += done.late
            duplicates += done.duplicates
        assert done is not None  # of nothing, there is one empty table
        return AppendResult(appended, late, done.count, done.version, duplicates=duplicates)

    def _tables(self, data: Any) -> Iterator[pa.Table]:
        known = self._schema
        try:
            return begun(data, known)
        except SchemaMismatch:
            self._describe()  # somebody else may have added a column
            if not may_fit(data, known, self._schema):
                raise
            return begun(data, self._schema)

    def delete(self, where: str | None, start: object = None, end: object = None) -> int:
        """Delete events for good, in one commit; as :meth:`chronicle.streams.Stream.delete`.

        Raises
        ------
        ConnectionFailed
            Also when it is not known whether they were deleted: deleting again does no harm.
        """
        call = self._calls.delete(where, **calls.bounds(self._schema, start, end))
        return int(self._transport.json(call)["deleted"])

    def update(
        self,
        values: Mapping[str, str],
        where: str | None,
        start: object = None,
        end: object = None,
    ) -> int:
        """Give events other values, in one commit; as :meth:`chronicle.streams.Stream.update`.

        Raises
        ------
        ConnectionFailed
            Also when it is not known whether they were updated.
        """
        call = self._calls.update(values, where, **calls.bounds(self._schema, start, end))
        return int(self._transport.json(call)["updated"])

    def add_column(
        self, name: str, type_: pa.DataType, *, nullable: bool = True, default: Any = None
    ) -> None:
        """Add an attribute at the end; as :meth:`chronicle.streams.Stream.add_column`."""
        self._alter(column_added(self.name, name, type_, nullable, default))

    def widen_column(self, name: str, type_: pa.DataType) -> None:
        """Give an attribute a type that holds all values of its old one."""
        self._alter(column_widened(self.name, name, type_))

    def drop_column(self, name: str) -> None:
        """Drop an attribute other than the time, with its index."""
        self._alter(altered(self.name, "DROP COLUMN", name))

    def rename_column(self, name: str, to: str) -> None:
        """Give an attribute another name; its index follows."""
        self._alter(altered(self.name, "RENAME COLUMN", name, to))

    def set_options(self, **options: Any) -> None:
        """Change settings of the stream; as :meth:`chronicle.streams.Stream.set_options`."""
        self._alter(settings_changed(self.name, options))

    def _alter(self, statement: str) -> None:
        self._transport.batches(calls.query(statement)).read_all()
        self._describe()

    def create_index(
        self, attribute: str, *, wait: bool = True, lag_events_max: int | None = None
    ) -> None:
        """Build a secondary index on an attribute, in the background when ``wait`` is false."""
        call = self._calls.create_index(attribute, wait=wait, lag_events_max=lag_events_max)
        self._transport.json(call)

    def drop_index(self, attribute: str) -> None:
        """Remove the secondary index on an attribute; raises :class:`IndexNotFound`."""
        self._transport.json(self._calls.drop_index(attribute))

    def indexes(self) -> list[dict[str, Any]]:
        """The stream's secondary indexes: attribute, state and covered fraction of each."""
        return list(self._transport.json(self._calls.indexes())["indexes"])

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
        """Read events in time order; as :meth:`chronicle.streams.Stream.scan`.

        Parameters
        ----------
        filter : str, optional
            A SQL predicate such as ``"altitude > 10000 AND icao24 LIKE 'a%'"``.
        """
        bounds = calls.bounds(self._schema, start, end)
        call = self._calls.events(columns, predicate_of(filter), limit, **bounds)
        return self._transport.batches(call)

    def tail(
        self,
        after: str | int = "now",
        *,
        follow: bool = True,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> RemoteFeed:
        """Read what is appended, as it is committed; as :meth:`chronicle.streams.Stream.tail`."""
        return RemoteFeed(self._transport, self._calls.tail(after, follow, where, columns))

    def aggregate(
        self,
        functions: Mapping[str, str | Iterable[str]],
        start: object = None,
        end: object = None,
    ) -> dict[str, dict[str, Any]]:
        """Aggregate attributes over ``[start, end)``: :meth:`chronicle.streams.Stream.aggregate`.

        Attributes that are asked for the same functions are one request, and of one snapshot.
        """
        bounds = calls.bounds(self._schema, start, end)
        found: dict[str, dict[str, Any]] = {}
        for wanted, names in grouped_by_functions(functions, self._schema):
            answer = self._transport.json(self._calls.aggregate(names, wanted, **bounds))
            found |= {name: values_of(answer, name, wanted, self._schema) for name in names}
        return {name: found.get(name, {}) for name in functions}

    # ------------------------------------------------------------------- positions

    def keep_position(self, at: int | None = None, after: str | None = None) -> str | None:
        """Keep a commit, so that what comes later can be read against it (``docs/rest.md``).

        Parameters
        ----------
        at : int, optional
            A commit's version; the last one by default.
        after : str, optional
            Only if something was committed after this position, which is renewed.

        Returns
        -------
        str or None
            Name of the position; None: nothing is new.
        """
        name = self._transport.json(self._calls.keep_position(at=at, after=after))["position"]
        return None if name is None else str(name)

    def drop_position(self, position: str) -> None:
        """Give a position up, and what the server keeps for it."""
        self._transport.json(self._calls.drop_position(position))

    def changes(
        self,
        after: str | None,
        until: str,
        columns: Sequence[str] | None = None,
        *,
        start: object = None,
        end: object = None,
    ) -> pa.RecordBatchReader:
        """Events committed after one position (None: the beginning) and up to another one.

        Each of them once, in time order, and the same whenever it is asked for.
        """
        bounds = calls.bounds(self._schema, start, end)
        return self._transport.batches(self._calls.new_events(after, until, columns, **bounds))

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True
