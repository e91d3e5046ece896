"""Conditions of pattern variables as conjunctions of atoms, numbered once across queries.

===========  ====================================================================
Range        ``low <= key(column) <= high``
Member       the text is one of some constants
Null         the value is null
Residual     any other condition on one event, as SQL
===========  ====================================================================

A number's *key* is an integer with the same order (floats: from their bits, NaN greatest).  Atoms
come from the pattern's plan, so a symbol holds exactly where the variable's condition does.

A *card* is what a bank needs of a pattern, stored with its definition: automaton and atoms.
Compiling a clause takes milliseconds, so it is done only when a match is emitted.  A document of
another generation, or for other columns, is ignored and made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sqlglot
from sqlglot import exp

from ...core.times import INT64_MAX, INT64_MIN
from ...query.pattern import buffers as rt
from ...query.pattern.automaton import ACCEPT
from ...query.pattern.columns import flat, numbers
from ...query.pattern.compiled import CompiledMatch
from ...query.pattern.conditions import Test
from ...query.pattern.contiguous import stars_of
from ...query.pattern.match_stream import condition_columns
from ...query.pattern.matcher import SKIPS
from ...query.sql.rendering import identifier

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, order=True)
class Range:
    column: str
    low: int
    high: int


@dataclass(frozen=True, order=True)
class Member:
    column: str
    texts: tuple[str, ...]


@dataclass(frozen=True, order=True)
class Null:
    column: str


@dataclass(frozen=True, order=True)
class Residual:
    sql: str


Atom = Range | Member | Null | Residual


def float_keys(values: npt.NDArray[np.float64]) -> IntArray:
    bits = (values + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    keys = np.where(bits < 0, INT64_MIN - bits, bits)
    return np.where(np.isnan(values), INT64_MAX, keys).astype(np.int64)


def keys_of(column: pa.ChunkedArray | pa.Array) -> tuple[IntArray, npt.NDArray[np.bool_] | None]:
    """Keys of a numeric or time column, and their validity (None: all valid)."""
    array = flat(column)
    if pa.types.is_float64(array.type):
        values, valid = numbers(array, "f")
        return float_keys(np.asarray(values, np.float64)), valid
    values, valid = numbers(array, "i")
    return np.ascontiguousarray(values, np.int64), valid


def why_alone(compiled: CompiledMatch) -> str:
    """Why a pattern cannot share a bank; empty when it can."""
    plan, automaton = compiled.conditions, compiled.automaton
    if compiled.clause.selection is not None:
        return "it selects events"
    if compiled.clause.rows != "one":
        return "it puts out all rows of a match"
    if plan.path_dependent:
        return "a condition looks at the partial match"
    if compiled.history or compiled.lookahead:
        return "PREV or NEXT reads another event"
    if not plan.by_position:
        return "it has more than 64 positions"
    if automaton.empty_match or not automaton.positions:
        return "it can match no event"
    if any(edge.anchor or edge.absent for edges in automaton.edges for edge in edges):
        return "it has an anchor or an absence"
    if not compiled.in_time_order or len(compiled.order_by) > 1:
        return "it asks for an order of its own among events of one time"
    tests = plan.tests.tests
    if any(t.kind in (rt.COMPARE_F, rt.COMPARE_I) for t in tests):
        return "a condition compares two columns"
    has_condition = _tested_positions(compiled)
    for p, edges in enumerate(automaton.edges):
        loops = any(edge.target == p for edge in edges)
        ends = any(edge.target == ACCEPT for edge in edges)
        if p and not has_condition[p] and (ends or not loops):
            return f"nothing is asked of {automaton.names[p]}, and it is counted event by event"
    if any(edge.target > 0 and not has_condition[edge.target] for edge in automaton.edges[0]):
        return "it can begin with any event"
    return ""


def _tested_positions(compiled: CompiledMatch) -> list[bool]:
    tested = 0
    for test in compiled.conditions.tests.tests:
        tested |= test.bits
    bits = compiled.conditions.bit.tolist()
    return [p > 0 and bool(tested >> bit & 1) for p, bit in enumerate(bits)]


def atoms_of(compiled: CompiledMatch) -> dict[int, tuple[Atom, ...]]:
    """Conditions of a pattern that can share a bank, by the bits that they guard, normalised."""
    tests = compiled.conditions.tests
    texts = [query.sql for query in tests.queries]
    atoms_by_bits: dict[int, dict[Any, Atom]] = {}
    for test in tests.tests:
        for atom in _atoms(test, texts):
            if isinstance(atom, Member) and not _is_text(compiled, atom.column):
                atom = Residual(texts[test.a[1]])
            mine = atoms_by_bits.setdefault(test.bits, {})
            if isinstance(atom, Range):
                before = mine.get(atom.column)
                if isinstance(before, Range):
                    atom = Range(
                        atom.column, max(atom.low, before.low), min(atom.high, before.high)
                    )
                mine[atom.column] = atom
            else:
                mine[atom] = atom
    return {
        bits: tuple(sorted(atoms.values(), key=lambda a: (type(a).__name__, a)))
        for bits, atoms in atoms_by_bits.items()
    }


def _atoms(test: Test, queries: Sequence[str]) -> list[Atom]:
    if test.kind == rt.RANGE_F:
        ends = float_keys(np.array([test.low, test.high], np.float64)).tolist()
        return [Range(str(test.a[0]), ends[0], INT64_MAX if test.b else ends[1])]
    if test.kind == rt.RANGE_I:
        return [Range(str(test.a[0]), int(test.low), int(test.high))]
    what, detail = test.a
    if what == "valid":  # a range never holds for null
        return []
    if what == "true":  # a boolean column
        return [Residual(identifier(detail[0]))]
    return [_of_sql(queries[detail])]


def _is_text(compiled: CompiledMatch, column: str) -> bool:
    schema = compiled.columns.arrow
    return column in schema.names and pa.types.is_string(schema.field(column).type)


def _of_sql(sql: str) -> Atom:
    node = sqlglot.parse_one(sql, read="duckdb")
    while isinstance(node, exp.Paren):
        node = node.this
    column = node.this if isinstance(node, exp.EQ | exp.In | exp.Is) else None
    while isinstance(column, exp.Paren):
        column = column.this
    if isinstance(column, exp.Column) and not column.table:
        name = column.name
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return Null(name)
        values = node.expressions if isinstance(node, exp.In) else [node.expression]
        plain = all(isinstance(v, exp.Literal) and v.is_string for v in values)
        if values and plain and not isinstance(node, exp.Is) and not node.args.get("query"):
            return Member(name, tuple(sorted({v.this for v in values})))
    return Residual(sql)


GENERATION = 1
"""Increment with every change of a card's meaning or of the kernels that read it."""

Ints = tuple[int, ...]


class Shape(NamedTuple):
    first: Ints
    bit: Ints
    kind: Ints
    exits: Ints
    star_first: Ints
    star_last: Ints
    member: Ints
    target: Ints
    flag: Ints
    first_bits: int
    star_bits: int
    gap: int
    skip: int
    alone: bool


@dataclass(frozen=True)
class Card:
    """A pattern that can share a bank; ``conditions`` are bits and atoms, ``within`` ticks."""

    shape: Shape
    conditions: tuple[tuple[int, tuple[Atom, ...]], ...]
    partition_by: tuple[str, ...]
    within: int | None
    columns: tuple[tuple[str, str], ...]

    def fits(self, schema: pa.Schema) -> bool:
        return all(n in schema.names and str(schema.field(n).type) == t for n, t in self.columns)

    def to_json(self) -> dict[str, Any]:
        conditions = [
            [bits, [[type(atom).__name__, *asdict(atom).values()] for atom in atoms]]
            for bits, atoms in self.conditions
        ]
        return {
            "generation": GENERATION, "shape": self.shape._asdict(), "conditions": conditions,
            "partition_by": self.partition_by, "within": self.within, "columns": self.columns,
        }  # fmt: skip

    @classmethod
    def from_json(cls, body: Any) -> Card | None:
        """The card of a document; None for another generation or no document."""
        if not isinstance(body, dict) or body.get("generation") != GENERATION:
            return None
        shape: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in body["shape"].items()
        }
        conditions = tuple(
            (bits, tuple(_atom(*atom) for atom in atoms)) for bits, atoms in body["conditions"]
        )
        columns = tuple((name, kind) for name, kind in body["columns"])
        return cls(Shape(**shape), conditions, tuple(body["partition_by"]), body["within"], columns)


_ATOMS: dict[str, Any] = {kind.__name__: kind for kind in (Range, Member, Null, Residual)}


def _atom(kind: str, *values: Any) -> Atom:
    atom: Atom = _ATOMS[kind](*(tuple(v) if isinstance(v, list) else v for v in values))
    return atom


def card_of(compiled: CompiledMatch) -> Card:
    """The card of a pattern for which ``symbols.why_alone`` gives no reason."""
    assert not why_alone(compiled)
    names = dict.fromkeys([*compiled.partition_by, *condition_columns(compiled)])
    if compiled.columns.time is not None:
        names[compiled.columns.time] = None
    columns = tuple((name, str(compiled.columns.arrow.field(name).type)) for name in names)
    conditions = tuple(atoms_of(compiled).items())
    return Card(
        _shape(compiled), conditions, tuple(compiled.partition_by), compiled.within, columns
    )


def _ints(values: Sequence[Any] | np.ndarray[Any, Any]) -> Ints:
    return tuple(int(value) for value in values)


def _shape(compiled: CompiledMatch) -> Shape:
    automaton, plan = compiled.automaton, compiled.conditions
    skip = compiled.clause.skip
    chosen = compiled.variables.get(skip.variable, frozenset()) if skip else frozenset()
    tested = 0
    for test in plan.tests.tests:
        tested |= test.bits
    stars = stars_of(automaton, plan)
    first, target, flags = automaton.tables
    gap = first_bits = 0
    for p in range(1, len(automaton.names)):
        if not tested >> int(plan.bit[p]) & 1:
            gap |= 1 << int(plan.bit[p])
    for edge in automaton.edges[0]:
        if edge.target > 0:
            first_bits |= 1 << int(plan.bit[edge.target])
    alone = any(
        other.target < 0 for edge in automaton.edges[0] for other in automaton.edges[edge.target]
    )
    return Shape(
        _ints(first), _ints(plan.bit), _ints(stars.kind), _ints(stars.exits), _ints(stars.first),
        _ints(stars.last), _ints([name in chosen for name in automaton.names]), _ints(target),
        _ints(flags), first_bits, int(stars.bits), gap, SKIPS[skip.mode if skip else "past last"],
        alone,
    )  # fmt: skip
