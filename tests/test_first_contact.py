"""What a newcomer's program meets: any table goes in, names are few, errors say what to do."""

from __future__ import annotations

import datetime as dt
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database
from chronicle.errors import (
    ChronicleError,
    ConnectionFailed,
    InvalidArgument,
    InvalidData,
    SchemaMismatch,
    SqlError,
    StreamExists,
    UnsupportedType,
)
from chronicle.query.contract.result import Result

START = dt.datetime(2026, 1, 1)
COLUMNS = {
    "at": [START + dt.timedelta(minutes=i) for i in range(5)],
    "x": [4.0, 1.0, 3.0, 2.0, None],
    "k": list("abaab"),
}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with chronicle.open(tmp_path / "store") as database:
        yield database


def table() -> pa.Table:
    return pa.table(COLUMNS)


MADE: dict[str, Callable[[], Any]] = {
    "table": table,
    "batch": lambda: table().to_batches()[0],
    "reader": lambda: table().to_reader(2),
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "indexed": lambda: pd.DataFrame(COLUMNS).set_index("at"),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "lazy": lambda: pl.DataFrame(COLUMNS, schema_overrides={"k": pl.Categorical}).lazy(),
    "relation": lambda: duckdb.from_arrow(table()),
    "rows": lambda: table().to_pylist(),
    "texts": lambda: table().set_column(0, "at", table()["at"].cast(pa.string())),
    "generator": lambda: (pd.DataFrame(table().slice(i, 1).to_pydict()) for i in range(5)),
    "list": lambda: [table().slice(3), pl.DataFrame(COLUMNS)[:3]],
}


@pytest.mark.parametrize("made", MADE)
def test_any_table_makes_a_stream(db: Database, made: str) -> None:
    stream = db.create_stream("s", MADE[made](), retention="30 days")
    assert (stream.time, stream.count) == ("at", 5)
    assert db.sql("SELECT * FROM s").df().to_dict("list")["k"] == COLUMNS["k"]
    assert stream.aggregate({"x": "sum"}) == {"x": {"sum": 10.0}}
    report = db.ingest(MADE[made](), "s")
    assert (report.stored, report.created, db["s"].count) == (5, False, 10)


PARTS = pa.struct([("f", pa.binary(2)), ("h", pa.decimal128(5, -2))])


def test_types_that_streams_lack_become_types_that_hold_the_values(db: Database) -> None:
    columns = {
        "hundreds": pa.array([Decimal(700), None]).cast(pa.decimal128(5, -2)),
        "wide": pa.array([Decimal("0.25"), None], pa.decimal256(50, 2)),
        "small": pa.array([Decimal("0.25"), None], pa.decimal32(5, 2)),
        "fixed": pa.array([b"abc", None], pa.binary(3)),
        "runs": pa.array([7, None], pa.duration("ms")).cast(pa.int64()),
        "words": pa.array([["a"], None], pa.list_(pa.string_view())),
        "part": pa.array([{"f": b"ab", "h": Decimal(700)}, None], PARTS),
    }
    times = pa.array([Decimal(1), Decimal(2)])
    data = {"t": times, **columns, "runs": columns["runs"].cast(pa.duration("ms"))}
    assert (
        "runs: durations are stored as numbers of ms" in db.ingest(pa.table(data), "s", "t").notes
    )
    found = db.sql("SELECT * EXCLUDE (t) FROM s").arrow()
    assert found.schema.types == [
        pa.decimal128(7, 0), pa.decimal128(38, 2), pa.decimal128(5, 2), pa.binary(), pa.int64(),
        pa.list_(pa.string()), pa.struct([("f", pa.binary()), ("h", pa.decimal128(7, 0))]),
    ]  # fmt: skip
    assert found.to_pydict() == {name: values.to_pylist() for name, values in columns.items()}
    db.ingest([{"t": 1, "u": 2**63, "n": -1}, {"t": 1, "u": 2, "n": 2**64}], "rows", "t")
    assert db["rows"].schema.types[1:] == [pa.uint64(), pa.decimal128(38, 0)]
    db.ingest(pl.DataFrame({"t": [1], "l": [["a", None]]}), "lists", "t")
    assert db.sql("SELECT l FROM lists").fetchall() == [(["a", None],)]


def test_files_are_ingested_as_by_the_command(db: Database, tmp_path: Path) -> None:
    for name in ("a", "b"):
        path = tmp_path / f"{name}.csv"
        path.write_text("when;Wert\n01.02.2026 13:00;12,56\n", encoding="utf-8")
    options = {"time_format": "%d.%m.%Y %H:%M", "file_column": "file"}
    report = db.ingest(tmp_path / "*.csv", "s", "when", **options)
    assert (report.stored, report.files) == (2, 2)
    assert db.sql("SELECT * FROM s ORDER BY file").fetchall() == [
        (dt.datetime(2026, 2, 1, 13), 12.56, name) for name in "ab"
    ]
    (tmp_path / "c.ndjson").write_text('{"t": "2026-01-01", "v": 1}\n{"t": "x", "v": 2}\n')
    assert db.ingest([tmp_path / "c.ndjson"], "c", on_error="skip").bad == 1
    (tmp_path / "d.lp").write_text("m,k=v x=1.5 7\n")
    (tmp_path / "e.csv").write_text(" time , x \n1 , 2 \n")
    assert (db.ingest(tmp_path / "d.lp", "m").stored, db["m"].time) == (1, "time")
    db.ingest(tmp_path / "e.csv", "e", "time")
    assert db.sql("SELECT * FROM e").fetchall() == [(1, 2)]


@pytest.mark.parametrize(
    ("source", "options", "error", "said"),
    [
        (3, {}, InvalidArgument, "ingest takes the path of a file, .*; found int"),
        ("nowhere.csv", {}, InvalidArgument, "there is no file 'nowhere.csv'"),
        ({"at": [1]}, {}, InvalidArgument, "found dict"),
        ((n for n in (1, 2)), {}, InvalidArgument, "found int"),
        (iter(()), {}, InvalidArgument, "no rows: give time="),
        (pd.DataFrame({"x": [1]}), {}, InvalidArgument, "no column is like a time .columns are x;"),
        (pd.DataFrame(COLUMNS).assign(u=START), {}, InvalidArgument, "at, u may be it"),
        (pd.DataFrame(COLUMNS), {"time": "t"}, InvalidData, "no time column 't'"),
        (pd.DataFrame(COLUMNS), {"type": "x=int"}, InvalidArgument, "did you mean 'types'"),
        (pa.array([1]), {}, ChronicleError, "table"),
        (pl.DataFrame({"t": [1], "v": [object()]}), {}, SchemaMismatch, "'v' holds Python objects"),
        *(
            (pa.table({"t": [1], "v": values}), {"time": time}, error, said)
            for time, values, error, said in (
                ("v", pa.array([1], pa.time32("s")), InvalidData, "'v' of type time32.s. holds no"),
                ("t", pa.nulls(1, pa.list_(pa.duration("s"))), UnsupportedType, "'v' holds list<"),
                ("t", pa.array([1], pa.timestamp("s", "A/B")), UnsupportedType, "time zone 'A/B'"),
            )
        ),
        *(
            (rows, {}, SchemaMismatch, "the data cannot be read as a table: ")
            for rows in (
                [{"t": 1, "v": 1}, {"t": 2, "v": "x"}],
                pd.DataFrame({"t": [1], "v": pd.Series([2**70], dtype=object)}),
                pd.DataFrame([[1, 2, 3]], columns=["t", "v", "v"]),
                pd.DataFrame({"t": [1], "v": [1j]}),
                pd.DataFrame({"t": [1], "v": pd.period_range("2024", periods=1, freq="M")}),
            )
        ),
    ],
)
def test_what_cannot_be_ingested(
    db: Database, source: Any, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        db.ingest(source, "s", **options)
    assert list(db) == []


def test_it_is_all_or_nothing(db: Database) -> None:
    def broken() -> Iterator[pd.DataFrame]:
        yield pd.DataFrame(COLUMNS)
        raise RuntimeError("the source broke")

    db.create_stream("s", table())
    for source in (broken(), [table(), pa.table({"at": [None], "x": [1.0], "k": ["c"]})]):
        with pytest.raises((RuntimeError, InvalidData)):
            db.ingest(source, "s")
        with pytest.raises((RuntimeError, InvalidData)):
            db.create_stream("new", source, time="at")
    assert (list(db), db["s"].count) == (["s"], 5)
    with pytest.raises(StreamExists, match="appends"):
        db.create_stream("s", table())
    assert db.create_stream("s", table(), if_not_exists=True).count == 5


def test_of_a_generator_few_tables_are_held(db: Database) -> None:
    made: list[weakref.ref[pd.DataFrame]] = []
    most = 0

    def frames() -> Iterator[pd.DataFrame]:
        nonlocal most
        for first in range(0, 200_000, 10_000):
            frame = pd.DataFrame({"t": range(first, first + 10_000)})
            made.append(weakref.ref(frame))
            most = max(most, sum(each() is not None for each in made))
            yield frame

    assert db.ingest(frames(), "s", "t").stored == 200_000
    assert most <= 3


TOP = pa.table({"k": ["a"], "name": ["Anna"]})


def test_names_in_from_may_be_variables(db: Database) -> None:
    db.create_stream("s", table())
    names = pl.DataFrame({"k": ["b"], "name": ["Bob"]})
    text = "SELECT name FROM s JOIN {} USING (k) WHERE x > $low"
    assert db.sql(text.format("names"), low=0.5).fetchall() == [("Bob",)]
    assert db.sql(text.format("TOP"), {"low": 3.5}).fetchall() == [("Anna",)]
    names = names.with_columns(name=pl.lit("Bert"))
    assert db.sql(text.format("names"), low=0.5).fetchall() == [("Bert",)]
    assert "names" in str(db.explain(text.format("names"), low=1))
    s = names
    assert db.sql("SELECT count(*) FROM s").fetchall() == [(5,)], "streams have precedence"
    assert s.height == 1


def test_variables_are_of_the_caller_and_of_single_queries(db: Database, tmp_path: Path) -> None:
    db.create_stream("s", table())
    other, number = pa.table(COLUMNS), 3

    def inner() -> Result:
        return db.sql("SELECT * FROM other")

    for run in (
        inner,
        lambda: db.sql("SELECT * FROM number"),
        lambda: db.sql("SELECT * FROM nowhere"),
    ):
        with pytest.raises(SqlError, match="no stream"):
            run()
    for statement in (
        "CREATE VIEW v AS SELECT * FROM other",
        "CREATE LIVE QUERY q AS SELECT at, x FROM other",
        "INSERT INTO other VALUES (1)",
    ):
        with pytest.raises(SqlError):
            db.sql(statement)
    assert (other.num_rows, number) == (5, 3)
    with (
        chronicle.open(tmp_path / "store", mode="r", frames=False) as strict,
        pytest.raises(SqlError, match="no stream 'other'"),
    ):
        strict.sql("SELECT * FROM other")


def test_parameters_have_names_or_numbers(db: Database) -> None:
    assert db.sql("SELECT $a + $b AS n", {"a": 1}, b=2).fetchall() == [(3,)]
    with pytest.raises(InvalidArgument, match="names or numbers"):
        db.sql("SELECT ?", [1], b=2)


def test_results_are_shown_and_drawn(
    db: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    db.create_stream("s", table())
    result = db.sql("SELECT at, x FROM s")
    result.show(3)
    shown = capsys.readouterr().out
    assert "2026-01-01 00:02:00" in shown
    assert "00:03:00" not in shown
    assert shown.endswith("the first 3 rows, there are more; 2 columns\n")
    db.sql("SELECT at FROM s").show()
    assert capsys.readouterr().out.endswith("5 rows; 1 column\n")
    plot = result.plot()
    assert "over at" in str(plot)
    assert plot._repr_html_().startswith("<svg")
    plot.save(tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_text().startswith("<svg")
    with pytest.raises(InvalidArgument, match=r"\.svg, \.html or \.png"):
        plot.save(tmp_path / "p.gif")


def test_a_database_is_like_a_mapping(db: Database) -> None:
    made = db.create_stream("s", table())
    assert db["s"] is made
    assert ("s" in db, "t" in db, list(db)) == (True, False, ["s"])


def test_connecting_to_nothing_fails_at_once() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        unused_port = listening.getsockname()[1]
    with pytest.raises(ConnectionFailed, match="is it running"):
        chronicle.connect(f"http://127.0.0.1:{unused_port}")


def test_the_compiled_build_of_sqlglot_is_refused_in_a_sentence() -> None:
    """Its parser cannot be extended; installing it beside sqlglot replaces sqlglot's own."""
    program = (
        "import sqlglot.parser; sqlglot.parser.__file__ = 'parser.so'\n"
        "import chronicle\n"
        "try: import chronicle.query.sql.dialect\n"
        "except chronicle.MissingDependency as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE)
    assert b"pip uninstall sqlglotc" in done.stdout
