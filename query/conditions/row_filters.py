"""Which rows of a batch satisfy a condition: the evaluator over arrays.

``row_truths`` decides a predicate exactly, in the executor's order: NaN equals itself and is
greater than every number, texts compare by bytes, remainders have the sign of the dividend.  A null
satisfies only IS NULL; negations are already resolved, so there is no third value.  Limits: bytes
and decimals only by their nulls.

A scan filters its batches by a ``prune.RowFilter``: a predicate, or an Arrow expression.

An expression, from DuckDB or ``Stream.scan(filter=...)``, is decomposed for pushdown.  pyarrow has
no interface for that, but its text is regular: it is rewritten to an expression of Python's
grammar, and that compiled like a condition of SQL.  Sound: events for which
the expression is true satisfy the predicate.  If any part is unsupported, or a column's name
is no word, nothing is implied.  Supports comparisons of a column with a literal,
``is_valid``, ``is_null``, ``is_in``, ``and``, ``or`` and ``invert``.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.caches import lazy
from ...core.expression_text import expression_text
from ...errors import InvalidArgument, UnsupportedType
from ...schema import Attribute, Storage, StreamSchema, storage_of
from ...store.prune import AllOf, AnyOf, IsNull, Never, NotNull, Prune, Range, Remainder, RowFilter
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

Truths = npt.NDArray[np.bool_]
OnColumn = Range | Remainder | IsNull | NotNull
PARTS_MAX = 64
"""Of more comparisons the executor makes a hash table."""
_OPAQUE = (Storage.BINARY, Storage.DECIMAL, Storage.JSON, Storage.NESTED)


class _Members(NamedTuple):
    """A choice of equalities on a text column, which Arrow looks up in a set."""

    column: str
    texts: list[Any]

    @classmethod
    def of(cls, prune: AnyOf) -> _Members | None:
        ranges = [item for item in prune.items if isinstance(item, Range)]
        texts = [r.low for r in ranges if isinstance(r.low, str) and r.low == r.high]
        closed = not any(r.low_open or r.high_open for r in ranges)
        columns = columns_of(prune)
        if not closed or len(texts) < len(prune.items) or len(columns) != 1:
            return None
        return cls(columns[0], texts)


class Columns(Protocol):
    """A stream's schema, or the columns of any relation."""

    def attribute(self, name: str) -> Attribute: ...


@dataclass(frozen=True)
class PredicateFilter:
    """Rows that satisfy a predicate for which ``has_row_truths``."""

    predicate: Prune
    schema: Columns

    @lazy
    def columns(self) -> Sequence[str]:
        return columns_of(self.predicate)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        truths = row_truths(self.predicate, batch, self.schema)
        if not truths.any():
            return batch.slice(0, 0)
        return batch if truths.all() else batch.filter(pa.array(truths))


@dataclass(frozen=True)
class ExpressionFilter:
    """Rows for which an Arrow expression is true; ``columns`` may name more than it reads."""

    expression: pc.Expression
    columns: tuple[str, ...]

    @classmethod
    def of(cls, expression: pc.Expression, names: Sequence[str]) -> ExpressionFilter:
        text = expression_text(expression)
        return cls(expression, tuple(name for name in names if name in text))

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return batch.filter(self.expression)
        except pa.ArrowException as error:
            reason = str(error).splitlines()[0]
            raise InvalidArgument(f"the filter cannot be computed: {reason}") from None


def has_row_truths(prune: Prune | None, schema: Columns) -> bool:
    """Whether ``row_truths`` supports an exact predicate."""
    for number, part in enumerate(_parts(prune)):
        if number >= PARTS_MAX:
            return False
        if isinstance(part, Range) and not _decides(part, schema.attribute(part.column)):
            return False
    return True


def _decides(range_: Range, attribute: Attribute) -> bool:
    bounds = [bound for bound in (range_.low, range_.high) if bound is not None]
    if attribute.storage in (Storage.SIGNED, Storage.UNSIGNED):
        return all(isinstance(bound, int) for bound in bounds)
    return attribute.storage not in _OPAQUE and all(bound == bound for bound in bounds)


def _parts(prune: Prune | None) -> Iterator[Prune]:
    if isinstance(prune, AllOf | AnyOf):
        for item in prune.items:
            yield from _parts(item)
    elif prune is not None:
        yield prune


def columns_of(prune: Prune) -> Sequence[str]:
    one = (part for part in _parts(prune) if isinstance(part, OnColumn))
    return list(dict.fromkeys(part.column for part in one))


def whole_bounds(attribute: Attribute, range_: Range) -> tuple[int | None, int | None] | None:
    """Inclusive bounds of whole numbers, None per side if not limiting; None if no value fits."""
    bits = attribute.type.bit_width
    signed = attribute.storage is Storage.SIGNED
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    low = least if range_.low is None else int(range_.low) + range_.low_open
    high = most if range_.high is None else int(range_.high) - range_.high_open
    if low > high or low > most or high < least:
        return None
    return low if low > least else None, high if high < most else None


def row_truths(prune: Prune, batch: pa.RecordBatch, schema: Columns) -> Truths:
    """Which rows satisfy an exact predicate; texts may be dictionary-encoded."""
    members = _Members.of(prune) if isinstance(prune, AnyOf) else None
    if members is not None:
        return _of_column(members, batch, schema)
    if isinstance(prune, AllOf | AnyOf):
        every = isinstance(prune, AllOf)
        truths = np.full(batch.num_rows, every, np.bool_)
        for item in prune.items:
            of_item = row_truths(item, batch, schema)
            (np.logical_and if every else np.logical_or)(truths, of_item, out=truths)
        return truths
    if isinstance(prune, Never):
        return np.zeros(batch.num_rows, np.bool_)
    return _of_column(prune, batch, schema)


def _of_column(test: OnColumn | _Members, batch: pa.RecordBatch, schema: Columns) -> Truths:
    column = batch.column(batch.schema.get_field_index(test.column))
    return _column_truths(test, column, schema.attribute(test.column))


def possible_values(
    atoms: Sequence[Range | IsNull | NotNull], column: pa.Array, attribute: Attribute
) -> Truths:
    """Which values satisfy one of the atoms, or may, where arrays do not decide it."""
    truths = np.zeros(len(column), np.bool_)
    for atom in atoms:
        undecided = isinstance(atom, Range) and not _decides(atom, attribute)
        test = NotNull(atom.column) if undecided else atom
        truths |= _column_truths(test, column, attribute)
    return truths


def _column_truths(test: OnColumn | _Members, column: pa.Array, attribute: Attribute) -> Truths:
    if isinstance(test, IsNull):
        return _bits(column.is_null())
    if isinstance(test, NotNull):
        return _bits(column.is_valid())
    if pa.types.is_dictionary(column.type):
        of_values = pa.array(_of_values(test, column.dictionary, attribute))
        return _bits(of_values.take(column.indices).fill_null(False))
    truths = _of_values(test, column, attribute)
    return truths & _bits(column.is_valid()) if column.null_count else truths


def _of_values(
    prune: Range | Remainder | _Members, column: pa.Array, attribute: Attribute
) -> Truths:
    """Which values satisfy a comparison; undefined for nulls."""
    if isinstance(prune, _Members):
        return _bits(pc.is_in(column, value_set=pa.array(prune.texts, column.type)))
    if attribute.storage in (Storage.SIGNED, Storage.UNSIGNED):
        values = _numbers(column)
        if isinstance(prune, Range):
            bounds = whole_bounds(attribute, prune)
            if bounds is None:
                return np.zeros(len(column), np.bool_)
            return _within(values, *bounds)
        most = prune.divisor - 1  # greatest absolute remainder
        low, high = prune.low, prune.high
        if (low is not None and low > most) or (high is not None and high < -most):
            return np.zeros(len(column), np.bool_)
        low = None if low is None or low <= -most else low
        high = None if high is None or high >= most else high
        return _within(np.fmod(values, values.dtype.type(prune.divisor)), low, high)
    assert isinstance(prune, Range)
    if attribute.storage is Storage.FLOAT:
        return _doubles(_numbers(column), prune)
    truth = np.ones(len(column), np.bool_)
    for bound, is_open, closed, strict in (
        (prune.low, prune.low_open, pc.greater_equal, pc.greater),
        (prune.high, prune.high_open, pc.less_equal, pc.less),
    ):
        if bound is None:
            continue
        compared = (strict if is_open else closed)(column, pa.scalar(bound, column.type))
        truth &= _bits(compared.fill_null(False))
    return truth


def _within(values: npt.NDArray[np.integer], low: int | None, high: int | None) -> Truths:
    of = values.dtype.type
    if low is not None and low == high:
        return np.asarray(values == of(low))
    truth = np.ones(values.size, np.bool_)
    if low is not None:
        truth &= values >= of(low)
    if high is not None:
        truth &= values <= of(high)
    return truth


def _doubles(values: npt.NDArray[np.floating], range_: Range) -> Truths:
    """Comparisons of floating-point numbers as doubles, with NaN as the greatest."""
    truth = np.ones(values.size, np.bool_)
    if range_.low is not None:
        low = np.float64(range_.low)
        truth &= values > low if range_.low_open else values >= low
        if range_.high is None:
            truth |= np.isnan(values)
    if range_.high is not None:
        high = np.float64(range_.high)
        truth &= values < high if range_.high_open else values <= high
    return truth


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    type_ = column.type
    if pa.types.is_floating(type_):
        dtype = np.dtype(f"f{type_.bit_width // 8}")
    else:
        dtype = np.dtype(
            f"{'u' if pa.types.is_unsigned_integer(type_) else 'i'}{type_.bit_width // 8}"
        )
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(len(column), dtype)
    return np.frombuffer(buffer, dtype, len(column), column.offset * dtype.itemsize)


def _bits(array: pa.BooleanArray) -> Truths:
    if not len(array):
        return np.zeros(0, np.bool_)
    first, end = array.offset, array.offset + len(array)
    packed = np.frombuffer(array.buffers()[1], np.uint8)[first >> 3 : (end + 7) >> 3]
    bits = np.unpackbits(packed, bitorder="little")[first & 7 :][: len(array)]
    return bits.view(np.bool_)


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
_LIST_OF_TEXTS = re.compile(
    r"""value_set=\w*string\w*:\[\n(?:  "[^"\\\n]*",\n)*  "[^"\\\n]*"\n\], null_matching"""
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
        return _conjuncts(expression_text(filter.expression), schema)
    if not isinstance(filter, PredicateFilter):
        return None
    predicate = filter.predicate
    items = predicate.items if isinstance(predicate, AllOf) else (predicate,)
    return [Compiled(item, exact=True) for item in items]


def _is_time_range(compiled: Compiled, time: str) -> bool:
    return compiled.exact and isinstance(compiled.prune, Range) and compiled.prune.column == time


def implied_on(
    filter: RowFilter | None, schema: pa.Schema, names: Collection[str]
) -> RowFilter | None:
    """What rows that pass a filter satisfy of columns ``names``; None where nothing is known."""
    if filter is None or {*filter.columns} <= {*names}:
        return filter
    if isinstance(filter, ExpressionFilter):
        read, _ = read_filter(expression_text(filter.expression), schema)
        return None if read is None else implied_on(read, schema, names)
    if not isinstance(filter, PredicateFilter) or not isinstance(filter.predicate, AllOf):
        return None
    parts = [part for part in filter.predicate.items if {*columns_of(part)} <= {*names}]
    return PredicateFilter(AllOf(tuple(parts)), filter.schema) if parts else None


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
        # in lists Arrow neither escapes texts nor shows long values in full
        lists = len(re.findall(r"value_set=\w*string", text))
        if " chars omitted)" in text or lists > len(_LIST_OF_TEXTS.findall(text)):
            raise _Unreadable
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
                membership = self._membership(column, values, truth)
                return membership if truth else NOTHING
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
        if constant.kind is Kind.FLOAT and pa.types.is_float32(attribute.type):
            # the text lacks the type: "0.1" is also the nearest FLOAT, which is another double
            constant = replace(constant, kind=Kind.EXACT)
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
