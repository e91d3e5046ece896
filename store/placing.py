"""Placing: how staged segments become part of a stream::

    base       |==== 1 ====|==== 2 ====|      |==== 3 ====|
    staged                               |A|                |=== B ===|
    staged                       |==== C ====|

A and B overlap no stored event: they become base segments.  C overlaps and becomes a late run.  At
equal times, events of a job come after all that was committed before it, and later parts of a job
after earlier ones.  A staged file keeps its name until the outcome of the commit is known: it is
linked under its name in the stream, and unlinked when the commit fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from sortedcontainers import SortedKeyList

from ..errors import InvalidArgument, SchemaMismatch
from .bulk_jobs import BulkCommit, remembered
from .catalog import SegmentEntry, SegmentList, StreamManifest, segment_name
from .commits import Commits
from .journal import Journal
from .segment import TICK_MAX, SegmentView
from .segment_views import open_entry

__all__ = ["StagedSegment", "check_staged", "link", "placed", "unlink"]


@dataclass(frozen=True)
class StagedSegment:
    part: int
    file: str
    entry: SegmentEntry


def check_staged(commits: Commits, staged: Sequence[StagedSegment]) -> None:
    """Refuse missing files, and segments with other columns than the stream's."""
    manifest = commits.manifest
    for item in staged:
        layout, schema = item.entry.layout, manifest.schema
        if layout < len(manifest.layouts):
            schema = manifest.layouts[layout].written
        columns = len(schema.names)
        if item.entry.columns > columns or layout > len(manifest.layouts):
            raise SchemaMismatch(
                f"the staged segment {item.file} has {item.entry.columns} columns, the stream "
                f"{manifest.name!r} has {columns}; start the job again"
            )
        if not commits.files.exists(item.file):
            raise InvalidArgument(
                f"the staged segment {item.file} is gone: the job was aborted, or swept after a "
                "day; nothing was committed, start the job again"
            )


def link(commits: Commits, staged: Sequence[StagedSegment]) -> dict[int, SegmentView]:
    """Link staged files under their names in the stream; the staged names stay for a retry."""
    views: dict[int, SegmentView] = {}
    for item in staged:
        path = f"{commits.directory}/{item.entry.file}"
        with suppress(FileNotFoundError):  # of an attempt that failed before its manifest
            commits.files.remove(path)
        commits.files.link(item.file, path)
        views[item.entry.id] = open_entry(
            commits.files, commits.directory, commits.manifest, item.entry
        )
    return views


def unlink(commits: Commits, linked: dict[int, SegmentView]) -> None:
    if commits.failed is not None:
        return
    for number, view in linked.items():
        view.close()
        with suppress(Exception):  # the next opening removes it otherwise
            commits.files.remove(f"{commits.directory}/{segment_name(number)}")


def placed(
    manifest: StreamManifest,
    journal: Journal,
    job: str,
    staged: Sequence[StagedSegment],
    application: str | None,
    version: int | None,
    duplicates: int,
) -> tuple[Journal, StreamManifest, BulkCommit]:
    """Journal and manifest after the commit of a job's segments, and the commit's result."""
    segments, runs = _by_time(manifest.segments, manifest.runs, [item.entry for item in staged])
    late = sum(entry.events for entry in runs)
    position = journal.position + 1
    result = BulkCommit(
        sum(item.entry.events for item in staged),
        late,
        len(staged) - len(runs),
        len(runs),
        position,
        duplicates=duplicates,
    )
    journal = replace(
        journal,
        position=position,
        last=_newest(journal.last, segments, runs),
        late_total=journal.late_total + late,
    )
    jobs = remembered(manifest.jobs, job, result, application, version)
    manifest = replace(manifest, segments=segments, runs=(*manifest.runs, *runs), jobs=jobs)
    return journal, manifest, result


def _by_time(
    segments: SegmentList,
    runs: tuple[SegmentEntry, ...],
    added: Sequence[SegmentEntry],
) -> tuple[SegmentList, list[SegmentEntry]]:
    """Base segments in time order with the added ones that overlap nothing, and new late runs."""
    own = SortedKeyList(key=lambda entry: entry.last)  # added segments that fit
    late: list[SegmentEntry] = []
    for entry in added:
        neighbours: list[SegmentEntry] = []  # at most one stored and one added
        behind: list[SegmentEntry] = []
        for base, at in (
            (segments, int(np.searchsorted(segments.lasts, entry.first, "right"))),
            (own, own.bisect_key_right(entry.first)),
        ):
            neighbours += [base[at - 1]] if at else []
            behind += [base[at]] if at < len(base) else []
        before = max((each.last for each in neighbours), default=None)
        newest = not behind
        # Equal times may touch only at the end, since stored events came first.
        fits = all(entry.last < each.first for each in behind) and (
            before is None or before < entry.first or (newest and before == entry.first)
        )
        if fits and not any(
            run.first <= entry.last and entry.first <= run.last for run in (*runs, *late)
        ):
            own.add(entry)
        else:
            late.append(entry)
    joined = segments.after(own)
    return joined.ordered(np.argsort(joined.lasts, kind="stable")), late


def _newest(last: int | None, segments: SegmentList, runs: Sequence[SegmentEntry]) -> int | None:
    """The newest in-order tick after a commit.  A later event with the last time of a run beyond
    the base must go behind it, so it has to count as late.
    """
    stored = [int(segments.lasts.max())] if len(segments) else []
    newest = max(stored + ([] if last is None else [last]), default=None)
    behind = max((entry.last for entry in runs), default=None)
    if behind is None or (newest is not None and newest > behind):
        return newest
    return min(behind + 1, TICK_MAX)
