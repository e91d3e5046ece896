"""Statement parameters from JSON.  SQL types that JSON lacks are objects: ``{"type": "timestamp",
"value": "2018-08-01T06:00:00"}``.  A value that its type cannot hold is refused with the
parameter's name.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ...core.times import ticks_of, time_of
from ...errors import InvalidArgument

__all__ = ["TYPES", "values_of"]


def _moment(text: str) -> object:
    return time_of(ticks_of(text, "value", "us"), pa.timestamp("us"))


def _zoned(text: str) -> object:
    return time_of(ticks_of(text, "value", "us"), pa.timestamp("us", "UTC"))


def _span(text: str) -> dt.timedelta:
    number, _, unit = text.partition(" ")
    if unit != "microseconds":
        raise ValueError("an interval is a number of microseconds, such as '1500000 microseconds'")
    return dt.timedelta(microseconds=int(number))


def _blob(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


TYPES: dict[str, Callable[[str], Any]] = {
    "timestamp": _moment,
    "timestamptz": _zoned,
    "date": dt.date.fromisoformat,
    "interval": _span,
    "decimal": Decimal,
    "double": float,
    "blob": _blob,
}


def values_of(params: dict[str, Any] | list[Any] | None) -> dict[str, Any] | list[Any] | None:
    """The values as Python types; raises ``InvalidArgument``."""
    if isinstance(params, dict):
        return {name: _value(name, given) for name, given in params.items()}
    if isinstance(params, list):
        return [_value(str(place), given) for place, given in enumerate(params, start=1)]
    return None


def _value(name: str, given: Any) -> Any:
    if isinstance(given, list):
        return [_value(name, item) for item in given]
    if not isinstance(given, Mapping):
        return given
    if set(given) != {"type", "value"} or given["type"] not in TYPES:
        raise InvalidArgument(
            f"the parameter ${name} is an object; one has the members type (one of "
            f"{', '.join(TYPES)}) and value"
        )
    try:
        return TYPES[given["type"]](str(given["value"]))
    except (ValueError, ArithmeticError, InvalidArgument) as error:
        raise InvalidArgument(
            f"the parameter ${name} is no {given['type']}: {given['value']!r} ({error})"
        ) from None
