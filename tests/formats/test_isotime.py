"""ISO text to seconds and nanoseconds, against Python's own parser."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.formats.times import parse_iso

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)


def one(text: str) -> tuple[bool, int, int]:
    times = parse_iso(pa.array([text]))
    return bool(times.ok[0]), int(times.seconds[0]), int(times.nanos[0])


@given(
    st.datetimes(min_value=dt.datetime(1, 1, 2), max_value=dt.datetime(9999, 12, 30)),
    st.sampled_from([None, 0, 60, -90, 14 * 60]),
    st.sampled_from(["T", " ", "t"]),
)
def test_agrees_with_python(value: dt.datetime, offset: int | None, separator: str) -> None:
    zone = UTC if offset is None else dt.timezone(dt.timedelta(minutes=offset))
    aware = value.replace(tzinfo=zone)
    text = (value if offset is None else aware).isoformat(sep=separator)
    ok, seconds, nanos = one(text)
    assert ok
    micros = (aware - EPOCH) // dt.timedelta(microseconds=1)
    assert seconds * 1_000_000 + nanos // 1000 == micros
    assert nanos % 1000 == 0


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("2018-08-01", "2018-08-01T00:00:00"),
        ("2018/08/01 05:00", "2018-08-01T05:00:00"),
        ("20180801T050000", "2018-08-01T05:00:00"),
        ("20180801T0500", "2018-08-01T05:00:00"),
        ("  2018-08-01 05:00:00\t", "2018-08-01T05:00:00"),
        ("2018-08-01T05:00:00,25", "2018-08-01T05:00:00.250000"),
        ("2018-08-01 05:00:00,25Z", "2018-08-01T05:00:00.250000"),
        ("2021-08-06T13Z", "2021-08-06T13:00:00"),
        ("2021-08-06 13+0100", "2021-08-06T12:00:00"),
        ("20210806T13z", "2021-08-06T13:00:00"),
        ("2018-08-01 05:00:00 +0200", "2018-08-01T03:00:00"),
        ("2018-08-01T05:00:00-02", "2018-08-01T07:00:00"),
        ("2018-08-01T05:00z", "2018-08-01T05:00:00"),
        ("2018-12-31T24:00:00", "2019-01-01T00:00:00"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00"),
        ("2018-08-01T05:00:00.123456000000", "2018-08-01T05:00:00.123456"),
    ],
)
def test_variants(text: str, same_as: str) -> None:
    expected = np.datetime64(same_as, "ns").astype(np.int64)
    ok, seconds, nanos = one(text)
    assert ok
    assert seconds * 10**9 + nanos == expected


NOT_TIMES = [
    "", "x", "2018", "20180801", "2018-13-01", "2018-02-29", "1900-02-29", "2018-8-1",
    "2018-08-01T", "2018-08-01T25:00", "2018-08-01T24:00:01", "2018-08-01T05:60",
    "2018-08-01T05:00:61", "2018-08-01T05:00:00.", "2018-08-01T05:00:00.1234567891",
    "2018-08-01T05:00:00+", "2018-08-01T05:00:00+25:00", "2018-08-01T05:00:00Zx", "2018-08/01",
    "-018-08-01", "２０１８-08-01", "2018-08-01T05", "20180801T05", "2018-08-01Z",
    "2018-08-01+02:00", "2018-08-01T0500.5",
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_TIMES)
def test_not_times(text: str) -> None:
    assert not one(text)[0]


def test_slices_nulls_and_flags() -> None:
    array = pa.array(["x", "2018-08-01", None, "2018-08-01T00:00Z", "y"]).slice(1, 3)
    times = parse_iso(array)
    assert times.ok.tolist() == [True, False, True]
    assert times.has_clock.tolist() == [False, False, True]
    assert times.has_offset.tolist() == [False, False, True]
    assert parse_iso(pa.array([], pa.string())).ok.tolist() == []


DAY, CLOCK = "{0:04}-{1:02}-{2:02}", "{3:02}:{4:02}:{5:02}"
FORMS = (
    *(DAY, "{0:04}/{1:02}/{2:02} {3:02}:{4:02}", f"{DAY}T{CLOCK}", f"{DAY}t{CLOCK}.{{6:03}}Z"),
    *(f"{DAY} {CLOCK},{{6:09}} z", f"{DAY} {CLOCK} +{{3:02}}{{4:02}}", f"{DAY}T{CLOCK}-{{3:02}}"),
    *(f"{DAY}T{{3:02}}:{{4:02}}-{{3:02}}:{{4:02}}", "{0:04}{1:02}{2:02}T{3:02}{4:02}{5:02}"),
    *(f" {DAY} {CLOCK}.{{6:012}}", "word {6}", "{0:04}-{1:02}/{2:02}", f"{DAY}x{{3:02}}:{{4:02}}"),
    *(f"{DAY} {CLOCK}+{{3}}", f"{DAY}Z", f"{DAY} 05:0x:00", ""),
)


@pytest.mark.parametrize("seed", range(6))
def test_a_value_is_read_whatever_stands_beside_it(seed: int) -> None:
    random = np.random.default_rng(seed)

    def time_text() -> str:
        form = FORMS[random.integers(0, len(FORMS) if random.random() < 0.3 else 3)]
        most = (9999, 13, 32, 25, 61, 61) if random.random() < 0.2 else (2100, 12, 28, 23, 59, 59)
        least = (0,) * 6 if random.random() < 0.2 else (1970, 1, 1, 0, 0, 0)
        fields = [random.integers(a, b + 1) for a, b in zip(least, most, strict=True)]
        return form.format(*fields, random.integers(0, 1000))

    texts = [time_text() if random.random() < 0.95 else None for _ in range(300)]
    together = parse_iso(pa.array(texts))
    assert 150 < together.ok.sum() < 300
    for at, text in enumerate(texts):
        alone = parse_iso(pa.array([text], pa.string()))
        assert [part[at] for part in together] == [part[0] for part in alone], text


def test_nanoseconds_at_the_ends_of_64_bits() -> None:
    texts = ["2262-04-11T23:00:00.123456789-23:00", "1677-09-21T00:12:44.123456789+23:00"]
    times = parse_iso(pa.array(texts))
    assert times.ok.all()
    assert times.nanos.tolist() == [123456789] * 2
    days = [str(np.datetime64(int(seconds), "s")) for seconds in times.seconds]
    assert days == ["2262-04-12T22:00:00", "1677-09-20T01:12:44"]


@given(st.lists(st.one_of(st.none(), st.text(alphabet="0123456789-:TZ+. /", max_size=30))))
def test_any_text_is_survived(texts: list[str | None]) -> None:
    times = parse_iso(pa.array(texts, pa.string()))
    assert len(times.ok) == len(texts)
    assert ((times.nanos >= 0) & (times.nanos < 10**9)).all()
