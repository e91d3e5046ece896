"""Values that the executor would change without a word are errors; far times can be shown."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle import cli
from chronicle.core.times import time_text
from chronicle.errors import SqlError
from chronicle.formats.convert import convert
from chronicle.formats.writers import json_bytes
from chronicle.query.sql.sql_types import exact_text


def with_streams(path):
    database = chronicle.open(path)
    database.sql("CREATE STREAM s (t TIMESTAMP, x DOUBLE, f FLOAT, m TIMESTAMP_MS) TIMESTAMP BY t")
    database.sql("CREATE STREAM ticks (t BIGINT, x DOUBLE) TIMESTAMP BY t")
    return database


@pytest.fixture
def database(tmp_path):
    with with_streams(tmp_path / "store") as database:
        yield database


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """For statements that are refused."""
    with with_streams(tmp_path_factory.mktemp("store")) as database:
        database.sql("CREATE STREAM r (t TIMESTAMP, x DOUBLE, d DOUBLE, n INTEGER) TIMESTAMP BY t")
        yield database


@pytest.mark.parametrize(
    ("sql", "words", "position"),
    [
        ("SELECT 1,\n 1e400", "1e400 is beyond what a DOUBLE holds", (2, 2)),
        ("SELECT -1e400", "beyond what a DOUBLE", (1, 9)),
        (f"SELECT x FROM s WHERE x < {'9' * 400}", "(400 characters)", (1, 27)),
        ("SELECT TIMESTAMP '2020-01-01 00:00:00.1234567'", "which holds 6 digits", (1, 18)),
        ("SELECT '2020-01-01 00:00:00.5'::TIMESTAMP_S", "which holds none", (1, 8)),
        ("INSERT INTO s (t, x) VALUES ('2020-01-01', 1e400)", "beyond what a DOUBLE", (1, 44)),
        ("SELECT x FROM s WHERE t > '2020-01-01 00:00:00.1234567'", "holds 6 digits", (1, 27)),
        ("SELECT x FROM s WHERE m IN ('2020-01-01 00:00:00.1234')", "holds 3 digits", (1, 29)),
        ("SELECT max(t) < '2020-01-01 00:00:00.1234567Z' FROM s", "holds 6 digits", (1, 17)),
    ],
)
def test_literals_that_do_not_fit_are_errors_at_their_place(empty, sql, words, position):
    with pytest.raises(SqlError) as caught:
        empty.sql(sql)
    assert words in str(caught.value)
    assert (caught.value.line, caught.value.column) == position


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("x", "'1e400'"),
        ("f", "'-1e39'"),
        ("m", "'2020-01-01 00:00:00.1234'"),
        ("m", "TIMESTAMP '2020-01-01 00:00:00.1234'"),
        ("m", "TIMESTAMP 'infinity'"),
        ("t", "'2020-01-01 00:00:00.1234567'"),
        ("t", "TIMESTAMP_NS '2020-01-01 00:00:00.123456789'"),
        ("t", "'-infinity'"),
    ],
)
def test_insert_refuses_what_a_column_would_change(empty, column, value):
    row = f"{value}, 1" if column == "t" else f"TIMESTAMP '2020-01-01', {value}"
    other = "x" if column == "t" else column
    with pytest.raises(SqlError, match=f"column '{column}' cannot take the value"):
        empty.sql(f"INSERT INTO s (t, {other}) VALUES ({row})")
    assert empty.stream("s").count == 0


@pytest.mark.parametrize("value", ["1.5", "'1.5'", "1.5e0"])
def test_whole_times_have_no_fractions(empty, value):
    with pytest.raises(SqlError, match="times are whole numbers"):
        empty.sql(f"INSERT INTO ticks VALUES ({value}, 1)")
    assert empty.stream("ticks").count == 0


@pytest.mark.parametrize(
    ("sql", "column", "value", "row"),
    [
        ("INSERT INTO r (t, n) VALUES ('2020-01-01', 1), ('2020-01-01',\n@'a')", "n", "a", 2),
        ("INSERT INTO r VALUES ('2020-01-01', 1, 1, @99999999999)", "n", "99999999999", 1),
        ("INSERT INTO r VALUES (@'tomorrow', 1, 1, 1)", "t", "tomorrow", 1),
        ("INSERT INTO r (n, t) VALUES (@'abc', '2020-01-01')", "n", "abc", 1),
        ("INSERT INTO r (n, t) SELECT @'abc', TIMESTAMP '2020-01-01'", "n", "abc", 1),
        ("INSERT INTO r BY NAME SELECT TIMESTAMP '2020-01-01' AS t, @'abc' AS n", "n", "abc", 1),
        ("INSERT INTO r (t, x) VALUES ('2020-01-01', 2), ('2020-01-01', @'z')", "x", "z", 2),
        ("INSERT INTO r (t, n) VALUES ('2020-01-01', {'a': @1})", "n", "{'a': 1}", 1),
    ],
)
def test_insert_names_stream_column_row_and_place(empty, sql, column, value, row):
    """It named a column that nobody had written: c3."""
    text, at = sql.replace("@", ""), sql.index("@")
    with pytest.raises(SqlError) as caught:
        empty.sql(text)
    assert empty.stream("r").count == 0
    said = f"column {column!r} cannot take the value {value!r} (stream 'r', row {row}): "
    assert str(caught.value).startswith(said)
    line = sql.count("\n", 0, at) + 1
    assert (caught.value.line, caught.value.column) == (line, at - sql.rfind("\n", 0, at))


def test_a_long_value_is_not_shown_in_full(empty):
    with pytest.raises(SqlError, match="cannot take the value 'aaa") as caught:
        empty.sql(f"INSERT INTO s (t, x) VALUES ('2020-01-01', '{'a' * 100_000}')")
    assert len(str(caught.value)) < 300


def test_texts_beside_numbers_are_read_in_the_type_of_the_column(database):
    """Two and a half was no integer, which nobody had asked for."""
    database.sql(
        "INSERT INTO s (t, x) VALUES (TIMESTAMP '2020-01-01', 2), ('2020-01-02', '2.5'), "
        "('2020-01-03', NULL), ('2020-01-04', 1 / 4)"
    )
    assert database.sql("SELECT x FROM s").fetchall() == [(2,), (2.5,), (None,), (0.25,)]


def test_insert_takes_what_fits(database):
    for value in ("'inf'", "' -Infinity '", "'nan'", "1.7e308", "'1e5'", "NULL", "'inf'::DOUBLE"):
        database.sql(f"INSERT INTO s (t, x) VALUES ('2020-01-01 00:00:00.120', {value})")
    database.sql("INSERT INTO s (t, m) VALUES ('2020-01-01 00:00:00.123456000', '2020-01-01')")
    database.sql("INSERT INTO ticks VALUES (1.0, 1), ('2', 1), (1e3, 1)")
    assert database.stream("s").count == 8
    assert database.stream("ticks").count == 3


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_any_time_can_be_written(tmp_path, unit):
    type_ = pa.timestamp(unit)
    with chronicle.open(tmp_path / "store") as database:
        for ticks in (2**63 - 1, -(2**63), 0, -1, 1_533_103_200_123):
            table = pa.table({"t": pa.array([ticks], pa.int64()).cast(type_)})
            database.create_stream("far", table.schema, "t").append(table)
            first, last = database.sql("SHOW STREAMS").fetchall()[0][3:5]
            assert first == last
            assert first[:19] == time_text(ticks, type_)[:19]
            row = json.loads(json_bytes(table.to_batches()[0]))
            assert row["t"] == time_text(ticks, type_, "T")
            database.drop_stream("far")


@pytest.mark.parametrize(
    ("ticks", "unit", "text"),
    [
        (2**63 - 1, "us", "+294247-01-10 04:00:54.775807"),
        (-(2**63), "us", "-290308-12-21 19:59:05.224192"),
        (2**63 - 1, "ns", "2262-04-11 23:47:16.854775807"),
        (253_402_300_799, "s", "9999-12-31 23:59:59"),
        (253_402_300_800, "s", "+010000-01-01 00:00:00"),
        (-62_167_219_201, "s", "-000001-12-31 23:59:59"),
        (951_782_400_500, "ms", "2000-02-29 00:00:00.500"),
    ],
)
def test_times_as_text(ticks, unit, text):
    assert time_text(ticks, pa.timestamp(unit)) == text


def test_times_as_text_agree_with_python():
    for days in range(-719_162, 2_932_896, 997):
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(days=days, seconds=days % 86_400)
        seconds = days * 86_400 + days % 86_400
        assert time_text(seconds, pa.timestamp("s"), "T") == moment.isoformat()


@pytest.mark.parametrize(
    ("text", "type_", "bad"),
    [
        (["1e400", "1e308", "inf", "-Infinity", None], pa.float64(), [0]),
        (["1", "9" * 400, "nan"], pa.float64(), [1]),
        (["1e39", "3e38", "-1e39"], pa.float32(), [0, 2]),
    ],
)
def test_numbers_in_text_are_not_made_infinite(text, type_, bad):
    codes = convert(pa.array(text), type_).codes
    assert [] if codes is None else np.flatnonzero(codes).tolist() == bad


def test_doubles_that_a_float_does_not_hold_are_bad_values():
    found = convert(pa.array([1e39, float("inf"), 1.5, None]), pa.float32())
    assert np.flatnonzero(found.codes).tolist() == [0]


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("ndjson", '{"t":1,"x":1}\n{"t":2,"x":1e400}\n'),
        ("ndjson", '{"t":1,"x":%s}\n' % ("9" * 400)),
        ("csv", "t,x\n1,1\n2,-1e400\n"),
    ],
)
def test_files_with_numbers_that_do_not_fit_are_refused(tmp_path, monkeypatch, capsys, form, data):
    monkeypatch.setenv("CHRONICLE_STORE", str(tmp_path / "store"))
    file = tmp_path / f"events.{form}"
    file.write_text(data)
    with chronicle.open(tmp_path / "store") as database:
        database.sql("CREATE STREAM ticks (t BIGINT, x DOUBLE) TIMESTAMP BY t")
    assert cli.run(["ingest", str(file), "--stream", "ticks", "--time", "t"]) == 1
    assert "column 'x': expected a number (double)" in capsys.readouterr().err


# ---------------------------------------------------------------------------- texts that are times

TIMES = ["2020-01-01 00:00:00-02:00", "2020-01-01T02:00:00Z", "2020-01-01T02Z", "2020-01-01 02:00",
         "2020-01-01T02:00:00,000", "2020-01-01 02:00:00.000000000", "2020-01-01 02:00:00 UTC",
         "2019-12-31 24:00-02"]  # fmt: skip
ALIKE = [
    "SELECT x FROM s WHERE t = {time}",
    "SELECT x FROM s WHERE t IN ({time})",
    "SELECT x FROM s WHERE {time} BETWEEN t AND t",
    "SELECT x FROM s WHERE t >= {time} AND t <= {time}",
    "SELECT x FROM s WHERE t = CAST({time} AS TIMESTAMP)",
    "SELECT x FROM (SELECT t AS u, x FROM s) WHERE u = {time}",
    "SELECT 1.5 FROM s HAVING max(t) = {time}",
    "SELECT x FROM s AS a JOIN (SELECT t AS u FROM s) AS b ON b.u = a.t AND a.t = {time}",
    "SELECT x FROM s MATCH_RECOGNIZE (ORDER BY t ALL ROWS PER MATCH PATTERN (A) DEFINE A AS "
    "t = {time})",
    "SELECT x FROM s MATCH_RECOGNIZE (ORDER BY t ALL ROWS PER MATCH PATTERN (A) DEFINE A AS "
    "FIRST(A.t) BETWEEN {time} AND {time})",
    "SELECT x FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.x AS x, A.t AS u PATTERN (A)) "
    "WHERE u = {time}",
    "SELECT x FROM TUMBLE(s, t, INTERVAL '1' DAY) WHERE t = {time}",
    "SELECT max(x) FROM TUMBLE(s, t, INTERVAL '1' DAY) WHERE t = {time} GROUP BY window_start",
    "SELECT max(x) FROM TUMBLE_ROWS(s, 1) WHERE t = {time} GROUP BY window_id",
    "SELECT x FROM TUMBLE(s, t, INTERVAL '1' DAY, {time}) WHERE window_start = t",
]


@pytest.mark.parametrize("time", TIMES)
def test_a_text_is_one_time_wherever_it_stands(database, time):
    """An offset converts to UTC, as it does in append and ingest."""
    database.sql(f"INSERT INTO s (t, x, m) VALUES ('{time}', 1.5, '{time}')")
    noon = dt.datetime(2020, 1, 1, 2)
    assert database.sql("SELECT t, m FROM s").fetchall() == [(noon, noon)]
    for query in ALIKE:
        assert database.sql(query.format(time=f"'{time}'")).fetchall() == [(1.5,)], query
        assert database.sql(query.format(time="$x"), {"x": time}).fetchall() == [(1.5,)], query
    assert database.sql(f"UPDATE s SET m = '{time}' WHERE t = '{time}'").fetchall() == [(1,)]
    assert database.sql(f"DELETE FROM s WHERE t = '{time}'").fetchall() == [(1,)]


FINE = "2020-01-01 00:00:00.1234567"
TOO_FINE = [
    "SELECT x FROM s WHERE t > #",
    "SELECT x FROM s WHERE t BETWEEN '2020-01-01' AND #",
    "SELECT CAST(# AS TIMESTAMP)",
    "SELECT x FROM (SELECT t AS u, x FROM s) WHERE u = #",
    "SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t PATTERN (A B) DEFINE A AS t < #)",
    "SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t PATTERN (A B) DEFINE B AS FIRST(t) < #)",
    "SELECT count(*) FROM (SELECT * FROM s WHERE t < #) MATCH_RECOGNIZE (ORDER BY t PATTERN (A))",
    "SELECT * FROM s MATCH_SITUATIONS (MEASURES count(a.*) AS n PATTERN (a MEETS b) "
    "DEFINE a AS t < #, b AS t > '2020-01-01')",
    "SELECT count(*) FROM TUMBLE(s, t, INTERVAL '1' DAY) WHERE t < # GROUP BY window_start",
    "SELECT x FROM SESSION(s, t, INTERVAL '1' DAY) WHERE t < #",
    "SELECT x FROM TUMBLE(s, t, INTERVAL '1' DAY, #)",
    "SELECT a.x FROM s AS l RECENT JOIN s AS a ON a.t < #",
    "UPDATE s SET x = 1 WHERE t < #",
    "DELETE FROM s WHERE t < #",
    "INSERT INTO s (t) VALUES (#)",
    "INSERT INTO s (t) SELECT #",
]  # fmt: skip


@pytest.mark.parametrize("query", TOO_FINE)
def test_a_text_that_is_too_fine_is_refused_at_its_place(empty, query):
    for given, params in ((f"'{FINE}'", None), ("?", [FINE]), ("$p1", {"p1": FINE})):
        text = query.replace("#", given)
        with pytest.raises(SqlError, match=r"holds 6 digits|cannot hold it") as raised:
            empty.sql(text, params).fetchall()
        assert raised.value.column == text.index(given) + 1, text


@pytest.mark.parametrize(
    "clock",
    ["11:00 PM", "11:00:00 Europe/Berlin", "11:00 EST", "11:00 nonsense", "11:00:00+05:30:15",
     "11:00+24:00", "11:00-02:60"],
)  # fmt: skip
def test_what_follows_a_clock_is_read_or_refused(empty, clock):
    """The executor takes the text for a time without an offset."""
    text = f"2020-01-01 {clock}"
    for query in ("SELECT TIMESTAMP #", "SELECT x FROM s WHERE t = #", "DELETE FROM s WHERE t < #"):
        with pytest.raises(SqlError, match=r"is no time; write it as '2018"):
            empty.sql(query.replace("#", f"'{text}'"))
    with pytest.raises(SqlError, match="is no time"):
        empty.sql("SELECT x FROM s WHERE t = $x", {"x": text})


def test_an_insert_reads_zones_and_refuses_what_is_none(database):
    for zone in (" Europe/Berlin", "+01:00:00"):
        database.sql(f"INSERT INTO s (t) VALUES ('2020-01-01 11:00:00{zone}')")
    ten = dt.datetime(2020, 1, 1, 10)
    assert database.sql("SELECT t FROM s").fetchall() == [(ten,), (ten,)]
    with pytest.raises(SqlError, match="Unknown TimeZone 'PM'"):
        database.sql("INSERT INTO s (t) VALUES ('2020-01-01 11:00 PM')")


def test_a_long_text_is_not_searched_for_a_zone():
    with pytest.raises(ValueError, match="11:00 PM"):
        exact_text("11:00 PM", pa.timestamp("us"))
    long = "11:00 " * 20 + "PM"
    assert exact_text(long, pa.timestamp("us")) == long


def test_an_offset_leads_out_of_the_years_of_python(empty):
    text = "9999-12-31 23:59:59-02"
    query = f"SELECT TIMESTAMP '{text}' = TIMESTAMPTZ '{text}', year(TIMESTAMP '{text}')"
    assert empty.sql(query).fetchall() == [(True, 10_000)]


def test_a_parameter_is_as_fine_as_each_of_its_uses_allows(empty):
    text = "SELECT x FROM s WHERE m < $x AND t < $x"
    for given in (text, text.replace("m", "t", 1).replace("t <", "m <")):
        with pytest.raises(SqlError, match="holds 3 digits"):
            empty.sql(given, {"x": "2020-01-01 00:00:00.123456"})


def test_a_parameter_that_no_type_holds_is_refused(empty):
    with pytest.raises(SqlError, match="38 digits"):
        empty.sql("SELECT $x", {"x": 2**127})


def test_texts_that_are_no_times_stay_texts(database):
    database.sql("CREATE STREAM names (t BIGINT, name VARCHAR) TIMESTAMP BY t")
    text = "2020-01-01 00:00:00.1234567-02:00"
    database.sql(f"INSERT INTO names VALUES (1, '{text}')")
    query = f"SELECT name, '{text}' FROM names WHERE name = '{text}' AND name || '' IN ('{text}')"
    assert database.sql(query).fetchall() == [(text, text)]


def test_nanoseconds_before_1970_with_an_offset(database):
    database.sql("CREATE STREAM n (t TIMESTAMP_NS) TIMESTAMP BY t")
    database.sql("INSERT INTO n VALUES ('1969-12-31 23:29:59.999999999-00:30')")
    assert database.sql("SELECT t FROM n").arrow()["t"][0].value == -1


def test_epochs_of_times_before_1970_round_down(database):
    row = "'1969-12-31 23:59:59.999999', '1969-12-31 23:59:59'"
    database.sql(f"INSERT INTO s (t, m) VALUES ({row})")
    types = ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_NS")
    columns = ", ".join(f"epoch_ms(t::{type_})" for type_ in types)
    query = f"SELECT {columns}, epoch_ms(m) FROM s"
    assert database.sql(query).fetchall() == [(-1, -1, -1, -1000)]
    pattern = (
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES epoch_ms(A.t) AS e PATTERN (A) "
        "DEFINE A AS epoch_ms(FIRST(A.t)) = -1)"
    )
    assert database.sql(pattern).fetchall() == [(-1,)]


@pytest.mark.parametrize("text", ["00:00:00.123000500", "01:00:00.1230005+01:00"])
def test_nine_digits_are_compared_with_zoned_nanoseconds(database, text):
    fields = [("t", pa.timestamp("ns", "UTC")), ("x", pa.timestamp("ns", "UTC"))]
    database.create_stream("z", pa.schema(fields), "t")
    times = pa.array([1704067200123000000, 1704067200123000500], fields[0][1])
    database.stream("z").append(pa.table({"t": times, "x": times}))
    wanted = [(times[1],)]
    for where in ("t = {}", "x = {}", "x IN ({})", "t >= {}", "coalesce(x, t) = {}"):
        query = "SELECT x FROM z WHERE " + where.format(f"'2024-01-01 {text}'")
        assert database.sql(query).fetchall() == wanted, query
    pattern = (
        "SELECT * FROM z MATCH_RECOGNIZE (ORDER BY t MEASURES A.x AS x PATTERN (A) "
        f"DEFINE A AS A.x = '2024-01-01 {text}')"
    )
    assert database.sql(pattern).fetchall() == wanted


def test_nanoseconds_of_pandas_inside_of_lists_and_structs(database):
    pandas = pytest.importorskip("pandas")
    nanos = pa.timestamp("ns")
    inside = [("l", pa.list_(nanos)), ("s", pa.struct([("a", pa.list_(nanos))]))]
    database.create_stream("n", pa.schema([("t", pa.int64()), *inside]), "t")
    time = pandas.Timestamp("2024-01-01 00:00:00.123456789")
    row = {"l": [time, None, dt.datetime(2024, 1, 1)], "s": {"a": [time]}}
    database.stream("n").append([{"t": 1, **row}, {"t": 2, "l": None}])
    database.stream("n").append(pandas.DataFrame([{"t": 3, **row}]))
    database.ingest([{"t": 4}, {"t": 5, **row}], "n")
    database.ingest(pandas.DataFrame([{"t": 6, **row}]), "n")
    table = database.sql("SELECT l, s FROM n WHERE l IS NOT NULL").arrow()
    assert table.num_rows == 4
    for lists, structs in zip(table["l"], table["s"], strict=True):
        assert [each.value for each in lists.values] == [time.value, None, 1704067200 * 10**9]
        assert structs["a"].values[0].value == time.value
    database.create_stream(
        "u", pa.schema([("t", pa.int64()), ("l", pa.list_(pa.timestamp("us")))]), "t"
    )
    with pytest.raises(chronicle.ChronicleError, match="row 1"):
        database.stream("u").append([{"t": 1, "l": [time]}])
