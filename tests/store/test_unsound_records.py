"""Records of a log that hash right and hold no sound events are set aside; the rest is served."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from chronicle.schema import StreamSchema
from chronicle.store.journal import RecordKind, encode_batch
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

SCHEMA = StreamSchema(pa.schema([pa.field("t", pa.int64(), False), ("s", pa.string())]), "t")


def good(first: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([first, first + 1]), pa.array(["a", "b"])], schema=SCHEMA.arrow
    )


def unsound(first: int, offsets: list[int]) -> pa.RecordBatch:
    text = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"abc")]
    )
    return pa.RecordBatch.from_arrays(
        [pa.array([first, first + 1, first + 2]), text], schema=SCHEMA.arrow
    )


@pytest.mark.parametrize("offsets", [[0, 9 << 20, 2, 3], [0, -7, 2, 3], [0, 3, 1, 3]])
def test_a_store_with_unsound_records_opens_and_names_them(offsets: list[int]) -> None:
    files = MemoryFiles()
    with Store.open("memory", files=files) as store:
        stream = store.create_stream("s", SCHEMA)
        stream.append(good(0))
        for first in (10, 20):  # as a version that did not look wrote them
            stream.commits.log.append(RecordKind.APPEND, [encode_batch(unsound(first, offsets))])
        stream.append(good(30))
        files = files.kill()  # closing would leave a log of one checkpoint

    with Store.open("memory", mode="r", files=files) as store:
        found = [problem for problem in store.check().problems if "row" in str(problem)]
        assert len(found) == 2
    for mode in ("r", "rw", "rw"):
        with Store.open("memory", mode=mode, files=files) as store:
            stream = store.stream("s")
            rows = [row for batch in stream.snapshot().scan() for row in batch.to_pylist()]
            assert [row["t"] for row in rows] == [0, 1, 30, 31]
            assert [row["s"] for row in rows] == ["a", "b", "a", "b"]
    assert len(files.list("streams/s/quarantine")) == 1
    with Store.open("memory", files=files) as store:
        assert store.check().ok
