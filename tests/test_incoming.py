"""What comes in: every kind of data, cast safely or refused with the row and the reason."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import InvalidData, SchemaMismatch
from chronicle.formats import tables
from chronicle.formats.tables import tables_of
from chronicle.schema import StreamSchema

UTC = dt.timezone.utc
NOON = dt.datetime(2020, 1, 1, 12)
ARROW = pa.schema(
    [
        pa.field("t", pa.timestamp("us"), False),
        ("x", pa.float64()),
        ("n", pa.int32()),
        ("s", pa.string()),
        pa.field("must", pa.int64(), False),
    ]
)
SCHEMA = StreamSchema(ARROW, "t")
ROW = {"t": NOON, "x": 1.5, "n": 3, "s": "a", "must": 7}


def one(data, schema: StreamSchema = SCHEMA) -> pa.Table:
    tables = list(tables_of(data, schema))
    assert all(table.schema.equals(schema.arrow) for table in tables)
    return pa.concat_tables(tables)


class Streamable:
    """Nothing but ``__arrow_c_stream__``."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


TABLE = pa.table({name: [value] for name, value in ROW.items()})


@pytest.mark.parametrize(
    "data",
    [
        [ROW],
        (ROW,),
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        Streamable(TABLE),
        TABLE.to_pandas(),
        polars.from_arrow(TABLE),
        polars.from_arrow(TABLE).lazy(),
        TABLE.select(["must", "s", "n", "x", "t"]),
        pandas.DataFrame({k: [v] for k, v in ROW.items() if k != "t"},
                         index=pandas.DatetimeIndex([NOON], name="t")),
    ],
    ids=["list", "tuple", "table", "batch", "reader", "stream", "pandas", "polars", "lazy",
         "order", "index"],
)  # fmt: skip
def test_every_kind_of_data_gives_the_same_events(data):
    assert one(data).to_pylist() == [ROW]


def test_missing_nullable_columns_are_null():
    short = {"t": NOON, "must": 1}
    wanted = [{"t": NOON, "x": None, "n": None, "s": None, "must": 1}]
    assert one([short]).to_pylist() == wanted
    assert one(pa.table({name: [value] for name, value in short.items()})).to_pylist() == wanted


def test_no_rows_are_fine():
    assert one([]).num_rows == 0
    assert one(ARROW.empty_table()).num_rows == 0
    assert one(ARROW.empty_table().to_reader()).num_rows == 0


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("x", pa.array([1], pa.int8()), 1.0),
        ("x", pa.array([1.5], pa.float32()), 1.5),
        ("x", pa.array([Decimal("1.25")]), 1.25),
        ("n", pa.array([3], pa.uint64()), 3),
        ("n", pa.array([3.0]), 3),
        ("n", pa.nulls(1), None),
        ("s", pa.array(["a"]).dictionary_encode(), "a"),
        ("s", pa.array(["a"], pa.large_string()), "a"),
        ("s", pa.array(["a"], pa.string_view()), "a"),
        ("t", pa.array([NOON], pa.timestamp("s")), NOON),
        ("t", pa.array([NOON], pa.timestamp("ns")), NOON),
        ("t", pa.array([NOON.replace(tzinfo=UTC)]), NOON),
        ("t", pa.array([NOON], pa.timestamp("us", "Europe/Zurich")), NOON),
        ("t", pa.array([dt.date(2020, 1, 1)]), dt.datetime(2020, 1, 1)),
        ("t", pa.array(["2020-01-01T12:00:00"]), NOON),
        ("t", pa.array(["2020-01-01 12:00:00.000001"]), NOON.replace(microsecond=1)),
        ("t", pa.array(["2020-01-01T12:00:00Z"]), NOON),
        ("t", pa.array(["2020-01-01T14:00:00+02:00"]), NOON),
        ("t", pa.array(["2020-01-01"]), dt.datetime(2020, 1, 1)),
    ],
)
def test_safe_casts(column, values, expected):
    table = TABLE.drop_columns(column).append_column(column, values)
    assert one(table).column(column).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("column", "values", "error", "words"),
    [
        ("x", pa.array(["1"]), SchemaMismatch, "expected double, found string"),
        ("x", pa.array([True]), SchemaMismatch, "bool"),
        ("x", pa.array([2**53 + 1]), InvalidData, "row 1"),
        ("n", pa.array([2**40]), InvalidData, "1099511627776 in row 1"),
        ("n", pa.array([1.5]), InvalidData, "1.5 in row 1"),
        ("n", pa.array([math.nan]), InvalidData, "nan in row 1"),
        ("n", pa.array([NOON]), SchemaMismatch, "counts plain integers"),
        ("s", pa.array([1]), SchemaMismatch, "expected string, found int64"),
        ("s", pa.array([b"x"]), SchemaMismatch, "binary"),
        ("t", pa.array([1_577_880_000]), SchemaMismatch, "say the unit first"),
        ("t", pa.array([1.5]), SchemaMismatch, "expected timestamp[us], found double"),
        ("t", pa.array(["soon"]), InvalidData, "Z, found 'soon' in row 1"),
        ("t", pa.array([1_577_880_000_000_000_001], pa.timestamp("ns")), InvalidData, "row 1"),
        ("t", pa.array([None], pa.timestamp("us")), InvalidData, "the time is missing in row 1"),
        ("t", pa.nulls(1), InvalidData, "the time is missing in row 1"),
        ("must", pa.array([None], pa.int64()), InvalidData, "the value is missing in row 1"),
        ("x", pa.array([[1.0]]), SchemaMismatch, "list"),
    ],
)
def test_what_does_not_fit_is_refused(column, values, error, words):
    table = TABLE.drop_columns(column).append_column(column, values)
    with pytest.raises(error) as caught:
        one(table)
    assert column in str(caught.value)
    assert words in str(caught.value)


def test_float32_refuses_what_would_become_infinite():
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("f", pa.float32())]), "t")
    assert one(pa.table({"t": [1], "f": [math.inf]}), schema).column("f").to_pylist() == [math.inf]
    with pytest.raises(InvalidData, match=r"number .*1e.300 in row 2"):
        one(pa.table({"t": [1, 2], "f": [1.0, 1e300]}), schema)


def test_integer_time_takes_whole_numbers_only():
    schema = StreamSchema(pa.schema([("t", pa.int64())]), "t")
    assert one([{"t": 5}], schema).to_pylist() == [{"t": 5}]
    assert one(pa.table({"t": [5.0]}), schema).to_pylist() == [{"t": 5}]
    for value in (1.5, math.nan, "5", NOON, 2**70, None, np.timedelta64(1, "D")):
        with pytest.raises((InvalidData, SchemaMismatch)):
            one([{"t": value}], schema)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pa.table({"t": [NOON], "must": [1], "xx": [1]}), "did you mean 'x'"),
        (pa.table({"T": [NOON], "must": [1]}), "did you mean 't'"),
        (pa.table({"must": [1]}), "lacks 't'"),
        (pa.table({"t": [NOON]}), "lacks 'must'"),
        (pa.table([[NOON], [NOON], [1]], names=["t", "t", "must"]), "more than once: t"),
        ([{**ROW, "nope": 1}], "'nope' in row 1"),
        ([ROW, {**ROW, 5: 1}], "row 2"),
        ([ROW, 5], "int in row 2"),
        (ROW, "put it into a list"),
        (5, "found int"),
        ("text", "found str"),
        (None, "found NoneType"),
    ],
)
def test_wrong_columns_are_refused(data, words):
    with pytest.raises(SchemaMismatch) as caught:
        one(data)
    assert words in str(caught.value)


@pytest.mark.parametrize("position", [0, 1, 499, 500, 998])
def test_the_row_of_a_bad_value_is_found(position):
    rows = [{**ROW, "n": i} for i in range(999)]
    table = pa.Table.from_pylist(rows)
    values: list[object] = list(range(999))
    values[position] = 2**40
    bad = table.set_column(table.schema.get_field_index("n"), "n", pa.array(values))
    with pytest.raises(InvalidData) as caught:
        one(bad)
    assert caught.value.row == position + 1
    rows[position] = {**ROW, "n": 1.5}
    with pytest.raises(InvalidData) as caught:
        one(rows)
    assert caught.value.row == position + 1
    rows[position] = {**ROW, "t": "soon"}
    with pytest.raises(InvalidData) as caught:
        one(rows)
    assert caught.value.row == position + 1


def test_pandas_means_missing_by_nan_and_nat():
    frame = pandas.DataFrame({"t": [NOON, NOON], "x": [1.0, np.nan], "must": [1, 2]})
    assert one(frame).column("x").to_pylist() == [1.0, None]
    frame.loc[1, "t"] = pandas.NaT
    with pytest.raises(InvalidData, match="the time is missing in row 2"):
        one(frame)
    with pytest.raises(SchemaMismatch, match="cannot be read"):
        one(pandas.DataFrame({"t": [NOON, 5], "must": [1, "a"]}))


def test_arrow_and_lists_keep_nan():
    rows = one([{**ROW, "x": math.nan}, {**ROW, "x": None}]).column("x").to_pylist()
    assert math.isnan(rows[0])
    assert rows[1] is None


def test_a_reader_is_taken_in_parts_and_rows_are_counted_through(monkeypatch):
    monkeypatch.setattr(tables, "CHUNK_BYTES", 2_000)
    table = pa.Table.from_pylist([{**ROW, "n": i} for i in range(500)])
    parts = list(tables_of(pa.RecordBatchReader.from_batches(
        table.schema, table.to_batches(max_chunksize=20)), SCHEMA))  # fmt: skip
    assert len(parts) > 3
    assert pa.concat_tables(parts).column("n").to_pylist() == list(range(500))
    values: list[object] = list(range(500))
    values[321] = 2**40
    bad = table.set_column(table.schema.get_field_index("n"), "n", pa.array(values))
    reader = pa.RecordBatchReader.from_batches(bad.schema, bad.to_batches(max_chunksize=20))
    with pytest.raises(InvalidData) as caught:
        list(tables_of(reader, SCHEMA))
    assert caught.value.row == 322


def test_a_refused_append_stores_nothing(tmp_path):
    with chronicle.open(tmp_path) as db:
        stream = db.create_stream("s", ARROW, time="t")
        for bad in ([ROW, {**ROW, "n": 1.5}], pa.table({"t": [NOON, None], "must": [1, 2]})):
            with pytest.raises((InvalidData, SchemaMismatch)):
                stream.append(bad)
        assert stream.count == 0
        done = stream.append([ROW, {**ROW, "t": NOON - dt.timedelta(days=1)}])
        assert (done.appended, done.count) == (2, 2)
        assert stream.append([{**ROW, "t": NOON - dt.timedelta(days=2)}]).late == 1
