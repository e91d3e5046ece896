"""Parquet's 96-bit times: exact in every year, in columns, lists and structs, or told."""

from __future__ import annotations

import datetime as dt
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chronicle.formats.chunks import BadRow
from chronicle.formats.layout import Layout
from chronicle.formats.reader import EventReader
from chronicle.schema import StreamSchema
from chronicle.tests.reading import read_batches

FAR = [dt.datetime(1000, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None]
NEAR = [dt.datetime(2020, 1, 1, 0, 0, 0, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), None]
FINE = pa.array([1_577_836_800_000_000_001, -1, None]).cast(pa.timestamp("ns"))


def read(columns: dict[str, Any], **more: Any) -> tuple[pa.Table, list[BadRow]]:
    out, bad = io.BytesIO(), []
    table = pa.table({"t": range(3), **columns})
    pq.write_table(table, out, use_deprecated_int96_timestamps=True)
    layout = Layout(time=more.pop("time", "t"))
    reader = EventReader(out.getvalue(), "parquet", layout=layout, on_bad=bad.append, **more)
    return pa.Table.from_batches(list(reader)), bad


@pytest.mark.parametrize("values", [FAR, NEAR])
def test_microseconds_where_they_hold_a_time(values: list[Any]) -> None:
    us = pa.timestamp("us")
    table, bad = read(
        {
            "x": pa.array(values, us),
            "x.y": pa.array(values, us),
            "l": pa.array([[value, None] for value in values], pa.list_(us)),
            "s": pa.array(
                [{"a": value, "n": 1} for value in values],
                pa.struct([("a", us), ("n", pa.int64())]),
            ),
        }
    )
    assert not bad
    assert table["x"].to_pylist() == table["x.y"].to_pylist() == values
    assert table["l"].to_pylist() == [[value, None] for value in values]
    assert [row["a"] for row in table["s"].to_pylist()] == values


def test_nanoseconds_where_they_are_there() -> None:
    table, bad = read({"x": FINE, "l": pa.array([[1], [-1], None], pa.list_(pa.timestamp("ns")))})
    assert not bad
    assert table["x"].combine_chunks().cast(pa.int64()).equals(FINE.cast(pa.int64()))
    assert table["l"].type.value_type == pa.timestamp("ns")
    assert [x.value for x in table["l"][1]] == [-1]


def test_a_far_time_is_the_time_of_an_event() -> None:
    table, bad = read({"x": pa.array(FAR, pa.timestamp("us"))}, time="x")
    assert table["x"].to_pylist() == FAR[:2]
    assert [row.row for row in bad] == [3]  # which has none


@pytest.mark.parametrize(
    ("unit", "kept", "refused"),
    [("us", "9999-12-31 23:59:59.999999", 2), ("ns", "2020-01-01 00:00:00.000000001", 1)],
)
def test_of_times_that_no_unit_holds_all_of_some_are_bad_values(
    unit: str, kept: str, refused: int
) -> None:
    """A far time beside one of nanoseconds, which is written into the bytes of the file."""
    out, bad = io.BytesIO(), []
    values = [FAR[1], dt.datetime(2020, 1, 1)]
    table = pa.table({"t": [0, 1], "x": pa.array(values, pa.timestamp("us"))})
    pq.write_table(table, out, use_deprecated_int96_timestamps=True, compression="none",
                   use_dictionary=False, write_statistics=False)  # fmt: skip
    midnight = (0).to_bytes(8, "little") + (2_458_850).to_bytes(4, "little")
    assert out.getvalue().count(midnight) == 1
    data = out.getvalue().replace(midnight, (1).to_bytes(8, "little") + midnight[8:])
    fields = [pa.field("t", pa.int64(), False), pa.field("x", pa.timestamp(unit))]
    batches = read_batches(
        data, "parquet", schema=StreamSchema(pa.schema(fields), "t"), time_format="ticks",
        on_bad=bad.append,
    )  # fmt: skip
    assert [str(x) for batch in batches for x in batch["x"]] == [kept]
    assert [(row.row, row.column) for row in bad] == [(refused, "x")]
