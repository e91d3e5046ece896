"""The messages of the protocol, version 3, described by one table.

A message is a byte of its kind, its length with these four bytes, and its fields.  The first
message of a connection has no kind.  Fields are ``name:type``, with ``*`` for an array that begins
with its length (two bytes): ``text`` ends with a zero byte, ``bytes`` begins with its length (-1:
NULL), ``column`` is one of a row description.  Names and numbers are those of PostgreSQL's
documentation, "Message Formats".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..http.replies import Problem

_FROM_CLIENT = {
    "Q": "Query sql:text",
    "P": "Parse name:text sql:text types:int32*",
    "B": "Bind portal:text statement:text formats:int16* values:bytes* results:int16*",
    "D": "Describe kind:char name:text",
    "E": "Execute portal:text rows:int32",
    "C": "Close kind:char name:text",
    "S": "Sync",
    "H": "Flush",
    "X": "Terminate",
    "p": "Password secret:text",
}
_TO_CLIENT = {
    "Authentication": "R code:int32",
    "ParameterStatus": "S name:text value:text",
    "BackendKeyData": "K process:int32 key:int32",
    "ReadyForQuery": "Z status:char",
    "ParseComplete": "1",
    "BindComplete": "2",
    "CloseComplete": "3",
    "NoData": "n",
    "EmptyQueryResponse": "I",
    "PortalSuspended": "s",
    "ParameterDescription": "t types:int32*",
    "RowDescription": "T columns:column*",
    "CommandComplete": "C tag:text",
    "NegotiateProtocolVersion": "v minor:int32 options:int32",
}
_REFUSED = {"F": "function calls", "d": "COPY", "c": "COPY", "f": "COPY"}
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST, VERSION_3 = 80877103, 80877104, 80877102, 3 << 16

_COLUMN = struct.Struct(">ihihih")
"""Table, place in it, type, size, modifier, format: what follows the name."""

Value = tuple[Any, int]


def _number(form: str) -> Callable[[bytes, int], Value]:
    packed = struct.Struct(form)
    return lambda data, at: (packed.unpack_from(data, at)[0], at + packed.size)


def _text(data: bytes, at: int) -> Value:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def _bytes(data: bytes, at: int) -> Value:
    (size,) = struct.unpack_from(">i", data, at)
    if size < 0:
        return None, at + 4
    if at + 4 + size > len(data):
        raise ValueError("a value is longer than its message")
    return data[at + 4 : at + 4 + size], at + 4 + size


_READ = {
    "int16": _number(">h"),
    "int32": _number(">i"),
    "char": lambda data, at: (chr(data[at]), at + 1),
    "text": _text,
    "bytes": _bytes,
}
_WRITE: dict[str, Callable[[Any], bytes]] = {
    "int16": struct.Struct(">h").pack,
    "int32": struct.Struct(">i").pack,
    "char": str.encode,
    "text": lambda text: text.replace("\0", "").encode() + b"\0",
    "column": lambda column: column[0].encode() + b"\0" + _COLUMN.pack(*column[1:]),
}


def _fields(described: str) -> list[tuple[str, str, bool]]:
    parts = (field.partition(":") for field in described.split()[1:])
    return [(name, kind.rstrip("*"), kind.endswith("*")) for name, _, kind in parts]


_READERS = {kind: (text.split()[0], _fields(text)) for kind, text in _FROM_CLIENT.items()}
_WRITERS = {name: (text[0].encode(), _fields(text)) for name, text in _TO_CLIENT.items()}


def message_of(kind: str, data: bytes) -> Any:
    """The message with its fields as attributes, and its name as ``command``."""
    if kind not in _READERS:
        what = _REFUSED.get(kind, f"messages {kind!r}")
        raise Problem("not-supported", f"{what} are not supported over PostgreSQL's protocol here")
    name, fields = _READERS[kind]
    message = SimpleNamespace(command=name)
    at = 0
    try:
        for field, type_, many in fields:
            read = _READ[type_]
            if not many:
                value, at = read(data, at)
            else:
                count, at = data[at] << 8 | data[at + 1], at + 2
                value = []
                for _ in range(count):
                    one, at = read(data, at)
                    value.append(one)
            setattr(message, field, value)
    except (ValueError, IndexError, struct.error) as error:
        raise Problem("bad-request", f"a message {name} is malformed: {error}") from None
    return message


def written(name: str, *values: Any) -> bytes:
    kind, fields = _WRITERS[name]
    body = b""
    for value, (_, type_, many) in zip(values, fields, strict=True):
        write = _WRITE[type_]
        body += (
            struct.pack(">H", len(value)) + b"".join(map(write, value)) if many else write(value)
        )
    return kind + struct.pack(">i", len(body) + 4) + body


def notice(kind: str, severity: str, state: str, text: str, **more: str) -> bytes:
    """An error (``E``) or notice (``N``); ``more`` has further fields by their letter."""
    fields = {"S": severity, "V": severity, "C": state, "M": text, **more}
    body = b"".join(letter.encode() + _WRITE["text"](value) for letter, value in fields.items())
    return kind.encode() + struct.pack(">i", len(body) + 5) + body + b"\0"
