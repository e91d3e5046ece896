"""Fault injection: files that fail at a planned operation.

Prove guarantees by running a scenario with the fault at operation 1, 2, and so on::

    for number, memory, files, db in strikes("crash_halfway", opened):
        with contextlib.suppress(SimulatedCrash):
            scenario(db)
        check(memory.crash(random.Random(number), "tear"))

Every changing operation counts, from 1: ``create``, ``write`` (a ``writev`` counts once), ``sync``,
``truncate``, ``make_directory`` and ``remove`` (each directory and file), ``replace``, ``link``,
``export``, ``sync_directory``, ``lock``.  Reads do not fail before a crash.

==================  ===========================================================================
fault               what operation k does
==================  ===========================================================================
``"eio"``           a write stores ``sectors`` x 512 bytes; then ``StorageFailed`` (EIO)
``"enospc"``        the same, but ``StorageFull``; removing, truncating and syncing work
``"fsync"``         a sync fails and poisons its handle; in a ``MemoryFiles`` its bytes are lost
                    in the next power cut, whatever is synced later.  Others work
``"crash_before"``  nothing, then ``SimulatedCrash``, as after each later operation
``"crash_halfway"`` a write stores ``sectors`` x 512 bytes, others nothing; then the same
``"crash_after"``   all of it, then the same
==================  ===========================================================================
"""

from __future__ import annotations

import errno
import itertools
import os
import posixpath
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, NoReturn, TypeVar

from chronicle.store.file_contract import (
    AppendFile,
    FileLock,
    Files,
    ReadFile,
    check_path,
    poisoned,
    storage_error,
)
from chronicle.tests.memory_files import SECTOR_BYTES, Handle, MemoryAppendFile, MemoryFiles

if TYPE_CHECKING:
    from typing_extensions import Buffer


Fault = Literal["eio", "enospc", "fsync", "crash_before", "crash_halfway", "crash_after"]

NEEDS_SPACE = frozenset({"create", "write", "make_directory", "link", "export", "lock", "replace"})

Result = TypeVar("Result")
Made = TypeVar("Made")


class SimulatedCrash(BaseException):
    """The process or machine is gone; only the test may catch this."""


@dataclass(frozen=True)
class FaultPlan:
    """Which operation fails, from 1, and how many in a row (``length`` None: all that follow); a
    failing write stores ``sectors``; ``only`` restricts the counted operations.
    """

    fault: Fault | None = None
    operation: int = 1
    length: int | None = 1
    sectors: int = 0
    only: Collection[str] | None = None


class Operation(NamedTuple):
    """One entry of the trace; ``number`` is 0 when the plan does not count its kind."""

    number: int
    name: str
    path: str
    nbytes: int


class FaultyFiles:
    """Files that fail as the replaceable ``plan`` says; ``trace`` has all requested operations."""

    def __init__(self, inner: Files, plan: FaultPlan | None = None) -> None:
        self.inner = inner
        self.plan = plan or FaultPlan()
        self.operations = 0
        self.struck = False
        self.crashed = False
        self.trace: list[Operation] = []
        self._mutex = threading.RLock()

    def alive(self) -> None:
        if self.crashed:
            raise SimulatedCrash("an operation after the simulated crash")

    def due(self, name: str, path: str, length: int = 0) -> Fault | None:
        """Count an operation and return its fault, if any."""
        with self._mutex:
            self.alive()
            plan = self.plan
            counted = plan.only is None or name in plan.only
            self.operations += counted
            self.trace.append(Operation(self.operations if counted else 0, name, path, length))
            last = None if plan.length is None else plan.operation + plan.length
            if (
                plan.fault is None
                or not counted
                or self.operations < plan.operation
                or (last is not None and self.operations >= last)
                or (plan.fault == "enospc" and name not in NEEDS_SPACE)
                or (plan.fault == "fsync" and name not in ("sync", "sync_directory"))
            ):
                return None
            self.struck = True
            return plan.fault

    def strike(self, fault: Fault, doing: str, path: str) -> NoReturn:
        if fault.startswith("crash"):
            self.crashed = True
            raise SimulatedCrash(f"simulated crash: {doing} {path}")
        number = errno.ENOSPC if fault == "enospc" else errno.EIO
        error = OSError(number, os.strerror(number), path)
        raise storage_error(error, doing, path) from error

    def change(self, name: str, path: str, act: Callable[[], Result]) -> Result:
        """Run an all-or-nothing operation, unless its fault is due."""
        fault = self.due(name, path)
        if fault is not None:
            if fault == "crash_after":
                with suppress(OSError):  # the operation may fail by itself before the crash
                    act()
            self.strike(fault, name, path)
        return act()

    def create(self, path: str, *, private: bool = False) -> FaultyAppendFile:
        file = self.change("create", path, lambda: self.inner.create(path, private=private))
        return FaultyAppendFile(self, file, path)

    def append(self, path: str) -> FaultyAppendFile:
        self.alive()
        return FaultyAppendFile(self, self.inner.append(path), path)

    def open(self, path: str) -> FaultyReadFile:
        self.alive()
        return FaultyReadFile(self, self.inner.open(path), path)

    def __getattr__(self, name: str) -> Any:
        """What changes nothing: ``read``, ``size``, ``exists``, ``list`` and such."""
        self.alive()
        return getattr(self.inner, name)

    def make_directory(self, path: str) -> None:
        self.alive()
        made = ""
        for name in check_path(path).split("/"):
            made = posixpath.join(made, name)
            self._make_one(made)

    def _make_one(self, path: str) -> None:
        if not self.inner.exists(path):
            self.change("make_directory", path, lambda: self.inner.make_directory(path))
        else:
            self.inner.make_directory(path)

    def remove(self, path: str) -> None:
        self.change("remove", path, lambda: self.inner.remove(path))

    def remove_tree(self, path: str) -> None:
        self.alive()
        if not self.inner.exists(path):
            return
        for name in self.inner.list(path):
            inner_path = posixpath.join(path, name)
            if _is_directory(self.inner, inner_path):
                self.remove_tree(inner_path)
            else:
                self.remove(inner_path)
        self.change("remove", path, lambda: self.inner.remove_tree(path))

    def replace(self, source: str, target: str) -> None:
        self.change("replace", source, lambda: self.inner.replace(source, target))

    def link(self, source: str, target: str) -> None:
        self.change("link", source, lambda: self.inner.link(source, target))

    def export(self, path: str, outside_path: str, *, length: int | None = None) -> None:
        self.change("export", path, lambda: self.inner.export(path, outside_path, length=length))

    def sync_directory(self, path: str) -> None:
        self.change("sync_directory", path, lambda: self.inner.sync_directory(path))

    def lock(self, path: str, *, exclusive: bool, content: bytes = b"") -> FileLock | None:
        return self.change(
            "lock", path, lambda: self.inner.lock(path, exclusive=exclusive, content=content)
        )


class FaultyAppendFile(Handle):
    def __init__(self, owner: FaultyFiles, inner: AppendFile, path: str) -> None:
        self.path = path
        self._owner = owner
        self._inner = inner
        self._poisoned = False

    @property
    def size(self) -> int:
        self._owner.alive()
        return self._inner.size

    def write(self, data: Buffer) -> None:
        self._write(memoryview(data).nbytes, (data,), lambda: self._inner.write(data))

    def writev(self, parts: Sequence[Buffer]) -> None:
        length = sum(memoryview(part).nbytes for part in parts)
        self._write(length, parts, lambda: self._inner.writev(parts))

    def sync(self) -> None:
        self._check()
        fault = self._owner.due("sync", self.path)
        if fault in (None, "crash_after"):
            self._inner.sync()
        elif fault in ("fsync", "eio"):
            self._poisoned = True
            if isinstance(self._inner, MemoryAppendFile):
                self._inner.fail_sync()
        if fault is not None:
            self._owner.strike(fault, "sync", self.path)

    def truncate(self, size: int) -> None:
        self._check()
        self._owner.change("truncate", self.path, lambda: self._inner.truncate(size))

    def close(self) -> None:
        self._inner.close()

    def _check(self) -> None:
        self._owner.alive()
        if self._poisoned:
            raise poisoned(self.path)

    def _write(self, length: int, parts: Sequence[Buffer], act: Callable[[], None]) -> None:
        self._check()
        fault = self._owner.due("write", self.path, length)
        if fault in (None, "crash_after"):
            act()
        elif fault != "crash_before":
            # Joined only here: a write without a fault must reach the inner file unchanged.
            self._inner.write(b"".join(parts)[: self._owner.plan.sectors * SECTOR_BYTES])
        if fault is not None:
            self._owner.strike(fault, "write to", self.path)


class FaultyReadFile(Handle):
    def __init__(self, owner: FaultyFiles, inner: ReadFile, path: str) -> None:
        self.path = path
        self._owner = owner
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name != "announce":
            self._owner.alive()
        return getattr(self._inner, name)

    def close(self) -> None:
        self._inner.close()


def _is_directory(files: Files, path: str) -> bool:
    try:
        files.list(path)
    except NotADirectoryError:
        return False
    return True


class Strike(NamedTuple, Generic[Made]):
    """One run of a scenario whose operation ``number`` fails."""

    number: int
    memory: MemoryFiles
    files: FaultyFiles
    made: Made


def strikes(
    fault: Fault,
    make: Callable[[FaultyFiles], Made],
    *,
    begun: MemoryFiles | None = None,
    first: int = 1,
    step: int = 1,
    length: int | None = 1,
    sectors: int | None = None,
    only: Collection[str] | None = None,
) -> Iterator[Strike[Made]]:
    """Runs on new files, or on those of ``begun``, with the fault at the ``first`` operation after
    ``make``, then ``step`` operations later, and so on; the last is the first without the fault.
    Without ``sectors``, 0 to 2 in turn.
    """
    for number in itertools.count(first, step):
        memory = MemoryFiles() if begun is None else begun.kill()
        files = FaultyFiles(memory)
        made = make(files)
        cut = number % 3 if sectors is None else sectors
        files.plan = FaultPlan(fault, files.operations + number, length, cut, only)
        yield Strike(number, memory, files, made)
        if not files.struck:
            return
