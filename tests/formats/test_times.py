"""What a time column's values mean: rules, magnitudes, patterns, what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from chronicle.errors import InvalidArgument, InvalidData
from chronicle.formats.times import TimeRule, convert, decide, parse_time_format

US = pa.timestamp("us")
MS_2018 = 1_533_101_250_000


def as_text(array: pa.Array) -> list[str | None]:
    return array.cast(pa.string()).to_pylist()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("as_type", [pa.int64(), pa.string(), pa.float64()])
def test_auto_tells_the_unit_from_the_magnitude(unit: str, as_type: pa.DataType) -> None:
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    values = pa.array([1_533_101_250 * factor, 1_533_101_260 * factor]).cast(as_type, safe=False)
    decision = decide(values, TimeRule("auto"), column="t")
    assert decision.rule == TimeRule("epoch", unit=unit, assumed=True)
    assert decision.note is not None
    assert "--time-format " + unit in decision.note
    result = convert(values, decision.rule, US, required=True)
    assert result.codes is None
    assert as_text(result.values) == ["2018-08-01 05:27:30.000000", "2018-08-01 05:27:40.000000"]


@pytest.mark.parametrize(
    "values",
    [[0, 1, 2], [315_532_799, 1_533_101_250], [1_533_101_250, MS_2018], [-5, 1_533_101_250]],
)
def test_numbers_that_are_no_epoch_stay_ticks(values: list[int]) -> None:
    decision = decide(pa.array(values), TimeRule("auto"), column="t")
    assert decision.rule == TimeRule("ticks")
    assert decision.type == pa.int64()
    assert "plain integer ticks" in (decision.note or "")
    assert convert(
        pa.array(values), decision.rule, pa.int64(), required=True
    ).values.to_pylist() == (values)


def test_numbers_for_a_timestamp_stream_need_a_unit_when_implausible() -> None:
    with pytest.raises(InvalidData, match="pass time_format="):
        decide(pa.array([5, 6]), TimeRule("auto"), column="t", wanted=US)


def test_an_assumed_unit_refuses_other_magnitudes_a_given_one_does_not() -> None:
    values = pa.array([MS_2018, 0, None, 10**18])
    assumed = convert(values, TimeRule("epoch", "ms", assumed=True), US, required=True)
    assert assumed.codes is not None
    assert (assumed.codes != 0).tolist() == [False, True, True, True]
    given = convert(values, TimeRule("epoch", "ms"), US, required=False)
    assert given.codes is not None
    assert (given.codes != 0).tolist() == [False, False, False, True]  # 10**21 us: too far
    assert as_text(given.values)[1] == "1970-01-01 00:00:00.000000"


def test_float_seconds_are_rounded_to_the_unit() -> None:
    values = pa.array([1_533_101_250.125, 1_533_101_250.0000004, float("nan"), float("inf")])
    result = convert(values, TimeRule("epoch", "s"), US, required=True)
    assert as_text(result.values)[:2] == [
        "2018-08-01 05:27:30.125000",
        "2018-08-01 05:27:30.000000",
    ]
    assert result.codes is not None
    assert [result.reasons[c - 1] for c in result.codes[2:]] == [
        "expected a time, found {value}, which is not a finite number"
    ] * 2


def test_finer_than_the_unit_is_refused_not_rounded() -> None:
    texts = pa.array(["2018-08-01T05:00:00.1234567", "2018-08-01T05:00:00.123456"])
    result = convert(texts, TimeRule("iso"), US, required=True)
    assert result.codes is not None
    assert (result.codes != 0).tolist() == [True, False]
    assert decide(texts, TimeRule("auto"), column="t").type == pa.timestamp("ns")
    stamps = pa.array([1, 1000], pa.timestamp("ns"))
    codes = convert(stamps, TimeRule("iso"), US, required=True).codes
    assert codes is not None
    assert (codes != 0).tolist() == [True, False]


def test_offsets_become_utc_and_are_mentioned() -> None:
    texts = pa.array(["2018-08-01T05:00:00+02:00", "2018-08-01T05:00:00Z", "2018-08-01 05:00:00"])
    decision = decide(texts, TimeRule("auto"), column="t")
    assert "UTC" in (decision.note or "")
    assert as_text(convert(texts, decision.rule, US, required=True).values) == [
        "2018-08-01 03:00:00.000000",
        "2018-08-01 05:00:00.000000",
        "2018-08-01 05:00:00.000000",
    ]


def test_iso_refuses_numbers_and_says_so() -> None:
    for values in (pa.array([MS_2018]), pa.array([str(MS_2018)])):
        result = convert(values, TimeRule("iso"), US, required=True)
        assert result.codes is not None
        assert "without a unit" in result.reasons[result.codes[0] - 1]


def test_a_unit_accepts_iso_text_beside_numbers() -> None:
    values = pa.array([str(MS_2018), "2018-08-01T05:27:30Z", "x", None])
    result = convert(values, TimeRule("epoch", "ms"), US, required=True)
    assert as_text(result.values)[0] == as_text(result.values)[1] == "2018-08-01 05:27:30.000000"
    assert result.codes is not None
    assert (result.codes != 0).tolist() == [False, False, True, True]


def test_ns_bounds() -> None:
    texts = pa.array(["2262-04-11T00:00:00", "2263-01-01", "1600-01-01"])
    codes = convert(texts, TimeRule("iso"), pa.timestamp("ns"), required=True).codes
    assert codes is not None
    assert (codes != 0).tolist() == [False, True, True]
    assert convert(texts, TimeRule("iso"), US, required=True).codes is None


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("%d.%m.%Y %H:%M:%S", "01.08.2018 05:27:30", "2018-08-01 05:27:30.000000"),
        ("%d.%m.%Y %H:%M:%S.%f", "01.08.2018 05:27:30.25", "2018-08-01 05:27:30.250000"),
        ("%Y%m%d", "20180801", "2018-08-01 00:00:00.000000"),
        ("%b %d %Y %I:%M %p", "Aug 01 2018 05:27 PM", "2018-08-01 17:27:00.000000"),
        ("%Y-%m-%d %H:%M:%S %z", "2018-08-01 05:27:30 +0200", "2018-08-01 03:27:30.000000"),
        ("%Y-%m-%d %H:%M:%S%z", "2018-08-01 05:27:30Z", "2018-08-01 05:27:30.000000"),
        ("it's %Y", "it's 2018", "2018-01-01 00:00:00.000000"),
    ],
)
def test_patterns(pattern: str, text: str, expected: str) -> None:
    rule = parse_time_format(pattern)
    result = convert(pa.array([text, "nonsense", None]), rule, US, required=False)
    assert as_text(result.values) == [expected, None, None]
    assert result.codes is not None
    assert (result.codes != 0).tolist() == [False, True, False]


@pytest.mark.parametrize("text", ["", "seconds-ish", "%Q", "yyyy-mm-dd"])
def test_unusable_formats(text: str) -> None:
    with pytest.raises(InvalidArgument, match="time format"):
        parse_time_format(text)


def test_ticks_take_whole_numbers_only() -> None:
    rule = TimeRule("ticks")
    floats = convert(pa.array([1.0, 1.5, 1e300, float("nan")]), rule, pa.int64(), required=True)
    assert floats.codes is not None
    assert (floats.codes != 0).tolist() == [False, True, True, True]
    texts = convert(pa.array(["1", "-2", "+3", "x"]), rule, pa.int64(), required=True)
    assert texts.values.to_pylist() == [1, -2, 3, None]
    big = convert(pa.array([2**64 - 1], pa.uint64()), rule, pa.int64(), required=True)
    assert big.bad == 1


def test_a_column_without_times_is_refused() -> None:
    with pytest.raises(InvalidData, match="does not hold times"):
        decide(pa.array(["a", "b", "c"]), TimeRule("auto"), column="t")


@pytest.mark.parametrize(
    ("texts", "advice"),
    [
        (["01.02.2024 08:00:00", "nothing", "03.02.2024 08:00:00"], "'%d.%m.%Y %H:%M:%S' reads"),
        (["1/2/2024", "3/4/2024"], "'%d/%m/%Y' or '%m/%d/%Y': which is it"),
        (["1/2/2024", "3/14/2024"], "'%m/%d/%Y' reads them"),
        (["25-12-2024 1:30 PM"], "'%d-%m-%Y %I:%M %p' reads them"),
        (["yesterday", "01.02.2024"], "a pattern such as"),
    ],
)
def test_the_pattern_to_give_is_said(texts: list[str], advice: str) -> None:
    with pytest.raises(InvalidData) as caught:
        decide(pa.array(texts), TimeRule("auto"), column="t")
    assert f"pass time_format= ({advice}" in str(caught.value)
    if advice.startswith("'"):
        parse_time_format(advice.split("'")[1])


def test_dates_and_zoned_timestamps() -> None:
    days = pa.array([17744], pa.int32()).cast(pa.date32())
    assert as_text(convert(days, TimeRule("iso"), US, required=True).values) == [
        "2018-08-01 00:00:00.000000"
    ]
    zoned = pa.array([0], pa.timestamp("ms", "Europe/Berlin"))
    assert decide(zoned, TimeRule("auto"), column="t").type == zoned.type
    assert as_text(convert(zoned, TimeRule("iso"), US, required=True).values) == [
        "1970-01-01 00:00:00.000000"
    ]
