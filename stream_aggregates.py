"""Aggregates of a stream as its users see them: values in the types that the stream declares.

Purpose
    :func:`aggregates_of` asks a snapshot's trees for lightweight aggregates, and gives them back as
    times, dates, numbers and booleans.

Cost
    That of :meth:`~chronicle.store.snapshot.Snapshot.aggregate`, but for what no tree holds: minima
    and maxima of strings, binaries and decimals, and sums of decimals and of the time itself, which
    read the events of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .errors import InvalidArgument
from .schema import Attribute, Storage, StreamSchema
from .store import Snapshot

__all__ = ["aggregates_of"]

FUNCTIONS = ("count", "sum", "min", "max", "avg", "first", "last")
_SCANNED = (Storage.STRING, Storage.BINARY, Storage.DECIMAL)


def _has_sum(attribute: Attribute) -> bool:
    return attribute.summable or attribute.storage is Storage.DECIMAL


def _of_scalar(scalar: pa.Scalar) -> Any:
    """A Python value; times that ``datetime`` cannot hold stay Arrow scalars."""
    if pa.types.is_timestamp(scalar.type) and scalar.is_valid:
        return _moment(scalar.value, scalar.type)
    return scalar.as_py()


def _moment(ticks: int, type_: pa.DataType) -> Any:
    scalar = pa.scalar(ticks, pa.int64()).cast(type_)
    if type_.unit == "ns":
        if ticks % 1000:
            return scalar
        type_ = pa.timestamp("us", type_.tz)
        ticks //= 1000
    try:
        return pa.scalar(ticks, pa.int64()).cast(type_).as_py()
    except (ValueError, OverflowError):
        return scalar


def _as_declared(value: Any, attribute: Attribute, schema: StreamSchema) -> Any:
    """A minimum or maximum as the attribute's type has it; the tree counts in ticks."""
    type_ = attribute.type
    if pa.types.is_timestamp(type_):
        return _moment(value, type_)
    if pa.types.is_date(type_):
        raw = pa.scalar(value, pa.int32() if pa.types.is_date32(type_) else pa.int64())
        return raw.cast(type_).as_py()
    if attribute.storage is Storage.BOOL:
        return bool(value)
    return value


def _of_time(
    function: str, answer: Any, snapshot: Snapshot, low: int | None, high: int | None
) -> Any:
    """An aggregate of the time attribute itself."""
    schema = snapshot.schema
    if function == "count":
        return answer.count
    if function in ("min", "max"):
        ticks = answer.first if function == "min" else answer.last
        return None if ticks is None else schema.from_ticks(ticks)
    return _by_scan(function, schema.attribute(schema.time), snapshot, low, high)


def _by_scan(
    function: str, attribute: Attribute, snapshot: Snapshot, low: int | None, high: int | None
) -> Any:
    """An aggregate that the tree does not hold, from the events."""
    best: Any = None
    total: Any = None
    count = 0
    compare: dict[str, Callable[[Any, Any], Any]] = {"min": min, "max": max}
    for batch in snapshot.scan(low, high, [attribute.name]):
        column = batch.column(0)
        count += len(column) - column.null_count
        if len(column) == column.null_count:
            continue
        if function in compare:
            value = pc.min_max(column)[function].as_py()
            best = value if best is None else compare[function](best, value)
        else:
            wide = column.cast(pa.decimal128(38, getattr(attribute.type, "scale", 0)))
            value = pc.sum(wide).as_py()
            total = value if total is None else total + value
    if function in compare or total is None:
        return best
    if function == "avg":
        return float(total / count)
    return int(total) if pa.types.is_integer(attribute.type) else total


def aggregates_of(
    snapshot: Snapshot,
    functions: Mapping[str, str | Iterable[str]],
    low: int | None,
    high: int | None,
) -> dict[str, dict[str, Any]]:
    """Aggregate attributes over the events with low <= t < high, as :meth:`Stream.aggregate`.

    Raises
    ------
    AttributeNotFound, InvalidArgument
    """
    schema = snapshot.schema
    wanted: list[tuple[str, Attribute, tuple[str, ...]]] = []
    names: list[str] = []
    for given, asked in functions.items():
        attribute = schema.attribute(given)
        listed = (asked,) if isinstance(asked, str) else tuple(asked)
        for function in listed:
            if function not in FUNCTIONS:
                raise InvalidArgument(
                    f"the aggregates are {', '.join(FUNCTIONS)}, found {function!r}"
                )
        wanted.append((given, attribute, listed))
        if attribute.name != schema.time and attribute.name not in names:
            names.append(attribute.name)
    answer = snapshot.aggregate(names, low, high)
    result: dict[str, dict[str, Any]] = {}
    for given, attribute, listed in wanted:
        values: dict[str, Any] = {}
        ends = None
        element = None if attribute.name == schema.time else answer[attribute.name]
        for function in listed:
            if function in ("first", "last"):
                if ends is None:
                    ends = snapshot.first_last(attribute.name, low, high)
                scalar = ends[0 if function == "first" else 1]
                values[function] = None if scalar is None else _of_scalar(scalar)
            elif function in ("min", "max") and not attribute.comparable:
                raise InvalidArgument(
                    f"{function} needs values that have an order; {given} is {attribute.type_name}"
                )
            elif function in ("sum", "avg") and not _has_sum(attribute):
                raise InvalidArgument(f"{function} needs numbers; {given} is {attribute.type}")
            elif element is None:
                values[function] = _of_time(function, answer, snapshot, low, high)
            elif function == "count":
                values[function] = element.count
            elif attribute.storage in _SCANNED:
                values[function] = _by_scan(function, attribute, snapshot, low, high)
            else:
                value = getattr(element, function)
                if function in ("min", "max") and value is not None:
                    value = _as_declared(value, attribute, schema)
                values[function] = value
        result[given] = values
    return result
