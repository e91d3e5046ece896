"""Alternatives of a pattern, each looked up by itself: the rows of a full replay."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.errors import ResourceLimit
from chronicle.indexes import stream_indexes
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.query.pattern.compiled import MatchLimits, compile_match
from chronicle.query.replay import locating, lookups, planning
from chronicle.query.replay.applicability import demands
from chronicle.query.replay.candidates import LookupRange
from chronicle.query.replay.context import PlanContext
from chronicle.query.replay.partitions import PartitionKeys, PartitionSpans, united_partitions
from chronicle.query.replay.planning import consider, located_plan, plan_match
from chronicle.query.replay.run_plan import run_match
from chronicle.query.replay.symbols import Outline, cached_outlines, outlines
from chronicle.query.replay.timeline import Timeline
from chronicle.query.sql.match_clause import clause_of_text
from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store

from ...rounds import rounds

SCHEMA = StreamSchema(
    pa.schema(
        [
            pa.field("t", pa.int64(), False), pa.field("k", pa.string()),
            pa.field("x", pa.int64()), pa.field("y", pa.int64()),
        ]
    ),
    "t",
)  # fmt: skip
INDEXES = ("x", "y", "k", "x - PREV(x)", "x - PREV(x) PARTITION BY k", "k, x")
COUNT = 3000
LIMITS = MatchLimits(steps_max=200_000)


def table(rng: random.Random, count: int, start: int, spread: int) -> pa.Table:
    random_ = np.random.default_rng(rng.randrange(2**32))
    values = random_.integers(0, rng.choice([8, 20]), (2, count))
    repeats = random_.random(count) < 0.5  # the same value again, so that runs are long
    for at in np.flatnonzero(repeats[1:]) + 1:
        values[:, at] = values[:, at - 1]
    return pa.table(
        {
            "t": np.sort(start + random_.integers(0, spread, count)),
            "k": pa.array(random_.choice(list("abcdefgh"), count)),
            "x": pa.array(values[0], mask=random_.random(count) < 0.02), "y": values[1],
        },
        schema=SCHEMA.arrow,
    )  # fmt: skip


def condition(rng: random.Random, others: list[str]) -> str:
    low = rng.randrange(8)
    texts = [
        f"x = {low}", f"x = {low}", f"y BETWEEN {low} AND {low + 1}",
        f"x > {low} AND y < {low + 2}", f"x - PREV(x) > {low}",
        f"x < PREV(x) - {low}", f"k = '{rng.choice('abc')}' AND x < {low}",
    ]  # fmt: skip
    if others:
        other = rng.choice(others)
        texts += [
            f"x = {low} AND k = {other}.k", f"y = {low} AND x > {other}.x + 2",
            f"x BETWEEN {other}.x - 1 AND {other}.x AND y > {low}", f"k = {other}.k AND y = {low}",
        ]  # fmt: skip
    return rng.choice(texts)


def clause(rng: random.Random) -> str:
    names = ["A", "B", "C", "D"][: rng.randrange(2, 5)]

    def one(name: str) -> str:
        return name + rng.choice(["", "", "", "+", "{2}", "{1,3}", "+?"])

    gap = ["", "", "Z?", "Z{0,2}", "Z{1,3}", "Z*", "Z*?", "Z*? Z{2}"]
    shape = rng.random()
    if shape < 0.3:
        body = f"PERMUTE({', '.join(map(one, names[:3]))})"
        if len(names) > 3:
            body += f" {rng.choice(gap)} D"
    elif shape < 0.5:
        first, *rest = names
        either = f"({' | '.join(map(one, rest))})"
        body = f"{first} {rng.choice(gap)} {either}{rng.choice(['', '', '+', '{1,2}'])}"
        if rng.random() < 0.3:
            body = f"{either} {rng.choice(gap)} {first}"
    elif shape < 0.6:
        body = f"(A {rng.choice(gap)} B){rng.choice(['+', '{2}', '{1,2}'])} {' '.join(names[2:])}"
    else:
        body = " ".join(f"{one(name)} {rng.choice(gap)}" for name in names[:-1])
        body += f" {one(names[-1])}"
    by = rng.choice(["", "", "PARTITION BY k "])
    within = f"WITHIN {rng.choice([3, 12, 60])}"
    end = rng.choice(["", "", "", " EVENT SELECTION SKIP TILL NEXT MATCH"])
    after = "" if end else rng.choice(["", "AFTER MATCH SKIP TO NEXT ROW "])
    defined = [f"{name} AS {condition(rng, names[:i])}" for i, name in enumerate(names)]
    if rng.random() < 0.3:  # of PERMUTE, a condition on what may stand before or behind
        defined[0] += " AND k >= B.k" if rng.random() < 0.3 else ""
    return (
        f"SELECT * FROM s MATCH_RECOGNIZE ({by}ORDER BY t MEASURES FIRST(t) AS f, LAST(t) AS l, "
        f"count(*) AS n, CLASSIFIER() AS c {after}PATTERN ({body}) {within}{end} "
        f"DEFINE {', '.join(defined)})"
    )


@pytest.mark.parametrize("seed", range(rounds(2, 40, 1000)))
def test_every_way_gives_the_rows_of_a_replay(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, told = random.Random(seed), Counter[str]()
    monkeypatch.setattr(stream_indexes, "RUN_EVENTS", 1 << 10)
    store = Store.open(tmp_path, "rw")
    options = StreamOptions(leaf_bytes=4096, segment_bytes=60_000, compaction="manual")
    stream = store.create_stream("s", SCHEMA, options)
    indexes = StreamIndexes(tmp_path / "idx", True)
    for name in INDEXES:
        indexes.create(name, SCHEMA)
    spread = rng.choice([COUNT // 2, 3 * COUNT])
    stream.append(table(rng, COUNT, 0, spread))
    indexes.catch_up(stream.snapshot().state)
    if rng.random() < 0.5:
        stream.append(table(rng, 4, rng.randrange(spread), 40))
    if rng.random() < 0.5:
        stream.append(table(rng, 300, spread, spread // 10))
    snapshot = stream.snapshot()
    for _ in range(rounds(6, 40, 60)):
        text = clause(rng)
        compiled = compile_match(clause_of_text(text), SCHEMA)
        try:
            full = rows(snapshot, compiled, plan_match(snapshot, compiled, indexes, "replay"))
        except ResourceLimit:
            continue
        options_ = cached_outlines(compiled, SCHEMA, None, frozenset(indexes.attributes))
        for option in options_:
            with monkeypatch.context() as patch:
                patch.setattr(planning, "cached_outlines", lambda *_, one=option: (one,))
                if rng.random() < 0.5:  # ask what keys leave, however little it is
                    patch.setattr(locating, "WORTH_EVENTS", 0)
                gap = rng.choice([0, 5, None])
                plan = plan_match(snapshot, compiled, indexes, "all", gap=gap)
                assert rows(snapshot, compiled, plan).equals(full), f"{text}\n{plan.details()}"
            told["plans"] += 1
            told["ways"] += len(plan.ways) > 1
            told["rows"] += full.num_rows > 0
            told["little"] += plan.replayed() < 0.5
    indexes.close()
    store.close()
    assert min(told["ways"], told["rows"], told["little"]) > 1, told


def rows(snapshot: Any, compiled: Any, plan: Any) -> pa.Table:
    return pa.Table.from_batches(
        list(run_match(snapshot, compiled, plan, limits=LIMITS)), schema=compiled.output_schema
    )


def shown(pattern: str, defined: str, apart: bool = False) -> list[str]:
    define = ", ".join(text for text in defined.split(", ") if text[0] in pattern)
    text = (
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f "
        f"PATTERN ({pattern}) WITHIN 9 DEFINE {define})"
    )
    compiled = compile_match(clause_of_text(text), SCHEMA)
    found: tuple[tuple[Outline, ...], ...] = outlines(compiled, SCHEMA, None, frozenset(["x", "y"]))
    chosen = [some for some in found if (len(some) > 1) == apart]
    return [str(one) for some in chosen for one in some]


def test_ways_are_listed_where_they_are_few() -> None:
    define = "A AS x = 1, B AS x = 2, C AS y = 3"
    assert shown("PERMUTE(A, B)", define, True) == ["(A B)", "(B A)"]
    assert shown("A (B C | B)", define, True) == ["(A B C)", "(A B)"]
    assert len(shown("PERMUTE(A, B, C)", define, True)) == 6
    assert shown("PERMUTE(A, B, C) PERMUTE(A, B)", define, True) == []
    # what is compared comes first
    ordered = "A AS x = 1, B AS x > A.x, C AS y = 3"
    assert shown("PERMUTE(A, B, C)", ordered, True) == ["(A B C)", "(A C B)", "(C A B)"]
    assert shown("PERMUTE(B, A)", "A AS x = 1, B AS x > A.x") == ["(A B)"]


@contextmanager
def stored(
    path: Path, rows_: pa.Table, names: tuple[str, ...], late: pa.Table | None = None
) -> Iterator[tuple[Any, StreamIndexes]]:
    """A snapshot of some events, with indexes over those that are not late."""
    store = Store.open(path, "rw")
    options = StreamOptions(leaf_bytes=4096, segment_bytes=60_000, compaction="manual")
    stream = store.create_stream("s", SCHEMA, options)
    indexes = StreamIndexes(path / "idx", True)
    for name in names:
        indexes.create(name, SCHEMA)
    stream.append(rows_)
    stream.seal()
    indexes.catch_up(stream.snapshot().state)
    if late is not None:
        stream.append(late)
    try:
        yield stream.snapshot(), indexes
    finally:
        indexes.close()
        store.close()


def ways_of(
    snapshot: Any, indexes: StreamIndexes, text: str, gap: int = 0
) -> tuple[Any, PlanContext, tuple[Outline, ...]]:
    """A clause, a context and the outlines of its ways."""
    compiled = compile_match(clause_of_text(text), SCHEMA)
    apart = cached_outlines(compiled, SCHEMA, None, frozenset(indexes.attributes))[-1]
    assert len(apart) > 1
    wants = demands(compiled)
    return compiled, PlanContext.of(snapshot, apart[0], wants, indexes, gap=gap), apart


def test_what_one_way_looks_back_at_is_replayed_near_late_events(tmp_path: Path) -> None:
    count = 400
    times = np.arange(count) * 1000
    base = pa.table(
        {"t": times, "k": pa.array(["a"] * count), "x": np.zeros(count), "y": np.zeros(count)}
    )
    base = base.set_column(3, "y", pa.array((np.arange(count) % 2).astype(np.int64)))
    late = pa.table({"t": [200_100], "k": ["a"], "x": [-10], "y": [0]}, schema=SCHEMA.arrow)
    text = (
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f AFTER MATCH SKIP TO "
        "NEXT ROW PATTERN ((A | C) Z*? B) WITHIN 1000 DEFINE A AS x = 7, C AS x - PREV(x) > 5, "
        "B AS y = 0)"
    )
    with stored(tmp_path, base.cast(SCHEMA.arrow), ("x", "x - PREV(x)"), late) as (at, indexes):
        compiled, context, apart = ways_of(at, indexes, text)
        assert str(apart[0]).startswith("(A)")
        assert not context.back  # only the other way looks back
        full = rows(at, compiled, plan_match(at, compiled, indexes, "replay"))
        assert full.num_rows == 1
        found = located_plan([consider(replace(context, pattern=one), "all") for one in apart])
        assert found.replayed() < 0.1
        assert rows(at, compiled, found).equals(full)


def test_a_way_that_is_replayed_for_all_partitions_keeps_its_matches(tmp_path: Path) -> None:
    text = (
        "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES FIRST(t) AS f AFTER "
        "MATCH SKIP TO NEXT ROW PATTERN (A Z*? (B | C)) WITHIN 60 DEFINE A AS x = 3, "
        "B AS x = 4 AND y > 2, C AS x = 5)"
    )
    events = table(random.Random(3), 2000, 0, 4000)
    with stored(tmp_path, events, ("x", "y")) as (snapshot, indexes):
        compiled, context, apart = ways_of(snapshot, indexes, text)
        full = rows(snapshot, compiled, plan_match(snapshot, compiled, indexes, "replay"))
        assert full.num_rows > 5
        for looked_up in ((False, True), (True, False), (True, True)):
            ways = [consider(replace(context, pattern=one), "all") for one in apart]
            for number, wanted in enumerate(looked_up):
                if not wanted:
                    choice = replace(ways[number].plan.choice, picked=())
                    plan = replace(ways[number].plan, choice=choice)
                    ways[number] = replace(ways[number], plan=plan)
            assert rows(snapshot, compiled, located_plan(ways)).equals(full), looked_up


@pytest.mark.parametrize("between", ["", "Z*? "])
def test_ways_look_each_term_up_once(tmp_path: Path, between: str) -> None:
    parts = "PERMUTE(A, B, C)" if not between else "A Z*? (B Z*? C | C Z*? B)"
    text = (
        f"SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f PATTERN ({parts}) "
        "WITHIN 30 DEFINE A AS x = 3, B AS y = 4, C AS x = 5)"
    )
    events = table(random.Random(5), 3000, 0, 6000)
    with stored(tmp_path, events, ("x", "y")) as (snapshot, indexes):
        compiled, context, apart = ways_of(snapshot, indexes, text)
        ways = [consider(replace(context, pattern=one), "all") for one in apart]
        terms = {offer.term: offer for way in ways for offer in way.plan.choice.picked or ()}
        assert len(terms) == 3
        plan = located_plan(ways)
        held = [
            int((events.column(name).to_numpy(zero_copy_only=False) == value).sum())
            for name, value in (("x", 3), ("y", 4), ("x", 5))
        ]
        assert plan.metrics.entries_read <= sum(held)  # of a term, in chunks where it matters
        runs = [len(some) for some in indexes.catalogue().runs.values()]
        assert plan.metrics.runs_read <= 3 * max(runs)
        assert len(plan.chosen) == 3
        full = rows(snapshot, compiled, plan_match(snapshot, compiled, indexes, "replay"))
        assert full.num_rows
        assert rows(snapshot, compiled, plan).equals(full)


def test_partitions_that_two_ways_number_differently_are_numbered_anew(tmp_path: Path) -> None:
    names, count = ["a", "b", "c"] * 100, 300
    events = pa.table(
        {"t": range(count), "k": names, "x": [0] * count, "y": [0] * count}, schema=SCHEMA.arrow
    )
    with stored(tmp_path, events, ()) as (snapshot, _):
        timeline, every = Timeline(snapshot), np.arange(count)
        found = []
        for first in (2, 0):  # one way finds partition c, the other a
            keys = PartitionKeys(timeline, ["k"], SCHEMA)
            codes = keys.learn(np.array([first]))
            keys.codes_at(every)  # ends with a cache of what it has read
            found.append(PartitionSpans.of(keys, codes, codes * 0, codes * 0 + count, count + 1))
        united = united_partitions(found)
        said = [
            united.keys.key(code) if code >= 0 else None for code in united.keys.codes_at(every)
        ]
        assert said == [None if name == "b" else (name,) for name in names]
        assert united.partitions == 2


@given(st.integers(0, 300), st.sets(st.integers(0, 500)), st.sets(st.integers(0, 500)))
def test_what_a_term_marks_is_the_same_as_positions_and_as_bits(
    start: int, marked: set[int], asked: set[int]
) -> None:
    chunk = LookupRange(start, 501, {})
    positions = np.array(sorted(p for p in marked if p >= start), np.int64)
    bits = np.zeros((501 - start // 64 * 64 + 63) // 64, np.uint64)
    for place in (positions - start // 64 * 64).tolist():
        bits[place >> 6] |= np.uint64(1 << (place & 63))
    assert np.array_equal(lookups._positions(bits, chunk), positions)
    at = np.array(sorted(p for p in asked if p >= start), np.int64)
    for marks in (positions, bits):
        assert np.array_equal(lookups._holds(marks, chunk, at), np.isin(at, positions))
