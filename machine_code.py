"""Kernels to machine code: Numba, its options and its cache on disk.

Purpose
    What :mod:`.compiled` loads when the first kernel is called: :func:`compiled_form` makes
    Numba's form of a kernel, the rest decides where machine code is kept, and who may compile.

Guarantee
    ``nogil`` (threads run beside it), no fast-math (NaN, infinities and signed zeros mean what
    IEEE 754 says), no automatic parallelism (it would take a forked worker down with it).  A
    cache directory that cannot be written never makes a call fail: what it holds is used, other
    kernels are compiled per process.

Limits
    An index that names classes which are gone, as after an upgrade, is taken for an old one.
    ``CHRONICLE_CACHE_DIR`` moves the cache; its directory carries the version of Chronicle's
    kernels, of Numba and of Python.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
from numba.core import caching, event
from numba.core import config as numba_config
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.types.misc import unliteral
from numba.extending import intrinsic

from .compiled_beside import KERNEL_GENERATION, cache_base
from .ownership import fork_waits_for

__all__ = [
    "CompilingStopped",
    "cache_at_rest",
    "cache_directory",
    "compiled_form",
    "compiling_while",
    "global_compiler_lock",
    "keep_no_machine_code",
    "keeps_machine_code",
    "numba_type",
    "operation",
    "tell_of_compiling",
    "type_of_argument",
]

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": False,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,  # nobody passes kernels around as values
}


def cache_directory() -> Path:
    """Directory of the compiled kernels, one per generation, Numba version and Python version."""
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return cache_base() / f"kernels-{KERNEL_GENERATION}-numba{numba.__version__}-{python}"


def keep_no_machine_code() -> None:
    """Write nothing to the cache from here on: for a process that may not, and reads it still."""
    caching.Cache.save_overload = lambda *_: None
    caching.UserProvidedCacheLocator.ensure_cache_path = lambda *_: None  # would write there


def _find_cache() -> bool:
    """Point Numba at the cache directory; say whether there is one."""
    global keeps_machine_code
    directory = cache_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
        keeps_machine_code = True
    except OSError:
        if not os.access(directory, os.R_OK | os.X_OK):
            return False
        keep_no_machine_code()
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
        with cache_at_rest():
            return operation(cache, *arguments)

    return alone


@contextlib.contextmanager
def cache_at_rest() -> Iterator[None]:
    """Keep other processes from the cache: one that is killed meanwhile leaves its files whole."""
    try:
        lock = os.open(cache_directory() / "lock", os.O_RDONLY | os.O_CREAT, 0o666)
    except OSError:  # nothing can be written, so nobody writes
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


caching.Cache.load_overload = _in_turn(caching.Cache.load_overload)
caching.Cache.save_overload = _in_turn(caching.Cache.save_overload)
keeps_machine_code = False
"""Whether other processes find what this one compiles."""

_CACHED = _find_cache()
fork_waits_for(global_compiler_lock)


def compiled_form(function: Callable[..., Any], calls: Sequence[ModuleType]) -> Any:
    """Numba's form of a kernel, which compiles it for each kind of arguments or finds that cached.

    Parameters
    ----------
    function : callable
    calls : sequence of module
        The kernel is compiled anew also when one of these has changed.
    """
    try:
        made = numba.njit(cache=_CACHED, **_OPTIONS)(function)
    except RuntimeError:  # no place for a cache file: compile in memory, start colder
        made = numba.njit(cache=False, **_OPTIONS)(function)
    made.get_call_template = _for_any_value(made.get_call_template)
    index = getattr(getattr(made, "_cache", None), "_cache_file", None)
    if not calls or index is None:  # nothing is kept on disk that could be stale
        return made
    if not hasattr(index, "_source_stamp"):  # another Numba: better cold than stale
        return numba.njit(cache=False, **_OPTIONS)(function)
    found = [os.stat(str(module.__file__)) for module in calls]
    stamps = [(each.st_mtime_ns, each.st_size) for each in found]
    index._source_stamp = (index._source_stamp, *stamps)
    return made


def _for_any_value(template: Callable[..., Any]) -> Callable[..., Any]:
    """How a kernel finds another one that it calls: by types, whatever the values.

    Numba would compile the other once more for each literal that stands in a call.
    """

    def found(arguments: Any, named: Any) -> Any:
        return template(tuple(unliteral(each) for each in arguments), named)

    return found


def operation(generate: Callable[..., Any]) -> Any:
    """Numba's form of an operation that is written in terms of LLVM."""
    made = intrinsic(generate)
    cpu_target.typing_context.refresh()  # a kernel may be half compiled
    return made


def type_of_argument(value: Any) -> Any:
    """The type of an argument for which a kernel is compiled."""
    return numba.typeof(value)


def numba_type(value: Any) -> Any:
    """The type that something of Numba's has in a kernel."""
    return cpu_target.typing_context.resolve_value_type(value)


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


def tell_of_compiling(tell: Callable[[], None]) -> None:
    """See :func:`~.compiled.when_compiling`."""
    event.register("numba:compile", _Once(tell))


class CompilingStopped(BaseException):
    """A kernel was about to be compiled where that is not wanted, or no longer.

    No :class:`Exception`, so that nothing on the way takes it for a failure of its own.
    """


class _While(event.Listener):  # type: ignore[misc]  # Numba's classes are not followed
    def __init__(self, wanted: Callable[[], bool]) -> None:
        self.wanted = wanted
        self.thread = threading.get_ident()

    def on_start(self, event: Any) -> None:
        if threading.get_ident() == self.thread and not self.wanted():
            raise CompilingStopped

    def on_end(self, event: Any) -> None:
        pass


@contextlib.contextmanager
def compiling_while(wanted: Callable[[], bool]) -> Iterator[None]:
    """Give up compiling within the block, in this thread, when it is not wanted.

    Parameters
    ----------
    wanted : callable
        Asked before each pass of Numba's compiler, the longest of which takes a second or two.
        Kernels that the cache holds are loaded without.

    Raises
    ------
    CompilingStopped
        Out of the call that needed the kernel, which stays as it was: it can be compiled later.
    """
    listener = _While(wanted)
    event.register("numba:run_pass", listener)
    try:
        yield
    finally:
        event.unregister("numba:run_pass", listener)
