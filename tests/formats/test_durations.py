"""Intervals on every way out: ISO 8601 in text, durations in Arrow and Parquet, months told."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chronicle
from chronicle.core.times import as_duration, iso_text, only_durations
from chronicle.errors import InvalidArgument, ResourceLimit
from chronicle.formats.writers import encode, shown_columns
from chronicle.query.sql.sql_types import SETTLED_ROWS, conform, settle_types

DAY = 86_400_000_000_000
PARTS = st.tuples(
    st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**62), 2**62)
)
FIELD = r"(?:(-?\d+){})?"
ISO = re.compile(
    "P" + "".join(FIELD.format(c) for c in "YMD")
    + "(?:T" + "".join(FIELD.format(c) for c in "HM") + r"(?:(-?)(\d+)(?:\.(\d{1,9}))?S)?)?"
)  # fmt: skip


def parts_of(text: str) -> tuple[int, int, int]:
    """Months, days and nanoseconds of an ISO 8601 duration."""
    match = ISO.fullmatch(text)
    assert match is not None, text
    years, months, days, hours, minutes = (int(group or 0) for group in match.groups()[:5])
    sign, whole, digits = match.groups()[5:]
    seconds = int(whole or 0) * 10**9 + int((digits or "0").ljust(9, "0"))
    seconds = -seconds if sign else seconds
    return years * 12 + months, days, (hours * 3600 + minutes * 60) * 10**9 + seconds


@settings(deadline=None)
@given(st.lists(st.none() | PARTS | st.tuples(st.just(0), st.just(0), st.integers(-9, 9))))
def test_interval_text_says_every_part(values: list[tuple[int, int, int] | None]) -> None:
    array = pa.array(values, pa.month_day_nano_interval())
    for cut in (array, array.slice(1)):
        found = [None if text is None else parts_of(text) for text in iso_text(cut).to_pylist()]
        assert found == values[len(values) - len(cut) :]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_duration_text_says_the_length(unit: str, values: list[int | None]) -> None:
    texts = iso_text(pa.array(values, pa.duration(unit))).to_pylist()
    scale = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit]
    for value, text in zip(values, texts, strict=True):
        if value is None:
            assert text is None
        elif value != -(2**63):
            months, days, nanos = parts_of(text)
            assert (months, days * DAY + nanos) == (0, value * scale)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((0, 0, 0), "PT0S"),
        ((14, 3, 4 * 3600 * 10**9 + 500_000_000), "P1Y2M3DT4H0.5S"),
        ((0, -1, -2 * 3600 * 10**9), "P-1DT-2H"),
        ((0, 0, -500_000_000), "PT-0.5S"),
        ((0, 0, 61_000_000_000), "PT1M1S"),
    ],
)
def test_how_intervals_are_written(parts: tuple[int, int, int], text: str) -> None:
    assert iso_text(pa.array([parts], pa.month_day_nano_interval())).to_pylist() == [text]


def test_only_lengths_in_microseconds_become_durations() -> None:
    type_ = pa.month_day_nano_interval()
    fits = pa.array([(0, 1, 1000), None, (0, -1, 0)], type_)
    assert as_duration(fits).cast(pa.int64()).to_pylist() == [86_400_000_001, None, -86_400_000_000]
    with pytest.raises(ResourceLimit, match="292 years"):
        only_durations(pa.array([(0, 0, 1)], type_))
    for parts in ((1, 0, 0), (0, 2**31 - 1, 0)):
        assert not only_durations(pa.array([parts], type_))
        with pytest.raises(pa.ArrowInvalid):
            as_duration(pa.array([parts], type_))


# ------------------------------------------------------------------------------------- results


@pytest.fixture
def database(tmp_path: Path) -> Iterator[chronicle.Database]:
    with chronicle.open(tmp_path / "s") as found:
        stream = found.create_stream(
            "s", pa.schema([pa.field("t", pa.timestamp("us"), False), ("x", pa.int32())]), time="t"
        )
        noon = dt.datetime(2020, 1, 1, 12)
        stream.append([{"t": noon + dt.timedelta(hours=h), "x": h} for h in (0, 1, 30)])
        yield found


DIFFERENCES = "SELECT t - TIMESTAMP '2020-01-01 12:00:00' AS d FROM s"
MONTHS = "SELECT INTERVAL '1' MONTH * x AS d FROM s"


def test_differences_of_times_are_durations(database: chronicle.Database) -> None:
    result = database.sql(DIFFERENCES)
    assert result.schema.field("d").type == pa.duration("us")
    hours = [dt.timedelta(hours=h) for h in (0, 1, 30)]
    assert result.arrow().column("d").to_pylist() == hours
    assert database.sql(DIFFERENCES).fetchall() == [(hour,) for hour in hours]
    assert database.sql(DIFFERENCES).df()["d"].tolist() == hours
    assert database.sql(DIFFERENCES).pl()["d"].to_list() == hours


def written(database: chronicle.Database, query: str, format: str) -> bytes:
    result = database.sql(query)
    return b"".join(encode(result.batches(), result.schema, format))


def test_intervals_in_every_format(database: chronicle.Database) -> None:
    texts = ["PT0S", "PT1H", "P1DT6H"]
    assert json.loads(written(database, DIFFERENCES, "json")) == [{"d": text} for text in texts]
    rows = list(csv.reader(io.StringIO(written(database, DIFFERENCES, "csv").decode())))
    assert rows == [["d"], *([text] for text in texts)]
    table = pq.read_table(io.BytesIO(written(database, DIFFERENCES, "parquet")))
    assert table.schema.field("d").type == pa.duration("us")
    arrow = pa.ipc.open_stream(written(database, DIFFERENCES, "arrow")).read_all()
    assert arrow.column("d").to_pylist() == [dt.timedelta(hours=h) for h in (0, 1, 30)]
    batch = database.sql(DIFFERENCES).arrow().to_batches()[0]
    assert shown_columns(batch) == [texts]


def test_intervals_with_months_are_kept_in_text_and_told_elsewhere(
    database: chronicle.Database,
) -> None:
    texts = ["PT0S", "P1M", "P2Y6M"]
    assert json.loads(written(database, MONTHS, "json")) == [{"d": text} for text in texts]
    assert written(database, MONTHS, "csv").decode().split() == ["d", *texts]
    result = database.sql(MONTHS)
    assert pa.types.is_interval(result.schema.field("d").type)
    with pytest.raises(InvalidArgument, match=r"months.*CAST\(d AS VARCHAR\)"):
        written(database, MONTHS, "parquet")
    for sql in (MONTHS, "SELECT [INTERVAL 1 DAY] AS d"):
        with pytest.raises(InvalidArgument, match="months"):
            database.sql(sql).pl()
    (long,) = database.sql("SELECT to_days(2147483647)").fetchone()  # beyond a timedelta
    assert (long.months, long.days) == (0, 2147483647)


def test_intervals_inside_lists_are_text_too(database: chronicle.Database) -> None:
    query = "SELECT [INTERVAL '1' MONTH, INTERVAL '2' HOUR] AS d FROM s LIMIT 1"
    assert json.loads(written(database, query, "json")) == [{"d": ["P1M", "PT2H"]}]


def test_months_that_come_late_end_the_result() -> None:
    schema = pa.schema([("d", pa.month_day_nano_interval())])
    day, month = (pa.scalar(parts, schema.field("d").type) for parts in ((0, 1, 0), (1, 0, 0)))
    early = pa.record_batch([pa.repeat(day, SETTLED_ROWS)], schema=schema)
    late = pa.record_batch([pa.repeat(month, 1)], schema=schema)
    settled, batches = settle_types(iter([early, late]), schema, [])
    assert settled.field("d").type == pa.duration("us")
    conform(next(batches), settled)
    with pytest.raises(ResourceLimit, match="months"):
        conform(next(batches), settled)
