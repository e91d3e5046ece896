"""Ranges that follow from a comparison with another variable.

``A AS x > 5, B AS x > A.x`` implies ``x > 5`` for B, so an index can find B.  Of a range of A.x,
``y = A.x`` takes all of it (of ``IN`` each value), ``y > A.x`` its lower and ``y < A.x`` its upper
end, exclusively.  Sound: whichever row FIRST, LAST or the plain name refer to, it satisfies the
variable's condition; if there is none, the comparison is unknown and B's condition fails.  Both
sides are plain columns of one type; ranges are not propagated from B to A.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from ...schema import StreamSchema
from ...store.prune import AllOf, AnyOf, Never, Prune, Range
from ..pattern.binding import CLASSIFIER, Bound, Navigation
from ..pattern.typed import leaf_index

__all__ = ["with_implied"]

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
    found = dict(conditions)
    for _ in range(min(ROUNDS, len(links))):
        before = dict(found)
        for name, column, how, other, source in links:
            if isinstance(found[name], Never):
                continue
            for part in _parts(before.get(other)):
                implied = _handed_on(part, source, column, how)
                if implied is not None and implied not in _parts(found[name]):
                    known = found[name]
                    found[name] = implied if known is None else AllOf((*_parts(known), implied))
        if found == before:
            break
    return found


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
    found = []
    parts: list[Any] = [bound.scalar]
    while parts:
        node = parts.pop()
        if isinstance(node, exp.Paren):
            parts.append(node.this)
        elif isinstance(node, exp.And):
            parts += [node.this, node.expression]
        elif type(node) in _TURNED:
            sides = _side(bound, node.this), _side(bound, node.expression)
            for (own, other), how in (
                (sides, type(node)), (sides[::-1], _TURNED[type(node)])
            ):  # fmt: skip
                if own is None or other is None or not _is_own(own, variable):
                    continue
                chosen, a, b = other.variables, str(own.row.column), str(other.row.column)
                if chosen is None or len(chosen) > 1 or variable in chosen:
                    continue
                if {a, b} <= set(schema.arrow.names) and _type(schema, a) == _type(schema, b):
                    found.append((a, how, next(iter(chosen)), b))
    return found


def _side(bound: Bound, node: Any) -> Navigation | None:
    index = leaf_index(node)
    leaf = None if index is None else bound.leaves[index]
    if not isinstance(leaf, Navigation) or leaf.row.column in (None, CLASSIFIER) or leaf.shift:
        return None
    return leaf


def _is_own(leaf: Navigation, variable: str) -> bool:
    own = leaf.variables is None or leaf.variables == {variable}
    return own and not leaf.first and not leaf.offset


def _type(schema: StreamSchema, column: str) -> Any:
    return schema.arrow.field(column).type
