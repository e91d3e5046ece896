"""Arrow filters taken apart: range, predicate and rest together say what the whole said."""

from __future__ import annotations

import datetime as dt
import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from chronicle.query.conditions.predicates import TICK_MAX, TICK_MIN
from chronicle.query.conditions.row_filters import (
    ExpressionFilter,
    PredicateFilter,
    Split,
    split_filter,
)
from chronicle.schema import StreamSchema
from chronicle.store.prune import AnyOf, Range

from ..rounds import rounds
from .test_predicate_differential import satisfies

EPOCH = dt.datetime(1970, 1, 1)
ROWS = 300
ARROW = pa.schema(
    [
        ("t", pa.timestamp("ms")),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
    ]
)
SCHEMA = StreamSchema(ARROW, "t")


def table() -> pa.RecordBatch:
    rng = np.random.default_rng(3)
    x = rng.normal(size=ROWS) * 10
    x[::17] = np.nan

    def nulls(values):
        return [None if rng.random() < 0.1 else value for value in values]

    return pa.record_batch(
        [
            pa.array(np.sort(rng.integers(-5000, 5000, ROWS)), pa.int64()).cast(pa.timestamp("ms")),
            pa.array(nulls(rng.integers(-20, 20, ROWS).tolist()), pa.int64()),
            pa.array(nulls(x.tolist()), pa.float64()),
            pa.array(rng.normal(size=ROWS).astype(np.float32)),
            pa.array(nulls([f'w{i % 7}"\\' for i in range(ROWS)])),
            pa.array(nulls((rng.random(ROWS) < 0.5).tolist())),
            pa.array(rng.integers(-5, 5, ROWS).astype(np.int32)).cast(pa.date32()),
        ],
        schema=ARROW,
    )


BATCH = table()
ROWS_AS_PYTHON = [
    {name: (column[i].value if name in ("t", "d") else column[i].as_py()) for name, column in
     zip(ARROW.names, BATCH.columns, strict=True)}
    for i in range(ROWS)
]  # fmt: skip


def split(whole: pc.Expression, schema: StreamSchema = SCHEMA) -> Split:
    return split_filter(ExpressionFilter.of(whole, schema.names), schema)


def comparison(pick: random.Random) -> pc.Expression:
    name = pick.choice(ARROW.names)
    value = {
        "t": pa.scalar(EPOCH + dt.timedelta(milliseconds=pick.randrange(-5500, 5500))),
        "n": pick.choice([pick.randrange(-25, 25), 3.5]),
        "x": pick.choice([pick.uniform(-15, 15), 2, 0.1]),
        "f": pick.choice([0.5, 0.1, -1]),
        "s": pick.choice(['w3"\\', "w", "zz", ""]),
        "b": pick.choice([True, False]),
        "d": pa.scalar(dt.date(1970, 1, 1) + dt.timedelta(days=pick.randrange(-6, 6))),
    }[name]
    field, literal = pc.field(name), pc.scalar(value)
    return pick.choice(
        [
            field < literal,
            field <= literal,
            field > literal,
            field >= literal,
            field == literal,
            field != literal,
            field.is_null(),
            field.is_valid(),
            field.isin(pa.array([value.as_py() if isinstance(value, pa.Scalar) else value],
                                ARROW.field(name).type if name != "n" else None)),
        ]
    )  # fmt: skip


def expression(pick: random.Random, depth: int = 0) -> pc.Expression:
    roll = pick.random()
    if depth > 2 or roll < 0.35:
        return comparison(pick)
    if roll < 0.45:
        return ~expression(pick, depth + 1)
    left, right = expression(pick, depth + 1), expression(pick, depth + 1)
    return left & right if roll < 0.8 else left | right


def test_the_parts_say_what_the_whole_said():
    """And most expressions are understood."""
    ticks = BATCH.column("t").cast(pa.int64())
    marked = BATCH.append_column("row", pa.array(range(ROWS)))
    useful, count = 0, rounds(150, 300, 3000)
    for seed in range(count):
        whole = expression(random.Random(seed))
        found = split(whole)
        wanted = marked.filter(whole)
        in_range = pc.and_(
            pc.greater_equal(ticks, pa.scalar(found.low, pa.int64())),
            pc.less_equal(ticks, pa.scalar(found.high, pa.int64())),
        )
        got = marked.filter(in_range)
        if found.rest is not None:
            got = found.rest(got)
        assert got.column("row").equals(wanted.column("row")), (seed, str(whole))
        if found.prune is not None:
            kept = {i for i, row in enumerate(ROWS_AS_PYTHON) if satisfies(found.prune, row)}
            assert set(wanted.column("row").to_pylist()) <= kept, (seed, str(whole))
        useful += found.prune is not None or (found.low, found.high) != (TICK_MIN, TICK_MAX)
    assert useful > count // 2


def test_a_range_of_time_leaves_nothing_to_filter():
    low, high = EPOCH, EPOCH + dt.timedelta(seconds=1)
    found = split((pc.field("t") >= low) & (pc.field("t") < high))
    assert (found.low, found.high, found.prune, found.rest) == (0, 999, None, None)


def test_a_range_of_time_beside_a_condition_leaves_the_condition():
    found = split((pc.field("t") >= EPOCH) & (pc.field("n") > 5))
    assert (found.low, found.high) == (0, TICK_MAX)
    assert found.prune == Range("n", 6, None)
    assert found.rest == PredicateFilter(Range("n", 6, None), SCHEMA)


def test_lists_of_values_become_ranges():
    listed = pc.field("n").isin([1, 5])
    guarded = pc.if_else(pc.field("n").is_valid(), listed, pc.scalar(pa.scalar(None, pa.bool_())))
    for whole in (listed, guarded):
        found = split(whole)
        assert found.prune == AnyOf((Range("n", 1, 1), Range("n", 5, 5)))
        assert found.rest is not None
    assert split(~guarded).prune is not None
    assert split(~listed).prune is None  # it holds for null
    assert split(pc.field("n").isin([1, None])).prune is None
    assert split(pc.field("s").isin(["b", "c"])).prune == AnyOf(
        (Range("s", "b", "b"), Range("s", "c", "c"))
    )
    for text in ("a" * 99, "é" * 60, 'a""b', 'a", "b', "\\\\"):  # Arrow shows others
        assert split(pc.field("s").isin(["b", text])).prune is None


@pytest.mark.parametrize(
    "whole",
    [
        pc.field("n") + 1 > 5,
        pc.utf8_length(pc.field("s")) > 3,
        pc.field("n") > pc.field("x"),
        pc.match_substring(pc.field("s"), "and (n > 5)"),
    ],
)
def test_what_is_not_understood_stays_whole(whole):
    found = split(whole)
    assert (found.low, found.high, found.prune) == (TICK_MIN, TICK_MAX, None)
    assert str(found.rest.expression) == str(whole)


@pytest.mark.parametrize("name", ["a b", "n)", "1a"])
def test_names_that_are_no_words_leave_everything_whole(name):
    schema = StreamSchema(pa.schema([("t", pa.int64()), (name, pa.int64())]), "t")
    whole = pc.field("t") > 5
    assert str(split(whole, schema).rest.expression) == str(whole)


@pytest.mark.parametrize("name", ["and", "true", "is_valid", "time", "null", "class", "c0", "e"])
def test_names_that_look_like_syntax_are_columns(name):
    schema = StreamSchema(pa.schema([("t", pa.int64()), (name, pa.int64())]), "t")
    found = split((pc.field("t") > 5) & (pc.field(name) == 3), schema)
    read = (6, Range(name, 3, 3))
    assert (found.low, found.prune) in (read, (TICK_MIN, None))
    assert (found.low, found.prune) == read or name == "and"


def test_text_that_looks_like_syntax_is_text():
    text = 'x") or (n > 5'
    found = split(pc.field("s") == text)
    assert found.prune == Range("s", text, text)
