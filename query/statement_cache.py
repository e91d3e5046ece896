"""An LRU cache of prepared statements, bounded by number and bytes; thread-safe.

A statement of more than an eighth of ``BYTES_MAX`` is not cached.
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
    def __init__(self) -> None:
        self._entries: OrderedDict[Any, PreparedQuery] = OrderedDict()
        self._guard = threading.Lock()
        self.bytes = 0

    def get(self, key: Any) -> PreparedQuery | None:
        with self._guard:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def keep(self, key: Any, prepared: PreparedQuery) -> PreparedQuery:
        if prepared.bytes > BYTES_MAX // 8:
            return prepared
        with self._guard:
            known = self._entries.pop(key, None)
            self.bytes += prepared.bytes - (0 if known is None else known.bytes)
            self._entries[key] = prepared
            while len(self._entries) > ENTRIES_MAX or self.bytes > BYTES_MAX:
                self.bytes -= self._entries.popitem(last=False)[1].bytes
        return prepared
