"""Marks: what a writer leaves with its events, in the same commit; and streams with an owner."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import StreamOwned
from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.staging import commit_staged, new_job
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("x", pa.float64())]), "t")


def batch_of(*ticks: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"t": list(ticks), "x": [float(t) for t in ticks]}, schema=SCHEMA.arrow
    )


def opened(files: MemoryFiles) -> Any:
    return Store.open("mem", files=files).stream("s")


def made(files: MemoryFiles, **options: Any) -> Any:
    store = Store.open("mem", files=files)
    return store.create_stream("s", SCHEMA, StreamOptions(**options), owner="live")


def test_marks_are_there_after_a_crash() -> None:
    files = MemoryFiles()
    stream = made(files)
    stream.append(batch_of(1, 2), owner="live", marks={"a": {"step": 1}, "b": 7})
    stream.append(batch_of(), owner="live", marks={"a": {"step": 2}})
    stream.append(batch_of(1), owner="live", marks={"b": None})
    assert stream.marks() == {"a": {"step": 2}}
    after = opened(files.crash(random.Random(1)))
    assert after.marks() == {"a": {"step": 2}}
    assert after.snapshot().count == 3
    assert after.snapshot().version == 3


@pytest.mark.parametrize("rows", [3, 200_000])
def test_marks_survive_leaves_seals_and_spills(rows: int) -> None:
    files = MemoryFiles()
    stream = made(files, late_events_max=2)
    ticks = np.arange(rows)
    batch = pa.RecordBatch.from_arrays([ticks, ticks.astype(float)], schema=SCHEMA.arrow)
    stream.append(batch, owner="live", marks={"a": 1})
    assert opened(files.crash(random.Random(1))).marks() == {"a": 1}
    stream.seal()
    stream.append(batch_of(0, 0, 0), owner="live", marks={"a": 2})  # late, and spilled
    after = opened(files.crash(random.Random(1)))
    assert after.marks() == {"a": 2}
    assert after.snapshot().count == rows + 3


def test_an_owned_stream_refuses_others() -> None:
    files = MemoryFiles()
    store = Store.open("mem", files=files)
    stream: Any = store.create_stream("s", SCHEMA, owner="live")
    assert store.stream("s").owner == "live"
    with pytest.raises(StreamOwned, match="live queries"):
        stream.append(batch_of(1))
    with pytest.raises(StreamOwned):
        stream.add_attribute("y", pa.int64())
    with pytest.raises(StreamOwned):
        commit_staged(stream, new_job(), [])
    stream.append(batch_of(1), owner="live")
    store.close()
    assert Store.open("mem", files=files).stream("s").owner == "live"


def test_a_store_without_owners_is_one_of_the_old_format() -> None:
    from chronicle.store.catalog import read_manifest

    files = MemoryFiles()
    store = Store.open("mem", files=files)
    store.create_stream("s", SCHEMA)
    assert read_manifest(files, "CHRONICLE")["store"] == 1  # type: ignore[index]
    assert b"owner" not in files.read("streams/s/MANIFEST")
    store.create_stream("owned", SCHEMA, owner="live")
    assert read_manifest(files, "CHRONICLE")["store"] == 2  # type: ignore[index]
