"""Backup: a consistent copy of a store while writing goes on.

Immutable sealed segments are hard-linked (copied across file systems).  Of the active segment the
committed bytes are copied, and the log is rewritten as one checkpoint.

Guarantee: the copy is the state of each stream at one commit, opens like any store, and passes
``check``.  An incomplete backup has the file ``store.UNFINISHED`` and is refused.  Files of other
layers (a server's tokens) are included, and permissions are kept.  The order::

    UNFINISHED | files beside the streams | each stream | mark | indexes | no UNFINISHED

Files beside the streams come first: they may name appends as stored (idempotency keys), and must
not name events that the copy lacks.

Limits: streams are consistent in themselves, not with each other.  Positions of followers are not
copied.  Damaged streams cannot be copied.

The backups at a place are listed with the time each was made and what it holds; listing reads
manifests and logs, not blocks, and takes no lease.  Deletes do not reach backups; a backup holds no
event that was deleted before ``made_at``.  Hard links count with their full size.

Incremental backups of a store in an object store.

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
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from ..core.ownership import OwnedLock
from ..core.scratch import ScratchDirectory
from ..core.threads import Check, Done, Task, in_order
from ..errors import (
    ChronicleError,
    CorruptBlock,
    CorruptStore,
    InvalidArgument,
    StorageFailed,
    StoreClosed,
    StreamNotFound,
)
from .catalog import (
    MANIFEST,
    StreamManifest,
    directory_name,
    log_name,
    read_manifest,
    write_manifest,
)
from .cold_file import SUFFIX
from .file_contract import ReadFile, check_version
from .files import RealFiles
from .journal import Journal, install
from .lock import WRITER_LOCK, ReaderLease
from .manifest_pages import (
    PAGES,
    page_key,
    pages_from_json,
    read_pages,
    roots_in_pages,
    write_pages,
)
from .object_store import ObjectStore, object_store
from .progress import each
from .recovery import load
from .segment import Root
from .segment_list import COUNTER_BITS, SegmentList, segment_name
from .store import MARK, UNFINISHED, Store
from .stream import EventStream

COPIED_AT = "copied_at"
"""Key in a copy's mark: when the backup began, formatted as ``MOMENT`` (UTC)."""
MOMENT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Backup:
    """A backup: ``made_at`` is its beginning, ISO 8601 in UTC, None while unfinished; ``state`` is
    ``whole``, ``unfinished`` (refused as a store) or ``damaged`` (see ``problem``); ``streams``
    counts events.
    """

    name: str
    made_at: str | None
    state: str
    events: int
    streams: dict[str, int]
    bytes: int
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def is_address(place: str | os.PathLike[str]) -> bool:
    return "://" in os.fspath(place)


def list_backups(place: str | os.PathLike[str]) -> list[Backup]:
    """The backups in a directory or at an address of objects, oldest first, unfinished last."""
    if is_address(place):
        return object_backups(object_store(os.fspath(place)))
    return _in_directory(place)


def _in_directory(directory: str | os.PathLike[str]) -> list[Backup]:
    try:
        with os.scandir(directory) as entries:
            inside = sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
    except OSError as error:
        raise InvalidArgument(
            f"backups are looked for in a directory; {os.fspath(directory)!r}: {error.strerror}"
        ) from error
    backups = [described(os.path.join(directory, name), name) for name in inside]
    whole = [each for each in backups if each is not None]
    return sorted(whole, key=lambda each: (each.made_at is None, each.made_at or "", each.name))


def described(path: str, name: str) -> Backup | None:
    """The backup in a directory; None where it holds something else."""
    files = RealFiles(path)
    streams: dict[str, int] = {}
    made_at, state, problem = None, "whole", None
    try:
        if files.exists(UNFINISHED):
            state = "unfinished"
        elif files.exists(f"{MARK}/{MANIFEST}"):
            made_at = _made_at(files)
            with Store.open(path, "r") as copy:
                names = copy.streams()
            for stream in names:
                loaded = load(files, f"streams/{directory_name(stream)}")
                streams[stream] = loaded.manifest.stored_events + loaded.journal.rows
        else:
            return None
    except (ChronicleError, OSError) as error:
        state, problem = "damaged", str(error)
    size = _size(path)
    return Backup(name, made_at, state, sum(streams.values()), streams, size, problem)


def _made_at(files: RealFiles) -> str:
    body = read_manifest(files, MARK)
    if body is None:
        raise CorruptStore(f"{files.root}/{MARK} does not say what store this is")
    if isinstance(body.get(COPIED_AT), str):
        return str(body[COPIED_AT])
    # written by an old release, or a store copied here by other means
    written = os.stat(os.path.join(files.root, MARK, MANIFEST)).st_mtime
    return time.strftime(MOMENT, time.gmtime(written))


def _size(path: str) -> int:
    total = 0
    for root, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue
    return total


LOCAL = ".local"
"""Suffix of files that describe a process using this directory; never copied."""


class Sealed:
    """Segments and late runs of a store that are copied later, under leases that end then."""

    def __init__(self, leases: ExitStack) -> None:
        self.files: list[tuple[str, int | None]] = []
        self.leases = leases


@contextmanager
def _unfinished(path: str | os.PathLike[str]) -> Iterator[RealFiles]:
    """A missing or empty directory, which no one takes for a store before the block has ended."""
    target = os.path.abspath(os.fspath(path))
    if os.path.exists(os.path.join(target, UNFINISHED)):
        raise InvalidArgument(
            f"{target} is a backup that was cut short; remove it or choose a new directory"
        )
    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise InvalidArgument(f"{target} exists and is not empty; choose a new directory")
    made = None if os.path.exists(target) else f"{target}.{secrets.token_hex(4)}"
    if made is not None:  # it never exists without the file
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.mkdir(made, 0o700)
    files = RealFiles(made or target)
    with files.create(UNFINISHED) as file:
        file.sync()
    files.sync_directory("")
    if made is not None:
        os.rename(made, target)
        RealFiles(os.path.dirname(target)).sync_directory("")
    files = RealFiles(target)
    yield files
    files.sync_directory("")
    files.remove(UNFINISHED)
    files.sync_directory("")


def backup_store(
    store: Store,
    path: str | os.PathLike[str],
    add: Callable[[str], None] | None = None,
    sealed: Sealed | None = None,
) -> None:
    """Copy a store to a missing or empty directory outside of it.  ``add`` adds files of other
    layers; ``sealed`` receives segments and late runs, which the copy then lacks.  ``CorruptStore``
    when a stream is damaged.
    """
    target = os.path.abspath(os.fspath(path))
    source = os.path.abspath(store.path)
    if target == source or target.startswith(source + os.sep):
        raise InvalidArgument(f"a backup cannot lie inside the store {source}; choose another path")
    for name, what in store.damaged().items():
        raise CorruptStore(f"no backup of a store with damaged streams; {name}: {what}")
    begun = time.strftime(MOMENT, time.gmtime())
    with _unfinished(target) as files:
        _copy_beside(store, target)
        files.make_directory("streams")
        _permit_like(store, "streams", files)
        for name in each(store.streams()):
            try:
                _backup_stream(store, name, files, sealed)
            except (FileNotFoundError, StoreClosed, StreamNotFound):
                if name in store.streams():
                    raise
                files.remove_tree(store.directory_of(name))  # the stream was dropped meanwhile
        files.make_directory(MARK)
        files.sync_directory("streams")
        body = read_manifest(store.files, MARK)
        assert body is not None
        write_manifest(files, MARK, {**body, COPIED_AT: begun})
        for place in (f"{MARK}/MANIFEST", MARK):
            _permit_like(store, place, files)
        if add is not None:
            add(target)
        _permit_like(store, "", files)


def _permit_like(store: Store, path: str, files: RealFiles) -> None:
    original = store.files.local_path(path)
    if original is not None:
        shutil.copymode(original, os.path.join(files.root, path))


def _copy_beside(store: Store, target: str) -> None:
    for name in store.files.list(""):
        local = store.files.local_path(name)
        if local is not None and name not in (WRITER_LOCK, MARK, "streams"):
            _copy_tree(local, os.path.join(target, name))


def _copy_tree(source: str, target: str) -> None:
    with suppress(FileNotFoundError):
        status = os.stat(source)
        if stat.S_ISDIR(status.st_mode):
            os.mkdir(target, 0o700)
            for name in sorted(os.listdir(source)):
                if not name.endswith(LOCAL):
                    _copy_tree(os.path.join(source, name), os.path.join(target, name))
            RealFiles(target).sync_directory("")
        elif stat.S_ISREG(status.st_mode):
            with open(source, "rb") as reading:
                descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as writing:
                    shutil.copyfileobj(reading, writing)
                    writing.flush()
                    os.fsync(descriptor)
        else:
            return
        os.chmod(target, stat.S_IMODE(status.st_mode))


def _backup_stream(store: Store, name: str, files: RealFiles, sealed: Sealed | None) -> None:
    directory = store.directory_of(name)
    stream = store.stream(name)
    if isinstance(stream, EventStream):
        stream.flush()

    def link(path: str, length: int | None = None) -> None:
        store.files.export(path, os.path.join(files.root, path), length=length)
        _permit_like(store, path, files)

    with ExitStack() as stack:
        # the lease keeps the files of this version in place until they are linked
        version = load(store.files, directory).manifest.version
        lease = ReaderLease.take(store.files, directory, version)
        (stack if sealed is None else sealed.leases).callback(lease.release)
        loaded = load(store.files, directory)
        manifest, extent = loaded.manifest, loaded.journal.extent
        files.make_directory(directory)
        _permit_like(store, directory, files)
        for page in manifest.segments.pages:
            link(f"{directory}/{page.file}")
        names = [*manifest.segments.files(), *(entry.file for entry in manifest.runs)]
        parts: list[tuple[str, int | None]] = [(f"{directory}/{file}", None) for file in names]
        if extent is not None:
            parts.append((f"{directory}/{segment_name(extent.segment_id)}", extent.length))
        if sealed is not None:
            sealed.files += parts
        else:
            for part in each(parts):
                link(*part)
        manifest = replace(manifest, log=1, log_bytes=None, garbage=())
        install(files, directory, manifest, loaded.journal)
        manifest_path = f"{directory}/{MANIFEST}"
        _permit_like(store, manifest_path, files)
        log_path = f"{directory}/{log_name(1)}"
        shutil.copymode(os.path.join(files.root, manifest_path), os.path.join(files.root, log_path))


LISTINGS, BYTES = "backups/", "bytes/"
WHOLE, MAKING = ".backup", ".unfinished"
MAGIC, VERSION = b"CHRONICLE-BACKUP", 1
PIECE_BYTES = 4 << 20
THREADS = 8
"""Parallel transfers: most files are small and dominated by latency."""

T = TypeVar("T")


def all_of(tasks: Sequence[Task[T]]) -> list[T]:
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
            names = ", ".join(backup.name for backup in object_backups(objects)) or "none"
            raise InvalidArgument(f"there is no backup {name!r} at {objects.url}, but {names}")
        head, _, body = objects.read(key, 0, size).partition(b"\n")
        magic, version, digest = (*head.split(b" "), b"", b"", b"")[:3]
        what = objects.describe(key)
        if magic != MAGIC or not version.isdigit():
            raise CorruptStore(f"{what} is not the listing of a backup")
        check_version(what, int(version), VERSION)
        if xxhash.xxh3_64_hexdigest(body).encode() != digest:
            raise CorruptStore(f"{what} is damaged: it does not fit its checksum")
        try:
            document = json.loads(body)
            directories = [(str(path), int(mode)) for path, mode in document["directories"]]
            files = [BackupFile(**file) for file in document["files"]]
            made_at, streams = str(document["made_at"]), dict(document["streams"])
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
    backups = []
    for name in sorted(whole):
        try:
            listing = Listing.read(objects, name)
        except CorruptStore as error:
            backups.append(Backup(name, None, "damaged", 0, {}, 0, str(error)))
            continue
        events = sum(listing.streams.values())
        backups.append(
            Backup(name, listing.made_at, "whole", events, listing.streams, listing.bytes)
        )
    begun = {key.removesuffix(MAKING) for key in keys if key.endswith(MAKING)}
    backups += [Backup(name, None, "unfinished", 0, {}, 0) for name in sorted(begun - whole)]
    return sorted(backups, key=lambda each: (each.made_at is None, each.made_at or "", each.name))


def remove_backup(objects: ObjectStore, name: str) -> int:
    """Remove a backup and the objects that only it uses; returns their number.  Refused if another
    backup is unfinished, or its listing unreadable.
    """
    backups = {backup.name: backup for backup in object_backups(objects)}
    if name not in backups:
        names = ", ".join(backups) or "none"
        raise InvalidArgument(f"there is no backup {name!r} at {objects.url}, but {names}")
    others = [backup for backup in backups.values() if backup.name != name]
    for other in others:
        if other.state == "unfinished":
            raise InvalidArgument(
                f"the backup {other.name!r} at {objects.url} is being made, or was cut short: wait "
                "for it, make it anew under its name, or remove it first"
            )
    shared = {file.key for other in others for file in Listing.read(objects, other.name).files}
    objects.remove(f"{LISTINGS}{name}{WHOLE}")
    left = [key for key in objects.list(BYTES) if key not in shared]
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
        state = "is missing" if size is None else f"has {size:,} bytes"
        return f"{objects.describe(file.key)} {state}; {file.path} has {file.size:,}"
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
        sealed = Sealed(leases)
        backup_store(store, copy, add, sealed)
        backup = described(copy, name)
        assert backup is not None
        assert backup.made_at is not None
        if backup.problem is not None:
            raise CorruptStore(f"the copy of {store.path} cannot be read: {backup.problem}")
        directories, small = _walked(copy)
        next(stages)
        sending = _Sending(objects)
        tasks = [partial(sending.stored, store, *file) for file in sealed.files]
        tasks += [partial(sending.local, copy, path) for path in small]
        files = all_of(tasks)
        next(stages, None)
    objects.put(listing, [Listing(backup.made_at, backup.streams, directories, files).to_bytes()])
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
        entry = BackupFile(path, mode, size, digest.hexdigest())
        if self._is_new(entry):
            self._objects.put(entry.key, _pieces(file, size, check))
            if self._objects.size(entry.key) != size:
                raise StorageFailed(
                    f"{self._objects.describe(entry.key)}, a copy of {path}, has not the length "
                    "that it was written with; look at the place of the objects"
                )
        return Done((entry,))

    def _is_new(self, file: BackupFile) -> bool:
        with self._lock:
            there = self._there.get(file.key) == file.size or file.key in self._begun
            self._begun.add(file.key)
        return not there


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
    if name is None:
        whole = [backup for backup in object_backups(objects) if backup.state == "whole"]
        if not whole:
            raise InvalidArgument(f"{objects.url} holds no whole backup; `chronicle backups` lists")
        name = whole[-1].name
    listing = Listing.read(objects, _checked(name))
    with _unfinished(path) as files:
        for directory, _ in listing.directories:
            files.make_directory(directory)
        all_of([partial(_fetched, objects, files, file) for file in listing.files])
        for directory, mode in reversed(listing.directories):
            files.sync_directory(directory)
            os.chmod(os.path.join(files.root, directory), mode)
    events = sum(listing.streams.values())
    return Backup(name, listing.made_at, "whole", events, listing.streams, listing.bytes)


def _fetched(objects: ObjectStore, files: RealFiles, file: BackupFile, check: Check) -> Done[None]:
    with files.create(file.path) as out:
        problem = problem_of(objects, file, out.write, check)
        if problem is not None:
            raise CorruptStore(f"{problem}: choose another backup")
        out.sync()
    if file.mode is not None:
        os.chmod(os.path.join(files.root, file.path), file.mode)
    return Done((None,))


Restored = dict[str, tuple[int, int]]
"""Per stream: restored segments, and those that were only on the lost disk."""


def holds_segments(objects: ObjectStore) -> bool:
    return any(key.endswith(f"/{MANIFEST}") for key in objects.list(""))


def restore_store(objects: ObjectStore, path: str | os.PathLike[str]) -> Restored:
    """Make a store from objects in a missing or empty directory.  ``InvalidArgument`` unless there
    is exactly one store; on ``StorageFailed`` the result is refused as a store.
    """
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
    with _unfinished(path) as files:
        Store.open(files.root, unfinished=True).close()
        done = dict(_restore_stream(objects, place, keys, files) for place in places)
        files.sync_directory("streams")
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
    segments = write_pages(
        files, directory, manifest.version, manifest.identity, SegmentList.of(entries),
        SegmentList.of(()), lambda entry: roots.get(entry.id),
    )  # fmt: skip
    lost = len(manifest.segments) - len(entries)
    restored = replace(
        manifest, segments=segments, runs=(), log=1, log_bytes=None, garbage=(), events=events
    )
    install(files, directory, restored, journal)
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
            return StreamManifest.from_json(body, segments), roots_in_pages(files, PAGES, segments)
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
