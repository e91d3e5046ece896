"""Bodies that lie: what they would do to the process is an error instead, with its place."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.core.soundness import require_sound
from chronicle.errors import ChronicleError, InvalidData, ResourceLimit
from chronicle.formats.chunks import BadRow
from chronicle.formats.dialect import Limits
from chronicle.formats.layout import Layout
from chronicle.formats.reader import EventReader
from chronicle.formats.tables import tables_of
from chronicle.tests.new_stores import timed
from chronicle.tests.reading import read_batches
from chronicle.tests.rounds import rounds

SCHEMA = timed(s=pa.string(), b=pa.binary(), x=pa.float64())
MIB = 1 << 20


def events(data: bytes, format: str, *, limits: Limits | None = None) -> pa.Table:
    batches = read_batches(data, format, schema=SCHEMA, time_format="ticks", limits=limits)
    return pa.Table.from_batches(list(batches), SCHEMA.arrow)


POOLS: list[pa.MemoryPool] = []
"""Kept: what they gave may be given back later."""


@contextmanager
def allocating(most: int) -> Iterator[None]:
    """A block in which Arrow takes no more memory than so many bytes at a time."""
    before = pa.default_memory_pool()
    POOLS.append(pa.proxy_memory_pool(before))
    pa.set_memory_pool(POOLS[-1])
    try:
        yield
    finally:
        pa.set_memory_pool(before)
    assert POOLS[-1].max_memory() < most


def offsets(type_: pa.DataType, numbers: list[int], data: bytes, valid: int | None = None) -> Any:
    """An array of text or bytes with these offsets, true or not."""
    bits = None if valid is None else pa.py_buffer(bytes([valid]))
    return pa.Array.from_buffers(
        type_,
        len(numbers) - 1,
        [bits, pa.py_buffer(np.array(numbers, np.int32)), pa.py_buffer(data)],
    )


def dictionary(indices: list[int], values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), values, safe=False)


def views(lengths: list[int], buffer: bytes) -> pa.Array:
    raw = b"".join(struct.pack("<i4sii", n, buffer[:4], 0, 0) for n in lengths)
    return pa.Array.from_buffers(
        pa.string_view(), len(lengths), [None, pa.py_buffer(raw), pa.py_buffer(buffer)]
    )


class Named(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.string(), "chronicle.test")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Named:
        return cls()


TEXT, BLOB = pa.string(), pa.binary()
UNSOUND: dict[str, tuple[str, Callable[[], pa.Array]]] = {
    "offset beyond": ("s", lambda: offsets(TEXT, [0, 1 << 28, 2, 3], b"abc")),
    "offset negative": ("s", lambda: offsets(TEXT, [0, -5, 2, 3], b"abc")),
    "offset decreasing": ("s", lambda: offsets(TEXT, [0, 3, 1, 3], b"abc")),
    "blob beyond, null last": ("b", lambda: offsets(BLOB, [0, 1, 20 << 20, 3], b"abc", 0b011)),
    "not UTF-8": ("s", lambda: offsets(TEXT, [0, 1, 2, 3], b"a\xffc")),
    "index beyond": ("s", lambda: dictionary([0, 1 << 24, 0], pa.array(["a"]))),
    "index negative": ("s", lambda: dictionary([0, -9, 0], pa.array(["a"]))),
    "bad dictionary": ("s", lambda: dictionary([0, 0, 0], offsets(TEXT, [0, 9 << 20, 1], b"a"))),
    "view beyond": ("s", lambda: views([20, 30, 1 << 28], b"x" * 64)),
    "extension": (
        "s",
        lambda: pa.ExtensionArray.from_storage(Named(), offsets(TEXT, [0, 9 << 20, 1, 2], b"ab")),
    ),
    "struct": (
        "s",
        lambda: pa.StructArray.from_arrays([offsets(TEXT, [0, 9 << 20, 1, 2], b"ab")], ["inner"]),
    ),
    "list": (
        "s",
        lambda: pa.ListArray.from_buffers(
            pa.list_(pa.int8()),
            3,
            [None, pa.py_buffer(np.array([0, 9 << 20, 1, 2], np.int32))],
            children=[pa.array([1, 2], pa.int8())],
        ),
    ),
}


@pytest.fixture(params=list(UNSOUND))
def unsound(request: pytest.FixtureRequest) -> pa.Table:
    column, make = UNSOUND[request.param]
    return pa.Table.from_arrays([pa.array([1, 2, 3]), make()], names=["t", column])


def as_stream(table: pa.Table, make: Any = pa.ipc.new_stream, **options: Any) -> bytes:
    sink = io.BytesIO()
    with make(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_table(table)
    return sink.getvalue()


as_file = partial(as_stream, make=pa.ipc.new_file)


@pytest.mark.parametrize("write", [as_stream, as_file])
def test_unsound_columns_of_arrow_bodies_are_refused(
    unsound: pa.Table, write: Callable[[pa.Table], bytes]
) -> None:
    with pytest.raises(InvalidData):
        events(write(unsound), "arrow")


def test_unsound_columns_of_tables_are_refused(unsound: pa.Table) -> None:
    with pytest.raises(InvalidData):
        list(tables_of(unsound, SCHEMA))
    with pytest.raises(InvalidData):
        list(tables_of(unsound.to_batches()[0], SCHEMA))
    with pytest.raises(InvalidData):
        list(tables_of(unsound.to_reader(), SCHEMA))


def test_the_row_of_an_unsound_value_is_named() -> None:
    with pytest.raises(InvalidData, match=r"s: expected sound string .* row 12") as error:
        require_sound(pa.table({"s": offsets(TEXT, [0, 1, 2, 3], b"a\xffc")}), None, 10)
    assert error.value.row == 12


def test_parquet_text_that_is_not_utf8_is_refused() -> None:
    bad = pa.table({"t": [1], "s": pa.array([b"\xff\xfe"]).cast(pa.string(), safe=False)})
    sink = io.BytesIO()
    pq.write_table(bad, sink)
    with pytest.raises(InvalidData, match="UTF8"):
        events(sink.getvalue(), "parquet")


@pytest.mark.parametrize("kind", ["string_view", "dictionary", "large_string"])
def test_sound_columns_of_every_kind_are_read(kind: str) -> None:
    text = pa.array(["a", None, "a long text that no view holds", "b"])
    column = {
        "string_view": lambda: text.cast(pa.string_view()),
        "dictionary": text.dictionary_encode,
        "large_string": lambda: text.cast(pa.large_string()),
    }[kind]()
    table = pa.table({"t": [1, 2, 3, 4], "s": column})
    for data in (as_stream(table), as_file(table), as_stream(table, compression="zstd")):
        assert events(data, "arrow").column("s").to_pylist() == text.to_pylist()


# ------------------------------------------------------------------------------- small, but large


def test_compressed_batches_are_counted_unpacked() -> None:
    table = pa.table({"t": np.zeros(64 * MIB, np.int8)})
    for write in (as_stream, as_file):
        data = write(table, compression="zstd")
        assert len(data) < 100_000
        with pytest.raises(ResourceLimit, match="once decoded"):
            events(data, "arrow", limits=Limits(total_bytes=16 * MIB))


def test_an_arrow_length_that_lies_is_an_error() -> None:
    data = as_stream(pa.table({"t": [1, 2, 3]}), compression="zstd")
    lying = data.replace(struct.pack("<q", 24), struct.pack("<q", 1 << 46))
    assert lying != data
    with pytest.raises((InvalidData, ResourceLimit)):
        events(lying, "arrow")
    with allocating(64 * MIB):
        for length in (1 << 30, (1 << 31) - 1):  # of the metadata
            with pytest.raises(InvalidData):
                events(b"\xff\xff\xff\xff" + struct.pack("<i", length), "arrow")


@pytest.mark.parametrize("encode", ["dictionary", "view"])
def test_one_long_value_named_often_is_counted_each_time(encode: str) -> None:
    long = "x" * MIB
    if encode == "dictionary":
        column = dictionary([0] * 4096, pa.array([long]))
    else:
        column = views([len(long)] * 4096, long.encode())
    data = as_stream(pa.table({"t": range(4096), "s": column}))
    assert len(data) < 2 * MIB
    with pytest.raises(ResourceLimit, match="unpacks to 4,294,967,296 bytes"):
        events(data, "arrow")


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def test_a_parquet_dictionary_of_one_long_value_is_counted_each_time() -> None:
    column = dictionary([0] * 8192, pa.array(["x" * MIB]))
    data = parquet(pa.table({"t": range(8192), "s": column}), compression="zstd")
    assert len(data) < 100_000
    with allocating(64 * MIB), pytest.raises(ResourceLimit, match="unpacks to"):
        events(data, "parquet")


def test_all_events_of_a_body_are_counted() -> None:
    data = parquet(pa.table({"t": np.zeros(8 * MIB, np.int64)}))
    assert len(data) < 100_000
    with pytest.raises(ResourceLimit, match="once decoded"):
        events(data, "parquet", limits=Limits(total_bytes=32 * MIB))
    lines = b'{"t": 1}\n' * 400_000
    with pytest.raises(ResourceLimit, match="once decoded"):
        events(lines, "ndjson", limits=Limits(total_bytes=MIB))


def test_nested_parquet_columns_are_refused_before_they_are_read() -> None:
    table = pa.table({"t": [1], "s": pa.array([[0] * 5_000_000])})
    with pytest.raises(ChronicleError, match="a stream cannot store"):
        events(parquet(table), "parquet")


# ------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize("line", ["null", "1", '"x"', "[]", "true", "[1,2]", '{"t":2}{"t":3}'])
@pytest.mark.parametrize("around", ["{}\n", '{}\n{{"t": 9}}\n', '{{"t": 1}}\n{}', "\n\n{}\n"])
def test_a_line_that_is_no_object_is_told_with_its_number(line: str, around: str) -> None:
    data = around.format(line)
    number = data.split("\n").index(line) + 1
    with pytest.raises(InvalidData, match=rf"line {number}\b"):
        events(data.encode(), "ndjson")
    bad: list[BadRow] = []
    reader = read_batches(
        data.encode(), "ndjson", schema=SCHEMA, time_format="ticks", on_bad=bad.append
    )
    rows = sum(batch.num_rows for batch in reader)
    assert [row.line for row in bad] == [number]
    assert rows == data.count('"t"') - line.count('"t"')


@pytest.mark.parametrize("depth", [65, 500, 10_000, 1_000_000])
@pytest.mark.parametrize("brackets", ["[]", '{"a":'])
@pytest.mark.parametrize("format", ["json", "ndjson"])
def test_nesting_is_limited_before_a_decoder_sees_it(
    depth: int, brackets: str, format: str
) -> None:
    opening = brackets[0] if brackets == "[]" else brackets
    nested = opening * depth + "1" + {"[": "]"}.get(opening, "}") * depth
    record = '{"t": 1, "s": ' + nested + "}"
    data = record if format == "ndjson" else f"[{record}]"
    with pytest.raises(InvalidData, match="at most 64 brackets"):
        events(data.encode(), format)
    with pytest.raises(InvalidData):
        events((nested[: nested.index("1")]).encode(), format)
    with pytest.raises(ChronicleError):
        list(EventReader(data.encode(), layout=Layout(time="t")))


def test_brackets_in_text_are_no_nesting() -> None:
    text = "[{" * 500
    data = json.dumps({"t": 1, "s": text}).encode()
    assert events(data, "ndjson").column("s").to_pylist() == [text]


FEW = Limits(columns=1000)


def test_different_keys_are_limited_and_rows_with_many_are_cut_up() -> None:
    def read(lines: bytes, limits: Limits, flatten: str | None = None, **layout: Any) -> int:
        given = Layout(time="t", **layout)
        reader = EventReader(lines, "ndjson", layout=given, limits=limits, flatten=flatten)
        return sum(batch.num_rows for batch in reader)

    lines = b"".join(b'{"t": %d, "k%d": 1}\n' % (i, i) for i in range(1200))
    with pytest.raises(ResourceLimit, match="different keys"):
        read(lines, FEW)
    one = b'{"t": 1' + b"".join(b', "k%d": 1' % i for i in range(100_000)) + b"}"
    for data in (one, b"[" + one + b"]"):
        with pytest.raises(ResourceLimit, match="different keys"):
            events(data, "json")
    nested = b"".join(b'{"t": %d, "s": {"k%d": 1}}\n' % (i, i) for i in range(1200))
    assert events(nested, "ndjson", limits=FEW).num_rows == 1200  # keys of a text are no columns
    for flatten in (None, "_"):
        with pytest.raises(ResourceLimit, match="different keys"):
            read(nested, FEW, flatten)
    array = json.dumps({"t": 1, "z": [str(i) for i in range(5000)]}).encode()
    assert read(array, FEW, select=["t"]) == 1  # text in an array is no key

    keys, rows = 2_000, 40_000
    wide = json.dumps({"t": 0, **{f"k{i}": i for i in range(keys)}}).encode()
    with allocating(900 * MIB):
        assert read(wide + b"\n" + b'{"t":1}\n' * rows, Limits()) == rows + 1


def test_columns_of_csv_are_limited() -> None:
    header = ",".join(["t", *(f"c{i}" for i in range(100_000))])
    with pytest.raises(ResourceLimit, match="100,001 columns"):
        events(header.encode() + b"\n", "csv")
    many = ",".join(["t", *(f"c{i}" for i in range(999))])
    data = f"{many}\n{','.join(['1'] * 1000)}\n".encode()
    reader = EventReader(data, "csv", layout=Layout(time="t"), limits=FEW)
    assert sum(batch.num_rows for batch in reader) == 1


TRICKS = {
    "half of a surrogate pair": ('{"t": 1, "s": "\\ud800"}', "ndjson"),
    "half of one in a key": ('{"t": 1, "\\udfff": 1}', "ndjson"),
    "doubled keys": ('{"t": 1, "t": 2}', "ndjson"),
    "doubled keys, escaped": ('{"t": 1, "\\u0074": 2}', "ndjson"),
    "a NUL between rows": ('{"t": 1}\n\x00\n{"t": 2}', "ndjson"),
    "a NUL in a row": ('{"t": 1\x00}', "ndjson"),
    "a NUL in an array": ('[{"t": 1},\x00{"t": 2}]', "json"),
    "a NUL in a record": ('[{"t": 1\x00},{"t": 2}]', "json"),
    "UTF-16 without a mark": ('{"t": 1}', "ndjson-16"),
    "a mark in the middle": ('{"t": 1}\n\ufeff{"t": 2}\n', "ndjson"),
    "an open quote": ('t,s\n1,"a\n', "csv"),
    "a NUL as a number": ("t,s\n\x00,a\n", "csv"),
    "digits without end": ("t,s\n" + "9" * 100_000 + ",a\n", "csv"),
    "an exponent without end": ('{"t": 1, "x": 1e' + "9" * 5000 + "}", "ndjson"),
    "digits without end in JSON": ('{"t": 1, "x": ' + "9" * 100_000 + "}", "ndjson"),
}


@pytest.mark.parametrize("name", list(TRICKS))
def test_tricks_of_text_are_errors(name: str) -> None:
    text, format = TRICKS[name]
    data = text.encode("utf-16-le" if format == "ndjson-16" else "utf-8")
    with pytest.raises((InvalidData, ResourceLimit)):
        events(data, format.removesuffix("-16"))


def test_a_nul_inside_text_is_kept() -> None:
    assert events(b'{"t": 1, "s": "a\\u0000b"}', "ndjson").column("s").to_pylist() == ["a\0b"]
    assert events(b"t,s\n1,a\x00b\n2,c\n", "csv").column("s").to_pylist() == ["a\0b", "c"]


# ----------------------------------------------------------------------------------- any mutation


def bodies() -> dict[str, bytes]:
    rng = np.random.default_rng(3)
    table = pa.table(
        {
            "t": rng.integers(0, 9, 40),
            "s": pa.array([None, "a", "bc"] * 13 + ["d"]),
            "b": pa.array([b"x", None] * 20),
            "x": rng.random(40),
        }
    )
    lines = "".join(json.dumps({"t": i, "s": "ü" * (i % 3), "x": i / 3}) + "\n" for i in range(20))
    return {
        "arrow": as_stream(table),
        "arrow zstd": as_stream(table, compression="zstd"),
        "arrow file": as_file(table),
        "arrow dictionary": as_stream(
            table.set_column(1, "s", table.column("s").dictionary_encode())
        ),
        "parquet": parquet(table),
        "parquet plain": parquet(table, use_dictionary=False, compression="none"),
        "ndjson": lines.encode(),
        "json": ("[" + ",".join(lines.splitlines()) + "]").encode(),
        "csv": b't,s,x\n1,"a, ""b""\n",2\n2,,3\n',
    }


BODIES = bodies()


@pytest.mark.parametrize("name", list(BODIES))
@settings(deadline=None, max_examples=rounds(15, 150))
@given(st.data())
def test_mutated_bodies_are_read_or_refused(name: str, data: st.DataObject) -> None:
    body = bytearray(BODIES[name])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(body) - 1))
        kind = data.draw(st.sampled_from(["byte", "cut", "repeat", "long"]))
        if kind == "byte":
            body[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del body[at : at + data.draw(st.integers(1, 16))]
        elif kind == "repeat":
            body[at:at] = body[at : at + data.draw(st.integers(1, 64))]
        else:
            body[at : at + 8] = struct.pack("<q", data.draw(st.integers(-(2**63), 2**63 - 1)))
        if not body:
            return
    try:
        table = events(bytes(body), name.split()[0], limits=Limits(total_bytes=64 * MIB))
    except ChronicleError:
        return
    table.validate(full=True)


def test_a_gzip_member_with_a_wrong_checksum_is_damaged() -> None:
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(b"t,s\n1,a\n") + packer.flush()
    wrong = packed[:-8] + bytes(4) + packed[-4:]
    for data in (wrong, packed[:-3], packed[:-12]):
        with pytest.raises(InvalidData, match="gzip"):
            list(read_batches(data, "csv", schema=SCHEMA, time_format="ticks"))
