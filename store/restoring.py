"""Restores a store whose disk is lost, from the manifests, pages and stubs beside its objects.

The new store has, of each stream, the segments whose objects exist, as of the last move; their
bytes stay in the objects.  Data that was only on the disk (the newest events, late runs, indexes,
live queries, tokens) is lost.  The lost store must not be used again beside the restored one: both
would remove objects.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from ..errors import CorruptBlock, CorruptStore, InvalidArgument, StorageFailed
from .backup import begin_unfinished
from .catalog import COUNTER_BITS, SegmentList, StreamManifest, directory_name, log_name
from .cold_stub import SUFFIX
from .files import RealFiles
from .journal import Journal, RecordKind, encode_checkpoint
from .log import LogWriter
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
from .sealed_tree import Root
from .store import UNFINISHED, Store

__all__ = ["Restored", "holds_segments", "restore_store"]

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
    log = LogWriter.create(files, f"{directory}/{log_name(1)}", 1)
    log.append(RecordKind.CHECKPOINT, encode_checkpoint(journal))
    log.sync()
    log.close()
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
