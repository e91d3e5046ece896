"""Prepared statements by text, bound by what they take in memory.

Guarantee
    At most :data:`ENTRIES_MAX` statements and :data:`BYTES_MAX` bytes, the least recently used go
    first; one that would take an eighth of that by itself is not kept.  Safe for many threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from .plan.prepared import PreparedQuery

__all__ = ["BYTES_MAX", "ENTRIES_MAX", "StatementCache"]

ENTRIES_MAX = 512
BYTES_MAX = 64 << 20


class StatementCache:
    """See the module."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Any, PreparedQuery] = OrderedDict()
        self._guard = threading.Lock()
        self.bytes = 0

    def get(self, key: Any) -> PreparedQuery | None:
        """The statement of a key, which becomes the most recently used."""
        with self._guard:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def keep(self, key: Any, prepared: PreparedQuery) -> PreparedQuery:
        """Remember a statement; gives it back."""
        if prepared.bytes > BYTES_MAX // 8:
            return prepared
        with self._guard:
            known = self._entries.pop(key, None)
            self.bytes += prepared.bytes - (0 if known is None else known.bytes)
            self._entries[key] = prepared
            while len(self._entries) > ENTRIES_MAX or self.bytes > BYTES_MAX:
                self.bytes -= self._entries.popitem(last=False)[1].bytes
        return prepared
