"""Reuse of large buffers while leaves are rewritten in several threads.

Allocators return memory to the system and request it again, and clearing its pages can take longer
than the work.  While a ``Lender`` is active in a context, arrays come from its pool.  A block
returns when nothing refers to its array any more (a view, an Arrow buffer, a writing thread), or is
freed if the lender is gone.  The pool is as large as the maximum lent at one time.
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

SMALLEST_BYTES = 64 << 10
STEPS = 2
"""Block sizes per power of two; untouched memory of a block is free."""

Block = npt.NDArray[np.uint8]


class _Loan:
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
    """A thread-safe pool of memory blocks; ``blocks`` counts those allocated."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[Block]] = defaultdict(list)
        self._lent: set[int] = set()
        self.blocks = 0

    def lend(self, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        size = _rounded(count * dtype.itemsize)
        try:
            block = self._free[size].pop()
        except IndexError:
            block = np.empty(size, np.uint8)
            self.blocks += 1
        self._lent.add(_address(block))
        return np.asarray(_Loan(self, block, count, dtype))

    def take_back(self, block: Block) -> None:
        self._lent.discard(_address(block))
        self._free[block.size].append(block)

    def has_lent(self, address: int) -> bool:
        return address in self._lent


_LENDER: ContextVar[Lender | None] = ContextVar("chronicle_lender", default=None)


@contextmanager
def lending(lender: Lender) -> Iterator[None]:
    """Make a lender serve ``lent`` in this context and its copies."""
    token = _LENDER.set(lender)
    try:
        yield
    finally:
        _LENDER.reset(token)


def lent(count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
    """An array of the active lender; None without one, or for a small array."""
    lender = _LENDER.get()
    if lender is None or count * dtype.itemsize < SMALLEST_BYTES:
        return None
    return lender.lend(count, dtype)


def is_lent(address: int) -> bool:
    lender = _LENDER.get()
    return lender is not None and lender.has_lent(address)


def _address(block: Block) -> int:
    place: int = block.__array_interface__["data"][0]
    return place


def _rounded(size: int) -> int:
    step = 1 << max(0, size.bit_length() - STEPS.bit_length())
    return -(-size // step) * step
