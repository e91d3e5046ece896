"""CTEs for queries that run apart from their statement, such as the input of an operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from .scope import OutputColumn

__all__ = ["Cte", "Ctes", "bringing", "hide"]


@dataclass(frozen=True)
class Cte:
    outputs: list[OutputColumn] | None
    node: Any
    recursive: bool


Ctes = dict[str, Cte]


def bringing(query: Any, ctes: Ctes) -> Any:
    needed = _needed(query, ctes)
    if not needed:
        return query
    if query.args.get("with_") is not None:  # its own names take precedence
        query = exp.select("*").from_(query.subquery("input"))
    query.set(
        "with_",
        exp.With(
            expressions=[cte.node.copy() for cte in needed],
            recursive=any(cte.recursive for cte in needed),
        ),
    )
    return query


def hide(name: str, written: Any, ctes: Ctes) -> None:
    """Before a CTE's name is redefined, copy the old one into the queries that use it."""
    old = ctes[name]
    for node in [written, *(cte.node for other, cte in ctes.items() if other != name)]:
        if node is not None and old in _needed(node.this, ctes):
            node.set("this", bringing(node.this, ctes))


def _needed(query: Any, ctes: Ctes) -> list[Cte]:
    """CTEs used by a query, directly or indirectly, in textual order."""
    names: set[str] = set()
    waiting = [query]
    while waiting:
        for table in waiting.pop().find_all(exp.Table):
            name = table.name.lower()
            if name in ctes and name not in names:
                names.add(name)
                waiting.append(ctes[name].node)
    return [cte for name, cte in ctes.items() if name in names]
