"""Replay intervals: the rows of a full replay, whatever is indexed, late or half built."""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

from chronicle.errors import ResourceLimit, SqlError
from chronicle.indexes import stream_indexes
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.query.pattern.compiled import MatchLimits, compile_match
from chronicle.query.replay import planning, reading
from chronicle.query.replay.context import Costs
from chronicle.query.replay.cost import CostModel
from chronicle.query.replay.planning import plan_match
from chronicle.query.replay.replay_plan import TermChoice
from chronicle.query.replay.run_plan import run_match
from chronicle.query.replay.symbols import Outline, cached_outlines
from chronicle.query.sql.match_clause import clause_of_text
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store

from ...new_stores import timed
from ...rounds import rounds
from .across_cases import gaps
from .conftest import Opened

FIRST = int(os.environ.get("CHRONICLE_SEED", "0"))
SEEDS = int(os.environ.get("CHRONICLE_ROUNDS", "5"))
ROUNDS = rounds(SEEDS, SEEDS, 2000)
A_SEED = int(os.environ.get("CHRONICLE_PATTERNS", 8))
PATTERNS = rounds(A_SEED, A_SEED, 50)

SCHEMA = timed(k=pa.string(), x=pa.float64(), y=pa.int64())
LIMITS = MatchLimits(steps_max=200_000)
EAGER = [
    Costs(event=1e4, keyed=1e4, seek=1e-3, entry=1e-3, plan=1.0),  # lookups are for nothing
    Costs(event=10.0, seek=1.0, entry=50.0, plan=1.0),  # first ones say enough
    Costs(event=10.0, seek=2_000.0, entry=0.1, plan=1.0),  # intervals do not pay
]
"""Costs under which ``auto`` chooses indexes on small streams, and thinks better of it."""


def taken(numbers: set[int], model: CostModel, _: str) -> TermChoice:
    """Some of the offers, by number, whatever they cost."""
    offers = model.offers.items
    return TermChoice(offers, tuple(o for i, o in enumerate(offers) if i % 64 in numbers))


# -- random streams -----------------------------------------------------------------------------


FEW_KEYS = ["a", "b", "c", None]
MANY_KEYS = [*FEW_KEYS, *(f"{letter}{number}" for letter in "ab" for number in range(60))]


def events(
    rng: random.Random,
    count: int,
    start: int,
    spread: int,
    keys: list[str | None] = FEW_KEYS,
    values: int = 10,
) -> pa.Table:
    times = sorted(start + rng.randrange(spread) for _ in range(count))
    if rng.random() < 0.3:  # a trend, so that leaves differ
        xs: list[Any] = [i * 10 / count + rng.random() for i in range(count)]
    else:
        xs = [rng.choice([None, float("nan"), *range(values)]) for _ in range(count)]
    return pa.table(
        {
            "t": times,
            "k": [rng.choice(keys) for _ in range(count)],
            "x": [None if x is None else float(x) for x in xs],
            "y": [rng.choice([None, *range(values + 2)]) for _ in range(count)],
        },
        schema=SCHEMA.arrow,
    )


def build(rng: random.Random, path: Path) -> tuple[Store, Any, StreamIndexes]:
    """A stream with segments, perhaps late events, and indexes over part of it."""
    store = Store.open(path, "rw")
    options = StreamOptions(
        codec=rng.choice(["none", "lz4"]),
        leaf_bytes=4096,
        segment_bytes=30_000,
        compaction="manual",
    )
    stream = store.create_stream("s", SCHEMA, options)
    indexes = StreamIndexes(path / "idx", True)
    for name in rng.sample(["k", "x", "y"], rng.randrange(4)):
        indexes.create(name, SCHEMA)
    drawn: tuple[Any, int] = rng.choice([FEW_KEYS, MANY_KEYS]), rng.choice([10, 10, 80])
    start, built_late = 0, rng.random() < 0.5
    for _ in range(rng.randrange(1, 6)):
        count = rng.choice([1, 40, 400, 1500])
        spread = rng.choice([count // 3 + 1, count * 3])
        stream.append(events(rng, count, start, spread, *drawn))
        start += spread
        if rng.random() < 0.3:
            stream.seal()
        if rng.random() < 0.5:
            for _ in range(rng.randrange(3)):
                indexes.build_next(stream.snapshot().state, eager=rng.random() < 0.7)
        if rng.random() < 0.6 and start > 10:
            stream.append(
                events(
                    rng, rng.choice([1, 5, 60]), rng.randrange(start), rng.choice([1, 30]), *drawn
                )
            )
        if rng.random() < 0.15:
            stream.compact()
            indexes.forget(stream.snapshot().state)
    if built_late:
        indexes.catch_up(stream.snapshot().state)
    if rng.random() < 0.2:
        stream.append(events(rng, 5, start, 10, *drawn))
    return store, stream, indexes


# -- random clauses -----------------------------------------------------------------------------


def condition(rng: random.Random, own: str, others: list[str], depth: int = 0) -> str:
    roll = rng.random()
    low = rng.randrange(9)
    if depth < 2 and roll < 0.2:
        parts = [condition(rng, own, others, depth + 1) for _ in range(2)]
        return "(" + rng.choice([" AND ", " OR "]).join(parts) + ")"
    if depth < 2 and roll < 0.25:
        return f"NOT ({condition(rng, own, others, depth + 1)})"
    return rng.choice(
        [
            f"x BETWEEN {low} AND {low + rng.randrange(2)}",
            f"{own}.y = {low}", f"y IN ({low}, {low + 2})", f"x > {low}", f"y < {low}",
            f"x <= {low}",
            f"y <> {low}", f"k = '{rng.choice('abc')}'", "k IN ('a', 'b')",
            f"k LIKE '{rng.choice('ab')}%'",
            "y IS NULL", "x IS NOT NULL", "y > PREV(y)", "NEXT(x) > x", "PREV(x, 2) > x",
            "y = NEXT(y, 2)", "PREV(x) IS NULL",
            f"{rng.choice(others)}.y = {low}", f"y >= {rng.choice(others)}.y", f"t % 3 = {low % 3}",
            f"x > {low} AND y < {low + 3}",
        ]
    )  # fmt: skip


def pattern(rng: random.Random, names: list[str], depth: int = 0) -> str:
    roll = rng.random()
    if depth > 2 or roll < 0.45:
        return rng.choice(names)
    if roll < 0.72:
        return " ".join(pattern(rng, names, depth + 1) for _ in range(rng.randrange(2, 4)))
    if roll < 0.8:
        return f"({pattern(rng, names, depth + 1)} | {pattern(rng, names, depth + 1)})"
    if roll < 0.96:
        suffix = rng.choice(["*", "+", "?", "{2}", "{1,2}", "{0,2}", "{2,}", "*?", "+?"])
        return f"({pattern(rng, names, depth + 1)}){suffix}"
    if roll < 0.98:
        return f"PERMUTE({', '.join(rng.sample(names, 2))})"
    return "{- " + pattern(rng, names, depth + 1) + " -}"


def clause(rng: random.Random, partitioned: float = 0.25) -> str:
    names = ["A", "B", "C", "D"][: rng.randrange(2, 5)]
    body = pattern(rng, names)
    if rng.random() < 0.5:
        body = " ".join(rng.choice(names) + rng.choice(["", "", "", "*", "+"]) for _ in range(4))
    if rng.random() < 0.05:
        body = rng.choice([f"^ {body}", f"{body} $"])
    used = [name for name in names if name in body]
    partition = ""
    if rng.random() < partitioned:
        partition = f"PARTITION BY {rng.choice(['k', 'k', 'k', 'y', 'x', 'k, y', 'y, k, x'])} "
    order = "ORDER BY t, y" if rng.random() < 0.15 else "ORDER BY t"
    rows = rng.choice(
        [
            "ONE ROW PER MATCH",
            "ONE ROW PER MATCH",
            "ALL ROWS PER MATCH",
            "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
        ]
    )
    within = f"WITHIN {rng.choice([0, 1, 3, 10, 10, 40, 200])}" if rng.random() < 0.8 else ""
    selection = after = ""
    if within and rng.random() < 0.2:
        selection = rng.choice(["SKIP TILL NEXT MATCH", "SKIP TILL ANY MATCH", "CONTIGUOUS"])
        selection = f"EVENT SELECTION {selection}"
    else:
        after = rng.choice(["", "AFTER MATCH SKIP TO NEXT ROW", "AFTER MATCH SKIP PAST LAST ROW"])
        later = [name for name in used if name != min(used, key=body.index)]
        if later and rng.random() < 0.1:  # back to the first event of a match is an error
            after = f"AFTER MATCH SKIP TO LAST {later[-1]}"
        elif later and rng.random() < 0.1:
            after = f"AFTER MATCH SKIP TO FIRST {rng.choice(later)}"
    defines = ", ".join(
        f"{name} AS {condition(rng, name, used)}" for name in used if rng.random() < 0.85
    )
    if not defines:
        defines = f"{used[0]} AS x > 5"
    measures = (
        "MATCH_NUMBER() AS number, FIRST(t) AS f, LAST(t) AS l, count(*) AS n, CLASSIFIER() AS c"
    )
    if rng.random() < 0.2:
        measures += rng.choice([", PREV(FIRST(y)) AS before", ", NEXT(LAST(x), 2) AS behind"])
    return (
        f"SELECT * FROM s MATCH_RECOGNIZE ({partition}{order} MEASURES {measures} {rows} {after} "
        f"PATTERN ({body}) {within} {selection} DEFINE {defines})"
    )


def answer(snapshot: Any, compiled: Any, plan: Any, most: int | None = None) -> pa.Table | None:
    """The rows of a plan; None when there are more than so many."""
    batches: list[pa.RecordBatch] = []
    found = 0
    for batch in run_match(snapshot, compiled, plan, limits=LIMITS):
        batches.append(batch)
        found += batch.num_rows
        if most is not None and found > most:
            return None
    if not batches:
        return compiled.output_schema.empty_table()
    return pa.Table.from_batches(batches, schema=compiled.output_schema)


def rows(table: pa.Table) -> pa.Table:
    """The rows in a form in which NaN equals NaN."""
    columns = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if pa.types.is_floating(column.type):
            columns[f"{name} is NaN"] = nan = pc.is_nan(column)
            column = pc.if_else(nan, 0.0, column)
        columns[name] = column
    return pa.table(columns)


@pytest.fixture(scope="module")
def seen() -> dict[int, Counter[str]]:
    """What the comparisons of each seed were about."""
    return {}


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
def test_every_plan_gives_the_rows_of_a_full_replay(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: dict[int, Counter[str]]
) -> None:
    seen[seed] = compared_plans(seed, tmp_path, monkeypatch)


def compared_plans(seed: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What the comparisons of a seed were about; raises where a plan and a replay differ."""
    monkeypatch.setattr(stream_indexes, "RUN_EVENTS", 512)
    store, stream, indexes = build(random.Random(seed), path)
    snapshot = stream.snapshot()
    told: Counter[str] = Counter()

    @hypothesis_seed(seed)
    @settings(
        max_examples=PATTERNS,
        derandomize=False,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(rng=st.randoms(use_true_random=True))  # else constants of the sources are drawn, too
    def compare(rng: random.Random) -> None:
        text = gaps(rng) if rng.random() < 0.25 else clause(rng, 0.9 if seed % 2 else 0.2)
        gap = rng.choice([0, 0, 5, 200])
        told["clauses"] += 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "GATHERED_FIRST", rng.choice([1, 50, 4096]))
            patch.setattr(reading, "ALONE_EVENTS", rng.choice([1, 100, 1 << 14]))
            forced = rng.choice([None, 0.0, 0.5, 0.99])
            if forced is not None:  # one of the ways to see a pattern, whatever it costs

                def one_of(*told: Any) -> tuple[tuple[Outline, ...], ...]:
                    found = cached_outlines(*told)
                    return (found[int(forced * len(found))],)

                patch.setattr(planning, "cached_outlines", one_of)
            try:
                compiled = compile_match(clause_of_text(text), SCHEMA)
                # most clauses have neither WITHIN nor another bound: they say nothing about plans
                assume(plan_match(snapshot, compiled, indexes, "all").intervals is not None)
                told["usable"] += 1
                full = plan_match(snapshot, compiled, indexes, "replay")
                complete = answer(snapshot, compiled, full, 50_000)
            except (SqlError, ResourceLimit):
                return
            if complete is None:
                return  # a clause that matches everything says little about intervals
            expected = rows(complete)
            told["compared"] += 1
            told["with rows"] += expected.num_rows > 0
            plans: list[tuple[str, Costs | None, Any]] = [("all", None, None), ("auto", None, None)]
            plans += [("auto", costs, None) for costs in EAGER]
            some = [rng.random() < 0.5 for _ in range(64)]
            for kept in (set(), *({i for i in range(64) if some[i] == each} for each in (0, 1))):
                plans.append(("all", None, kept))
            for strategy, costs, kept in plans:
                with pytest.MonkeyPatch.context() as chosen:
                    if kept is not None:
                        chosen.setattr(planning, "choose_terms", partial(taken, kept))
                    plan = plan_match(snapshot, compiled, indexes, strategy, costs=costs, gap=gap)
                got = rows(answer(snapshot, compiled, plan))
                assert got.equals(expected), f"seed {seed}, {strategy}: {text}\n{plan.details()}"
                told["plans"] += 1
                told["reduced"] += plan.replayed() < 0.9
                told["looked up"] += bool(plan.picked)
                told["of partitions"] += plan.partitions is not None
                some_events = plan.partitions or plan.intervals
                told["of some events"] += getattr(some_events, "deciding", None) is not None
                told["late"] += bool(plan.intervals and plan.intervals.by_time)

    try:
        compare()
    finally:
        indexes.close()
        store.close()
    return told


def test_the_comparisons_show_something(
    seen: dict[int, Counter[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all seeds: most usable clauses are compared; plans leave events out in every way."""
    for seed in set(range(FIRST, FIRST + ROUNDS)) - seen.keys():  # another process ran them
        seen[seed] = compared_plans(seed, tmp_path / str(seed), monkeypatch)
    total = sum(seen.values(), Counter[str]())
    assert total["compared"] > 0.8 * total["usable"], total
    assert total["with rows"] > 0.25 * total["compared"], total
    for kind in ("reduced", "looked up", "of partitions", "late"):
        assert total[kind] > 0.04 * total["plans"], f"{kind}: {total}"
    assert total["of some events"] > 0.002 * total["plans"], total
    assert sum(told["reduced"] > 0 for told in seen.values()) > ROUNDS // 3, seen


def test_late_events_between_two_others_break_contiguity(opened: Opened) -> None:
    stream, indexes = opened(SCHEMA, "x", leaf_bytes=4096)
    count = 3000
    base = pa.table(
        {
            "t": np.arange(count) * 10,
            "k": ["a"] * count,
            "x": np.arange(count, dtype=float),
            "y": np.zeros(count, np.int64),
        },
        schema=SCHEMA.arrow,
    )
    stream.append(base)
    indexes.catch_up(stream.snapshot().state)
    text = (
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a, B.t AS b PATTERN (A B) {} "
        "DEFINE A AS x BETWEEN 1000 AND 1000.5, B AS x > 1000.5)"
    )
    late = pa.table({"t": [10_005], "k": ["z"], "x": [0.0], "y": [1]}, schema=SCHEMA.arrow)
    for matches in (1, 0):
        snapshot = stream.snapshot()
        for within in ("", "WITHIN 15"):
            compiled = compile_match(clause_of_text(text.format(within)), SCHEMA)
            plan = plan_match(snapshot, compiled, indexes, "all")
            assert plan.replayed() < 0.9
            assert len(answer(snapshot, compiled, plan)) == matches
        stream.append(late)


def test_retention_and_compaction_take_runs_away_but_no_rows(opened: Opened) -> None:
    sizes = {"leaf_bytes": 4096, "segment_bytes": 30_000}
    stream, indexes = opened(SCHEMA, "x", "y", retention="9000", **sizes)
    text = (
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a, B.t AS b "
        "PATTERN (A C* B) WITHIN 20 DEFINE A AS x = 3 AND y = 3, B AS x = 4)"
    )
    compiled = compile_match(clause_of_text(text), SCHEMA)
    rng = random.Random(5)
    dropped = 0
    before: set[int] = set()
    for step in range(8):
        old = stream.snapshot()
        stream.append(events(rng, 3000, step * 3000, 3000))
        if step % 3 == 1:
            stream.append(events(rng, 20, step * 3000 - 500, 30))
            stream.compact()
        stream.seal()
        state = stream.snapshot().state
        alive = {view.file.segment_id for view in state.segments}
        dropped += len(before - alive)
        before = alive
        indexes.forget(state)
        if step % 2:
            indexes.catch_up(state)
        assert all(segment in alive for _, segment in indexes.catalogue().runs)
        for snapshot in (old, stream.snapshot()):
            if not snapshot.count:
                continue
            full = answer(snapshot, compiled, plan_match(snapshot, compiled, indexes, "replay"))
            plan = plan_match(snapshot, compiled, indexes, "all", gap=0)
            assert rows(answer(snapshot, compiled, plan)) == rows(full)
    assert dropped
    assert indexes.verify(stream.snapshot().state) == []


def test_a_run_that_disappears_while_it_is_read_makes_the_plan_start_again(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, indexes = opened(SCHEMA, "x", leaf_bytes=4096)
    stream.append(events(random.Random(2), 4000, 0, 4000))
    stream.seal()
    snapshot = stream.snapshot()
    indexes.catch_up(snapshot.state)
    text = (
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a PATTERN (A B) WITHIN 3 "
        "DEFINE A AS x = 3, B AS x = 4)"
    )
    compiled = compile_match(clause_of_text(text), SCHEMA)
    full = answer(snapshot, compiled, plan_match(snapshot, compiled, indexes, "replay"))
    stale = indexes.catalogue()
    indexes.rebuild()
    fresh, told = indexes.catalogue, [stale]
    monkeypatch.setattr(indexes, "catalogue", lambda: told.pop() if told else fresh())
    plan = plan_match(snapshot, compiled, indexes, "all")
    assert not told
    assert plan.metrics.runs_read == 0
    assert rows(answer(snapshot, compiled, plan)) == rows(full)
