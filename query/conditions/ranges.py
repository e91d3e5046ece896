"""Time ranges of predicates, and texts of predicates and ranges for EXPLAIN."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from ...core.times import INT64_MAX, INT64_MIN, NS_PER_TICK, half_open, time_text
from ...schema import StreamSchema
from ...store.prune import AllOf, AnyOf, IsNull, Never, NotNull, Prune, Range, Remainder
from ...store.snapshot import Snapshot

TICK_MIN, TICK_MAX = INT64_MIN, INT64_MAX
_DAY_NS = 86_400_000_000_000


def tick_ns(type_: pa.DataType) -> int:
    """Nanoseconds per tick of a time or date column."""
    if pa.types.is_date32(type_):
        return _DAY_NS
    return NS_PER_TICK["ms" if pa.types.is_date64(type_) else type_.unit]


def time_bounds(prune: Prune | None, time: str) -> tuple[int, int]:
    """Hull of the ticks that a predicate permits, both inclusive; empty when low > high."""
    if prune is None:
        return TICK_MIN, TICK_MAX
    if isinstance(prune, Never):
        return 1, 0
    if isinstance(prune, Range) and prune.column == time:
        low = TICK_MIN if prune.low is None else math.ceil(prune.low)  # type: ignore[arg-type]
        high = TICK_MAX if prune.high is None else math.floor(prune.high)  # type: ignore[arg-type]
        return max(low, TICK_MIN), min(high, TICK_MAX)
    if isinstance(prune, AllOf):
        low, high = TICK_MIN, TICK_MAX
        for item in prune.items:
            first, last = time_bounds(item, time)
            low, high = max(low, first), min(high, last)
        return low, high
    if isinstance(prune, AnyOf):
        spans = [span for item in prune.items if (span := time_bounds(item, time))[0] <= span[1]]
        if not spans:
            return 1, 0
        return min(low for low, _ in spans), max(high for _, high in spans)
    return TICK_MIN, TICK_MAX


def only_time(prune: Prune | None, time: str) -> bool:
    if isinstance(prune, AllOf):
        return all(only_time(item, time) for item in prune.items)
    return isinstance(prune, Never) or is_of_time(prune, time)


def is_of_time(prune: Prune | None, time: str) -> bool:
    """Whether a range of time decides a predicate; no event is without a time."""
    return isinstance(prune, Range | NotNull) and prune.column == time


def describe(prune: Prune | None, schema: StreamSchema) -> str | None:
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
    if isinstance(prune, Remainder):
        shown = Range(f"{prune.column} % {prune.divisor}", prune.low, prune.high)
        return _describe_range(shown, schema)
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
    if pa.types.is_timestamp(type_):
        return time_text(ticks, type_)
    try:
        raw = pa.scalar(ticks, pa.int32() if pa.types.is_date32(type_) else pa.int64())
        return str(raw.cast(type_))
    except (pa.ArrowInvalid, ValueError, OverflowError):
        return str(ticks)


def range_text(low: int, high: int, schema: StreamSchema) -> str | None:
    if low > high:
        return "empty"
    if low == TICK_MIN and high == TICK_MAX:
        return None
    type_ = schema.time_type
    start = "" if low == TICK_MIN else shown_time(low, type_)
    end = "" if high == TICK_MAX else shown_time(high + 1, type_)
    return f"[{start}, {end})"


def tail_start(snapshot: Snapshot, low: int, high: int, rows: int) -> int:
    """The latest tick from which on, up to ``high``, there are at least ``rows`` events."""
    span = snapshot.time_range
    if span is None or low > high:
        return low
    first, last = max(low, span[0]), min(high, span[1])
    if first > last or rows <= 0:
        return low

    def events(tick: int) -> int:
        start, end = half_open(tick, high)
        return snapshot.aggregate((), start, end).count

    total = events(first)
    if total <= rows:
        return low
    # find the greatest tick with enough events: start where it would be for a uniform
    # distribution, go back exponentially until there are enough, then bisect
    good, bad = first, last + 1
    width = max(1, (last - first + 1) * rows // total)
    while last + 1 - width > first:
        tick, width = last + 1 - width, 4 * width
        if events(tick) >= rows:
            good = tick
            break
        bad = tick
    while bad - good > 1:
        middle = (good + bad) // 2
        if events(middle) >= rows:
            good = middle
        else:
            bad = middle
    return good
