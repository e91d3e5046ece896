"""Step-by-step search of thousands of patterns with one PARTITION BY (see ``symbols.why_alone``).

Each pattern has the matches that it has alone at the same watermark, except with SKIP TO NEXT ROW,
where a match waits for those that begin before it.  No Python code and no allocation per query and
batch.  Each added pattern is a layer; layers of similar size are merged, so a pattern is built
O(log n) times.  Added patterns see events of later steps; ``regions`` supplies their open matches.
The state is the hits of open matches, searched again at each further hit of query and partition.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.times import INT64_MIN
from ...errors import InvalidArgument, ResourceLimit
from ...query.contract.operator import MatchLimits
from .arranged import Partitions
from .layer import Layer, Room
from .matches import BankMatches
from .predicate_index import Columns
from .searching import Kept
from .symbols import Card

IntArray = npt.NDArray[np.int64]
BATCH_ROWS = 1 << 16
PARTITIONS_MIN = 4096


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
        self.room = Room(self.limits)
        self.layers: list[Layer] = []
        self.partitions = Partitions(schema, time, self.partition_by)
        self._tidy_at = PARTITIONS_MIN

    # -- patterns -------------------------------------------------------------------------------

    def add(self, name: Hashable, card: Card) -> None:
        """Add a pattern, which sees events from the next step on."""
        self.take(Layer([name], [card]))

    def take(self, layer: Layer) -> None:
        """Add a layer with its open matches, in this bank's partition numbers."""
        for card in layer.cards:
            if list(card.partition_by) != self.partition_by:
                raise InvalidArgument(
                    f"a pattern cannot share the search: it is partitioned by {card.partition_by}, "
                    f"not by {self.partition_by}"
                )
        self.layers.append(layer)
        while len(self.layers) > 1 and len(self.layers[-2]) <= 2 * len(self.layers[-1]):
            above, below = self.layers.pop(), self.layers.pop()
            self.layers.append(_merged(below, above))

    def remove(self, name: Hashable) -> None:
        for i, layer in enumerate(self.layers):
            if name in layer.number:
                layer.remove(name)
                if 2 * len(layer.number) < len(layer):
                    self.layers[i] = Layer(*layer.living()).instead(layer)
                self.layers = [each for each in self.layers if len(each)]
                return
        raise KeyError(name)

    def searched(self, name: Hashable) -> int:
        """Hits of a pattern that were searched; isolated hits may be skipped."""
        found = (layer for layer in self.layers if name in layer.number)
        return sum(int(layer.searched[layer.number[name]]) for layer in found)

    def __contains__(self, name: Hashable) -> bool:
        return any(name in layer.number for layer in self.layers)

    def __len__(self) -> int:
        return sum(len(layer.number) for layer in self.layers)

    @property
    def symbols(self) -> int:
        every = (card for layer in self.layers for card in layer.living()[1])
        return len({atoms for card in every for _, atoms in card.conditions})

    @property
    def longest(self) -> int:
        """The greatest WITHIN in ticks; -1 if a pattern has none."""
        windows = [layer.longest for layer in self.layers]
        return -1 if -1 in windows else max(windows, default=0)

    @property
    def columns(self) -> list[str]:
        named = {self.time}.union(*(layer.columns for layer in self.layers))
        return [name for name in self.schema.names if name in named]

    @property
    def nbytes(self) -> int:
        kept = sum(part.nbytes for layer in self.layers for part in layer.kept)
        return int(kept + self.partitions.nbytes)

    # -- steps ----------------------------------------------------------------------------------

    def advance(self, batch: pa.RecordBatch | pa.Table | None, watermark: int) -> BankMatches:
        """Take events in time order, and a watermark: no event at or before it follows."""
        self.watermark = max(self.watermark, watermark)
        table = self.schema.empty_table() if batch is None else _as_table(batch)
        found = []
        for begin in range(0, max(1, table.num_rows), BATCH_ROWS):
            piece = table.slice(begin, BATCH_ROWS)
            last = begin + BATCH_ROWS >= table.num_rows
            now = self.watermark if last else INT64_MIN
            found.append(self._step(piece, now, False))
        return BankMatches.joined(found)

    def finish(self) -> BankMatches:
        """End of stream: the matches still open."""
        return self._step(self.schema.empty_table(), self.watermark, True)

    def _step(self, table: pa.Table, watermark: int, final: bool) -> BankMatches:
        fresh, order = self.partitions.arrange(table)
        parts, columns = [self.nothing()], Columns(table)
        for layer in self.layers:
            hits = layer.hits(layer.read(columns), order, fresh, self.room)
            layer.searched += np.diff(hits.first)
            found = layer.search(hits, fresh, layer.kept, watermark, self.room, final=final)
            layer.kept = found.kept
            if len(found.query):
                parts.append(found.matches(layer.names, self.partitions.keys_at))
        self._tidy()
        if self.nbytes > self.limits.memory_bytes:
            raise ResourceLimit(
                f"open matches of {len(self)} patterns keep more than "
                f"{self.limits.memory_bytes} bytes; add WITHIN, or narrow the conditions"
            )
        return BankMatches.joined(parts)

    def no_partitions(self) -> Partitions:
        return Partitions(self.schema, self.time, self.partition_by)

    def nothing(self) -> BankMatches:
        none = np.zeros(0, np.int64)
        keys = self.partitions.keys_at(none)
        return BankMatches(
            (), none, keys, none, none, none, none, none, np.zeros(1, np.int64), none, none, none
        )

    def _tidy(self) -> None:
        places = self.partitions
        if len(places) <= self._tidy_at or not self.partition_by:
            return
        lasting = places.tick > self.watermark
        for layer in self.layers:
            lasting[layer.kept.partition] = True
        some = int(lasting.sum())
        self._tidy_at = max(PARTITIONS_MIN, 2 * some)
        if 2 * some > len(lasting):
            return
        number = places.keep(lasting)
        for layer in self.layers:
            layer.kept = layer.kept._replace(partition=number[layer.kept.partition])


def _merged(below: Layer, above: Layer) -> Layer:
    names, cards, kept = below.living()
    more, others, open_ = above.living()
    joined = Kept(
        np.concatenate([kept.query, open_.query + len(names)]),
        np.concatenate([kept.partition, open_.partition]),
        np.concatenate([kept.first, open_.first[1:] + kept.first[-1]]),
        *(np.concatenate(pair) for pair in zip(kept[3:], open_[3:], strict=True)),
    )
    return Layer([*names, *more], [*cards, *others], joined).instead(below, above)


def _as_table(batch: pa.RecordBatch | pa.Table) -> pa.Table:
    return batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
