"""A cache of lookups for the alternatives of a pattern, with the same events in other orders.

Each term is looked up once per chunk, as a bitmap that ``mark_shifted`` moves to the block's start.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

__all__ = ["KEPT_BYTES", "KeptLookups", "mark_shifted"]

KEPT_BYTES = 64 << 20

Value = TypeVar("Value", bound=tuple[Any, ...])
Bits = npt.NDArray[np.uint64]


class KeptLookups:
    """A cache of at most ``most`` bytes; larger results are looked up again."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._most = most
        self._known: dict[Hashable, tuple[Any, ...]] = {}

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        if key in self._known:
            return cast(Value, self._known[key])
        found = make()
        size = sum(getattr(part, "nbytes", 0) for part in found)
        if size <= self._most:
            self._known[key] = found
            self._most -= size
        return found

    def knows(self, key: Hashable) -> bool:
        return key in self._known


def mark_shifted(words: Bits, distance: int, bits: Bits) -> None:
    """Set the bits of ``words`` in ``bits``, ``distance`` bits later, clipped to ``bits``."""
    first, moved = divmod(distance, 64)
    _mark(words << np.uint64(moved), first, bits)
    if moved:
        _mark(words >> np.uint64(64 - moved), first + 1, bits)


def _mark(words: Bits, first: int, bits: Bits) -> None:
    low, high = max(0, -first), min(len(words), len(bits) - first)
    if low < high:
        bits[first + low : first + high] |= words[low:high]
