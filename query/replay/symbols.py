"""From a row pattern to basic blocks: the symbols that every match must contain, and where.

Thesis sections 3.4.1, 3.4.2 and 3.4.4.  Gaps cut the symbols of the pattern into blocks; conditions
become ranges over single attributes, or ``true``::

    pattern  (A, (B, C+)+, D)  ->  A B C gap D  ->  blocks (A B C) (D)

A *term* is a disjunction of ranges over indexed attributes that every event of its symbol
satisfies; a conjunction gives several terms.  Guarantee: sound, not complete: every match satisfies
the outline event by event.  A pattern with alternatives also has a set of outlines of which every
match obeys one.

A row pattern first becomes symbols (one event) and gaps (any number of events).  Thesis section
3.4.1.  ``rewrite`` applies Table 3.2, with tighter rows where they cost nothing::

    X+        X gap                     X{2,5}     X X gap            X? X*      gap
    X{3}      X X X                     (X | Y)    one symbol: X or Y (equal, fixed lengths)
    (X Y | Z) true gap                  PERMUTE(X, Y)   (X or Y) (X or Y)
    {- X -}   X                         ^ $ [^X]   nothing

If a condition of Y compares with X, X must come first and PERMUTE(X, Y) becomes X Y.  If indexes
find X only, it becomes gap X gap.  *Apart*, alternatives are listed, at most ``APART_MAX``::

    PERMUTE(X, Y)  ->  X Y ; Y X        W (X Y | Z)  ->  W X Y ; W Z

Sound: a match is, event by event, one of the results.  After ``SYMBOLS_MAX`` symbols comes a gap.

A comparison with another variable implies a range.  ``A AS x > 5, B AS x > A.x`` implies ``x > 5``
for B, so an index can find B.  Of a range of A.x, ``y = A.x`` takes all of it (of ``IN`` each
value), ``y > A.x`` its lower and ``y < A.x`` its upper end, exclusively.  Sound: whichever row
FIRST, LAST or the plain name refer to, it satisfies the variable's condition; if there is none, the
comparison is unknown and B's condition fails.  Both sides are plain columns of one type; ranges are
not propagated from B to A.

``B.beat = A.beat`` makes ``beat`` a shared column: it has one non-null value in several events of a
match.  Limits: the same column, not floating point and not the time; the other variable occurs once
in the pattern and does not repeat.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, product
from typing import Any

from sqlglot import exp

from ...schema import Storage, StreamSchema
from ...store.prune import AllOf, AnyOf, Never, Prune, Range
from ..conditions.constants import Folder
from ..conditions.predicates import PredicateCompiler
from ..pattern.automaton import ACCEPT
from ..pattern.binding import CLASSIFIER, Bound, Navigation, leaf_index
from ..pattern.compiled import CompiledMatch
from ..sql.pattern_tree import (
    Alternation,
    Concatenation,
    Exclusion,
    Pattern,
    Permutation,
    Quantified,
    Variable,
    walk,
)
from .applicability import earliest
from .terms import Term, derived_keys, derived_prunes, index_terms, merged, with_unknown

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
    """Any number of events with some of the variables."""

    variables: frozenset[str]


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
class SymbolFacts:
    """Conditions by variable, and what indexes can look up.  ``derived``: terms on derived values;
    ``between``: variables that a condition compares with; ``once``: variables with a single place
    in the pattern; ``apart``: alternatives are listed.
    """

    conditions: dict[str, Prune | None]
    schema: StreamSchema
    indexed: frozenset[str]
    derived: dict[str, tuple[Term, ...]]
    between: dict[str, frozenset[str]]
    once: frozenset[str]
    apart: bool = False

    def finds(self, prune: Prune | None) -> bool:
        """Whether indexes can look up the events that satisfy a condition."""
        terms = index_terms(prune, self.schema)
        return any(self.indexed.issuperset(term.attributes) for term in terms)


def rewrite(node: Pattern, facts: SymbolFacts) -> list[Parts]:
    """Symbols and gaps of a pattern; with ``apart`` one result per alternative, or ``TooMany``."""
    if isinstance(node, Variable):
        terms = facts.derived.get(node.name, ())
        own = frozenset((node.name,))
        return [Parts((Symbol(node.name, facts.conditions.get(node.name), terms, own),), 1)]
    if isinstance(node, Exclusion):
        return rewrite(node.body, facts)
    if isinstance(node, Concatenation):
        return _each([rewrite(part, facts) for part in node.parts])
    if isinstance(node, Alternation):
        parts_of_choices = [rewrite(choice, facts) for choice in node.choices]
        alternatives = [way for some in parts_of_choices for way in some]
        return _few(alternatives) if facts.apart else [_either(alternatives)]
    if isinstance(node, Permutation):
        return _permuted(node, facts)
    if isinstance(node, Quantified):
        return _repeated(node, facts)
    return [Parts()]


def _few(ways: list[Parts]) -> list[Parts]:
    if len(ways) > 1:
        ways = list(dict.fromkeys(ways))
    if len(ways) > APART_MAX:
        raise TooMany
    return ways


def _each(found: Sequence[Sequence[Parts]]) -> list[Parts]:
    alternatives: list[Parts] = [Parts()]
    for alone, group in groupby(found, lambda some: len(some) == 1):
        if alone:  # joined at once, which takes linear time
            following = [some[0] for some in group]
            alternatives = _few([_joined([before, *following]) for before in alternatives])
        else:
            for some in group:
                alternatives = _few([_joined(pair) for pair in product(alternatives, some)])
    return alternatives


def _joined(found: Iterable[Parts]) -> Parts:
    items: list[Symbol | Gap] = []
    total: int | None = 0
    for some in found:
        for item in some.items:
            last = items[-1] if items else None
            if isinstance(item, Gap) and isinstance(last, Gap):
                items[-1] = Gap(last.variables | item.variables)
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
    return Parts((*[anything] * least, Gap(carried)), most)


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
    conditions = [prune for prune in possible if prune is not None]
    prune: Prune = conditions[0] if len(conditions) == 1 else AnyOf(tuple(conditions))
    return Symbol(names, prune, (), carried)


def _permuted(node: Permutation, facts: SymbolFacts) -> list[Parts]:
    parts_of = [rewrite(part, facts) for part in node.parts]
    orders = _orders(node, facts)
    if facts.apart and not orders:
        raise TooMany
    if facts.apart or len(orders) == 1:
        return _few([way for order in orders for way in _each([parts_of[at] for at in order])])
    every = _joined(some[0] for some in parts_of)
    symbols, gap = every.symbols, Gap(every.carried)
    if not symbols:
        return [Parts((gap,), every.most)]
    fixed = len(symbols) == len(every.items)
    anything = _any_symbol(symbols) if fixed else Symbol("true", None, (), every.carried)
    lookups = [symbol for symbol in symbols if symbol.terms or facts.finds(symbol.prune)]
    if any(isinstance(symbol.prune, Never) for symbol in symbols):
        anything = replace(anything, prune=Never())  # all of the parts are needed
    elif lookups and not facts.finds(anything.prune):
        chosen = min(lookups, key=lambda symbol: not _is_equality(symbol.prune))
        return [Parts((gap, replace(chosen, variables=every.carried), gap), every.most)]
    return [Parts((*[anything] * len(symbols), *([] if fixed else [gap])), every.most)]


def _orders(node: Permutation, facts: SymbolFacts) -> list[tuple[int, ...]]:
    """Orders of the parts in which their conditions can hold (later events are unknown)."""
    part_of = {}
    for at, part in enumerate(node.parts):
        inner = part.body if isinstance(part, Quantified) and part.low else part
        if isinstance(inner, Variable) and inner.name in facts.once:
            part_of[inner.name] = at
    before = {
        (part_of[other], at)
        for name, at in part_of.items()
        for other in facts.between.get(name, ())
        if other in part_of and part_of[other] != at
    }
    orders_done: list[tuple[int, ...]] = []
    begun: list[tuple[int, ...]] = [()]
    while begun and len(orders_done) <= APART_MAX:
        order = begun.pop()
        left = [part for part in range(len(node.parts)) if part not in order]
        free = [b for b in left if not any((a, b) in before for a in left)]
        if left and not free:
            return []  # cyclic: each part must follow another
        begun += [(*order, part) for part in reversed(free)]
        orders_done += [] if left else [order]
    return orders_done


def _is_equality(prune: Prune | None) -> bool:
    return isinstance(prune, Range) and prune.low is not None and prune.low == prune.high


def _repeated(node: Quantified, facts: SymbolFacts) -> list[Parts]:
    bodies = rewrite(node.body, facts)
    most = None if any(way.most is None for way in bodies) else max(_counts(bodies), default=0)
    if most == 0:
        return [Parts()]
    symbols = max((len(way.symbols) for way in bodies), default=0)
    copies = min(node.low, SYMBOLS_MAX // max(1, symbols) + 1)
    factors: list[Any] = [bodies] * copies
    if node.high != copies:
        carried = frozenset(name for way in bodies for name in way.carried)
        factors.append([Parts((Gap(carried),))])
    longest = None if node.high is None or most is None else node.high * most
    return [replace(way, most=longest) for way in _each(factors)]


def _counts(ways: Sequence[Parts]) -> list[int]:
    return [way.most for way in ways if way.most is not None]


ROUNDS = 4
"""Longest chain of variables along which ranges propagate."""
_TURNED = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ}


def with_implied(
    conditions: dict[str, Prune | None], bounds: dict[str, Bound], schema: StreamSchema
) -> dict[str, Prune | None]:
    links = [
        (name, *link)
        for name, bound in bounds.items()
        for link in _comparisons(bound, name, schema)
    ]
    result = dict(conditions)
    for _ in range(min(ROUNDS, len(links))):
        before = dict(result)
        for name, column, how, other, source in links:
            if isinstance(result[name], Never):
                continue
            for part in _parts(before.get(other)):
                implied = _handed_on(part, source, column, how)
                if implied is not None and implied not in _parts(result[name]):
                    own = result[name]
                    result[name] = implied if own is None else AllOf((*_parts(own), implied))
        if result == before:
            break
    return result


def _parts(prune: Prune | None) -> tuple[Prune, ...]:
    if prune is None:
        return ()
    return prune.items if isinstance(prune, AllOf) else (prune,)


def _handed_on(prune: Prune, source: str, column: str, how: Any) -> Prune | None:
    if isinstance(prune, AnyOf) and how is exp.EQ:
        each = [_handed_on(item, source, column, how) for item in prune.items]
        return None if None in each else AnyOf(tuple(item for item in each if item is not None))
    if not isinstance(prune, Range) or prune.column != source:
        return None
    if how is exp.EQ:
        return replace(prune, column=column)
    if how in (exp.GT, exp.GTE):
        if prune.low is None:
            return None
        return Range(column, prune.low, None, prune.low_open or how is exp.GT, False)
    if prune.high is None:
        return None
    return Range(column, None, prune.high, False, prune.high_open or how is exp.LT)


def _comparisons(
    bound: Bound, variable: str, schema: StreamSchema
) -> list[tuple[str, Any, str, str]]:
    """Conjuncts that compare with another variable: own column, operator, variable, its column."""
    comparisons = []
    parts: list[Any] = [bound.scalar]
    while parts:
        node = parts.pop()
        if isinstance(node, exp.Paren):
            parts.append(node.this)
        elif isinstance(node, exp.And):
            parts += [node.this, node.expression]
        elif type(node) in _TURNED:
            sides = _bounded_side(bound, node.this), _bounded_side(bound, node.expression)
            for (own, other), how in (
                (sides, type(node)), (sides[::-1], _TURNED[type(node)])
            ):  # fmt: skip
                if own is None or other is None or not _is_own(own, variable):
                    continue
                chosen, a, b = other.variables, str(own.row.column), str(other.row.column)
                if chosen is None or len(chosen) > 1 or variable in chosen:
                    continue
                if {a, b} <= set(schema.arrow.names) and _type(schema, a) == _type(schema, b):
                    comparisons.append((a, how, next(iter(chosen)), b))
    return comparisons


def _bounded_side(bound: Bound, node: Any) -> Navigation | None:
    index = leaf_index(node)
    leaf = None if index is None else bound.leaves[index]
    if not isinstance(leaf, Navigation) or leaf.row.column in (None, CLASSIFIER):
        return None
    return None if leaf.shift or leaf.final else leaf


def _is_own(leaf: Navigation, variable: str) -> bool:
    own = leaf.variables is None or leaf.variables == {variable}
    return own and not leaf.first and not leaf.offset


def _type(schema: StreamSchema, column: str) -> Any:
    return schema.arrow.field(column).type


@dataclass(frozen=True)
class SharedColumn:
    """A column with one value in the events of some variables of a match."""

    column: str
    variables: frozenset[str]

    def __str__(self) -> str:
        return f"{self.column} of {', '.join(sorted(self.variables))}"


def shared_columns(compiled: CompiledMatch, schema: StreamSchema) -> tuple[SharedColumn, ...]:
    names = compiled.automaton.names

    @cache
    def alone(name: str) -> bool:
        place = names.index(name) if names.count(name) == 1 else 0
        return place > 0 and place not in _behind(compiled, place)

    pairs_of: dict[str, list[set[str]]] = {}
    for name, bound in compiled.definitions.items():
        for own, how, other, column in _comparisons(bound, name, schema):
            if how is not exp.EQ or own != column or own == schema.time or not alone(other):
                continue
            if schema.attribute(own).storage is not Storage.FLOAT:
                pairs_of.setdefault(own, []).append({name, other})
    return tuple(
        SharedColumn(column, frozenset(joined))
        for column, pairs in pairs_of.items()
        for joined in _components(pairs)
    )


def _behind(compiled: CompiledMatch, position: int) -> set[int]:
    edges, seen = compiled.automaton.edges, set[int]()
    waiting = [position]
    while waiting:
        for edge in edges[waiting.pop()]:
            if edge.target > 0 and edge.target not in seen:
                seen.add(edge.target)
                waiting.append(edge.target)
    return seen


def _components(pairs: list[set[str]]) -> list[set[str]]:
    joined: list[set[str]] = []
    for pair in pairs:
        touched = [some for some in joined if some & pair]
        joined = [some for some in joined if not some & pair]
        joined.append(pair.union(*touched))
    return joined


@dataclass(frozen=True)
class Block:
    """Symbols at fixed distances from one another."""

    symbols: tuple[Symbol, ...]


@dataclass(frozen=True)
class Outline:
    """What every match contains.  ``blocks`` in pattern order with gaps between them, and a gap
    before (``leading``) or after (``trailing``); ``longest``: most events of a contiguous match;
    ``within``: window in ticks; ``contiguous``: symbols of a block are neighbours in the stream;
    ``impossible``: no event satisfies some symbol; ``longest_partition``: most events of a match
    that are neighbours in their partition; ``shared``: equal attributes, without PARTITION BY.
    """

    blocks: tuple[Block, ...]
    leading: bool
    trailing: bool
    longest: int | None
    within: int | None
    contiguous: bool
    impossible: bool
    longest_partition: int | None = None
    shared: tuple[SharedColumn, ...] = ()

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return tuple(symbol for block in self.blocks for symbol in block.symbols)

    @property
    def bounded(self) -> bool:
        """Whether a match is bounded in time, or in events of the stream or of its partition."""
        bounds = (self.within, self.longest, self.longest_partition)
        return any(bound is not None for bound in bounds)

    def __str__(self) -> str:
        parts = ["gap"] if self.leading else []
        for number, block in enumerate(self.blocks):
            if number:
                parts.append("gap")
            parts.append("(" + " ".join(symbol.name for symbol in block.symbols) + ")")
        return " ".join([*parts, "gap"] if self.trailing else parts)


def cached_outlines(
    compiled: CompiledMatch, schema: StreamSchema, folder: Folder | None, indexed: frozenset[str]
) -> tuple[tuple[Outline, ...], ...]:
    """``outlines``, cached on the compiled clause (parameter values are part of it)."""
    wanted = (schema, indexed, folder is None)
    cached = compiled.outlined
    if cached is None or cached[0] != wanted:
        cached = compiled.outlined = wanted, outlines(compiled, schema, folder, indexed)
    assert isinstance(cached[1], tuple)
    return cached[1]


def outlines(
    compiled: CompiledMatch, schema: StreamSchema, folder: Folder | None, indexed: frozenset[str]
) -> tuple[tuple[Outline, ...], ...]:
    """Sets of outlines; every match obeys one outline of each set.  The second, if there is one,
    has an outline for each alternative of the pattern.
    """
    maker = _Maker(compiled, schema, folder or _now(), indexed)
    apart = maker.apart()
    return ((maker.outline(),), *([apart] if len(apart) > 1 else []))


def outline(
    compiled: CompiledMatch, schema: StreamSchema, folder: Folder | None = None,
    also: Prune | None = None, skipping: bool = False, indexed: frozenset[str] = frozenset(),
) -> Outline:  # fmt: skip
    """The outline of a compiled clause.  ``also``: a condition on every event; ``skipping``: the
    clause sees only some events, so its neighbours need not be neighbours in the stream.
    """
    return _Maker(compiled, schema, folder or _now(), indexed, also, skipping).outline()


def _now() -> Folder:
    return Folder({}, dt.datetime.now(dt.timezone.utc))


class _Maker:
    def __init__(
        self, compiled: CompiledMatch, schema: StreamSchema, folder: Folder,
        indexed: frozenset[str], also: Prune | None = None, skipping: bool = False,
    ) -> None:  # fmt: skip
        self.compiled, self.schema, self.indexed = compiled, schema, indexed
        self.also, self.skipping = also, skipping
        conditions = {
            name: condition_prune(bound, name, schema, folder)
            for name, bound in compiled.definitions.items()
        }
        self.facts = SymbolFacts(
            with_implied(conditions, compiled.definitions, schema), schema, indexed,
            {} if skipping else _derived(compiled, schema, folder, indexed),
            {
                name: frozenset(other for _, _, other, _ in _comparisons(bound, name, schema))
                for name, bound in compiled.definitions.items()
            },
            _once(compiled.clause.pattern),
        )  # fmt: skip

    def outline(self) -> Outline:
        (parts,) = rewrite(self.compiled.clause.pattern, self.facts)
        return self._of(parts)

    def apart(self) -> tuple[Outline, ...]:
        try:
            alternatives = rewrite(self.compiled.clause.pattern, replace(self.facts, apart=True))
        except TooMany:
            return ()
        return tuple(map(self._of, alternatives)) if len(alternatives) > 1 else ()

    def _of(self, parts: Parts) -> Outline:
        compiled, schema, also = self.compiled, self.schema, self.also
        items: Sequence[Symbol | Gap] = parts.items
        if also is not None:
            items = [
                item if isinstance(item, Gap) else replace(item, prune=_and(item.prune, also))
                for item in items
            ]
        selected = compiled.clause.selection in (None, "contiguous")
        neighbours = selected and len(compiled.order_by) <= 1
        contiguous = neighbours and not self.skipping and not compiled.partition_by
        most = None if self.skipping else parts.most
        outline = self._cut(items, most if contiguous else None, contiguous)
        if self.skipping:
            return outline
        if not compiled.partition_by:
            return replace(outline, shared=shared_columns(compiled, schema))
        return replace(outline, longest_partition=most if neighbours else None)

    def _cut(self, items: Sequence[Symbol | Gap], longest: int | None, contiguous: bool) -> Outline:
        blocks: list[list[Symbol]] = []
        leading, fresh = False, True
        for item in items:
            if isinstance(item, Gap):
                leading = leading or not blocks
                fresh = True
                continue
            if fresh or not contiguous:
                blocks.append([])
                fresh = False
            terms = (*item.terms, *index_terms(item.prune, self.schema, self.indexed))
            blocks[-1].append(replace(item, terms=terms))
        # [^X] at the end looks at the rest of the window
        edges = [edge for some in self.compiled.automaton.edges for edge in some]
        until = any(edge.absent and edge.target == ACCEPT for edge in edges)
        trailing = until or (bool(items) and isinstance(items[-1], Gap))
        return Outline(
            tuple(Block(tuple(block)) for block in blocks), leading, trailing, longest,
            self.compiled.within, contiguous,
            any(isinstance(s.prune, Never) for block in blocks for s in block),
        )  # fmt: skip


def _once(pattern: Pattern) -> frozenset[str]:
    """Variables that occur once in a pattern."""
    names = [node.name for node in walk(pattern) if isinstance(node, Variable)]
    return frozenset(name for name in names if names.count(name) == 1)


def _and(prune: Prune | None, also: Prune) -> Prune:
    if prune is None or isinstance(also, Never):
        return also
    return prune if isinstance(prune, Never) else AllOf((prune, also))


def _derived(
    compiled: CompiledMatch, schema: StreamSchema, folder: Folder, indexed: frozenset[str]
) -> dict[str, tuple[Term, ...]]:
    keys = derived_keys(indexed, schema, compiled)
    terms_of = {}
    for name, bound in compiled.definitions.items() if keys else ():
        place = earliest(compiled.clause.pattern, name)
        terms = [
            replace(
                term,
                back=key.back,
                inside=None if place is None or place < key.back else compiled.within,
            )
            for key, prune in derived_prunes(bound, name, keys, schema, folder, compiled)
            for item in merged(prune)
            for term in index_terms(with_unknown(item, key.name), schema)
            if key.name in term.attributes
        ]
        terms_of[name] = tuple(dict.fromkeys(terms))
    return terms_of


def condition_prune(
    bound: Bound, variable: str, schema: StreamSchema, folder: Folder
) -> Prune | None:
    """What a DEFINE condition implies for the current row alone."""

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
    parts = merged(prune)  # merge both sides of BETWEEN into one range
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts)) if parts else None
