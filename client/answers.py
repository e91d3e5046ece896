"""Converts a server's JSON to the objects of the embedded database."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..core.append_result import AppendResult
from ..errors import ConnectionFailed
from ..schema import StreamSchema

if TYPE_CHECKING:
    from ..query.contract.explanation import Plan


def schema_of(answer: Any, where: str) -> StreamSchema:
    try:
        told = {"arrow": answer["arrow_schema"], "time": answer["time"]}
        if answer.get("defaults") is not None:
            told["defaults"] = answer["defaults"]
        return StreamSchema.from_json(told)
    except (AttributeError, KeyError, TypeError, ValueError, pa.ArrowInvalid):
        raise ConnectionFailed(
            f"{where} describes no stream where one is expected: is it a Chronicle server?"
        ) from None


def time_range_of(answer: Any, schema: StreamSchema) -> tuple[Any, Any] | None:
    span = answer["time_range"]
    if span is None:
        return None
    return schema.from_ticks(span["first_ticks"]), schema.from_ticks(span["last_ticks"])


def append_result(answer: Any) -> AppendResult:
    names = ("appended", "late", "count", "version", "duplicates")
    return AppendResult(**{name: int(answer.get(name, 0)) for name in names})  # some may lack


def plan_of(answer: Mapping[str, Any]) -> Plan:
    from ..query.contract.explanation import Plan

    return Plan.from_dict(answer)


def status_of(answer: Mapping[str, Any], times: StreamSchema) -> dict[str, Any]:
    """Status of a live query; the watermark has the type of the results' times."""
    status = {key: value for key, value in answer.items() if key not in ("sql", "definition")}
    if isinstance(status.get("watermark"), str):
        status["watermark"] = times.from_ticks(times.to_ticks(status["watermark"]))
    return status


def names_of(told: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(str(each["name"]) for each in told)


def damage_of(told: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Damage of the streams in a list that cannot be opened."""
    return {str(each["name"]): str(each["damage"]) for each in told if "damage" in each}


def grouped_by_functions(
    functions: Mapping[str, str | Iterable[str]], schema: StreamSchema
) -> list[tuple[tuple[str, ...], list[str]]]:
    """Group attributes by the functions asked for; raises ``AttributeNotFound``."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, asked in functions.items():
        schema.attribute(name)
        wanted = (asked,) if isinstance(asked, str) else tuple(asked)
        groups.setdefault(wanted, []).append(name)
    return [(wanted, names) for wanted, names in groups.items() if wanted]


def values_of(
    answer: Any, name: str, functions: Iterable[str], schema: StreamSchema
) -> dict[str, Any]:
    """Aggregates of one attribute, in its declared type."""
    attribute = schema.attribute(name)
    found = answer["aggregates"][attribute.name]
    return {each: _value(found[each], each, attribute.type) for each in functions}


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
