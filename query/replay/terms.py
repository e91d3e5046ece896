"""Terms: what an index can look up of a condition on one event.

Purpose
    A condition is a conjunction; :func:`index_terms` makes a :class:`Term` of each conjunct that is
    a choice of ranges over attributes, and of those that an index on two attributes answers
    together.

Guarantee
    Sound: an event that satisfies the condition satisfies every term.
"""

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
    """A condition that indexes can look up: any of its atoms.

    Attributes
    ----------
    atoms : tuple of Range, IsNull or NotNull
        Perhaps on several attributes; all of them must be indexed for the term to be of use.
    back : int
        How many events before an event decide whether it satisfies the term.
    inside : int or None
        These belong to the match, so they lie no further before it than so many ticks.
    text : str
        The condition for people, where the atoms do not say it.
    needs : tuple of Bounded
        Where these do not hold, the term says nothing.
    """

    atoms: tuple[Atom, ...]
    back: int = 0
    inside: int | None = None
    text: str = ""
    needs: tuple[Bounded, ...] = ()

    @lazy
    def attributes(self) -> tuple[str, ...]:
        """Attributes that it needs indexes on."""
        return tuple(dict.fromkeys(atom.column for atom in self.atoms))

    @lazy
    def _hashed(self) -> int:
        return hash(self.atoms)

    def __hash__(self) -> int:  # planning looks terms up many times
        return self._hashed


def index_terms(
    prune: Prune | None, schema: StreamSchema, indexed: frozenset[str] = frozenset()
) -> tuple[Term, ...]:
    """Conjuncts of a condition that indexes could look up; those on pairs in place of theirs."""
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
    """One atom that a condition implies; of a conjunction the first."""
    if isinstance(prune, AllOf):
        atoms = (_atom(item, schema) for item in merged(prune))
        return next((atom for atom in atoms if atom is not None), None)
    if not isinstance(prune, Range | IsNull | NotNull) or prune.column == schema.time:
        return None
    if prune.column in schema and schema.attribute(prune.column).storage is Storage.DECIMAL:
        return None
    return prune


def merged(prune: Prune | None) -> list[Prune]:
    """Conjuncts, with the ranges on one column made one."""
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
    """The intersection of two ranges on one column."""
    low, low_open = a.low, a.low_open
    if b.low is not None and (low is None or b.low > low or (b.low == low and b.low_open)):  # type: ignore[operator]
        low, low_open = b.low, b.low_open
    high, high_open = a.high, a.high_open
    if b.high is not None and (high is None or b.high < high or (b.high == high and b.high_open)):  # type: ignore[operator]
        high, high_open = b.high, b.high_open
    return Range(a.column, low, high, low_open, high_open)
