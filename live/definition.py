"""The stored definition of a live query: ``live/<name>/MANIFEST``, atomic and durable.

Its progress is in the mark beside its results (``sink``).

``Definitions`` has all definitions of a store, by name, running or not.  Statements hold
``Definitions.lock`` throughout; lookups wait for it, except ``Definitions.get``.  A read-only
process reads again at each lookup.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import ChronicleError, CorruptStore, StreamNotFound, StreamOwned
from ..store.catalog import directory_name, read_manifest, stream_name, write_manifest
from ..store.file_contract import Files
from ..store.store import Store

DIRECTORY = "live"
STATE_BYTES_MAX = 256 << 20


@dataclass(frozen=True)
class LiveDefinition:
    """A live query; durations in ticks of its sources, ``*_ms`` in milliseconds.

    ::

        start            only results from this tick on; None: all
        delay            lag of the watermark behind the newest event
        idle_ms          time without commits after which the newest tick closes; None: never
        correct_for      ticks behind the watermark in which late events correct; None: all
        every_ms         emit open windows on change, at most this often; None: on close
        lag_events_max   appends wait while more events are unprocessed; None: never
        on_truncate      ``refresh`` or ``stop``
        store            False: only followers see results
        columns, views   result columns, and view queries by name, as of creation
        dropping         dropped, but results may still exist
        card             the pattern as a document (``bank.symbols``), if it can share a bank
        rollup           ``size`` and ``origin`` of its windows, in ticks
    """

    name: str
    sql: str
    sources: tuple[str, ...]
    sink: str
    shared: bool = False
    start: int | None = None
    delay: int = 0
    idle_ms: float | None = 1000.0
    correct: bool = True
    correct_for: int | None = None
    every_ms: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    lag_events_max: int | None = None
    state_bytes_max: int = STATE_BYTES_MAX
    on_truncate: str = "refresh"
    store: bool = True
    webhook: str | None = None
    webhook_secret: str | None = None
    paused: bool = False
    dropping: bool = False
    card: Mapping[str, Any] | None = None
    rollup: Mapping[str, int] | None = None
    views: Mapping[str, str] = field(default_factory=dict)

    @property
    def revokes(self) -> bool:
        """Whether emitted results may be retracted."""
        return self.correct or self.every_ms is not None or self.shared

    @property
    def limited(self) -> bool:
        """Whether it sets limits of its own or stores nothing, which excludes it from groups."""
        return (
            not self.store
            or self.lag_events_max is not None
            or self.state_bytes_max != STATE_BYTES_MAX
            or self.on_truncate != "refresh"
        )

    def described(self, time: Callable[[int], str]) -> list[tuple[str, str]]:
        """Names and texts for DESCRIBE; ``time`` formats a tick."""
        late = "corrects" if self.correct else "ignored"
        if self.correct_for is not None:
            late += f" for {self.correct_for} ticks behind the watermark"
        every, idle = self.every_ms, self.idle_ms
        return [
            ("name", self.name),
            ("query", self.sql),
            ("views", "; ".join(f"{name} AS {sql}" for name, sql in self.views.items())),
            ("source", ", ".join(self.sources)),
            ("sink", self.sink + (" (shared)" if self.shared else "")),
            ("columns", ", ".join(self.columns)),
            ("start", "first" if self.start is None else time(self.start)),
            ("delay", f"{self.delay} ticks"),
            ("idle", "never" if idle is None else f"after {idle:g} ms"),
            ("late", late),
            ("emit", "on close" if every is None else f"on change every {every:g} ms"),
            ("webhook", self.webhook or ""),
            ("lag_events_max", "" if self.lag_events_max is None else str(self.lag_events_max)),
            ("state_bytes_max", str(self.state_bytes_max)),
            ("on_truncate", self.on_truncate),
            ("store", "yes" if self.store else "no: results pass by"),
            ("options", ", ".join(f"{k} = {v}" for k, v in self.options.items())),
        ]

    def to_json(self) -> dict[str, Any]:
        lists = {"sources": list(self.sources), "columns": list(self.columns)}
        body = {**asdict(self), "options": dict(self.options), **lists}
        if not self.views:  # earlier releases reject the key
            del body["views"]
        return body

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> LiveDefinition:
        fields = dict(body)
        sources = fields.pop("sources", None) or [fields.pop("source")]  # earlier format
        fields.update(sources=tuple(sources), columns=tuple(fields["columns"]))
        return cls(**fields)


def _place(name: str) -> str:
    return f"{DIRECTORY}/{directory_name(name)}"


def stored_definitions(files: Files) -> tuple[dict[str, LiveDefinition], dict[str, str]]:
    """All definitions by name, and error messages of unreadable ones by name."""
    definitions: dict[str, LiveDefinition] = {}
    damaged: dict[str, str] = {}
    for directory in files.list(DIRECTORY) if files.exists(DIRECTORY) else ():
        name = stream_name(directory)
        try:
            body = read_manifest(files, f"{DIRECTORY}/{directory}")
            if body is not None:  # None: an interrupted creation
                definitions[name] = LiveDefinition.from_json(body)
        except (ChronicleError, KeyError, TypeError, ValueError) as error:
            damaged[name] = (
                f"the live query {name!r} cannot be read: {error}; drop it and create it again"
            )
    return definitions, damaged


class Definitions:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.lock = threading.RLock()
        self._definitions, self._damaged = stored_definitions(store.files)

    def __iter__(self) -> Iterator[LiveDefinition]:
        return iter(list(self._definitions.values()))

    def get(self, name: str) -> LiveDefinition | None:
        """The definition as last read, without the lock; None without one."""
        return self._definitions.get(name)

    def __contains__(self, name: str) -> bool:
        with self.lock:
            self._look()
            return name in self._definitions or name in self._damaged

    def names(self) -> list[str]:
        with self.lock:
            self._look()
            return sorted({*self._definitions, *self._damaged})

    def find(self, name: str) -> LiveDefinition:
        """The definition; StreamNotFound, naming those that exist, or CorruptStore."""
        with self.lock:
            self._look()
            definition = self._definitions.get(name)
            if name in self._damaged:
                raise CorruptStore(self._damaged[name])
        if definition is None:
            names = ", ".join(self.names()) or "there are none yet"
            raise StreamNotFound(f"no live query {name!r} (there are: {names})")
        return definition

    def _look(self) -> None:
        if self._store.mode == "r":
            self._definitions, self._damaged = stored_definitions(self._store.files)

    # -- changes ----------------------------------------------------------------------------------

    def keep(self, definition: LiveDefinition) -> None:
        """Write a definition, durable on return."""
        files, place = self._store.files, _place(definition.name)
        for directory in (DIRECTORY, place):
            if not files.exists(directory):
                files.make_directory(directory)
                files.sync_directory("" if directory == DIRECTORY else DIRECTORY)
        write_manifest(files, place, definition.to_json())
        self._definitions[definition.name] = definition

    def forget(self, name: str) -> None:
        """Remove from memory only, until ``lose``."""
        self._definitions.pop(name, None)

    def lose(self, name: str) -> None:
        """Remove a definition; idempotent."""
        self.forget(name)
        self._damaged.pop(name, None)
        files = self._store.files
        files.remove_tree(_place(name))
        if files.exists(DIRECTORY):
            files.sync_directory(DIRECTORY)

    def damaged(self, name: str) -> bool:
        """Whether a definition is unreadable."""
        return name in self._damaged

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
            first = self._definitions[(readers or writers)[0]]
            kind = "live queries" if first.rollup is None else "roll-ups and live queries"
            word = "LIVE QUERY" if first.rollup is None else "ROLLUP"
            named = ", ".join(readers or writers)
            raise StreamOwned(
                f"the stream {stream!r} is {what} the {kind} {named}; drop them first: "
                f"DROP {word} {first.name}"
            )
