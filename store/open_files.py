"""Open segment files: as many as a process can afford, the others closed until they are read.

Purpose
    A segment that is read takes two descriptors, its file and its mapping (those of a cold one,
    likewise).  :data:`open_files` counts the files that can be opened again and has those that were
    not used for longest closed when there are more than :attr:`OpenFiles.limit`.

Guarantee
    A file that is closed so is opened again when it is read: nobody sees a difference.  What was
    handed out of its mapping stays valid.  Files that could not be opened again, since their names
    are gone or about to go, are not counted and stay open.

Limits
    A mapping whose arrays are still held keeps its descriptor.  The order is that of opening, and
    who was read since stands back once: not exactly that of use, but no read has to note its time.
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
"""Of the descriptors that a process may have, one in so many is for segments."""
OPEN_MAX = 4096
OPEN_MIN = 16


class Reopened(Protocol):
    """What can be closed and opens itself again."""

    read_since: bool
    """Whether it was read since it was last asked to close; set by itself."""

    def let_go(self) -> bool:
        """Close it, if it may be closed now; says so."""


class OpenFiles:
    """See the module.

    Attributes
    ----------
    limit : int
        Files that may be open.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = ModuleLock()
        self._open: OrderedDict[int, weakref.ref[Reopened]] = OrderedDict()
        os.register_at_fork(after_in_child=self._forget)

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, file: Reopened) -> None:
        """Count a file; others may have to close."""
        with self._lock.lock:
            self._open[id(file)] = weakref.ref(file)
            over = len(self._open) - self.limit
            asked = self._oldest(file, over) if over > 0 else []
        for each in asked:
            if not each.let_go():
                with self._lock.lock:
                    self._open[id(each)] = weakref.ref(each)

    def closed(self, file: Reopened) -> None:
        """Count a file no more."""
        with self._lock.lock:
            self._open.pop(id(file), None)

    def _oldest(self, newest: Reopened, count: int) -> list[Reopened]:
        """Take out so many that were not read of late; the lock is held."""
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
        """In a forked child: they are its parent's."""
        self._open = OrderedDict()


def _affordable() -> int:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return OPEN_MAX
    return max(OPEN_MIN, min(OPEN_MAX, allowed // (SHARE * DESCRIPTORS_EACH)))


open_files = OpenFiles(_affordable())
"""Of this process."""
