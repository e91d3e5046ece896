"""Merging of time-ordered sources: base, late runs and buffers become one sequence.

Guarantee: events of one time come in the order of the sources, which is that of arrival (base
first, then late runs oldest first, then the buffer): an event is late only because a newer one had
arrived, so every base event of the same time came before it.

Algorithm: binary merges: the late sources in a balanced tree, and the result with the base, so that
each base batch is merged once.  Of two overlapping batches the one that ends first is merged whole,
with the part of the other up to there.  More events of its last tick may follow in its next batch,
so a later source holds back its events of that tick.  Holds at most two batches of each source.

The late buffer (``add_late``) is a tuple of sorted batches in arrival order, each at least twice as
large as the next, so an insertion costs O(log n) amortised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.native import kernel
from ..core.sorting import order_of
from ..schema import StreamSchema
from .late_merge import BatchMerger, Side, sort_late

__all__ = ["add_late", "join_late", "merge_sources", "sort_nearly"]


class _MergeSource:
    """A source with its current batch, whose rows before ``at`` have been consumed."""

    def __init__(self, batches: Iterator[pa.RecordBatch], merger: BatchMerger) -> None:
        self._batches = batches
        self._merger = merger
        self._side: Side | None = None

    @property
    def side(self) -> Side:
        assert self._side is not None
        return self._side

    def fill(self) -> bool:
        while self._side is None:
            batch = next(self._batches, None)
            if batch is None:
                return False
            if batch.num_rows:
                self._side = self._merger.side(batch)
                self.at, self.rows = 0, batch.num_rows
                self.first, self.last = int(self._side.ticks[0]), int(self._side.ticks[-1])
        return True

    def position(self, tick: int, side: Literal["left", "right"]) -> int:
        return self.at + int(self.side.ticks[self.at :].searchsorted(tick, side))

    def advance(self, end: int) -> None:
        if end == self.rows:
            self._side = None
        else:
            self.at, self.first = end, int(self.side.ticks[end])

    def rest(self) -> pa.RecordBatch:
        batch = self.side.batch
        self._side = None
        return batch.slice(self.at) if self.at else batch


def merge_sources(
    sources: Sequence[Iterator[pa.RecordBatch]], schema: StreamSchema
) -> Iterator[pa.RecordBatch]:
    """Merge time-ordered sources, given in order of arrival, with one Arrow schema."""
    merger = BatchMerger(schema.time)
    if len(sources) < 3:
        return _tree(sources, merger)
    return _merged(sources[0], _tree(sources[1:], merger), merger)


def _tree(
    sources: Sequence[Iterator[pa.RecordBatch]], merger: BatchMerger
) -> Iterator[pa.RecordBatch]:
    if len(sources) < 2:
        return sources[0] if sources else iter(())
    middle = len(sources) // 2
    return _merged(_tree(sources[:middle], merger), _tree(sources[middle:], merger), merger)


def _merged(
    earlier: Iterator[pa.RecordBatch], later: Iterator[pa.RecordBatch], merger: BatchMerger
) -> Iterator[pa.RecordBatch]:
    one, other = _MergeSource(earlier, merger), _MergeSource(later, merger)
    while one.fill() and other.fill():
        if one.last <= other.first:
            yield one.rest()
        elif other.last < one.first:
            yield other.rest()
        else:
            if other.last < one.last:
                end, high = one.position(other.last, "right"), other.rows
            else:  # hold back events of the last tick: ``one`` may have more of them
                end, high = one.rows, other.position(one.last, "left")
            merged = merger.merge(one.side, one.at, end, other.side, other.at, high)
            one.advance(end)
            other.advance(high)
            yield merged
    for source in (one, other):
        while source.fill():
            yield source.rest()


def add_late(
    buffer: tuple[pa.RecordBatch, ...], batch: pa.RecordBatch, schema: StreamSchema
) -> tuple[pa.RecordBatch, ...]:
    """Add a sorted batch to the late buffer, merging neighbours to keep it short."""
    result = [*buffer, batch]
    merger = BatchMerger(schema.time)
    while len(result) > 1 and result[-2].num_rows < 2 * result[-1].num_rows:
        result[-2:] = [_pair(result[-2], result[-1], merger)]
    return tuple(result)


def join_late(buffer: Sequence[pa.RecordBatch], schema: StreamSchema) -> pa.RecordBatch:
    """A non-empty late buffer as one sorted batch."""
    merger = BatchMerger(schema.time)
    joined = buffer[-1]
    for batch in reversed(buffer[:-1]):  # the smallest first
        joined = _pair(batch, joined, merger)
    return joined


def _pair(earlier: pa.RecordBatch, later: pa.RecordBatch, merger: BatchMerger) -> pa.RecordBatch:
    one, other = merger.side(earlier), merger.side(later)
    return merger.merge(one, 0, earlier.num_rows, other, 0, later.num_rows)


def sort_nearly(batch: pa.RecordBatch, ticks: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """The batch in time order, stable; fast if nearly sorted.  Only events older than one before
    them are sorted; they come behind those of their time, since the sequence had gone on to a newer
    time.
    """
    late = np.empty(ticks.size, np.int64)
    late = late[: _stragglers(ticks, late)]
    if 2 * late.size > ticks.size:
        return batch.take(pa.array(order_of(ticks)))
    return sort_late(batch, ticks, late, late[order_of(ticks[late])])


@kernel
def _stragglers(ticks, late):  # type: ignore[no-untyped-def]
    """Positions of events that are older than one before them; returns their number."""
    count = 0
    newest = ticks[0]
    for i in range(ticks.size):
        if ticks[i] < newest:
            late[count] = i
            count += 1
        else:
            newest = ticks[i]
    return count
