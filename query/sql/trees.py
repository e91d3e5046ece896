"""Nodes of a syntax tree as lists, which cost a fraction of sqlglot's nested generators."""

from __future__ import annotations

from typing import Any

from sqlglot import exp


def children_of(node: Any) -> list[Any]:
    """The nodes directly below a node, in the order of its arguments."""
    children: list[Any] = []
    for value in node.args.values():
        if isinstance(value, exp.Expr):
            children.append(value)
        elif isinstance(value, list):
            children += [part for part in value if isinstance(part, exp.Expr)]
    return children


def nodes_of(root: Any) -> list[Any]:
    """A node and all nodes below it, breadth first like ``walk``."""
    nodes = [root]
    for node in nodes:
        nodes += children_of(node)
    return nodes


SEVERAL = frozenset(("columns", "unnest"))
MANY_VALUES = "this stands for several columns or rows, where one value is meant"


def several(root: Any) -> Any:
    """The first part that has not one value for a row: a star that is not counted, COLUMNS, or
    unnest; None without.
    """
    for node in nodes_of(root):
        if isinstance(node, exp.Anonymous) and node.name.lower() in SEVERAL:
            return node
        if isinstance(node, exp.Star):
            part = node.parent if isinstance(node.parent, exp.Column) else node
            if part.parent is None or part.parent.name.lower() != "count":
                return part
    return None
