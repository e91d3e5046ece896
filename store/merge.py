"""Merging time-ordered sources: base, late runs and buffers become one sequence.

Purpose
    Late events live apart from the base until compaction folds them in; a reader must not notice.

Guarantee
    The result is in time order, and events of one time come in the order of the sources.  Sources
    are given in order of arrival (base first, then late runs oldest first, then the buffer): an
    event is late only because a newer one had arrived, so every base event of the same time came
    before it.

Algorithm
    Each round looks at the last tick of every source's current batch.  Up to the smallest of them
    no source can bring anything new, once a look at the next batch has shown that the tick does
    not go on in it: those rows are merged, the late sources with each other first, then with the
    base, column by column.  A batch that no other source reaches into passes through untouched.

    The same kernels keep the buffer of late events: a short tuple of sorted batches in arrival
    order, each at least twice as large as the next, so that adding costs O(log n) amortised and a
    reader merges few batches (:func:`add_late`); and they sort a batch that is nearly in order
    (:func:`sort_nearly`).

Limits
    Holds two batches of each source at most, and more only where a single tick spans batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..compiled import kernel
from ..schema import StreamSchema
from .tail import concat_batches, sort_batch, ticks_of
from .weave import places_of, plain_widths, weave

__all__ = ["add_late", "merge_sources", "sort_nearly"]


class _Source:
    """One source with its batch at hand, and the next one where it had to be looked at."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: StreamSchema) -> None:
        self._batches = batches
        self._schema = schema
        self._ahead: pa.RecordBatch | None = None
        self.batch: pa.RecordBatch | None = None
        self.done = False

    def _next(self) -> pa.RecordBatch | None:
        while not self.done:
            batch = next(self._batches, None)
            if batch is None:
                self.done = True
            elif batch.num_rows:
                return batch
        return None

    def fill(self) -> None:
        """Have a batch at hand unless the source is at its end."""
        if self.batch is None:
            batch, self._ahead = self._ahead, None
            batch = self._next() if batch is None else batch
            if batch is not None:
                self._take(batch)

    def complete(self, tick: int) -> None:
        """Have every event of the last tick at hand: join the batches in which it goes on."""
        while self.batch is not None and self.last == tick:
            if self._ahead is None:
                self._ahead = self._next()
            if self._ahead is None or ticks_of(self._ahead, self._schema)[0] != tick:
                return
            joined = concat_batches([self.batch, self._ahead], self.batch.schema)
            self._ahead = None
            self._take(joined)

    def _take(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.ticks = ticks_of(batch, self._schema)
        self.first = int(self.ticks[0])
        self.last = int(self.ticks[-1])

    def split(self, tick: int) -> pa.RecordBatch | None:
        """Take the rows up to a tick off the batch at hand."""
        batch = self.batch
        if batch is None or self.first > tick:
            return None
        if self.last <= tick:
            self.batch = None
            return batch
        rows = int(self.ticks.searchsorted(tick, "right"))
        self._take(batch.slice(rows))
        return batch.slice(0, rows)


def merge_sources(
    sources: Sequence[Iterator[pa.RecordBatch]], schema: StreamSchema
) -> Iterator[pa.RecordBatch]:
    """Merge time-ordered sources of batches.

    Parameters
    ----------
    sources : sequence of iterators of pyarrow.RecordBatch
        In order of arrival; all of one Arrow schema that includes the time attribute.
    schema : StreamSchema

    Yields
    ------
    pyarrow.RecordBatch
        In time order.
    """
    open_sources = [_Source(iter(source), schema) for source in sources]
    while True:
        for source in open_sources:
            source.fill()
        open_sources = [s for s in open_sources if s.batch is not None]
        if not open_sources:
            return
        if len(open_sources) == 1:
            source = open_sources[0]
            while source.batch is not None:
                yield source.batch
                source.batch = None
                source.fill()
            return
        lead = min(open_sources, key=lambda s: s.first)
        others = min(s.first for s in open_sources if s is not lead)
        if lead.last < others:
            assert lead.batch is not None
            yield lead.batch
            lead.batch = None
            continue
        bound = min(s.last for s in open_sources)
        for source in open_sources:
            source.complete(bound)
        pieces = [piece for s in open_sources if (piece := s.split(bound)) is not None]
        yield _merged(pieces, schema)


def add_late(
    buffer: tuple[pa.RecordBatch, ...], batch: pa.RecordBatch, schema: StreamSchema
) -> tuple[pa.RecordBatch, ...]:
    """Add a sorted batch of late events to a buffer in arrival order.

    Neighbours are merged while the older is less than twice as large, which keeps the tuple short.
    """
    result = [*buffer, batch]
    while len(result) > 1 and result[-2].num_rows < 2 * result[-1].num_rows:
        result[-2:] = [_merged(result[-2:], schema)]
    return tuple(result)


def sort_nearly(batch: pa.RecordBatch, ticks: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """The batch in time order, ties in their order; fast where most events are in order already.

    Events that are not older than any before them form one sorted sequence, and only the others
    are sorted.  An event of theirs comes behind those of its time in the first sequence: when it
    arrived, that sequence had gone on to a newer time.
    """
    late = np.empty(ticks.size, np.int64)
    late = late[: _stragglers(ticks, late)]
    if 2 * late.size > ticks.size:
        return batch.take(pa.array(np.argsort(ticks, kind="stable")))
    late = late[_stable_order(ticks[late])]
    late.flags.writeable = False
    order = np.empty(ticks.size, np.int64)
    _nearly_order(ticks, late, order)
    return batch.take(pa.array(order))


def _stable_order(ticks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Positions in time order, ties in their order.

    Tick and position in one word, where they fit, sort several times as fast as positions do.
    """
    if ticks.size == 0:
        return np.empty(0, np.int64)
    bits = int(ticks.size - 1).bit_length()
    low = int(ticks.min())
    if (int(ticks.max()) - low).bit_length() + bits > 63:
        return np.argsort(ticks, kind="stable")
    words = (ticks - low) << bits
    words |= np.arange(ticks.size)
    words.sort()
    words &= (1 << bits) - 1
    return words


def _merged(pieces: list[pa.RecordBatch], schema: StreamSchema) -> pa.RecordBatch:
    """Merge sorted pieces, given in order of arrival, into one sorted batch."""
    if len(pieces) == 1:
        return pieces[0]
    if len(pieces) > 2:  # the late ones first: they are small
        joined = concat_batches(pieces[1:], pieces[0].schema)
        pieces = [pieces[0], sort_batch(joined, schema)]
    first, second = pieces
    places = places_of(ticks_of(first, schema), ticks_of(second, schema))
    ones, others = first.columns, second.columns
    widths = plain_widths(first.schema)
    plain = [
        i
        for i, width in enumerate(widths)
        if width and not ones[i].null_count and not others[i].null_count
    ]
    woven = weave(
        [ones[i] for i in plain], [others[i] for i in plain], [widths[i] for i in plain], places
    )
    columns = dict(zip(plain, woven, strict=True))
    if len(plain) < len(ones):
        order = _order_of(places, first.num_rows)
        for i in range(len(ones)):
            if i not in columns:
                columns[i] = pc.take(pa.concat_arrays([ones[i], others[i]]), order)
    return pa.RecordBatch.from_arrays([columns[i] for i in range(len(ones))], schema=first.schema)


@kernel
def _stragglers(ticks, late):  # type: ignore[no-untyped-def]
    """Positions of events that are older than one before them; returns how many."""
    count = 0
    newest = ticks[0]
    for i in range(ticks.size):
        if ticks[i] < newest:
            late[count] = i
            count += 1
        else:
            newest = ticks[i]
    return count


@kernel
def _nearly_order(ticks, late, order):  # type: ignore[no-untyped-def]
    """Merge the stragglers, positions in time order, with the events between them."""
    at = 0
    j = 0
    newest = ticks[0]
    for i in range(ticks.size):
        tick = ticks[i]
        if tick < newest:
            continue
        newest = tick
        while j < late.size and ticks[late[j]] < tick:
            order[at] = late[j]
            at += 1
            j += 1
        order[at] = i
        at += 1
    while j < late.size:
        order[at] = late[j]
        at += 1
        j += 1


def _order_of(places: npt.NDArray[np.int64], rows: int) -> pa.Array:
    """The merge as positions in both inputs joined."""
    order = np.empty(rows + places.size, np.int64)
    second = np.zeros(order.size, np.bool_)
    second[places + np.arange(places.size)] = True
    order[~second] = np.arange(rows)
    order[second] = np.arange(rows, order.size)
    return pa.array(order)
