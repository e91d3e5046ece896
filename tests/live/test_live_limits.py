"""Options that bound a live query: lag, state, what a truncation does, and results not stored."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import InvalidArgument, ResourceLimit, SqlError, StreamNotFound
from chronicle.live import forms, sink
from chronicle.live.query import LiveQuery
from chronicle.query.contract.operator import MatchLimits
from chronicle.query.pattern.advancing import AdvancingMatch
from chronicle.query.sql.dialect import parse_statement
from chronicle.store import staging
from chronicle.tests.patience import PATIENCE_S

from ..new_stores import store_with

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])
db = store_with("s", schema=SCHEMA)
ROWS = "SELECT t, x FROM s WHERE x > 2"
WINDOWS = "SELECT window_start, count(*) AS n FROM TUMBLE(s, t, 5) GROUP BY window_start"
PATTERN = (
    "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.t AS a, LAST(B.x) AS b "
    "PATTERN (A B) WITHIN 6 DEFINE A AS x > 4, B AS x < 5)"
)
JOIN = "SELECT a.x, b.x AS y FROM s a JOIN s b ON b.t BETWEEN a.t - 5 AND a.t AND a.k = b.k"


def feed(db: Any, *ticks: int) -> None:
    db.stream("s").append([{"t": t, "k": "ab"[t % 2], "x": t * 3 % 7} for t in ticks])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("lag_events_max = -1", "lag_events_max"),
        ("lag_events_max = 'many'", "lag_events_max is a number, 0 or more, found 'many'"),
        ("state_bytes_max = true", "state_bytes_max is a number"),
        ("on_truncate = 'go on'", "'refresh' or 'stop', found 'go on'"),
        ("store = 7", "store is true or false, found 7"),
        ("store = false, retention = 100", "nothing is stored"),
        ("store = false, webhook = 'https://example.org/'", "a webhook needs results"),
        ("stored = false", "did you mean store"),
    ],
)
def test_refusals(db: Any, options: str, error: str) -> None:
    with pytest.raises(SqlError, match=f"(?s){error}.*line 1, column|something|number") as caught:
        db.sql(f"CREATE LIVE QUERY q WITH ({options}) AS {ROWS}")
    assert caught.value.line == 1
    assert db.live_queries() == []


@pytest.mark.parametrize(
    ("clause", "sql", "error"),
    [
        ("INTO shared", ROWS, "INTO needs results that are stored"),
        ("EMIT ON CHANGE EVERY INTERVAL '1' SECOND", WINDOWS, "EMIT ON CHANGE needs results"),
        ("START AT 5", ROWS, "a time to start at needs results"),
        ("LATE IGNORE", "SELECT window_id, sum(x) AS n FROM TUMBLE_ROWS(s, 3) GROUP BY window_id",
         "counted on from those"),
    ],
)  # fmt: skip
def test_what_results_that_pass_by_cannot_have(db: Any, clause: str, sql: str, error: str) -> None:
    with pytest.raises(SqlError, match=error):
        db.sql(f"CREATE LIVE QUERY q {clause} WITH (store = false) AS {sql}")


def test_results_of_a_step_have_the_budget_of_a_query(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "RESULT_BYTES_MAX", 20_000)
    many = (
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES LAST(t) AS l PATTERN (A B C) "
        "WITHIN 60 EVENT SELECTION SKIP TILL ANY MATCH)"
    )
    db.sql(f"CREATE LIVE QUERY many IDLE NEVER AS {many}")
    db.sql(f"CREATE LIVE QUERY few IDLE NEVER AS {ROWS}")
    feed(db, *range(10))
    db.run_live()
    assert db.live("many").status()["state"] == "running"
    feed(db, *range(10, 60))
    db.run_live()
    status = db.live("many").status()
    assert status["state"] == "failed"
    assert "step of a live query of 's' has more than 20000 bytes of results" in status["error"]
    assert db.live("few").status()["state"] == "running"
    assert db.live("few").verify() == 0


def test_matches_that_explode_end_with_an_error(db: Any) -> None:
    clause = (
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES MATCH_ID() AS l PATTERN (A B) "
        "WITHIN 600 EVENT SELECTION SKIP TILL ANY MATCH)"
    )
    compiled = (
        catalog_of(db)
        .engine.prepared(parse_statement(clause), clause)
        .bound.sites[0]
        .operator.compiled
    )
    stream = AdvancingMatch(compiled)
    stream.limits = MatchLimits(memory_bytes=200_000)
    events = pa.table({"t": range(300), "k": ["a"] * 300, "x": [1] * 300}, schema=SCHEMA)
    with pytest.raises(ResourceLimit, match="end in one step need more than 200000 bytes; narrow"):
        stream.advance(events, 299)


def test_too_much_state_stops_that_query_alone(db: Any) -> None:
    db.sql(f"CREATE LIVE QUERY small IDLE NEVER WITH (state_bytes_max = 40000) AS {JOIN}")
    db.sql(f"CREATE LIVE QUERY large IDLE NEVER AS {JOIN}")
    for begin in range(0, 100, 10):
        feed(db, *range(begin, begin + 10))
        db.run_live()
    assert db.live("small").status()["state"] == "running"
    before = db.live("small").net().num_rows
    feed(db, *[100] * 600)
    feed(db, 101, 102)
    db.run_live()
    status = db.live("small").status()
    assert status["state"] == "failed"
    assert "state_bytes_max = 40000" in status["error"]
    assert db.live("small").net().num_rows == before
    assert db.live("large").status()["state"] == "running"
    assert db.live("large").verify() == 0


def test_queries_of_a_round_put_out_at_once(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk syncs one sink, others are committed; an error is that of one query."""
    for name in ("one", "two", "wrong"):
        db.create_live(name, ROWS, idle="never")
    together, real = threading.Barrier(3), sink.put_together

    def put_together(stream: Any, *rest: Any) -> None:
        together.wait(PATIENCE_S)
        if stream.name == "wrong":
            raise OSError("the disk is gone")
        real(stream, *rest)

    monkeypatch.setattr(sink, "put_together", put_together)
    feed(db, *range(20))
    db.run_live()
    for name in ("one", "two"):
        assert db.live(name).status()["state"] == "running"
        assert db.live(name).net().num_rows == db.sql(f"{ROWS} AND t < 19").arrow().num_rows
    assert "the disk is gone" in db.live("wrong").status()["error"]
    assert db.live("wrong").net().num_rows == 0
    monkeypatch.undo()
    db.live("wrong").resume()
    assert db.live("wrong").verify() == 0
    assert db.live("wrong").net().num_rows == db.live("one").net().num_rows


def test_a_query_reads_what_another_puts_out_in_the_same_round(db: Any) -> None:
    db.create_live("one", ROWS, idle="never")
    db.create_live("next", "SELECT _time AS at, x AS y FROM one", idle="never")
    feed(db, *range(20))
    db.run_live()
    rows = db.live("one").net()
    open_ = rows["_time"].to_pylist().count(rows["_time"][-1].as_py())
    assert db.live("next").net().num_rows == rows.num_rows - open_ > 0


def truncate(db: Any) -> None:
    stream = db.stream("s")._writer("truncate")
    staging.commit_staged(stream, staging.new_job(), [], truncate=True)


@pytest.mark.parametrize("what", ["refresh", "stop"])
def test_truncation(db: Any, what: str) -> None:
    db.sql(f"CREATE LIVE QUERY q IDLE NEVER WITH (on_truncate = '{what}') AS {ROWS}")
    feed(db, *range(20))
    db.run_live()
    held = db.live("q").net().num_rows
    assert held > 5
    truncate(db)
    feed(db, 30, 31, 32, 33)
    db.run_live()
    live = db.live("q")
    if what == "stop":
        assert "'s' was truncated" in live.status()["error"]
        assert live.net().num_rows == held
        live.resume()
        db.run_live()
        assert live.status()["state"] == "failed"
        live.refresh()
        db.run_live()
    assert live.status()["error"] is None
    assert sorted(live.net().column("t").to_pylist()) == [t for t in (30, 31, 32) if t * 3 % 7 > 2]
    assert live.verify() == 0


def test_an_append_waits_for_a_query_that_may_not_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = LiveQuery._step

    def slow(self: LiveQuery, *given: Any) -> bool:
        time.sleep(0.02)
        return step(self, *given)

    monkeypatch.setattr(LiveQuery, "_step", slow)
    with chronicle.open(tmp_path / "store", live=True) as db:
        db.create_stream("s", SCHEMA, time="t")
        free = db.create_live("free", ROWS)
        limited = db.create_live("limited", ROWS, options={"lag_events_max": 10})
        query = catalog_of(db).live_statements.query("limited")
        for begin in range(0, 200, 8):
            feed(db, *range(begin, begin + 8))
            assert query.lag() <= 10
        limited.pause()
        for begin in range(200, 400, 8):  # one that stands still holds nobody up
            feed(db, *range(begin, begin + 8))
        assert free.status()["error"] is None
        limited.drop()
        feed(db, 500)


def test_nobody_waits_where_nobody_does_the_steps(db: Any) -> None:
    db.create_live("limited", ROWS, options={"lag_events_max": 0})
    feed(db, *range(100))
    db.run_live()
    assert db.live("limited").verify() == 0


def test_results_that_pass_by(tmp_path: Path) -> None:
    """What is taken back is known from the events; nothing is left of it behind a restart."""
    names = {"rows": ROWS, "windows": WINDOWS, "pattern": PATTERN, "join": JOIN}
    with chronicle.open(tmp_path / "store") as db:
        db.create_stream("s", SCHEMA, time="t")
        feed(db, *range(30))
        for name, sql in names.items():
            db.sql(f"CREATE LIVE QUERY {name}_ IDLE NEVER WITH (store = false) AS {sql}")
            db.create_live(f"{name}_kept", sql, start="now", idle="never")
        db.run_live()
        assert [batch for name in names for batch in db.live(f"{name}_").rows()] == []
        for ticks in (range(30, 60), [41, 50, 50], range(60, 75), [3, 55], [200]):
            feed(db, *ticks)
            db.run_live()
        for name in names:
            live, kept = db.live(f"{name}_"), db.live(f"{name}_kept")
            assert live.status()["error"] is None
            changes = [row for batch in live.rows() for row in batch.to_pylist()]
            assert [row["_seq"] for row in changes] == list(range(1, len(changes) + 1))
            net: dict[Any, int] = {}
            for row in changes:
                key = tuple(v for k, v in row.items() if k not in ("_seq", "_rev", "_diff"))
                net[key] = net.get(key, 0) + row["_diff"]
            assert set(net.values()) <= {0, 1}
            wanted = kept.net().drop_columns(["_rev"]).to_pylist()
            assert sorted(map(repr, (k for k, n in net.items() if n))) == sorted(
                repr(tuple(row.values())) for row in wanted
            ), name
            assert live.verify() == 0
        assert not any(name.endswith("_") for name in db.streams())
        with pytest.raises((SqlError, StreamNotFound)):
            db.sql("SELECT * FROM rows_")
    with (
        chronicle.open(tmp_path / "store", mode="r") as db,
        pytest.raises(InvalidArgument, match="stores nothing"),
    ):
        list(db.live("rows_").rows())
    with chronicle.open(tmp_path / "store") as db:
        db.run_live()
        assert list(db.live("rows_").rows()) == []
        feed(db, 300, 301)
        db.run_live()
        assert [row["t"] for b in db.live("rows_").rows() for row in b.to_pylist()] == [200, 300]
        db.create_stream("rows_", SCHEMA, time="t")  # nobody else's name
        db.live("rows_").drop()
        assert "rows_" in db.streams()
