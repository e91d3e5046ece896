"""Segments: trees of any height, sealed or not, answer like the rows they were made of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.schema import StreamSchema
from chronicle.store import dictionary as dictionary_module
from chronicle.store import node as node_module
from chronicle.store import segment_writer
from chronicle.store.segment import TICK_MAX, TICK_MIN, Aggregation, Scan, SegmentFile, SegmentView
from chronicle.store.segment_writer import Extent, SegmentWriter
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

SCHEMA = StreamSchema(
    pa.schema([("t", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("b", pa.bool_())]), "t"
)


def batch_of(times: list[int], first: int = 0, distinct: int = 5) -> pa.RecordBatch:
    numbers = range(first, first + len(times))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(times, pa.int64()),
            pa.array([None if n % 7 == 3 else n * 0.5 for n in numbers], pa.float64()),
            pa.array([None if n % 5 == 1 else f"value {n % distinct}" for n in numbers]),
            pa.array([n % 3 == 0 for n in numbers]),
        ],
        schema=SCHEMA.arrow,
    )


def scan(view: SegmentView, low: int = TICK_MIN, high: int = TICK_MAX) -> pa.Table:
    return pa.Table.from_batches(
        view.scan(Scan(SCHEMA.names, SCHEMA.arrow, low, high)), schema=SCHEMA.arrow
    )


def writer_of(files: MemoryFiles, leaf_bytes: int = 512, codec: str = "lz4") -> SegmentWriter:
    return SegmentWriter(files, "a.seg", 7, SCHEMA, codec, leaf_bytes)


def compare(view: SegmentView, table: pa.Table, seed: int) -> None:
    assert scan(view).equals(table)
    times = table["t"].to_numpy()
    rng = np.random.default_rng(seed)
    for _ in range(6):
        low, high = sorted(rng.integers(times[0] - 3, times[-1] + 4, 2).tolist())
        part = table.filter((times >= low) & (times <= high))
        assert scan(view, low, high).equals(part)
        sums = Aggregation(SCHEMA, ["x", "b", "s"], low, high)
        view.aggregate(sums)
        words = sums.words
        assert words[0] == part.num_rows
        values = [x for x in part["x"].to_pylist() if x is not None]
        assert words[3] == len(values)
        assert words[6:8].view(np.float64).sum() == sum(values)
        assert words[8 + 3] == sum(part["b"].to_pylist())
        assert words[13] == part.num_rows - part["s"].null_count


@settings(max_examples=rounds(5, 40), deadline=None)
@given(
    pieces=st.lists(st.integers(1, 400), min_size=1, max_size=6),
    step=st.sampled_from([0, 1, 3]),
    codec=st.sampled_from(["none", "lz4", "zstd"]),
    leaf_bytes=st.sampled_from([512, 4096, 1 << 16]),
    seed=st.integers(0, 99),
)
def test_sealed_and_unsealed_trees(
    pieces: list[int], step: int, codec: str, leaf_bytes: int, seed: int
) -> None:
    files = MemoryFiles()
    writer = writer_of(files, leaf_bytes, codec)
    batches = []
    first = 0
    for size in pieces:
        batch = batch_of([(first + i) * step for i in range(size)], first)
        first += size
        assert writer.write(batch) == size
        batches.append(batch)
    writer.sync()
    table = pa.Table.from_batches(batches)
    extent = Extent.from_bytes(writer.extent().to_bytes())
    flank = SegmentView.open_extent(SegmentFile(files, "a.seg", 7, SCHEMA), extent)
    compare(flank, table, seed)
    writer.seal()
    writer.close()
    compare(SegmentView.open_sealed(files, "a.seg", 7, SCHEMA), table, seed)
    assert scan(flank).equals(table), "a view of an extent does not change"


@pytest.mark.parametrize("leaves", [1, 2, 3, 4, 5, 9, 16, 17, 30])
def test_trees_of_several_levels(leaves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fanout 3: nodes fill up, flanks carry over, and sealing closes every shape of them."""
    monkeypatch.setattr(node_module, "NODE_FANOUT", 3)
    files = MemoryFiles()
    writer = writer_of(files)
    batches = [batch_of([leaf * 10, leaf * 10 + 1], leaf * 2) for leaf in range(leaves)]
    for batch in batches:
        writer.write(batch)
    writer.sync()
    table = pa.Table.from_batches(batches)
    extent = writer.extent()
    file = SegmentFile(files, "a.seg", 7, SCHEMA)
    view = SegmentView.open_extent(file, extent)
    compare(view, table, leaves)
    flank = dict(view.fragments)
    rows = writer.rows
    again = SegmentWriter.resume(
        files,
        "a.seg",
        SCHEMA,
        "lz4",
        512,
        extent,
        [flank.get(i, np.zeros((rows, 0), np.int64)) for i in range(1, len(extent.levels) + 1)],
        {"s": file.dictionary("s", extent.pages["s"])},
    )
    more = batch_of([10_000], 999)
    again.write(more)
    again.seal()
    again.close()
    sealed = SegmentView.open_sealed(files, "a.seg", 7, SCHEMA)
    compare(sealed, pa.concat_tables([table, pa.Table.from_batches([more])]), leaves)


def test_a_dictionary_that_explodes_gives_up_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dictionary_module, "VALUES_MAX", 40)
    files = MemoryFiles()
    writer = writer_of(files)
    batches = [
        batch_of(list(range(at, at + 100)), at, distinct)
        for at, distinct in ((0, 5), (100, 30), (200, 100), (300, 5))
    ]
    for batch in batches:
        writer.write(batch)
    assert writer.extent().exploded == ["s"]
    writer.seal()
    view = SegmentView.open_sealed(files, "a.seg", 7, SCHEMA)
    assert scan(view).equals(pa.Table.from_batches(batches))
    used = [leaf.uses_dictionary("s") for leaf in view.leaves(Scan((), SCHEMA.arrow))]
    assert used[0]
    assert not used[-1]


def test_long_texts_cut_leaves_by_bytes() -> None:
    files = MemoryFiles()
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("s", pa.binary())]), "t")
    writer = SegmentWriter(files, "a.seg", 7, schema, "none", 4096)
    rng = np.random.default_rng(0)
    values = [rng.bytes(int(size)) for size in rng.integers(0, 3000, 200)]
    values[50] = rng.bytes(60_000)
    writer.dictionaries["s"].exploded = True
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(200), pa.int64()), pa.array(values)], schema=schema.arrow
    )
    writer.write(batch)
    writer.seal()
    view = SegmentView.open_sealed(files, "a.seg", 7, schema)
    found = pa.Table.from_batches(view.scan(Scan(["t", "s"], schema.arrow)))
    assert found.equals(pa.Table.from_batches([batch]))
    sizes = [leaf.chunk_bytes("s") for leaf in view.leaves(Scan((), SCHEMA.arrow))]
    assert sum(size > segment_writer.BULK_LEAVES * 4096 + 4096 for size in sizes) == 1


def test_what_lies_behind_the_committed_length_is_not_looked_at() -> None:
    """A view is opened before the writer cuts off what a crash has left, and writes over it."""
    files = MemoryFiles()
    writer = writer_of(files)
    first = batch_of(list(range(100)))
    writer.write(first)
    writer.sync()
    extent = writer.extent()
    writer.write(batch_of(list(range(500, 600)), 500))  # never committed
    writer.sync()
    file = SegmentFile(files, "a.seg", 7, SCHEMA)
    view = SegmentView.open_extent(file, extent)
    flank = [table for _, table in view.fragments]
    known = {"s": file.dictionary("s", extent.pages["s"])}
    again = SegmentWriter.resume(files, "a.seg", SCHEMA, "lz4", 512, extent, flank, known)
    second = batch_of(list(range(100, 160)), 100)
    again.write(second)
    again.sync()
    now = SegmentView.open_extent(file, again.extent())
    assert scan(now).equals(pa.Table.from_batches([first, second]))
    assert scan(view).equals(pa.Table.from_batches([first]))
