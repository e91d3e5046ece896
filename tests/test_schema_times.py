"""Times given as text: exact beyond microseconds, or an error."""

from __future__ import annotations

import pyarrow as pa
import pytest

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


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("us", "2018-08-01T05:00:00.0000001"),
        ("us", "2018-08-01T05:00:00.123456789Z"),
        ("ns", "2018-08-01T05:00:00.0000000001"),
        ("s", "2018-08-01T05:00:00.5"),
        ("ns", "soon.1234567"),
    ],
)
def test_nothing_is_rounded_in_silence(unit: str, text: str) -> None:
    with pytest.raises(InvalidArgument):
        schema_of(unit).to_ticks(text)


def test_zeros_beyond_the_unit_are_no_digits() -> None:
    assert schema_of("us").to_ticks("2018-08-01T05:00:00.123456000") == SECOND * 10**6 + 123_456
