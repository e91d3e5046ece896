"""What is kept of an append that spans more than the retention: one and a quarter of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.memory_files import MemoryFiles

SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("x", pa.int64())]), "t")


def batch(times: np.ndarray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(times), pa.array(times * 3)], schema=SCHEMA.arrow)


def verify(stream: EventStream, appended: np.ndarray, retention: int) -> None:
    """The newest events, whole, no more than documented; the others counted as dropped."""
    found = pa.Table.from_batches(stream.snapshot().scan(), schema=SCHEMA.arrow)
    kept = found["t"].to_numpy()
    newest = int(appended[-1])
    assert kept.tolist() == appended[len(appended) - len(kept) :].tolist()
    assert found["x"].to_numpy().tolist() == (kept * 3).tolist()
    inside = int((appended >= newest - retention).sum())
    assert len(kept) >= inside
    assert newest - kept[0] <= retention + retention // 4
    stats = stream.stats()
    assert stats["dropped_events"] + stats["events"] == len(appended)


@pytest.mark.parametrize(
    ("events", "retention", "before"),
    [(40, 30, 0), (40, 4000, 5000), (3000, 1000, 10), (60_000, 30, 10), (60_000, 4000, 0)],
)
def test_one_append_of_thirteen_times_the_retention(
    events: int, retention: int, before: int
) -> None:
    files = MemoryFiles()
    options = StreamOptions(leaf_bytes=4096, retention=str(retention))
    times = np.sort(np.random.default_rng(events).integers(0, 13 * retention, before + events))
    with Store.open("memory", files=files) as store:
        stream = store.create_stream("s", SCHEMA, options)
        if before:
            stream.append(batch(times[:before]))
        stream.append(batch(times[before:]))
        verify(stream, times, retention)
        names = {name for name in files.list("streams/s") if name.endswith(".seg")}
        more = times[-1] + np.arange(1, 500)
        stream.append(batch(more))
        verify(stream, np.concatenate([times, more]), retention)
        assert store.check().ok
        assert not store.check().notes, names
    with Store.open("memory", files=files) as store:
        stream = store.stream("s")
        assert isinstance(stream, EventStream)
        verify(stream, np.concatenate([times, more]), retention)
        assert store.check().ok
