"""Group commit: threads that wait for the same file share its syncs.

Guarantee: ``sync(position)`` returns only after a sync that began when all bytes before
``position`` had been written.  Every waiter is woken once: by the sync that covers it, by a
failure, or to lead the next sync.  A thread that is interrupted (Ctrl-C) passes the lead on.  A
failed sync reaches all present and later callers; it is never retried (see ``file_contract``). ::

    A  append ── sync ─ leads ──────────────┐ returns
    B     append ── sync ─ waits ───────────┴ leads ────────────┐ returns
    C        append ── sync ─ waits ────────  (stays asleep)  ──┴ returns

A's sync does not cover B and C, who may have written after it began.

Gathering: the covered threads are about to append again; a leader that started at once would miss
them, and every second sync would serve few.  Where a sync is slow (``GATHER_FROM``) the leader
waits until as many threads wait as the last sync covered, at most ``GATHER_SHARE`` of its duration.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from ..errors import StorageFailed

__all__ = ["GroupCommit"]

GATHER_FROM = 0.001
"""Minimum duration of a sync, in seconds, for gathering."""

GATHER_SHARE = 0.5
"""Maximum wait of a leader, as a share of the last sync's duration."""

GATHER_LOOKS = 16


class _Waiter:
    """A thread in ``sync``; its lock is released when it is covered, must lead, or all failed."""

    __slots__ = ("position", "wake")

    def __init__(self, position: int) -> None:
        self.position = position
        self.wake = threading.Lock()
        self.wake.acquire()


class GroupCommit:
    """Shares the syncs of one growing file; ``end`` returns the position written so far."""

    def __init__(
        self, sync: Callable[[], None], end: Callable[[], int], durable: int, name: str
    ) -> None:
        self._sync_file = sync
        self._end = end
        self._name = name
        self._lock = threading.Lock()
        self._leader: _Waiter | None = None
        self._waiters: deque[_Waiter] = deque()
        self._company = 1  # threads covered by the last sync, or waiting after it
        self._sync_seconds = 0.0
        self.durable = durable
        """Position up to which everything survives a power cut; read without a lock."""
        self.failure: Exception | None = None
        """Why nothing can be made durable any more, if so."""

    def sync(self, position: int) -> None:
        """Return when everything before ``position`` is durable; a failure is final."""
        if self.durable >= position:
            return
        me = _Waiter(position)
        try:
            with self._lock:
                if self.durable >= position:
                    return
                if self.failure is not None:
                    raise self.failed()
                if self._leader is None:
                    self._leader = me
                else:
                    self._waiters.append(me)
            if self._leader is not me:
                me.wake.acquire()
            if self._leader is me:
                if self._company > 1:
                    self._gather()
                # Read before the sync, which does not cover later writes.
                target = self._end()
                began = time.perf_counter()
                self._sync_file()
                with self._lock:
                    self._sync_seconds = time.perf_counter() - began
                    self._company = 1 + len(self._waiters)
                    self.durable = max(self.durable, target)
                    self._hand_over()
            elif self.durable < position:
                raise self.failed()
        except BaseException as error:
            with self._lock:
                if self._leader is me:
                    if isinstance(error, Exception):
                        self.failure = error
                    self._hand_over()
                elif me in self._waiters:
                    self._waiters.remove(me)
            raise

    def _gather(self) -> None:
        seconds = self._sync_seconds
        if seconds < GATHER_FROM:
            return
        until = time.perf_counter() + GATHER_SHARE * seconds
        while len(self._waiters) + 1 < self._company and time.perf_counter() < until:
            time.sleep(seconds / GATHER_LOOKS)

    def failed(self) -> StorageFailed:
        error = StorageFailed(
            f"{self._name} takes nothing more, because it could not be written or synced "
            f"({self.failure}); what was acknowledged before is safe: open the store again"
        )
        error.__cause__ = self.failure
        return error

    def _hand_over(self) -> None:
        self._leader = None
        left: deque[_Waiter] = deque()
        for waiter in self._waiters:
            if self.failure is not None or self.durable >= waiter.position:
                waiter.wake.release()
            elif self._leader is None:
                self._leader = waiter
            else:
                left.append(waiter)
        self._waiters = left
        if self._leader is not None:
            self._leader.wake.release()
