"""Roll-ups as people use them: statements, refusals, what they answer and what they do not."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import SqlError, StreamNotFound, StreamOwned

from .test_rollups import ROLLUPS, SCHEMA, rollups_of


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with chronicle.open(tmp_path / "store") as opened:
        opened.create_stream("s", SCHEMA, time="t")
        rng = random.Random(7)
        events = [
            {"t": t, "k": rng.choice("abc"), "x": rng.randrange(-9, 90), "y": rng.random()}
            for t in range(0, 2000, 3)
        ]
        opened.stream("s").append(events)
        opened.create_rollup("r", ROLLUPS["by_k"], idle="never")
        opened.run_live()
        yield opened


def both(db: Any, rest: str, hint: str = "rollups(always)") -> tuple[list[str], list[Any]]:
    """The roll-ups that answer a SELECT, after its rows were found to be those without them."""
    text = f"SELECT /*+ {hint} */ {rest}"
    found, plain = (db.sql(sql).fetchall() for sql in (text, f"SELECT /*+ rollups(none) */ {rest}"))
    assert found == plain
    return rollups_of(db.explain(text)), found


def test_the_life_of_a_rollup(db: Any) -> None:
    assert db.sql(f"CREATE ROLLUP IF NOT EXISTS r AS {ROLLUPS['by_k']}").fetchall() == [
        ("roll-up exists: r",)
    ]
    (shown,) = db.sql("SHOW ROLLUPS").arrow().to_pylist()
    assert (shown["name"], shown["stream"], shown["window"]) == ("r", "s", "10")
    assert (shown["state"], shown["watermark"], shown["lag_events"]) == ("running", "1997", 0)
    assert dict(db.sql("DESCRIBE ROLLUP R").fetchall())["sink"] == "r"
    assert db.rollups() == ["r"]
    assert db.rollup("r").verify() == 0
    with pytest.raises(StreamNotFound, match=r"no roll-up 'q' \(there are: r\)"):
        db.rollup("q")
    total = db.sql("SELECT sum(n) FROM NET(r)").fetchall()
    assert total == db.sql("SELECT count(*) FROM s WHERE t < 1990").fetchall()
    with pytest.raises(StreamOwned, match=r"roll-ups.*r; drop them first: DROP ROLLUP r"):
        db.sql("DROP STREAM s")
    with pytest.raises(SqlError, match=r"r is a roll-up: DROP ROLLUP r .*column 17"):
        db.sql("DROP LIVE QUERY r")
    db.create_live("high", "SELECT t FROM s WHERE x > 88")
    with pytest.raises(SqlError, match="no roll-up 'high'"):
        db.sql("DROP ROLLUP high")
    assert db.sql("DROP ROLLUP r").fetchall() == [("dropped roll-up r",)]
    assert db.sql("DROP ROLLUP IF EXISTS r").fetchall() == [("there is no roll-up r",)]
    assert "r" not in db.streams()
    assert both(db, "window_start, count(*) FROM TUMBLE(s, t, 10) GROUP BY 1 ORDER BY 1")[0] == []


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT t FROM s", "FROM TUMBLE"),
        ("SELECT count(*) FROM HOP(s, t, 5, 10) GROUP BY window_start", "FROM TUMBLE"),
        ("SELECT count(*) FROM SESSION(s, t, 5) GROUP BY window_start, window_end", "FROM TUMBLE"),
        ("SELECT count(*) AS n FROM TUMBLE(s, t, 10) GROUP BY window_start, k", "k is missing"),
        ("SELECT window_start, count(*) + 1 FROM TUMBLE(s, t, 10) GROUP BY ALL", "as they"),
        ("SELECT median(x) FROM TUMBLE(s, t, 10) GROUP BY window_start", "decimals only count"),
        ("SELECT window_start FROM TUMBLE(s, t, 10) GROUP BY window_start", "one aggregate"),
        ("SELECT count(*) FROM TUMBLE(s, t, 10) WHERE t > 5 GROUP BY window_start", "of all times"),
        (
            "SELECT count(*) FROM TUMBLE(s, t, 10) GROUP BY window_start HAVING count(*) > 1",
            "leave HAVING out",
        ),
    ],
)
def test_what_no_rollup_can_be(db: Any, sql: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        db.sql(f"CREATE ROLLUP q AS {sql}")
    assert db.rollups() == ["r"]
    assert db.streams() == ["r", "s"]
    with pytest.raises(SqlError, match="expected AS and the SELECT, or one of DELAY, IDLE, WITH"):
        db.sql(f"CREATE ROLLUP q EMIT ON CLOSE AS {sql}")
    with pytest.raises(SqlError, match="a roll-up stores its results"):
        db.sql(f"CREATE ROLLUP q WITH (store = false) AS {ROLLUPS['few']}")


@pytest.mark.parametrize(
    "rest",
    [
        "window_start, window_end, count(*) FROM TUMBLE(s, t, 10) GROUP BY ALL ORDER BY 1",
        "window_start, k, avg(x), stddev(x), sum(y) FROM TUMBLE(s, t, 10) GROUP BY ALL "
        "ORDER BY 1, 2",
        "window_start, sum(x) / count(x) FROM TUMBLE(s, t, 30, 20) GROUP BY 1 ORDER BY 1",
        "k, window_end, first(x), last(x), any_value(x) FROM TUMBLE(s, t, 40) GROUP BY ALL "
        "ORDER BY ALL",
        "window_start, min(x), max(x) FROM TUMBLE(s, t, 50) WHERE k IN ('a', 'c') AND t >= 33 "
        "GROUP BY 1 ORDER BY 1",
        "window_start, count(x) FROM TUMBLE(s, t, 20) WHERE k = 'b' AND t BETWEEN 100 AND 777 "
        "AND window_start < 500 GROUP BY 1 HAVING count(x) > 1 ORDER BY 1",
        "* FROM (SELECT k, window_start, sum(x) AS total FROM TUMBLE(s, t, 100) GROUP BY ALL) "
        "WHERE total > 40 ORDER BY ALL",
        "a.window_start, a.n, b.m FROM (SELECT window_start, count(*) AS n FROM TUMBLE(s, t, 50) "
        "GROUP BY 1) a JOIN (SELECT window_start, max(x) AS m FROM TUMBLE(s, t, 100) GROUP BY 1) b "
        "USING (window_start) ORDER BY 1",
    ],
)  # fmt: skip
def test_what_a_rollup_answers(db: Any, rest: str) -> None:
    found, rows = both(db, rest)
    assert set(found) == {"r"}
    assert len(rows) > 3


@pytest.mark.parametrize(
    "rest",
    [
        "window_start, count(*) FROM TUMBLE(s, t, 15) GROUP BY 1 ORDER BY 1",
        "window_start, count(*) FROM TUMBLE(s, t, 20, 5) GROUP BY 1 ORDER BY 1",
        "window_start, count(*) FROM HOP(s, t, 10, 20) GROUP BY 1 ORDER BY 1",
        "window_start, sum(y) FROM TUMBLE(s, t, 20) GROUP BY 1 ORDER BY 1",
        "window_start, stddev(x) FROM TUMBLE(s, t, 20) GROUP BY 1 ORDER BY 1",
        "window_start, first(x) FROM TUMBLE(s, t, 20) GROUP BY 1 ORDER BY 1",
        "window_start, count(*) FROM TUMBLE(s, t, 20) WHERE x > 3 GROUP BY 1 ORDER BY 1",
        "window_start, count(*) FROM TUMBLE(s, t, 20) WHERE t % 2 = 0 GROUP BY 1 ORDER BY 1",
        "window_start, x % 2, count(*) FROM TUMBLE(s, t, 20) GROUP BY ALL ORDER BY ALL",
        "window_start, sum(x + 1) FROM TUMBLE(s, t, 20) GROUP BY 1 ORDER BY 1",
        "window_start, max(t) FROM TUMBLE(s, t, 20) GROUP BY 1 ORDER BY 1",
        "window_start, count(*) FROM TUMBLE(s, t, 20) WHERE t < 9 GROUP BY 1 ORDER BY 1",
    ],
)
def test_what_a_rollup_does_not_answer(db: Any, rest: str) -> None:
    assert both(db, rest)[0] == []


def test_hints_decide(db: Any) -> None:
    rest = "window_start, count(*) FROM TUMBLE(s, t, 50) GROUP BY 1 ORDER BY 1"
    assert both(db, rest, "strategy(replay)")[0] == []
    assert both(db, rest)[0] == ["r"]
    with pytest.raises(SqlError, match=r"rollups\(x\) with x one of auto, none, always"):
        db.sql(f"SELECT /*+ rollups(r) */ {rest}")


def test_sums_beyond_64_bits_are_put_together(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "store") as db:
        db.create_stream("s", SCHEMA, time="t")
        values = [2**62, 2**61, -(2**62), 2**62, 2**62, 2**62, 2**62, 2**62, 5, -7]
        db.stream("s").append([{"t": i * 10, "k": "a", "x": x, "y": 0.0} for i, x in
                               enumerate(values)])  # fmt: skip
        db.create_rollup("r", ROLLUPS["by_k"], idle="never")
        db.run_live()
        rest = "window_start, sum(x), avg(x) FROM TUMBLE(s, t, 1000) GROUP BY 1"
        found, rows = both(db, rest)
        assert found == ["r"]
        assert rows == [(0, sum(values), sum(values) / len(values))]


def test_what_is_gone_is_said(db: Any) -> None:
    rest = "window_start, k, sum(x), sum(y) FROM TUMBLE(s, t, 200) GROUP BY ALL ORDER BY ALL"
    before = db.sql(f"SELECT {rest}").fetchall()
    median = "SELECT window_start, median(x) FROM TUMBLE(s, t, 200) GROUP BY 1"
    assert db.sql(f"SELECT {rest}").notes == ()
    db.sql("ALTER STREAM s SET (retention = '500')")
    db.stream("s").seal()
    db.stream("s").compact()
    assert db.sql("SELECT min(t) > 1000 FROM s").fetchall() == [(True,)]
    result = db.sql(f"SELECT {rest}")
    (note,) = result.notes
    assert "were dropped by retention: the roll-up r answers up to" in note
    assert "floating-point" in note
    assert [row[:3] for row in result.fetchall()] == [row[:3] for row in before]
    for one, other in zip(db.sql(f"SELECT {rest}").fetchall(), before, strict=True):
        assert one[3] == pytest.approx(other[3], rel=1e-12)
    (note,) = db.sql(
        "SELECT window_start, count(DISTINCT x) FROM TUMBLE(s, t, 200) GROUP BY 1"
    ).notes or ("",)
    assert note == "" or "no roll-up" in note
    (note,) = db.sql("SELECT window_start, sum(x) FROM TUMBLE(s, t, 15) GROUP BY 1").notes
    assert "no roll-up answers this query" in note
    assert db.sql(median).fetchall()


def test_calendar_windows_over_hours(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.timestamp("ms")), ("x", pa.int64())])
    with chronicle.open(tmp_path / "store") as db:
        db.create_stream("s", schema, time="at")
        rng, start = random.Random(3), dt.datetime(2018, 3, 18)
        step = dt.timedelta(milliseconds=1_234_567)
        events = [{"at": start + i * step, "x": rng.randrange(100)} for i in range(1500)]
        db.stream("s").append(events)
        db.sql(
            "CREATE ROLLUP hours IDLE NEVER AS SELECT window_start, count(*) AS n, sum(x) AS total "
            "FROM TUMBLE(s, at, INTERVAL '1' HOUR) GROUP BY window_start, window_end"
        )
        db.run_live()
        for size, zone, used in (
            ("'1' MONTH", "Europe/Berlin", True), ("'1' DAY", "Europe/Berlin", True),
            ("'1' DAY", "Asia/Kolkata", False), ("'7' DAY", "America/New_York", True),
        ):  # fmt: skip
            rest = (
                f"window_start, window_end, count(*), sum(x) FROM TUMBLE(s, at, INTERVAL {size}, "
                f"time_zone => '{zone}') WHERE at >= TIMESTAMP '2018-03-20 10:30:00' GROUP BY ALL "
                "ORDER BY ALL"
            )
            assert bool(both(db, rest)[0]) == used, zone
        (shown,) = db.sql("SHOW ROLLUPS").arrow().to_pylist()
        assert shown["window"] == "PT1H"


def test_late_events_wait_for_the_rollup(db: Any) -> None:
    rest = "window_start, k, count(*) FROM TUMBLE(s, t, 100) GROUP BY ALL ORDER BY ALL"
    assert both(db, rest)[0] == ["r"]
    db.stream("s").append([{"t": 5, "k": "a", "x": 1, "y": 0.5}])
    assert both(db, rest)[0] == []
    db.run_live()
    assert both(db, rest)[0] == ["r"]
    db.sql("DELETE FROM s WHERE t < 50")
    assert both(db, rest)[0] == []
    db.run_live()
    assert both(db, rest)[0] == ["r"]
    db.rollup("r").pause()
    db.stream("s").append([{"t": 2500, "k": "a", "x": 1, "y": 0.5}])
    assert both(db, rest)[0] == ["r"]


def test_a_reader_in_another_process_sees_what_is_known(db: Any, tmp_path: Path) -> None:
    rest = "window_start, k, count(*) FROM TUMBLE(s, t, 100) GROUP BY ALL ORDER BY ALL"
    with chronicle.open(tmp_path / "store", mode="r") as reader:
        assert both(reader, rest)[0] == ["r"]
        assert reader.rollups() == ["r"]
