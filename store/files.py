"""The real file system: ``RealFiles`` implements ``file_contract`` with Linux system calls.

Handles close when nothing refers to them any more.  A lock ends with its process, and a forked
child does not inherit it.  ``ScratchFiles`` are for a store that ends with its process.

Read planning: byte ranges become few requests, in order, for disks (hints) and objects::

    wanted       |--|  |-|     |---|                |----------------|
    joined       |-----------------|                |----------------|    gaps below ``gap``
    cut          |-----------------|                |------|------|--|    at ``piece``
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..core.closing import Closing
from ..core.ownership import Owner
from ..core.scratch import ScratchDirectory
from ..errors import InvalidArgument, StorageFailed, StoreClosed
from .file_contract import check_path, nbytes, poisoned, short_read, storage_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

Range = tuple[int, int]


def joined(ranges: Iterable[Range], gap: int) -> Iterator[Range]:
    """Ranges in order, merged where they overlap or have at most ``gap`` bytes between them."""
    begun: Range | None = None
    for offset, length in sorted(ranges):
        if begun is not None and offset - sum(begun) <= gap:
            begun = begun[0], max(sum(begun), offset + length) - begun[0]
            continue
        if begun is not None:
            yield begun
        begun = offset, length
    if begun is not None:
        yield begun


def requests(ranges: Iterable[Range], gap: int, piece: int) -> Iterator[Range]:
    """The merged ranges, cut into pieces of at most ``piece`` bytes."""
    for offset, length in joined(ranges, gap):
        for start in range(offset, offset + length, piece):
            yield start, min(piece, offset + length - start)


NO_LINK = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES}
)
"""Errors of ``link`` after which a copy may succeed: other file system, or no links."""

PARTS_MAX = max(16, os.sysconf("SC_IOV_MAX"))

COPY_BYTES = 1 << 20

GAP_BYTES = 64 << 10
"""Ranges closer than this are announced as one: reading the gap costs less than a request."""

ANNOUNCED_BYTES = 512 << 10
"""Maximum bytes per hint: some systems ignore the rest beyond their read-ahead."""

READ_BYTES = 1 << 16


class _Telling:
    __slots__ = ("_doing", "_path")

    def __init__(self, doing: str, path: str) -> None:
        self._doing = doing
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, OSError) and not isinstance(error, StorageFailed):
            raise storage_error(error, self._doing, self._path) from error


class _Handle(Closing):
    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self.path = path

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _open_descriptor(self) -> int:
        if self._descriptor < 0:
            raise StoreClosed(f"{self.path} was used after it had been closed")
        return self._descriptor

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):
            self.close()


class RealAppendFile(_Handle):
    def __init__(self, descriptor: int, path: str) -> None:
        super().__init__(descriptor, path)
        self.size = os.fstat(descriptor).st_size
        self._poisoned = False
        self._owner = Owner(path)

    def write(self, data: Buffer) -> None:
        descriptor = self._ready()
        wanted = nbytes(data)
        try:
            written = os.write(descriptor, data)
            self.size += written
            if written < wanted:  # interrupted, nearly full, or more than 2 GiB at once
                rest = memoryview(data).cast("B")
                while written < wanted:
                    step = os.write(descriptor, rest[written:])
                    self.size += step
                    written += step
        except OSError as error:
            raise storage_error(error, "write to", self.path) from error

    def writev(self, parts: Sequence[Buffer]) -> None:
        descriptor = self._ready()
        # An empty view cannot be cast, and would not be written anyway.
        views = [memoryview(part).cast("B") for part in parts if nbytes(part)]
        first = 0
        try:
            while first < len(views):
                written = os.writev(descriptor, views[first : first + PARTS_MAX])
                self.size += written
                while first < len(views) and written >= len(views[first]):
                    written -= len(views[first])
                    first += 1
                if written:
                    views[first] = views[first][written:]
        except OSError as error:
            raise storage_error(error, "write to", self.path) from error

    def sync(self) -> None:
        descriptor = self._ready()
        try:
            os.fdatasync(descriptor)
        except OSError as error:
            self._poisoned = True
            raise storage_error(error, "sync", self.path) from error

    def truncate(self, size: int) -> None:
        descriptor = self._ready()
        if not 0 <= size <= self.size:
            raise InvalidArgument(f"cannot cut {self.path} ({self.size} bytes) back to {size}")
        try:
            os.ftruncate(descriptor, size)
        except OSError as error:
            raise storage_error(error, "cut back", self.path) from error
        self.size = size

    def _ready(self) -> int:
        self._owner.check()  # a forked child shares the parent's file offset
        if self._poisoned:
            raise poisoned(self.path)
        return self._open_descriptor()


class RealReadFile(_Handle):
    @property
    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError:
            self._open_descriptor()
            raise

    def read(self, offset: int, length: int) -> bytes:
        descriptor = self._open_descriptor()
        try:
            data = os.pread(descriptor, length, offset)
            pieces, total = [data], len(data)
            while total < length and pieces[-1]:  # the end, or more than 2 GiB at once
                pieces.append(os.pread(descriptor, length - total, offset + total))
                total += len(pieces[-1])
        except OSError as error:
            raise storage_error(error, "read", self.path) from error
        if len(pieces) > 1:
            if total < length:
                raise short_read(self.path, offset, length, self.size)
            data = b"".join(pieces)
        return data

    def map(self) -> memoryview:
        size = self.size
        if not size:
            return memoryview(b"")
        with _Telling("map", self.path):
            return memoryview(mmap.mmap(self._open_descriptor(), size, access=mmap.ACCESS_READ))

    def announce(self, ranges: Sequence[tuple[int, int]]) -> None:
        descriptor = self._descriptor  # may be closed: later reads use a mapping
        with suppress(OSError):  # hints are optional
            for offset, length in requests(ranges, GAP_BYTES, ANNOUNCED_BYTES):
                os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)


class RealFileLock(_Handle):
    def __init__(self, descriptor: int, path: str) -> None:
        super().__init__(descriptor, path)
        _HELD.add(self)

    def release(self) -> None:
        # Unlocked first: a forked child may be about to close its copy of the descriptor.
        if self._descriptor >= 0:
            with suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.close()


_HELD: weakref.WeakSet[RealFileLock] = weakref.WeakSet()


def _forget_locks() -> None:
    """In a forked child, close copies of the locks, or they would outlive the parent."""
    for lock in list(_HELD):
        lock.close()


os.register_at_fork(after_in_child=_forget_locks)


class RealFiles:
    """The file system below the directory ``root``, which need not exist yet."""

    _append_file = RealAppendFile

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(root)

    def __repr__(self) -> str:
        return f"RealFiles({self.root!r})"

    def _full(self, path: str) -> str:
        path = check_path(path)
        return f"{self.root}/{path}" if path else self.root

    def create(self, path: str, *, private: bool = False) -> RealAppendFile:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        mode = 0o600 if private else 0o666
        with _Telling("create", path):
            return self._append_file(os.open(self._full(path), flags, mode), path)

    def append(self, path: str) -> RealAppendFile:
        with _Telling("open", path):
            descriptor = os.open(self._full(path), os.O_WRONLY | os.O_APPEND)
            return self._append_file(descriptor, path)

    def open(self, path: str) -> RealReadFile:
        with _Telling("open", path):
            return RealReadFile(os.open(self._full(path), os.O_RDONLY), path)

    def read(self, path: str) -> bytes:
        with _Telling("read", path):  # plain system calls: every query reads a manifest
            descriptor = os.open(self._full(path), os.O_RDONLY)
            try:
                pieces = [os.read(descriptor, READ_BYTES)]
                while pieces[-1]:
                    pieces.append(os.read(descriptor, READ_BYTES))
            finally:
                os.close(descriptor)
            return b"".join(pieces)

    def size(self, path: str) -> int:
        with _Telling("look at", path):
            return os.stat(self._full(path)).st_size

    def exists(self, path: str) -> bool:
        return os.path.exists(self._full(path))

    def list(self, directory: str) -> list[str]:
        with _Telling("list", directory or self.root):
            return sorted(os.listdir(self._full(directory)))

    def make_directory(self, path: str) -> None:
        with _Telling("create", path or self.root):
            os.makedirs(self._full(path), exist_ok=True)

    def remove(self, path: str) -> None:
        with _Telling("remove", path):
            os.unlink(self._full(path))

    def remove_tree(self, path: str) -> None:
        full = self._full(path)
        with _Telling("remove", path):
            while os.path.lexists(full):
                try:
                    shutil.rmtree(full)
                except FileNotFoundError:
                    pass  # another process removed something (a reader's lease)
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:  # another process added something
                        raise

    def replace(self, source: str, target: str) -> None:
        with _Telling("rename", source):
            os.replace(self._full(source), self._full(target))

    def link(self, source: str, target: str) -> None:
        with _Telling("copy", source):
            _link_or_copy(self._full(source), self._full(target))

    def export(self, path: str, outside_path: str, *, length: int | None = None) -> None:
        with _Telling(f"write {outside_path}, a copy of", path):
            if length is None:
                _link_or_copy(self._full(path), outside_path)
            else:
                _copy(self._full(path), outside_path, length)

    def sync_directory(self, path: str) -> None:
        with _Telling("sync the directory", path or self.root):
            descriptor = os.open(self._full(path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def lock(self, path: str, *, exclusive: bool, content: bytes = b"") -> RealFileLock | None:
        full = self._full(path)
        with _Telling("lock", path):
            while True:
                lock = RealFileLock(_open_to_lock(full, writing=bool(content)), path)
                descriptor = lock._open_descriptor()
                try:
                    fcntl.flock(
                        descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
                    )
                    if _is_at(descriptor, full):
                        if content:
                            os.ftruncate(descriptor, 0)
                            os.pwrite(descriptor, content, 0)
                        return lock
                except BlockingIOError:
                    lock.release()
                    return None
                except BaseException:
                    lock.release()
                    raise
                # Removed between open and flock: the locked file has no name; try the new one.
                lock.release()

    def free_bytes(self) -> int:
        with _Telling("look at", self.root):
            volume = os.statvfs(self.root)
        return volume.f_bavail * volume.f_frsize

    def local_path(self, path: str) -> str | None:
        return self._full(path)


class _UnsyncedFile(RealAppendFile):
    def sync(self) -> None:
        self._ready()


class ScratchFiles(RealFiles):
    """A temporary directory, removed with this object; nothing in it is ever synced."""

    _append_file = _UnsyncedFile

    def __init__(self) -> None:
        self._directory = ScratchDirectory("store")
        super().__init__(self._directory.path)

    def sync_directory(self, path: str) -> None:
        pass


def _open_to_lock(full: str, *, writing: bool) -> int:
    try:
        return os.open(full, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError:
        if writing:
            raise
        return os.open(full, os.O_RDONLY)  # another user's file can still be locked


def _is_at(descriptor: int, full: str) -> bool:
    try:
        named = os.stat(full)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), named)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        _copy(source, target, os.stat(source).st_size)


def _copy(source: str, target: str, length: int) -> None:
    with RealReadFile(os.open(source, os.O_RDONLY), source) as reading:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        try:
            with RealAppendFile(os.open(target, flags, 0o666), target) as writing:
                for offset in range(0, length, COPY_BYTES):
                    writing.write(reading.read(offset, min(COPY_BYTES, length - offset)))
                writing.sync()
        except FileExistsError:
            raise
        except BaseException:
            with suppress(OSError):
                os.unlink(target)
            raise
