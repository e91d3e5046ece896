"""Incremental backups of a store in an object store.

Guarantee: the listing is written last, after the size of every object was checked: a backup is
whole, or unfinished and not restorable.  Segments are immutable, so only new ones are sent; an
interrupted backup resumes.  Moved segments are copied, too.  Restored files are compared with their
digests.  The order, with leases on the segments until they were sent::

    tuesday.unfinished | copy without segments, local | bytes | tuesday.backup | no .unfinished

Limits: every file is read for its digest; indexes are sent each time.  Consistency is that of
``backup``.  The local part (logs, indexes, files beside the streams) needs temporary disk space.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import xxhash

from ..core.ownership import OwnedLock
from ..core.scratch import ScratchDirectory
from ..core.threads import Check, Done
from ..errors import CorruptStore, InvalidArgument, StorageFailed
from .backup import Sealed, backup_store, begin_unfinished
from .backups import Backup, described
from .file_contract import ReadFile
from .files import RealFiles
from .lock import ReaderLease
from .object_backups import (
    BYTES,
    LISTINGS,
    MAKING,
    PIECE_BYTES,
    WHOLE,
    BackupFile,
    Listing,
    all_of,
    object_backups,
    problem_of,
)
from .object_store import ObjectStore
from .progress import each
from .store import UNFINISHED, Store

__all__ = ["backup_to_objects", "restore_backup"]

_NAMES = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


class _Taken(Sealed):
    def __init__(self, leases: ExitStack) -> None:
        self.files: list[tuple[str, int | None]] = []
        self._leases = leases

    def take(self, path: str, length: int | None = None) -> None:
        self.files.append((path, length))

    def keep(self, lease: ReaderLease) -> None:
        self._leases.callback(lease.release)


def backup_to_objects(
    store: Store,
    objects: ObjectStore,
    name: str | None = None,
    add: Callable[[str], None] | None = None,
) -> str:
    """Copy a store to objects; returns the backup's name, by default the time in UTC.  An
    unfinished backup of that name is made again; ``StorageFailed`` leaves it unfinished.
    ``CorruptStore`` when a stream is damaged.
    """
    name = _checked(time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) if name is None else name)
    listing, unfinished = f"{LISTINGS}{name}{WHOLE}", f"{LISTINGS}{name}{MAKING}"
    if objects.size(listing) is not None:
        raise InvalidArgument(
            f"there is a backup {name!r} at {objects.url} already; choose another name"
        )
    objects.put(unfinished, [b"a backup that is being made, or was cut short\n"])
    stages = each(("copied", "sent"))
    next(stages)
    with ScratchDirectory("backup") as scratch, ExitStack() as leases:
        copy = str(scratch / "copy")
        taken = _Taken(leases)
        backup_store(store, copy, add, taken)
        told = described(copy, name)
        assert told is not None
        assert told.made_at is not None
        if told.problem is not None:
            raise CorruptStore(f"the copy of {store.path} cannot be read: {told.problem}")
        directories, small = _walked(copy)
        next(stages)
        sending = _Sending(objects)
        tasks = [partial(sending.stored, store, *file) for file in taken.files]
        tasks += [partial(sending.local, copy, path) for path in small]
        files = all_of(tasks)
        next(stages, None)
    objects.put(listing, [Listing(told.made_at, told.streams, directories, files).to_bytes()])
    objects.remove(unfinished)
    return name


def _checked(name: str) -> str:
    if not _NAMES.fullmatch(name):
        raise InvalidArgument(
            f"a backup's name has 1 to 100 letters, digits or . _ -, found {name!r}"
        )
    return name


def _walked(root: str) -> tuple[list[tuple[str, int]], list[str]]:
    directories, files = [], []
    for at, inside, names in os.walk(root):
        inside.sort()
        directories.append((os.path.relpath(at, root), stat.S_IMODE(os.stat(at).st_mode)))
        files += [os.path.relpath(os.path.join(at, each), root) for each in sorted(names)]
    return directories[1:], files


class _Sending:
    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._there = objects.sizes(BYTES)
        self._begun: set[str] = set()
        self._lock = OwnedLock("a backup to objects")

    def stored(self, store: Store, path: str, length: int | None, check: Check) -> Done[BackupFile]:
        local = store.files.local_path(path)
        try:
            mode = None if local is None else stat.S_IMODE(os.stat(local).st_mode)
        except FileNotFoundError:
            mode = None  # just moved to objects
        with store.files.open(path) as file:
            return self._sent(file, path, mode, file.size if length is None else length, check)

    def local(self, root: str, path: str, check: Check) -> Done[BackupFile]:
        mode = stat.S_IMODE(os.stat(os.path.join(root, path)).st_mode)
        with RealFiles(root).open(path) as file:
            return self._sent(file, path, mode, file.size, check)

    def _sent(
        self, file: ReadFile, path: str, mode: int | None, size: int, check: Check
    ) -> Done[BackupFile]:
        digest = xxhash.xxh3_128()
        for piece in _pieces(file, size, check):
            digest.update(piece)
        found = BackupFile(path, mode, size, digest.hexdigest())
        if self._is_new(found):
            self._objects.put(found.key, _pieces(file, size, check))
            if self._objects.size(found.key) != size:
                raise StorageFailed(
                    f"{self._objects.describe(found.key)}, a copy of {path}, has not the length "
                    "that it was written with; look at the place of the objects"
                )
        return Done((found,))

    def _is_new(self, file: BackupFile) -> bool:
        with self._lock:
            known = self._there.get(file.key) == file.size or file.key in self._begun
            self._begun.add(file.key)
        return not known


def _pieces(file: ReadFile, size: int, check: Check) -> Iterator[bytes]:
    for at in range(0, size, PIECE_BYTES):
        check()
        yield bytes(file.read(at, min(PIECE_BYTES, size - at)))


def restore_backup(
    objects: ObjectStore, path: str | os.PathLike[str], name: str | None = None
) -> Backup:
    """Make a store of a backup, by default the newest whole one, in a missing or empty directory.
    On ``CorruptStore`` or ``StorageFailed`` the result is refused as a store.
    """
    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidArgument(f"{target} exists and is not empty; choose a new directory")
    if name is None:
        whole = [backup for backup in object_backups(objects) if backup.state == "whole"]
        if not whole:
            raise InvalidArgument(f"{objects.url} holds no whole backup; `chronicle backups` lists")
        name = whole[-1].name
    listing = Listing.read(objects, _checked(name))
    begin_unfinished(os.path.abspath(target))
    files = RealFiles(target)
    for directory, _ in listing.directories:
        files.make_directory(directory)

    def fetched(file: BackupFile, check: Check) -> Done[None]:
        with files.create(file.path) as out:
            problem = problem_of(objects, file, out.write, check)
            if problem is not None:
                raise CorruptStore(f"{problem}: choose another backup")
            out.sync()
        if file.mode is not None:
            os.chmod(target / file.path, file.mode)
        return Done((None,))

    all_of([partial(fetched, file) for file in listing.files])
    for directory, mode in reversed(listing.directories):
        files.sync_directory(directory)
        os.chmod(target / directory, mode)
    files.sync_directory("")
    files.remove(UNFINISHED)
    files.sync_directory("")
    events = sum(listing.streams.values())
    return Backup(name, listing.made_at, "whole", events, listing.streams, listing.bytes)
