"""Backups in objects: copies of a store that outlive its disk, each as large as what is new in it.

Purpose
    :func:`backup_to_objects` writes a consistent copy of a store below an address, while writing
    goes on; :func:`restore_backup` makes a store of one.  :func:`object_backups` lists them,
    :func:`remove_backup` takes one away with what no other holds, :func:`verify_backup` reads one.

Guarantee
    A listing is written last, when the bytes of all that it names are there with their length: a
    backup is whole, or it is unfinished and nobody restores it.  Segments never change, so the next
    backup sends those that are new; one that was cut short goes on where it stood.  Segments that
    have moved to objects are copied, too: a backup needs nothing of the place that they lie in.

    What is restored was compared with its digests, and is refused as a store before.

Order
    ::

        tuesday.unfinished | copy without segments, local | bytes | tuesday.backup | no .unfinished

    Leases keep the segments of each stream in place until their bytes were sent.

Limits
    Every file is read for its digest, new or not; indexes are written anew each time, and so sent.
    Consistency is that of :mod:`.backup`.  The local part (logs, indexes, what lies beside the
    streams) takes space where temporary files are.
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
    """Notes what is to be sent, and holds the leases until it was."""

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
    """Copy a store to objects; gives the name of the backup.

    Parameters
    ----------
    store : Store
        Open in either mode.
    name : str, optional
        By default the time, in UTC.  One that was cut short is made anew.
    add : callable, optional
        As for :func:`.backup.backup_store`.

    Raises
    ------
    InvalidArgument
        There is a backup of that name, or it is none.
    CorruptStore
        When a stream is damaged: repair or drop it first.
    StorageFailed
        The place of the objects does not answer: the backup is unfinished.
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
    """Directories below one with their permissions, itself as ``""`` first; and files."""
    directories, files = [], []
    for at, inside, names in os.walk(root):
        inside.sort()
        directories.append((os.path.relpath(at, root), stat.S_IMODE(os.stat(at).st_mode)))
        files += [os.path.relpath(os.path.join(at, each), root) for each in sorted(names)]
    return directories[1:], files


class _Sending:
    """Sends the bytes of files that are not there yet; in any thread."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._there = objects.sizes(BYTES)
        self._begun: set[str] = set()
        self._lock = OwnedLock("a backup to objects")

    def stored(self, store: Store, path: str, length: int | None, check: Check) -> Done[BackupFile]:
        """A file of the store, or its first bytes, from wherever these are."""
        local = store.files.local_path(path)
        try:
            mode = None if local is None else stat.S_IMODE(os.stat(local).st_mode)
        except FileNotFoundError:
            mode = None  # it has just moved to objects
        with store.files.open(path) as file:
            return self._sent(file, path, mode, file.size if length is None else length, check)

    def local(self, root: str, path: str, check: Check) -> Done[BackupFile]:
        """A file below a directory."""
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
        """Whether nobody has sent these bytes; who asks does."""
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
    """Make a store of a backup.

    Parameters
    ----------
    path : str or path-like
        Must not exist, or be an empty directory.
    name : str, optional
        The newest that is whole by default.

    Raises
    ------
    InvalidArgument
        There is no such backup, or something at the path already.
    CorruptStore
        What is there is not what was written; what was made is refused as a store.
    StorageFailed
        The objects cannot be read; what was made is refused as a store.
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
