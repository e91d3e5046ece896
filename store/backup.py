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
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from ..errors import ChronicleError, CorruptStore, InvalidArgument, StoreClosed, StreamNotFound
from .catalog import directory_name
from .files import RealFiles
from .journal import begin_log
from .lock import WRITER_LOCK, ReaderLease
from .manifest import MANIFEST, read_manifest, write_manifest
from .progress import each
from .recovery import load
from .segment_list import segment_name
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
        from .object_backup import object_backups
        from .object_store import object_store

        return object_backups(object_store(os.fspath(place)))
    return _in_directory(place)


def _in_directory(directory: str | os.PathLike[str]) -> list[Backup]:
    try:
        with os.scandir(directory) as found:
            inside = sorted(each.name for each in found if each.is_dir(follow_symlinks=False))
    except OSError as error:
        raise InvalidArgument(
            f"backups are looked for in a directory; {os.fspath(directory)!r}: {error.strerror}"
        ) from error
    backups = [described(os.path.join(directory, name), name) for name in inside]
    told = [each for each in backups if each is not None]
    return sorted(told, key=lambda each: (each.made_at is None, each.made_at or "", each.name))


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
                found = load(files, f"streams/{directory_name(stream)}")
                streams[stream] = found.manifest.stored_events + found.journal.rows
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


class Sealed(Protocol):
    def take(self, path: str, length: int | None = None) -> None: ...

    def keep(self, lease: ReaderLease) -> None:
        """Take over the lease that keeps one stream's files; release it once they are taken."""
        ...


class _Linked:
    def __init__(self, store: Store, files: RealFiles) -> None:
        self._store = store
        self._files = files

    def take(self, path: str, length: int | None = None) -> None:
        self._store.files.export(path, os.path.join(self._files.root, path), length=length)
        _permit_like(self._store, path, self._files)

    def keep(self, lease: ReaderLease) -> None:
        lease.release()


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
    if os.path.exists(os.path.join(target, UNFINISHED)):
        raise InvalidArgument(
            f"{target} is a backup that was cut short; remove it or choose a new directory"
        )
    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise InvalidArgument(f"{target} exists and is not empty; choose a new directory")
    for name, what in store.damaged().items():
        raise CorruptStore(f"no backup of a store with damaged streams; {name}: {what}")
    begun = time.strftime(MOMENT, time.gmtime())
    begin_unfinished(target)
    files = RealFiles(target)
    taken = sealed or _Linked(store, files)
    _copy_beside(store, target)
    files.make_directory("streams")
    _permit_like(store, "streams", files)
    for name in each(store.streams()):
        try:
            _backup_stream(store, name, files, taken)
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
    files.sync_directory("")
    files.remove(UNFINISHED)
    files.sync_directory("")


def begin_unfinished(target: str) -> None:
    """Create the target with the file ``UNFINISHED``; it never exists without that file."""
    made = None if os.path.exists(target) else f"{target}.{secrets.token_hex(4)}"
    if made is not None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.mkdir(made, 0o700)
    files = RealFiles(made or target)
    with files.create(UNFINISHED) as file:
        file.sync()
    files.sync_directory("")
    if made is not None:
        os.rename(made, target)
        RealFiles(os.path.dirname(target)).sync_directory("")


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
        found = os.stat(source)
        if stat.S_ISDIR(found.st_mode):
            os.mkdir(target, 0o700)
            for name in sorted(os.listdir(source)):
                if not name.endswith(LOCAL):
                    _copy_tree(os.path.join(source, name), os.path.join(target, name))
            RealFiles(target).sync_directory("")
        elif stat.S_ISREG(found.st_mode):
            with open(source, "rb") as reading:
                descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as writing:
                    shutil.copyfileobj(reading, writing)
                    writing.flush()
                    os.fsync(descriptor)
        else:
            return
        os.chmod(target, stat.S_IMODE(found.st_mode))


def _backup_stream(store: Store, name: str, files: RealFiles, taken: Sealed) -> None:
    directory = store.directory_of(name)
    stream = store.stream(name)
    if isinstance(stream, EventStream):
        stream.flush()
    # the lease keeps the files of this version in place while they are linked
    version = load(store.files, directory).manifest.version
    lease = ReaderLease.take(store.files, directory, version)
    try:
        found = load(store.files, directory)
        manifest, journal = found.manifest, found.journal
        files.make_directory(directory)
        _permit_like(store, directory, files)
        for page in manifest.segments.pages:
            _Linked(store, files).take(f"{directory}/{page.file}")
        runs = [entry.file for entry in manifest.runs]
        for file in each([*manifest.segments.files(), *runs]):
            taken.take(f"{directory}/{file}")
        extent = journal.extent
        if extent is not None:
            taken.take(f"{directory}/{segment_name(extent.segment_id)}", extent.length)
        log = begin_log(files, directory, 1, journal)
        log.close()
        files.sync_directory(directory)
        write_manifest(
            files, directory, replace(manifest, log=1, log_bytes=None, garbage=()).to_json()
        )
        manifest_path = f"{directory}/{MANIFEST}"
        _permit_like(store, manifest_path, files)
        shutil.copymode(os.path.join(files.root, manifest_path), os.path.join(files.root, log.path))
    finally:
        taken.keep(lease)
