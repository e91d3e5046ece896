"""Bytecode for conditions on the partial match, such as ``C.x >= A.x + 5``; see ``machine.holds``.

A condition is compiled bottom up to typed code.  DuckDB precomputes what the stack machine has no
instruction for: a part that reads one row becomes a ``Column`` (*lifting*), one that reads several
rows a table of ``Cells`` (*tabulating*), so every scalar function can be used.

SQL semantics: three-valued logic, integer overflow is an error, NaN is the greatest value.  Types:
``i`` integer, ``f`` float, ``b`` truth value, ``s`` string, ``t`` time, ``d`` interval, ``n`` NULL.
Integers have 64 bits, decimals compute as floats, times in microseconds (nanoseconds when a column
has them).  DATE_DIFF and DATE_TRUNC round toward minus infinity.  Aggregates: count, sum, min, max,
avg, bool_and, bool_or, arbitrary; functions of them need an instruction.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from ...core.times import TICKS_PER_SECOND
from ...errors import SqlError
from ..relational.interface import evaluate
from ..sql.dialect import to_text
from ..sql.rendering import identifier as quote
from ..sql.rendering import literal
from . import machine as m
from .binding import (
    CLASSIFIER,
    PSEUDO,
    Bound,
    Given,
    Leaf,
    MatchAggregate,
    MatchNumber,
    Navigation,
    RowExpression,
    leaf_index,
    leaves_of,
    substitute,
)
from .machine import ONE, POWER, TO_FLOAT32, TWO
from .scalar import column_types
from .tabulated import Dimension, Tabulated

LOADS = (m.LOAD_I, m.LOAD_F, m.LABEL)
Step = tuple[int, Any, Any, Any]
"""Instruction and operands: numbers, or what ``BytecodeBuilder.add`` numbers."""
Code = list[Step]
STEPS_MAX = 64
"""Greatest logical offset of FIRST and LAST in DEFINE."""
INT64 = (-(2**63), 2**63 - 1)
_EPOCH = dt.datetime(1970, 1, 1)
UNIT_US = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000,
    "hour": 3_600_000_000, "day": 86_400_000_000, "week": 604_800_000_000,
}  # fmt: skip
OPERATORS = {"DPIPE": "||", "BITWISEAND": "&", "BITWISEOR": "|"}
INTEGERS = {
    "TINYINT": (-(2**7), 2**7 - 1), "SMALLINT": (-(2**15), 2**15 - 1),
    "INT": (-(2**31), 2**31 - 1), "BIGINT": INT64, "UTINYINT": (0, 2**8 - 1),
    "USMALLINT": (0, 2**16 - 1), "UINT": (0, 2**32 - 1), "UBIGINT": (0, 2**63 - 1),
}  # fmt: skip
INTERVAL_PARTS = {"day": None, "hour": 24, "minute": 60, "second": 60}
MAKERS = {f"to_{unit}s": unit for unit in UNIT_US}
NAMES = {
    "i": "integer", "f": "number", "b": "boolean", "s": "string", "t": "time", "d": "interval",
}  # fmt: skip
COMPARISONS = {
    exp.LT: m.LT_I, exp.GT: m.LT_I, exp.LTE: m.LE_I, exp.GTE: m.LE_I, exp.EQ: m.EQ_I,
    exp.NEQ: m.EQ_I,
}  # fmt: skip
ARITHMETIC = {
    exp.Add: (m.ADD_I, m.ADD_F), exp.Sub: (m.SUB_I, m.SUB_F), exp.Mul: (m.MUL_I, m.MUL_F),
    exp.Div: (m.DIV_F, m.DIV_F), exp.IntDiv: (m.DIV_I, m.DIV_F), exp.Mod: (m.MOD_I, m.MOD_F),
}  # fmt: skip
AGGREGATES = {
    "count": (m.COUNT, m.COUNT), "sum": (m.SUM_I, m.SUM_F), "min": (m.MIN_I, m.MIN_F),
    "max": (m.MAX_I, m.MAX_F), "bool_and": (m.MIN_I, m.MIN_I), "bool_or": (m.MAX_I, m.MAX_I),
    "arbitrary": (m.ANY_I, m.ANY_F), "any_value": (m.ANY_I, m.ANY_F),
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """An input: an expression over one row, of kind ``i``, ``f``, ``s``, ``t`` or ``n`` (null
    mark).
    """

    row: RowExpression
    kind: str


@dataclass(frozen=True)
class Codes:
    """An input: codes of a dimension of a tabulated function."""

    table: Tabulated
    dimension: int


@dataclass(frozen=True)
class Cells:
    """An input indexed by cell: a tabulated function, of type ``kind``."""

    table: Tabulated
    kind: str


@dataclass(frozen=True)
class Constant:
    """A constant of a program: a word, a text, or the number of codes of a dimension."""

    value: int | str | Codes


@dataclass(frozen=True)
class MatchRow:
    """FIRST or LAST of a set of variables, ``steps`` on; ``inside``: the current row counts."""

    first: bool
    variables: frozenset[str] | None
    steps: int
    inside: bool


@dataclass(frozen=True)
class RunningAggregate:
    variables: frozenset[str] | None
    function: int
    column: Column | None


@dataclass
class BytecodeBuilder:
    """Collects the bytecode of a pattern and its inputs; ``unit`` of times: ``us`` or ``ns``."""

    row_type: Callable[[RowExpression], pa.DataType]
    unit: str = "us"
    code: Code = field(default_factory=list)
    begin: list[int] = field(default_factory=lambda: [0])
    constants: list[Constant] = field(default_factory=list)
    columns: list[Column | Codes | Cells] = field(default_factory=list)
    sets: list[frozenset[str] | None] = field(default_factory=list)
    places: list[MatchRow] = field(default_factory=list)
    sum_slots: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, code: Code) -> int:
        """Append a condition; returns its number."""
        number = self._number
        self.code += [(op, number(a), number(b), number(c)) for op, a, b, c in code]
        self.begin.append(len(self.code))
        return len(self.begin) - 2

    def _number(self, operand: Any) -> int:
        if isinstance(operand, Constant):
            return self.slot(self.constants, operand)
        if isinstance(operand, Column | Codes | Cells):
            return self.slot(self.columns, operand)
        if isinstance(operand, MatchRow):
            self.slot(self.sets, operand.variables)
            return self.slot(self.places, operand)
        if isinstance(operand, RunningAggregate):
            column = -1 if operand.column is None else self.slot(self.columns, operand.column)
            variables = self.slot(self.sets, operand.variables)
            return self.slot(self.sum_slots, (variables, operand.function, column))
        return int(operand)

    @property
    def tables(self) -> list[Tabulated]:
        return list(dict.fromkeys(c.table for c in self.columns if isinstance(c, Cells)))

    @property
    def trackers(self) -> int:
        """Words per column of the path, besides position, parent and row."""
        fixed = self.arrays()
        slots = len(fixed["last_slot"]) + len(fixed["first_slot"]) + 2 * len(fixed["sum_slot"])
        return slots + len(self.sets)

    @staticmethod
    def slot(entries: list[Any], entry: Any) -> int:
        if entry not in entries:
            entries.append(entry)
        return entries.index(entry)

    def arrays(self) -> dict[str, npt.NDArray[np.int64]]:
        """The code with loads bound to tracker slots, and the slots, as arrays."""
        farthest: dict[int, int] = {}
        first_slots: list[tuple[int, int]] = []
        for place in self.places:
            chosen = self.sets.index(place.variables)
            if place.first:
                self.slot(first_slots, (chosen, place.steps))
            else:
                farthest[chosen] = max(farthest.get(chosen, 0), place.steps)
        last_slots = [(chosen, s) for chosen, top in farthest.items() for s in range(top + 1)]
        code = []
        for op, a, b, c in self.code:
            if op in LOADS and b >= 0:
                place = self.places[b]
                entries = first_slots if place.first else last_slots
                slot = entries.index((self.sets.index(place.variables), place.steps))
                b = (slot << 2) | (place.inside << 1) | place.first
            code.append((op, a, b, c))

        return {
            "code": np.array(code, np.int64).reshape(-1, 4),
            "begin": np.array(self.begin, np.int64),
            "last_slot": np.array(last_slots, np.int64).reshape(-1, 2),
            "first_slot": np.array(first_slots, np.int64).reshape(-1, 2),
            "sum_slot": np.array(self.sum_slots, np.int64).reshape(-1, 3),
        }


class Unsupported(Exception):
    """The stack machine cannot compute this; the message says what."""


@dataclass(frozen=True)
class Value:
    """Code that pushes a value of a type; ``constant``: the value, if it is one."""

    kind: str
    code: Code
    constant: Any = None

    @property
    def text(self) -> str:
        """A constant string in lower case, else empty."""
        return str(self.constant).lower() if self.kind == "s" and self.constant is not None else ""


def constant(kind: str, value: Any) -> Value:
    if kind == "n":
        return Value("n", [_step(m.CONST_NULL)])
    if kind == "f":
        word: int | str = int(np.array(value, np.float64).view(np.int64))
        return Value(kind, [_step(m.CONST_F, Constant(word))], value)
    if kind != "s" and not INT64[0] <= value <= INT64[1]:
        raise Unsupported("an integer beyond 64 bits")
    return Value(kind, [_step(m.CONST_I, Constant(value))], value)


def _step(op: int, a: Any = 0, b: Any = 0, c: Any = 0) -> Step:
    return op, a, b, c


def _converted(value: Value, kind: str) -> Value:
    if value.kind != "i" or kind != "f":
        return value
    if value.constant is not None:
        return constant("f", float(value.constant))
    return Value("f", [*value.code, _step(m.TO_F)])


def _binary(op: int, left: Code, right: Code) -> Code:
    """A binary operation; a constant right operand is fused into it."""
    if len(right) == 1 and right[0][0] in (m.CONST_I, m.CONST_F):
        return [*left, _step(op, right[0][1], 1)]
    return [*left, *right, _step(op)]


def _choice(condition: Code, then: Code, otherwise: Code) -> Code:
    miss = _step(m.JUMP_NOT_TRUE, len(then) + 1)
    return [*condition, miss, *then, _step(m.JUMP, len(otherwise)), *otherwise]


def _if_null(code: Code, otherwise: Code) -> Code:
    return [*code, _step(m.JUMP_NOT_NULL, len(otherwise)), *otherwise]


def _need_truth(values: Iterable[Value]) -> None:
    if any(value.kind not in ("b", "n") for value in values):
        raise Unsupported("a truth value is needed here")


def _is_expression(part: Any) -> bool:
    """Whether a part of an expression is one itself; WHEN ... THEN ... of a CASE, the entries of
    a map or struct and the braces of MAP {...} are none.
    """
    if part.arg_key == "ifs" or isinstance(part, (exp.PropertyEQ, exp.Kwarg)):
        return False
    around = part.parent
    while part.arg_key == "this" and isinstance(around, exp.Bracket):
        part, around = around, around.parent
    return not isinstance(around, exp.ToMap)


def type_letter(type_: pa.DataType) -> str:
    """Type letter of an Arrow type; empty if it has none."""
    if pa.types.is_boolean(type_):
        return "b"
    if pa.types.is_integer(type_):
        return "i"
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "f"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "s"
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return "t"
    return ""


def aggregated(leaf: MatchAggregate) -> RowExpression | None:
    """What an aggregate reads from a row: its argument, NULL where FILTER excludes the row."""
    if leaf.condition is None:
        return leaf.argument
    value = "1" if leaf.argument is None else f"({leaf.argument.sql})"
    columns = leaf.argument.columns if leaf.argument is not None else ()
    return RowExpression(
        f"CASE WHEN ({leaf.condition.sql}) THEN {value} END",
        tuple(dict.fromkeys([*leaf.condition.columns, *columns])),
    )


@dataclass
class RowReader:
    """What the condition of a variable reads from rows: leaves, lifted and tabulated parts."""

    builder: BytecodeBuilder
    leaves: tuple[Leaf, ...]
    variable: str

    def leaf(self, leaf: Leaf) -> Value:
        if isinstance(leaf, MatchNumber):
            return Value("i", [_step(m.NUMBER)])
        assert not isinstance(leaf, Given)  # refused in DEFINE
        if isinstance(leaf, MatchAggregate):
            return self._aggregate(leaf)
        if leaf.offset > STEPS_MAX:
            raise Unsupported(f"an offset above {STEPS_MAX} in DEFINE")
        type_ = pa.string() if leaf.row.column == CLASSIFIER else self.builder.row_type(leaf.row)
        kind = type_letter(type_)
        if not kind:
            raise Unsupported(f"type {type_} in DEFINE")
        return Value(kind, self._navigation(leaf, kind))

    def _navigation(self, leaf: Navigation, kind: str) -> Code:
        place = self._place(leaf)
        if leaf.row.column == CLASSIFIER:
            return [_step(m.LABEL, 0, place, leaf.shift)]
        column = self._column(leaf.row, kind)
        return [_step(m.LOAD_F if kind == "f" else m.LOAD_I, column, place, leaf.shift)]

    def _column(self, row: RowExpression, kind: str) -> Column:
        return Column(row, "i" if kind == "b" else kind)

    def _place(self, leaf: Navigation) -> MatchRow | int:
        if self._current(leaf):
            return -1
        return MatchRow(leaf.first, leaf.variables, leaf.offset, self._inside(leaf))

    def _current(self, leaf: Navigation) -> bool:
        return self._inside(leaf) and not leaf.first and leaf.offset == 0

    def _inside(self, leaf: Navigation | MatchAggregate) -> bool:
        return leaf.variables is None or self.variable in leaf.variables

    def _aggregate(self, leaf: MatchAggregate) -> Value:
        function = leaf.function
        if leaf.distinct and function in ("count", "sum", "avg", "mean"):
            raise Unsupported(f"{function}(DISTINCT ...) in DEFINE")
        if not leaf.basic:
            raise Unsupported(f"{function} of several arguments or with ORDER BY")
        if not PSEUDO.isdisjoint(leaf.columns):
            of = "CLASSIFIER()" if CLASSIFIER in leaf.columns else "MATCH_NUMBER()"
            raise Unsupported(f"{function} over {of} in DEFINE")
        if function == "count":
            return self._running(leaf, "i")
        if leaf.argument is None:
            raise Unsupported(f"aggregate {function} of this form in DEFINE")
        kind = type_letter(self.builder.row_type(leaf.argument))
        if function in ("min", "max", "arbitrary", "any_value") and kind:
            return self._running(leaf, kind)
        if (function == "sum" and kind in ("i", "f")) or (function[:5] == "bool_" and kind == "b"):
            return self._running(leaf, kind)
        if function in ("avg", "mean") and kind in ("i", "f"):
            total = self._running(replace(leaf, function="sum"), "f")
            count = self._running(replace(leaf, function="count"), "i")
            return Value("f", [*total.code, *count.code, _step(m.TO_F), _step(m.DIV_F)])
        raise Unsupported(f"aggregate {function} in DEFINE")

    def _running(self, leaf: MatchAggregate, kind: str) -> Value:
        argument, is_float = aggregated(leaf), kind == "f"
        stored = "n" if leaf.function == "count" else kind
        column = None if argument is None else self._column(argument, stored)
        function = AGGREGATES[leaf.function][is_float]
        entry = RunningAggregate(leaf.variables, function, column)
        return Value(kind, [_step(m.AGG_F if is_float else m.AGG_I, entry, self._inside(leaf))])

    # -- computed by DuckDB ---------------------------------------------------------------------

    def precomputed(self, node: Any, error: Unsupported) -> Value:
        """A part that cannot be compiled for the reason in ``error``, which is raised if DuckDB
        cannot compute it either.
        """
        navigation = self._lift(node)
        if navigation is not None:
            kind = type_letter(self.builder.row_type(navigation.row))
            code = self._navigation(navigation, kind)
        else:
            table = self._tabulate(node, error)
            kind = type_letter(table.type)
            code = self._cell(table, kind)
        if not kind:
            raise error
        return Value(kind, code)

    def _lift(self, node: Any) -> Navigation | None:
        """A subexpression over one row only, as a column; None if impossible."""
        places: dict[tuple[Any, ...], Navigation] = {}
        columns: dict[str, None] = {}
        texts: dict[int, str] = {}
        for i in leaves_of(node):
            leaf = self.leaves[i]
            if not isinstance(leaf, Navigation):
                return None
            if CLASSIFIER in leaf.row.columns or leaf.offset > STEPS_MAX:
                return None
            variables = None if self._current(leaf) else leaf.variables
            places.setdefault((variables, leaf.first, leaf.offset, leaf.shift), leaf)
            columns.update(dict.fromkeys(leaf.row.columns))
            texts[i] = f"({leaf.row.sql})"
        if len(places) != 1:
            return None
        row = RowExpression(substitute(to_text(node), texts), tuple(columns))
        if not self._strict(row):
            return None  # it would have a value for a missing row
        (first,) = places.values()
        return Navigation(row, first.variables, first.first, first.offset, False, first.shift)

    def _strict(self, row: RowExpression) -> bool:
        nulls = {
            name: pa.nulls(1, self.builder.row_type(RowExpression(quote(name), (name,), name)))
            for name in row.columns
        }
        try:
            result = evaluate(f"SELECT ({row.sql}) AS c FROM rows", rows=pa.table(nulls))
        except SqlError:
            return False
        return not result.column(0)[0].is_valid

    def _tabulate(self, node: Any, error: Unsupported) -> Tabulated:
        dimensions: dict[tuple[Any, ...], tuple[Navigation, dict[RowExpression, str]]] = {}
        fields: list[pa.Field] = []

        def cut(part: Any) -> Any:
            if not leaves_of(part):
                return part
            index = leaf_index(part)
            whole = _is_expression(part)
            leaf = (self._lift(part) if whole else None) if index is None else self.leaves[index]
            if leaf is None:
                for child in list(part.iter_expressions()):
                    child.replace(cut(child))
                return part
            if not isinstance(leaf, Navigation) or leaf.offset > STEPS_MAX:
                raise error
            label, current = leaf.row.column == CLASSIFIER, self._current(leaf)
            at = None if current else leaf.variables
            place = (at, leaf.first, leaf.offset, leaf.shift, label, current)
            _, names = dimensions.setdefault(place, (leaf, {}))
            if leaf.row not in names:
                names[leaf.row] = f"@a{len(fields)}"
                fields.append(pa.field(names[leaf.row], self.builder.row_type(leaf.row)))
            return exp.column(exp.to_identifier(names[leaf.row], quoted=True))

        root = exp.Paren(this=node.copy())
        root.this.replace(cut(root.this))
        if any(pa.types.is_nested(field.type) for field in fields):
            raise error
        every = tuple(
            Dimension(leaf, tuple(names), tuple(names.values()), self._current(leaf))
            for leaf, names in dimensions.values()
        )
        text = to_text(root)
        type_ = column_types([text], pa.schema(fields))[0]
        return Tabulated(every, text, type_, self.variable, str(error))

    def _cell(self, table: Tabulated, kind: str) -> Code:
        """Push the cell number, then load the cell."""
        code: Code = []
        for i, dimension in enumerate(table.dimensions):
            if i:
                code.append(_step(m.MUL_I, Constant(Codes(table, i)), 1))
            place, shift = self._place(dimension.place), dimension.place.shift
            if dimension.rows[0].column == CLASSIFIER:
                load = _step(m.LABEL, 1, place, shift)
            else:
                load = _step(m.LOAD_I, Codes(table, i), place, shift)
            code += _if_null([load], constant("i", 0).code)
            if i:
                code.append(_step(m.ADD_I))
        return [*code, _step(m.CELL, Cells(table, "i" if kind == "b" else kind))]


class Compiler(RowReader):
    """Compiles the condition of a variable; every method returns typed code, or raises
    Unsupported.
    """

    def value(self, node: Any) -> Value:
        try:
            return self._value(node)
        except Unsupported as error:
            if not leaves_of(node):
                raise
            return self.precomputed(node, error)

    def _value(self, node: Any) -> Value:
        index = leaf_index(node)
        if index is not None:
            return self.leaf(self.leaves[index])
        if not leaves_of(node):
            return self._constant(node)
        if type(node) in _NODES:
            return _NODES[type(node)](self, node)
        name, arguments = _call(node)
        if not name:
            word = type(node).__name__.upper()
            raise Unsupported(f"{OPERATORS.get(word, word)} on values from different rows")
        values = [self.value(argument) for argument in arguments]
        made = self._general(name, values) or self._of_numbers(name, values)
        made = made or self._of_times(name, values)
        if made is None:
            raise Unsupported(f"function {name} on values from different rows")
        return made

    # -- constants and common types -------------------------------------------------------------

    def _constant(self, node: Any) -> Value:
        scalar = evaluate(f"SELECT {to_text(node)} AS c").column(0)[0]
        type_ = scalar.type
        if not scalar.is_valid:
            return constant("n", None)
        if pa.types.is_interval(type_):
            value = scalar.as_py()
            if value.months or value.nanoseconds % 1000:  # beyond 64 bits, see only_durations
                raise Unsupported("an interval of months or years has no fixed length")
            nanos = value.days * 86_400 * 10**9 + value.nanoseconds
            return constant("d", nanos if self.builder.unit == "ns" else nanos // 1000)
        letter = type_letter(type_)
        if not letter:
            raise Unsupported(f"a constant of type {type_}")
        if letter == "t":
            return constant("t", self._ticks(scalar))
        convert = {"i": int, "b": int, "f": float, "s": str}[letter]
        return constant(letter, convert(scalar.as_py()))

    def _ticks(self, scalar: pa.Scalar) -> int:
        wanted = TICKS_PER_SECOND[self.builder.unit]
        if pa.types.is_date(scalar.type):
            return int((scalar.as_py() - _EPOCH.date()).days * 86_400 * wanted)
        return int(scalar.value) * wanted // TICKS_PER_SECOND[scalar.type.unit]

    def _as_time(self, value: Value) -> Value:
        if value.kind != "s":
            return value
        if value.constant is None:
            raise Unsupported("comparison of a string with a time")
        text = literal(str(value.constant))
        instant = evaluate(f"SELECT CAST({text} AS TIMESTAMPTZ) AS c").column(0)[0]
        if self.builder.unit == "ns":
            fine = evaluate(f"SELECT TRY_CAST({text} AS TIMESTAMPTZ_NS) AS c").column(0)[0]
            instant = fine if fine.is_valid else instant
        return constant("t", self._ticks(instant))

    def _unified(self, values: Sequence[Value]) -> tuple[str, list[Value]]:
        """The common type of values, and the values in it."""
        kinds = list(dict.fromkeys(value.kind for value in values if value.kind != "n"))
        if set(kinds) == {"s", "t"}:
            return "t", [self._as_time(value) for value in values]
        if set(kinds) == {"i", "f"}:
            kinds = ["f"]
        if len(kinds) > 1:
            raise Unsupported(f"{NAMES[kinds[0]]} and {NAMES[kinds[1]]} together")
        kind = kinds[0] if kinds else "n"
        return kind, [_converted(value, kind) for value in values]

    # -- operators ------------------------------------------------------------------------------

    def _negation(self, node: Any) -> Value:
        value = self.value(node.this)
        if value.kind not in ("i", "f", "n"):
            raise Unsupported("a minus sign before this type")
        return Value(value.kind, [*value.code, _step(m.NEG_F if value.kind == "f" else m.NEG_I)])

    def _logic(self, node: Any) -> Value:
        parts = [self.value(part) for part in node.flatten()]
        _need_truth(parts)
        code = list(parts[0].code)
        for part in parts[1:]:
            code += [*part.code, _step(m.AND if isinstance(node, exp.And) else m.OR)]
        return Value("b", code)

    def _not(self, node: Any) -> Value:
        value = self.value(node.this)
        _need_truth([value])
        return Value("b", [*value.code, _step(m.NOT)])

    def _is(self, node: Any) -> Value:
        value, right = self.value(node.this), node.expression
        if isinstance(right, exp.Null):
            return Value("b", [*value.code, _step(m.IS_NULL)])
        if not isinstance(right, exp.Boolean):
            raise Unsupported("IS with this operand")
        _need_truth([value])
        code = value.code if right.this else [*value.code, _step(m.NOT)]
        return Value("b", _if_null(code, constant("b", 0).code))

    def _comparison(self, node: Any) -> Value:
        values = [self.value(node.this), self.value(node.expression)]
        return Value("b", self._compared(type(node), *values))

    def _compared(self, how: Any, left: Value, right: Value) -> Code:
        kind, (left, right) = self._unified([left, right])
        if how in (exp.GT, exp.GTE):
            left, right = right, left
        op = COMPARISONS[how] + (m.LT_F - m.LT_I if kind == "f" else 0)
        code = _binary(op, left.code, right.code)
        return [*code, _step(m.NOT)] if how is exp.NEQ else code

    def _distinct(self, node: Any) -> Value:
        sides = [self.value(node.this), self.value(node.expression)]
        _, sides = self._unified(sides)
        # null only if a side is null; then equal if both are
        both = [step for side in sides for step in (*side.code, _step(m.IS_NULL))]
        code = _if_null(self._compared(exp.EQ, *sides), [*both, _step(m.AND)])
        return Value("b", [*code, _step(m.NOT)] if isinstance(node, exp.NullSafeNEQ) else code)

    def _between(self, node: Any) -> Value:
        parts = [self.value(part) for part in (node.this, node.args["low"], node.args["high"])]
        _, (value, low, high) = self._unified(parts)

        def inside(low: Value, high: Value) -> Code:
            above = self._compared(exp.GTE, value, low)
            return [*above, *self._compared(exp.LTE, value, high), _step(m.AND)]

        code = inside(low, high)
        if node.args.get("symmetric"):
            code += [*inside(high, low), _step(m.OR)]
        return Value("b", code)

    def _in(self, node: Any) -> Value:
        if node.args.get("query") or node.args.get("unnest"):
            raise Unsupported("IN with a query")
        _, values = self._unified([self.value(one) for one in (node.this, *node.expressions)])
        code: Code = []
        for i, item in enumerate(values[1:]):
            code += self._compared(exp.EQ, values[0], item)
            if i:
                code.append(_step(m.OR))
        return Value("b", code)

    def _sum(self, node: Any) -> Value:
        values = [self.value(node.this), self.value(node.expression)]
        left, right = (value.kind for value in values)
        kind = left
        if {left, right} <= {"i", "f", "n"}:
            kind, values = self._unified(values)
        elif isinstance(node, exp.Sub) and (left, right) == ("t", "t"):
            kind = "d"
        elif isinstance(node, exp.Add) and (left, right) == ("d", "t"):
            kind = "t"
        elif (left, right) not in (("t", "d"), ("d", "d")):
            raise Unsupported("arithmetic on these types")
        op = ARITHMETIC[type(node)][kind == "f"]
        return Value(kind, _binary(op, values[0].code, values[1].code))

    def _product(self, node: Any) -> Value:
        values = [self.value(node.this), self.value(node.expression)]
        if isinstance(node, exp.Mul) and {value.kind for value in values} == {"i", "d"}:
            return Value("d", _binary(m.MUL_I, values[0].code, values[1].code))
        kind, values = self._unified(values)
        if kind not in ("i", "f", "n"):
            raise Unsupported("arithmetic on this type")
        if isinstance(node, exp.IntDiv) and kind == "f":
            raise Unsupported("// on floating-point numbers")
        if isinstance(node, exp.Div):
            kind, values = "f", [_converted(value, "f") for value in values]
        op = ARITHMETIC[type(node)][kind == "f"]
        return Value(kind, _binary(op, values[0].code, values[1].code))

    def _power(self, node: Any) -> Value:
        kind, values = self._unified([self.value(node.this), self.value(node.expression)])
        if kind not in ("i", "f", "n"):
            raise Unsupported("a power of this type")
        return _of_floats(POWER, values)

    def _case(self, node: Any) -> Value:
        conditions, results = [], []
        subject = None if node.this is None else self.value(node.this)
        for branch in node.args["ifs"]:
            value = self.value(branch.this)
            if subject is None:
                _need_truth([value])
                conditions.append(value.code)
            else:
                conditions.append(self._compared(exp.EQ, subject, value))
            results.append(self.value(branch.args["true"]))
        default = node.args.get("default")
        results.append(constant("n", None) if default is None else self.value(default))
        kind, results = self._unified(results)
        code = results[-1].code
        for condition, result in zip(conditions[::-1], results[-2::-1], strict=True):
            code = _choice(condition, result.code, code)
        return Value(kind, code)

    def _cast(self, node: Any) -> Value:
        value, wanted = self.value(node.this), str(node.to.this.name)
        source, code = value.kind, list(value.code)
        if source in ("i", "f", "b"):
            if wanted in INTEGERS:
                code += [_step(m.TO_I)] if source == "f" else []
                code += [_step(m.FIT, *INTEGERS[wanted])] if wanted != "BIGINT" else []
                return Value("i", code)
            if wanted in ("DOUBLE", "FLOAT"):
                code += [_step(m.TO_F)] if source != "f" else []
                code += [_step(m.CALL_F, TO_FLOAT32)] if wanted == "FLOAT" else []
                return Value("f", code)
            if wanted == "BOOLEAN":
                zero = constant("f", 0.0) if source == "f" else constant(source, 0)
                different = self._compared(exp.NEQ, value, zero)
                return Value("b", code if source == "b" else different)
        if source == "t" and wanted == "TIMESTAMP":
            return value
        if source == "t" and wanted == "DATE":
            return Value("t", self._truncated(value, "day"))
        raise Unsupported(f"CAST to {wanted} of values from different rows")

    def _extract(self, node: Any) -> Value:
        return self._part(node.name.lower(), self.value(node.expression))

    # -- functions ------------------------------------------------------------------------------

    def _general(self, name: str, values: list[Value]) -> Value | None:
        """Functions of any type."""
        count = len(values)
        if name in ("coalesce", "ifnull", "nvl", "greatest", "least") and values:
            kind, values = self._unified(values)
            code = values[-1].code
            if name in ("greatest", "least"):
                op = m.GREATEST_I if name == "greatest" else m.LEAST_I
                op += m.LEAST_F - m.LEAST_I if kind == "f" else 0
                code = list(values[0].code)
                for value in values[1:]:
                    code += [*value.code, _step(op)]
                return Value(kind, code)
            for value in values[-2::-1]:
                code = _if_null(value.code, code)
            return Value(kind, code)
        if name == "nullif" and count == 2:
            same = self._compared(exp.EQ, *values)
            return Value(values[0].kind, _choice(same, constant("n", None).code, values[0].code))
        if name == "if" and count == 3:
            _need_truth(values[:1])
            kind, (then, otherwise) = self._unified(values[1:])
            return Value(kind, _choice(values[0].code, then.code, otherwise.code))
        return None

    def _of_numbers(self, name: str, values: list[Value]) -> Value | None:
        count, kinds = len(values), [value.kind for value in values]
        if kinds == ["f"] and name in ("isnan", "isinf", "isfinite"):
            # NaN equals itself and is the greatest value
            size = [] if name == "isnan" else [_step(m.ABS_F)]
            limit = constant("f", float("nan" if name == "isnan" else "inf"))
            op = m.LT_F if name == "isfinite" else m.EQ_F
            return Value("b", _binary(op, [*values[0].code, *size], limit.code))
        if not values or not set(kinds) <= {"i", "f", "n"}:
            return None
        kind, code = kinds[0], values[0].code
        if name == "abs" and count == 1:
            return Value(kind, [*code, _step(m.ABS_F if kind == "f" else m.ABS_I)])
        if name == "sign" and count == 1:
            zero = constant(kind, 0)
            signs = [self._compared(how, values[0], zero) for how in (exp.GT, exp.LT)]
            return Value("i", [*signs[0], *signs[1], _step(m.SUB_I)])
        if name == "mod" and count == 2:
            kind, values = self._unified(values)
            op = m.MOD_F if kind == "f" else m.MOD_I
            return Value(kind, _binary(op, values[0].code, values[1].code))
        if kind == "i" and name in ("floor", "ceil", "ceiling", "round", "trunc"):
            return values[0] if count == 1 else None
        if name in ONE and count == 1:
            return _of_floats(ONE[name], values)
        if name in TWO and count == 2:
            return _of_floats(TWO[name], values)
        return None

    def _of_times(self, name: str, values: list[Value]) -> Value | None:
        kinds = [value.kind for value in values]
        unit = values[0].text.rstrip("s") if values else ""
        if name in MAKERS and kinds == ["i"]:
            return Value("d", self._with(m.MUL_I, values[0].code, self._ticks_of(MAKERS[name])))
        if name == "epoch" and kinds in (["t"], ["d"]):
            return self._part("epoch", values[0])
        if name == "epoch_ms" and kinds in (["t"], ["d"]):
            code = values[0].code
            if kinds == ["t"]:  # so that the division rounds toward minus infinity
                code = self._truncated(values[0], "millisecond")
            return Value("i", self._with(m.DIV_I, code, self._ticks_of("millisecond")))
        if name in ("date_part", "datepart") and len(values) == 2:
            return self._part(values[0].text, values[1])
        if name == "date_add" and kinds == ["t", "d"]:
            return Value("t", _binary(m.ADD_I, values[0].code, values[1].code))
        if unit not in UNIT_US:
            return None
        if name in ("date_trunc", "datetrunc") and kinds == ["s", "t"]:
            return Value("t", self._truncated(values[1], unit))
        if kinds != ["s", "t", "t"]:
            return None
        if name in ("date_sub", "datesub"):
            code = _binary(m.SUB_I, values[2].code, values[1].code)
            return Value("i", self._with(m.DIV_I, code, self._ticks_of(unit)))
        if name in ("date_diff", "datediff"):
            size = self._ticks_of("day" if unit == "week" else unit)
            code = _binary(m.SUB_I, *(self._floor(values[i], size) for i in (2, 1)))
            if unit == "week":  # DuckDB divides days by seven
                code = self._with(m.DIV_I, code, 7)
            return Value("i", code)
        return None

    def _with(self, op: int, code: Code, number: int) -> Code:
        return _binary(op, code, constant("i", number).code)

    def _ticks_of(self, unit: str) -> int:
        return UNIT_US[unit] * (1000 if self.builder.unit == "ns" else 1)

    def _part(self, part: str, value: Value) -> Value:
        part = part.rstrip("s")
        if part == "epoch" and value.kind in ("t", "d"):
            second = constant("f", float(self._ticks_of("second")))
            return Value("f", _binary(m.DIV_F, [*value.code, _step(m.TO_F)], second.code))
        if part not in INTERVAL_PARTS or value.kind != "d":
            raise Unsupported(f"EXTRACT of {part} on values from different rows")
        code = self._with(m.DIV_I, value.code, self._ticks_of(part))
        most = INTERVAL_PARTS[part]
        return Value("i", code if most is None else self._with(m.MOD_I, code, most))

    def _remainder(self, code: Code, size: int) -> Code:
        """The remainder that is not negative: ``((x mod size) + size) mod size``."""
        for op in (m.MOD_I, m.ADD_I, m.MOD_I):
            code = self._with(op, code, size)
        return code

    def _truncated(self, value: Value, unit: str) -> Code:
        size = self._ticks_of(unit)
        offset = 3 * size // 7 if unit == "week" else 0  # 1970-01-01 was a Thursday
        rest = self._remainder(self._with(m.ADD_I, value.code, offset), size)
        return _binary(m.SUB_I, value.code, rest)

    def _floor(self, value: Value, size: int) -> Code:
        """Whole units since the epoch, rounded toward minus infinity."""
        whole = _binary(m.SUB_I, value.code, self._remainder(value.code, size))
        return self._with(m.DIV_I, whole, size)


_NODES: dict[type, Callable[[Compiler, Any], Value]] = {
    exp.Paren: lambda compiler, node: compiler.value(node.this), exp.Neg: Compiler._negation,
    exp.And: Compiler._logic, exp.Or: Compiler._logic, exp.Not: Compiler._not, exp.Is: Compiler._is,
    **dict.fromkeys(COMPARISONS, Compiler._comparison), exp.NullSafeEQ: Compiler._distinct,
    exp.NullSafeNEQ: Compiler._distinct, exp.Between: Compiler._between, exp.In: Compiler._in,
    **dict.fromkeys(ARITHMETIC, Compiler._product), exp.Add: Compiler._sum,
    exp.Sub: Compiler._sum, exp.Pow: Compiler._power, exp.Case: Compiler._case,
    exp.Cast: Compiler._cast, exp.Extract: Compiler._extract,
}  # fmt: skip


def _call(node: Any) -> tuple[str, list[Any]]:
    """Name and arguments of a function; an empty name if it is none."""
    if isinstance(node, exp.Coalesce):
        return "coalesce", [node.this, *node.expressions]
    if isinstance(node, exp.If):
        return "if", [node.this, node.args["true"], node.args.get("false") or exp.Null()]
    return (str(node.this).lower() if isinstance(node, exp.Anonymous) else ""), node.expressions


def _of_floats(function: int, values: Sequence[Value]) -> Value:
    code = [step for value in values for step in _converted(value, "f").code]
    call = _step(m.CALL_F, function) if len(values) == 1 else _step(m.CALL2_F, 0, 0, function)
    return Value("f", [*code, call])


def compile_condition(builder: BytecodeBuilder, scalar: Any, bound: Bound, variable: str) -> int:
    """Compile the condition of a variable; returns its number.  Raises Unsupported."""
    value = Compiler(builder, bound.leaves, variable).value(scalar)
    if value.kind not in ("b", "n"):
        raise Unsupported("a condition must be true or false")
    return builder.add(value.code)
