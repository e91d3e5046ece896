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

from ..errors import ChronicleError, CorruptStore, StreamNotFound
from .bulk_jobs import truncated_at
from .catalog import (
    COUNTER_MASK,
    SegmentEntry,
    StreamManifest,
    directory_name,
    log_name,
    segment_name,
)
from .file_contract import Files
from .journal import Journal
from .log import LogContents, read_log
from .manifest import MANIFEST, read_manifest
from .segment import SegmentFile, SegmentView
from .snapshot import StreamState
from .tail import MemoryLeaf, Tail

__all__ = [
    "Recovered",
    "journal_from",
    "load",
    "load_for_reading",
    "lost_manifest",
    "open_entry",
    "state_of",
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
    if body is None and lost_manifest(files, directory):
        raise CorruptStore(f"{directory} holds events, and its {MANIFEST} is missing")
    if body is None:
        raise StreamNotFound(f"{directory} holds no stream")
    try:
        manifest = StreamManifest.from_json(body)
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
    """Read manifest and log of a stream.

    Raises
    ------
    StreamNotFound
        When the directory has no manifest.
    CorruptStore
        When what is there contradicts itself.
    """
    manifest = stream_manifest(files, directory)
    path = f"{directory}/{log_name(manifest.log)}"
    contents = read_log(files, path)
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


def open_entry(
    files: Files,
    directory: str,
    manifest: StreamManifest,
    entry: SegmentEntry,
    *,
    as_written: bool = False,
) -> SegmentView:
    """Open a sealed segment or late run that a manifest names.

    Parameters
    ----------
    as_written : bool
        With the columns that it was written with, for who looks at what is stored.
    """
    path = f"{directory}/{entry.file}"
    how = manifest.read_as(entry)
    evolution = None if as_written else how.evolution
    view = SegmentView.open_sealed(files, path, entry.id, how.schema, how.written, evolution)
    if (view.events, view.first, view.last) != (entry.events, entry.first, entry.last):
        raise CorruptStore(
            f"{path} holds {view.events} events from {view.first} to {view.last}; the manifest "
            f"says {entry.events} from {entry.first} to {entry.last}; run `chronicle check`"
        )
    return view


def state_of(
    manifest: StreamManifest,
    journal: Journal,
    segments: tuple[SegmentView, ...],
    runs: tuple[SegmentView, ...],
    active: SegmentView | None,
    late: tuple[MemoryLeaf, ...] | None = None,
) -> StreamState:
    """Put the pieces of a stream together.

    Parameters
    ----------
    late : tuple of MemoryLeaf, optional
        The late buffer as leaves, where they exist already.
    """
    tail: Tail = journal.tail
    rows = tail.rows
    if late is None:
        late = tuple(MemoryLeaf(batch, manifest.schema) for batch in journal.late)
    base = (*segments, active) if active is not None and active.events else segments
    return StreamState(
        manifest.schema,
        journal.position,
        manifest.version,
        base,
        runs,
        late,
        (lambda: tail.leaf(rows)) if rows else None,
        rows,
        manifest.dropped_events,
        journal.last,
        sum(view.events for view in (*base, *runs)),
        manifest.deleted_events,
        manifest.deletions.newest,
        manifest.dropped_before,
        truncated_at(manifest.jobs),
        journal.marks,
    )


def load_for_reading(files: Files, directory: str) -> tuple[StreamManifest, StreamState]:
    """Open a stream without being its writer: its state at the last commit.

    Every file of the state is open when this returns, so the writer may remove them.
    """
    for attempt in range(ATTEMPTS):
        views: list[SegmentView] = []
        try:
            found = load(files, directory)
            manifest, journal = found.manifest, found.journal
            for entry in (*manifest.segments, *manifest.runs):
                view = open_entry(files, directory, manifest, entry)
                views.append(view)  # one by one: a failure closes those before
            active = None
            if journal.extent is not None:
                path = f"{directory}/{segment_name(journal.extent.segment_id)}"
                file = SegmentFile(files, path, journal.extent.segment_id, manifest.schema)
                active = SegmentView.open_extent(file, journal.extent)
        except FileNotFoundError as error:
            for view in views:
                view.close()
            if attempt == ATTEMPTS - 1:
                raise CorruptStore(f"{directory} names a file that is missing: {error}") from error
            continue
        count = len(manifest.segments)
        return manifest, state_of(
            manifest, journal, tuple(views[:count]), tuple(views[count:]), active
        )
    raise AssertionError("unreachable")
