"""Bytecode for conditions on the partial match, such as ``C.x >= A.x + 5``; see ``machine.holds``.

What depends on one row only becomes a ``Column``, and functions of several rows without an
instruction become ``Cells``; DuckDB evaluates both, so every scalar function can be used.  SQL
semantics: three-valued logic, integer overflow is an error, NaN is the greatest value.  Integers
have 64 bits, decimals compute as floats, times in microseconds (nanoseconds when a column has
them).  DATE_DIFF and DATE_TRUNC round toward minus infinity.  Aggregates: count, sum, min, max,
avg, bool_and, bool_or, arbitrary; functions of them need an instruction (``typed``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from . import machine as f
from . import machine as m
from .binding import (
    CLASSIFIER,
    Bound,
    Given,
    Leaf,
    MatchAggregate,
    MatchNumber,
    Navigation,
    RowExpression,
)
from .machine import ONE, POWER, TO_FLOAT32, TWO
from .typed import (
    INTEGERS,
    INTERVAL_PARTS,
    MAKERS,
    UNIT_US,
    Tabulated,
    TypedCondition,
    Unsupported,
    aggregated,
    leaf_index,
)

LOADS = (m.LOAD_I, m.LOAD_F, m.LABEL)


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

    table: int
    dimension: int


@dataclass(frozen=True)
class Cells:
    """An input indexed by cell: a tabulated function, of type ``kind``."""

    table: int
    kind: str


@dataclass(frozen=True)
class MatchRow:
    """FIRST or LAST of a set of variables, ``steps`` on; ``inside``: the current row counts."""

    first: bool
    chosen: int
    steps: int
    inside: bool


@dataclass
class BytecodeBuilder:
    """Collects the bytecode of a pattern and its inputs; ``unit`` of times: ``us`` or ``ns``."""

    row_type: Callable[[RowExpression], pa.DataType]
    unit: str = "us"
    code: list[tuple[int, int, int, int]] = field(default_factory=list)
    begin: list[int] = field(default_factory=lambda: [0])
    constants: list[int] = field(default_factory=list)
    strings: list[tuple[int, str]] = field(default_factory=list)  # index into constants, text
    sizes: list[tuple[int, int, int]] = field(default_factory=list)  # constant, table, dimension
    columns: list[Column | Codes | Cells] = field(default_factory=list)
    tables: list[Tabulated] = field(default_factory=list)
    sets: list[frozenset[str] | None] = field(default_factory=list)
    places: list[MatchRow] = field(default_factory=list)
    sum_slots: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, code: list[tuple[int, int, int, int]]) -> int:
        self.code.extend(code)
        self.begin.append(len(self.code))
        return len(self.begin) - 2

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
            if place.first:
                self.slot(first_slots, (place.chosen, place.steps))
            else:
                farthest[place.chosen] = max(farthest.get(place.chosen, 0), place.steps)
        last_slots = [(chosen, s) for chosen, top in farthest.items() for s in range(top + 1)]
        code = []
        for op, a, b, c in self.code:
            if op in LOADS and b >= 0:
                place = self.places[b]
                entries = first_slots if place.first else last_slots
                slot = entries.index((place.chosen, place.steps))
                b = (slot << 2) | (place.inside << 1) | place.first
            code.append((op, a, b, c))

        def table(rows: list[Any], width: int) -> npt.NDArray[np.int64]:
            return np.array(rows, np.int64).reshape(len(rows), width)

        return {
            "code": table(code, 4),
            "begin": np.array(self.begin, np.int64),
            "last_slot": table(last_slots, 2),
            "first_slot": table(first_slots, 2),
            "sum_slot": table(self.sum_slots, 3),
        }


INT64 = (-(2**63), 2**63 - 1)


class LoadCode(TypedCondition):
    """Loads for the condition of ``variable``; ``builder`` records what the code reads."""

    def __init__(self, builder: BytecodeBuilder, leaves: tuple[Leaf, ...], variable: str) -> None:
        super().__init__(builder.row_type, builder.unit, leaves, variable)
        self.builder = builder
        self.code: list[tuple[int, int, int, int]] = []

    def op(self, op: int, a: int = 0, b: int = 0, c: int = 0) -> int:
        self.code.append((op, a, b, c))
        return len(self.code) - 1

    def _land(self, jump: int) -> None:
        here = len(self.builder.code) + len(self.code)
        self.code[jump] = (self.code[jump][0], here, 0, 0)

    def _emit_constant(self, kind: str, value: Any) -> None:
        builder = self.builder
        if kind == "n":
            self.op(m.CONST_NULL)
            return
        if kind == "f":
            word = int(np.array(value, np.float64).view(np.int64))
        else:
            if kind == "s":
                builder.strings.append((len(builder.constants), str(value)))
                value = 0
            if not INT64[0] <= value <= INT64[1]:
                raise Unsupported("an integer beyond 64 bits", exp.Null())
            word = int(value)
        builder.constants.append(word)
        self.op(m.CONST_F if kind == "f" else m.CONST_I, len(builder.constants) - 1)

    def _column(self, row: RowExpression, kind: str) -> int:
        return self.builder.slot(self.builder.columns, Column(row, "i" if kind == "b" else kind))

    def _place(self, leaf: Navigation) -> int:
        if self._current(leaf):
            return -1
        inside = leaf.variables is None or self.variable in leaf.variables
        chosen = self.builder.slot(self.builder.sets, leaf.variables)
        entry = MatchRow(leaf.first, chosen, leaf.offset, inside)
        return self.builder.slot(self.builder.places, entry)

    def _emit_table(self, table: Tabulated, kind: str) -> None:
        """Push the cell number, then load the cell."""
        builder = self.builder
        number = builder.slot(builder.tables, table)
        for i, dimension in enumerate(table.dimensions):
            if i:
                builder.sizes.append((len(builder.constants), number, i))
                self._emit_constant("i", 0)
                self.op(m.MUL_I)
            place, shift = self._place(dimension.place), dimension.place.shift
            if dimension.rows[0].column == CLASSIFIER:
                self.op(m.LABEL, 1, place, shift)
            else:
                self.op(m.LOAD_I, builder.slot(builder.columns, Codes(number, i)), place, shift)
            jump = self.op(m.JUMP_NOT_NULL)
            self._emit_constant("i", 0)
            self._land(jump)
            if i:
                self.op(m.ADD_I)
        cells = Cells(number, "i" if kind == "b" else kind)
        self.op(m.CELL, builder.slot(builder.columns, cells))

    def _emit_navigation(self, leaf: Navigation, kind: str) -> None:
        place = self._place(leaf)
        if leaf.row.column == CLASSIFIER:
            self.op(m.LABEL, 0, place, leaf.shift)
            return
        column = self._column(leaf.row, kind)
        self.op(m.LOAD_F if kind == "f" else m.LOAD_I, column, place, leaf.shift)

    def _emit_leaf(self, leaf: Leaf, kind: str) -> None:
        assert not isinstance(leaf, Given)  # refused in DEFINE
        if isinstance(leaf, MatchNumber):
            self.op(m.NUMBER)
            return
        if isinstance(leaf, Navigation):
            self._emit_navigation(leaf, kind)
            return
        assert isinstance(leaf, MatchAggregate)
        inside = leaf.variables is None or self.variable in leaf.variables
        chosen = self.builder.slot(self.builder.sets, leaf.variables)
        if leaf.function in ("avg", "mean"):
            self._emit_sum(replace(leaf, function="sum"), "f", chosen, inside)
            self._emit_sum(replace(leaf, function="count"), "i", chosen, inside)
            self.op(m.TO_F)
            self.op(m.DIV_F)
            return
        self._emit_sum(leaf, kind, chosen, inside)

    def _emit_sum(self, leaf: MatchAggregate, kind: str, chosen: int, inside: bool) -> None:
        function = leaf.function
        column, is_float = -1, kind == "f"
        argument = aggregated(leaf)
        if argument is not None:
            stored = kind if function != "count" else "n"
            column = self._column(argument, stored)
        kinds = {
            "count": (f.COUNT, f.COUNT), "sum": (f.SUM_I, f.SUM_F), "min": (f.MIN_I, f.MIN_F),
            "max": (f.MAX_I, f.MAX_F), "bool_and": (f.MIN_I, f.MIN_I),
            "bool_or": (f.MAX_I, f.MAX_I),
            "arbitrary": (f.ANY_I, f.ANY_F), "any_value": (f.ANY_I, f.ANY_F),
        }  # fmt: skip
        entry = (chosen, kinds[function][is_float], column)
        slot = self.builder.slot(self.builder.sum_slots, entry)
        self.op(m.AGG_F if is_float else m.AGG_I, slot, int(inside))


class OperatorCode(LoadCode, ABC):
    @abstractmethod
    def _emit_call(self, node: Any, kind: str) -> None:
        """Emit a function, a CAST or an EXTRACT with a value of type ``kind``."""

    def emit(self, node: Any, want: str) -> None:
        kind = self.type_of(node)
        if kind == "i" and want == "f" and id(node) in self.constants:
            self._emit_constant("f", float(self.constants[id(node)][1]))
            return
        self._emit(node, kind)
        if kind == "i" and want == "f":
            self.op(m.TO_F)

    def _emit(self, node: Any, kind: str) -> None:
        if id(node) in self.constants:
            self._emit_constant(*self.constants[id(node)])
        elif id(node) in self.lifted:
            self._emit_navigation(self.lifted[id(node)], kind)
        elif id(node) in self.tabulated:
            self._emit_table(self.tabulated[id(node)], kind)
        elif leaf_index(node) is not None:
            self._emit_leaf(self.leaves[leaf_index(node) or 0], kind)
        elif isinstance(node, exp.Paren):
            self._emit(node.this, kind)
        elif isinstance(node, exp.Neg):
            self.emit(node.this, kind)
            self.op(m.NEG_F if kind == "f" else m.NEG_I)
        elif isinstance(node, exp.And | exp.Or):
            parts = list(node.flatten())
            self.emit(parts[0], "b")
            for part in parts[1:]:
                self.emit(part, "b")
                self.op(m.AND if isinstance(node, exp.And) else m.OR)
        elif isinstance(node, exp.Not):
            self.emit(node.this, "b")
            self.op(m.NOT)
        elif isinstance(node, exp.Is):
            self._emit_is(node)
        elif isinstance(node, exp.Between):
            self._compare(exp.GTE, node.this, node.args["low"], node.args["high"])
            self._compare(exp.LTE, node.this, node.args["high"], node.args["low"])
            self.op(m.AND)
            if node.args.get("symmetric"):
                self._compare(exp.GTE, node.this, node.args["high"], node.args["low"])
                self._compare(exp.LTE, node.this, node.args["low"], node.args["high"])
                self.op(m.AND)
                self.op(m.OR)
        elif isinstance(node, exp.In):
            for i, item in enumerate(node.expressions):
                self._compare(exp.EQ, node.this, item, *node.expressions)
                if i:
                    self.op(m.OR)
        elif isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            self._emit_distinct(node)
        elif isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.IntDiv | exp.Mod):
            self._emit_arithmetic(node, kind)
        elif isinstance(node, exp.Case):
            self._emit_case(node, kind)
        elif isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.EQ | exp.NEQ):
            self._compare(type(node), node.this, node.expression)
        else:
            self._emit_call(node, kind)

    def _emit_is(self, node: Any) -> None:
        self.emit(node.this, "")
        if isinstance(node.expression, exp.Null):
            self.op(m.IS_NULL)
            return
        if not node.expression.this:
            self.op(m.NOT)
        self._true_or_false()

    def _true_or_false(self) -> None:
        """Turn unknown into false."""
        jump = self.op(m.JUMP_NOT_NULL)
        self._emit_constant("b", 0)
        self._land(jump)

    def _compare(self, how: Any, left: Any, right: Any, *others: Any) -> None:
        kind = self._unify([left, right, *others], left)
        if how in (exp.GT, exp.GTE):
            left, right = right, left
        self.emit(left, kind)
        base = m.LT_F - m.LT_I if kind == "f" else 0
        op = {exp.LT: m.LT_I, exp.GT: m.LT_I, exp.LTE: m.LE_I, exp.GTE: m.LE_I}.get(how, m.EQ_I)
        self._with_right(op + base, right, kind)
        if how is exp.NEQ:
            self.op(m.NOT)

    def _emit_distinct(self, node: Any) -> None:
        self._compare(exp.EQ, node.this, node.expression)
        # null only if a side is null; then equal if both are
        jump = self.op(m.JUMP_NOT_NULL)
        for side in (node.this, node.expression):
            self.emit(side, "")
            self.op(m.IS_NULL)
        self.op(m.AND)
        self._land(jump)
        if isinstance(node, exp.NullSafeNEQ):
            self.op(m.NOT)

    def _emit_arithmetic(self, node: Any, kind: str) -> None:
        self.emit(node.this, kind)
        ops = {
            exp.Add: (m.ADD_I, m.ADD_F), exp.Sub: (m.SUB_I, m.SUB_F), exp.Mul: (m.MUL_I, m.MUL_F),
            exp.Div: (m.DIV_F, m.DIV_F), exp.IntDiv: (m.DIV_I, m.DIV_F),
            exp.Mod: (m.MOD_I, m.MOD_F),
        }  # fmt: skip
        self._with_right(ops[type(node)][kind == "f"], node.expression, kind)

    def _with_right(self, op: int, right: Any, kind: str) -> None:
        """Emit a binary operation; a constant right operand is fused into it."""
        begun = len(self.code)
        self.emit(right, kind)
        last = self.code[begun:]
        if len(last) == 1 and last[0][0] in (m.CONST_I, m.CONST_F):
            self.code[begun:] = [(op, last[0][1], 1, 0)]
        else:
            self.op(op)

    def _emit_case(self, node: Any, kind: str) -> None:
        ends = []
        for branch in node.args["ifs"]:
            if node.this is not None:
                self._compare(exp.EQ, node.this, branch.this)
            else:
                self.emit(branch.this, "b")
            miss = self.op(m.JUMP_NOT_TRUE)
            self.emit(branch.args["true"], kind)
            ends.append(self.op(m.JUMP))
            self._land(miss)
        default = node.args.get("default")
        if default is None:
            self.op(m.CONST_NULL)
        else:
            self.emit(default, kind)
        for end in ends:
            self._land(end)

    def _choose(self, then: Any, otherwise: Any, kind: str) -> None:
        miss = self.op(m.JUMP_NOT_TRUE)
        self.keep.append(then)
        self.emit(then, kind)
        end = self.op(m.JUMP)
        self._land(miss)
        self.emit(otherwise, kind)
        self._land(end)


class FunctionCode(OperatorCode):
    def _emit_call(self, node: Any, kind: str) -> None:
        if isinstance(node, exp.Cast):
            self._emit_cast(node, kind)
        elif isinstance(node, exp.Pow):
            self.emit(node.this, "f")
            self.emit(node.expression, "f")
            self.op(m.CALL2_F, 0, 0, POWER)
        elif isinstance(node, exp.Extract):
            self._emit_part(node.name.lower(), node.expression)
        else:
            self._emit_function(node, kind)

    def _emit_function(self, node: Any, kind: str) -> None:
        name, arguments = self._function(node), self._arguments(node)
        if name in ("coalesce", "ifnull", "nvl"):
            jumps = []
            for i, argument in enumerate(arguments):
                self.emit(argument, kind)
                if i < len(arguments) - 1:
                    jumps.append(self.op(m.JUMP_NOT_NULL))
            for jump in jumps:
                self._land(jump)
        elif name in ("greatest", "least"):
            self._emit_extreme(arguments, kind, name == "greatest")
        elif name == "nullif":
            self._compare(exp.EQ, arguments[0], arguments[1])
            self._choose(exp.Null(), arguments[0], kind)
        elif name == "if":
            self.emit(arguments[0], "b")
            self._choose(arguments[1], arguments[2], kind)
        elif name == "sign":
            source = self.type_of(arguments[0])
            zero = exp.Literal.number(0)
            self.keep.append(zero)
            self.constants[id(zero)] = (source, 0)
            self.types[id(zero)] = source
            self._compare(exp.GT, arguments[0], zero)
            self._compare(exp.LT, arguments[0], zero)
            self.op(m.SUB_I)
        elif name in ("date_diff", "datediff"):
            unit = self.text_of(arguments[0]).rstrip("s")
            size = self._ticks_of("day" if unit == "week" else unit)
            for argument in (arguments[2], arguments[1]):
                self._emit_floor(argument, size)
            self.op(m.SUB_I)
            if unit == "week":  # DuckDB divides days by seven
                self._emit_constant("i", 7)
                self.op(m.DIV_I)
        elif name in ("date_sub", "datesub"):
            self.emit(arguments[2], "t")
            self.emit(arguments[1], "t")
            self.op(m.SUB_I)
            self._emit_constant("i", self._ticks_of(self.text_of(arguments[0]).rstrip("s")))
            self.op(m.DIV_I)
        elif name in ("date_trunc", "datetrunc"):
            self.emit(arguments[1], "t")
            self._emit_trunc(arguments[1], self.text_of(arguments[0]).rstrip("s"))
        elif name == "date_add":
            self.emit(arguments[0], "t")
            self.emit(arguments[1], "d")
            self.op(m.ADD_I)
        elif name in ("date_part", "datepart"):
            self._emit_part(self.text_of(arguments[0]), arguments[1])
        elif name == "epoch":
            self._emit_part("epoch", arguments[0])
        elif name == "epoch_ms":
            kind = self.type_of(arguments[0])
            self.emit(arguments[0], kind)
            if kind == "t":  # so that the division rounds toward minus infinity
                self._emit_trunc(arguments[0], "millisecond")
            self._emit_constant("i", self._ticks_of("millisecond"))
            self.op(m.DIV_I)
        elif name in MAKERS:
            self.emit(arguments[0], "i")
            self._emit_constant("i", self._ticks_of(name[3:-1]))
            self.op(m.MUL_I)
        elif name in ("isnan", "isinf", "isfinite"):
            self._emit_test(name, arguments[0])
        elif name in TWO and len(arguments) == 2 and kind == "f":
            self.emit(arguments[0], "f")
            self.emit(arguments[1], "f")
            self.op(m.CALL2_F, 0, 0, TWO[name])
        elif name == "mod":
            self.emit(arguments[0], kind)
            self.emit(arguments[1], kind)
            self.op(m.MOD_F if kind == "f" else m.MOD_I)
        else:
            self.emit(arguments[0], kind)
            if name == "abs":
                self.op(m.ABS_F if kind == "f" else m.ABS_I)
            elif kind == "f":
                self.op(m.CALL_F, ONE[name])

    def _emit_cast(self, node: Any, kind: str) -> None:
        wanted, source = str(node.to.this.name), self.type_of(node.this)
        if kind == "b" and source != "b":
            self.emit(node.this, source)
            self._emit_constant(source, 0)
            self.op(m.EQ_F if source == "f" else m.EQ_I)
            self.op(m.NOT)
            return
        self.emit(node.this, "f" if kind == "f" else source)
        if kind == "f" and source == "b":
            self.op(m.TO_F)
        if kind == "f" and wanted == "FLOAT":
            self.op(m.CALL_F, TO_FLOAT32)
        if kind == "i" and source == "f":
            self.op(m.TO_I)
        if kind == "i" and wanted != "BIGINT":
            self.op(m.FIT, *INTEGERS[wanted])
        if wanted == "DATE":
            self._emit_trunc(node.this, "day")

    def _ticks_of(self, unit: str) -> int:
        return UNIT_US[unit] * (1000 if self.builder.unit == "ns" else 1)

    def _emit_part(self, part: str, of: Any) -> None:
        part = part.rstrip("s")
        self.emit(of, self.type_of(of))
        if part == "epoch":
            self.op(m.TO_F)
            self._emit_constant("f", self._ticks_of("second"))
            self.op(m.DIV_F)
            return
        self._emit_constant("i", self._ticks_of(part))
        self.op(m.DIV_I)
        if INTERVAL_PARTS[part] is not None:
            self._emit_constant("i", INTERVAL_PARTS[part])
            self.op(m.MOD_I)

    def _emit_trunc(self, node: Any, unit: str) -> None:
        """Truncate to a unit; the value of the node is already on the stack."""
        size = self._ticks_of(unit)
        offset = 3 * size // 7 if unit == "week" else 0  # 1970-01-01 was a Thursday
        # x - (((x + offset) mod size) + size) mod size
        self.emit(node, "t")
        self._emit_constant("i", offset)
        self.op(m.ADD_I)
        for op in (m.MOD_I, m.ADD_I, m.MOD_I):
            self._emit_constant("i", size)
            self.op(op)
        self.op(m.SUB_I)

    def _emit_test(self, name: str, node: Any) -> None:
        """ISNAN, ISINF and ISFINITE: NaN equals itself and is the greatest value."""
        self.emit(node, "f")
        if name != "isnan":
            self.op(m.ABS_F)
        self._emit_constant("f", float("nan" if name == "isnan" else "inf"))
        self.op(m.LT_F if name == "isfinite" else m.EQ_F)

    def _emit_extreme(self, arguments: list[Any], kind: str, greatest: bool) -> None:
        least, most = (m.LEAST_F, m.GREATEST_F) if kind == "f" else (m.LEAST_I, m.GREATEST_I)
        self.emit(arguments[0], kind)
        for argument in arguments[1:]:
            self.emit(argument, kind)
            self.op(most if greatest else least)

    def _emit_floor(self, node: Any, size: int) -> None:
        """Whole units since the epoch, rounded toward minus infinity."""
        self.emit(node, "t")
        # floor(x / size) = (x - ((x mod size) + size) mod size) / size
        for op in (m.MOD_I, m.ADD_I, m.MOD_I):
            self._emit_constant("i", size)
            self.op(op)
        self.op(m.NEG_I)
        self.emit(node, "t")
        self.op(m.ADD_I)
        self._emit_constant("i", size)
        self.op(m.DIV_I)


def compile_condition(builder: BytecodeBuilder, scalar: Any, bound: Bound, variable: str) -> int:
    """Compile the condition of a variable; returns its number.  Raises Unsupported."""
    task = FunctionCode(builder, bound.leaves, variable)
    if task.type_of(scalar) not in ("b", "n"):
        raise Unsupported("a condition must be true or false", scalar)
    task.emit(scalar, "b")
    return builder.add(task.code)
