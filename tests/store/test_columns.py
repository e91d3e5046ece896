"""Column chunks: what goes in comes out, for every type, slice, codec and range of rows."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.schema import StreamSchema
from chronicle.store.columns import ChunkEntry, ColumnView, codec_of, decode_chunk, prefix_words
from chronicle.store.layout import PAGE_EVENTS, Codec, Encoding
from chronicle.tests.rounds import rounds

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    **{
        f"{sign}int{bits}": (
            getattr(pa, f"{sign}int{bits}")(),
            st.integers(0, 2**bits - 1)
            if sign
            else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1),
        )
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "float64": (pa.float64(), st.floats(allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=12)),
    "large_string": (pa.large_string(), st.text(max_size=12)),
    "binary": (pa.binary(), st.binary(max_size=12)),
    "large_binary": (pa.large_binary(), st.binary(max_size=12)),
    "date32": (pa.date32(), st.dates()),
    "date64": (pa.date64(), st.dates(dt.date(1800, 1, 1), dt.date(2200, 1, 1))),
    "timestamp_ns": (pa.timestamp("ns", "UTC"), st.integers(-(2**62), 2**62)),
    "timestamp_s": (pa.timestamp("s"), st.integers(-(2**40), 2**40)),
    "decimal": (
        pa.decimal128(38, 4),
        st.decimals(-(10**20), 10**20, places=4, allow_nan=False, allow_infinity=False),
    ),
}


def round_trip(
    array: pa.Array, codec: str, first: int, end: int
) -> tuple[pa.Array, Encoding, Codec]:
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("v", array.type)]), "t")
    attribute = schema.payload[0]
    chunk = ColumnView(attribute, array).encode(0, len(array), codec_of(codec))
    raw = b"".join(bytes(part) for part in chunk.parts)
    assert len(raw) == chunk.length
    entry = ChunkEntry(
        chunk.encoding, chunk.codec, chunk.nulls, 0, chunk.length, 0, chunk.pages, PAGE_EVENTS
    )
    aligned = np.zeros(len(raw) + 64, np.uint8)
    aligned[: len(raw)] = np.frombuffer(raw, np.uint8)
    found = decode_chunk(memoryview(aligned)[: len(raw)], entry, attribute, len(array), first, end)
    return found, chunk.encoding, chunk.codec


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=rounds(5, 25), deadline=None)
@given(data=st.data())
def test_every_type_comes_back(name: str, data: st.DataObject) -> None:
    type_, one = TYPES[name]
    items = data.draw(st.lists(st.one_of(st.none(), one), min_size=1, max_size=30))
    if data.draw(st.booleans()):
        items = [item for item in items if item is not None] or [data.draw(one)]
    items = items * data.draw(st.sampled_from([1, 3, 40]))
    whole = pa.array(items, type_)
    offset = data.draw(st.integers(0, len(whole) - 1))
    array = whole.slice(offset, data.draw(st.integers(1, len(whole) - offset)))
    first = data.draw(st.integers(0, len(array)))
    end = data.draw(st.integers(first, len(array)))
    codec = data.draw(st.sampled_from(["none", "lz4", "zstd"]))
    found, _, _ = round_trip(array, codec, first, end)
    found.validate(full=True)
    assert found.type == type_
    assert found.equals(array.slice(first, end - first))


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("nulls", [False, True])
def test_pages_are_read_one_by_one(codec: str, nulls: bool) -> None:
    count = 3 * PAGE_EVENTS + 100
    rng = np.random.default_rng(3)
    values = np.repeat(rng.random(count // 8 + 1), 8)[:count]
    array = pa.array(values, mask=np.arange(count) % 9 == 0 if nulls else None)
    for first, end in ((0, count), (PAGE_EVENTS - 1, PAGE_EVENTS + 1), (count - 5, count), (7, 7)):
        found, encoding, used = round_trip(array, codec, first, end)
        assert found.equals(array.slice(first, end - first))
        assert encoding is Encoding.PLAIN
        assert used is codec_of(codec)


def test_noise_is_not_compressed() -> None:
    array = pa.array(np.random.default_rng(0).random(20_000))
    _, _, used = round_trip(array, "zstd", 0, 10)
    assert used is Codec.NONE


def test_special_floats_come_back_bit_for_bit() -> None:
    array = pa.array([0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7e308])
    found, _, _ = round_trip(array, "none", 0, 7)
    before = array.to_numpy().view(np.uint64).tolist()
    assert found.to_numpy().view(np.uint64).tolist() == before


@settings(deadline=None)
@given(st.lists(st.binary(max_size=12), min_size=2, max_size=30))
def test_prefixes_are_ordered_as_the_values(items: list[bytes]) -> None:
    words = prefix_words(pa.array(items, pa.binary())).tolist()
    for a, x in zip(items, words, strict=True):
        assert x == int.from_bytes(a[:8].ljust(8, b"\0"), "big")
        for b, y in zip(items, words, strict=True):
            if a < b:
                assert x <= y


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("nulls", [False, True])
def test_texts_of_version_1_are_read(codec: str, nulls: bool) -> None:
    items = [None if nulls and i % 3 == 0 else "ab" * (i % 7) for i in range(1000)]
    array = pa.array(items, pa.string())
    offsets, data = array.buffers()[1:]
    raw = (
        offsets.to_pybytes()[: 4 * 1001]
        + data.to_pybytes()[: sum(len(each or "") for each in items)]
    )
    if codec != "none":
        page = pa.Codec({"lz4": "lz4_raw", "zstd": "zstd"}[codec]).compress(raw, asbytes=True)
        raw = len(raw).to_bytes(8, "little") + page
    if nulls:
        raw = array.buffers()[0].to_pybytes()[:125].ljust(128, b"\0") + raw
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("v", pa.string())]), "t")
    entry = ChunkEntry(
        Encoding.VARIABLE, codec_of(codec), array.null_count, 0, len(raw), 0, 1, PAGE_EVENTS
    )
    for first, end in ((0, 1000), (511, 700), (999, 1000), (4, 4)):
        decoded = decode_chunk(memoryview(raw), entry, schema.payload[0], 1000, first, end)
        decoded.validate(full=True)
        assert decoded.equals(array.slice(first, end - first))


def test_decimals_of_every_sign() -> None:
    items = [decimal.Decimal("-1.25"), None, decimal.Decimal("99999999999.5")] * 2000
    array = pa.array(items, pa.decimal128(20, 2)).slice(1)
    for codec in ("none", "lz4"):
        found, _, _ = round_trip(array, codec, 11, 5000)
        assert found.equals(array.slice(11, 4989))
