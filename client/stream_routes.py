"""The routes of a stream as methods, for ingest, Spark and the command line.  Answers stay JSON;
only schemas and batches become objects.  Users have ``RemoteStream``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from ..core.caches import lazy
from ..schema import StreamSchema
from .answers import schema_of
from .calls import check
from .feeds import RemoteFeed
from .stream_calls import StreamCalls
from .transport import Transport

__all__ = ["StreamRoutes"]


class StreamRoutes:
    """A stream behind a server; it need not exist, nor have a name for queries only."""

    def __init__(self, transport: Transport, name: str) -> None:
        self.transport = transport
        self.name = name

    @lazy
    def calls(self) -> StreamCalls:
        return StreamCalls(self.name)

    def describe(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.transport.json(self.calls.describe())
        return answer

    def schema(self) -> StreamSchema:
        return schema_of(self.describe(), self.transport.where)

    def count(self) -> int:
        return int(self.describe()["count"])

    def create(
        self,
        schema: StreamSchema,
        *,
        codec: str = "lz4",
        retention: str | None = None,
        unique: str | None = None,
        within: str | None = None,
        if_not_exists: bool = False,
    ) -> StreamSchema:
        options = {"unique": unique, "within": within} if unique or within else None
        call = self.calls.create(schema, codec, retention, options, if_not_exists)
        return schema_of(self.transport.json(call), self.transport.where)

    def drop(self) -> None:
        self.transport.json(self.calls.drop())

    def create_index(self, attribute: str, lag_events_max: int | None = None) -> None:
        self.transport.json(self.calls.create_index(attribute, lag_events_max=lag_events_max))

    def drop_index(self, attribute: str) -> None:
        self.transport.json(self.calls.drop_index(attribute))

    def append(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Any:
        return self.transport.send(self.calls.append(), schema, batches)

    def events(
        self, columns: Sequence[str], where: str | None, limit: int | None, **bounds: object | None
    ) -> pa.RecordBatchReader:
        """Events in time order; ``bounds`` are ``start``, ``end`` (ticks), ``version``."""
        return self.transport.batches(self.calls.events(columns or None, where, limit, **bounds))

    def check_filter(self, where: str) -> None:
        """Raise the server's error for a wrong predicate."""
        self.transport.batches(self.calls.events(None, where, 0)).read_all()

    def partitions(self, parts: int | None, **bounds: object | None) -> Any:
        return self.transport.json(self.calls.partitions(parts, **bounds))

    def put_part(
        self, transaction: str, part: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> None:
        self.transport.send(self.calls.put_part(transaction, part), schema, batches)

    def commit(
        self,
        transaction: str,
        parts: Sequence[str],
        truncate: bool = False,
        over: tuple[int | None, int | None] | None = None,
        application: str | None = None,
        version: int | None = None,
    ) -> Any:
        """Commit parts; repeatable."""
        call = self.calls.commit(transaction, parts, truncate, over, application, version)
        return self.transport.json(call)

    def abort(self, transaction: str) -> None:
        self.transport.json(self.calls.abort(transaction))

    def tail(
        self,
        after: str = "now",
        *,
        follow: bool = True,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> RemoteFeed:
        return RemoteFeed(self.transport, self.calls.tail(after, follow, where, columns))

    def keep_position(self, **which: object | None) -> str | None:
        """``at`` a commit, or the last one if it is ``after`` a position."""
        name = self.transport.json(self.calls.keep_position(**which))["position"]
        return None if name is None else str(name)

    def drop_position(self, name: str) -> None:
        self.transport.json(self.calls.drop_position(name))

    def changes(self, after: str | None, until: str) -> Any:
        return self.transport.json(self.calls.changes(after, until))["ranges"]

    def new_events(
        self, after: str | None, until: str, columns: Sequence[str], **bounds: object | None
    ) -> pa.RecordBatchReader:
        return self.transport.batches(self.calls.new_events(after, until, columns, **bounds))

    def query_schema(self, text: str) -> pa.Schema:
        """Schema of a query's result, from an answer without rows."""
        return self.transport.batches(check(text)).read_all().schema
