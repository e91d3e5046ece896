"""Converts users' data, predicates and changes for a server.  Data is checked here as by the
embedded database (``chronicle.formats.tables``): the errors are the same, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import chain
from math import isfinite
from typing import Any

import pyarrow as pa

from ..errors import InvalidArgument
from ..formats.tables import tables_of
from ..schema import StreamSchema, key_names, key_text

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


def may_fit(data: Any, known: StreamSchema, present: StreamSchema) -> bool:
    """Whether data that did not fit the known schema may fit the present one.  False for readers,
    which may have been partly consumed.
    """
    frame = type(data).__module__.split(".")[0] in ("pandas", "polars")
    again = frame or isinstance(data, (pa.Table, pa.RecordBatch, list, tuple))
    return again and not present.arrow.equals(known.arrow)


def key_of_part(key: str | None, number: int) -> str | None:
    """The idempotency key of the ``number``-th table of an append."""
    return key if key is None or number == 0 else f"{key}/{number}"


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

    text = f"ALTER STREAM {_quoted(stream)} ADD COLUMN {_quoted(name)} {name_of_type(type_)}"
    if not nullable:
        text += " NOT NULL"
    return text if default is None else f"{text} DEFAULT {_literal(name, type_, default)}"


def column_widened(stream: str, name: str, type_: pa.DataType) -> str:
    from ..formats.kinds import name_of_type

    return f"ALTER STREAM {_quoted(stream)} ALTER COLUMN {_quoted(name)} TYPE {name_of_type(type_)}"


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
    return "'" + str(text).replace("'", "''") + "'"


def altered(stream: str, what: str, name: str, to: str | None = None) -> str:
    """The statement that drops or renames a column, or renames the stream (without ``name``)."""
    words = [f"ALTER STREAM {_quoted(stream)} {what}", *([_quoted(name)] if name else [])]
    return " ".join(words if to is None else [*words, "TO", _quoted(to)])


def dropped_with_views(stream: str) -> str:
    return f"DROP STREAM IF EXISTS {_quoted(stream)} CASCADE"


def settings_changed(stream: str, options: Mapping[str, Any]) -> str:
    listed = []
    for name, value in options.items():
        if name == "unique" and value is not None:
            value = key_text(key_names(value))
        if value is not None and not isinstance(value, (int, str)):
            raise InvalidArgument(f"the setting {name} is a number or a text, found {value!r}")
        text = "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"
        listed.append(f"{_quoted(name)} = {value if isinstance(value, int) else text}")
    return f"ALTER STREAM {_quoted(stream)} SET ({', '.join(listed)})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
