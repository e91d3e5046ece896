"""The output of one step over a stream: result rows with the identity of their events.
An event is identified by partition key, tick, and rank among the partition's events of that tick in
arrival order, which no later event changes.
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
    """Final matches by last event.
    ``match``: of each row, or -1.  ``row_tick``, ``row_rank``: event of each row.  ``first_tick``,
    ``first_rank``, ``last_tick``: per match; an empty match has the event that it precedes.  With
    EVENT SELECTION, events of match ``i``: ``event_offsets[i] .. event_offsets[i + 1]``.
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
        return len(self.first_tick)

    @property
    def keys(self) -> pa.Table:
        first = np.zeros(self.matches, np.int64)
        covered = np.flatnonzero(self.match >= 0)[::-1]
        first[self.match[covered]] = covered
        return self.rows.select(list(self.partition_by)).take(pa.array(first))

    @staticmethod
    def of(parts: Sequence[tuple[Decided, IntArray]]) -> Decided:
        """Merge parts by the places of their rows in the stream; matches are renumbered in row
        order.
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
            order = order[:0]  # already in order
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
