"""What a live query is, as it is kept: name, text, and how its options were understood.

Layout
    ``live/<name>/MANIFEST`` in the store's directory, a manifest (:mod:`chronicle.store.manifest`)
    whose body is :meth:`LiveDefinition.to_json`.  What a live query has done is not here: that is
    in the mark beside its results (:mod:`.sink`).

Guarantee
    A definition is there whole or not at all, and durable when it was written.
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
    """A live query.

    Attributes
    ----------
    name : str
    sql : str
        The SELECT, as it was written.
    sources : tuple of str
        The streams that it reads.
    sink : str
        The stream that takes its results.
    shared : bool
        Whether others put their results there, too.
    start : int or None
        Only results of this tick or later; None for all.
    delay : int
        Ticks that events are waited for.
    idle_ms : float or None
        Wall clock without a commit after which the newest tick is closed; None for never.
    correct : bool
        Whether late events correct what was put out.
    correct_for : int or None
        Ticks behind the watermark up to which they do; None without bound.
    every_ms : float or None
        Open windows are put out as they change, at most this often; None: when they close.
    options : mapping
        Of the sink: ``retention``, ``durability``.
    lag_events_max : int or None
        An append that leaves more events behind waits for a step; None: appends never wait.
    state_bytes_max : int
        Memory that may be kept from step to step.
    on_truncate : {"refresh", "stop"}
        What a truncation of a source does.
    store : bool
        Whether results are kept; else they are only told to those who follow.
    columns : tuple of str
        Of the results, as they were when it was made.
    webhook, webhook_secret : str or None
        Where its results are sent, and what that is signed with.
    paused : bool
    dropping : bool
        It was dropped, and its results may not be gone yet.
    card : mapping or None
        What a bank needs to know of its pattern (:mod:`.bank.cards`), if it may share one.
    rollup : mapping or None
        Of a roll-up: ``size`` and ``origin`` of its windows, in ticks.
    views : mapping of str to str
        The views that it names, with their queries as they were when it was made.
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
        """Whether anything that was put out may be taken back."""
        return self.correct or self.every_ms is not None or self.shared

    @property
    def limited(self) -> bool:
        """Whether what happens beyond a limit was asked for, or that nothing be stored."""
        return (
            not self.store
            or self.lag_events_max is not None
            or self.state_bytes_max != STATE_BYTES_MAX
            or self.on_truncate != "refresh"
        )

    def described(self, time: Callable[[int], str]) -> list[tuple[str, str]]:
        """What it is, for people: names and texts; ``time`` writes a tick."""
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
        """Body of its manifest."""
        lists = {"sources": list(self.sources), "columns": list(self.columns)}
        body = {**asdict(self), "options": dict(self.options), **lists}
        if not self.views:  # which releases before there were any do not know
            del body["views"]
        return body

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> LiveDefinition:
        """Read what :meth:`to_json` wrote."""
        known = dict(body)
        sources = known.pop("sources", None) or [known.pop("source")]  # one, before there were more
        known.update(sources=tuple(sources), columns=tuple(known["columns"]))
        return cls(**known)


def _place(name: str) -> str:
    return f"{DIRECTORY}/{directory_name(name)}"


def keep_definition(files: Files, definition: LiveDefinition) -> None:
    """Write a definition, in place of the one before."""
    for directory in (DIRECTORY, _place(definition.name)):
        if not files.exists(directory):
            files.make_directory(directory)
            files.sync_directory("" if directory == DIRECTORY else DIRECTORY)
    write_manifest(files, _place(definition.name), definition.to_json())


def lose_definition(files: Files, name: str) -> None:
    """Remove a definition; doing so again does nothing."""
    files.remove_tree(_place(name))
    if files.exists(DIRECTORY):
        files.sync_directory(DIRECTORY)


def kept_definitions(files: Files) -> tuple[dict[str, LiveDefinition], dict[str, str]]:
    """All definitions by name; and those that cannot be read, each with what is wrong."""
    found: dict[str, LiveDefinition] = {}
    damaged: dict[str, str] = {}
    for directory in files.list(DIRECTORY) if files.exists(DIRECTORY) else ():
        name = stream_name(directory)
        try:
            body = read_manifest(files, f"{DIRECTORY}/{directory}")
            if body is not None:  # else of a creation that was cut short
                found[name] = LiveDefinition.from_json(body)
        except (ChronicleError, KeyError, TypeError, ValueError) as error:
            damaged[name] = (
                f"the live query {name!r} cannot be read: {error}; drop it and create it again"
            )
    return found, damaged
