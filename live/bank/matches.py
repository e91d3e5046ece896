"""Matches of a bank, identified by their events, not by row positions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import numbered

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BankMatches:
    """Matches by query, partition and first event; ``query`` counts in ``names``, a rank counts the
    events of a tick in the partition.
    """

    names: tuple[Hashable, ...]
    query: IntArray
    keys: pa.Table
    first_tick: IntArray
    first_rank: IntArray
    last_tick: IntArray
    last_rank: IntArray

    def __len__(self) -> int:
        return len(self.query)

    def where(self, chosen: npt.NDArray[np.bool_]) -> BankMatches:
        if chosen.all():
            return self
        some, query = numbered(self.query[chosen])
        return BankMatches(
            tuple(self.names[i] for i in some.tolist()), query,
            self.keys.filter(pa.array(chosen)) if self.keys.num_columns else self.keys,
            self.first_tick[chosen], self.first_rank[chosen], self.last_tick[chosen],
            self.last_rank[chosen],
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
        keys = pa.concat_tables([part.keys for part in full])
        columns = ("first_tick", "first_rank", "last_tick", "last_rank")
        rest = [np.concatenate([getattr(part, name) for part in full]) for name in columns]
        return BankMatches(tuple(number), np.concatenate(query), keys, *rest)
