"""The append queue: one thread performs the appends of all that contend for one lock.

An append of one event is cheap; waking a thread is not.  A thread that finds the lock taken puts
its job into a list.  The one thread that waits for the lock (the *leader*) performs all jobs of the
list before it releases the lock: *flat combining* (Hendler, Incze, Shavit, Tzafrir, SPAA 2010),
with threads that sleep instead of spin.  After the lock it *settles* all at once (log sync,
publication), and wakes their threads. ::

    A  (A) ── settles A ────────────────────────┐ returns
    B   waits ─ (B)(C)(D) ── settles B, C, D ───┴────────┐ returns
    C     waits ─────────────────────────────────────────┤ returns
    D        waits ──────────────────────────────────────┘ returns

Guarantee: every job is performed once and settled when ``submit`` returns; its failure is raised
only there.  An interrupted (Ctrl-C) waiter withdraws its job; an interrupted leader returns jobs
that it has not begun to their threads, and that of the job in progress learns that its outcome is
unknown.

A ``QueuedAppend`` is such a job: the input of an append, and the result for its thread.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.append_result import AppendResult
from ..core.ownership import OwnedLock
from ..errors import StorageFailed
from .conform import AppendRules
from .duplicates import Keys
from .journal import Marks
from .log import LogWriter
from .snapshot import Snapshot, StreamState

JOBS_MAX = 64


class QueuedAppend(ABC):
    """A job under the lock.  If ``patient``, its thread sleeps until it is settled; otherwise it is
    woken once the job is performed, and settles it.
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
        """Do the job; the caller holds the lock."""

    def run(self) -> None:
        """Perform the job and store its failure for the thread that submitted it."""
        try:
            self.perform()
        except Exception as error:
            self.error = error
        self.performed = True

    def wake_up(self) -> None:
        wake, self.wake = self.wake, None
        if wake is not None:
            wake.release()


J = TypeVar("J", bound=QueuedAppend)


class AppendQueue(Generic[J]):
    """Performs jobs under one lock; ``settle``, which follows the lock, is called by several
    threads.
    """

    def __init__(self, lock: OwnedLock, settle: Callable[[Sequence[J]], None]) -> None:
        self._lock = lock
        self._settle = settle
        self._gate = threading.Lock()
        self._led = False  # whether a leader will take the list
        self._waiting: deque[J] = deque()

    def submit(self, job: J) -> None:
        """Return when a new job has been performed and settled; raise its failure."""
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
        finally:  # threads of unsettled jobs settle them themselves and get the same error
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
            for each in mine:  # not begun: their threads submit them again
                each.wake_up()


class Append(QueuedAppend):
    __slots__ = (
        "_carry_out", "batch", "duplicates", "keys", "late", "log", "marks", "newest", "position",
        "rules", "state", "ticks",
    )  # fmt: skip

    state: StreamState
    log: LogWriter

    def __init__(
        self,
        carry_out: Callable[[Append], None],
        batch: pa.RecordBatch,
        ticks: npt.NDArray[np.int64],
        rules: AppendRules,
        durable: bool,
        marks: Marks | None,
        keys: Keys | None,
    ) -> None:
        super().__init__(patient=durable)
        self._carry_out = carry_out
        self.batch = batch
        self.ticks = ticks
        self.rules = rules
        self.marks = marks
        self.keys = keys
        self.duplicates = 0
        self.late = 0
        self.newest: int | None = None
        self.position = 0

    def perform(self) -> None:
        self._carry_out(self)

    @property
    def result(self) -> AppendResult:
        count = Snapshot(self.state).count
        return AppendResult(
            self.batch.num_rows, self.late, count, self.state.position, self.newest, self.duplicates
        )


class AppendSeries(QueuedAppend):
    """Appends in order, settled together; it fails only if the first does, earlier ones stay
    stored.
    """

    __slots__ = ("done", "jobs", "log", "position", "state")

    state: StreamState
    log: LogWriter

    def __init__(self, jobs: Sequence[Append]) -> None:
        super().__init__(patient=jobs[0].patient)
        self.jobs = jobs
        self.done = 0
        self.position = 0

    def perform(self) -> None:
        for job in self.jobs:
            try:
                job.perform()
            except Exception:
                if not self.done:
                    raise
                return
            self.done += 1
            self.log, self.position, self.state = job.log, job.position, job.state
