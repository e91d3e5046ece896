"""What a roll-up holds, as far as a plan has to know it.

Purpose
    A roll-up is a live query over ``TUMBLE`` whose results outlive the events that they are made
    of.  A :class:`Rollup` says which keys, aggregates and conditions it has, under texts that a
    query's own are compared with (:mod:`..binding.window_operands`), and in which column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Rollup"]


@dataclass(frozen=True)
class Rollup:
    """One roll-up.

    Attributes
    ----------
    sink : str
        The stream of its results.
    stream : str
        What it is made of.
    size, origin : int
        Of its windows, in ticks.
    keys : mapping of str to str
        Column of each key.
    attributes : mapping of str to str
        Column of each key that is an attribute, by its name.
    aggregates : mapping of (str, str) to str
        Column of each function of an operand.
    conditions : frozenset of str
        What held of the events.
    told : callable
        The mark of its last step, where it runs here; None elsewhere.
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
        """Where the window that holds a tick begins."""
        return (tick - self.origin) // self.size * self.size + self.origin

    def aligned(self, tick: int) -> bool:
        """Whether a window begins there."""
        return (tick - self.origin) % self.size == 0
