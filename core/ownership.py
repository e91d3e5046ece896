"""Fork safety: what a process opened cannot be used in a forked child.

A child could write into its parent's files, and wait for threads that do not exist.

==========================  =================================================================
in a forked child
==========================  =================================================================
handles (store, stream)     every method that reads or changes raises ``StoreClosed`` before
                            it takes a lock; closing does nothing
blocks of mapped files      raise the same, even in a scan that the parent had begun
libraries with threads      are never destroyed (``leave_to_parent``)
module-level locks          are free (``ModuleLock``)
module-level threads        are started anew (``OwnThreads``)
imports inside functions    are never half done: a fork waits for ``LOADING`` and for locks
                            registered with ``fork_waits_for``
==========================  =================================================================

What the child opens itself works.  Linux reuses a pid only after its process has ended, so a child
never has its parent's.  A fork does not wait for imports by other libraries in other threads.

Ctrl-C in a ``with`` statement of these locks leaves none of them held: entering and leaving is one
step, in C.  A Python method could be interrupted between getting a lock and returning.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, cast

from ..errors import StoreClosed

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    class RLock:
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
        def release(self) -> None: ...
        def __enter__(self) -> bool: ...
        def __exit__(self, *_: object) -> None: ...
        def _is_owned(self) -> bool: ...
        def _at_fork_reinit(self) -> None: ...

else:
    from _thread import RLock  # a class; that of threading is a function


class Owner:
    """The process that opened something; ``what`` begins the message."""

    __slots__ = ("__weakref__", "_process", "_what")

    def __init__(self, what: str) -> None:
        self._process = os.getpid()
        self._what = what

    @property
    def here(self) -> bool:
        """Whether this is the owning process."""
        return os.getpid() == self._process

    def check(self) -> None:
        """Raise ``StoreClosed`` in any other process."""
        if os.getpid() != self._process:
            raise StoreClosed(
                f"{self._what} was opened in process {self._process}; process {os.getpid()} was "
                "forked from it and cannot use it: open the store in this process, with "
                "chronicle.open(path, mode='r') while another process writes to it"
            )


class OwnedLock(RLock):
    """A re-entrant lock that only its process can acquire."""

    __slots__ = ("_owner", "check")

    def __init__(self, what: str) -> None:
        self._owner = Owner(what)
        self.check = self._owner.check
        _OWNED.add(self)

    @property
    def here(self) -> bool:
        """Whether this is the owning process."""
        return self._owner.here


class _LeftToParent(OwnedLock):
    """What an ``OwnedLock`` is in a forked child."""

    __slots__ = ()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self.check()
        return False

    def __enter__(self) -> bool:
        return self.acquire()


class ModuleLock(RLock):
    """A re-entrant lock of process-wide module state, free in a forked child.

    Protected state must be consistent after each bytecode, as the child continues from there.
    """

    def __init__(self) -> None:
        _MODULES.add(self)


class Condition(RLock):
    """A condition variable with a re-entrant lock of its own."""

    def __init__(self) -> None:
        self._condition = condition = threading.Condition(cast(Any, self))
        self.wait = condition.wait
        self.wait_for = condition.wait_for
        self.notify = condition.notify
        self.notify_all = condition.notify_all


class OwnThreads:
    """A lazily started thread pool for the life of the process, with named threads."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._made: tuple[int, ThreadPoolExecutor] | None = None
        self._lock = ModuleLock()

    def pool(self) -> ThreadPoolExecutor:
        """The pool; a forked child has its own."""
        made = self._made
        if made is not None and made[0] == os.getpid():
            return made[1]
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                self._made = os.getpid(), ThreadPoolExecutor(self._count, self._name)
            return self._made[1]


def leave_to_parent(owner: Any) -> None:
    """Never destroy an object, or what it refers to, in a forked child, even at interpreter exit.

    Closing RocksDB writes its tables and waits for threads; DuckDB frees what other threads use.
    """
    _LEFT.add(owner)


def fork_waits_for(lock: Any) -> None:
    """Make forks wait for a re-entrant lock; holders of ``LOADING`` may take it, not vice versa."""
    _WAITED_FOR.append(lock)


LOADING = threading.RLock()
"""Held during imports inside functions, whose lock a fork would leave held in the child."""

_WAITED_FOR: list[Any] = [LOADING]
_OWNED: weakref.WeakSet[OwnedLock] = weakref.WeakSet()
_MODULES: weakref.WeakSet[ModuleLock] = weakref.WeakSet()
_LEFT: weakref.WeakSet[Any] = weakref.WeakSet()


def _before_fork() -> None:
    for lock in _WAITED_FOR:
        lock.acquire()


def _release() -> None:
    for lock in reversed(_WAITED_FOR):
        lock.release()


def _after_fork() -> None:
    _release()  # the child runs only the forking thread, which holds them
    for owned in list(_OWNED):
        owned.__class__ = _LeftToParent
    for module in list(_MODULES):
        module._at_fork_reinit()
    for owner in list(_LEFT):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))  # never released


os.register_at_fork(before=_before_fork, after_in_parent=_release, after_in_child=_after_fork)
