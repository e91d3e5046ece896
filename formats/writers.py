"""Writing record batches as chunks of bytes in any format.

An empty result is complete: ``[]``, a header line, a schema.  After an error the output is visibly
unfinished, except for NDJSON and CSV, which have no end marker.

JSON and CSV text is built by Arrow kernels a column at a time.  The memory of the joined array is
the output.  Up to ``FEW_ROWS`` rows are written value by value to the same bytes, since a kernel
call costs more than a value in Python. ::

    type            JSON                                CSV
    integers        all digits                          the same
    floats          shortest form that reads back,      the same
                    with .0 when whole
    nan, inf        null (JSON has none)                nan, inf, -inf
    bool            true, false                         the same
    timestamp       "2018-08-01T05:00:00.25", with Z    2018-08-01 05:00:00.25, with Z when zoned
                    when zoned
    date            "2018-08-01"                        2018-08-01
    decimal         1.50 (a number, all digits)         1.50
    binary          base64                              base64
    json            the value itself                    its text
    interval        ISO 8601, "P1DT2H0.5S"              P1DT2H0.5S
    null            null                                empty (an empty string is "")
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.json_text import is_json
from ..core.nested_types import as_list, is_list, is_nested
from ..core.ownership import LOADING
from ..core.times import (
    FOUR_DIGIT_YEARS,
    INT64_MAX,
    INT64_MIN,
    TICKS_PER_SECOND,
    holds_intervals,
    iso_nested,
    iso_text,
    python_values,
    time_text,
)
from ..errors import InvalidArgument
from .chunks import slices
from .convert import flatten
from .kinds import WRITE_FORMATS
from .times import is_text

_NEEDS_ESCAPE = r'[\x00-\x1f"\\]'
_CONTROL = [chr(code) for code in range(0x20)]
_CSV_QUOTED = r'[",\r\n\t;|]|^(NULL|null|\\N|)$|^\s|\s$'
_TEXT = pa.large_string()
FEW_ROWS = 16


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, _TEXT)


def _times(values: pa.Array, separator: str) -> pa.Array:
    type_ = values.type
    per_second = TICKS_PER_SECOND[type_.unit]
    plain = values
    if per_second > 1:
        ticks = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        if not np.any(ticks % per_second):
            plain = pa.array(
                ticks // per_second, mask=values.is_null().to_numpy(zero_copy_only=False)
            ).cast(pa.timestamp("s", type_.tz))
            per_second = 1
    if type_.tz not in (None, "UTC"):
        plain = plain.cast(pa.timestamp(plain.type.unit, "UTC"))
    text = plain.cast(_TEXT)
    if per_second > 1:
        text = pc.replace_substring_regex(text, r"\.0+(Z?)$", r"\1")
    if separator != " ":
        text = pc.replace_substring(text, " ", separator, max_replacements=1)
    return with_far_years(text, plain, separator)


def with_far_years(text: pa.Array, times: pa.Array, separator: str) -> pa.Array:
    per_second = TICKS_PER_SECOND[times.type.unit]
    ticks = times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    first, end = FOUR_DIGIT_YEARS
    far = (ticks < max(first * per_second, INT64_MIN)) | (
        ticks > min(end * per_second - 1, INT64_MAX)
    )
    if not far.any():
        return text
    texts = [time_text(int(tick), times.type, separator) for tick in ticks[far]]
    return pc.replace_with_mask(text, pa.array(far), pa.array(texts, _TEXT))


def _floats(values: pa.Array) -> pa.Array:
    text = values.cast(_TEXT)
    whole = pc.equal(pc.trunc(values), values)
    if pc.any(whole).as_py():
        bare = pc.match_substring_regex(text, r"^-?\d+$")
        text = pc.if_else(bare, pc.binary_join_element_wise(text, _text(".0"), _text("")), text)
    return text


def _base64(values: pa.Array) -> pa.Array:
    return pa.array(
        [None if v is None else base64.b64encode(v).decode("ascii") for v in values.to_pylist()],
        _TEXT,
    )


def _escaped(text: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(text, _NEEDS_ESCAPE)).as_py():
        return text
    text = pc.replace_substring(text, "\\", "\\\\")
    text = pc.replace_substring(text, '"', '\\"')
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]")).as_py():
        for character in _CONTROL:
            text = pc.replace_substring(text, character, json.dumps(character)[1:-1])
    return text


def column_text(column: pa.Array, *, plain: bool = False) -> tuple[pa.Array, bool]:
    """A column as the text of JSON, or ``plain`` for CSV and tables, and whether JSON quotes it."""
    values = flatten(column)
    if is_json(column.type):
        return values.cast(_TEXT), False
    type_ = values.type
    types = pa.types
    if is_text(type_):
        text = values.cast(_TEXT)
        return text if plain else _escaped(text), True
    if types.is_timestamp(type_):
        return _times(values, " " if plain else "T"), True
    if types.is_floating(type_):
        finite = pc.is_finite(values)
        if not (plain or pc.all(finite).as_py()):
            values = pc.if_else(finite, values, pa.scalar(None, type_))
        return _floats(values), False
    if types.is_integer(type_) or types.is_boolean(type_) or types.is_decimal(type_):
        return values.cast(_TEXT), False
    if types.is_date(type_) or types.is_time(type_):
        return values.cast(_TEXT), True
    if types.is_null(type_):
        return values.cast(_TEXT), False
    if types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_):
        return _base64(values), True
    if types.is_duration(type_) or types.is_interval(type_):
        return iso_text(values), True
    if is_nested(type_) and not holds_intervals(type_):
        return _nested_text(values), False
    nested = python_values(values)  # which only query results have
    if holds_intervals(type_):
        nested = [iso_nested(value) for value in nested]
    return pa.array([json.dumps(v, default=_plain) for v in nested], _TEXT), False


def _nested_text(array: pa.Array) -> pa.Array:
    """Lists and structs as JSON text."""
    type_ = array.type
    if is_list(type_):
        array = as_list(array)
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        places = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int64))
        items = pa.LargeListArray.from_arrays(places, _member(array.flatten()))
        text = _concatenated("[", pc.binary_join(items, _text(", ")), "]")
    elif not type_.num_fields:
        text = pa.repeat(_text("{}"), len(array))
    else:
        parts: list[pa.Array | str] = []
        for position in range(type_.num_fields):
            name = json.dumps(type_.field(position).name, ensure_ascii=False)
            parts.append(f"{', ' if position else '{'}{name}: ")
            parts.append(_member(array.field(position)))
        text = _concatenated(*parts, "}")
    return text if not array.null_count else pc.if_else(array.is_valid(), text, None)


def _concatenated(*parts: pa.Array | str) -> pa.Array:
    scalars = [_text(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, _text(""))


def _member(array: pa.Array) -> pa.Array:
    text, quoted = (_nested_text(array), False) if is_nested(array.type) else column_text(array)
    text = text.cast(_TEXT)
    return pc.fill_null(_concatenated('"', text, '"') if quoted else text, _text("null"))


def _few_values(column: pa.Array) -> list[str]:
    values = flatten(column)
    type_, types = values.type, pa.types
    if is_text(type_) and not is_json(column.type):
        plain_values = values.to_pylist()
        return ["null" if v is None else json.dumps(v, ensure_ascii=False) for v in plain_values]
    if types.is_timestamp(type_):
        plain_values = values.cast(pa.int64()).to_pylist()
        return ["null" if v is None else f'"{time_text(v, type_, "T")}"' for v in plain_values]
    if types.is_floating(type_):
        return [_few_float(text) for text in values.cast(_TEXT).to_pylist()]
    text, quoted = column_text(column)
    mark = '"' if quoted else ""
    return ["null" if v is None else f"{mark}{v}{mark}" for v in text.to_pylist()]


def _few_float(text: str | None) -> str:
    if text is None or text in ("nan", "inf", "-inf", "-nan"):
        return "null"
    return text + ".0" if text.removeprefix("-").isdigit() else text


def _few_rows(batch: pa.RecordBatch, last: str, heads: pa.Array | None) -> bytes:
    before = [""] * batch.num_rows if heads is None else heads.to_pylist()
    names = [json.dumps(name, ensure_ascii=False) for name in batch.schema.names]
    columns = [_few_values(column) for column in batch.columns]
    text = ""
    for row, head in enumerate(before):
        members = (f"{name}:{column[row]}" for name, column in zip(names, columns, strict=True))
        text += f"{head}{{{','.join(members)}{last}"
    return text.encode()


def _plain(value: object) -> object:
    if isinstance(value, pa.TimestampScalar):
        return time_text(value.value, value.type, "T")
    isoformat = getattr(value, "isoformat", None)
    if isoformat is not None:
        return str(isoformat())
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    return str(value)


def _joined(parts: list[pa.Array | pa.Scalar], count: int) -> bytes:
    rows = pc.binary_join_element_wise(*parts, _text(""))
    if isinstance(rows, pa.Scalar):  # all parts are scalars
        return str(rows.as_py()).encode() * count
    rows = flatten(rows)
    _, offsets, data = rows.buffers()
    width = 8 if pa.types.is_large_string(rows.type) else 4
    borders = np.frombuffer(offsets, f"<i{width}", count + 1, rows.offset * width)
    if data is None:
        return b""
    text: bytes = data.slice(int(borders[0]), int(borders[-1] - borders[0])).to_pybytes()
    return text


def shown_columns(batch: pa.RecordBatch) -> list[list[str | None]]:
    """The values of each column as displayed in a table; None for null."""
    columns: list[list[str | None]] = []
    for column in batch.columns:
        values = flatten(column)
        if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
            columns.append([None if v is None else repr(v)[2:-1] for v in values.to_pylist()])
        else:
            columns.append(column_text(values, plain=True)[0].to_pylist())
    return columns


def shown_value(values: pa.Array, at: int) -> str | None:
    one = pa.record_batch([values.slice(at, 1)], names=["value"])
    return shown_columns(one)[0][0]


def json_bytes(batch: pa.RecordBatch, *, last: str = "}\n", heads: pa.Array | None = None) -> bytes:
    """Each row as a JSON object ended by ``last``; ``heads`` (large text) precede the rows."""
    if not batch.num_rows:
        return b""
    if batch.num_rows <= FEW_ROWS:
        return _few_rows(batch, last, heads)
    parts: list[pa.Array | pa.Scalar] = [] if heads is None else [heads]
    if not batch.num_columns:
        return _joined([*parts, _text("{" + last)], batch.num_rows)
    opening = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        text, quoted = column_text(column)
        opening += json.dumps(name, ensure_ascii=False) + ":"
        if text.null_count:
            if quoted:
                text = pc.binary_join_element_wise(_text('"'), text, _text('"'), _text(""))
            text = pc.fill_null(text, "null")
            quoted = False
        parts += [_text(opening + ('"' if quoted else "")), text]
        opening = '",' if quoted else ","
    parts.append(_text(opening[:-1] + last))
    return _joined(parts, batch.num_rows)


def csv_header(schema: pa.Schema, line_end: str = "\r\n") -> bytes:
    names = (f'"{n.replace(chr(34), chr(34) * 2)}"' if _odd(n) else n for n in schema.names)
    return (",".join(names) + line_end).encode()


def _odd(name: str) -> bool:
    return bool(set(name) & set('",\r\n\t;|')) or name != name.strip() or not name


def _quoted(text: pa.Array) -> pa.Array:
    return _concatenated('"', pc.replace_substring(text, '"', '""'), '"')


def csv_bytes(batch: pa.RecordBatch, line_end: str = "\r\n") -> bytes:
    if not batch.num_rows or not batch.num_columns:
        return b""
    parts: list[pa.Array | pa.Scalar] = []
    for column in batch.columns:
        values = flatten(column)
        type_ = values.type
        text, _ = column_text(values, plain=True)
        if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
            text = pc.if_else(pc.equal(text, ""), '""', text)  # null is empty
        elif pa.types.is_nested(type_):
            text = _quoted(text)
        elif is_text(type_):
            odd = pc.match_substring_regex(text, _CSV_QUOTED)
            if pc.any(odd).as_py():
                text = pc.if_else(odd, _quoted(text), text)
        if text.null_count:
            text = pc.fill_null(text, "")
        parts += [text, _text(",")]
    parts[-1] = _text(line_end)
    if batch.num_columns == 1:  # a single null would be a blank line, which readers skip
        parts[0] = pc.if_else(pc.equal(parts[0], ""), "NULL", parts[0])
    return _joined(parts, batch.num_rows)


_ROWS = 1 << 16


def encode(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    format: str,
    *,
    line_end: str = "\r\n",
) -> Iterator[bytes]:
    """Encode batches as they come, in whole rows for text formats.

    ``arrow`` is the IPC stream, "arrow file" the file.  Intervals with months are refused at once
    if the format cannot store them.
    """
    if format == "json":
        return _json(batches)
    if format == "ndjson":
        return _ndjson(batches)
    if format == "csv":
        return _csv(batches, schema, line_end)
    if format in ("arrow", "arrow file"):
        return _arrow(batches, schema, as_file=format != "arrow")
    if format == "parquet":
        for field in schema:
            if pa.types.is_interval(field.type):
                raise InvalidArgument(
                    f"column {field.name!r} holds intervals with months, which have no length in "
                    f"microseconds and no type in Parquet; CAST({field.name} AS VARCHAR) writes "
                    "them as text"
                )
        return _parquet(batches, schema)
    raise InvalidArgument(f"unknown format {format!r}; known are {', '.join(WRITE_FORMATS)}")


def write(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    format: str,
    out: IO[bytes],
    *,
    line_end: str = "\r\n",
) -> None:
    for chunk in encode(batches, schema, format, line_end=line_end):
        out.write(chunk)


def _json(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    first = True
    for batch in slices(batches, _ROWS):
        text = json_bytes(batch, last="},\n")[:-2]
        yield (b"[" if first else b",\n") + text
        first = False
    yield b"[]\n" if first else b"]\n"


def _ndjson(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in slices(batches, _ROWS):
        yield json_bytes(batch)


def _csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, line_end: str) -> Iterator[bytes]:
    yield csv_header(schema, line_end)
    for batch in slices(batches, _ROWS):
        text = csv_bytes(batch, line_end)
        if text:
            yield text


class _Drain(io.RawIOBase):
    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._written = 0

    def tell(self) -> int:
        return self._written

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._written += len(data)
        return len(data)

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def _arrow(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, as_file: bool
) -> Iterator[bytes]:
    drain = _Drain()
    sink = pa.PythonFile(drain, "w")
    make = pa.ipc.new_file if as_file else pa.ipc.new_stream
    writer = make(sink, schema)
    for batch in batches:
        writer.write_batch(batch)
        sink.flush()
        chunk = drain.take()
        if chunk:
            yield chunk
    writer.close()
    sink.flush()
    yield drain.take()


def _parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[bytes]:
    with LOADING:
        import pyarrow.parquet as pq

    drain = _Drain()
    sink = pa.PythonFile(drain, "w")
    try:
        writer = pq.ParquetWriter(sink, schema, compression="zstd")
    except pa.ArrowNotImplementedError as error:
        raise InvalidArgument(f"{error} Or take another format.") from None
    for batch in batches:
        try:
            writer.write_batch(batch)
        except pa.ArrowInvalid as error:
            raise InvalidArgument(
                f"Parquet counts milliseconds, which a time does not fit ({error}); take another "
                "format"
            ) from None
        chunk = drain.take()
        if chunk:
            yield chunk
    writer.close()
    yield drain.take()
