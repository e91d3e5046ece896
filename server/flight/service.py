"""Dispatches the methods of Flight and the commands of Flight SQL. ::

    Handshake       exchanges a user's password, a token, for a bearer token
    GetFlightInfo   begins a query; PollFlightInfo does the same, and is done at once
    GetSchema       columns of a query, without running it
    DoGet           rows of a ticket: of a query, or of a metadata table
    DoPut           updates, parameters, bulk events (``statements``)
    DoAction        prepares and closes statements, cancels queries
    ListActions     these

Metadata needs the scope ``read``; ``GetSqlInfo`` and ``GetXdbcTypeInfo`` any token.

``GetSqlInfo`` and ``GetXdbcTypeInfo`` tell drivers the capabilities, with the numbers of the
protocol's enumerations ``SqlInfo``, ``XdbcDataType`` and their like.

The port: gRPC on the server's event loop, with HTTP's address rules, TLS files and stop timeout.
Messages are at most ``MESSAGE_MAX`` bytes.  RPCs are bounded, not connections.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa

from ... import __version__
from ...errors import InvalidArgument, ReadOnlyStore
from ...query.sql.nesting import TEXT_LENGTH_MAX
from ..access.auth import Principal
from ..access.settings import Settings, certificates_of
from ..http.replies import Problem
from ..service.middleware import Audit
from ..service.state import Server
from .calls import (
    SERVICE,
    Answer,
    Call,
    command_of,
    handled,
    made,
    packed,
    parse,
    schema_bytes,
    written,
)
from .catalogue import TABLES
from .statements import IDLE_S, Loading, Params, PreparedStatements, Statements, no_transaction

_LISTS = pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))
_KINDS = [
    pa.field("string_value", pa.string()),
    pa.field("bool_value", pa.bool_()),
    pa.field("bigint_value", pa.int64()),
    pa.field("int32_bitmask", pa.int32()),
    pa.field("string_list", pa.list_(pa.field("string_data", pa.string()))),
    pa.field("int32_to_int32_list_map", _LISTS),
]
_STRING, _BOOL, _BIGINT, _INT = range(4)
_INFO = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field("value", pa.dense_union(_KINDS), nullable=False),
    ]
)

# By the number of ``SqlInfo``; entries not listed have no limit or do not apply.
_TRUE = (
    *(4, 9),  # SQL, CancelQuery
    *(502, 506, 515, 516, 518, 520, 521, 523, 524, 532, 539),  # 502: CREATE and DROP of tables
    *(572, 574),
)
_FALSE = (
    *(3, 5),  # read-only (replaced by the store's mode), Substrait
    *(500, 501, 519, 527, 536, 537),  # 500, 501: CREATE and DROP of catalogs, of schemas
    *(563, 565, 566, 573, 576),
)
_NUMBERS = {
    **{8: 0, 562: 0},  # no transactions, so no isolation level
    **{100: int(IDLE_S * 1000), 101: 0},
    **{503: 1, 505: 1, 507: 3},  # names are case-insensitive, NULLs come last
    **{522: 3, 525: 1, 526: 0, 528: 2, 533: 0, 534: 0, 535: 0, 538: 15, 540: 3, 564: 1},
    567: 2,  # results go forward only
}
_TEXTS = {
    **{0: "Chronicle", 1: __version__, 2: pa.__version__},
    **{504: '"', 513: "\\", 514: "", 529: "schema", 530: "", 531: "catalog"},
}
_SAID: dict[int, tuple[int, Any]] = {
    **{number: (_STRING, text) for number, text in _TEXTS.items()},
    **dict.fromkeys(_TRUE, (_BOOL, True)),
    **dict.fromkeys(_FALSE, (_BOOL, False)),
    **{number: (_INT, value) for number, value in _NUMBERS.items()},
    557: (_BIGINT, TEXT_LENGTH_MAX),
}


def _info(read_only: bool, command: Any) -> pa.Table:
    facts = {**_SAID, 3: (_BOOL, read_only)}
    wanted = sorted(set(command.info) & facts.keys()) if command.info else sorted(facts)
    children: list[list[Any]] = [[] for _ in _KINDS]
    kinds, offsets = [], []
    for name in wanted:
        kind, value = facts[name]
        kinds.append(kind)
        offsets.append(len(children[kind]))
        children[kind].append(value)
    values = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(child, field.type) for child, field in zip(children, _KINDS, strict=True)],
        [field.name for field in _KINDS],
    )
    return pa.table([pa.array(wanted, pa.uint32()), values], schema=_INFO)


_TYPE_INFO = pa.schema(
    [
        pa.field("type_name", pa.string(), nullable=False),
        pa.field("data_type", pa.int32(), nullable=False),
        pa.field("column_size", pa.int32()),
        pa.field("literal_prefix", pa.string()),
        pa.field("literal_suffix", pa.string()),
        pa.field("create_params", pa.list_(pa.field("item", pa.string(), nullable=False))),
        pa.field("nullable", pa.int32(), nullable=False),
        pa.field("case_sensitive", pa.bool_(), nullable=False),
        pa.field("searchable", pa.int32(), nullable=False),
        pa.field("unsigned_attribute", pa.bool_()),
        pa.field("fixed_prec_scale", pa.bool_(), nullable=False),
        pa.field("auto_increment", pa.bool_()),
        pa.field("local_type_name", pa.string()),
        pa.field("minimum_scale", pa.int32()),
        pa.field("maximum_scale", pa.int32()),
        pa.field("sql_data_type", pa.int32(), nullable=False),
        pa.field("datetime_subcode", pa.int32()),
        pa.field("num_prec_radix", pa.int32()),
        pa.field("interval_precision", pa.int32()),
    ]
)
_NULLABLE, _ANY_OPERATOR = 1, 3
_DATETIME = 9


def _type(
    name: str,
    number: int,
    size: int | None = None,
    *,
    unsigned: bool | None = None,
    radix: int | None = None,
    quoted: bool = False,
    **more: Any,
) -> dict[str, Any]:
    return {
        "type_name": name, "data_type": number, "column_size": size,
        "literal_prefix": "'" if quoted else None, "literal_suffix": "'" if quoted else None,
        "nullable": _NULLABLE, "case_sensitive": name == "VARCHAR", "searchable": _ANY_OPERATOR,
        "unsigned_attribute": unsigned, "fixed_prec_scale": False,
        "auto_increment": None if radix is None else False, "sql_data_type": number,
        "num_prec_radix": radix, **more,
    }  # fmt: skip


def _moment(name: str, size: int, number: int = 93, subcode: int = 3) -> dict[str, Any]:
    described = _type(name, number, size, quoted=True)
    return described | {"sql_data_type": _DATETIME, "datetime_subcode": subcode}


_TYPES = [
    _type("BOOLEAN", -7, 1),
    *(_type(n, k, s, unsigned=False, radix=10) for n, k, s in (
        ("TINYINT", -6, 3), ("SMALLINT", 5, 5), ("INTEGER", 4, 10), ("BIGINT", -5, 19))),
    *(_type(n, k, s, unsigned=True, radix=10) for n, k, s in (
        ("UTINYINT", -6, 3), ("USMALLINT", 5, 5), ("UINTEGER", 4, 10), ("UBIGINT", -5, 20))),
    _type("FLOAT", 7, 24, unsigned=False, radix=2),
    _type("DOUBLE", 8, 53, unsigned=False, radix=2),
    _type("DECIMAL", 3, 38, unsigned=False, radix=10, minimum_scale=0, maximum_scale=38,
          create_params=["precision", "scale"]),
    _type("VARCHAR", 12, quoted=True),
    _type("BLOB", -3, quoted=True),
    _moment("DATE", 10, 91, 1),
    *(_moment(n, s) for n, s in (
        ("TIMESTAMP", 26), ("TIMESTAMP_S", 19), ("TIMESTAMP_MS", 23), ("TIMESTAMP_NS", 29))),
    _moment("TIMESTAMPTZ", 32, subcode=5),
]  # fmt: skip


def _types(read_only: bool, command: Any) -> pa.Table:
    del read_only
    wanted = command.data_type if command.HasField("data_type") else None
    rows = [row for row in _TYPES if wanted in (None, row["data_type"])]
    rows.sort(key=lambda row: (row["data_type"], row["type_name"]))
    return pa.Table.from_pylist(rows, _TYPE_INFO)


INFO_COMMANDS = {"CommandGetSqlInfo": _info, "CommandGetXdbcTypeInfo": _types}


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
        descriptor, name, command = await self._command(call)
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
        _, name, command = await self._command(call)
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

    async def _command(self, call: Call) -> tuple[Any, str, Any]:
        descriptor = await call.message("FlightDescriptor")
        if descriptor.type != _COMMAND:
            raise Problem("bad-request", "expected a descriptor with a command of Flight SQL")
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
            raise Problem("bad-request", f"{name} is not for this method")
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
            message = _request(action, "ActionCreatePreparedStatementRequest")
            no_transaction(message)
            handle, schema, params = await self.prepared.make(call, message.query)
            answer = packed(
                "ActionCreatePreparedStatementResult",
                prepared_statement_handle=handle,
                dataset_schema=b"" if schema is None else schema_bytes(schema),
                parameter_schema=schema_bytes(params) if len(params) else b"",
            )
        elif action.type == "ClosePreparedStatement":
            message = _request(action, "ActionClosePreparedStatementRequest")
            self.prepared.close(call, message.prepared_statement_handle)
            return
        elif action.type == "CancelFlightInfo":
            self._cancel(call, parse("CancelFlightInfoRequest", action.body).info)
            answer = made("CancelFlightInfoResult", status=_CANCELLED).SerializeToString()
        elif action.type == "CancelQuery":
            message = _request(action, "ActionCancelQueryRequest")
            self._cancel(call, parse("FlightInfo", message.info))
            answer = packed("ActionCancelQueryResult", result=_CANCELLED)
        else:
            names = ", ".join(_ACTIONS)
            raise Problem(
                "not-supported", f"there is no action {action.type[:200]!r} here, but {names}"
            )
        await call.send(made("Result", body=answer))

    def _cancel(self, call: Call, info: Any) -> None:
        tickets = [endpoint.ticket.ticket for endpoint in info.endpoint] or [b""]
        for ticket in tickets:
            name, command = command_of(ticket)
            if name != "TicketStatementQuery":
                raise Problem("bad-request", "expected the ticket of a query")
            self.statements.cancel(call, command.statement_handle)

    async def _list_actions(self, call: Call) -> None:
        for kind, description in _ACTIONS.items():
            await call.send(made("ActionType", type=kind, description=description))


def _request(action: Any, wanted: str) -> Any:
    name, message = command_of(action.body)
    if name != wanted:
        raise Problem("bad-request", f"expected a message {wanted}, found {name}")
    return message


logger = logging.getLogger("chronicle.server")
MESSAGE_MAX = 64 << 20
HEADERS_MAX = 64 << 10
STREAMS_MAX = 128
"""Concurrent RPCs of one connection; more wait."""


class FlightListener:
    """Serves Flight SQL; created and used on the event loop.  ``port`` is set by ``start``."""

    port: int

    def __init__(self, server: Server) -> None:
        settings = server.settings
        self._server = server
        self._service = FlightService(server)
        rpcs = (
            settings.max_concurrent_queries
            + settings.max_concurrent_reads
            + settings.max_concurrent_uploads
            + settings.max_waiting_queries
        )
        self._grpc = grpc.aio.server(options=_options(settings), maximum_concurrent_rpcs=rpcs)
        audit = Audit(server.database.path)
        methods = {
            name: handled(server, audit, name, answer)
            for name, answer in self._service.methods().items()
        }
        handler = grpc.method_handlers_generic_handler(SERVICE, methods)
        self._grpc.add_generic_rpc_handlers((handler,))
        self._stopping: asyncio.Task[None] | None = None
        server.on_drain.append(self._begin_stop)

    async def start(self) -> None:
        """Listen; raises ``InvalidArgument`` if the address cannot be bound."""
        settings = self._server.settings
        address = f"{_bracketed(settings.host)}:{settings.flight_port}"
        credentials = _credentials(settings)
        try:
            if credentials is None:
                self.port = self._grpc.add_insecure_port(address)
            else:
                self.port = self._grpc.add_secure_port(address, credentials)
        except RuntimeError:
            raise InvalidArgument(
                f"cannot listen on {address} for Flight SQL; choose another --flight-port"
            ) from None
        await self._grpc.start()
        scheme = "grpc" if credentials is None else "grpc+tls"
        logger.info(
            "Flight SQL listens on %s://%s:%d", scheme, _bracketed(settings.host), self.port
        )

    async def stop(self) -> None:
        self._begin_stop(0.0)
        self._service.statements.end_all()
        assert self._stopping is not None
        await self._stopping
        self._service.prepared.close_all()

    def _begin_stop(self, seconds: float) -> None:
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._grpc.stop(seconds))


def _options(settings: Settings) -> list[tuple[str, int]]:
    silence_ms = settings.client_timeout_ms
    return [
        ("grpc.so_reuseport", 0),  # a port in use is an error
        ("grpc.max_receive_message_length", min(MESSAGE_MAX, settings.max_body_bytes)),
        ("grpc.max_send_message_length", -1),  # a row may be larger than a message
        ("grpc.max_metadata_size", HEADERS_MAX),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        ("grpc.server_handshake_timeout_ms", settings.header_timeout_ms),
        ("grpc.keepalive_time_ms", silence_ms),  # without an answer to a ping the client is gone
        ("grpc.keepalive_timeout_ms", min(silence_ms, 20_000)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ]


def _credentials(settings: Settings) -> Any:
    if certificates_of(settings) is None:
        return None
    served = _Certificates(settings)
    return grpc.dynamic_ssl_server_credentials(
        served.read(),
        served.renewed,
        require_client_authentication=settings.tls_client_ca is not None,
    )


class _Certificates:
    """The certificate's files; gRPC asks for them at each new connection, in a thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._served = self._files()

    def read(self) -> Any:
        certificate, key, authority = self._served
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)

    def renewed(self) -> Any:
        try:
            files = self._files()
            if files == self._served:
                return None
            certificates_of(self._settings)  # raises if they do not match
        except (OSError, InvalidArgument) as error:
            logger.error("the TLS certificate of Flight SQL stays as it was: %s", error)
            return None
        self._served = files
        return self.read()

    def _files(self) -> tuple[bytes, bytes, bytes | None]:
        settings = self._settings
        assert settings.tls_cert is not None
        certificate = settings.tls_cert.read_bytes()
        key = certificate if settings.tls_key is None else Path(settings.tls_key).read_bytes()
        authority = settings.tls_client_ca
        return certificate, key, None if authority is None else authority.read_bytes()


def _bracketed(host: str) -> str:
    plain = host.strip("[]")
    return f"[{plain}]" if ":" in plain else plain
