"""Drafts: segments that are being written for an edit, and how they are taken back.

Guarantee
    A draft goes on with the active segment, and begins and seals others, while the stream is what
    it was.  When the block that it is open for raises, the bytes that it has added to the active
    segment are cut off and its files are removed; where that fails, or whether the edit happened
    is not known, the stream refuses changes.
"""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Self

from .catalog import SegmentEntry
from .commits import Commits
from .edit import Edit
from .segment import SegmentView
from .segment_writer import SegmentWriter
from .tail import Tail

__all__ = ["Draft", "seal"]


class Draft:
    """A context in which segments are written; the stream's lock is held.

    Attributes
    ----------
    active : ActiveSegment or None
        What is being written.
    sealed : dict of int to (SegmentEntry, SegmentView)
    """

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._first_id = commits.next_id
        self._mark = None if commits.active is None else commits.active.writer.mark()
        self.active = commits.active
        self.entries: list[SegmentEntry] = []
        self.views: dict[int, SegmentView] = {}

    @property
    def begun(self) -> bool:
        """Whether there are new files."""
        return self._commits.next_id != self._first_id

    def writer(self) -> SegmentWriter:
        """Writer of the active segment, begun when there is none."""
        if self.active is None:
            self.active = self._commits.new_segment()
        return self.active.writer

    def seal(self) -> None:
        """Finish the active segment."""
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
    """Write the tail and finish the active segment; nothing happens on an empty stream."""
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
