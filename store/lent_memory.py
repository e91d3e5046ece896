"""Lent memory: what one leaf was decoded into is used again for the next.

Purpose
    A rewriting decodes, copies and encodes leaf after leaf, megabytes each, in several threads.
    Allocators give memory back to the system between two of them and ask for it again, and the
    system clears every page that it gives: that can take longer than the work.  While a
    :class:`Lender` is in charge, arrays come from blocks that it keeps.

Guarantee
    A block is lent to one array at a time.  It comes back when nothing refers to the array any
    more, whoever has it then: a view, an Arrow buffer, a thread that writes.  When the lender has
    gone, so does each block that comes back.

Limits
    A lender keeps as much as was lent at a time at most.  Arrays below :data:`SMALLEST_BYTES` are
    none of its business, nor are threads that do not work in the context of :func:`lending`.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Lender", "is_lent", "lending", "lent"]

SMALLEST_BYTES = 64 << 10
STEPS = 2
"""Sizes of blocks between two powers of two: leaves of a rewriting are hardly ever as long as each
other, and what no array has reached of a block has no memory behind it."""

Block = npt.NDArray[np.uint8]


class _Loan:
    """What an array stands on, as long as anything refers to it."""

    __slots__ = ("__array_interface__", "_block", "_lender")

    def __init__(self, lender: Lender, block: Block, count: int, dtype: np.dtype[Any]) -> None:
        self._lender = weakref.ref(lender)
        self._block = block
        self.__array_interface__ = {
            "version": 3, "shape": (count,), "typestr": dtype.str,
            "data": (_address(block), False),
        }  # fmt: skip

    def __del__(self) -> None:
        lender = self._lender()
        if lender is not None:
            lender.take_back(self._block)


class Lender:
    """Blocks of memory that are used over and over, by any threads.

    Attributes
    ----------
    blocks : int
        How many it had to make.
    """

    def __init__(self) -> None:
        self._free: defaultdict[int, list[Block]] = defaultdict(list)
        self._lent: set[int] = set()
        self.blocks = 0

    def lend(self, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An array that holds anything."""
        size = _rounded(count * dtype.itemsize)
        try:
            block = self._free[size].pop()
        except IndexError:
            block = np.empty(size, np.uint8)
            self.blocks += 1
        self._lent.add(_address(block))
        return np.asarray(_Loan(self, block, count, dtype))

    def take_back(self, block: Block) -> None:
        """Nobody uses it any more; for who lent it."""
        self._lent.discard(_address(block))
        self._free[block.size].append(block)

    def has_lent(self, address: int) -> bool:
        """Whether an array that it has lent begins there."""
        return address in self._lent


_LENDER: ContextVar[Lender | None] = ContextVar("chronicle_lender", default=None)


@contextmanager
def lending(lender: Lender) -> Iterator[None]:
    """Meanwhile it answers :func:`lent`, here and in what works in copies of this context."""
    token = _LENDER.set(lender)
    try:
        yield
    finally:
        _LENDER.reset(token)


def lent(count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
    """An array of the lender in charge; None where there is none, or for a small one."""
    lender = _LENDER.get()
    if lender is None or count * dtype.itemsize < SMALLEST_BYTES:
        return None
    return lender.lend(count, dtype)


def is_lent(address: int) -> bool:
    """Whether an array of the lender in charge begins there."""
    lender = _LENDER.get()
    return lender is not None and lender.has_lent(address)


def _address(block: Block) -> int:
    place: int = block.__array_interface__["data"][0]
    return place


def _rounded(size: int) -> int:
    """The size of the block for an array: at most half as large again."""
    step = 1 << max(0, size.bit_length() - STEPS.bit_length())
    return -(-size // step) * step
