"""A store that several connections of this process use: opened by the first, closed by the last.

Purpose
    One process opens a store once for writing, while pools of connections open several at will.

Guarantee
    Connections to one directory, opened alike, share one database.  The last one to be closed
    closes it.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..api.database import Database

__all__ = ["Shared", "share"]

_guard = threading.Lock()
_open: dict[tuple[Path, str, int], Shared] = {}


@dataclass
class Shared:
    """A database and how many connections use it."""

    key: tuple[Path, str, int]
    database: Database
    users: int = 1

    def release(self) -> None:
        """One connection less."""
        with _guard:
            self.users -= 1
            if self.users == 0:
                _open.pop(self.key, None)
                self.database.close()


def share(path: str | os.PathLike[str], mode: str) -> Shared:
    """The database of a directory; a forked child has its own."""
    import chronicle

    key = (Path(path).resolve(), mode, os.getpid())
    with _guard:
        found = _open.get(key)
        if found is not None:
            found.users += 1
            return found
        found = _open[key] = Shared(key, chronicle.open(path, mode))
        return found
