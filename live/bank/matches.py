"""Matches of a bank, identified by their events, not by row positions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import numbered
from ...query.pattern.columns import take_ranges

IntArray = npt.NDArray[np.int64]
_PER_MATCH = ("partition", "first_row", "last_row", "last_tick", "last_rank")
_PER_RUN = ("place", "tick", "rank")


@dataclass(frozen=True)
class BankMatches:
    """Matches by query, partition and first event; rows count within the partition, ranks within a
    tick.  Match ``i`` has the runs ``run_offsets[i] .. run_offsets[i + 1]``: position (``place``)
    and first event, with rank -1 where a star without condition begins with an event that is no
    hit.
    """

    names: tuple[Hashable, ...]
    query: IntArray
    keys: pa.Table
    partition: IntArray
    first_row: IntArray
    last_row: IntArray
    last_tick: IntArray
    last_rank: IntArray
    run_offsets: IntArray
    place: IntArray
    tick: IntArray
    rank: IntArray

    def __len__(self) -> int:
        return len(self.query)

    @property
    def first_tick(self) -> IntArray:
        return self.tick[self.run_offsets[:-1]]

    @property
    def first_rank(self) -> IntArray:
        return self.rank[self.run_offsets[:-1]]

    def where(self, chosen: npt.NDArray[np.bool_]) -> BankMatches:
        if chosen.all():
            return self
        runs = take_ranges(self.run_offsets[:-1][chosen], self.run_offsets[1:][chosen])
        sizes = np.diff(self.run_offsets)[chosen]
        per_match = {name: getattr(self, name)[chosen] for name in _PER_MATCH}
        per_run = {name: getattr(self, name)[runs] for name in _PER_RUN}
        keys = self.keys.filter(pa.array(chosen)) if self.keys.num_columns else self.keys
        some, query = numbered(self.query[chosen])
        names = tuple(self.names[i] for i in some.tolist())
        return replace(
            self, names=names, query=query, keys=keys,
            run_offsets=_offsets(sizes), **per_match, **per_run,
        )  # fmt: skip

    @staticmethod
    def joined(parts: Sequence[BankMatches]) -> BankMatches:
        """Concatenation of at least one part."""
        full = [part for part in parts if len(part)] or list(parts[:1])
        if len(full) == 1:
            return full[0]
        number: dict[Hashable, int] = {}
        query = [
            np.array([number.setdefault(n, len(number)) for n in part.names], np.int64)[part.query]
            for part in full
        ]
        runs = np.concatenate([np.diff(part.run_offsets) for part in full])
        rest = {
            field.name: np.concatenate([getattr(part, field.name) for part in full])
            for field in fields(BankMatches)
            if field.name not in ("names", "query", "keys", "run_offsets")
        }
        keys = pa.concat_tables([part.keys for part in full])
        return BankMatches(
            tuple(number), np.concatenate(query), keys, run_offsets=_offsets(runs), **rest
        )


def _offsets(sizes: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
