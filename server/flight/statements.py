"""Queries behind tickets, and statements that change something. ::

    GetFlightInfo: slot -> thread: open, rows to messages -> pipe (<= 4 MiB)    ticket
    DoGet:                                                   pipe -> the client
                      ^
    cancellation -----'  CancelFlightInfo, disconnect, or no DoGet in time

A statement runs once; its ticket is valid once, for the same token.  A query that nobody fetches
within ``CHRONICLE_CLIENT_TIMEOUT_MS`` ends.  Limits: ``HELD_MAX`` waiting tickets,
``CHRONICLE_MAX_CLIENT_QUERIES`` per client.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...query.contract.result import changed_events
from ..http.body_pipe import BodyPipe
from ..http.problems import Problem
from ..service.audit import STATEMENT
from ..service.computing import account_for, compute
from ..service.encoding import Tally
from ..service.running_queries import RunningQuery
from ..service.state import Server
from ..service.statements import open_statement
from .arrow_data import framed, write_rows
from .calls import Call
from .messages import parse

__all__ = ["Params", "Statements"]

HELD_MAX = 256
FORMAT = "flight"
Params = dict[str, Any] | list[Any] | None


@dataclass
class _Begun:
    """A query being computed; ``first`` is the schema message, None once DoGet took it."""

    query: RunningQuery
    pipe: BodyPipe
    first: bytes | None
    expiry: asyncio.TimerHandle

    def belongs_to(self, call: Call) -> bool:
        return self.query.principal.token == call.principal.token

    def end(self) -> None:
        self.expiry.cancel()
        self.query.cancellation.cancel()
        self.pipe.abandon()


class Statements:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._begun: dict[bytes, _Begun] = {}

    def end_all(self) -> None:
        for begun in self._begun.values():
            begun.end()
        self._begun.clear()

    async def begin(self, call: Call, text: str, params: Params) -> tuple[bytes, bytes]:
        server, principal = self._server, call.principal
        call.scope[STATEMENT] = text
        self._check_room(principal.client)
        slot = await server.queries.enter(principal.client)
        query = server.running.add(call.request_id, "query", text, principal)
        pipe = BodyPipe()
        tally = Tally(None, server.settings.max_rows)

        def write() -> None:
            result = self._open(query, text, params)
            try:
                write_rows(result.schema, tally.cut(result.batches(), query, False), pipe)
            finally:
                result.close()

        compute(server, slot, query, pipe, tally, FORMAT, write)
        try:
            first = await pipe.next_block()
        except BaseException:
            query.cancellation.cancel()
            pipe.abandon()
            raise
        assert first is not None, "an answer has a schema"
        handle = secrets.token_bytes(16)
        wait_s = server.settings.client_timeout_ms / 1000
        expiry = asyncio.get_running_loop().call_later(wait_s, self._expire, handle)
        self._begun[handle] = _Begun(query, pipe, first, expiry)
        return handle, framed(parse("FlightData", first))

    async def send(self, call: Call, handle: bytes) -> None:
        begun = self._begun.get(handle)
        if (
            begun is None
            or begun.first is None
            or begun.query.principal.token != call.principal.token
        ):
            raise Problem(
                "not-found",
                404,
                "no query waits under this ticket: it was taken, cancelled, or not fetched in time",
            )
        begun.expiry.cancel()
        block: bytes | None = begun.first
        begun.first = None
        call.scope[STATEMENT] = begun.query.text
        try:
            while block is not None:
                await call.send_bytes(block)
                block = await begun.pipe.next_block()
        finally:
            begun.end()
            self._begun.pop(handle, None)

    def cancel(self, call: Call, handle: bytes) -> None:
        begun = self._begun.get(handle)
        if begun is None or not self._server.running.visible(begun.query, call.principal):
            raise Problem("not-found", 404, "no query waits or runs under this ticket")
        begun.end()
        self._begun.pop(handle, None)

    async def run(self, call: Call, text: str, params: Params) -> int:
        """Run a statement: number of changed events, or -1.  A disconnect cancels it unless it
        commits.
        """
        server = self._server
        call.scope[STATEMENT] = text
        async with server.queries.held(call.principal.client):
            query = server.running.add(call.request_id, "query", text, call.principal)
            started = time.perf_counter()
            error: BaseException | None = None

            def work() -> int:
                with server.running.logged(query):
                    result = self._open(query, text, params)
                    try:
                        return changed_events(result)
                    finally:
                        result.close()

            job = asyncio.ensure_future(server.call(work))
            try:
                return await asyncio.shield(job)
            except asyncio.CancelledError:
                query.cancellation.cancel()
                await asyncio.wait([job])
                raise
            except BaseException as raised:
                error = raised
                raise
            finally:
                server.running.remove(query)
                seconds = time.perf_counter() - started
                account_for(server, "query", FORMAT, Tally(None, 0), error, seconds)

    async def schema(self, call: Call, text: str, params: Params) -> pa.Schema:
        server = self._server
        call.scope[STATEMENT] = text

        def work() -> pa.Schema:
            result = self._open(query, text, params, read_only=True)
            try:
                return result.schema
            finally:
                result.close()

        async with server.queries.held(call.principal.client):
            query = server.running.add(call.request_id, "query", text, call.principal)
            try:
                return await server.call(work)
            finally:
                server.running.remove(query)

    def _open(self, query: RunningQuery, text: str, params: Params, **more: Any) -> Any:
        timeout = self._server.settings.query_timeout
        return open_statement(self._server, query.principal, query, text, params, timeout, **more)

    def _check_room(self, client: str) -> None:
        waiting = [b for b in self._begun.values() if b.first is not None]
        mine = sum(begun.query.principal.client == client for begun in waiting)
        if mine >= self._server.settings.max_client_queries or len(waiting) >= HELD_MAX:
            raise Problem(
                "too-many-requests",
                429,
                f"{mine} queries of this client, {len(waiting)} of all, wait for DoGet with their "
                "tickets; fetch their rows, or cancel them",
            )

    def _expire(self, handle: bytes) -> None:
        begun = self._begun.pop(handle, None)
        if begun is not None:
            begun.end()
