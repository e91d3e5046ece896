"""Dispatches the methods of Flight and the commands of Flight SQL. ::

    Handshake       exchanges a user's password, a token, for a bearer token
    GetFlightInfo   begins a query; PollFlightInfo does the same, and is done at once
    GetSchema       columns of a query, without running it
    DoGet           rows of a ticket: of a query, or of a metadata table
    DoPut           updates, parameters, bulk events (``loading``)
    DoAction        prepares and closes statements, cancels queries
    ListActions     these

Metadata needs the scope ``read``; ``GetSqlInfo`` and ``GetXdbcTypeInfo`` any token.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...errors import ReadOnlyStore
from ..access.auth import Principal
from ..http.problems import Problem
from ..service.state import Server
from .arrow_data import schema_bytes, written
from .calls import Answer, Call
from .catalogue import TABLES
from .loading import Loading, no_transaction
from .messages import command_of, made, packed, parse
from .prepared import PreparedStatements
from .sql_info import INFO_COMMANDS
from .statements import Params, Statements

__all__ = ["FlightService"]

_COMMAND = 2

_CANCELLED = 1
_ACTIONS = {
    "CreatePreparedStatement": "Prepare a statement.",
    "ClosePreparedStatement": "Forget a prepared statement.",
    "CancelFlightInfo": "End a query.",
    "CancelQuery": "End a query (before CancelFlightInfo).",
}


class FlightService:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.statements = Statements(server)
        self.prepared = PreparedStatements(server, self.statements)
        self._loading = Loading(server, self.statements, self.prepared)

    def methods(self) -> dict[str, Answer]:
        return {
            "Handshake": self._handshake,
            "GetFlightInfo": self._get_flight_info,
            "PollFlightInfo": self._poll_flight_info,
            "GetSchema": self._get_schema,
            "DoGet": self._do_get,
            "DoPut": self._loading.put,
            "DoAction": self._do_action,
            "ListActions": self._list_actions,
        }

    async def _handshake(self, call: Call) -> None:
        secret = call.enter("basic")
        await call.send_headers(authorization=f"Bearer {secret or 'none'}")

    # --------------------------------------------------------------------------- queries

    async def _get_flight_info(self, call: Call) -> None:
        await call.send(await self._info(call))

    async def _poll_flight_info(self, call: Call) -> None:
        await call.send(made("PollInfo", info=await self._info(call), progress=1.0))

    async def _info(self, call: Call) -> Any:
        descriptor, name, command = await self._asked(call)
        query = self._query(call, name, command)
        if query is not None:
            handle, schema = await self.statements.begin(call, *query)
            ticket = packed("TicketStatementQuery", statement_handle=handle)
        else:
            schema = schema_bytes((await self._table(call, name, command)).schema)
            ticket = descriptor.cmd
        endpoint = made("FlightEndpoint", ticket=made("Ticket", ticket=ticket))
        return made(
            "FlightInfo", schema=schema, flight_descriptor=descriptor, endpoint=[endpoint],
            total_records=-1, total_bytes=-1, ordered=True,
        )  # fmt: skip

    async def _get_schema(self, call: Call) -> None:
        _, name, command = await self._asked(call)
        query = self._query(call, name, command)
        if query is not None:
            schema = await self.statements.schema(call, *query)
        else:
            schema = (await self._table(call, name, command)).schema
        await call.send(made("SchemaResult", schema=schema_bytes(schema)))

    async def _do_get(self, call: Call) -> None:
        ticket = await call.message("Ticket")
        name, command = command_of(ticket.ticket)
        if name == "TicketStatementQuery":
            await self.statements.send(call, command.statement_handle)
            return
        table = await self._table(call, name, command)
        for message in written(table.schema, iter(table.to_batches())):
            await call.send_bytes(message)

    async def _asked(self, call: Call) -> tuple[Any, str, Any]:
        descriptor = await call.message("FlightDescriptor")
        if descriptor.type != _COMMAND:
            raise Problem("bad-request", 400, "expected a descriptor with a command of Flight SQL")
        return (descriptor, *command_of(descriptor.cmd))

    def _query(self, call: Call, name: str, command: Any) -> tuple[str, Params] | None:
        if name == "CommandStatementQuery":
            no_transaction(command)
            return command.query, None
        if name == "CommandPreparedStatementQuery":
            prepared = self.prepared.find(call, command.prepared_statement_handle)
            return prepared.text, prepared.params
        return None

    async def _table(self, call: Call, name: str, command: Any) -> pa.Table:
        if name in INFO_COMMANDS:
            return INFO_COMMANDS[name](self._read_only(), command)
        if name not in TABLES:
            raise Problem("bad-request", 400, f"{name} is not for this method")
        call.principal.require("read")
        principal: Principal = call.principal

        def work() -> pa.Table:
            return TABLES[name](self._server, principal, command)

        return await self._server.read(principal.client, work)

    def _read_only(self) -> bool:
        try:
            self._server.require_writable()
        except ReadOnlyStore:
            return True
        return False

    # --------------------------------------------------------------------------- actions

    async def _do_action(self, call: Call) -> None:
        action = await call.message("Action")
        if action.type == "CreatePreparedStatement":
            asked = _request(action, "ActionCreatePreparedStatementRequest")
            no_transaction(asked)
            handle, schema, params = await self.prepared.make(call, asked.query)
            told = packed(
                "ActionCreatePreparedStatementResult",
                prepared_statement_handle=handle,
                dataset_schema=b"" if schema is None else schema_bytes(schema),
                parameter_schema=schema_bytes(params) if len(params) else b"",
            )
        elif action.type == "ClosePreparedStatement":
            asked = _request(action, "ActionClosePreparedStatementRequest")
            self.prepared.close(call, asked.prepared_statement_handle)
            return
        elif action.type == "CancelFlightInfo":
            self._cancel(call, parse("CancelFlightInfoRequest", action.body).info)
            told = made("CancelFlightInfoResult", status=_CANCELLED).SerializeToString()
        elif action.type == "CancelQuery":
            asked = _request(action, "ActionCancelQueryRequest")
            self._cancel(call, parse("FlightInfo", asked.info))
            told = packed("ActionCancelQueryResult", result=_CANCELLED)
        else:
            known = ", ".join(_ACTIONS)
            raise Problem(
                "not-supported", 501, f"there is no action {action.type[:200]!r} here, but {known}"
            )
        await call.send(made("Result", body=told))

    def _cancel(self, call: Call, info: Any) -> None:
        tickets = [endpoint.ticket.ticket for endpoint in info.endpoint] or [b""]
        for ticket in tickets:
            name, command = command_of(ticket)
            if name != "TicketStatementQuery":
                raise Problem("bad-request", 400, "expected the ticket of a query")
            self.statements.cancel(call, command.statement_handle)

    async def _list_actions(self, call: Call) -> None:
        for kind, description in _ACTIONS.items():
            await call.send(made("ActionType", type=kind, description=description))


def _request(action: Any, wanted: str) -> Any:
    name, message = command_of(action.body)
    if name != wanted:
        raise Problem("bad-request", 400, f"expected a message {wanted}, found {name}")
    return message
