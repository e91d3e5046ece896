"""Arrow data between processes: the same on the other side, or refused; never unsound."""

from __future__ import annotations

import decimal
import json
import random
import re
from typing import Any

import pyarrow as pa
import pytest

from chronicle.errors import UnsupportedType
from chronicle.isolation.batches import describe, pack, schema_of, unpack
from chronicle.isolation.channel import Garbage

COLUMNS: dict[str, pa.Array] = {
    "i": pa.array([1, None, 3, 4]),
    "b": pa.array([True, False, None, True]),
    "s": pa.array(["a", None, "ccc", ""]),
    "ls": pa.array(["a", None, "ccc", ""], pa.large_string()),
    "bin": pa.array([b"1", b"", None, b"22"]),
    "n": pa.nulls(4),
    "ts": pa.array([1, 2, 3, None], pa.timestamp("us", "UTC")),
    "dec": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal(2), None], pa.decimal128(38, 2)),
    "l": pa.array([[1], [], None, [2, 3]]),
    "st": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "z"}, {"a": 3, "b": None}]),
    "m": pa.array(
        [[("a", 1)], [], None, [("b", 2), ("c", None)]], pa.map_(pa.string(), pa.int64())
    ),
    "d": pa.array(["x", "y", None, "x"]).dictionary_encode(),
    "fl": pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
    "fb": pa.array([b"12", None, b"34", b"56"], pa.binary(2)),
    "iv": pa.array([pa.MonthDayNano([1, 2, 3]), None, None, pa.MonthDayNano([0, 0, 0])]),
    "u": pa.array([b"0" * 16] * 4, pa.uuid()),
    "ll": pa.array([[["a"], None], [], None, [["b", "c"]]]),
}
BATCH = pa.record_batch(COLUMNS)


def data_of(pieces: list[memoryview]) -> pa.Buffer:
    """The buffers as a channel brings them."""
    joined = bytearray()
    for piece in pieces:
        joined += piece
        joined += bytes(-len(piece) % 64)
    return pa.py_buffer(bytes(joined))


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize(("first", "count"), [(0, 4), (1, 2), (4, 0), (0, 2), (3, 1)])
def test_a_batch_arrives_as_it_was(first: int, count: int) -> None:
    batch = BATCH.slice(first, count)
    node, pieces = pack(batch)
    schema = schema_of(through_json(describe(batch.schema)))
    assert schema.equals(batch.schema)
    assert unpack(schema, through_json(node), data_of(pieces)).equals(batch)


def test_a_batch_without_columns_keeps_its_rows() -> None:
    batch = BATCH.select([])
    node, pieces = pack(batch)
    assert unpack(batch.schema, node, data_of(pieces)).num_rows == 4


def test_a_type_that_cannot_cross_is_named() -> None:
    schema = pa.schema([("u", pa.sparse_union([pa.field("a", pa.int8())]))])
    with pytest.raises(UnsupportedType, match="cast it to text"):
        describe(schema)


@pytest.mark.parametrize("seed", range(4))
def test_what_arrives_is_sound_or_garbage(seed: int) -> None:
    """Bytes and places changed at random: refused, or a batch that can be used."""
    chance = random.Random(seed)
    node, pieces = pack(BATCH)
    data, text = bytes(data_of(pieces)), json.dumps(node)
    numbers = list(re.finditer(r"-?\d+", text))
    refused = 0
    for _ in range(1500):
        raw, told = bytearray(data), text
        for _ in range(chance.choice([1, 1, 3])):
            if chance.random() < 0.5:
                raw[chance.randrange(len(raw))] = chance.choice([0, 255, 128, 127])
            else:
                number = chance.choice(numbers)
                other = chance.choice([-1, 0, 1, 64, 10**6, 1 << 31, 1 << 63])
                told = text[: number.start()] + str(other) + text[number.end() :]
        try:
            found = unpack(BATCH.schema, json.loads(told), pa.py_buffer(bytes(raw)))
        except Garbage:
            refused += 1
            continue
        pa.concat_batches([found, found]).validate(full=True)
        str(found.to_string())
    assert refused > 300


@pytest.mark.parametrize(
    "described",
    [
        None,
        5,
        [["a", "nosuch", True]],
        [["a", ["timestamp", "us", "\ud800"], True]],
        [["\ud800", "int64", True]],
        [["a", ["decimal128", 99, 0], True]],
        [["a", ["fixed_size_binary", -1], True]],
        [["a", ["dictionary", "string", "int8", False], True]],
        [["a", ["extension", "os.system"], True]],
        [["a", "int64"]],
    ],
)
def test_a_schema_that_is_none_is_garbage(described: Any) -> None:
    with pytest.raises(Garbage):
        schema_of(described)


def test_a_schema_is_nested_only_so_deep() -> None:
    type_: Any = "int64"
    for _ in range(500):
        type_ = ["list", ["l", type_, True]]
    with pytest.raises(Garbage):
        schema_of([["a", type_, True]])


@pytest.mark.parametrize("begin", [0, 8, 64, 3, 13])
def test_a_slice_crosses_as_what_it_is(begin: int) -> None:
    numbers = pa.array([None if n % 7 == 0 else n for n in range(200)])
    texts = pa.array([None if n % 5 == 0 else f"k{n}" * (n % 3) for n in range(200)])
    batch = pa.record_batch(
        {
            **{"i": numbers, "s": texts, "b": numbers.cast(pa.float64()).is_null()},
            **{"l": texts.cast(pa.large_string()), "d": numbers.cast(pa.decimal128(22, 2))},
            **{"c": texts.dictionary_encode(), "raw": texts.cast(pa.binary())},
            "t": numbers.cast(pa.timestamp("us")),
        }
    )
    for length in (0, 1, 64, 100, 200 - begin):
        part = batch.slice(begin, length)
        node, pieces = pack(part)
        assert unpack(part.schema, through_json(node), data_of(pieces)).equals(part)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    "offsets", [[0, 2, 1, 4], [0, -1, 2, 4], [-1, 1, 2, 4], [0, 2, 4, 9], [0, 9, 3, 4]]
)
def test_offsets_that_lead_elsewhere_are_garbage(offsets: list[int], large: bool) -> None:
    kind = pa.large_binary() if large else pa.binary()
    batch = pa.record_batch({"s": pa.array([b"a", b"b", b"cd"], kind)})
    node, pieces = pack(batch)
    (_, place, _) = node[1][0][1]
    width = 8 if large else 4
    data = bytearray(bytes(data_of(pieces)))
    for at, offset in enumerate(offsets):
        begin = place[0] + at * width
        data[begin : begin + width] = offset.to_bytes(width, "little", signed=True)
    with pytest.raises(Garbage):
        unpack(batch.schema, node, pa.py_buffer(bytes(data)))


def test_text_beyond_ascii_crosses() -> None:
    batch = pa.record_batch({"s": pa.array(["a", "ü€", None, "😀"])})
    node, pieces = pack(batch)
    assert unpack(batch.schema, node, data_of(pieces)).equals(batch)
    data = bytearray(bytes(data_of(pieces)))
    data[data.index("€".encode()) + 1] = ord("a")  # half of a character
    with pytest.raises(Garbage):
        unpack(batch.schema, node, pa.py_buffer(bytes(data)))
