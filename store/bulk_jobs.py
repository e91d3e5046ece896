"""Bulk-load jobs in a stream's manifest, so that each is committed once.  ``jobs`` has by name::

job:<name>          figures of the commit of one of the latest ``JOBS_REMEMBERED`` jobs
app:<application>   the same of an application's last version, with that version
truncated           commit position of the last truncation
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["BulkCommit", "committed", "remembered", "truncated_at"]

JOBS_REMEMBERED = 256


@dataclass(frozen=True)
class BulkCommit:
    """Result of a commit of staged segments: ``events`` of which ``late`` went to ``runs``, and
    base ``segments``, at a commit ``position``.  ``repeated``: the figures of an earlier commit of
    the job.  ``duplicates`` were left out.
    """

    events: int
    late: int
    segments: int
    runs: int
    position: int
    repeated: bool = False
    duplicates: int = 0


def committed(
    jobs: dict[str, Any], job: str, application: str | None = None, version: int | None = None
) -> BulkCommit | None:
    """The earlier commit of a job or of an application's version; None without one."""
    found = jobs.get(f"job:{job}")
    if found is None and application is not None and version is not None:
        last = jobs.get(f"app:{application}")
        if last is not None and last["version"] >= version:
            found = last
    if found is None:
        return None
    figures = {name: found[name] for name in ("events", "late", "segments", "runs", "position")}
    return BulkCommit(**figures, repeated=True, duplicates=found.get("duplicates", 0))


def truncated_at(jobs: dict[str, Any]) -> int:
    """Commit position of a stream's last truncation; 0 without one."""
    return int(jobs.get("truncated", {"position": 0})["position"])


def remembered(
    jobs: dict[str, Any],
    job: str,
    result: BulkCommit,
    application: str | None,
    version: int | None,
) -> dict[str, Any]:
    record = {
        "events": result.events,
        "late": result.late,
        "segments": result.segments,
        "runs": result.runs,
        "position": result.position,
    }
    if result.duplicates:
        record["duplicates"] = result.duplicates
    kept = dict(jobs)
    if application is not None and version is not None:
        kept[f"app:{application}"] = {**record, "version": version}
    kept[f"job:{job}"] = record
    names = sorted(
        (name for name in kept if name.startswith("job:")), key=lambda name: kept[name]["position"]
    )
    for name in names[:-JOBS_REMEMBERED]:
        del kept[name]
    return kept
