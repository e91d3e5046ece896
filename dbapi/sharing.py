"""Shares a store, which has one writer, between the connections of a process."""

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
    key: tuple[Path, str, int]
    database: Database
    users: int = 1

    def release(self) -> None:
        with _guard:
            self.users -= 1
            if self.users == 0:
                _open.pop(self.key, None)
                self.database.close()


def share(path: str | os.PathLike[str], mode: str) -> Shared:
    """The database of a directory; a forked child opens its own."""
    import chronicle

    key = (Path(path).resolve(), mode, os.getpid())
    with _guard:
        found = _open.get(key)
        if found is not None:
            found.users += 1
            return found
        found = _open[key] = Shared(key, chronicle.open(path, mode))
        return found
