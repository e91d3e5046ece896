"""Patterns of many shapes, looked up in indexes: the rows of a full replay."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import ResourceLimit
from chronicle.indexes import stream_indexes
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.query.pattern.compiled import MatchLimits, compile_match
from chronicle.query.replay import locating
from chronicle.query.replay.planning import plan_match
from chronicle.query.replay.run_plan import run_match
from chronicle.query.replay.symbols import outline
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
def test_lookups_give_the_rows_of_a_replay(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, seen = random.Random(seed), Counter[str]()
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
    for _ in range(rounds(20, 80, 120)):
        text = clause(rng)
        compiled = compile_match(clause_of_text(text), SCHEMA)
        try:
            full = rows(snapshot, compiled, plan_match(snapshot, compiled, indexes, "replay"))
        except ResourceLimit:
            continue
        with monkeypatch.context() as patch:
            if rng.random() < 0.5:  # ask what keys leave, however little it is
                patch.setattr(locating, "WORTH_EVENTS", 0)
            gap = rng.choice([0, 5, None])
            plan = plan_match(snapshot, compiled, indexes, "all", gap=gap)
            assert rows(snapshot, compiled, plan).equals(full), f"{text}\n{plan.details()}"
        seen["rows"] += full.num_rows > 0
        seen["little"] += plan.replayed() < 0.5
    indexes.close()
    store.close()
    assert min(seen["rows"], seen["little"]) > 1, seen


def rows(snapshot: Any, compiled: Any, plan: Any) -> pa.Table:
    return pa.Table.from_batches(
        list(run_match(snapshot, compiled, plan, limits=LIMITS)), schema=compiled.output_schema
    )


@pytest.mark.parametrize(
    ("pattern", "defined", "expected"),
    [
        ("PERMUTE(A, B)", "A AS x = 1, B AS x = 2", "(A|B A|B)"),
        ("PERMUTE(B, A)", "A AS x = 1, B AS x > A.x", "(A B)"),
        ("PERMUTE(C, B, A)", "A AS x = 1, B AS x > A.x, C AS y > B.y", "(A B C)"),
        ("PERMUTE(C, A, B)", "A AS x = 1, B AS x > A.x, C AS y > A.y", "gap (A) gap"),
        ("PERMUTE(A, B)", "A AS x > B.x, B AS x > A.x", "(A|B A|B)"),
        ("A (B C | B)", "A AS x = 1, B AS x = 2, C AS y = 3", "(A true) gap"),
        ("A{2,5} (B | C)", "A AS x = 1, B AS x = 2, C AS y = 3", "(A A) gap (B|C)"),
    ],
)
def test_what_every_match_contains(pattern: str, defined: str, expected: str) -> None:
    text = (
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f "
        f"PATTERN ({pattern}) WITHIN 9 DEFINE {defined})"
    )
    compiled = compile_match(clause_of_text(text), SCHEMA)
    assert str(outline(compiled, SCHEMA, indexed=frozenset(["x", "y"]))) == expected
