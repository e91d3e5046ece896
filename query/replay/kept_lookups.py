"""What lookups have found, kept while several ways of a pattern are looked up.

Purpose
    The ways of ``PERMUTE(A, B, C)`` look for the same events in another order.  Each term is looked
    up in an index once: :class:`KeptLookups` has the events that satisfy it as a bitmap for each
    chunk, and :func:`mark_shifted` moves them to where a block with the term's symbol begins.

Layout
    ::

        chunk of A                   events 0 .. 255            | 0110...|........|...1....|
        A is the first of a block    bit of event p at p        | 0110...|........|...1....|
        A is its third               bit of event p at p - 2    |10......|........|.1......|

Limits
    At most :data:`KEPT_BYTES` are kept; what is beyond is looked up again.
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
    """See the module.

    Parameters
    ----------
    most : int
        Bytes that are kept.
    """

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._most = most
        self._known: dict[Hashable, tuple[Any, ...]] = {}

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """What was found under a key, looked for where it is not known; not to be changed."""
        if key in self._known:
            return cast(Value, self._known[key])
        found = make()
        size = sum(getattr(part, "nbytes", 0) for part in found)
        if size <= self._most:
            self._known[key] = found
            self._most -= size
        return found

    def knows(self, key: Hashable) -> bool:
        """Whether something was found under a key already."""
        return key in self._known


def mark_shifted(words: Bits, distance: int, bits: Bits) -> None:
    """Set the bits of ``words`` in ``bits``, ``distance`` bits later, as far as there is room."""
    first, moved = divmod(distance, 64)
    _mark(words << np.uint64(moved), first, bits)
    if moved:
        _mark(words >> np.uint64(64 - moved), first + 1, bits)


def _mark(words: Bits, first: int, bits: Bits) -> None:
    low, high = max(0, -first), min(len(words), len(bits) - first)
    if low < high:
        bits[first + low : first + high] |= words[low:high]
