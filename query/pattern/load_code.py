"""Code generation for loads: constants, columns of rows, labels, aggregates, cells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sqlglot import exp

from . import functions as f
from . import machine as m
from .binding import CLASSIFIER, Leaf, MatchAggregate, MatchNumber, Navigation, RowExpression
from .bytecode import BytecodeBuilder, Cells, Codes, Column, MatchRow
from .cells import Tabulated
from .leaves import Given
from .typed import TypedCondition, Unsupported, aggregated

__all__ = ["LoadCode"]

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
