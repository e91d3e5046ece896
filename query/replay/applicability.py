"""Which clauses replay intervals can answer, and which other rows they look at.

================================  =========================================================
ORDER BY without time first       positions in the stream are not the matcher's order
WITH UNMATCHED ROWS               every event is a result
a pattern that can match nothing  every event begins a match
MATCH_ID() without WITHIN         intervals of rows may begin among the events of one time
================================  =========================================================

Under PARTITION BY, PREV within a match is no obstacle: a row with an omitted predecessor could only
be wrong as the first row of a match, where PREV is not evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..pattern.binding import Navigation
from ..pattern.compiled import CompiledMatch
from ..pattern.contiguous import stars_of
from ..pattern.matcher import idle_bits
from ..sql.pattern_tree import (
    Alternation,
    Anchor,
    Concatenation,
    Pattern,
    Quantified,
    Variable,
    children,
    matches_nothing,
    walk,
)


@dataclass(frozen=True)
class Demands:
    """Which rows besides its matches a clause looks at.  ``ties``: ORDER BY has keys besides time,
    so events of one time may come in any order; ``neighbours``: rows around a match in its
    partition matter (``^``, ``$``, NEXT, PREV beyond the first row); ``before`` and ``after``: how
    many rows; ``searching``: conditions between events are tested row by row; ``queries``:
    conditions that DuckDB evaluates; ``named``: match identities count the events of a time, so all
    or none of a partition's are replayed; ``previous``: conditions look at the previous row of the
    match; ``deciding``: variables, if rows with none of them are nothing but events between two
    rows of a match that neither conditions nor measures read.
    """

    partition_by: tuple[str, ...]
    ties: bool
    neighbours: bool
    before: int
    after: int
    searching: bool = False
    queries: int = 0
    named: bool = False
    previous: bool = False
    deciding: frozenset[str] = frozenset()


def demands(compiled: CompiledMatch) -> Demands:
    anchored = any(isinstance(node, Anchor) for node in walk(compiled.clause.pattern))
    return Demands(
        compiled.partition_by,
        len(compiled.order_by) > 1,
        anchored or bool(compiled.lookahead) or _reads_outside(compiled),
        max(1, compiled.history),
        max(1, compiled.lookahead),
        compiled.conditions.path_dependent,
        len(compiled.conditions.tests.queries),
        compiled.naming is not None,
        compiled.history > 0,
        _deciding(compiled),
    )


def _deciding(compiled: CompiledMatch) -> frozenset[str]:
    plan, automaton = compiled.conditions, compiled.automaton
    around = compiled.history or compiled.lookahead or not compiled.in_time_order
    if around or plan.path_dependent:
        return frozenset()
    stars = stars_of(automaton, plan)
    if not idle_bits(compiled, stars):
        return frozenset()
    return frozenset(automaton.names[1:]).difference(automaton.names[p] for p in stars.positions)


def not_applicable(compiled: CompiledMatch, ordered: bool = False) -> str:
    """Why a clause cannot use intervals, or empty; ``ordered``: ORDER BY begins with time."""
    clause = compiled.clause
    if not ordered and not compiled.in_time_order:
        return "ORDER BY does not begin with time"
    if clause.rows == "all with unmatched":
        return "WITH UNMATCHED ROWS puts every event out"
    if compiled.naming is not None and compiled.within is None:
        return "identities count the events of a time, which intervals of rows may cut"
    if matches_nothing(clause.pattern):
        return "the pattern can match no event at all, so every event begins a match"
    return ""


def _reads_outside(compiled: CompiledMatch) -> bool:
    """Whether PREV may read a row of the partition before the first row of a match."""
    for bound in compiled.measures:
        for leaf in bound.leaves:
            if isinstance(leaf, Navigation) and leaf.shift:
                return True
    for name, bound in compiled.definitions.items():
        back = max(
            (-leaf.shift for leaf in bound.leaves if isinstance(leaf, Navigation)), default=0
        )
        if back > 0:
            place = earliest(compiled.clause.pattern, name)
            if place is not None and place < back:
                return True
    return False


def _least(node: Pattern) -> int:
    if isinstance(node, Variable):
        return 1
    if isinstance(node, Alternation):
        return min(_least(choice) for choice in node.choices)
    if isinstance(node, Quantified):
        return node.low * _least(node.body)
    return sum(_least(part) for part in children(node))


def earliest(node: Pattern, name: str) -> int | None:
    """Fewest events before one that carries a variable; None if none does."""
    if isinstance(node, Variable):
        return 0 if node.name == name else None
    places = [(part, earliest(part, name)) for part in children(node)]
    if isinstance(node, Concatenation):
        before, best = 0, None
        for part, place in places:
            if place is not None:
                best = before + place if best is None else min(best, before + place)
            before += _least(part)
        return best
    return min((place for _, place in places if place is not None), default=None)
