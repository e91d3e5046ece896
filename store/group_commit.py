"""Group commit: threads that wait for the same disk share its syncs.

Purpose
    A sync costs about as much for a hundred appends as for one.  Threads that have appended to a
    file call :meth:`GroupCommit.sync` with the position that they need; one of them syncs for all.

Guarantee
    ``sync(position)`` returns only after a sync that began when all bytes before ``position`` had
    been written.  Every waiter is woken once: by the sync that covers it, by the failure of one, or
    to lead the next.  A thread that is interrupted while it waits or leads (Ctrl-C) passes the lead
    on.

How it goes
    ::

        A  append ── sync ─ leads ──────────────┐ returns
        B     append ── sync ─ waits ───────────┴ leads ────────────┐ returns
        C        append ── sync ─ waits ────────  (stays asleep)  ──┴ returns

    When A is done, B and C are not covered, for they may have written after A's sync began.  B is
    woken and leads; C sleeps until B's sync has covered it.  Nobody is woken to find nothing.

Failures
    A failed sync reaches everybody who waits and everybody who comes later; none is tried again,
    see :mod:`.file_contract` for why.

Company
    The threads that a sync has covered are about to append again.  A leader who started at once
    would leave them behind, and every second sync would be for a few.  Where a sync takes long
    (:data:`GATHER_FROM`) the leader therefore sleeps until as many wait again as the last sync
    covered, but no longer than :data:`GATHER_SHARE` of the time that it took.  Where a sync is
    about as quick as the waking of the threads, nobody sleeps: the disk would only stand idle.

Limits
    With one thread every append costs one sync, and nobody waits for company.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from ..errors import StorageFailed

__all__ = ["GroupCommit"]

GATHER_FROM = 0.001
"""Seconds from which on a sync is long enough to wait for company."""

GATHER_SHARE = 0.5
"""Most time that a leader waits for company, as a share of what the last sync took."""

GATHER_LOOKS = 16
"""How often a leader looks for company in the time of one sync."""


class _Waiter:
    """A thread in ``sync``; its lock is released when it is covered, must lead, or all failed."""

    __slots__ = ("position", "wake")

    def __init__(self, position: int) -> None:
        self.position = position
        self.wake = threading.Lock()
        self.wake.acquire()


class GroupCommit:
    """Shares the syncs of one growing file.

    Parameters
    ----------
    sync : callable
        Makes everything durable that was written before the call.
    end : callable
        Returns the position up to which everything has been written.
    durable : int
        Position up to which everything is durable already.
    name : str
        What is synced, for messages.
    """

    def __init__(
        self, sync: Callable[[], None], end: Callable[[], int], durable: int, name: str
    ) -> None:
        self._sync_file = sync
        self._end = end
        self._name = name
        self._lock = threading.Lock()
        self._leader: _Waiter | None = None
        self._waiters: deque[_Waiter] = deque()
        self._company = 1  # threads that took part in the last sync, or came during it
        self._sync_seconds = 0.0
        self.durable = durable
        """Position up to which everything survives a power cut; read it without a lock."""
        self.failure: Exception | None = None
        """Why nothing can be made durable any more, if so."""

    def sync(self, position: int) -> None:
        """Return when everything before ``position`` is durable.

        Raises
        ------
        StorageFull, StorageFailed
            It may be durable or not, and nothing more will be.
        """
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
                # Read first: what is appended while the disk works is not covered.
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
        """Let the threads of the last sync append again before the next one begins."""
        seconds = self._sync_seconds
        if seconds < GATHER_FROM:
            return
        until = time.perf_counter() + GATHER_SHARE * seconds
        while len(self._waiters) + 1 < self._company and time.perf_counter() < until:
            time.sleep(seconds / GATHER_LOOKS)

    def failed(self) -> StorageFailed:
        """Return the error of whoever comes after a failure."""
        error = StorageFailed(
            f"{self._name} takes nothing more, because it could not be written or synced "
            f"({self.failure}); what was acknowledged before is safe: open the store again"
        )
        error.__cause__ = self.failure
        return error

    def _hand_over(self) -> None:
        """Wake those who are covered, or all after a failure; and one more to lead the rest."""
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
