"""Constant folding, for values that comparisons can push into a scan.

``Folder`` computes literals, parameters, ``now()`` and arithmetic of times and intervals; the
relational executor computes any other expression without columns, so that its meaning is the
executor's.  A folded value is what the executor would compute, else ``UNKNOWN``.  Times are whole
nanoseconds since the epoch, naive ones in UTC as sessions are; decimal literals stay exact.

``comparable`` makes Arrow's equality of key values that of GROUP BY and PARTITION BY.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ...core.times import INT64_MAX, INT64_MIN, NS_PER_TICK
from ..sql.gate import is_volatile
from ..sql.trees import SEVERAL

Evaluate = Callable[[Any], "pa.Scalar | None"]


class Kind(Enum):
    UNKNOWN = "unknown"
    NULL = "null"
    BOOL = "bool"
    EXACT = "exact"  # int or Decimal
    FLOAT = "float"
    TEXT = "text"  # an untyped string: takes the type of what it is compared with
    TIME = "time"  # nanoseconds since the epoch: timestamps and dates
    INTERVAL = "interval"  # nanoseconds


@dataclass(frozen=True)
class Constant:
    kind: Kind
    value: Any = None
    is_date: bool = False
    is_single: bool = False  # a FLOAT of single precision


UNKNOWN = Constant(Kind.UNKNOWN)
NULL = Constant(Kind.NULL)

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_TIME_TEXT = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})(?:[ T](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?)?", re.ASCII
)
_DECIMAL_TEXT = re.compile(r"(?=.*\d)\d*\.\d*", re.ASCII)
_DAY_NS = 86_400_000_000_000
_UNIT_NS = {
    "MICROSECOND": 1_000,
    "MILLISECOND": 1_000_000,
    "SECOND": 1_000_000_000,
    "MINUTE": 60_000_000_000,
    "HOUR": 3_600_000_000_000,
    "DAY": _DAY_NS,
    "WEEK": 7 * _DAY_NS,
}
_NOW_FUNCTIONS = frozenset({"now", "current_timestamp", "transaction_timestamp"})


def constant_of_python(value: Any) -> Constant:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return Constant(Kind.BOOL, value)
    if isinstance(value, (int, Decimal)):
        if isinstance(value, Decimal) and not value.is_finite():
            return UNKNOWN
        return Constant(Kind.EXACT, value)
    if isinstance(value, float):
        return Constant(Kind.FLOAT, value)
    if isinstance(value, str):
        return Constant(Kind.TEXT, value)
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.timezone.utc)
        return Constant(Kind.TIME, (aware - _EPOCH) // dt.timedelta(microseconds=1) * 1000)
    if isinstance(value, dt.date):
        days = (value - _EPOCH.date()).days
        return Constant(Kind.TIME, days * _DAY_NS, is_date=True)
    if isinstance(value, dt.timedelta):
        return Constant(Kind.INTERVAL, value // dt.timedelta(microseconds=1) * 1000)
    return UNKNOWN


def time_of_nanoseconds(count: int) -> pa.Scalar:
    """A timestamp in the finest unit that holds it: nanoseconds end in 2262."""
    for unit in ("ns", "us", "s"):
        ticks, finer = divmod(count, NS_PER_TICK[unit])
        if not finer and INT64_MIN <= ticks <= INT64_MAX:
            break
    return pa.scalar(ticks, pa.timestamp(unit))


def constant_of_scalar(scalar: pa.Scalar | None) -> Constant:
    if scalar is None:
        return UNKNOWN
    if not scalar.is_valid:
        return NULL
    type_ = scalar.type
    if pa.types.is_timestamp(type_):
        if abs(scalar.value) >= 2**63 - 1:  # infinity and -infinity
            return UNKNOWN
        scale = NS_PER_TICK[type_.unit]
        return Constant(Kind.TIME, scalar.value * scale)
    if pa.types.is_date32(type_):
        if abs(scalar.value) >= 2**31 - 1:
            return UNKNOWN
        return Constant(Kind.TIME, scalar.value * _DAY_NS, is_date=True)
    if pa.types.is_interval(type_):
        months, days, nanoseconds = scalar.as_py()
        if months or nanoseconds % 1000:  # more than 64 bits of nanoseconds wrapped
            return UNKNOWN
        return Constant(Kind.INTERVAL, days * _DAY_NS + nanoseconds)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return Constant(Kind.TEXT, scalar.as_py())
    if pa.types.is_float32(type_):
        return Constant(Kind.FLOAT, scalar.as_py(), is_single=True)
    if (
        pa.types.is_boolean(type_)
        or pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_decimal(type_)
    ):
        return constant_of_python(scalar.as_py())
    return UNKNOWN


def parse_time(text: str) -> int | None:
    """Nanoseconds of a plain ISO time without offset; None for every other spelling."""
    match = _TIME_TEXT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction = match.groups()
    try:
        moment = dt.datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0),
            int((fraction or "0").ljust(6, "0")), tzinfo=dt.timezone.utc,
        )  # fmt: skip
    except ValueError:
        return None
    return (moment - _EPOCH) // dt.timedelta(microseconds=1) * 1000


@dataclass(eq=False)
class Folder:
    """Folds constant expressions for one execution.  ``values``: parameters by name in the tree;
    ``now``: zoned start of the query; ``evaluate`` computes an expression without columns in the
    executor.
    """

    values: Mapping[str, Any]
    now: dt.datetime
    evaluate: Evaluate | None = None

    @property
    def fixed(self) -> bool:
        """Whether a query's expressions have the same values in every execution."""
        return not self.values

    def fold(self, node: Any) -> Constant:
        constant = self._fold(node)
        if constant.kind is Kind.UNKNOWN and self.evaluate is not None and is_constant(node):
            found = constant_of_scalar(self.evaluate(node))
            if found.kind is Kind.INTERVAL and any(map(_is_cut, node.find_all(exp.Interval))):
                return UNKNOWN
            return found
        return constant

    def cast_text(self, text: str, type_name: str) -> Constant:
        if self.evaluate is None:
            return UNKNOWN
        # udt: sqlglot does not know TIMESTAMPTZ_NS
        to = exp.DataType.build(type_name, dialect="duckdb", udt=True)
        return constant_of_scalar(self.evaluate(exp.cast(exp.Literal.string(text), to)))

    def _fold(self, node: Any) -> Constant:
        if isinstance(node, exp.Literal):
            return _literal(node)
        if isinstance(node, exp.Placeholder):
            name = node.name
            return constant_of_python(self.values[name]) if name in self.values else UNKNOWN
        if isinstance(node, exp.Paren):
            return self._fold(node.this)
        if isinstance(node, exp.Null):
            return NULL
        if isinstance(node, exp.Boolean):
            return Constant(Kind.BOOL, bool(node.this))
        if isinstance(node, exp.Neg):
            inner = self._fold(node.this)
            if inner.kind in (Kind.EXACT, Kind.FLOAT, Kind.INTERVAL):
                return replace(inner, value=-inner.value)
            return UNKNOWN
        if isinstance(node, exp.CurrentTimestamp) or (
            isinstance(node, exp.Anonymous)
            and node.name.lower() in _NOW_FUNCTIONS
            and not node.expressions
        ):
            return constant_of_python(self.now)
        if isinstance(node, exp.Interval):
            return self._interval(node)
        if isinstance(node, (exp.Add, exp.Sub)):
            return self._shifted(node)
        if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
            return self._cast(node)
        return UNKNOWN

    def _interval(self, node: Any) -> Constant:
        unit = str(node.args.get("unit") or "").upper().rstrip("S")
        amount = self._fold(node.this) if node.this is not None else UNKNOWN
        count = amount.value
        if amount.kind is Kind.TEXT and re.fullmatch(r"-?\d{1,18}", count, re.ASCII):
            count = int(count)
        if unit not in _UNIT_NS or not isinstance(count, int) or isinstance(count, bool):
            return UNKNOWN
        return Constant(Kind.INTERVAL, count * _UNIT_NS[unit])

    def _shifted(self, node: Any) -> Constant:
        left, right = self._fold(node.this), self._fold(node.expression)
        if Kind.NULL in (left.kind, right.kind):
            return UNKNOWN
        if left.kind is Kind.INTERVAL and right.kind is Kind.TIME and isinstance(node, exp.Add):
            left, right = right, left
        if left.kind is Kind.TIME and right.kind is Kind.INTERVAL:
            sign = 1 if isinstance(node, exp.Add) else -1
            return Constant(Kind.TIME, left.value + sign * right.value)
        return UNKNOWN

    def _cast(self, node: Any) -> Constant:
        inner = self._fold(node.this)
        if inner.kind is Kind.NULL:
            return NULL
        to = node.to
        if inner.kind is Kind.TEXT and to.is_type("timestamp", "timestampntz", "date"):
            nanoseconds = parse_time(inner.value)
            if nanoseconds is None:
                return UNKNOWN
            if to.is_type("date"):
                if nanoseconds % _DAY_NS:
                    return UNKNOWN
                return Constant(Kind.TIME, nanoseconds, is_date=True)
            return Constant(Kind.TIME, nanoseconds)
        if inner.kind is Kind.TIME and to.is_type("timestamp", "timestampntz", "timestamptz"):
            return Constant(Kind.TIME, inner.value) if inner.value % 1000 == 0 else UNKNOWN
        return UNKNOWN


def _is_cut(interval: Any) -> bool:
    """Whether the executor drops a fraction: INTERVAL '1.5' HOUR is one hour there."""
    amount = interval.this
    if interval.args.get("unit") is None or not isinstance(amount, exp.Literal):
        return False
    try:
        return Decimal(amount.name.strip()) % 1 != 0
    except InvalidOperation:
        return False


def _literal(node: Any) -> Constant:
    if node.is_string:
        return Constant(Kind.TEXT, node.this)
    text = str(node.this).replace("_", "")
    if text.isascii() and text.isdigit():
        return Constant(Kind.EXACT, int(text))
    if _DECIMAL_TEXT.fullmatch(text):
        number = Decimal(text)
        # beyond what a DECIMAL holds the executor reads the literal as a double
        if len(text) <= 38:
            return Constant(Kind.EXACT, number)
        return Constant(Kind.FLOAT, float(text))
    try:
        return Constant(Kind.FLOAT, float(text))
    except ValueError:
        return UNKNOWN


def is_constant(node: Any) -> bool:
    """Whether an expression has no column, subquery, collation, volatile function or unnest."""
    for part in node.walk():
        if isinstance(part, exp.Collate):
            return False  # the collation changes comparisons
        if isinstance(part, (exp.Column, exp.Star, exp.Query, exp.Window, exp.Lambda, exp.Dot)):
            return False
        if isinstance(part, exp.Anonymous) and (
            is_volatile(part.name) or part.name.lower() in SEVERAL
        ):
            return False
    return True


def comparable(column: pa.Array) -> pa.Array:
    """Plain values that are equal where the executor's are.  Floats become their bits, with -0.0 as
    0.0 and one NaN; times and dates become ticks.
    """
    type_ = column.type
    if pa.types.is_floating(type_):
        width = type_.bit_width
        values = pc.add(column, pa.scalar(0.0, type_))  # -0.0 becomes 0.0
        values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), type_), values)
        return values.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[width])
    if pa.types.is_temporal(type_):
        return column.view(pa.int32() if type_.bit_width == 32 else pa.int64())
    return column
