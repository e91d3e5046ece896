"""Queries behind tickets, and statements that change something. ::

    GetFlightInfo: slot -> thread: open, rows to messages -> pipe (<= 4 MiB)    ticket
    DoGet:                                                   pipe -> the client
                      ^
    cancellation -----'  CancelFlightInfo, disconnect, or no DoGet in time

A statement runs once; its ticket is valid once, for the same token.  A query that nobody fetches
within ``CHRONICLE_CLIENT_TIMEOUT_MS`` ends.  Limits: ``HELD_MAX`` waiting tickets,
``CHRONICLE_MAX_CLIENT_QUERIES`` per client.

Prepared statements are checked, not run; they stay for ``IDLE_S`` after their last use, for the
token that prepared them, and count against its upload memory.  Parameter types are unknown before
binding (Arrow's ``null``, as in ADBC); columns are those with NULL parameters.  A query takes one
row of parameters; ``INSERT ... VALUES (?, ...)`` any number.

DoPut brings parameters, updates and bulk events, which are stored in one commit or not at all.  The
data becomes a body with the limits of HTTP, read by a worker process.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ...core.times import python_values
from ...errors import ChronicleError, InvalidArgument
from ...formats.dialect import Limits
from ...formats.layout import Layout
from ...query.contract.result import Result, changed_events
from ...query.relations import CATALOG, SCHEMA
from ...query.sql.first_word import as_columns
from ...query.sql.parameters import names_in
from ..access.auth import authorize
from ..access.limits import ByteAccount
from ..http.replies import Problem
from ..service.bodies import (
    Body,
    FileOptions,
    body_too_large,
    events_of,
    filled,
    ingest_file,
    look_at,
)
from ..service.middleware import STATEMENT
from ..service.query_log import RunningQuery, sees
from ..service.row_stream import BodyPipe, Tally, account_for, compute, open_statement
from ..service.state import Server
from .calls import END_OF_STREAM, Call, as_stream, command_of, framed, made, parse, write_rows

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
        self._check_limit(principal.client)
        slot = await server.queries.enter(principal.client)
        query = server.running.add(call.request_id, "query", text, principal)
        pipe = BodyPipe()
        tally = Tally(None, server.settings.max_rows)

        def write() -> None:
            with self._open(query, text, params) as result:
                write_rows(result.schema, tally.cut(result.batches(), query, False), pipe)

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
        if begun is None or not sees(call.principal, begun.query.principal):
            raise Problem("not-found", "no query waits or runs under this ticket")
        begun.end()
        self._begun.pop(handle, None)

    async def run(self, call: Call, text: str, params: Params) -> int:
        """Run a statement: number of changed events, or -1.  A disconnect cancels it unless it
        commits.
        """
        server = self._server
        call.scope[STATEMENT] = text
        async with server.queried(call.request_id, text, call.principal) as query:
            started = time.perf_counter()
            error: BaseException | None = None

            def work() -> int:
                with server.running.logged(query), self._open(query, text, params) as result:
                    return changed_events(result)

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
                seconds = time.perf_counter() - started
                account_for(server, "query", FORMAT, Tally(None, 0), error, seconds)

    async def schema(self, call: Call, text: str, params: Params) -> pa.Schema:
        server = self._server
        call.scope[STATEMENT] = text

        def work() -> pa.Schema:
            with self._open(query, text, params, read_only=True) as result:
                return result.schema

        async with server.queried(call.request_id, text, call.principal) as query:
            return await server.call(work)

    def _open(self, query: RunningQuery, text: str, params: Params, **more: Any) -> Result:
        timeout = self._server.settings.query_timeout
        return open_statement(self._server, query.principal, query, text, params, timeout, **more)

    def _check_limit(self, client: str) -> None:
        waiting = [b for b in self._begun.values() if b.first is not None]
        mine = sum(begun.query.principal.client == client for begun in waiting)
        if mine >= self._server.settings.max_client_queries or len(waiting) >= HELD_MAX:
            raise Problem(
                "too-many-requests",
                f"{mine} queries of this client, {len(waiting)} of all, wait for DoGet with their "
                "tickets; fetch their rows, or cancel them",
            )

    def _expire(self, handle: bytes) -> None:
        begun = self._begun.pop(handle, None)
        if begun is not None:
            begun.end()


IDLE_S = 600.0
KEPT_BYTES = 1024

Rows = list[dict[str, Any]]


@dataclass
class Prepared:
    """``names`` are the parameters ("1", "2" if positional), ``bound`` those of the next run."""

    text: str
    owner: Any
    names: list[str]
    account: ByteAccount
    release: contextlib.ExitStack
    bound: Rows = field(default_factory=list)
    used: float = field(default_factory=time.monotonic)

    def bind(self, rows: Rows) -> None:
        if len(rows) > 1:
            raise InvalidArgument(f"a query takes one row of parameters, found {len(rows)}")
        self.bound = rows

    @property
    def params(self) -> Params:
        if not self.names and not self.bound:
            return None
        if not self.bound:
            named = ", ".join(f"${name}" for name in self.names)
            raise InvalidArgument(f"no values were bound for the parameters {named}")
        return self._values(self.bound[0])

    @property
    def nothing(self) -> Params:
        return self._values(dict.fromkeys(self.names)) if self.names else None

    def each(self, rows: Rows) -> tuple[str, Params] | None:
        if not rows:
            return (self.text, None) if not self.names else None
        if len(rows) == 1:
            return self.text, self._values(rows[0])
        many = as_columns(self.text, [list(row.values()) for row in rows])
        if many is None:
            raise InvalidArgument(
                f"INSERT INTO stream (...) VALUES (?, ...) takes several rows of parameters, found "
                f"{len(rows)} for another statement; run it for each"
            )
        return many

    def _values(self, row: dict[str, Any]) -> Params:
        if all(name.isdigit() for name in self.names):
            return list(row.values())
        return {name.removeprefix("$"): value for name, value in row.items()}


class PreparedStatements:
    def __init__(self, server: Server, statements: Statements) -> None:
        self._server = server
        self._statements = statements
        self._by_handle: dict[bytes, Prepared] = {}

    async def make(self, call: Call, text: str) -> tuple[bytes, pa.Schema | None, pa.Schema]:
        """Prepare a statement: handle, schema of its rows if any, schema of its parameters."""
        self._forget_idle()
        call.scope[STATEMENT] = text
        server, principal = self._server, call.principal

        def look() -> tuple[str, list[str]]:
            access = server.engine_for(principal).access(text)
            authorize(principal, access)
            return access.scope, sorted(names_in(text), key=_place)

        async with server.queries.held(principal.client):
            scope, names = await server.call(look)
        release = contextlib.ExitStack()
        account = release.enter_context(server.uploads.account(principal.client))
        prepared = Prepared(text, principal.token, names, account, release)
        try:
            account.hold(len(text) + KEPT_BYTES)
            schema = await self._rows_of(call, prepared) if scope == "read" else None
        except BaseException:
            release.close()
            raise
        handle = secrets.token_bytes(16)
        self._by_handle[handle] = prepared
        return handle, schema, pa.schema([pa.field(name, pa.null()) for name in names])

    async def _rows_of(self, call: Call, prepared: Prepared) -> pa.Schema | None:
        try:
            return await self._statements.schema(call, prepared.text, prepared.nothing)
        except ChronicleError:
            if not prepared.names:
                raise
            return None  # a NULL may be the cause, as in LIMIT ?

    def find(self, call: Call, handle: bytes) -> Prepared:
        prepared = self._by_handle.get(handle)
        if prepared is None or prepared.owner != call.principal.token:
            raise Problem("not-found", "there is no such prepared statement; prepare it again")
        prepared.used = time.monotonic()
        return prepared

    def close(self, call: Call, handle: bytes) -> None:
        prepared = self._by_handle.get(handle)
        if prepared is not None and prepared.owner == call.principal.token:
            self._forget(handle)

    def close_all(self) -> None:
        for handle in list(self._by_handle):
            self._forget(handle)

    def _forget(self, handle: bytes) -> None:
        self._by_handle.pop(handle).release.close()

    def _forget_idle(self) -> None:
        oldest = time.monotonic() - IDLE_S
        for handle, prepared in list(self._by_handle.items()):
            if prepared.used < oldest:
                self._forget(handle)


def _place(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdigit() else (0, name)


PARAMETERS_BYTES = 64 << 20
"""Most bytes of one statement's parameters, as sent and decoded."""

_CREATE, _FAIL_WITHOUT = 1, 2
_FAIL_WITH, _APPEND, _REPLACE = 1, 2, 3
"""Values of the protocol's TableNotExistOption and TableExistsOption."""


def no_transaction(command: Any) -> None:
    if command.HasField("transaction_id"):
        raise Problem("not-supported", "there are no transactions here: each statement commits")


@dataclass(eq=False)
class Loading:
    server: Server
    statements: Statements
    prepared: PreparedStatements

    async def put(self, call: Call) -> None:
        try:
            await self._put(call)
        except Exception:
            await call.drain()
            raise

    async def _put(self, call: Call) -> None:
        first = await call.message("FlightData")
        name, command = command_of(first.flight_descriptor.cmd)
        if name == "CommandStatementUpdate":
            no_transaction(command)
            count = await self.statements.run(call, command.query, None)
        elif name == "CommandPreparedStatementUpdate":
            count = await self._update(call, first, command.prepared_statement_handle)
        elif name == "CommandPreparedStatementQuery":
            prepared = self.prepared.find(call, command.prepared_statement_handle)
            prepared.bind(await self._parameters(call, first))
            return
        elif name == "CommandStatementIngest":
            count = await self._ingest(call, first, command)
        else:
            raise Problem("bad-request", f"{name} is not for DoPut")
        result = made("DoPutUpdateResult", record_count=count).SerializeToString()
        await call.send(made("PutResult", app_metadata=result))

    async def _update(self, call: Call, first: Any, handle: bytes) -> int:
        prepared = self.prepared.find(call, handle)
        rows = await self._parameters(call, first)
        run = prepared.each(rows or prepared.bound)
        return 0 if run is None else await self.statements.run(call, *run)

    # ---------------------------------------------------------------------------- bodies

    def _received(
        self, call: Call, first: Any, most: int, *, staged: bool = False
    ) -> contextlib.AbstractAsyncContextManager[Body]:

        async def receive(account: ByteAccount | None) -> Body:
            body = Body(self.server.directory, None, account)
            return await filled(body, _pieces(call, first, most))

        return self.server.uploading(call.principal.client, receive, staged=staged)

    async def _parameters(self, call: Call, first: Any) -> Rows:
        server = self.server

        def read() -> Rows:
            if body.size == len(END_OF_STREAM):
                return []
            layout = Layout(time=None, timeless=True)
            limits = Limits(columns=server.settings.max_columns, total_bytes=PARAMETERS_BYTES)
            batches = events_of(
                body, "arrow", layout, PARAMETERS_BYTES, server.reader, name="parameters",
                limits=limits,
            )  # fmt: skip
            return [row for batch in batches for row in _rows_of(batch)]

        async with self._received(call, first, PARAMETERS_BYTES) as body:
            return await server.call(read)

    # ------------------------------------------------------------------- events in bulk

    async def _ingest(self, call: Call, first: Any, command: Any) -> int:
        server, stream = self.server, command.table
        create, if_exists = _mode(command)
        call.principal.require("write" if create else "ingest", stream)
        server.require_writable()
        time = command.options.get("time")
        unknown = sorted(set(command.options) - {"time"})
        if unknown:
            raise InvalidArgument(f"the option is time, the time column; found {unknown[0]!r}")

        def work() -> int:
            chosen = time
            if chosen is None and create:
                chosen = look_at(server, body, FileOptions(format="arrow"), None, 0).time
            ticks = stream in server.database.streams() and (
                server.catalog.stream_schema(stream).time_unit is None
            )
            rule = "ticks" if ticks else "auto"
            options = FileOptions(name=stream, format="arrow", time=chosen, time_format=rule)
            report = ingest_file(
                server, body, options, strict=True, stream=stream, create=create,
                if_exists=if_exists,
            ).report  # fmt: skip
            server.metrics.note_append("flight", report.stored, report.late)
            return report.stored

        most = server.settings.max_part_bytes
        async with self._received(call, first, most, staged=True) as body:
            if body.size == len(END_OF_STREAM):
                raise InvalidArgument("expected Arrow data with a schema, found none")
            async with server.appends.held(call.principal.client):
                return await server.call(work)


async def _pieces(call: Call, first: Any, most: int) -> AsyncGenerator[bytes, None]:
    size = 0
    data = first
    while True:
        piece = as_stream(data)
        size += len(piece)
        if size > most:
            raise body_too_large(most)
        yield piece
        received = await call.next_message()
        if received is None:
            yield END_OF_STREAM
            return
        data = parse("FlightData", received)


def _mode(command: Any) -> tuple[bool, str]:
    no_transaction(command)
    if command.temporary:
        raise Problem("not-supported", "there are no temporary streams")
    for name, only in (("catalog", CATALOG), ("schema", SCHEMA)):
        if command.HasField(name) and getattr(command, name) not in ("", only):
            raise InvalidArgument(
                f"streams are in the {name} {only!r}, found {getattr(command, name)!r}"
            )
    options = command.table_definition_options
    asked_for = (options.if_not_exist, options.if_exists)
    if options.if_exists == _REPLACE:
        raise Problem(
            "not-supported", "a stream is not replaced by a load: drop it, then make it anew"
        )
    modes = {
        (_CREATE, _FAIL_WITH): (True, "fail"),
        (_CREATE, _APPEND): (True, "append"),
        (_FAIL_WITHOUT, _APPEND): (False, "fail"),
    }
    if asked_for not in modes:
        raise InvalidArgument(
            "expected to create the stream, to append to it, or both, where it is not and where it "
            f"is; found if_not_exist={asked_for[0]}, if_exists={asked_for[1]}"
        )
    return modes[asked_for]


def _rows_of(batch: pa.RecordBatch) -> Rows:
    """Rows as Python has them; times that ``datetime`` lacks stay Arrow's."""
    columns = {
        name: python_values(column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return [
        {name: values[row] for name, values in columns.items()} for row in range(batch.num_rows)
    ]
