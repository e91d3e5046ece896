"""The protobuf messages of Flight and Flight SQL, described here instead of by generated code.
Fields (after ``Flight.proto`` and ``FlightSql.proto`` of the Arrow project) are
``name:type=number``; ``?`` after the type: optional, ``*``: repeated.  Enumerations are ``int32``,
which is the same on the wire.

FlightData frames the messages of Arrow's IPC stream differently::

    IPC stream   ff ff ff ff | length | metadata, padded | body, padded  | ...
    FlightData                          data_header        data_body

A sent message has at most ``MESSAGE_BYTES`` (drivers refuse large ones), unless one row is larger.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ..http.body_pipe import BodyPipe
from ..http.problems import Problem

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


def _add_field(message: Any, package: str, said: str) -> None:
    name, _, rest = said.partition(":")
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
    found = {}
    for package, said in ((_PACKAGE, _FLIGHT), (_SQL_PACKAGE, _SQL)):
        file = descriptor_pb2.FileDescriptorProto(
            name=f"{package}.proto", package=package, syntax="proto3"
        )
        for name, fields in said.items():
            message = file.message_type.add(name=name)
            for field in fields.split():
                _add_field(message, package, field)
        pool.Add(file)
        for name in said:
            described = pool.FindMessageTypeByName(f"{package}.{name}")
            found[name] = message_factory.GetMessageClass(described)
    return found


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
        raise Problem("bad-request", 400, f"expected a message {name}: {error}") from None


def command_of(data: bytes) -> tuple[str, Any]:
    """Name and message of a command inside ``Any``; raises ``Problem`` (400, 501)."""
    wrapped = parse("Any", data)
    name = wrapped.type_url.removeprefix(_URL)
    if not wrapped.type_url.startswith(_URL):
        raise Problem(
            "bad-request",
            400,
            f"expected a command of Flight SQL, found {wrapped.type_url[:200]!r}",
        )
    if name not in _SQL:
        raise Problem("not-supported", 501, f"{name[:200]} is not supported here")
    return name, parse(name, wrapped.value)


MESSAGE_BYTES = 1 << 20
END_OF_STREAM = struct.pack("<Ii", 0xFFFFFFFF, 0)


class _Gathered:
    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def flush(self) -> None:
        """Does nothing."""

    def taken(self) -> Iterator[bytes]:
        pieces, self._pieces = self._pieces, []
        source = pa.BufferReader(b"".join(pieces))
        for message in pa.ipc.MessageReader.open_stream(source):
            body = b"" if message.body is None else message.body.to_pybytes()
            data = made("FlightData", data_header=message.metadata.to_pybytes(), data_body=body)
            yield data.SerializeToString()


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows < 2 or batch.nbytes <= MESSAGE_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half))
    yield from _cut(batch.slice(half))


def written(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    out = _Gathered()
    writer = pa.ipc.new_stream(out, schema)
    yield from out.taken()
    for batch in batches:
        for piece in _cut(batch):
            writer.write_batch(piece)
            yield from out.taken()


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
