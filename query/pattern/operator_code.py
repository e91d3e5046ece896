"""Code generation for operators: three-valued logic, comparisons, arithmetic, CASE."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from sqlglot import exp

from . import machine as m
from .load_code import LoadCode
from .typed import leaf_index

__all__ = ["OperatorCode"]


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
