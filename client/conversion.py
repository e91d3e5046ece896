"""Converts a server's JSON to the objects of the embedded database, and users' data, predicates and
changes to what a server takes.  Data is checked here as by the embedded database
(``chronicle.formats.tables``): the errors are the same, before anything is sent.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import chain
from math import isfinite
from typing import Any

import pyarrow as pa

from ..core.append_result import AppendResult
from ..core.sql_text import quoted_name, quoted_text
from ..errors import ConnectionFailed, InvalidArgument
from ..formats.tables import tables_of
from ..schema import StreamSchema, key_names, key_text


def schema_of(answer: Any, where: str) -> StreamSchema:
    try:
        described = {"arrow": answer["arrow_schema"], "time": answer["time"]}
        if answer.get("defaults") is not None:
            described["defaults"] = answer["defaults"]
        return StreamSchema.from_json(described)
    except (AttributeError, KeyError, TypeError, ValueError, pa.ArrowInvalid):
        raise ConnectionFailed(
            f"{where} describes no stream where one is expected: is it a Chronicle server?"
        ) from None


def append_result(answer: Any) -> AppendResult:
    names = ("appended", "late", "count", "version", "duplicates")
    figures = {name: int(answer.get(name, 0)) for name in names}  # some may lack
    return AppendResult(**figures, repeated=bool(answer.get("replayed", False)))


def status_of(answer: Mapping[str, Any], times: StreamSchema) -> dict[str, Any]:
    """Status of a live query; the watermark has the type of the results' times."""
    status = {key: value for key, value in answer.items() if key not in ("sql", "definition")}
    if isinstance(status.get("watermark"), str):
        status["watermark"] = times.from_ticks(times.to_ticks(status["watermark"]))
    return status


def names_of(listed: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(str(each["name"]) for each in listed)


def grouped_by_functions(
    functions: Mapping[str, str | Iterable[str]], schema: StreamSchema
) -> list[tuple[tuple[str, ...], list[str]]]:
    """Group attributes by the functions asked for; raises ``AttributeNotFound``."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, chosen in functions.items():
        schema.attribute(name)
        wanted = (chosen,) if isinstance(chosen, str) else tuple(chosen)
        groups.setdefault(wanted, []).append(name)
    return [(wanted, names) for wanted, names in groups.items() if wanted]


def values_of(
    answer: Any, name: str, functions: Iterable[str], schema: StreamSchema
) -> dict[str, Any]:
    """Aggregates of one attribute, in its declared type."""
    attribute = schema.attribute(name)
    values = answer["aggregates"][attribute.name]
    return {each: _value(values[each], each, attribute.type) for each in functions}


def _value(value: Any, function: str, type_: pa.DataType) -> Any:
    if value is None or function == "count":
        return value
    if pa.types.is_decimal(type_) and function != "avg":
        return Decimal(value)
    if value in ("NaN", "Infinity", "-Infinity") and not _is_text(type_):
        return float(value)
    if function in ("sum", "avg"):
        return value
    if pa.types.is_timestamp(type_):
        times = StreamSchema(pa.schema([pa.field("t", type_, False)]), "t")
        return times.from_ticks(times.to_ticks(value))
    if pa.types.is_date(type_):
        return dt.date.fromisoformat(value)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return base64.b64decode(value)
    return value


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


PIECE_ROWS = 65_536
"""Rows per batch on the wire."""
SENT_ONCE = (
    "an append without an idempotency_key is sent once; compare the stream's count before sending "
    "it again"
)


def begun(data: Any, schema: StreamSchema) -> Iterator[pa.Table]:
    """Data as tables in a stream's schema; errors of the first are raised at once."""
    tables = tables_of(data, schema)
    return chain((next(tables),), tables)


def may_fit(data: Any, cached: StreamSchema, present: StreamSchema) -> bool:
    """Whether data that did not fit the known schema may fit the present one.  False for readers,
    which may have been partly consumed.
    """
    frame = type(data).__module__.split(".")[0] in ("pandas", "polars")
    again = frame or isinstance(data, (pa.Table, pa.RecordBatch, list, tuple))
    return again and not present.arrow.equals(cached.arrow)


def predicate_of(filter: object) -> str | None:
    if filter is None or isinstance(filter, str):
        return filter
    raise InvalidArgument(
        "a filter that a server applies is a SQL predicate, such as 'altitude > 10000', found "
        f"{type(filter).__name__}"
    )


def column_added(
    stream: str, name: str, type_: pa.DataType, nullable: bool = True, default: Any = None
) -> str:
    """The statement that adds a column, with its default as a literal."""
    from ..formats.kinds import name_of_type

    text = (
        f"ALTER STREAM {quoted_name(stream)} ADD COLUMN {quoted_name(name)} {name_of_type(type_)}"
    )
    if not nullable:
        text += " NOT NULL"
    return text if default is None else f"{text} DEFAULT {_literal(name, type_, default)}"


def column_widened(stream: str, name: str, type_: pa.DataType) -> str:
    from ..formats.kinds import name_of_type

    column = f"{quoted_name(name)} TYPE {name_of_type(type_)}"
    return f"ALTER STREAM {quoted_name(stream)} ALTER COLUMN {column}"


def _literal(name: str, type_: pa.DataType, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (int, Decimal)) or (isinstance(value, float) and isfinite(value)):
        return repr(value) if isinstance(value, float) else str(value)
    try:
        wanted = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
        text = pa.scalar(value).cast(wanted).cast(pa.string()).as_py()
    except (pa.ArrowException, ValueError):
        text = None
    if text is None:
        raise InvalidArgument(f"the default of {name!r} is no {type_}, found {value!r}")
    return quoted_text(str(text))


def altered(stream: str, what: str, name: str, to: str | None = None) -> str:
    """The statement that drops or renames a column, or renames the stream (without ``name``)."""
    words = [f"ALTER STREAM {quoted_name(stream)} {what}", *([quoted_name(name)] if name else [])]
    return " ".join(words if to is None else [*words, "TO", quoted_name(to)])


def dropped_with_views(stream: str) -> str:
    return f"DROP STREAM IF EXISTS {quoted_name(stream)} CASCADE"


def settings_changed(stream: str, options: Mapping[str, Any]) -> str:
    listed = []
    for name, value in options.items():
        if name == "unique" and value is not None:
            value = key_text(key_names(value))
        if value is not None and not isinstance(value, (int, str)):
            raise InvalidArgument(f"the setting {name} is a number or a text, found {value!r}")
        text = "NULL" if value is None else quoted_text(str(value))
        listed.append(f"{quoted_name(name)} = {value if isinstance(value, int) else text}")
    return f"ALTER STREAM {quoted_name(stream)} SET ({', '.join(listed)})"
