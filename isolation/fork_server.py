"""A clean process that forks workers in milliseconds, after loading their libraries once.

It always has one thread (it refuses to fork otherwise), so no fork copies a held lock, and it never
reads a foreign byte.  It ends with its owner, and its workers with it (parent death signal).

Control messages are JSON over ``SOCK_SEQPACKET``: ``{"fork": {...}}`` is answered by ``{"pid": n}``
with two descriptors, the worker's socket and its pidfd; ``{"reap": pid}`` by ``{"status": n}``.  An
entry module has ``prepare()`` (imports) and ``serve(channel, spec, confined)``.

Processes that have no data frames do not load pandas (``do_without_pandas``).  Where it is
installed pyarrow loads it with the first scalar or array that is made of Python's values: a quarter
of a second, and 40 MB.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from ..errors import ChronicleError


class _PathWithoutPandas(PathFinder):
    """Python's finder of what is installed, which does not find pandas.

    It stands in the other one's place, not before it: so pandas is absent to all that ask, those
    that import it and those that only look whether they could.  An entry in ``sys.modules`` would
    say that to imports, and to DuckDB that pandas is loaded.
    """

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if fullname == "pandas" else super().find_spec(fullname, path, target)


def do_without_pandas() -> None:
    """Have no library of this process load pandas; it is as if it were not installed."""
    sys.meta_path[:] = [
        _PathWithoutPandas if finder is PathFinder else finder for finder in sys.meta_path
    ]


MESSAGE_BYTES = 1 << 16
START_S = 60.0
STOP_S = 5.0
_PASSED_ON = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH"),
    *("PYTHONHOME", "VIRTUAL_ENV", "ASAN_OPTIONS", "SYSTEMROOT"),
)
"""Environment variables of a worker; tokens are not among them."""

_SETTINGS = {
    "ARROW_DEFAULT_MEMORY_POOL": "mimalloc",
    "MIMALLOC_ARENA_RESERVE": "65536",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "MALLOC_ARENA_MAX": "2",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_THREAD_LIMIT": "1",
}
"""Allocators that return memory and reserve little; no thread pools."""

_START = (
    "from chronicle.isolation.fork_server import run_fork_server; run_fork_server({fd}, {entry!r})"
)


class ForkServerLost(ChronicleError):
    """The fork_server cannot be started, or is gone."""


class ForkServer:
    """The owner's handle, for the entry module of that name; thread-safe."""

    def __init__(self, entry: str) -> None:
        self._guard = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START.format(fd=theirs.fileno(), entry=entry)],
                env={**environment, **_SETTINGS},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
            )
        self._ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, spec: dict[str, Any]) -> tuple[int, socket.socket, int]:
        """A new worker: pid, socket, pidfd."""
        answer, descriptors = self._ask({"fork": spec}, 2)
        end = socket.socket(fileno=descriptors[0])
        end.settimeout(None)
        return int(answer["pid"]), end, descriptors[1]

    def reap(self, pid: int) -> int:
        """Exit status of an ended worker: its code, or minus its signal."""
        answer, _ = self._ask({"reap": pid}, 0)
        return int(answer["status"])

    def _ask(self, request: dict[str, Any], descriptors: int) -> tuple[dict[str, Any], list[int]]:
        with self._guard:
            try:
                self._control.settimeout(START_S)
                if not self._ready:
                    self._reply(0)  # the ready message
                    self._ready = True
                self._control.send(json.dumps(request).encode())
                return self._reply(descriptors)
            except (OSError, ValueError) as error:
                raise ForkServerLost(
                    f"the process that makes workers has ended or does not answer ({error}); "
                    "is there memory for it?"
                ) from None

    def _reply(self, descriptors: int) -> tuple[dict[str, Any], list[int]]:
        data, files, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, descriptors or 1)
        if not data:
            raise OSError("it hung up")
        answer: dict[str, Any] = json.loads(data)
        if "error" in answer or len(files) != descriptors:
            for file in files:
                os.close(file)
            raise OSError(answer.get("error", "it sent no worker"))
        return answer, files

    def close(self) -> None:
        """End it and its workers; returns when it is gone."""
        self._control.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """Release the handle in a forked child of the owner."""
        self._control.close()
        self._process.returncode = 0  # not ours to wait for


# ------------------------------------------------------------------------- inside of it


def run_fork_server(control_fd: int, entry: str) -> None:
    """The fork_server's main function; never returns."""
    from .confinement import without_network

    control = socket.socket(fileno=control_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        do_without_pandas()
        module = importlib.import_module(entry)
        module.prepare()
        offline = without_network()
        gc.collect()
        gc.freeze()
        control.send(json.dumps({"ready": os.getpid()}).encode())
        while data := control.recv(MESSAGE_BYTES):
            request = json.loads(data)
            if "reap" in request:
                _, status = os.waitpid(request["reap"], 0)
                answer = {"status": os.waitstatus_to_exitcode(status)}
                control.send(json.dumps(answer).encode())
            else:
                _fork(control, module, request["fork"] | {"offline": offline})
    except BaseException as error:
        with contextlib.suppress(OSError):
            control.send(json.dumps({"error": f"{type(error).__name__}: {error}"[:2000]}).encode())
    os._exit(0)


def _fork(control: socket.socket, module: Any, spec: dict[str, Any]) -> None:
    threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
    if threads != 1:
        raise RuntimeError(f"{threads} threads where there must be one")
    ours, theirs = socket.socketpair()
    fork_server = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            control.close()
            ours.close()
            _live(theirs, module, spec, fork_server)
            status = 0
        finally:
            os._exit(status)
    theirs.close()
    pidfd = os.pidfd_open(pid)
    message = json.dumps({"pid": pid}).encode()
    rights = array.array("i", [ours.fileno(), pidfd])
    control.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    os.close(pidfd)
    ours.close()


def _live(end: socket.socket, module: Any, spec: dict[str, Any], fork_server: int) -> None:
    from .channel import Channel, ChannelClosed
    from .confinement import confine, die_with_parent

    die_with_parent(fork_server)
    threading.stack_size(1 << 20)
    channel = Channel(end, trusted=True)
    confined = confine(
        spec["memory_bytes"], spec["directory"], spec["file_bytes"], offline=spec["offline"]
    )
    with contextlib.suppress(ChannelClosed):
        module.serve(channel, spec, confined)


def exit_reason(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"
