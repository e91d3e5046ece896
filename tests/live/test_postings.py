"""Conditions that look into sorted events, against looking up each event, and asking everything."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.live.bank import postings, predicate_index
from chronicle.live.bank.postings import Postings
from chronicle.live.bank.predicate_index import Columns, PredicateIndex, find_hits, use_codes
from chronicle.live.bank.searching import by_query

from .test_pattern_bank import events, holds, random_atom

Found = dict[tuple[int, int], int]


class Some:
    """Conditions, who uses them, and events, some of which have others beside them elsewhere."""

    def __init__(self, r: random.Random, rows: int) -> None:
        self.symbols = [
            tuple(dict.fromkeys(random_atom(r) for _ in range(r.choice([1, 1, 2, 3]))))
            for _ in range(r.choice([1, 3, 40, 150]))
        ]
        self.queries = r.choice([1, 5, 60])
        uses = sorted(
            {
                (r.randrange(len(self.symbols)), r.randrange(self.queries), 1 << r.randrange(40))
                for _ in range(3 * self.queries)
            }
        )
        symbol, query = (np.array([use[i] for use in uses], np.int64) for i in range(2))
        self.uses, self.query = uses, query
        self.bits = np.array([bits for _, _, bits in uses], np.uint64)
        first = np.searchsorted(symbol, np.arange(len(self.symbols) + 1)).astype(np.int64)
        self.strict = np.array([r.random() < 0.6 for _ in range(self.queries)], np.bool_)
        self.alive = np.array([r.random() < 0.8 for _ in range(self.queries)], np.bool_)
        self.table = events(r, rows, "ab")
        keys, _ = predicate_index.keys_of(self.table.column("x"))
        sample = {"x": np.sort(keys)} if r.random() < 0.5 else None
        self.index = PredicateIndex(self.symbols, first, use_codes(query, self.strict), sample)
        self.postings = Postings(self.index, query, self.bits, self.strict)
        self.order = np.array(r.sample(range(rows), r.randint(0, rows)), np.int64)
        self.edges = np.array([r.random() < 0.1 for _ in self.order], np.int64).reshape(-1)
        if len(self.order):
            self.edges[[0, -1]] = 1

    def found(self) -> Found | None:
        """By the postings."""
        read = self.index.read(Columns(self.table))
        hits = self.postings.hits(read, self.order, self.edges > 0, self.alive, 0)
        if hits is None:
            return None
        first, row, bits = hits
        said: Found = {}
        for q in range(self.queries):
            mine = row[first[q] : first[q + 1]].tolist()
            assert mine == sorted(set(mine))
            said |= {(q, k): int(b) for k, b in zip(mine, bits[first[q] :], strict=False)}
        return said

    def looked_up(self) -> Found:
        """Event by event."""
        index, size = self.index, 1 << 16
        batch, at = index.batch(index.read(Columns(self.table))), np.zeros(2, np.int64)
        rows, uses = np.empty(size, np.int32), np.empty(size, np.int32)
        last = np.full(self.queries, -(1 << 40))
        edges = 2 * self.edges  # another may be beside it
        assert find_hits(
            self.order, edges, batch, index.lists, index.tests, index.use_first, index.codes, last,
            at, rows, uses,
        )  # fmt: skip
        total = int(at[1])
        query = np.where(self.alive[self.query], self.query, -1)
        first = np.zeros(self.queries + 1, np.int64)
        row, bits = np.empty(total, np.int32), np.empty(total, np.uint64)
        by_query(rows[:total], uses[:total], query, self.bits, first, row, bits)
        said: Found = {}
        for q in range(self.queries):
            for h in range(first[q], first[q + 1]):
                said[q, int(row[h])] = said.get((q, int(row[h])), 0) | int(bits[h])
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
def test_what_is_found_is_what_is_found_event_by_event(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    r = random.Random(seed)
    if seed % 3 == 0:
        monkeypatch.setattr(postings, "SORTED_BY_HAND", 0)
    some = Some(r, r.choice([0, 1, 5, 40, 130]))
    wanted = some.asked()
    assert some.found() == wanted
    assert some.looked_up() == wanted


def test_hits_are_found_again_when_there_is_no_room_for_them() -> None:
    r = random.Random(4)
    some = Some(r, 130)
    while len(some.asked()) < 200:
        some = Some(r, 130)
    found = some.found()  # with room for the hits of one query
    assert found == some.asked()


def test_too_many_rows_to_be_tested_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "CANDIDATES_MAX", 3)
    r = random.Random(2)
    left = 0
    for _ in range(20):
        some = Some(r, 40)
        found = some.found()
        left += found is None
        assert found is None or found == some.asked()
    assert 0 < left < 20


def test_texts_of_other_columns_and_empty_batches() -> None:
    r = random.Random(8)
    some = Some(r, 0)
    assert some.found() == {}
    some = Some(r, 40)
    some.table = some.table.set_column(4, "s", pa.nulls(40, pa.string()))
    assert some.found() == some.looked_up() == some.asked()
