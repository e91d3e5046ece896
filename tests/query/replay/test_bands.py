"""Conditions that bound one event's value by another's: the rows of a replay, from less."""

from __future__ import annotations

import datetime as dt
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.indexes import stream_indexes
from chronicle.query.conditions.constants import Folder
from chronicle.query.conditions.ranges import describe
from chronicle.query.replay import fitting
from chronicle.query.replay.symbols import Outline, outline

from ...rounds import rounds
from .across_cases import answers
from .test_derived_indexes import SCHEMA, built, compiled

FOLDER = Folder({}, dt.datetime.now(dt.timezone.utc))


def outlined(pattern: str, defined: str) -> Outline:
    return outline(
        compiled(f"PATTERN {pattern} WITHIN INTERVAL '5' SECOND", defined), SCHEMA, FOLDER
    )


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("x > A.x", ["B.x > A.x"]),
        ("x BETWEEN A.x - 5 AND A.x + 5", ["B.x >= A.x - 5 and B.x <= A.x + 5"]),
        ("x - A.x <= 5 AND A.x - x <= 5", ["B.x <= A.x + 5 and B.x >= A.x - 5"]),
        ("2 * f < A.f - (3 - A.f * 0)", []),  # twice the same leaf
        ("2 * f < A.f - 3", ["B.f < 0.5 * A.f - 1.5"]),
        ("-f < A.f * 2", ["B.f > -2 * A.f"]),
        ("f >= 0.9 * A.f AND f <= 1.1 * A.f", ["B.f >= 0.9 * A.f and B.f <= 1.1 * A.f"]),
        ("x = FIRST(A.x)", ["B.x = FIRST(A.x)"]),
        ("k = A.k", ["B.k = A.k"]),
        ("k > A.k", []),
        ("n < A.n + INTERVAL '3' SECOND", ["B.n < A.n + 3e+09"]),
        ("t < A.t + INTERVAL '3' SECOND", []),
        ("x > PREV(A.x)", []),
        ("PREV(x) > A.x", []),
        ("x > A.x OR g = 1", []),
        ("NOT (x > A.x)", []),
        ("x > A.f", ["B.x > A.f"]),
        ("x > A.x * A.f", []),
        ("x <> A.x", []),
        ("x + f > A.x", []),
    ],
)
def test_which_conditions_are_bands(condition: str, expected: list[str]) -> None:
    found = outlined("(A B)", f"B AS {condition}").bands
    assert [band.condition.text for band in found] == expected
    assert all((band.earlier, band.later) == (0, 1) for band in found)


@pytest.mark.parametrize(
    ("pattern", "defined", "expected"),
    [
        ("(A C B)", "B AS x > A.x, C AS x > A.x", [(0, 1), (0, 2)]),
        ("(A+ B)", "B AS x > A.x", []),  # the last of them
        ("(A+ B)", "B AS x > FIRST(A.x)", [(0, 1)]),
        ("(A B A B)", "B AS x > A.x", [(0, 1), (2, 3)]),
        ("((A B)+)", "B AS x > A.x", [(0, 1)]),
        ("((A B){2})", "B AS x > A.x", [(0, 1), (2, 3)]),
        ("((A B){2,})", "B AS x > FIRST(A.x)", [(0, 1), (0, 3)]),
        ("((A C*)+ B)", "B AS x > A.x", []),
        ("(A C* B+)", "B AS x > A.x", [(0, 1)]),
        ("((A | C) B)", "B AS x > A.x", []),
        ("(A (B | C) D)", "B AS x > A.x, D AS x > A.x", [(0, 2)]),
        ("(B A)", "B AS x > A.x", []),
        ("(A? B)", "B AS x > A.x", []),
        ("(PERMUTE(A, B))", "B AS x > A.x", [(0, 1)]),
        ("(PERMUTE(B, A))", "B AS x > A.x", [(0, 1)]),
        ("(PERMUTE(C, B, A))", "B AS x > A.x, C AS x > B.x", [(0, 1), (1, 2)]),
        ("(PERMUTE(C, B, A))", "B AS x > A.x", []),
    ],
)
def test_which_events_they_bind(
    pattern: str, defined: str, expected: list[tuple[int, int]]
) -> None:
    found = outlined(pattern, defined).bands
    assert sorted((band.earlier, band.later) for band in found) == expected


@pytest.mark.parametrize(
    ("defined", "symbol", "expected"),
    [
        ("A AS x BETWEEN 10 AND 20, B AS x BETWEEN A.x - 5 AND A.x + 5", 1, "x >= 5 and x <= 25"),
        ("B AS x BETWEEN 10 AND 20 AND x BETWEEN A.x - 5 AND A.x + 5", 0, "x >= 5 and x <= 25"),
        ("A AS x > 10, B AS x > A.x + 3", 1, "x >= 14"),
        ("B AS x > 10 AND x < A.x", 0, "x >= 11"),
        ("A AS x > 10, B AS x < A.x", 1, None),
        ("A AS x = 3, C AS x = A.x + 4, B AS x <= C.x * 2", 2, "x <= 14"),
        ("A AS x < 10, B AS x > -2 * A.x", 1, "x >= -18"),
    ],
)
def test_ranges_are_handed_to_and_fro(defined: str, symbol: int, expected: str | None) -> None:
    pattern = "(A C B)" if "C AS" in defined else "(A B)"
    found = outlined(pattern, defined).symbols[symbol]
    texts = [str(describe(atom, SCHEMA)) for term in found.terms for atom in term.atoms]
    assert texts == ([] if expected is None else [expected])


def test_bounds_hold_wherever_the_condition_does() -> None:
    """Computed as the condition is, in doubles, at all sizes and with the last bit off."""
    r = random.Random(3)
    held, cases = 0, rounds(200, 10_000, 500_000)
    for text, holds in (
        ("f >= A.f - 0.3", lambda own, a: own >= a - 0.3),
        ("f - A.f * 1.1 < 0.7", lambda own, a: own - a * 1.1 < 0.7),
        ("f + 1e6 - A.f > 1e6", lambda own, a: own + 1e6 - a > 1e6),
        ("A.f - f BETWEEN -0.1 AND 0.2", lambda own, a: -0.1 <= a - own <= 0.2),
        ("3 - f <= -7 * A.f + 0.1", lambda own, a: 3 - own <= -7 * a + 0.1),
    ):
        (band,) = outlined("(A B)", f"B AS {text}").bands
        for _ in range(cases):
            a = (r.random() - 0.5) * 10.0 ** r.randint(-12, 18)
            low, high = (float(b[0]) for b in band.condition.own(np.array([a]), np.array([a])))
            own = r.choice([b for b in (low, high, a) if math.isfinite(b)] or [a])
            for _ in range(r.choice([0, 1, 5])):
                own = math.nextafter(own, r.choice([-math.inf, math.inf]))
            if not holds(own, a):
                continue
            held += 1
            assert low <= own <= high, (text, own, a)
            back = band.condition.other(np.array([own]), np.array([own]))
            assert back[0][0] <= a <= back[1][0], (text, own, a)
    assert held > cases // 2


LINKS = [
    "x BETWEEN A.x - 2 AND A.x + 2", "x > A.x", "x <= A.x - 5", "f > A.f", "f >= A.f",
    "f BETWEEN A.f - 0.5 AND A.f + 0.5", "f = A.f", "s > A.s + 0.1", "s = A.s", "k = A.k",
    "e < A.e", "e = A.e", "e >= A.e", "g = A.g AND x > A.x", "n > A.n + INTERVAL '2' SECOND",
    "n - A.n < INTERVAL '3' SECOND", "2 * f <= A.f + 3", "x - A.x IN (1, 2)", "x > A.f",
    "f < A.f AND f > A.f - 3", "x * 2 >= A.x", "ABS(x - A.x) < 3", "k = A.k AND f <> A.f",
]  # fmt: skip
PATTERNS = [
    "(A B)", "(A C* B)", "(A B+ C)", "(A C B)", "((A B)+ C)", "((A C*){2,} B)", "(A+ B)",
    "(PERMUTE(B, A))", "(PERMUTE(A, C, B))", "(A (B | C) C)", "(A C? B)", "(A {- C* -} B)",
    "((A | C) B)", "(A B{2})",
]  # fmt: skip


@pytest.mark.parametrize("partition", ["", "k", "g, k"])
def test_rows_are_those_of_a_replay(
    tmp_path: Path, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "WORTH_EVENTS", 0)
    monkeypatch.setattr(fitting, "COLUMN_SHARE", 1 << 40)
    monkeypatch.setattr(stream_indexes, "RUN_EVENTS", 512)
    used = 0
    for seed in range(rounds(2, 40, 3000)):
        r = random.Random(f"{partition} {seed}")
        names = [*r.sample(["x", "f", "g", "e"], 3), r.choice(["k", "k, x", "g, f"])]
        store, snapshot, indexes = built(tmp_path / str(seed), r, names)
        for _ in range(8):
            pattern = r.choice(PATTERNS)
            defined = {
                "A": r.choice(["x < 3", "f < 2.6", "k = '0'", "g = 1", "e > 5", "TRUE"]),
                "B": r.choice(["x < 30", "f > 0.1", "k = '1'", "TRUE", "e <= 5"]),
                "C": r.choice(["x > 1", "g IS NULL", "x > A.x", "f < 7"]),
            }
            defined["B"] += f" AND {r.choice(LINKS)}"
            if r.random() < 0.3:
                defined["B"] += f" AND {r.choice(['x > FIRST(A.x)', 'f <= FIRST(A.f)'])}"
            if r.random() < 0.3:
                defined["C"] += f" AND {r.choice(LINKS).replace('A.', 'B.')}"
            more = r.choice(["", "", " EVENT SELECTION SKIP TILL NEXT MATCH"])
            if not more and r.random() < 0.3:
                more = " EVENT SELECTION SKIP TILL ANY MATCH"
            ties = ", x" if r.random() < 0.2 else ""
            clause = compiled(
                f"PATTERN {pattern} WITHIN INTERVAL '{r.choice([3, 12])}' SECOND{more}",
                ", ".join(f"{name} AS {text}" for name, text in defined.items() if name in pattern),
                f"PARTITION BY {partition}" if partition else "",
                ties,
            )
            expected, _ = answers(snapshot, clause, indexes, "replay")
            for strategy in ("all", "optimal", "none", "auto"):
                found, plan = answers(snapshot, clause, indexes, strategy, gap=0)
                told = (seed, strategy, pattern, more, ties, defined, plan.details())
                assert found == expected, told
                used += bool(plan.fitted)
        indexes.close()
        store.close()
    assert used


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A walk of prices with few jumps, of two kinds of events among others."""
    r = np.random.default_rng(8)
    count = 60_000
    steps = r.standard_normal(count) * 0.01
    steps[r.integers(0, count, 4)] = 5.0
    table = pa.table(
        {
            "t": np.arange(count), "price": 1000.0 + np.cumsum(steps),
            "kind": r.choice(["buy", "sell", "other"], count, p=[0.02, 0.02, 0.96]),
            "beat": r.integers(0, 400, count), "x": r.random(count), "y": r.random(count),
        }
    )  # fmt: skip
    with chronicle.open(tmp_path_factory.mktemp("prices")) as database:
        stream = database.create_stream("s", table.schema, "t")
        stream.append(table)
        stream.seal()
        stream.create_index("kind")
        yield database


def shares(database: Any, pattern: str, defined: str, strategy: str = "auto") -> tuple[float, str]:
    """Share of the stream that is replayed, and the plan, of the same rows as of a replay."""
    text = (
        f"SELECT /*+ strategy({{}}) */ * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES "
        "A.t AS a, B.t AS b AFTER MATCH SKIP TO NEXT ROW "
        f"PATTERN ({pattern}) WITHIN 100 DEFINE {defined})"
    )
    expected = database.sql(text.format("replay")).fetchall()
    assert expected
    assert database.sql(text.format(strategy)).fetchall() == expected
    plan = database.explain(text.format(strategy), analyze=True)
    (replay,) = [operator for operator in plan.operators() if operator.name == "Replay"]
    return float(dict(replay.figures).get("share_replayed", 1.0)), str(plan)


def test_leaves_and_zones_exclude_what_no_index_finds(prices: Any) -> None:
    share, shown = shares(prices, "A Z* B", "B AS price > A.price + 4")
    assert share < 0.15, shown
    share, shown = shares(prices, "A Z* B", "B AS price > A.price * 1.003")
    assert share < 0.3, shown


def test_pairs_that_do_not_fit_are_not_replayed(prices: Any) -> None:
    kinds = "A AS kind = 'buy', B AS kind = 'sell'"
    near = " AND x BETWEEN A.x - 0.003 AND A.x + 0.003"
    wide, _ = shares(prices, "A Z* B", kinds)
    narrow, shown = shares(prices, "A Z* B", kinds + near)
    assert narrow < 0.1 < 0.4 < wide, shown
    assert "pairs that fit" in shown
    assert "B.x >= A.x - 0.003 and B.x <= A.x + 0.003" in shown
    box = near + " AND y BETWEEN A.y - 0.05 AND A.y + 0.05"
    least, shown = shares(prices, "A Z* B", kinds + box)
    assert least < 0.02, shown
    same, shown = shares(prices, "PERMUTE(B, A)", f"{kinds} AND x > A.x", "all")
    assert same < 0.3, shown  # few neighbours, near ones read as one
    assert "symbols: (A B)" in shown


def test_the_model_counts_on_pairs_that_do_not_fit(prices: Any) -> None:
    """Both kinds are in every window; only what they share makes a match rare."""
    kinds = "A AS kind = 'buy', B AS kind = 'sell' AND beat = A.beat"
    share, shown = shares(prices, "A Z* B", kinds)
    assert share < 0.06, shown
    assert "B.beat = A.beat: 0." in shown, shown


def test_a_window_of_many_pairs_is_kept(prices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more pairs than that would have to be asked, what is left is replayed."""
    monkeypatch.setattr(fitting, "PAIRS_PER_EVENT", 0.001)
    kinds = "A AS kind = 'buy', B AS kind = 'sell' AND x BETWEEN A.x - 0.003 AND A.x + 0.003"
    share, shown = shares(prices, "A Z* B", kinds)
    assert share > 0.3, shown
