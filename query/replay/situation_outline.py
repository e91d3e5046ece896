"""From a pattern of situations to outlines: events that every match has, in order.

The first row of a situation satisfies its condition, so it can be looked up like a symbol; a chain
of starts that must follow one another is an outline::

    A OVERLAPS B AND B BEFORE C        starts of A < B < C      (A) gap (B) gap (C)
    A INTERSECTS B                     none comes first         (A)     (B)

The row at the end of a situation does not satisfy its condition; each end is an outline of one
symbol, in case the condition nearly always holds.  Every match has an event for each symbol, in
this order, within the greatest distance of a start from the instant of the match.
"""

from __future__ import annotations

import datetime as dt

from sqlglot import exp

from ...schema import StreamSchema
from ...store.prune import AnyOf, IsNull, Never, Prune
from ..conditions.constants import Folder
from ..pattern.binding import Bound, Navigation
from ..situations.compiled import CompiledSituations
from .symbols import Block, Outline, Symbol, condition_prune
from .terms import index_terms

__all__ = ["chains", "contrary"]

_UNDERSTOOD = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ, exp.NEQ,
    exp.Between, exp.Column, exp.Identifier, exp.Literal, exp.Neg, exp.Boolean,
)  # fmt: skip


def chains(
    compiled: CompiledSituations, schema: StreamSchema, folder: Folder | None = None
) -> tuple[Outline, ...]:
    """Outlines of a clause whose matches are bounded in time; empty for others."""
    count = len(compiled.names)
    reach = [compiled.kept(i) for i in range(count)]
    bounded = [ticks for ticks in reach if ticks is not None]
    if len(bounded) < count:
        return ()
    folder = folder or Folder({}, dt.datetime.now(dt.timezone.utc))
    symbols = []
    for name, bound in zip(compiled.names, compiled.conditions, strict=True):
        prune = condition_prune(bound, name, schema, folder)
        symbols.append(Symbol(name, prune, index_terms(prune, schema)))
    impossible = any(isinstance(symbol.prune, Never) for symbol in symbols)
    found = dict.fromkeys(_chain(compiled, i) for i in range(count) if symbols[i].prune is not None)
    longest = max(bounded)
    rows = [tuple(symbols[i] for i in chain) for chain in found]
    for i, bound in enumerate(compiled.conditions):
        false = contrary(bound, compiled.names[i], schema, folder) if _tells(compiled, i) else None
        if false is not None:
            told = Symbol(f"end of {compiled.names[i]}", false, index_terms(false, schema))
            rows.append((told,))

    def outline(chain: tuple[Symbol, ...]) -> Outline:
        blocks = tuple(Block((symbol,)) for symbol in chain)
        return Outline(blocks, True, True, None, longest, False, impossible)

    return tuple(map(outline, rows))


def _tells(compiled: CompiledSituations, name: int) -> bool:
    """Whether a match has a row that ends the situation of a name, no later than its instant."""
    leaves = compiled.conditions[name].leaves
    shifted = any(leaf.shift for leaf in leaves if isinstance(leaf, Navigation))
    by_then = int(compiled.reach[-1, len(compiled.names) + name]) <= 0
    return compiled.gap is None and not shifted and by_then


def _chain(compiled: CompiledSituations, through: int) -> tuple[int, ...]:
    """The longest chain of names through one, each of which begins before the next."""
    names = range(len(compiled.names))

    def longest(name: int, forward: bool) -> tuple[int, ...]:
        best: tuple[int, ...] = ()
        for other in names:
            first, second = (name, other) if forward else (other, name)
            if other != name and compiled.reach[second, first] < 0:
                tail = longest(other, forward)
                best = max(best, (other, *tail), key=len)
        return best

    return (*reversed(longest(through, False)), through, *longest(through, True))


def contrary(bound: Bound, name: str, schema: StreamSchema, folder: Folder) -> Prune | None:
    """What holds where a condition is false or unknown; None if unsupported."""
    if not all(isinstance(node, _UNDERSTOOD) for node in bound.scalar.walk()):
        return None
    negated = Bound(exp.Not(this=exp.Paren(this=bound.scalar.copy())), bound.leaves, bound.at)
    false = condition_prune(negated, name, schema, folder)
    if false is None:
        return None
    columns = {leaf.row.column for leaf in bound.leaves if isinstance(leaf, Navigation)}
    nulls = [IsNull(column) for column in sorted(c for c in columns if c is not None)]
    return AnyOf((false, *nulls))
