"""Jobs: long work, such as a backup or a check, that outlives the request that started it.

One job at a time runs in a thread: ``waiting`` -> ``running`` -> ``done`` | ``failed`` |
``cancelled``.  Cancellation or a server stop ends it between two steps (``store.progress``) with a
consistent store.  A job is durable before its request is answered; the next process starts
interrupted jobs from their beginning, so work must be idempotent or refuse.  One that was killed
``KILLED_MAX`` times with its server has failed: it may be the cause.  ``WAITING_MAX`` jobs may
wait, the last ``KEPT_MAX`` finished ones are listed.  In mode ``"r"`` jobs are not durable.

Records are ``<store>/server/jobs.local/<id>.json``, mode 0600, replaced atomically.  Backups leave
the directory out (``store.backup.LOCAL``), so that a copy of the store does not repeat the work.
An unreadable record is logged and left alone.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import re
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ...errors import ChronicleError, QueryCancelled
from ...query.contract.cancellation import Cancellation
from ...store.backup import LOCAL
from ...store.progress import watched_by
from ..access.tokens import note, now_utc, replace_file, server_directory
from ..http.replies import Problem, as_problem

logger = logging.getLogger("chronicle.server")
DIRECTORY = f"jobs{LOCAL}"
_NAME = re.compile(r"[0-9a-f]{16}\.json")


class JobFiles:
    def __init__(self, store: str | os.PathLike[str]) -> None:
        self._store = store
        self._writing = threading.Lock()

    def read(self) -> list[dict[str, Any]]:
        directory = server_directory(self._store) / DIRECTORY
        records = []
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            if not _NAME.fullmatch(path.name):
                path.unlink(missing_ok=True)  # a temporary file that a crash left
                continue
            try:
                record = orjson.loads(path.read_bytes())
                if not isinstance(record, dict):
                    raise ValueError("no object")
            except (OSError, ValueError) as error:
                logger.warning("the record of a job, %s, cannot be read: %s", path, error)
            else:
                records.append(record)
        return records

    def write(self, job_id: str, record: Callable[[], dict[str, Any]]) -> None:
        path = self._path(job_id)
        with self._writing:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, orjson.dumps(record()))

    def remove(self, job_id: str) -> None:
        with contextlib.suppress(OSError), self._writing:
            self._path(job_id).unlink(missing_ok=True)

    def _path(self, job_id: str) -> Path:
        return server_directory(self._store, create=True) / DIRECTORY / f"{job_id}.json"


WAITING_MAX = 16
KEPT_MAX = 100
KILLED_MAX = 3
_ENDED = ("done", "failed", "cancelled")
_TIMES = ("created", "started", "ended")


def _now() -> str:
    return now_utc().isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class Job:
    """Work and its progress (0 to 1); ``begun`` and ``killed`` count starts, and deaths with the
    server.  A client that cancels it, and a server that stops, end its ``cancellation``.
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
    created: str = field(default_factory=_now)
    started: str | None = None
    ended: str | None = None
    cancelled: bool = False
    cancellation: Cancellation = field(default_factory=Cancellation)

    def tell(self, done: float) -> None:
        """Report progress; raises ``QueryCancelled`` on cancellation or server stop."""
        if self.cancellation.cancelled:
            raise QueryCancelled("the job was cancelled")
        self.progress = max(self.progress, done)

    def to_json(self) -> dict[str, Any]:
        return {
            "job_id": self.id,
            **self.asked,
            "state": self.state,
            "progress": round(self.progress, 4),
            "begun": self.begun,
            **{f"{name}_at": getattr(self, name) for name in _TIMES},
            "result": self.result,
            "error": self.error,
        }

    def record(self) -> dict[str, Any]:
        names = ("id", "asked", "owner", "state", "begun", "killed", "result", "error", *_TIMES)
        return {name: getattr(self, name) for name in names}

    @classmethod
    def of(cls, record: dict[str, Any]) -> Job:
        """The job of a record; raises AttributeError, KeyError, TypeError or ValueError."""
        if record["state"] not in ("waiting", "running", *_ENDED):
            raise ValueError(record["state"])
        for moment in (record[name] for name in _TIMES):
            dt.datetime.fromisoformat(moment or record["created"])
        job = cls(**record)
        job.asked = dict(job.asked)
        job.progress = 1.0 if job.state == "done" else 0.0
        return job


Work = Callable[[Job], dict[str, Any]]
"""The work of a job; it may call ``Job.tell`` instead of iterating with ``each``."""


class Jobs:
    """The jobs of a server; ``durable`` says whether they survive a restart."""

    def __init__(self, store: str | os.PathLike[str], durable: bool = True) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._files = JobFiles(store) if durable else None
        self._jobs: dict[str, Job] = {}
        self._stopping = False
        self._thread = ThreadPoolExecutor(1, "chronicle-job")

    def resume(self, work_of: Callable[[Job], Work]) -> None:
        """Take over earlier processes' jobs; blocks.  ``work_of`` may raise."""
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
        """Queue a job; blocks until it is durable.  Raises ``Problem`` (503) and disk errors."""
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
            for old in forgotten:
                del self._jobs[old.id]
        try:
            self._keep(job)
            self._thread.submit(self._run, job, work)
        except BaseException as error:
            with self._guard:
                self._jobs.pop(job.id, None)
            if isinstance(error, RuntimeError):  # the thread pool has ended
                self._forget(job)
                raise _later("the server is stopping") from None
            raise
        for old in forgotten:
            self._forget(old)
        return job

    def list(self) -> list[Job]:
        with self._guard:
            return list(self._jobs.values())

    def find(self, job_id: str) -> Job | None:
        with self._guard:
            return self._jobs.get(job_id)

    def cancel(self, job: Job) -> None:
        """End a job soon; a finished one is unchanged.  Blocks."""
        job.cancelled = True
        job.cancellation.cancel()
        self._end(job, "cancelled", ("waiting",))

    def stop(self) -> None:
        """Interrupt the running job and wait for it; the next process starts it again.  Blocks."""
        with self._guard:
            self._stopping = True
        for job in self.list():
            job.cancellation.cancel()
            if self._files is None:
                self.cancel(job)
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _run(self, job: Job, work: Work) -> None:
        with self._guard:
            if job.state != "waiting" or self._stopping:
                return
            job.state, job.started, job.begun = "running", _now(), job.begun + 1
        try:
            self._keep(job)
            with watched_by(job.tell):
                result = work(job)
        except QueryCancelled:
            if not job.cancelled:
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
        with self._guard:
            if job.state not in before:
                return
            job.state, job.result, job.error, job.ended = state, result, error, _now()
            job.progress = 1.0 if state == "done" else job.progress
        self._keep_if_possible(job)
        with contextlib.suppress(OSError):
            note(self._store, did="ran a job", job=job.id, asked=job.asked, state=state)

    def _keep(self, job: Job) -> None:
        if self._files is not None:
            self._files.write(job.id, job.record)

    def _keep_if_possible(self, job: Job) -> None:
        try:
            self._keep(job)
        except (ChronicleError, OSError) as error:
            logger.error("the end of the job %s cannot be kept: %s", job.id, error)

    def _forget(self, job: Job) -> None:
        if self._files is not None:
            self._files.remove(job.id)


def _later(why: str) -> Problem:
    return Problem("overloaded", f"{why}; ask again", {"Retry-After": "10"})
