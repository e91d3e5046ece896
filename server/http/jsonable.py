"""Single values as JSON.  Times become ISO 8601 text, exact at any unit; decimals text; bytes
base64; non-finite floats ``NaN``, ``Infinity`` or ``-Infinity``; integers stay exact.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.times import time_text
from ...formats.kinds import arrow_name_of_type, name_of_type


def columns_of(schema: pa.Schema) -> list[dict[str, Any]]:
    """The columns of a stream, a view or a file."""
    return [
        {
            "name": field.name,
            "type": arrow_name_of_type(field.type),
            "sql_type": name_of_type(field.type),
            "nullable": field.nullable,
        }
        for field in schema
    ]


def jsonable(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _named(value)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return _iso(value)
    if isinstance(value, pa.Scalar):
        return _scalar(value)
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Enum):
        return jsonable(value.value)
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Iterable) and not isinstance(value, decimal.Decimal):
        return [jsonable(item) for item in value]
    return str(value)


def _named(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _iso(value: dt.datetime | dt.date | dt.time) -> str:
    text = value.isoformat()
    return text.replace("+00:00", "Z") if isinstance(value, dt.datetime) else text


def _scalar(value: Any) -> Any:
    """Arrow scalars: timestamps that Python cannot hold."""
    if pa.types.is_timestamp(value.type) and value.is_valid:
        return time_text(value.value, value.type, "T")
    return jsonable(value.as_py())
