"""Predicate pushdown: Arrow filter expressions, from DuckDB and ``Stream.scan(filter=...)``.

pyarrow has no interface to decompose an expression, but its text is regular: it is rewritten to an
expression of Python's grammar, and that compiled like a condition of SQL.  Sound: events for which
the expression is true satisfy the predicate.  If any part is unsupported, or a column's name
is no word, nothing is implied.  Supports comparisons of a column with a literal,
``is_valid``, ``is_null``, ``is_in``, ``and``, ``or`` and ``invert``.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass, replace

import pyarrow as pa

from ...errors import UnsupportedType
from ...schema import Attribute, Storage, StreamSchema, storage_of
from ...store.prune import AllOf, IsNull, NotNull, Prune, Range, RowFilter
from .constants import Constant, Kind, constant_of_python, parse_time
from .predicates import (
    NEGATED,
    NOTHING,
    TICK_MAX,
    TICK_MIN,
    Compiled,
    all_of,
    any_of,
    column_bounds,
    time_bounds,
)
from .row_filters import ExpressionFilter, PredicateFilter, has_row_truths

_PIECE = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\["\\])*")
    | (?P<time>-?\d{4,}-\d\d-\d\d[ ]\d\d:\d\d:\d\d(?:\.\d+)?Z?|\d{4}-\d\d-\d\d)
    | ,\ \{value_set=[^:\]]+:(?P<list>\[)
    | (?P<ignored>,\ (?:null_matching_behavior=MATCH|\{nan_is_null=false)\})
    | (?P<null>null\[bool\])
    | (?P<number>(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?)(?!\w))
    | (?P<word>[^\W\d]\w*)
    | (?P<other>["'\\#])""",
    re.VERBOSE,
)
_OPERATORS: dict[type, str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "=",
    ast.NotEq: "<>",
}
_WORDS = {"true": True, "false": False, "inf": math.inf, "nan": math.nan}


@dataclass(frozen=True)
class Split:
    """A decomposed filter: inclusive ticks, ``prune`` without the range, and the ``rest``."""

    low: int
    high: int
    prune: Prune | None
    rest: RowFilter | None


def split_filter(filter: RowFilter | None, schema: StreamSchema) -> Split:
    if filter is None:
        return Split(TICK_MIN, TICK_MAX, None, None)
    parts = _conjuncts_of(filter, schema)
    if parts is None:
        return Split(TICK_MIN, TICK_MAX, None, filter)
    low, high = time_bounds(all_of(parts).prune, schema.time)
    others = [part for part in parts if not _is_time_range(part, schema.time)]
    if not others:
        return Split(low, high, None, None)
    whole = all_of(others)
    if whole.exact and whole.prune is not None and has_row_truths(whole.prune, schema):
        filter = PredicateFilter(whole.prune, schema)
    return Split(low, high, None if whole.prune == AllOf(()) else whole.prune, filter)


def _conjuncts_of(filter: RowFilter, schema: StreamSchema) -> list[Compiled] | None:
    if isinstance(filter, ExpressionFilter):
        return _conjuncts(str(filter.expression), schema)
    if not isinstance(filter, PredicateFilter):
        return None
    predicate = filter.predicate
    items = predicate.items if isinstance(predicate, AllOf) else (predicate,)
    return [Compiled(item, exact=True) for item in items]


def _is_time_range(compiled: Compiled, time: str) -> bool:
    return compiled.exact and isinstance(compiled.prune, Range) and compiled.prune.column == time


def read_filter(text: str | None, schema: pa.Schema) -> tuple[RowFilter | None, bool]:
    """The conjuncts of a filter's text that can be applied exactly, and whether these are all."""
    if text is None:
        return None, True
    columns = _Relation(schema)
    parts = _conjuncts(text, columns)
    if parts is None:
        return None, False
    exact = [part for part in parts if part.exact and has_row_truths(part.prune, columns)]
    prune = all_of(exact).prune
    filter = None if prune is None else PredicateFilter(prune, columns)
    return filter, len(exact) == len(parts)


class _Relation:
    """The columns of any relation as attributes, if streams could hold them."""

    def __init__(self, schema: pa.Schema) -> None:
        self.names = tuple(schema.names)
        self._schema = schema

    def attribute(self, name: str) -> Attribute:
        type_ = self._schema.field(name).type
        storage = storage_of(type_)
        if storage is None or self.names.count(name) > 1:
            raise UnsupportedType(f"a stream cannot hold {type_}")
        return Attribute(name, type_, True, storage)


class _Unreadable(Exception):
    """The text has unsupported parts."""


def _conjuncts(text: str, schema: StreamSchema | _Relation) -> list[Compiled] | None:
    """The operands of AND in an expression's text; None if it has unsupported parts."""
    if not all(re.fullmatch(r"[^\W\d]\w*", name) for name in schema.names):
        return None
    reader = _Reader(schema)
    try:
        tree = ast.parse(reader.as_python(text), mode="eval").body
        return [reader.compile(node, True) for node in _operands(tree)]
    except (_Unreadable, UnsupportedType, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _operands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [operand for value in node.values for operand in _operands(value)]
    return [node]


class _Reader:
    def __init__(self, schema: StreamSchema | _Relation) -> None:
        self._schema = schema
        self._places = {name: f"c{place}" for place, name in enumerate(schema.names)}
        self._names = {place: name for name, place in self._places.items()}

    def as_python(self, text: str) -> str:
        """The text in Python's grammar, with columns by their places."""
        return _PIECE.sub(self._piece, text)

    def _piece(self, match: re.Match[str]) -> str:
        piece = match[0]
        if match["word"]:
            return self._places.get(piece, piece)
        if match["time"]:
            return f'time("{piece}")'
        if match["list"]:
            return ", ["
        if match["null"] or match["ignored"]:
            return "None" if match["null"] else ""
        if match["other"]:  # part of a text with unsupported escapes
            raise _Unreadable
        return piece

    def compile(self, node: ast.expr, truth: bool) -> Compiled:
        match node:
            case ast.BoolOp(op=op, values=values):
                parts = [self.compile(value, truth) for value in values]
                return all_of(parts) if isinstance(op, ast.And) == truth else any_of(parts)
            case ast.Call(func=ast.Name(id="invert"), args=[inner]):
                return self.compile(inner, not truth)
            case ast.Call(func=ast.Name(id="is_null" | "is_valid" as test), args=[column]):
                name = self._attribute(column).name
                null = (test == "is_null") == truth
                return Compiled(IsNull(name) if null else NotNull(name), exact=True)
            case ast.Call(
                func=ast.Name(id="if_else"),
                args=[
                    ast.Call(func=ast.Name(id="is_valid"), args=[tested]),
                    ast.Call(func=ast.Name(id="is_in"), args=[column, ast.List(elts=values)]),
                    ast.Constant(value=None),
                ],
            ) if self._attribute(tested) == self._attribute(column):
                return self._membership(column, values, truth)
            case ast.Call(func=ast.Name(id="is_in"), args=[column, ast.List(elts=values)]):
                # without the guard a null is outside, not unknown, so it satisfies the negation
                found = self._membership(column, values, truth)
                return found if truth else NOTHING
            case ast.Compare(left=column, ops=[operator], comparators=[value]):
                return self._comparison(column, _OPERATORS.get(type(operator)), value, truth)
        raise _Unreadable

    def _membership(self, column: ast.expr, values: list[ast.expr], truth: bool) -> Compiled:
        if not values:
            raise _Unreadable
        parts = [self._comparison(column, "=", value, truth) for value in values]
        return any_of(parts) if truth else all_of(parts)

    def _comparison(
        self, column: ast.expr, operator: str | None, value: ast.expr, truth: bool
    ) -> Compiled:
        attribute, constant = self._attribute(column), _constant(value)
        if operator is None:
            raise _Unreadable
        if constant.value != constant.value:
            return Compiled(NotNull(attribute.name))
        bounds = column_bounds(attribute, operator if truth else NEGATED[operator], constant)
        if attribute.storage is not Storage.FLOAT or operator not in (">", ">="):
            return bounds
        # Arrow compares as IEEE 754: NaN is neither above nor below, so the negation holds
        nan = Compiled(Range(attribute.name, math.nan, None))
        return Compiled(bounds.prune) if truth else any_of([bounds, nan])

    def _attribute(self, node: ast.expr) -> Attribute:
        if not isinstance(node, ast.Name) or node.id not in self._names:
            raise _Unreadable
        return self._schema.attribute(self._names[node.id])


def _constant(node: ast.expr) -> Constant:
    match node:
        case ast.Call(func=ast.Name(id="time"), args=[ast.Constant(value=str(text))]):
            return Constant(Kind.TIME, _nanoseconds(text))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            constant = _constant(operand)
            if constant.kind in (Kind.EXACT, Kind.FLOAT):
                return replace(constant, value=-constant.value)
        case ast.Name(id=word) if word in _WORDS:
            return constant_of_python(_WORDS[word])
        case ast.Constant(value=str() | int() | float() as value):
            return constant_of_python(value)
    raise _Unreadable


def _nanoseconds(text: str) -> int:
    whole, _, fraction = text.removesuffix("Z").partition(".")
    nanoseconds = parse_time(whole)
    if nanoseconds is None:
        raise _Unreadable
    return nanoseconds + int(fraction.ljust(9, "0"))
