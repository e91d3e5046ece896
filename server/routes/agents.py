"""``/mcp``: the tools for language models (``agents.tools``) over HTTP: streamable, stateless, JSON
only, by the package ``mcp``, which the first request loads.  A request needs the scope ``read`` and
a query slot; its queries are listed, cancellable and logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...agents.tools import tools_over
from ...errors import StreamNotFound
from ...query.contract.result import Result
from ..access.auth import Principal, authorize, visible_to
from ..service.query_log import RunningQuery
from ..service.row_stream import open_statement
from ..service.state import Server
from .route import Call, Routes

if TYPE_CHECKING:
    from ...query.contract.explanation import Plan


routes = Routes("agents")
BODY_BYTES_MAX = 1 << 20
IDLE = "tools of an agent"


@dataclass
class _Asking:
    principal: Principal
    query: RunningQuery
    error: BaseException | None = None


_asking: ContextVar[_Asking] = ContextVar("asking")
"""The request that a tool works for; its tasks and threads inherit it."""


class _Requested:
    def __init__(self, server: Server) -> None:
        self._server = server

    def streams(self) -> list[str]:
        may = partial(_asking.get().principal.may, "read")
        return [name for name in self._server.database.streams() if may(name)]

    def stream(self, name: str) -> Any:
        principal = _asking.get().principal
        principal.require("read", name)
        try:
            return self._server.database.stream(name)
        except StreamNotFound:
            if visible_to(principal) is None:
                raise  # its text lists all streams
            raise StreamNotFound(f"no stream {name!r} within the token's reach") from None

    def sql(
        self,
        text: str,
        params: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        *,
        read_only: bool = False,
    ) -> Result:
        server, asking = self._server, _asking.get()
        values, seconds = dict(params or {}) or None, self._seconds(timeout)
        with _noted(text):
            source = open_statement(
                server, asking.principal, asking.query, text, values, seconds, read_only=read_only
            )
        return Result(source.schema, _watched(source.batches()), None, source.close)

    def explain(self, text: str, *, timeout: float | None = None) -> Plan:
        principal = _asking.get().principal
        with _noted(text):
            return self._server.engine_for(principal).explain(
                text, timeout=self._seconds(timeout), allowed=partial(authorize, principal)
            )

    def _seconds(self, wanted: float | None) -> float:
        most = self._server.settings.query_timeout
        return most if wanted is None else min(most, wanted)


@contextmanager
def _noted(text: str | None = None) -> Iterator[None]:
    """Note the statement of the request, and an error of the block."""
    asking = _asking.get()
    if text is not None:
        asking.query.text = text
    try:
        yield
    except Exception as error:
        asking.error = error
        raise


def _watched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with _noted():
        yield from batches


class Agents:
    """The protocol's session manager, created on first use; lives on the event loop."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ends = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._made: asyncio.Future[Any] | None = None

    async def manager(self) -> Any:
        if self._made is None:
            self._made = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._made))
        return await asyncio.shield(self._made)

    async def _run(self, made: asyncio.Future[Any]) -> None:
        try:
            manager = await asyncio.to_thread(_manager, self._server)
        except Exception as error:
            self._made = None  # retry later: it may be installed meanwhile
            made.set_exception(error)
            return
        async with manager.run():
            made.set_result(manager)
            await self._ends.wait()

    async def close(self) -> None:
        self._ends.set()
        if self._task is not None:
            await self._task


def _manager(server: Server) -> Any:
    tools = tools_over(_Requested(server))
    from mcp.server.transport_security import TransportSecuritySettings

    tools.streamable_http_app(
        json_response=True,
        stateless_http=True,
        max_request_body_size=BODY_BYTES_MAX,
        # hosts and origins were checked before
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return tools.session_manager


class _Handed(Response):
    def __init__(self, answer: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        super().__init__()
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send)


@routes.post("/mcp", needs="read")
async def mcp(call: Call) -> Response:
    """One message of the Model Context Protocol."""
    server, principal = call.server, call.principal
    agents: Agents = call.request.app.state.agents
    manager = await agents.manager()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async with server.queried(call.id, IDLE, principal) as query:
            asking = _Asking(principal, query)
            token = _asking.set(asking)
            try:
                await manager.handle_request(scope, receive, send)
            finally:
                _asking.reset(token)
                if query.text != IDLE:
                    server.running.log(query, None, asking.error)

    return _Handed(answer)
