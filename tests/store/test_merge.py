"""Merging equals the stable sort by time of the sources joined in their order."""

from __future__ import annotations

import decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.schema import StreamSchema
from chronicle.store.merge import add_late, join_late, merge_sources, sort_nearly
from chronicle.store.tail import Tail, sort_batch, ticks_of
from chronicle.tests.rounds import rounds

TYPES = {
    "n": pa.int64(),
    "i": pa.int32(),
    "h": pa.int16(),
    "u": pa.uint8(),
    "f": pa.float32(),
    "x": pa.float64(),
    "s": pa.string(),
    "b": pa.bool_(),
    "d": pa.decimal128(12, 2),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
}
SCHEMA = StreamSchema(pa.schema([("t", pa.timestamp("ms")), *TYPES.items()]), "t")


def batch_of(times: list[int], first: int, nulls: bool) -> pa.RecordBatch:
    numbers = [None if nulls and i % 4 == 1 else first + i for i in range(len(times))]
    columns = [pa.array(times, pa.int64()).cast(pa.timestamp("ms"))]
    for name, type_ in TYPES.items():
        values: list[object] = [None if n is None else n % 120 for n in numbers]
        if name == "s":
            values = [None if n is None else f"e{n}" for n in numbers]
        elif name == "b":
            values = [None if n is None else n % 3 == 0 for n in numbers]
        elif name == "d":
            values = [None if n is None else decimal.Decimal(n) for n in numbers]
        columns.append(pa.array(values, type_))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow)


sources = st.lists(
    st.lists(st.lists(st.integers(0, 25), min_size=1, max_size=9), max_size=5),
    min_size=1,
    max_size=4,
)


@settings(max_examples=rounds(15, 150), deadline=None)
@given(sources, st.booleans())
def test_merge_is_a_stable_sort(times: list[list[list[int]]], nulls: bool) -> None:
    batches: list[list[pa.RecordBatch]] = []
    number = 0
    for source in times:
        flat = sorted(t for piece in source for t in piece)
        made = []
        for piece in source:
            made.append(batch_of(flat[: len(piece)], number, nulls))
            flat = flat[len(piece) :]
            number += len(piece)
        batches.append(made)
    found = pa.Table.from_batches(
        merge_sources([iter(made) for made in batches], SCHEMA), schema=SCHEMA.arrow
    )
    joined = pa.Table.from_batches([b for made in batches for b in made], schema=SCHEMA.arrow)
    order = np.argsort(joined["t"].cast(pa.int64()).to_numpy(), kind="stable")
    assert found.equals(joined.take(pa.array(order)))


def test_what_nothing_reaches_into_passes_untouched() -> None:
    base = [batch_of(list(range(at, at + 10)), at, False) for at in (0, 100, 200)]
    late = [batch_of([105], 900, False)]
    found = list(merge_sources([iter(base), iter(late)], SCHEMA))
    assert found[0] is base[0]
    assert sum(batch.num_rows for batch in found) == 31


def test_the_late_buffer_stays_short_and_sorted() -> None:
    rng = np.random.default_rng(7)
    buffer: tuple[pa.RecordBatch, ...] = ()
    times = rng.integers(0, 50, 600).tolist()
    for i, t in enumerate(times):
        buffer = add_late(buffer, batch_of([t], i, False), SCHEMA)
        assert len(buffer) <= 11
    merged = pa.Table.from_batches(merge_sources([iter([b]) for b in buffer], SCHEMA))
    order = np.argsort(times, kind="stable")
    assert merged["n"].to_pylist() == [int(i) % 120 for i in order]
    assert len(buffer) > 2
    assert join_late(buffer, SCHEMA).equals(merged.combine_chunks().to_batches()[0])


@pytest.mark.parametrize("small", [1, 3])
def test_a_tail_shows_each_reader_what_it_saw(small: int) -> None:
    tail = Tail(SCHEMA)
    seen = []
    for i in range(1500):
        tail.add(batch_of([i] * small, i, False), i, 0)
        if i % 400 == 0:
            seen.append((tail.rows, tail.leaf(tail.rows)))
    assert tail.first == 0
    for rows, leaf in seen:
        assert leaf.events == rows
        assert leaf.ticks()[-1] == rows // small - 1
        assert ticks_of(tail.batch(rows), SCHEMA)[-1] == rows // small - 1
    assert tail.batch().num_rows == 1500 * small


def test_sorting_leaves_sorted_batches_alone() -> None:
    batch = batch_of([1, 1, 2], 0, False)
    assert sort_batch(batch, SCHEMA) is batch
    mixed = sort_batch(batch_of([2, 1, 2, 1], 0, False), SCHEMA)
    assert mixed["n"].to_pylist() == [1, 3, 0, 2]


@settings(max_examples=rounds(15, 150), deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=40), st.booleans(), st.booleans())
def test_nearly_sorted_batches(times: list[int], nulls: bool, rising: bool) -> None:
    if rising:
        times = [t if t < 3 else t + i for i, t in enumerate(times)]
    batch = batch_of(times, 0, nulls)
    found = sort_nearly(batch, ticks_of(batch, SCHEMA))
    assert found.equals(batch.take(pa.array(np.argsort(times, kind="stable"))))


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("span", [40, 5_000, 2**62])
def test_large_pieces_are_merged_as_a_stable_sort_would(share: float, span: int) -> None:
    rng = np.random.default_rng(int(share * 1000) + span % 97)
    count = 3000
    times = np.sort(rng.integers(0, span, count))
    late = rng.random(count) < share
    pieces = [batch_of(times[~late].tolist(), 0, False), batch_of(times[late].tolist(), 7, False)]
    pieces = [piece for piece in pieces if piece.num_rows]
    found = pa.Table.from_batches(merge_sources([iter([piece]) for piece in pieces], SCHEMA))
    joined = pa.Table.from_batches(pieces)
    order = np.argsort(joined["t"].cast(pa.int64()).to_numpy(), kind="stable")
    assert found.combine_chunks().equals(joined.take(pa.array(order)).combine_chunks())


@pytest.mark.parametrize("span", [60, 4_000])
def test_sources_of_many_large_batches_with_ties(span: int) -> None:
    """Ties that go on from batch to batch, and batches of one source cut by those of another."""
    rng = np.random.default_rng(span)
    made: list[list[pa.RecordBatch]] = []
    for source, events in enumerate((3000, 400, 900, 250)):
        whole = batch_of(np.sort(rng.integers(0, span, events)).tolist(), source, False)
        cuts = [0, *np.sort(rng.integers(0, events, 5)).tolist(), events]
        made.append([whole.slice(low, high - low) for low, high in pairwise(cuts)])
    found = pa.Table.from_batches(merge_sources([iter(source) for source in made], SCHEMA))
    joined = pa.Table.from_batches([batch for source in made for batch in source])
    order = np.argsort(joined["t"].cast(pa.int64()).to_numpy(), kind="stable")
    assert found.combine_chunks().equals(joined.take(pa.array(order)).combine_chunks())


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 1.0])
@pytest.mark.parametrize("span", [300, 2**62])
@pytest.mark.parametrize("nulls", [False, True])
def test_large_batches_out_of_order_are_sorted(share: float, span: int, nulls: bool) -> None:
    rng = np.random.default_rng(int(share * 10) + span % 97)
    times = np.sort(rng.integers(-span, span, 4000))
    late = rng.random(times.size) < share
    times[late] = rng.integers(-span, span, int(late.sum()))
    batch = batch_of(times.tolist(), 0, nulls)
    found = sort_nearly(batch, ticks_of(batch, SCHEMA))
    assert found.equals(batch.take(pa.array(np.argsort(times, kind="stable"))))
