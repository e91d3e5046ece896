"""Sections of chunks: a few rows cost a few sections; nothing is believed that was not verified."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import CorruptBlock
from chronicle.schema import StreamSchema
from chronicle.store import leaf as leaf_module
from chronicle.store.files import joined, requests
from chronicle.store.layout import SECTION_BYTES, Codec, Encoding
from chronicle.store.leaf import LeafReader, head_limit
from chronicle.store.leaf_map import leaf_map
from chronicle.store.segment import Scan, SegmentView
from chronicle.store.segment_writer import SegmentWriter
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

EVENTS = 40_000
ARROW = pa.schema(
    [
        pa.field("t", pa.int64(), False), ("plain", pa.float64()), ("holes", pa.float64()),
        ("whole", pa.int64()), ("flag", pa.bool_()), ("money", pa.decimal128(30, 2)),
        ("code", pa.string()), ("text", pa.string()), ("short", pa.float32()),
    ]
)  # fmt: skip
SCHEMA = StreamSchema(ARROW, "t")


def events(codec: str) -> pa.RecordBatch:
    rng = np.random.default_rng(11)
    values = rng.random(EVENTS)
    if codec != "none":
        values = np.round(values, 2)
    columns: list[Any] = [
        np.cumsum(rng.integers(0, 1 << 20, EVENTS)),
        values,
        pa.array(values, mask=rng.random(EVENTS) < 0.2),
        pa.array(rng.integers(0, 1 << 30, EVENTS), mask=rng.random(EVENTS) < 0.1),
        pa.array(rng.random(EVENTS) < 0.5, mask=rng.random(EVENTS) < 0.1),
        pa.array(rng.integers(0, 10**6, EVENTS)).cast(pa.decimal128(30, 2)),
        pa.array([f"code {n}" for n in rng.integers(0, 5000, EVENTS)]),
        pa.array([f"{n:x}{n * 7:x}" for n in rng.integers(0, 1 << 40, EVENTS).tolist()]),
        values.astype(np.float32),
    ]
    arrays = [
        c if isinstance(c, pa.Array) else pa.array(c, field.type)
        for c, field in zip(columns, ARROW, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


class Written:
    """A segment of one leaf."""

    def __init__(self, codec: str) -> None:
        self.files = MemoryFiles()
        self.batch = events(codec)
        writer = SegmentWriter(self.files, "one.seg", 7, SCHEMA, codec, 1 << 30)
        writer.write(self.batch)
        writer.seal()
        writer.close()
        self.view = SegmentView.open_sealed(self.files, "one.seg", 7, SCHEMA)
        self.leaf = next(self.view.leaves(Scan((), self.view.file.schema.arrow)))
        self.data = bytearray(self.files.read("one.seg"))

    def reader(self, data: bytearray, need: Any = None) -> LeafReader:
        return LeafReader(
            memoryview(bytes(data)) if need is None else memoryview(data), self.leaf.offset, 7,
            SCHEMA, "one.seg", need=need, holes=need is not None,
        )  # fmt: skip

    def column(self, leaf: LeafReader, name: str, first: int, end: int) -> pa.Array:
        return self.view.column(leaf, name, first, end)

    def chunk(self, name: str) -> tuple[int, int]:
        entry = self.leaf.chunk_entry(name)
        return self.leaf.offset + entry.offset, entry.length


@pytest.fixture(scope="module", params=["none", "lz4", "zstd"])
def written(request: pytest.FixtureRequest) -> Written:
    return Written(request.param)


def test_long_chunks_of_every_kind_have_sections(written: Written) -> None:
    leaf = written.leaf
    assert leaf.events == EVENTS
    long = {name for name in SCHEMA.names if leaf.chunk_entry(name).length > SECTION_BYTES}
    assert long == {name for name in SCHEMA.names if leaf.chunk_entry(name).section}
    assert {"t", "plain", "holes", "whole", "money", "code", "text", "short"} <= long
    kinds = {leaf.chunk_entry(name).encoding for name in long}
    assert kinds == {Encoding.DELTA, Encoding.PLAIN, Encoding.PACKED, Encoding.TEXT,
                     Encoding.DICTIONARY} or Encoding.PLAIN in kinds  # fmt: skip
    leaf.verify()


@settings(max_examples=rounds(8, 80), deadline=None)
@given(data=st.data())
def test_rows_are_read_from_their_sections_alone(written: Written, data: st.DataObject) -> None:
    """Everything that is not asked for is missing: the rows come all the same, from few bytes."""
    name = data.draw(st.sampled_from([n for n in SCHEMA.names if n != "text"]))
    first = data.draw(st.integers(0, EVENTS - 1))
    end = data.draw(st.integers(first + 1, min(EVENTS, first + 9000)))
    read_alone(written, name, first, end)


def test_rows_that_end_with_a_section_ask_for_no_more(written: Written) -> None:
    for end in range(4096, EVENTS, 4096):
        read_alone(written, "plain", end - 4096, end)


def read_alone(written: Written, name: str, first: int, end: int) -> None:
    start, length = written.chunk(name)
    holes = bytearray(written.data)
    holes[start : start + length] = bytes(length)
    asked: list[tuple[int, int]] = []

    def need(ranges: Sequence[tuple[int, int]]) -> None:
        for at, size in ranges:
            asked.append((at, size))
            assert start <= at
            assert at + size <= start + length
            holes[at : at + size] = written.data[at : at + size]

    leaf = written.reader(holes, need)
    announced = set(leaf.unread([name], ((first, end),)))
    found = written.column(leaf, name, first, end)
    assert found.equals(written.batch.column(SCHEMA.names.index(name)).slice(first, end - first))
    if leaf.chunk_entry(name).section:
        part = (end - first) / EVENTS
        assert sum(size for _, size in asked) <= 2 * part * length + 6 * SECTION_BYTES
    entry = leaf.chunk_entry(name)
    if entry.codec is Codec.NONE and entry.encoding is Encoding.PLAIN:
        assert announced == set(asked)
        assert not list(leaf.unread([name], ((first, end),)))


def test_ranges_of_a_stretch(written: Written) -> None:
    """Of a column that lies as it is only the ranges are verified, and they are right."""
    leaf, batch = written.reader(written.data), written.batch
    ranges = [(10, 20), (20_000, 20_300), (39_990, 40_000)]
    array = leaf.column("plain", 10, 40_000, ranges=ranges)
    for first, end in ranges:
        assert array.slice(first - 10, end - first).equals(
            batch.column(1).slice(first, end - first)
        )
    ticks = leaf.ticks(20_000, 20_100)
    assert np.array_equal(ticks, batch.column(0).to_numpy()[20_000:20_100])


@pytest.mark.parametrize("name", ["t", "plain", "holes", "whole", "code", "short"])
def test_a_flipped_bit_is_found_by_who_reads_it(written: Written, name: str) -> None:
    start, length = written.chunk(name)
    rng = np.random.default_rng(5)
    whole = written.batch.column(SCHEMA.names.index(name))
    for at in rng.integers(0, length, rounds(5, 12)).tolist():
        bad = bytearray(written.data)
        bad[start + at] ^= 4
        wrong = 0
        for first in range(0, EVENTS, 1000):
            try:
                found = written.column(written.reader(bad), name, first, first + 1000)
            except CorruptBlock:
                wrong += 1
            else:
                assert found.equals(whole.slice(first, 1000))
        assert wrong
        with pytest.raises(CorruptBlock, match=f"column {name!r}"):
            written.column(written.reader(bad), name, 0, EVENTS)
        with pytest.raises(CorruptBlock):
            written.reader(bad).verify()


def test_leaves_of_before_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(leaf_module, "section_sums", lambda *_: np.zeros(0, np.uint64))
        old = Written("none")
    assert not any(old.leaf.chunk_entry(name).section for name in SCHEMA.names)
    found = old.column(old.reader(old.data), "plain", 100, 200)
    assert found.equals(old.batch.column(1).slice(100, 100))
    assert list(old.reader(old.data).unread(["plain"], ((100, 200),))) == [old.chunk("plain")]


def test_heads_take_no_more_than_is_said(written: Written) -> None:
    first = min(written.chunk(name)[0] for name in SCHEMA.names)
    limit = head_limit(SCHEMA, EVENTS, written.view.length)
    assert first - written.leaf.offset <= limit <= 2 * (first - written.leaf.offset)


def test_leaves_come_ahead_in_two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """All heads are asked for together, then all rows; what is known is not asked for again."""
    files = MemoryFiles()
    batch = events("none")
    writer = SegmentWriter(files, "many.seg", 7, SCHEMA, "none", 12_000)
    writer.write(batch)
    writer.seal()
    writer.close()
    view = SegmentView.open_sealed(files, "many.seg", 7, SCHEMA)
    leaves = leaf_map(view)
    count = len(leaves.starts) - 1
    assert count > 20
    told: list[list[tuple[int, int]]] = []
    view.file.block(0, 64)  # opens it
    monkeypatch.setattr(view.file._file, "announce", lambda ranges: told.append(list(ranges)))
    wanted = [(number, ((5, 9),)) for number in range(0, count, 2)]
    for (number, rows), (leaf, same) in zip(wanted, leaves.ahead(wanted, ["plain"]), strict=True):
        assert same == rows
        low = int(leaves.starts[number])
        assert view.column(leaf, "plain", 5, 9).equals(batch.column(1).slice(low + 5, 4))
    heads, rows_of, *_ = told
    assert len(heads) == len(rows_of) == len(wanted)
    known = len(told)
    list(leaves.ahead(wanted, ["plain"]))
    assert len(told) == known
    found = leaves.column("plain", 3, EVENTS - 3)
    assert found is not None
    assert found.combine_chunks().equals(batch.column(1).slice(3, EVENTS - 6))


@settings(max_examples=rounds(20, 200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), max_size=20),
    st.integers(0, 20),
    st.integers(1, 50),
)
def test_requests_cover_what_is_wanted(ranges: list[tuple[int, int]], gap: int, piece: int) -> None:
    wanted = {byte for at, size in ranges for byte in range(at, at + size)}
    whole = list(joined(ranges, gap))
    cut = list(requests(ranges, gap, piece))
    for found in (whole, cut):
        covered = [byte for at, size in found for byte in range(at, at + size)]
        assert len(covered) == len(set(covered))
        assert wanted <= set(covered)
        assert covered == sorted(covered)
    assert all(size <= piece for _, size in cut)
    for at, size in whole:
        inside = sorted(wanted & {*range(at, at + size)})
        assert all(b - a - 1 <= gap for a, b in pairwise(inside))
    for (a, length), (b, _) in pairwise(whole):
        assert b - (a + length) > gap
        assert not wanted & set(range(a + length, b))
