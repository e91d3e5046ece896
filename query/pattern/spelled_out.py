"""Rewrites aggregates over CLASSIFIER() and MATCH_NUMBER() in DEFINE for the matcher.
CLASSIFIER() is constant per variable: ``max(f(CLASSIFIER()))`` is the greatest of ``max(f('A'))``
over the rows of A and ``max(f('B'))`` over those of B.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from .leaves import NUMBER, Leaf, MatchAggregate, MatchNumber, special

if TYPE_CHECKING:
    from .binding import Binder

__all__ = ["spelled_out"]

_DIVISIBLE = frozenset(
    ("count", "sum", "min", "max", "bool_and", "bool_or", "arbitrary", "any_value")
)


def spelled_out(binder: Binder, node: Any, leaf: MatchAggregate, leaves: list[Leaf]) -> Any:
    """The rewritten aggregate, or None for other forms."""
    function = leaf.function
    if leaf.argument is not None and leaf.argument.column == NUMBER and leaf.plain:
        rows = binder.place(
            MatchAggregate("count", "count(*)", None, (), leaf.variables, False, True, True), leaves
        )
        number = binder.place(MatchNumber(), leaves)
        if function == "count":
            return rows
        some = exp.GT(this=rows.copy(), expression=exp.Literal.number(0))
        value = exp.Mul(this=number, expression=rows) if function == "sum" else number
        known = function in ("sum", "min", "max", "arbitrary", "any_value")
        return exp.Case(ifs=[exp.If(this=some, true=value)]) if known else None
    if NUMBER in leaf.columns or (leaf.distinct and function not in ("min", "max")):
        return None
    if function in ("avg", "mean"):
        parts = [_for_each_variable(binder, node, leaf, name, leaves) for name in ("sum", "count")]
        if None in parts:
            return None
        count = exp.Anonymous(this="nullif", expressions=[parts[1], exp.Literal.number(0)])
        return exp.Paren(this=exp.Div(this=exp.Paren(this=parts[0]), expression=count))
    return _for_each_variable(binder, node, leaf, function, leaves)


def _for_each_variable(
    binder: Binder, node: Any, leaf: MatchAggregate, function: str, leaves: list[Leaf]
) -> Any:
    if not leaf.basic or function not in _DIVISIBLE:
        return None
    chosen = leaf.variables
    if chosen is None:
        chosen = frozenset(name for name, own in binder.variables.items() if own == {name})
    parts = []
    for variable in sorted(chosen):
        copy = node.copy()
        for part in list(copy.walk()):
            if special(part) == "classifier":
                part.replace(exp.Literal.string(variable))
        inner = copy.this if isinstance(copy, exp.Filter) else copy
        if isinstance(inner, exp.Anonymous):
            inner.set("this", function)
        one = binder.aggregate(copy, False)
        parts.append(binder.place(replace(one, variables=frozenset({variable})), leaves))
    return exp.Paren(this=_added(function, parts))


def _added(function: str, values: list[Any]) -> Any:

    def call(name: str, arguments: list[Any]) -> Any:
        return exp.Anonymous(this=name, expressions=[value.copy() for value in arguments])

    if len(values) == 1:
        return values[0]
    if function in ("min", "bool_and"):
        return call("least", values)
    if function in ("max", "bool_or"):
        return call("greatest", values)
    if function in ("arbitrary", "any_value"):
        return call("coalesce", values)
    none = exp.Is(this=call("coalesce", values), expression=exp.Null())
    total = call("coalesce", [values[0], exp.Literal.number(0)])
    for value in values[1:]:
        total = exp.Add(this=total, expression=call("coalesce", [value, exp.Literal.number(0)]))
    return exp.Case(ifs=[exp.If(this=exp.Not(this=exp.Paren(this=none)), true=total)])
