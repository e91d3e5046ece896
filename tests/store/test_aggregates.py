"""Lightweight aggregates equal naive Python, however the events are grouped."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.schema import StreamSchema
from chronicle.store.aggregates import LightweightAggregates, merge_children
from chronicle.store.columns import ColumnView
from chronicle.store.layout import value_kind
from chronicle.tests.rounds import rounds

ATTRIBUTES = {
    "i64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "u64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "i8": (pa.int8(), st.integers(-128, 127)),
    "u32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "bool": (pa.bool_(), st.booleans()),
}


def of_groups(array: pa.Array, cuts: list[int]) -> LightweightAggregates:
    """Aggregate the groups between cuts one by one, then merge them, some of them twice nested."""
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("v", array.type)]), "t")
    attribute = schema.payload[0]
    kinds = np.array([value_kind(attribute)], np.int64)
    starts = np.array(cuts, np.int64)
    starts.flags.writeable = False
    table = np.zeros((10, len(cuts) - 1), np.int64)
    table[2] = np.diff(starts)
    ColumnView(attribute, array).aggregate(starts, table, 5)
    table.flags.writeable = False
    half = (len(cuts) - 1) // 2
    left = LightweightAggregates(["v"], kinds)
    right = LightweightAggregates(["v"], kinds)
    one = np.zeros(1, np.int64)
    merge_children(table, 0, half, one, kinds, left.words)
    merge_children(table, half, len(cuts) - 1, one, kinds, right.words)
    left.merge(right)
    return left


def cut(data: st.DataObject, length: int) -> list[int]:
    inner = data.draw(st.lists(st.integers(0, length), max_size=6))
    cuts = sorted({0, length, *inner})
    assert all(a < b for a, b in pairwise(cuts))
    return cuts


@pytest.mark.parametrize("name", ATTRIBUTES)
@settings(max_examples=rounds(6, 60), deadline=None)
@given(data=st.data())
def test_integers_are_exact(name: str, data: st.DataObject) -> None:
    type_, one = ATTRIBUTES[name]
    items = data.draw(st.lists(st.one_of(st.none(), one), min_size=1, max_size=40))
    offset = data.draw(st.integers(0, 9))
    array = pa.array([None] * offset + items, type_).slice(offset)
    found = of_groups(array, cut(data, len(items)))
    valid = [int(item) for item in items if item is not None]  # type: ignore[call-overload]
    assert found.count == len(items)
    assert found["v"].count == len(valid)
    assert found["v"].min == min(valid, default=None)
    assert found["v"].max == max(valid, default=None)
    assert found["v"].sum == (sum(valid) if valid else None)
    if valid:
        assert found["v"].avg == pytest.approx(sum(valid) / len(valid))


def test_sums_do_not_wrap() -> None:
    for type_, value in ((pa.int64(), -(2**63)), (pa.int64(), 2**63 - 1), (pa.uint64(), 2**64 - 1)):
        array = pa.array([value] * 1000, type_)
        assert of_groups(array, [0, 10, 999, 1000])["v"].sum == 1000 * value


def greatest(values: list[float]) -> float:
    return math.nan if any(math.isnan(v) for v in values) else max(values)


def least(values: list[float]) -> float:
    real = [v for v in values if not math.isnan(v)]
    return min(real) if real else math.nan


def same(a: float | int | None, b: float | int | None) -> bool:
    return a == b or (a is not None and b is not None and math.isnan(a) and math.isnan(b))


@settings(max_examples=rounds(20, 200), deadline=None)
@given(
    items=st.lists(
        st.one_of(st.none(), st.floats(-1e300, 1e300), st.sampled_from([math.nan, 0.0, -0.0])),
        min_size=1,
        max_size=40,
    ),
    data=st.data(),
)
def test_floats_agree_with_fsum(items: list[float | None], data: st.DataObject) -> None:
    array = pa.array([1.0, *items], pa.float64(), from_pandas=False).slice(1)
    found = of_groups(array, cut(data, len(items)))["v"]
    valid = [item for item in items if item is not None]
    assert found.count == len(valid)
    if not valid:
        assert (found.min, found.max, found.sum, found.avg) == (None, None, None, None)
        return
    assert same(found.min, least(valid))
    assert same(found.max, greatest(valid))
    assert found.sum is not None
    if any(math.isnan(v) for v in valid):
        assert math.isnan(found.sum)
    else:
        exact = sum(map(Fraction, valid))
        scale = max(abs(v) for v in valid) * len(valid)
        assert abs(Fraction(found.sum) - exact) <= abs(exact) * Fraction(1, 2**52) + Fraction(
            scale
        ) * Fraction(1, 2**95)


@pytest.mark.parametrize("nulls", [False, True])
def test_infinities_behave_as_in_sql(nulls: bool) -> None:
    rest: list[float | None] = [1.0, None if nulls else 2.0, 3.0, 4.0, 5.0]
    for items, total in (
        ([math.inf, *rest], math.inf),
        ([-math.inf, *rest], -math.inf),
        ([math.inf, *rest, -math.inf], math.nan),
        ([math.nan, *rest, math.inf], math.nan),
        ([1e308, 1e308, *rest], math.inf),
    ):
        for cuts in ([0, len(items)], list(range(len(items) + 1))):
            found = of_groups(pa.array(items, from_pandas=False), cuts)["v"]
            assert found.sum is not None
            assert same(found.sum, total), (items, cuts)


def test_a_sum_that_cancels_is_exact() -> None:
    items = [1e16, 1.0, -1e16] * 999 + [0.5]
    for cuts in ([0, len(items)], [0, 1, 2, 500, len(items)], list(range(len(items) + 1))):
        assert of_groups(pa.array(items), cuts)["v"].sum == math.fsum(items) == 999.5


def test_merging_is_associative_and_has_an_identity() -> None:
    rng = np.random.default_rng(2)
    kinds = np.array([2], np.int64)
    parts = [of_groups(pa.array(rng.normal(size=17)), [0, 17]) for _ in range(3)]
    left = LightweightAggregates(["v"], kinds)
    for part in parts:
        left.merge(part)
    right = LightweightAggregates(["v"], kinds, parts[1].words.copy())
    right.merge(parts[2])
    whole = LightweightAggregates(["v"], kinds, parts[0].words.copy())
    whole.merge(right)
    assert (left.count, left["v"].min, left["v"].max) == (
        whole.count,
        whole["v"].min,
        whole["v"].max,
    )
    assert left["v"].sum == pytest.approx(whole["v"].sum, rel=1e-15)
    before = left.words.copy()
    left.merge(LightweightAggregates(["v"], kinds))
    assert np.array_equal(before, left.words)
