"""PostgreSQL's types of columns and parameters, and rows of a batch as messages.

A DataRow is ``D``, its length, the number of columns, and per column its length (-1: NULL) and its
bytes, as text or binary as the client asks per column.  A batch becomes one run of messages by
Arrow and NumPy, but for NUMERIC in binary and BYTEA as text, which Python makes value by value.

Unsigned 64-bit integers are NUMERIC; lists, structs and maps are JSON; intervals are TEXT (ISO
8601).  Times are in UTC.  The binary form of a time has microseconds: ``data_rows`` notes that
nanoseconds were cut.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.times import TICKS_PER_SECOND, moment_of
from ...errors import InvalidArgument
from ...formats.writers import column_text


@dataclass(frozen=True)
class Kind:
    """A type of PostgreSQL: ``oid``, bytes of a value (``size``, -1: varies), its ``name`` in
    SQL, and the numpy ``form`` of its binary values where they are plain numbers.
    """

    oid: int
    size: int
    name: str
    form: str = ""


KINDS = {
    "bool": Kind(16, 1, "boolean", ">u1"),
    "bytea": Kind(17, -1, "bytea"),
    "name": Kind(19, 64, "name"),
    "int8": Kind(20, 8, "bigint", ">i8"),
    "int2": Kind(21, 2, "smallint", ">i2"),
    "int4": Kind(23, 4, "integer", ">i4"),
    "text": Kind(25, -1, "text"),
    "oid": Kind(26, 4, "oid", ">u4"),
    "json": Kind(114, -1, "json"),
    "float4": Kind(700, 4, "real", ">f4"),
    "float8": Kind(701, 8, "double precision", ">f8"),
    "varchar": Kind(1043, -1, "character varying"),
    "date": Kind(1082, 4, "date", ">i4"),
    "time": Kind(1083, 8, "time without time zone", ">i8"),
    "timestamp": Kind(1114, 8, "timestamp without time zone", ">i8"),
    "timestamptz": Kind(1184, 8, "timestamp with time zone", ">i8"),
    "numeric": Kind(1700, -1, "numeric"),
}
_INTERVAL_OID = 1186
_TEXT_OIDS = (0, 18, 705, 1042)
"""Not declared, "char", unknown and character: texts in binary, too."""
BY_OID = {kind.oid: name for name, kind in KINDS.items()}
_UUID_OID = 2950
ARRAY_OIDS = {
    "bool": 1000, "bytea": 1001, "int8": 1016, "int2": 1005, "int4": 1007, "text": 1009,
    "json": 199, "float4": 1021, "float8": 1022, "varchar": 1015, "date": 1182, "time": 1183,
    "timestamp": 1115, "timestamptz": 1185, "numeric": 1231, "oid": 1028,
}  # fmt: skip
_ITEM_BY_OID = {oid: name for name, oid in ARRAY_OIDS.items()} | {1014: "text"}
_ITEM = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([^",{}\\]+))(?:,(?=.)|$)', re.DOTALL)

_PLAIN = {
    pa.bool_(): "bool",
    pa.int8(): "int2", pa.uint8(): "int2", pa.int16(): "int2",
    pa.uint16(): "int4", pa.int32(): "int4", pa.uint32(): "int8", pa.int64(): "int8",
    pa.uint64(): "numeric", pa.float16(): "float4", pa.float32(): "float4", pa.float64(): "float8",
    pa.date32(): "date", pa.date64(): "date",
}  # fmt: skip

_EPOCH_DAYS = 10_957
"""Days from 1970 to 2000, where PostgreSQL's times begin."""
_EPOCH_US = _EPOCH_DAYS * 86_400_000_000
ROWS_AT_ONCE = 4096


def kind_of(type_: pa.DataType) -> str:
    types = pa.types
    if pa.types.is_dictionary(type_):
        return kind_of(type_.value_type)
    if type_ in _PLAIN:
        return _PLAIN[type_]
    if types.is_timestamp(type_):
        return "timestamp" if type_.tz is None else "timestamptz"
    if types.is_decimal(type_):
        return "numeric"
    if types.is_time(type_):
        return "time"
    if types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_):
        return "bytea"
    return "json" if types.is_nested(type_) else "text"


def row_description(schema: pa.Schema, formats: Sequence[int]) -> list[tuple[Any, ...]]:
    """The columns of a RowDescription; ``formats`` has none, one for all, or one for each."""
    columns = []
    for place, field in enumerate(schema):
        kind, modifier = KINDS[kind_of(field.type)], modifier_of(field.type)
        columns.append((field.name, 0, 0, kind.oid, kind.size, modifier, format_at(formats, place)))
    return columns


def modifier_of(type_: pa.DataType) -> int:
    return (type_.precision << 16 | type_.scale) + 4 if pa.types.is_decimal(type_) else -1


def format_at(formats: Sequence[int], place: int) -> int:
    if len(formats) > 1:
        return formats[place] if place < len(formats) else 0
    return formats[0] if formats else 0


def data_rows(batch: pa.RecordBatch, formats: Sequence[int]) -> tuple[bytes, list[str]]:
    """The rows as messages, and names of columns whose nanoseconds were cut."""
    cut: list[str] = []
    count = batch.num_rows
    sizes = np.full(count, 6, np.int64)
    parts: list[Any] = []
    for place, (field, column) in enumerate(zip(batch.schema, batch.columns, strict=True)):
        if format_at(formats, place):
            cells, lossy = _binary(column)
            if lossy:
                cut.append(field.name)
        else:
            cells = _text(column)
        cells = cells.cast(pa.binary())
        lengths = pc.binary_length(cells).fill_null(-1).to_numpy(zero_copy_only=False)
        sizes += 4 + np.maximum(lengths, 0)
        parts += [_fixed(lengths.astype(">i4")), cells.fill_null(b"")]
    head = np.zeros(count, np.dtype([("kind", "S1"), ("size", ">i4"), ("columns", ">i2")]))
    head["kind"], head["size"], head["columns"] = b"D", sizes, batch.num_columns
    rows = pc.binary_join_element_wise(_fixed(head), *parts, pa.scalar(b"", pa.binary()))
    return rows.buffers()[2].to_pybytes()[: int((sizes + 1).sum())], cut


def _fixed(values: Any) -> pa.Array:
    width = pa.binary(values.dtype.itemsize)
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.FixedSizeBinaryArray.from_buffers(width, len(values), [None, buffer]).cast(
        pa.binary()
    )


def _of_values(values: list[Any], make: Callable[[Any], bytes]) -> pa.Array:
    return pa.array([None if value is None else make(value) for value in values], pa.binary())


def _text(column: pa.Array) -> pa.Array:
    kind = kind_of(column.type)
    if kind == "bytea":
        return _of_values(column.to_pylist(), lambda value: b"\\x" + value.hex().encode())
    if kind == "bool":
        return pc.if_else(column, "t", "f")
    text, _ = column_text(column, plain=True)
    if kind == "timestamptz":
        return pc.replace_substring_regex(text, "Z$", "+00")
    if kind in ("float4", "float8"):
        return pc.replace_substring(pc.replace_substring(text, "inf", "Infinity"), "nan", "NaN")
    return text


def _binary(column: pa.Array) -> tuple[pa.Array, bool]:
    name = kind_of(column.type)
    kind, lossy = KINDS[name], False
    if name == "bytea":
        return column, False
    if name == "numeric":
        return _of_values(
            column.cast(pa.decimal256(76, getattr(column.type, "scale", 0))).to_pylist(), _numeric
        ), False
    if not kind.form:
        return _text(column), False
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if name in ("timestamp", "timestamptz", "time"):
        values, lossy = _microseconds(column)
        values = values - (0 if name == "time" else _EPOCH_US)
    elif name == "date":
        values = (
            column.cast(pa.date32()).cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
        )
        values = values.astype(np.int64) - _EPOCH_DAYS
    else:
        values = column.fill_null(False if name == "bool" else 0).to_numpy(zero_copy_only=False)
    cells = _fixed(values.astype(kind.form))
    if column.null_count:
        cells = pc.if_else(column.is_valid(), cells, pa.scalar(None, pa.binary()))
    return cells, lossy


def _microseconds(column: pa.Array) -> tuple[Any, bool]:
    whole = pa.int32() if pa.types.is_time32(column.type) else pa.int64()
    ticks = column.cast(whole).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    per_second = TICKS_PER_SECOND[column.type.unit]
    if per_second > 1_000_000:
        return ticks // 1000, bool((ticks % 1000).any())
    factor = 1_000_000 // per_second
    most = ((1 << 63) - 1 - _EPOCH_US) // factor
    if len(ticks) and (ticks.max() > most or ticks.min() < -most):
        raise InvalidArgument(
            "a time does not fit the microseconds of PostgreSQL's binary form; cast it to VARCHAR"
        )
    return ticks * factor, False


def _numeric(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    text = "".join(map(str, digits)).rjust(scale + 1, "0") + "0" * max(0, exponent)
    whole, part = (text[:-scale], text[-scale:]) if scale else (text, "")
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    part = part.ljust(-(-len(part) // 4) * 4, "0")
    groups = [int((whole + part)[at : at + 4]) for at in range(0, len(whole) + len(part), 4)]
    weight = len(whole) // 4 - 1
    while groups and not groups[0]:
        groups.pop(0)
        weight -= 1
    while groups and not groups[-1]:
        groups.pop()
    head = (len(groups), weight if groups else 0, 0x4000 if sign and groups else 0, scale)
    return struct.pack(f">hhHH{len(groups)}h", *head, *groups)


# ------------------------------------------------------------------------------- parameters


def parameter(data: bytes | None, binary: bool, oid: int) -> Any:
    """The Python value of a parameter; raises ``InvalidArgument``."""
    if data is None:
        return None
    name = BY_OID.get(oid) or _ITEM_BY_OID.get(oid, "text")
    if oid in _ITEM_BY_OID:
        return [parameter(item, binary, KINDS[name].oid) for item in _items(data, binary)]
    known = oid in BY_OID or oid in (*_TEXT_OIDS, _INTERVAL_OID, _UUID_OID)
    if binary and not known:
        raise InvalidArgument(
            f"the binary form of a parameter of the type with OID {oid} is not known; send it as "
            "text, or cast it in the client"
        )
    try:
        if oid == _INTERVAL_OID and binary:
            return _span(data)
        if oid == _UUID_OID and binary:
            return str(UUID(bytes=data))
        return _of_binary(data, name) if binary else _OF_TEXT.get(name, str)(data.decode())
    except (ValueError, ArithmeticError, struct.error, OverflowError) as error:
        shown = data[:40] if binary else data[:40].decode(errors="replace")
        raise InvalidArgument(
            f"expected a value of type {KINDS[name].name}, found {shown!r} ({error})"
        ) from None


def _items(data: bytes, binary: bool) -> list[bytes | None]:
    """The items of an array of one dimension."""
    items: list[bytes | None] = []
    at = 0
    try:
        if binary:
            dimensions, _, _, count, _ = struct.unpack(">5i", data[:20].ljust(20, b"\0"))
            for _ in range(count):
                (size,) = struct.unpack_from(">i", data, at + 20)
                items.append(None if size < 0 else data[at + 24 : at + 24 + size])
                at += 4 + max(size, 0)
            whole = not dimensions or (dimensions == 1 and at + 20 == len(data))
        else:
            text = data.decode()
            inside = text[1:-1]
            while at < len(inside) and (found := _ITEM.match(inside, at)):
                quoted, plain = found[1], (found[2] or "").strip()
                item = plain if quoted is None else re.sub(r"(?s)\\(.)", r"\1", quoted)
                items.append(None if plain.upper() == "NULL" else item.encode())
                at = found.end()
            whole = text[:1] + text[-1:] == "{}" and at == len(inside)
    except (struct.error, UnicodeDecodeError):
        whole = False
    if not whole:
        raise InvalidArgument(f"expected an array of one dimension, found {data[:40]!r}")
    return items


def _span(data: bytes) -> dt.timedelta:
    micros, days, months = struct.unpack(">qii", data)
    if months:
        raise ValueError("months have no fixed length")
    return dt.timedelta(days=days, microseconds=micros)


def _boolean(text: str) -> bool:
    if text.lower() not in ("t", "true", "1", "on", "yes", "f", "false", "0", "off", "no"):
        raise ValueError("neither t nor f")
    return text.lower() in ("t", "true", "1", "on", "yes")


_OF_TEXT: dict[str, Callable[[str], Any]] = {
    "bool": _boolean,
    **dict.fromkeys(("int2", "int4", "int8", "oid"), int),
    **dict.fromkeys(("float4", "float8"), float),
    "numeric": Decimal,
    "timestamp": moment_of,
    "timestamptz": partial(moment_of, zone="UTC"),
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "bytea": lambda text: bytes.fromhex(text.removeprefix("\\x")),
}
_2000 = dt.datetime(2000, 1, 1)


def _of_binary(data: bytes, name: str) -> Any:
    kind = KINDS[name]
    if name == "bytea":
        return data
    if name == "numeric":
        return _decimal(data)
    if not kind.form:
        return data.decode()
    if len(data) != kind.size:
        raise ValueError(f"{len(data)} bytes")
    value = np.frombuffer(data, kind.form)[0].item()
    if name == "bool":
        return bool(value)
    if name == "date":
        return _2000.date() + dt.timedelta(days=value)
    if name == "time":
        return (_2000 + dt.timedelta(microseconds=value)).time()
    if name in ("timestamp", "timestamptz"):
        moment = _2000 + dt.timedelta(microseconds=value)
        return moment if name == "timestamp" else moment.replace(tzinfo=dt.timezone.utc)
    return value


def _decimal(data: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from(">hhHH", data)
    groups = struct.unpack_from(f">{count}h", data, 8)
    if sign not in (0, 0x4000):
        raise ValueError("no finite number")
    digits = "".join(f"{group:04}" for group in groups) or "0"
    exponent = 4 * (weight - count + 1)
    if exponent > -scale:
        digits += "0" * (exponent + scale)
    else:
        digits = digits[: len(digits) - (-scale - exponent)] or "0"
    return Decimal((int(sign != 0), tuple(map(int, digits)), -scale))
