"""What a bank has open, told from events: as if it had seen them; and what late events change."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.live.bank.corrections import Late, correct, open_at
from chronicle.live.bank.layer import BankMatches, Layer
from chronicle.live.bank.pattern_bank import PatternBank
from chronicle.live.bank.symbols import card_of

from ..rounds import rounds
from .test_pattern_bank import SCHEMA, clause, compiled_clause, events

Emitted = set[tuple[Any, ...]]


def said(found: BankMatches) -> Emitted:
    keys = found.keys.to_pylist() if found.keys.num_columns else [{}] * len(found)
    return {
        (found.names[q], *key.values(), a, b, c, d)
        for q, key, a, b, c, d in zip(
            found.query.tolist(), keys, found.first_tick.tolist(), found.first_rank.tolist(),
            found.last_tick.tolist(), found.last_rank.tolist(), strict=True,
        )
    }  # fmt: skip


def layer_of(patterns: dict[int, Any]) -> Layer:
    return Layer(list(patterns), [card_of(each) for each in patterns.values()])


def bank_over(
    patterns: dict[int, Any], table: pa.Table, upto: int, partitioned: bool
) -> tuple[PatternBank, Emitted]:
    bank = PatternBank(SCHEMA, "t", ["k"] if partitioned else [])
    bank.take(layer_of(patterns))
    return bank, said(bank.advance(between(table, -100, upto), upto))


def between(table: pa.Table, low: int, high: int) -> pa.Table:
    ticks = np.array(table.column("t"))
    return table.filter(pa.array((ticks >= low) & (ticks <= high)))


def cut_of(r: random.Random, table: pa.Table) -> int:
    return int(r.choice(table.column("t").to_pylist()))


@pytest.mark.parametrize("partitioned", [False, True])
def test_patterns_that_come_have_open_what_they_had(partitioned: bool) -> None:
    r = random.Random(7 + partitioned)
    opened = 0
    for _ in range(rounds(4, 6)):
        patterns = {i: compiled_clause(clause(r, partitioned)) for i in range(20)}
        table = events(r, 200, "abc")
        watermark = cut_of(r, table)
        bank, _ = bank_over(patterns, table, watermark, partitioned)
        other = PatternBank(SCHEMA, "t", bank.partition_by)
        if r.random() < 0.5:  # others are there already
            other.take(layer_of({-1: patterns[0]}))
            other.advance(between(table, -100, watermark), watermark)
        layer = layer_of(patterns)
        open_at(other, layer, lambda low, high, t=table: between(t, low, high), 0, watermark)
        opened += len(layer.open_matches.query)
        other.take(layer)
        rest = between(table, watermark + 1, 10**6)
        wanted = said(bank.advance(rest, 10**6))
        assert {m for m in said(other.advance(rest, 10**6)) if m[0] >= 0} == wanted
    assert opened > 10


def with_late(r: random.Random, table: pa.Table, watermark: int) -> tuple[pa.Table, Late]:
    """The events with some more at or before a watermark, behind those of their ticks."""
    more = [
        {**row, "t": min(watermark, max(0, row["t"] - r.choice([0, 1, 5, 40]))), "id": -1}
        for row in r.sample(table.to_pylist(), r.choice([1, 1, 3, 8]))
    ]
    more.sort(key=lambda row: row["t"])
    whole = sorted(table.to_pylist() + more, key=lambda row: row["t"])
    late = Late(*np.unique([row["t"] for row in more], return_counts=True))
    return pa.Table.from_pylist(whole, schema=SCHEMA), late


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("length", [60, 400])
def test_late_events_change_what_they_change(length: int, partitioned: bool) -> None:
    r = random.Random(length * 2 + partitioned)
    changed = 0
    for _ in range(8):
        patterns = {i: compiled_clause(clause(r, partitioned)) for i in range(15)}
        table = events(r, length, "abc")
        watermark = cut_of(r, table)
        bank, holds = bank_over(patterns, table, watermark, partitioned)
        for _ in range(3):
            table, late = with_late(r, table, watermark)

            def scan(low: int, high: int, t: pa.Table = table) -> pa.Table:
                return between(t, low, high)

            found = correct(bank, scan, late, 0, watermark)
            gone, there = said(found.gone), said(found.added)
            assert gone <= holds
            holds = (holds - gone) | there
            changed += len(gone ^ there)
            anew, wanted = bank_over(patterns, table, watermark, partitioned)
            assert holds == wanted
        rest = between(table, watermark + 1, 10**6)
        assert said(bank.advance(rest, 10**6)) == said(anew.advance(rest, 10**6))
    assert changed > 20


def test_one_late_event_changes_all_matches_behind_it_where_no_row_is_bare() -> None:
    """Every event satisfies the condition, so only counting from the first one tells the cuts."""
    shape = "ORDER BY t MEASURES FIRST(t) AS a PATTERN (A A A) WITHIN 10 DEFINE A AS y = 0"
    patterns = {0: compiled_clause(shape)}
    rows = [{"t": 2 * i, "k": "a", "y": 0, "id": i} for i in range(160)]
    bank, holds = bank_over(patterns, pa.Table.from_pylist(rows, schema=SCHEMA), 318, False)
    rows.insert(102, {**rows[101], "t": 203})
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    late = Late(np.array([203]), np.array([1]))
    found = correct(bank, lambda low, high: between(table, low, high), late, 0, 318)
    gone, there = said(found.gone), said(found.added)
    assert gone <= holds
    assert (holds - gone) | there == bank_over(patterns, table, 318, False)[1]
    assert min(m[1] for m in there) > 190
    assert len(there) == 19
