"""Types between streams and DataFrames: exact or an error; no Spark session needed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from chronicle.errors import InvalidData, SchemaMismatch, UnsupportedType
from chronicle.schema import StreamSchema

T = pytest.importorskip("pyspark.sql.types", reason="pyspark is not installed")
types = pytest.importorskip("chronicle.spark_connector.types")

UTC = dt.timezone.utc


def convert(array: pa.Array, wanted: object | None = None, nullable: bool = True) -> pa.Array:
    schema = pa.schema([pa.field("x", array.type, nullable)])
    spark = types.spark_schema(schema)
    if wanted is not None:
        spark = T.StructType([T.StructField("x", wanted, nullable)])
    out = types.ReadConversion(schema, spark)(pa.record_batch([array], schema=schema))
    assert out.schema.equals(types.arrow_schema(spark))
    return out.column(0)


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.bool_(), [True, None]),
        (pa.int8(), [-128, 127, None]),
        (pa.int64(), [-(2**63), 2**63 - 1]),
        (pa.uint8(), [0, 255]),
        (pa.uint16(), [0, 65_535]),
        (pa.uint32(), [0, 2**32 - 1]),
        (pa.float32(), [1.5, None]),
        (pa.float64(), [float("inf"), -0.0]),
        (pa.large_string(), ["ä", "", None]),
        (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "a"]),
        (pa.large_binary(), [b"\x00", None]),
        (pa.date32(), [dt.date(1969, 12, 31)]),
        (pa.date64(), [dt.date(1969, 12, 31), None]),
        (pa.timestamp("s"), [dt.datetime(2018, 8, 1)]),
        (pa.timestamp("ms", "UTC"), [dt.datetime(1969, 8, 1, 0, 0, 0, 1000, UTC)]),
        (pa.timestamp("us"), [dt.datetime(2018, 8, 1, 0, 0, 0, 1), None]),
        (pa.decimal128(20, 3), [Decimal("12345678901234567.891")]),
    ],
)
def test_values_survive(type_: pa.DataType, values: list[object]) -> None:
    assert convert(pa.array(values, type_)).to_pylist() == values


def test_uint64_becomes_a_decimal() -> None:
    assert convert(pa.array([2**64 - 1], pa.uint64())).to_pylist() == [Decimal(2**64 - 1)]


def test_zones_keep_the_instant() -> None:
    array = pa.array([1_533_101_250_000_000], pa.timestamp("us", "America/New_York"))
    out = convert(array)
    assert out.type == pa.timestamp("us", "UTC")
    assert out.cast(pa.int64()).to_pylist() == [1_533_101_250_000_000]


def test_naive_time_is_utc_when_an_instant_is_asked_for() -> None:
    out = convert(pa.array([5], pa.timestamp("s")), T.TimestampType())
    assert out.type == pa.timestamp("us", "UTC")
    assert out.cast(pa.int64()).to_pylist() == [5_000_000]


def test_nanoseconds_are_exact_or_an_error() -> None:
    assert convert(pa.array([2000], pa.timestamp("ns"))).cast(pa.int64()).to_pylist() == [2]
    with pytest.raises(InvalidData, match="'x' holds a time"):
        convert(pa.array([2001], pa.timestamp("ns", "UTC")))


def test_times_beyond_64_bit_microseconds_are_an_error() -> None:
    with pytest.raises(InvalidData, match="'x' holds a time"):
        convert(pa.array([2**62], pa.timestamp("s")))


def test_a_date64_with_a_time_of_day_is_an_error() -> None:
    array = pa.array([86_400_000, 86_400_001]).view(pa.date64())
    with pytest.raises(InvalidData, match="time of day"):
        convert(array)


def test_types_without_a_counterpart_are_named() -> None:
    with pytest.raises(UnsupportedType, match="column 'd'"):
        types.spark_schema(pa.schema([("d", pa.decimal128(5, -2))]))


def test_a_user_schema_prunes_reorders_widens_and_respells() -> None:
    source = pa.schema([("a", pa.int16()), ("b", pa.float32()), ("c", pa.string())])
    wanted = T.StructType().add("C", "string").add("a", "long")
    conversion = types.ReadConversion(source, wanted)
    assert conversion.columns == ["c", "a"]
    batch = pa.record_batch([pa.array([7], pa.int16()), pa.array(["x"])], names=["a", "c"])
    assert conversion(batch).to_pydict() == {"C": ["x"], "a": [7]}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("integer", "asks for a column 'y'"),
        ("byte", "read it as it is"),
        ("string", "cast it in Spark"),
    ],
)
def test_a_user_schema_that_does_not_fit_is_refused(wanted: str, message: str) -> None:
    name = "y" if wanted == "integer" else "x"
    with pytest.raises(SchemaMismatch, match=message):
        types.ReadConversion(pa.schema([("x", pa.int32())]), T.StructType().add(name, wanted))


def test_nulls_do_not_slip_into_a_column_declared_without() -> None:
    with pytest.raises(InvalidData, match="holds nulls"):
        convert(pa.array([None], pa.int32()), T.IntegerType(), nullable=False)


STREAM = StreamSchema(
    pa.schema([("t", pa.timestamp("ms", "UTC")), ("v", pa.int16()), ("u", pa.uint8())]), "t"
)


def spark_batch(zone: str, **columns: pa.Array) -> pa.RecordBatch:
    arrays = {"t": pa.array([1000, 2000], pa.timestamp("us", zone)), **columns}
    return pa.record_batch(list(arrays.values()), names=list(arrays))


def test_writing_keeps_instants_whatever_the_session_zone_and_fills_nulls() -> None:
    given = T.StructType().add("V", "integer").add("T", "timestamp")
    conversion = types.WriteConversion(given, STREAM)
    batch = pa.record_batch(
        [pa.array([1, 2], pa.int32()), pa.array([1000, 2000], pa.timestamp("us", "Asia/Tokyo"))],
        names=["V", "T"],
    )
    out = conversion(batch)
    assert out.schema == STREAM.arrow
    assert out.column(0).cast(pa.int64()).to_pylist() == [1, 2]
    assert out.column(1).to_pylist() == [1, 2]
    assert out.column(2).null_count == 2


def test_writing_refuses_what_does_not_fit() -> None:
    with pytest.raises(SchemaMismatch, match="requires a column 't'"):
        types.WriteConversion(T.StructType().add("v", "integer"), STREAM)
    with pytest.raises(SchemaMismatch, match="no column w"):
        types.WriteConversion(T.StructType().add("t", "timestamp").add("w", "integer"), STREAM)
    with pytest.raises(SchemaMismatch, match="'v' is int16"):
        types.WriteConversion(T.StructType().add("t", "timestamp").add("v", "string"), STREAM)
    given = T.StructType().add("t", "timestamp").add("v", "integer")
    conversion = types.WriteConversion(given, STREAM)
    with pytest.raises(InvalidData, match="'v' does not fit"):
        conversion(spark_batch("UTC", v=pa.array([1, 40_000], pa.int32())))
    batch = spark_batch("UTC", v=pa.array([1, 2], pa.int32()))
    with pytest.raises(InvalidData, match="must not be null"):
        conversion(batch.set_column(0, "t", pa.array([None, 1], pa.timestamp("us", "UTC"))))
    with pytest.raises(InvalidData, match="'t' does not fit"):
        conversion(
            pa.record_batch(
                [pa.array([1500], pa.timestamp("us", "UTC")), pa.array([1], pa.int32())],
                names=["t", "v"],
            )
        )


def test_json_lists_and_structs() -> None:
    inner = pa.struct([("n", pa.uint8()), ("w", pa.timestamp("ms"))])
    values = [[{"n": 1, "w": dt.datetime(2026, 3, 1)}, None], None, []]
    assert convert(pa.array(values, pa.list_(inner))).to_pylist() == values
    text = pa.array(['{"a":1}', None])
    assert convert(pa.ExtensionArray.from_storage(pa.json_(), text)).to_pylist() == text.to_pylist()
    with pytest.raises(InvalidData, match="'x' holds a time"):
        convert(pa.array([[2001]], pa.list_(pa.timestamp("ns"))))

    stream = StreamSchema(
        pa.schema([("t", pa.int64()), ("j", pa.json_()), ("x", pa.list_(inner))]), "t"
    )
    given = types.spark_schema(stream.arrow)
    assert [field.dataType.simpleString() for field in given] == [
        "bigint", "string", "array<struct<n:smallint,w:timestamp_ntz>>",
    ]  # fmt: skip
    write = types.WriteConversion(given, stream)
    batch = pa.record_batch(
        [pa.array([1]), pa.array([' {"a": 1}']), convert(pa.array(values[:1], pa.list_(inner)))],
        names=["t", "j", "x"],
    )
    assert write(batch).to_pylist() == [{"t": 1, "j": '{"a":1}', "x": values[0]}]
    with pytest.raises(InvalidData, match=r"column 'j': expected JSON, found '\{a'"):
        write(batch.set_column(1, "j", pa.array(["{a"])))
    wrong = T.StructType().add("t", "long").add("j", T.StructType().add("a", "long"))
    with pytest.raises(SchemaMismatch, match=r"'j' is JSON in the stream.*to_json"):
        types.WriteConversion(wrong, stream)
