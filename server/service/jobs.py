"""Jobs: long work on the store that goes on when the request that began it is answered.

Purpose
    A backup or a check of a large store takes longer than anybody keeps a connection open.
    :class:`Jobs` runs such work in a thread of its own, one after the other, and remembers how far
    it is and how it ended.

States
    ``waiting`` -> ``running`` -> ``done`` | ``failed`` | ``cancelled``; a job that is cancelled
    while it waits never begins.

Guarantee
    A job ends between two steps of its work (:mod:`...store.progress`) when it is cancelled or the
    server stops, with the store as consistent as ever.  How it ended stands in the audit log.

    Jobs outlive the process: each is a file (:mod:`.job_files`) before its request is answered.
    What waited or ran when the process ended, by a signal or a power cut, is begun again by the
    next one.  A job that was killed with its server :data:`KILLED_MAX` times has failed: it may be
    what kills it.

Limits
    Work is begun again from its beginning: who makes it sees to it that this does the same, or
    refuses.  :data:`WAITING_MAX` may wait, the last :data:`KEPT_MAX` that ended are
    remembered.  Beside a process that writes the store (mode ``"r"``) nothing is kept.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ...errors import ChronicleError, QueryCancelled
from ...store.progress import watched_by
from ..access.audit_log import note
from ..access.token import now_utc
from ..http.problems import Problem, as_problem
from .job_files import JobFiles

__all__ = ["Job", "Jobs", "Work"]

logger = logging.getLogger("chronicle.server")
WAITING_MAX = 16
KEPT_MAX = 100
KILLED_MAX = 3
_ENDED = ("done", "failed", "cancelled")
_TIMES = ("created", "started", "ended")


@dataclass
class Job:
    """Work, and how far it is.

    Attributes
    ----------
    asked : dict
        What was asked for, as JSON.
    owner : str
        Who asked (:attr:`~..access.auth.Principal.owner`).
    progress : float
        The share that is done, 0 to 1.
    begun, killed : int
        How often the work has begun, and how often it was killed with the server.
    result : dict, optional
        What it has come to, when it is done.
    error : str, optional
        Why it failed.
    """

    id: str
    asked: dict[str, Any]
    owner: str
    state: str = "waiting"
    progress: float = 0.0
    begun: int = 0
    killed: int = 0
    result: dict[str, Any] | None = None
    error: str | None = None
    created: dt.datetime = field(default_factory=now_utc)
    started: dt.datetime | None = None
    ended: dt.datetime | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    halted: threading.Event = field(default_factory=threading.Event)

    def tell(self, done: float) -> None:
        """Note how far the work is; ends it where it is not wanted any more, or not here."""
        if self.cancelled.is_set() or self.halted.is_set():
            raise QueryCancelled("the job was cancelled")
        self.progress = max(self.progress, done)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "job_id": self.id,
            **self.asked,
            "state": self.state,
            "progress": round(self.progress, 4),
            "begun": self.begun,
            **{f"{name}_at": _text(getattr(self, name)) for name in _TIMES},
            "result": self.result,
            "error": self.error,
        }

    def record(self) -> dict[str, Any]:
        """For the next process."""
        kept = ("id", "asked", "owner", "state", "begun", "killed", "result", "error")
        times = {name: _text(getattr(self, name)) for name in _TIMES}
        return {name: getattr(self, name) for name in kept} | times

    @classmethod
    def of(cls, record: dict[str, Any]) -> Job:
        """The job of a record.

        Raises
        ------
        AttributeError, KeyError, TypeError, ValueError
        """
        if record["state"] not in ("waiting", "running", *_ENDED):
            raise ValueError(record["state"])
        times = {name: record[name] for name in _TIMES if record[name] is not None}
        read = {name: dt.datetime.fromisoformat(text) for name, text in times.items()}
        job = cls(**{**record, "started": None, "ended": None, **read})
        job.asked, job.created = dict(job.asked), job.created.astimezone(dt.timezone.utc)
        job.progress = 1.0 if job.state == "done" else 0.0
        return job


Work = Callable[[Job], dict[str, Any]]
"""What a job does; it may call :meth:`Job.tell` in place of iterating with ``each``."""


class Jobs:
    """The jobs of a server.

    Parameters
    ----------
    store : path
        Whose audit log is written, and beside which jobs are kept.
    kept : bool
        Whether they outlive this process.
    """

    def __init__(self, store: str | os.PathLike[str], kept: bool = True) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._files = JobFiles(store) if kept else None
        self._jobs: dict[str, Job] = {}
        self._stopping = False
        self._thread = ThreadPoolExecutor(1, "chronicle-job")

    def resume(self, work_of: Callable[[Job], Work]) -> None:
        """Take up what earlier processes have left; blocks.

        Parameters
        ----------
        work_of : callable
            The work of a job, as it was left; raises where it cannot be done any more.
        """
        records = [] if self._files is None else self._files.read()
        jobs = []
        for record in records:
            try:
                jobs.append(Job.of(record))
            except (AttributeError, KeyError, TypeError, ValueError):
                logger.warning("a job of another version of the server is left alone: %r", record)
        for job in sorted(jobs, key=lambda job: job.created):
            with self._guard:
                self._jobs[job.id] = job
            if job.state in _ENDED:
                continue
            try:
                if job.state == "running" and job.killed + 1 >= KILLED_MAX:
                    raise ChronicleError(
                        f"the server ended {KILLED_MAX} times while it ran; it is not begun again"
                    )
                work = work_of(job)
            except Exception as failure:
                self._end(job, "failed", error=as_problem(failure).detail)
                continue
            logger.info("the job %s (%s) is taken up again", job.id, job.asked.get("kind"))
            job.killed += job.state == "running"
            job.state = "waiting"
            self._thread.submit(self._run, job, work)

    def start(self, asked: dict[str, Any], owner: str, work: Work) -> Job:
        """Have work done when its turn comes; blocks until that is durable.

        Raises
        ------
        Problem
            503 when too much waits, or the server stops.
        StorageFull, StorageFailed
            It cannot be kept, and does not begin.
        """
        job = Job(secrets.token_hex(8), asked, owner)
        with self._guard:
            if self._stopping:
                raise _later("the server is stopping")
            waiting = sum(each.state == "waiting" for each in self._jobs.values())
            if waiting >= WAITING_MAX:
                raise _later(f"{waiting} jobs wait already")
            self._jobs[job.id] = job
            ended = [each for each in self._jobs.values() if each.state in _ENDED]
            forgotten = ended[: max(0, len(ended) - KEPT_MAX)]
            for known in forgotten:
                del self._jobs[known.id]
        try:
            self._keep(job)
            self._thread.submit(self._run, job, work)
        except BaseException as error:
            with self._guard:
                self._jobs.pop(job.id, None)
            if isinstance(error, RuntimeError):  # the thread has ended meanwhile
                self._forget(job)
                raise _later("the server is stopping") from None
            raise
        for known in forgotten:
            self._forget(known)
        return job

    def list(self) -> list[Job]:
        """The jobs, oldest first."""
        with self._guard:
            return list(self._jobs.values())

    def find(self, job_id: str) -> Job | None:
        """A job."""
        with self._guard:
            return self._jobs.get(job_id)

    def cancel(self, job: Job) -> None:
        """End a job soon; one that has ended stays as it is.  Blocks."""
        job.cancelled.set()
        self._end(job, "cancelled", ("waiting",))

    def stop(self) -> None:
        """End the job that runs, and wait for that; the next process begins it again.  Blocks."""
        with self._guard:
            self._stopping = True
        for job in self.list():
            job.halted.set()
            if self._files is None:
                self.cancel(job)
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _run(self, job: Job, work: Work) -> None:
        with self._guard:
            if job.state != "waiting" or self._stopping:
                return
            job.state, job.started, job.begun = "running", now_utc(), job.begun + 1
        try:
            self._keep(job)
            with watched_by(job.tell):
                result = work(job)
        except QueryCancelled:
            if job.halted.is_set() and not job.cancelled.is_set():
                with self._guard:
                    job.state = "waiting"
                self._keep_if_possible(job)
            else:
                self._end(job, "cancelled")
        except Exception as failure:
            if not isinstance(failure, (ChronicleError, Problem)):
                logger.exception("the job %s failed", job.id)
            self._end(job, "failed", error=as_problem(failure).detail)
        else:
            self._end(job, "done", result=result)

    def _end(
        self,
        job: Job,
        state: str,
        before: tuple[str, ...] = ("waiting", "running"),
        *,
        result: dict[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        """Note how a job ended, here, in its file and in the audit log; one that is in no state of
        those before stays as it is."""
        with self._guard:
            if job.state not in before:
                return
            job.state, job.result, job.error, job.ended = state, result, error, now_utc()
            job.progress = 1.0 if state == "done" else job.progress
        self._keep_if_possible(job)
        with contextlib.suppress(OSError):
            note(self._store, did="ran a job", job=job.id, asked=job.asked, state=state)

    def _keep(self, job: Job) -> None:
        if self._files is not None:
            self._files.write(job.id, job.record)

    def _keep_if_possible(self, job: Job) -> None:
        """Write a record without which the work is done once more by the next process."""
        try:
            self._keep(job)
        except (ChronicleError, OSError) as error:
            logger.error("the end of the job %s cannot be kept: %s", job.id, error)

    def _forget(self, job: Job) -> None:
        if self._files is not None:
            self._files.remove(job.id)


def _text(moment: dt.datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _later(why: str) -> Problem:
    return Problem("overloaded", 503, f"{why}; ask again", {"Retry-After": "10"})
