"""What answers look like in each format, and that broken ones can be told."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.errors import InvalidArgument, InvalidData
from chronicle.formats.kinds import (
    detect,
    format_of_media_type,
    media_type_of,
    sniff_compression,
    stem_of,
    suffixes_of,
)
from chronicle.formats.writers import FEW_ROWS, csv_bytes, encode, json_bytes, write

TABLE = pa.table(
    {
        "t": pa.array([0, 250_000, None], pa.timestamp("us")),
        "z": pa.array([0, 1_500, None], pa.timestamp("ms", "Europe/Berlin")),
        "x": [1.0, float("nan"), None],
        "d": pa.array([Decimal("1.50"), None, Decimal("-0.25")], pa.decimal128(6, 2)),
        "b": pa.array([b"hi", None, b""]),
        "s": ["a", "", None],
        'od"d': [True, None, False],
    }
)


def test_json_by_the_letter() -> None:
    assert b"".join(encode(TABLE.to_batches(), TABLE.schema, "json")).decode() == (
        '[{"t":"1970-01-01T00:00:00","z":"1970-01-01T00:00:00Z","x":1.0,"d":1.50,"b":"aGk=","s":"a",'
        '"od\\"d":true},\n'
        '{"t":"1970-01-01T00:00:00.250000","z":"1970-01-01T00:00:01.500Z","x":null,"d":null,'
        '"b":null,"s":"","od\\"d":null},\n'
        '{"t":null,"z":null,"x":null,"d":-0.25,"b":"","s":null,"od\\"d":false}]\n'
    )


_ODD_TEXTS = ["", "\\", '"\n', "\x7f"]
_ODD = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(_ODD_TEXTS)
_TICKS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 10**6, -(10**6), 1_500_000])
_TYPES = {
    pa.string(): _ODD,
    pa.large_string(): _ODD,
    pa.float64(): st.floats() | st.integers(-(10**22), 10**22).map(float),
    pa.float32(): st.floats(width=32) | st.integers(-99, 99).map(float),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.bool_(): st.booleans(),
    pa.timestamp("us"): _TICKS,
    pa.timestamp("s", "UTC"): _TICKS,
    pa.timestamp("ns", "Europe/Berlin"): _TICKS,
    pa.date32(): st.dates(),
    pa.binary(): st.binary(max_size=5),
    pa.decimal128(9, 3): st.decimals(-999, 999, places=3),
    pa.duration("ms"): st.integers(-(10**12), 10**12),
    pa.null(): st.none(),
}


@given(st.data())
def test_few_rows_are_written_as_many(data: st.DataObject) -> None:
    """Value by value or by kernels: the same bytes."""
    count = data.draw(st.integers(1, 5))
    arrays = [
        pa.array(data.draw(st.lists(st.none() | values, min_size=count, max_size=count)), type_)
        for type_, values in data.draw(st.lists(st.sampled_from(list(_TYPES.items())), max_size=4))
    ]
    few = pa.RecordBatch.from_arrays(arrays, names=[f'c{n}"' for n in range(len(arrays))])
    if not arrays:
        few = pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    times = FEW_ROWS // count + 1
    many = pa.Table.from_batches([few] * times).combine_chunks().to_batches()[0] if arrays else few
    assert json_bytes(few) * (times if arrays else 1) == json_bytes(many)
    heads = pa.array([f"id: {n}\n" for n in range(many.num_rows)], pa.large_string())
    cut = [json_bytes(many.slice(n, 1), heads=heads.slice(n, 1)) for n in range(many.num_rows)]
    assert b"".join(cut) == json_bytes(many, heads=heads)


def test_csv_by_the_letter() -> None:
    assert b"".join(encode(TABLE.to_batches(), TABLE.schema, "csv")).decode() == (
        't,z,x,d,b,s,"od""d"\r\n'
        "1970-01-01 00:00:00,1970-01-01 00:00:00Z,1.0,1.50,aGk=,a,true\r\n"
        '1970-01-01 00:00:00.250000,1970-01-01 00:00:01.500Z,nan,,,"",\r\n'
        ',,,-0.25,"",,false\r\n'
    )


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.text()),
            st.one_of(st.none(), st.floats()),
            st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_python_reads_the_same_values(
    rows: list[tuple[str | None, float | None, int | None]],
) -> None:
    texts, floats, ints = zip(*rows, strict=True)
    types = (pa.string(), pa.float64(), pa.int64())
    columns = zip((texts, floats, ints), types, strict=True)
    batch = pa.record_batch([pa.array(*column) for column in columns], names=["s", "x", "n"])
    lines = json_bytes(batch).decode().removesuffix("\n").split("\n")
    for line, (s, x, n) in zip(lines, rows, strict=True):
        finite = None if x is None or not math.isfinite(x) else x
        assert json.loads(line) == {"s": s, "x": finite, "n": n}
    records = list(csv.reader(io.StringIO(csv_bytes(batch).decode(), newline="")))
    for record, (s, x, n) in zip(records, rows, strict=True):
        assert record[0] == ("" if s is None else s)
        assert record[1] == "" if x is None else str(float(record[1])) == str(x)
        assert record[2] == ("" if n is None else str(n))


def test_slices_and_dictionaries() -> None:
    table = pa.table({"k": pa.array(["a", "b", "a"]).dictionary_encode(), "n": [1, 2, 3]})
    assert json_bytes(table.to_batches()[0].slice(1)) == b'{"k":"b","n":2}\n{"k":"a","n":3}\n'


def test_nested_results() -> None:
    batch = pa.record_batch({"l": [[1, 2], None], "m": [{"a": b"x"}, {"a": None}]})
    assert json_bytes(batch) == (b'{"l":[1, 2],"m":{"a": "eA=="}}\n{"l":null,"m":{"a": null}}\n')
    assert csv_bytes(batch) == b'"[1, 2]","{""a"": ""eA==""}"\r\n,"{""a"": null}"\r\n'


@pytest.mark.parametrize("format", ["json", "ndjson", "csv", "arrow", "parquet"])
def test_empty_answers_are_complete(format: str) -> None:
    data = b"".join(encode([], TABLE.schema, format))
    if format == "json":
        assert json.loads(data) == []
    elif format == "ndjson":
        assert data == b""
    elif format == "csv":
        assert data == b't,z,x,d,b,s,"od""d"\r\n'
    elif format == "arrow":
        assert pa.ipc.open_stream(data).read_all().schema.equals(TABLE.schema)
    else:
        assert pq.read_table(io.BytesIO(data)).num_rows == 0


@pytest.mark.parametrize("format", ["json", "arrow", "parquet"])
def test_an_answer_that_broke_off_shows_it(format: str) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        raise InvalidData("no more")

    out = io.BytesIO()
    with pytest.raises(InvalidData, match="no more"):
        write(broken(), TABLE.schema, format, out)
    data = out.getvalue()
    whole = b"".join(encode(TABLE.to_batches(), TABLE.schema, format))
    assert data
    assert whole.startswith(data) or format == "parquet"
    assert len(data) < len(whole)


def test_large_batches_come_in_pieces() -> None:
    table = pa.table({"n": range(200_000)})
    chunks = list(encode(table.to_batches(), table.schema, "ndjson"))
    assert len(chunks) == 4
    assert b"".join(chunks).count(b"\n") == 200_000
    one = b"".join(encode(table.to_batches(), table.schema, "json"))
    assert [row["n"] for row in json.loads(one)] == list(range(200_000))


def test_unknown_formats() -> None:
    with pytest.raises(InvalidArgument, match="known are json, ndjson"):
        encode([], TABLE.schema, "xml")
    with pytest.raises(InvalidArgument, match="unknown format"):
        media_type_of("xml")


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        ("a.csv.gz", b"t,x", "csv"),
        ("a.tsv", b"t\tx", "csv"),
        ("A.JSON", b"[", "json"),
        ("a.jsonl.zst", b"{", "ndjson"),
        ("a.csv", b"PAR1....", "parquet"),
        ("a", b"ARROW1", "arrow"),
        ("a", b"\xff\xff\xff\xff\x10", "arrow"),
        ("-", b' \n [{"a"', "json"),
        ("-", b"a,b\n1,2", "csv"),
    ],
)
def test_formats_are_told_from_bytes_and_names(name: str, head: bytes, expected: str) -> None:
    assert detect(name, head) == expected


def test_names_and_media_types() -> None:
    assert stem_of("/x/pump.7.csv.gz") == "pump.7"
    assert stem_of("events") == "events"
    assert suffixes_of("a.parquet") == ("parquet", None)
    assert suffixes_of("a.log") is None
    assert sniff_compression(b"\x1f\x8b\x08") == "gzip"
    assert sniff_compression(b"a") is None
    for format in ("json", "ndjson", "csv", "arrow", "parquet"):
        assert format_of_media_type(media_type_of(format)) == format
    assert format_of_media_type("Text/CSV; charset=utf-8") == "csv"
    assert format_of_media_type("text/html") is None
