"""Short ranges of positions read together: one decoded stretch per column, not one per range.

Purpose
    Replay intervals are often a few hundred events long, and there are thousands of them.  Reading
    each by itself costs far more than its events do: a call per column, an Arrow array, a batch.
    :class:`Gathered` collects ranges and reads them leaf by leaf.

Layout
    ::

        ranges      |--|   |-----|        |---|  ||                  |--|
        leaf        |---------------- stretch ---------------|      |- stretch -|
        batch       |--|-----|---|||--|      copied together, with the flag of each range

    A column that is stored as it is used (plain, no codec) is taken whole and sliced, which reads
    nothing but the slices.  Of others stretches are decoded, ranges nearer than
    :data:`DECODED_GAP` in one.

Guarantee
    Rows, order and flags are those of the ranges read one after the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...store.layout import Codec, Encoding
from ...store.leaf import LeafReader
from ...store.leaf_map import LeafMap
from ...store.segment import ScanMetrics
from .timeline import Timeline, TimelinePart

__all__ = ["Gathered", "Piece", "read_ranges"]

Piece = tuple[pa.RecordBatch, "bool | npt.NDArray[np.bool_]"]
"""A batch, and whether its rows, or which of them, belong to an interval."""

DECODED_GAP = 4096
"""Events between two ranges that are decoded and thrown away: about as much as another call."""
GATHERED_FIRST, GATHERED_MAX = 1 << 12, 1 << 16
"""Events in the first batch, and in the largest: whoever wants few rows shall not wait for many."""

Ranges = list[tuple[int, int]]


class Gathered:
    """Ranges that wait to be read.

    Parameters
    ----------
    columns : pyarrow.Schema
        What is read.
    metrics : ScanMetrics, optional
        Added to.
    """

    def __init__(
        self, timeline: Timeline, columns: pa.Schema, metrics: ScanMetrics | None = None
    ) -> None:
        self._timeline = timeline
        self._columns = columns
        self._metrics = metrics
        self._ranges: Ranges = []
        self._inside: Ranges = []  # in rows of the batch
        self._full = GATHERED_FIRST
        self.events = 0

    def add(self, first: int, end: int, within: bool) -> Iterator[Piece]:
        """Take positions [first, end), after those taken before; yields what is worth reading."""
        if end <= first:
            return
        if self._ranges and self._ranges[-1][1] == first:
            self._ranges[-1] = self._ranges[-1][0], end
        else:
            self._ranges.append((first, end))
        if within:
            if self._inside and self._inside[-1][1] == self.events:
                self._inside[-1] = self._inside[-1][0], self.events + end - first
            else:
                self._inside.append((self.events, self.events + end - first))
        self.events += end - first
        if self.events >= self._full:
            self._full = min(GATHERED_MAX, 4 * self._full)
            yield from self.flush()

    def flush(self) -> Iterator[Piece]:
        """Everything taken so far, as one batch."""
        if not self.events:
            return
        batch = read_ranges(self._timeline, self._columns, self._ranges, self._metrics)
        flags: bool | npt.NDArray[np.bool_] = bool(self._inside)
        if self._inside and self._inside != [(0, self.events)]:
            flags = np.zeros(self.events, np.bool_)
            for first, end in self._inside:
                flags[first:end] = True
        self._ranges, self._inside, self.events = [], [], 0
        yield batch, flags


def read_ranges(
    timeline: Timeline,
    columns: pa.Schema,
    ranges: Sequence[tuple[int, int]],
    metrics: ScanMetrics | None = None,
) -> pa.RecordBatch:
    """Base events of ranges of positions, ascending and disjoint, as one batch.

    Parameters
    ----------
    ranges : sequence of (int, int)
        Half-open.
    metrics : ScanMetrics, optional
        Added to.
    """
    gathered: list[list[pa.Array]] = [[] for _ in columns]
    for part, here in _by_part(timeline.parts, ranges):
        _read_part(part, columns, here, gathered, metrics)
    arrays = [
        some[0] if len(some) == 1 else pa.concat_arrays(some or [pa.array([], field.type)])
        for some, field in zip(gathered, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _by_part(
    parts: Sequence[TimelinePart], ranges: Sequence[tuple[int, int]]
) -> Iterator[tuple[TimelinePart, Ranges]]:
    """Parts that ranges touch, with what is wanted of each, in its own positions.

    Every range is looked at once for each part that it touches, however many parts there are.
    """
    part: TimelinePart | None = None
    here: Ranges = []
    for first, end in ranges:
        while first < end:
            if part is None or first >= part.end:
                if part is not None:
                    yield part, here
                part, here = parts[bisect_right(parts, first, key=_end_of)], []
            until = min(end, part.end)
            here.append((first - part.start, until - part.start))
            first = until
    if part is not None:
        yield part, here


def _end_of(part: TimelinePart) -> int:
    return part.end


def _read_part(
    part: TimelinePart,
    columns: pa.Schema,
    ranges: Ranges,
    gathered: list[list[pa.Array]],
    metrics: ScanMetrics | None,
) -> None:
    if part.tail is not None:
        for some, field in zip(gathered, columns, strict=True):
            column = part.tail.batch.column(field.name)
            some.extend(column.slice(first, end - first) for first, end in ranges)
        return
    leaves = part.leaves
    assert leaves is not None
    for number, here in _by_leaf(leaves, ranges):
        leaf = leaves.leaf(number)
        for some, field in zip(gathered, columns, strict=True):
            some.extend(_slices(leaves, leaf, field, here))
        if metrics is not None:
            metrics.blocks_read += 1
            metrics.events_read += sum(end - first for first, end in here)


def _by_leaf(leaves: LeafMap, ranges: Ranges) -> Iterator[tuple[int, Ranges]]:
    """Leaves that ranges of the segment's positions touch, with what is wanted of their rows."""
    firsts = np.array([first for first, _ in ranges], np.int64)
    numbers = (np.searchsorted(leaves.starts, firsts, side="right") - 1).tolist()
    at, start, stop = -1, 0, 0
    here: Ranges = []
    for (first, end), number in zip(ranges, numbers, strict=True):
        while first < end:
            if number != at:
                if here:
                    yield at, here
                at, here = number, []
                start, stop = int(leaves.starts[at]), int(leaves.starts[at + 1])
            until = min(end, stop)
            here.append((first - start, until - start))
            first = until
            number += 1
    if here:
        yield at, here


def _slices(
    leaves: LeafMap, leaf: LeafReader, field: pa.Field, ranges: Ranges
) -> Iterator[pa.Array]:
    """Ranges of one column of a leaf."""
    view, name = leaves.view, field.name
    if name not in view.file.schema:  # older than the attribute
        yield pa.nulls(sum(end - first for first, end in ranges), field.type)
        return
    entry = leaf.chunk_entry(name)
    as_it_is = entry.codec is Codec.NONE and entry.encoding in (Encoding.PLAIN, Encoding.VARIABLE)
    begin = 0
    for i in range(1, len(ranges) + 1):
        if i < len(ranges) and (as_it_is or ranges[i][0] - ranges[i - 1][1] <= DECODED_GAP):
            continue
        low, high = ranges[begin][0], ranges[i - 1][1]
        array = view.column(leaf, name, low, high)
        if i - begin == 1:
            yield array
        else:
            for first, end in ranges[begin:i]:
                yield array.slice(first - low, end - first)
        begin = i
