"""Backup: a consistent copy of a store while writing goes on.

Purpose
    Sealed segments never change: they are hard-linked (copied across file systems).  Of the active
    segment the committed bytes are copied, and the log is written anew as one checkpoint.

Guarantee
    The copy is the state of each stream at one commit, opens like any store, and passes ``check``.
    Restoring is copying it back.  A backup that is cut short has no mark and is refused as a
    store.

Limits
    Streams are copied one after the other: each is consistent in itself, not with the others.
    Secondary indexes are none of this layer's business: the database copies them afterwards.
"""

from __future__ import annotations

import os
from dataclasses import replace

from ..errors import InvalidArgument, StoreClosed, StreamNotFound
from .catalog import log_name, segment_name
from .files import RealFiles
from .journal import RecordKind, encode_state
from .lock import ReaderLease
from .log import LogWriter
from .manifest import read_manifest, write_manifest
from .recovery import load
from .store import MARK, Store
from .stream import EventStream
from .tail import concat_batches, sort_batch

__all__ = ["backup_store"]


def backup_store(store: Store, path: str | os.PathLike[str]) -> None:
    """Copy a store to a directory that does not exist yet, or is empty.

    Parameters
    ----------
    store : Store
        Open in either mode.
    path : str or path-like
        Outside of the store.

    Raises
    ------
    InvalidArgument
        When the target exists and is not empty, or lies inside the store.
    """
    target = os.path.abspath(os.fspath(path))
    source = os.path.abspath(store.path)
    if target == source or target.startswith(source + os.sep):
        raise InvalidArgument(f"a backup cannot lie inside the store {source}; choose another path")
    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise InvalidArgument(f"{target} exists and is not empty; choose a new directory")
    os.makedirs(os.path.join(target, "streams"), exist_ok=True)
    files = RealFiles(target)
    for name in store.streams():
        try:
            _backup_stream(store, name, files)
        except (FileNotFoundError, StoreClosed, StreamNotFound):
            if name in store.streams():
                raise
            files.remove_tree(store.directory_of(name))  # dropped meanwhile
    files.make_directory(MARK)
    files.sync_directory("streams")
    files.sync_directory("")
    body = read_manifest(store.files, MARK)
    assert body is not None
    write_manifest(files, MARK, body)


def _backup_stream(store: Store, name: str, files: RealFiles) -> None:
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
        for entry in (*manifest.segments, *manifest.runs):
            store.files.export(f"{directory}/{entry.file}", _target(files, directory, entry.file))
        extent = journal.extent
        if extent is not None:
            name = segment_name(extent.segment_id)
            target = _target(files, directory, name)
            store.files.export(f"{directory}/{name}", target, length=extent.length)
            with files.append(f"{directory}/{name}") as copy:
                copy.sync()
        schema = manifest.schema
        late = (
            sort_batch(concat_batches(journal.late, schema.arrow), schema) if journal.late else None
        )
        log = LogWriter.create(files, f"{directory}/{log_name(1)}", 1)
        log.append(
            RecordKind.CHECKPOINT,
            encode_state(
                extent,
                journal.last,
                journal.position,
                journal.late_total,
                journal.tail.batch() if journal.tail.rows else None,
                late,
            ),
        )
        log.sync()
        log.close()
        files.sync_directory(directory)
        write_manifest(files, directory, replace(manifest, log=1, garbage=()).to_json())
    finally:
        lease.release()


def _target(files: RealFiles, directory: str, name: str) -> str:
    return os.path.join(files.root, directory, name)
