"""What a process opened is its own: a forked child must not go on with it.

Purpose
    ``fork`` copies memory and shares open files.  A child that appended through what it inherited
    would write between the records of its parent, and its copies of locks and thread pools wait for
    threads that it does not have.  Here is how the layers above refuse instead.

Guarantee
    ==========================  =================================================================
    in a forked child
    ==========================  =================================================================
    handles (store, stream)     every method that reads or changes raises
                                :class:`~chronicle.errors.StoreClosed`, before it takes a lock;
                                closing does nothing
    blocks of mapped files      raise the same, also out of a scan that the parent had begun
    libraries with threads      are never torn down (:func:`leave_to_parent`): their destructors
                                would write to the parent's files or wait for its threads
    locks of module state       are free (:class:`ModuleLock`)
    threads of modules          are begun anew (:class:`OwnThreads`)
    imports inside functions    are never half done: a fork waits for them (:data:`LOADING`), and
                                for kernels that are being compiled (:func:`fork_waits_for`)
    ==========================  =================================================================

    What the child opens itself works as anywhere.

Limits
    A process is identified by its number.  Linux gives a number again only when the process that
    had it is gone, so a child never has its parent's.  What another library
    imports on its first use, in another thread, in the moment of a fork, keeps its lock in the
    child: no fork waits for that.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ..errors import StoreClosed

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = [
    "LOADING",
    "ModuleLock",
    "OwnThreads",
    "OwnedLock",
    "Owner",
    "fork_waits_for",
    "leave_to_parent",
]


class Owner:
    """The process that opened something.

    Parameters
    ----------
    what : str
        Begins the message, such as ``"the store flights"``.
    """

    __slots__ = ("__weakref__", "_process", "_what")

    def __init__(self, what: str) -> None:
        self._process = os.getpid()
        self._what = what

    @property
    def here(self) -> bool:
        """Whether this is that process."""
        return os.getpid() == self._process

    def check(self) -> None:
        """Raise :class:`StoreClosed` in any other process."""
        if os.getpid() != self._process:
            raise StoreClosed(
                f"{self._what} was opened in process {self._process}; process {os.getpid()} was "
                "forked from it and cannot use it: open the store in this process, with "
                "chronicle.open(path, mode='r') while another process writes to it"
            )


class OwnedLock(Owner):
    """A re-entrant lock that only its process can take.

    Parameters
    ----------
    what : str
        See :class:`Owner`.
    """

    __slots__ = ("_lock",)

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self._lock = threading.RLock()

    def acquire(self, blocking: bool = True) -> bool:
        """Take it, or say that it is taken."""
        self.check()
        return self._lock.acquire(blocking)

    def release(self) -> None:
        """Give it back."""
        self._lock.release()

    def __enter__(self) -> None:
        if os.getpid() != self._process:
            self.check()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class ModuleLock:
    """A lock of what a module keeps for the whole process; free in a forked child.

    What it protects is whole after any one bytecode, because the child goes on from there.

    Attributes
    ----------
    lock : threading.Lock
        What hot paths take directly; another one in a child.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        _MODULES.add(self)

    def renew(self) -> None:
        """Free it, no matter which thread of the parent held it."""
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class OwnThreads:
    """Threads of this process for the whole of its life, begun when they are asked for.

    Parameters
    ----------
    count : int
        Most that run at a time.
    name : str
        Begins the name of each.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._made: tuple[int, ThreadPoolExecutor] | None = None
        self._lock = ModuleLock()

    def pool(self) -> ThreadPoolExecutor:
        """They; a forked child has its own."""
        made = self._made
        if made is not None and made[0] == os.getpid():
            return made[1]
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                self._made = os.getpid(), ThreadPoolExecutor(self._count, self._name)
            return self._made[1]


def leave_to_parent(owner: Any) -> None:
    """Have a forked child never destroy an object, nor what it refers to.

    RocksDB writes its tables when it is closed, and waits for its threads; DuckDB frees what the
    threads of the parent still use.  In a child, even the end of the interpreter must not do that.
    """
    _LEFT.add(owner)


def fork_waits_for(lock: Any) -> None:
    """Have a fork wait until a re-entrant lock is free, because nobody could free it in a child.

    Who holds :data:`LOADING` may wait for it, not the other way round.
    """
    _WAITED_FOR.append(lock)


LOADING = threading.RLock()
"""Held around imports inside functions: a module that another thread was importing in the moment of
a fork is locked in the child for ever."""

_WAITED_FOR: list[Any] = [LOADING]
_MODULES: weakref.WeakSet[ModuleLock] = weakref.WeakSet()
_LEFT: weakref.WeakSet[Any] = weakref.WeakSet()


def _before_fork() -> None:
    for lock in _WAITED_FOR:
        lock.acquire()


def _release() -> None:
    for lock in reversed(_WAITED_FOR):
        lock.release()


def _after_fork() -> None:
    _release()  # the thread that forks is the one that goes on
    for lock in list(_MODULES):
        lock.renew()
    for owner in list(_LEFT):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))  # never given back


os.register_at_fork(before=_before_fork, after_in_parent=_release, after_in_child=_after_fork)
