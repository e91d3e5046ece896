"""Tiering: which segments of a stream are due to move to objects (``mover``)::

    in objects             on the disk
    |======|======|======| |======|======|===| active |
                          ^ due: older than newest - move_after, or keep_local_bytes exceeded

Age counts from the newest event of the stream.  Late runs and the active segment stay.  The active
segment is sealed when it spans a quarter of the age and has ``StreamOptions.moved_bytes_min``, and
at an eighth of ``keep_local_bytes``, but not below that minimum, which avoids small objects.

``figures_of`` gives the statistics of a stream that is open for writing, for users and metrics.
"""

from __future__ import annotations

from typing import Any

from .catalog import StreamManifest
from .cold_file import DOOMED, MOVING, ColdFiles
from .commits import Commits
from .moving import Chosen
from .options import moving_ticks
from .segment import TICK_MIN
from .segment_list import SegmentEntry
from .snapshot import Snapshot


def due_segments(
    manifest: StreamManifest, newest: int | None, cold: frozenset[str]
) -> list[SegmentEntry]:
    """The segments to move now, oldest first; ``cold`` ones have moved."""
    age = moving_ticks(manifest.options, manifest.schema)
    size = manifest.options.local_bytes
    if age is None and size is None:
        return []
    local = [entry for entry in manifest.segments if entry.file not in cold]
    bound = TICK_MIN if age is None or newest is None else newest - age
    taken = sum(entry.bytes for entry in (*local, *manifest.runs))
    due = []
    for entry in local:
        if entry.last < bound or (size is not None and taken > size):
            due.append(entry)
            taken -= entry.bytes
    return due


def due_now(commits: Commits) -> Chosen | None:
    """The choice of due segments; None when there is nothing to move or to remove."""
    files = commits.files
    if not isinstance(files, ColdFiles):
        return None
    names = files.inner.list(commits.directory)

    def chosen(manifest: StreamManifest, newest: int | None) -> list[SegmentEntry]:
        return due_segments(manifest, newest, files.cold(commits.directory))

    with commits.lock:
        if commits.closed or commits.failed is not None:
            return None
        manifest, newest = commits.manifest, commits.journal.last
    left = any(name.endswith((DOOMED, MOVING)) for name in names)
    return chosen if left or chosen(manifest, newest) else None


def worth_moving(commits: Commits) -> bool:
    """Whether the active segment is large enough to seal it for moving; the lock is held."""
    active = commits.active
    return active is not None and active.writer.length >= commits.options.moved_bytes_min


def places(commits: Commits) -> dict[str, int]:
    """Numbers and bytes of cold and due segments, for ``stats``; the lock is held."""
    files, manifest = commits.files, commits.manifest
    cold = files.cold(commits.directory) if isinstance(files, ColdFiles) else frozenset()
    moved = [entry for entry in manifest.segments if entry.file in cold] if cold else []
    due = due_segments(manifest, commits.journal.last, cold)
    return {
        "cold_segments": len(moved),
        "cold_bytes": sum(entry.bytes for entry in moved),
        "due_segments": len(due),
        "due_bytes": sum(entry.bytes for entry in due),
    }


def figures_of(commits: Commits) -> dict[str, Any]:
    manifest, journal = commits.manifest, commits.journal
    snapshot = Snapshot(commits.published)
    active = 0 if commits.active is None else commits.active.writer.length
    stored = int(manifest.segments.bytes.sum()) + sum(entry.bytes for entry in manifest.runs)
    garbage = commits.garbage_sizes()
    return {
        "events": snapshot.count,
        "position": snapshot.version,
        "segments": len(manifest.segments) + (commits.active is not None),
        "late_runs": len(manifest.runs),
        "late_buffered": sum(batch.num_rows for batch in journal.late),
        "late_total": journal.late_total,
        "tail_events": journal.tail.rows,
        "dropped_events": snapshot.state.dropped,
        "deleted_events": manifest.deleted_events,
        "bytes": stored + active + commits.log.size,
        "log_bytes": commits.log.size,
        "log_records": commits.log.records,
        "late_events_in_runs": sum(entry.events for entry in manifest.runs),
        "garbage_files": len(garbage),
        "garbage_bytes": sum(garbage),
        "manifest_version": manifest.version,
        "dirty_ranges": snapshot.dirty_ranges(),
        **places(commits),
        **commits.figures,
    }
