"""A line of leaves: encoded side by side, written one after the other.

Purpose
    What is rewritten are whole leaves of megabytes, and to encode one takes several times as long
    as to write it.  :class:`LeafLine` stands before a :class:`~.segment_writer.SegmentWriter`: it
    has leaves encoded in threads and gives them to the writer in their order.

    ::

        put          a   b   c            codes of strings are given here, in order
        threads      [a] [b] [c]          zones, packing, compression, checksums
        writer       a   b                places in the file, nodes

Guarantee
    Leaves are those which the writer alone would have made of the same batches, in the same order;
    a dictionary page may hold what later ones need as well.  What an encoding raises is raised by a
    later :meth:`LeafLine.put` or :meth:`LeafLine.settle`.

Limits
    At most :data:`AHEAD` leaves more than there are threads are in memory.  Threads help as far as
    encoding is done outside the interpreter's lock: kernels, NumPy, Arrow.
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
    """Leaves on their way into a segment.

    Parameters
    ----------
    writer : SegmentWriter
        Used by nobody else until :meth:`settle` has returned, but for what it was asked before.
    pool : Executor or None
        Of the threads; without one leaves are encoded where they are put.
    threads : int
        How many of the pool are for this line.
    """

    def __init__(self, writer: SegmentWriter, pool: Executor | None, threads: int) -> None:
        self.writer = writer
        self._pool = pool
        self._ahead = threads + AHEAD
        self._waiting: deque[tuple[Future[EncodedLeaf], int]] = deque()
        self._plain = 0
        self._row_bytes = plain_row_bytes(writer.schema)

    @property
    def length(self) -> int:
        """Bytes of the segment, of leaves that are still being encoded their plain ones."""
        return self.writer.length + self._plain

    def put(
        self, batch: pa.RecordBatch, *, whole_leaves: bool = False, single: bool = False
    ) -> int:
        """Append a batch as :meth:`.SegmentWriter.write` does.

        Parameters
        ----------
        single : bool
            As one leaf, whatever its size.

        Returns
        -------
        int
            Events that will be written.
        """
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
        """Have everything written that was put."""
        while self._waiting:
            self._place()

    def _place(self) -> None:
        leaf, plain = self._waiting.popleft()
        self.writer.place(leaf.result())
        self._plain -= plain
