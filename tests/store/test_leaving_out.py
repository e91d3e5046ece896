"""Deleted events by tick and rank, and what a rewriting makes of dictionary codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.schema import Attribute, Storage, StreamSchema
from chronicle.store.columns import ColumnView
from chronicle.store.deletions import DeletedEvents, write_deletion
from chronicle.store.dictionary import DictionaryBuilder
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles


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
    files = MemoryFiles()
    files.make_directory("d")
    for found in (chosen, write_deletion(files, "d", 7, chosen).load(files, "d")):
        assert found.places(part, before).tolist() == np.flatnonzero(wanted[first:]).tolist()
        assert found.touches(named[0][0], named[0][0])


def test_an_event_that_is_not_there_takes_no_place() -> None:
    chosen = DeletedEvents(1, 3, np.array([1, 2, 3]), np.array([1, 0, 1]))
    assert chosen.places(np.array([1, 2, 3, 3])).tolist() == [1, 3]


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
    views = [ColumnView(attribute, plain)]
    for array in (plain, codes):
        builder = DictionaryBuilder(attribute, 0)
        views.append(ColumnView(attribute, array, builder.encode(array), builder.prefixes))
    for view in views:
        tables.append(np.full((10, 2), -1, np.int64))
        view.aggregate(starts, tables[-1], 5)
    assert (tables[0] == tables[1]).all()
    assert (tables[0] == tables[2]).all()


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
