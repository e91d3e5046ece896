"""Predicate pushdown of Spark's filters to time ranges and minima and maxima of blocks.

No matching event is lost; Spark filters again.  Bounds are rounded outwards: a microsecond between
two coarser ticks keeps both.  NaN equals itself and is greater than other floats, in Spark as in
the store.  ``Not``, ``StringEndsWith``, ``StringContains`` and decimals exclude nothing.  A scan
with ``limit``, which applies before Spark's filter, is unchanged.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark

from ..core.times import INT64_MAX, INT64_MIN, TICKS_PER_SECOND
from ..schema import Attribute, StreamSchema
from ..store.prune import AllOf, AnyOf, IsNull, NotNull, Prune, Range
from .backend import ScanRequest

__all__ = ["narrow"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_EPOCH_DATE = dt.date(1970, 1, 1)
_MICROS = 1_000_000


def narrow(scan: ScanRequest, item: spark.Filter, stream: StreamSchema) -> ScanRequest:
    """The scan without what a filter excludes; AttributeNotFound for an unknown column."""
    path: tuple[str, ...] = getattr(item, "attribute", ())
    if len(path) != 1 or scan.limit is not None:
        return scan
    attribute = stream.attribute(path[0])
    if attribute.name == stream.time:
        return _narrow_time(scan, item, attribute)
    prune = _prune(item, attribute)
    if prune is None:
        return scan
    return replace(scan, prune=prune if scan.prune is None else AllOf((scan.prune, prune)))


def _narrow_time(scan: ScanRequest, item: spark.Filter, attribute: Attribute) -> ScanRequest:
    low, high = _interval(item, attribute)
    start, end = scan.start, scan.end
    if low is not None:
        start = low if start is None else max(start, low)
    if high is not None and high < INT64_MAX:
        end = high + 1 if end is None else min(end, high + 1)
    if start is not None and not INT64_MIN <= start <= INT64_MAX:
        return scan
    if end is not None and end < INT64_MIN:
        return scan
    return replace(scan, start=start, end=end)


def _interval(item: spark.Filter, attribute: Attribute) -> tuple[Any, Any]:
    """Least and greatest matching value, both inclusive; None if unbounded."""
    if isinstance(item, spark.EqualTo | spark.EqualNullSafe):
        return _bounds(item.value, attribute) or (None, None)
    if isinstance(item, spark.GreaterThan | spark.GreaterThanOrEqual):
        bounds = _bounds(item.value, attribute)
        return (bounds[0], None) if bounds else (None, None)
    if isinstance(item, spark.LessThan | spark.LessThanOrEqual):
        bounds = _bounds(item.value, attribute)
        return (None, bounds[1]) if bounds else (None, None)
    if isinstance(item, spark.In):
        every = [_bounds(value, attribute) for value in item.value if value is not None]
        known = [bounds for bounds in every if bounds is not None]
        if known and len(known) == len(every):
            return min(low for low, _ in known), max(high for _, high in known)
    return None, None


def _prune(item: spark.Filter, attribute: Attribute) -> Prune | None:
    name = attribute.name
    if isinstance(item, spark.IsNull):
        return IsNull(name)
    if isinstance(item, spark.IsNotNull):
        return NotNull(name)
    if isinstance(item, spark.In):
        every = [_bounds(value, attribute) for value in item.value if value is not None]
        known = [bounds for bounds in every if bounds is not None]
        if not known or len(known) < len(every):
            return None
        return AnyOf(tuple(Range(name, low, high) for low, high in known))
    if isinstance(item, spark.StringStartsWith):
        if not item.value or not _is_text(attribute.type):
            return None
        return Range(name, item.value, _after(item.value), high_open=True)
    low, high = _interval(item, attribute)
    return None if low is None and high is None else Range(name, low, high)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _after(prefix: str) -> str | None:
    for length in range(len(prefix), 0, -1):
        point = ord(prefix[length - 1]) + 1
        if 0xD800 <= point <= 0xDFFF:  # surrogates are no characters
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[: length - 1] + chr(point)
    return None


def _bounds(value: Any, attribute: Attribute) -> tuple[Any, Any] | None:
    """The stored values nearest to a literal, below and above; None if not comparable."""
    type_ = attribute.type
    if pa.types.is_timestamp(type_):
        if not isinstance(value, dt.datetime):
            return None
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.timezone.utc)
        micros = (aware - _EPOCH) // dt.timedelta(microseconds=1)
        scaled = micros * TICKS_PER_SECOND[type_.unit]
        return scaled // _MICROS, -(-scaled // _MICROS)
    if pa.types.is_date(type_):
        if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
            return None
        days = (value - _EPOCH_DATE).days
        ticks = days * 86_400_000 if pa.types.is_date64(type_) else days
        return ticks, ticks
    if pa.types.is_boolean(type_):
        return (value, value) if isinstance(value, bool) else None
    if pa.types.is_integer(type_):
        if isinstance(value, Decimal) and value.is_finite():  # how Spark sees a uint64
            return math.floor(value), math.ceil(value)
        return (value, value) if isinstance(value, int) else None
    if pa.types.is_floating(type_):
        if isinstance(value, int | float) and not math.isnan(value):
            return float(value), float(value)
        return None
    if _is_text(type_):
        return (value, value) if isinstance(value, str) else None
    return None
