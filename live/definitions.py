"""The live queries that a store has, by name, whether they are at work or not.

Purpose
    :class:`Definitions` is what statements change and everything else looks up: names, what each of
    them is, which streams they read and write, and those that cannot be read any more.

Guarantee
    What it tells is what lies in the store.  Where another process writes, that is looked at anew
    each time.

Concurrency
    Whoever changes a definition holds :attr:`Definitions.lock` for as long as the whole statement
    takes, and who asks waits for that.  Steps look up what they do without it
    (:meth:`Definitions.get`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from ..errors import CorruptStore, StreamNotFound, StreamOwned
from ..store import Store
from .definition import LiveDefinition, keep_definition, kept_definitions, lose_definition

__all__ = ["Definitions"]


class Definitions:
    """See the module.

    Attributes
    ----------
    lock : RLock
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lock = threading.RLock()
        self._known, self._damaged = kept_definitions(store.files)

    def __iter__(self) -> Iterator[LiveDefinition]:
        return iter(list(self._known.values()))

    def get(self, name: str) -> LiveDefinition | None:
        """What one is, as far as that is known here; None without one."""
        return self._known.get(name)

    def names(self) -> list[str]:
        """Names of all, sorted."""
        with self.lock:
            self._look()
            return sorted({*self._known, *self._damaged})

    def find(self, name: str) -> LiveDefinition:
        """What one is.

        Raises
        ------
        StreamNotFound
            With the names that there are.
        CorruptStore
            When it cannot be read.
        """
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
        """Where another process writes, see what it has made or dropped."""
        if self._store.mode == "r":
            self._known, self._damaged = kept_definitions(self._store.files)

    # -- changes ----------------------------------------------------------------------------------

    def keep(self, definition: LiveDefinition) -> None:
        """Write a definition, in place of the one before; durable on return."""
        keep_definition(self._store.files, definition)
        self._known[definition.name] = definition

    def forget(self, name: str) -> None:
        """Tell of one no more; what lies in the store stays, until :meth:`lose`."""
        self._known.pop(name, None)

    def lose(self, name: str) -> None:
        """Remove one; doing so again does nothing."""
        self.forget(name)
        lose_definition(self._store.files, name)

    def lose_damaged(self, name: str) -> bool:
        """Remove one that cannot be read; False where it can be, or is not there."""
        if name not in self._damaged:
            return False
        del self._damaged[name]
        lose_definition(self._store.files, name)
        return True

    # -- streams ----------------------------------------------------------------------------------

    def sources(self) -> set[str]:
        """Names of all streams that are read."""
        return {name for each in self for name in each.sources}

    def writes(self, sink: str) -> bool:
        """Whether one puts its results into a stream."""
        return any(each.sink == sink for each in self)

    def check_drop(self, stream: str) -> None:
        """Refuse to drop, rename or reshape a stream that live queries read, or write.

        Raises
        ------
        StreamOwned
            With their names.
        """
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
