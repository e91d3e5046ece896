"""Replacing: a job in the place of a range of times, by one commit.

Purpose
    :func:`replace_range` takes the events of a range out and places staged segments there.

Guarantee
    Readers see what was, or what is instead, and never a mixture; after any accident, too.  Taken
    out is what was committed when it began: late events that come into the range meanwhile stay,
    before new ones of their tick.

Why it works
    It is a delete (:mod:`.deleting`) whose manifest also names the staged segments. ::

        base     |==== 1 ====|==== 2 ====|==== 3 ====|== active ==| tail
        range          |-------------------|
        staged         |== A ==|== B ==|
        after    |= 4 =|== A ==|== B ==|   |== 5 ====|== 6 =======| tail of what came meanwhile

Limits
    Those of a delete.  What has come meanwhile is sealed at the commit, which is one more of no
    consequence to readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..core.times import time_text
from ..errors import InvalidArgument
from .bulk_duplicates import Sift, snapshot_of
from .bulk_jobs import BulkCommit, committed
from .commits import Commits
from .edit import Edit
from .placing import StagedSegment, check_staged, link, placed, unlink
from .segment import SegmentView
from .stream import EventStream
from .tap import united

__all__ = ["replace_range"]


class _Repeated(Exception):
    """The job has been committed before."""

    def __init__(self, earlier: BulkCommit) -> None:
        super().__init__()
        self.earlier = earlier


def replace_range(
    stream: EventStream,
    over: tuple[int, int],
    job: str,
    staged: Sequence[StagedSegment],
    application: str | None,
    version: int | None,
    sift: Sift,
) -> BulkCommit | None:
    """Commit a job in the place of a range; None where that holds no event to take out.

    Parameters
    ----------
    over : (int, int)
        Ticks, inclusive.
    job, staged, application, version
        As for :func:`~.staging.commit_staged`.
    sift : callable
        Takes duplicates out of the job.

    Raises
    ------
    InvalidArgument
        A staged event is not in the range, or its file is gone; nothing is committed.
    SchemaMismatch
    StorageFull, StorageFailed, ResourceLimit
        As of a delete: nothing has changed.
    """
    first, last = over
    for entry in (item.entry for item in staged):
        if entry.first < first or entry.last > last:
            raise InvalidArgument(
                "only what lies in the range that is replaced can be written: it is "
                f"{_range(stream, first, last)}, found events from "
                f"{_range(stream, entry.first, entry.last)}; nothing was committed"
            )
    coming = _Replacement(stream.commits, job, staged, application, version, sift)
    try:
        with stream.commits.lock:
            coming.check()
        stream.replace(first, last, coming)
    except _Repeated as repeated:
        return repeated.earlier
    except BaseException:
        if not coming.done:
            unlink(stream.commits, coming.linked)
        raise
    return coming.result if coming.done else None


def _range(stream: EventStream, first: int, last: int) -> str:
    """Ticks, inclusive, for people."""
    schema = stream.schema
    if schema.time_unit is None:
        return f"{first} to {last}"
    return f"{time_text(first, schema.time_type)} to {time_text(last, schema.time_type)}"


class _Replacement:
    """A job that comes with a delete, as :class:`~.deleting.Addition` has it.

    Attributes
    ----------
    linked : dict of int to SegmentView
        Its segments under their names in the stream.
    done : bool
    result : BulkCommit or None
        What the commit does.
    """

    def __init__(
        self,
        commits: Commits,
        job: str,
        staged: Sequence[StagedSegment],
        application: str | None,
        version: int | None,
        sift: Sift,
    ) -> None:
        self._sift = sift
        self._commits = commits
        self._job = job
        self._staged = staged
        self._application = application
        self._version = version
        self.spans = united(tuple((item.entry.first, item.entry.last) for item in staged))
        self.late = 0
        self.linked: dict[int, SegmentView] = {}
        self.done = False
        self.result: BulkCommit | None = None

    def check(self) -> None:
        """Whether it is to be committed; the lock is held."""
        jobs = self._commits.manifest.jobs
        earlier = committed(jobs, self._job, self._application, self._version)
        if earlier is not None:
            raise _Repeated(earlier)
        check_staged(self._commits, self._staged)

    def join(self, commits: Commits, edit: Edit) -> Edit:
        """Place the segments among those that a delete leaves."""
        assert edit.manifest is not None
        self.check()
        segments, runs = (
            [edit.views.get(entry.id) or commits.views.view(entry) for entry in entries]
            for entries in (edit.manifest.segments, edit.manifest.runs)
        )
        beside = snapshot_of(edit.manifest.schema, segments, runs)
        staged, duplicates = self._sift(self._staged, beside)
        self.linked = link(commits, staged)
        journal, manifest, self.result = placed(
            edit.manifest, commits.journal, self._job, staged,
            self._application, self._version, duplicates,
        )  # fmt: skip
        assert journal.position == edit.journal.position
        self.late = self.result.late
        added = {**edit.views, **self.linked}
        return replace(edit, journal=journal, manifest=manifest, views=added)

    def applied(self) -> None:
        """It has happened."""
        self.done = True
