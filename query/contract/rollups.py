"""What a plan has to know of a roll-up: a live query over ``TUMBLE`` whose results outlive events.

Keys, aggregates and conditions are canonical texts (``binding.window_operands``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Rollup"]


@dataclass(frozen=True)
class Rollup:
    """A roll-up of ``stream`` into ``sink``, with windows of ``size`` ticks from ``origin``.
    ``keys``: column by key; ``attributes``: column by attribute, for keys that are attributes;
    ``aggregates``: column by (function, operand); ``conditions``: filters on its events; ``told``:
    mark of its last step if it runs in this process, else None.
    """

    name: str
    sink: str
    stream: str
    size: int
    origin: int
    keys: Mapping[str, str]
    attributes: Mapping[str, str]
    aggregates: Mapping[tuple[str, str], str]
    conditions: frozenset[str]
    told: Callable[[], Mapping[str, Any] | None] = lambda: None

    def begin(self, tick: int) -> int:
        return (tick - self.origin) // self.size * self.size + self.origin

    def aligned(self, tick: int) -> bool:
        return (tick - self.origin) % self.size == 0
