"""The stored definition of a live query: ``live/<name>/MANIFEST``, atomic and durable.

Its progress is in the mark beside its results (``sink``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import ChronicleError
from ..store.catalog import directory_name, stream_name
from ..store.file_contract import Files
from ..store.manifest import read_manifest, write_manifest

__all__ = [
    "DIRECTORY",
    "STATE_BYTES_MAX",
    "LiveDefinition",
    "keep_definition",
    "kept_definitions",
    "lose_definition",
]

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
        card             the pattern as a document (``bank.cards``), if it can share a bank
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
        known = dict(body)
        sources = known.pop("sources", None) or [known.pop("source")]  # earlier format
        known.update(sources=tuple(sources), columns=tuple(known["columns"]))
        return cls(**known)


def _place(name: str) -> str:
    return f"{DIRECTORY}/{directory_name(name)}"


def keep_definition(files: Files, definition: LiveDefinition) -> None:
    for directory in (DIRECTORY, _place(definition.name)):
        if not files.exists(directory):
            files.make_directory(directory)
            files.sync_directory("" if directory == DIRECTORY else DIRECTORY)
    write_manifest(files, _place(definition.name), definition.to_json())


def lose_definition(files: Files, name: str) -> None:
    """Remove a definition; idempotent."""
    files.remove_tree(_place(name))
    if files.exists(DIRECTORY):
        files.sync_directory(DIRECTORY)


def kept_definitions(files: Files) -> tuple[dict[str, LiveDefinition], dict[str, str]]:
    """All definitions by name, and error messages of unreadable ones by name."""
    found: dict[str, LiveDefinition] = {}
    damaged: dict[str, str] = {}
    for directory in files.list(DIRECTORY) if files.exists(DIRECTORY) else ():
        name = stream_name(directory)
        try:
            body = read_manifest(files, f"{DIRECTORY}/{directory}")
            if body is not None:  # None: an interrupted creation
                found[name] = LiveDefinition.from_json(body)
        except (ChronicleError, KeyError, TypeError, ValueError) as error:
            damaged[name] = (
                f"the live query {name!r} cannot be read: {error}; drop it and create it again"
            )
    return found, damaged
