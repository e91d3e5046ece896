"""Positions: commits from which a follower over HTTP resumes, stored under a name.

The events between two positions are always the same, each exactly once (``store.changes``), also
after a restart: positions are files in the stream's directory (``store.pins``), and pin the
files that they need.  An expired position answers 410.  A position belongs to the token that made
it, by the token's name.  Its own name is the commit, 16 random digits and 8 of a hash of these and
the owner: ``57-03ab5c7d9e1f2a4b6c8d0e2f``.

A position expires ``CHRONICLE_POSITION_TTL_HOURS`` after its creation or last renewal.  Until then
compaction and retention cannot free what it pins; ``CHRONICLE_MAX_POSITIONS`` bounds a stream's.

Pinned versions: ``GET .../partitions`` pins the version that a Spark job plans with, ``?version=``
reads it.  Pins are in memory, for ``CHRONICLE_SNAPSHOT_TTL_MS`` after their last use, and keep the
version's files; an expired version answers 410.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from ...errors import ChronicleError, InvalidArgument, ReadOnlyStore, ResourceLimit, SnapshotExpired
from ...store.changes import NewRange, new_events, new_ranges, rows_between
from ...store.pins import Pin, drop_pin, keep_pin, load_pin, renew_pin, stored_pins, sweep_pins
from ...store.recovery import load
from ...store.stream import EventStream

if TYPE_CHECKING:
    from ...catalog.store_catalog import StoreCatalog
    from ...store.snapshot import Snapshot

_NAME = re.compile(r"([0-9]{1,19})-([0-9a-f]{16})([0-9a-f]{8})?")


@dataclass(eq=False)
class Positions:
    """All methods block.  A position lives for ``keep_s`` seconds; ``most`` per stream."""

    catalog: StoreCatalog
    keep_s: float
    most: int
    clock: Callable[[], float] = time.time
    _guard: threading.Lock = field(default_factory=threading.Lock, init=False)

    def keep(
        self, stream: str, owner: str, at: int | None = None, after: str | None = None
    ) -> str | None:
        """Store commit ``at`` (default: the last) for an owner; returns the position's name.
        ``after`` is a position to renew; None if nothing was committed after it.  Raises
        ``ResourceLimit``, or ``SnapshotExpired`` if ``after`` or ``at`` is gone.
        """
        handle = self._writer(stream)
        files, directory = handle.commits.files, handle.commits.directory
        if after is not None:
            position = _commit_of(after)
            _check_owner(after, owner)
            renew_pin(files, directory, after, seconds=self.keep_s, clock=self.clock)
            if load(files, directory).journal.position <= position:
                return None
        with self._guard:  # so that concurrent requests do not exceed the maximum
            if self._full(stored_pins(files, directory), owner):
                sweep_pins(files, directory, clock=self.clock)
                if self._full(stored_pins(files, directory), owner):
                    raise ResourceLimit(
                        f"the stream {stream!r} keeps {self.most} positions for followers, "
                        "three quarters of them for one token at most "
                        "(CHRONICLE_MAX_POSITIONS); drop those that nobody needs, or raise it"
                    )
            return keep_pin(
                files,
                directory,
                position=at,
                seconds=self.keep_s,
                clock=self.clock,
                suffix=_suffix(secrets.token_hex(8), owner),
            )

    def _full(self, names: list[str], owner: str) -> bool:
        mine = sum(_belongs(name, owner) for name in names)
        share = self.most - (self.most // 4 if owner else 0)
        return len(names) >= self.most or mine >= share

    def drop(self, stream: str, owner: str, name: str) -> None:
        """Remove a position; does nothing for one that is gone or another's."""
        _commit_of(name)
        handle = self._writer(stream)
        if _belongs(name, owner):
            drop_pin(handle.commits.files, handle.commits.directory, name)

    def ranges(self, stream: str, owner: str, after: str | None, until: str) -> list[NewRange]:
        handle = self._writer(stream)
        before, later = self._pins(handle, owner, after, until)
        return new_ranges(handle.commits.files, before, later)

    def events(
        self,
        stream: str,
        owner: str,
        after: str | None,
        until: str,
        start: int | None,
        end: int | None,
        columns: Sequence[str],
        skip: int = 0,
        limit: int | None = None,
        check: Callable[[], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The new events of a time range (ticks, half-open), in time order, without the first
        ``skip``.
        """
        handle = self._writer(stream)
        before, later = self._pins(handle, owner, after, until)
        files = handle.commits.files
        events = new_events(files, before, later, start, end, columns, check)
        return rows_between(events, skip, limit)

    def sweep(self) -> None:
        for name in self.catalog.streams():
            with contextlib.suppress(ChronicleError):
                handle = self._writer(name)
                sweep_pins(handle.commits.files, handle.commits.directory, clock=self.clock)

    def _pins(
        self, handle: EventStream, owner: str, after: str | None, until: str
    ) -> tuple[Pin | None, Pin]:
        files, directory = handle.commits.files, handle.commits.directory
        if after is not None and _commit_of(after) > _commit_of(until):
            raise InvalidArgument(f"'after' ({after}) lies behind 'until' ({until})")
        _commit_of(until)
        for name in (after, until):
            if name is not None:
                _check_owner(name, owner)
        before = None if after is None else load_pin(files, directory, after)
        return before, load_pin(files, directory, until)

    def _writer(self, stream: str) -> EventStream:
        handle = self.catalog.handle(stream)
        if not isinstance(handle, EventStream):
            raise ReadOnlyStore(
                "the store is open for reading here, and positions are files beside the stream; "
                "follow it through the server that writes"
            )
        return handle


def _commit_of(name: str) -> int:
    """The commit in a position's name; validates it, as names from clients become file names."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise InvalidArgument(
            f"expected the name of a position, such as 57-03ab5c7d9e1f2a4b6c8d0e2f, found {name!r}"
        )
    return int(match[1])


def _suffix(unique: str, owner: str) -> str:
    """The unique part of a position's name, tied to its owner."""
    return unique + hashlib.sha256(f"{unique}\n{owner}".encode()).hexdigest()[:8]


def _belongs(name: str, owner: str) -> bool:
    """Whether a position is the owner's, or nobody's (no tokens, old release, path follower)."""
    match = _NAME.fullmatch(name)
    if match is None or match[3] is None:
        return True
    return match[2] + match[3] in (_suffix(match[2], owner), _suffix(match[2], ""))


def _check_owner(name: str, owner: str) -> None:
    if not _belongs(name, owner):
        raise SnapshotExpired(
            f"the position {name} of a follower is no longer kept (unused for too long, or "
            "dropped): follow the stream anew, with a new checkpoint"
        )


@dataclass
class _Pin:
    snapshot: Snapshot
    used: float
    readers: int = 0


@dataclass(eq=False)
class PinnedSnapshots:
    """Snapshots by stream and version; thread-safe.  An unused pin lives for ``keep_s`` seconds; at
    most ``most`` exist, the least recently used goes first.  Who reads one keeps it in any case.
    """

    take: Callable[[str], Snapshot]
    keep_s: float
    most: int
    clock: Callable[[], float] = time.monotonic
    _guard: threading.Lock = field(default_factory=threading.Lock, init=False)
    _pins: dict[tuple[str, int], _Pin] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._pins)

    @contextmanager
    def pin(self, stream: str, version: int | None = None) -> Iterator[Snapshot]:
        """A version, for the block and for later reads of it; None: the present one.  Raises
        ``SnapshotExpired``.
        """
        self.sweep()
        pin = None if version is None else self._pins.get((stream, version))
        if pin is None:
            present = self.take(stream)
            if version not in (None, present.version):
                raise SnapshotExpired(
                    f"version {version} of the stream {stream!r} is not kept (now "
                    f"{present.version}); plan the read again with GET .../partitions, or raise "
                    "CHRONICLE_SNAPSHOT_TTL_MS"
                )
            with self._guard:
                pin = self._pins.setdefault((stream, present.version), _Pin(present, self.clock()))
        with self._guard:
            pin.readers += 1
        self.sweep()
        try:
            yield pin.snapshot
        finally:
            with self._guard:
                pin.readers -= 1
                pin.used = self.clock()

    def forget(self, stream: str) -> None:
        with self._guard:
            for key in [key for key in self._pins if key[0] == stream]:
                del self._pins[key]

    def sweep(self) -> None:
        with self._guard:
            too_many, oldest = len(self._pins) - self.most, self.clock() - self.keep_s
            idle = [key for key, pin in self._pins.items() if not pin.readers]
            idle.sort(key=lambda key: self._pins[key].used)
            for place, key in enumerate(idle):
                if place < too_many or self._pins[key].used < oldest:
                    del self._pins[key]
