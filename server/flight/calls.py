"""The protobuf messages of Flight and Flight SQL, and one RPC that exchanges them.

Messages are described here instead of by generated code.  Fields (after ``Flight.proto`` and
``FlightSql.proto`` of the Arrow project) are ``name:type=number``; ``?`` after the type: optional,
``*``: repeated.  Enumerations are ``int32``, which is the same on the wire.

FlightData frames the messages of Arrow's IPC stream differently::

    IPC stream   ff ff ff ff | length | metadata, padded | body, padded  | ...
    FlightData                          data_header        data_body

A sent message has at most ``MESSAGE_BYTES`` (drivers refuse large ones), unless one row is larger.

An RPC is authenticated before any message is read.  An error is a gRPC status with HTTP's text;
code and request id are in the trailers.  Every method is registered as a bidirectional stream,
which is the same on the wire: otherwise gRPC would read the request before authentication.
``code_of`` maps HTTP's problems to gRPC codes; a 500 is sent without its text.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import io
import logging
import struct
import urllib.parse
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import grpc
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ...errors import Unauthorized
from ..access.auth import Principal
from ..http.replies import Problem
from ..http.streamed import Pace, Paced, too_slow
from ..service.middleware import Audit, accounted, scope_of
from ..service.row_stream import BodyPipe
from ..service.state import Server

_FLIGHT = {
    "HandshakeResponse": "protocol_version:uint64=1 payload:bytes=2",
    "ActionType": "type:string=1 description:string=2",
    "Action": "type:string=1 body:bytes=2",
    "Result": "body:bytes=1",
    "SchemaResult": "schema:bytes=1",
    "FlightDescriptor": "type:int32=1 cmd:bytes=2 path:string*=3",
    "Ticket": "ticket:bytes=1",
    "Location": "uri:string=1",
    "FlightEndpoint": "ticket:Ticket=1 location:Location*=2 app_metadata:bytes=4",
    "FlightInfo": (
        "schema:bytes=1 flight_descriptor:FlightDescriptor=2 endpoint:FlightEndpoint*=3 "
        "total_records:int64=4 total_bytes:int64=5 ordered:bool=6 app_metadata:bytes=7"
    ),
    "PollInfo": "info:FlightInfo=1 flight_descriptor:FlightDescriptor=2 progress:double?=3",
    "CancelFlightInfoRequest": "info:FlightInfo=1",
    "CancelFlightInfoResult": "status:int32=1",
    "FlightData": (
        "flight_descriptor:FlightDescriptor=1 data_header:bytes=2 app_metadata:bytes=3 "
        "data_body:bytes=1000"
    ),
    "PutResult": "app_metadata:bytes=1",
    "Any": "type_url:string=1 value:bytes=2",  # google.protobuf.Any, by its fields
}
_KEYS = "catalog:string?=1 db_schema:string?=2 table:string=3"
_PREPARED = "prepared_statement_handle:bytes=1"
_SQL = {
    "CommandGetSqlInfo": "info:uint32*=1",
    "CommandGetXdbcTypeInfo": "data_type:int32?=1",
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "catalog:string?=1 db_schema_filter_pattern:string?=2",
    "CommandGetTables": (
        "catalog:string?=1 db_schema_filter_pattern:string?=2 table_name_filter_pattern:string?=3 "
        "table_types:string*=4 include_schema:bool=5"
    ),
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": _KEYS,
    "CommandGetExportedKeys": _KEYS,
    "CommandGetImportedKeys": _KEYS,
    "CommandGetCrossReference": (
        "pk_catalog:string?=1 pk_db_schema:string?=2 pk_table:string=3 fk_catalog:string?=4 "
        "fk_db_schema:string?=5 fk_table:string=6"
    ),
    "CommandStatementQuery": "query:string=1 transaction_id:bytes?=2",
    "CommandStatementUpdate": "query:string=1 transaction_id:bytes?=2",
    "CommandPreparedStatementQuery": _PREPARED,
    "CommandPreparedStatementUpdate": _PREPARED,
    "TableDefinitionOptions": "if_not_exist:int32=1 if_exists:int32=2",
    "CommandStatementIngest": (
        "table_definition_options:TableDefinitionOptions=1 table:string=2 schema:string?=3 "
        "catalog:string?=4 temporary:bool=5 transaction_id:bytes?=6 options:map=1000"
    ),
    "TicketStatementQuery": "statement_handle:bytes=1",
    "DoPutUpdateResult": "record_count:int64=1",
    "ActionCreatePreparedStatementRequest": "query:string=1 transaction_id:bytes?=2",
    "ActionCreatePreparedStatementResult": (
        "prepared_statement_handle:bytes=1 dataset_schema:bytes=2 parameter_schema:bytes=3"
    ),
    "ActionClosePreparedStatementRequest": _PREPARED,
    "ActionCancelQueryRequest": "info:bytes=1",
    "ActionCancelQueryResult": "result:int32=1",
}

_PACKAGE, _SQL_PACKAGE = "arrow.flight.protocol", "arrow.flight.protocol.sql"
_URL = f"type.googleapis.com/{_SQL_PACKAGE}."
_Field = descriptor_pb2.FieldDescriptorProto


def _add_field(message: Any, package: str, text: str) -> None:
    name, _, rest = text.partition(":")
    kind, _, number = rest.partition("=")
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind.endswith("*") or kind == "map":
        field.label = _Field.LABEL_REPEATED
    elif kind.endswith("?"):
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    kind = kind.rstrip("*?")
    if kind == "map":
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add_field(entry, package, "key:string=1")
        _add_field(entry, package, "value:string=2")
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{message.name}.{entry.name}"
    elif kind[0].isupper():
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"
    else:
        field.type = getattr(_Field, f"TYPE_{kind.upper()}")


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    classes = {}
    for package, messages in ((_PACKAGE, _FLIGHT), (_SQL_PACKAGE, _SQL)):
        file = descriptor_pb2.FileDescriptorProto(
            name=f"{package}.proto", package=package, syntax="proto3"
        )
        for name, fields in messages.items():
            message = file.message_type.add(name=name)
            for field in fields.split():
                _add_field(message, package, field)
        pool.Add(file)
        for name in messages:
            described = pool.FindMessageTypeByName(f"{package}.{name}")
            classes[name] = message_factory.GetMessageClass(described)
    return classes


_CLASSES = _classes()


def made(name: str, **fields: Any) -> Any:
    return _CLASSES[name](**fields)


def packed(name: str, **fields: Any) -> bytes:
    value = made(name, **fields).SerializeToString()
    return bytes(made("Any", type_url=_URL + name, value=value).SerializeToString())


def parse(name: str, data: bytes) -> Any:
    try:
        return _CLASSES[name].FromString(data)
    except (DecodeError, ValueError) as error:
        raise Problem("bad-request", f"expected a message {name}: {error}") from None


def command_of(data: bytes) -> tuple[str, Any]:
    """Name and message of a command inside ``Any``; raises ``Problem`` (400, 501)."""
    wrapped = parse("Any", data)
    name = wrapped.type_url.removeprefix(_URL)
    if not wrapped.type_url.startswith(_URL):
        raise Problem(
            "bad-request", f"expected a command of Flight SQL, found {wrapped.type_url[:200]!r}"
        )
    if name not in _SQL:
        raise Problem("not-supported", f"{name[:200]} is not supported here")
    return name, parse(name, wrapped.value)


MESSAGE_BYTES = 1 << 20
END_OF_STREAM = struct.pack("<Ii", 0xFFFFFFFF, 0)


def _framed_messages(sink: io.BytesIO) -> Iterator[bytes]:
    """The messages of an IPC stream that were written since the last call."""
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(sink.getvalue())):
        body = b"" if message.body is None else message.body.to_pybytes()
        data = made("FlightData", data_header=message.metadata.to_pybytes(), data_body=body)
        yield data.SerializeToString()
    sink.seek(0)
    sink.truncate()


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows < 2 or batch.nbytes <= MESSAGE_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half))
    yield from _cut(batch.slice(half))


def written(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    sink = io.BytesIO()
    writer = pa.ipc.new_stream(pa.PythonFile(sink, "w"), schema)
    for batch in batches:
        for piece in _cut(batch):
            writer.write_batch(piece)
            yield from _framed_messages(sink)
    writer.close()  # it writes the schema not before the first batch
    yield from _framed_messages(sink)


def write_rows(schema: pa.Schema, batches: Iterator[pa.RecordBatch], pipe: BodyPipe) -> None:
    """Write the messages of rows to a pipe, one block each; blocks while the client is slow."""
    for message in written(schema, batches):
        pipe.write(message)
        pipe.flush()


def framed(data: Any) -> bytes:
    header: bytes = data.data_header
    padding = -len(header) % 8
    return struct.pack("<Ii", 0xFFFFFFFF, len(header) + padding) + header + bytes(padding)


def as_stream(data: Any) -> bytes:
    """A message and its body, framed for an IPC stream; empty for one without a header."""
    if not data.data_header:
        return b""
    body = data.data_body
    return b"".join((framed(data), body, bytes(-len(body) % 8)))


def schema_bytes(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize().to_pybytes())


_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    410: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def code_of(problem: Problem) -> grpc.StatusCode:
    if problem.code in ("stream-exists", "index-exists"):
        return grpc.StatusCode.ALREADY_EXISTS
    return _CODES.get(problem.status, grpc.StatusCode.INVALID_ARGUMENT)


logger = logging.getLogger("chronicle.server")
SERVICE = "arrow.flight.protocol.FlightService"
DETAIL_CHARACTERS = 2000
"""Longest text of a status: it travels in the trailers, which clients bound."""
DRAIN_BYTES, DRAIN_S = 64 << 20, 5.0


class Call:
    """An RPC.  ``scope`` is the equivalent ASGI scope, for logs; ``principal`` is who asks."""

    principal: Principal

    def __init__(self, server: Server, method: str, context: Any) -> None:
        self.server = server
        self.method = method
        self._context = context
        headers = [(_bytes(name), _bytes(value)) for name, value in _metadata(context)]
        self.scope = scope_of(f"/{SERVICE}/{method}", _address(context.peer()), headers)
        self.request_id: str = self.scope["state"]["request_id"]
        self._pace = Pace.of(server.settings)
        self._reading, self._sending = Paced(self._pace), Paced(self._pace)

    @property
    def received(self) -> int:
        return self._reading.moved

    @property
    def sent(self) -> int:
        return self._sending.moved

    def enter(self, scheme: str) -> str | None:
        authenticator = self.server.authenticator
        authenticator.check_address(self.scope)
        secret = _secret(self._header(b"authorization"), scheme)
        self.principal = authenticator.principal(self.scope, secret)
        self.scope["state"]["principal"] = self.principal
        return secret

    def _header(self, wanted: bytes) -> str:
        values = [value for name, value in self.scope["headers"] if name == wanted]
        if len(values) > 1:
            raise Problem("bad-request", f"the header {wanted.decode()} is there twice")
        return values[0].decode("latin-1") if values else ""

    async def next_message(self) -> bytes | None:
        try:
            data = await self._reading.wait(self._context.read())
        except TimeoutError:
            raise too_slow(self._pace, self.received) from None
        if data is grpc.aio.EOF:
            return None
        self._reading.moved += len(data)
        return bytes(data)

    async def message(self, name: str) -> Any:
        data = await self.next_message()
        if data is None:
            raise Problem("bad-request", f"expected a message {name}, found the end")
        return parse(name, data)

    async def drain(self) -> None:
        """Read the rest of a client's messages for a while: some drivers see no status before."""
        most = self.received + DRAIN_BYTES
        with contextlib.suppress(TimeoutError, Problem):
            async with asyncio.timeout(DRAIN_S):
                while self.received < most and await self.next_message() is not None:
                    pass

    async def send(self, message: Any) -> None:
        await self.send_bytes(message.SerializeToString())

    async def send_bytes(self, data: bytes) -> None:
        try:
            await self._sending.wait(self._context.write(data))
        except TimeoutError:
            raise Problem(
                "request-timeout", "the client took its answer too slowly; broken off"
            ) from None
        self._sending.moved += len(data)

    async def send_headers(self, **headers: str) -> None:
        await self._context.send_initial_metadata(tuple(headers.items()))


Answer = Callable[[Call], Awaitable[None]]


def handled(server: Server, audit: Audit, method: str, answer: Answer) -> Any:

    async def handle(_: Any, context: Any) -> None:
        call = Call(server, method, context)
        try:
            with accounted(server, audit, call.scope, lambda: (call.received, call.sent)):
                if method != "Handshake":
                    call.enter("bearer")
                await answer(call)
        except Problem as problem:
            trailers = (("chronicle-code", problem.code), ("x-request-id", call.request_id))
            await context.abort(code_of(problem), _message(problem), trailers)

    return grpc.stream_stream_rpc_method_handler(handle)


def _message(problem: Problem) -> str:
    where = problem.more.get("position")
    place = "" if where is None else f" (line {where['line']}, column {where['column']})"
    return problem.detail[:DETAIL_CHARACTERS] + place


def _metadata(context: Any) -> Any:
    return context.invocation_metadata() or ()


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1", "replace")


def _address(peer: str) -> tuple[str, int]:
    """Address and port from ``ipv4:127.0.0.1:53210``."""
    _, _, rest = urllib.parse.unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    return host.strip("[]").partition("%")[0], int(port) if port.isdigit() else 0


def _secret(header: str, wanted: str) -> str | None:
    """The token in an ``Authorization`` header, or the password of a user."""
    scheme, _, value = header.partition(" ")
    if not header or scheme.lower() == "bearer":
        return value.strip() or None
    if scheme.lower() != "basic" or wanted != "basic":
        raise Unauthorized("expected the header authorization: Bearer <token>")
    try:
        padded = value.strip() + "=" * (-len(value.strip()) % 4)  # some drivers omit the padding
        credentials = base64.b64decode(padded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise Unauthorized("the header authorization: Basic has no user and password") from None
    return credentials.partition(":")[2] or None
