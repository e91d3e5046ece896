"""Rows left out of batches, and memory that is lent for them."""

from __future__ import annotations

import datetime as dt
import gc
import threading
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.schema import Attribute, Storage, StreamSchema
from chronicle.store import Store, StreamOptions, compaction, lent_memory
from chronicle.store.columns import ColumnView
from chronicle.store.deleting import without_rows
from chronicle.store.deletions import DeletedEvents
from chronicle.store.lent_memory import Lender, lending, lent
from chronicle.store.packing import pooled
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

TYPES: list[tuple[pa.DataType, Any]] = [
    (pa.int8(), -3),
    (pa.uint16(), 9),
    (pa.int32(), 70_000),
    (pa.uint64(), 2**63),
    (pa.float32(), 0.5),
    (pa.float64(), -0.0),
    (pa.bool_(), True),
    (pa.date32(), dt.date(2020, 2, 2)),
    (pa.timestamp("ms", "UTC"), dt.datetime(2020, 2, 2, tzinfo=dt.timezone.utc)),
    (pa.decimal128(10, 2), Decimal("1.50")),
    (pa.string(), "text"),
    (pa.large_binary(), b"bytes"),
    (pa.list_(pa.int64()), [1, 2]),
    (pa.struct([("a", pa.int32())]), {"a": 1}),
]


@settings(deadline=None, max_examples=rounds(6, 60))
@given(st.integers(1, 300), st.integers(0, 40), st.booleans(), st.data())
def test_the_rows_that_stay_are_those_that_a_filter_keeps(
    rows: int, offset: int, nulls: bool, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    share = data.draw(st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0]))
    arrays = []
    for type_, value in TYPES:
        plain = [value if rng.random() < 0.5 else None for _ in range(rows + offset)]
        if not nulls:
            plain = [value] * (rows + offset)
        arrays.append(pa.array(plain, type_))
    arrays.append(pa.array(rng.integers(-(2**63), 2**63 - 1, rows + offset)))
    arrays.append(pa.array([f"{n % 9}" for n in range(rows + offset)]).dictionary_encode())
    batch = pa.RecordBatch.from_arrays(arrays, [str(n) for n in range(len(arrays))]).slice(offset)
    places = np.flatnonzero(rng.random(rows) < share)
    kept = np.ones(rows, np.bool_)
    kept[places] = False
    found = without_rows(batch, places)
    found.validate(full=True)
    assert found.schema == batch.schema
    assert found.equals(batch.filter(pa.array(kept)))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("offset", [0, 700])
def test_a_batch_that_is_given_away_closes_up_where_it_lies(share: float, offset: int) -> None:
    rng = np.random.default_rng(3)
    rows = 100_000
    with lending(Lender()):
        mine, codes = pooled(rows, np.int64), pooled(rows, np.int32)
        mine[:], codes[:] = rng.integers(-(2**63), 2**63 - 1, rows), rng.integers(0, 9, rows)
        writable = np.arange(rows)  # as the blocks of a file that has moved to objects are
        arrays = [
            *(pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(a)]) for a in
              (mine, writable)),
            pa.DictionaryArray.from_arrays(
                pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(codes)]),
                pa.array([f"{n}" for n in range(9)]),
            ),
        ]  # fmt: skip
        batch = pa.RecordBatch.from_arrays(arrays, ["mine", "file", "text"]).slice(offset)
        places = np.flatnonzero(rng.random(rows - offset) < share)
        kept = np.ones(rows - offset, np.bool_)
        kept[places] = False
        wanted = batch.filter(pa.array(kept))
        found = without_rows(batch, places, given=True)
        found.validate(full=True)
        assert found.equals(wanted)
        assert (writable == np.arange(rows)).all()
        if found.num_rows:
            first = found.column(0).buffers()[1].address
            assert first == mine.ctypes.data + 8 * offset
            assert found.column(1).buffers()[1].address != writable.ctypes.data + 8 * offset
        again = without_rows(found, np.empty(0, np.int64))
        assert again.equals(wanted)
        assert again.column(0).buffers()[1].address != mine.ctypes.data


def test_what_rows_were_left_out_of_is_let_go_at_once() -> None:
    lender = Lender()
    gc.disable()  # which would find it later
    try:
        with lending(lender):
            for _ in range(5):
                array = pa.Array.from_buffers(
                    pa.int64(), 20_000, [None, pa.py_buffer(pooled(20_000, np.int64))]
                )
                batch = pa.RecordBatch.from_arrays([array], ["n"])
                del array
                without_rows(batch, np.array([7]))
                del batch
    finally:
        gc.enable()
    assert lender.blocks == 2


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(1, 20), st.data())
def test_tick_and_rank_name_the_same_events_however_they_are_read(
    steps: list[int], at_once: int, data: st.DataObject
) -> None:
    ticks = np.cumsum(np.array(steps, np.int64) // 4)
    wanted = np.array(data.draw(st.lists(st.booleans(), min_size=ticks.size, max_size=ticks.size)))
    pieces = [
        (ticks[at : at + at_once], wanted[at : at + at_once])
        for at in range(0, ticks.size, at_once)
    ]
    chosen = DeletedEvents.chosen(pieces)
    if chosen is None:
        assert not wanted.any()
        return
    assert chosen.ticks is not None
    assert chosen.ranks is not None
    counted: dict[int, int] = {}
    named = []
    for tick, is_wanted in zip(ticks.tolist(), wanted.tolist(), strict=True):
        rank = counted.get(tick, 0)
        counted[tick] = rank + 1
        if is_wanted:
            named.append((tick, rank))
    assert list(zip(chosen.ticks.tolist(), chosen.ranks.tolist(), strict=True)) == named
    first = data.draw(st.integers(0, ticks.size))
    part = ticks[first:]
    before = int(np.count_nonzero(ticks[:first] == part[0])) if part.size else 0
    assert chosen.places(part, before).tolist() == np.flatnonzero(wanted[first:]).tolist()


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(max_size=12)), min_size=1, max_size=80), st.data())
def test_zones_of_codes_are_those_of_the_texts(
    texts: list[str | None], data: st.DataObject
) -> None:
    attribute = Attribute("s", pa.string(), True, Storage.STRING)
    plain = pa.array(texts, pa.string())
    first = data.draw(st.integers(0, len(texts) - 1))
    codes = plain.dictionary_encode()
    if data.draw(st.booleans()):
        codes = pa.DictionaryArray.from_arrays(codes.indices.cast(pa.uint8()), codes.dictionary)
    plain, codes = plain.slice(first), codes.slice(first)
    border = data.draw(st.integers(0, len(plain)))
    starts = np.array([0, border, len(plain)])
    tables = []
    for array in (plain, codes):
        tables.append(np.full((10, 2), -1, np.int64))
        view = ColumnView(attribute, array, np.zeros(len(array), np.int64))
        view.aggregate(starts, tables[-1], 5)
    assert (tables[0] == tables[1]).all()


# ------------------------------------------------------------------------------- lent memory


def test_memory_is_lent_again_once_nothing_refers_to_it() -> None:
    lender = Lender()
    with lending(lender):
        array = pooled(20_000, np.int64)
        array[:] = 7
        inside = pa.Array.from_buffers(pa.int64(), 20_000, [None, pa.py_buffer(array)])[5:]
        view = array[3:9]
        del array
        assert lent(20_000, np.dtype(np.int64)) is not None
        assert lender.blocks == 2
        other = pooled(20_000, np.int64)
        other[:] = 8
        assert lender.blocks == 2  # the one that was asked for and dropped
        assert set(inside.to_pylist()) == {7}
        del inside
        third = pooled(20_000, np.int64)
        third[:] = 9
        assert lender.blocks == 3
        assert view.tolist() == [7] * 6
        del view
        address = third.ctypes.data
        del third
        assert pooled(19_900, np.float64).ctypes.data == address or lender.blocks == 3


def test_small_arrays_and_other_threads_have_memory_of_their_own() -> None:
    lender, found = Lender(), []
    with lending(lender):
        assert lent(lent_memory.SMALLEST_BYTES - 1, np.dtype(np.uint8)) is None
        thread = threading.Thread(target=lambda: found.append(lent(1 << 20, np.dtype(np.uint8))))
        thread.start()
        thread.join()
    assert found == [None]
    assert lent(1 << 20, np.dtype(np.uint8)) is None
    assert lender.blocks == 0


def test_what_is_lent_outlives_the_lender() -> None:
    lender = Lender()
    array = lender.lend(20_000, np.dtype(np.int32))
    array[:] = np.arange(20_000)
    del lender
    gc.collect()
    assert array.tolist() == list(range(20_000))
    del array


def test_threads_never_share_a_block() -> None:
    lender = Lender()
    torn: list[int] = []

    def work(mine: int) -> None:
        rng = np.random.default_rng(mine)
        kept: list[Any] = []
        for _ in range(400):
            array = lender.lend(int(rng.integers(100, 4_000)), np.dtype(np.int64))
            array[:] = mine
            kept.append(array)
            if len(kept) > 5:
                gone = kept.pop(int(rng.integers(0, 5)))
                if (gone != mine).any():
                    torn.append(mine)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not torn
    assert lender.blocks < 400  # of 1600 that were asked for


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_snapshot_keeps_what_a_delete_takes_out_of_large_leaves(codec: str) -> None:
    fields = [("t", pa.int64()), ("wide", pa.int64()), ("small", pa.int32()), ("x", pa.float64())]
    schema = StreamSchema(pa.schema([*fields, ("text", pa.string())]), "t")
    store = Store.open("memory", files=MemoryFiles())
    stream = store.create_stream("s", schema, StreamOptions(codec=codec, compaction="manual"))
    rng = np.random.default_rng(5)
    rows = 262_144 + 70_000
    texts = pa.array([f"text {n}" for n in range(300)])
    table = pa.table(
        {
            "t": np.cumsum(rng.integers(0, 3, rows)),
            "wide": rng.integers(-(2**63), 2**63 - 1, rows),
            "small": pa.array(rng.integers(-9, 9, rows), pa.int32()),
            "x": rng.random(rows),
            "text": texts.take(pa.array(rng.integers(0, 300, rows))),
        },
        schema=schema.arrow,
    )
    for batch in table.to_batches():
        stream.append(batch)
    stream.seal()
    before = stream.snapshot()
    gone = rng.random(rows) < 0.01

    def chosen(snapshot: Any) -> Any:
        at = 0
        for batch in snapshot.scan(columns=["t"]):
            yield batch.column(0).to_numpy(), gone[at : at + batch.num_rows]
            at += batch.num_rows

    assert stream.delete(None, None, chosen) == np.count_nonzero(gone)
    left = table.filter(pa.array(~gone))
    for snapshot, wanted in ((stream.snapshot(), left), (before, table)):
        assert pa.Table.from_batches(snapshot.scan()).equals(wanted)
    assert stream.snapshot().aggregate(("small", "x"), None, None).count == left.num_rows
    store.close()


def blocks_of_a_delete(monkeypatch: pytest.MonkeyPatch, leaves: int) -> int:
    """How many blocks a delete needs that rewrites so many leaves."""
    lenders: list[Lender] = []

    class Watched(Lender):
        def __init__(self) -> None:
            super().__init__()
            lenders.append(self)

    monkeypatch.setattr(compaction, "Lender", Watched)
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64())]), "t")
    store = Store.open("memory", files=MemoryFiles())
    stream = store.create_stream("s", schema, StreamOptions(codec="none", compaction="manual"))
    rng = np.random.default_rng(1)
    for number in range(leaves):
        times = np.arange(number * 131_072, (number + 1) * 131_072)
        numbers = rng.integers(-(2**63), 2**63 - 1, times.size)
        stream.append(pa.RecordBatch.from_arrays([times, numbers], schema=schema.arrow))
    stream.seal()

    def every_hundredth(snapshot: Any) -> Any:
        for batch in snapshot.scan(columns=["t"]):
            ticks = batch.column(0).to_numpy()
            yield ticks, ticks % 100 == 3

    assert stream.delete(None, None, every_hundredth) == pytest.approx(leaves * 1311, rel=0.01)
    store.close()
    return sum(lender.blocks for lender in lenders)


def test_a_rewriting_uses_the_same_memory_for_all_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.disable()  # it is the end of its use that gives memory back
    try:
        few, many = (blocks_of_a_delete(monkeypatch, leaves) for leaves in (12, 48))
    finally:
        gc.enable()
    assert 0 < many < 2 * few + 10
