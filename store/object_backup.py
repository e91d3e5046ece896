"""Incremental backups of a store in an object store.

Guarantee: the listing is written last, after the size of every object was checked: a backup is
whole, or unfinished and not restorable.  Segments are immutable, so only new ones are sent; an
interrupted backup resumes.  Moved segments are copied, too.  Restored files are compared with their
digests.  The order, with leases on the segments until they were sent::

    tuesday.unfinished | copy without segments, local | bytes | tuesday.backup | no .unfinished

Limits: every file is read for its digest; indexes are sent each time.  Consistency is that of
``backup``.  The local part (logs, indexes, files beside the streams) needs temporary disk space.

Objects of backups::

    <address>/backups/monday.backup        its listing of files
    <address>/backups/tuesday.unfinished   one in progress, or interrupted
    <address>/bytes/<digest>-<size>        a file's bytes, shared between backups

A listing is a line ``CHRONICLE-BACKUP 1 <XXH3-64 of the rest>`` and JSON: when it began, events of
each stream, directories with permissions, files with permissions, size and the digest (XXH3-128)
that names their bytes.  Paths outside of a store are refused.  Nothing is removed while there is an
unfinished backup, which may need the bytes.  The operator must not run a removal and a backup at
the same time.

Restoring a store whose disk is lost needs no backup, only the manifests, pages and stubs beside its
objects.  The new store has, of each stream, the segments whose objects exist, as of the last move;
their bytes stay in the objects.  Data that was only on the disk (the newest events, late runs,
indexes, live queries, tokens) is lost.  The lost store must not be used again beside the restored
one: both would remove objects.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import xxhash

from ..core.ownership import OwnedLock
from ..core.scratch import ScratchDirectory
from ..core.threads import Check, Done, Task, in_order
from ..errors import CorruptBlock, CorruptStore, InvalidArgument, StorageFailed, UnsupportedFormat
from .backup import Backup, Sealed, backup_store, begin_unfinished, described
from .catalog import StreamManifest, directory_name
from .cold_file import SUFFIX
from .file_contract import ReadFile
from .files import RealFiles
from .journal import Journal, begin_log
from .lock import ReaderLease
from .manifest import MANIFEST, read_manifest, write_manifest
from .manifest_pages import (
    PAGES,
    known_roots,
    page_key,
    pages_from_json,
    read_pages,
    write_pages,
)
from .object_store import ObjectStore
from .progress import each
from .sealed_tree import Root
from .segment_list import COUNTER_BITS, SegmentList
from .store import UNFINISHED, Store

LISTINGS, BYTES = "backups/", "bytes/"
WHOLE, MAKING = ".backup", ".unfinished"
MAGIC, VERSION = b"CHRONICLE-BACKUP", 1
PIECE_BYTES = 4 << 20
THREADS = 8
"""Parallel transfers: most files are small and dominated by latency."""

Found = TypeVar("Found")


def all_of(tasks: Sequence[Task[Found]]) -> list[Found]:
    """Results of tasks that run in parallel, with progress reports."""
    done = in_order(tasks, THREADS, None)
    return [next(done) for _ in each(tasks)]


@dataclass(frozen=True)
class BackupFile:
    """A file of a backup; ``mode`` are its permissions, None for the default ones."""

    path: str
    mode: int | None
    size: int
    digest: str

    @property
    def key(self) -> str:
        return f"{BYTES}{self.digest}-{self.size}"


@dataclass(frozen=True)
class Listing:
    """Content of a backup; ``directories`` are paths and permissions, parents first."""

    made_at: str
    streams: dict[str, int]
    directories: list[tuple[str, int]]
    files: list[BackupFile]

    def to_bytes(self) -> bytes:
        body = json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()
        return b"%s %d %s\n%s" % (MAGIC, VERSION, xxhash.xxh3_64_hexdigest(body).encode(), body)

    @classmethod
    def read(cls, objects: ObjectStore, name: str) -> Listing:
        """The listing of a whole backup; ``InvalidArgument`` if missing, else if unreadable."""
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
        try:
            told = json.loads(body)
            directories = [(str(path), int(mode)) for path, mode in told["directories"]]
            files = [BackupFile(**file) for file in told["files"]]
            made_at, streams = str(told["made_at"]), dict(told["streams"])
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptStore(f"{what} is not the listing of a backup ({error})") from error
        for path in (*(path for path, _ in directories), *(file.path for file in files)):
            if path.startswith("/") or not set(path.split("/")).isdisjoint(("", ".", "..")):
                raise CorruptStore(f"{what} names {path!r}, which is no file of a store")
        return cls(made_at, streams, directories, files)

    @property
    def bytes(self) -> int:
        """Size of all files, including those shared with other backups."""
        return sum(file.size for file in self.files)


def holds_backups(objects: ObjectStore) -> bool:
    return bool(objects.list(LISTINGS))


def object_backups(objects: ObjectStore) -> list[Backup]:
    """The backups below an address, oldest first; unfinished ones last."""
    keys = [key.removeprefix(LISTINGS) for key in objects.list(LISTINGS)]
    whole = {key.removesuffix(WHOLE) for key in keys if key.endswith(WHOLE)}
    found = []
    for name in sorted(whole):
        try:
            listing = Listing.read(objects, name)
        except CorruptStore as error:
            found.append(Backup(name, None, "damaged", 0, {}, 0, str(error)))
            continue
        events = sum(listing.streams.values())
        found.append(Backup(name, listing.made_at, "whole", events, listing.streams, listing.bytes))
    begun = {key.removesuffix(MAKING) for key in keys if key.endswith(MAKING)}
    found += [Backup(name, None, "unfinished", 0, {}, 0) for name in sorted(begun - whole)]
    return sorted(found, key=lambda each: (each.made_at is None, each.made_at or "", each.name))


def remove_backup(objects: ObjectStore, name: str) -> int:
    """Remove a backup and the objects that only it uses; returns their number.  Refused if another
    backup is unfinished, or its listing unreadable.
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
    kept = {file.key for other in others for file in Listing.read(objects, other.name).files}
    objects.remove(f"{LISTINGS}{name}{WHOLE}")
    left = [key for key in objects.list(BYTES) if key not in kept]
    for key in each(left):
        objects.remove(key)
    objects.remove(f"{LISTINGS}{name}{MAKING}")
    return len(left)


def verify_backup(objects: ObjectStore, name: str) -> list[str]:

    def verified(file: BackupFile, check: Check) -> Done[str | None]:
        return Done((problem_of(objects, file, None, check),))

    files = Listing.read(objects, name).files
    problems = all_of([partial(verified, file) for file in files])
    return [problem for problem in problems if problem is not None]


def problem_of(
    objects: ObjectStore, file: BackupFile, write: Callable[[bytes], object] | None, check: Check
) -> str | None:
    """Read a file's bytes and pass them to ``write``; returns the problem, if any."""
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


Restored = dict[str, tuple[int, int]]
"""Per stream: restored segments, and those that were only on the lost disk."""


def holds_segments(objects: ObjectStore) -> bool:
    return any(key.endswith(f"/{MANIFEST}") for key in objects.list(""))


def restore_store(objects: ObjectStore, path: str | os.PathLike[str]) -> Restored:
    """Make a store from objects in a missing or empty directory.  ``InvalidArgument`` unless there
    is exactly one store; on ``StorageFailed`` the result is refused as a store.
    """
    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidArgument(f"{target} exists and is not empty; choose a new directory")
    keys = objects.list("")
    places = [key.removesuffix(f"/{MANIFEST}") for key in keys if key.endswith(f"/{MANIFEST}")]
    if not places:
        raise InvalidArgument(f"{objects.url} holds no streams of a store; look at the address")
    stores = sorted({place.split("/", 1)[0] for place in places})
    if len(stores) > 1:
        raise InvalidArgument(
            f"{objects.url} holds {len(stores)} stores: restore them one by one, adding "
            f"/{stores[0]} and so on to the address"
        )
    begin_unfinished(os.path.abspath(target))
    Store.open(target, unfinished=True).close()
    files = RealFiles(target)
    done = {}
    for place in places:
        name, found = _restore_stream(objects, place, keys, files)
        done[name] = found
    files.sync_directory("streams")
    files.remove(UNFINISHED)
    files.sync_directory("")
    return done


def _restore_stream(
    objects: ObjectStore, place: str, keys: list[str], files: RealFiles
) -> tuple[str, tuple[int, int]]:
    manifest, roots = _manifest_of(objects, place)
    directory = f"streams/{directory_name(manifest.name)}"
    files.make_directory(directory)
    newest = {key.rpartition("-")[0]: key for key in keys if key.endswith(SUFFIX)}
    there, entries = set(keys), []
    for entry in manifest.segments:
        stub = newest.get(f"{place}/{entry.file.removesuffix('.seg')}")
        if stub is None or stub.removesuffix(SUFFIX) not in there:
            continue
        with files.create(f"{directory}/{entry.file}{SUFFIX}") as file:
            file.write(_whole(objects, stub))
            file.sync()
        entries.append(entry)
    events = sum(entry.events for entry in entries)
    last = max((entry.last for entry in entries), default=None)
    journal = replace(
        Journal.empty(manifest.schema), last=last, position=manifest.position or 0,
        events=events, identity=manifest.identity,
    )  # fmt: skip
    begin_log(files, directory, 1, journal).close()
    segments = write_pages(
        files, directory, manifest.version, manifest.identity, SegmentList.of(entries),
        SegmentList.of(()), lambda entry: roots.get(entry.id),
    )  # fmt: skip
    files.sync_directory(directory)
    lost = len(manifest.segments) - len(entries)
    restored = replace(
        manifest, segments=segments, runs=(), log=1, log_bytes=None, garbage=(), events=events
    )
    write_manifest(files, directory, restored.to_json())
    return manifest.name, (len(entries), lost)


def _manifest_of(objects: ObjectStore, place: str) -> tuple[StreamManifest, dict[int, Root]]:
    with tempfile.TemporaryDirectory() as scratch:
        files = RealFiles(scratch)
        Path(scratch, MANIFEST).write_bytes(_whole(objects, f"{place}/{MANIFEST}"))
        body = read_manifest(files, "")
        assert body is not None
        if "pages" not in body:
            return StreamManifest.from_json(body), {}
        try:
            Path(scratch, PAGES).mkdir()
            for page in pages_from_json(body["pages"]):
                Path(scratch, PAGES, page.file).write_bytes(_whole(objects, page_key(place, page)))
            identity = body["next_id"] >> COUNTER_BITS
            segments = read_pages(files, PAGES, body["pages"], identity)
            return StreamManifest.from_json(body, segments), known_roots(files, PAGES, segments)
        except (CorruptBlock, KeyError, TypeError, ValueError) as error:
            raise CorruptStore(
                f"a page of {objects.describe(place)}/{MANIFEST} is damaged: {error}; restore the "
                "stream from a backup"
            ) from error


def _whole(objects: ObjectStore, key: str) -> bytes:
    size = objects.size(key)
    if size is None:
        raise StorageFailed(f"{objects.describe(key)} is missing: look at the place of the objects")
    return objects.read(key, 0, size)
