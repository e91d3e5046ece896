"""Pins: references to one version of a stream, for tasks in other processes.

A ``Pin`` carries the manifest (perhaps with pages) and the log's additions: the late buffer, the
tail, and about 150 bytes per segment, or 60 per page of 256.  ``open_pinned`` gives the same events
everywhere and always, or raises ``SnapshotExpired``.  The pin's lease keeps the files of its
version for ``ttl_seconds``, also when the process that took it ends; without write access to the
directory there is none, and a compaction or retention may end the pin early.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import CorruptStore, SnapshotExpired, StreamNotFound
from ..schema import StreamSchema
from .catalog import StreamManifest, log_name
from .file_contract import Files
from .journal import Journal, RecordKind, encode_checkpoint
from .lock import ReaderLease
from .log import read_log
from .manifest_pages import read_pages
from .recovery import Recovered, load, read_state
from .segment_list import SegmentEntry, SegmentList
from .segment_views import ViewSource, close_views
from .snapshot import Snapshot

PIN_SECONDS = 6 * 3600.0

ATTEMPTS = 20


@dataclass(frozen=True)
class Pin:
    """A version of a stream; picklable.  ``checkpoint`` is the payload of a CHECKPOINT record."""

    directory: str
    manifest: dict[str, Any]
    checkpoint: bytes
    position: int
    lease: str | None = None

    @property
    def outline(self) -> StreamManifest:
        """The manifest as an object, without segments that are in pages."""
        paged = "pages" in self.manifest
        return StreamManifest.from_json(self.manifest, SegmentList.of(()) if paged else None)


def pin_stream(
    files: Files,
    directory: str,
    *,
    position: int | None = None,
    ttl_seconds: float = PIN_SECONDS,
) -> Pin:
    """Pin the last commit, or an earlier one in its log; ``SnapshotExpired`` if it is not."""
    for _ in range(ATTEMPTS):
        try:
            first = load(files, directory)
        except FileNotFoundError:
            continue  # the writer replaced manifest and log
        version, below = first.manifest.version, first.below
        lease = ReaderLease.take(files, directory, version, ttl_seconds=ttl_seconds, below=below)
        try:
            found = load(files, directory)
        except FileNotFoundError:
            lease.release()
            continue
        if found.manifest.version != version or found.below != below:
            lease.release()
            continue
        try:
            journal = found.journal
            if position is not None and position != journal.position:
                journal = _earlier(files, directory, found, position)
            manifest = _floored(files, directory, found.manifest, journal)
        except FileNotFoundError:
            lease.release()
            continue
        path = lease.path
        lease.detach()
        return Pin(
            directory,
            manifest.to_json(),
            b"".join(bytes(part) for part in encode_checkpoint(journal)),
            journal.position,
            path,
        )
    raise CorruptStore(f"{directory}: the log that the manifest names is missing")


def _floored(
    files: Files, directory: str, manifest: StreamManifest, journal: Journal
) -> StreamManifest:
    """The manifest with the floor of a commit: tasks read only some of its segments."""
    if manifest.options.retention is None:
        return manifest
    source = ViewSource(files, directory, manifest)
    state = read_state(files, directory, manifest, journal, source)
    try:
        return replace(manifest, floor=state.floor)
    finally:
        close_views(state.segments, state.runs)


def _earlier(files: Files, directory: str, found: Recovered, position: int) -> Journal:
    path = f"{directory}/{log_name(found.manifest.log)}"
    records = [(record.kind, record.payload) for record in read_log(files, path).records]
    schema = found.manifest.schema
    oldest = Journal.replay(records[:1], schema, path).position
    if not oldest <= position <= found.journal.position:
        raise SnapshotExpired(
            f"the stream {found.manifest.name!r} can be read as of the commits {oldest} to "
            f"{found.journal.position}, found {position}"
        )
    for count in range(1, len(records) + 1):  # almost always one commit per record
        at = min(len(records), position - oldest + count)
        journal = Journal.replay(records[:at], schema, path)
        if journal.position == position:
            return journal
    raise CorruptStore(f"{path} has no record of commit {position}; run `chronicle check`")


def journal_of(pin: Pin) -> Journal:
    schema = StreamSchema.from_json(pin.manifest["schema"])
    records = [(int(RecordKind.CHECKPOINT), memoryview(pin.checkpoint))]
    return Journal.replay(records, schema, pin.directory)


def below_of(pin: Pin) -> int:
    """Upper bound (exclusive) of the counters of a pin's own segments."""
    return Recovered(pin.outline, journal_of(pin), 0, 0, False).below


def catalog_of(files: Files, pin: Pin) -> StreamManifest:
    """The manifest of a pin with all segments; ``SnapshotExpired`` when a page is gone."""
    body = pin.manifest
    if "pages" not in body:
        return StreamManifest.from_json(body)
    try:
        segments = read_pages(files, pin.directory, body["pages"], pin.outline.identity)
    except FileNotFoundError as error:
        raise _expired(pin, error) from None
    return StreamManifest.from_json(body, segments)


def _expired(pin: Pin, error: FileNotFoundError) -> SnapshotExpired:
    return SnapshotExpired(
        f"commit {pin.position} of the stream {pin.manifest['name']!r} is no longer kept: "
        f"{error.filename or error} is gone after a compaction, retention or truncation; plan "
        "the read again (in Spark: load() again)"
    )


def open_pinned(
    files: Files, pin: Pin, start: int | None = None, end: int | None = None
) -> Snapshot:
    """Open a pinned version with at least the events of [start, end), in any process."""
    if not files.exists(pin.directory):
        raise StreamNotFound(f"{pin.directory} is gone: the stream was dropped")
    manifest = catalog_of(files, pin)
    journal = journal_of(pin)

    def meets(entry: SegmentEntry) -> bool:
        return (start is None or entry.last >= start) and (end is None or entry.first < end)

    segments = manifest.segments
    found = np.ones(len(segments), np.bool_)
    if start is not None:
        found &= segments.lasts >= start
    if end is not None:
        found &= segments.firsts < end
    wanted = replace(
        manifest,
        segments=manifest.segments.where(found),
        runs=tuple(entry for entry in manifest.runs if meets(entry)),
    )
    try:
        source = ViewSource(files, pin.directory, wanted)
        if source.eager or not source.keep(ReaderLease.take(files, pin.directory, wanted.version)):
            source.open_all()
        else:
            source.check_there()
        state = read_state(files, pin.directory, wanted, journal, source, pinned=True)
    except FileNotFoundError as error:
        raise _expired(pin, error) from None
    return Snapshot(state)
