"""All live query definitions of a store, by name, running or not.

Statements hold ``Definitions.lock`` throughout; lookups wait for it, except ``Definitions.get``.  A
read-only process reads again at each lookup.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from ..errors import CorruptStore, StreamNotFound, StreamOwned
from ..store import Store
from .definition import LiveDefinition, keep_definition, kept_definitions, lose_definition

__all__ = ["Definitions"]


class Definitions:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.lock = threading.RLock()
        self._known, self._damaged = kept_definitions(store.files)

    def __iter__(self) -> Iterator[LiveDefinition]:
        return iter(list(self._known.values()))

    def get(self, name: str) -> LiveDefinition | None:
        """The definition as last read, without the lock; None without one."""
        return self._known.get(name)

    def names(self) -> list[str]:
        with self.lock:
            self._look()
            return sorted({*self._known, *self._damaged})

    def find(self, name: str) -> LiveDefinition:
        """The definition; StreamNotFound, naming those that exist, or CorruptStore."""
        with self.lock:
            self._look()
            found = self._known.get(name)
            if name in self._damaged:
                raise CorruptStore(self._damaged[name])
        if found is None:
            known = ", ".join(self.names()) or "there are none yet"
            raise StreamNotFound(f"no live query {name!r} (there are: {known})")
        return found

    def _look(self) -> None:
        if self._store.mode == "r":
            self._known, self._damaged = kept_definitions(self._store.files)

    # -- changes ----------------------------------------------------------------------------------

    def keep(self, definition: LiveDefinition) -> None:
        """Write a definition, durable on return."""
        keep_definition(self._store.files, definition)
        self._known[definition.name] = definition

    def forget(self, name: str) -> None:
        """Remove from memory only, until ``lose``."""
        self._known.pop(name, None)

    def lose(self, name: str) -> None:
        self.forget(name)
        lose_definition(self._store.files, name)

    def lose_damaged(self, name: str) -> bool:
        """Remove an unreadable definition; False if it is readable or absent."""
        if name not in self._damaged:
            return False
        del self._damaged[name]
        lose_definition(self._store.files, name)
        return True

    # -- streams ----------------------------------------------------------------------------------

    def sources(self) -> set[str]:
        return {name for each in self for name in each.sources}

    def writes(self, sink: str) -> bool:
        return any(each.sink == sink for each in self)

    def check_drop(self, stream: str) -> None:
        """Raise StreamOwned if live queries read or write the stream."""
        with self.lock:
            readers = [each.name for each in self if stream in each.sources]
            writers = [each.name for each in self if each.sink == stream and each.store]
        if readers or writers:
            what = "read by" if readers else "the sink of"
            first = self._known[(readers or writers)[0]]
            kind = "live queries" if first.rollup is None else "roll-ups and live queries"
            word = "LIVE QUERY" if first.rollup is None else "ROLLUP"
            named = ", ".join(readers or writers)
            raise StreamOwned(
                f"the stream {stream!r} is {what} the {kind} {named}; drop them first: "
                f"DROP {word} {first.name}"
            )
