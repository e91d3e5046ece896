"""Arrow streams, byte by byte: what the decoder gives is what Arrow's own reader gives."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.client.transport import ArrowDecoder

TABLE = pa.table(
    {
        "n": pa.array([1, None, -1, 0], pa.int32()),
        "d": pa.array(["a", "b", None, "a"]).dictionary_encode(),
        "l": pa.array([[1], [], None, [2, 3]]),
        "s": pa.array([{"x": 1, "y": "z"}] * 4),
        "e": pa.nulls(4),
    }
)


def written(batches: list[pa.RecordBatch], schema: pa.Schema, codec: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, schema, options=options) as out:
        for number, batch in enumerate(batches):
            out.write_batch(batch, {"place": str(number)})
    return bytes(sink.getvalue())


def read(data: bytes) -> tuple[list[pa.RecordBatch], list[bytes], ArrowDecoder]:
    decoder, at = ArrowDecoder(), 0
    batches, places = [], []
    while not decoder.ended and at + decoder.needed <= len(data):
        told = decoder.feed(data[at : (at := at + decoder.needed)])
        if told is not None:
            batches.append(told[0])
            places.append(told[1][b"place"])
    return batches, places, decoder


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_batches_dictionaries_and_metadata(codec: str | None) -> None:
    other = pa.table({**dict(zip(TABLE.column_names, TABLE.columns, strict=True)),
                      "d": pa.array(["q", "a", "q", None]).dictionary_encode()})  # fmt: skip
    given_ = [*TABLE.to_batches(), *TABLE.slice(0, 0).to_batches(), *other.to_batches()]
    batches, places, decoder = read(written(given_, TABLE.schema, codec))
    assert decoder.ended
    assert decoder.schema == TABLE.schema
    assert [b.to_pylist() for b in batches] == [b.to_pylist() for b in given_]
    assert places == [str(n).encode() for n in range(len(given_))]


def test_a_stream_without_batches_has_a_schema() -> None:
    batches, _, decoder = read(written([], TABLE.schema))
    assert (batches, decoder.ended, decoder.schema) == ([], True, TABLE.schema)


@given(st.integers(0, 2000))
def test_a_stream_that_is_cut_has_not_ended(length: int) -> None:
    data = written(TABLE.to_batches() * 2, TABLE.schema)
    _, _, decoder = read(data[: min(length, len(data) - 1)])
    assert not decoder.ended


@given(st.binary(max_size=64))
def test_what_is_no_stream_is_refused(data: bytes) -> None:
    try:
        _, _, decoder = read(data)
    except (pa.ArrowInvalid, OSError):
        return
    assert decoder.ended == (data[:8] == b"\xff\xff\xff\xff\0\0\0\0")
