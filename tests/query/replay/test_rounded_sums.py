"""Rounded sums and products: no event is hidden by the last bit of a double."""

from __future__ import annotations

import math
import operator
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.query.replay.terms import product_range, sum_range

from ...rounds import rounds

HOW = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
}  # fmt: skip
CONSTANTS = [0.0, -0.0, 0.1, -0.1, 0.3, 1.0, 5.0, -2.5, 1e-9, 1e9, 1.1, 2.0**-60]


def doubles(r: random.Random, constant: float) -> tuple[float, float]:
    """Two values about a constant apart, at any size, on either side of the last bit."""
    scale = r.choice([1e-12, 1e-3, 1.0, 7.3, 1e3, 1e8, 1e15, 1e20, 1e300])
    other = r.choice([-1.0, 1.0, 0.0]) * r.random() * scale
    own = other + constant
    for _ in range(r.choice([0, 1, 2, 3])):
        own = math.nextafter(own, r.choice([-math.inf, math.inf]))
    return own, other


def test_a_sum_that_holds_has_its_difference_in_the_range() -> None:
    r = random.Random(5)
    seen = dict.fromkeys(HOW, 0)
    for _ in range(rounds(2_000, 100_000, 5_000_000)):
        constant, how = r.choice(CONSTANTS), r.choice([*HOW])
        own, other = doubles(r, constant)
        found = sum_range(how, constant, ("x",))
        assert found is not None
        low, high, needs = found
        if not HOW[how](own, other + constant):
            continue
        if not all(one.low <= value <= one.high for one in needs for value in (own, other)):
            continue
        seen[how] += 1
        assert low is None or own - other >= low, (own, other, constant, how)
        assert high is None or own - other <= high, (own, other, constant, how)
    assert min(seen.values()) > 100


def test_what_the_bounds_are_for() -> None:
    """Far from zero a sum is rounded to either side of the value that it is compared with."""
    other, constant = 1e20, 5.0
    own = other + constant
    assert own - other == 0.0  # and so not in [5, ...
    found = sum_range(">=", constant, ("x",))
    assert found is not None
    assert found[0] == pytest.approx(5.0, rel=1e-4)
    assert found[2][0].high < 1e20


def test_a_product_that_holds_has_its_quotient_in_the_range() -> None:
    r = random.Random(6)
    held, cases = 0, rounds(2_000, 100_000, 5_000_000)
    for _ in range(cases):
        constant, how = r.choice([0.1, 1.1, 1.0, 3.0, 1e-9, 1e9]), r.choice([*HOW])
        other = r.random() * 10.0 ** r.randint(-100, 100) + 1e-120
        own = other * constant
        for _ in range(r.choice([0, 1, 2])):
            own = math.nextafter(own, r.choice([0.0, math.inf]))
        found = product_range(how, constant, ("x",))
        assert found is not None
        low, high, _ = found
        if not HOW[how](own, other * constant):
            continue
        held += 1
        assert low is None or own / other >= low, (own, other, constant, how)
        assert high is None or own / other <= high, (own, other, constant, how)
    assert held > cases // 4
    assert product_range(">", -1.1, ("x",)) is None


@pytest.mark.parametrize("far", [0.0, 1e20])
@pytest.mark.parametrize(
    ("index", "condition"),
    [
        ("x - PREV(x)", "x >= PREV(x) + 0.1"),
        ("x - PREV(x)", "x > PREV(x) + 0.1"),
        ("x - PREV(x)", "PREV(x) - 0.1 >= x"),
        ("x - PREV(x)", "NOT (x < PREV(x) + 0.1)"),
        ("PREV(x) - x", "x >= PREV(x) + 0.1"),
        ("x / PREV(x)", "x >= PREV(x) * 1.1"),
    ],
)
def test_rows_at_the_last_bit_are_those_of_a_replay(
    tmp_path: Path, index: str, condition: str, far: float
) -> None:
    """Where a value is far from zero the index on differences is not asked for ``>=``."""
    r = np.random.default_rng(4)
    x = np.round(100.0 + r.standard_normal(60_000) * 1e-3, 4)
    jumps = r.integers(1, 60_000, 40)
    for at in np.sort(jumps):
        factor = 1.1 if "*" in condition else 1.0
        step = -0.1 if "- 0.1" in condition else 0.1
        x[at] = x[at - 1] * factor if factor > 1 else x[at - 1] + step
        x[at] = np.nextafter(x[at], r.choice([-np.inf, x[at], np.inf]))
    x[3_000] = far or x[3_000]
    table = pa.table({"t": np.arange(len(x)), "x": x})
    text = (
        "SELECT /*+ strategy({}) */ * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES B.t AS b "
        f"AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN 5 DEFINE B AS {condition})"
    )
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", table.schema, "t")
        stream.append(table)
        stream.seal()
        stream.create_index(index)
        expected = database.sql(text.format("replay")).fetchall()
        assert len(expected) > 10
        assert database.sql(text.format("all")).fetchall() == expected
        shown = str(database.explain(text.format("all"), analyze=True))
        strict = ">" in condition and ">=" not in condition
        assert (f"B: {index}" in shown) == (not far or strict or "*" in condition)


def test_a_nan_leaves_only_what_needs_no_bounds(tmp_path: Path) -> None:
    x = np.where(np.arange(30_000) % 997 == 0, np.nan, np.arange(30_000) % 10 / 10)
    table = pa.table({"t": np.arange(len(x)), "x": x})
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", table.schema, "t")
        stream.append(table)
        stream.seal()
        stream.create_index("x - PREV(x)")
        for condition, used in (("x > PREV(x) + 0.5", True), ("x >= PREV(x) + 0.5", False)):
            text = (
                "SELECT /*+ strategy({}) */ * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES B.t AS b "
                f"PATTERN (A B) WITHIN 5 DEFINE B AS {condition})"
            )
            expected = database.sql(text.format("replay")).fetchall()
            assert database.sql(text.format("all")).fetchall() == expected
            assert expected
            assert ("B: x - PREV(x)" in str(database.explain(text.format("all")))) == used
