"""The one seam through which the store touches a disk.

Purpose
    Everything under ``store/`` reads and writes through :class:`Files`.  ``RealFiles`` is the file
    system; ``MemoryFiles`` models what a power cut leaves of it; ``FaultyFiles`` makes the k-th
    operation fail.  The three pass one contract suite, so a test that ran on a model says something
    about the disk.

Paths
    Separated by ``/``, relative to a root, without ``..``; the empty path is the root itself.

Durability, and who is responsible for it
    ====================================  ========================================================
    after                                 a power cut cannot take away
    ====================================  ========================================================
    ``write``, ``writev``, ``truncate``   nothing yet
    ``AppendFile.sync``                   the bytes and the length of the file
    ``create``, ``replace``, ``remove``,  nothing yet, but ``replace`` is atomic: the target is the
    ``link``, ``make_directory``          old file or the new one
    ``sync_directory(d)``                 the entries of ``d`` (not those of its parent, and not the
                                          bytes of the files in it)
    ====================================  ========================================================

    A file exists after a power cut when it *and* its directory have been synced.  A process that is
    killed loses nothing that it had written.

Failures
    No space (``ENOSPC``, ``EDQUOT``) is :class:`StorageFull`; part of the data may then have been
    written, ``size`` says how much, and ``truncate`` takes it back.  Any other failure to write is
    :class:`StorageFailed`, which is an ``OSError`` too.  Both are raised from the system's error.

    A failed sync poisons its handle: every later write and sync raises.  Linux reports a failed
    write-back once and marks the pages as clean, so that a second ``fsync`` of the same file
    succeeds although the bytes never reached the disk (known as "fsyncgate", 2018).  Hence a sync
    that failed is never repeated; the data must be written again, to a new file, or the operation
    be given up.

Threads
    Different handles may be used at the same time.  Of one ``AppendFile`` only ``sync`` may run
    beside another call; it promises the writes that had returned before it was called.

Limits
    Locks are advisory (``flock``): they hold between processes on one machine, and across machines
    only where the network file system says so.  A mapping costs one file descriptor while it lives.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Self

from ..errors import CorruptBlock, InvalidArgument, StorageFailed, StorageFull

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "FULL",
    "AppendFile",
    "FileLock",
    "Files",
    "ReadFile",
    "check_path",
    "nbytes",
    "poisoned",
    "short_read",
    "storage_error",
]

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors that mean that the disk, or this user's share of it, is used up."""


class FileLock(Protocol):
    """A lock that is held until it is released or the process ends, however it ends."""

    def release(self) -> None:
        """Give the lock up.  Doing so again does nothing."""


class AppendFile(Protocol):
    """A file that grows at its end."""

    path: str

    @property
    def size(self) -> int:
        """Length in bytes, where the next write begins; true right after a failed write, too."""

    def tell(self) -> int:
        """Return :attr:`size`."""

    def write(self, data: Buffer) -> None:
        """Append all bytes of a buffer; see the module for failures."""

    def writev(self, parts: Sequence[Buffer]) -> None:
        """Append the bytes of several buffers in order, without joining them."""

    def sync(self) -> None:
        """Make bytes and length durable.  A failure is final for this handle; see the module."""

    def truncate(self, size: int) -> None:
        """Cut the file back to ``size`` bytes, at most its present size.  Durable after a sync."""

    def close(self) -> None:
        """Close without syncing.  Doing so again does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class ReadFile(Protocol):
    """A file opened for reading; it stays readable when its name is removed."""

    path: str

    @property
    def size(self) -> int:
        """Present length in bytes; a file that somebody appends to grows."""

    def read(self, offset: int, length: int) -> memoryview | bytes:
        """Return exactly ``length`` bytes from ``offset``; fewer raise :class:`CorruptBlock`."""

    def map(self) -> memoryview:
        """Return the whole file at its present size, read-only.

        The buffer keeps itself alive: it may outlive this handle and the file's name.  Bytes that
        ``truncate`` cuts off later must not be touched (the system kills a process that does).
        """

    def announce(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Say which bytes (offset and length) will be read soon, so that they may come meanwhile.

        A hint: it neither fails, of a closed file neither, nor promises anything.
        """

    def close(self) -> None:
        """Close; buffers from :meth:`map` stay valid.  Doing so again does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Files(Protocol):
    """A tree of files; the module says what is durable when, and which errors there are.

    A missing file raises ``FileNotFoundError``, a name that is taken ``FileExistsError``, a lack of
    rights ``PermissionError``, as the built-in functions do.  On a real disk these and all other
    failures of the system are :class:`StorageFailed`, too, so that none reaches a user as it is.
    """

    def create(self, path: str, *, private: bool = False) -> AppendFile:
        """Create an empty file whose name must be free in a directory that exists.

        A private one can be read by its owner only, where files have permissions.
        """

    def append(self, path: str) -> AppendFile:
        """Open an existing file to write at its end."""

    def open(self, path: str) -> ReadFile:
        """Open an existing file for reading."""

    def read(self, path: str) -> bytes:
        """Return the content of a whole file."""

    def size(self, path: str) -> int:
        """Return the length of a file in bytes."""

    def exists(self, path: str) -> bool:
        """Say whether there is a file or directory of that name."""

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, as far as they are missing."""

    def remove(self, path: str) -> None:
        """Remove a file; open handles and mappings of it go on working."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it; a missing one is no error.  Not atomic."""

    def replace(self, source: str, target: str) -> None:
        """Rename a file or directory; a file that has the target's name is replaced atomically."""

    def link(self, source: str, target: str) -> None:
        """Give a file that never changes again a second name, or copy and sync it where that fails.

        The target's name must be free.
        """

    def export(self, path: str, outside_path: str, *, length: int | None = None) -> None:
        """Link or copy a file to an absolute path outside of this tree, for a backup.

        Parameters
        ----------
        path : str
            File in this tree.
        outside_path : str
            Absolute path of the local file system; must be free, in a directory that exists.
        length : int, optional
            Copy only that many bytes from the start and never link: for a file that still grows.
        """

    def sync_directory(self, path: str) -> None:
        """Make the entries of one directory durable."""

    def lock(self, path: str, *, exclusive: bool, content: bytes = b"") -> FileLock | None:
        """Lock a file, which is created when missing, without waiting.

        Parameters
        ----------
        path : str
            The lock file.  The lock follows the file when it is renamed.
        exclusive : bool
            Keep everybody out, or only those who ask for an exclusive lock.
        content : bytes
            What the file shall say once it is locked; nothing leaves it as it is.

        Returns
        -------
        FileLock or None
            None when a lock that somebody holds, in this process or another, excludes this one.
        """

    def free_bytes(self) -> int:
        """Return how many bytes can still be written."""

    def local_path(self, path: str) -> str | None:
        """Return the absolute path of a file on the local file system, or None when it has none."""


def check_path(path: str) -> str:
    """Return a path of the seam without a trailing ``/``; refuse one that could leave the root."""
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise InvalidArgument(
            f"a path inside of the store is relative and has no '..', found {path!r}"
        )
    return path.rstrip("/")


def nbytes(data: Buffer) -> int:
    """Return the number of bytes in a buffer, whatever its elements are."""
    return len(data) if type(data) is bytes else memoryview(data).nbytes


def storage_error(error: OSError, doing: str, path: str) -> Exception:
    """Turn a failure of the system into the error of the contract; the caller chains it."""
    if error.errno in FULL:
        return StorageFull(
            f"no space left to {doing} {path}: free some space or raise the quota, then repeat; "
            f"nothing that was stored before is affected"
        )
    kind = _KINDS.get(type(error), StorageFailed)
    failed = kind(
        f"the system could not {doing} {path}: {error.strerror or error}; look at the disk and the "
        f"system's log, then open the store again"
    )
    failed.errno = error.errno
    return failed


class FileMissing(StorageFailed, FileNotFoundError):
    """A file, or the directory that it should be in, is not there."""


class FileTaken(StorageFailed, FileExistsError):
    """There is a file of that name."""


class AccessDenied(StorageFailed, PermissionError):
    """The process has not the right."""


class NoDirectory(StorageFailed, NotADirectoryError):
    """A file is where a directory should be."""


class UnexpectedDirectory(StorageFailed, IsADirectoryError):
    """A directory is where a file should be."""


_KINDS: dict[type[OSError], type[StorageFailed]] = {
    FileNotFoundError: FileMissing,
    FileExistsError: FileTaken,
    PermissionError: AccessDenied,
    NotADirectoryError: NoDirectory,
    IsADirectoryError: UnexpectedDirectory,
}


def poisoned(path: str) -> StorageFailed:
    """Return the error of a handle whose sync has failed."""
    failed = StorageFailed(
        f"{path} takes no more data: an earlier sync of it failed, and a second one would claim "
        f"success for bytes that are not on the disk; close the store and open it again"
    )
    failed.errno = errno.EIO
    return failed


def short_read(path: str, offset: int, length: int, size: int) -> CorruptBlock:
    """Return the error of a read that goes past the end of a file."""
    return CorruptBlock(
        f"expected {length} bytes, but the file ends at byte {size}", file=path, offset=offset
    )
