"""SQL types and Arrow types: declarations, and normalisation of results.

An attribute's column has its declared type, although DuckDB changes some.  Integer sums (HUGEINT)
become ``int64`` if every value fits, else ``decimal128(38, 0)``; intervals ``duration[us]`` if none
has months, else ``month_day_nano_interval``.  Of a streamed result the first ``SETTLED_ROWS`` rows
decide; a later value that does not fit raises ResourceLimit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core.json_text import JSON, REASONS, is_json, read_json
from ...core.nested_types import is_list
from ...core.times import as_duration, only_durations, time_text
from ...errors import ResourceLimit, SqlError
from .dialect import error_at, position_of

__all__ = [
    "SETTLED_ROWS",
    "arrow_type",
    "as_bigint",
    "conform",
    "literal_text",
    "settle_types",
    "sql_type",
]

SETTLED_ROWS = 262_144

HUGEINT = pa.decimal128(38, 0)

_TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINT": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "VARBINARY": pa.binary(),
    "JSON": JSON,
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
    "TIMESTAMP_S": pa.timestamp("s"),
    "TIMESTAMP_MS": pa.timestamp("ms"),
    "TIMESTAMP_NS": pa.timestamp("ns"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
}

_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.large_string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.large_binary(): "BLOB",
    JSON: "JSON",
    pa.date32(): "DATE",
    pa.date64(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("s"): "TIMESTAMP_S",
    pa.timestamp("ms"): "TIMESTAMP_MS",
    pa.timestamp("ns"): "TIMESTAMP_NS",
}


def arrow_type(node: Any, text: str) -> pa.DataType:
    """The Arrow type of a declared SQL type; raises SqlError with position."""
    kind = str(getattr(node.this, "value", node.this)).upper()
    if kind in ("ARRAY", "LIST") and len(node.expressions) == 1 and not node.args.get("values"):
        return pa.list_(_inner(node.expressions[0], node, text))
    if kind == "STRUCT" and node.expressions:
        fields = [
            pa.field(part.name, _inner(part.args.get("kind"), node, text))
            for part in node.expressions
        ]
        return pa.struct(fields)
    if kind == "DECIMAL":
        written = [str(size.name) for size in node.expressions]
        if not all(size.isascii() and size.isdigit() and len(size) < 9 for size in written):
            raise error_at(
                text, node.meta.get("start"), "DECIMAL takes two numbers, as in DECIMAL(10, 2)"
            )
        sizes = [int(size) for size in written] or [18, 3]
        precision, scale = sizes[0], (sizes[1] if len(sizes) > 1 else 0)
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise error_at(
                text,
                node.meta.get("start"),
                f"DECIMAL takes a precision of 1 to 38 and a scale up to it, found "
                f"({precision}, {scale})",
            )
        return pa.decimal128(precision, scale)
    found = _TYPES.get(kind)
    if found is None:
        raise error_at(
            text,
            node.meta.get("start", position_of(node)),
            f"a stream cannot hold the type {kind.lower()}; use BOOLEAN, TINYINT to BIGINT, "
            "UTINYINT to UBIGINT, FLOAT, DOUBLE, DECIMAL(p, s), VARCHAR, BLOB, JSON, DATE, "
            "TIMESTAMP (also _S, _MS, _NS), TIMESTAMPTZ, or lists and structs of these",
        )
    return found


def _inner(node: Any, around: Any, text: str) -> pa.DataType:
    start = around.meta.get("start", position_of(around))
    if node is None:
        what = "a struct has names and types, as in STRUCT(a BIGINT, b VARCHAR)"
        raise error_at(text, start, what)
    node.meta.setdefault("start", start)
    found = arrow_type(node, text)
    if is_json(found):
        raise error_at(text, start, "a list or struct holds no JSON; make the whole column JSON")
    return found


def sql_type(type_: pa.DataType) -> str:
    """The SQL name of an Arrow type, as DESCRIBE shows it."""
    if is_list(type_):
        return f"{sql_type(type_.value_type)}[]"
    if pa.types.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        return f"STRUCT({', '.join(f'{_quoted(f.name)} {sql_type(f.type)}' for f in fields)})"
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return "TIMESTAMPTZ" if type_.unit != "ns" else "TIMESTAMPTZ_NS"
    if pa.types.is_interval(type_) or pa.types.is_duration(type_):
        return "INTERVAL"
    return _NAMES.get(type_, str(type_))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal_text(value: pa.Scalar) -> str:
    types = pa.types
    if types.is_boolean(value.type):
        return str(value.as_py()).upper()
    if types.is_integer(value.type) or types.is_decimal(value.type):
        return str(value.as_py())
    if types.is_binary(value.type) or types.is_large_binary(value.type):
        text = "".join(f"\\x{byte:02X}" for byte in value.as_py())
    elif types.is_timestamp(value.type):
        text = time_text(value.value, value.type)
    else:
        text = str(value.as_py())
        if types.is_floating(value.type) and isfinite(value.as_py()):
            return text
    return "'" + text.replace("'", "''") + "'"


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast a batch to a schema, by position."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == field.type else _cast(column, field)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        if pa.types.is_interval(column.type):
            return as_duration(column)
        if is_json(field.type):
            return _as_json(column, field.name)
        return column.cast(field.type)
    except pa.ArrowInvalid:
        if pa.types.is_interval(column.type):
            raise ResourceLimit(
                f"column {field.name!r} holds an interval with months after {SETTLED_ROWS} rows "
                "without; cast it to VARCHAR in the query"
            ) from None
        if column.type == HUGEINT:
            raise ResourceLimit(
                f"column {field.name!r} left the range of 64-bit integers after {SETTLED_ROWS} "
                "rows; cast it to DECIMAL(38, 0) or DOUBLE in the query"
            ) from None
        raise


def _as_json(column: pa.Array, name: str) -> pa.Array:
    """The executor's JSON text, checked and without white space."""
    found = read_json(column)
    if found.faults is not None:
        at = int(found.faults.argmax())
        reason = REASONS[found.faults[at] - 1].format(value=repr(column[at].as_py()[:100]))
        raise SqlError(f"column {name!r}: {reason}; cast it to VARCHAR in the query")
    return found.values


def as_bigint(batch: pa.RecordBatch, place: int) -> pa.Array:
    try:
        return batch.column(place).cast(pa.int64())
    except pa.ArrowInvalid:
        raise SqlError(
            f"a value of column {batch.schema.names[place]!r} is out of range for BIGINT; cast it "
            "to DECIMAL(38, 0) or DOUBLE in the query"
        ) from None


def settle_types(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, hugeints: Iterable[int]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema with types decided, reading ahead, and the batches, not yet cast."""
    intervals = [i for i, field in enumerate(schema) if pa.types.is_interval(field.type)]
    hugeints = list(hugeints)
    if not intervals and not hugeints:
        return schema, iter(batches)
    source = iter(batches)
    ahead: list[pa.RecordBatch] = []
    rows = 0
    for batch in source:
        ahead.append(batch)
        rows += batch.num_rows
        if rows >= SETTLED_ROWS:
            break
    fields = list(schema)
    for positions, fits, type_ in (
        (hugeints, _fits_int64, pa.int64()),
        (intervals, only_durations, pa.duration("us")),
    ):
        for position in positions:
            if all(fits(batch.column(position)) for batch in ahead):
                fields[position] = fields[position].with_type(type_)

    def all_batches() -> Iterator[pa.RecordBatch]:
        yield from ahead
        ahead.clear()
        yield from source

    return pa.schema(fields), all_batches()


def _fits_int64(column: pa.Array) -> bool:
    if column.null_count == len(column):
        return True
    bounds = pc.min_max(column)
    return bool(bounds["min"].as_py() >= -(2**63) and bounds["max"].as_py() < 2**63)


def declared_types(schema: pa.Schema, declared: Sequence[pa.DataType | None] | None) -> pa.Schema:
    """Result types with attributes as declared and the zone named UTC."""
    fields = []
    for position, column in enumerate(schema):
        type_ = column.type
        if declared is not None and len(declared) == len(schema):
            wanted = declared[position]
            if wanted is not None and _same_kind(type_, wanted):
                type_ = wanted
        if pa.types.is_timestamp(type_) and type_.tz == "Etc/UTC":
            type_ = pa.timestamp(type_.unit, "UTC")
        fields.append(pa.field(column.name, type_, True))
    return pa.schema(fields)


def _same_kind(found: pa.DataType, declared: pa.DataType) -> bool:
    types = pa.types
    if found == declared:
        return True
    if is_list(found) and is_list(declared):
        return _same_kind(found.value_type, declared.value_type)
    if types.is_struct(found) and types.is_struct(declared):
        pairs = [
            (found.field(i), declared.field(i))
            for i in range(min(found.num_fields, declared.num_fields))
        ]
        return found.num_fields == declared.num_fields and all(
            one.name == other.name and _same_kind(one.type, other.type) for one, other in pairs
        )
    if types.is_timestamp(found) and types.is_timestamp(declared):
        return (found.tz is None) == (declared.tz is None)
    return bool(
        (types.is_date(found) and types.is_date(declared))
        or (types.is_string(found) and is_json(declared))
        or (types.is_string(found) and types.is_large_string(declared))
        or (types.is_binary(found) and types.is_large_binary(declared))
    )
