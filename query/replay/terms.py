"""Terms: conditions on one event that indexes can look up, implied by the event's condition."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.caches import lazy
from ...schema import Storage, StreamSchema
from ...store.prune import AllOf, AnyOf, IsNull, NotNull, Prune, Range
from .pair_terms import pair_terms
from .rounded_sums import Bounded

__all__ = ["Atom", "Term", "index_terms", "merged"]

Atom = Range | IsNull | NotNull


@dataclass(frozen=True)
class Term:
    """A disjunction of atoms; all of their attributes must be indexed.  ``back``: how many earlier
    events decide whether an event satisfies it; ``inside``: these belong to the match, so they lie
    at most so many ticks before; ``text``: for EXPLAIN, if the atoms are internal; without all
    ``needs`` the term implies nothing.
    """

    atoms: tuple[Atom, ...]
    back: int = 0
    inside: int | None = None
    text: str = ""
    needs: tuple[Bounded, ...] = ()

    @lazy
    def attributes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(atom.column for atom in self.atoms))

    @lazy
    def _hashed(self) -> int:
        return hash(self.atoms)

    def __hash__(self) -> int:  # planning looks terms up many times
        return self._hashed


def index_terms(
    prune: Prune | None, schema: StreamSchema, indexed: frozenset[str] = frozenset()
) -> tuple[Term, ...]:
    """Conjuncts that indexes could look up; pair terms replace their conjuncts."""
    items = merged(prune)
    terms = []
    for found in pair_terms(items, indexed, schema):
        terms.append(Term(found.atoms, text=found.text))
        items = [item for item in items if item not in found.instead_of]
    for item in items:
        if isinstance(item, AnyOf):
            atoms = [_atom(choice, schema) for choice in item.items]
            if atoms and None not in atoms:
                terms.append(Term(tuple(atom for atom in atoms if atom is not None)))
        elif (atom := _atom(item, schema)) is not None:
            terms.append(Term((atom,)))
    return tuple(terms)


def _atom(prune: Prune, schema: StreamSchema) -> Atom | None:
    if isinstance(prune, AllOf):
        atoms = (_atom(item, schema) for item in merged(prune))
        return next((atom for atom in atoms if atom is not None), None)
    if not isinstance(prune, Range | IsNull | NotNull) or prune.column == schema.time:
        return None
    if prune.column in schema and schema.attribute(prune.column).storage is Storage.DECIMAL:
        return None
    return prune


def merged(prune: Prune | None) -> list[Prune]:
    """The conjuncts, with the ranges on each column intersected."""
    if prune is None:
        return []
    if not isinstance(prune, AllOf):
        return [prune]
    ranges: dict[str, Range] = {}
    others: list[Prune] = []
    for item in prune.items:
        if isinstance(item, AllOf):
            others.extend(merged(item))
        elif isinstance(item, Range):
            known = ranges.get(item.column)
            ranges[item.column] = item if known is None else _both(known, item)
        else:
            others.append(item)
    kept = [o for o in others if not (isinstance(o, NotNull) and o.column in ranges)]
    return [*ranges.values(), *kept]


def _both(a: Range, b: Range) -> Range:
    low, low_open = a.low, a.low_open
    if b.low is not None and (low is None or b.low > low or (b.low == low and b.low_open)):  # type: ignore[operator]
        low, low_open = b.low, b.low_open
    high, high_open = a.high, a.high_open
    if b.high is not None and (high is None or b.high < high or (b.high == high and b.high_open)):  # type: ignore[operator]
        high, high_open = b.high, b.high_open
    return Range(a.column, low, high, low_open, high_open)
