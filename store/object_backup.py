"""Backups in objects: copies of a store that outlive its disk, each as large as what is new in it.

Purpose
    :func:`backup_to_objects` writes a consistent copy of a store below an address, while writing
    goes on; :func:`restore_backup` makes a store of one.  :func:`object_backups` lists them,
    :func:`remove_backup` takes one away with what no other holds, :func:`verify_backup` reads one.

Layout
    ::

        <address>/backups/monday.backup        which files it has
        <address>/backups/tuesday.unfinished   one that is being made, or was cut short
        <address>/bytes/<digest>-<size>        a file's bytes, whichever backups have them

    A listing is a line ``CHRONICLE-BACKUP 1 <XXH3-64 of the rest>`` and JSON: when it began, events
    of each stream, directories with their permissions, files with permissions, size and the digest
    (XXH3-128) that names their bytes.

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
    streams) takes space where temporary files are.  Nothing is removed while an unfinished backup
    is there: it may count on the bytes.  Two that remove and back up at the same moment are the
    operator's to avoid.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import xxhash

from ..errors import CorruptStore, InvalidArgument, StorageFailed, UnsupportedFormat
from ..in_order import Check, Done, Task, in_order
from ..ownership import OwnedLock
from ..scratch import ScratchDirectory
from .backup import Sealed, backup_store, begin_unfinished
from .backups import Backup, described
from .file_contract import ReadFile
from .files import RealFiles
from .lock import ReaderLease
from .object_store import ObjectStore
from .progress import each
from .store import UNFINISHED, Store

__all__ = [
    "backup_to_objects",
    "holds_backups",
    "object_backups",
    "remove_backup",
    "restore_backup",
    "verify_backup",
]

LISTINGS, BYTES = "backups/", "bytes/"
WHOLE, MAKING = ".backup", ".unfinished"
MAGIC, VERSION = b"CHRONICLE-BACKUP", 1
PIECE_BYTES = 4 << 20
THREADS = 8
"""Files that are sent or fetched at once: most are small, and each is a wait."""

Found = TypeVar("Found")
_NAMES = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class _File:
    """A file of a backup.

    Attributes
    ----------
    path : str
        Relative to the store.
    mode : int or None
        Permissions; None for those that new files get.
    """

    path: str
    mode: int | None
    size: int
    digest: str

    @property
    def key(self) -> str:
        """Of the object that has its bytes."""
        return f"{BYTES}{self.digest}-{self.size}"


@dataclass(frozen=True)
class _Listing:
    """What a backup says of itself; ``directories`` are paths and permissions, parents first."""

    made_at: str
    streams: dict[str, int]
    directories: list[tuple[str, int]]
    files: list[_File]

    def to_bytes(self) -> bytes:
        body = json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()
        return b"%s %d %s\n%s" % (MAGIC, VERSION, xxhash.xxh3_64_hexdigest(body).encode(), body)

    @classmethod
    def read(cls, objects: ObjectStore, name: str) -> _Listing:
        key = f"{LISTINGS}{name}{WHOLE}"
        size = objects.size(key)
        if size is None:
            known = ", ".join(backup.name for backup in object_backups(objects)) or "none"
            raise InvalidArgument(f"there is no backup {name!r} at {objects.url}, but {known}")
        head, _, body = objects.read(key, 0, size).partition(b"\n")
        magic, version, digest = (*head.split(b" "), b"", b"", b"")[:3]
        what = objects.describe(key)
        if magic != MAGIC or not version.isdigit():
            raise CorruptStore(f"{what} is not the listing of a backup")
        if int(version) > VERSION:
            raise UnsupportedFormat(
                f"{what} has format version {int(version)}, this Chronicle reads up to {VERSION}: "
                "use the release that wrote it, or a newer one"
            )
        if xxhash.xxh3_64_hexdigest(body).encode() != digest:
            raise CorruptStore(f"{what} is damaged: it does not fit its checksum")
        told = json.loads(body)
        directories = [(str(path), int(mode)) for path, mode in told["directories"]]
        files = [_File(**file) for file in told["files"]]
        for path in (*(path for path, _ in directories), *(file.path for file in files)):
            if path.startswith("/") or not set(path.split("/")).isdisjoint(("", ".", "..")):
                raise CorruptStore(f"{what} names {path!r}, which is no file of a store")
        return cls(str(told["made_at"]), dict(told["streams"]), directories, files)


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
        files = _all_of(tasks)
        next(stages, None)
    objects.put(listing, [_Listing(told.made_at, told.streams, directories, files).to_bytes()])
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


def _all_of(tasks: Sequence[Task[Found]]) -> list[Found]:
    """What tasks give; they run side by side, and who watches is told of each."""
    done = in_order(tasks, THREADS, None)
    return [next(done) for _ in each(tasks)]


class _Sending:
    """Sends the bytes of files that are not there yet; in any thread."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._there = objects.sizes(BYTES)
        self._begun: set[str] = set()
        self._lock = OwnedLock("a backup to objects")

    def stored(self, store: Store, path: str, length: int | None, check: Check) -> Done[_File]:
        """A file of the store, or its first bytes, from wherever these are."""
        local = store.files.local_path(path)
        try:
            mode = None if local is None else stat.S_IMODE(os.stat(local).st_mode)
        except FileNotFoundError:
            mode = None  # it has just moved to objects
        with store.files.open(path) as file:
            return self._sent(file, path, mode, file.size if length is None else length, check)

    def local(self, root: str, path: str, check: Check) -> Done[_File]:
        """A file below a directory."""
        mode = stat.S_IMODE(os.stat(os.path.join(root, path)).st_mode)
        with RealFiles(root).open(path) as file:
            return self._sent(file, path, mode, file.size, check)

    def _sent(
        self, file: ReadFile, path: str, mode: int | None, size: int, check: Check
    ) -> Done[_File]:
        digest = xxhash.xxh3_128()
        for piece in _pieces(file, size, check):
            digest.update(piece)
        found = _File(path, mode, size, digest.hexdigest())
        if self._is_new(found):
            self._objects.put(found.key, _pieces(file, size, check))
            if self._objects.size(found.key) != size:
                raise StorageFailed(
                    f"{self._objects.describe(found.key)}, a copy of {path}, has not the length "
                    "that it was written with; look at the place of the objects"
                )
        return Done((found,))

    def _is_new(self, file: _File) -> bool:
        """Whether nobody has sent these bytes; who asks does."""
        with self._lock:
            known = self._there.get(file.key) == file.size or file.key in self._begun
            self._begun.add(file.key)
        return not known


def _pieces(file: ReadFile, size: int, check: Check) -> Iterator[bytes]:
    for at in range(0, size, PIECE_BYTES):
        check()
        yield bytes(file.read(at, min(PIECE_BYTES, size - at)))


# -- what there is ------------------------------------------------------------------------------


def holds_backups(objects: ObjectStore) -> bool:
    """Whether there is a backup below an address, whole or not."""
    return bool(objects.list(LISTINGS))


def object_backups(objects: ObjectStore) -> list[Backup]:
    """The backups below an address, the oldest first; unfinished ones last.

    Raises
    ------
    StorageFailed
        The place of the objects does not answer.
    """
    keys = [key.removeprefix(LISTINGS) for key in objects.list(LISTINGS)]
    whole = {key.removesuffix(WHOLE) for key in keys if key.endswith(WHOLE)}
    found = []
    for name in sorted(whole):
        try:
            listing = _Listing.read(objects, name)
        except CorruptStore as error:
            found.append(Backup(name, None, "damaged", 0, {}, 0, str(error)))
            continue
        size = sum(file.size for file in listing.files)
        events = sum(listing.streams.values())
        found.append(Backup(name, listing.made_at, "whole", events, listing.streams, size))
    begun = {key.removesuffix(MAKING) for key in keys if key.endswith(MAKING)}
    found += [Backup(name, None, "unfinished", 0, {}, 0) for name in sorted(begun - whole)]
    return sorted(found, key=lambda each: (each.made_at is None, each.made_at or "", each.name))


def remove_backup(objects: ObjectStore, name: str) -> int:
    """Remove a backup, and the bytes that no other backup has; gives the number of these objects.

    Raises
    ------
    InvalidArgument
        There is none of that name; or another one is unfinished.
    CorruptStore
        What another one holds cannot be read: nothing is removed.
    """
    found = {backup.name: backup for backup in object_backups(objects)}
    if name not in found:
        known = ", ".join(found) or "none"
        raise InvalidArgument(f"there is no backup {name!r} at {objects.url}, but {known}")
    others = [backup for backup in found.values() if backup.name != name]
    for other in others:
        if other.state == "unfinished":
            raise InvalidArgument(
                f"the backup {other.name!r} at {objects.url} is being made, or was cut short: wait "
                "for it, make it anew under its name, or remove it first"
            )
    kept = {file.key for other in others for file in _Listing.read(objects, other.name).files}
    objects.remove(f"{LISTINGS}{name}{WHOLE}")
    left = [key for key in objects.list(BYTES) if key not in kept]
    for key in each(left):
        objects.remove(key)
    objects.remove(f"{LISTINGS}{name}{MAKING}")
    return len(left)


def verify_backup(objects: ObjectStore, name: str) -> list[str]:
    """Read all that a backup holds; gives what is wrong with it."""

    def verified(file: _File, check: Check) -> Done[str | None]:
        return Done((_problem(objects, file, None, check),))

    files = _Listing.read(objects, name).files
    problems = _all_of([partial(verified, file) for file in files])
    return [problem for problem in problems if problem is not None]


def _problem(
    objects: ObjectStore, file: _File, write: Callable[[bytes], object] | None, check: Check
) -> str | None:
    """Read the bytes of a file, and hand them on; gives what is wrong with them."""
    size = objects.size(file.key)
    if size != file.size:
        found = "is missing" if size is None else f"has {size:,} bytes"
        return f"{objects.describe(file.key)} {found}; {file.path} has {file.size:,}"
    digest = xxhash.xxh3_128()
    for at in range(0, size, PIECE_BYTES):
        check()
        piece = objects.read(file.key, at, min(PIECE_BYTES, size - at))
        digest.update(piece)
        if write is not None:
            write(piece)
    if digest.hexdigest() != file.digest:
        return f"{objects.describe(file.key)} is damaged: {file.path} does not fit its digest"
    return None


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
    listing = _Listing.read(objects, _checked(name))
    begin_unfinished(os.path.abspath(target))
    files = RealFiles(target)
    for directory, _ in listing.directories:
        files.make_directory(directory)

    def fetched(file: _File, check: Check) -> Done[None]:
        with files.create(file.path) as out:
            problem = _problem(objects, file, out.write, check)
            if problem is not None:
                raise CorruptStore(f"{problem}: choose another backup")
            out.sync()
        if file.mode is not None:
            os.chmod(target / file.path, file.mode)
        return Done((None,))

    _all_of([partial(fetched, file) for file in listing.files])
    for directory, mode in reversed(listing.directories):
        files.sync_directory(directory)
        os.chmod(target / directory, mode)
    files.sync_directory("")
    files.remove(UNFINISHED)
    files.sync_directory("")
    size = sum(file.size for file in listing.files)
    events = sum(listing.streams.values())
    return Backup(name, listing.made_at, "whole", events, listing.streams, size)
