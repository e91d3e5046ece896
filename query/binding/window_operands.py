"""What windows are grouped by and aggregate, as texts that two queries can be compared by.

Guarantee
    Equal texts mean equal values: names are as the schema spells them, expressions canonical
    (:mod:`..sql.canonical`).
"""

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
    """A key or an operand: an attribute, or an expression over some."""
    node = fused.derived.get(name)
    return canonical(exp.column(exp.to_identifier(name)) if node is None else node)


def aggregate_text(bound: BoundWindows, aggregate: Aggregate) -> tuple[str, str]:
    """Function and operand of an aggregate."""
    fused, name = bound.fused, aggregate.attribute
    assert fused is not None
    if name is None:
        return aggregate.function, EVENTS
    if aggregate.function == "count" and not fused.schema.attribute(name).nullable:
        return aggregate.function, EVENTS
    return aggregate.function, key_text(fused, name)


def condition_text(node: Any) -> str | None:
    """A condition on events; None for one that need not be the same each time."""
    if any(isinstance(n, exp.Anonymous) and is_volatile(n.name) for n in node.walk()):
        return None
    return canonical(node)


def names_in(node: Any) -> set[str]:
    """Names of the columns of an expression, in lower case."""
    return {column.name.lower() for column in node.find_all(exp.Column)}
