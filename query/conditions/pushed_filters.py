"""Predicate pushdown: Arrow filter expressions, from DuckDB and ``Stream.scan(filter=...)``.

pyarrow has no interface to decompose an expression, but its text is regular.  Sound: events that
satisfy the expression lie in the range and satisfy the predicate, and the remaining filter decides
exactly.  If any part is unsupported, or a column's name could be mistaken for syntax, the
expression is left whole.  Supports comparisons of a column with a literal, ``is_valid``,
``is_null``, ``is_in``, ``and``, ``or`` and ``invert``.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import UnsupportedType
from ...schema import Attribute, Storage, StreamSchema, storage_of
from ...store.prune import AllOf, IsNull, NotNull, Prune, Range
from .predicates import Compiled, all_of, any_of, exact_bounds, ordered_bounds, widened_bounds
from .ranges import TICK_MAX, TICK_MIN, tick_ns, time_bounds

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*")
    | (?P<time>-?\d{4,}-\d\d-\d\d[ ]\d\d:\d\d:\d\d(?:\.\d+)?Z?)
    | (?P<date>\d{4}-\d\d-\d\d)
    | (?P<number>-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf|nan)(?![\w]))
    | (?P<in>if_else\(is_valid\((?P<in_name>\w+)\),\ is_in\((?P=in_name),\ \{value_set=[^:\]]+:
        \[(?P<in_values>[^\]]*)\],\ null_matching_behavior=MATCH\}\),\ null\[bool\]\))
    | (?P<bare>is_in\((?P<bare_name>\w+),\ \{value_set=[^:\]]+:
        \[(?P<bare_values>[^\]]*)\],\ null_matching_behavior=MATCH\}\))
    | (?P<null>is_null\((?P<null_name>\w+),\ \{nan_is_null=false\}\))
    | (?P<valid>is_valid\((?P<valid_name>\w+)\))
    | (?P<word>[^\W\d]\w*)
    | (?P<operator><=|>=|==|!=|<|>)
    | (?P<paren>[()])
    )""",
    re.VERBOSE,
)
_OPERATORS = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "==": "=", "!=": "<>"}
_RESERVED = frozenset(
    (
        "and",
        "or",
        "invert",
        "is_valid",
        "is_null",
        "is_in",
        "if_else",
        "true",
        "false",
        "inf",
        "nan",
    )
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


@dataclass(frozen=True)
class Split:
    """A decomposed filter: inclusive ticks, ``prune`` without the range, and the ``rest``."""

    low: int
    high: int
    prune: Prune | None
    rest: pc.Expression | None


class _Unreadable(Exception):
    """The text has unsupported parts."""


@dataclass(frozen=True)
class _Part:
    """A subexpression: what it and its negation imply, and the expression rebuilt if possible."""

    true: Compiled
    false: Compiled
    build: pc.Expression | None
    conjuncts: tuple[_Part, ...] = ()


def split_filter(expression: pc.Expression | None, schema: StreamSchema) -> Split:
    if expression is None:
        return Split(TICK_MIN, TICK_MAX, None, None)
    whole = Split(TICK_MIN, TICK_MAX, None, expression)
    if any(not re.fullmatch(r"[^\W\d]\w*", n) or n in _RESERVED for n in schema.names):
        return whole
    try:
        reader = _Reader(str(expression), schema)
        part = reader.expression()
        reader.end()
    except _Unreadable:
        return whole
    parts = part.conjuncts or (part,)
    spans = [p for p in parts if _is_time_range(p.true, schema.time)]
    others = [p for p in parts if p not in spans]
    low, high = time_bounds(all_of([p.true for p in parts]).prune, schema.time)
    if all(p.build is not None for p in others):
        rest = None
        for other in others:
            rest = other.build if rest is None else rest & other.build
    else:
        rest, others = expression, list(parts)
    prune = all_of([p.true for p in others]).prune
    return Split(low, high, None if prune == AllOf(()) else prune, rest)


def read_filter(text: str | None, schema: pa.Schema) -> tuple[pc.Expression | None, bool]:
    """Rebuild a filter's conjuncts from Arrow's text; returns whether these are all."""
    if text is None:
        return None, True
    if any(not re.fullmatch(r"[^\W\d]\w*", n) or n in _RESERVED for n in schema.names):
        return None, False
    try:
        reader = _Reader(text, _Columns(schema))
        part = reader.expression()
        reader.end()
    except (_Unreadable, UnsupportedType, RecursionError):
        return None, False
    built, exact = None, True
    for conjunct in part.conjuncts or (part,):
        if conjunct.build is None:
            exact = False
        else:
            built = conjunct.build if built is None else built & conjunct.build
    return built, exact


class _Columns:
    """The columns of any relation as attributes, if streams could hold them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __contains__(self, name: str) -> bool:
        return len(self._schema.get_all_field_indices(name)) == 1

    def attribute(self, name: str) -> Attribute:
        type_ = self._schema.field(name).type
        storage = storage_of(type_)
        if storage is None:
            raise UnsupportedType(f"a stream cannot hold {type_}")
        return Attribute(name, type_, True, storage)


def _is_time_range(compiled: Compiled, time: str) -> bool:
    return compiled.exact and isinstance(compiled.prune, Range) and compiled.prune.column == time


class _Reader:
    def __init__(self, text: str, schema: StreamSchema | _Columns) -> None:
        self._schema = schema
        self._tokens: list[re.Match[str]] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise _Unreadable
            self._tokens.append(match)
            position = match.end()
        self._at = 0

    def end(self) -> None:
        if self._at != len(self._tokens):
            raise _Unreadable

    def _next(self) -> re.Match[str]:
        if self._at >= len(self._tokens):
            raise _Unreadable
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, text: str) -> None:
        if self._next().group().strip() != text:
            raise _Unreadable

    def _attribute(self, name: str) -> Attribute:
        if name not in self._schema:
            raise _Unreadable
        return self._schema.attribute(name)

    def expression(self) -> _Part:
        token = self._next()
        if token.group("in"):
            return self._is_in(token.group("in_name"), token.group("in_values"))
        if token.group("bare"):
            found = self._is_in(token.group("bare_name"), token.group("bare_values"))
            # without the guard a null is outside, not unknown, so it satisfies the negation
            return _Part(found.true, Compiled(None), None)
        if token.group("null"):
            name = self._attribute(token.group("null_name")).name
            null, valid = Compiled(IsNull(name), True), Compiled(NotNull(name), True)
            return _Part(null, valid, pc.field(name).is_null())
        if token.group("valid"):
            name = self._attribute(token.group("valid_name")).name
            null, valid = Compiled(IsNull(name), True), Compiled(NotNull(name), True)
            return _Part(valid, null, pc.field(name).is_valid())
        if token.group("word") == "invert":
            self._expect("(")
            inner = self.expression()
            self._expect(")")
            return _Part(inner.false, inner.true, None if inner.build is None else ~inner.build)
        if token.group("paren") != "(":
            raise _Unreadable
        left = self._tokens[self._at] if self._at < len(self._tokens) else None
        part = (
            self._comparison()
            if left is not None and left.group("word") not in (None, "invert")
            else self._joined()
        )
        self._expect(")")
        return part

    def _joined(self) -> _Part:
        left = self.expression()
        word = self._next().group("word")
        right = self.expression()
        first, second = left.build, right.build
        known = first is not None and second is not None
        if word == "and":
            build: Any = first & second if known else None  # type: ignore[operator]
            conjuncts = (*(left.conjuncts or (left,)), *(right.conjuncts or (right,)))
            return _Part(
                all_of([left.true, right.true]), any_of([left.false, right.false]), build, conjuncts
            )
        if word == "or":
            build = first | second if known else None  # type: ignore[operator]
            return _Part(any_of([left.true, right.true]), all_of([left.false, right.false]), build)
        raise _Unreadable

    def _comparison(self) -> _Part:
        attribute = self._attribute(self._next().group("word"))
        operator = _OPERATORS.get(self._next().group("operator") or "")
        if operator is None:
            raise _Unreadable
        value = _literal(self._next())
        negated = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}[operator]
        true = _bounds(attribute, operator, value)
        false = _bounds(attribute, negated, value)
        if attribute.storage is Storage.FLOAT and operator in (">", ">="):
            # Arrow compares as IEEE 754: NaN is neither above nor below, so the negation holds
            nan = Compiled(Range(attribute.name, math.nan, None))
            false = any_of([false, nan])
        return _Part(true, false, _build(attribute, operator, value))

    def _is_in(self, name: str, listed: str) -> _Part:
        attribute = self._attribute(name)
        parts = []
        for piece in _pieces(listed):
            match = _TOKEN.fullmatch(piece)
            if match is None:
                raise _Unreadable
            value = _literal(match)
            parts.append((_bounds(attribute, "=", value), _bounds(attribute, "<>", value), value))
        if not parts:
            raise _Unreadable
        scalars = [_scalar(attribute.type, value) for _, _, value in parts]
        build = None
        if all(scalar is not None for scalar in scalars):
            build = pc.if_else(
                pc.field(attribute.name).is_valid(),
                pc.field(attribute.name).isin(pa.array(scalars, attribute.type)),
                pc.scalar(pa.scalar(None, pa.bool_())),
            )
        return _Part(any_of([p[0] for p in parts]), all_of([p[1] for p in parts]), build)


def _pieces(text: str) -> list[str]:
    return [line.strip().rstrip(",") for line in text.splitlines() if line.strip()]


@dataclass(frozen=True)
class _Moment:
    nanoseconds: int


def _literal(token: re.Match[str]) -> Any:
    if token.group("text"):
        return _unescape(token.group("text")[1:-1])
    if token.group("time"):
        return _Moment(_nanoseconds(token.group("time")))
    if token.group("date"):
        return _Moment(_nanoseconds(token.group("date") + " 00:00:00"))
    if token.group("number"):
        text = token.group("number")
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    if token.group("word") in ("true", "false"):
        return token.group("word") == "true"
    raise _Unreadable


def _unescape(text: str) -> str:
    out = []
    position = 0
    while position < len(text):
        if text[position] == "\\":
            if text[position + 1 : position + 2] not in ('"', "\\"):
                raise _Unreadable  # unsupported escape
            position += 1
        out.append(text[position])
        position += 1
    return "".join(out)


def _nanoseconds(text: str) -> int:
    whole, _, fraction = text.removesuffix("Z").partition(".")
    try:
        moment = dt.datetime.strptime(whole, "%Y-%m-%d %H:%M:%S").replace(tzinfo=dt.timezone.utc)
    except ValueError:
        raise _Unreadable from None
    seconds = (moment - _EPOCH) // dt.timedelta(seconds=1)
    return seconds * 1_000_000_000 + int(fraction.ljust(9, "0") or 0)


def _bounds(attribute: Attribute, operator: str, value: Any) -> Compiled:
    type_ = attribute.type
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        if isinstance(value, _Moment):
            ticks = Fraction(value.nanoseconds, tick_ns(type_))
            return exact_bounds(attribute.name, operator, ticks)
        return Compiled(NotNull(attribute.name))
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if attribute.storage in (Storage.SIGNED, Storage.UNSIGNED) and number:
        if isinstance(value, int):
            return exact_bounds(attribute.name, operator, Fraction(value))
        return widened_bounds(attribute.name, operator, value)
    if attribute.storage is Storage.FLOAT and number:
        if math.isnan(value):
            return Compiled(NotNull(attribute.name))
        return widened_bounds(attribute.name, operator, float(value), pa.types.is_float32(type_))
    if attribute.storage is Storage.STRING and isinstance(value, str):
        return ordered_bounds(attribute.name, operator, value, exact=True)
    if attribute.storage is Storage.BOOL and isinstance(value, bool):
        return ordered_bounds(attribute.name, operator, value, exact=True)
    return Compiled(NotNull(attribute.name))


def _build(attribute: Attribute, operator: str, value: Any) -> pc.Expression | None:
    """The comparison rebuilt; None if the literal's own type might matter."""
    scalar = _scalar(attribute.type, value)
    if scalar is None:
        return None
    left, right = pc.field(attribute.name), pc.scalar(scalar)
    built: pc.Expression = {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
        "=": left == right,
        "<>": left != right,
    }[operator]
    return built


def _scalar(type_: pa.DataType, value: Any) -> pa.Scalar | None:
    """A literal in its column's type; None if it does not fit."""
    types = pa.types
    if isinstance(value, _Moment):
        if not (types.is_timestamp(type_) or types.is_date32(type_)):
            return None
        ticks, rest = divmod(value.nanoseconds, tick_ns(type_))
        bits = type_.bit_width
        if rest or not -(1 << bits - 1) <= ticks < 1 << bits - 1:
            return None
        return pa.scalar(ticks, pa.int32() if bits == 32 else pa.int64()).cast(type_)
    fits = (
        (types.is_integer(type_) and type(value) is int)
        or (types.is_float64(type_) and type(value) in (int, float))
        or (types.is_string(type_) and isinstance(value, str))
        or (types.is_boolean(type_) and isinstance(value, bool))
    )
    try:
        return pa.scalar(value, type_) if fits else None
    except (pa.ArrowInvalid, OverflowError):
        return None
