"""Replacing a time range by a bulk-load job, in one commit: a delete that names staged segments::

    base     |==== 1 ====|==== 2 ====|==== 3 ====|== active ==| tail
    range          |-------------------|
    staged         |== A ==|== B ==|
    after    |= 4 =|== A ==|== B ==|   |== 5 ====|== 6 =======| tail of later events

The events removed are those committed when it began: late events that arrive in the range meanwhile
stay, before new ones of their tick.
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
    """Commit a job in place of an inclusive tick range; None if that range is empty."""
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
    schema = stream.schema
    if schema.time_unit is None:
        return f"{first} to {last}"
    return f"{time_text(first, schema.time_type)} to {time_text(last, schema.time_type)}"


class _Replacement:
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
        jobs = self._commits.manifest.jobs
        earlier = committed(jobs, self._job, self._application, self._version)
        if earlier is not None:
            raise _Repeated(earlier)
        check_staged(self._commits, self._staged)

    def join(self, commits: Commits, edit: Edit) -> Edit:
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
        self.done = True
