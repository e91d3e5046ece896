"""From a pattern of situations to outlines: events that every match has, in which order.

Purpose
    The first row of a situation satisfies its condition, so it can be looked up as the symbols of
    row patterns are.  Where the starts of some names must follow one another they are the symbols
    of one :class:`~.symbols.Outline`, a chain; :func:`chains` gives one outline for each name, with
    the longest chain through it.

Layout
    ::

        A OVERLAPS B AND B BEFORE C        starts of A < B < C      (A) gap (B) gap (C)
        A INTERSECTS B                     none comes first         (A)     (B)

    Around the first and after the last symbol any rows may lie: the situations of other names may
    begin earlier, and all of them end later.  All of this lies within the greatest distance of a
    start to the instant of the match.

    The row at the end of a situation does not satisfy its condition: where that nearly always holds
    ends are rarer than starts.  They are outlines of one symbol each.

Guarantee
    Every match has, within that distance, an event for each symbol, in this order.
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
    """Outlines of a clause whose matches are bounded in time; none for others.

    Parameters
    ----------
    compiled : CompiledSituations
    schema : StreamSchema
    folder : Folder, optional
        Knows the parameters of this execution.
    """
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
    """Whether a match has a row that ends the situation of a name, no later than its instant.

    A gap ends situations without one, and a condition with PREV is no condition on that row.
    """
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
    """What holds where a condition is false or unknown; None where that is not understood."""
    if not all(isinstance(node, _UNDERSTOOD) for node in bound.scalar.walk()):
        return None
    negated = Bound(exp.Not(this=exp.Paren(this=bound.scalar.copy())), bound.leaves, bound.at)
    false = condition_prune(negated, name, schema, folder)
    if false is None:
        return None
    columns = {leaf.row.column for leaf in bound.leaves if isinstance(leaf, Navigation)}
    nulls = [IsNull(column) for column in sorted(c for c in columns if c is not None)]
    return AnyOf((false, *nulls))
