"""From a row pattern to symbols (one event) and gaps (any number of events).

Thesis section 3.4.1.  ``rewrite`` applies Table 3.2, with tighter rows where they cost nothing::

    X+        X gap                     X{2,5}     X X gap            X? X*      gap
    X{3}      X X X                     (X | Y)    one symbol: X or Y (equal, fixed lengths)
    (X Y | Z) true gap                  PERMUTE(X, Y)   (X or Y) (X or Y)
    {- X -}   X                         ^ $ [^X]   nothing

If a condition of Y refers to X, X must come first and PERMUTE(X, Y) becomes X Y.  If an index finds
X, another outline is gap X gap.  *Apart*, alternatives are listed, at most ``APART_MAX``::

    PERMUTE(X, Y)  ->  X Y ; Y X        W (X Y | Z)  ->  W X Y ; W Z

Sound: a match is, event by event, one of the results.  After ``SYMBOLS_MAX`` symbols comes a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from ...schema import StreamSchema
from ...store.prune import AnyOf, Never, Prune, Range
from ..sql.pattern_tree import (
    Alternation,
    Concatenation,
    Exclusion,
    Pattern,
    Permutation,
    Quantified,
    Variable,
)
from .bands import Condition
from .terms import Term, index_terms

__all__ = ["APART_MAX", "Gap", "Known", "Parts", "Symbol", "TooMany", "rewrite"]

SYMBOLS_MAX = 128
APART_MAX = 6
"""Alternatives that are listed: all orders of three."""


class TooMany(Exception):
    """A pattern has more than ``APART_MAX`` alternatives, or none."""


@dataclass(frozen=True)
class Symbol:
    """One event that every match has.  ``name``: the variable, or variables joined by ``|``;
    ``prune``: what the event satisfies (None: anything); ``variables``: its event carries one of
    these.
    """

    name: str
    prune: Prune | None
    terms: tuple[Term, ...] = ()
    variables: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Gap:
    """Any number of events with some of the variables; at most ``most`` if no event is skipped."""

    variables: frozenset[str]
    most: int | None = None


@dataclass(frozen=True)
class Parts:
    """Symbols and gaps in order, and the maximum number of their events (None: unbounded)."""

    items: tuple[Symbol | Gap, ...] = ()
    most: int | None = 0

    @property
    def symbols(self) -> list[Symbol]:
        return [item for item in self.items if isinstance(item, Symbol)]

    @property
    def carried(self) -> frozenset[str]:
        return frozenset(name for item in self.items for name in item.variables)


@dataclass(frozen=True)
class Known:
    """Conditions by variable, and what indexes can look up.  ``derived``: terms on derived values;
    ``between``: comparisons with other variables; ``once``: variables with a single place in the
    pattern; ``option``: which outline of PERMUTE to take, if not ``apart``; ``options`` is an
    output: the number of outlines of each PERMUTE.
    """

    conditions: dict[str, Prune | None]
    schema: StreamSchema
    indexed: frozenset[str]
    derived: dict[str, tuple[Term, ...]]
    between: dict[str, tuple[Condition, ...]]
    once: frozenset[str]
    option: int = 0
    apart: bool = False
    options: list[int] = field(default_factory=list)

    def finds(self, prune: Prune | None) -> bool:
        """Whether indexes can look up the events that satisfy a condition."""
        terms = index_terms(prune, self.schema)
        return any(self.indexed.issuperset(term.attributes) for term in terms)


def rewrite(node: Pattern, known: Known) -> list[Parts]:
    """Symbols and gaps of a pattern; with ``apart`` one result per alternative, or ``TooMany``."""
    if isinstance(node, Variable):
        terms = known.derived.get(node.name, ())
        own = frozenset((node.name,))
        return [Parts((Symbol(node.name, known.conditions.get(node.name), terms, own),), 1)]
    if isinstance(node, Exclusion):
        return rewrite(node.body, known)
    if isinstance(node, Concatenation):
        return _each([rewrite(part, known) for part in node.parts])
    if isinstance(node, Alternation):
        found = [rewrite(choice, known) for choice in node.choices]
        ways = [way for some in found for way in some]
        return _few(ways) if known.apart else [_either(ways)]
    if isinstance(node, Permutation):
        return _permuted(node, known)
    if isinstance(node, Quantified):
        return _repeated(node, known)
    return [Parts()]


def _few(ways: list[Parts]) -> list[Parts]:
    if len(ways) > 1:
        ways = list(dict.fromkeys(ways))
    if len(ways) > APART_MAX:
        raise TooMany
    return ways


def _each(found: Sequence[Sequence[Parts]]) -> list[Parts]:
    ways: list[Parts] = [Parts()]
    for some in found:
        ways = _few([_joined(pair) for pair in product(ways, some)])
    return ways


def _joined(found: Iterable[Parts]) -> Parts:
    items: list[Symbol | Gap] = []
    total: int | None = 0
    for some in found:
        for item in some.items:
            last = items[-1] if items else None
            if isinstance(item, Gap) and isinstance(last, Gap):
                items[-1] = Gap(last.variables | item.variables, _sum(last.most, item.most))
            else:
                items.append(item)
        total = _sum(total, some.most)
    if sum(isinstance(item, Symbol) for item in items) > SYMBOLS_MAX:
        rest = Parts(tuple(items[SYMBOLS_MAX:]))
        items = [*items[:SYMBOLS_MAX], Gap(rest.carried)]
    return Parts(tuple(items), total)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _either(ways: Sequence[Parts]) -> Parts:
    lengths = {len(way.symbols) for way in ways}
    fixed = all(not isinstance(item, Gap) for way in ways for item in way.items)
    counts = [way.most for way in ways]
    most = None if None in counts else max((c for c in counts if c is not None), default=0)
    if fixed and len(lengths) == 1:
        columns = zip(*(way.symbols for way in ways), strict=True)
        return Parts(tuple(_any_symbol(column) for column in columns), most)
    carried = frozenset(name for way in ways for name in way.carried)
    anything, least = Symbol("true", None, (), carried), min(lengths, default=0)
    room = None if most is None else most - least
    return Parts((*[anything] * least, Gap(carried, room)), most)


def _any_symbol(symbols: Sequence[Symbol]) -> Symbol:
    if len(set(symbols)) == 1:
        return symbols[0]
    names = "|".join(dict.fromkeys(symbol.name for symbol in symbols))
    prunes = list(dict.fromkeys(symbol.prune for symbol in symbols))
    carried = Parts(tuple(symbols)).carried
    possible = [prune for prune in prunes if not isinstance(prune, Never)]
    if None in prunes:
        return Symbol(names, None, (), carried)
    if not possible:
        return Symbol(names, Never(), (), carried)
    found = [prune for prune in possible if prune is not None]
    prune: Prune = found[0] if len(found) == 1 else AnyOf(tuple(found))
    return Symbol(names, prune, (), carried)


def _permuted(node: Permutation, known: Known) -> list[Parts]:
    found = [rewrite(part, known) for part in node.parts]
    orders = _orders(node, known)
    if known.apart and not orders:
        raise TooMany
    if known.apart or len(orders) == 1:
        return _few([way for order in orders for way in _each([found[at] for at in order])])
    every = _joined(some[0] for some in found)
    symbols = every.symbols
    fixed = len(symbols) == len(every.items)
    carried = every.carried
    if not symbols:
        return [Parts((Gap(carried, every.most),), every.most)]
    anything = _any_symbol(symbols) if fixed else Symbol("true", None, (), carried)
    if any(isinstance(symbol.prune, Never) for symbol in symbols):
        anything = replace(anything, prune=Never())  # all of the parts are needed
    else:
        lookups = [s for s in symbols if s.terms or known.finds(s.prune)]
        lookups.sort(key=lambda symbol: not _is_equality(symbol.prune))
        together = known.finds(anything.prune) or not lookups
        known.options.append(together + len(lookups))
        option = known.option % known.options[-1]
        if not together or option:
            chosen = replace(lookups[option - together], variables=carried)
            gap = Gap(carried, _sum(every.most, -1))
            return [Parts((gap, chosen, gap), every.most)]
    rest = _sum(every.most, -len(symbols))
    gaps = [] if fixed else [Gap(carried, rest)]
    return [Parts((*[anything] * len(symbols), *gaps), every.most)]


def _orders(node: Permutation, known: Known) -> list[tuple[int, ...]]:
    """Orders of the parts in which their conditions can hold (later events are unknown)."""
    part_of = {}
    for at, part in enumerate(node.parts):
        inner = part.body if isinstance(part, Quantified) and part.low else part
        if isinstance(inner, Variable) and inner.name in known.once:
            part_of[inner.name] = at
    before = {
        (part_of[one.variable], at)
        for name, at in part_of.items()
        for one in known.between.get(name, ())
        if one.variable in part_of
    }
    found: list[tuple[int, ...]] = []
    begun: list[tuple[int, ...]] = [()]
    while begun and len(found) <= APART_MAX:
        order = begun.pop()
        left = [part for part in range(len(node.parts)) if part not in order]
        free = [b for b in left if not any((a, b) in before for a in left)]
        if left and not free:
            return []  # cyclic: each part must follow another
        begun += [(*order, part) for part in reversed(free)]
        found += [] if left else [order]
    return found


def _is_equality(prune: Prune | None) -> bool:
    return isinstance(prune, Range) and prune.low is not None and prune.low == prune.high


def _repeated(node: Quantified, known: Known) -> list[Parts]:
    ways = rewrite(node.body, known)
    most = None if any(way.most is None for way in ways) else max(_counts(ways), default=0)
    if most == 0:
        return [Parts()]
    symbols = max((len(way.symbols) for way in ways), default=0)
    copies = min(node.low, SYMBOLS_MAX // max(1, symbols) + 1)
    found: list[Any] = [ways] * copies
    if node.high != copies:
        more = None if node.high is None or most is None else (node.high - copies) * most
        carried = frozenset(name for way in ways for name in way.carried)
        found.append([Parts((Gap(carried, more),), more)])
    longest = None if node.high is None or most is None else node.high * most
    return [replace(way, most=longest) for way in _each(found)]


def _counts(ways: Sequence[Parts]) -> list[int]:
    return [way.most for way in ways if way.most is not None]
