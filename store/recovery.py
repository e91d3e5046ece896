"""Recovery: from the files of a stream to its state at the last commit.

Purpose
    Shared by the writer, which goes on from there, and by readers in other processes, which look
    at it.

Guarantee
    Bounded by the tail: the manifest, the log and the heads of at most one unfinished node's
    children per level are read; never the stream.  Nothing is changed: cutting a torn tail off and
    removing what a crash has left over is the writer's business.

States that a crash may leave
    ============================================  ===============================================
    found                                         taken for
    ============================================  ===============================================
    log with a torn record at its end             the commit did not happen: state before it
    segment longer than the log's extent          leaves of a commit that did not happen: ignored
    segment files or logs that nothing names      of a commit that did not happen, or garbage
    segment shorter than the log's extent         corruption: the log is written after the sync
    ============================================  ===============================================

Concurrency
    A writer may replace the manifest and remove the log while a reader looks:
    :func:`load_for_reading` then starts again with the new manifest.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import Any

from ..errors import ChronicleError, CorruptStore, StreamNotFound
from .catalog import (
    COUNTER_BITS,
    COUNTER_MASK,
    StreamManifest,
    directory_name,
    log_name,
    segment_name,
)
from .file_contract import Files
from .floor import Floors
from .journal import Journal
from .lock import ReaderLease
from .log import LogContents, read_log
from .manifest import MANIFEST, read_manifest
from .manifest_pages import read_pages
from .retention import Hold
from .segment import SegmentFile, SegmentView
from .segment_views import ViewSource
from .snapshot import StreamState

__all__ = [
    "Recovered",
    "journal_from",
    "load",
    "load_for_reading",
    "lost_manifest",
    "read_state",
    "stream_manifest",
]

ATTEMPTS = 20


@dataclass(frozen=True)
class Recovered:
    """A stream as its files tell it.

    Attributes
    ----------
    log_length : int
        Bytes of the log up to its last valid record.
    torn : bool
        Whether something invalid follows them.
    """

    manifest: StreamManifest
    journal: Journal
    log_length: int
    log_records: int
    torn: bool

    @property
    def below(self) -> int:
        """No segment that the stream has begun so far has this number or a higher one."""
        below = self.manifest.next_id
        if self.journal.extent is not None:
            below = max(below, self.journal.extent.segment_id + 1)
        return below & COUNTER_MASK


def lost_manifest(files: Files, directory: str) -> bool:
    """Whether a directory without a manifest holds events all the same.

    A creation that was cut short leaves none: at most the first log, with a checkpoint and no more.
    """
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
    """The manifest of a stream.

    Raises
    ------
    StreamNotFound
        When the directory has none.
    CorruptStore
        When it is damaged, lost, or not that of this directory.
    """
    body = read_manifest(files, directory)
    while body is not None:
        try:
            return _with_segments(files, directory, body)
        except FileNotFoundError as error:  # of a page: the manifest has been replaced, or
            again = read_manifest(files, directory)
            if again == body:
                raise CorruptStore(f"{directory}/{MANIFEST} names a page: {error}") from error
            body = again
    if lost_manifest(files, directory):
        raise CorruptStore(f"{directory} holds events, and its {MANIFEST} is missing")
    raise StreamNotFound(f"{directory} holds no stream")


def _with_segments(files: Files, directory: str, body: dict[str, Any]) -> StreamManifest:
    """A manifest with what its pages say.

    Raises
    ------
    FileNotFoundError
        A page is not there.
    CorruptStore
    """
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
    if manifest.renaming is not None:  # a crash: the directory says whether it came to that
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
    """Read manifest and log of a stream, which its writer may replace meanwhile.

    Raises
    ------
    StreamNotFound
        When the directory has no manifest.
    FileNotFoundError
        When the log that the manifest names is missing.
    CorruptStore
        When what is there contradicts itself.
    """
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
    """What a log says, if it is the one that a manifest names.

    Raises
    ------
    CorruptStore
        When it is another stream's, or another log of this one; or says what cannot be.
    """
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
    """Open a stream without being its writer: its state at the last commit.

    The writer may remove what the state names: of a stream of few segments every file is open when
    this returns, of a larger one the state holds a lease, or where none can be had everything is
    opened, too.
    """
    for attempt in range(ATTEMPTS):
        try:
            found = load(files, directory)
            source = ViewSource(files, directory, found.manifest)
            if source.eager or not source.keep(_leased(files, directory, found)):
                source.open_all()
            state = read_state(files, directory, found.manifest, found.journal, source)
        except FileNotFoundError as error:
            if attempt == ATTEMPTS - 1:
                raise CorruptStore(f"{directory} names a file that is missing: {error}") from error
            continue
        return found.manifest, state
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
    """What a manifest and a log tell, for reading; the active segment is open then.

    ``pinned``: the manifest says where its floor is (:mod:`.floor`).
    """
    active = None
    if journal.extent is not None:
        path = f"{directory}/{segment_name(journal.extent.segment_id)}"
        file = SegmentFile(files, path, journal.extent.segment_id, manifest.schema)
        active = SegmentView.open_extent(file, journal.extent)
    written = active if active is not None and active.events else None
    hold = None if manifest.hold is None else Hold(*manifest.hold)
    return Floors().state(manifest, journal, source, written, lambda: hold, pinned=pinned)


def _leased(files: Files, directory: str, found: Recovered) -> ReaderLease:
    """A lease of what a load has found.

    Raises
    ------
    FileNotFoundError
        It was replaced before it could be had.
    """
    version = found.manifest.version
    lease = ReaderLease.take(files, directory, version, below=found.below)
    body = read_manifest(files, directory)
    if body is None or body.get("version") != version:
        lease.release()
        raise FileNotFoundError(f"{directory}: version {version} of its manifest was replaced")
    return lease
