"""The commit of a manifest with its pages and log, everything durable before it is named::

    new pages, synced | new log, a checkpoint, synced | sync of the directory | manifest

On a failure new files are removed, unless the manifest may have been replaced.
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
    """Replace manifest and log; calls ``unsure`` if that may have happened on an error."""
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
            # the rename happened, but its durability is unknown
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
    if log is not None:
        log.close()
    known = {page.file for page in old.segments.pages}
    pages = [page.file for page in manifest.segments.pages if page.file not in known]
    for file in (path, *(f"{directory}/{page}" for page in pages)):
        with suppress(Exception):
            files.remove(file)


def _says(files: Files, directory: str, version: int) -> bool:
    try:
        body = read_manifest(files, directory)
    except Exception:
        return True
    return body is not None and body["version"] == version
