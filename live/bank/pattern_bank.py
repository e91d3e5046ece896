"""Step-by-step search of thousands of patterns with one PARTITION BY (see ``symbols.why_alone``).

Each pattern has the matches that it has alone at the same watermark, except with SKIP TO NEXT ROW,
where a match waits for those that begin before it.  No Python code and no allocation per query and
batch.  Patterns are added as a ``Layer``, which is joined with those that there are, and see events
of later steps; ``corrections.open_at`` supplies their open matches.  The state is the hits of open
matches, searched again at each further hit of query and partition.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import counted_order
from ...core.times import INT64_MIN
from ...errors import InvalidArgument, ResourceLimit
from ...query.contract.operator import MatchLimits
from ...query.pattern.columns import StoredKeys, flat, numbers, ranks
from .layer import BankMatches, Layer, Scratch
from .searching import Fresh, OpenMatches

IntArray = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
BATCH_ROWS = 1 << 16
PARTITIONS_MIN = 4096


class Partitions:
    """Per partition: keys, number of events (late ones do not count, so that ranks of open matches
    stay), and the last one's tick and rank within that tick.
    """

    def __init__(self, schema: pa.Schema, time: str, partition_by: Sequence[str]) -> None:
        self.time = time
        self.partition_by = list(partition_by)
        self.keys = StoredKeys(schema, partition_by)
        self.count = np.zeros(self.keys.count, np.int64)
        self.tick = np.full(self.keys.count, INT64_MIN)
        self.rank = np.full(self.keys.count, -1)

    def __len__(self) -> int:
        return len(self.count)

    @property
    def nbytes(self) -> int:
        return int(self.count.nbytes + self.tick.nbytes + self.rank.nbytes + self.keys.table.nbytes)

    def numbers_of(self, table: pa.Table) -> IntArray:
        """The partition of each row; new ones are added."""
        codes = self.keys.encode(table)
        more = self.keys.count - len(self.count)
        if more:
            self.count = np.concatenate([self.count, np.zeros(more, np.int64)])
            self.tick = np.concatenate([self.tick, np.full(more, INT64_MIN)])
            self.rank = np.concatenate([self.rank, np.full(more, -1)])
        return codes

    def arrange(self, table: pa.Table) -> tuple[Fresh, IntArray]:
        """The next events sorted by partition, and the table row of each."""
        count = table.num_rows
        ticks, _ = numbers(flat(table.column(self.time)), "i")
        tick = np.ascontiguousarray(ticks, np.int64)
        codes = self.numbers_of(table)
        order, offsets = counted_order(codes, len(self.count))
        codes, tick = codes[order], tick[order]
        among = np.empty(count, np.int64)
        ranks(codes, tick, self.tick, self.rank, among)
        rank = self.count[codes] + np.arange(count) - offsets[codes]
        self.count += offsets[1:] - offsets[:-1]
        return Fresh(codes, rank, tick, among, self.count), order

    def reach(self, number: IntArray, tick: IntArray, rank: IntArray) -> None:
        """Events of some partitions; one may be the last of its partition."""
        newer = tick > self.tick[number]
        newer |= (tick == self.tick[number]) & (rank > self.rank[number])
        self.tick[number[newer]] = tick[newer]
        self.rank[number[newer]] = rank[newer]

    def keys_at(self, partition: IntArray) -> pa.Table:
        return self.keys.at(partition) if self.partition_by else pa.table({})

    def keep(self, lasting: Bools) -> IntArray:
        """Drop the other partitions; maps old numbers to new ones."""
        self.count, self.tick, self.rank = (
            column[lasting] for column in (self.count, self.tick, self.rank)
        )
        self.keys.keep(np.flatnonzero(lasting))
        number: IntArray = np.cumsum(lasting) - 1
        return number


class PatternBank:
    def __init__(
        self,
        schema: pa.Schema,
        time: str,
        partition_by: Sequence[str] = (),
        limits: MatchLimits | None = None,
    ) -> None:
        self.schema = schema
        self.time = time
        self.partition_by = list(partition_by)
        self.limits = limits or MatchLimits()
        self.watermark = INT64_MIN
        self.scratch = Scratch(self.limits)
        self.layer = Layer([], [])
        self.partitions = Partitions(schema, time, self.partition_by)
        self._tidy_at = PARTITIONS_MIN

    # -- patterns -------------------------------------------------------------------------------

    def take(self, layer: Layer) -> None:
        """Add patterns, which see the events of later steps, with their open matches in this bank's
        partition numbers.
        """
        for card in layer.cards:
            if list(card.partition_by) != self.partition_by:
                raise InvalidArgument(
                    f"a pattern cannot share the search: it is partitioned by {card.partition_by}, "
                    f"not by {self.partition_by}"
                )
        self.layer = _joined(self.layer, layer)

    def remove(self, name: Hashable) -> None:
        layer = self.layer
        layer.remove(name)
        if 2 * len(layer.number) < len(layer):
            self.layer = Layer(*layer.living()).instead(layer)

    def searched(self, name: Hashable) -> int:
        """Hits of a pattern that were searched; isolated hits may be skipped."""
        return int(self.layer.searched[self.layer.number[name]])

    def __len__(self) -> int:
        return len(self.layer.number)

    def read_by(self, layer: Layer) -> list[str]:
        """The columns that some patterns read."""
        return [n for n in self.schema.names if n in layer.columns or n == self.time]

    @property
    def nbytes(self) -> int:
        open_bytes = sum(part.nbytes for part in self.layer.open_matches)
        return int(open_bytes + self.partitions.nbytes)

    # -- steps ----------------------------------------------------------------------------------

    def advance(self, batch: pa.RecordBatch | pa.Table | None, watermark: int) -> BankMatches:
        """Take events in time order, and a watermark: no event at or before it follows."""
        self.watermark = max(self.watermark, watermark)
        table = self.schema.empty_table() if batch is None else _as_table(batch)
        matches = []
        for begin in range(0, max(1, table.num_rows), BATCH_ROWS):
            piece = table.slice(begin, BATCH_ROWS)
            last = begin + BATCH_ROWS >= table.num_rows
            now = self.watermark if last else INT64_MIN
            matches.append(self._step(piece, now))
        return BankMatches.joined(matches)

    def _step(self, table: pa.Table, watermark: int) -> BankMatches:
        fresh, order = self.partitions.arrange(table)
        matches, layer = self.nothing(), self.layer
        if len(layer):
            hits = layer.hits(layer.read(table), order, fresh, self.scratch)
            layer.searched += hits.first[1:] - hits.first[:-1]
            result = layer.search(hits, fresh, layer.open_matches, watermark, self.scratch)
            layer.open_matches = result.open_matches
            if len(result.parts.query):
                matches = result.matches(layer.names, self.partitions.keys_at)
        self._tidy()
        if self.nbytes > self.limits.memory_bytes:
            raise ResourceLimit(
                f"open matches of {len(self)} patterns keep more than "
                f"{self.limits.memory_bytes} bytes; add WITHIN, or narrow the conditions"
            )
        return matches

    def nothing(self) -> BankMatches:
        none = np.zeros(0, np.int64)
        return BankMatches((), none, self.partitions.keys.table.slice(0, 0), none, none, none, none)

    def _tidy(self) -> None:
        places = self.partitions
        if len(places) <= self._tidy_at or not self.partition_by:
            return
        lasting = places.tick > self.watermark
        open_matches = self.layer.open_matches
        lasting[open_matches.partition] = True
        some = int(lasting.sum())
        self._tidy_at = max(PARTITIONS_MIN, 2 * some)
        if 2 * some > len(lasting):
            return
        number = places.keep(lasting)
        self.layer.open_matches = open_matches._replace(partition=number[open_matches.partition])


def _joined(some: Layer, more: Layer) -> Layer:
    if not len(some):
        return more
    names, cards, below = some.living()
    added, others, above = more.living()
    open_matches = OpenMatches(
        np.concatenate([below.query, above.query + len(names)]),
        np.concatenate([below.partition, above.partition]),
        np.concatenate([below.first, above.first[1:] + below.first[-1]]),
        *(np.concatenate(pair) for pair in zip(below[3:], above[3:], strict=True)),
    )
    return Layer([*names, *added], [*cards, *others], open_matches).instead(some, more)


def _as_table(batch: pa.RecordBatch | pa.Table) -> pa.Table:
    return batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
