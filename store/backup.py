"""Backup: a consistent copy of a store while writing goes on.

Purpose
    Sealed segments never change: they are hard-linked (copied across file systems).  Of the active
    segment the committed bytes are copied, and the log is written anew as one checkpoint.

Guarantee
    The copy is the state of each stream at one commit, opens like any store, and passes ``check``.
    Restoring is copying it back.  A backup that is cut short, at whichever step, is refused as a
    store: it has the file :data:`~chronicle.store.store.UNFINISHED` from its first moment to its
    last.

    It is as closed as the original: what other layers keep beside the streams is in it (the tokens
    of a server), and directories and files have the permissions that they have there.

Order
    ::

        UNFINISHED | what lies beside the streams | each stream | mark | indexes | no UNFINISHED

    What lies beside the streams comes first: it may say which appends have been stored (keys of
    requests), and must not say so of events that the copy does not have.

    Among it, what ends in :data:`LOCAL` stays behind: it is about the process that has this
    directory open.

Limits
    Streams are copied one after the other: each is consistent in itself, not with the others.
    Secondary indexes are none of this layer's business: the database adds them.  Positions of
    followers stay behind; they name files that the copy does not have.  Damaged streams cannot be
    copied.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from ..errors import CorruptStore, InvalidArgument, StoreClosed, StreamNotFound
from .backups import COPIED_AT, MOMENT
from .catalog import log_name, segment_name
from .files import RealFiles
from .journal import RecordKind, encode_checkpoint
from .lock import WRITER_LOCK, ReaderLease
from .log import LogWriter
from .manifest import MANIFEST, read_manifest, write_manifest
from .progress import each
from .recovery import load
from .store import MARK, UNFINISHED, Store
from .stream import EventStream

__all__ = ["LOCAL", "Sealed", "backup_store", "begin_unfinished"]

LOCAL = ".local"
"""How names end of what belongs to a process of this directory, and to no copy of it."""


class Sealed(Protocol):
    """Who takes segments and late runs, and what of the active segment is committed."""

    def take(self, path: str, length: int | None = None) -> None:
        """Take a file of the store, or its first bytes."""
        ...

    def keep(self, lease: ReaderLease) -> None:
        """Release a lease, which keeps the files of one stream in place, once they are taken."""
        ...


class _Linked:
    """Takes them into the copy, by hard links where it can."""

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
    """Copy a store to a directory that does not exist yet, or is empty.

    Parameters
    ----------
    store : Store
        Open in either mode.
    path : str or path-like
        Outside of the store.
    add : callable, optional
        Given the target, adds what the layers above keep of the streams; part of the backup.
    sealed : Sealed, optional
        Takes segments and late runs, which are not in the copy then.

    Raises
    ------
    InvalidArgument
        When the target exists and is not empty, or lies inside the store.
    CorruptStore
        When a stream is damaged: repair or drop it first.
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
            files.remove_tree(store.directory_of(name))  # dropped meanwhile
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
    """Make the target, with the file that says that it is unfinished.

    A new directory is made under another name, so that there is none without that file.
    """
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
    """Give a file or directory of the copy the permissions that it has in the original."""
    original = store.files.local_path(path)
    if original is not None:
        shutil.copymode(original, os.path.join(files.root, path))


def _copy_beside(store: Store, target: str) -> None:
    """Copy what other layers keep in the store's directory."""
    for name in store.files.list(""):
        local = store.files.local_path(name)
        if local is not None and name not in (WRITER_LOCK, MARK, "streams"):
            _copy_tree(local, os.path.join(target, name))


def _copy_tree(source: str, target: str) -> None:
    """Copy a file or directory, permissions included; one that goes away meanwhile is left out."""
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
        log = LogWriter.create(files, f"{directory}/{log_name(1)}", 1)
        log.append(RecordKind.CHECKPOINT, encode_checkpoint(journal))
        log.sync()
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
