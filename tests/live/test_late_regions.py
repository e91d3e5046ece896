"""Many late events of one commit: compared with what was said in few regions, and right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of

SCHEMA = pa.schema([pa.field("t", pa.int64(), False), pa.field("n", pa.int64())])
WINDOWS = (
    "SELECT window_start, count(*) AS c, sum(n)::BIGINT AS s FROM TUMBLE(s, t, 50) GROUP BY "
    "window_start, window_end"
)
MATCHES = (
    "SELECT a, b FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a, B.t AS b PATTERN (A B) "
    "WITHIN 40 DEFINE A AS n < 20, B AS n > 70)"
)


@pytest.mark.parametrize("sql", ["SELECT t, n FROM s WHERE n < 30", WINDOWS, MATCHES])
def test_many_late_events_make_few_regions(tmp_path: Path, sql: str) -> None:
    rng = np.random.default_rng(4)
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        times = np.arange(0, 40_000, 10)
        stream.append(pa.table([times, rng.integers(0, 100, len(times))], schema=SCHEMA))
        live = database.create_live("q", sql, idle="never")
        database.run_live()
        before = catalog_of(database).live_statements.figures("q")["reconciles"]
        times = np.sort(rng.integers(0, 39_000, 400))
        stream.append(pa.table([times, rng.integers(0, 100, 400)], schema=SCHEMA))
        database.run_live()
        regions = catalog_of(database).live_statements.figures("q")["reconciles"] - before
        assert 1 <= regions <= 2
        assert live.verify() == 0


SITUATIONS = (
    "SELECT * FROM s MATCH_SITUATIONS (MEASURES STARTED(a) AS f, ENDED(a) AS l PATTERN (a) "
    "WITHIN 40 DEFINE a AS n < 50)"
)


SESSIONS = (
    "SELECT window_start, window_end, count(*) AS c FROM SESSION(s, t, 25) "
    "GROUP BY window_start, window_end"
)


@pytest.mark.parametrize("deleted", ["n = 10", "n = 95", "n > 80"])
def test_a_session_ends_earlier_without_its_last_events(tmp_path: Path, deleted: str) -> None:
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        live = database.create_live("q", SESSIONS, idle="never")
        rows = [{"t": t, "n": n} for t, n in ((0, 10), (20, 50), (40, 90), (60, 95), (1000, 1))]
        stream.append(rows)
        database.run_live()
        stream.delete(deleted)
        stream.append([{"t": 5000, "n": 1}])
        database.run_live()
        said = database.sql("SELECT * EXCLUDE (_time, _id, _rev) FROM NET(q)").fetchall()
        assert sorted(said) == sorted(database.sql(SESSIONS).fetchall())[:-1]
        assert live.verify() == 0


@pytest.mark.parametrize(
    "sql", [WINDOWS, MATCHES, MATCHES.replace("n > 70", "n > A.n + 50"), SITUATIONS, SESSIONS]
)
def test_what_was_made_of_deleted_events_is_taken_back(tmp_path: Path, sql: str) -> None:
    """Also where all events before the new ones are deleted."""
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        live = database.create_live("q", sql, idle="never")
        rows = [{"t": t, "n": n} for t, n in ((0, 10), (10, 90), (20, 10), (30, 95), (100, 60))]
        stream.append(rows)
        database.run_live()
        assert live.net().num_rows
        stream.delete("n > 0")
        stream.append([{"t": 5000, "n": 60}])
        database.run_live()
        assert live.net().num_rows == 0
        assert live.verify() == 0


@pytest.mark.parametrize("sql", ["SELECT t, n FROM s WHERE n + 0 < 30", WINDOWS])
def test_events_far_apart_stay_apart(tmp_path: Path, sql: str) -> None:
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        times = np.arange(0, 300_000, 10)
        stream.append(pa.table([times, times], schema=SCHEMA))
        live = database.create_live("q", sql, idle="never")
        database.run_live()
        before = catalog_of(database).live_statements.figures("q")["reconciles"]
        stream.append([{"t": t, "n": 1} for t in (5, 7, 120_000, 120_500, 290_000)])
        database.run_live()
        assert catalog_of(database).live_statements.figures("q")["reconciles"] - before == 3
        assert live.verify() == 0


@pytest.mark.parametrize("late", ["correct", 10_000, "ignore"])
@pytest.mark.parametrize("start", ["first", 60])
def test_a_filter_reads_the_late_events_alone(
    tmp_path: Path, late: str | int, start: str | int
) -> None:
    """Whatever their tick had before, and however many commits they came with."""
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        times = np.repeat(np.arange(0, 30_000, 10), 2)
        values = np.where(np.arange(len(times)) % 3, 99, 1)
        stream.append(pa.table([times, values], schema=SCHEMA))
        live = database.create_live(
            "q", "SELECT t, n FROM s WHERE n < 30", late=late, start=start, idle="never"
        )
        database.run_live()
        said, net = live.status()["rows"], live.net()
        assert live.verify() == 0
        before = catalog_of(database).live_statements.figures("q")["reconciles"]
        stream.append([{"t": t, "n": 1} for t in (30, 30, 120, 20_001)] + [{"t": 40, "n": 99}])
        stream.append([{"t": 50, "n": 99}, {"t": 30, "n": 2}, {"t": 60_000, "n": 1}])
        database.run_live()
        status = live.status()
        if late == "ignore":
            assert live.net().num_rows == net.num_rows
            assert status["ignored"] == 7
            return
        passing = 1 if late == 10_000 else 5 if start == "first" else 2
        assert catalog_of(database).live_statements.figures("q")["reconciles"] - before == 1
        assert (status["rows"] - said, status["retractions"]) == (passing, 0)
        if late == 10_000:
            return
        assert live.verify() == 0
        every = live.net(30, 31)
        assert len(set(every.column("_id").to_pylist())) == every.num_rows
        many = np.arange(1, 30_000, 7)  # so many that the range is read
        stream.append(pa.table([many, np.full(len(many), 3)], schema=SCHEMA))
        database.run_live()
        assert live.verify() == 0
