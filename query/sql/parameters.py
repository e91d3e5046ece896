"""Parameters: ``$name`` from a mapping, ``?`` and ``$1`` from a sequence.

NumPy and Arrow scalars become Python values; missing or surplus values raise SqlError.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...core.times import value_text
from ...errors import SqlError
from .dialect import error_at, parse_statement
from .trees import nodes_of

NOW = "chronicle_now"
"""Parameter with the time at which the query began."""

_POSITION = "p"
_WHOLE_MAX = 10**38 - 1
"""Beyond it the executor confuses some numbers; no stream type holds them."""


def number_placeholders(root: Any, text: str) -> dict[str, int]:
    """Name the placeholders in place (positional ones ``"1"``, ...); offsets of first uses."""
    nodes = [node for node in nodes_of(root) if isinstance(node, exp.Placeholder)]
    nodes.sort(key=lambda node: node.meta.get("start", 0))
    names: dict[str, int] = {}
    marks = 0
    kinds = set()
    for node in nodes:
        at = node.meta.get("start", 0)
        name = str(node.this.name if isinstance(node.this, exp.Expression) else node.this or "")
        kind = "$1" if name.isdigit() else "$name"
        if not name or name == "?":
            kind = "?"
            marks += 1
            name = str(marks)
        kinds.add(kind)
        if "$name" in kinds and len(kinds) > 1:
            raise error_at(
                text,
                at,
                "a statement takes either named parameters ($name) or positional ones (?, $1)",
            )
        if len(kinds) > 1:
            raise error_at(text, at, "a statement takes either ? or $1, $2, ..., not both")
        node.meta["parameter"] = name
        node.set("this", f"{_POSITION}{name}" if name.isdigit() else name)
        names.setdefault(name, at)
    folded: dict[str, str] = {}
    for node in nodes:  # the executor ignores case in names
        name = node.meta["parameter"]
        first = folded.setdefault(name.lower(), name)
        if first != name or first.lower() == NOW:
            what = "is taken" if first.lower() == NOW else f"differs from ${first} in case only"
            raise error_at(text, node.meta.get("start", 0), f"the parameter name ${name} {what}")
    return names


def bind_values(
    names: Mapping[str, int], params: Mapping[str, Any] | Sequence[Any] | None, text: str
) -> dict[str, Any]:
    """Values by their name in the tree."""
    if params is None:
        by_name: dict[str, Any] = {}
    elif isinstance(params, Mapping):
        by_name = {str(key).removeprefix("$"): value for key, value in params.items()}
    elif isinstance(params, (str, bytes)) or not isinstance(params, Sequence):
        raise SqlError(
            f"params is a mapping for $name or a list for ?, found {type(params).__name__}"
        )
    else:
        by_name = {str(position): value for position, value in enumerate(params, start=1)}
    missing = [name for name in names if name not in by_name]
    surplus = [name for name in by_name if name not in names]
    if missing:
        shown = ", ".join(f"${name}" for name in missing)
        raise error_at(
            text, names[missing[0]], f"no value was given for the parameter {shown}; pass params="
        )
    if surplus:
        shown = ", ".join(f"${name}" for name in surplus)
        raise SqlError(f"the statement has no parameter {shown}")
    values = {}
    for name, at in names.items():
        try:
            value = _plain(name, by_name[name])
        except SqlError as error:
            raise error_at(text, at, error.reason) from None
        values[f"{_POSITION}{name}" if name.isdigit() else name] = value
    return values


def _plain(name: str, value: Any) -> Any:
    if type(value) is int and abs(value) > _WHOLE_MAX:
        raise SqlError(f"the parameter ${name} is a whole number of more than 38 digits")
    if isinstance(value, Decimal) and value and value.is_finite():
        _, digits, exponent = value.as_tuple()
        if max(len(digits) + max(int(exponent), 0), -int(exponent)) > 38:
            raise SqlError(f"the parameter ${name} has more than 38 digits; pass a float")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise SqlError(f"the parameter ${name} has half of a surrogate pair") from None
    if value is None or type(value) in (
        bool,
        int,
        float,
        str,
        bytes,
        Decimal,
        dt.date,
        dt.timedelta,
    ):
        return value
    if isinstance(value, pa.Scalar):
        return _plain(name, _of_arrow(name, value))
    module = type(value).__module__.split(".")[0]
    if module == "numpy":
        return _plain(name, _of_numpy(name, value))
    if module == "pandas" and type(value).__name__ in ("NaTType", "NAType"):
        return None
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):  # of pandas
        raise _too_fine(name, value)
    if isinstance(value, dt.datetime):
        as_datetime = getattr(value, "to_pydatetime", None)
        return as_datetime() if as_datetime is not None else value
    if isinstance(value, (list, tuple)):
        return [_plain(name, item) for item in value]
    if isinstance(value, (bool, int, float, str, bytes, dt.date, dt.timedelta, dt.time)):
        return value
    raise _lacking(name, value)


def _of_numpy(name: str, value: Any) -> Any:
    try:
        return _of_arrow(name, pa.scalar(value))
    except (pa.ArrowException, TypeError):  # days, hours, years, arrays of other dimensions
        plain = value.tolist()
    if type(plain) is type(value) or (value.dtype.kind in "mM" and isinstance(plain, int)):
        raise _lacking(name, value)
    return plain


def _of_arrow(name: str, scalar: pa.Scalar) -> Any:
    if scalar.is_valid and getattr(scalar.type, "unit", "") == "ns":
        if scalar.value % 1000:
            raise _too_fine(name, scalar)
        if pa.types.is_timestamp(scalar.type):
            return scalar.cast(pa.timestamp("us", scalar.type.tz)).as_py()
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        raise SqlError(
            f"the parameter ${name} is beyond the years 1 to 9999, which SQL lacks as a value; "
            "pass it as text"
        ) from None


def _lacking(name: str, value: object) -> SqlError:
    what = type(value).__name__
    return SqlError(f"the parameter ${name} has a value of type {what}, which SQL lacks")


def _too_fine(name: str, value: object) -> SqlError:
    return SqlError(
        f"the parameter ${name} is finer than a microsecond ({value_text(value)}); of a time pass "
        f"nanoseconds since the epoch as an integer and write make_timestamp_ns(${name})"
    )


def names_in(text: str) -> frozenset[str]:
    root = parse_statement(text)
    return frozenset(number_placeholders(root, text))
