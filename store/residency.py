"""Limits the resident memory of mapped files.

Touched pages count as memory of this process.  Beyond the most recent ``RESIDENT_BYTES`` they are
released with ``MADV_DONTNEED``; arrays stay valid, and another access costs a page fault.
"""

from __future__ import annotations

import mmap
import weakref
from collections import OrderedDict

from ..core.ownership import ModuleLock

__all__ = ["RESIDENT_BYTES", "Residency", "resident"]

RESIDENT_BYTES = 168 << 20
_PAGE = mmap.PAGESIZE
_ADVICE = getattr(mmap, "MADV_DONTNEED", None)


class Residency:
    """LRU of touched chunks, with at most ``budget`` resident bytes."""

    def __init__(self, budget: int = RESIDENT_BYTES) -> None:
        self.budget = budget
        self.bytes = 0
        self._lock = ModuleLock()
        self._touched: OrderedDict[tuple[int, int], tuple[weakref.ref[mmap.mmap], int]] = (
            OrderedDict()
        )

    def touch(self, data: memoryview, start: int, length: int) -> None:
        mapping = data.obj
        if not isinstance(mapping, mmap.mmap) or length < _PAGE:
            return
        key = (id(mapping), start)
        with self._lock.lock:
            known = self._touched.get(key)
            if known is not None and known[0]() is mapping:
                self._touched.move_to_end(key)
                return
            self._touched[key] = (weakref.ref(mapping), length)
            self.bytes += length
            while self.bytes > self.budget and len(self._touched) > 1:
                (_, old_start), (reference, old_length) = self._touched.popitem(last=False)
                self.bytes -= old_length
                _give_back(reference(), old_start, old_length)


def _give_back(mapping: mmap.mmap | None, start: int, length: int) -> None:
    if mapping is None or _ADVICE is None:
        return
    first = start // _PAGE * _PAGE
    try:
        mapping.madvise(_ADVICE, first, min(start + length - first, len(mapping) - first))
    except (OSError, ValueError):
        return


resident = Residency()
