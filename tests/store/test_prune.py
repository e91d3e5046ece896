"""Pruning is sound: a child that is skipped holds no event for which the predicate is true."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.schema import StreamSchema
from chronicle.store.columns import ColumnView
from chronicle.store.layout import ZONE_EVENTS
from chronicle.store.leaf import zone_table
from chronicle.store.prune import AllOf, AnyOf, IsNull, Never, NotNull, Prune, Pruner, Range
from chronicle.tests.rounds import rounds

SCHEMA = StreamSchema(
    pa.schema(
        [
            ("t", pa.int64()),
            ("i", pa.int64()),
            ("u", pa.uint64()),
            ("x", pa.float64()),
            ("s", pa.string()),
            ("b", pa.bool_()),
        ]
    ),
    "t",
)
BIG = [2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1]
POOLS: dict[str, st.SearchStrategy[object]] = {
    "i": st.one_of(st.integers(-9, 9), st.sampled_from([*BIG, -(2**63)])),
    "u": st.one_of(st.integers(0, 9), st.sampled_from([2**53 + 1, 2**63, 2**64 - 1])),
    "x": st.one_of(
        st.integers(-9, 9).map(float),
        st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.5, float(2**53)]),
    ),
    "s": st.sampled_from(
        ["", "a", "abcdefgh", "abcdefghi", "abcdefghz", "é", "z\x00", "\U0001f600"]
    ),
    "b": st.booleans(),
}
BOUNDS: dict[str, st.SearchStrategy[object]] = {
    name: st.one_of(POOLS["i"], POOLS["x"], POOLS["u"]) for name in ("t", "i", "u", "x")
} | {"s": POOLS["s"], "b": st.booleans()}


def ranges(name: str) -> st.SearchStrategy[Prune]:
    bound = st.one_of(st.none(), BOUNDS[name])
    flags = st.booleans()
    return st.builds(Range, st.just(name), bound, bound, flags, flags)  # type: ignore[arg-type]


names = st.sampled_from(list(BOUNDS))
leaves = st.one_of(names.flatmap(ranges), names.map(IsNull), names.map(NotNull), st.just(Never()))
predicates = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: AllOf(tuple(items))),
        st.lists(inner, max_size=3).map(lambda items: AnyOf(tuple(items))),
    ),
    max_leaves=5,
)


def below(a: object, b: object) -> bool:
    """Strictly less, NaN being the greatest value; Python compares integers and doubles exactly."""
    if isinstance(a, float) and math.isnan(a):
        return False
    if isinstance(b, float) and math.isnan(b):
        return True
    if isinstance(a, str) and isinstance(b, str):
        return a.encode() < b.encode()
    return a < b  # type: ignore[operator, no-any-return]


def holds(predicate: Prune, row: dict[str, object]) -> bool:
    if isinstance(predicate, AllOf):
        return all(holds(item, row) for item in predicate.items)
    if isinstance(predicate, AnyOf):
        return any(holds(item, row) for item in predicate.items)
    if isinstance(predicate, Never):
        return False
    value = row[predicate.column]
    if isinstance(predicate, IsNull):
        return value is None
    if isinstance(predicate, NotNull):
        return value is not None
    if value is None:
        return False
    low, high = predicate.low, predicate.high
    if low is not None and (below(value, low) or (predicate.low_open and not below(low, value))):
        return False
    return not (
        high is not None
        and (below(high, value) or (predicate.high_open and not below(value, high)))
    )


rows = st.lists(
    st.fixed_dictionaries({name: st.one_of(st.none(), pool) for name, pool in POOLS.items()}),
    min_size=1,
    max_size=3,
)


@settings(max_examples=rounds(30, 300), deadline=None)
@given(st.lists(rows, min_size=1, max_size=3), predicates)
def test_nothing_that_matches_is_skipped(
    groups: list[list[dict[str, object]]], predicate: Prune
) -> None:
    flat: list[dict[str, object]] = []
    for number, group in enumerate(groups):  # one zone for each group
        zone = [group[i % len(group)] for i in range(ZONE_EVENTS)]
        flat += [{**row, "t": number * 10} for row in zone]
    arrays = [pa.array([row[a.name] for row in flat], a.type) for a in SCHEMA.attributes]
    columns = [ColumnView(a, array) for a, array in zip(SCHEMA.attributes, arrays, strict=True)]
    table = zone_table(SCHEMA.time, columns, 0, len(flat))
    mask = Pruner(predicate, SCHEMA).mask(table)
    assert mask.shape == (len(groups),)
    for number, group in enumerate(groups):
        if any(holds(predicate, {**row, "t": number * 10}) for row in group):
            assert mask[number], (predicate, group)


def masked(values: list[object], predicate: Prune, type_: pa.DataType) -> bool:
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("v", type_)]), "t")
    arrays = [pa.array([0] * len(values)), pa.array(values, type_)]
    columns = [ColumnView(a, array) for a, array in zip(schema.attributes, arrays, strict=True)]
    return bool(Pruner(predicate, schema).mask(zone_table("t", columns, 0, len(values)))[0])


def test_what_can_be_ruled_out_is() -> None:
    """Sound is easy: these must really be skipped."""
    out: list[tuple[list[object], Prune, pa.DataType]] = [
        ([1, 5], Range("v", 6), pa.int64()),
        ([1, 5], Range("v", 5, low_open=True), pa.int64()),
        ([1, 5], Range("v", 5.5), pa.int64()),
        ([1, 5], Range("v", math.nan), pa.int64()),
        ([2**63], Range("v", None, 2**63 - 1), pa.uint64()),
        ([1.0, math.nan], Range("v", None, 0.5), pa.float64()),
        ([1.0, 2.0], Range("v", 2.0, low_open=True), pa.float64()),
        (["b", "c"], Range("v", "d"), pa.string()),
        (["b", "c"], Range("v", None, "a"), pa.string()),
        ([None, None], Range("v", 1), pa.int64()),
        ([None], NotNull("v"), pa.int64()),
        ([1], IsNull("v"), pa.int64()),
        ([True], Range("v", None, False), pa.bool_()),
        ([1], Never(), pa.int64()),
        ([1], AnyOf(()), pa.int64()),
        ([1, 5], AllOf((Range("v", 0), Range("v", 6))), pa.int64()),
    ]
    for values, predicate, type_ in out:
        assert not masked(values, predicate, type_), (values, predicate)


def test_bounds_that_are_just_met_keep_the_child() -> None:
    kept: list[tuple[list[object], Prune, pa.DataType]] = [
        ([1, 5], Range("v", 5), pa.int64()),
        ([1, 5], Range("v", None, 1), pa.int64()),
        ([1, 5], Range("v", 4, low_open=True), pa.int64()),
        ([1, 5], Range("v", 4.5), pa.int64()),
        ([2, 5], Range("v", None, 2.5), pa.int64()),
        ([2**64 - 1], Range("v", 2**64 - 1), pa.uint64()),
        ([-(2**63)], Range("v", None, -(2**63)), pa.int64()),
        ([1.0, 2.0], Range("v", 2.0), pa.float64()),
        ([1.0, 2.0], Range("v", None, 1.0), pa.float64()),
        ([1.0, math.nan], Range("v", 7.0), pa.float64()),
        ([1.0, math.nan], Range("v", math.nan), pa.float64()),
        ([math.nan], Range("v", None, math.nan), pa.float64()),
        ([0.0], Range("v", -0.0, -0.0), pa.float64()),
        ([float(2**53)], Range("v", None, 2**53 + 1, high_open=True), pa.float64()),
        (["abcdefghi"], Range("v", "abcdefghi"), pa.string()),
        (["abcdefghi"], Range("v", "abcdefgh", low_open=True), pa.string()),
        (["abcdefgh"], Range("v", None, "abcdefghi", high_open=True), pa.string()),
        ([True, False], Range("v", True), pa.bool_()),
        ([1, None], IsNull("v"), pa.int64()),
        ([1, None], NotNull("v"), pa.int64()),
        ([1], AllOf(()), pa.int64()),
    ]
    for values, predicate, type_ in kept:
        assert masked(values, predicate, type_), (values, predicate)


def test_a_column_that_came_later_is_null() -> None:
    old = StreamSchema(pa.schema([("t", pa.int64())]), "t")
    table = np.ones((5, 3), np.int64)
    for predicate, kept in ((IsNull("later"), True), (NotNull("later"), False)):
        assert Pruner(predicate, old).mask(table).tolist() == [kept] * 3
    assert Pruner(Range("later", 1), old).mask(table).tolist() == [False] * 3
