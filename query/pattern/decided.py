"""What a step of a stream decides: rows of the result, and the events that they are known by.

Purpose
    A row that is put out, and perhaps taken back when a late event comes, needs a name that does
    not depend on how it was found.  :class:`Decided` carries, beside the rows, the *identity* of
    events: partition key, tick, and rank among the rows of that partition and tick in the order of
    arrival, which no later event changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import firsts, order_of
from .groups import take_ranges

__all__ = ["Decided"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Decided:
    """Matches that no later event changes, in the order of their last events.

    Attributes
    ----------
    rows : pyarrow.Table
        Rows of the result; those of a match stay together.
    match : int64 array
        Per row: its match, -1 for a row that no match covers.
    row_tick, row_rank : int64 arrays
        Per row: tick and rank of its own event.
    partition_by : tuple of str
        Columns of ``rows`` that are the key of the partition.
    first_tick, first_rank, last_tick : int64 arrays
        Per match: its first event, and the tick of its last; an empty match has the event that it
        stands before.
    event_offsets, event_tick, event_rank : int64 arrays
        Events of match ``i`` are ``event_offsets[i] .. event_offsets[i + 1]``; filled for a clause
        with EVENT SELECTION.
    """

    rows: pa.Table
    match: IntArray
    row_tick: IntArray
    row_rank: IntArray
    partition_by: tuple[str, ...]
    first_tick: IntArray
    first_rank: IntArray
    last_tick: IntArray
    event_offsets: IntArray
    event_tick: IntArray
    event_rank: IntArray

    @property
    def matches(self) -> int:
        """Number of matches."""
        return len(self.first_tick)

    @property
    def keys(self) -> pa.Table:
        """Per match: columns of PARTITION BY."""
        first = np.zeros(self.matches, np.int64)
        covered = np.flatnonzero(self.match >= 0)[::-1]
        first[self.match[covered]] = covered
        return self.rows.select(list(self.partition_by)).take(pa.array(first))

    @staticmethod
    def of(parts: Sequence[tuple[Decided, IntArray]]) -> Decided:
        """One answer of several, each with the place of its rows in the order of the stream.

        Rows of one place keep their order; matches are numbered in the order of their rows.
        """
        found = [part for part, _ in parts]
        counts = np.array([part.matches for part in found], np.int64)
        shift = np.concatenate([[0], np.cumsum(counts)])
        match = np.concatenate(
            [np.where(p.match >= 0, p.match + shift[i], -1) for i, p in enumerate(found)]
        )
        place = np.concatenate([where for _, where in parts])
        order = np.argsort(place, kind="stable")
        if np.array_equal(order, np.arange(len(order))):
            order = order[:0]  # as they are
        rows = pa.concat_tables([part.rows for part in found])
        tick = np.concatenate([part.row_tick for part in found])
        rank = np.concatenate([part.row_rank for part in found])
        if len(order):
            taken = pa.array(order)
            rows, match, tick, rank = rows.take(taken), match[order], tick[order], rank[order]
        total = int(shift[-1])
        seen, first_row = firsts(match[match >= 0])
        listed = seen[order_of(first_row)]
        number = np.full(total + 1, -1, np.int64)
        number[listed] = np.arange(len(listed))
        lengths = np.concatenate([np.diff(part.event_offsets) for part in found])
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        event_tick = np.concatenate([part.event_tick for part in found])
        event_rank = np.concatenate([part.event_rank for part in found])
        if len(event_tick):
            chosen = take_ranges(offsets[listed], offsets[listed + 1])
            event_tick, event_rank = event_tick[chosen], event_rank[chosen]
        return Decided(
            rows, np.where(match >= 0, number[match], -1), tick, rank,
            found[0].partition_by,
            np.concatenate([part.first_tick for part in found])[listed],
            np.concatenate([part.first_rank for part in found])[listed],
            np.concatenate([part.last_tick for part in found])[listed],
            np.concatenate([[0], np.cumsum(lengths[listed])]).astype(np.int64),
            event_tick, event_rank,
        )  # fmt: skip
