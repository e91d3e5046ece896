"""Bounds that a comparison of a column with a value implies, and how they combine.

Used by ``predicates`` (SQL) and ``pushed_filters`` (Arrow).  Bounds hold for every value for which
the comparison is true; ``Compiled.exact``: only for these.  Where values are compared in binary
floating point, bounds are wider by units in the last place and never exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa

from ...schema import Attribute
from ...store.prune import AllOf, AnyOf, Never, NotNull, Prune, Range
from .constants import Constant, Kind

__all__ = [
    "ALWAYS",
    "NEVER",
    "NOTHING",
    "Compiled",
    "all_of",
    "any_of",
    "as_float",
    "between",
    "exact_bounds",
    "float_bounds",
    "ordered_bounds",
    "prefix_range",
    "spread",
    "widened_bounds",
]


SHORT_DIGITS = 15
"""Any decimal integer of so many digits is a double."""

SCALE_MAX = 22
"""Greatest power of ten that is a double."""


@dataclass(frozen=True)
class Compiled:
    """What a condition implies; ``prune`` None: nothing.  ``exact``: the condition is true of
    exactly the events that satisfy ``prune``.
    """

    prune: Prune | None
    exact: bool = False


NOTHING = Compiled(None)
NEVER = Compiled(Never(), exact=True)
ALWAYS = Compiled(AllOf(()), exact=True)


def all_of(parts: list[Compiled]) -> Compiled:
    items: list[Prune] = []
    for part in parts:
        if isinstance(part.prune, Never):
            return Compiled(Never(), exact=part.exact)
        if isinstance(part.prune, AllOf):
            items.extend(part.prune.items)
        elif part.prune is not None:
            items.append(part.prune)
    exact = all(part.exact for part in parts)
    if not items:
        return ALWAYS if exact else NOTHING
    return Compiled(items[0] if len(items) == 1 else AllOf(tuple(items)), exact)


def any_of(parts: list[Compiled]) -> Compiled:
    items: list[Prune] = []
    for part in parts:
        if part.prune is None or part.prune == AllOf(()):
            return ALWAYS if part.exact else NOTHING
        if isinstance(part.prune, AnyOf):
            items.extend(part.prune.items)
        elif not isinstance(part.prune, Never):
            items.append(part.prune)
    exact = all(part.exact for part in parts)
    if not items:
        return Compiled(Never(), exact)
    return Compiled(items[0] if len(items) == 1 else AnyOf(tuple(items)), exact)


def as_float(value: int | float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def exact_bounds(name: str, operator: str, value: int | Decimal | Fraction) -> Compiled:
    floor, ceiling = math.floor(value), math.ceil(value)
    whole = floor == ceiling
    if operator == "=":
        return Compiled(Range(name, floor, floor), exact=True) if whole else NEVER
    if operator == "<>":
        if not whole:
            return Compiled(NotNull(name), exact=True)
        below, above = Range(name, None, floor - 1), Range(name, floor + 1, None)
        return Compiled(AnyOf((below, above)), exact=True)
    if operator in (">", ">="):
        low = floor + 1 if operator == ">" else ceiling
        return Compiled(Range(name, low, None), exact=True)
    high = ceiling - 1 if operator == "<" else floor
    return Compiled(Range(name, None, high), exact=True)


def float_bounds(attribute: Attribute, operator: str, constant: Constant) -> Compiled:
    """Bounds on a floating-point column; exact for doubles (floats) and short decimals, as the
    executor casts them to its type first.
    """
    single = pa.types.is_float32(attribute.type)
    value = as_float(constant.value)
    if constant.kind is Kind.EXACT:
        held = float(np.float32(value)) if single else value
        known = held == constant.value or (not single and _is_short(constant.value))
        if not math.isfinite(held) or not known:
            return widened_bounds(attribute.name, operator, value, single)
    if math.isnan(value):
        return widened_bounds(attribute.name, operator, value)
    if operator == "<>":
        return Compiled(NotNull(attribute.name))
    return ordered_bounds(attribute.name, operator, value, exact=True)


def _is_short(value: int | Decimal) -> bool:
    """Whether every conversion of a decimal to a double gives the nearest one: digits and power of
    ten are doubles, so only the executor's quotient is rounded.
    """
    if not isinstance(value, Decimal):
        return False
    _, digits, exponent = value.as_tuple()
    return isinstance(exponent, int) and len(digits) <= SHORT_DIGITS and -SCALE_MAX <= exponent <= 0


def widened_bounds(name: str, operator: str, value: float, single: bool = False) -> Compiled:
    """Bounds where the executor compares in floating point: a superset, never exact."""
    if math.isnan(value):
        if operator in (">", "<="):  # NaN is the greatest value
            return NEVER if operator == ">" else Compiled(NotNull(name))
        if operator in ("=", ">="):
            return Compiled(Range(name, value, None))
        return Compiled(NotNull(name))
    if operator == "<>":
        return Compiled(NotNull(name))
    low, high = spread(value, single)
    if operator in (">", ">="):
        return Compiled(Range(name, low, None))
    if operator in ("<", "<="):
        return Compiled(Range(name, None, high))
    return Compiled(Range(name, low, high))


def spread(value: float, single: bool) -> tuple[float, float]:
    """Neighbours of a double, far enough apart to hold every rounding of it to the type."""
    if math.isinf(value):
        big = 3.4e38 if single else 1.79e308
        return (big, value) if value > 0 else (value, -big)
    step = max(math.ulp(value), abs(value) * 2.0**-22 if single else 0.0)
    if single:
        step = max(step, 2.0**-148)
    return value - 2 * step, value + 2 * step


def between(name: str, operator: str, low: Fraction, high: Fraction) -> Compiled:
    """Bounds if the actual constant is anywhere in [low, high]."""
    if operator == "<>":
        return Compiled(NotNull(name))
    below, above = math.floor(low), math.ceil(high)
    if operator in (">", ">="):
        return Compiled(Range(name, below, None))
    if operator in ("<", "<="):
        return Compiled(Range(name, None, above))
    return Compiled(Range(name, below, above))


def ordered_bounds(name: str, operator: str, value: str | bool | float, exact: bool) -> Compiled:
    if operator == "=":
        return Compiled(Range(name, value, value), exact)
    if operator == "<>":
        parts = (Range(name, None, value, False, True), Range(name, value, None, True, False))
        return Compiled(AnyOf(parts), exact)
    if operator in (">", ">="):
        return Compiled(Range(name, value, None, operator == ">", False), exact)
    return Compiled(Range(name, None, value, False, operator == "<"), exact)


def prefix_range(name: str, prefix: str) -> Prune:
    if not prefix:
        return NotNull(name)
    last = ord(prefix[-1])
    if last >= 0x10FFFF or 0xD7FF <= last < 0xE000:
        return Range(name, prefix, None)
    return Range(name, prefix, prefix[:-1] + chr(last + 1), False, True)
