"""Folds: inputs, outputs and policy of a rewriting; ``compaction`` chooses and commits them.

Deletes, updates and range replacements (``deleting``) override the policy.
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
    """The compaction was asked to stop; the stream is unchanged."""


@dataclass
class Fold:
    """A compaction in progress; subclassed by deletes.

    ``replaced``: replacements of a base segment; the first of a joined group has all of them.
    ``horizon``: tick from which on late events are still expected.
    ``cold_bytes``: minimum size of a separate segment for the part before the horizon.
    ``purged``: segments to be rewritten for a dropped, defaulted or widened column.
    ``expires``: drop events before this tick; ``expels``: also rewrite segments for that reason.
    ``threads``: maximum helper threads; 0 to minimise the load.
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
        """Whether strings may stay dictionary-encoded between segments."""
        return True

    @property
    def sources(self) -> frozenset[int]:
        return frozenset(entry.id for entry in self.runs)

    def drops(self, entry: SegmentEntry) -> bool:
        return False

    def touches(self, entry: SegmentEntry) -> bool:
        old = self.expels and self.expires is not None and entry.first < self.expires
        return old or entry.id in self.purged

    @property
    def in_turn(self) -> bool:
        """Whether ``left`` must be called batch by batch, in order."""
        return False

    def begun_tick(self, group: Sequence[SegmentEntry]) -> TickRun:
        """The tick run that precedes a group of base segments, for ``left``."""
        return TickRun()

    def left(
        self, batch: pa.RecordBatch, before: int, given: bool = False
    ) -> tuple[pa.RecordBatch, int]:
        """What is written of base events, and how many are removed or changed.  Thread-safe unless
        ``in_turn``; ``before`` counts earlier events of the first tick; a ``given`` batch may be
        reused.
        """
        return batch, 0

    def kept(
        self, batch: pa.RecordBatch, before: int, given: bool = False
    ) -> tuple[pa.RecordBatch, int, int]:
        old = 0
        if self.expires is not None:
            old = int(ticks_of(batch, self.schema).searchsorted(self.expires))
        if not old:
            return *self.left(batch, before, given), 0
        batch = batch.slice(old)  # begins with another tick
        return *(self.left(batch, 0, given) if batch.num_rows else (batch, 0)), old

    def note(self, gone: int) -> None:
        """Record events that ``left`` has counted."""

    def note_old(self, old: int) -> None:
        self.expired += old

    def ready(self, commits: Commits) -> None:
        """Called before the commit, with the lock held."""

    def edit(self, commits: Commits, manifest: StreamManifest) -> Edit:
        views = {entry.id: view for entry, view in self.made}
        if self.expires is not None:
            manifest = manifest.dropping(self.expired, self.expires)
        return Edit(commits.journal, commits.active, manifest, views)

    def applied(self, commits: Commits) -> None:
        """Called after the commit and before it is published; the lock is held."""


def events_between(view: SegmentView, first: int, last: int) -> int:
    if first > last or view.last < first or view.first > last:
        return 0
    selection = AggregatedColumns(view.file.schema, ())
    words = selection.words()
    view.aggregate(selection, first, last, words, None)
    return int(words[0])
