"""Queries whose rows become part of a small JSON answer.  Each takes a query slot, is listed and
cancellable, is read-only, and ends on the server's time limit or when its client disconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from fastapi import Request

from ...query.sql.parameters import names_in
from ..access.auth import Principal
from ..access.statement_rights import authorize, visible_to
from ..service.running_queries import RunningQuery
from ..service.state import Server, server_of
from .statement_values import values_of

__all__ = ["SmallQueries"]


class SmallQueries:
    def __init__(self, server: Server, principal: Principal, query: RunningQuery) -> None:
        self.server = server
        self._principal = principal
        self._query = query
        self._until = time.monotonic() + server.settings.query_timeout

    def rows(
        self, text: str, params: Mapping[str, Any] | None, limit: int
    ) -> tuple[pa.Table, bool]:
        """The first rows of a query, and whether there are more; ignores unused parameters."""
        named = names_in(text)
        result = self.server.database.sql(
            text,
            values_of({n: value for n, value in (params or {}).items() if n in named}) or None,
            max(0.001, self._until - time.monotonic()),
            read_only=True,
            cancellation=self._query.cancellation,
            visible=visible_to(self._principal),
            allowed=partial(authorize, self._principal),
            tell=self.server.tell(self._principal),
        )
        taken: list[pa.RecordBatch] = []
        count = 0
        try:
            for batch in result.batches():
                taken.append(batch)
                count += batch.num_rows
                if count > limit:
                    break
        finally:
            result.close()
        table = pa.Table.from_batches(taken, result.schema)
        return table.slice(0, limit), count > limit

    @staticmethod
    async def answer(
        request: Request,
        principal: Principal,
        text: str,
        work: Callable[[RunningQuery], dict[str, Any]],
    ) -> dict[str, Any]:
        server = server_of(request)
        async with server.queries.held(principal.client):
            query = server.running.add(request.state.request_id, "query", text, principal)
            gone = asyncio.create_task(_end_with_client(request, query))
            try:
                with server.running.logged(query):
                    return await server.call(work, query)
            finally:
                server.running.remove(query)
                gone.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await gone


async def _end_with_client(request: Request, query: RunningQuery) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    query.cancellation.cancel()
