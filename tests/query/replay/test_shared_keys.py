"""Equality between the events of a match, without PARTITION BY: pairs of one key are replayed."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from chronicle.query.replay import locating
from chronicle.query.replay.symbols import shared_columns

from ...rounds import rounds
from .across_cases import SCHEMA, answers, compiled, events, stream_of


@pytest.mark.parametrize(
    ("pattern", "defined", "expected"),
    [
        ("PATTERN (A B)", "B AS x = 1 AND k = A.k", ["k of A, B"]),
        ("PATTERN (A B C)", "B AS k = A.k, C AS (B.k = C.k)", ["k of A, B, C"]),
        ("PATTERN (A B C D)", "B AS g = A.g, D AS C.g = g", ["g of A, B", "g of C, D"]),
        ("PATTERN (A B+)", "B AS LAST(A.g) = g AND k = A.k", ["g of A, B", "k of A, B"]),
        ("PATTERN (A B)", "B AS f = A.f", []),  # NaN
        ("PATTERN (A B)", "B AS t = A.t", []),
        ("PATTERN (A B)", "B AS k <> A.k OR k = A.k", []),
        ("PATTERN (A B)", "B AS NOT k = A.k", []),
        ("PATTERN (A B)", "B AS PREV(k) = A.k", []),
        ("PATTERN (A B)", "B AS g = A.x", []),
        ("PATTERN (A+ B)", "B AS k = A.k", []),
        ("PATTERN ((A C)+ B)", "B AS k = A.k", []),
        ("PATTERN (A B A)", "B AS k = A.k", []),
        ("PATTERN (A+ B)", "A AS k = A.k, B AS k = FIRST(A.k)", []),
    ],
)
def test_what_conditions_make_equal(pattern: str, defined: str, expected: list[str]) -> None:
    found = shared_columns(compiled(pattern, defined), SCHEMA)
    assert sorted(str(one) for one in found) == expected


PATTERNS = ("(A B)", "(A C* B)", "(A B D)", "(A C B)", "(A Z? B)", "(A [^D] B)", "(A (B | D))")


@pytest.mark.parametrize("part", range(2))
def test_rows_are_those_of_a_replay(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locating, "WORTH_EVENTS", 0)
    used = 0
    for seed in range(part, rounds(4, 40, 2000), 2):
        r = random.Random(seed)
        late = events(r, 5, 2, 300) if r.random() < 0.4 else None
        made = stream_of(tmp_path / str(seed), events(r, 1500, 3, 3), late)
        store, snapshot, indexes = made
        for _ in range(4):
            defined = {
                "A": "x < 3",
                "B": r.choice(["x > 36 AND k = A.k", "k = A.k AND x = 9 AND g = A.g", "A.g = g"]),
                "C": r.choice(["x > 5", "k = A.k", "g IS NULL"]),
                "D": r.choice(["x = 11 AND A.k = k", "x = 11"]),
            }
            if defined["B"] == "A.g = g":
                defined["B"] += " AND x BETWEEN 30 AND 31"
            pattern = r.choice(PATTERNS)
            more = r.choice(["", " EVENT SELECTION SKIP TILL ANY MATCH"])
            more = more or r.choice(["", " EVENT SELECTION SKIP TILL NEXT MATCH"])
            if "[^" in pattern:
                more = " EVENT SELECTION SKIP TILL ANY MATCH"
            if more:
                text = f"PATTERN {pattern} WITHIN {r.choice([4, 30, 200])}{more}"
            else:
                after = r.choice(["", "AFTER MATCH SKIP TO NEXT ROW "])
                text = f"{after}PATTERN {pattern} WITHIN {r.choice([4, 30, 200])}"
            names = [n for n in defined if n in pattern]
            clause = compiled(text, ", ".join(f"{n} AS {defined[n]}" for n in names))
            expected, _ = answers(snapshot, clause, indexes, "replay")
            found, plan = answers(snapshot, clause, indexes, "all")
            assert found == expected, (seed, text, defined)
            used += plan.shared is not None
        indexes.close()
        store.close()
    assert used


def test_pairs_of_other_keys_are_not_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locating, "WORTH_EVENTS", 1000)
    rng = np.random.default_rng(5)
    count = 150_000
    x = rng.integers(100, 200, count)
    x[rng.random(count) < 0.0005] = 7
    x[rng.random(count) < 0.002] = 8
    key = rng.integers(0, 5000, count)
    table = pa.table(
        {
            "t": np.arange(count), "k": np.array([f"p{i:04}" for i in range(5000)], object)[key],
            "g": key % 7, "f": np.zeros(count), "x": x,
        }
    ).cast(SCHEMA.arrow)  # fmt: skip
    store, snapshot, indexes = stream_of(tmp_path, table)
    text = "PATTERN (A C* B) WITHIN 500"
    clause = compiled(text, "A AS x = 7, B AS x = 8 AND k = A.k")
    expected, _ = answers(snapshot, clause, indexes, "replay")
    found, plan = answers(snapshot, clause, indexes, "all")
    assert found == expected
    assert dict(plan.details())["one_value_of"] == "k of A, B"
    share = plan.replayed()
    plain = compiled(text, "A AS x = 7, B AS x = 8")
    _, plan = answers(snapshot, plain, indexes, "all")
    assert plan.shared is None
    assert share < 0.005 < 0.05 < plan.replayed()
    indexes.close()
    store.close()
