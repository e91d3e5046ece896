"""The interface through which the store accesses a disk.

``RealFiles`` is the file system; of the tests, ``MemoryFiles`` models what a power cut leaves, and
``FaultyFiles`` makes the k-th operation fail.  All three pass one contract suite.  Paths are
separated by ``/``, relative to a root, without ``..``; the empty path is the root itself.

Durability:

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

Failures: no space (``ENOSPC``, ``EDQUOT``) is ``StorageFull``; part of the data may have been
written: ``size`` says how much, and ``truncate`` removes it.  Other failed writes are
``StorageFailed``, an ``OSError``.  A failed sync poisons its handle: every later write and sync
raises.  Linux reports a failed write-back once and marks the pages as clean, so that a second
``fsync`` succeeds although the bytes never reached the disk ("fsyncgate", 2018).  Hence a failed
sync is never repeated; write the data again, to a new file.

Threads: of one ``AppendFile`` only ``sync`` may run beside another call; it covers the writes that
had returned before it was called.

Limits: locks are advisory (``flock``).  A mapping costs one file descriptor.

``replace_file`` replaces a small file atomically: new file, content, sync, rename, sync of the
directory.  A reader sees the old content or the new one, also after a crash; when it has returned
the new one, also after a power cut.  When it raises, the old one, unless only the sync of the
directory has failed.  A crash may leave the new file under its temporary name.
"""

from __future__ import annotations

import errno
import posixpath
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self

from ..errors import (
    CorruptBlock,
    InvalidArgument,
    StorageFailed,
    StorageFull,
    UnsupportedFormat,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class FileLock(Protocol):
    """A lock that is held until it is released or the process ends."""

    def release(self) -> None:
        """Release the lock; idempotent."""


class AppendFile(Protocol):
    path: str

    @property
    def size(self) -> int:
        """Length in bytes, where the next write begins; valid after a failed write, too."""

    def write(self, data: Buffer) -> None:
        """Append all bytes of a buffer; see the module for failures."""

    def writev(self, parts: Sequence[Buffer]) -> None:
        """Append several buffers in order, without joining them."""

    def sync(self) -> None:
        """Make bytes and length durable; a failure is final for this handle."""

    def truncate(self, size: int) -> None:
        """Cut the file back to ``size`` bytes; durable after a sync."""

    def close(self) -> None:
        """Close without a sync; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class ReadFile(Protocol):
    """A file opened for reading; it stays readable when its name is removed."""

    path: str

    @property
    def size(self) -> int:
        """Current length in bytes."""

    def read(self, offset: int, length: int) -> memoryview | bytes:
        """Exactly ``length`` bytes from ``offset``; ``CorruptBlock`` if there are fewer."""

    def map(self) -> memoryview:
        """The whole file, read-only; may outlive handle and name.  Reading bytes that ``truncate``
        cuts off later kills the process (SIGBUS).
        """

    def announce(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Hint that (offset, length) ranges will be read soon; never fails."""

    def close(self) -> None:
        """Close; buffers from ``map`` stay valid.  Idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Files(Protocol):
    """A tree of files.  Raises ``FileNotFoundError``, ``FileExistsError``, ``PermissionError``; on
    a real disk these and all other failures are ``StorageFailed``, too.
    """

    def create(self, path: str, *, private: bool = False) -> AppendFile:
        """Create an empty file in an existing directory; only its owner reads a ``private`` one."""

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
        """Create a directory and its missing parents."""

    def remove(self, path: str) -> None:
        """Remove a file; open handles and mappings of it stay valid."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory recursively; a missing one is no error.  Not atomic."""

    def replace(self, source: str, target: str) -> None:
        """Rename a file or directory; an existing target file is replaced atomically."""

    def link(self, source: str, target: str) -> None:
        """Hard-link an immutable file to a free name, or copy and sync it where links fail."""

    def export(self, path: str, outside_path: str, *, length: int | None = None) -> None:
        """Link or copy a file to an outside path; with ``length`` copy that many bytes."""

    def sync_directory(self, path: str) -> None:
        """Make the entries of one directory durable."""

    def lock(self, path: str, *, exclusive: bool, content: bytes = b"") -> FileLock | None:
        """Lock a file without waiting, created if missing; None if excluded."""

    def free_bytes(self) -> int:
        """Return how many bytes can still be written."""

    def local_path(self, path: str) -> str | None:
        """Absolute path on the local file system; None without one."""


def check_path(path: str) -> str:
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise InvalidArgument(
            f"a path inside of the store is relative and has no '..', found {path!r}"
        )
    return path.rstrip("/")


def nbytes(data: Buffer) -> int:
    return len(data) if type(data) is bytes else memoryview(data).nbytes


def storage_error(error: OSError, doing: str, path: str) -> Exception:
    """The contract's error for a failure of the system; the caller chains it."""
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
    failed = StorageFailed(
        f"{path} takes no more data: an earlier sync of it failed, and a second one would claim "
        f"success for bytes that are not on the disk; close the store and open it again"
    )
    failed.errno = errno.EIO
    return failed


def check_version(what: str, version: int, newest: int) -> None:
    """Raise ``UnsupportedFormat`` for a file of a newer format version than this release reads."""
    if version > newest:
        raise UnsupportedFormat(
            f"{what} has format version {version}, this Chronicle reads up to {newest}: use the "
            "release that wrote it, or a newer one"
        )


def short_read(path: str, offset: int, length: int, size: int) -> CorruptBlock:
    return CorruptBlock(
        f"expected {length} bytes, but the file ends at byte {size}", file=path, offset=offset
    )


def replace_file(
    files: Files, path: str, content: bytes, *, temporary: str | None = None, private: bool = False
) -> None:
    """Replace or create a file durably and atomically; its directory must exist.  A leftover
    ``temporary`` file is removed.  Only the owner may read a ``private`` file.
    """
    if temporary is None:
        temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    else:
        with suppress(FileNotFoundError):
            files.remove(temporary)
    try:
        with files.create(temporary, private=private) as file:
            file.write(content)
            file.sync()
        files.replace(temporary, path)
    except Exception:
        with suppress(Exception):  # also when the disk is full
            files.remove(temporary)
        raise
    files.sync_directory(posixpath.dirname(path))
