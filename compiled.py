"""The one decorator under which every hot loop of Chronicle is compiled.

Purpose
    A kernel is a plain function over arrays (arrays, then scalars, then outputs).  :func:`kernel`
    compiles it with Numba once and caches the machine code on disk, so that a second process starts
    warm.

Guarantee
    ``nogil`` (threads run beside it), no fast-math (NaN, infinities and signed zeros mean what
    IEEE 754 says), no automatic parallelism (it would take a forked worker down with it).  A
    package directory or home that cannot be written never makes an import fail: the kernel is then
    compiled per process.

Limits
    Numba notices a change of the file that holds a kernel, not of another file that the kernel
    calls: kernels that call each other live in one module.  An index that names classes which are
    gone, as after an upgrade, is taken for an old one.  ``CHRONICLE_CACHE_DIR`` moves the cache;
    its directory carries the version of Chronicle's kernels, of Numba and of Python.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
from numba.core import caching, event
from numba.core import config as numba_config
from numba.core.compiler_lock import global_compiler_lock

from .ownership import fork_waits_for

__all__ = [
    "CompilingStopped",
    "cache_directory",
    "compiling_until",
    "keep_no_machine_code",
    "kernel",
    "kernel_calling",
    "when_compiling",
]

KERNEL_GENERATION = 1
"""Raised when kernels change in a way that a cache from an older release must not survive."""


def cache_directory() -> Path:
    """Directory of the compiled kernels, one per generation, Numba version and Python version."""
    base = os.environ.get("CHRONICLE_CACHE_DIR") or os.environ.get("NUMBA_CACHE_DIR")
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        base = os.path.join(home, "chronicle")
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return Path(base) / f"kernels-{KERNEL_GENERATION}-numba{numba.__version__}-{python}"


def _writable_cache() -> bool:
    """Point Numba at the cache directory; say whether it can be written to."""
    directory = cache_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError:
        return False
    numba_config.CACHE_DIR = str(directory)
    return True


def _survive_old_indexes() -> None:
    """Let an index of compiled forms that cannot be unpickled any more count as empty."""
    load = caching.IndexDataCacheFile._load_index

    def load_index(file: Any) -> Any:
        try:
            return load(file)
        except (AttributeError, ImportError, EOFError, pickle.UnpicklingError):
            return {}

    caching.IndexDataCacheFile._load_index = load_index


_survive_old_indexes()


def _in_turn(operation: Callable[..., Any]) -> Callable[..., Any]:
    """A way to the cache that one process takes at a time.

    Numba names a file in an index and then writes it: who looks between the two finds the code of
    an older source there, and of two who write at once one may take the other's name.
    """

    @functools.wraps(operation)
    def alone(cache: Any, *arguments: Any) -> Any:
        try:
            lock = os.open(cache_directory() / "lock", os.O_RDONLY | os.O_CREAT, 0o666)
        except OSError:  # nothing can be written, so nobody writes
            return operation(cache, *arguments)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return operation(cache, *arguments)
        finally:
            os.close(lock)

    return alone


_CACHED = _writable_cache()
caching.Cache.load_overload = _in_turn(caching.Cache.load_overload)
caching.Cache.save_overload = _in_turn(caching.Cache.save_overload)
fork_waits_for(global_compiler_lock)


def keep_no_machine_code() -> None:
    """Write nothing to the cache from here on: for a process that may not, and reads it still."""
    caching.Cache.save_overload = lambda *_: None


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function over arrays; without the GIL, cached on disk, with exact arithmetic."""
    try:
        compiled = numba.njit(nogil=True, cache=_CACHED, fastmath=False, error_model="numpy")(
            function
        )
    except RuntimeError:  # no place for a cache file: compile in memory, start colder
        compiled = numba.njit(nogil=True, cache=False, fastmath=False, error_model="numpy")(
            function
        )
    result: Callable[..., Any] = compiled
    return result


def kernel_calling(*modules: ModuleType) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile as :func:`kernel` does, anew also when one of these modules has changed.

    Parameters
    ----------
    *modules : module
        Those whose kernels the function calls, and those that these call.
    """
    stamps = []
    for module in modules:
        found = os.stat(str(module.__file__))
        stamps.append((found.st_mtime_ns, found.st_size))

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled: Any = kernel(function)
        index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
        if index is None:  # nothing is kept on disk that could be stale
            return compiled  # type: ignore[no-any-return]
        if not hasattr(index, "_source_stamp"):  # another Numba: better cold than stale
            options = {"nogil": True, "fastmath": False, "error_model": "numpy"}
            return numba.njit(cache=False, **options)(function)  # type: ignore[no-any-return]
        index._source_stamp = (index._source_stamp, *stamps)
        return compiled  # type: ignore[no-any-return]

    return decorate


class _Once(event.Listener):  # type: ignore[misc]  # Numba's classes are not followed
    def __init__(self, tell: Callable[[], None]) -> None:
        self.tell = tell
        self.told = False

    def on_start(self, event: Any) -> None:
        if not self.told:
            self.told = True
            self.tell()

    def on_end(self, event: Any) -> None:
        pass


def when_compiling(tell: Callable[[], None]) -> None:
    """Have a function called once, before the first kernel that the cache does not hold.

    Parameters
    ----------
    tell : callable
        Says why the next call takes seconds.  It must not raise.
    """
    event.register("numba:compile", _Once(tell))


class CompilingStopped(BaseException):
    """A kernel was about to be compiled, and its result is no longer needed.

    No :class:`Exception`, so that nothing on the way takes it for a failure of its own.
    """


class _Until(event.Listener):  # type: ignore[misc]  # Numba's classes are not followed
    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop

    def on_start(self, event: Any) -> None:
        if self.stop.is_set():
            raise CompilingStopped

    def on_end(self, event: Any) -> None:
        pass


@contextlib.contextmanager
def compiling_until(stop: threading.Event) -> Iterator[None]:
    """Give up compiling within the block, in every thread, once an event is set.

    Parameters
    ----------
    stop : threading.Event
        Looked at before each pass of Numba's compiler, the longest of which takes a second or two.

    Raises
    ------
    CompilingStopped
        Out of the call that needed the kernel, which stays as it was: it can be compiled later.
    """
    listener = _Until(stop)
    event.register("numba:run_pass", listener)
    try:
        yield
    finally:
        event.unregister("numba:run_pass", listener)
