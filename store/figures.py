"""Statistics of a stream that is open for writing, for users and metrics."""

from __future__ import annotations

from typing import Any

from .commits import Commits
from .snapshot import Snapshot
from .tiering import places

__all__ = ["figures_of"]


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
