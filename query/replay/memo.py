"""Memoisation in one plan: keys hold all that values depend on but snapshot and indexes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

__all__ = ["PlanMemo"]

Value = TypeVar("Value")


class PlanMemo:
    def __init__(self) -> None:
        self._known: dict[Hashable, object] = {}

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        if key not in self._known:
            self._known[key] = make()
        return cast(Value, self._known[key])
