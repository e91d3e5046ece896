"""System tables: what the golden script does not show of them."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import SqlError
from chronicle.query.contract.catalog import SYSTEM_TABLES
from chronicle.query.sql.dialect import parse_statement

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])
NAMES = [f"{space}.{name}" for space, tables in SYSTEM_TABLES.items() for name in tables]


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with chronicle.open(tmp_path / "store") as opened:
        opened.create_stream("s", SCHEMA, time="t")
        opened.create_stream("hidden", SCHEMA, time="t")
        opened.stream("s").append([{"t": t, "k": "s", "x": t} for t in range(5)])
        yield opened


def test_every_table_gives_the_columns_that_it_and_the_page_say(db: Any) -> None:
    for name in NAMES:
        space, table = name.split(".")
        found = db.sql(f"SELECT * FROM {name}").arrow()
        assert found.schema.equals(SYSTEM_TABLES[space][table])
        described = db.sql(f"DESCRIBE SELECT * FROM {name}").fetchall()
        assert [column for column, _ in described] == found.schema.names
        line = next(row for row in PAGE.splitlines() if row.startswith(f"| `{name}` |"))
        assert re.findall(r"`(\w+)`", line.rsplit("|", 2)[1]) == found.schema.names


JOINED = (
    "SELECT count(*), max(a.events) FROM s, chronicle.streams AS a, chronicle.streams AS b "
    "WHERE a.stream = s.k AND b.stream <> s.k"
)
MATCHED = (
    "SELECT * FROM chronicle.streams MATCH_RECOGNIZE (ORDER BY events MEASURES A.stream AS a, "
    "B.stream AS b PATTERN (A B) DEFINE B AS events > PREV(events))"
)


def test_they_are_joined_read_twice_and_matched(db: Any) -> None:
    assert db.sql(JOINED).fetchall() == [(5, 5)]
    assert db.sql(MATCHED).fetchall() == [("hidden", "s")]
    inside = "SELECT x FROM s WHERE x >= (SELECT max(events) - 2 FROM chronicle.streams)"
    assert db.sql(inside).fetchall() == [(3,), (4,)]


def test_workers_read_them(db: Any) -> None:
    db.close()
    with chronicle.open(db.path, isolation="process") as apart:
        assert apart.sql(JOINED).fetchall() == [(5, 5)]
        assert apart.sql(MATCHED).fetchall() == [("hidden", "s")]
        for name in NAMES:
            space, table = name.split(".")
            found = apart.sql(f"SELECT DISTINCT * FROM {name}").arrow()
            assert found.schema.equals(SYSTEM_TABLES[space][table])


def test_columns_are_named_with_all_their_parts(db: Any) -> None:
    text = (
        "SELECT chronicle.streams.stream FROM chronicle.streams WHERE chronicle.streams.events > 0"
    )
    assert db.sql(text).fetchall() == [("s",)]
    catalog_of(db).create_index("s", "x")
    text = "SELECT stream, attribute, state FROM chronicle.indexes"
    assert db.sql(text).fetchall() == [("s", "x", "ready")]
    with pytest.raises(SqlError, match=r"one part, found a\.chronicle\.streams"):
        db.sql("SELECT * FROM a.chronicle.streams")


def test_they_follow_what_happens(db: Any) -> None:
    text = "SELECT events FROM chronicle.streams WHERE stream = 's'"
    assert db.sql(text).fetchall() == [(5,)]
    db.stream("s").append([{"t": 9, "k": "s", "x": 9}])
    assert db.sql(text).fetchall() == [(6,)]
    db.drop_stream("s")
    assert db.sql(text).fetchall() == []


def test_a_restricted_caller_sees_its_streams_and_nothing_else(db: Any) -> None:
    engine = catalog_of(db).engine
    seen = engine.seen_by(lambda stream: stream == "s")
    for name in NAMES:
        found = seen.run(f"SELECT * FROM {name}").arrow()
        assert "hidden" not in str(found.to_pylist())
    mine = "SELECT stream FROM chronicle.streams"
    assert seen.run(mine).fetchall() == [("s",)]
    settings = "SELECT * FROM chronicle.settings"
    assert seen.run(settings).fetchall() == []  # unless they are told
    told = engine.seen_by(None, lambda table: [{"name": table, "value": "1"}])
    assert told.run(settings).fetchall() == [("settings", "1", None)]


def test_a_damaged_stream_is_told_and_hinders_no_other(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with chronicle.open(store) as db:
        for name in ("bad", "good"):
            db.create_stream(name, SCHEMA, time="t")
        directory = catalog_of(db).store.directory_of("bad")
    (store / directory / "MANIFEST").write_bytes(b"nonsense")
    with chronicle.open(store) as db:
        rows = db.sql("SELECT stream, events, damage IS NULL FROM chronicle.streams").fetchall()
        assert sorted(rows) == [("bad", None, False), ("good", 0, True)]
        listed = db.sql("SELECT table_name FROM information_schema.tables").fetchall()
        assert ("good",) in listed
        assert ("bad",) not in listed
        assert db.sql("SELECT * FROM chronicle.segments").fetchall() == []


def test_a_plan_can_go_to_another_process(db: Any) -> None:
    text = "SELECT stream FROM chronicle.streams WHERE events > 0"
    engine = catalog_of(db).engine
    plan = pickle.loads(pickle.dumps(engine.plan(parse_statement(text), text)))
    assert engine.run_plan(plan).fetchall() == [("s",)]


def test_live_queries_do_not_follow_them(db: Any) -> None:
    for text in (
        "SELECT stream FROM chronicle.streams",
        "SELECT s.t FROM s JOIN chronicle.streams c ON c.version BETWEEN s.t - 5 AND s.t",
        "SELECT t FROM s WHERE k IN (SELECT stream FROM chronicle.streams)",
        "SELECT t FROM s UNION ALL SELECT events FROM chronicle.streams",
    ):
        with pytest.raises(SqlError, match="no events to follow"):
            db.sql(f"CREATE LIVE QUERY q AS {text}")


def test_what_is_written_is_never_a_system_table(db: Any) -> None:
    for text in (
        "INSERT INTO chronicle.streams VALUES (1)",
        "CREATE INDEX ON chronicle.streams (events)",
        "ALTER STREAM chronicle.streams ADD COLUMN x BIGINT",
        "CREATE STREAM chronicle.streams (t BIGINT) TIMESTAMP BY t",
        "DELETE FROM chronicle.streams WHERE true",
        "DROP STREAM chronicle.streams",
    ):
        with pytest.raises(SqlError):
            db.sql(text)
    db.sql("INSERT INTO s SELECT events + 10, stream, 0 FROM chronicle.streams")
    assert db.stream("s").count == 7
