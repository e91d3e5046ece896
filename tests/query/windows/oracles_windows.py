"""What windows mean, in plain Python: slow, obvious, and knowing nothing of Chronicle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

LOW, HIGH = -(2**63), 2**63 - 1

Event = tuple[int, Any]
Row = tuple[Any, ...]


def time_windows(events: Iterable[Event], size: int, slide: int, origin: int) -> list[Row]:
    """(start, end, values) of every window with events; ``events`` are (tick, value)."""
    found: dict[int, list[Any]] = {}
    for tick, value in events:
        number = (tick - origin) // slide
        while origin + number * slide + size > tick:
            # with a slide of one tick, windows before the smallest tick are left out
            if slide > 1 or number + origin >= LOW:
                found.setdefault(number, []).append(value)
            number -= 1
    rows = []
    for number in sorted(found):
        start = origin + number * slide
        rows.append((max(start, LOW), min(start + size, HIGH), found[number]))
    return rows


def count_windows(events: Sequence[Event], size: int, slide: int) -> list[Row]:
    """(id, first tick, last tick, values) of every complete window."""
    rows = []
    number = 0
    while number * slide + size <= len(events):
        inside = events[number * slide : number * slide + size]
        rows.append((number, inside[0][0], inside[-1][0], [value for _, value in inside]))
        number += 1
    return rows


def sessions(events: Sequence[Event], gap: int) -> list[Row]:
    """(start, end, values) of every session."""
    rows: list[Row] = []
    inside: list[Event] = []
    for event in events:
        if inside and event[0] - inside[-1][0] > gap:
            rows.append(_session(inside, gap))
            inside = []
        inside.append(event)
    if inside:
        rows.append(_session(inside, gap))
    return rows


def _session(inside: list[Event], gap: int) -> Row:
    return inside[0][0], min(inside[-1][0] + gap, HIGH), [value for _, value in inside]


def aggregates(values: Iterable[Any]) -> tuple[int, int, Any, Any, Any, Any]:
    """count(*), count(x), sum, min, max, avg; None stands for null, NaN is the greatest value."""
    values = list(values)
    kept = [value for value in values if value is not None]
    if not kept:
        return len(values), 0, None, None, None, None
    plain = [value for value in kept if value == value]
    nan = len(plain) < len(kept)
    total = exact_sum(kept)
    return (
        len(values),
        len(kept),
        total,
        min(plain) if plain else math.nan,
        math.nan if nan else max(kept),
        total / len(kept),
    )


def exact_sum(values: Sequence[Any]) -> Any:
    """Exact for integers, correctly rounded for floats."""
    if all(isinstance(value, int) for value in values):
        return sum(values)
    if any(value != value for value in values):
        return math.nan
    infinite = {value for value in values if math.isinf(value)}
    if infinite:
        return infinite.pop() if len(infinite) == 1 else math.nan
    return math.fsum(values)


def arrival_order(events: Iterable[Event]) -> list[Event]:
    """Events as a stream gives them: by time, ties as they arrived."""
    key: Callable[[Event], int] = lambda event: event[0]  # noqa: E731
    return sorted(events, key=key)
