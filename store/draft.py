"""Drafts: segments that are written for an edit, and rolled back when their block raises."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Self

from .commits import Commits, Edit
from .segment import SegmentView
from .segment_list import SegmentEntry
from .segment_writer import SegmentWriter
from .tail import Tail


class Draft:
    """A context for writing segments; the caller holds the stream's lock."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._first_id = commits.next_id
        self._mark = None if commits.active is None else commits.active.writer.mark()
        self.active = commits.active
        self.entries: list[SegmentEntry] = []
        self.views: dict[int, SegmentView] = {}

    @property
    def begun(self) -> bool:
        return self._commits.next_id != self._first_id

    def writer(self) -> SegmentWriter:
        if self.active is None:
            self.active = self._commits.new_segment()
        return self.active.writer

    def seal(self) -> None:
        assert self.active is not None
        writer, self.active = self.active.writer, None
        entry, view = self._commits.seal_writer(writer)
        self.entries.append(entry)
        self.views[entry.id] = view

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._commits.failed is None:
            self._commits.take_back(self.active, self._mark, self._first_id)


def seal(commits: Commits) -> None:
    """Write the tail and seal the active segment; no-op on an empty stream."""
    tail = commits.journal.tail
    if commits.active is None and not tail.rows:
        return
    with Draft(commits) as draft:
        writer = draft.writer()
        if tail.rows:
            writer.write(tail.batch())
        draft.seal()
        manifest, journal = commits.manifest, commits.journal
        commits.apply(
            Edit(
                replace(journal, extent=None, tail=Tail(commits.schema)),
                None,
                replace(manifest, segments=manifest.segments.grown(draft.entries)),
                draft.views,
            )
        )
