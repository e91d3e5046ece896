"""Live queries as people use them: statements, options, refusals, and what Python offers."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import InvalidArgument, ReadOnlyStore, SqlError, StreamNotFound, StreamOwned
from chronicle.tests.patience import PATIENCE_S

from ..new_stores import store_with

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])
db = store_with("s", schema=SCHEMA)
TUMBLED = (
    "SELECT window_start, count(*) AS n FROM TUMBLE(s, t, 10) GROUP BY window_start, window_end"
)


def feed(db: Any, *ticks: int) -> None:
    db.stream("s").append([{"t": t, "k": "a", "x": t % 7} for t in ticks])


def net(db: Any, name: str, columns: str = "* EXCLUDE (_time, _id, _rev)") -> list[Any]:
    return sorted(db.sql(f"SELECT {columns} FROM NET({name})").fetchall())


# -- statements ---------------------------------------------------------------------------------


def test_the_life_of_a_live_query(db: Any) -> None:
    db.sql("CREATE LIVE QUERY high IDLE NEVER AS SELECT t, x FROM s WHERE x > 4")
    assert db.sql("CREATE LIVE QUERY IF NOT EXISTS high AS SELECT t FROM s").fetchall()
    feed(db, 1, 5, 6, 13)
    db.run_live()
    assert net(db, "high") == [(5, 5), (6, 6)]
    shown = db.sql("SHOW LIVE QUERIES").arrow().to_pylist()
    assert [(row["name"], row["state"], row["watermark"]) for row in shown] == [
        ("high", "running", "12")
    ]
    db.sql("ALTER LIVE QUERY high PAUSE")
    feed(db, 20)
    db.run_live()
    assert db.live("high").status()["state"] == "paused"
    assert net(db, "high") == [(5, 5), (6, 6)]
    db.sql("ALTER LIVE QUERY high RESUME")
    db.run_live()
    assert net(db, "high") == [(5, 5), (6, 6), (13, 6)]
    described = dict(db.sql("DESCRIBE LIVE QUERY high").fetchall())
    assert described["query"] == "SELECT t, x FROM s WHERE x > 4"
    assert described["idle"] == "never"
    text = "\n".join(row[0] for row in db.sql("EXPLAIN LIVE QUERY high").fetchall())
    assert "class: rows" in text
    assert "Scan" in text
    db.sql("DROP LIVE QUERY high")
    assert db.live_queries() == []
    assert db.streams() == ["s"]
    assert db.sql("DROP LIVE QUERY IF EXISTS high").fetchall()
    with pytest.raises(SqlError, match=r"no live query 'high'.*line 1, column 17"):
        db.sql("DROP LIVE QUERY high")


def test_who_may_drop_and_append(db: Any) -> None:
    db.create_live("high", "SELECT t, x FROM s WHERE x > 4")
    with pytest.raises(StreamOwned, match=r"read by the live queries high.*DROP LIVE QUERY high"):
        db.sql("DROP STREAM s")
    with pytest.raises(StreamOwned, match="sink of the live queries high"):
        db.drop_stream("high")
    with pytest.raises(StreamOwned, match="live queries put out"):
        db.sql(
            "INSERT INTO high (_time, _seq, _id, _rev, _diff) VALUES (1, 1, '\\x00'::BLOB, 0, 1)"
        )
    db.sql("DROP LIVE QUERY high KEEP RESULTS")
    assert db.streams() == ["high", "s"]
    db.drop_stream("high")
    db.drop_stream("s")


REFUSED = [
    ("SELECT count(*) FROM s", "aggregate over a window", 8),
    ("SELECT * FROM s ORDER BY x", "sort them where they are read", None),
    ("SELECT * FROM s LIMIT 5", "no end to count to", None),
    ("SELECT DISTINCT x FROM s", "group by a window", None),
    ("SELECT x, row_number() OVER (ORDER BY t) AS r FROM s", "OVER cannot be live", None),
    ("SELECT * FROM s a JOIN s b ON a.t = b.t", "would be called 't'", 8),
    ("SELECT x FROM s UNION SELECT x FROM s", "write UNION ALL", 30),
    ("SELECT random() AS r FROM s", "the same each time", 8),
    ("SELECT x FROM s WHERE t < now()", "the same each time", 27),
    ("SELECT x FROM s WHERE x > $low", "no parameters", 27),
    ("SELECT x FROM s WHERE x > (SELECT max(x) FROM s)", "no subqueries", None),
    ("SELECT x, x FROM s", "give one an alias", None),
    ("SELECT x AS _rev FROM s", "_rev", None),
    ("SELECT window_start, count(*) AS n FROM TUMBLE(s, t, 5)", "window_start", None),
    ("SELECT k, count(*) AS n FROM TUMBLE(s, t, 5) GROUP BY k", "group by window_start", None),
    ("SELECT count(*) AS n FROM TUMBLE(s, t, 5) GROUP BY 1.", "positions from 1 to 1", None),
    ("SELECT window_start, count(*) AS n FROM TUMBLE(s, t, 5, 'first') GROUP BY window_start",
     "time as origin", None),
    ("SELECT * FROM s MATCH_RECOGNIZE (MEASURES A.x AS x PATTERN (A B+) DEFINE A AS x > 1)",
     "add WITHIN", None),
    ("SELECT * FROM s MATCH_RECOGNIZE (MEASURES MATCH_NUMBER() AS n PATTERN (A) WITHIN 5 "
     "DEFINE A AS x > 1)", "use MATCH_ID", None),
    ("SELECT * FROM s MATCH_RECOGNIZE (MEASURES A.x AS y PATTERN (A) WITHIN 5 "
     "DEFINE A AS x > NEXT(x))", "look back with PREV", None),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "reason", "column"), REFUSED)
def test_what_cannot_be_live_is_refused(db: Any, sql: str, reason: str, column: int | None) -> None:
    with pytest.raises((SqlError, InvalidArgument), match=reason) as caught:
        db.create_live("q", sql)
    if column is not None:
        assert isinstance(caught.value, SqlError)
        assert (caught.value.line, caught.value.column) == (1, column)
    assert db.live_queries() == []
    assert db.streams() == ["s"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("START AT TIMESTAMP '2300-01-01'", "found the timestamp 2300-01-01 00:00:00"), ("", ""),
        ("EMIT ON CHANGE EVERY INTERVAL '1' SECOND", "windows and sessions"),
        ("INTO z WITH (durability = 'none')", "its own settings"), ("DELAY -3", "not negative"),
        ("DELAY INTERVAL '1' SECOND", "DELAY takes an integer"),
        ("START AT TIMESTAMP '2020-01-01'", "START AT takes"), ("DELAY 3 DELAY 4", "said already"),
        ("INTO s", "no stream that live queries share"), ("IDLE AFTER 5", "takes an interval"),
        ("WITH (durability = 'never')", "durability"), ("WITH (retentoin = '3 days')", "retention"),
        ("LATE NEVER", "CORRECT or IGNORE"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit(db: Any, options: str, reason: str) -> None:
    statement = f"CREATE LIVE QUERY q {options}\nAS SELECT t, x FROM s"
    if not reason:
        db.sql(statement)
        return
    with pytest.raises(SqlError, match=f"(?s){reason}.*line 1, column") as caught:
        db.sql(statement)
    assert caught.value.line == 1
    assert db.streams() == ["s"]


def test_names_in_use(db: Any) -> None:
    with pytest.raises(SqlError, match="there is a stream 's' already"):
        db.sql("CREATE LIVE QUERY s AS SELECT t, x FROM s")
    db.sql("CREATE LIVE QUERY q AS SELECT t, x FROM s")
    with pytest.raises(SqlError, match="there is a live query 'q' already"):
        db.sql("CREATE LIVE QUERY q AS SELECT t, x FROM s")


# -- time ---------------------------------------------------------------------------------------


def test_delay_waits_for_late_events(db: Any) -> None:
    q = db.create_live("q", TUMBLED, delay=5, idle="never")
    feed(db, 1, 12)
    db.run_live()
    assert net(db, "q") == []
    feed(db, 3, 15, 16)
    db.run_live()
    assert net(db, "q") == [(0, 2)]
    assert q.status()["watermark"] == 10
    assert q.status()["retractions"] == 0


def test_an_idle_source_closes_its_newest_time(db: Any) -> None:
    q = db.create_live("q", "SELECT t, x FROM s", idle="0 seconds")
    feed(db, 1, 12)
    db.run_live()
    assert net(db, "q", "t") == [(1,), (12,)]
    feed(db, 12)  # in order for the stream, late for the query
    db.run_live()
    assert net(db, "q", "t") == [(1,), (12,), (12,)]
    assert q.verify() == 0


def test_late_events_are_ignored_where_that_was_said(db: Any) -> None:
    q = db.create_live("q", TUMBLED, late="ignore", idle="never")
    assert "_diff" not in db.stream("q").schema.names
    feed(db, 1, 12)
    db.run_live()
    feed(db, 3, 11, 25)  # 3 is of a window that was put out, 11 of one that was not
    db.run_live()
    assert net(db, "q") == [(0, 1), (10, 2)]
    assert q.status()["ignored"] == 2
    assert q.status()["retractions"] == 0


def test_late_events_are_corrected_for_so_long(db: Any) -> None:
    db.create_live("q", TUMBLED, late=20, idle="never")
    feed(db, 1, 12, 50)
    db.run_live()
    feed(db, 2, 35, 51)  # the watermark was at 49
    db.run_live()
    assert net(db, "q") == [(0, 1), (10, 1), (30, 1)]


def test_where_it_starts(db: Any) -> None:
    feed(db, 1, 5, 12, 25)
    db.create_live("now", "SELECT t FROM s", start="now", idle="never")
    db.create_live("later", TUMBLED, start=19, idle="never")
    feed(db, 13, 26, 40)
    db.run_live()
    assert net(db, "now") == [(25,), (26,)]
    assert net(db, "later") == [(10, 2), (20, 2)]


def test_a_clock_that_is_wrong_does_not_move_time(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "clock") as db:
        schema = pa.schema([("ts", pa.timestamp("us")), ("x", pa.int64())])
        s = db.create_stream("s", schema, time="ts")
        q = db.create_live("q", "SELECT x FROM s WHERE x > 0", idle="never")
        at = dt.datetime(2024, 5, 1)
        s.append([{"ts": at + dt.timedelta(minutes=i), "x": i} for i in range(5)])
        s.append([{"ts": dt.datetime(2099, 1, 1), "x": 99}])
        db.run_live()
        assert q.status()["watermark"] == at + dt.timedelta(minutes=4, microseconds=-1)
        s.append([{"ts": at + dt.timedelta(minutes=9), "x": 7}])
        db.run_live()
        assert q.status()["watermark"] == at + dt.timedelta(minutes=9, microseconds=-1)
        assert q.verify() == 0


# -- what is put out ----------------------------------------------------------------------------


def test_open_windows_are_told_as_they_change(db: Any) -> None:
    q = db.create_live("q", TUMBLED, emit="0 seconds", idle="never")
    feed(db, 1, 2)
    db.run_live()
    assert net(db, "q") == [(0, 2)]
    feed(db, 3, 14)
    db.run_live()
    assert net(db, "q") == [(0, 3), (10, 1)]
    rows = [row for batch in q.rows() for row in batch.to_pylist()]
    assert [(r["window_start"], r["n"], r["_rev"], r["_diff"]) for r in rows] == [
        (0, 2, 0, 1), (0, 2, 0, -1), (0, 3, 1, 1), (10, 1, 0, 1)
    ]  # fmt: skip


def test_sessions_are_told_as_they_grow(db: Any) -> None:
    sql = (
        "SELECT window_start, window_end, count(*) AS n FROM SESSION(s, t, 5) "
        "GROUP BY window_start, window_end"
    )
    db.create_live("q", sql, emit="0 seconds", idle="never")
    for ticks in ((1, 3), (6,), (30,), (12, 11), (100,)):
        feed(db, *ticks)
        db.run_live()
        assert net(db, "q") == sorted(db.sql(sql).fetchall())


def test_many_share_a_sink(db: Any) -> None:
    one = db.create_live("one", "SELECT t, x FROM s WHERE x = 1", into="alerts", idle="never")
    db.create_live("two", "SELECT t, x FROM s WHERE x = 2", into="alerts", idle="never")
    with pytest.raises(SqlError, match="other columns"):
        db.create_live("three", "SELECT t, k FROM s", into="alerts")
    feed(db, *range(20))
    db.run_live()
    assert net(db, "alerts", '"_query", t') == [
        ("one", 1), ("one", 8), ("one", 15), ("two", 2), ("two", 9), ("two", 16)
    ]  # fmt: skip
    assert one.net().num_rows == 3
    feed(db, 8)
    db.run_live()
    assert one.net().num_rows == 4
    assert one.verify() == 0
    one.drop()
    assert net(db, "alerts", '"_query", t') == [("two", 2), ("two", 9), ("two", 16)]
    db.live("two").drop()
    assert "alerts" not in db.streams()


def test_the_rows_of_a_star_are_those_of_its_creation(db: Any) -> None:
    db.create_live("q", "SELECT * FROM s", idle="never")
    db.stream("s").add_column("y", pa.int64())
    feed(db, 1, 2)
    db.run_live()
    assert db.live("q").net().schema.names == ["_time", "_id", "_rev", "t", "k", "x"]
    assert db.live("q").verify() == 0


def test_ids_do_not_depend_on_the_text(db: Any) -> None:
    db.create_live("a", "SELECT t, x FROM s WHERE x > 2", idle="never")
    db.create_live("b", "select T, (X) from S /* as above */ where X > 2", idle="never")
    db.create_live("c", "SELECT t, x FROM s WHERE x > 3", idle="never")
    feed(db, *range(9))
    db.run_live()
    a, b, c = (set(db.live(name).net().column("_id").to_pylist()) for name in "abc")
    assert a == b
    assert not a & c


def test_match_id_of_an_adhoc_query_is_the_id(db: Any) -> None:
    pattern = (
        "PARTITION BY k ORDER BY t MEASURES FIRST(t) AS f{} PATTERN (A B+) WITHIN 9 "
        "DEFINE A AS x > 4, B AS x < PREV(x)"
    )
    db.create_live("m", f"SELECT f FROM s MATCH_RECOGNIZE ({pattern.format('')})", idle="never")
    feed(db, *range(60), 1000)
    db.run_live()
    wanted = pattern.format(", MATCH_ID() AS i")
    ids = db.sql(f"SELECT i FROM s MATCH_RECOGNIZE ({wanted})").fetchall()
    assert sorted(row[0] for row in ids) == sorted(db.live("m").net().column("_id").to_pylist())
    assert len(ids) > 3


def test_windows_of_events_are_numbered_on(db: Any) -> None:
    sql = "SELECT window_id AS n, window_start, window_end, sum(x) AS total " \
          "FROM HOP_ROWS(s, 2, 3) GROUP BY window_id, window_start, window_end"  # fmt: skip
    with pytest.raises(SqlError, match="LATE IGNORE"):
        db.sql(f"CREATE LIVE QUERY q AS {sql}")
    for wrong in ("window_id * 2 AS n", "count(*) AS n"):
        keys = "k" if "(" in wrong else "window_id"
        text = f"SELECT {wrong} FROM TUMBLE_ROWS(s, 2) GROUP BY {keys}"
        with pytest.raises(SqlError, match="window_id"):
            db.create_live("q", text, late="ignore")
    q = db.create_live("q", sql, late="ignore", idle="never")
    done: list[int] = []
    for ticks in ((1, 2, 2, 2), (2, 5, 9), (10,), (11, 12, 13, 14, 15, 16, 17), (40,)):
        feed(db, *ticks)
        done += ticks
        db.run_live()
        known = sorted(t for t in done if t < done[-1])
        wanted = [
            (n, w[0], w[-1], sum(t % 7 for t in w))
            for n in range(len(known))
            if len(w := known[2 * n : 2 * n + 3]) == 3
        ]
        assert net(db, "q") == wanted
    feed(db, 3, 3, 50)  # late: every position behind moves, what was put out stays
    before = net(db, "q")
    db.run_live()
    after = net(db, "q")
    assert after[: len(before)] == before
    assert [row[0] for row in after] == list(range(len(after)))
    assert len(after) == len(before) + 1
    assert q.status()["ignored"] == 2


# -- failures -----------------------------------------------------------------------------------


def test_a_definition_that_cannot_be_read_is_told_and_can_be_dropped(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s") as db:
        db.create_stream("s", SCHEMA, time="t")
        db.create_live("good", "SELECT t FROM s", idle="never")
        db.create_live("bad", "SELECT t FROM s", idle="never")
    manifest = tmp_path / "s" / "live" / "bad" / "MANIFEST"
    manifest.write_text(manifest.read_text().replace("SELECT", "DELETE"))
    with chronicle.open(tmp_path / "s", live=True) as db:
        feed(db, 1, 2)
        db.run_live(timeout=PATIENCE_S)
        assert net(db, "good") == [(1,)]
        shown = {row["name"]: row for row in db.sql("SHOW LIVE QUERIES").arrow().to_pylist()}
        assert shown["bad"]["state"] == "failed"
        assert "cannot be read" in shown["bad"]["error"]
        db.sql("DROP LIVE QUERY bad")
        assert db.live_queries() == ["good"]
        db.drop_stream("bad")


# -- over restarts ------------------------------------------------------------------------------


def test_a_thread_does_the_steps(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s", live=True) as db:
        db.create_stream("s", SCHEMA, time="t")
        q = db.create_live("q", "SELECT t, x FROM s WHERE x > 4", idle="0 seconds")
        seen: list[int] = []
        done = threading.Event()

        def follow() -> None:
            for batch in q.rows(follow=True):
                seen.extend(batch.column("_seq").to_pylist())
                if len(seen) >= 4:
                    done.set()

        reader = threading.Thread(target=follow)
        reader.start()
        for tick in (5, 6, 12, 13):
            feed(db, tick)
        assert done.wait(PATIENCE_S)
        db.run_live(timeout=PATIENCE_S)
        assert seen == [1, 2, 3, 4]
    reader.join(PATIENCE_S)
    assert not reader.is_alive()
    with chronicle.open(tmp_path / "s", live=True) as db:
        feed(db, 19, 3)
        db.run_live(timeout=PATIENCE_S)
        assert db.live("q").verify() == 0
        assert [b.column("_seq").to_pylist() for b in db.live("q").rows(after=4)] == [[5]]


def test_where_the_store_is_read_only(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s") as db:
        db.create_stream("s", SCHEMA, time="t")
        db.create_live("q", "SELECT t, x FROM s", idle="never")
        feed(db, 1, 2)
        db.run_live()
        with chronicle.open(tmp_path / "s", mode="r") as reader:
            assert net(reader, "q", "t") == [(1,)]
            assert reader.live_queries() == ["q"]
            assert reader.live("q").status()["state"] == "elsewhere"
            db.create_live("later", "SELECT t FROM s")
            assert reader.live_queries() == ["later", "q"]
            with pytest.raises(ReadOnlyStore):
                reader.create_live("p", "SELECT t FROM s")
            assert reader.live("q").net().num_rows == 1
            feed(db, 5)
            db.run_live()
            assert [b.num_rows for b in reader.live("q").rows()] == [2]
            with pytest.raises(ReadOnlyStore):
                reader.live("q").rows(follow=True)
    with pytest.raises(InvalidArgument, match="mode='rw'"):
        chronicle.open(tmp_path / "s", mode="r", live=True)


def test_a_backup_has_them(db: Any, tmp_path: Path) -> None:
    db.create_live("q", TUMBLED, idle="never")
    feed(db, 1, 15, 27)
    db.run_live()
    db.backup(tmp_path / "copy")
    with chronicle.open(tmp_path / "copy") as copy:
        assert copy.live_queries() == ["q"]
        feed(copy, 2, 45)
        copy.run_live()
        assert copy.live("q").verify() == 0
        assert net(copy, "q") == [(0, 2), (10, 1), (20, 1)]


def test_retention_of_the_source_takes_nothing_back(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s") as db:
        schema = pa.schema([("ts", pa.timestamp("s")), ("x", pa.int64())])
        s = db.create_stream("s", schema, time="ts", retention="10 minutes")
        sql = "SELECT window_start, count(*) AS n FROM TUMBLE(s, ts, INTERVAL '1' MINUTE) " \
              "GROUP BY window_start"  # fmt: skip
        q = db.create_live("q", sql, idle="never")
        at = dt.datetime(2024, 5, 1)
        for part in range(8):
            moments = [at + dt.timedelta(seconds=300 * part + 10 * i) for i in range(30)]
            s.append([{"ts": moment, "x": 1} for moment in moments])
            s.seal()
            db.run_live()
        assert s.stats()["dropped_events"] > 0
        s.append([{"ts": at + dt.timedelta(seconds=2300), "x": 1}, {"ts": at, "x": 1}])
        db.run_live()
        held = dict(net(db, "q"))
        assert len(held) == 39
        assert held[at] == 6
        assert q.verify() == 0


def test_unknown_names(db: Any) -> None:
    with pytest.raises(StreamNotFound, match="there are none yet"):
        db.live("q")
    with pytest.raises(SqlError, match="holds no results"):
        db.sql("SELECT * FROM NET(s)")


@pytest.mark.parametrize("skip", ["", "AFTER MATCH SKIP TO NEXT ROW"])
def test_the_event_before_a_match_may_be_far_away(db: Any, skip: str) -> None:
    """PREV of a first event reads an event of its partition that lies behind every reach."""
    rising = (
        f"SELECT f FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES FIRST(t) AS f {skip} "
        "PATTERN (A B) WITHIN 8 DEFINE A AS x > PREV(x), B AS x > 2)"
    )
    db.sql(f"CREATE LIVE QUERY q IDLE NEVER AS {rising}")
    rows = [(0, "a", 1), (1, "b", 1), *((t, "b", 1) for t in range(100, 1000, 100))]
    for t, k, x in [*rows, (1000, "a", 7), (1002, "a", 8), (1102, "b", 1)]:
        db.stream("s").append([{"t": t, "k": k, "x": x}])
        db.run_live()
    assert net(db, "q") == [(1000,)]
    assert db.live("q").verify() == 0
    assert "from the first one on" in str(db.sql("EXPLAIN LIVE QUERY q").fetchall())


def test_one_that_fails_stops_alone_whatever_the_error(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a step or at opening; the others go on, and it goes on where it stopped."""
    for name in ("bad", "good"):
        db.sql(f"CREATE LIVE QUERY {name} IDLE NEVER AS SELECT t FROM s WHERE x > 4")
    feed(db, 5, 6, 7)
    form = catalog_of(db).live_statements.query("bad").form

    def broken(*_: Any) -> Any:
        raise KeyError("nobody expects it")

    with monkeypatch.context() as patched:
        patched.setattr(form, "results", broken)
        db.run_live()
    status = db.live("bad").status()
    assert status["state"] == "failed"
    assert "a fault in Chronicle (KeyError: 'nobody expects it')" in status["error"]
    assert net(db, "good", "t") == [(5,), (6,)]
    assert net(db, "bad", "t") == []
    db.live("bad").resume()
    db.run_live()
    assert net(db, "bad", "t") == [(5,), (6,)]

    rounds = catalog_of(db).live_statements._rounds
    opened = rounds._opened

    def opening(definition: Any) -> Any:
        return broken() if definition.name == "bad" else opened(definition)

    rounds._queries.clear()
    monkeypatch.setattr(rounds, "_opened", opening)
    feed(db, 12, 13, 14)
    db.run_live()
    assert db.live("bad").status()["state"] == "failed"
    assert net(db, "good", "t") == [(5,), (6,), (12,), (13,)]


def test_waiting_for_a_query_that_joins_a_group_meanwhile(tmp_path: Path) -> None:
    """Begun as one by itself and gone on as a member, it has taken everything in."""
    with chronicle.open(tmp_path / "s", live=True) as db:
        stream = db.create_stream("e", pa.schema([("t", pa.int64()), ("x", pa.int64())]), time="t")
        stream.append([{"t": at, "x": at % 7} for at in range(200)])
        sql = (
            "SELECT * FROM e MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a PATTERN (A B) WITHIN 9 "
            "DEFINE A AS x = 5, B AS x = 6)"
        )
        for number in range(5):
            db.create_live(f"q{number}", sql, idle="never")
            db.run_live(timeout=PATIENCE_S)
            assert db.sql(f"SELECT count(*) FROM NET(q{number})").fetchall() == [(28,)]
