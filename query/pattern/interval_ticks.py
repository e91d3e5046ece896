"""Converts durations in clauses to ticks of the time attribute."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...core.times import NS_PER_TICK
from ...errors import SqlError
from ..sql.dialect import to_text
from ..sql.pattern_parser import position_error
from .scalar import evaluate

__all__ = ["interval_ticks"]


def interval_ticks(
    node: Any, time: pa.Field | None, word: str, sql: str, at: int, *, up: bool = False
) -> int:
    """Ticks of an INTERVAL, or of an integer where time is one; raises SqlError.
    ``word``: the keyword before it, ``at``: its position, for errors.  ``up``: round up; otherwise
    ticks further apart than the result are further apart than the duration.
    """
    at = min((p.meta["start"] for p in node.walk() if "start" in p.meta), default=at)

    def fail(message: str) -> SqlError:
        return position_error(message, sql, at)

    if time is None:
        raise fail(f"{word} needs a time attribute, which this input does not have")
    timed = pa.types.is_timestamp(time.type)
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Literal) and not node.is_string:
        if timed:
            raise fail(f"{word} takes an interval such as INTERVAL '10' MINUTE for a timestamp")
        if not node.name.isdigit():
            raise fail(f"{word} takes an integer from 0 on, found {node.name}")
        return int(node.name)
    if not isinstance(node, exp.Interval):
        raise fail(f"{word} takes an INTERVAL, or an integer when time is an integer")
    if not timed:
        raise fail(f"time attribute {time.name!r} is an integer: {word} takes an integer")
    value = evaluate(f"SELECT {to_text(node, sql)} AS c").column(0)[0].as_py()
    if value.months:
        raise fail(f"{word} takes an interval of fixed length: weeks, days or shorter")
    nanos = value.days * 86_400 * 10**9 + value.nanoseconds
    if nanos < 0:
        raise fail(f"{word} takes an interval that is not negative")
    per_tick = NS_PER_TICK[time.type.unit]
    return int(-(-nanos // per_tick) if up else nanos // per_tick)
