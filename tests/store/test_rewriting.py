"""Rewriting: against a list, what stays of leaves, and encoding that fails."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.schema import StreamSchema
from chronicle.store import segment_writer
from chronicle.store.options import StreamOptions
from chronicle.store.segment import Scan
from chronicle.store.segment_writer import BULK_LEAVES
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

from .conftest import numbered

SCHEMA = StreamSchema(
    pa.schema(
        [
            ("t", pa.int64()),
            ("n", pa.int64()),
            ("v", pa.float64()),
            ("s", pa.string()),
            ("w", pa.string()),
            ("b", pa.bool_()),
        ]
    ),
    "t",
)
OPTIONS = StreamOptions(leaf_bytes=16_384, segment_bytes=400_000, compaction="manual")
Row = tuple[int, int, float | None, str | None, str, bool]


def rows_of(count: int, first: int = 0) -> list[Row]:
    return [
        (
            n // 5,
            n,
            None if n % 17 == 0 else n / 7,
            None if n % 23 == 0 else f"name {n % 40}",
            f"word {n}",
            n % 2 == 0,
        )
        for n in range(first, first + count)
    ]


def appended(stream: EventStream, rows: list[Row]) -> None:
    arrays = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), SCHEMA.arrow, strict=True)
    ]
    stream.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA.arrow))


def begun(rows: list[Row]) -> tuple[Store, EventStream]:
    store = Store.open("memory", files=MemoryFiles())
    stream = store.create_stream("s", SCHEMA, OPTIONS)
    assert isinstance(stream, EventStream)
    appended(stream, rows)
    stream.seal()
    return store, stream


def stored(stream: EventStream) -> list[Row]:
    found = pa.Table.from_batches(stream.snapshot().scan(), schema=SCHEMA.arrow)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def leaves(stream: EventStream) -> list[tuple[int, bytes]]:
    """Events and zones of every leaf, segment by segment."""
    return [
        (leaf.events, leaf.zones.tobytes())
        for view in stream.snapshot().state.segments
        for leaf in view.leaves(Scan((), view.file.schema.arrow))
    ]


@settings(max_examples=rounds(5, 25), deadline=None)
@given(st.data())
def test_deletes_and_updates_against_a_list(data: st.DataObject) -> None:
    rows = rows_of(data.draw(st.integers(1, 9000)))
    store, stream = begun(rows)
    for turn in range(1, 1 + data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            late = rows_of(data.draw(st.integers(1, 300)), data.draw(st.integers(0, 9000)))
            late = [(t, n + 1_000_000 * turn, *rest) for t, n, *rest in late]
            appended(stream, late)
            rows = sorted([*rows, *late], key=lambda row: row[0])
        first = data.draw(st.integers(0, 9000))
        step = data.draw(st.integers(1, 2000))
        wanted = {row[1] for row in rows if row[1] >= first and row[1] % step == 0}
        if data.draw(st.booleans()):
            assert stream.delete(choose=numbered(wanted)) == len(wanted)
            rows = [row for row in rows if row[1] not in wanted]
        else:

            def changed(events: pa.RecordBatch) -> pa.RecordBatch:
                names = pa.array(["another"] * events.num_rows)
                return pa.RecordBatch.from_arrays([names], names=["s"])

            assert stream.update(None, None, numbered(wanted), changed) == len(wanted)
            rows = [(*r[:3], "another", *r[4:]) if r[1] in wanted else r for r in rows]
        assert stored(stream) == rows
        tree = stream.snapshot().aggregate(["n", "s"], 100, 2000)
        within = [row for row in rows if 100 <= row[0] < 2000]
        assert tree.count == len(within)
        assert (tree["n"].sum or 0) == sum(row[1] for row in within)
        assert tree["s"].count == sum(row[3] is not None for row in within)
    assert store.check().ok
    store.close()


def test_leaves_stay_as_they_are_cut_until_half_of_one_is_gone() -> None:
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64())]), "t")
    store = Store.open("memory", files=MemoryFiles())
    stream = store.create_stream("s", schema, OPTIONS)
    assert isinstance(stream, EventStream)
    full = BULK_LEAVES * OPTIONS.leaf_bytes // 16
    count = 20 * full
    hundredths = set(range(0, count, 100))
    column = pa.array(np.arange(count))
    stream.append(pa.RecordBatch.from_arrays([column, column], schema=schema.arrow))
    stream.seal()
    assert [events for events, _ in leaves(stream)] == [full] * 20
    assert stream.delete(choose=numbered(hundredths)) == len(hundredths)
    sizes = [events for events, _ in leaves(stream)]
    assert len(sizes) == 20
    assert max(sizes) - min(sizes) <= 1
    stream.delete(choose=numbered({n for n in range(count) if n % 3}))
    sizes = [events for events, _ in leaves(stream)]
    assert sizes[:6] == [full] * 6
    assert sum(sizes[6:]) < full
    store.close()


def test_an_encoding_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(20_000)
    store, stream = begun(rows)
    files = set(stream.files.list(stream.directory))
    kept, number = segment_writer.build_leaf, itertools.count()

    def failing(*arguments: object) -> object:
        if next(number) == 3:
            raise MemoryError("no more")
        return kept(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(segment_writer, "build_leaf", failing)
    with pytest.raises(MemoryError, match="no more"):
        stream.delete(choose=numbered({5, 19_000}))
    monkeypatch.undo()
    assert set(stream.files.list(stream.directory)) == files
    assert stored(stream) == rows
    assert stream.delete(choose=numbered({5, 19_000})) == 2
    store.close()
