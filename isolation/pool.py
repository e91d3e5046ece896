"""A pool of workers: reused, watched, replaced.  Linux only.  A worker has one lease at a time.
Work that ends well returns it; cancellation, timeout or its own fault kills only that worker.  It
is also replaced after a number of leases and after a time.  All workers together stay within
``shared_bytes``, checked every ``WATCH_S`` seconds: beyond it the largest one is killed.
``Pool.close``, and any end of the owner, leaves no process.  The number of leases is not bounded
here, so that nested work cannot deadlock; admission control is the caller's.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.scratch import ScratchDirectory
from ..errors import ChronicleError, MissingDependency, StoreClosed, WorkerLost
from .channel import Channel, ChannelClosed, Garbage
from .fork_server import ForkServer, ForkServerLost, exit_reason

logger = logging.getLogger("chronicle.isolation")

WATCH_S = 0.05
IDLE_LOOK_S = 2.0
END_S = 5.0
BIRTHS_MAX = 3
"""After so many consecutive deaths at birth, the fork_server and all its workers are replaced."""

KEPT_BYTES = 96 << 20
"""A worker that holds more than this after its work is replaced."""

HEADROOM_BYTES = 192 << 20
"""Beyond the work's allowance: stacks, buffers in transit, fragmentation."""


@dataclass(frozen=True)
class PoolSpec:
    """``memory_bytes`` bounds one worker's work (the hard limit is ``HEADROOM_BYTES`` higher),
    ``shared_bytes`` all together, ``spill_bytes`` a file in a worker's directory (0: it has none).
    """

    entry: str
    memory_bytes: int
    shared_bytes: int
    spill_bytes: int = 0
    options: tuple[tuple[str, Any], ...] = ()
    leases_max: int = 500
    age_s: float = 600.0
    idle_max: int = 4


@dataclass
class _Worker:
    pid: int
    pidfd: int
    channel: Channel
    fork_server: ForkServer
    directory: Path | None
    born: float = field(default_factory=time.monotonic)
    leases: int = 0
    base_bytes: int = 0
    deadline: float = math.inf
    doom: str = ""
    """Why it was killed, if it was."""
    buried: bool = False
    guard: threading.Lock = field(default_factory=threading.Lock)

    def kill(self, doom: str) -> None:
        with self.guard:  # a closed descriptor may belong to another worker by now
            if not self.buried:
                self.doom = self.doom or doom
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def bury(self) -> None:
        with self.guard:
            self.buried = True
            os.close(self.pidfd)
        self.channel.close()
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def ended(self, seconds: float = 0.0) -> bool:
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def memory(self) -> int:
        """Private memory taken since birth."""
        try:
            text = Path(f"/proc/{self.pid}/statm").read_text()
        except OSError:
            return 0
        _, resident, shared, *_ = text.split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") - self.base_bytes


class WorkerLease:
    def __init__(self, pool: Pool, worker: _Worker) -> None:
        self._pool = pool
        self._worker = worker
        self._over = False
        self.channel = worker.channel

    @property
    def pid(self) -> int:
        return self._worker.pid

    def kill(self, doom: str = "stopped") -> None:
        """Kill the worker, from any thread; ``discard`` still has to end the lease."""
        if not self._over:
            self._worker.kill(doom)

    def give_back(self) -> None:
        if not self._over:
            self._over = True
            self._pool._take_back(self._worker)

    def discard(self) -> None:
        """End the worker; idempotent."""
        if not self._over:
            self._over = True
            self._pool._discard(self._worker, "stopped")

    def lost(self, error: ChannelClosed | Garbage) -> ChronicleError:
        """End the lease of a failed worker; returns the error."""
        if self._over:
            return StoreClosed("the database was closed; open it again")
        self._over = True
        return self._pool._lost(self._worker, error)


class Pool:
    """Workers of one kind, made by ``open_pool``; thread-safe."""

    def __init__(self, spec: PoolSpec) -> None:
        if sys.platform != "linux":
            raise MissingDependency("isolation='process' needs Linux; use isolation='none'")
        self.spec = spec
        self.users = 0
        self.confinement: dict[str, Any] = {}
        self._guard = threading.Lock()
        self._idle: list[_Worker] = []
        self._leased: dict[int, _Worker] = {}
        self._dead: list[_Worker] = []
        self._wake = threading.Event()
        self._closed = False
        self._root: ScratchDirectory | None = None
        self._watcher: threading.Thread | None = None
        self._fork_server: ForkServer | None = ForkServer(spec.entry)
        _POOLS.add(self)

    @property
    def pids(self) -> list[int]:
        with self._guard:
            fork_server = [self._fork_server.pid] if self._fork_server is not None else []
            return [*fork_server, *self._leased, *(worker.pid for worker in self._idle)]

    # ---------------------------------------------------------------------------------- leases

    def lease(self, seconds: float = math.inf) -> WorkerLease:
        """A worker; killed if not returned after ``seconds``.  Raises ``WorkerLost``,
        ``StoreClosed``.
        """
        while True:
            with self._guard:
                self._check_open()
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                worker = self._make()
            elif worker.ended() or time.monotonic() - worker.born >= self.spec.age_s:
                self._discard(worker, "retired")
                continue
            with self._guard:
                if not self._closed:
                    worker.leases += 1
                    worker.deadline = time.monotonic() + seconds
                    self._leased[worker.pid] = worker
                    self._watch()
                    return WorkerLease(self, worker)
            self._discard(worker, "stopped")

    def warm(self, count: int = 1) -> None:
        for lease in [self.lease() for _ in range(count)]:
            lease.give_back()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the database was closed; open it again")

    def _make(self) -> _Worker:
        fork_server = self._fork_server
        for _ in range(BIRTHS_MAX):
            try:
                return self._born()
            except (ChannelClosed, Garbage) as error:  # killed before it could do anything
                logger.warning("a worker of %s is lost at its birth: %s", self.spec.entry, error)
            except ForkServerLost as error:
                logger.warning("the process that makes workers is replaced: %s", error)
                break
        with self._guard:
            self._check_open()
            broken = self._fork_server is fork_server  # else another thread replaced it
            if broken:
                self._fork_server = ForkServer(self.spec.entry)
        if broken and fork_server is not None:
            fork_server.close()
        try:
            return self._born()
        except (ForkServerLost, ChannelClosed, Garbage) as error:
            raise WorkerLost(
                f"no worker process could be started ({error}); nothing else is affected, try "
                "again",
                "start",
            ) from None

    def _born(self) -> _Worker:
        spec = self.spec
        with self._guard:
            self._check_open()
            fork_server = self._fork_server
            if fork_server is None:
                fork_server = self._fork_server = ForkServer(spec.entry)
        directory = self._directory() if spec.spill_bytes else None
        request = {
            "memory_bytes": spec.memory_bytes + HEADROOM_BYTES,
            "directory": None if directory is None else str(directory),
            "file_bytes": spec.spill_bytes,
            **dict(spec.options),
        }
        try:
            pid, end, pidfd = fork_server.fork(request)
        except BaseException:
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)
            raise
        # no message is larger than a worker's memory
        channel = Channel(end, trusted=False, data_max=spec.memory_bytes + HEADROOM_BYTES)
        worker = _Worker(pid, pidfd, channel, fork_server, directory)
        try:
            answer, _ = channel.receive()
            self.confinement = dict(answer["ready"])
        except BaseException:
            self._discard(worker, "stopped")
            raise
        worker.base_bytes = worker.memory()
        return worker

    def _directory(self) -> Path:
        with self._guard:
            if self._root is None:
                self._root = ScratchDirectory("spill")
            return Path(tempfile.mkdtemp(dir=self._root.path))

    def _take_back(self, worker: _Worker) -> None:
        spec = self.spec
        with self._guard:
            self._leased.pop(worker.pid, None)
            worker.deadline = math.inf
            good = (
                not self._closed
                and not worker.doom
                and worker.leases < spec.leases_max
                and time.monotonic() - worker.born < spec.age_s
                and len(self._idle) < spec.idle_max
                and worker.memory() < KEPT_BYTES
            )
            if good:
                self._idle.append(worker)
                return
            if not self._closed:  # the watcher reaps it
                worker.kill("retired")
                self._dead.append(worker)
                self._wake.set()
                return
        self._discard(worker, "stopped")

    def _discard(self, worker: _Worker, doom: str) -> None:
        worker.kill(doom)
        self._bury(worker)

    def _lost(self, worker: _Worker, error: Exception) -> ChronicleError:
        if isinstance(error, Garbage) or not worker.ended(END_S):
            worker.kill("garbage")
        doom, status = worker.doom, self._bury(worker)
        if self._closed:
            return StoreClosed("the database was closed; open it again")
        if doom == "memory":
            return WorkerLost(
                f"the query or body was ended because all of them together took more than "
                f"{self.spec.shared_bytes:,} bytes and it took most; try again, or with less",
                "memory",
            )
        if doom == "deadline":
            return WorkerLost(
                "the work was ended because it took too long; send a body in smaller parts, or in "
                "another format",
                "deadline",
            )
        what = "answered nonsense and was ended" if doom == "garbage" else exit_reason(status)
        logger.error("worker %d of %s is lost: %s", worker.pid, self.spec.entry, what)
        return WorkerLost(
            f"the process that did this work is lost ({what}); nothing else is affected, try "
            "again, and if it happens again, change the request",
            "crash",
        )

    def _bury(self, worker: _Worker) -> int:
        status = 0
        if worker.ended(END_S):
            with contextlib.suppress(ForkServerLost):
                status = worker.fork_server.reap(worker.pid)
        with self._guard:
            self._leased.pop(worker.pid, None)
        worker.bury()
        return status

    # ------------------------------------------------------------------------------- the watch

    def _watch(self) -> None:
        if self._watcher is None:
            self._watcher = threading.Thread(
                target=self._keep_watch, name="chronicle-workers", daemon=True
            )
            self._watcher.start()
        elif len(self._leased) == 1:
            self._wake.set()

    def _keep_watch(self) -> None:
        while not self._closed:
            if self._leased:
                time.sleep(WATCH_S)
            else:
                self._wake.wait(IDLE_LOOK_S)
            self._wake.clear()
            with self._guard:
                leased = list(self._leased.values())
                old = time.monotonic() - self.spec.age_s
                expired = [worker for worker in self._idle if worker.born < old]
                self._idle = [worker for worker in self._idle if worker.born >= old]
                dead, self._dead = self._dead + expired, []
            for worker in dead:
                self._discard(worker, "retired")
            now = time.monotonic()
            for worker in leased:
                if worker.deadline < now:
                    worker.kill("deadline")
            sizes = {worker.pid: worker.memory() for worker in leased}
            if sum(sizes.values()) > self.spec.shared_bytes:
                largest = max(leased, key=lambda worker: sizes[worker.pid])
                largest.kill("memory")

    # ----------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """Release the pool; the last user waits until every process has ended."""
        with _SHARING:
            self.users -= 1
            if self.users > 0:
                return
            _SHARED.pop(self.spec, None)
        with self._guard:
            if self._closed:
                return
            self._closed = True
            leased, idle = list(self._leased.values()), self._idle + self._dead
            self._idle, self._dead = [], []
        self._wake.set()
        for worker in (*leased, *idle):
            worker.kill("closed")
        for worker in idle:
            self._bury(worker)
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join()
        for worker in leased:  # the lease's holder reaps it
            worker.ended(END_S)
        if self._fork_server is not None:
            self._fork_server.close()
        if self._root is not None:
            self._root.close()

    def _forget(self) -> None:
        self._guard = threading.Lock()
        self._wake = threading.Event()
        for worker in (*self._idle, *self._leased.values(), *self._dead):
            worker.channel.forget()
            os.close(worker.pidfd)
        self._idle, self._leased, self._dead = [], {}, []
        if self._fork_server is not None:
            self._fork_server.forget()
        self._fork_server = self._watcher = self._root = None


_POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()
_SHARED: dict[PoolSpec, Pool] = {}
_SHARING = threading.Lock()


def open_pool(spec: PoolSpec) -> Pool:
    """The process-wide pool of a spec; match each call with a ``close``."""
    with _SHARING:
        pool = _SHARED.get(spec)
        if pool is None:
            pool = _SHARED[spec] = Pool(spec)
        pool.users += 1
        return pool


def _after_fork() -> None:
    global _SHARING
    _SHARING = threading.Lock()
    for pool in list(_POOLS):
        pool._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
