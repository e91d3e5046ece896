"""Plans DEFINE: which conditions become bits of a word, and which become bytecode.

Each condition is split at its ANDs.  *Row-local* conjuncts read only the current row, or rows at
fixed distances (PREV, NEXT); ``buffers`` or DuckDB evaluates them for whole columns.  A word has
one bit per position of the automaton with up to 64 positions, otherwise one per variable.  Unknown
counts as false.  A value that cannot be computed is an error only when the search needs it
(``buffers``).  Absences ``[^X]`` need row-local conditions, which are evaluated on every event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from ...core.times import INT64_MAX, INT64_MIN
from ..contract.cancellation import checkpoint
from ..sql.dialect import to_text
from ..sql.gate import is_volatile
from ..sql.rendering import identifier as quote
from . import buffers as rt
from .automaton import Automaton
from .binding import (
    CLASSIFIER,
    Bound,
    Navigation,
    RowExpression,
    leaf_index,
    leaves_of,
    substitute,
)
from .buffers import PreparedRows, prepare
from .bytecode import BytecodeBuilder, Column, Unsupported, compile_condition

WORD_BITS = 64
_OPERATORS = {
    exp.LT: rt.LT, exp.LTE: rt.LE, exp.GT: rt.GT, exp.GTE: rt.GE, exp.EQ: rt.EQ, exp.NEQ: rt.NE,
}  # fmt: skip
_MIRROR = {rt.LT: rt.GT, rt.LE: rt.GE, rt.GT: rt.LT, rt.GE: rt.LE, rt.EQ: rt.EQ, rt.NE: rt.NE}

Source = tuple[str, int]


@dataclass
class Test:
    """A row-local test; TRUE_B has ``a = ("query", number)``, ``("valid", source)`` or
    ``("true", source)``.
    """

    kind: int
    bits: int
    a: Any = None
    b: Any = 0
    op: int = 0
    low: Any = None
    high: Any = None


@dataclass(frozen=True)
class RowQuery:
    """A boolean expression over a row; ``column``: the only column that decides it, if so."""

    sql: str
    column: str | None


@dataclass
class RowTests:
    """``answered``: values of encoded columns of the last rows, and what queries gave for them."""

    type_of: Callable[[RowExpression], pa.DataType]
    initial: int = 0
    tests: list[Test] = field(default_factory=list)
    queries: list[RowQuery] = field(default_factory=list)
    shifted: list[tuple[RowExpression, int]] = field(default_factory=list)
    answered: dict[str, tuple[pa.Array, list[rt.Answer]]] = field(default_factory=dict)

    def add(self, bits: int, node: Any, bound: Bound) -> None:
        checkpoint()
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Boolean) and node.this:
            return
        if not self._flag(bits, node, bound) and not self._range(bits, node, bound):
            query = self._query(node, bound)
            if query not in self.queries:
                self.queries.append(query)
            self.tests.append(Test(rt.TRUE_B, bits, a=("query", self.queries.index(query))))

    def _query(self, node: Any, bound: Bound) -> RowQuery:
        texts = {}
        read: set[str | None] = set()
        for index in leaves_of(node):
            leaf = bound.leaves[index]
            assert isinstance(leaf, Navigation)
            texts[index] = f"({leaf.row.sql})"
            read.update(leaf.row.columns)
            if leaf.shift:
                texts[index] = quote(f"@s{self._shifted(leaf.row, leaf.shift)}")
                read.add(None)
        if any(is_volatile(call.name) for call in node.find_all(exp.Anonymous)):
            read.add(None)
        return RowQuery(substitute(to_text(node), texts), read.pop() if len(read) == 1 else None)

    def _shifted(self, row: RowExpression, shift: int) -> int:
        if (row, shift) not in self.shifted:
            self.shifted.append((row, shift))
        return self.shifted.index((row, shift))

    def _source(self, node: Any, bound: Bound) -> tuple[Source, pa.DataType] | None:
        index = leaf_index(node)
        if index is None:
            return None
        leaf = bound.leaves[index]
        if not isinstance(leaf, Navigation) or leaf.row.column in (None, CLASSIFIER):
            return None
        return (str(leaf.row.column), leaf.shift), self.type_of(leaf.row)

    def _flag(self, bits: int, node: Any, bound: Bound) -> bool:
        source = self._source(node, bound)
        if source is None or source[0][1] or not pa.types.is_boolean(source[1]):
            return False
        self.tests.append(Test(rt.TRUE_B, bits, a=("true", source[0])))
        return True

    def _range(self, bits: int, node: Any, bound: Bound) -> bool:
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            source = self._source(node.this, bound)
            low, high = number_of(node.args["low"]), number_of(node.args["high"])
            if source is None or low is None or high is None:
                return False
            return self._limit(bits, *source, rt.GE, low) and self._limit(
                bits, *source, rt.LE, high
            )
        if type(node) not in _OPERATORS:
            return False
        op = _OPERATORS[type(node)]
        left, right = self._source(node.this, bound), self._source(node.expression, bound)
        if left is not None and right is not None:
            return self._compare(bits, left, right, op)
        if left is not None and (value := number_of(node.expression)) is not None:
            return self._limit(bits, *left, op, value)
        if right is not None and (value := number_of(node.this)) is not None:
            return self._limit(bits, *right, _MIRROR[op], value)
        return False

    def _compare(
        self,
        bits: int,
        left: tuple[Source, pa.DataType],
        right: tuple[Source, pa.DataType],
        op: int,
    ) -> bool:
        (a, type_a), (b, type_b) = left, right
        if type_a != type_b:
            return False
        if pa.types.is_float64(type_a):
            kind = rt.COMPARE_F
        elif pa.types.is_signed_integer(type_a) or pa.types.is_timestamp(type_a):
            kind = rt.COMPARE_I
        else:
            return False
        self.tests.append(Test(kind, bits, a=a, b=b, op=op))
        self._needs_value(bits, a)
        self._needs_value(bits, b)
        return True

    def _needs_value(self, bits: int, source: Source) -> None:
        test = Test(rt.TRUE_B, bits, a=("valid", source))
        if test not in self.tests:
            self.tests.append(test)

    def _limit(
        self, bits: int, source: Source, type_: pa.DataType, op: int, value: Decimal
    ) -> bool:
        if op == rt.NE:
            return False
        if pa.types.is_float64(type_):
            bound = float(value)
            kind = rt.RANGE_F
            low, high = float("-inf"), float("inf")
            if op in (rt.GE, rt.GT, rt.EQ):
                low = float(np.nextafter(bound, np.inf)) if op == rt.GT else bound
            if op in (rt.LE, rt.LT, rt.EQ):
                high = float(np.nextafter(bound, -np.inf)) if op == rt.LT else bound
            nan = op in (rt.GE, rt.GT)
        elif pa.types.is_signed_integer(type_):
            kind = rt.RANGE_I
            down = int(value.to_integral_value(ROUND_FLOOR))
            up = int(value.to_integral_value(ROUND_CEILING))
            if op == rt.EQ and up != down:
                return False
            limits = {
                rt.GE: (up, INT64_MAX), rt.GT: (down + 1, INT64_MAX), rt.LE: (INT64_MIN, down),
                rt.LT: (INT64_MIN, up - 1), rt.EQ: (down, down),
            }  # fmt: skip
            low, high = limits[op]
            if not all(INT64_MIN <= x <= INT64_MAX for x in (low, high)):
                return False
            nan = False
        else:
            return False
        for test in self.tests:
            if test.kind == kind and test.bits == bits and test.a == source:
                test.low, test.high = max(test.low, low), min(test.high, high)
                test.b = int(bool(test.b) and nan)
                return True
        self.tests.append(Test(kind, bits, a=source, b=int(nan), low=low, high=high))
        self._needs_value(bits, source)
        return True


def number_of(node: Any) -> Decimal | None:
    sign = 1
    while isinstance(node, exp.Neg | exp.Paren):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    if isinstance(node, exp.Literal) and not node.is_string:
        value = Decimal(node.name)
        return sign * value if value.is_finite() and abs(value) < Decimal("1e300") else None
    return None


@dataclass(frozen=True)
class Across:
    """A conjunct that compares the row of ``variable`` with the single rows of other variables
    ``reads`` (None: it needs more of the match).
    """

    variable: str
    number: int
    reads: tuple[str, ...] | None
    part: Any
    bound: Bound


@dataclass
class ConditionPlan:
    """All conditions of a clause.
    Per position its ``bit`` and its bytecode ``condition``, or -1.  ``by_position``: bits are
    positions, else variables.  ``history``, ``lookahead``: rows read around a row.  ``summary``:
    row-local conjuncts per variable, and others; ``across``: the others one by one.
    """

    tests: RowTests
    absences: RowTests
    builder: BytecodeBuilder
    bit: npt.NDArray[np.int64]
    condition: npt.NDArray[np.int64]
    by_position: bool
    history: int
    lookahead: int
    names: tuple[str, ...]
    bits_of: dict[str, int]
    summary: dict[str, tuple[list[Any], list[Any]]]
    across: tuple[Across, ...] = ()
    pairing: Any = field(default=None, init=False, repr=False, compare=False)
    image: tuple[Any, Any] | None = field(default=None, init=False, repr=False, compare=False)
    """Image and conditions, where these are the same for all rows."""

    @property
    def path_dependent(self) -> bool:
        return len(self.builder.begin) > 1

    @property
    def portable(self) -> bool:
        """Whether partial matches stay valid over another buffer (string codes do not)."""
        columns = self.builder.columns
        sources = [columns[source] for _, _, source in self.builder.sum_slots if source >= 0]
        return all(isinstance(c, Column) and c.kind != "s" for c in sources)

    def prepare(self, table: pa.Table, offsets: npt.NDArray[np.int64]) -> PreparedRows:
        return prepare(self, table, offsets)


def row_local(node: Any, bound: Bound, variable: str) -> bool:
    """Whether a conjunct reads only the current row and rows at fixed distances from it."""
    for index in leaves_of(node):
        leaf = bound.leaves[index]
        if not isinstance(leaf, Navigation) or leaf.first or leaf.offset:
            return False
        if CLASSIFIER in leaf.row.columns:
            return False
        if leaf.variables is not None and variable not in leaf.variables:
            return False
    return True


def _others(node: Any, bound: Bound, variable: str) -> tuple[str, ...] | None:
    """Other variables whose current row a conjunct reads; None if it reads anything else."""
    names: dict[str, None] = {}
    for index in leaves_of(node):
        leaf = bound.leaves[index]
        if not isinstance(leaf, Navigation) or leaf.offset or CLASSIFIER in leaf.row.columns:
            return None
        chosen = leaf.variables
        if (chosen is None or variable in chosen) and not leaf.first:
            continue
        if chosen is None or len(chosen) > 1 or variable in chosen:
            return None
        names.update(dict.fromkeys(chosen))
    return tuple(names)


def _conjuncts(node: Any) -> list[Any]:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        return [part for side in node.flatten() for part in _conjuncts(side)]
    return [node]


def row_tests(
    bounds: dict[str, Bound],
    type_of: Callable[[RowExpression], pa.DataType],
    fail: Callable[[str, Bound], Exception],
) -> RowTests:
    """Tests for row-local conditions, one bit each; ``fail`` makes the error for others."""
    tests = RowTests(type_of, initial=(1 << len(bounds)) - 1)
    for i, (name, bound) in enumerate(bounds.items()):
        for part in _conjuncts(bound.scalar):
            if not row_local(part, bound, name):
                raise fail(name, bound)
            tests.add(1 << i, part, bound)
    return tests


def _bits(
    automaton: Automaton, used: Sequence[str]
) -> tuple[npt.NDArray[np.int64], dict[str, int]]:
    """The bit of each position, and the mask of each variable: a bit of its own for each position,
    or with too many of them for each variable; those beyond the word share its last bit.
    """
    bit = np.zeros(len(automaton.names), np.int64)
    masks: dict[str, int] = {}
    by_position = automaton.positions <= WORD_BITS
    for p, name in enumerate(automaton.names[1:], 1):
        bit[p] = p - 1 if by_position else min(used.index(name), WORD_BITS - 1)
        masks[name] = masks.get(name, 0) | 1 << int(bit[p])
    return bit, masks


def plan_conditions(
    automaton: Automaton,
    bounds: dict[str, Bound],
    type_of: Callable[[RowExpression], pa.DataType],
    unit: str,
    fail: Callable[[str, Bound], Exception],
    *,
    apart: bool = False,
) -> ConditionPlan:
    """Split and compile the conditions of a clause.  ``fail`` makes the error for one that cannot
    be compiled.  ``apart``: also compile the conjuncts that are left to the matcher one by one.
    """
    by_position = automaton.positions <= WORD_BITS
    tests, absences = RowTests(type_of), RowTests(type_of)
    builder = BytecodeBuilder(type_of, unit)
    names = automaton.names
    condition = np.full(len(names), -1, np.int64)
    used = list(dict.fromkeys(names[1:]))
    bit, bits_of = _bits(automaton, used)
    for bits in bits_of.values():
        tests.initial |= bits
    # variables that share the last bit have no tests
    shared = set(used[WORD_BITS - 1 :]) if not by_position and len(used) > WORD_BITS else set()
    history = lookahead = 0
    summary: dict[str, tuple[list[Any], list[Any]]] = {}
    across: list[Across] = []
    for name, bound in bounds.items():
        local: list[Any] = []
        rest: list[Any] = []
        for part in _conjuncts(bound.scalar):
            (local if row_local(part, bound, name) and name not in shared else rest).append(part)
        summary[name] = (local, rest)
        if name in automaton.absences:
            absence = 1 << automaton.absences.index(name)
            absences.initial |= absence
            if rest:
                raise fail(
                    f"the condition of {name} must look at one row only, because [^{name}] is "
                    f"asked "
                    "of rows that are not part of the match", bound
                )  # fmt: skip
            for part in local:
                absences.add(absence, part, bound)
        if name in bits_of:
            for part in local:
                tests.add(bits_of[name], part, bound)
            if rest:
                node = rest[0] if len(rest) == 1 else exp.and_(*rest, copy=False)
                try:
                    number = compile_condition(builder, node, bound, name)
                except Unsupported as error:
                    raise fail(
                        f"the condition of {name} needs {error}, which cannot be computed while "
                        "the match grows; take it from the columns of events instead of an "
                        "aggregate, or filter on a measure in a query around the clause",
                        bound,
                    ) from None
                for p in range(1, len(names)):
                    if names[p] == name:
                        condition[p] = number
                for part in rest if apart else ():
                    own = number
                    if len(rest) > 1:
                        own = compile_condition(builder, part, bound, name)
                    reads = _others(part, bound, name)
                    across.append(Across(name, own, reads, part, bound))
        for leaf in bound.leaves:
            if isinstance(leaf, Navigation) and leaf.row.column != CLASSIFIER:
                history = max(history, -leaf.shift)
                lookahead = max(lookahead, leaf.shift)
    for name in automaton.absences:
        absences.initial |= 1 << automaton.absences.index(name)
    return ConditionPlan(
        tests, absences, builder, bit, condition, by_position, history, lookahead, names,
        bits_of, summary, tuple(across),
    )  # fmt: skip
