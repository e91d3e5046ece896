"""Tables of the program beside streams: what SQL sees of them, and who does not."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.errors import ChronicleError, InvalidArgument, InvalidData, SqlError

ROWS = {"k": ["a", "b"], "name": ["Anna", "Bob"]}
JOIN = "SELECT k, name, sum(x) AS x FROM ev JOIN names USING (k) GROUP BY ALL ORDER BY k"
JOINED = [("a", "Anna", 6.0), ("b", "Bob", 9.0)]


def filled(database: Database) -> Database:
    schema = pa.schema([("t", pa.timestamp("ms")), ("k", pa.string()), ("x", pa.float64())])
    begin = dt.datetime(2026, 1, 1)
    database.create_stream("ev", schema, time="t").append(
        [{"t": begin + dt.timedelta(minutes=i), "k": "ab"[i % 2], "x": float(i)} for i in range(6)]
    )
    return database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with chronicle.open(tmp_path / "store") as database:
        yield filled(database)


@pytest.fixture(params=["none", "process"])
def each(request: Any, tmp_path: Path) -> Iterator[Database]:
    """With and without workers."""
    with chronicle.open(tmp_path / "store", isolation=request.param) as database:
        yield filled(database)


def test_whatever_is_a_table_joins_with_streams(each: Database, tmp_path: Path) -> None:
    table = pa.table(ROWS)
    pq.write_table(table, tmp_path / "names.parquet")
    for kind, frame in (
        ("table", table),
        ("batch", pa.record_batch(ROWS)),
        ("reader", table.to_reader()),
        ("pandas", pd.DataFrame(ROWS).astype({"name": "category"})),
        ("indexed", pd.DataFrame(ROWS).set_index("k")),
        ("polars", pl.DataFrame(ROWS, schema_overrides={"name": pl.Categorical})),
        ("lazy", pl.DataFrame(ROWS).lazy()),
        ("rows", table.to_pylist()),
        ("dataset", ds.dataset(tmp_path / "names.parquet")),
    ):
        each.register("Names", frame)
        for _ in range(2):  # a reader, too, may be asked again
            assert each.sql(JOIN).fetchall() == JOINED, kind
        assert each.sql("SELECT count(*) FROM NAMES").fetchall() == [(2,)], kind
        assert each.sql("SELECT name FROM names WHERE k = 'b'").fetchall() == [("Bob",)], kind


def test_types_come_as_streams_have_them(each: Database) -> None:
    zoned = pa.array([dt.datetime(2026, 1, 1, 12)], pa.timestamp("us")).cast(
        pa.timestamp("us", "Europe/Berlin")
    )
    columns = {
        "at": zoned,
        "word": pa.DictionaryArray.from_arrays([0], pa.array(["x"], pa.string_view())),
        "long": pa.array(["y"], pa.large_string()),
        "half": pa.array([1.5], pa.float16()),
        "none": pa.nulls(1),
        "big": pa.array([2**63 + 1], pa.uint64()),
        "hundreds": pa.array([Decimal(700)]).cast(pa.decimal128(5, -2)),
        "wide": pa.array([Decimal("0.25")], pa.decimal256(50, 2)),
    }
    each.register("f", pa.table(columns))
    answer = each.sql("SELECT * FROM f").arrow()
    assert list(answer.schema.types) == [
        pa.timestamp("us"), pa.string(), pa.string(), pa.float32(), pa.string(), pa.uint64(),
        pa.decimal128(7, 0), pa.decimal128(38, 2),
    ]  # fmt: skip
    assert [column[0].as_py() for column in answer.columns] == [
        dt.datetime(2026, 1, 1, 12), "x", "y", 1.5, None, 2**63 + 1, 700, Decimal("0.25")
    ]  # fmt: skip
    assert each.sql("SELECT count(*) FROM ev, f WHERE t < at").fetchall() == [(6,)]
    each.register("f", pa.table({"wide": pa.array([Decimal(10**40)], pa.decimal256(50, 2))}))
    with pytest.raises(InvalidData, match="'f': Decimal value does not fit"):
        each.sql("SELECT * FROM f").fetchall()


def test_patterns_and_appends_read_frames(each: Database) -> None:
    each.register("p", [{"t": t, "v": v} for t, v in ((1, 3), (2, 2), (3, 5), (4, 1))])
    falls = (
        "SELECT * FROM p MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a, B.t AS b "
        "PATTERN (A B) DEFINE B AS v < PREV(v))"
    )
    assert each.sql(falls).fetchall() == [(1, 2), (3, 4)]
    late = "INSERT INTO ev SELECT TIMESTAMP '2026-01-02' AS t, 'p' AS k, v AS x FROM p"
    assert each.sql(late).fetchall() == [(4,)]
    assert each.sql("SELECT count(*) FROM ev WHERE k = 'p'").fetchall() == [(4,)]


def test_a_name_means_what_was_registered_last(db: Database) -> None:
    """A statement that ran before is not answered from what its name meant then."""
    asked = "SELECT * FROM f"
    db.register("f", [{"a": 1}])
    assert db.sql(asked).fetchall() == [(1,)]
    db.register("F", [{"b": "two"}])
    assert db.sql(asked).fetchall() == [("two",)]
    open_result = db.sql(asked)
    db.unregister("f")
    with pytest.raises(SqlError, match="no stream 'f'"):
        db.sql(asked)
    with pytest.raises(InvalidArgument, match="registered no more"):
        open_result.fetchall()
    with pytest.raises(InvalidArgument, match="no frame 'f' is registered"):
        db.unregister("f")
    assert db.sql("WITH f AS (SELECT 3 AS c) SELECT * FROM f").fetchall() == [(3,)]


def test_what_is_no_frame_is_refused(db: Database) -> None:
    for name, frame, said in (
        ("EV", pa.table(ROWS), "there is a stream or view 'ev'"),
        ("", pa.table(ROWS), "under a name"),
        ("f", 3, "expected a pyarrow Table"),
        ("f", {"k": 1}, "found dict"),
        ("f", Path("names.csv"), "expected a pyarrow Table"),
        ("f", pa.table({"a": [1], "A": [2]}), "a twice"),
        ("f", pa.table({}), "no columns"),
    ):
        with pytest.raises(ChronicleError, match=said):
            db.register(name, frame)
    broken = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(InvalidData):
        db.register("f", pa.table({"a": broken}))
    with pytest.raises(SqlError, match="no stream 'f'"):
        db.sql("SELECT * FROM f")


def test_what_is_kept_and_what_changes_streams_reads_no_frames(db: Database) -> None:
    db.register("names", pa.table(ROWS))
    for statement, said in (
        ("CREATE LIVE QUERY q AS SELECT k, name FROM names", "frame"),
        ("CREATE LIVE QUERY q AS SELECT k FROM ev WHERE k IN (SELECT k FROM names)", "subqueries"),
        ("SELECT count(*) FROM TUMBLE(names, k, 2)", "registered frame"),
        ("INSERT INTO names VALUES ('c', 'Cid')", "no stream 'names'"),
        ("DROP STREAM names", "no stream 'names'"),
    ):
        with pytest.raises(SqlError, match=said):
            db.sql(statement).fetchall()


def test_those_who_see_some_streams_see_no_frames(db: Database) -> None:
    """The way in which a server asks for somebody with a token, and for anybody at all."""
    db.register("names", pa.table(ROWS))
    assert db.sql(JOIN).fetchall() == JOINED
    with pytest.raises(SqlError, match="no stream 'names'"):
        catalog_of(db).engine.seen_by(lambda _: True).run(JOIN)
    assert catalog_of(db).engine.access(JOIN).reads == {"ev"}
    catalog_of(db).serve_only_streams()
    with pytest.raises(SqlError, match="no stream 'names'"):
        db.sql(JOIN)
    with pytest.raises(InvalidArgument, match="a server is over this one"):
        db.register("names", pa.table(ROWS))


def test_a_plan_names_its_frames(db: Database) -> None:
    db.register("names", pa.table(ROWS))
    plan = str(db.explain(JOIN, analyze=True))
    assert "Frame" in plan
    assert "name: names" in plan
