"""Pinned versions: a reader with many requests sees one state of a stream in all of them.

Purpose
    A Spark job plans once and then reads its partitions from many tasks, perhaps twice.
    ``GET .../partitions`` pins the snapshot that it planned with; ``?version=`` reads from it.

Guarantee
    Reads of one version agree with each other, whatever is appended meanwhile.  A version that is
    no longer kept answers 410 and is never replaced by another one in silence.

Limits
    Kept in this process for ``CHRONICLE_SNAPSHOT_TTL_MS`` after the last use.  A pin keeps the
    files of its version from being deleted, so it is released even when the client never says that
    it is done.
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
"""A stream's name and a version."""


@dataclass
class _Pin:
    key: Key
    snapshot: Snapshot
    used: float
    readers: int = 0
    dropped: bool = False


class PinnedSnapshots:
    """Snapshots by stream and version; from any thread.

    Parameters
    ----------
    take : callable
        Gives a new snapshot of a stream by its name.
    keep_s : float
        Seconds that an unused one is kept.
    most : int
        Pins kept at once; the longest unused goes first.
    clock : callable
        Monotonic seconds.
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
        self._idle = SortedSet()  # of (when it was last used, key), of pins without readers

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
        """A version for the length of the block; None is the present one, which is not pinned.

        Raises
        ------
        SnapshotExpired
            When the version is no longer kept.
        """
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
        """Release a stream's versions; those in use live until their readers are done."""
        with self._guard:
            for key in [key for key in self._pins if key[0] == stream]:
                self._drop(key)

    def sweep(self) -> None:
        """Release what nobody has used for too long."""
        oldest = self._clock() - self._keep_s
        with self._guard:
            while self._idle and self._idle[0][0] < oldest:
                self._drop(self._idle[0][1])

    def close(self) -> None:
        """Release every version."""
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
        """Forget a pin; the snapshot goes with its last reader."""
        pin = self._pins.pop(key)
        self._idle.discard((pin.used, key))
        pin.dropped = True
        if pin.readers == 0:
            _release(pin.snapshot)


def _release(snapshot: Snapshot) -> None:
    snapshot.__exit__(None, None, None)
