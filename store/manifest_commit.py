"""Commits of a manifest: its pages, its log and itself, in an order that a crash cannot break.

Order
    ::

        new pages, synced | new log, a checkpoint, synced | sync of the directory | manifest

Guarantee
    Whatever the manifest names is durable, and its name is, before the manifest is.  Where it
    fails, what was written is removed, unless nobody can tell whether the manifest was replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from .catalog import SegmentEntry, StreamManifest, log_name
from .file_contract import Files
from .journal import Journal, RecordKind, encode_checkpoint
from .log import LogWriter
from .manifest import read_manifest, write_manifest
from .manifest_pages import write_pages
from .sealed_tree import Root

__all__ = ["commit_manifest"]


def commit_manifest(
    files: Files,
    directory: str,
    old: StreamManifest,
    manifest: StreamManifest,
    journal: Journal,
    root_of: Callable[[SegmentEntry], Root | None],
    unsure: Callable[[BaseException], None],
) -> tuple[StreamManifest, LogWriter]:
    """Replace a stream's manifest and log; gives both as they are then.

    Parameters
    ----------
    old, manifest : StreamManifest
        The one that is there, and the next one but for its pages.
    journal : Journal
        What the new log begins with.
    root_of : callable
        As :func:`~.manifest_pages.write_pages` asks.
    unsure : callable
        Told when the manifest may have been replaced though this raises.

    Raises
    ------
    StorageFull, StorageFailed
    """
    path = f"{directory}/{log_name(manifest.log)}"
    log: LogWriter | None = None
    try:
        manifest = _with_pages(files, directory, old, manifest, root_of)
        with suppress(FileNotFoundError):
            files.remove(path)
        log = LogWriter.create(files, path, manifest.log, durable=False)
        log.append(RecordKind.CHECKPOINT, encode_checkpoint(journal))
        log.sync()
        # the names of the log, the pages, and every segment made for this commit
        files.sync_directory(directory)
    except BaseException:
        _take_back(files, directory, old, manifest, log, path)
        raise
    try:
        write_manifest(files, directory, manifest.to_json())
    except BaseException as error:
        if _says(files, directory, manifest.version):
            # the rename happened, only its durability is unknown: neither state is certain
            log.close()
            unsure(error)
        else:
            _take_back(files, directory, old, manifest, log, path)
        raise
    return manifest, log


def _with_pages(
    files: Files,
    directory: str,
    old: StreamManifest,
    manifest: StreamManifest,
    root_of: Callable[[SegmentEntry], Root | None],
) -> StreamManifest:
    """A manifest whose segments are in pages, if they are many; pages that go are garbage."""
    segments = write_pages(
        files, directory, manifest.version, manifest.identity,
        manifest.segments, old.segments, root_of,
    )  # fmt: skip
    staying = {page.file for page in segments.pages}
    gone = [page.file for page in old.segments.pages if page.file not in staying]
    garbage = (*manifest.garbage, *((file, manifest.version) for file in gone))
    return replace(manifest, segments=segments, garbage=garbage)


def _take_back(
    files: Files,
    directory: str,
    old: StreamManifest,
    manifest: StreamManifest,
    log: LogWriter | None,
    path: str,
) -> None:
    """Remove what a commit that did not happen has written."""
    if log is not None:
        log.close()
    known = {page.file for page in old.segments.pages}
    pages = [page.file for page in manifest.segments.pages if page.file not in known]
    for file in (path, *(f"{directory}/{page}" for page in pages)):
        with suppress(Exception):
            files.remove(file)


def _says(files: Files, directory: str, version: int) -> bool:
    """Whether the manifest is of a version, as far as can be told."""
    try:
        body = read_manifest(files, directory)
    except Exception:
        return True
    return body is not None and body["version"] == version
