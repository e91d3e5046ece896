"""Code generation for functions: CAST, COALESCE, GREATEST, named arithmetic, and parts of times.
Times are integer ticks; DATE_DIFF and DATE_TRUNC round toward minus infinity.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from . import machine as m
from .binding import Bound
from .bytecode import BytecodeBuilder
from .functions import ONE, POWER, TO_FLOAT32, TWO
from .operator_code import OperatorCode
from .typed import INTEGERS, INTERVAL_PARTS, MAKERS, UNIT_US, Unsupported

__all__ = ["compile_condition"]


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
