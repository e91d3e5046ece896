"""Times in two columns, in several formats, by the clocks of a zone: through the readers."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.core.times import ticks_of
from chronicle.errors import InvalidArgument, InvalidData, in_words_of
from chronicle.formats.chunks import BadRow
from chronicle.formats.layout import Layout
from chronicle.formats.reader import EventReader
from chronicle.formats.times import TimeRule, convert, parse_time_formats
from chronicle.schema import StreamSchema
from chronicle.tests.rounds import rounds

US = pa.timestamp("us")
BERLIN = "Europe/Berlin"


def read(
    data: bytes, format: str, *, bad: list[BadRow] | None = None, **layout: Any
) -> list[dict[str, Any]]:
    given = Layout(**({"time": "t"} | layout))
    policy = {} if bad is None else {"on_bad": bad.append}
    reader = EventReader(data, format, layout=given, **policy)
    batches = list(reader)
    return [row for batch in batches for row in batch.to_pylist()]


def times(values: pa.Array, *formats: str, **zone: Any) -> tuple[list[Any], list[str]]:
    rule = parse_time_formats(formats, **zone)
    found = convert(values, rule, US, required=False)
    codes = [] if found.codes is None else found.codes.tolist()
    return found.values.to_pylist(), [found.reasons[code - 1] for code in codes if code]


# -------------------------------------------------------------------------------------- formats


def test_each_value_has_the_first_format_that_reads_it() -> None:
    values = pa.array(
        ["03.02.2026 10:00", "2026-02-03T10:00:00+02:00", "1770112800000", "02/03/2026", None, "no"]
    )
    found, reasons = times(values, "%d.%m.%Y %H:%M", "iso", "ms", "%m/%d/%Y")
    assert found == [
        dt.datetime(2026, 2, 3, 10),
        dt.datetime(2026, 2, 3, 8),
        dt.datetime(2026, 2, 3, 10),
        dt.datetime(2026, 2, 3),
        None,
        None,
    ]
    assert reasons == [
        "expected a time by one of '%d.%m.%Y %H:%M', 'iso', 'ms', '%m/%d/%Y', found {value}"
    ]


def test_the_order_of_formats_counts() -> None:
    values = pa.array(["01/02/2026", "13/02/2026", "02/13/2026"])
    first, _ = times(values, "%d/%m/%Y", "%m/%d/%Y")
    assert [value.month for value in first] == [2, 2, 2]
    second, _ = times(values, "%m/%d/%Y", "%d/%m/%Y")
    assert [value.month for value in second] == [1, 2, 2]


def test_what_a_format_reads_and_the_stream_cannot_hold_goes_to_no_other() -> None:
    values = pa.array(["2026-01-01T00:00:00.1234567"])
    found, reasons = times(values, "iso", "%Y-%m-%dT%H:%M:%S.%n")
    assert found == [None]
    assert "finer" in reasons[0]


def test_numbers_are_read_by_the_unit_among_formats() -> None:
    found, _ = times(pa.array([1770112800, None]), "%Y", "s")
    assert found == [dt.datetime(2026, 2, 3, 10), None]
    assert "without a unit" in times(pa.array([1770112800]), "%Y", "iso")[1][0]


@settings(max_examples=rounds(5, 40), deadline=None)
@given(st.lists(st.sampled_from(["%d.%m.%Y %H:%M", "%Y%m%d-%H%M", "%H:%M %b %d %Y"]), max_size=50))
def test_mixed_formats_are_those_of_strptime(forms: list[str]) -> None:
    told = [dt.datetime(2020, 1, 1) + dt.timedelta(hours=7 * at) for at in range(len(forms))]
    texts = pa.array([t.strftime(f) for t, f in zip(told, forms, strict=True)], pa.string())
    found, reasons = times(texts, "%d.%m.%Y %H:%M", "%Y%m%d-%H%M", "%H:%M %b %d %Y")
    assert (found, reasons) == (told, [])


@pytest.mark.parametrize(
    ("formats", "reason"),
    [
        (["auto", "iso"], "stands alone"),
        (["iso", "ticks"], "stands alone"),
        (["ms", "s"], "counts from 1970"),
        (["iso", "nonsense"], "a time format is"),
    ],
)
def test_formats_that_do_not_go_together(formats: list[str], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        parse_time_formats(formats)


def test_one_format_given_twice_is_one() -> None:
    assert parse_time_formats(["iso", "iso"]) == TimeRule("iso")


def test_bad_times_are_told_with_their_line() -> None:
    bad: list[BadRow] = []
    data = b"t,x\n2026-01-01,1\n02.01.2026,2\nnever,3\n04.01.2026,4\n"
    rows = read(data, "csv", bad=bad, time_format=["iso", "%d.%m.%Y"])
    assert [row["t"].day for row in rows] == [1, 2, 4]
    assert [(row.line, row.column, row.value) for row in bad] == [(4, "t", "never")]


def test_patterns_read_other_columns_of_times_that_are_given() -> None:
    data = b"t,until,x\n01.02.2026,02.02.2026,1\n01.03.2026,2026-03-02,2\n"
    rows = read(data, "csv", time_format="%d.%m.%Y", types=["until=timestamp"])
    assert [row["until"] for row in rows] == [dt.datetime(2026, 2, 2), dt.datetime(2026, 3, 2)]


# ---------------------------------------------------------------------------------------- zones


def test_local_times_become_utc_and_offsets_stay() -> None:
    values = pa.array(
        ["2026-01-05 12:00", "2026-07-05 12:00", "2026-07-05T12:00:00Z", "2026-07-05", "2040-07-05"]
    )
    found, reasons = times(values, "iso", zone=BERLIN)
    assert reasons == []
    assert found == [
        dt.datetime(2026, 1, 5, 11),
        dt.datetime(2026, 7, 5, 10),
        dt.datetime(2026, 7, 5, 12),
        dt.datetime(2026, 7, 4, 22),
        dt.datetime(2040, 7, 4, 22),
    ]
    assert times(values, "auto")[0][0] == dt.datetime(2026, 1, 5, 12)  # without a zone: UTC


def test_years_of_more_than_four_digits() -> None:
    ends = [-(2**63), 2**63 - 1, 253_402_300_800 * 10**6]
    texts = ["-290308-12-21T19:59:05.224192Z", "+294247-01-10 04:00:54,775807", "+010000-01-01"]
    beyond = ["+294247-01-10 04:00:54.775808", "+300000-01-01", "+999999999999-01-01", "+10000-1-1"]
    values, rule = pa.array(texts + beyond), parse_time_formats("iso")
    found = convert(values, rule, pa.timestamp("us"), required=True)
    assert found.values.cast(pa.int64()).to_pylist() == [*ends, *[None] * 4]
    assert [ticks_of(text.replace(",", "."), "t", "us") for text in texts] == ends
    for text in beyond:
        with pytest.raises(InvalidArgument):
            ticks_of(text, "t", "us")


def test_hours_that_were_not_or_twice() -> None:
    values = pa.array(["2026-03-29 02:30", "2026-10-25 02:30", "2026-10-25 03:00"])
    found, reasons = times(values, "iso", zone=BERLIN)
    assert found == [None, None, dt.datetime(2026, 10, 25, 2)]
    assert "never was in Europe/Berlin" in reasons[0]
    assert "was twice in Europe/Berlin" in reasons[1]
    for ambiguous, hour in (("earlier", 0), ("later", 1)):
        found, reasons = times(values, "iso", zone=BERLIN, ambiguous=ambiguous)
        assert found[1] == dt.datetime(2026, 10, 25, hour, 30)
        assert len(reasons) == 1


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_typed_times_without_a_zone_are_local_too(unit: str) -> None:
    values = pa.array([dt.datetime(2026, 7, 5, 12), None], pa.timestamp(unit))
    assert times(values, "auto", zone=BERLIN)[0] == [dt.datetime(2026, 7, 5, 10), None]
    zoned = values.cast(pa.timestamp(unit, "UTC"))
    assert times(zoned, "auto", zone=BERLIN)[0] == [dt.datetime(2026, 7, 5, 12), None]
    days = pa.array([dt.date(2026, 7, 5), None], pa.date32())
    assert times(days, "auto", zone=BERLIN)[0] == [dt.datetime(2026, 7, 4, 22), None]


def test_patterns_are_local_unless_they_tell_an_offset() -> None:
    summer = pa.array(["05.07.2026 12:00"])
    assert times(summer, "%d.%m.%Y %H:%M", zone=BERLIN)[0] == [dt.datetime(2026, 7, 5, 10)]
    told = pa.array(["05.07.2026 12:00 +0500"])
    assert times(told, "%d.%m.%Y %H:%M %z", zone=BERLIN)[0] == [dt.datetime(2026, 7, 5, 7)]
    assert not parse_time_formats("%Y %%z").tells_offset
    assert parse_time_formats("%Y %%%z").tells_offset
    skipped = pa.array(["04.11.2018"])  # a day without midnight begins at one
    assert times(skipped, "%d.%m.%Y", zone="America/Sao_Paulo")[0] == [dt.datetime(2018, 11, 4, 3)]


def test_extreme_typed_times_do_not_overflow() -> None:
    values = pa.array([2**63 - 1, -(2**63) + 1, 0], pa.int64()).cast(pa.timestamp("s"))
    found = convert(
        values, parse_time_formats("iso", zone=BERLIN), pa.timestamp("s"), required=True
    )
    assert found.codes is not None
    assert found.codes.astype(bool).tolist() == [True, True, False]


def test_every_column_of_times_is_local() -> None:
    data = b'{"t": "2026-07-05 12:00", "u": "2026-07-05 13:00", "n": {"at": "2026-07-05 14:00"}}\n'
    (row,) = read(data, "ndjson", time_zone=BERLIN, types=["n=struct(at timestamp)"])
    assert [row["t"].hour, row["u"].hour, row["n"]["at"].hour] == [10, 11, 12]
    table = pa.table(
        {"t": pa.array([dt.datetime(2026, 7, 5, 12)], US), "u": [dt.datetime(2026, 7, 5)]}
    )
    out = io.BytesIO()
    pq.write_table(table, out)
    target = StreamSchema(pa.schema([pa.field("t", US, False), ("u", US)]), "t")
    (row,) = read(out.getvalue(), "parquet", time=None, time_zone=BERLIN, target=target)
    assert row == {"t": dt.datetime(2026, 7, 5, 10), "u": dt.datetime(2026, 7, 4, 22)}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"time_zone": "Mars/Olympus"}, "name of a time zone"),
        ({"ambiguous": "later"}, "goes with one"),
        ({"ambiguous": "both", "time_zone": BERLIN}, "ambiguous is one of"),
        ({"time_zone": BERLIN, "time_format": "ticks"}, "no time zone"),
    ],
)
def test_zones_that_make_no_sense(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        Layout(time="t", **options)


def test_plain_integers_are_in_no_zone() -> None:
    with pytest.raises(InvalidData, match="no time zone"):
        read(b"t,x\n1,2\n2,3\n", "csv", time_zone=BERLIN)
    target = StreamSchema(pa.schema([pa.field("t", pa.int64(), False)]), "t")
    with pytest.raises(InvalidArgument, match="no time zone"):
        read(b"t\n1\n", "csv", time=None, time_zone=BERLIN, target=target)


# ------------------------------------------------------------------------------------ two columns

PARTS = [("03.02.2026", "10:00"), ("04.02.2026", "23:59"), ("01.03.2026", "0:05")]
TOLD = [dt.datetime(2026, 2, 3, 10), dt.datetime(2026, 2, 4, 23, 59), dt.datetime(2026, 3, 1, 0, 5)]


def as_csv(rows: list[tuple[str, str]]) -> bytes:
    return b"day,clock,x\n" + b"".join(f"{d},{c},{n}\n".encode() for n, (d, c) in enumerate(rows))


def as_json(rows: list[tuple[str, str]]) -> bytes:
    return json.dumps([{"day": d, "clock": c, "x": n} for n, (d, c) in enumerate(rows)]).encode()


@pytest.mark.parametrize(("write", "format"), [(as_csv, "csv"), (as_json, "json")])
def test_date_and_time_of_day_in_two_columns(write: Any, format: str) -> None:
    chosen = {"time": "day", "time_of_day": "clock"}
    rows = read(write(PARTS), format, time_format="%d.%m.%Y %H:%M", **chosen)
    assert rows == [{"day": t, "x": n} for n, t in enumerate(TOLD)]
    iso = [(t.date().isoformat(), t.time().isoformat()) for t in TOLD]
    assert read(write(iso), format, **chosen) == rows
    renamed = read(write(iso), format, time="at", time_of_day="clock", rename={"day": "at"})
    assert [row["at"] for row in renamed] == TOLD
    local = read(write(iso), format, time_zone=BERLIN, **chosen)
    assert [row["day"] for row in local] == [t - dt.timedelta(hours=1) for t in TOLD]
    target = StreamSchema(pa.schema([pa.field("day", US, False), ("x", pa.int64())]), "day")
    assert read(write(iso), format, time=None, time_of_day="CLOCK", target=target) == rows


def test_typed_dates_and_times_of_day() -> None:
    table = pa.table(
        {
            "day": pa.array([t.date() for t in TOLD], pa.date32()),
            "clock": pa.array([t.time() for t in TOLD], pa.time64("us")),
            "x": [0, 1, 2],
        }
    )
    expected = [{"day": t, "x": n} for n, t in enumerate(TOLD)]
    for days in (
        table["day"],
        table["day"].cast(pa.timestamp("ns")),
        table["day"].cast(pa.string()),
    ):
        out = io.BytesIO()
        pq.write_table(table.set_column(0, "day", days), out)
        assert read(out.getvalue(), "parquet", time="day", time_of_day="clock") == expected
    out = io.BytesIO()
    pq.write_table(table.set_column(0, "day", pa.array(TOLD, US)), out)
    with pytest.raises(InvalidData, match="has a time of day itself"):
        read(out.getvalue(), "parquet", time="day", time_of_day="clock")
    pq.write_table(table.set_column(1, "clock", pa.array([1.5, 2, 3])), out := io.BytesIO())
    with pytest.raises(InvalidData, match="holds no times of day"):
        read(out.getvalue(), "parquet", time="day", time_of_day="clock")


def test_a_row_that_lacks_a_part_has_no_time() -> None:
    bad: list[BadRow] = []
    data = b"day,clock,x\n2026-01-01,10:00,1\n2026-01-02,,2\n,10:00,3\n2026-01-04,25:00,4\n"
    rows = read(data, "csv", bad=bad, time="day", time_of_day="clock")
    assert [row["x"] for row in rows] == [1]
    assert [(row.line, row.reason) for row in bad] == [
        (3, "the time is missing"),
        (4, "the time is missing"),
        (5, "expected a time such as 2018-08-01T05:00:00Z, found '2026-01-04 25:00'"),
    ]
    lines = b'{"day": "2026-01-01", "clock": "10:00"}\n{"day": "2026-01-02"}\n{"clock": "10:00"}\n'
    bad.clear()
    assert len(read(lines, "ndjson", bad=bad, time="day", time_of_day="clock")) == 1
    assert [row.row for row in bad] == [2, 3]


def test_a_broken_record_does_not_part_date_and_clock() -> None:
    bad: list[BadRow] = []
    data = b"day,clock,x\n2026-01-01,10:00,1\n2026-01-02,11:00,2,3\n2026-01-03,12:00,3\n"
    rows = read(data, "csv", bad=bad, time="day", time_of_day="clock")
    assert [row["day"].hour for row in rows] == [10, 12]
    assert [row.line for row in bad] == [3]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"time": "clock"}, "two columns"),
        ({"types": ["clock=varchar"]}, "no column of its own"),
        ({"select": ["clock"]}, "no column of its own"),
        ({"file_column": "clock"}, "no column of its own"),
        ({"time_format": "ms"}, "goes with dates"),
        ({"time_format": ["iso", "s"]}, "goes with dates"),
        ({"time_format": "ticks"}, "goes with dates"),
    ],
)
def test_times_of_day_that_make_no_sense(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        Layout(**({"time": "day", "time_of_day": "clock"} | options))


def test_a_stream_with_a_column_of_that_name_is_told() -> None:
    fields = [pa.field("day", US, False), ("clock", pa.string())]
    target = StreamSchema(pa.schema(fields), "day")
    with pytest.raises(InvalidArgument, match="no column of its own"):
        Layout(target=target, time_of_day="clock")


def test_a_missing_time_of_day_names_the_columns() -> None:
    with pytest.raises(InvalidData, match=r"no column of the time of day 'clok'.*clock"):
        read(as_csv(PARTS), "csv", time="day", time_of_day="clok")


# ------------------------------------------------------------------------------ mixed offsets

MIXED = ["2026-02-03T10:00:00Z", "2026-02-03T10:00:00", "2026-02-03T10:00:00+01:00", "2026-02-04"]


@pytest.mark.parametrize("format", ["csv", "ndjson", "json"])
def test_a_time_without_an_offset_among_others_is_bad(format: str) -> None:
    data = {
        "csv": "\n".join(["t", *MIXED]),
        "ndjson": "\n".join(json.dumps({"t": text}) for text in MIXED),
        "json": json.dumps([{"t": text} for text in MIXED]),
    }[format].encode()
    bad: list[BadRow] = []
    ten = dt.datetime(2026, 2, 3, 10)
    assert [row["t"] for row in read(data, format, bad=bad)] == [ten, dt.datetime(2026, 2, 3, 9)]
    assert [(row.row, row.value) for row in bad] == [(2, MIXED[1]), (4, MIXED[3])]
    assert all("has no offset, while others of its column have one" in row.reason for row in bad)
    assert "--time-zone UTC" in in_words_of("command", bad[0].reason)
    assert "with an offset" in in_words_of("rest", bad[0].reason)
    zoned = read(data, format, time_zone="UTC")
    assert [row["t"] for row in zoned] == [
        ten, ten, dt.datetime(2026, 2, 3, 9), dt.datetime(2026, 2, 4),
    ]  # fmt: skip


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_chunk_says_whether_times_have_an_offset(first: int) -> None:
    """In later chunks, and in other files of the same ingest."""
    same, other = MIXED[first], MIXED[1 - first]
    more = "x" * 9_000_000
    data = f't,x\n{same},1\n{same},{more}\n{same},"a"\n{other},2\n'.encode()
    bad: list[BadRow] = []
    layout = Layout(time="t", types=["x=string"])
    reader = EventReader(data, "csv", layout=layout, on_bad=bad.append)
    assert sum(batch.num_rows for batch in reader) == 3
    assert [row.value for row in bad] == [other]
    said = ("has no offset, while others", "has an offset, while those before")[first]
    assert said in bad[0].reason
    bad.clear()
    again = EventReader(f"t,x\n{other},1\n".encode(), "csv", layout=layout, on_bad=bad.append)
    assert list(again) == []
    assert [row.value for row in bad] == [other]


def test_other_columns_of_times_are_looked_at_each_for_itself() -> None:
    rows = [(MIXED[0], MIXED[1]), (MIXED[2], MIXED[3]), (MIXED[0], MIXED[0])]
    data = "".join(json.dumps({"t": t, "u": u}) + "\n" for t, u in rows).encode()
    bad: list[BadRow] = []
    assert len(read(data, "ndjson", bad=bad)) == 1
    assert [(row.row, row.column) for row in bad] == [(1, "u"), (2, "u")]


def test_text_by_a_pattern_is_not_compared() -> None:
    data = b"t\n03.02.2026\n2026-02-03T10:00:00Z\n"
    assert len(read(data, "csv", time_format=["%d.%m.%Y", "iso"])) == 2
