"""Merging time-ordered sources: base, late runs and buffers become one sequence.

Purpose
    Late events live apart from the base until compaction folds them in; a reader must not notice.

Guarantee
    The result is in time order, and events of one time come in the order of the sources.  Sources
    are given in order of arrival (base first, then late runs oldest first, then the buffer): an
    event is late only because a newer one had arrived, so every base event of the same time came
    before it.

Algorithm
    Each round looks at the last tick of every source's current batch.  Below the smallest of them
    no source can bring anything new: those rows are joined and sorted (stable, on mostly sorted
    input).  A batch that no other source reaches into passes through untouched.

Limits
    Holds one batch of each source, and more only where a single tick spans batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ..schema import StreamSchema
from .tail import concat_batches, ticks_of

__all__ = ["merge_sources"]


class _Source:
    """One source with its batch at hand."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: StreamSchema) -> None:
        self._batches = batches
        self._schema = schema
        self.batch: pa.RecordBatch | None = None
        self.done = False

    def fill(self) -> None:
        """Have a batch at hand unless the source is at its end."""
        while self.batch is None and not self.done:
            batch = next(self._batches, None)
            if batch is None:
                self.done = True
            elif batch.num_rows:
                self._take(batch)

    def extend(self) -> None:
        """Join the next batch to the one at hand."""
        batch = next(self._batches, None)
        if batch is None:
            self.done = True
        elif batch.num_rows:
            assert self.batch is not None
            self._take(concat_batches([self.batch, batch], self.batch.schema))

    def _take(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.ticks = ticks_of(batch, self._schema)

    def split(self, tick: int) -> pa.RecordBatch | None:
        """Take the rows below a tick off the batch at hand."""
        if self.batch is None:
            return None
        rows = int(np.searchsorted(self.ticks, tick, "left"))
        if rows == 0:
            return None
        head = self.batch.slice(0, rows)
        if rows == self.batch.num_rows:
            self.batch = None
        else:
            self._take(self.batch.slice(rows))
        return head


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
        running = [s for s in open_sources if not s.done]
        # a source that has not said it is at its end may bring more of its last tick
        bound = min(int(s.ticks[-1]) for s in running) if running else None
        lead = min(open_sources, key=lambda s: int(s.ticks[0]))
        others = min(int(s.ticks[0]) for s in open_sources if s is not lead)
        if int(lead.ticks[-1]) < others:
            assert lead.batch is not None
            yield lead.batch
            lead.batch = None
            continue
        if bound is None:
            pieces = [s.batch for s in open_sources if s.batch is not None]
            for source in open_sources:
                source.batch = None
        else:
            pieces = [piece for s in open_sources if (piece := s.split(bound)) is not None]
            if not pieces:
                for source in running:
                    if int(source.ticks[-1]) == bound:
                        source.extend()
                continue
        yield _merged(pieces, schema)


def _merged(pieces: list[pa.RecordBatch], schema: StreamSchema) -> pa.RecordBatch:
    if len(pieces) == 1:
        return pieces[0]
    joined = concat_batches(pieces, pieces[0].schema)
    ticks = ticks_of(joined, schema)
    return joined.take(pa.array(np.argsort(ticks, kind="stable")))
