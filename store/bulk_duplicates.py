r"""Deduplication in bulk loads: merges the keys of a job with those of the stream, before its
commit::

    staged   ----|=== batch ===|---------------------->   in time order
    stored   ---------------------|                       read ahead of it by ``within``
                  \                                         both into one window of keys
                   kept events of the batches before it

Without a duplicate, the usual case, the job is committed as it was staged, and only the key columns
have been read.  Otherwise the remaining events are written again, in time order.

The stream's lock is held from the first read to the commit: appends wait meanwhile.  The keys of
twice ``within`` are in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from ..core.times import INT64_MAX, INT64_MIN, moved
from ..schema import StreamSchema, Uniqueness
from .commits import Commits
from .duplicates import compared_columns, duplicates_among, keys_of, stored_events, without
from .key_window import KeyWindow, Ticks
from .options import uniqueness
from .placing import StagedSegment
from .prune import Prune
from .segment import SegmentView
from .snapshot import Snapshot, StreamState
from .tail import ticks_of

__all__ = ["Sift", "Sweep", "snapshot_of", "without_duplicates"]

Sift = Callable[[Sequence[StagedSegment], Snapshot | None], tuple[list[StagedSegment], int]]
"""A job and the stored snapshot to the segments to commit and the number of duplicates."""

Write = Callable[[Iterable[Iterator[pa.RecordBatch]]], list[StagedSegment]]

KEYS_MIN = 1 << 18
"""The window is pruned only above this number of keys."""


def snapshot_of(
    schema: StreamSchema, segments: Sequence[SegmentView], runs: Sequence[SegmentView]
) -> Snapshot:
    stored = sum(view.events for view in (*segments, *runs))
    return Snapshot(
        StreamState(schema, 0, 0, tuple(segments), tuple(runs), (), None, 0, 0, None, stored)
    )


def without_duplicates(
    commits: Commits, staged: Sequence[StagedSegment], stored: Snapshot | None, write: Write
) -> tuple[list[StagedSegment], int]:
    """A job's segments without duplicates, and their number; ``write`` writes new ones."""
    manifest = commits.manifest
    rule = uniqueness(manifest.options, manifest.schema)
    if rule is None or not staged:
        return list(staged), 0
    views = [
        SegmentView.open_sealed(
            commits.files, item.file, item.entry.id,
            manifest.schema_of(item.entry), manifest.written_as(item.entry),
        )
        for item in staged
    ]  # fmt: skip
    try:
        job = snapshot_of(manifest.schema, (), views)
        sweep = Sweep(job, stored, rule)
        keys = job.scan(columns=sweep.columns)
        if not any(sweep.duplicates(batch).size for batch in keys):
            return list(staged), 0
        sweep = Sweep(job, stored, rule)
        cut = commits.journal.last  # older events become a late run, the others do not
        halves = [sweep.kept(job.scan(end=cut))] if cut is not None else []
        kept = write([*halves, sweep.kept(job.scan(start=cut))])
        return kept, sweep.left_out
    finally:
        for view in views:
            view.close()


class Sweep:
    """One pass over a job in time order; ``columns`` are the key's and the time."""

    def __init__(self, job: Snapshot, stored: Snapshot | None, rule: Uniqueness) -> None:
        self._rule, self._schema = rule, job.schema
        self.columns = compared_columns(rule, job.schema)
        self.left_out = 0
        self._window = KeyWindow()
        self._tidy_at = KEYS_MIN
        self._kept: deque[pa.RecordBatch] = deque()
        self._read_stored = None if stored is None else stored_events(stored, rule)
        self._ahead: Iterator[pa.RecordBatch] = iter(())
        self._met = INT64_MIN
        span = job.time_range
        if self._read_stored is not None and span is not None:
            first, last = moved(span[0], -rule.within), moved(span[1], rule.within)
            self._ahead = iter(self._read_stored(first, last, None))

    def kept(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            batch, _ = without(batch, self.duplicates(batch))
            if batch.num_rows:
                yield batch

    def duplicates(self, batch: pa.RecordBatch) -> Ticks:
        rule, schema = self._rule, self._schema
        ticks = ticks_of(batch, schema)
        self._meet(moved(int(ticks[-1]), rule.within))
        keys = keys_of(batch, ticks, rule, schema)
        out = duplicates_among(keys, self._window, INT64_MIN, self._stored, rule, schema)
        self.left_out += out.size
        known, kept = without(batch.select(self.columns), out)
        self._window.add(*keys.kept(kept))
        self._kept.append(known)
        self._forget(moved(int(ticks[-1]), -rule.within))
        return out

    def _meet(self, until: int) -> None:
        """Add the keys of stored events up to a tick, or slightly beyond, to the window."""
        while self._met < until:
            batch = next(self._ahead, None)
            if batch is None:
                self._met = INT64_MAX
                return
            ticks = ticks_of(batch, self._schema)
            keys = keys_of(batch, ticks, self._rule, self._schema)
            self._window.add(keys.hashes, keys.ticks)
            self._met = int(ticks[-1])

    def _stored(self, first: int, last: int, prune: Prune | None) -> Iterator[pa.RecordBatch]:
        stored = iter(()) if self._read_stored is None else self._read_stored(first, last, prune)
        return chain(stored, self._kept_between(first, last))

    def _kept_between(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        for batch in self._kept:
            ticks = ticks_of(batch, self._schema)
            start, end = np.searchsorted(ticks, first), np.searchsorted(ticks, last, "right")
            if end > start:
                yield batch.slice(start, end - start)

    def _forget(self, before: int) -> None:
        while self._kept and (
            not self._kept[0].num_rows or ticks_of(self._kept[0], self._schema)[-1] < before
        ):
            self._kept.popleft()
        if self._window.size >= self._tidy_at:
            self._window.forget(before)
            self._tidy_at = max(KEYS_MIN, 2 * self._window.size)
