"""Live situations: with and without what is kept from step to step, the same as the query.

Random streams come in order and late, in ties and in bulk, are sealed and compacted, opened anew
and crash.  After each step what holds are the rows of the query that are known at the watermark,
and of two that differ in keeping state both have said the same, change by change.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from chronicle.api.database import Database, catalog_of
from chronicle.errors import SqlError
from chronicle.live import forms, instant_form
from chronicle.live.instant_form import InstantForm
from chronicle.tests.memory_files import MemoryFiles

from ..rounds import rounds
from .test_live_crashes import opened

SEEDS = rounds(1, 6, 40)
SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64()), ("y", pa.int64())])
MEASURED = "STARTED(A) AS s, STARTED(B) AS u, count(A.*) AS n, max(B.x) AS m, LAST(A.y) AS l"
CLAUSES = {
    "overlap": f"PARTITION BY k MEASURES {MEASURED} PATTERN (A OVERLAPS | MEETS | BEFORE B) "
    "WITHIN 15 DEFINE A AS x > 5, B AS y > 4",
    "alarm": f"PARTITION BY k MEASURES {MEASURED}, ENDED(B) AS e PATTERN (A DURING | STARTS | "
    "FINISHES | EQUALS | OVERLAPPED BY B) WITHIN 12 EMIT ON DETECTION "
    "DEFINE A AS x > 5 LASTING AT LEAST 3, B AS y > 2",
    "gap": f"PARTITION BY k MEASURES {MEASURED}, ENDED(A) AS e PATTERN (A INTERSECTS B) WITHIN 20 "
    "GAP 4 EMIT ON DETECTION DEFINE A AS x > 3, B AS y > 3",
    "single": "PARTITION BY k PATTERN (A) GAP 5 DEFINE A AS x > 4 LASTING BETWEEN 2 AND 9",
    "rising": "PARTITION BY k PATTERN (A INTERSECTS B) WITHIN 10 DEFINE A AS x > PREV(x), "
    "B AS y <= PREV(y, 2)",
    "rising_gap": "PARTITION BY k PATTERN (A CONTAINS | OVERLAPS | EQUALS B) WITHIN 10 GAP 3 "
    "EMIT ON DETECTION DEFINE A AS x > PREV(x) - 4, B AS y > 4",
    "alone": "PATTERN (A BEFORE | MEETS B AND B INTERSECTS C) WITHIN 9 DEFINE A AS x > 6, "
    "B AS y > 4, C AS x < 3",
    "alone_rising": "PATTERN (A STARTS | OVERLAPS B) WITHIN 9 EMIT ON DETECTION "
    "DEFINE A AS x > PREV(x), B AS y > 2",
}


def query(name: str) -> str:
    return f"SELECT * FROM s MATCH_SITUATIONS ({CLAUSES[name]})"


def known(name: str) -> str:
    """The query with the instants of its matches in front."""
    clause = CLAUSES[name]
    instant = "DETECTED()" if "DETECTION" in clause else "COMPLETED()"
    if "MEASURES" not in clause:
        names = [part.split(" AS")[0].strip() for part in clause.split("DEFINE")[1].split(",")]
        told = ", ".join(
            f"STARTED({n}) AS {n.lower()}_started, ENDED({n}) AS {n.lower()}_ended"
            for n in names
            if len(n) == 1
        )
        clause = clause.replace("PATTERN", f"MEASURES {told} PATTERN", 1)
    clause = clause.replace("MEASURES", f"MEASURES {instant} AS known,", 1)
    return f"SELECT * FROM s MATCH_SITUATIONS ({clause})"


def form_of(db: Database, name: str) -> InstantForm:
    found = catalog_of(db).live_statements.query(name).form
    assert isinstance(found, InstantForm)
    return found


class Run:
    """A store with each query twice, and events that come to it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.memory = MemoryFiles()
        self.db = opened(self.memory)
        self.db.create_stream("s", SCHEMA, time="t", options={"late_events_max": 30})
        self.last = 0
        self.delay = self.rng.choice([0, 0, 3])
        self.keys = "abc"
        if self.rng.random() < 0.5:
            self.in_order()
        for name in CLAUSES:
            for twin in (name, f"{name}_without"):
                self.db.create_live(twin, query(name), delay=self.delay or None, idle="never")
        self.part()

    def part(self) -> None:
        """Have one of each pair keep nothing."""
        for name in CLAUSES:
            form_of(self.db, f"{name}_without").keeps = False

    def event(self, t: int) -> dict[str, Any]:
        rng = self.rng
        x = rng.choice([None, rng.randrange(10), 7, 2])
        return {"t": t, "k": rng.choice(self.keys), "x": x, "y": rng.randrange(10)}

    def append(self, ticks: list[int]) -> None:
        self.db.stream("s").append([self.event(t) for t in sorted(ticks)])
        self.last = max([self.last, *ticks])

    def in_order(self) -> None:
        ticks, at = [], self.last
        for _ in range(self.rng.choice([1, 5, 40])):
            at += self.rng.choice([0, 1, 1, 2, 9])
            ticks.append(at)
        self.append(ticks)

    def late(self) -> None:
        reach = self.rng.choice([3, 12, 60])
        self.append([max(0, self.last - self.rng.randrange(reach)) for _ in range(3)])

    def strangers(self) -> None:
        """Partitions that come and go."""
        self.keys = self.rng.choice(["abc", "ad", "b", "bce"])

    def seal(self) -> None:
        self.db.stream("s").seal()

    def compact(self) -> None:
        self.db.stream("s").compact()

    def refresh(self) -> None:
        name = self.rng.choice(sorted(CLAUSES))
        low = self.rng.randrange(self.last + 1)
        self.db.live(name).refresh(low, low + 30)

    def reopen(self) -> None:
        self.db.close()
        self.db = opened(self.memory)
        self.part()

    def crash(self) -> None:
        self.memory = self.memory.kill()
        self.db = opened(self.memory)
        self.part()

    def step(self) -> None:
        self.db.run_live()
        watermark = self.last - self.delay - 1
        for name in CLAUSES:
            live, without = self.db.live(name), self.db.live(f"{name}_without")
            assert live.status()["error"] is None, live.status()
            assert without.status()["error"] is None, without.status()
            assert live.verify() == 0, name
            wanted = self.db.sql(known(name)).arrow()
            place = wanted.schema.get_field_index("known")
            closed = [t <= watermark for t in wanted["known"].to_pylist()]
            wanted = wanted.filter(pa.array(closed, pa.bool_()))
            for each in (live, without):
                net = each.net()
                found = sorted(map(repr, net.drop_columns(["_id", "_rev"]).to_pylist()))
                rows = wanted.remove_column(place)
                rows = rows.add_column(0, "_time", wanted.column(place))
                assert found == sorted(map(repr, rows.to_pylist())), name


ACTIONS = (
    Run.in_order, Run.in_order, Run.in_order, Run.late, Run.late, Run.strangers, Run.seal,
    Run.compact, Run.refresh, Run.reopen,
)  # fmt: skip


def changes(db: Database, name: str) -> list[dict[str, Any]]:
    return [row for batch in db.live(name).rows() for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_said_is_what_the_query_says(seed: int) -> None:
    run = Run(seed)
    for _ in range(rounds(3, 8)):
        for action in run.rng.sample(ACTIONS, 2):
            action(run)
        run.step()
    for name in CLAUSES:
        said, again = changes(run.db, name), changes(run.db, f"{name}_without")
        net = run.db.live(name).net()
        assert sorted(map(repr, net.to_pylist())) == sorted(
            map(repr, run.db.live(f"{name}_without").net().to_pylist())
        )
        assert [row["_seq"] for row in said] == list(range(1, len(said) + 1))
        assert {row["_id"] for row in said} == {row["_id"] for row in again}
    run.crash()
    run.in_order()
    run.step()
    run.append([run.last + 1000])
    run.step()
    assert any(len(changes(run.db, name)) for name in CLAUSES)
    assert run.db.check().ok
    run.db.close()


# -- one thing at a time --------------------------------------------------------------------------


@pytest.fixture
def db() -> Database:
    found = opened(MemoryFiles())
    found.create_stream("s", SCHEMA, time="t", options={"late_events_max": 30})
    return found


def put(db: Database, *events: tuple[int, str, int, int]) -> None:
    db.stream("s").append([dict(zip("tkxy", event, strict=True)) for event in events])
    db.run_live()


def overlapping(t: int) -> tuple[int, str, int, int]:
    """An event of situations of which one overlaps another every 16 ticks."""
    phase = t // 4 % 4
    return t, "ab"[t // 60 % 2], 9 * (phase in (0, 1)), 9 * (phase in (1, 2))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT * FROM s MATCH_SITUATIONS (PATTERN (A) DEFINE A AS x > 1)", "add WITHIN"),
        ("SELECT count(*) FROM s MATCH_SITUATIONS (PATTERN (A) WITHIN 9 DEFINE A AS x > 1)",
         "aggregate in MEASURES"),
        ("SELECT * FROM (SELECT * FROM s ORDER BY t) MATCH_SITUATIONS (ORDER BY t PATTERN (A) "
         "WITHIN 9 DEFINE A AS x > 1)", "ORDER cannot be live"),
    ],
)  # fmt: skip
def test_refusals(db: Database, text: str, told: str) -> None:
    with pytest.raises(SqlError, match=told) as caught:
        db.create_live("q", text)
    assert caught.value.line is not None
    assert db.live_queries() == []


def test_an_alarm_comes_by_time_alone(db: Database) -> None:
    live = db.create_live(
        "q", "SELECT k, at FROM s MATCH_SITUATIONS (PARTITION BY k MEASURES DETECTED() AS at "
        "PATTERN (A) WITHIN 30 EMIT ON DETECTION DEFINE A AS x > 5 LASTING AT LEAST 10)",
        idle="never",
    )  # fmt: skip
    put(db, (20, "a", 9, 0), (29, "b", 1, 0))
    assert live.net().num_rows == 0
    put(db, (32, "b", 1, 0))  # the other host tells the time
    assert live.net().select(["_time", "k", "at"]).to_pylist() == [
        {"_time": 30, "k": "a", "at": 30}
    ]


def test_time_does_not_go_back_when_events_are_deleted(db: Database) -> None:
    live = db.create_live("q", query("single"), idle="never")
    put(db, (1, "a", 9, 0), (20, "b", 0, 0))
    db.stream("s").delete("t > 0")
    put(db, (2, "a", 9, 0))  # at 7 it has been silent for a gap
    assert live.net()["_time"].to_pylist() == [7]
    assert live.verify() == 0


def test_an_alarm_and_its_completion_are_one_match(db: Database) -> None:
    clause = "(PARTITION BY k PATTERN (A DURING | FINISHES | OVERLAPPED BY B) WITHIN 50 EMIT ON {} "
    clause += "DEFINE A AS x > 5, B AS y > 5)"
    text = "SELECT * FROM s MATCH_SITUATIONS " + clause
    early = db.create_live("early", text.format("DETECTION"), idle="never")
    whole = db.create_live("whole", text.format("COMPLETION").lower(), idle="never")
    put(db, (1, "a", 1, 9), (3, "a", 9, 9), (5, "a", 9, 9))
    assert early.net()["a_ended"].to_pylist() == [None]
    put(db, (7, "a", 0, 9), (9, "a", 0, 0), (20, "a", 0, 0))
    assert early.net()["_id"].to_pylist() == whole.net()["_id"].to_pylist()
    measured = text.format("COMPLETION").replace("PATTERN", "MEASURES MATCH_ID() AS id PATTERN")
    assert db.sql(measured).arrow()["id"].to_pylist() == whole.net()["_id"].to_pylist()


def test_a_late_event_takes_back_and_says_anew(db: Database) -> None:
    live = db.create_live("q", query("overlap"), idle="never")
    put(db, (1, "a", 9, 1), (4, "a", 9, 9), (6, "a", 1, 9), (9, "a", 1, 1), (20, "b", 1, 1))
    assert [row["n"] for row in live.net().to_pylist()] == [2]
    put(db, (3, "a", 9, 1))
    said = [(row["_diff"], row["_rev"], row["n"]) for row in changes(db, "q")]
    assert said == [(1, 0, 2), (-1, 0, 2), (1, 1, 3)]
    put(db, (2, "a", 1, 1))  # there are two situations now
    assert [(row["s"], row["n"]) for row in live.net().to_pylist()] == [(1, 1), (3, 2)]


def test_a_late_event_is_known_between_events(db: Database) -> None:
    """What it brings about becomes known before the next row of its partition."""
    live = db.create_live(
        "q", "SELECT k, at FROM s MATCH_SITUATIONS (PARTITION BY k MEASURES DETECTED() AS at "
        "PATTERN (A) WITHIN 30 EMIT ON DETECTION DEFINE A AS x > 5 LASTING AT LEAST 10)",
        idle="never",
    )  # fmt: skip
    others = [(t, "b", 1, 0) for t in range(23, 4000) for _ in range(3)]  # it pays to read few
    put(db, (20, "a", 1, 0), *others, (4000, "a", 1, 0), (4100, "b", 1, 0))
    put(db, (22, "a", 9, 0))
    assert live.net().select(["_time", "k", "at"]).to_pylist() == [
        {"_time": 32, "k": "a", "at": 32}
    ]


def test_a_step_reads_its_own_events(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    rebuilt = instant_form.InstantForm._begun
    monkeypatch.setattr(
        instant_form.InstantForm, "_begun",
        lambda self, *given: made.append(1) or rebuilt(self, *given),
    )  # fmt: skip
    live = db.create_live("q", query("overlap"), idle="never")
    for t in range(0, 400, 4):
        put(db, overlapping(t))
    assert len(made) == 1
    assert live.status()["state_bytes"] > 0
    put(db, (380, "a", 5, 5))
    assert len(made) == 2
    assert live.verify() == 0
    assert live.net().num_rows > 5


def test_an_interrupted_step_is_done_again(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it took in is behind the mark: it is not known, and read again."""
    live = db.create_live("q", query("overlap"), idle="never")
    for t in range(0, 100, 4):
        put(db, overlapping(t))
    before = live.net().num_rows

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("chronicle.live.sink.put_together", interrupted)
        db.stream("s").append(
            [dict(zip("tkxy", overlapping(t), strict=True)) for t in range(100, 200, 4)]
        )
        with pytest.raises(KeyboardInterrupt):
            db.run_live()
    put(db, overlapping(200))
    assert live.status()["error"] is None
    assert live.net().num_rows > before + 3
    assert live.verify() == 0


def test_a_state_that_is_too_large_is_done_without(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "STATE_BYTES_MAX", 10)
    live = db.create_live("q", query("overlap"), idle="never")
    for t in range(0, 200, 4):
        put(db, overlapping(t))
    assert live.status()["error"] is None
    assert live.status()["state_bytes"] == 0
    assert live.verify() == 0
    assert live.net().num_rows > 3


def test_partitions_that_are_silent_are_forgotten(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instant_form, "PARTITIONS_LEAST", 20)
    live = db.create_live("q", query("overlap"), idle="never")
    for t in range(0, 900, 3):
        put(db, (t, f"k{t // 12}", 9 * (t // 3 % 4 < 2), 9 * (0 < t // 3 % 4 < 3)))
    assert form_of(db, "q")._search.partitions <= 41
    assert live.verify() == 0
    assert live.net().num_rows > 5


def test_the_rows_of_an_expired_past_stay(db: Database) -> None:
    kept = {"leaf_bytes": 4096, "late_events_max": 30}
    db.create_stream("r", SCHEMA, time="t", retention="300", options=kept)
    live = db.create_live("q", query("overlap").replace("FROM s", "FROM r"), idle="never")
    for t in range(0, 3000, 10):
        rows = [(t + i, "a", 9 * (i < 4), 9 * (1 < i < 7)) for i in range(10)]
        db.stream("r").append([dict(zip("tkxy", row, strict=True)) for row in rows])
        if t % 100 == 0:
            db.stream("r").seal()
            db.run_live()
    db.run_live()
    assert live.status()["error"] is None
    first = db.sql("SELECT min(t) FROM r").fetchall()[0][0]
    assert first > 1000
    assert live.net().num_rows == 300
    assert live.verify() == 0
    db.stream("r").append([{"t": 2980, "k": "a", "x": 1, "y": 1}])
    db.run_live()
    assert live.verify() == 0
    assert live.net().num_rows == 300
