"""Line protocol: what a line means, against a plain reader of it, in pieces of any size."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chronicle.errors import InvalidData, SchemaMismatch
from chronicle.formats import lineprotocol
from chronicle.formats.layout import Layout
from chronicle.formats.lineprotocol import EXPECTED, json_lines, lines_by_measurement
from chronicle.formats.reader import EventReader
from chronicle.formats.sources import ByteSource
from chronicle.schema import StreamSchema
from chronicle.tests.reading import read_batches
from chronicle.tests.rounds import rounds

SCHEMA = StreamSchema(
    pa.schema([("at", pa.timestamp("us")), ("city", pa.string()), ("temp", pa.float64())]), "at"
)
NAMES = st.text("aZ9_é ,=\\\"'.-#", min_size=1, max_size=6).filter(
    lambda text: not text.endswith("\\") and "\\" not in text and not text.startswith("#")
)
TEXTS = st.text('ab\n\r\t\x01\\" ,=é#', max_size=8)
VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(-1e300, 1e300),
    st.booleans(),
    TEXTS,
)
LINES = st.lists(
    st.tuples(
        NAMES,
        st.dictionaries(NAMES, NAMES, max_size=3),
        st.dictionaries(NAMES, VALUES, min_size=1, max_size=3),
        st.none() | st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=4,
)


def escaped(name: str) -> str:
    return re.sub(r"([,= ])", r"\\\1", name)


def written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "F"
    if isinstance(value, int):
        return f"{value}i"
    if isinstance(value, float):
        return repr(value)
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def line_of(name: str, tags: dict[str, str], fields: dict[str, Any], at: int | None) -> str:
    said = [f"{escaped(key)}={escaped(tag)}" for key, tag in tags.items()]
    head = ",".join([re.sub(r"([, ])", r"\\\1", name), *said])
    body = ",".join(f"{escaped(k)}={written(v)}" for k, v in fields.items())
    return f"{head} {body}" + ("" if at is None else f" {at}")


def translated(body: bytes, piece: int = 1 << 20) -> list[Any]:

    was, lineprotocol.READ_BYTES = lineprotocol.READ_BYTES, piece
    try:
        source = ByteSource(io.BytesIO(body), compression=None)
        text = b"".join(json_lines(source, "@time", None, "@name"))
    finally:
        lineprotocol.READ_BYTES = was
    return [json.loads(row, object_pairs_hook=list) for row in text.splitlines() if row]


@settings(deadline=None, max_examples=rounds(6, 60))
@given(LINES, st.sampled_from([1, 7, 1 << 20]), st.sampled_from(["\n", "\r\n", "\n\n# no, line\n"]))
@example([("a", {}, {"x": 5e-324}, None)], 1, "\n")
def test_every_line_is_what_was_written(lines: Any, piece: int, end: str) -> None:
    body = end.join(line_of(*line) for line in lines).encode()
    wanted = [
        [("@name", name), *tags.items(), *fields.items(), ("@time", at)]
        for name, tags, fields, at in lines
    ]
    assert translated(body, piece) == [[tuple(pair) for pair in row] for row in wanted]


@settings(deadline=None, max_examples=rounds(6, 60))
@given(LINES)
def test_lines_are_told_apart_by_measurement(lines: Any) -> None:
    body = "\n".join(line_of(*line) for line in lines).encode()
    found = lines_by_measurement(body)
    assert list(found) == list(dict.fromkeys(line[0] for line in lines))
    for name, mine in found.items():
        assert translated(mine) == translated(
            "\n".join(line_of(*line) for line in lines if line[0] == name).encode()
        )


@settings(deadline=None, max_examples=rounds(6, 60))
@given(st.binary(max_size=60))
@example(b'a x="')
@example(b"a,b= c=1")
@example(b"a \\")
def test_whatever_comes_is_read_within_its_bytes(body: bytes) -> None:
    source = ByteSource(io.BytesIO(body), compression=None)
    for piece in json_lines(source, "t", 5, None):
        assert piece.endswith(b"\n")
    lines_by_measurement(body)


@pytest.mark.parametrize(
    "line",
    [
        "m", "m ", "m x", "m x=", "m =1", "m,a x=1", "m,a= x=1", "m,=b x=1", ",a=b x=1", "m x=1,",
        "m x=1 5 6", "m x=1 5z", "m x=1 -", "m x=1.2.3", "m x=-", "m x=.", "m x=1e", "m x=1ii",
        "m x=1.5i", "m x=ii", "m x=nan", "m x=yes", 'm x="a', 'm x="a"b', "m x=1 1.5", "m a=b=1",
        "m x=0x10", "m,a=b,c x=1",
    ],
)  # fmt: skip
def test_lines_that_are_none_are_refused_alone(line: str) -> None:
    bad: list[Any] = []
    body = f"m temp=1 1000\n{line}\n".encode()
    if not line.startswith('m x="a'):
        body += b"m temp=2 2000\n"
    batches = read_batches(body, "lineprotocol", schema=SCHEMA, on_bad=bad.append)
    rows = pa.Table.from_batches(batches, SCHEMA.arrow)
    assert rows.column("temp").to_pylist() == [1.0, 2.0][: 1 + body.endswith(b"2000\n")]
    assert [(row.line, row.row, row.record, row.reason) for row in bad] == [(2, 2, line, EXPECTED)]


def test_numbers_as_they_may_be_written() -> None:
    body = b"m a=-0,b=007i,c=00.5,d=5.,e=-.5e-3,f=1E5,g=-12i,h=18446744073709551615u"
    (row,) = translated(body)
    assert dict(row[1:-1]) == {
        "a": -0.0, "b": 7, "c": 0.5, "d": 5.0, "e": -0.0005, "f": 1e5, "g": -12, "h": 2**64 - 1,
    }  # fmt: skip


def read(body: bytes, precision: str = "iso", schema: StreamSchema = SCHEMA) -> list[Any]:
    found = read_batches(body, "lineprotocol", schema=schema, time_format=precision)
    return pa.Table.from_batches(found, schema.arrow).to_pylist()


def test_times_are_nanoseconds_unless_it_is_said() -> None:

    then = dt.datetime(2018, 8, 1, 5)
    for precision, zeros in (("iso", 9), ("s", 0), ("us", 6)):
        (row,) = read(b"m,city=Bonn temp=1 1533099600" + b"0" * zeros, precision)
        assert row == {"at": then, "city": "Bonn", "temp": 1.0}
    for precision in ("iso", "s", "ms"):
        first, second = read(b"m temp=1\nm temp=2", precision)
        assert first["at"] == second["at"]
        assert abs(first["at"] - dt.datetime.now(dt.timezone.utc).replace(tzinfo=None)).days == 0
    counts = StreamSchema(pa.schema([("n", pa.int64()), ("temp", pa.float64())]), "n")
    assert read(b"m temp=1 -7", "ticks", counts) == [{"n": -7, "temp": 1.0}]
    with pytest.raises(InvalidData, match="time"):
        read(b"m temp=1", "ticks", counts)


def test_what_does_not_fit_the_stream() -> None:
    with pytest.raises(SchemaMismatch, match="wind"):
        read(b"m wind=1 1000")
    with pytest.raises(InvalidData, match="temp"):
        read(b'm temp="warm" 1000')
    with pytest.raises(InvalidData, match="occurs twice"):
        read(b"m,temp=5 temp=1 1000")


def test_a_measurement_is_a_column_where_there_is_one() -> None:
    fields = [("at", pa.timestamp("us")), ("measurement", pa.string()), ("x", pa.int64())]
    wide = StreamSchema(pa.schema(fields), "at")
    rows = read(b"a x=1i 1000\nb x=2i 2000", schema=wide)
    assert [row["measurement"] for row in rows] == ["a", "b"]


def test_types_of_a_new_stream() -> None:
    layout = Layout(time="time")
    body = b'cpu,host=a load=1,on=t,n=5i,what="x" 1533099600000000000\n'
    list(EventReader(body, "lineprotocol", layout=layout))
    assert {field.name: field.type for field in layout.schema()} == {
        "measurement": pa.string(), "host": pa.string(), "load": pa.float64(), "on": pa.bool_(),
        "n": pa.int64(), "what": pa.string(), "time": pa.timestamp("ns"),
    }  # fmt: skip


def test_too_many_measurements() -> None:
    body = b"".join(b"m%d x=1\n" % n for n in range(1001))
    with pytest.raises(InvalidData, match="more than 1,000 measurements"):
        lines_by_measurement(body)
