"""UPDATE in each interface: what may be said, what follows, what is refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.errors import (
    ChronicleError,
    InvalidArgument,
    InvalidData,
    ReadOnlyStore,
    SqlError,
    StreamOwned,
)

SCHEMA = pa.schema(
    [
        pa.field("t", pa.timestamp("us")),
        pa.field("k", pa.string()),
        pa.field("x", pa.int32(), nullable=False),
        pa.field("d", pa.decimal128(10, 2)),
        pa.field("b", pa.binary()),
    ]
)
EPOCH = dt.datetime(1970, 1, 1)
ROWS = "SELECT epoch_us(t), k, x, d, b FROM s"


def event(at: int, k: str) -> dict[str, Any]:
    return {"t": EPOCH + dt.timedelta(microseconds=at), "k": k, "x": at, "d": None, "b": b"."}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t", options={"compaction": "manual"})
        stream.append([event(t, "ab"[t % 2]) for t in range(6)])
        stream.create_index("k")
        stream.create_index("x")
        yield database


def test_update_in_sql(db: Database) -> None:
    result = db.sql("update S set K = k || ?, d = x / 4, b = NULL where x > ?", ["!", 3])
    assert result.schema.names == ["updated"]
    assert result.fetchall() == [(2,)]
    rows = [tuple(map(str, row)) for row in db.sql(ROWS).fetchall()[3:]]
    assert rows == [
        ("3", "b", "3", "None", "b'.'"),
        ("4", "a!", "4", "1.00", "None"),
        ("5", "b!", "5", "1.25", "None"),
    ]
    assert db.sql("UPDATE s SET x = x + $y WHERE k = $k", {"y": 10, "k": "a!"}).fetchall() == [(1,)]
    assert db.sql("SELECT x FROM s WHERE k = 'a!'").fetchall() == [(14,)]
    assert db.sql("SELECT x FROM s WHERE x > 5").fetchall() == [(14,)]
    assert db.sql("SELECT max(x), sum(x) FROM s").fetchall() == [(14, 25)]
    assert db.sql("UPDATE s SET x = 0 WHERE NULL").fetchall() == [(0,)]
    assert db.sql("UPDATE s SET x = 0").fetchall() == [(6,)]
    assert db.sql("SELECT DISTINCT x FROM s").fetchall() == [(0,)]
    assert catalog_of(db).engine.access("UPDATE s SET x = 1").scope == "admin"
    assert catalog_of(db).engine.access("UPDATE s SET x = 1").target == "s"


def test_update_from_python(db: Database) -> None:
    stream = db.stream("s")
    version = stream.snapshot().version
    assert stream.update({"x": "x * 2", "k": "'it''s'"}, "x >= 1", 2, 4) == 2
    assert stream.update({"x": "-1"}, None, start=5) == 1
    assert stream.update({"x": "1 / 0"}, "false") == 0
    assert stream.snapshot().version == version + 2
    assert stream.scan().read_all().column("x").to_pylist() == [0, 1, 4, 6, 4, -1]
    with pytest.raises(InvalidArgument, match="at least one column"):
        stream.update({}, None)
    with pytest.raises(SqlError) as caught:
        stream.update({"x": "1", "k": "upper(nothing)"}, None)
    assert (caught.value.line, caught.value.column) == (2, 7)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("UPDATE s SET x = 'many' WHERE x = 4", "the value 'many' (stream 's', event at 1970-"),
        ("UPDATE s SET x = row_number() OVER ()", "an expression over one event"),
        ("UPDATE s SET x = 1 WHERE x IN (SELECT 1)", "a condition on one event"),
        ("UPDATE s SET x = 3000000000", "cannot take the value '3000000000'"),
        ("UPDATE s SET x = 1 RETURNING x", "did not expect 'RETURNING'"),
        ("UPDATE s SET x = (SELECT 1)", "an expression over one event"),
        ("UPDATE s SET t = t", "DELETE the event and INSERT it anew"), ("UPDATE s", "expected SET"),
        ("UPDATE s SET x", "expected = and an expression after 'x'"),
        ("UPDATE s SET x = COLUMNS(*)", "several columns or rows"),
        ("UPDATE s SET x = 1 FROM s", "did not expect 'FROM'"),
        ("UPDATE s SET x = 1, X = 2", "'x' is assigned twice"),
        ("UPDATE s SET x =", "expected the new value of 'x'"),
        ("UPDATE nowhere SET x = 1", "no stream 'nowhere'"),
        ("UPDATE s SET", "expected the name of a column"), ("UPDATE s SET x = y", "no column 'y'"),
        ("UPDATE s SET x = ?", "no value was given"), ("UPDATE s SET y = 1", "no attribute 'y'"),
        ("UPDATE s SET x = max(x)", "GROUP BY"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_and_changes_nothing(db: Database, text: str, said: str) -> None:
    before, version = db.sql(ROWS).fetchall(), db.stream("s").snapshot().version
    with pytest.raises(SqlError) as caught:
        db.sql(text)
    assert said in str(caught.value)
    assert db.sql(ROWS).fetchall() == before
    assert db.stream("s").snapshot().version == version


def test_a_column_that_may_not_be_null_stays_so(db: Database) -> None:
    with pytest.raises(InvalidData, match="'x' must not be null, but would be for the event at"):
        db.sql("UPDATE s SET x = CASE WHEN x < 3 THEN x END")
    assert db.sql("SELECT sum(x) FROM s").fetchall() == [(15,)]


def test_who_may_not(db: Database, tmp_path: Path) -> None:
    db.sql("CREATE LIVE QUERY q AS SELECT t, x FROM s WHERE x > 3")
    db.run_live()
    with pytest.raises(StreamOwned):
        db.sql("UPDATE q SET x = 1")
    with pytest.raises(ReadOnlyStore):
        db.sql("UPDATE s SET x = 1", read_only=True)
    with chronicle.open(tmp_path / "store", mode="r") as reading:
        for change in (
            lambda: reading.sql("UPDATE s SET x = 1"),
            lambda: reading.stream("s").update({"x": "1"}, None),
        ):
            with pytest.raises(ReadOnlyStore):
                change()


def test_answers_after_an_update_are_those_of_the_new_values_with_or_without_indexes(
    db: Database,
) -> None:
    stream = db.stream("s")
    stream.compact()
    indexes = catalog_of(db).indexes_of("s")
    indexes.catch_up(stream.snapshot().state)
    db.sql("UPDATE s SET k = 'c' WHERE x = 2")
    for caught_up in (False, True):
        if caught_up:
            indexes.catch_up(stream.snapshot().state)
        for plan in ("replay", "index", "auto"):
            found = db.sql(f"SELECT /*+ strategy({plan}) */ x FROM s WHERE k = 'c'").fetchall()
            assert found == [(2,)]
            found = db.sql(f"SELECT /*+ strategy({plan}) */ x FROM s WHERE k = 'a'").fetchall()
            assert found == [(0,), (4,)]
    assert db.check().ok


def test_errors_are_ours(db: Database) -> None:
    for text in ("UPDATE s SET x = error('no')", "UPDATE s SET k = x.y", "UPDATE s SET x = [1]"):
        with pytest.raises(ChronicleError):
            db.sql(text)
