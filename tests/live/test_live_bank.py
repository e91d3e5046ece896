"""Live patterns that are searched together: each says what it says alone, whatever happens."""

from __future__ import annotations

import contextlib
import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.errors import InvalidArgument
from chronicle.live import pattern_group, sharing
from chronicle.live.engine import LiveQueries
from chronicle.store import staging
from chronicle.tests.faulty_files import Fault, FaultyFiles, SimulatedCrash, strikes
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.patience import PATIENCE_S

from ..rounds import LONG, rounds
from .test_live_crashes import opened

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])
CLAUSES = (
    "PARTITION BY k ORDER BY t MEASURES FIRST(t) AS f, LAST(t) AS l, COUNT(*) AS n "
    "PATTERN (A B+) WITHIN 12 DEFINE A AS x > {0}, B AS x < {1}",
    "PARTITION BY k ORDER BY t MEASURES FIRST(t) AS f, LAST(t) AS l, SUM(B.x) AS n "
    "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B? C) WITHIN 8 "
    "DEFINE A AS x > {0}, B AS x > 3, C AS x < {1}",
    "ORDER BY t MEASURES FIRST(t) AS f, LAST(t) AS l, FIRST(x) AS n "
    "PATTERN (A Z*? C) WITHIN 6 DEFINE A AS x > {0}, C AS x < {1} AND k = 'a'",
    "PARTITION BY k ORDER BY t MEASURES FIRST(t) AS f, LAST(t) AS l, COUNT(B.x) AS n "
    "PATTERN (A+ B C*) WITHIN 20 DEFINE A AS x >= {0}, B AS x = {1}, C AS x < 4",
)
NAMES = tuple(f"q{i}" for i in range(10))


def sql_of(i: int) -> str:
    clause = CLAUSES[i % len(CLAUSES)].format(4 + i % 3, 2 + i % 5)
    return f"SELECT f, l, n FROM s MATCH_RECOGNIZE ({clause}) WHERE n < 9"


def engine(db: Database) -> LiveQueries:
    return catalog_of(db).live_statements


def create(db: Database, i: int, **options: Any) -> None:
    into = None if i % 3 == 0 else ("one", "two")[i % 2]
    db.create_live(f"q{i}", sql_of(i), into=into, idle="never", **options)


class Stream:
    """Events with time that goes on, some of them late."""

    def __init__(self, db: Database, seed: int, **options: Any) -> None:
        self.random = random.Random(seed)
        self.t = 0
        db.create_stream("s", SCHEMA, time="t", **options)

    def append(self, db: Database, count: int, late: float = 0.1, reach: int = 25) -> None:
        r, rows = self.random, []
        for _ in range(count):
            self.t += r.choice([0, 1, 1, 2])
            back = r.randrange(reach) if r.random() < late else 0
            row = {"t": max(0, self.t - back), "k": r.choice("ab"), "x": r.randrange(10)}
            rows.append(row)
        db.stream("s").append(sorted(rows, key=lambda row: row["t"]))


def check(db: Database) -> None:
    for name in db.live_queries():
        live = db.live(name)
        status = live.status()
        assert status["error"] is None, status
        if status["state"] != "paused":
            assert live.verify() == 0, name
    for sink in {engine(db).sink_of(name) for name in db.live_queries()}:
        numbers = sorted(row["_seq"] for row in said(db, sink))
        assert numbers == list(range(1, len(numbers) + 1))


def said(db: Database, sink: str) -> list[dict[str, Any]]:
    batches = db.stream(sink).snapshot().scan()
    return [row for batch in batches for row in batch.to_pylist()]


def shared(db: Database) -> set[str]:
    return {n for n in db.live_queries() if engine(db)._rounds.sharing.group_of(n) is not None}


@pytest.mark.parametrize("seed", range(rounds(1, 20)))
def test_what_is_searched_together_says_what_each_says_alone(seed: int) -> None:
    memory = MemoryFiles()
    db = opened(memory)
    stream, r = Stream(db, seed), random.Random(seed)
    for i in range(7):
        create(db, i)
    left = list(range(7, 10))
    for _ in range(rounds(7, 18)):
        stream.append(db, r.choice([1, 5, 30]), late=r.choice([0, 0.1, 0.5]))
        match r.randrange(9):
            case 0:
                db.live(r.choice(db.live_queries())).pause()
            case 1:
                for name in db.live_queries():
                    db.live(name).resume()
            case 2:
                db.close()
                db = opened(memory)
            case 3:
                memory = memory.kill()
                db = opened(memory)
            case 4 if left:
                create(db, left.pop(), start=stream.t // 2)
            case 5:
                db.stream("s").seal()
            case 6 if len(db.live_queries()) > 5:
                db.live(r.choice(db.live_queries())).drop()
        db.run_live()
        check(db)
    for name in db.live_queries():
        db.live(name).resume()
    db.run_live()
    db.run_live()
    check(db)
    assert shared(db) == set(db.live_queries())
    assert db.check().ok
    db.close()


def outcome(together: bool, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    if not together:
        monkeypatch.setattr("chronicle.live.engine.card_of_query", lambda *_: None)
    db = opened(MemoryFiles())
    stream = Stream(db, 5)
    for i in range(6):
        create(db, i)
    for _ in range(6):
        stream.append(db, 40)
        db.run_live()
    assert bool(shared(db)) == together
    found = {}
    for name in db.live_queries():
        rows = db.live(name).net().drop_columns(["_rev"]).to_pylist()
        found[name] = sorted(tuple(map(str, row.values())) for row in rows)
    assert sum(map(len, found.values())) > 50
    db.close()
    monkeypatch.undo()
    return found


def test_names_and_rows_are_those_of_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(True, monkeypatch) == outcome(False, monkeypatch)


def test_a_step_without_matches_asks_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    db = opened(MemoryFiles())
    stream = Stream(db, 1)
    for i in range(6):
        create(db, i)
    stream.append(db, 100, late=0)
    db.run_live()
    db.run_live()
    assert len(shared(db)) == 6
    asked: list[str] = []
    queries = engine(db)
    monkeypatch.setattr(queries._rounds.sharing, "opened", asked.append)
    for group in queries._rounds.sharing.groups:
        monkeypatch.setattr(group, "_opened", asked.append)
    before = {name: len(said(db, name)) for name in ("one", "two")}
    db.stream("s").append([{"t": stream.t + 1000 + i, "k": "c", "x": 3} for i in range(50)])
    commits = db.stream("one").snapshot().version
    db.run_live()
    assert not asked
    assert {name: len(said(db, name)) for name in before} == before
    assert db.stream("one").snapshot().version <= commits + len(queries._rounds.sharing.groups)
    db.close()


def test_members_that_share_a_sink_share_its_commits() -> None:
    db = opened(MemoryFiles())
    db.create_stream("s", SCHEMA, time="t")
    clause = "ORDER BY t MEASURES A.x AS x PATTERN (A) WITHIN 5 DEFINE A AS x > {}"
    for i in range(20):
        sql = f"SELECT * FROM s MATCH_RECOGNIZE ({clause.format(i)})"
        db.create_live(f"q{i}", sql, into="all", idle="never")
    db.stream("s").append([{"t": 0, "k": "a", "x": 0}])
    db.run_live()
    db.stream("s").append([{"t": 10, "k": "a", "x": 0}])
    db.run_live()
    assert len(shared(db)) == 20
    before = db.stream("all").snapshot().version
    db.stream("s").append([{"t": 20, "k": "a", "x": 50}, {"t": 40, "k": "a", "x": 0}])
    db.run_live()
    assert db.stream("all").snapshot().version <= before + 2  # and a mark, where a second is over
    assert len(said(db, "all")) == 20
    db.close()


def test_one_that_cannot_be_computed_stops_alone() -> None:
    db = opened(MemoryFiles())
    db.create_stream("s", SCHEMA, time="t")
    clause = "ORDER BY t MEASURES {} AS m PATTERN (A) WITHIN 5 DEFINE A AS x > 5"
    for name, measure in (("good", "A.x"), ("bad", "CAST(A.k AS INTEGER)")):
        sql = f"SELECT * FROM s MATCH_RECOGNIZE ({clause.format(measure)})"
        db.create_live(name, sql, idle="never")
    for t in (0, 10):
        db.stream("s").append([{"t": t, "k": "a", "x": 0}])
        db.run_live()
    assert shared(db) == {"good", "bad"}
    db.stream("s").append([{"t": 20, "k": "a", "x": 9}, {"t": 30, "k": "a", "x": 0}])
    db.run_live()
    assert shared(db) == {"good"}
    assert "Could not convert" in db.live("bad").status()["error"]
    assert db.live("bad").status()["watermark"] == 9
    assert [row["m"] for row in db.live("good").net().to_pylist()] == [9]
    db.close()


def test_after_a_restart_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryFiles()
    db = opened(memory)
    stream = Stream(db, 3)
    for i in range(6):
        create(db, i)
    stream.append(db, 100)
    db.run_live()
    stream.append(db, 20, late=0)
    db.run_live()
    db.close()
    db = opened(memory)
    queries = engine(db)
    monkeypatch.setattr(queries, "_opened", None)
    db.run_live()
    assert shared(db) == {f"q{i}" for i in range(6)}
    monkeypatch.undo()
    stream.append(db, 50)
    db.run_live()
    check(db)
    assert any("in a bank with" in line for line in queries.explain("q0"))
    db.close()


@pytest.mark.parametrize(
    ("fault", "mode"),
    [("crash_before", "lose"), ("crash_halfway", "tear"), ("crash_after", "keep")],
)
def test_a_crash_at_any_write_of_a_step_of_many(fault: Fault, mode: Any) -> None:
    start = MemoryFiles()
    db = opened(start)
    stream = Stream(db, 11)
    for i in range(5):
        create(db, i)
    stream.append(db, 60, late=0)
    db.run_live()
    db.run_live()
    assert len(shared(db)) == 5

    def resumed(files: FaultyFiles) -> tuple[Database, Stream]:
        db = opened(files)
        db.run_live()
        assert len(shared(db)) == 5
        again = Stream.__new__(Stream)
        again.random, again.t = random.Random(2), stream.t
        again.append(db, 40, late=0.2)
        return db, again

    for number, memory, _, (db, again) in strikes(
        fault, resumed, begun=start, step=1 if LONG else 15
    ):
        with contextlib.suppress(SimulatedCrash):
            db.run_live()
        after = opened(memory.crash(random.Random(number), mode))
        after.run_live()
        check(after)
        assert after.check().ok
        again.append(after, 30)
        after.run_live()
        check(after)
    assert number > 3


def test_who_leaves_while_its_sink_fails_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that is made anew does not stand for one that could not say that it has left."""
    memory = MemoryFiles()
    db = opened(memory)
    stream = Stream(db, 3)
    for i in (1, 5, 7):  # all of them into one sink
        create(db, i)
    stream.append(db, 80, late=0)
    db.run_live()
    db.run_live()
    assert shared(db) == {"q1", "q5", "q7"}
    stream.append(db, 40, late=0)
    db.run_live()

    def fails(*_: Any, **__: Any) -> Any:
        raise InvalidArgument("it fails")

    with monkeypatch.context() as patched:
        for name in ("results_of_matches", "advanced", "results"):
            query = engine(db).query("q1")
            patched.setattr(query.form, name, fails)
        patched.setattr(sharing, "BARRED_SECONDS", 0.0)
        with monkeypatch.context() as broken:
            broken.setattr(pattern_group, "leave_marks", fails)
            for _ in range(6):
                stream.append(db, 40, late=0)
                db.run_live()
        assert db.live("q1").status()["error"] == "it fails"
        for _ in range(3):
            stream.append(db, 40, late=0)
            db.run_live()
        assert shared(db) == {"q5", "q7"}
    db = opened(memory.kill())
    db.run_live()
    stream.append(db, 40, late=0)
    db.run_live()
    check(db)
    db.close()


def test_statements_while_the_thread_steps(tmp_path: Path) -> None:
    """Queries come, pause, go and are asked while events are committed; nobody waits for ever."""
    with chronicle.open(tmp_path / "store", live=True) as db:
        stream = Stream(db, 4)
        for i in range(4):
            create(db, i)
        ended = threading.Event()

        def feed() -> None:
            while not ended.is_set():
                stream.append(db, 20, late=0.1)

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            r = random.Random(1)
            for i in range(4, 10):
                create(db, i)
                name = r.choice(NAMES[:i])
                if name in db.live_queries():
                    live = db.live(name)
                    r.choice([live.pause, live.resume, live.verify, live.status, live.drop])()
        finally:
            ended.set()
            feeder.join()
        for name in db.live_queries():
            db.live(name).resume()
        db.run_live(timeout=PATIENCE_S)
        db.run_live(timeout=PATIENCE_S)
        check(db)
        assert len(shared(db)) > 4


def test_what_a_truncation_drops_is_taken_back_and_a_refresh_changes_nothing() -> None:
    db = opened(MemoryFiles())
    stream = Stream(db, 9)
    for i in range(6):
        create(db, i)
    stream.append(db, 150)
    db.run_live()
    assert len(shared(db)) == 6
    before = {name: db.live(name).status()["rows"] for name in NAMES[:6]}
    for name in NAMES[:6]:
        db.live(name).refresh()
        db.live(name).refresh(10, 60)
    assert {name: db.live(name).status()["rows"] for name in NAMES[:6]} == before
    source = db.stream("s")._writer("truncate")
    staging.commit_staged(source, staging.new_job(), [], truncate=True)
    db.run_live()
    stream.append(db, 60)
    db.run_live()
    check(db)
    assert sum(db.live(name).status()["retractions"] for name in NAMES[:6]) > 0
    db.close()


@pytest.mark.parametrize("reach", [140, 30])
def test_what_is_dropped_while_events_come_late_ends_no_group(reach: int) -> None:
    db = opened(MemoryFiles())
    stream = Stream(db, 7, retention="120")
    for i in range(6):
        create(db, i)
    stream.append(db, 60, late=0)
    db.run_live()
    db.run_live()
    dropped = 0
    for _ in range(rounds(8, 12)):
        assert shared(db) == set(db.live_queries())
        before = db.stream("s").snapshot().state.dropped
        stream.append(db, 60, late=0.1, reach=reach)
        dropped += db.stream("s").snapshot().state.dropped > before
        db.run_live()
        db.stream("s").seal()
        check(db)
    retractions = sum(db.live(name).status()["retractions"] for name in db.live_queries())
    assert dropped > rounds(2, 4)
    assert retractions > 0
    db.close()


def test_a_boolean_column_is_a_condition() -> None:
    db = opened(MemoryFiles())
    db.create_stream("s", pa.schema([("t", pa.int64()), ("on", pa.bool_())]), time="t")
    clause = 'ORDER BY t MEASURES A.t AS a PATTERN (A B) WITHIN 5 DEFINE A AS "on", B AS NOT "on"'
    db.create_live("q", f"SELECT * FROM s MATCH_RECOGNIZE ({clause})", idle="never")
    flags = [True, None, True, False, False, True, False]
    for t, flag in enumerate(flags):
        db.stream("s").append([{"t": t, "on": flag}])
        db.run_live()
    db.stream("s").append([{"t": 20, "on": False}])
    db.run_live()
    assert shared(db) == {"q"}
    assert db.live("q").net().column("a").to_pylist() == [2, 5]
    db.close()
