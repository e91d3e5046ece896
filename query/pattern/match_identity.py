"""MATCH_ID(), MATCH_TIME() and MATCH_EVENT(): identities that late events do not change.

An event is identified by partition, tick, and *rank* among the partition's events of that tick in
arrival order.  The input must be ordered by time and contain all rows of a tick or none.

::

    MATCH_ID()      one match at a time    digest of the partition and the first event
                    EVENT SELECTION        digest of the partition and all events
    MATCH_TIME()    the time of the last event; of an empty match, of its position
    MATCH_EVENT()   tick and rank of the event of an output row, 16 bytes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.identity import digests, event_bytes
from ...core.native import kernel
from ..sql.pattern_parser import position_error
from .binding import Bound
from .columns import flat, numbers
from .groups import KeyCodes
from .leaves import IDENTITIES, Given
from .matches import Matches

__all__ = ["RANK", "EventRanks", "Identities", "Naming", "check_identities", "naming_of"]

IntArray = npt.NDArray[np.int64]
RANK = "@rank"


@dataclass(frozen=True)
class Naming:
    """How matches are identified; ``every_event``: matches may share their first event."""

    seed: bytes
    partition_by: tuple[str, ...]
    time: str
    every_event: bool


def naming_of(
    measures: Sequence[Bound],
    seed: bytes,
    partition_by: tuple[str, ...],
    time: str,
    selection: str | None,
) -> Naming | None:
    asked = {leaf.function for leaf, _ in _identities(measures)}
    every = "match_id" in asked and selection is not None
    return Naming(seed, partition_by, time, every) if asked else None


def check_identities(measures: Sequence[Bound], sql: str, ordered: bool) -> None:
    """Refuse identities where events are not in time order: ranks count arrivals."""
    for leaf, at in () if ordered else _identities(measures):
        raise position_error(
            f"{leaf.function.upper()}() needs events in the order of time: match a stream, ordered "
            "by its time",
            sql,
            at,
        )


def _identities(measures: Sequence[Bound]) -> list[tuple[Given, int]]:
    return [
        (leaf, bound.at)
        for bound in measures
        for leaf in bound.leaves
        if isinstance(leaf, Given) and leaf.function in IDENTITIES
    ]


@kernel
def _count_on(codes, ticks, tick, rank, out):  # type: ignore[no-untyped-def]
    """Rank of each row; ``tick``, ``rank``: of the last row of each partition, updated."""
    for i in range(codes.shape[0]):
        g = codes[i]
        rank[g] = rank[g] + 1 if ticks[i] == tick[g] else 0
        tick[g] = ticks[i]
        out[i] = rank[g]


class EventRanks:
    def __init__(self, naming: Naming) -> None:
        self._naming = naming
        self._keys = KeyCodes(max(1, len(naming.partition_by)))
        self._tick: IntArray = np.zeros(0, np.int64)  # newest tick of each partition
        self._rank: IntArray = np.zeros(0, np.int64)  # rank of its newest event

    def ranked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        codes, total = None, 1
        if self._naming.partition_by:
            columns = [pa.chunked_array([batch.column(n)]) for n in self._naming.partition_by]
            codes, total = self._keys.encode(columns), self._keys.count
        ticks = batch.column(self._naming.time)
        return batch.append_column(RANK, self._ranks(ticks, codes, total))

    def beside(self, table: pa.Table, codes: IntArray | None, total: int) -> pa.Table:
        """Rows with their ranks; ``codes``: partition of each row, None if there is only one."""
        ticks = flat(table.column(self._naming.time))
        return table.append_column(RANK, self._ranks(ticks, codes, total))

    def _ranks(self, column: pa.Array, codes: IntArray | None, total: int) -> pa.Array:
        ticks, _ = numbers(flat(column), "i")
        grown = total - len(self._tick)
        if grown > 0:
            self._tick = np.concatenate([self._tick, np.zeros(grown, np.int64)])
            self._rank = np.concatenate([self._rank, np.full(grown, -1)])
        ranks = np.empty(len(ticks), np.int64)
        if codes is None:
            codes = np.zeros(len(ticks), np.int64)
        _count_on(codes, np.ascontiguousarray(ticks, np.int64), self._tick, self._rank, ranks)
        return pa.array(ranks)


@dataclass(frozen=True)
class Identities:
    """Identity functions for a batch of matches; ``index``: row in the match, -1 if empty."""

    naming: Naming
    matches: Matches
    match: IntArray
    index: IntArray
    take: Callable[[str, pa.Array], pa.Array]

    def __call__(self, leaf: Given) -> pa.Array:
        matches, match = self.matches, self.match
        if leaf.function == "match_time":
            return self.take(self.naming.time, pa.array(matches.last_row)).take(pa.array(match))
        if leaf.function == "match_event":
            at = matches.start[match]
            inside = self.index >= 0
            at[inside] = matches.rows[matches.first[match[inside]] + self.index[inside]]
            return event_bytes(*self._events(at), np.arange(len(at) + 1)).cast(pa.binary())
        columns = [self.take(name, pa.array(matches.start)) for name in self.naming.partition_by]
        if self.naming.every_event:
            columns.append(event_bytes(*self._events(matches.rows), matches.first))
        else:
            columns += [pa.array(part) for part in self._events(matches.start)]
        return digests(self.naming.seed, columns).take(pa.array(match))

    def _events(self, at: IntArray) -> tuple[IntArray, IntArray]:
        rows = pa.array(at)
        tick = numbers(flat(self.take(self.naming.time, rows)), "i")[0].astype(np.int64)
        return tick, self.take(RANK, rows).to_numpy(zero_copy_only=False)
