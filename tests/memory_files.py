"""In-memory files that model a power cut or a kill at any moment.

Guarantee: the contract of ``RealFiles``.  ``crash`` leaves only what a Linux disk could leave, and
over random choices everything that ``file_contract`` permits:

============  =====================================  =========================================
mode          bytes that were not synced             entries that were not synced
============  =====================================  =========================================
``"lose"``    gone                                   no change happened
``"keep"``    there                                  every change happened
``"tear"``    per file: gone, there, or each sector  a random prefix of the changes happened,
              of 512 bytes on its own new, stale,    or each one on its own did or did not;
              zero or garbage, cut at any byte       a rename always whole
============  =====================================  =========================================

Bytes that ``truncate`` cut off may reappear until the file is synced.  Bytes whose sync failed can
be read until the power cut, which loses them even if a later sync succeeds, as on Linux.

Limits: ``link`` never copies.  A mapping is a copy of the file.  One lock guards everything.
"""

from __future__ import annotations

import copy
import errno
import os
import posixpath
import random as random_module
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from chronicle.errors import InvalidArgument, StoreClosed
from chronicle.store.file_contract import check_path, nbytes, poisoned, short_read, storage_error

if TYPE_CHECKING:
    from typing_extensions import Buffer


SECTOR_BYTES = 512
"""Atomic unit of a disk write."""

CrashMode = Literal["lose", "keep", "tear"]


class _File:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = 0  # number of durable leading bytes
        self.stale = b""  # durable bytes behind them, cut off by an unsynced truncate
        self.doomed: list[tuple[int, int]] = []  # ranges whose sync failed
        self.image: bytes | None = None  # last result of map()
        self.locks: list[MemoryFileLock] = []

    def __deepcopy__(self, memo: dict[int, object]) -> _File:
        twin = memo[id(self)] = _File()
        twin.data, twin.synced, twin.stale = self.data[:], self.synced, self.stale
        twin.doomed = list(self.doomed)
        return twin

    def sync(self) -> None:
        self.synced, self.stale = len(self.data), b""

    def truncate(self, size: int) -> None:
        if size < self.synced:
            self.stale = bytes(self.data[size : self.synced]) + self.stale
            self.synced = size
        self.doomed = [(start, min(end, size)) for start, end in self.doomed if start < size]
        del self.data[size:]
        self.image = None

    def after_crash(self, random: random_module.Random, mode: CrashMode) -> bytes:
        durable = bytearray(self.data[: self.synced])
        for start, end in self.doomed:
            if mode != "keep":
                durable[start:end] = bytes(len(durable[start:end]))
        lost, kept = bytes(durable) + self.stale, bytes(durable) + self.data[self.synced :]
        if mode == "lose" or (mode == "tear" and random.random() < 0.25):
            return lost
        if mode == "keep" or random.random() < 0.25 or lost == kept:
            return kept
        longest = max(len(kept), len(lost))
        result = bytearray(durable)
        while len(result) < longest:
            at = len(result)
            stop = min(longest, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
            sources = [kept[at:stop], kept[at:stop], lost[at:stop], b""]
            if at % SECTOR_BYTES == 0:  # a sector with durable bytes in it is never garbage
                sources.append(random.randbytes(stop - at))
            result += random.choice(sources).ljust(stop - at, b"\0")
        # The length may have reached the disk before, after or without the bytes.
        cut = random.choice(
            [longest, len(kept), len(lost), random.randint(self.synced, longest), self.synced]
        )
        return bytes(result[: max(cut, self.synced)])


class _Directory:
    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}


_Node: TypeAlias = _File | _Directory
_Change = tuple[_Directory, str, _Node | None]


class MemoryFileLock:
    def __init__(self, owner: MemoryFiles, file: _File, exclusive: bool) -> None:
        self._owner = owner
        self._file = file
        self.exclusive = exclusive

    def release(self) -> None:
        with self._owner._mutex:
            if self in self._file.locks:
                self._file.locks.remove(self)


class Handle:
    """A file that ``with`` closes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MemoryAppendFile(Handle):
    def __init__(self, owner: MemoryFiles, file: _File, path: str) -> None:
        self.path = path
        self._owner = owner
        self._file = file
        self._closed = False
        self._poisoned = False

    @property
    def size(self) -> int:
        return len(self._file.data)

    def write(self, data: Buffer) -> None:
        self.writev((data,))

    def writev(self, parts: Sequence[Buffer]) -> None:
        with self._owner._mutex:
            self._check()
            for part in parts:
                length = nbytes(part)
                view = memoryview(part).cast("B") if length else memoryview(b"")
                room = min(length, self._owner.free_bytes())
                self._file.data += view[:room]
                if room < length:
                    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    raise storage_error(error, "write to", self.path) from error

    def sync(self) -> None:
        with self._owner._mutex:
            self._check()
            self._file.sync()

    def fail_sync(self) -> None:
        """Simulate a failed sync: poison the handle and doom its bytes."""
        with self._owner._mutex:
            self._check()
            self._poisoned = True
            if self._file.synced < len(self._file.data):
                self._file.doomed.append((self._file.synced, len(self._file.data)))

    def truncate(self, size: int) -> None:
        with self._owner._mutex:
            self._check()
            if not 0 <= size <= len(self._file.data):
                raise InvalidArgument(
                    f"cannot cut {self.path} ({len(self._file.data)} bytes) back to {size}"
                )
            self._file.truncate(size)

    def close(self) -> None:
        self._closed = True

    def _check(self) -> None:
        if self._poisoned:
            raise poisoned(self.path)
        if self._closed:
            raise StoreClosed(f"{self.path} was used after it had been closed")


class MemoryReadFile(Handle):
    def __init__(self, owner: MemoryFiles, file: _File, path: str) -> None:
        self.path = path
        self._owner = owner
        self._file = file
        self._closed = False

    @property
    def size(self) -> int:
        self._check()
        return len(self._file.data)

    def read(self, offset: int, length: int) -> bytes:
        with self._owner._mutex:
            self._check()
            if offset + length > len(self._file.data):
                raise short_read(self.path, offset, length, len(self._file.data))
            return bytes(memoryview(self._file.data)[offset : offset + length])

    def map(self) -> memoryview:
        with self._owner._mutex:
            self._check()
            # Files only grow between truncates, so an image of the right length is the right one.
            if self._file.image is None or len(self._file.image) != len(self._file.data):
                self._file.image = bytes(self._file.data)
            return memoryview(self._file.image)

    def announce(self, ranges: Sequence[tuple[int, int]]) -> None:
        pass  # already in memory

    def close(self) -> None:
        self._closed = True

    def _check(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self.path} was used after it had been closed")


class MemoryFiles:
    """A tree of files in memory; ``capacity`` bytes in all, adjustable, simulate a full disk."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self._root = _Directory()
        self._pending: list[tuple[_Change, ...]] = []
        self._mutex = threading.RLock()

    def create(self, path: str, *, private: bool = False) -> MemoryAppendFile:
        with self._mutex:
            parent, name = self._place(path)
            if name in parent.entries:
                raise _os_error(errno.EEXIST, path)
            file = _File()
            self._change((parent, name, file))
            return MemoryAppendFile(self, file, path)

    def append(self, path: str) -> MemoryAppendFile:
        with self._mutex:
            return MemoryAppendFile(self, self._file(path), path)

    def open(self, path: str) -> MemoryReadFile:
        with self._mutex:
            return MemoryReadFile(self, self._file(path), path)

    def read(self, path: str) -> bytes:
        with self._mutex:
            return bytes(self._file(path).data)

    def size(self, path: str) -> int:
        with self._mutex:
            return len(self._file(path).data)

    def exists(self, path: str) -> bool:
        with self._mutex:
            try:
                self._node(path)
            except OSError:
                return False
            return True

    def list(self, directory: str) -> list[str]:
        with self._mutex:
            return sorted(self._directory(directory).entries)

    def make_directory(self, path: str) -> None:
        with self._mutex:
            here = self._root
            for name in _names(path):
                found = here.entries.get(name)
                if found is None:
                    found = _Directory()
                    self._change((here, name, found))
                if isinstance(found, _File):
                    raise _os_error(errno.EEXIST, path)
                here = found

    def remove(self, path: str) -> None:
        with self._mutex:
            self._file(path)
            parent, name = self._place(path)
            self._change((parent, name, None))

    def remove_tree(self, path: str) -> None:
        with self._mutex:
            if not self.exists(path):
                return
            for name in self.list(path):
                inner = posixpath.join(path, name)
                if isinstance(self._node(inner), _File):
                    self.remove(inner)
                else:
                    self.remove_tree(inner)
            parent, name = self._place(path)
            self._change((parent, name, None))

    def replace(self, source: str, target: str) -> None:
        with self._mutex:
            node = self._node(source)
            from_parent, from_name = self._place(source)
            to_parent, to_name = self._place(target)
            old = to_parent.entries.get(to_name)
            if isinstance(old, _Directory) and (isinstance(node, _File) or old.entries):
                raise _os_error(
                    errno.EISDIR if isinstance(node, _File) else errno.ENOTEMPTY, target
                )
            if isinstance(old, _File) and isinstance(node, _Directory):
                raise _os_error(errno.ENOTDIR, target)
            if old is not node:
                self._change((from_parent, from_name, None), (to_parent, to_name, node))

    def link(self, source: str, target: str) -> None:
        with self._mutex:
            file = self._file(source)
            parent, name = self._place(target)
            if name in parent.entries:
                raise _os_error(errno.EEXIST, target)
            self._change((parent, name, file))

    def export(self, path: str, outside_path: str, *, length: int | None = None) -> None:
        data = self.read(path)
        if length is not None:
            if length > len(data):
                raise short_read(path, 0, length, len(data))
            data = data[:length]
        with open(outside_path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def sync_directory(self, path: str) -> None:
        with self._mutex:
            directory = self._directory(path)
            # Earlier changes of the same names come first, or they would undo the later ones.
            touched: set[tuple[int, str]] = set()
            chosen = []
            left = []
            for changes in reversed(self._pending):
                keys = {(id(where), name) for where, name, _ in changes}
                if touched & keys or any(where is directory for where, _, _ in changes):
                    touched |= keys
                    chosen.append(changes)
                else:
                    left.append(changes)
            for changes in reversed(chosen):
                _apply(changes, durable=True)
            self._pending = left[::-1]

    def lock(self, path: str, *, exclusive: bool, content: bytes = b"") -> MemoryFileLock | None:
        with self._mutex:
            if not self.exists(path):
                self.create(path)
            file = self._file(path)
            if file.locks and (exclusive or any(held.exclusive for held in file.locks)):
                return None
            lock = MemoryFileLock(self, file, exclusive)
            if content:
                file.truncate(0)
                MemoryAppendFile(self, file, path).write(content)
            file.locks.append(lock)
            return lock

    def free_bytes(self) -> int:
        with self._mutex:
            if self.capacity is None:
                return 1 << 60
            return max(0, self.capacity - sum(len(file.data) for file in _files(self._root)))

    def local_path(self, path: str) -> str | None:
        check_path(path)
        return None

    def crash(self, random: random_module.Random, mode: CrashMode = "tear") -> MemoryFiles:
        """A copy as a power cut may leave it; ``random`` chooses between the possibilities."""
        if mode not in ("lose", "keep", "tear"):
            raise InvalidArgument(f"a crash can lose, keep or tear, found mode {mode!r}")
        with self._mutex:
            result = self.kill()
        pending, result._pending = result._pending, []
        if mode == "lose":
            pending = []
        elif mode == "tear" and random.random() < 0.5:
            pending = pending[: random.randint(0, len(pending))]
        elif mode == "tear":
            pending = [changes for changes in pending if random.random() < 0.5]
        for changes in pending:
            _apply(changes, durable=True)
        _settle(result._root)
        for file in _files(result._root):
            file.data = bytearray(file.after_crash(random, mode))
            file.doomed = []
            file.sync()
        return result

    def kill(self) -> MemoryFiles:
        """A copy as the end of the process leaves it: all writes, no locks, same durability."""
        with self._mutex:
            result = MemoryFiles(self.capacity)
            result._root, result._pending = copy.deepcopy((self._root, self._pending))
        return result

    def _change(self, *changes: _Change) -> None:
        _apply(changes, durable=False)
        self._pending.append(changes)

    def _node(self, path: str) -> _Node:
        here: _Node = self._root
        for name in _names(path):
            if isinstance(here, _File):
                raise _os_error(errno.ENOTDIR, path)
            if name not in here.entries:
                raise _os_error(errno.ENOENT, path)
            here = here.entries[name]
        return here

    def _file(self, path: str) -> _File:
        node = self._node(path)
        if isinstance(node, _Directory):
            raise _os_error(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._node(path)
        if isinstance(node, _File):
            raise _os_error(errno.ENOTDIR, path)
        return node

    def _place(self, path: str) -> tuple[_Directory, str]:
        directory, name = posixpath.split(check_path(path))
        return self._directory(directory), name


def _names(path: str) -> list[str]:
    return [name for name in check_path(path).split("/") if name not in ("", ".")]


def _apply(changes: Sequence[_Change], *, durable: bool) -> None:
    for directory, name, node in changes:
        entries = directory.durable if durable else directory.entries
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _settle(directory: _Directory) -> None:
    directory.entries = dict(directory.durable)
    for node in directory.entries.values():
        if isinstance(node, _Directory):
            _settle(node)


def _files(directory: _Directory) -> list[_File]:
    found: dict[int, _File] = {}
    todo = [directory]
    while todo:
        for node in todo.pop().entries.values():
            if isinstance(node, _File):
                found[id(node)] = node
            else:
                todo.append(node)
    return list(found.values())


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
