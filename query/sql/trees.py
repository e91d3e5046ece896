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
