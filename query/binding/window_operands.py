"""Canonical texts of keys, aggregates and conditions, by which queries are compared."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from ..sql.canonical import canonical
from ..sql.gate import is_volatile
from ..windows.fields import Aggregate
from .window_binding import BoundWindows
from .window_fusion import Fused

__all__ = ["aggregate_text", "condition_text", "key_text", "names_in"]

EVENTS = ""
"""The operand of ``count(*)``."""


def key_text(fused: Fused, name: str) -> str:
    node = fused.derived.get(name)
    return canonical(exp.column(exp.to_identifier(name)) if node is None else node)


def aggregate_text(bound: BoundWindows, aggregate: Aggregate) -> tuple[str, str]:
    fused, name = bound.fused, aggregate.attribute
    assert fused is not None
    if name is None:
        return aggregate.function, EVENTS
    if aggregate.function == "count" and not fused.schema.attribute(name).nullable:
        return aggregate.function, EVENTS
    return aggregate.function, key_text(fused, name)


def condition_text(node: Any) -> str | None:
    """A condition on events; None if it is volatile."""
    if any(isinstance(n, exp.Anonymous) and is_volatile(n.name) for n in node.walk()):
        return None
    return canonical(node)


def names_in(node: Any) -> set[str]:
    return {column.name.lower() for column in node.find_all(exp.Column)}
