"""The writer lock, and leases on the versions that readers use.

One process writes.  Any number of processes read, each a version that it opened earlier; the writer
deletes a file only when no leased version names it.  Both are files with an ``flock``, which the
system releases when a process ends, so none is stale.

Layout: ``LOCK`` holds ``{"host": ..., "pid": ..., "started": "2026-01-31T12:00:00+00:00"}``; the
lock on it counts, not its existence.  ``readers/<uuid>.lease`` holds ``{"version": n, "host": ...,
"pid": ..., "expires": t}``, with the end in seconds since 1970 or null.  It is written and locked
as ``<uuid>.lease.tmp`` and then renamed, so a visible lease is complete and locked.

A lease is alive while its process holds it; one with a time limit also until then, for readers that
planned work for other processes.

Pinning a version: read the manifest, take a lease for its version, read the manifest again; if it
has changed, release and repeat.  Otherwise the writer may have listed the leases just before.

Limits: a reader that cannot write to the directory, or finds the disk full, gets an unregistered
lease: its open files and mappings stay readable, but other files of its version may be removed.
Time limits compare the clocks of the machines that share the directory.
"""

from __future__ import annotations

import errno
import json
import os
import posixpath
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, NamedTuple, Self

from ..errors import StorageFull, StoreLocked
from .file_contract import FileLock, Files

WRITER_LOCK = "LOCK"
READERS = "readers"
LEASE = ".lease"
LEASE_TEMPORARY = ".lease.tmp"

NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class WriterLock:
    """The right to write to a store, held until ``release`` or the end of the process."""

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    @classmethod
    def acquire(cls, files: Files) -> Self:
        """Become the writer; ``StoreLocked``, naming process and host, if there is one."""
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        content = _encode({"host": socket.gethostname(), "pid": os.getpid(), "started": started})
        try:
            lock = files.lock(WRITER_LOCK, exclusive=True, content=content)
        except StorageFull:  # the content is only for messages, so a full disk is no obstacle
            lock = files.lock(WRITER_LOCK, exclusive=True)
        if lock is None:
            raise StoreLocked(_who_writes(files))
        return cls(lock)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class ReaderLease:
    """Keeps files of one version; not ``registered`` where the directory is not writable."""

    def __init__(
        self, files: Files, version: int, path: str | None = None, lock: FileLock | None = None
    ) -> None:
        self.version = version
        self._files = files
        self.path = path
        self._lock = lock
        self._process = os.getpid()

    @classmethod
    def take(
        cls,
        files: Files,
        directory: str,
        version: int,
        ttl_seconds: float | None = None,
        *,
        below: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Register that a version is being read.  With ``ttl_seconds`` the lease outlives this
        process; ``below``: the version names no file with this number or a higher one.
        """
        readers = posixpath.join(directory, READERS)
        expires = None if ttl_seconds is None else clock() + ttl_seconds
        content = _encode(
            {
                "version": version,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "expires": expires,
                **({} if below is None else {"below": below}),
            }
        )
        lock: FileLock | None = None
        path = ""
        try:
            if not files.exists(readers):
                files.make_directory(readers)
            while lock is None:  # None: a sweep locked the new file first, and removes it
                path = posixpath.join(readers, uuid.uuid4().hex)
                lock = files.lock(path + LEASE_TEMPORARY, exclusive=False, content=content)
            files.replace(path + LEASE_TEMPORARY, path + LEASE)
        except (OSError, StorageFull) as error:
            if lock is not None:
                lock.release()
            if isinstance(error, StorageFull) or error.errno in NOT_WRITABLE:
                return cls(files, version)
            raise
        return cls(files, version, path + LEASE, lock)

    @property
    def registered(self) -> bool:
        return self.path is not None

    def release(self) -> None:
        """Release the version; idempotent, and a no-op in a forked child."""
        if self._process != os.getpid():
            return
        path, self.path = self.path, None
        if path is not None:
            with suppress(OSError):  # removed by a sweep, or the directory is now read-only
                self._files.remove(path)
        self._let_go()

    def detach(self) -> None:
        """Unlock as if the process had ended; a lease with a time limit lives on until then."""
        self.path = None
        self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _let_go(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


class Lease(NamedTuple):
    """A reader's version, and the number from which on it names no file."""

    version: int
    below: int | None = None

    def wants(self, number: int, gone: int) -> bool:
        """Whether it may name file ``number``, which version ``gone`` no longer names."""
        return self.version < gone and (self.below is None or number < self.below)


def held_leases(
    files: Files, directory: str, *, clock: Callable[[], float] = time.time
) -> list[Lease]:
    """Live leases by version; removes dead ones (writer only).  Unreadable is version 0."""
    readers = posixpath.join(directory, READERS)
    try:
        names = files.list(readers)
    except FileNotFoundError:
        return []
    leases = []
    for name in names:
        if not name.endswith((LEASE, LEASE_TEMPORARY)):
            continue
        path = posixpath.join(readers, name)
        probe = files.lock(path, exclusive=True)
        if probe is None:
            # The reader of a temporary lease will read the manifest again.
            if name.endswith(LEASE) and (lease := _lease(files, path)) is not None:
                leases.append(lease[0])
            continue
        try:
            lease = _lease(files, path)
            left = lease is not None and lease[1] is not None and lease[1] > clock()
            if left and lease is not None and name.endswith(LEASE):
                leases.append(lease[0])
            else:
                files.remove(path)
        finally:
            probe.release()
    return sorted(leases, key=lambda lease: lease.version)


def _lease(files: Files, path: str) -> tuple[Lease, float | None] | None:
    try:
        document = _decode(files.read(path))
    except FileNotFoundError:
        return None
    version, expires, below = (document.get(name) for name in ("version", "expires", "below"))
    return (
        Lease(version, below if isinstance(below, int) else None)
        if isinstance(version, int)
        else Lease(0),
        expires if isinstance(expires, int | float) else None,
    )


def _who_writes(files: Files) -> str:
    try:
        holder = _decode(files.read(WRITER_LOCK))
    except OSError:
        holder = {}
    store = files.local_path("") or ""
    pid, host = holder.get("pid"), holder.get("host")
    if pid == os.getpid() and host == socket.gethostname():
        return (
            f"the store {store} is open for writing in this process already (pid {pid}): "
            f"use that handle or close it first, or open the store with mode='r'"
        )
    return (
        f"the store {store} is open for writing in process {pid or 'unknown'} on host "
        f"{host or 'unknown'} since {holder.get('started', 'an unknown time')}: close it there, or "
        f"open the store with mode='r' to read beside it"
    )


def _encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode("ascii") + b"\n"


def _decode(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
