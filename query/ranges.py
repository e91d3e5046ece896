"""Pruning predicates read back: the time range they leave, and how people read them.

Purpose
    :func:`time_bounds` finds the ticks that a predicate leaves possible, so that a scan starts and
    ends there; :func:`describe` writes a predicate for EXPLAIN.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from ..schema import StreamSchema, time_text
from ..store.prune import AllOf, AnyOf, IsNull, Never, NotNull, Prune, Range

__all__ = ["TICK_MAX", "TICK_MIN", "describe", "shown_time", "tick_ns", "time_bounds"]

TICK_MIN, TICK_MAX = -(2**63), 2**63 - 1
_NS_PER_TICK = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DAY_NS = 86_400_000_000_000


def tick_ns(type_: pa.DataType) -> int:
    """Nanoseconds in a unit of a time or date column."""
    if pa.types.is_date32(type_):
        return _DAY_NS
    return _NS_PER_TICK["ms" if pa.types.is_date64(type_) else type_.unit]


def time_bounds(prune: Prune | None, time: str) -> tuple[int, int]:
    """Hull of the ticks that a predicate leaves possible, both inclusive; empty when low > high."""
    if prune is None:
        return TICK_MIN, TICK_MAX
    if isinstance(prune, Never):
        return 1, 0
    if isinstance(prune, Range) and prune.column == time:
        low = TICK_MIN if prune.low is None else math.ceil(prune.low)  # type: ignore[arg-type]
        high = TICK_MAX if prune.high is None else math.floor(prune.high)  # type: ignore[arg-type]
        return max(low, TICK_MIN), min(high, TICK_MAX)
    if isinstance(prune, AllOf):
        spans = [time_bounds(item, time) for item in prune.items]
        return (
            max((low for low, _ in spans), default=TICK_MIN),
            min((high for _, high in spans), default=TICK_MAX),
        )
    if isinstance(prune, AnyOf):
        spans = [span for item in prune.items if (span := time_bounds(item, time))[0] <= span[1]]
        if not spans:
            return 1, 0
        return min(low for low, _ in spans), max(high for _, high in spans)
    return TICK_MIN, TICK_MAX


def describe(prune: Prune | None, schema: StreamSchema) -> str | None:
    """A predicate as people read it; None when it says nothing."""
    if prune is None or prune == AllOf(()):
        return None
    if isinstance(prune, Never):
        return "never"
    if isinstance(prune, IsNull):
        return f"{prune.column} is null"
    if isinstance(prune, NotNull):
        return f"{prune.column} is not null"
    if isinstance(prune, Range):
        return _describe_range(prune, schema)
    word = " and " if isinstance(prune, AllOf) else " or "
    parts = [describe(item, schema) or "true" for item in prune.items]
    return word.join(f"({p})" if " and " in p or " or " in p else p for p in parts)


def _describe_range(prune: Range, schema: StreamSchema) -> str:
    def shown(value: Any) -> str:
        if prune.column in schema and isinstance(value, int) and not isinstance(value, bool):
            type_ = schema.attribute(prune.column).type
            if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
                return shown_time(value, type_)
        return repr(value) if isinstance(value, str) else str(value)

    if prune.low is not None and prune.low == prune.high:
        return f"{prune.column} = {shown(prune.low)}"
    parts = []
    if prune.low is not None:
        parts.append(f"{prune.column} {'>' if prune.low_open else '>='} {shown(prune.low)}")
    if prune.high is not None:
        parts.append(f"{prune.column} {'<' if prune.high_open else '<='} {shown(prune.high)}")
    return " and ".join(parts) or f"{prune.column} is not null"


def shown_time(ticks: int, type_: pa.DataType) -> str:
    """Ticks of a time or date column as people read them."""
    if pa.types.is_timestamp(type_):
        return time_text(ticks, type_)
    try:
        raw = pa.scalar(ticks, pa.int32() if pa.types.is_date32(type_) else pa.int64())
        return str(raw.cast(type_))
    except (pa.ArrowInvalid, ValueError, OverflowError):
        return str(ticks)
