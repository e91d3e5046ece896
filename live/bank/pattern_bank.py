"""Thousands of saved patterns over one stream, step by step.

Purpose
    :class:`PatternBank` takes the events of a step and says which patterns matched where.  It does
    for all of its patterns together what :class:`~chronicle.query.pattern.advancing.AdvancingMatch`
    does for one.

Guarantee
    Matches of a pattern are those that it has alone, known at the same watermark, but for SKIP TO
    NEXT ROW, where a match waits for those that begin before it.  No Python and no allocation per
    query and batch.  State is the hits of open matches.

Layers
    Patterns stand in layers (:mod:`.layer`) that are built once.  One that comes is a layer of its
    own; layers of like size are merged, so each pattern is built a logarithmic number of times.

Limits
    Patterns of one PARTITION BY list that :func:`~.symbols.why_alone` has nothing against.  A
    pattern sees the events from the step on in which it was added: what it had open at the
    watermark is given by :mod:`.regions`.  The rows that a partial match keeps are searched again
    when its query has another hit in the partition.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.times import INT64_MIN
from ...errors import InvalidArgument, ResourceLimit
from ...query.pattern.matcher import MatchLimits
from .cards import Card
from .layer import Layer, Room
from .matches import BankMatches
from .partitions import Partitions
from .predicate_index import Columns
from .searching import Kept

__all__ = ["BankMatches", "PatternBank"]

IntArray = npt.NDArray[np.int64]
BATCH_ROWS = 1 << 16
PARTITIONS_MIN = 4096


class PatternBank:
    """See the module.

    Parameters
    ----------
    schema : pyarrow.Schema
        Columns of the events.
    time : str
    partition_by : sequence of str
    limits : MatchLimits, optional

    Attributes
    ----------
    layers : list of Layer
    partitions : Partitions
    """

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
        """Take a pattern in; it sees the events of the next step on.

        Raises
        ------
        InvalidArgument
            When it partitions in another way.
        """
        self.take(Layer([name], [card]))

    def take(self, layer: Layer) -> None:
        """Take a layer in, with what its patterns have open in the partitions known here."""
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
        """Let a pattern go, with what it had open."""
        for i, layer in enumerate(self.layers):
            if name in layer.number:
                layer.remove(name)
                if 2 * len(layer.number) < len(layer):
                    self.layers[i] = Layer(*layer.living()).instead(layer)
                self.layers = [each for each in self.layers if len(each)]
                return
        raise KeyError(name)

    def searched(self, name: Hashable) -> int:
        """Hits of a pattern that were searched; one far from every other need not be."""
        found = (layer for layer in self.layers if name in layer.number)
        return sum(int(layer.searched[layer.number[name]]) for layer in found)

    def __contains__(self, name: Hashable) -> bool:
        return any(name in layer.number for layer in self.layers)

    def __len__(self) -> int:
        return sum(len(layer.number) for layer in self.layers)

    @property
    def symbols(self) -> int:
        """Conditions that are evaluated."""
        every = (card for layer in self.layers for card in layer.living()[1])
        return len({atoms for card in every for _, atoms in card.conditions})

    @property
    def longest(self) -> int:
        """The greatest WITHIN of all patterns; -1 where one has none."""
        windows = [layer.longest for layer in self.layers]
        return -1 if -1 in windows else max(windows, default=0)

    @property
    def columns(self) -> list[str]:
        """What a step reads of the events."""
        named = {self.time}.union(*(layer.columns for layer in self.layers))
        return [name for name in self.schema.names if name in named]

    @property
    def nbytes(self) -> int:
        """Memory of the state."""
        kept = sum(part.nbytes for layer in self.layers for part in layer.kept)
        return int(kept + self.partitions.nbytes)

    # -- steps ----------------------------------------------------------------------------------

    def advance(self, batch: pa.RecordBatch | pa.Table | None, watermark: int) -> BankMatches:
        """Take events and a watermark; the matches that are decided by them.

        Parameters
        ----------
        batch : RecordBatch, Table or None
            Events in the order of time.
        watermark : int
            In ticks: no event at this time or before will come any more.
        """
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
        """No event will come; what was still open."""
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
        """Partitions as these are numbered, of which none has been seen."""
        return Partitions(self.schema, self.time, self.partition_by)

    def nothing(self) -> BankMatches:
        """No matches."""
        none = np.zeros(0, np.int64)
        keys = self.partitions.keys_at(none)
        return BankMatches(
            (), none, keys, none, none, none, none, none, np.zeros(1, np.int64), none, none, none
        )

    def _tidy(self) -> None:
        """Forget partitions in which nothing is open."""
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
    """One layer of two; the patterns of the first keep their order."""
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
