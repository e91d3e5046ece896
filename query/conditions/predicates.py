"""Predicate pushdown: SQL conditions to a pruning predicate (``chronicle.store.prune``).

Sound under three-valued logic: an event for which the condition is true satisfies the predicate;
the converse holds only if ``exact``.  A condition is compiled for being TRUE or for being FALSE;
NOT, and the parser's ``negate`` mark on NOT LIKE, swap the two, and NULL is neither.  Bounds are
exact, in the column's unit; where the executor would compare in binary floating point, they are
wider by units in the last place and not exact.  The executor compares all sides of IN and BETWEEN
in one type, so constants of several types there have no bounds.  Limits: one column against one
constant; of functions only remainders, casts of times and ``date_trunc``; decimal and binary
columns have no bounds in the tree, only null counts.  Everything else compiles to "anything".

Bounds hold for every value for which the comparison is true; if ``Compiled.exact``, only for these.

Also here: time ranges of predicates, and texts of predicates and ranges for EXPLAIN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from ...core.times import INT64_MAX, INT64_MIN, NS_PER_TICK, time_text
from ...schema import Attribute, Storage, StreamSchema
from ...store.prune import AllOf, AnyOf, IsNull, Never, NotNull, Prune, Range, Remainder
from ..sql.sql_types import sql_type
from .constants import UNKNOWN, Constant, Folder, Kind, parse_time

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


SHORT_DIGITS = 15
"""Any decimal integer of so many digits is a double."""

SCALE_MAX = 22
"""Greatest power of ten that is a double."""

BEYOND_INTEGERS = 2.0**65
"""Above every integer of a column, even rounded."""


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
    exact = all(part.exact for part in parts)  # beside Never, too: what is not exact may fail
    for part in parts:
        if isinstance(part.prune, Never):
            return Compiled(Never(), exact)
        if isinstance(part.prune, AllOf):
            items.extend(part.prune.items)
        elif part.prune is not None:
            items.append(part.prune)
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
        with np.errstate(over="ignore"):  # becomes infinite
            held = float(np.float32(value)) if single else value
        exact = held == constant.value or (not single and _is_short(constant.value))
        if not math.isfinite(held) or not exact:
            return widened_bounds(attribute.name, operator, value, single)
    if math.isnan(value):
        return widened_bounds(attribute.name, operator, value)
    if operator == "<>":
        return Compiled(NotNull(attribute.name))
    return ordered_bounds(attribute.name, operator, value)


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


def ordered_bounds(name: str, operator: str, value: str | bool | float) -> Compiled:
    if operator == "=":
        return Compiled(Range(name, value, value), exact=True)
    if operator == "<>":
        parts = (Range(name, None, value, False, True), Range(name, value, None, True, False))
        return Compiled(AnyOf(parts), exact=True)
    if operator in (">", ">="):
        return Compiled(Range(name, value, None, operator == ">", False), exact=True)
    return Compiled(Range(name, None, value, False, operator == "<"), exact=True)


def column_bounds(attribute: Attribute, operator: str, constant: Constant) -> Compiled:
    """Bounds on a column that is compared with a constant of its own type."""
    name, kind, value = attribute.name, constant.kind, constant.value
    if _is_time(attribute):
        if kind is not Kind.TIME:
            return NOTHING
        return exact_bounds(name, operator, Fraction(value, tick_ns(attribute.type)))
    if attribute.storage in (Storage.SIGNED, Storage.UNSIGNED):
        if kind is Kind.FLOAT:
            if not abs(value) < BEYOND_INTEGERS:  # NaN, too, which is the greatest value
                above = operator in (">", ">=")
                holds = operator == "<>" or (operator != "=" and above == (value < 0))
                return Compiled(NotNull(name), exact=True) if holds else NEVER
            # whole numbers up to here keep their values where both sides become floats
            if abs(value) < (2.0**24 if constant.is_single else 2.0**53):
                return exact_bounds(name, operator, Fraction(value))
            return widened_bounds(name, operator, value, constant.is_single)
        return exact_bounds(name, operator, value) if kind is Kind.EXACT else NOTHING
    if attribute.storage is Storage.FLOAT:
        numeric = kind in (Kind.EXACT, Kind.FLOAT)
        return float_bounds(attribute, operator, constant) if numeric else NOTHING
    if attribute.storage is Storage.STRING and kind is Kind.TEXT:
        return ordered_bounds(name, operator, value)
    if attribute.storage is Storage.BOOL and kind is Kind.BOOL:
        return ordered_bounds(name, operator, bool(value))
    return Compiled(NotNull(name))


def prefix_range(name: str, prefix: str) -> Prune:
    if not prefix:
        return NotNull(name)
    last = ord(prefix[-1])
    if last >= 0x10FFFF or 0xD7FF <= last < 0xE000:
        return Range(name, prefix, None)
    return Range(name, prefix, prefix[:-1] + chr(last + 1), False, True)


_TRUNCATED_NS = {
    "microsecond": 1_000,
    "millisecond": 1_000_000,
    "second": 1_000_000_000,
    "minute": 60_000_000_000,
    "hour": 3_600_000_000_000,
    "day": _DAY_NS,
    "week": 7 * _DAY_NS,
    "month": 31 * _DAY_NS,
    "quarter": 92 * _DAY_NS,
    "year": 366 * _DAY_NS,
}
"""Greatest distance between a time and its date_trunc, by unit."""

_NUMBERS = frozenset((Kind.EXACT, Kind.FLOAT))
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}
_COMPARISONS: dict[type, str] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.EQ: "=",
    exp.NEQ: "<>",
}


@dataclass(eq=False)
class PredicateCompiler:
    """Compiles conditions over one stream.  ``column_of`` maps a column node to an attribute of
    this stream or None.
    """

    schema: StreamSchema
    folder: Folder
    column_of: Callable[[Any], str | None]

    def compile(self, condition: Any) -> Compiled:
        return self._compile(condition, True)

    def _compile(self, node: Any, truth: bool) -> Compiled:
        if node.args.get("negate"):  # NOT LIKE and NOT ILIKE are one node, negated
            truth = not truth
        if type(node) in _COMPARISONS:
            operator = _COMPARISONS[type(node)]
            return self._comparison(node.this, operator, node.expression, truth)
        if isinstance(node, exp.Paren):
            return self._compile(node.this, truth)
        if isinstance(node, exp.Not):
            return self._compile(node.this, not truth)
        if isinstance(node, (exp.And, exp.Or)):
            parts = [self._compile(node.this, truth), self._compile(node.expression, truth)]
            return all_of(parts) if isinstance(node, exp.And) == truth else any_of(parts)
        if isinstance(node, exp.Between):
            if node.args.get("symmetric"):
                return NOTHING
            bounds = [(">=", node.args["low"]), ("<=", node.args["high"])]
            parts = self._comparisons(node.this, bounds, truth)
            return all_of(parts) if truth else any_of(parts)
        if isinstance(node, exp.In):
            return self._membership(node, truth)
        if isinstance(node, exp.Is):
            return self._is(node, truth)
        if isinstance(node, (exp.NullSafeEQ, exp.NullSafeNEQ)):
            return self._distinct(node, truth == isinstance(node, exp.NullSafeEQ))
        if isinstance(node, exp.Like):
            return self._like(node, truth)
        if isinstance(node, exp.StartsWith) or (
            isinstance(node, exp.Anonymous) and node.name.lower() in ("starts_with", "prefix")
        ):
            return self._starts_with(node, truth)
        if isinstance(node, exp.Column):
            name = self.column_of(node)
            if name is not None and self.schema.attribute(name).storage is Storage.BOOL:
                return Compiled(Range(name, truth, truth), exact=True)
            return NOTHING
        return self._constant_condition(node, truth)

    def _constant_condition(self, node: Any, truth: bool) -> Compiled:
        constant = self.folder.fold(node)
        if constant.kind is Kind.NULL:
            return NEVER
        if constant.kind is Kind.BOOL:
            return ALWAYS if constant.value == truth else NEVER
        return NOTHING

    # ------------------------------------------------------------------ comparisons

    def _comparison(self, left: Any, operator: str, right: Any, truth: bool) -> Compiled:
        column = self._side(left)
        if column is None:
            other = self._side(right)
            if other is None:
                return self._remainder(left, operator, right, truth)
            operator, right, column = FLIPPED[operator], left, other
        return self._compared(column, [(operator, right)], truth)[0]

    def _remainder(self, left: Any, operator: str, right: Any, truth: bool) -> Compiled:
        """``column % constant`` compared with a constant, both whole numbers."""
        left, right = left.unnest(), right.unnest()
        if not isinstance(left, exp.Mod):
            operator, left, right = FLIPPED[operator], right, left
        column = self._side(left.this) if isinstance(left, exp.Mod) else None
        if column is None or column[1] is not None:
            return NOTHING
        attribute = self.schema.attribute(column[0])
        divisor, other = self.folder.fold(left.expression), self.folder.fold(right)
        signed = pa.types.is_signed_integer(attribute.type)
        if Kind.EXACT not in (divisor.kind, other.kind) or divisor.kind is not other.kind:
            return NOTHING
        if not signed or not isinstance(divisor.value, int):
            return NOTHING
        if not 0 < divisor.value < 1 << attribute.type.bit_width - 1:
            return NOTHING
        bounds = exact_bounds(attribute.name, operator if truth else NEGATED[operator], other.value)
        return replace(bounds, prune=_of_remainder(bounds.prune, divisor.value))

    def _comparisons(
        self, subject: Any, others: list[tuple[str, Any]], truth: bool
    ) -> list[Compiled]:
        return self._compared(self._side(subject), others, truth)

    def _compared(
        self, column: tuple[str, Any] | None, others: list[tuple[str, Any]], truth: bool
    ) -> list[Compiled]:
        if column is None:
            return [NOTHING] * len(others)
        attribute, wrapper = self.schema.attribute(column[0]), column[1]
        constants = self._constants(attribute, wrapper, [node for _, node in others])
        return [
            self._bounds(attribute, wrapper, operator if truth else NEGATED[operator], constant)
            for (operator, _), constant in zip(others, constants, strict=True)
        ]

    def _constants(self, attribute: Attribute, wrapper: Any, nodes: list[Any]) -> list[Constant]:
        """Constants as the executor compares them; UNKNOWN if the common type is uncertain."""
        constants = [self.folder.fold(node) for node in nodes]
        if len(constants) == 1:
            return constants
        # a NULL under a cast has a type, which counts like that of any other value
        folded = [
            UNKNOWN if constant.kind is Kind.NULL and not _is_untyped(node) else constant
            for node, constant in zip(nodes, constants, strict=True)
        ]
        kinds = {constant.kind for constant in folded} - {Kind.NULL}
        plain = wrapper is None
        if len(kinds) > 1 and plain and _is_time(attribute):
            return [_whole_time(constant, tick_ns(attribute.type)) for constant in folded]
        doubles = plain and attribute.storage is Storage.FLOAT and kinds <= _NUMBERS
        if len(kinds) > 1 and not doubles:
            return [UNKNOWN] * len(folded)
        single = all(constant.is_single for constant in folded if constant.kind is Kind.FLOAT)
        return [replace(constant, is_single=single) for constant in folded]

    def _side(self, node: Any) -> tuple[str, Any] | None:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Column):
            name = self.column_of(node)
            return None if name is None else (name, None)
        inner, wrapper = None, node
        if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
            inner = node.this
        elif isinstance(node, exp.Anonymous) and node.name.lower() in ("date_trunc", "datetrunc"):
            inner = node.expressions[1] if len(node.expressions) == 2 else None
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Column):
            name = self.column_of(inner)
            return None if name is None else (name, wrapper)
        return None

    def _bounds(
        self, attribute: Attribute, wrapper: Any, operator: str, constant: Constant
    ) -> Compiled:
        if constant.kind is Kind.NULL:
            return NEVER
        if constant.kind is Kind.UNKNOWN:
            return NOTHING
        if wrapper is not None:
            return self._wrapped(attribute, wrapper, operator, constant)
        if constant.kind is Kind.TEXT and attribute.storage is not Storage.STRING:
            constant = self._of_text(attribute, constant)
        return column_bounds(attribute, operator, constant)

    def _of_text(self, attribute: Attribute, constant: Constant) -> Constant:
        """An untyped text as a constant of the column that it is compared with."""
        if _is_time(attribute):
            nanoseconds = parse_time(constant.value)
            if nanoseconds is not None and not nanoseconds % tick_ns(attribute.type):
                return Constant(Kind.TIME, nanoseconds)
            # an unusual spelling, or finer than the column: the executor decides what it means
            return self.folder.cast_text(constant.value, sql_type(attribute.type))
        if attribute.storage in (Storage.SIGNED, Storage.UNSIGNED):
            return self.folder.cast_text(constant.value, sql_type(attribute.type))
        if attribute.storage is Storage.FLOAT:
            return self.folder.cast_text(constant.value, "DOUBLE")
        return constant

    def _wrapped(
        self, attribute: Attribute, wrapper: Any, operator: str, constant: Constant
    ) -> Compiled:
        """Bounds on ``f(column)`` for monotone f that moves a value by a bounded distance."""
        type_ = attribute.type
        if isinstance(wrapper, exp.Anonymous):
            unit = self.folder.fold(wrapper.expressions[0])
            slack = _TRUNCATED_NS.get(str(unit.value).lower()) if unit.kind is Kind.TEXT else None
        elif wrapper.to.is_type("date"):
            slack = _DAY_NS
        elif wrapper.to.is_type(
            "timestamp", "timestampntz", "timestamptz", "timestamp_s", "timestamp_ms",
            "timestamp_ns",
        ):  # fmt: skip
            slack = 1_000_000_000
        else:
            slack = None
        if not pa.types.is_timestamp(type_) or slack is None:
            return NOTHING
        if constant.kind is Kind.TEXT:  # a text takes the type of the other side
            cast = wrapper.to.sql("duckdb") if isinstance(wrapper, exp.Cast) else "TIMESTAMP"
            constant = self.folder.cast_text(constant.value, cast)
        if constant.kind is not Kind.TIME:
            return NOTHING
        per_tick = tick_ns(type_)
        low = Fraction(constant.value - slack, per_tick)
        high = Fraction(constant.value + slack, per_tick)
        if wrapper is not None and _floors(wrapper):
            low = Fraction(constant.value, per_tick)  # f(t) <= t
        return between(attribute.name, operator, low, high)

    # --------------------------------------------------------------- other predicates

    def _membership(self, node: Any, truth: bool) -> Compiled:
        if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            return NOTHING
        parts = self._comparisons(node.this, [("=", item) for item in node.expressions], truth)
        if not parts:
            return NOTHING
        return any_of(parts) if truth else all_of(parts)

    def _is(self, node: Any, truth: bool) -> Compiled:
        subject = node.this
        while isinstance(subject, exp.Paren):
            subject = subject.this
        name = self.column_of(subject) if isinstance(subject, exp.Column) else None
        if name is None:
            return NOTHING
        if isinstance(node.expression, exp.Null):
            return Compiled(IsNull(name) if truth else NotNull(name), exact=True)
        if isinstance(node.expression, exp.Boolean):
            if self.schema.attribute(name).storage is not Storage.BOOL:
                return NOTHING
            value = bool(node.expression.this)
            if truth:
                return Compiled(Range(name, value, value), exact=True)
            other = Compiled(Range(name, not value, not value), exact=True)
            return any_of([Compiled(IsNull(name), exact=True), other])
        return NOTHING

    def _distinct(self, node: Any, equal: bool) -> Compiled:
        column, other = self._side(node.this), node.expression
        if column is None:
            column, other = self._side(node.expression), node.this
        if column is None or column[1] is not None:
            return NOTHING
        constant = self.folder.fold(other)
        name = column[0]
        if constant.kind is Kind.NULL:
            return Compiled(IsNull(name) if equal else NotNull(name), exact=True)
        if constant.kind is Kind.UNKNOWN:
            return NOTHING
        if equal:
            return self._bounds(self.schema.attribute(name), None, "=", constant)
        different = self._bounds(self.schema.attribute(name), None, "<>", constant)
        return any_of([Compiled(IsNull(name), exact=True), different])

    def _like(self, node: Any, truth: bool) -> Compiled:
        name = self.column_of(node.this) if isinstance(node.this, exp.Column) else None
        if name is None or self.schema.attribute(name).storage is not Storage.STRING:
            return NOTHING
        pattern = self.folder.fold(node.expression)
        if pattern.kind is not Kind.TEXT or not truth:
            return Compiled(NotNull(name)) if pattern.kind is Kind.TEXT else NOTHING
        text = pattern.value
        wild = min((text.find(c) for c in "%_" if c in text), default=-1)
        if wild < 0:
            return Compiled(Range(name, text, text))
        return Compiled(prefix_range(name, text[:wild]))

    def _starts_with(self, node: Any, truth: bool) -> Compiled:
        if isinstance(node, exp.Anonymous):
            if len(node.expressions) != 2:
                return NOTHING
            subject, prefix = node.expressions
        else:
            subject, prefix = node.this, node.expression
        name = self.column_of(subject) if isinstance(subject, exp.Column) else None
        if name is None or self.schema.attribute(name).storage is not Storage.STRING:
            return NOTHING
        text = self.folder.fold(prefix)
        if text.kind is not Kind.TEXT or not truth:
            return Compiled(NotNull(name)) if text.kind is Kind.TEXT else NOTHING
        return Compiled(prefix_range(name, text.value))


def _of_remainder(prune: Prune | None, divisor: int) -> Prune | None:
    if isinstance(prune, AnyOf):
        items = (_of_remainder(item, divisor) for item in prune.items)
        return AnyOf(tuple(item for item in items if item is not None))
    if not isinstance(prune, Range):
        return prune
    low, high = (None if bound is None else int(bound) for bound in (prune.low, prune.high))
    return Remainder(prune.column, divisor, low, high)


def _is_untyped(node: Any) -> bool:
    """Whether a NULL has no type: the literal, or a parameter without a value."""
    while isinstance(node, exp.Paren):
        node = node.this
    return isinstance(node, (exp.Null, exp.Placeholder))


def _is_time(attribute: Attribute) -> bool:
    return bool(pa.types.is_timestamp(attribute.type) or pa.types.is_date(attribute.type))


def _whole_time(constant: Constant, ns_per_tick: int) -> Constant:
    """A time that is the same in every time type; else UNKNOWN."""
    if constant.kind is Kind.TEXT:
        nanoseconds = parse_time(constant.value)
        if nanoseconds is not None and nanoseconds % ns_per_tick == 0:
            return Constant(Kind.TIME, nanoseconds)
    return constant if constant.kind in (Kind.TIME, Kind.NULL) else UNKNOWN


def _floors(wrapper: Any) -> bool:
    """Whether the function rounds down, so that ``f(t) <= t``."""
    return isinstance(wrapper, exp.Anonymous) or bool(wrapper.to.is_type("date"))
