"""The asyncio version of ``stream``; ``count``, ``time_range`` and ``stats`` are methods here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ..core.append_result import AppendResult
from ..errors import ConnectionFailed, SchemaMismatch
from . import calls
from .answers import append_result, grouped_by_functions, time_range_of, values_of
from .async_feeds import AsyncTail
from .async_transport import AsyncRows, AsyncTransport
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

__all__ = ["AsyncStream"]


class AsyncStream(KnownStream):
    """A stream of a server for asyncio; its methods are those of ``RemoteStream``, awaited."""

    def __init__(self, transport: AsyncTransport, name: str, told: Any) -> None:
        super().__init__(name, told, transport.where)
        self._transport = transport

    async def count(self) -> int:
        return int((await self._describe())["count"])

    async def time_range(self) -> tuple[Any, Any] | None:
        return time_range_of(await self._describe(), self._schema)

    async def stats(self) -> dict[str, Any]:
        return dict((await self._describe())["stats"])

    async def _describe(self) -> Any:
        return self._told(await self._transport.json(self._calls.describe()))

    async def append(
        self, data: Any, durability: str | None = None, *, idempotency_key: str | None = None
    ) -> AppendResult:
        """As ``RemoteStream.append``; converts the data in a thread."""
        appended = late = duplicates = number = 0
        done = None
        tables = await self._tables(data)
        while (table := await asyncio.to_thread(next, tables, None)) is not None:
            call = self._calls.append(durability, key_of_part(idempotency_key, number))
            batches = table.to_batches(PIECE_ROWS)
            try:
                answer = await self._transport.send(call, table.schema, batches)
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

    async def _tables(self, data: Any) -> Iterator[pa.Table]:
        known = self._schema
        try:
            return await asyncio.to_thread(begun, data, known)
        except SchemaMismatch:
            await self._describe()  # another client may have added a column
            if not may_fit(data, known, self._schema):
                raise
            return await asyncio.to_thread(begun, data, self._schema)

    async def delete(self, where: str | None, start: object = None, end: object = None) -> int:
        call = self._calls.delete(where, **calls.bounds(self._schema, start, end))
        return int((await self._transport.json(call))["deleted"])

    async def update(
        self,
        values: Mapping[str, str],
        where: str | None,
        start: object = None,
        end: object = None,
    ) -> int:
        call = self._calls.update(values, where, **calls.bounds(self._schema, start, end))
        return int((await self._transport.json(call))["updated"])

    async def add_column(
        self, name: str, type_: pa.DataType, *, nullable: bool = True, default: Any = None
    ) -> None:
        await self._alter(column_added(self.name, name, type_, nullable, default))

    async def widen_column(self, name: str, type_: pa.DataType) -> None:
        await self._alter(column_widened(self.name, name, type_))

    async def drop_column(self, name: str) -> None:
        await self._alter(altered(self.name, "DROP COLUMN", name))

    async def rename_column(self, name: str, to: str) -> None:
        await self._alter(altered(self.name, "RENAME COLUMN", name, to))

    async def set_options(self, **options: Any) -> None:
        await self._alter(settings_changed(self.name, options))

    async def _alter(self, statement: str) -> None:
        async for _ in await self._transport.rows(calls.query(statement)):
            pass
        await self._describe()

    async def create_index(
        self, attribute: str, *, wait: bool = True, lag_events_max: int | None = None
    ) -> None:
        call = self._calls.create_index(attribute, wait=wait, lag_events_max=lag_events_max)
        await self._transport.json(call)

    async def drop_index(self, attribute: str) -> None:
        await self._transport.json(self._calls.drop_index(attribute))

    async def indexes(self) -> list[dict[str, Any]]:
        return list((await self._transport.json(self._calls.indexes()))["indexes"])

    async def scan(
        self,
        start: object = None,
        end: object = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        *,
        limit: int | None = None,
    ) -> AsyncRows:
        """As ``RemoteStream.scan``: an async iterator of record batches, with a schema."""
        bounds = calls.bounds(self._schema, start, end)
        call = self._calls.events(columns, predicate_of(filter), limit, **bounds)
        return await self._transport.rows(call)

    def tail(
        self,
        after: str | int = "now",
        *,
        follow: bool = True,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> AsyncTail:
        """As ``RemoteStream.tail``, for ``async with`` and ``async for``."""
        return AsyncTail(self._transport, self._calls.tail(after, follow, where, columns))

    async def aggregate(
        self,
        functions: Mapping[str, str | Iterable[str]],
        start: object = None,
        end: object = None,
    ) -> dict[str, dict[str, Any]]:
        bounds = calls.bounds(self._schema, start, end)
        found: dict[str, dict[str, Any]] = {}
        for wanted, names in grouped_by_functions(functions, self._schema):
            answer = await self._transport.json(self._calls.aggregate(names, wanted, **bounds))
            found |= {name: values_of(answer, name, wanted, self._schema) for name in names}
        return {name: found.get(name, {}) for name in functions}

    async def keep_position(self, at: int | None = None, after: str | None = None) -> str | None:
        name = (await self._transport.json(self._calls.keep_position(at=at, after=after)))[
            "position"
        ]
        return None if name is None else str(name)

    async def drop_position(self, position: str) -> None:
        await self._transport.json(self._calls.drop_position(position))

    async def changes(
        self,
        after: str | None,
        until: str,
        columns: Sequence[str] | None = None,
        *,
        start: object = None,
        end: object = None,
    ) -> AsyncRows:
        bounds = calls.bounds(self._schema, start, end)
        return await self._transport.rows(self._calls.new_events(after, until, columns, **bounds))
