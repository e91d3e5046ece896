"""A limit on open segment files: the least recently used are closed, and reopened on demand.

Each takes two descriptors.  Arrays from a closed file's mapping stay valid, and keep its
descriptor.  Files whose names are about to be removed are not counted and stay open.  The order is
second-chance (CLOCK): reads set only a flag.
"""

from __future__ import annotations

import os
import resource
import weakref
from collections import OrderedDict
from typing import Protocol

from ..core.ownership import ModuleLock

__all__ = ["OpenFiles", "Reopened", "open_files"]

DESCRIPTORS_EACH = 2
SHARE = 4
"""1/4 of the descriptors that a process may have are for segments."""
OPEN_MAX = 4096
OPEN_MIN = 16


class Reopened(Protocol):
    read_since: bool
    """Whether it was read since it was last asked to close; set by the file."""

    def let_go(self) -> bool:
        """Close it, if possible now; returns whether it did."""


class OpenFiles:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = ModuleLock()
        self._open: OrderedDict[int, weakref.ref[Reopened]] = OrderedDict()
        os.register_at_fork(after_in_child=self._forget)

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, file: Reopened) -> None:
        with self._lock.lock:
            self._open[id(file)] = weakref.ref(file)
            over = len(self._open) - self.limit
            asked = self._oldest(file, over) if over > 0 else []
        for each in asked:
            if not each.let_go():
                with self._lock.lock:
                    self._open[id(each)] = weakref.ref(each)

    def closed(self, file: Reopened) -> None:
        with self._lock.lock:
            self._open.pop(id(file), None)

    def _oldest(self, newest: Reopened, count: int) -> list[Reopened]:
        found: list[Reopened] = []
        for _ in range(2 * len(self._open)):
            if count <= 0:
                break
            key, reference = self._open.popitem(last=False)
            file = reference()
            if file is None:
                count -= 1
            elif file is newest or file.read_since:
                file.read_since = False
                self._open[key] = reference
            else:
                found.append(file)
                count -= 1
        return found

    def _forget(self) -> None:
        self._open = OrderedDict()


def _affordable() -> int:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return OPEN_MAX
    return max(OPEN_MIN, min(OPEN_MAX, allowed // (SHARE * DESCRIPTORS_EACH)))


open_files = OpenFiles(_affordable())
