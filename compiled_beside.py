"""A process that compiles kernels beside this one, into the cache of machine code.

Purpose
    Numba holds the interpreter's lock while it compiles, so a thread would be of no use: what runs
    as Python meanwhile (:mod:`.interpreted`) would stand still.  :class:`Beside` starts a process
    with the first kernel that is wanted, and tells it which, for which kinds of arguments.

Guarantee
    One process of this one, and one of the machine's that compiles at a time.  It is nice to
    others, opens no store, and ends when it has compiled what it was asked for and nobody can ask
    any more.  So it may outlive this process by the time that takes: a command of a second would
    leave nothing compiled otherwise, and the next one would be no faster.  Nothing waits for it.

    Where somebody else is known to compile into the same cache, as a server's warm-up does, none is
    started until that is over (:meth:`Beside.leave`, :meth:`Beside.resume`): machine code is looked
    for in the cache, and what is still wanted then is asked for.

    A child that was forked does not know it (:class:`~.ownership.Owner`).

Layout
    Requests go to its standard input, pickled: ``(module, name, kinds of arguments)``.  For each
    it writes a byte when there is machine code, or cannot be, in their order.  Arguments are
    described, not sent: see :data:`Kind`.

Limits
    Where the cache cannot be written, or this interpreter cannot be started again, nothing is
    compiled beside.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import importlib
import inspect
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .ownership import ModuleLock, Owner

if TYPE_CHECKING:
    from .compiled import Kernel

__all__ = ["KERNEL_GENERATION", "Beside", "Kind", "cache_base", "compile_asked", "kind_of"]

KERNEL_GENERATION = 1
"""Raised when kernels change in a way that a cache from an older release must not survive."""
LOOK_S = 0.05
"""Between two looks at what the other process has compiled."""
LOOK_AGAIN_S = 0.5
"""Between two looks for a kernel in the cache, while somebody else compiles."""
TURN_S = 0.2
"""Between two attempts to be the one process of the machine that compiles."""
NICE = 5

Kind = Any
"""What Numba compiles for: the class of a number, ``("array", dtype, dimensions, layout, writable,
aligned)``, or ``(class, kinds)`` of a tuple.  None: something else."""


def kind_of(value: Any) -> Kind:
    """Describe an argument."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return ("array", value.dtype, value.ndim, layout, flags.writeable, flags.aligned)
    if isinstance(value, tuple):
        parts = tuple(kind_of(each) for each in value)
        return None if None in parts else (type(value), parts)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return None
    return type(value) if isinstance(value, (bool, int, float, np.generic)) else None


def cache_base() -> Path:
    """Directory below which machine code is kept."""
    base = os.environ.get("CHRONICLE_CACHE_DIR") or os.environ.get("NUMBA_CACHE_DIR")
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        base = os.path.join(home, "chronicle")
    return Path(base)


class Beside:
    """The process that compiles for this one; it is started when the first kernel is wanted.

    Attributes
    ----------
    owner : Owner
        This process.
    """

    def __init__(self) -> None:
        self.owner = Owner("the process that compiles")
        self._lock = ModuleLock()
        self._kept: set[str] = set()
        self._missed: dict[str, float] = {}
        self._left = False
        self._wanted: dict[tuple[str, Any], Any] = {}
        self._asked: dict[tuple[str, Any], int] = {}
        self._compiled = 0
        self._process: _GoesOn | None = None
        self._looked = 0.0

    def has_compiled(self, kernel: Kernel, kinds: tuple[Kind, ...]) -> bool:
        """Whether there is machine code of a kernel; has it made for these arguments if not."""
        function = kernel.function
        name = f"{function.__module__}.{function.__qualname__}"
        with self._lock:
            if self._finds(name, function):
                return True
            number = self._asked.get((name, kinds))
            if number is not None:
                self._look()
                return number < self._compiled
            self._wanted[name, kinds] = function
            if not self._left:
                self._ask()
            return False

    def leave(self) -> None:
        """Ask for nothing: somebody else compiles into the cache, which is looked through again."""
        with self._lock:
            self._left = True

    def resume(self) -> None:
        """Ask again, at once for what was wanted meanwhile and is not in the cache."""
        with self._lock:
            self._left = False
            for name, kinds in list(self._wanted):
                self._missed.pop(name, None)
                if self._finds(name, self._wanted[name, kinds]):
                    del self._wanted[name, kinds]
            self._ask()

    def _finds(self, name: str, function: Any) -> bool:
        """Whether the cache has a kernel, as far as is known."""
        if name in self._kept:
            return True
        missed, now = self._missed.get(name), time.monotonic()
        if missed is not None and not (self._left and now - missed >= LOOK_AGAIN_S):
            return False
        if not _is_kept(function):
            self._missed[name] = now
            return False
        self._kept.add(name)
        return True

    def _ask(self) -> None:
        if self._wanted and not self._asked:
            self._process = _started()
        for (name, kinds), function in self._wanted.items():
            self._asked[name, kinds] = len(self._asked)
            if self._process is not None:
                with contextlib.suppress(OSError):  # it has ended: kernels are compiled here
                    asked = (function.__module__, function.__qualname__, kinds)
                    pickle.dump(asked, self._process.stdin)
                    self._process.stdin.flush()
        self._wanted.clear()

    def _look(self) -> None:
        now = time.monotonic()
        if self._process is None or now - self._looked < LOOK_S:
            return
        self._looked = now
        with contextlib.suppress(BlockingIOError):
            self._compiled += len(os.read(self._process.stdout.fileno(), 1 << 16))


class _GoesOn(subprocess.Popen[bytes]):
    """A process that may go on when this one ends."""

    stdin: Any
    stdout: Any

    def leave(self) -> None:
        """Ask for nothing more."""
        with contextlib.suppress(OSError):
            self.stdin.close()
            self.stdout.close()

    def __del__(self, *_: Any) -> None:
        """There is nothing to warn of."""


def _started() -> _GoesOn | None:
    """The other process, or none where it could not be or not keep what it compiles."""
    interpreter = Path(sys.executable or "").name
    if not interpreter.startswith("python") or not _can_be_written(cache_base()):
        return None
    program = "from chronicle.compiled_beside import compile_asked; compile_asked()"
    try:
        process = _GoesOn(
            [sys.executable, "-P", "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process
        )
    except OSError:
        return None
    os.set_blocking(process.stdout.fileno(), False)
    atexit.register(process.leave)
    return process


def _can_be_written(directory: Path) -> bool:
    """Whether files can be made in a directory, once it is there."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    return os.access(directory, os.W_OK | os.X_OK)


def _is_kept(function: Any) -> bool:
    """Whether the cache has machine code of a function: an index where Numba would write it.

    Which is no older than its source: it is of another one otherwise, as after an upgrade.  Whether
    it is of this one, and for which arguments, only Numba can tell.
    """
    source = inspect.getfile(function)
    return any(_is_newer(found, source) for found in _indexes(function))


def _keep(function: Any) -> None:
    """Say that the cache has machine code of a function, which Numba has just found or written.

    Numba tells sources apart by what they say: where the same one has come again, as when Chronicle
    is installed anew, the index is older than it, and stays as it is.
    """
    source = inspect.getfile(function)
    for found in _indexes(function):
        if found.exists() and not _is_newer(found, source):
            os.utime(found)


def _indexes(function: Any) -> Iterator[Path]:
    """Where any version of Numba would have the index of a function; not all of them are there."""
    source = os.path.abspath(inspect.getfile(function))
    directory, file = os.path.split(source)
    digest = hashlib.sha1(directory.encode(), usedforsecurity=False).hexdigest()
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    line = function.__code__.co_firstlineno
    name = f"{file.removesuffix('.py')}.{function.__qualname__}-{line}.{version}{sys.abiflags}.nbi"
    place = f"{os.path.basename(directory)}_{digest}/{name}"
    generations = f"kernels-{KERNEL_GENERATION}-numba*-{version}"
    return (found / place for found in cache_base().glob(generations))


def _is_newer(path: Path, source: str) -> bool:
    try:
        return path.stat().st_mtime_ns >= os.stat(source).st_mtime_ns
    except OSError:
        return False


# ---------------------------------------------------------------------------- the other process


def compile_asked() -> None:
    """Compile what standard input asks for, until it ends."""
    os.nice(NICE)
    requests, answers = sys.stdin.buffer, sys.stdout.fileno()
    parent = os.getppid()
    with contextlib.suppress(EOFError, pickle.UnpicklingError), _turn(parent):
        from .machine_code import type_of_argument

        while True:
            module, name, kinds = pickle.load(requests)  # of the process that has started this
            with contextlib.suppress(Exception):  # who asked will meet that, too
                kernel = getattr(importlib.import_module(module), name)
                kernel.form.compile(tuple(type_of_argument(_example(kind)) for kind in kinds))
                _keep(kernel.function)
            with contextlib.suppress(BrokenPipeError):  # it has ended; its kernels are compiled
                os.write(answers, b".")


@contextlib.contextmanager
def _turn(parent: int) -> Iterator[None]:
    """Be the one process of this machine that compiles beside another; ends where nobody waits."""
    cache_base().mkdir(parents=True, exist_ok=True)
    lock = os.open(cache_base() / "compiling", os.O_RDWR | os.O_CREAT, 0o666)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if os.getppid() != parent:
                sys.exit()
            time.sleep(TURN_S)
    try:
        yield
    finally:
        os.close(lock)


def _example(kind: Kind) -> Any:
    """An argument of a kind."""
    if not isinstance(kind, tuple):
        return kind(0)
    if kind[0] != "array":
        kept, parts = kind
        examples = [_example(each) for each in parts]
        return tuple(examples) if kept is tuple else kept(*examples)
    _, dtype, dimensions, layout, writable, aligned = kind
    size = np.dtype(dtype).itemsize
    shape = (2,) * dimensions
    if not aligned:
        raw = np.zeros(size * 2**dimensions + 1, np.uint8)[1:]
        array = raw.view(dtype).reshape(shape)
    elif layout == "A":
        array = np.zeros((4,) * dimensions, dtype)[(slice(None, None, 2),) * dimensions]
    else:
        array = np.zeros(shape, dtype, order=layout)
    array.flags.writeable = writable
    return array
