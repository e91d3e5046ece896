"""Parallel leaf encoding with sequential writes, equal to what the writer alone would write::

    put          a   b   c            string codes are assigned here, in order
    threads      [a] [b] [c]          zones, packing, compression, checksums
    writer       a   b                positions in the file, nodes

Encoding takes several times as long as writing.  Its errors are raised by a later ``put`` or
``settle``.  At most ``AHEAD`` leaves more than threads are in memory.
"""

from __future__ import annotations

import contextvars
from collections import deque
from concurrent.futures import Executor, Future
from itertools import pairwise

import pyarrow as pa

from .leaf import EncodedLeaf
from .segment_writer import SegmentWriter, plain_row_bytes

__all__ = ["LeafLine"]

AHEAD = 1


class LeafLine:
    """Leaves on their way into a segment; the ``writer`` is used exclusively until ``settle``."""

    def __init__(self, writer: SegmentWriter, pool: Executor | None, threads: int) -> None:
        self.writer = writer
        self._pool = pool
        self._ahead = threads + AHEAD
        self._waiting: deque[tuple[Future[EncodedLeaf], int]] = deque()
        self._plain = 0
        self._row_bytes = plain_row_bytes(writer.schema)

    @property
    def length(self) -> int:
        """Bytes of the segment, with plain sizes of leaves that are still being encoded."""
        return self.writer.length + self._plain

    def put(
        self, batch: pa.RecordBatch, *, whole_leaves: bool = False, single: bool = False
    ) -> int:
        """Append a batch (``single``: as one leaf); returns the events that will be written."""
        columns = self.writer.columns(batch)
        rows = batch.num_rows
        cuts = [0, rows] if single else self.writer.cuts(columns, rows, whole_leaves)
        for first, end in pairwise(cuts):
            if self._pool is None:
                self.writer.place(self.writer.encode(columns, first, end))
                continue
            while len(self._waiting) >= self._ahead:
                self._place()
            plain = self._row_bytes * (end - first)
            self._plain += plain
            run = contextvars.copy_context().run
            leaf = self._pool.submit(run, self.writer.encode, columns, first, end)
            self._waiting.append((leaf, plain))
        return cuts[-1]

    def settle(self) -> None:
        while self._waiting:
            self._place()

    def _place(self) -> None:
        leaf, plain = self._waiting.popleft()
        self.writer.place(leaf.result())
        self._plain -= plain
