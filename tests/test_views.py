"""Views: queries with a name stand for what they say, wherever a stream may stand."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.errors import (
    CorruptStore,
    InvalidArgument,
    ReadOnlyStore,
    SqlError,
    StreamExists,
    StreamNotFound,
    StreamOwned,
)
from chronicle.store.store import Store
from chronicle.store.views import Views
from chronicle.tests.faulty_files import Fault, FaultyFiles, SimulatedCrash, strikes
from chronicle.tests.memory_files import MemoryFiles

from .rounds import rounds

SCHEMA = pa.schema([("t", pa.int64()), ("a", pa.int32()), ("k", pa.string())])
PATTERN = (
    "SELECT * FROM {} MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS x, B.t AS y PATTERN (A B) "
    "WITHIN 10 DEFINE A AS a = 5, B AS a = 6) AS m"
)


def filled(store: Store | None, path: Path | None = None) -> Database:
    db = Database(StoreCatalog(store)) if store is not None else chronicle.open(path)  # type: ignore[arg-type]
    stream = db.create_stream("s", SCHEMA, time="t")
    stream.append([{"t": t, "a": t % 7, "k": "xyz"[t % 3]} for t in range(3000)])
    return db


def with_views(path: Path) -> Database:
    database = filled(None, path)
    database.sql("CREATE VIEW hot AS SELECT * FROM s WHERE a > 4")
    database.sql("CREATE VIEW warm AS SELECT t, a AS b, k FROM hot WHERE k <> 'y'")
    return database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with with_views(tmp_path / "store") as database:
        yield database


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """One for the tests that change nothing."""
    with with_views(tmp_path_factory.mktemp("views") / "store") as database:
        yield database


QUERIES = [
    "SELECT count(*), sum(a) FROM {hot}",
    "SELECT x.a, hot.k FROM {hot} AS x JOIN {hot} USING (t) WHERE t < 50 ORDER BY t",
    "SELECT * FROM {warm} WHERE b = 6 ORDER BY t LIMIT 5",
    "SELECT warm.b FROM {warm} ORDER BY warm.t DESC LIMIT 3",
    "SELECT u.q FROM {warm} AS u (p, q) WHERE p < 99 ORDER BY p",
    "SELECT count(*) FROM s WHERE a IN (SELECT b FROM {warm})",
    "SELECT count(*) FROM s WHERE EXISTS (SELECT 1 FROM {hot} WHERE hot.t = s.t)",
    "WITH z AS (SELECT b, count(*) AS n FROM {warm} GROUP BY b) SELECT * FROM z ORDER BY b",
    "SELECT a FROM {hot} UNION ALL SELECT b FROM {warm} ORDER BY 1 LIMIT 7",
    "SELECT count(*) FROM (FROM {hot} WHERE k = 'x')",
]


@pytest.mark.parametrize("text", [*QUERIES, PATTERN.replace("{}", "{hot}")])
def test_a_view_is_its_query(kept: Database, text: str) -> None:
    hot = "(SELECT * FROM s WHERE a > 4)"
    spelled = {"hot": hot, "warm": f"(SELECT t, a AS b, k FROM {hot} AS hot WHERE k <> 'y')"}
    wanted = text
    for name, query in spelled.items():
        for suffix in (" AS x", " AS u", " MATCH"):
            wanted = wanted.replace(f"{{{name}}}{suffix}", f"{query}{suffix}")
        wanted = wanted.replace(f"{{{name}}}", f"{query} AS {name}")
    found = kept.sql(text.format(hot="hot", warm="Warm")).fetchall()
    assert found == kept.sql(wanted).fetchall()
    assert found


@settings(max_examples=rounds(4, 60, 400), deadline=None)
@given(data=st.data())
def test_views_of_views_are_what_they_spell(data: st.DataObject) -> None:
    with filled(Store.open("memory", files=MemoryFiles())) as db:
        texts, names = {"s": "s"}, ["s"]
        for number in range(data.draw(st.integers(1, 5))):
            source = data.draw(st.sampled_from(names))
            body = data.draw(
                st.sampled_from(
                    [
                        "SELECT * FROM {} WHERE a > {n}",
                        "SELECT t, k, a + {n} AS a FROM {} AS q WHERE q.t < 2000",
                        "SELECT max(t) AS t, a, min(k) AS k FROM {} GROUP BY a",
                        "WITH s AS (SELECT * FROM {} LIMIT 900) SELECT * FROM s WHERE t % 3 <> {n}",
                        "SELECT a.* FROM {} AS a JOIN {} AS b ON a.t = b.t + {n}",
                    ]
                )
            )
            n = data.draw(st.integers(0, 4))
            db.sql(f"CREATE VIEW v{number} AS {body.replace('{n}', str(n)).replace('{}', source)}")
            inner = texts[source] if source == "s" else f"({texts[source]}) AS {source}"
            if " AS " in body.split("{}", 1)[1][:4]:
                inner = texts[source] if source == "s" else f"({texts[source]})"
            # `s` as a CTE would hide the stream in what is spelled out
            spelled = body.replace("WITH s AS", "WITH c AS").replace("FROM s WHERE", "FROM c WHERE")
            texts[f"v{number}"] = spelled.replace("{n}", str(n)).replace("{}", inner)
            names.append(f"v{number}")
        for name in names[1:]:
            rows = "count(*), sum(t), sum(a), min(k)"
            found = db.sql(f"SELECT {rows} FROM {name}").fetchall()
            assert found == db.sql(f"SELECT {rows} FROM ({texts[name]})").fetchall()


def test_names_mean_what_is_nearest(db: Database) -> None:
    assert db.sql("WITH s AS (SELECT 1 AS a) SELECT count(*) FROM hot").fetchall() == [(856,)]
    assert db.sql("WITH hot AS (SELECT 1 AS z) SELECT * FROM hot").fetchall() == [(1,)]
    text = "WITH s AS (SELECT 1 AS t, 2 AS a, 'x' AS k) " + PATTERN.format("hot")
    assert db.sql(text).fetchall() == db.sql(PATTERN.format("hot")).fetchall()
    with pytest.raises(InvalidArgument, match="a stream or view 'hot'"):
        db.register("Hot", pa.table({"z": [7]}))
    db.register("f", pa.table({"z": [7]}))
    with pytest.raises(SqlError, match="is a frame"):
        db.sql("CREATE VIEW g AS SELECT * FROM f")


def test_windows_over_a_view(db: Database) -> None:
    db.sql("CREATE VIEW hotter AS SELECT * FROM hot WHERE k = 'x'")
    over = "SELECT window_start, count(*) FROM {} {} GROUP BY window_start ORDER BY 1"
    for name, where in (("hot", "a > 4"), ("hotter", "a > 4 AND k = 'x'")):
        for call in ("TUMBLE({}, t, 500)", "HOP({}, t, 250, 500) AS w"):
            found = db.sql(over.format(call.format(name), "")).fetchall()
            assert found == db.sql(over.format(call.format("s"), f"WHERE {where}")).fetchall()
            more = db.sql(over.format(call.format(name), "WHERE t < 900 OR a = 5")).fetchall()
            wanted = f"WHERE (t < 900 OR a = 5) AND {where}"
            assert more == db.sql(over.format(call.format("s"), wanted)).fetchall()
    for call in ("TUMBLE(warm, t, 500)", "SESSION(hot, t, 5)", "HOP_ROWS(hot, 5, 10)"):
        with pytest.raises(SqlError, match=r"is a view, and \w+ reads a stream"):
            db.sql(f"SELECT count(*) FROM {call}")


RECENT = "SELECT l.t, l.a, v.{} FROM s AS l RECENT {} JOIN {} ON v.k = l.k WITHIN 5"


@pytest.mark.parametrize("kind", ["", "LEFT"])
def test_a_view_is_a_side_of_a_recency_join(db: Database, kind: str) -> None:
    """With its stream's time, or with PERIOD."""
    db.sql("CREATE VIEW later AS SELECT w.b + 1 AS c, w.t AS u, w.k, t + 1 AS t FROM warm AS w")
    hot, warm = "SELECT * FROM s WHERE a > 4", "SELECT t, a AS b, k FROM s WHERE a > 4 AND k <> 'y'"
    later = "SELECT a + 1 AS c, t AS u, k, t + 1 AS t FROM s WHERE a > 4 AND k <> 'y'"
    for column, side, spelled in (
        ("a", "hot AS v", f"({hot}) AS v PERIOD (t, t)"),
        ("b", "warm AS v", f"({warm}) AS v PERIOD (t, t)"),
        ("c", "later AS v", f"({later}) AS v PERIOD (u, u)"),
        ("c", "later AS v PERIOD (u, t)", f"({later}) AS v PERIOD (u, t)"),
    ):
        texts = [RECENT.format(column, kind, each) for each in (side, spelled)]
        found, wanted = (db.sql(text).fetchall() for text in texts)
        assert sorted(found, key=str) == sorted(wanted, key=str), side
        assert len(found) > 100
    for query in ("SELECT t + 0 AS t, k FROM s", "SELECT DISTINCT t, k FROM s", "SELECT k FROM s"):
        db.sql(f"CREATE OR REPLACE VIEW v AS {query}")
        with pytest.raises(SqlError, match="the view 'v': rows of a query have no times of their"):
            db.sql("SELECT l.t FROM s AS l RECENT JOIN v ON v.k = l.k WITHIN 5")


def test_indexes_and_replay_intervals_are_used(db: Database) -> None:
    stream = db.stream("s")
    stream.append([{"t": 3000 + i, "a": 100 + i, "k": "x"} for i in range(40_000)])
    stream.seal()
    stream.create_index("a")
    pattern = PATTERN.format("hot").replace("= 5", "= 990").replace("= 6", "= 991")
    plan = str(db.explain(pattern.replace("SELECT", "SELECT /*+ strategy(all) */", 1)))
    assert "indexes: A: a = 990" in plan
    assert "prune: a >= 5" in str(db.explain("SELECT * FROM warm WHERE b = 6"))


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("CREATE VIEW hot AS SELECT 1 AS x", StreamExists, "CREATE OR REPLACE"),
        ("CREATE VIEW s AS SELECT 1 AS x", StreamExists, "a stream 's' already"),
        ("CREATE VIEW S AS SELECT 1 AS x", StreamExists, "a stream 'S' already"),
        ("CREATE STREAM HOT (t BIGINT) TIMESTAMP BY t", StreamExists, "a view 'hot'"),
        ("CREATE STREAM hot TIMESTAMP BY t AS SELECT * FROM s", StreamExists, "a view 'hot'"),
        ("CREATE LIVE QUERY hot AS SELECT * FROM s", StreamExists, "a view 'hot'"),
        ("ALTER STREAM s RENAME TO hot", StreamOwned, "read by the views hot, warm"),
        ("DROP STREAM s", StreamOwned, "read by the views hot, warm"),
        ("DROP VIEW hot", StreamOwned, "read by the views warm"),
        ("DROP VIEW nothing", SqlError, "no view 'nothing'"),
        ("SHOW CREATE VIEW s", SqlError, "no view 's'"),
        ("CREATE OR REPLACE VIEW hot AS SELECT * FROM warm", SqlError, "'hot' reads itself.*warm"),
        ("CREATE OR REPLACE VIEW hot AS SELECT * FROM hot", SqlError, "'hot' reads itself"),
        ("CREATE VIEW v AS SELECT * FROM s WHERE a = $x", SqlError, "takes no parameters"),
        ("CREATE VIEW v AS SELECT nope FROM s", SqlError, "no column 'nope'"),
        ("CREATE VIEW v AS SELECT t, a AS T FROM s", SqlError, "'t' and 'T', .* case only"),
        ("CREATE VIEW v AS SELECT *, a FROM s", SqlError, "two columns 'a'"),
        ("CREATE VIEW v AS DROP STREAM s", SqlError, "a view is a SELECT"),
        ("CREATE VIEW v AS", SqlError, "ends too early"),
        ("CREATE VIEW v SELECT 1", SqlError, "expected AS"),
        ("CREATE OR REPLACE STREAM v (t BIGINT) TIMESTAMP BY t", SqlError, "CREATE makes"),
        ("CREATE VIEW v AS SELECT * FROM read_csv('x')", SqlError, "read_csv"),
        ("INSERT INTO hot VALUES (1, 2, 'x')", SqlError, "'hot' is a view"),
        ("DELETE FROM hot", SqlError, "'hot' is a view"),
        ("UPDATE hot SET a = 1", SqlError, "'hot' is a view"),
        ("CREATE INDEX ON hot (a)", SqlError, "'hot' is a view"),
        ("ALTER STREAM hot DROP COLUMN a", SqlError, "'hot' is a view"),
        ("SELECT nope FROM warm", SqlError, "nope"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_and_changes_nothing(
    kept: Database, text: str, kind: type[Exception], said: str
) -> None:
    before = dict(catalog_of(kept).views())
    with pytest.raises(kind, match=said):
        kept.sql(text)
    assert dict(catalog_of(kept).views()) == before
    assert kept.streams() == ["s"]


def test_statements_about_views(db: Database, tmp_path: Path) -> None:
    sql = "SELECT t, a AS b, k FROM hot WHERE k <> 'y'"
    assert db.sql("SHOW VIEWS").fetchall() == [
        ("hot", "SELECT * FROM s WHERE a > 4"),
        ("warm", sql),
    ]
    assert db.sql("SHOW CREATE VIEW WARM").fetchall() == [(f'CREATE VIEW "warm" AS {sql}',)]
    assert db.sql("DESCRIBE warm").fetchall() == [
        ("t", "BIGINT"), ("b", "INTEGER"), ("k", "VARCHAR"),
    ]  # fmt: skip
    told = "SELECT table_name FROM information_schema.{} WHERE table_schema = 'main' {}ORDER BY 1"
    assert db.sql(told.format("views", "")).fetchall() == [("hot",), ("warm",)]
    assert db.sql(told.format("tables", "AND table_type = 'VIEW' ")).fetchall() == [
        ("hot",), ("warm",),
    ]  # fmt: skip
    columns = db.sql(told.format("columns", "AND column_name = 'b' ")).fetchall()
    assert columns == [("warm",)]
    known = "SELECT count(*) FROM warm"
    assert db.sql(known).fetchall() == [(571,)]
    db.sql("CREATE OR REPLACE VIEW hot AS SELECT * FROM s WHERE a = 5 -- less\n;")
    assert catalog_of(db).views()["hot"].sql == "SELECT * FROM s WHERE a = 5"
    assert db.sql(known).fetchall() == [(286,)], "the statement was prepared with the old query"
    assert db.sql("CREATE VIEW IF NOT EXISTS hot AS SELECT 1 AS x").fetchall() == [
        ("view hot exists",)
    ]
    access = catalog_of(db).engine.access
    assert access("SELECT * FROM warm").reads == {"s"}
    assert access("CREATE VIEW v AS SELECT * FROM warm").scope == "write"
    assert access("CREATE OR REPLACE VIEW v AS SELECT * FROM warm").scope == "admin"
    assert access("DROP VIEW warm").scope == "admin"
    with chronicle.open(tmp_path / "store", mode="r") as reading:
        assert reading.sql(known).fetchall() == [(286,)]
        with pytest.raises(ReadOnlyStore):
            reading.sql("DROP VIEW warm")
        db.sql("CREATE VIEW more AS SELECT * FROM warm")
        assert reading.sql("SELECT count(*) FROM more").fetchall() == [(286,)]
        db.sql("DROP VIEW hot CASCADE")
        with pytest.raises(SqlError):
            reading.sql(known)
    assert not catalog_of(db).views()
    db.sql("CREATE VIEW hot AS SELECT * FROM s")
    with pytest.raises(StreamOwned):
        db.drop_stream("s")
    with pytest.raises(StreamNotFound):
        db.drop_stream("nothing", cascade=True)
    db.drop_stream("s", cascade=True)
    assert not catalog_of(db).views()
    assert not db.streams()


def test_a_broken_view_is_named(db: Database) -> None:
    db.sql("ALTER STREAM s RENAME COLUMN k TO kind")
    with pytest.raises(SqlError, match=r"the view 'warm': no column 'k'.*line 1, column 15"):
        db.sql("SELECT * FROM warm")
    assert db.sql("SELECT count(*) FROM hot").fetchall() == [(856,)]
    db.sql("ALTER STREAM s RENAME COLUMN kind TO k")
    assert db.sql("SELECT count(*) FROM warm").fetchall() == [(571,)]


def test_views_do_not_explode(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.sql("CREATE VIEW b0 AS SELECT 1 AS x")
    for i in range(1, 6):
        db.sql(f"CREATE VIEW b{i} AS SELECT l.x FROM b{i - 1} l, b{i - 1} r")
    with pytest.raises(SqlError, match="64 views at most"):
        db.sql("CREATE VIEW b6 AS SELECT l.x FROM b5 l, b5 r")
    for i in range(7):
        db.sql(f"CREATE VIEW c{i} AS SELECT * FROM {f'c{i - 1}' if i else 'hot'}")
    with pytest.raises(SqlError, match="8 views inside each other"):
        db.sql("CREATE VIEW c7 AS SELECT * FROM c6")
    monkeypatch.setattr("chronicle.query.binding.views.CHARACTERS_MAX", 1 << 13)
    db.sql("CREATE VIEW long AS SELECT * FROM s WHERE a IN (" + ", ".join(["1"] * 1_000) + ")")
    with pytest.raises(SqlError, match="characters of views"):
        db.sql("SELECT * FROM long, long AS l, long AS m")
    deep = "(" * 95 + "a" + ")" * 95
    for i in range(8):
        db.sql(f"CREATE VIEW d{i} AS SELECT {deep} AS a FROM {f'd{i - 1}' if i else 's'}")
    assert db.sql("SELECT count(*) FROM d7").fetchall() == [(3000,)]


def test_a_caller_sees_the_views_and_streams_of_its_reach(db: Database) -> None:
    db.create_stream("other", SCHEMA, time="t")
    db.sql("CREATE VIEW s_other AS SELECT * FROM other")

    def seen(text: str, prefix: str) -> list[tuple[object, ...]]:
        seen = catalog_of(db).engine.seen_by(lambda name: name.startswith(prefix))
        return seen.run(text).fetchall()

    assert seen("SELECT table_name FROM information_schema.views", "s") == [("s_other",)]
    with pytest.raises(SqlError, match="the view 's_other': no stream 'other'"):
        seen("SELECT * FROM s_other", "s")
    with pytest.raises(SqlError, match="no stream 'hot'"):
        seen("SELECT * FROM hot", "s")
    with pytest.raises(SqlError, match="the view 'hot': no stream 's'"):
        seen("SELECT * FROM hot", "hot")


def test_a_backup_has_the_views(db: Database, tmp_path: Path) -> None:
    db.backup(tmp_path / "copy")
    with chronicle.open(tmp_path / "copy") as copy:
        assert dict(catalog_of(copy).views()) == dict(catalog_of(db).views())
        assert copy.sql("SELECT count(*) FROM warm").fetchall() == [(571,)]


def test_a_damaged_file_of_views_is_told(db: Database, tmp_path: Path) -> None:
    db.close()
    path = tmp_path / "store" / "views" / "MANIFEST"
    path.write_bytes(path.read_bytes().replace(b"warm", b"cold", 1))
    with chronicle.open(tmp_path / "store") as again, pytest.raises(CorruptStore):
        again.sql("SELECT 1")


CHANGES = {
    "CREATE VIEW v AS SELECT * FROM s": ({"w"}, {"v", "w"}),
    "CREATE OR REPLACE VIEW w AS SELECT t FROM s": ({"w"}, {"w"}),
    "DROP VIEW w": ({"w"}, set()),
    "DROP STREAM s CASCADE": ({"w"}, set()),
}


def of_one_view(files: FaultyFiles) -> Database:
    db = filled(Store.open("memory", files=files))
    db.sql("CREATE VIEW w AS SELECT * FROM s")
    return db


@pytest.mark.crash
@pytest.mark.parametrize("text", CHANGES)
@pytest.mark.parametrize("fault", ["crash_before", "crash_halfway", "crash_after"])
def test_power_cut_at_every_operation(text: str, fault: Fault) -> None:
    before, after = CHANGES[text]
    for number, memory, _, db in strikes(fault, of_one_view, step=rounds(2, 1)):
        done = False
        with suppress(SimulatedCrash):
            db.sql(text)
            done = True
        crashed = memory.crash(random.Random(number), "tear")
        with Database(StoreCatalog(Store.open("memory", files=crashed))) as left:
            assert left.check().ok
            names = set(catalog_of(left).views())
            assert names in (before, after)
            assert names == after or not done
            if "w" in names:
                assert left.sql("SELECT count(*) FROM w").fetchall() == [(3000,)]


def test_what_could_not_be_written_did_not_happen() -> None:
    for _, memory, _, db in strikes("enospc", of_one_view):
        with suppress(chronicle.ChronicleError):
            db.sql("CREATE VIEW v AS SELECT * FROM s")
        assert dict(catalog_of(db).views()) == Views(memory, "r").all()
        db.close()
