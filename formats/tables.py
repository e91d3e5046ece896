"""Data on its way in: whatever users have, checked and turned into a stream's schema.

Purpose
    :func:`tables_of` takes tables, batches, readers, data frames and lists of dicts and yields
    Arrow tables with exactly the columns and types of a stream, ready for the store.

Guarantee
    Casts are safe: no value changes but in its representation (units of time, width of integers,
    encodings).  What does not fit is refused before anything is stored: columns and types with
    :class:`SchemaMismatch`, values with :class:`InvalidData` and the row, counted from 1.  Time is
    never null, NaN or NaT.  Arrow data is verified in full before anything else
    (``core/soundness.py``): a false offset would be stored, and end the process that reads it.

Layout
    Tables, batches, frames and lists come out as one table and so are appended atomically.  A
    reader (or any other object with ``__arrow_c_stream__``) comes out as tables of about
    :data:`CHUNK_BYTES`, so that a stream of any length passes through bounded memory.

Limits
    Numbers are not taken for times of a timestamp column, because their unit cannot be seen; text
    is taken for times when it is ISO 8601, and for JSON when it is.  Naive times count as UTC.  In
    pandas frames NaN means a missing value, as pandas has it.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..core.json_text import is_json
from ..core.nested_types import is_list
from ..core.soundness import require_sound
from ..core.suggestion import did_you_mean
from ..core.times import time_text, value_text
from ..errors import ChronicleError, InvalidData, SchemaMismatch, UnsupportedType
from ..schema import Attribute, Storage, StreamSchema
from .convert import convert, flatten
from .kinds import arrow_name_of_type
from .times import TimeRule, is_text

CHUNK_BYTES = 64 << 20
"""Size at which the batches of a reader are appended together."""

_MESSAGE_VALUES_MAX = 60
_EXPONENT_MAX = 400


def tables_of(data: Any, schema: StreamSchema) -> Iterator[pa.Table]:
    """Turn data into tables in a stream's schema.

    Parameters
    ----------
    data : pyarrow.Table, RecordBatch, RecordBatchReader, data frame, sequence of mappings, or any
        object with ``__arrow_c_stream__``

    Yields
    ------
    pyarrow.Table
        One, or several when ``data`` is a reader.

    Raises
    ------
    SchemaMismatch, InvalidData
    """
    if isinstance(data, pa.RecordBatch):
        yield conform_table(pa.Table.from_batches([data]), schema)
    elif isinstance(data, pa.Table):
        yield conform_table(data, schema)
    elif isinstance(data, Mapping):
        raise SchemaMismatch("expected a list of events, found one mapping; put it into a list")
    elif isinstance(data, (list, tuple)):
        yield _table_of_rows(data, schema)
    elif _is_pandas(data):
        yield conform_table(_table_of_pandas(data, schema), schema)
    elif type(data).__module__.startswith("polars"):
        try:
            table = pa.table(_of_polars(data))
        except (pa.ArrowException, TypeError) as error:  # integers of 128 bits, for instance
            raise SchemaMismatch(f"the frame cannot be read as a table: {error}") from None
        yield conform_table(table, schema)
    elif hasattr(data, "__arrow_c_stream__"):
        yield from _tables_of_reader(pa.RecordBatchReader.from_stream(data), schema)
    else:
        raise SchemaMismatch(
            "expected a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars frame, "
            f"or a list of dicts, found {type(data).__name__}"
        )


UNREADABLE = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""Errors of libraries about a table that is not one of Arrow."""


def reader_of(data: Any, name: str = "the data") -> pa.RecordBatchReader | None:
    """A reader of any table of a program, in its own types; None for what is no table.

    Named levels of a pandas index become columns; a lazy polars frame is collected.
    SchemaMismatch, with ``name``, for values that Arrow cannot hold.
    """
    try:
        return _reader_of(data)
    except UNREADABLE as error:
        reason = (str(error).splitlines() or [""])[0]
        raise SchemaMismatch(f"{name} cannot be read as a table: {reason}") from None


def _reader_of(data: Any) -> pa.RecordBatchReader | None:
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data]).to_reader()
    if _is_pandas(data):
        named = [level for level in data.index.names if level is not None]
        frame = data.reset_index(level=named)
        return _of_pandas(frame).to_reader()
    if type(data).__module__.startswith("polars"):
        data = _of_polars(data)
    if isinstance(data, list) and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        columns = {name: _named_array(name, [row.get(name) for row in data]) for name in names}
        return pa.table(columns).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    return None


def _is_pandas(data: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _table_of_pandas(frame: Any, schema: StreamSchema) -> pa.Table:
    """A frame's columns; an index that is named like a column of the stream counts as one."""
    names = [name for name in frame.index.names if name is not None and name in schema]
    if names:
        frame = frame.reset_index(level=names)
    for name, column in frame.select_dtypes("object").items():
        _refuse_absurd_decimals(str(name), column)
    try:
        return _of_pandas(frame)
    except UNREADABLE as error:
        raise SchemaMismatch(f"the frame cannot be read as a table: {error}") from None


def _tables_of_reader(reader: pa.RecordBatchReader, schema: StreamSchema) -> Iterator[pa.Table]:
    _check_names(reader.schema.names, schema)
    batches: list[pa.RecordBatch] = []
    size, rows = 0, 0
    for batch in reader:
        require_sound(batch, None, rows + sum(held.num_rows for held in batches))
        batches.append(batch)
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            table = pa.Table.from_batches(batches)
            yield conform_table(table, schema, rows)
            rows += table.num_rows
            batches, size = [], 0
    yield conform_table(pa.Table.from_batches(batches, reader.schema), schema, rows)


# ------------------------------------------------------------------------------------ rows


def _table_of_rows(rows: Sequence[Any], schema: StreamSchema) -> pa.Table:
    names = schema.names
    attribute_names = set(names)
    for position, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise SchemaMismatch(
                f"expected every event to be a dict, found {type(row).__name__} in row "
                f"{position + 1}"
            )
        if not row.keys() <= attribute_names:
            _check_names([str(name) for name in row], schema, position + 1)
    arrays = []
    for attribute in schema.attributes:
        name = attribute.name
        if attribute.default is not None and not any(name in row for row in rows):
            arrays.append(attribute.missing(len(rows)))
            continue
        absent = None if attribute.default is None else attribute.default.as_py()
        values = [row.get(name, absent) for row in rows]
        arrays.append(_column(_array_of(values, attribute), attribute, schema, 0))
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def _array_of(values: list[Any], attribute: Attribute) -> pa.Array:
    """An array of the values' own type: pyarrow would truncate if it were given the target."""
    type_ = attribute.type
    if attribute.storage is Storage.JSON:
        return _json_texts(values, attribute)
    _refuse_absurd_decimals(attribute.name, values)
    try:
        if pa.types.is_decimal(type_) or pa.types.is_binary(type_) or not values:
            return pa.array(values, type_)
        if pa.types.is_uint64(type_):
            return pa.array(values, type_ if _only_integers(values) else None)
        return _own_array(values)
    except UNREADABLE as error:
        with contextlib.suppress(pa.ArrowException, OverflowError, TypeError, StopIteration):
            return _array_of_mixed(values)
        row = _first_odd(values, attribute)
        raise InvalidData(
            f"{attribute.name}: expected {attribute.type}, found {_shown(values[row])} in row "
            f"{row + 1} ({_first_line(error)})",
            row + 1,
        ) from None


def _own_array(values: list[Any], from_pandas: bool = False) -> pa.Array:
    """Values in their own type; Arrow would cut the nanoseconds of pandas."""
    array = pa.array(values, from_pandas=from_pandas)
    fine = _in_nanoseconds(array.type)
    if fine == array.type or "pandas" not in sys.modules or not any(map(_is_fine, values)):
        return array
    return pa.array(values, fine, from_pandas=from_pandas)


def _named_array(name: str, values: list[Any]) -> pa.Array:
    try:
        return _own_array(values)
    except UNREADABLE as error:
        if set(map(type, values)) <= {int, type(None)}:
            for type_ in (pa.uint64(), pa.decimal128(38, 0)):
                with contextlib.suppress(*UNREADABLE):
                    return pa.array(values, type_)
        raise TypeError(f"column {name!r}: {_first_line(error)}") from None


def _of_polars(data: Any) -> Any:
    frame = data.collect() if hasattr(data, "collect") else data
    for name, kind in getattr(frame, "schema", {}).items():
        if str(kind) == "Object":  # of which Arrow would get the addresses
            raise TypeError(f"column {name!r} holds Python objects; convert or drop it")
    if not hasattr(frame, "schema"):  # a series
        return frame
    # without views, which Arrow cannot take from dictionaries or cast
    return frame.to_arrow(compat_level=sys.modules["polars"].CompatLevel.oldest())


def _of_pandas(frame: Any) -> pa.Table:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for at, kind in enumerate(frame.dtypes):
        field = table.schema.field(at)
        if str(kind).startswith("period"):  # of which Arrow would get numbers
            raise TypeError(f"column {field.name!r} holds periods; convert it by dt.to_timestamp()")
        if str(kind) == "object" and _in_nanoseconds(field.type) != field.type:
            values = _own_array(frame.iloc[:, at].tolist(), from_pandas=True)
            table = table.set_column(at, field.name, values)
    return table


def _in_nanoseconds(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_):
        return pa.timestamp("ns", type_.tz)
    if pa.types.is_list(type_):
        return pa.list_(_in_nanoseconds(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(each.name, _in_nanoseconds(each.type)) for each in type_])
    return type_


def _is_fine(value: Any) -> bool:
    """Whether a value of pandas, also inside of a list or struct, has nanoseconds."""
    if isinstance(value, Mapping):
        return any(map(_is_fine, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_is_fine, value))
    return bool(getattr(value, "nanosecond", 0))


def _array_of_mixed(values: list[Any]) -> pa.Array:
    """An array of Arrow's scalars and Python's values, as ``Result.fetchall`` gives them."""
    scalar = next(value for value in values if isinstance(value, pa.Scalar))
    type_ = scalar.type
    return pa.array([v if isinstance(v, pa.Scalar) else pa.scalar(v, type_) for v in values], type_)


def _json_texts(values: list[Any], attribute: Attribute) -> pa.Array:
    """Text of values of Python; what is text already is JSON text."""
    texts: list[str | None] = []
    for position, value in enumerate(values):
        try:
            plain = value is None or isinstance(value, str)
            texts.append(value if plain else json.dumps(value, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidData(
                f"{attribute.name}: expected what JSON can say, found {_shown(value)} in row "
                f"{position + 1} ({_first_line(error)})",
                position + 1,
            ) from None
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError as error:
        row = texts.index(error.object) + 1
        raise InvalidData(
            f"{attribute.name}: expected whole characters, found half of a surrogate pair in row "
            f"{row}",
            row,
        ) from None


def _refuse_absurd_decimals(name: str, values: Iterable[Any]) -> None:
    """Exponents far beyond every type end the process in the library (libarrow 26)."""
    for position, value in enumerate(values):
        if type(value) is Decimal and value and abs(value.adjusted()) > _EXPONENT_MAX:
            raise InvalidData(
                f"{name}: expected a number that some type can hold, found {_shown(value)} in row "
                f"{position + 1}",
                position + 1,
            )


def _only_integers(values: list[Any]) -> bool:
    return all(value is None or type(value) is int for value in values)


def _first_odd(values: list[Any], attribute: Attribute) -> int:
    """Position of the first value that is not of its column's type, seen on its own."""
    for position, value in enumerate(values):
        try:
            array = pa.array([value])
            if value is not None:
                _converted(array, attribute, 0)
        except (pa.ArrowException, ChronicleError, OverflowError, ValueError, TypeError):
            return position
    return 0


# --------------------------------------------------------------------------------- columns


def conform_table(table: pa.Table, schema: StreamSchema, rows_before: int = 0) -> pa.Table:
    """Give a table a stream's columns, order and types.

    Parameters
    ----------
    rows_before : int
        Rows that came earlier, for the positions in messages.

    Raises
    ------
    SchemaMismatch, InvalidData
    """
    require_sound(table, None, rows_before)
    if table.schema.equals(schema.arrow) and not any(
        table.column(a.name).null_count for a in schema.attributes if not a.nullable
    ):
        for at, attribute in enumerate(schema.attributes):
            if attribute.storage is Storage.JSON:
                read = _converted(table.column(at), attribute, rows_before)
                table = table.set_column(at, table.field(at), read)
        return table
    _check_names(table.schema.names, schema)
    present = {name: position for position, name in enumerate(table.schema.names)}
    columns = []
    for attribute in schema.attributes:
        position = present.get(attribute.name)
        if position is None:
            columns.append(attribute.missing(table.num_rows))
        else:
            columns.append(_column(table.column(position), attribute, schema, rows_before))
    return pa.Table.from_arrays(columns, schema=schema.arrow)


def _check_names(names: Iterable[str], schema: StreamSchema, row: int | None = None) -> None:
    at = f" in row {row}" if row is not None else ""
    listed = list(names)
    doubled = sorted(name for name, times in Counter(listed).items() if times > 1)
    if doubled:
        raise SchemaMismatch(f"column names occur more than once: {', '.join(doubled)}")
    unknown = [name for name in listed if name not in schema]
    if unknown:
        hint = did_you_mean(unknown[0], schema.names)
        raise SchemaMismatch(
            f"the stream has no attribute {', '.join(map(repr, unknown))}{at}{hint} (it has "
            f"{', '.join(schema.names)})"
        )
    if row is not None:
        return
    missing = [
        a.name
        for a in schema.attributes
        if not a.nullable and a.default is None and a.name not in listed
    ]
    if missing:
        present = ", ".join(listed) if listed else "no columns"
        raise SchemaMismatch(
            f"the data lacks {', '.join(map(repr, missing))}, which may not be null; "
            f"found {present}"
        )


def _column(array: Any, attribute: Attribute, schema: StreamSchema, rows_before: int) -> Any:
    """Convert one column, Array or ChunkedArray, and check its nulls."""
    if array.type != attribute.type or attribute.storage is Storage.JSON:
        array = _converted(array, attribute, rows_before)
    if not attribute.nullable and array.null_count:
        row = pc.index(pc.is_null(array), True).as_py() + rows_before + 1
        what = "time" if attribute.name == schema.time else "value"
        raise InvalidData(f"{attribute.name}: the {what} is missing in row {row}", row)
    return array


def _converted(array: Any, attribute: Attribute, rows_before: int) -> Any:
    """A column in its attribute's type; raises for types first, then for the first value."""
    source, target = array.type, attribute.type
    if not _castable(source, target):
        raise SchemaMismatch(
            f"{attribute.name}: expected {arrow_name_of_type(target)}, found {source}"
            f"{_advice(source, target)}"
        )
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        with contextlib.suppress(pa.ArrowInvalid):
            return array.cast(target)
    rule = TimeRule("iso") if pa.types.is_timestamp(target) else None
    pieces = []
    for piece in array.chunks if isinstance(array, pa.ChunkedArray) else [array]:
        try:
            result = convert(flatten(piece), target, rule=rule)
        except UnsupportedType as error:
            raise SchemaMismatch(f"{attribute.name}: {error}") from None
        if result.codes is not None and result.bad:
            at = int(result.codes.argmax())
            row = at + rows_before + 1
            scalar = piece[at]
            if pa.types.is_date32(source):  # which datetime may not hold
                scalar = pa.scalar(scalar.value * 86_400, pa.timestamp("s"))
            timed = pa.types.is_timestamp(scalar.type)
            value = time_text(scalar.value, scalar.type) if timed else scalar.as_py()
            reason = result.reasons[result.codes[at] - 1].format(value=_shown(value))
            raise InvalidData(f"{attribute.name}: {reason} in row {row}", row)
        pieces.append(result.values)
        rows_before += len(piece)
    return pa.chunked_array(pieces, target) if isinstance(array, pa.ChunkedArray) else pieces[0]


def _castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of a type may go into a column of another; text only as times and JSON."""
    types = pa.types
    if types.is_dictionary(source):
        source = source.value_type
    if types.is_null(source) or source == target:
        return True
    if is_json(target):
        return is_text(source)
    if is_list(target):
        return is_list(source) and _castable(source.value_type, target.value_type)
    if types.is_struct(target):
        parts = {each.name.lower(): each.type for each in source} if types.is_struct(source) else {}
        return types.is_struct(source) and all(
            _castable(parts.get(each.name.lower(), pa.null()), each.type) for each in target
        )
    return _kind(source) in _TAKEN.get(_kind(target), ())


_BYTES = r"(large_)?binary|binary_view|fixed_size_binary\[\d+\]"
_KINDS = {
    "integer": pa.types.is_integer,
    "float": pa.types.is_floating,
    "decimal": pa.types.is_decimal,
    "timestamp": pa.types.is_timestamp,
    "date": pa.types.is_date,
    "text": is_text,
    "bytes": lambda type_: re.fullmatch(_BYTES, str(type_)) is not None,
}
_TAKEN = {
    "integer": ("integer", "float"),
    "float": ("integer", "float", "decimal"),
    "decimal": ("decimal", "integer"),
    "timestamp": ("timestamp", "date", "text"),
    "date": ("date", "text"),
    "text": ("text",),
    "bytes": ("bytes",),
}
"""Kinds of values that columns of a kind take."""


def _kind(type_: pa.DataType) -> str:
    return next((kind for kind, holds in _KINDS.items() if holds(type_)), "")


def _advice(source: pa.DataType, target: pa.DataType) -> str:
    if is_json(target):
        return "; JSON comes as text or as arrow.json"
    if pa.types.is_timestamp(target) and pa.types.is_integer(source):
        return f"; say the unit first, for example column.cast(pa.timestamp({target.unit!r}))"
    if pa.types.is_timestamp(source) and pa.types.is_integer(target):
        return "; this stream counts plain integers"
    return "; cast the column first"


def _shown(value: object) -> str:
    text = value_text(value) if isinstance(value, pa.Scalar) else repr(value)
    return text if len(text) <= _MESSAGE_VALUES_MAX else text[: _MESSAGE_VALUES_MAX - 3] + "..."


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0].rstrip(".")[:160]
