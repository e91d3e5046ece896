"""SQL types and Arrow types: declarations, and normalisation of results.

An attribute's column has its declared type, although DuckDB changes some.  Integer sums (HUGEINT)
become ``int64`` if every value fits, else ``decimal128(38, 0)``; intervals ``duration[us]`` if none
has months, else ``month_day_nano_interval``.  Of a streamed result the first ``SETTLED_ROWS`` rows
decide; a later value that does not fit raises ResourceLimit.

Time literals are parsed the same everywhere, whatever the executor does.  The executor drops the
offset of a text cast to TIMESTAMP, truncates digits, and rejects ``T13Z`` and a decimal comma.
Literals and parameters cast to a time type, or compared with a time column, are replaced; offsets
convert to UTC, and digits that the type cannot hold are an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ...core.json_text import JSON, REASONS, is_json, read_json
from ...core.nested_types import is_list
from ...core.sql_text import quoted_name, quoted_text
from ...core.times import as_duration, only_durations, time_text
from ...errors import ResourceLimit, SqlError
from .dialect import error_at, position_of
from .trees import nodes_of

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
    type_ = _TYPES.get(kind)
    if type_ is None:
        raise error_at(
            text,
            node.meta.get("start", position_of(node)),
            f"a stream cannot hold the type {kind.lower()}; use BOOLEAN, TINYINT to BIGINT, "
            "UTINYINT to UBIGINT, FLOAT, DOUBLE, DECIMAL(p, s), VARCHAR, BLOB, JSON, DATE, "
            "TIMESTAMP (also _S, _MS, _NS), TIMESTAMPTZ, or lists and structs of these",
        )
    return type_


def _inner(node: Any, around: Any, text: str) -> pa.DataType:
    start = around.meta.get("start", position_of(around))
    if node is None:
        what = "a struct has names and types, as in STRUCT(a BIGINT, b VARCHAR)"
        raise error_at(text, start, what)
    node.meta.setdefault("start", start)
    type_ = arrow_type(node, text)
    if is_json(type_):
        raise error_at(text, start, "a list or struct holds no JSON; make the whole column JSON")
    return type_


def sql_type(type_: pa.DataType) -> str:
    """The SQL name of an Arrow type, as DESCRIBE shows it."""
    if is_list(type_):
        return f"{sql_type(type_.value_type)}[]"
    if pa.types.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        return f"STRUCT({', '.join(f'{quoted_name(f.name)} {sql_type(f.type)}' for f in fields)})"
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return "TIMESTAMPTZ" if type_.unit != "ns" else "TIMESTAMPTZ_NS"
    if pa.types.is_interval(type_) or pa.types.is_duration(type_):
        return "INTERVAL"
    return _NAMES.get(type_, str(type_))


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
    return quoted_text(text)


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
    cells = read_json(column)
    if cells.faults is not None:
        at = int(cells.faults.argmax())
        reason = REASONS[cells.faults[at] - 1].format(value=repr(column[at].as_py()[:100]))
        raise SqlError(f"column {name!r}: {reason}; cast it to VARCHAR in the query")
    return cells.values


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
        (hugeints, fits_int64, pa.int64()),
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


def fits_int64(column: pa.Array) -> bool:
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


TimeUse = tuple[str, pa.DataType, int | None]
"""A parameter that becomes a time: its name in the tree, the type, and its offset in the text."""

_OFFSET = r"\d\s*:.*\d\s*([a-zA-Z].*|[+-]\d\d.*)$"
"""Matches a time with an offset or the name of a zone."""
_OFFSET_ALONE = r"\s*([zZ]|[+-]\d\d(:?\d\d)?)\s*$"
DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Fractional digits per unit."""

_TIME = re.compile(
    r"\s*(\d{4}-\d\d-\d\d)[T ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:[.,](\d+))?)?)?\s*"
    r"(z|[+-]\d\d(?::?\d\d)?)?\s*",
    re.IGNORECASE,
)
_WITH_ZONE = re.compile(r".*\d\s*:[\s\d:.,]*\d\s*(?!utc\s*$)([a-z]|[+-]\d\d).*", re.IGNORECASE)
"""A time with anything that the executor takes for an offset or a zone, but UTC."""
_TIME_CHARS = 100
"""Of a longer text this is not asked, since it takes time quadratic in the length."""
_PICKING = ("first", "last", "prev", "next", "min", "max", "any_value")
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_MAKING_TIMES = (exp.Cast, exp.Between, exp.In, *_COMPARISONS)


def exact_text(text: str, type_: pa.DataType) -> str:
    """An equivalent text that the executor reads without loss; unchanged if not ISO 8601.

    ValueError for more fractional digits than the type holds.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        shown = text.strip()
        if type_.tz is None and len(shown) <= _TIME_CHARS and _WITH_ZONE.fullmatch(shown):
            raise _no_time(text)
        return text
    date, hour, minute, second, fraction, offset = match.groups()
    digits = DIGITS[type_.unit]
    fraction = (fraction or "").rstrip("0")
    if len(fraction) > digits:
        held = f"{digits} digits" if digits else "none"
        finer = "" if digits == 9 else ", or TIMESTAMP_NS"
        raise ValueError(
            f"the time '{text}' has more digits behind the second than its type, which holds "
            f"{held}; write fewer{finer}"
        )
    if minute is not None and "," not in text and (offset is None or type_.tz is not None):
        return text  # the executor reads it correctly
    clock = f"{hour}:{minute or '00'}:{second or '00'}"
    if offset is not None and type_.tz is None:
        seconds, away = _seconds_of(clock), _seconds_of(offset)
        try:
            if seconds > 86_400 or abs(away) >= 86_400:
                raise ValueError
            date, clock = str(np.datetime64(date, "s") + seconds - away).split("T")
        except ValueError:
            raise _no_time(text) from None
        offset = None
    return f"{date} {clock}{'.' if fraction else ''}{fraction}{offset or ''}"


def _no_time(text: str) -> ValueError:
    return ValueError(f"'{text}' is no time; write it as '2018-08-01 05:00:00+02:00'")


def _seconds_of(clock: str) -> int:
    """Seconds of a clock or an offset; a day and more if a field is too large."""
    digits = re.sub(r"\D", "", clock).ljust(6, "0")
    hours, minutes, seconds = (int(digits[at : at + 2]) for at in (0, 2, 4))
    total = hours * 3600 + minutes * 60 + seconds if max(minutes, seconds) < 60 else 2 * 86_400
    return -total if clock.startswith("-") else total


def cast_of_texts(column: str, type_: pa.DataType, kind: str) -> str:
    """SQL that casts a text column to a zoneless time type, offsets converted to UTC."""
    column = f"regexp_replace({column}, '(:\\d\\d),(\\d)', '\\1.\\2')"
    column = f"regexp_replace({column}, '([T ]\\d\\d)({_OFFSET_ALONE[:-1]})?$', '\\1:00\\2')"
    moved = f"CAST({column} AS TIMESTAMPTZ)"
    if type_.unit == "ns":  # the executor's zoned times lack the last three digits
        plain = f"epoch_ns(CAST(regexp_replace({column}, '{_OFFSET_ALONE}', '') AS TIMESTAMP_NS))"
        moved = f"make_timestamp_ns(epoch_us({moved}) * 1000 + ({plain} % 1000 + 1000) % 1000)"
    else:
        moved = f"CAST({moved} AT TIME ZONE 'UTC' AS {kind})"
    offset = f"regexp_matches({column}, '{_OFFSET}')"
    return f"CASE WHEN {offset} THEN {moved} ELSE CAST({column} AS {kind}) END"


def settled(text: str, type_: pa.DataType, statement: str, at: int | None) -> str:
    try:
        return exact_text(text, type_)
    except ValueError as error:
        raise error_at(statement, at, str(error)) from None


def settle_times(
    root: Any, type_of: Callable[[Any], pa.DataType | None], statement: str
) -> list[TimeUse]:
    """Settle the literals of a query in place; uses of parameters as times, with type and place.

    Parameters
    ----------
    type_of : callable
        Type of a column or of an aggregate of it, as far as it is declared.

    Raises
    ------
    SqlError
    """
    parameters: list[TimeUse] = []
    for node, type_ in _times(root, type_of):
        if isinstance(node, exp.Placeholder):
            parameters.append((str(node.this), type_, position_of(node)))
        elif isinstance(node, exp.Literal) and node.is_string:
            text = settled(node.this, type_, statement, position_of(node))
            node.set("this", text)
    return parameters


def type_in(schema: pa.Schema) -> Callable[[Any], pa.DataType | None]:
    """Types of the columns of a relation, and of what picks one of their values."""
    types: dict[str, pa.DataType | None] = {}
    for field in schema:  # of two sides that share a name, it is not known which is meant
        name = field.name.lower()
        types[name] = field.type if types.get(name, field.type) == field.type else None

    def type_of(node: Any) -> pa.DataType | None:
        while isinstance(node, (exp.Paren, exp.Window, exp.Filter)):
            node = node.this
        if isinstance(node, exp.Anonymous) and node.expressions and node.name.lower() in _PICKING:
            return type_of(node.expressions[0])
        return types.get(node.name.lower()) if isinstance(node, exp.Column) else None

    return type_of


def _times(
    root: Any, type_of: Callable[[Any], pa.DataType | None]
) -> Iterator[tuple[Any, pa.DataType]]:
    """Literals and parameters that become times, with their types."""
    for node in nodes_of(root):
        if not isinstance(node, _MAKING_TIMES):
            continue
        if isinstance(node, exp.Cast):
            cast = _TYPES.get(getattr(node.to.this, "name", ""))
            if type(node) is exp.Cast and cast is not None and pa.types.is_timestamp(cast):
                yield node.this, cast
            continue
        if isinstance(node, exp.Between):
            sides = [node.this, node.args["low"], node.args["high"]]
        elif isinstance(node, exp.In):
            sides = [node.this, *node.expressions]
        else:
            sides = [node.this, node.expression]
        types = [type_of(side) for side in sides]
        timestamp = next((t for t in types if t is not None and pa.types.is_timestamp(t)), None)
        if timestamp is not None:
            yield from ((side, timestamp) for side in sides)
