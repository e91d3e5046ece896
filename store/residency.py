"""How much of the mapped files stays in this process's resident memory.

Purpose
    Leaves are read through mappings, and every page touched counts as memory of this process until
    it is given back.  A full scan of a large stream would appear to hold all of it.

Guarantee
    Chunks touched most recently, up to :data:`RESIDENT_BYTES` of them, stay mapped in; pages of
    older ones are given back to the system.  They stay in its page cache and arrays that point to
    them stay valid: touching them again costs a page fault, not a read.

Limits
    Advice only: where the system has no ``MADV_DONTNEED`` nothing is given back.
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
    """Remembers which chunks of which mappings were touched, oldest first.

    Parameters
    ----------
    budget : int
        Bytes that may stay resident.
    """

    def __init__(self, budget: int = RESIDENT_BYTES) -> None:
        self.budget = budget
        self.bytes = 0
        self._lock = ModuleLock()
        self._touched: OrderedDict[tuple[int, int], tuple[weakref.ref[mmap.mmap], int]] = (
            OrderedDict()
        )

    def touch(self, data: memoryview, start: int, length: int) -> None:
        """Note that bytes [start, start + length) of a mapping are being read."""
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
    """Give back the whole pages of a range; those shared with a neighbour at its ends too."""
    if mapping is None or _ADVICE is None:
        return
    first = start // _PAGE * _PAGE
    try:
        mapping.madvise(_ADVICE, first, min(start + length - first, len(mapping) - first))
    except (OSError, ValueError):
        return


resident = Residency()
"""Of this process."""
