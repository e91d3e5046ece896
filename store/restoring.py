"""Restoring: a store whose disk is lost, as far as its segments had moved to objects.

Purpose
    :func:`restore_store` makes a new directory of what :mod:`.moving` has left beside the objects:
    manifests and stubs.  The bytes of events stay where they are.

Guarantee
    The new store has, of each stream, the segments whose objects are there, as of the last move;
    what had been deleted or rewritten since, and was purged, is not in it.  It is refused as a
    store until it is whole.

Limits
    What was on the lost disk alone (the newest events, late runs, indexes, live queries, tokens) is
    gone.  The lost store must not be used again beside the restored one: both would remove objects.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from ..errors import InvalidArgument
from .backup import begin_unfinished
from .catalog import SegmentList, StreamManifest, directory_name, log_name
from .cold_stub import SUFFIX
from .files import RealFiles
from .journal import Journal, RecordKind, encode_checkpoint
from .log import LogWriter
from .manifest import MANIFEST, read_manifest, write_manifest
from .object_store import ObjectStore
from .store import UNFINISHED, Store

__all__ = ["Restored", "holds_segments", "restore_store"]

Restored = dict[str, tuple[int, int]]
"""Per stream: segments that were restored, and those that were on the lost disk alone."""


def holds_segments(objects: ObjectStore) -> bool:
    """Whether segments of streams have moved to an address."""
    return any(key.endswith(f"/{MANIFEST}") for key in objects.list(""))


def restore_store(objects: ObjectStore, path: str | os.PathLike[str]) -> Restored:
    """Make a store of what lies in objects.

    Parameters
    ----------
    path : str or path-like
        Must not exist, or be an empty directory.

    Raises
    ------
    InvalidArgument
        There is something already, nothing to restore, or more than one store.
    StorageFailed
        The objects cannot be read; what was made is refused as a store.
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
    manifest = _manifest_of(objects, place)
    directory = f"streams/{directory_name(manifest.name)}"
    files.make_directory(directory)
    entries = []
    for entry in manifest.segments:
        begin = f"{place}/{entry.file.removesuffix('.seg')}-"
        stubs = [key for key in keys if key.startswith(begin) and key.endswith(SUFFIX)]
        if not stubs or stubs[-1].removesuffix(SUFFIX) not in keys:
            continue
        size = objects.size(stubs[-1])
        assert size is not None
        with files.create(f"{directory}/{entry.file}{SUFFIX}") as file:
            file.write(objects.read(stubs[-1], 0, size))
            file.sync()
        entries.append(entry)
    events = sum(entry.events for entry in entries)
    last = max((entry.last for entry in entries), default=None)
    journal = replace(
        Journal.empty(manifest.schema), last=last, position=manifest.position or 0,
        events=events, identity=manifest.identity,
    )  # fmt: skip
    log = LogWriter.create(files, f"{directory}/{log_name(1)}", 1)
    log.append(RecordKind.CHECKPOINT, encode_checkpoint(journal))
    log.sync()
    log.close()
    files.sync_directory(directory)
    lost = len(manifest.segments) - len(entries)
    restored = replace(
        manifest, segments=SegmentList.of(entries), runs=(), log=1, log_bytes=None, garbage=(),
        events=events,
    )  # fmt: skip
    write_manifest(files, directory, restored.to_json())
    return manifest.name, (len(entries), lost)


def _manifest_of(objects: ObjectStore, place: str) -> StreamManifest:
    key = f"{place}/{MANIFEST}"
    size = objects.size(key)
    assert size is not None
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, MANIFEST).write_bytes(objects.read(key, 0, size))
        body = read_manifest(RealFiles(scratch), "")
    assert body is not None
    return StreamManifest.from_json(body)
