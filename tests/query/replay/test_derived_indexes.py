"""Indexes on derived values and on pairs of attributes: the rows of a replay, from fewer events."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.indexes.index_key import index_key
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.query.pattern.compiled import compile_match
from chronicle.query.replay.symbols import cached_outlines
from chronicle.query.sql.match_clause import clause_of_text
from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.prune import Range
from chronicle.store.store import Store

from ...rounds import rounds
from .across_cases import answers
from .conftest import Opened

SCHEMA = StreamSchema(
    pa.schema(
        [
            pa.field("t", pa.timestamp("us"), False),
            pa.field("k", pa.string()),
            pa.field("g", pa.int32()),
            pa.field("f", pa.float64()),
            pa.field("s", pa.float32()),
            pa.field("x", pa.int64()),
            pa.field("n", pa.timestamp("ns")),
            pa.field("e", pa.int64()),
        ]
    ),
    "t",
)
KEYS = [
    "x - PREV(x)", "x - PREV(x, 2)", "f - PREV(f)", "s - PREV(s)", "f / PREV(f)", "t - PREV(t)",
    "x - g", "ABS(f - PREV(f)) * 2", "PREV(x) - g", "n - PREV(n)", "x / PREV(x)",
]  # fmt: skip
PAIRS = ["k, x", "g, f", "x, g", "k, g", "g, k", "f, x"]
EXTREMES = [None, -(2**63), 2**63 - 1, -(2**63) + 1, 2**53 + 1, 0, 5]
CONDITIONS = [
    "x - PREV(x) > {}", "PREV(x) - x >= {}", "x < PREV(x)", "x <= PREV(x) - {}",
    "x + {} < PREV(x)", "ABS(x - PREV(x)) > {}", "ABS(PREV(x) - x) <= 1", "NOT (x - PREV(x) < {})",
    "x - PREV(x) BETWEEN {} AND 99", "x - PREV(x) IN (7, {})", "x - PREV(x, 2) = {}",
    "x - PREV(x) > {} OR k = 'z'", "f > PREV(f)", "f - PREV(f) > {}.5", "PREV(f) - f > {}",
    "ABS(f - PREV(f)) > {}", "f < PREV(f) AND f - PREV(f) < -{}", "s - PREV(s) > 0.1",
    "s < PREV(s)", "f / PREV(f) > 1.5", "t - PREV(t) > INTERVAL '{}' SECOND",
    "t > PREV(t) + INTERVAL '{}' SECOND", "PREV(t) + INTERVAL '2' SECOND = t", "x - g > {}",
    "ABS(f - PREV(f)) * 2 > {}", "PREV(x) - g > {}", "n - PREV(n) > INTERVAL '3' SECOND",
    "NOT (n - PREV(n) <= INTERVAL '3' SECOND)", "x / PREV(x) > 3", "x - PREV(x) <> 0 AND g = 1",
    "NOT (x < PREV(x) OR g = 0)", "x - PREV(x) IS NULL", "(x - PREV(x) > {}) IS NOT FALSE",
    "f > PREV(f) + {}", "f >= PREV(f) + 0.1", "PREV(f) + 0.3 <= f", "f < PREV(f) - {}.7",
    "NOT (f < PREV(f) + 0.1)", "NOT (f >= PREV(f) + 0.2 OR g = 1)", "f = PREV(f) + 2",
    "f BETWEEN PREV(f) - 0.1 AND PREV(f) + 0.1", "f NOT BETWEEN PREV(f) - {} AND PREV(f) + 0.5",
    "NOT (f NOT BETWEEN PREV(f) - 0.5 AND PREV(f) + {})", "f BETWEEN PREV(f) - {} AND 7",
    "x BETWEEN PREV(x) - {} AND PREV(x) + 2", "f > PREV(f) * 1.5", "f * 0.5 >= PREV(f)",
    "NOT (x BETWEEN PREV(x) - {} AND PREV(x) + 2)",
    "n BETWEEN PREV(n) AND PREV(n) + INTERVAL '3' SECOND",
]  # fmt: skip
PAIRED = [
    "k = '1' AND x > {}", "k IN ('0', '1') AND x BETWEEN 3 AND {}", "g = 1 AND f < 2.5", "x = {}",
    "x = {} AND g >= 1", "k = '1' AND g = 0", "g = 1 AND k = '0'", "f = 2.5 AND x > {}",
    "k = '2' AND x < 0", "g = 1 AND f > 'NaN'::DOUBLE", "k IN ('0', '2') AND g IN (0, 1)",
    "g = 1 AND x IN (2, {}, 40)", "k = '1' AND (x < 2 OR x BETWEEN 5 AND {})",
    "g = 0 AND f IN (0.5, 7.25)", "x IN ({}, 1, 2) AND g IN (1, 1)",
]  # fmt: skip


def compiled(pattern: str, defined: str, partition: str = "", order: str = "") -> Any:
    text = (
        f"SELECT * FROM s MATCH_RECOGNIZE ({partition} ORDER BY t{order} "
        "MEASURES MATCH_NUMBER() AS n, FIRST(t) AS a, LAST(t) AS b, A.k AS ak, A.x AS ax "
        f"{pattern} DEFINE {defined})"
    )
    return compile_match(clause_of_text(text), SCHEMA)


def events(r: random.Random, count: int, start: int = 0, step: float = 1.0) -> pa.Table:
    rows = []
    for i in range(count):
        t = int(start + i * step) * 1_000_000
        rows.append(
            {
                "t": t, "k": r.choice([None, "0", "1", "2"]), "g": r.choice([None, 0, 1]),
                "f": r.choice([None, math.nan, math.inf, -0.0, 0.0, 0.5, 2.5, 7.25, r.random()]),
                "s": r.choice([None, math.nan, 0.1, 0.2, 0.3, 1e-30, r.random()]),
                "x": r.choice([None, -(2**61), 2**61 - 1, 0, 1, 2, 3, r.randint(0, 40)]),
                "e": EXTREMES[i * 5 % 7],
                "n": None if r.random() < 0.1 else t * 1000 + r.choice([0, 1, 999, 3_000_000_000]),
            }
        )  # fmt: skip
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["t"]), schema=SCHEMA.arrow)


def built(path: Path, r: random.Random, keys: list[str]) -> Any:
    """A stream of several segments with indexes that cover part of it, perhaps late events."""
    store = Store.open(path, "rw")
    options = StreamOptions(leaf_bytes=1 << 13, segment_bytes=1 << 15)
    stream = store.create_stream("s", SCHEMA, options)
    stream.append(events(r, 900, 1000))
    indexes = StreamIndexes(path / "idx", True)
    for key in keys:
        indexes.create(key, SCHEMA)
    if r.random() < 0.8:
        indexes.catch_up(stream.snapshot().state)
    stream.append(events(r, 300, 1900 + r.choice([0, 60])))
    if r.random() < 0.5:
        indexes.catch_up(stream.snapshot().state)
    if r.random() < 0.4:
        late = events(r, r.choice([1, 3, 40]), r.choice([0, 1200, 1900]), r.choice([0.5, 1, 20]))
        stream.append(late)
    if r.random() < 0.3:
        stream.append(events(r, 5, 3000))
    assert indexes.verify(stream.snapshot().state) == []
    return store, stream.snapshot(), indexes


@pytest.mark.parametrize("partition", ["", "k", "k, g"])
def test_rows_are_those_of_a_replay(tmp_path: Path, partition: str) -> None:
    used = 0
    for seed in range(rounds(3, 60, 3000)):
        r = random.Random(f"{partition} {seed}")
        behind = f" PARTITION BY {partition}" if partition else ""
        keys = [key + (behind if "PREV" in key else "") for key in r.sample(KEYS, 4)]
        store, snapshot, indexes = built(tmp_path / str(seed), r, keys + r.sample(PAIRS, 2))
        for _ in range(8):
            pattern = r.choice(["(A B)", "(A B C)", "(A B+ C)", "(A C* B)", "(B A)", "((A | B) C)"])
            more = r.choice(["", "", " EVENT SELECTION SKIP TILL NEXT MATCH"])
            names = [name for name in "ABC" if name in pattern]
            defined = {
                name: r.choice([*CONDITIONS, *PAIRED]).format(r.choice([0, 1, 5, 20]))
                for name in names
            }
            if r.random() < 0.4 and pattern in ("(A B)", "(A B C)"):
                defined["B"] = r.choice(
                    ["x < A.x", "B.x - A.x > 5", "f > A.f", "x > A.x + 3", "f > A.f + 0.1",
                     "x BETWEEN A.x - 2 AND A.x + 2", "f BETWEEN A.f - 0.5 AND A.f + 0.5"]
                )  # fmt: skip
            clause = compiled(
                f"PATTERN {pattern} WITHIN INTERVAL '{r.choice([4, 30])}' SECOND{more}",
                ", ".join(f"{name} AS {defined[name]}" for name in names),
                f"PARTITION BY {partition}" if partition else "",
            )
            expected, _ = answers(snapshot, clause, indexes, "replay")
            for strategy in ("all", "auto"):
                found, plan = answers(snapshot, clause, indexes, strategy, gap=0)
                assert found == expected, (seed, strategy, pattern, defined, keys, plan.chosen)
                used += any("PREV" in text or " and " in text for text in plan.chosen)
        indexes.close()
        store.close()
    assert used


def shown(atoms: tuple[Any, ...]) -> str:
    bounds = []
    for atom in atoms:
        if isinstance(atom, Range) and atom.low is not None:
            bounds.append(f"{atom.column} >{'' if atom.low_open else '='} {atom.low}")
        if isinstance(atom, Range) and atom.high is not None:
            bounds.append(f"{atom.column} <{'' if atom.high_open else '='} {atom.high}")
    return " and ".join(bounds)


@pytest.mark.parametrize(
    ("key", "condition", "expected"),
    [
        ("x - PREV(x)", "x - PREV(x) > 5", "x - PREV(x) >= 6"),
        ("x - PREV(x)", "x < PREV(x)", "x - PREV(x) <= -1"),
        ("x - PREV(x)", "x > PREV(x) + 5", "x - PREV(x) >= 6"),
        ("x - PREV(x)", "5 <= x - PREV(x)", "x - PREV(x) >= 5"),
        ("PREV(x) - x", "x > PREV(x) + 5", "PREV(x) - x <= -6"),
        ("f - PREV(f)", "PREV(f) > f", "f - PREV(f) < 0.0"),
        ("f - PREV(f)", "PREV(f) - f > 2", "f - PREV(f) < -2.0"),
        ("f - PREV(f)", "f > PREV(f) + 2", None),  # a rounded sum
        ("f - PREV(f)", "NOT (f - PREV(f) > 2)", "f - PREV(f) <= 2.0"),
        ("f / PREV(f)", "f > PREV(f) * 1.1", None),
        ("f - PREV(f)", "f > PREV(f, 2) + 1", None),
        ("x - PREV(x)", "x - PREV(x) BETWEEN -5 AND 7", "x - PREV(x) >= -5 and x - PREV(x) <= 7"),
        ("x - PREV(x)", "ABS(A.x - x) <= 5", "x - PREV(x) >= -5 and x - PREV(x) <= 5"),
        ("x - PREV(x)", "x - 5 > A.x", "x - PREV(x) >= 6"),
        ("x - PREV(x)", "x > A.x - 5", "x - PREV(x) >= -4"),
        ("PREV(x) - x", "PREV(x) - 5 < x", "PREV(x) - x <= 4"),
        ("x - PREV(x)", "x > A.x + 5.5", None),
        ("x - PREV(x)", "x > A.x", "x - PREV(x) >= 1"),
        ("x - PREV(x)", "x > 7", None),
        ("t - PREV(t)", "t - PREV(t) > INTERVAL '2' SECOND", "t - PREV(t) >= 2000001"),
        ("f / PREV(f)", "f / PREV(f) >= 2", "f / PREV(f) >= 2.0"),
        ("x - PREV(x) PARTITION BY k", "x - PREV(x) > 5", None),  # of other events
        ("k, x", "k = 'a' AND x > 5", "k = 'a' and x >= 6"),
        ("k, x", "k > 'a' AND x > 5", None),
        ("x - PREV(x)", "ABS(x - PREV(x)) > 3", "x - PREV(x) >= 4 and x - PREV(x) <= -4"),
        ("f - PREV(f)", "abs(PREV(f) - f) >= 0.5", "f - PREV(f) >= 0.5 and f - PREV(f) <= -0.5"),
        ("ABS(f - PREV(f)) * 2", "ABS(f - PREV(f)) * 2 > 3", "ABS(f - PREV(f)) * 2 > 3.0"),
    ],
)
def test_which_conditions_an_index_knows(key: str, condition: str, expected: str | None) -> None:
    name = index_key(key, SCHEMA).name
    clause = compiled("PATTERN (A B) WITHIN INTERVAL '5' SECOND", f"B AS {condition}")
    ((found,),) = cached_outlines(clause, SCHEMA, None, frozenset((name,)))
    terms = [term for term in found.symbols[1].terms if name in term.attributes]
    assert [term.text or shown(term.atoms) for term in terms] == [expected] * (expected is not None)


@pytest.mark.parametrize("back", [1, 2])
@pytest.mark.parametrize("partition", ["", "k"])
def test_a_late_event_changes_a_value_far_behind_it(
    opened: Opened, back: int, partition: str
) -> None:
    """Events lie 100 s apart and the window is 5 s: nothing else looks at the one after it."""
    behind = f" PARTITION BY {partition}" if partition else ""
    stream, indexes = opened(SCHEMA, f"x - PREV(x, {back}){behind}", leaf_bytes=1 << 13)
    rows = [{"t": i * 100_000_000, "k": "a", "x": 10} for i in range(2000)]
    stream.append(pa.Table.from_pylist(rows, schema=SCHEMA.arrow))
    indexes.catch_up(stream.snapshot().state)
    late = [{"t": 50_010_000_000, "k": "a", "x": -90}]
    stream.append(pa.Table.from_pylist(late, schema=SCHEMA.arrow))
    clause = compiled(
        "PATTERN (A) WITHIN INTERVAL '5' SECOND", f"A AS x - PREV(x, {back}) = 100",
        f"PARTITION BY {partition}" if partition else "",
    )  # fmt: skip
    snapshot = stream.snapshot()
    expected, _ = answers(snapshot, clause, indexes, "replay")
    assert [row["a"].second + 60 * row["a"].minute for row in expected]
    found, plan = answers(snapshot, clause, indexes, "all", gap=0)
    assert found == expected
    assert bool(plan.chosen) == (not partition)
    stream.compact()
    snapshot = stream.snapshot()
    indexes.forget(snapshot.state)
    indexes.catch_up(snapshot.state)
    found, plan = answers(snapshot, clause, indexes, "all", gap=0)
    assert found == expected
    assert plan.chosen


def test_values_of_both_attributes_are_looked_up_as_pairs(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s") as database:
        database.sql("CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) TIMESTAMP BY t")
        numbers = np.arange(200_000)
        names = pa.array([f"k{i}" for i in range(50)]).take(pa.array(numbers * 7919 % 50))
        database.stream("s").append(pa.table({"t": numbers, "k": names, "n": numbers % 101}))
        database.stream("s").seal()
        database.sql("CREATE INDEX ON s (k, n)")
        text = (
            "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a PATTERN (A B) "
            "DEFINE A AS k IN ('k3', 'k4') AND n IN (5, 7, 50), B AS n > 50)"
        )
        everything = text.replace("SELECT", "SELECT /*+ strategy(all) */")
        told = str(database.explain(everything, analyze=True))
        assert "(k = 'k3' or k = 'k4') and (n = 5 or n = 7 or n = 50)" in told
        expected = database.sql(text.replace("SELECT", "SELECT /*+ strategy(replay) */"))
        assert database.sql(everything).fetchall() == expected.fetchall()
