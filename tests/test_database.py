"""The embedded database and its streams: the Python interface as users meet it."""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import chronicle
from chronicle.errors import (
    AttributeNotFound,
    InvalidArgument,
    NotAStore,
    ReadOnlyStore,
    SqlError,
    StoreClosed,
    StoreLocked,
    StreamExists,
    StreamNotFound,
    UnsupportedType,
)

from .query.calls import calls_of

START = dt.datetime(2020, 1, 1)
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us")),
        ("x", pa.float64()),
        ("n", pa.int64()),
        ("k", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("dec", pa.decimal128(9, 2)),
    ]
)


def events(rows: int) -> pa.Table:
    x = np.arange(rows) * 0.5
    x[::50] = math.nan
    return pa.table(
        {
            "at": [START + dt.timedelta(seconds=i) for i in range(rows)],
            "x": x,
            "n": [None if i % 7 == 0 else i for i in range(rows)],
            "k": [f"k{i % 9}" for i in range(rows)],
            "b": [i % 3 == 0 for i in range(rows)],
            "d": [START.date() + dt.timedelta(days=i // 1000) for i in range(rows)],
            "dec": [Decimal(i).scaleb(-2) for i in range(rows)],
        },
        schema=SCHEMA,
    )


ROWS = 5_000
TABLE = events(ROWS)


@pytest.fixture
def db(tmp_path):
    with chronicle.open(tmp_path / "store") as database:
        yield database


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    database = chronicle.open(tmp_path_factory.mktemp("store"))
    made = database.create_stream("s", SCHEMA, time="at", options={"leaf_bytes": 8192})
    made.append(TABLE)
    yield made
    database.close()


# -------------------------------------------------------------------------------- opening


def test_opening_creates_a_store_and_closing_ends_it(tmp_path):
    path = tmp_path / "a" / "store"
    db = chronicle.open(path)
    assert db.mode == "rw"
    assert db.path == path
    assert db.streams() == []
    assert "rw" in repr(db)
    db.close()
    db.close()
    assert "closed" in repr(db)
    for use in (db.streams, lambda: db.sql("SELECT 1"), lambda: db.stream("s")):
        with pytest.raises(StoreClosed):
            use()


LEFT_OPEN = """
import atexit, sys, threading

@atexit.register  # first in, last out
def threads():
    names = [thread.name for thread in threading.enumerate()]
    print([name for name in names if name.startswith("chronicle")], was)

import chronicle
import pyarrow as pa
db = chronicle.open(sys.argv[1])
if "s" not in db.streams():
    schema = pa.schema([("t", pa.int64()), ("x", pa.float64())])
    stream = db.create_stream("s", schema, time="t")
    db["s"].create_index("x")
    stream.append([{"t": n, "x": n % 7} for n in range(20_000)])
    stream.seal()
    stream.append([{"t": 20_000, "x": 1.0}])  # what no run covers keeps the builder's thread awake
match = "MATCH_RECOGNIZE (MEASURES A.x AS a PATTERN (A B) WITHIN 5 DEFINE A AS x > 5, B AS x < 1)"
assert db.sql(f"SELECT /*+ strategy(all) */ * FROM s {match}").arrow().num_rows
was = any(thread.name == "chronicle-indexes" for thread in threading.enumerate())
if sys.argv[2] == "raise":
    raise ValueError("boom")
"""


def test_a_program_that_closes_nothing_ends_quietly(tmp_path):
    for how in ("make", "end", "raise"):
        command = [sys.executable, "-c", LEFT_OPEN, str(tmp_path / "store"), how]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.stdout.startswith("[] "), "a thread goes on while the interpreter ends"
        assert done.stdout == "[] True\n" or how != "make"
        if how == "raise":
            assert done.stderr.startswith("Traceback")
            assert done.stderr.endswith("ValueError: boom\n")
        else:
            assert (done.returncode, done.stderr) == (0, "")


def test_a_schema_is_one_of_arrow(tmp_path):
    with chronicle.open(tmp_path) as db, pytest.raises(InvalidArgument, match="found dict"):
        db.create_stream("s", {"t": "timestamp"}, time="t")


def test_what_cannot_be_opened_is_said(tmp_path):
    with pytest.raises(NotAStore):
        chronicle.open(tmp_path / "missing", mode="r")
    with pytest.raises(InvalidArgument, match="'rw' or 'r'"):
        chronicle.open(tmp_path, mode="w")
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotAStore):
        chronicle.open(tmp_path / "file")
    with chronicle.open(tmp_path / "store"), pytest.raises(StoreLocked):
        chronicle.open(tmp_path / "store")


def test_a_reader_sees_what_the_writer_commits(tmp_path):
    with chronicle.open(tmp_path) as writer:
        stream = writer.create_stream("s", pa.schema([("t", pa.int64())]), "t")
        stream.append(pa.table({"t": [1, 2]}))
        stream.flush()
        with chronicle.open(tmp_path, mode="r") as reader:
            assert reader.mode == "r"
            assert reader.stream("s").count == 2
            stream.append(pa.table({"t": [3]}))
            stream.flush()
            assert reader.stream("s").count == 3
            assert reader.sql("SELECT max(t) FROM s").fetchall() == [(3,)]
            for change in (
                lambda: reader.create_stream("q", pa.schema([("t", pa.int64())]), "t"),
                lambda: reader.drop_stream("s"),
                lambda: reader.stream("s").append(pa.table({"t": [4]})),
                lambda: reader.stream("s").flush(),
                lambda: reader.stream("s").seal(),
                lambda: reader.stream("s").compact(),
                lambda: reader.stream("s").add_column("z", pa.int64()),
                lambda: reader.stream("s").create_index("t"),
            ):
                with pytest.raises(ReadOnlyStore):
                    change()


def test_opening_and_aggregating_load_neither_duckdb_nor_sqlglot(tmp_path):
    script = (
        "import sys, chronicle, pyarrow as pa\n"
        "with chronicle.open(sys.argv[1]) as db:\n"
        "    s = db.create_stream('s', pa.schema([('t', pa.int64())]), 't')\n"
        "    s.append([{'t': 1}])\n"
        "    s.aggregate({'t': 'count'})\n"
        "    s.scan().read_all()\n"
        "print(sorted({'duckdb', 'sqlglot', 'fastapi'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


# -------------------------------------------------------------------------------- streams


def test_streams_are_created_found_and_dropped(db):
    made = db.create_stream("s", SCHEMA, time="at", codec="zstd", retention="30 days")
    assert made.name == "s"
    assert made.time == "at"
    assert made.schema.names == SCHEMA.names
    assert db.stream("s") is made
    assert db.create_stream("s", SCHEMA, time="at", if_not_exists=True) is made
    with pytest.raises(StreamExists):
        db.create_stream("s", SCHEMA, time="at")
    with pytest.raises(StreamExists):
        db.create_stream("s", pa.schema([("q", pa.int64())]), time="q", if_not_exists=True)
    db.create_stream("a", SCHEMA, time="at")
    assert db.streams() == ["a", "s"]
    db.drop_stream("s")
    assert db.streams() == ["a"]
    with pytest.raises(StreamNotFound):
        db.stream("s")
    with pytest.raises(StreamNotFound):
        db.drop_stream("s")
    db.drop_stream("s", if_exists=True)


def test_wrong_definitions_are_refused(db):
    with pytest.raises(InvalidArgument, match="half of a surrogate pair"):
        db.stream("\ud800")
    with pytest.raises(InvalidArgument, match="time="):
        db.create_stream("s", SCHEMA)
    with pytest.raises(InvalidArgument, match="nope"):
        db.create_stream("s", SCHEMA, time="nope")
    with pytest.raises(UnsupportedType):
        db.create_stream("s", SCHEMA, time="k")
    with pytest.raises(UnsupportedType, match=r"decimal128\(5, -2\)"):
        db.create_stream("s", SCHEMA.append(pa.field("round", pa.decimal128(5, -2))), time="at")
    with pytest.raises(InvalidArgument, match="codec"):
        db.create_stream("s", SCHEMA, time="at", codec="gzip")
    with pytest.raises(
        InvalidArgument, match=r"unknown setting of a stream: \w+ \(options are codec, "
    ):
        db.create_stream("s", SCHEMA, time="at", options={"nope": 1})
    assert db.streams() == []


def test_an_empty_stream_answers(db):
    empty = db.create_stream("s", SCHEMA, time="at")
    assert empty.count == 0
    assert len(empty) == 0
    assert empty
    assert empty.time_range is None
    assert empty.scan().read_all().num_rows == 0
    assert empty.aggregate({"x": ["count", "sum", "min", "max", "avg", "first", "last"]}) == {
        "x": {"count": 0, "sum": None, "min": None, "max": None, "avg": None, "first": None,
              "last": None}
    }  # fmt: skip
    assert db.sql("SELECT count(*), sum(x), min(at) FROM s").fetchall() == [(0, None, None)]
    assert empty.append([]).appended == 0


def test_times_come_out_as_declared(db):
    cases = [
        (pa.int64(), [5, 9], (5, 9)),
        (pa.timestamp("s"), [START], (START, START)),
        (
            pa.timestamp("ms", "UTC"),
            [START.replace(tzinfo=dt.timezone.utc)],
            (START.replace(tzinfo=dt.timezone.utc),) * 2,
        ),
    ]
    for number, (type_, values, expected) in enumerate(cases):
        made = db.create_stream(f"s{number}", pa.schema([("t", type_)]), time="t")
        made.append(pa.table({"t": pa.array(values, type_)}))
        assert made.time_range == expected
        low_high = made.aggregate({"t": ["min", "max", "first", "count"]})["t"]
        assert (low_high["min"], low_high["max"]) == expected
        assert low_high["first"] == expected[0]
        assert low_high["count"] == len(values)


# ----------------------------------------------------------------------------------- scan


def test_scan_gives_ranges_columns_and_limits(stream):
    whole = stream.scan().read_all()
    assert whole.schema == stream.schema
    assert whole.drop_columns("x").equals(TABLE.cast(stream.schema).drop_columns("x"))
    assert repr(whole.column("x").to_pylist()) == repr(TABLE.column("x").to_pylist())
    part = stream.scan(START + dt.timedelta(seconds=10), START + dt.timedelta(seconds=20))
    assert part.read_all().column("k").to_pylist() == TABLE.column("k").slice(10, 10).to_pylist()
    assert stream.scan(columns=["n", "at"]).schema.names == ["n", "at"]
    assert stream.scan(columns=[]).read_all().num_columns == 0
    assert stream.scan(columns=["N"]).schema.names == ["n"]
    assert stream.scan(limit=7).read_all().num_rows == 7
    assert stream.scan(limit=0).read_all().num_rows == 0
    assert stream.scan("2020-01-01T00:00:05Z", "2020-01-01 00:00:06").read_all().num_rows == 1
    assert stream.scan(START, START).read_all().num_rows == 0
    for batch in stream.scan():
        assert batch.num_rows > 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"columns": ["nope"]}, AttributeNotFound),
        ({"columns": ["x", "x"]}, InvalidArgument),
        ({"columns": "x"}, InvalidArgument),
        ({"start": "yesterday"}, InvalidArgument),
        ({"start": 1.5}, InvalidArgument),
        ({"limit": -1}, InvalidArgument),
        ({"filter": 5}, InvalidArgument),
        ({"filter": "x >"}, SqlError),
        ({"filter": "nope > 5"}, SqlError),
        ({"filter": "x > 5; DROP STREAM s"}, SqlError),
        ({"filter": "x IN (SELECT * FROM read_csv('/etc/passwd'))"}, SqlError),
    ],
)
def test_wrong_scans_are_refused(stream, arguments, error):
    with pytest.raises(error):
        stream.scan(**arguments).read_all()


FILTERS = [
    ("x > 1000", None),
    ("n BETWEEN 10 AND 20 AND k = 'k4'", None),
    ("k LIKE 'k1%' OR n IS NULL", None),
    ("NOT b", ~pc.field("b")),
    ("at >= '2020-01-01 01:00:00'", pc.field("at") >= START + dt.timedelta(hours=1)),
    ("n > 4000", pc.field("n") > 4000),
    ("n IN (5, 8, 11)", pc.field("n").isin([5, 8, 11])),
    ("k = 'k3' AND n < 100", (pc.field("k") == "k3") & (pc.field("n") < 100)),
    ("lower(k) = 'k3' AND extract(minute FROM at) = 5", None),
    ("n % 2 = 0", None),
]


@pytest.mark.parametrize(("predicate", "expression"), FILTERS)
def test_scan_filters_by_sql_and_by_expression(stream, predicate, expression):
    got = stream.scan(filter=predicate, columns=["at", "n", "k"]).read_all()
    wanted = stream._catalog.engine.run(f"SELECT at, n, k FROM s WHERE {predicate}").arrow()
    assert got.num_rows == wanted.num_rows > 0
    assert got.to_pylist() == wanted.to_pylist()
    assert got.schema == pa.schema([stream.schema.field(name) for name in ("at", "n", "k")])
    if expression is not None:
        by_expression = stream.scan(filter=expression, columns=["at", "n", "k"]).read_all()
        assert by_expression.equals(got)


def test_a_filter_meets_a_range_and_a_limit(stream):
    found = stream.scan(
        START + dt.timedelta(seconds=1000),
        START + dt.timedelta(seconds=2000),
        columns=["n"],
        filter="n % 100 = 0",
        limit=3,
    ).read_all()
    assert found.column("n").to_pylist() == [1000, 1100, 1200]


@pytest.mark.parametrize(
    "expression",
    [pc.field("y") > 1, pc.field("x") == "a", pc.divide(pc.field("n"), 0) > 1, pc.field("x")],
)
def test_a_filter_that_arrow_cannot_compute_is_refused(stream, expression):
    with pytest.raises(InvalidArgument, match="the filter cannot be computed: "):
        stream.scan(filter=expression).read_all()


def test_nan_in_filters_follows_each_language(stream):
    nans = ROWS // 50
    by_sql = stream.scan(filter="x > 1e9").read_all().num_rows
    by_arrow = stream.scan(filter=pc.field("x") > 1e9).read_all().num_rows
    assert (by_sql, by_arrow) == (nans, 0)
    for expression in (~(pc.field("x") >= 2), ~(pc.field("x") > 2), ~(pc.field("x") == 2.5)):
        assert (
            stream.scan(filter=expression).read_all().num_rows == TABLE.filter(expression).num_rows
        )


# ------------------------------------------------------------------------------ aggregate


@pytest.mark.parametrize("seed", range(5))
def test_aggregates_equal_those_of_the_events(stream, seed):
    rng = np.random.default_rng(seed)
    low, high = sorted(rng.integers(0, ROWS + 1, 2).tolist())
    part = TABLE.slice(low, high - low)
    got = stream.aggregate(
        {
            "n": ["count", "sum", "min", "max", "avg"],
            "b": ["min", "max", "sum"],
            "d": ["min", "max"],
            "k": ("min", "max", "count"),
            "dec": ["sum", "min", "max", "avg"],
            "at": "count",
        },
        START + dt.timedelta(seconds=low),
        START + dt.timedelta(seconds=high),
    )
    numbers = [v for v in part.column("n").to_pylist() if v is not None]
    assert got["n"]["count"] == len(numbers)
    assert got["at"]["count"] == part.num_rows
    if not numbers:
        return
    assert (got["n"]["sum"], got["n"]["min"], got["n"]["max"]) == (
        sum(numbers),
        min(numbers),
        max(numbers),
    )
    assert got["n"]["avg"] == pytest.approx(sum(numbers) / len(numbers))
    for name in ("b", "d", "k", "dec"):
        values = part.column(name).to_pylist()
        assert (got[name]["min"], got[name]["max"]) == (min(values), max(values))
    assert got["b"]["sum"] == sum(part.column("b").to_pylist())
    assert got["dec"]["sum"] == sum(part.column("dec").to_pylist())
    assert got["dec"]["avg"] == pytest.approx(float(got["dec"]["sum"]) / part.num_rows)


def test_first_and_last_are_those_of_the_events(stream):
    got = stream.aggregate(
        {"n": ["first", "last"], "k": "last"}, START, START + dt.timedelta(seconds=9)
    )
    assert got == {"n": {"first": None, "last": 8}, "k": {"last": "k8"}}


def test_floats_count_nan_as_the_greatest(stream):
    got = stream.aggregate({"x": ["min", "max", "sum"]}, START, START + dt.timedelta(seconds=10))
    assert got["x"]["min"] == 0.5
    assert math.isnan(got["x"]["max"])
    assert math.isnan(got["x"]["sum"])


@pytest.mark.parametrize(
    ("functions", "error"),
    [
        ({"nope": "sum"}, AttributeNotFound),
        ({"x": "median"}, InvalidArgument),
        ({"k": "sum"}, InvalidArgument),
        ({"d": "avg"}, InvalidArgument),
    ],
)
def test_wrong_aggregates_are_refused(stream, functions, error):
    with pytest.raises(error):
        stream.aggregate(functions)


def test_aggregate_adds_little_to_the_tree_walk(stream):
    low, high = START + dt.timedelta(seconds=100), START + dt.timedelta(seconds=4900)
    stream.aggregate({"x": ["sum", "max"]}, low, high)
    assert calls_of(lambda: stream.aggregate({"x": ["sum", "max"]}, low, high)) < 450
