"""The rows of ``await db.sql(...)``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import InvalidArgument
from ..query.contract.result import Result
from .async_transport import AsyncRows

if TYPE_CHECKING:
    from ..query.contract.explanation import Plan

__all__ = ["AsyncResult"]


class AsyncResult:
    """Rows of one statement, fetched as they are taken; its methods are those of ``Result``,
    awaited.

    Closing it, or leaving ``async with``, ends the query.
    """

    def __init__(self, rows: AsyncRows, explain: Callable[[], Awaitable[Plan]] | None) -> None:
        self._rows = rows
        self._explain = explain
        self._whole: Result | None = None
        self._started = False

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    async def plan(self) -> Plan | None:
        return None if self._explain is None else await self._explain()

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows in batches, once, in bounded memory."""
        if self._started:
            raise InvalidArgument(
                "the rows of this result were taken as batches; run the statement again"
            )
        self._started = True
        async for batch in self._rows:
            yield batch

    async def _result(self) -> Result:
        if self._whole is None:
            taken = [batch async for batch in self.batches()]
            self._whole = Result.of_table(pa.Table.from_batches(taken, self.schema))
        return self._whole

    async def arrow(self) -> pa.Table:
        return (await self._result()).arrow()

    async def df(self) -> Any:
        return (await self._result()).df()

    async def pl(self) -> Any:
        return (await self._result()).pl()

    async def fetchall(self) -> list[tuple[Any, ...]]:
        return (await self._result()).fetchall()

    async def fetchone(self) -> tuple[Any, ...] | None:
        return (await self._result()).fetchone()

    async def close(self) -> None:
        await self._rows.close()

    async def __aiter__(self) -> AsyncIterator[tuple[Any, ...]]:
        for row in await self.fetchall():
            yield row

    async def __aenter__(self) -> AsyncResult:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<chronicle.AsyncResult ({', '.join(self.columns)})>"
