"""Resolution of stream names: exact, else case-insensitive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.suggestion import did_you_mean
from ...errors import SqlError
from .dialect import error_at, position_of


class StreamNames:
    def __init__(self, names: Sequence[str]) -> None:
        self.all = list(names)
        self._folded = {name.lower(): name for name in names}

    def find(self, name: str) -> str | None:
        """The stream's name; None without one."""
        return name if name in self.all else self._folded.get(name.lower())

    def missing(self, node: Any, text: str, what: str = "stream") -> SqlError:
        """The error for an unknown name."""
        hint = did_you_mean(node.name, self.all, quoted=False)
        if not self.all:
            hint = f"; the store has no {what}s yet"
        return error_at(text, position_of(node), f"no {what} {node.name!r}{hint}")
