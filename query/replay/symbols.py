"""From a row pattern to basic blocks: the symbols that every match must contain, and where.

Purpose
    Thesis sections 3.4.1, 3.4.2 and 3.4.4.  :func:`outline` rewrites a pattern to basic symbols
    and gaps (``true*``) so that every match of the pattern is one of the outline; conditions are
    reduced to ranges over single attributes.  What cannot be used becomes ``true``.

Layout
    Table 3.2, with tighter rows where they cost nothing::

        X+        X gap                     X{2,5}     X X gap            X? X*      gap
        X{3}      X X X                     (X | Y)    one symbol: X or Y (equal, fixed lengths)
        (X Y | Z) true gap                  PERMUTE(X, Y)   (X or Y) (X or Y)
        {- X -}   X                         ^ $ [^X]   nothing

    Of PERMUTE(X, Y) every event is one of X or Y.  Where no index finds that, because a part has no
    condition or one on another attribute, but one finds X, the outline is gap X gap: X lies
    somewhere among events that are as few as the pattern says.

        pattern  (A, (B, C+)+, D)  ->  A B C gap D  ->  blocks (A B C) (D)

    A *term* is a disjunction of ranges over indexed attributes that every event of its symbol
    satisfies; a symbol whose condition is a conjunction has several, at the same place.

Guarantee
    Sound: a match of the pattern matches the outline, event by event.  Never complete: what an
    outline finds is a place to run the pattern, not a match.

Limits
    Beyond :data:`SYMBOLS_MAX` symbols the rest of a pattern is a gap.  A gap forgets its upper
    bound except in ``longest``, the greatest number of events of a whole match.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from ...lazy import lazy
from ...schema import Storage, StreamSchema
from ...store.prune import AllOf, AnyOf, IsNull, Never, NotNull, Prune, Range
from ..conditions.constants import Folder
from ..conditions.predicates import PredicateCompiler
from ..pattern.binding import CLASSIFIER, Bound, Navigation
from ..pattern.compiled import CompiledMatch
from ..pattern.typed import leaf_index
from ..sql.pattern_tree import (
    Alternation,
    Concatenation,
    Exclusion,
    Pattern,
    Permutation,
    Quantified,
    Variable,
)

__all__ = [
    "Block",
    "Outline",
    "Symbol",
    "Term",
    "condition_prune",
    "index_terms",
    "known_outline",
    "outline",
]

SYMBOLS_MAX = 128

Atom = Range | IsNull | NotNull


@dataclass(frozen=True)
class Term:
    """A condition that indexes can look up: any of its atoms.

    Attributes
    ----------
    atoms : tuple of Range, IsNull or NotNull
        Perhaps on several attributes; all of them must be indexed for the term to be of use.
    """

    atoms: tuple[Atom, ...]

    @lazy
    def attributes(self) -> tuple[str, ...]:
        """Attributes that it needs indexes on."""
        return tuple(dict.fromkeys(atom.column for atom in self.atoms))

    @lazy
    def _hashed(self) -> int:
        return hash(self.atoms)

    def __hash__(self) -> int:  # planning looks terms up many times
        return self._hashed


@dataclass(frozen=True)
class Symbol:
    """One event that every match has.

    Attributes
    ----------
    name : str
        The pattern variable, or variables joined by ``|``.
    prune : Prune or None
        What the event satisfies; None for anything.
    """

    name: str
    prune: Prune | None
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True)
class Block:
    """A basic block: symbols at fixed distances from one another."""

    symbols: tuple[Symbol, ...]


@dataclass(frozen=True)
class Outline:
    """What every match looks like.

    Attributes
    ----------
    blocks : tuple of Block
        In the order of the pattern, with any number of events between neighbours.
    leading, trailing : bool
        Whether any number of events may come before the first and after the last block.
    longest : int or None
        Greatest number of events of a match, when it is a contiguous part of the stream.
    within : int or None
        Greatest distance in ticks of its last from its first event.
    contiguous : bool
        Whether blocks lie in neighbouring positions of the stream.
    impossible : bool
        Whether some symbol can be satisfied by no event.
    within_partition : Outline or None
        Under PARTITION BY the same symbols in the sequence of one partition, where they may be
        neighbours; None where matches may skip events there too.
    """

    blocks: tuple[Block, ...]
    leading: bool
    trailing: bool
    longest: int | None
    within: int | None
    contiguous: bool
    impossible: bool
    within_partition: Outline | None = None

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """All symbols in order."""
        return tuple(symbol for block in self.blocks for symbol in block.symbols)

    @property
    def bounded(self) -> bool:
        """Whether a match is bounded in time, or in events of the stream or of its partition."""
        inner = self.within_partition
        return (
            self.within is not None
            or self.longest is not None
            or (inner is not None and inner.longest is not None)
        )

    def __str__(self) -> str:
        parts = ["gap"] if self.leading else []
        for number, block in enumerate(self.blocks):
            if number:
                parts.append("gap")
            parts.append("(" + " ".join(symbol.name for symbol in block.symbols) + ")")
        return " ".join([*parts, "gap"] if self.trailing else parts)


class _Gap:
    """Any number of events."""


_GAP = _Gap()
_Parts = list[Symbol | _Gap]


def known_outline(
    compiled: CompiledMatch, schema: StreamSchema, folder: Folder | None, indexed: frozenset[str]
) -> Outline:
    """:func:`outline`, made once for a clause: values of parameters stand in it already."""
    wanted = (schema, indexed, folder is None)
    known = compiled.outlined
    if known is None or known[0] != wanted:
        known = compiled.outlined = (wanted, outline(compiled, schema, folder, indexed=indexed))
    assert isinstance(known[1], Outline)
    return known[1]


def outline(
    compiled: CompiledMatch,
    schema: StreamSchema,
    folder: Folder | None = None,
    also: Prune | None = None,
    skipping: bool = False,
    indexed: frozenset[str] = frozenset(),
) -> Outline:
    """Rewrite a compiled clause.

    Parameters
    ----------
    compiled : CompiledMatch
        Over the attributes of a stream.
    folder : Folder, optional
        Knows the parameters of this execution.
    also : Prune, optional
        What every event satisfies, whatever its variable.
    skipping : bool
        The clause does not see all events: its neighbours need not be neighbours in the stream.
    indexed : frozenset of str
        Attributes with an index, for choosing among outlines.
    """
    folder = folder or Folder({}, dt.datetime.now(dt.timezone.utc))
    conditions = {
        name: condition_prune(bound, name, schema, folder)
        for name, bound in compiled.definitions.items()
    }
    known = _Known(conditions, schema, indexed)
    parts, longest = _rewrite(compiled.clause.pattern, known)
    if also is not None:
        parts = [
            part if isinstance(part, _Gap) else replace(part, prune=_and(part.prune, also))
            for part in parts
        ]
    neighbours = compiled.clause.selection in (None, "contiguous") and len(compiled.order_by) <= 1
    if skipping:
        return _outline(parts, None, False, compiled.within, schema)
    if not compiled.partition_by:
        return _outline(parts, longest, neighbours, compiled.within, schema)
    inner = _outline(parts, longest, True, compiled.within, schema) if neighbours else None
    found = _outline(parts, longest, False, compiled.within, schema)
    return replace(found, within_partition=inner)


def _and(prune: Prune | None, also: Prune) -> Prune:
    if prune is None or isinstance(also, Never):
        return also
    return prune if isinstance(prune, Never) else AllOf((prune, also))


def _outline(
    parts: _Parts, longest: int | None, contiguous: bool, within: int | None, schema: StreamSchema
) -> Outline:
    """Cut symbols and gaps into blocks."""
    blocks: list[list[Symbol]] = []
    leading, fresh = False, True
    for part in parts:
        if isinstance(part, _Gap):
            leading = leading or not blocks
            fresh = True
            continue
        if fresh or not contiguous:
            blocks.append([])
            fresh = False
        blocks[-1].append(Symbol(part.name, part.prune, index_terms(part.prune, schema)))
    trailing = bool(parts) and isinstance(parts[-1], _Gap)
    return Outline(
        tuple(Block(tuple(block)) for block in blocks),
        leading,
        trailing,
        longest if contiguous else None,
        within,
        contiguous,
        any(isinstance(s.prune, Never) for block in blocks for s in block),
    )


def condition_prune(
    bound: Bound, variable: str, schema: StreamSchema, folder: Folder
) -> Prune | None:
    """What a DEFINE condition says about the current row alone."""

    def column_of(node: Any) -> str | None:
        index = leaf_index(node) if isinstance(node, exp.Column) else None
        if index is None:
            return None
        leaf = bound.leaves[index]
        if not isinstance(leaf, Navigation) or leaf.first or leaf.offset or leaf.shift:
            return None
        if leaf.variables is not None and variable not in leaf.variables:
            return None
        name = leaf.row.column
        return None if name is None or name == CLASSIFIER or name not in schema else name

    prune = PredicateCompiler(schema, folder, column_of).compile(bound.scalar).prune
    if not isinstance(prune, AllOf):
        return prune
    parts = _merged(prune)  # both sides of BETWEEN are one range, for leaves and for indexes
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts)) if parts else None


@dataclass(frozen=True)
class _Known:
    """Conditions by variable, and what indexes can look up."""

    conditions: dict[str, Prune | None]
    schema: StreamSchema
    indexed: frozenset[str]

    def finds(self, prune: Prune | None) -> bool:
        """Whether indexes find the events that satisfy a condition."""
        terms = index_terms(prune, self.schema)
        return any(self.indexed.issuperset(term.attributes) for term in terms)


def _rewrite(node: Pattern, known: _Known) -> tuple[_Parts, int | None]:
    """Symbols and gaps of a pattern, and its greatest number of events."""
    if isinstance(node, Variable):
        return [Symbol(node.name, known.conditions.get(node.name))], 1
    if isinstance(node, Exclusion):
        return _rewrite(node.body, known)
    if isinstance(node, Concatenation):
        return _joined([_rewrite(part, known) for part in node.parts])
    if isinstance(node, Alternation):
        return _either([_rewrite(choice, known) for choice in node.choices])
    if isinstance(node, Permutation):
        return _permuted([_rewrite(part, known) for part in node.parts], known)
    if isinstance(node, Quantified):
        return _repeated(node, known)
    return [], 0


def _joined(found: list[tuple[_Parts, int | None]]) -> tuple[_Parts, int | None]:
    parts: _Parts = []
    total: int | None = 0
    for some, most in found:
        for part in some:
            if not (isinstance(part, _Gap) and parts and isinstance(parts[-1], _Gap)):
                parts.append(part)
        total = None if total is None or most is None else total + most
    if sum(isinstance(part, Symbol) for part in parts) > SYMBOLS_MAX:
        parts = [*parts[:SYMBOLS_MAX], _GAP]
    return parts, total


def _longest(found: list[tuple[_Parts, int | None]]) -> int | None:
    counts = [most for _, most in found]
    return None if None in counts else max((c for c in counts if c is not None), default=0)


def _either(found: list[tuple[_Parts, int | None]]) -> tuple[_Parts, int | None]:
    lengths = {sum(isinstance(p, Symbol) for p in parts) for parts, _ in found}
    fixed = all(not isinstance(part, _Gap) for parts, _ in found for part in parts)
    if fixed and len(lengths) == 1:
        columns = zip(*(parts for parts, _ in found), strict=True)
        return [_any_symbol(list(column)) for column in columns], _longest(found)
    return [*[Symbol("true", None)] * min(lengths), _GAP], _longest(found)


def _any_symbol(symbols: Sequence[Any]) -> Symbol:
    names = "|".join(dict.fromkeys(symbol.name for symbol in symbols))
    prunes = list(dict.fromkeys(symbol.prune for symbol in symbols))
    if None in prunes:
        return Symbol(names, None)
    possible = [prune for prune in prunes if not isinstance(prune, Never)]
    if not possible:
        return Symbol(names, Never())
    return Symbol(names, possible[0] if len(possible) == 1 else AnyOf(tuple(possible)))


def _permuted(found: list[tuple[_Parts, int | None]], known: _Known) -> tuple[_Parts, int | None]:
    _, most = _joined(found)
    symbols = [part for parts, _ in found for part in parts if isinstance(part, Symbol)]
    fixed = all(not isinstance(part, _Gap) for parts, _ in found for part in parts)
    if not symbols:
        return [_GAP], most
    anything = _any_symbol(symbols) if fixed else Symbol("true", None)
    if any(isinstance(symbol.prune, Never) for symbol in symbols):
        anything = Symbol(anything.name, Never())  # all of the parts are needed
    elif not known.finds(anything.prune):
        lookups = [symbol for symbol in symbols if known.finds(symbol.prune)]
        if lookups:
            equal = [symbol for symbol in lookups if _is_equality(symbol.prune)]
            return [_GAP, (equal or lookups)[0], _GAP], most
    return [*[anything] * len(symbols), *([] if fixed else [_GAP])], most


def _is_equality(prune: Prune | None) -> bool:
    return isinstance(prune, Range) and prune.low is not None and prune.low == prune.high


def _repeated(node: Quantified, known: _Known) -> tuple[_Parts, int | None]:
    body, most = _rewrite(node.body, known)
    symbols = sum(isinstance(part, Symbol) for part in body)
    longest = None if node.high is None or most is None else node.high * most
    if most == 0:
        return [], 0
    copies = min(node.low, SYMBOLS_MAX // max(1, symbols) + 1)
    found = [(body, most)] * copies
    if node.high != copies:
        found.append(([_GAP], None))
    parts, _ = _joined(found)
    return parts, longest


# ------------------------------------------------------------------------------------ terms


def index_terms(prune: Prune | None, schema: StreamSchema) -> tuple[Term, ...]:
    """Conjuncts of a condition that indexes could look up."""
    terms = []
    for item in _merged(prune):
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
        atoms = (_atom(item, schema) for item in _merged(prune))
        return next((atom for atom in atoms if atom is not None), None)
    if not isinstance(prune, Range | IsNull | NotNull) or prune.column == schema.time:
        return None
    return None if schema.attribute(prune.column).storage is Storage.DECIMAL else prune


def _merged(prune: Prune | None) -> list[Prune]:
    """Conjuncts, with the ranges on one column made one."""
    if prune is None:
        return []
    if not isinstance(prune, AllOf):
        return [prune]
    ranges: dict[str, Range] = {}
    others: list[Prune] = []
    for item in prune.items:
        if isinstance(item, AllOf):
            others.extend(_merged(item))
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
