"""DoPut: parameters, updates and bulk events, which are stored in one commit or not at all.  The
data becomes a body with the limits of HTTP, read by a worker process.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from ...errors import InvalidArgument
from ...formats import Layout, Limits
from ..access.server_directory import server_directory
from ..http.problems import Problem
from ..service.bodies import MEMORY_BYTES, Body, body_too_large, fill
from ..service.event_parsing import events_of
from ..service.file_ingest import FileOptions, ingest_file, look_at
from ..service.state import Server
from .arrow_data import END_OF_STREAM, as_stream
from .calls import Call
from .catalogue import CATALOG, SCHEMA
from .messages import command_of, made, parse
from .prepared import PreparedStatements, Rows
from .statements import Statements

__all__ = ["Loading", "no_transaction"]

PARAMETERS_BYTES = 64 << 20
"""Most bytes of one statement's parameters, as sent and decoded."""

_CREATE, _FAIL_WITHOUT = 1, 2
_FAIL_WITH, _APPEND, _REPLACE = 1, 2, 3
"""Values of the protocol's TableNotExistOption and TableExistsOption."""


def no_transaction(command: Any) -> None:
    if command.HasField("transaction_id"):
        raise Problem(
            "not-supported", 501, "there are no transactions here: each statement commits"
        )


class Loading:
    def __init__(
        self, server: Server, statements: Statements, prepared: PreparedStatements
    ) -> None:
        self._server = server
        self._statements = statements
        self._prepared = prepared

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
            count = await self._statements.run(call, command.query, None)
        elif name == "CommandPreparedStatementUpdate":
            count = await self._update(call, first, command.prepared_statement_handle)
        elif name == "CommandPreparedStatementQuery":
            prepared = self._prepared.find(call, command.prepared_statement_handle)
            prepared.bind(await self._parameters(call, first))
            return
        elif name == "CommandStatementIngest":
            count = await self._ingest(call, first, command)
        else:
            raise Problem("bad-request", 400, f"{name} is not for DoPut")
        told = made("DoPutUpdateResult", record_count=count).SerializeToString()
        await call.send(made("PutResult", app_metadata=told))

    async def _update(self, call: Call, first: Any, handle: bytes) -> int:
        prepared = self._prepared.find(call, handle)
        rows = await self._parameters(call, first)
        run = prepared.each(rows or prepared.bound)
        return 0 if run is None else await self._statements.run(call, *run)

    # ---------------------------------------------------------------------------- bodies

    @contextlib.asynccontextmanager
    async def _received(
        self, call: Call, first: Any, most: int, *, staged: bool = False
    ) -> AsyncIterator[Body]:
        server, client = self._server, call.principal.client
        directory = server_directory(server.database.path, create=True)
        async with server.bodies.held(client):
            with server.uploads.account(client) as account:
                if staged:
                    account.hold(MEMORY_BYTES)
                body = Body(directory, None, None if staged else account)
                with contextlib.closing(body):
                    await fill(body, _pieces(call, first, most))
                    yield body

    async def _parameters(self, call: Call, first: Any) -> Rows:
        server = self._server

        def read() -> Rows:
            if body.size == len(END_OF_STREAM):
                return []
            layout = Layout(time=None, timeless=True)
            limits = Limits(columns=server.settings.max_columns, total_bytes=PARAMETERS_BYTES)
            batches = events_of(
                body, "arrow", layout, PARAMETERS_BYTES, server.reader, name="parameters",
                limits=limits,
            )  # fmt: skip
            return [row for batch in batches for row in batch.to_pylist()]

        async with self._received(call, first, PARAMETERS_BYTES) as body:
            return await server.call(read)

    # ------------------------------------------------------------------- events in bulk

    async def _ingest(self, call: Call, first: Any, command: Any) -> int:
        server, stream = self._server, command.table
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
                server.database.stream_schema(stream).time_unit is None
            )
            rule = "ticks" if ticks else "auto"
            options = FileOptions(name=stream, format="arrow", time=chosen, time_format=rule)
            report = ingest_file(
                server, body, options, strict=True, stream=stream, create=create,
                if_exists=if_exists,
            ).report  # fmt: skip
            server.metrics.appended_events.labels("flight").inc(report.stored)
            server.metrics.late_events.inc(report.late)
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
        raise Problem("not-supported", 501, "there are no temporary streams")
    for field, only in (("catalog", CATALOG), ("schema", SCHEMA)):
        if command.HasField(field) and getattr(command, field) not in ("", only):
            raise InvalidArgument(
                f"streams are in the {field} {only!r}, found {getattr(command, field)!r}"
            )
    said = command.table_definition_options
    found = (said.if_not_exist, said.if_exists)
    if said.if_exists == _REPLACE:
        raise Problem(
            "not-supported", 501, "a stream is not replaced by a load: drop it, then make it anew"
        )
    known = {
        (_CREATE, _FAIL_WITH): (True, "fail"),
        (_CREATE, _APPEND): (True, "append"),
        (_FAIL_WITHOUT, _APPEND): (False, "fail"),
    }
    if found not in known:
        raise InvalidArgument(
            "expected to create the stream, to append to it, or both, where it is not and where it "
            f"is; found if_not_exist={found[0]}, if_exists={found[1]}"
        )
    return known[found]
