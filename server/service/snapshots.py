"""Pinned versions: ``GET .../partitions`` pins the version that a Spark job plans with,
``?version=`` reads it.  Pins are in memory, for ``CHRONICLE_SNAPSHOT_TTL_MS`` after their last use,
and keep the version's files; an expired version answers 410.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sortedcontainers import SortedSet

from ...errors import SnapshotExpired

if TYPE_CHECKING:
    from ...store import Snapshot

__all__ = ["PinnedSnapshots"]


Key = tuple[str, int]


@dataclass
class _Pin:
    key: Key
    snapshot: Snapshot
    used: float
    readers: int = 0
    dropped: bool = False


class PinnedSnapshots:
    """Snapshots by stream and version; thread-safe.  An unused pin lives for ``keep_s`` seconds; at
    most ``most`` exist, the least recently used goes first.
    """

    def __init__(
        self,
        take: Callable[[str], Snapshot],
        keep_s: float,
        most: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._take = take
        self._keep_s = keep_s
        self._most = most
        self._clock = clock
        self._guard = threading.Lock()
        self._pins: dict[Key, _Pin] = {}
        self._idle = SortedSet()  # (last use, key) of pins without readers

    def __len__(self) -> int:
        return len(self._pins)

    @contextmanager
    def pin(self, stream: str) -> Iterator[Snapshot]:
        """The present version, for the block and for later reads of it."""
        pin = self._add(stream, self._take(stream))
        try:
            yield pin.snapshot
        finally:
            self._done(pin)

    @contextmanager
    def use(self, stream: str, version: int | None) -> Iterator[Snapshot]:
        """A version, for the block; None: the present one.  Raises ``SnapshotExpired``."""
        if version is None:
            with self._take(stream) as snapshot:
                yield snapshot
            return
        self.sweep()
        with self._guard:
            pin = self._pins.get((stream, version))
            if pin is not None:
                self._take_up(pin)
        if pin is None:
            present = self._take(stream)
            if present.version != version:
                now = present.version
                _release(present)
                raise SnapshotExpired(
                    f"version {version} of the stream {stream!r} is not kept (now {now}); plan the "
                    "read again with GET .../partitions, or raise CHRONICLE_SNAPSHOT_TTL_MS"
                )
            pin = self._add(stream, present)
        try:
            yield pin.snapshot
        finally:
            self._done(pin)

    def forget(self, stream: str) -> None:
        with self._guard:
            for key in [key for key in self._pins if key[0] == stream]:
                self._drop(key)

    def sweep(self) -> None:
        oldest = self._clock() - self._keep_s
        with self._guard:
            while self._idle and self._idle[0][0] < oldest:
                self._drop(self._idle[0][1])

    def close(self) -> None:
        with self._guard:
            for key in list(self._pins):
                self._drop(key)

    def _add(self, stream: str, snapshot: Snapshot) -> _Pin:
        key = (stream, snapshot.version)
        self.sweep()
        with self._guard:
            pin = self._pins.get(key)
            if pin is None:
                pin = self._pins[key] = _Pin(key, snapshot, self._clock())
            else:
                _release(snapshot)
            self._take_up(pin)
            while self._idle and len(self._pins) > self._most:
                self._drop(self._idle[0][1])
        return pin

    def _take_up(self, pin: _Pin) -> None:
        self._idle.discard((pin.used, pin.key))
        pin.readers += 1

    def _done(self, pin: _Pin) -> None:
        with self._guard:
            pin.readers -= 1
            pin.used = self._clock()
            if pin.readers == 0 and pin.dropped:
                _release(pin.snapshot)
            elif pin.readers == 0:
                self._idle.add((pin.used, pin.key))

    def _drop(self, key: Key) -> None:
        pin = self._pins.pop(key)
        self._idle.discard((pin.used, key))
        pin.dropped = True
        if pin.readers == 0:
            _release(pin.snapshot)


def _release(snapshot: Snapshot) -> None:
    snapshot.__exit__(None, None, None)
