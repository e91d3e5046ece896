"""Numbers in text are what they say or a bad value with its row: never infinity, never cut."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chronicle.errors import InvalidData, SchemaMismatch
from chronicle.formats.chunks import BadRow
from chronicle.formats.layout import Layout
from chronicle.formats.reader import EventReader
from chronicle.formats.tables import tables_of
from chronicle.schema import StreamSchema
from chronicle.tests.reading import read_batches

US, NS, S = pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("s")


def body(format: str, time: str, value: str) -> bytes:
    if format == "csv":
        return f"t,x\n{time},{value}\n".encode()
    record = f'{{"t": {time}, "x": {value}}}'
    return (record if format == "ndjson" else f"[{record}]").encode()


def read(format: str, time: str, value: str, type_: pa.DataType, x: pa.DataType, rule: str):
    schema = StreamSchema(pa.schema([pa.field("t", type_, False), ("x", x)]), "t")
    bad: list[BadRow] = []
    batches = read_batches(
        body(format, time, value), format, schema=schema, time_format=rule, on_bad=bad.append
    )
    rows = [row for batch in batches for row in batch.to_pylist()]
    return rows, bad


FORMATS = pytest.mark.parametrize("format", ["csv", "json", "ndjson"])
BEYOND = ["1e400", "-1e400", "1" + "0" * 400, "9" * 5000, "1e2147483647", "1" * 400 + ".5"]


@FORMATS
@pytest.mark.parametrize("value", BEYOND)
@pytest.mark.parametrize("type_", [pa.float64(), pa.float32(), pa.decimal128(10, 2), pa.int64()])
def test_numbers_beyond_their_type_are_bad_values(
    format: str, value: str, type_: pa.DataType
) -> None:
    rows, bad = read(format, "1", value, pa.int64(), type_, "ticks")
    assert not rows
    assert [(row.row, row.column) for row in bad] == [(1, "x")]


@FORMATS
@pytest.mark.parametrize("value", BEYOND)
def test_so_they_are_where_types_are_told(format: str, value: str) -> None:
    bad: list[BadRow] = []
    lines = [body(format, str(i), "0.5") for i in range(9)]
    data = body(format, "1", value)
    if format == "csv":
        data = b"".join([lines[0], *(line[4:] for line in lines[1:]), data[4:]])
    elif format == "json":
        data = b"[" + b",".join(line[1:-1] for line in [*lines, data]) + b"]"
    else:
        data = b"\n".join([*lines, data])
    reader = EventReader(data, format, layout=Layout(time="t"), on_bad=bad.append)
    values = [x for batch in reader for x in batch.column("x").to_pylist()]
    assert values == [0.5] * 9
    assert [(row.row, row.column) for row in bad] == [(10, "x")]


def test_infinity_that_is_written_is_read() -> None:
    for text in ("inf", "-Infinity", "+inf"):
        rows, bad = read("csv", "1", text, pa.int64(), pa.float64(), "ticks")
        assert not bad
        assert np.isinf(rows[0]["x"])


@FORMATS
@pytest.mark.parametrize(
    ("time", "type_", "rule"),
    [
        ("5.7", pa.int64(), "ticks"),
        ("9007199254740993.5", pa.int64(), "ticks"),
        ("1.5", S, "s"),
        ("1533101250.1234567", US, "s"),
        ("1533101250123.4567", US, "ms"),
        ("-0.0000001", US, "s"),
        ("1500", S, "ms"),
        ("1e-7", US, "s"),
        ("1e400", US, "s"),
    ],
)
def test_fractions_of_ticks_are_bad_values(
    format: str, time: str, type_: pa.DataType, rule: str
) -> None:
    rows, bad = read(format, time, "1", type_, pa.float64(), rule)
    assert not rows
    assert [(row.row, row.column) for row in bad] == [(1, "t")]


@FORMATS
@pytest.mark.parametrize(
    ("time", "type_", "rule", "ticks"),
    [
        ("9007199254740993", pa.int64(), "ticks", 9007199254740993),
        ("5.0", pa.int64(), "ticks", 5),
        ("1533101250.125", US, "s", 1533101250125000),
        ("1533101250.123456", US, "s", 1533101250123456),
        ("1533101250123.456", US, "ms", 1533101250123456),
        ("1.533101250125e9", US, "s", 1533101250125000),
        ("0.1", US, "s", 100000),
        ("2000", S, "ms", 2),
    ],
)
def test_fractions_that_are_whole_ticks_are_read(
    format: str, time: str, type_: pa.DataType, rule: str, ticks: int
) -> None:
    schema = StreamSchema(pa.schema([pa.field("t", type_, False), ("x", pa.int64())]), "t")
    (batch,) = read_batches(body(format, time, "1"), format, schema=schema, time_format=rule)
    assert batch.column("t").cast(pa.int64()).to_pylist() == [ticks]


def test_digits_of_csv_times_are_read_exactly_at_any_unit() -> None:
    data = b"t\n1533101250.123456789\n1533101250.1\n"
    reader = EventReader(data, "csv", layout=Layout(time="t"))
    (batch,) = reader
    assert batch.schema.field("t").type == NS
    assert batch.column("t").cast(pa.int64()).to_pylist() == [
        1533101250123456789,
        1533101250100000000,
    ]


def test_python_decimals_beyond_every_type_are_refused() -> None:
    schema = StreamSchema(
        pa.schema([pa.field("t", pa.int64(), False), ("x", pa.decimal128(10, 2))]), "t"
    )
    for value in (Decimal("1E-2147483640"), Decimal("1E+2147483640")):
        rows = [{"t": 1, "x": Decimal("1.50")}, {"t": 2, "x": value}]
        with pytest.raises(InvalidData, match="row 2"):
            list(tables_of(rows, schema))
        with pytest.raises(InvalidData, match="row 2"):
            list(tables_of(pandas.DataFrame(rows), schema))
    table = next(tables_of([{"t": 1, "x": Decimal("1.50")}], schema))
    assert table.column("x").to_pylist() == [Decimal("1.50")]


@pytest.mark.parametrize(
    ("values", "type_", "what"),
    [
        (pandas.DataFrame({"t": [1], "x": pandas.arrays.SparseArray([1])}), "us", "Sparse"),
        (polars.DataFrame({"t": [1], "x": polars.Series([1], dtype=polars.Int128)}), "us", "i128"),
        (pa.array([2**31 - 1], pa.date32()), "us", r"\+5881580-07-11.*row 1"),
        (pa.array([2**62], pa.timestamp("s")), "ns", r"\+146138514283-06-19.*row 1"),
    ],
)
def test_what_python_cannot_show_is_refused_by_name(values: Any, type_: str, what: str) -> None:
    schema = StreamSchema(
        pa.schema([pa.field("t", pa.int64(), False), ("x", pa.timestamp(type_))]), "t"
    )
    data = pa.table({"t": [1], "x": values}) if isinstance(values, pa.Array) else values
    with pytest.raises((InvalidData, SchemaMismatch), match=what):
        list(tables_of(data, schema))


def test_rows_lose_no_digits_that_arrow_would_cut() -> None:
    for unit, when in (("us", "finer than"), ("ns", "")):
        schema = StreamSchema(pa.schema([pa.field("t", pa.int64(), False),
                                         ("x", pa.timestamp(unit))]), "t")  # fmt: skip
        rows = [{"t": 1, "x": pandas.Timestamp(1)}, {"t": 2, "x": dt.datetime(1970, 1, 1)}]
        if when:
            with pytest.raises(InvalidData, match=when):
                list(tables_of(rows, schema))
        else:
            (table,) = tables_of(rows, schema)
            assert table["x"].cast(pa.int64()).to_pylist() == [1, 0]
    schema = StreamSchema(pa.schema([pa.field("t", pa.int64(), False), ("x", pa.float64())]), "t")
    text = "0.12345678901234567890"
    (table,) = tables_of([{"t": 1, "x": Decimal(text)}], schema)
    assert table["x"].to_pylist() == [float(text)]


# ------------------------------------------------------------------- types told from the data

BIG = "9007199254740993"


def records(format: str, values: list[str], first: int = 0) -> bytes:
    rows = enumerate(values, first)
    if format == "csv":
        return "".join(["t,x\n", *(f"{t},{x}\n" for t, x in rows)]).encode()
    lines = [f'{{"t": {t}, "x": {x}}}' for t, x in rows]
    return (f"[{','.join(lines)}]" if format == "json" else "\n".join([*lines, ""])).encode()


@FORMATS
@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([BIG, "1.5"], pa.decimal128(38, 1)),
        (["1.25", BIG], pa.decimal128(38, 2)),
        (["18446744073709551615", "-1"], pa.decimal128(38, 0)),
        (["5", "18446744073709551617"], pa.decimal128(38, 0)),
        (["9007199254740992", "1.5"], pa.float64()),
        (["1e300", "1.5"], pa.float64()),
        ([BIG, "5"], pa.int64()),
        (["18446744073709551615", "1"], pa.uint64()),
    ],
)
def test_a_type_that_is_told_loses_no_whole_number(
    format: str, values: list[str], told: pa.DataType
) -> None:
    reader = EventReader(records(format, values), format, layout=Layout(time="t"))
    (batch,) = reader
    assert batch.schema.field("x").type == told
    assert [Decimal(str(x)) for x in batch["x"].to_pylist()] == list(map(Decimal, values))


@FORMATS
@pytest.mark.parametrize(
    ("first", "later", "bad"),
    [
        ("1.5", BIG, True), ("1.5", "9007199254740992", False), ("5", "18446744073709551617", True),
        ("1.5", "1e300", False), ("-1", "18446744073709551615", True),
    ],
)  # fmt: skip
def test_nor_does_one_behind_the_sample(format: str, first: str, later: str, bad: bool) -> None:
    layout, found = Layout(time="t"), list[BadRow]()
    list(EventReader(records(format, [first]), format, layout=layout))
    rest = EventReader(records(format, ["7", later], 1), format, layout=layout, on_bad=found.append)
    kept = [x for batch in rest for x in batch["x"].to_pylist()]
    assert kept == ([7] if bad else [7, float(later)])
    assert [(row.row, row.column, row.value) for row in found] == ([(2, "x", later)] if bad else [])


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@FORMATS
def test_utf_16_is_read_by_its_mark_and_named_without(format: str, encoding: str) -> None:
    data = records(format, ["1"]).decode().encode(encoding)
    with pytest.raises(InvalidData, match=f"UTF-16 .*--encoding {encoding}"):
        list(EventReader(data, format, layout=Layout(time="t")))
    mark = "\ufeff".encode(encoding)
    for source, given in ((mark + data, None), (data, encoding), (data, "utf-16")):
        (batch,) = EventReader(source, format, layout=Layout(time="t"), encoding=given)
        assert batch["x"].to_pylist() == [1]


def test_a_value_that_python_cannot_hold_is_shown() -> None:
    """Nanoseconds in a Parquet file, for a stream of microseconds."""
    fine = pa.array([1_600_000_000_000_000_001, 1_600_000_000_000_001_000]).cast(NS)
    out = io.BytesIO()
    pq.write_table(pa.table({"t": fine, "x": fine}), out)
    schema = StreamSchema(pa.schema([pa.field("t", US, False), ("x", US)]), "t")
    bad: list[BadRow] = []
    (batch,) = read_batches(out.getvalue(), "parquet", schema=schema, on_bad=bad.append)
    assert batch.num_rows == 1
    assert bad[0].value == "2020-09-13 12:26:40.000000001"
    assert json.loads(bad[0].record)["x"] == "2020-09-13T12:26:40.000000001"
