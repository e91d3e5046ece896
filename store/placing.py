"""Placing: how staged segments become part of a stream.

Where a segment goes
    ::

        base       |==== 1 ====|==== 2 ====|      |==== 3 ====|
        staged                               |A|                |=== B ===|
        staged                       |==== C ====|

    A and B meet no event that is stored: they become base segments in their place.  C overlaps and
    becomes a late run, which readers merge and compaction folds in.  Events of a job are newer than
    whatever was committed before it, and older parts of a job than later ones, where times are
    equal.

Guarantee
    A staged file keeps its name until the commit is known: it is linked under the name that it has
    in the stream, and what a commit that failed has linked is unlinked.
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
    """A sealed segment that waits for its commit."""

    part: int
    file: str
    entry: SegmentEntry


def check_staged(commits: Commits, staged: Sequence[StagedSegment]) -> None:
    """Refuse what a stream cannot take over.

    Raises
    ------
    InvalidArgument
        A staged file is gone: the job was aborted or swept.
    SchemaMismatch
        The stream's columns have changed since the job was prepared.
    """
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
    """Give the files their names in the stream; the staged names stay for another try."""
    views: dict[int, SegmentView] = {}
    for item in staged:
        path = f"{commits.directory}/{item.entry.file}"
        with suppress(FileNotFoundError):  # of a try that did not get as far as the manifest
            commits.files.remove(path)
        commits.files.link(item.file, path)
        views[item.entry.id] = open_entry(
            commits.files, commits.directory, commits.manifest, item.entry
        )
    return views


def unlink(commits: Commits, linked: dict[int, SegmentView]) -> None:
    """Take the names back, where it is known that nothing refers to them."""
    if commits.failed is not None:
        return
    for number, view in linked.items():
        view.close()
        with suppress(Exception):  # removed at the next opening if not now
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
    """A stream with the segments of a job, by its next commit, and what that does.

    Parameters
    ----------
    duplicates : int
        Events of the job that were left out.
    """
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
    """Base segments in time order with those added that meet nothing, and the new late runs."""
    own = SortedKeyList(key=lambda entry: entry.last)  # those added that fit
    late: list[SegmentEntry] = []
    for entry in added:
        neighbours: list[SegmentEntry] = []  # of those there and those added, at most one each
        behind: list[SegmentEntry] = []
        for base, at in (
            (segments, int(np.searchsorted(segments.lasts, entry.first, "right"))),
            (own, own.bisect_key_right(entry.first)),
        ):
            neighbours += [base[at - 1]] if at else []
            behind += [base[at]] if at < len(base) else []
        before = max((each.last for each in neighbours), default=None)
        newest = not behind
        # At the end equal times may touch, because what is there came first; elsewhere not.
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
    """The newest tick in order after a commit.

    A run may reach beyond the base.  An event that comes later with the run's last time must go
    behind it, so it has to count as late too.
    """
    stored = [int(segments.lasts.max())] if len(segments) else []
    newest = max(stored + ([] if last is None else [last]), default=None)
    behind = max((entry.last for entry in runs), default=None)
    if behind is None or (newest is not None and newest > behind):
        return newest
    return min(behind + 1, TICK_MAX)
