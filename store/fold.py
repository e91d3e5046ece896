"""Folds: what a rewriting of a stream's segments is about, and what becomes of it.

Purpose
    :class:`Fold` is a compaction under way: which files it reads, what it has written, what takes
    the place of what.  A delete, an update and the replacement of a range are the same with other
    answers to a few questions (:mod:`.deleting`): which segments are touched or dropped, which of
    their events are kept, and what the manifest says in the end.

Invariants
    Nothing here changes the stream: :mod:`.compaction` chooses and commits, :mod:`.rewriting`
    writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ..schema import StreamSchema
from .catalog import SegmentEntry, SegmentList, StreamManifest
from .commits import Commits
from .deletions import TickRun
from .edit import Edit
from .segment import AggregatedColumns, SegmentView
from .tail import ticks_of

__all__ = ["Fold", "Interrupted", "events_between"]

COLD_BYTES = 8 << 20


class Interrupted(Exception):
    """The compaction was asked to stop; the stream is as it was."""


@dataclass
class Fold:
    """A compaction under way; a delete says what is different there.

    Attributes
    ----------
    runs, segments : sequence of SegmentEntry
        Late runs to fold, and the base, as they were when it began.
    made : list of (SegmentEntry, SegmentView)
        Segments written.
    replaced : dict of int to list of SegmentEntry
        What takes the place of a base segment; the first of a joined group has all of it.
    horizon : int or None
        Tick from which late events are to be expected still.
    cold_bytes : int
        What lies before the horizon becomes a segment of its own when it is at least so large.
    purged : frozenset of int
        Segments to be rewritten because they hold values of a dropped column, or were written
        before one was added with a default or widened.
    expires : int or None
        Retention keeps no event before this tick: what is rewritten is rewritten without them.
    expels : bool
        Whether what holds such events is rewritten for that.
    expired : int
        Events that were left out for that.
    threads : int
        How many may help; none where others are to notice as little as possible of it.
    """

    schema: StreamSchema
    runs: tuple[SegmentEntry, ...]
    segments: SegmentList
    views: Mapping[int, SegmentView]
    made: list[tuple[SegmentEntry, SegmentView]] = field(default_factory=list)
    replaced: dict[int, list[SegmentEntry]] = field(default_factory=dict)
    identifiers: list[int] = field(default_factory=list)
    horizon: int | None = None
    cold_bytes: int = field(default_factory=lambda: COLD_BYTES)
    purged: frozenset[int] = frozenset()
    expires: int | None = None
    expels: bool = False
    expired: int = 0
    threads: int = 0

    @property
    def keeps_codes(self) -> bool:
        """Whether strings may stay encoded on their way from one segment to the next."""
        return True

    @property
    def sources(self) -> frozenset[int]:
        """Late runs that are gone when it is done."""
        return frozenset(entry.id for entry in self.runs)

    def drops(self, entry: SegmentEntry) -> bool:
        """Whether nothing is left of a base segment that no late event falls into."""
        return False

    def touches(self, entry: SegmentEntry) -> bool:
        """Whether a base segment is rewritten though no late event falls into it."""
        old = self.expels and self.expires is not None and entry.first < self.expires
        return old or entry.id in self.purged

    @property
    def in_turn(self) -> bool:
        """Whether :meth:`left` wants to be asked batch by batch, in order."""
        return False

    def begun_tick(self, group: Sequence[SegmentEntry]) -> TickRun:
        """What neighbouring base segments go on with; :meth:`left` is told of it."""
        return TickRun()

    def left(
        self, batch: pa.RecordBatch, before: int, given: bool = False
    ) -> tuple[pa.RecordBatch, int]:
        """What is written of some events of the base, and how many are not, or not as they were.

        Any thread may ask, unless :attr:`in_turn`.

        Parameters
        ----------
        before : int
            So many events of the batch's first tick have come before it.
        given : bool
            Nobody else uses the batch or its memory, which may be overwritten.
        """
        return batch, 0

    def kept(
        self, batch: pa.RecordBatch, before: int, given: bool = False
    ) -> tuple[pa.RecordBatch, int, int]:
        """What :meth:`left` says of what retention keeps, and how many events that is fewer."""
        old = 0
        if self.expires is not None:
            old = int(ticks_of(batch, self.schema).searchsorted(self.expires))
        if not old:
            return *self.left(batch, before, given), 0
        batch = batch.slice(old)  # which begins with another tick
        return *(self.left(batch, 0, given) if batch.num_rows else (batch, 0)), old

    def note(self, gone: int) -> None:
        """So many events that :meth:`left` has counted."""

    def note_old(self, old: int) -> None:
        """So many events that retention does not keep."""
        self.expired += old

    def ready(self, commits: Commits) -> None:
        """Everything is rewritten, and is to be committed now; the lock is held."""

    def edit(self, commits: Commits, manifest: StreamManifest) -> Edit:
        """The change of the stream, to this manifest; the lock is held."""
        views = {entry.id: view for entry, view in self.made}
        if self.expires is not None:
            manifest = manifest.dropping(self.expired, self.expires)
        return Edit(commits.journal, commits.active, manifest, views)

    def applied(self, commits: Commits) -> None:
        """It has happened, and readers do not see it yet; the lock is held."""


def events_between(view: SegmentView, first: int, last: int) -> int:
    """How many events of a segment have first <= t <= last."""
    if first > last or view.last < first or view.first > last:
        return 0
    selection = AggregatedColumns(view.file.schema, ())
    words = selection.words()
    view.aggregate(selection, first, last, words, None)
    return int(words[0])
