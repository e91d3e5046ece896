"""What a bank needs of a pattern, stored with its definition: automaton and atoms.

Compiling a clause takes milliseconds, so it is done only when a match is emitted.  A document of
another generation, or for other columns, is ignored and made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...query.pattern.compiled import CompiledMatch
from ...query.pattern.jumping import stars_of
from ...query.pattern.match_stream import condition_columns
from ...query.pattern.matcher import SKIPS
from .symbols import Atom, Member, Null, Range, Residual, atoms_of, why_alone

__all__ = ["GENERATION", "Card", "Shape", "card_of"]

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
    found: Atom = _ATOMS[kind](*(tuple(v) if isinstance(v, list) else v for v in values))
    return found


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
