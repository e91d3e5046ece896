"""What a run keeps, when it gives up, and how it adapts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import ResourceLimit
from chronicle.query.pattern.compiled import MatchLimits
from chronicle.query.situations.compiled import CompiledSituations
from chronicle.query.situations.stream import SituationStream

Compile = Callable[[str, pa.Schema], CompiledSituations]
SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.int64()), *((n, pa.int8()) for n in "abc")])


def flicker(count: int, seed: int = 1, stay: float = 0.9, keys: int = 1) -> pa.Table:
    """Rows a tick apart, each name of a key on and off at random."""
    rng = np.random.default_rng(seed)
    key = np.arange(count) % keys
    columns = {}
    for name in "abc":
        flips = rng.random(count) > stay
        columns[name] = pa.array((np.cumsum(flips) % 2).astype(np.int8))
    return pa.table({"t": np.arange(count), "k": key, **columns}, SCHEMA)


def test_with_a_window_memory_does_not_grow(compiled: Compile) -> None:
    clause = compiled(
        "MEASURES count(A.*) AS n PATTERN (A OVERLAPS B AND B BEFORE C) WITHIN 100 "
        "DEFINE A AS a = 1, B AS b = 1, C AS c = 1", SCHEMA,
    )  # fmt: skip
    stream = SituationStream(clause, MatchLimits())
    for batch in flicker(200_000).to_batches(max_chunksize=5_000):
        stream.target = 1
        list(stream.feed(batch))
        assert len(stream.matching.kept) < 60
        assert stream.results.rows.num_rows < 300
    assert stream.situations > 10_000


def test_bounded_durations_are_a_window_too(compiled: Compile) -> None:
    clause = compiled(
        "PATTERN (A OVERLAPS B) DEFINE A AS a = 1 LASTING AT MOST 30, B AS b = 1 LASTING AT MOST "
        "60", SCHEMA,
    )  # fmt: skip
    assert [clause.reach_of(0), clause.reach_of(1)] == [
        89,
        60,
    ]  # starts and ends differ by a tick or more


def test_what_cannot_end_is_refused(compiled: Compile) -> None:
    text = "PATTERN (A BEFORE B) DEFINE A AS a = 1, B AS b = 1"
    clause = compiled(text, SCHEMA)
    with pytest.raises(ResourceLimit, match="add WITHIN"):
        list(clause.run(flicker(50_000).to_batches(), limits=MatchLimits(memory_bytes=20_000)))
    text = "PATTERN (A BEFORE B AND B BEFORE C) DEFINE A AS a = 1, B AS b = 1, C AS c = 1"
    clause = compiled(text, SCHEMA)
    with pytest.raises(ResourceLimit, match="combinations are tried"):
        list(clause.run(flicker(50_000).to_batches(), limits=MatchLimits(steps_max=1000)))


def test_orders_follow_what_is_seen_and_change_no_row(compiled: Compile) -> None:
    text = (
        "PATTERN (A BEFORE B AND B BEFORE C AND A BEFORE C) WITHIN 1000 "
        "DEFINE A AS a = 1, B AS b = 1, C AS c = 1"
    )
    clause = compiled(text, SCHEMA)
    rng = np.random.default_rng(3)
    count, columns = 60_000, {}
    for name, rates in (("a", (0.005, 0.5)), ("b", (0.1, 0.1)), ("c", (0.1, 0.1))):
        rate = np.repeat(rates, count // 2)
        columns[name] = pa.array((np.cumsum(rng.random(count) < rate / 10) % 2).astype(np.int8))
    table = pa.table({"t": np.arange(count), "k": np.zeros(count, np.int64), **columns}, SCHEMA)
    stream = SituationStream(clause, MatchLimits())
    orders, rows = [], []
    for batch in table.to_batches(max_chunksize=6_000):
        stream.target = 1
        rows += list(stream.feed(batch))
        orders.append(stream.matching.orders.tolist())
    rows += list(stream.finish())
    assert stream.matching.plans > 1
    assert orders[0] != orders[-1]
    forced = replace(clause, order=("B", "A", "C"))
    again = list(forced.run(table.to_batches()))
    assert pa.Table.from_batches(rows) == pa.Table.from_batches(again)


def test_conditions_look_back_by_prev_across_batches_and_partitions(compiled: Compile) -> None:
    clause = compiled(
        "PARTITION BY k MEASURES count(A.*) AS n, STARTED(A) AS s PATTERN (A) "
        "DEFINE A AS a > PREV(a) OR b > PREV(b, 2)", SCHEMA,
    )  # fmt: skip
    table = flicker(3_000, stay=0.6, keys=3)
    stream = SituationStream(clause, MatchLimits())
    rows = []
    for batch in table.to_batches(max_chunksize=7):
        stream.target = 1
        rows += list(stream.feed(batch))
    rows += list(stream.finish())
    whole = pa.Table.from_batches(list(clause.run(table.to_batches())))
    assert pa.Table.from_batches(rows) == whole
    assert whole.num_rows > 500


def test_many_partitions(compiled: Compile) -> None:
    clause = compiled(
        "PARTITION BY k PATTERN (A OVERLAPS B) WITHIN 1000000 DEFINE A AS a = 1, B AS b = 1", SCHEMA
    )
    table = flicker(300_000, stay=0.5, keys=30_000)
    found = pa.Table.from_batches(list(clause.run(table.to_batches(max_chunksize=10_000))))
    one = table.filter(pa.compute.equal(table["k"], 77))
    alone = pa.Table.from_batches(list(clause.run(one.to_batches())), found.schema)
    assert found.num_rows > 1_000
    assert found.filter(pa.compute.equal(found["k"], 77)).equals(alone)


def test_times_at_the_ends_of_64_bits(compiled: Compile) -> None:
    low, high = -(2**63), 2**63 - 1
    clause = compiled(
        "PATTERN (A BEFORE B) WITHIN 10 GAP 5 DEFINE A AS a = 1 LASTING AT LEAST 1, B AS b = 1",
        SCHEMA,
    )
    times = [low, low + 1, low + 3, low + 4, 0, high - 5, high - 4, high - 2, high - 1]
    a = [1, 0, 0, 0, 0, 1, 0, 0, 0]
    b = [0, 0, 1, 0, 0, 0, 0, 1, 0]
    zeros = pa.array([0] * len(times))
    table = pa.table({"t": times, "k": zeros, "a": a, "b": b, "c": zeros}).cast(SCHEMA)
    batches = list(clause.run(table.to_batches()))
    found = [list(row.values()) for batch in batches for row in batch.to_pylist()]
    assert found == [
        [low, low + 1, low + 3, low + 4], [high - 5, high - 4, high - 2, high - 1]
    ]  # fmt: skip
