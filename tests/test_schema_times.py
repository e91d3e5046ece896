"""Times given as text: exact beyond microseconds, or an error; ticks as Python's times."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from chronicle.core.times import (
    INT64_MAX,
    INT64_MIN,
    TICKS_PER_SECOND,
    length_text,
    time_of,
    times_of,
)
from chronicle.errors import InvalidArgument
from chronicle.schema import StreamSchema

SECOND = 1_533_099_600


def schema_of(unit: str) -> StreamSchema:
    return StreamSchema(pa.schema([("t", pa.timestamp(unit))]), "t")


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("2018-08-01T05:00:00", 0),
        ("2018-08-01T05:00:00.5", 500_000_000),
        ("2018-08-01T05:00:00.123456", 123_456_000),
        ("2018-08-01T05:00:00.123456789", 123_456_789),
        ("2018-08-01T05:00:00.1234567", 123_456_700),
        ("2018-08-01T07:00:00.123456789+02:00", 123_456_789),
        ("2018-08-01 05:00:00.000000001Z", 1),
        ("2018-08-01T05:00:00.00000000100", 1),
    ],
)
def test_every_digit_counts(text: str, nanoseconds: int) -> None:
    assert schema_of("ns").to_ticks(text) == SECOND * 10**9 + nanoseconds


@pytest.mark.parametrize("unit", ["h", "m", "s", "us", "ns"])
def test_times_of_numpy_have_any_unit(unit: str) -> None:
    value = np.datetime64("2018-08-01T05", unit)
    assert schema_of("us").to_ticks(value) == SECOND * 10**6
    assert schema_of("s").to_ticks(value.astype("datetime64[D]")) == SECOND - 5 * 3600


@pytest.mark.parametrize("value", [np.datetime64("NaT"), np.datetime64("NaT", "us"), pd.NaT])
def test_a_missing_time_is_no_time(value: object) -> None:
    with pytest.raises(InvalidArgument, match="expected a time"):
        schema_of("us").to_ticks(value)


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("us", "2018-08-01T05:00:00.0000001"),
        ("us", "2018-08-01T05:00:00.123456789Z"),
        ("ns", "2018-08-01T05:00:00.0000000001"),
        ("s", "2018-08-01T05:00:00.5"),
        ("ns", "soon.1234567"),
        ("us", "\ud800"),
        ("us", pa.scalar(2**62, pa.duration("s"))),
    ],
)
def test_nothing_is_rounded_in_silence(unit: str, text: object) -> None:
    with pytest.raises(InvalidArgument):
        schema_of(unit).to_ticks(text)


def test_zeros_beyond_the_unit_are_no_digits() -> None:
    assert schema_of("us").to_ticks("2018-08-01T05:00:00.123456000") == SECOND * 10**6 + 123_456


@pytest.mark.parametrize("zone", [None, "UTC", "+05:30", "Europe/Berlin"])
@pytest.mark.parametrize("unit", TICKS_PER_SECOND)
def test_ticks_are_what_arrow_makes_of_them(unit: str, zone: str | None) -> None:
    """In microseconds, since it makes pandas' times of nanoseconds."""
    type_ = pa.timestamp(unit, zone)
    seconds = (SECOND, SECOND + 15_000_000, -1, 0, -7_000_000_000)
    ticks = [second * TICKS_PER_SECOND[unit] for second in seconds]
    column = pa.chunked_array([pa.array([*ticks, None], pa.int64()).cast(type_)])
    expected = column.cast(pa.timestamp("us", zone)).to_pylist()
    found = times_of(column)
    assert found == expected
    assert [time_of(tick, type_) for tick in ticks] == expected[:-1]
    for moment, other in zip(found[:-1], expected[:-1], strict=True):
        assert isinstance(moment, dt.datetime)
        assert moment.utcoffset() == other.utcoffset()


@pytest.mark.parametrize(
    ("unit", "tick"), [("ns", 1), ("ns", INT64_MAX), ("us", INT64_MIN), ("s", INT64_MAX)]
)
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_ticks_without_a_datetime_are_scalars(unit: str, tick: int, zone: str | None) -> None:
    expected = pa.scalar(tick, pa.int64()).cast(pa.timestamp(unit, zone))
    assert time_of(tick, expected.type).equals(expected)  # type: ignore[attr-defined]
    assert times_of(pa.chunked_array([pa.array([tick]).cast(expected.type)])) == [expected]


def test_conversions_of_times_do_without_pandas() -> None:
    pytest.importorskip("pandas")
    asked = (
        "import sys, pyarrow as pa; from chronicle.core.times import *\n"
        "for type_ in pa.timestamp('us'), pa.timestamp('ns', 'UTC'):\n"
        "    column = pa.Array.from_buffers(type_, 2, [None, pa.py_buffer(bytes(16))])\n"
        "    time_of(1, type_), times_of(pa.chunked_array([column]))\n"
        "from chronicle.isolation.fork_server import do_without_pandas; do_without_pandas()\n"
        "print('pandas' in sys.modules, value_text(pa.scalar(1, pa.duration('ns'))))\n"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False 1 as duration[ns]"


@pytest.mark.parametrize(
    ("ticks", "unit", "text"),
    [
        (1800, "s", "30 minutes"),
        (3_661_500, "ms", "1 hour 1 minute 1 second 500 milliseconds"),
        (-86_400_000_000, "us", "-1 day"),
        (1_001, "ns", "1 microsecond 1 nanosecond"),
        (0, "us", "0 seconds"),
    ],
)
def test_lengths_of_time_are_words(ticks: int, unit: str, text: str) -> None:
    assert length_text(ticks, pa.timestamp(unit)) == text
    assert length_text(ticks, pa.int64()) == str(ticks)
