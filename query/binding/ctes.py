"""CTEs that a query needs when it runs apart from the statement that it stands in.

Purpose
    The input of an operator is a query of its own: :func:`bringing` gives it the CTEs that it
    names, as they are written, and :func:`hide` keeps what a name meant before it was given again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from .scope import OutputColumn

__all__ = ["Cte", "Ctes", "bringing", "hide"]


@dataclass(frozen=True)
class Cte:
    """A CTE: its columns, and a copy of it as written, for queries that run apart from this one."""

    outputs: list[OutputColumn] | None
    node: Any
    recursive: bool


Ctes = dict[str, Cte]


def bringing(query: Any, ctes: Ctes) -> Any:
    """A query with the CTEs that it needs."""
    needed = _needed(query, ctes)
    if not needed:
        return query
    if query.args.get("with_") is not None:  # its own names hide those from outside
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
    """A CTE gets a name that means another one outside: those that use that one take it along."""
    old = ctes[name]
    for node in [written, *(cte.node for other, cte in ctes.items() if other != name)]:
        if node is not None and old in _needed(node.this, ctes):
            node.set("this", bringing(node.this, ctes))


def _needed(query: Any, ctes: Ctes) -> list[Cte]:
    """The CTEs that a query names, and those that these name, in the order they are written."""
    names: set[str] = set()
    waiting = [query]
    while waiting:
        for table in waiting.pop().find_all(exp.Table):
            name = table.name.lower()
            if name in ctes and name not in names:
                names.add(name)
                waiting.append(ctes[name].node)
    return [cte for name, cte in ctes.items() if name in names]
