"""The predicate index against asking every condition of every event."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.live.bank import predicate_index
from chronicle.live.bank.predicate_index import PredicateIndex, Uses
from chronicle.live.bank.symbols import Member, Null, keys_of

from .test_pattern_bank import events, holds, random_atom

Found = dict[tuple[int, int], int]


class Some:
    """Conditions, who uses them, and events, some of which have others beside them elsewhere."""

    def __init__(self, r: random.Random, rows: int) -> None:
        self.symbols = [
            tuple(dict.fromkeys(random_atom(r) for _ in range(r.choice([1, 1, 2, 3]))))
            for _ in range(r.choice([1, 3, 40, 150]))
        ]
        if r.random() < 0.2:  # without a text: the dictionary is empty, too
            self.symbols = [
                s for s in self.symbols if not any(isinstance(a, Member) for a in s)
            ] or [(Null("s"),)]
        self.queries = r.choice([1, 5, 60])
        uses = sorted(
            {
                (r.randrange(len(self.symbols)), r.randrange(self.queries), 1 << r.randrange(40))
                for _ in range(3 * self.queries)
            }
        )
        symbol, query = (np.array([use[i] for use in uses], np.int64) for i in range(2))
        self.uses = uses
        bits = np.array([bits for _, _, bits in uses], np.uint64)
        self.strict = np.array([r.random() < 0.6 for _ in range(self.queries)], np.bool_)
        self.alive = np.array([r.random() < 0.8 for _ in range(self.queries)], np.bool_)
        self.table = events(r, rows, "ab")
        if r.random() < 0.2:
            self.table = self.table.set_column(4, "s", pa.nulls(rows, pa.string()))
        sample = {"x": np.sort(keys_of(self.table.column("x"))[0])} if r.random() < 0.5 else None
        self.index = PredicateIndex(self.symbols, Uses(symbol, query, bits), self.strict, sample)
        self.order = np.array(r.sample(range(rows), r.randint(0, rows)), np.int64)
        self.edges = np.array([r.random() < 0.1 for _ in self.order], np.bool_)
        if len(self.order):
            self.edges[[0, -1]] = True

    def found(self) -> Found:
        read = self.index.read(self.table)
        first, row, bits = self.index.hits(read, self.order, self.edges, self.alive, 0)
        said: Found = {}
        for q in range(self.queries):
            mine = row[first[q] : first[q + 1]].tolist()
            assert mine == sorted(set(mine))
            said |= {(q, k): int(b) for k, b in zip(mine, bits[first[q] :], strict=False)}
        return said

    def asked(self) -> Found:
        """Every condition of every event, and what has none beside it left out."""
        said: Found = {}
        for symbol, query, bits in self.uses:
            for k, row in enumerate(self.order.tolist()):
                if self.alive[query] and self._holds(self.symbols[symbol], row):
                    said[query, k] = said.get((query, k), 0) | bits
        uses: dict[tuple[int, int], int] = {}
        for symbol, query, _ in self.uses:
            for k, row in enumerate(self.order.tolist()):
                uses[query, k] = uses.get((query, k), 0) + self._holds(self.symbols[symbol], row)
        return {
            (q, k): bits
            for (q, k), bits in said.items()
            if not self.strict[q] or self.edges[k] or uses[q, k] > 1
            or (q, k - 1) in said or (q, k + 1) in said
        }  # fmt: skip

    def _holds(self, atoms: tuple[Any, ...], row: int) -> bool:
        return all(holds(atom, row, self.table) for atom in atoms)


@pytest.mark.parametrize("seed", range(60))
def test_the_index_finds_what_asking_everything_finds(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    r = random.Random(seed)
    if seed % 3 == 0:
        monkeypatch.setattr(predicate_index, "SORTED_BY_HAND", 0)
    some = Some(r, r.choice([0, 1, 5, 40, 130]))
    assert some.found() == some.asked()
