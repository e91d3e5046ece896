"""Time order for aggregates that depend on row order, which the executor's threads do not preserve.

``first``, ``last``, ``any_value``, lists, joined strings and ``DISTINCT ON`` without explicit order
are ordered by the time of the first source that has one, also through derived tables and CTEs.
DISTINCT inside an aggregate orders by value.  Calls over ``COLUMNS(...)`` are not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlglot import exp
from sqlglot.errors import ParseError

from ..sql.dialect import to_text
from .scope import Scope, Site, Source, own_nodes

__all__ = ["OrderSensitive", "add_order", "order_sensitive"]

_STRINGS = frozenset(("group_concat", "listagg", "string_agg"))
_AGGREGATES = _STRINGS | {"any_value", "arbitrary", "array_agg", "first", "last", "list"}
_ARGUMENTS_OF_WINDOWS = _AGGREGATES | {"first_value", "last_value", "nth_value"}
_ORDERS_OF_WINDOWS = frozenset(("lag", "lead", "row_number"))
_FIRST_LAST = re.compile(r"\b(first|last)\(")  # the executor quotes these


class OrderSensitive(NamedTuple):
    """A call, the window around it, or a SELECT, and (source alias, column) to order by."""

    select: Any
    node: Any
    columns: tuple[tuple[str, str], ...]


def order_sensitive(select: Any, scope: Scope, sites: Sequence[Site]) -> list[OrderSensitive]:
    """The parts of a bound SELECT that depend on an unspecified row order."""
    parts = [*select.expressions, *(select.args.get(key) for key in ("having", "qualify", "order"))]
    found = [
        node
        for part in parts
        if part is not None and not _of_many_columns(part)
        for node in own_nodes(part)
        if _is_sensitive(node)
    ]
    distinct = select.args.get("distinct")
    settled = select.args.get("order") or select.args.get("group")
    if distinct is not None and distinct.args.get("on") and not settled:
        found.append(select)
    columns = _time_of(scope, sites) if found else ()
    return [OrderSensitive(select, node, columns) for node in found] if columns else []


def _of_many_columns(part: Any) -> bool:
    return any(call.name.lower() == "columns" for call in part.find_all(exp.Anonymous))


def _is_sensitive(node: Any) -> bool:
    if not isinstance(node, exp.Anonymous):
        return False
    name = node.name.lower()
    around = node.parent
    while isinstance(around, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)):
        around = around.parent
    if isinstance(around, exp.Window):
        if around.args.get("order") or around.args.get("alias"):
            return False
        if name in _ORDERS_OF_WINDOWS:
            return True
        known = _ARGUMENTS_OF_WINDOWS
    else:
        known = _AGGREGATES
    ordered = any(isinstance(argument, exp.Order) for argument in node.expressions)
    return name in known and bool(node.expressions) and not ordered


def _time_of(scope: Scope, sites: Sequence[Site]) -> tuple[tuple[str, str], ...]:
    for source in scope.sources:
        if source.relation or source.nullable:
            continue
        names = _times(source, sites)
        if names:
            return tuple((source.alias, name) for name in names)
    return ()


def _times(source: Source, sites: Sequence[Site]) -> Sequence[str]:
    if source.site is not None and source.site.operator is not None:
        return source.site.operator.ordered_by
    for output in source.outputs:
        use = output.use
        if use is None or use.nullable or output.name is None:
            continue
        schema = sites[use.site].schema
        if schema is not None and use.attribute == schema.time:
            return (output.name,)
    return ()


def add_order(
    parts: Sequence[OrderSensitive], copies: dict[int, Any], root: Any, names: Callable[[], Any]
) -> None:
    """Add the order to a copy of a query; ``copies`` maps ids of nodes to the copies."""
    for part in parts:
        node, select = copies[id(part.node)], copies[id(part.select)]
        order = [
            exp.Ordered(
                this=exp.column(
                    exp.to_identifier(name, quoted=True),
                    exp.to_identifier(alias, quoted=True) if alias else None,
                ),
                nulls_first=False,
            )
            for alias, name in part.columns
        ]
        if node is select:
            select.set("order", exp.Order(expressions=order))
            continue
        _keep_names(node, copies[id(root)], names)
        around = node.find_ancestor(exp.Window) if node.name.lower() in _ORDERS_OF_WINDOWS else None
        if around is not None:
            around.set("order", exp.Order(expressions=order))
            continue
        last = node.expressions[-1]
        distinct = next((a for a in node.expressions if isinstance(a, exp.Distinct)), None)
        if distinct is not None and not distinct.expressions:
            continue  # the executor says what is wrong with it
        if distinct is not None:
            order = [exp.Ordered(this=distinct.expressions[0].copy(), nulls_first=False)]
        wrapped = exp.Order(expressions=order)
        last.replace(wrapped)
        wrapped.set("this", last)


def _keep_names(node: Any, root: Any, names: Callable[[], Any]) -> None:
    while node is not root:
        select = node.parent
        projected = isinstance(select, exp.Select) and node.arg_key == "expressions"
        if projected and not isinstance(node, exp.Alias):
            try:
                name = _FIRST_LAST.sub(r'"\1"(', node.sql("duckdb", normalize_functions="lower"))
            except ParseError:  # a call without the arguments that it needs
                name = to_text(node)
            if select is root and len(names()) == len(select.expressions):
                name = names()[node.index]
            alias = exp.Alias(alias=exp.to_identifier(name, quoted=True))
            node.replace(alias)
            alias.set("this", node)
        node = select
