"""Recovery: from the files of a stream to its state at the last commit, for writers and readers.

The cost is bounded by the tail: the manifest, the log and the heads of at most one unfinished
node's children per level are read.  Only the writer then cuts a torn tail and removes leftovers.

============================================  ===============================================
found after a crash                           taken for
============================================  ===============================================
log with a torn record at its end             the commit did not happen: state before it
segment longer than the log's extent          leaves of a commit that did not happen: ignored
segment files or logs that nothing names      of a commit that did not happen, or garbage
segment shorter than the log's extent         corruption: the log is written after the sync
============================================  ===============================================
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import Any

from ..errors import ChronicleError, CorruptStore, StreamNotFound
from .catalog import MANIFEST, StreamManifest, directory_name, log_name, read_manifest
from .file_contract import Files
from .floor import Floors, Hold
from .journal import Journal
from .lock import ReaderLease
from .log import LogContents, read_log
from .manifest_pages import read_pages
from .segment import SegmentView
from .segment_file import SegmentFile
from .segment_list import COUNTER_BITS, COUNTER_MASK, segment_name
from .segment_views import ViewSource
from .snapshot import StreamState

ATTEMPTS = 20


@dataclass(frozen=True)
class Recovered:
    """A stream according to its files; ``torn``: invalid bytes follow ``log_length``."""

    manifest: StreamManifest
    journal: Journal
    log_length: int
    log_records: int
    torn: bool

    @property
    def below(self) -> int:
        """Upper bound (exclusive) of the counters of the stream's own segments."""
        below = self.manifest.next_id
        if self.journal.extent is not None:
            below = max(below, self.journal.extent.segment_id + 1)
        return below & COUNTER_MASK


def lost_manifest(files: Files, directory: str) -> bool:
    """Whether a directory without a manifest has events, unlike an interrupted creation."""
    try:
        names = files.list(directory)
        if MANIFEST in names or any(name.endswith(".seg") for name in names):
            return MANIFEST not in names
        logs = [name for name in names if name.endswith(".wal")]
        return any(
            name != log_name(1) or len(read_log(files, f"{directory}/{name}").records) > 1
            for name in logs
        )
    except (FileNotFoundError, NotADirectoryError):
        return False
    except CorruptStore:
        return True


def stream_manifest(files: Files, directory: str) -> StreamManifest:
    """The manifest of a stream; ``StreamNotFound`` without, ``CorruptStore`` if damaged."""
    body = read_manifest(files, directory)
    while body is not None:
        try:
            return _with_segments(files, directory, body)
        except FileNotFoundError as error:  # a page: the manifest was replaced or is corrupt
            again = read_manifest(files, directory)
            if again == body:
                raise CorruptStore(f"{directory}/{MANIFEST} names a page: {error}") from error
            body = again
    if lost_manifest(files, directory):
        raise CorruptStore(f"{directory} holds events, and its {MANIFEST} is missing")
    raise StreamNotFound(f"{directory} holds no stream")


def _with_segments(files: Files, directory: str, body: dict[str, Any]) -> StreamManifest:
    try:
        segments = None
        if "pages" in body:
            identity = body["next_id"] >> COUNTER_BITS
            segments = read_pages(files, directory, body["pages"], identity)
        manifest = StreamManifest.from_json(body, segments)
    except CorruptStore:
        raise
    except (KeyError, TypeError, ValueError, ChronicleError) as error:
        raise CorruptStore(
            f"{directory}/{MANIFEST} hashes right but misses something: {error!r}"
        ) from error
    if manifest.renaming is not None:  # after a crash, the directory's name decides
        now = directory_name(manifest.renaming) == posixpath.basename(directory)
        manifest = replace(
            manifest, name=manifest.renaming if now else manifest.name, renaming=None
        )
    if directory_name(manifest.name) != posixpath.basename(directory):
        raise CorruptStore(
            f"{directory}/{MANIFEST} is that of the stream {manifest.name!r}: directories or "
            "manifests were swapped"
        )
    return manifest


def load(files: Files, directory: str) -> Recovered:
    """Manifest and log of a stream; retries when the writer replaces them."""
    manifest = stream_manifest(files, directory)
    while True:
        path = f"{directory}/{log_name(manifest.log)}"
        try:
            contents = read_log(files, path)
            break
        except FileNotFoundError:
            before, manifest = manifest, stream_manifest(files, directory)
            if manifest.log == before.log:
                raise
    journal = journal_from(contents, manifest, path)
    return Recovered(manifest, journal, contents.valid_length, len(contents.records), contents.torn)


def journal_from(contents: LogContents, manifest: StreamManifest, path: str) -> Journal:
    """Replay the log that a manifest names; ``CorruptStore`` if it is another or damaged."""
    if contents.valid_length < (manifest.log_bytes or 0):
        raise CorruptStore(
            f"{path} is sound up to byte {contents.valid_length}; it had {manifest.log_bytes} when "
            "the stream was closed: it was cut or damaged since"
        )
    if contents.records and contents.sequence != manifest.log:
        raise CorruptStore(f"{path} is log {contents.sequence}, expected {manifest.log}")
    journal = Journal.replay(
        ((record.kind, record.payload) for record in contents.records), manifest.schema, path
    )
    if journal.identity and manifest.identity and journal.identity != manifest.identity:
        raise CorruptStore(
            f"{path} is the log of another stream ({journal.identity}, expected "
            f"{manifest.identity}): files were swapped"
        )
    return journal


def load_for_reading(files: Files, directory: str) -> tuple[StreamManifest, StreamState]:
    """Manifest and state at the last commit; the state holds open files or a lease."""
    for attempt in range(ATTEMPTS):
        try:
            loaded = load(files, directory)
            source = ViewSource(files, directory, loaded.manifest)
            if source.eager or not source.keep(leased(files, directory, loaded)):
                source.open_all()
            state = read_state(files, directory, loaded.manifest, loaded.journal, source)
        except FileNotFoundError as error:
            if attempt == ATTEMPTS - 1:
                raise CorruptStore(f"{directory} names a file that is missing: {error}") from error
            continue
        return loaded.manifest, state
    raise AssertionError("unreachable")


def read_state(
    files: Files,
    directory: str,
    manifest: StreamManifest,
    journal: Journal,
    source: ViewSource,
    *,
    pinned: bool = False,
) -> StreamState:
    """The state of a manifest and a log for reading; ``pinned``: use the manifest's floor."""
    active = None
    if journal.extent is not None:
        path = f"{directory}/{segment_name(journal.extent.segment_id)}"
        file = SegmentFile(files, path, journal.extent.segment_id, manifest.schema)
        active = SegmentView.open_extent(file, journal.extent)
    written = active if active is not None and active.events else None
    hold = None if manifest.hold is None else Hold(*manifest.hold)
    return Floors().state(manifest, journal, source, written, lambda: hold, pinned=pinned)


def leased(
    files: Files, directory: str, loaded: Recovered, ttl_seconds: float | None = None
) -> ReaderLease:
    """A lease of what was loaded; ``FileNotFoundError`` if the writer has replaced it meanwhile."""
    version = loaded.manifest.version
    lease = ReaderLease.take(files, directory, version, ttl_seconds, below=loaded.below)
    body = read_manifest(files, directory)
    if body is None or body.get("version") != version:
        lease.release()
        raise FileNotFoundError(f"{directory}: version {version} of its manifest was replaced")
    return lease
