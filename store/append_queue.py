"""The queue of appends: threads that want one lock have one of them do the work of all.

Purpose
    A short piece of work under a lock is cheap; to wake a thread that shall do it is not.  When
    sixteen threads append one event each, most of the processor's time would go into passing the
    lock, and the interpreter's own, from one to the next.  So a thread that finds the lock taken
    leaves its job in a list, and the one thread that waits for the lock performs all jobs of the
    list, each whole and one after the other, before it gives the lock back.  This is *flat
    combining* (Hendler, Incze, Shavit, Tzafrir, SPAA 2010), with threads that sleep, not spin.

How it goes
    ::

        A  (A) ── settles A ────────────────────────┐ returns
        B   waits ─ (B)(C)(D) ── settles B, C, D ───┴────────┐ returns
        C     waits ─────────────────────────────────────────┤ returns
        D        waits ──────────────────────────────────────┘ returns

    What follows the lock (to sync the log, to publish a state) is called *settling*.  A leader does
    it once for all its jobs, and wakes their threads afterwards: each sleeps once.

Guarantee
    Every job is performed once, under the lock.  Its failure is raised in the thread that submitted
    it and in no other.  When :meth:`AppendQueue.submit` returns, the job is settled.

Interrupts
    A thread that is interrupted (Ctrl-C) while its job waits takes it back; nothing has happened.
    One that is interrupted while it performs jobs of others gives those that it has not begun back
    to their threads; the thread of the one in hand is told that its outcome is unknown.

Limits
    Who holds the lock may submit (it is re-entrant); that job is performed at once.  A leader takes
    on no more jobs when it has performed :data:`JOBS_MAX`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ..core.ownership import OwnedLock
from ..errors import StorageFailed

__all__ = ["AppendQueue", "QueuedAppend"]

JOBS_MAX = 64
"""Jobs after which a leader takes on no more."""


class QueuedAppend(ABC):
    """Something to be done under the lock of an :class:`AppendQueue`.

    Parameters
    ----------
    patient : bool
        Whether its thread sleeps until it is settled.  The others are woken when their job has been
        performed, and settle it themselves.
    """

    __slots__ = ("error", "patient", "performed", "settled", "wake")

    def __init__(self, patient: bool) -> None:
        self.patient = patient
        self.performed = False
        self.settled = False
        self.error: Exception | None = None
        self.wake: threading.Lock | None = None

    @abstractmethod
    def perform(self) -> None:
        """Do it; the lock is held."""

    def run(self) -> None:
        """Perform it and keep its failure for the thread that submitted it."""
        try:
            self.perform()
        except Exception as error:
            self.error = error
        self.performed = True

    def wake_up(self) -> None:
        """Wake its thread, if that sleeps."""
        wake, self.wake = self.wake, None
        if wake is not None:
            wake.release()


J = TypeVar("J", bound=QueuedAppend)


class AppendQueue(Generic[J]):
    """Performs jobs under one lock, and those that wait for it together.

    Parameters
    ----------
    lock : OwnedLock
        Others may take it, too.
    settle : callable
        Does what performed jobs want after the lock, all of them or one; called by several threads.
    """

    def __init__(self, lock: OwnedLock, settle: Callable[[Sequence[J]], None]) -> None:
        self._lock = lock
        self._settle = settle
        self._gate = threading.Lock()
        self._led = False  # whether somebody will look at the list
        self._waiting: deque[J] = deque()

    def submit(self, job: J) -> None:
        """Return when a new job has been performed and settled; raise what it raised."""
        while not job.performed:
            if self._lock.acquire(blocking=False):
                try:
                    job.run()
                finally:
                    self._lock.release()
                break
            with self._gate:
                leads = not self._led
                if leads:
                    self._led = True
                else:
                    wake = job.wake = threading.Lock()
                    wake.acquire()
                    self._waiting.append(job)
            if leads:
                self._lead(job)
            else:
                self._sleep(job, wake)
        if job.error is not None:
            raise job.error
        if not job.settled:
            self._settle((job,))

    def _sleep(self, job: J, wake: threading.Lock) -> None:
        try:
            wake.acquire()
        except BaseException:
            with self._gate:
                if job in self._waiting:
                    self._waiting.remove(job)
            raise

    def _lead(self, job: J) -> None:
        """Perform a job and those that wait, then settle them together."""
        done: list[J] = []
        try:
            self._perform(job, done)
            if job.patient and job.error is None:
                together = [each for each in done if each.patient and each.error is None]
                for each in done:
                    if each.error is not None or not each.patient:
                        each.wake_up()
                self._settle(together)
                for each in together:
                    each.settled = True
        finally:  # who wakes up unsettled settles its job itself, and meets the same failure
            for each in done:
                each.wake_up()

    def _perform(self, job: J, done: list[J]) -> None:
        mine = deque((job,))
        current, leads = job, True
        try:
            with self._lock:
                while leads:
                    current = mine.popleft()
                    current.run()
                    done.append(current)
                    if not mine:
                        with self._gate:
                            mine.extend(self._waiting)
                            self._waiting.clear()
                            if not mine or len(done) >= JOBS_MAX:
                                self._led = leads = False
        except BaseException:
            if current is not job and not current.performed:
                current.error = StorageFailed(
                    "the thread that appended for this one was interrupted: whether these events "
                    "were appended is not known; look for them before you append them again"
                )
                current.performed = True
                current.wake_up()
            raise
        finally:
            if leads:  # interrupted
                with self._gate:
                    self._led = False
                    mine.extend(self._waiting)
                    self._waiting.clear()
            for each in mine:  # not begun: their threads try again
                each.wake_up()
