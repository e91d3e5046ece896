"""Reading events from every format: types, names, bad rows with their places, memory."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import (
    ChronicleError,
    InvalidArgument,
    InvalidData,
    SchemaMismatch,
)
from chronicle.formats import csvtext as csv_module
from chronicle.formats import jsontext as json_module
from chronicle.formats.chunks import BadRow
from chronicle.formats.layout import Layout, conform
from chronicle.formats.reader import EventReader
from chronicle.formats.writers import encode
from chronicle.schema import StreamSchema
from chronicle.tests.reading import read_batches
from chronicle.tests.rounds import rounds

from ..patience import PATIENCE_S

US = pa.timestamp("us")


def test_a_pipe_that_never_pauses_is_not_held_back() -> None:
    taken, given = os.pipe()
    seen = threading.Event()

    def write() -> None:
        with open(given, "wb", buffering=0) as pipe:
            pipe.write(b"t,x\n")
            for _ in range(int(PATIENCE_S / 0.05)):
                pipe.write(b"2020-01-01,1\n")
                if seen.wait(0.05):
                    return

    writer = threading.Thread(target=write)
    writer.start()
    with open(taken, "rb", buffering=0) as pipe:
        reader = iter(EventReader(pipe, "csv", layout=Layout(time="t"), live=True))
        first = next(reader)
        assert writer.is_alive()  # it came while the pipe was still being written to
        assert first.num_rows > 0
        seen.set()
        assert all(batch.num_rows for batch in reader)
    writer.join()


def read(
    data: Any, format: str | None = None, *, quarantine: list[BadRow] | None = None, **options: Any
) -> pa.Table:
    """Everything in a source as one table; bad rows raise unless a list is given for them."""
    reader_options = {
        key: options.pop(key)
        for key in ("separator", "columns", "nulls", "name", "compression")
        if key in options
    }
    if quarantine is not None:
        reader_options["on_bad"] = quarantine.append
    layout = Layout(**{"time": "t", **options})
    reader = EventReader(data, format, layout=layout, **reader_options)
    batches = list(reader)
    schema = layout.schema()
    table = pa.Table.from_batches([conform(batch, schema) for batch in batches], schema)
    assert reader.rows == table.num_rows
    if quarantine is not None:
        assert reader.bad == len(quarantine)
    return table


def small_chunks(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for module in (csv_module, json_module):
        monkeypatch.setattr(module, "CHUNK_BYTES", size)
        monkeypatch.setattr(module, "SAMPLE_BYTES", size)


TABLE = pa.table(
    {
        "t": pa.array([1_000_000, 2_500_000, 2_500_000, 9_000_000], US),
        "name": pa.array(["a", 'q"uo,te\n', None, ""]),
        "x": pa.array([1.5, None, float("nan"), -0.1]),
        "n": pa.array([1, -(2**62), None, 7], pa.int64()),
        "ok": pa.array([True, False, None, True]),
        "day": pa.array([0, 17_744, None, -1], pa.int32()).cast(pa.date32()),
        "seen": pa.array([0, 1, None, 1_533_101_250_123_456], US),
    }
)


@pytest.mark.parametrize("format", ["json", "ndjson", "csv", "arrow", "parquet"])
@pytest.mark.parametrize("as_chunks", [False, True])
def test_what_is_written_is_read_back(format: str, as_chunks: bool) -> None:
    data = b"".join(encode(TABLE.to_batches(), TABLE.schema, format))
    source: Any = [data[at : at + 7] for at in range(0, len(data), 7)] if as_chunks else data
    back = read(source, format)
    expected = TABLE
    if format in ("json", "ndjson"):  # JSON has no NaN
        expected = TABLE.set_column(2, "x", pa.array([1.5, None, None, -0.1]))
    assert back.schema.names == expected.schema.names
    assert back.schema.types == expected.schema.types
    assert str(back.to_pydict()) == str(expected.to_pydict())  # text, so that nan equals nan


@pytest.mark.parametrize(
    ("format", "compression"),
    [("json", "gzip"), ("ndjson", "zstd"), ("csv", "bz2"), ("arrow", "gzip"), ("parquet", "zstd")],
)
def test_compressed(format: str, compression: str, tmp_path: Path) -> None:
    data = b"".join(encode(TABLE.to_batches(), TABLE.schema, format))
    packed = {
        "gzip": gzip.compress,
        "bz2": bz2.compress,
        "zstd": lambda raw: pa.compress(raw, "zstd", asbytes=True),
    }[compression](data)
    path = tmp_path / "events.bin"  # neither the format nor the compression is in the name
    path.write_bytes(packed)
    assert read(path, format).num_rows == 4
    if compression != "bz2":  # a block of bz2 is all or nothing
        path.write_bytes(packed[: len(packed) * 2 // 3])
    else:
        path.write_bytes(packed[:-4])
    with pytest.raises(InvalidData, match=r"cut off"):
        read(path, format)


@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 1 << 20])
@pytest.mark.parametrize("format", ["json", "ndjson", "csv"])
def test_records_survive_any_cut(format: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(b"".join(encode(TABLE.to_batches(), TABLE.schema, format)), format)
    small_chunks(monkeypatch, chunk)
    data = b"".join(encode(TABLE.to_batches(), TABLE.schema, format))
    target = StreamSchema(TABLE.schema, "t")
    batches = list(read_batches(data, format, schema=target))
    assert str(pa.Table.from_batches(batches).to_pydict()) == str(whole.to_pydict())


def test_pretty_printed_and_concatenated_json() -> None:
    rows = [{"t": "2018-08-01T05:00:00Z", "s": 'x"]}[{,'}, {"t": "2018-08-01T05:00:01Z", "s": "\\"}]
    for text in (
        json.dumps(rows, indent=4),
        json.dumps(rows, indent=2).replace("\n", "\r\n"),
        "".join(json.dumps(row, indent=1) for row in rows),
        "\ufeff" + json.dumps(rows),
        "\n".join(json.dumps(row) for row in rows),
    ):
        assert read(text.encode(), "json")["s"].to_pylist() == ['x"]}[{,', "\\"]


@given(
    st.lists(
        st.fixed_dictionaries(
            {"t": st.integers(1_500_000_000_000, 1_600_000_000_000), "s": st.text(max_size=8)},
            optional={"x": st.floats(allow_nan=False, allow_infinity=False), "n": st.none()},
        ),
        min_size=1,
        max_size=20,
    ),
    st.booleans(),
    st.integers(1, 40),
)
@settings(max_examples=rounds(6, 60))
def test_any_json_array_reads_like_json_loads(
    rows: list[dict[str, Any]], indent: bool, size: int
) -> None:
    data = json.dumps(rows, indent=2 if indent else None, ensure_ascii=size % 2 == 0).encode()
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    table = read(iter(chunks), "json")
    assert table["s"].to_pylist() == [row["s"] for row in rows]
    millis = table["t"].cast(pa.int64()).to_numpy() // 1000
    assert millis.tolist() == [row["t"] for row in rows]
    if "x" in table.schema.names:
        assert table["x"].cast(pa.float64()).to_pylist() == [row.get("x") for row in rows]


@given(
    st.lists(
        st.tuples(st.text(alphabet='ab",;\n\r é', max_size=6), st.integers(-99, 99)),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 40),
)
@settings(deadline=None, max_examples=rounds(6, 60))
def test_any_csv_reads_like_the_csv_module(rows: list[tuple[str, int]], size: int) -> None:
    import csv

    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(["t", "s", "n"])
    for at, (s, n) in enumerate(rows):
        writer.writerow([f"2018-08-01 05:00:{at:02}", s, n])
    data = text.getvalue().encode()
    table = read((data[at : at + size] for at in range(0, len(data), size)), "csv")
    assert table["s"].to_pylist() == [s for s, _ in rows]
    assert table["n"].to_pylist() == [n for _, n in rows]


# --------------------------------------------------------------------------------- types


def test_whole_numbers_widen_to_floats_later(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, 64)
    csv = ["t,x", *(f"2018-08-01 05:00:{i:02},{i}" for i in range(50)), "2018-08-02,1.5"]
    rows = [{"t": 1_533_101_250 + i, "x": i if i < 50 else 1.5} for i in range(51)]
    for format, text in (("csv", "\n".join(csv)), ("json", json.dumps(rows))):
        table = read(text.encode(), format)
        assert table.schema.field("x").type == pa.float64()
        assert table["x"].to_pylist() == [*map(float, range(50)), 1.5]


def test_a_column_may_show_its_first_value_late(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, 64)
    lines = [f"2018-08-01 05:00:{i:02}," for i in range(20)]
    table = read("\n".join(["t,x", *lines, "2018-08-02,7"]).encode(), "csv")
    assert table.schema.field("x").type == pa.int64()
    assert table["x"].to_pylist() == [None] * 20 + [7]
    rows: list[dict[str, Any]] = [{"t": 1_533_101_250 + i} for i in range(20)]
    rows += [{"t": 1_533_101_300, "late": "z"}]
    table = read(json.dumps(rows).encode(), "json")
    assert table["late"].to_pylist() == [None] * 20 + ["z"]


def test_microseconds_widen_to_nanoseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, 64)
    lines = [f"2018-08-01 05:00:{i:02}" for i in range(20)]
    table = read("\n".join(["t", *lines, "2018-08-01 05:01:00.000000001"]).encode(), "csv")
    assert table.schema.field("t").type == pa.timestamp("ns")
    assert table["t"].cast(pa.int64()).to_pylist()[-1] % 1000 == 1


def test_large_whole_numbers_keep_their_digits() -> None:
    rows = [
        {"t": 1_533_101_250, "id": 9_007_199_254_740_993},
        {"t": 1_533_101_251, "id": 2**64 - 1},
    ]
    for format, data in (
        ("json", json.dumps(rows)),
        ("csv", f"t,id\n1533101250,9007199254740993\n1533101251,{2**64 - 1}\n"),
    ):
        table = read(data.encode(), format)
        assert table["id"].to_pylist() == [9_007_199_254_740_993, 2**64 - 1], format


def test_given_types_win_and_do_not_widen() -> None:
    data = b"t,zip,x\n2018-08-01,01234,1\n2018-08-02,5,2.5\n"
    table = read(data, "csv", types=["zip=string", "x=float32"])
    assert table["zip"].to_pylist() == ["01234", "5"]
    assert table.schema.field("x").type == pa.float32()
    with pytest.raises(InvalidData, match=r"line 3 \(row 2\), column 'x': expected a whole number"):
        read(data, "csv", types=["x=int"])


def test_json_numbers_as_text_and_text_as_numbers() -> None:
    data = b'[{"t": 1533101250, "id": 17, "x": "2.5"}, {"t": 1533101251, "id": "a", "x": "3"}]'
    table = read(data, "json", types=["id=string", "x=double"])
    assert table["id"].to_pylist() == ["17", "a"]
    assert table["x"].to_pylist() == [2.5, 3.0]


def test_nested_values_are_kept_or_left_out() -> None:
    data = b'[{"t": 1533101250, "p": {"lat": 1}, "x": 2}]'
    assert read(data, "json")["p"].to_pylist() == [{"lat": 1}]
    assert read(data, "json", select=["x"]).to_pydict()["x"] == [2]
    assert read(data, "json", types=["p=string"])["p"].to_pylist() == ['{"lat": 1}']


def test_typed_files_widen_to_each_other(tmp_path: Path) -> None:
    layout = Layout(time="t")
    first = pa.table({"t": pa.array([1], US), "x": pa.array([1], pa.int32())})
    second = pa.table({"t": pa.array([2], US), "x": pa.array([2.5]), "extra": ["z"]})
    batches: list[pa.RecordBatch] = []
    for at, table in enumerate((first, second)):
        pq.write_table(table, tmp_path / f"{at}.parquet")
        batches += EventReader(tmp_path / f"{at}.parquet", layout=layout)
    schema = layout.schema()
    assert pa.Table.from_batches([conform(b, schema) for b in batches]).to_pydict()["x"] == [
        1.0,
        2.5,
    ]
    assert schema.names == ["t", "x", "extra"]


# --------------------------------------------------------------------------------- names


def test_rename_select_and_case() -> None:
    data = b"When,Speed,junk\n2018-08-01,5,a\n"
    table = read(data, "csv", time="at", rename={"When": "at"}, select=["speed"])
    assert table.schema.names == ["at", "Speed"]
    assert read(data, "csv", time="when").schema.field("When").nullable is False


def test_a_file_column_holds_the_stem(tmp_path: Path) -> None:
    path = tmp_path / "pump_7.csv.gz"
    path.write_bytes(gzip.compress(b"t,x\n2018-08-01,5\n"))
    table = read(path, file_column="sensor")
    assert table["sensor"].to_pylist() == ["pump_7"]
    assert table.schema.names == ["t", "x", "sensor"]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b"a,b\n1,2\n", {}, "there is no time column 't' .*columns are a, b"),
        (b"t,a,b\n1,2,3\n", {"rename": {"a": "b"}}, "would both become 'b'"),
        (b"t,a\n1,2\n", {"rename": {"x": "b"}}, "rename: there is no column 'x'"),
        (b"t,speed\n1,2\n", {"select": ["sped"]}, "select: .*did you mean 'speed'"),
        (b"t,a\n1,2\n", {"types": ["b=int"]}, "types: there is no column 'b'"),
        (b"t,a\n1,2\n", {"file_column": "a"}, "has a column 'a' itself"),
        (b"timestamp,a\n1,2\n", {"time": "timestmp"}, "did you mean 'timestamp'"),
        (b"", {}, "is empty"),
        (b"\n\n", {}, "is empty"),
        ("t,a\n".encode("utf-16-le"), {}, "UTF-16 .* --encoding utf-16-le"),
        (b't,a\n2018-08-01,"x\n', {}, "ends inside a quoted value"),
        (b"t,a\n2018-08-01,b\n2018-08-02\n", {}, r"line 3 \(row 2\): expected 2 values, found 1"),
        (b"t,a\n2018-08-01,\xff\n", {}, "line 2 .row 1.: expected UTF-8"),
        (b"t,a\n,b\n", {}, "column 't': the time is missing"),
        (b"t,a\nyesterday,b\n", {}, "does not hold times"),
        (b"t,a\n2018-08-01,b\nx,b\n", {}, "line 3 .row 2., column 't': expected a time such as"),
    ],
)
def test_bad_csv(data: bytes, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ChronicleError, match=message) as caught:
        read(data, "csv", name="f.csv", **options)
    if not isinstance(caught.value, InvalidArgument):
        assert "f.csv" in str(caught.value) or "does not hold times" in str(caught.value)


GOOD = '{"t": 1533101250, "x": 1}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("[" + GOOD, "array is not closed after record 1"),
        ("[" + GOOD + ",", "array is not closed after record 1"),
        ("[" + GOOD + ', {"t": 15331', "ends inside record 2"),
        ("[" + GOOD + "] x", "nothing after the end of the array, found 'x'"),
        ("[" + GOOD + " " + GOOD + "]", "expected a comma after record 1"),
        ("[" + GOOD + ",," + GOOD + "]", "expected a record .* as number 2, found ',"),
        ("[" + GOOD + ",]", "as number 2, found ']'"),
        ("[1, 2]", "expected a record .an object. as number 1, found '1, 2]'"),
        ("[[1]]", "as number 1"),
        ('"text"', "as number 1"),
        ("[" + GOOD + ', {"t": 1533101250, "x": }]', "row 2: not valid JSON"),
        ("[" + GOOD + ', {"t": 1533101250, "t": 3}]', "row 2: the field 't' occurs twice"),
        ("[" + GOOD + ', {"t": null}]', "row 2, column 't': the time is missing"),
        ("[" + GOOD + ', {"x": 2}]', "row 2, column 't': the time is missing"),
        ('[{"x": 2}]', "there is no time column 't'"),
        ("[" + GOOD + ', {"t": NaN}]', "row 2, column 't'"),
        ("[" + GOOD + ', {"t": 1e30}]', "row 2, column 't'"),
        ("[" + GOOD + ', {"t": true}]', "row 2, column 't'"),
    ],
)
def test_bad_json(text: str, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        read(text.encode(), "json", name="f.json")


def test_bad_rows_are_left_out_and_described() -> None:
    bad: list[BadRow] = []
    data = (
        b't,s,x\n2018-08-01,"two\nlines",1\nnever,b,2\n\n2018-08-02,c\n2018-08-03,d,abc\n'
        b"2018-08-04,e,5\n2018-08-05,f,6\n2018-08-06,\xff,7\n2018-08-07,g,8\n2018-08-08,h,9\n"
    )
    table = read(data, "csv", name="f.csv", quarantine=bad)
    assert table["s"].to_pylist() == ["two\nlines", "e", "f", "g", "h"]
    assert table["x"].to_pylist() == [1, 5, 6, 8, 9]
    assert [(b.row, b.line, b.column, b.value) for b in bad] == [
        (2, 4, "t", "never"),
        (3, 6, None, None),
        (4, 7, "x", "abc"),
        (7, 10, None, None),
    ]
    assert bad[0].record == "never,b,2"
    assert json.loads(bad[2].to_json())["reason"] == "expected a whole number (bigint), found 'abc'"
    assert str(bad[1]) == "f.csv, line 6 (row 3): expected 3 values, found 2"


def test_bad_lines_of_ndjson_cost_only_themselves() -> None:
    bad: list[BadRow] = []
    lines = [
        '{"t": 1533101250, "x": 1}',
        "garbage",
        "",
        '{"t": 1533101251',
        '{"t": 1533101252, "x": 3}',
    ]
    table = read("\n".join(lines).encode(), "ndjson", quarantine=bad)
    assert table["x"].to_pylist() == [1, 3]
    assert [(b.row, b.line, b.record) for b in bad] == [
        (2, 2, "garbage"),
        (3, 4, '{"t": 1533101251'),
    ]


@given(st.sets(st.integers(0, 199)), st.sampled_from(["csv", "ndjson", "json", "arrow"]))
@settings(max_examples=rounds(5, 25), deadline=None)
def test_every_row_is_read_or_reported(broken: set[int], format: str) -> None:
    times = [None if i in broken else 1_533_101_250 + i for i in range(200)]
    if all(time is None for time in times):
        return
    table = pa.table({"t": pa.array(times, pa.int64()), "x": np.arange(200)})
    data = b"".join(encode(table.to_batches(), table.schema, format))
    bad: list[BadRow] = []
    back = read(data, format, quarantine=bad)
    assert back["x"].to_pylist() == [i for i in range(200) if i not in broken]
    assert [b.row for b in bad] == sorted(i + 1 for i in broken)


# ------------------------------------------------------------------------------ typed files


def test_truncated_and_empty_binary_files(tmp_path: Path) -> None:
    for format in ("parquet", "arrow"):
        data = b"".join(encode(TABLE.to_batches(), TABLE.schema, format))
        with pytest.raises(InvalidData, match=r"f: .*cut off or damaged"):
            read(data[:-9], format, name="f")
        with pytest.raises(InvalidData, match="is empty"):
            read(b"", format, name="f")
        with pytest.raises(InvalidData, match="expected csv, but the bytes are"):
            read(data, "csv")
    arrow = b"".join(encode(TABLE.to_batches(), TABLE.schema, "arrow"))
    with pytest.raises(InvalidData, match="end-of-stream marker is missing"):
        read(arrow[:-8], "arrow", name="f")  # pyarrow itself would not mind
    path = tmp_path / "events.arrow"
    with pa.ipc.new_file(path, TABLE.schema) as writer:
        writer.write_table(TABLE)
    assert read(path).num_rows == 4
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidData, match="cut off or damaged"):
        read(path)


def test_rows_of_typed_files_can_be_bad(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    times = pa.array([1_533_101_250.0, float("nan"), None, float("inf")])
    pq.write_table(pa.table({"t": times, "x": ["a", "b", "c", "d"]}), path)
    bad: list[BadRow] = []
    table = read(path, quarantine=bad)
    assert table["x"].to_pylist() == ["a"]
    assert [(b.row, b.line) for b in bad] == [(2, None), (3, None), (4, None)]
    assert json.loads(bad[1].record) == {"t": None, "x": "c"}


def test_dictionaries_and_views_are_plain_text() -> None:
    table = pa.table(
        {
            "t": pa.array([1, 2], US),
            "d": pa.array(["a", "b"]).dictionary_encode(),
            "v": pa.array(["a", "b"], pa.string_view()),
        }
    )
    back = read(b"".join(encode(table.to_batches(), table.schema, "arrow")), "arrow")
    assert back.schema.field("d").type == pa.string()
    assert back.to_pydict()["v"] == ["a", "b"]


# -------------------------------------------------------------------------- existing streams

TARGET = StreamSchema(
    pa.schema(
        [
            pa.field("t", US, False),
            pa.field("icao24", pa.string(), False),
            pa.field("altitude", pa.float64()),
        ]
    ),
    "t",
)


def to_target(data: bytes, format: str, **options: Any) -> list[dict[str, Any]]:
    batches = list(read_batches(data, format, schema=TARGET, **options))
    assert all(batch.schema.equals(TARGET.arrow) for batch in batches)
    return pa.Table.from_batches(batches, TARGET.arrow).to_pylist()


def test_batches_have_the_streams_schema() -> None:
    rows = to_target(b'[{"ICAO24": "a", "t": "2018-08-01T05:00:00Z"}]', "json")
    assert rows[0]["icao24"] == "a"
    assert rows[0]["altitude"] is None
    rows = to_target(b"altitude,t,icao24\n5,1533101250000,007\n", "csv", time_format="ms")
    assert (rows[0]["icao24"], rows[0]["altitude"]) == ("007", 5.0)
    assert to_target(b"[]", "json") == []


@pytest.mark.parametrize(
    ("record", "error", "message"),
    [
        ({"icao24": "a", "alt": 5}, SchemaMismatch, "no attribute 'alt'"),
        ({}, InvalidData, "the attribute is NOT NULL"),
        ({"t": 1533101250000, "icao24": "a"}, InvalidData, "a number without a unit"),
        ({"icao24": "a", "altitude": "high"}, InvalidData, "'altitude'.*'high'"),
        ({"icao24": "a", "altitude": [1]}, InvalidData, "expected a number"),
    ],
)
def test_what_does_not_fit_the_stream(
    record: dict[str, Any], error: type[ChronicleError], message: str
) -> None:
    data = json.dumps([{"t": "2018-08-01", **record}]).encode()
    with pytest.raises(error, match=message):
        to_target(data, "json", time_format="iso")


def test_integer_time_streams_take_integers_as_they_are() -> None:
    target = StreamSchema(pa.schema([("k", pa.int64()), ("x", pa.float64())]), "k")
    rows = pa.Table.from_batches(read_batches(b"k,x\n1533101250,1\n", "csv", schema=target))
    assert rows["k"].to_pylist() == [1_533_101_250]
    with pytest.raises(InvalidArgument, match="plain integer"):
        list(read_batches(b"k,x\n1,1\n", "csv", schema=target, time_format="ms"))


# ------------------------------------------------------------------------------------ bounds


def test_memory_is_bounded_by_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JSON array of 40 MB that is produced as it is read never gathers."""
    record = json.dumps({"t": 1_533_101_250_000, "s": "x" * 480}).encode()
    count = 80_000

    def body() -> Any:
        yield b"["
        for at in range(count):
            yield record if at == 0 else b"," + record
        yield b"]"

    small_chunks(monkeypatch, 1 << 20)
    before = pa.total_allocated_bytes()
    peak = 0
    rows = 0
    for batch in EventReader(body(), "json", layout=Layout(time="t")):
        rows += batch.num_rows
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert rows == count
    assert peak < 12 << 20
