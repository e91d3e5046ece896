"""Columns with one non-null value in several events of a match, because of ``B.beat = A.beat``.

Limits: the same column, not floating point and not the time; the other variable occurs once in the
pattern and does not repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from ...schema import Storage, StreamSchema
from ..pattern.binding import Bound, Navigation
from ..pattern.compiled import CompiledMatch
from ..pattern.typed import leaf_index

__all__ = ["SharedColumn", "shared_columns"]


@dataclass(frozen=True)
class SharedColumn:
    """A column with one value in the events of some variables of a match."""

    column: str
    variables: frozenset[str]

    def __str__(self) -> str:
        return f"{self.column} of {', '.join(sorted(self.variables))}"


def shared_columns(compiled: CompiledMatch, schema: StreamSchema) -> tuple[SharedColumn, ...]:
    names = compiled.automaton.names
    alone = {
        name
        for p, name in enumerate(names)
        if p and names.count(name) == 1 and p not in _behind(compiled, p)
    }
    found: dict[str, list[set[str]]] = {}
    for name, bound in compiled.definitions.items():
        for left, right in _equalities(bound, name):
            if right not in alone or left not in schema or left == schema.time:
                continue
            if schema.attribute(left).storage is not Storage.FLOAT:
                found.setdefault(left, []).append({name, right})
    return tuple(
        SharedColumn(column, frozenset(joined))
        for column, pairs in found.items()
        for joined in _components(pairs)
    )


def _behind(compiled: CompiledMatch, position: int) -> set[int]:
    edges, seen = compiled.automaton.edges, set[int]()
    waiting = [position]
    while waiting:
        for edge in edges[waiting.pop()]:
            if edge.target > 0 and edge.target not in seen:
                seen.add(edge.target)
                waiting.append(edge.target)
    return seen


def _equalities(bound: Bound, variable: str) -> list[tuple[str, str]]:
    found = []
    parts = [bound.scalar]
    while parts:
        node: Any = parts.pop()
        if isinstance(node, exp.Paren):
            parts.append(node.this)
        elif isinstance(node, exp.And):
            parts += [node.this, node.expression]
        elif isinstance(node, exp.EQ):
            sides = [_side(bound, side, variable) for side in (node.this, node.expression)]
            for own, other in (sides, sides[::-1]):
                if own is None or other is None or own[0] != other[0]:
                    continue
                if own[1] == variable != other[1]:
                    found.append((own[0], other[1]))
    return found


def _side(bound: Bound, node: Any, variable: str) -> tuple[str, str] | None:
    index = leaf_index(node)
    leaf = None if index is None else bound.leaves[index]
    if not isinstance(leaf, Navigation) or leaf.row.column is None or leaf.offset or leaf.shift:
        return None
    if (leaf.variables is None or leaf.variables == {variable}) and not leaf.first:
        return leaf.row.column, variable
    if leaf.variables is not None and len(leaf.variables) == 1 and variable not in leaf.variables:
        return leaf.row.column, next(iter(leaf.variables))
    return None


def _components(pairs: list[set[str]]) -> list[set[str]]:
    joined: list[set[str]] = []
    for pair in pairs:
        touched = [some for some in joined if some & pair]
        joined = [some for some in joined if not some & pair]
        joined.append(pair.union(*touched))
    return joined
