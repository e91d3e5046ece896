"""Time literals, parsed the same everywhere, whatever the executor does.

It drops the offset of a text cast to TIMESTAMP, truncates digits, and rejects ``T13Z`` and a
decimal comma.  Literals and parameters cast to a time type, or compared with a time column, are
replaced; offsets convert to UTC, and digits that the type cannot hold are an error.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from sqlglot import exp

from .dialect import error_at, position_of

__all__ = ["TimeUse", "cast_of_texts", "exact_text", "settle_times", "settled", "type_in"]

TimeUse = tuple[str, pa.DataType, int | None]
"""A parameter that becomes a time: its name in the tree, the type, and its offset in the text."""

OFFSET = r"\d\s*:.*\d\s*([zZ]|[+-]\d\d(:?\d\d)?)\s*$"
"""Matches a time with an offset."""
_OFFSET_ALONE = r"\s*([zZ]|[+-]\d\d(:?\d\d)?)\s*$"
DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Fractional digits per unit."""

_TIME = re.compile(
    r"\s*(\d{4}-\d\d-\d\d)[T ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:[.,](\d+))?)?)?\s*"
    r"(z|[+-]\d\d(?::?\d\d)?)?\s*",
    re.IGNORECASE,
)
_TYPES = {
    "TIMESTAMP": pa.timestamp("us"), "TIMESTAMPNTZ": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"), "TIMESTAMP_S": pa.timestamp("s"),
    "TIMESTAMP_MS": pa.timestamp("ms"), "TIMESTAMP_NS": pa.timestamp("ns"),
}  # fmt: skip
"""By the parser's names."""
_PICKING = ("first", "last", "prev", "next", "min", "max", "any_value")
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)


def exact_text(text: str, type_: pa.DataType) -> str:
    """An equivalent text that the executor reads without loss; unchanged if not ISO 8601.

    ValueError for more fractional digits than the type holds.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return text
    date, hour, minute, second, fraction, offset = found.groups()
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
        zone = "+00:00" if offset in "zZ" else offset
        try:
            moment = dt.datetime.fromisoformat(f"{date}T{clock}{zone}").astimezone(dt.timezone.utc)
        except (ValueError, OverflowError):
            return text
        date, clock, offset = moment.date().isoformat(), moment.time().isoformat(), None
    return f"{date} {clock}{'.' if fraction else ''}{fraction}{offset or ''}"


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
    offset = f"regexp_matches({column}, '{OFFSET}')"
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
    for node in list(root.find_all(exp.Cast, exp.Between, exp.In, *_COMPARISONS)):
        if isinstance(node, exp.Cast):
            cast = _TYPES.get(getattr(node.to.this, "name", ""))
            if cast is not None and type(node) is exp.Cast:
                yield node.this, cast
            continue
        if isinstance(node, exp.Between):
            sides = [node.this, node.args["low"], node.args["high"]]
        elif isinstance(node, exp.In):
            sides = [node.this, *node.expressions]
        else:
            sides = [node.this, node.expression]
        types = [type_of(side) for side in sides]
        known = next((t for t in types if t is not None and pa.types.is_timestamp(t)), None)
        if known is not None:
            yield from ((side, known) for side in sides)
