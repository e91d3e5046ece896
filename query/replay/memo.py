"""What planning has found out, once for all outlines of a pattern.

Purpose
    A pattern that can go several ways has several outlines (:mod:`.symbols`), which ask the same
    conditions of the same stream in another order.  Where leaves may hold a condition, how many
    entries of an index satisfy a term, what a sample says: none of that depends on the order.
    :class:`PlanMemo` keeps it for the length of one plan.

Invariants
    A key tells everything that its value depends on, but for the snapshot and the indexes, which
    are those of the one plan.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

__all__ = ["PlanMemo"]

Value = TypeVar("Value")


class PlanMemo:
    """See the module."""

    def __init__(self) -> None:
        self._known: dict[Hashable, object] = {}

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made where it is not known."""
        if key not in self._known:
            self._known[key] = make()
        return cast(Value, self._known[key])
