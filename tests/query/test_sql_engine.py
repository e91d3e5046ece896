"""Running SQL: errors with positions, parameters, streaming, time limits, result forms."""

from __future__ import annotations

import datetime as dt
import gc
import os
import subprocess
import sys
import threading
import time
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import (
    ChronicleError,
    InvalidArgument,
    QueryCancelled,
    QueryTimeout,
    ResourceLimit,
    SqlError,
)
from chronicle.query.contract import cancellation
from chronicle.query.contract.cancellation import Cancellation
from chronicle.store.snapshot import Snapshot

from ..patience import PATIENCE_S, wait_until
from .calls import calls_of

UTC = dt.timezone.utc
EVENTS = 300_000


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    opened = chronicle.open(tmp_path_factory.mktemp("store"))
    times = np.datetime64("2020-01-01", "us") + np.arange(EVENTS) * np.timedelta64(1, "s")
    columns = {
        "timestamp": times,
        "icao24": pa.array([f"a{i % 97:03d}" for i in range(EVENTS)]),
        "altitude": np.arange(EVENTS) % 12_000 + 0.5,
        "squawk": np.arange(EVENTS) % 7_777,
    }
    table, options = pa.table(columns), {"leaf_bytes": 1 << 16}
    opened.create_stream("flights", table.schema, "timestamp", options=options).append(table)
    yield opened
    opened.close()


# ------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("sql", "line", "column", "words"),
    [
        ("", 1, 1, "empty"),
        ("SELEC 1", 1, 1, "did you mean SELECT"),
        ("SELECT\n  altitud\nFROM flights", 2, 3, "did you mean altitude"),
        ("SELECT f.altitud FROM flights f", 1, 8, "did you mean f.altitude"),
        ("SELECT * FROM\n\n  flihgts", 3, 3, "did you mean flights"),
        ('SELECT "abc FROM flights', 1, 8, "never closed"),
        ("SELECT 1 /* abc", 1, 10, "never closed"),
        ("SELECT altitude b c FROM flights", 1, 19, "did not expect 'c'"),
        ("SELECT (1", 1, 10, "ends too early"),
        ("SELECT altitude + FROM flights", 1, 19, ""),
        ("CREATE TABLE t (a INT)", 1, 8, "CREATE STREAM"),
        ("CREATE STREAM q (t TIMESTAMP, v LIST) TIMESTAMP BY t", 1, 33, "cannot hold the type"),
        ("CREATE STREAM q (t TIMESTAMP) TIMESTAMP BY t WITH (codecc = 'lz4')", 1, 52, "codec"),
        ("DESCRIBE flight", 1, 10, "did you mean flights"),
        ("DROP INDEX ON flights (altitde)", 1, 24, "did you mean 'altitude'"),
        ("SELECT max(altitude) FROM flights GROUP BY nope", 1, 44, "no column 'nope'"),
        ("SELECT CAST(icao24 AS foo) FROM flights", 1, 23, "no type foo"),
        ("SELECT /*+ strategy(fast) */ 1 FROM flights", 1, 8, "strategy(x)"),
        ("EXPLAIN DROP STREAM flights", 1, 9, "EXPLAIN explains queries"),
        ("SELECT * FROM (SELECT altitude FROM flights) q WHERE q.squawk > 1", 1, 54, "squawk"),
        ("WITH q AS (SELECT altitude FROM flights) SELECT squawk FROM q", 1, 49, "squawk"),
    ],
)
def test_errors_say_what_and_where(database, sql, line, column, words):
    """Others stand in tests/golden/errors.txt."""
    with pytest.raises(SqlError) as caught:
        database.sql(sql).fetchall()
    assert words in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)


def test_errors_of_evaluation_are_sql_errors(database):
    for sql in (
        "SELECT CAST(icao24 AS INTEGER) FROM flights",
        "SELECT 9223372036854775807 + squawk FROM flights WHERE squawk = 1",
        "SELECT altitude FROM flights WHERE timestamp > 'yesterday'",
        "SELECT (SELECT squawk FROM flights)",
        "SELECT altitude FROM flights LIMIT -1",
    ):
        with pytest.raises(SqlError):
            database.sql(sql).fetchall()


def test_a_list_that_an_aggregate_makes_has_elements(database):
    for call in ("list(squawk ORDER BY timestamp)", "array_agg(squawk ORDER BY timestamp)"):
        query = f"SELECT {call}[1], {call}[2:3], [7, 8][2] FROM flights WHERE squawk < 3"
        first, some, other = database.sql(query).fetchone()
        assert (first, other, len(some)) == (0, 8, 2)


# --------------------------------------------------------------------------- parameters


def test_parameters_by_name_and_by_position(database):
    count = "SELECT count(*) FROM flights WHERE "
    start = dt.datetime(2020, 1, 1, 1)
    by_name = database.sql(
        count + "timestamp >= $from AND timestamp < $until AND icao24 = $plane",
        {"from": start, "until": start + dt.timedelta(hours=1), "plane": "a001"},
    ).fetchall()
    by_mark = database.sql(
        count + "timestamp >= ? AND timestamp < ? AND icao24 = ?",
        [start, start + dt.timedelta(hours=1), "a001"],
    ).fetchall()
    by_number = database.sql(
        count + "icao24 = $3 AND timestamp >= $1 AND timestamp < $2",
        [start, start + dt.timedelta(hours=1), "a001"],
    ).fetchall()
    assert by_name == by_mark == by_number
    assert by_name[0][0] in (37, 38)


@pytest.mark.parametrize(
    ("text", "params", "row"),
    [
        ("SELECT ?::BIGINT,?", [1, 2], (1, 2)),
        ("SELECT least($1,$2)", [1, 2], (1,)),
        ("SELECT $a-$b*$a,$a", {"a": 3, "b": 2}, (-3, 3)),
        ("SELECT $$a,$$||$t$$1,$2$t$", None, ("a,$1,$2",)),
    ],
)
def test_parameters_without_blanks_between(database, text, params, row):
    assert database.sql(text, params).fetchall() == [row]


@pytest.mark.parametrize(
    "value",
    [
        dt.datetime(2020, 1, 2),
        dt.datetime(2020, 1, 2, tzinfo=UTC),
        dt.datetime(2020, 1, 2, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        dt.date(2020, 1, 2),
        "2020-01-02 00:00:00",
        np.datetime64("2020-01-02T00:00:00.000000000"),
        pandas.Timestamp("2020-01-02"),
        pa.scalar(dt.datetime(2020, 1, 2)),
    ],
)
def test_times_as_parameters_narrow_the_scan(database, value):
    sql = "SELECT count(*), min(timestamp) FROM flights WHERE timestamp >= $t"
    assert database.sql(sql, {"t": value}).fetchall() == [
        (EVENTS - 86_400, dt.datetime(2020, 1, 2))
    ]
    plan = database.explain(
        "SELECT altitude FROM flights WHERE timestamp >= $t", params={"t": value}
    )
    scan = plan.operators()[-1]
    assert scan.to_dict()["range"] == "[2020-01-02 00:00:00, )"


def test_other_parameters(database):
    sql = "SELECT $v, typeof($v)"
    for value, wanted in [
        (np.datetime64("2024-01-02"), dt.date(2024, 1, 2)),
        (np.datetime64("2024-01-02T05", "h"), dt.datetime(2024, 1, 2, 5)),
        (np.timedelta64(5, "D"), dt.timedelta(days=5)),
        (np.array([[1], [2]]), [[1], [2]]),
    ]:
        assert database.sql("SELECT $v", {"v": value}).fetchall() == [(wanted,)]
    for value, type_ in [
        (1, "INTEGER"),
        (1.5, "DOUBLE"),
        ("a", "VARCHAR"),
        (True, "BOOLEAN"),
        (Decimal("1.25"), "DECIMAL(3,2)"),
        (np.int64(7), "INTEGER"),
        (np.float32(1.5), "DOUBLE"),
        (pa.scalar("x"), "VARCHAR"),
        (b"x", "BLOB"),
        ([1, 2], "INTEGER[]"),
    ]:
        row = database.sql(sql, {"v": value}).fetchone()
        assert row is not None
        assert row[1] == type_
    for value in (None, pandas.NaT, pandas.NA):
        assert database.sql("SELECT $v IS NULL", {"v": value}).fetchall() == [(True,)]
    rows = database.sql("SELECT squawk FROM flights WHERE squawk > ? LIMIT ?", [5, 3]).fetchall()
    assert rows == [(6,), (7,), (8,)]


@pytest.mark.parametrize(
    ("sql", "params", "words"),
    [
        ("SELECT $a", None, "no value was given for the parameter $a"),
        ("SELECT $a", {"b": 1}, "$a"),
        ("SELECT $a", {"a": 1, "b": 1}, "no parameter $b"),
        ("SELECT ?, ?", [1], "$2"),
        ("SELECT ?", [1, 2], "no parameter $2"),
        ("SELECT $a, ?", {"a": 1}, "either named"),
        ("SELECT $a", "text", "mapping"),
        ("SELECT $a", {"a": object()}, "object"),
        ("FROM flights WHERE icao24 = $a", {"a": ["\ud800"]}, "half of a surrogate pair"),
        ("FROM flights WHERE squawk > unnest([1, 2])", None, "UNNEST not supported here"),
        ("SELECT $a", {"a": pandas.Timestamp(1, unit="ns")}, "finer than a microsecond"),
        ("SELECT $a", {"a": pandas.Timedelta(1, unit="ns")}, "finer than a microsecond"),
        ("SELECT $a", {"a": np.timedelta64(1, "ns")}, "finer than a microsecond"),
        ("SELECT $a", {"a": pa.scalar(1, pa.time64("ns"))}, "finer than a microsecond"),
        ("SELECT $a", {"a": np.timedelta64(1, "ps")}, "which SQL lacks"),
        ("SELECT $a", {"a": np.complex64(1)}, "which SQL lacks"),
        ("SELECT $a", {"a": Decimal("1e38")}, "more than 38 digits"),
        ("SELECT $a", {"a": Decimal("0." + "1" * 39)}, "more than 38 digits"),
        ("SELECT $a", {"a": pa.scalar(2**31 - 1, pa.date32())}, "which SQL lacks"),
        ("SHOW STREAMS", {"a": 1}, "take parameters"),
    ],
)
def test_wrong_parameters_are_refused(database, sql, params, words):
    with pytest.raises(SqlError) as caught:
        database.sql(sql, params)
    assert words in str(caught.value)


def test_now_is_one_moment_and_narrows_the_scan(database):
    sql = "SELECT now() = current_timestamp, current_date = now()::DATE, now()"
    before = dt.datetime.now(UTC)
    row = database.sql(sql).fetchone()
    assert row[:2] == (True, True)
    assert before <= row[2] <= dt.datetime.now(UTC)
    plan = database.explain(
        "SELECT altitude FROM flights WHERE timestamp > now() - INTERVAL 1 HOUR"
    )
    assert "range" in plan.operators()[-1].to_dict()
    assert database.sql("SELECT now(), current_date").columns == ["now()", "current_date"]


# ------------------------------------------------------------------------------ streaming


def test_results_stream_without_reading_ahead(database, monkeypatch):
    read = []
    plain = Snapshot.scan

    def counted(self, *args, **kwargs):
        for batch in plain(self, *args, **kwargs):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(Snapshot, "scan", counted)
    # rows so wide that what the executor holds ready is a small part of them, whoever waits
    wide = "SELECT timestamp, altitude * 2, lpad('', 400, '0123456789') FROM flights"
    result = database.sql(f"{wide} WHERE altitude < 1e9")
    batches = result.batches()
    first = next(batches)
    assert first.num_rows > 0
    assert sum(read) < EVENTS  # a batch or two ahead, not all
    total = first.num_rows + sum(batch.num_rows for batch in batches)
    assert total == EVENTS
    assert sum(read) == EVENTS
    read.clear()
    database.sql("SELECT altitude FROM flights WHERE squawk % 2 = 0 LIMIT 3").fetchall()
    assert sum(read) < EVENTS


def test_a_result_in_every_form(database):
    sql = "SELECT timestamp, icao24, altitude FROM flights WHERE squawk = 5 ORDER BY timestamp LIMIT 4"  # noqa: E501
    table = database.sql(sql).arrow()
    assert table.num_rows == 4
    assert database.sql(sql).df().shape == (4, 3)
    assert database.sql(sql).pl().shape == (4, 3)
    assert pa.Table.from_batches(database.sql(sql).batches()) == table
    assert database.sql(sql).reader().read_all() == table
    assert pa.table(database.sql(sql)) == table
    rows = database.sql(sql).fetchall()
    assert rows[0] == (dt.datetime(2020, 1, 1, 0, 0, 5), "a005", 5.5)
    assert database.sql(sql).fetchone() == rows[0]
    assert list(database.sql(sql)) == rows
    again = database.sql(sql)
    assert again.arrow() == again.arrow()
    assert again.fetchall() == rows
    assert again.columns == ["timestamp", "icao24", "altitude"]
    assert "altitude double" in repr(again)
    alike = database.sql("SELECT 1 AS a, 2 AS a")
    assert alike.fetchall() == [(1, 2)]
    with pytest.raises(InvalidArgument, match="alias"):
        alike.pl()


def test_batches_can_be_taken_once_and_be_abandoned(database):
    result = database.sql("SELECT altitude FROM flights")
    batches = result.batches()
    next(batches)
    with pytest.raises(InvalidArgument, match="run the statement again"):
        result.arrow()
    result.close()
    del batches, result
    gc.collect()
    assert database.sql("SELECT 1").fetchall() == [(1,)]


def test_one_query_sees_one_state_of_a_stream(tmp_path):
    with chronicle.open(tmp_path) as db:
        stream = db.create_stream("s", pa.schema([("t", pa.int64())]), "t")
        stream.append(pa.table({"t": list(range(1000))}))
        result = db.sql("SELECT (SELECT count(*) FROM s), a.t FROM s a")
        batches = result.batches()
        first = next(batches)
        stream.append(pa.table({"t": [5000]}))
        rows = [first, *batches]
        assert sum(batch.num_rows for batch in rows) == 1000
        assert first.column(0)[0].as_py() == 1000
        assert db.sql("SELECT count(*) FROM s").fetchall() == [(1001,)]


def test_all_relations_of_one_query_see_one_state(tmp_path, monkeypatch):
    with chronicle.open(tmp_path) as db:
        stream = db.create_stream("s", pa.schema([("t", pa.int64())]), "t")
        stream.append(pa.table({"t": [1, 2, 3]}))
        catalog = catalog_of(db)
        take = catalog.snapshot

        def take_then_append(name):
            snapshot = take(name)
            stream.append(pa.table({"t": [4]}))
            return snapshot

        monkeypatch.setattr(catalog, "snapshot", take_then_append)
        outer = (
            "SELECT count(*) FROM s a FULL JOIN s b ON a.t = b.t WHERE a.t IS NULL OR b.t IS NULL"
        )
        assert db.sql(outer).fetchall() == [(0,)]


def test_a_condition_that_missing_rows_satisfy_does_not_prune_below_an_outer_join(tmp_path):
    numbers = np.arange(10_000)
    with chronicle.open(tmp_path) as db:
        for name, count in (("a", 10_000), ("b", 9000)):
            table = pa.table({"t": numbers[:count], "x": numbers[:count] // 1000})
            options = {"leaf_bytes": 1 << 12}
            db.create_stream(name, table.schema, "t", options=options).append(table)
        for where, rows in (
            ("b.x IS NULL", 1000),
            ("b.x IS NULL OR b.x > 5", 4000),
            ("b.x > 5", 3000),
        ):
            joined = f"SELECT count(*) FROM a LEFT JOIN b ON a.t = b.t WHERE {where}"
            assert db.sql(joined).fetchall() == [(rows,)], where


# ------------------------------------------------------------------- time limits, Ctrl-C

MILLION = "range(1000000)"
ENDLESS = (  # and reads no stream, whose scan would ask whether to go on
    f"SELECT count(*) FROM {MILLION} a, {MILLION} b, {MILLION} c WHERE a.range * b.range < c.range"
)


def ended(database, **limits):
    """How an endless query ends; in a thread, as what ends a test is no end of its query."""
    errors = []

    def run():
        try:
            database.sql(ENDLESS, **limits).fetchall()
        except ChronicleError as error:
            errors.append(error)

    threading.Thread(target=run, daemon=True).start()
    wait_until(lambda: errors, "the end of the query")
    return errors[0]


def test_a_query_ends_at_its_time_limit(database):
    error = ended(database, timeout=0.3)
    assert isinstance(error, QueryTimeout)
    assert "limit of 0.3 s" in str(error)
    counted = database.sql("SELECT count(*) FROM flights", timeout=PATIENCE_S)
    assert counted.fetchall() == [(EVENTS,)]
    with pytest.raises(InvalidArgument):
        database.sql("SELECT 1", timeout=0)


def test_the_time_limit_holds_while_batches_are_taken(database, monkeypatch):
    batches = database.sql("SELECT altitude FROM flights", timeout=PATIENCE_S).batches()
    next(batches)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + PATIENCE_S)
    monkeypatch.setattr(cancellation, "time", later)
    with pytest.raises(QueryTimeout):
        list(batches)


def test_a_query_is_cancelled_from_another_thread(database):
    token = Cancellation()

    def cancel():
        wait_until(lambda: token._listeners, "the beginning of the query")
        token.cancel()

    threading.Thread(target=cancel).start()
    assert isinstance(ended(database, cancellation=token), QueryCancelled)
    assert token.cancelled
    with pytest.raises(QueryCancelled):
        database.sql("SELECT 1", cancellation=token)


def test_an_error_of_a_scan_comes_out_as_it_was(database, monkeypatch):
    class DiskGone(Exception):
        pass

    def broken(self, *args, **kwargs):
        raise DiskGone("the disk is gone")
        yield

    monkeypatch.setattr(Snapshot, "scan", broken)
    with pytest.raises(DiskGone, match="the disk is gone"):
        database.sql("SELECT sum(altitude) FROM flights WHERE squawk > 3").fetchall()


def test_too_much_memory_is_a_resource_limit(tmp_path):
    with chronicle.open(tmp_path, query_memory_bytes=32 << 20) as db:
        stream = db.create_stream("s", pa.schema([("t", pa.int64())]), "t")
        stream.append(pa.table({"t": list(range(20_000))}))
        with pytest.raises(ResourceLimit, match="memory"):
            db.sql("SELECT list(a.t + b.t) FROM s a, s b").fetchall()
        assert db.sql("SELECT count(*) FROM s").fetchall() == [(20_000,)]


# ---------------------------------------------------------------------------------- types


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    fields = [
        ("t", pa.timestamp("ns", "UTC")),
        ("s", pa.timestamp("s")),
        ("ms", pa.timestamp("ms", "Europe/Zurich")),
        ("us", pa.timestamp("us")),
        ("d32", pa.date32()),
        ("d64", pa.date64()),
        ("i8", pa.int8()),
        ("u64", pa.uint64()),
        ("f32", pa.float32()),
        ("dec", pa.decimal128(12, 3)),
        ("b", pa.bool_()),
        ("bin", pa.binary()),
        ("ls", pa.large_string()),
    ]
    schema = pa.schema(fields)
    row = {
        "t": pa.scalar(1_500_000_000_123_456_789, pa.timestamp("ns", "UTC")),
        "s": dt.datetime(2020, 1, 1),
        "ms": dt.datetime(2020, 1, 1, 12, 0, 0, 5000, tzinfo=UTC),
        "us": dt.datetime(2020, 1, 1, 0, 0, 0, 7),
        "d32": dt.date(2020, 1, 1),
        "d64": dt.date(2020, 1, 2),
        "i8": 5,
        "u64": 2**64 - 1,
        "f32": 0.5,
        "dec": Decimal("1.125"),
        "b": True,
        "bin": b"x",
        "ls": "long",
    }
    table = pa.table(
        {
            name: pa.array(
                [row[name].value, 2 * 10**18] if name == "t" else [row[name], None], type_
            )
            for name, type_ in fields
        }
    )
    opened = chronicle.open(tmp_path_factory.mktemp("store"))
    opened.create_stream("typed", schema, "t").append(table)
    yield opened, opened.stream("typed").schema
    opened.close()


def test_columns_come_back_as_declared(typed):
    database, schema = typed
    for sql in (
        "SELECT * FROM typed",
        "SELECT * FROM (SELECT * FROM typed) q ORDER BY t",
        "WITH q AS (SELECT * FROM typed) SELECT q.* FROM q",
        "SELECT " + ", ".join(f"max({n}) AS {n}" for n in schema.names if n != "b") + " FROM typed",
        "SELECT "
        + ", ".join(f"first({n}) AS {n}" for n in schema.names)
        + " FROM typed GROUP BY t",
    ):
        got = database.sql(sql).schema
        assert [f.type for f in got] == [schema.field(f.name).type for f in got], sql


def test_integer_sums_are_int64_where_they_fit(typed):
    database, _ = typed
    for where in ("", " WHERE i8 IS NOT NULL"):  # by the tree, by a scan
        result = database.sql(
            f"SELECT sum(i8), sum(u64), avg(i8), sum(f32), sum(dec) FROM typed{where}"
        )
        assert [str(type_) for type_ in result.schema.types] == [
            "int64",
            "decimal128(38, 0)",
            "double",
            "double",
            "decimal128(38, 3)",
        ]
        assert result.fetchall() == [(5, Decimal(2**64 - 1), 5.0, 0.5, Decimal("1.125"))]
    empty = database.sql("SELECT sum(i8) FROM typed WHERE t < '1900-01-01'")
    assert str(empty.schema.types[0]) == "int64"
    assert empty.fetchall() == [(None,)]


def test_fetchall_gives_python_values(typed):
    database, _ = typed
    row = database.sql(
        "SELECT us, ms, d32, d64, dec, b, bin, us - TIMESTAMP '2019-12-31', [1, 2], {'a': 1} FROM typed "  # noqa: E501
        "WHERE i8 = 5"
    ).fetchone()
    assert row[0] == dt.datetime(2020, 1, 1, 0, 0, 0, 7)
    assert row[1] == dt.datetime(2020, 1, 1, 12, 0, 0, 5000, tzinfo=UTC)
    assert row[2:7] == (dt.date(2020, 1, 1), dt.date(2020, 1, 2), Decimal("1.125"), True, b"x")
    assert row[7] == dt.timedelta(days=1, microseconds=7)
    assert row[8:] == ([1, 2], {"a": 1})
    times = [value for (value,) in database.sql("SELECT t FROM typed ORDER BY t").fetchall()]
    assert isinstance(times[0], pa.Scalar)  # nanoseconds do not fit datetime
    assert times[0].value == 1_500_000_000_123_456_789
    assert times[1] == dt.datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC)


IN_ANOTHER_ZONE = """import sys, chronicle
sys.modules["pytz"] = None  # which is not needed
with chronicle.open(sys.argv[1]) as db:
    db.sql("CREATE STREAM z (t TIMESTAMPTZ) TIMESTAMP BY t")
    db.sql("INSERT INTO z VALUES ('2020-01-01 23:00:00')")
    print(db.sql("SELECT t, t::VARCHAR || (t = TIMESTAMPTZ '2020-01-01 23:00') FROM z").fetchall())
"""


def test_answers_do_not_depend_on_the_time_zone_of_the_machine(tmp_path):
    command = [sys.executable, "-c", IN_ANOTHER_ZONE, str(tmp_path)]
    done = subprocess.check_output(command, env={**os.environ, "TZ": "Asia/Tokyo"}, text=True)
    assert "2020-01-01 23:00:00+00true" in done, done
    assert "(2020, 1, 1, 23, 0, tzinfo=" in done, done


def test_joins_by_ranges_compare_columns(database):
    for join, plan in (
        ("ASOF JOIN flights b ON a.icao24 = b.icao24 AND a.timestamp >= b.timestamp", "AsofJoin"),
        ("JOIN flights b ON b.squawk BETWEEN a.squawk - 1 AND a.squawk + 1", "NestedLoopJoin"),
    ):
        plans = database.sql(f"EXPLAIN SELECT count(*) FROM flights a {join}").fetchall()
        assert plan in str(plans), plans


# ------------------------------------------------------------------------------ plan cache


def test_a_prepared_query_follows_changes_of_the_schema(tmp_path):
    with chronicle.open(tmp_path) as db:
        sql = "SELECT * FROM s"
        db.sql("CREATE STREAM s (t BIGINT, a DOUBLE) TIMESTAMP BY t")
        db.sql("INSERT INTO s VALUES (1, 2)")
        assert db.sql(sql).fetchall() == [(1, 2.0)]
        db.sql("ALTER STREAM s ADD COLUMN b VARCHAR")
        assert db.sql(sql).fetchall() == [(1, 2.0, None)]
        db.sql("DROP STREAM s")
        with pytest.raises(SqlError, match="no stream 's'"):
            db.sql(sql)
        db.sql("CREATE STREAM s (z BIGINT) TIMESTAMP BY z")
        assert db.sql(sql).columns == ["z"]


def test_prepared_aggregates_do_little(database):
    sql = "SELECT avg(altitude), max(squawk) FROM flights WHERE timestamp >= $a AND timestamp < $b"
    params = {"a": dt.datetime(2020, 1, 1, 5), "b": dt.datetime(2020, 1, 2, 7)}
    database.sql(sql, params).arrow()
    assert calls_of(lambda: database.sql(sql, params).arrow()) < 1_500


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((value, "38 digits") for value in (10**38, -(2**127) + 1, f"{2**128 - 1}::UHUGEINT")),
        ("['101'::BIT]", r"no type BIT\[\]; cast 'v'"), ("5::BIGNUM", "no type BIGNUM"),
        (f"map([1], [{{'size': {2**128 - 1}::UHUGEINT}}])", "38 digits"),
        ("[INTERVAL '18446744075' SECOND]", "292 years"), ("TIME '24:00:00'", "no time 24:00"),
    ],
)  # fmt: skip
def test_values_that_arrow_lacks_are_refused(database, value, words):
    """Its DECIMAL(38, 0) would say -1 for the greatest; bits are bytes of DuckDB's own there."""
    with pytest.raises(SqlError, match=words):
        database.sql(f"SELECT {value} AS v").fetchall()
