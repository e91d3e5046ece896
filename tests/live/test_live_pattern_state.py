"""Live patterns with the searches kept from step to step and without: what is said is the same.

A machine appends in order and late, in ties and in bulk, pauses, refreshes, opens anew and crashes.
Each pattern runs twice; up to the first crash, which may take a step from one of them alone, both
have said the same, change by change.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from chronicle.api.database import Database, catalog_of
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.errors import ResourceLimit
from chronicle.live import forms, pattern_form
from chronicle.live.pattern_form import PatternForm
from chronicle.query.pattern.advancing import AdvancingMatch
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

from ..rounds import rounds

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])
KEYED = "PARTITION BY k ORDER BY t"
EDGES = "MEASURES FIRST(t) AS f, LAST(t) AS l, LAST(x) AS z, count(*) AS n"
CLAUSES = {
    "falling": f"{KEYED} {EDGES} PATTERN (A B+) WITHIN 12 DEFINE A AS x > 5, B AS x < PREV(x)",
    "before": f"{KEYED} {EDGES} PATTERN (A B) WITHIN 8 DEFINE A AS x > PREV(x), B AS x > 2",
    "first": f"{KEYED} {EDGES} PATTERN (^ A B*) WITHIN 9 DEFINE B AS x > 3",
    "packed": f"ORDER BY t {EDGES} PATTERN (A A+ B?) WITHIN 10 DEFINE A AS x > 1, "
    "B AS x < 1 AND x < A.x",
    "length": f"ORDER BY t {EDGES} PATTERN (A B? C) DEFINE A AS x > 2, C AS x > A.x",
    "every": f"{KEYED} {EDGES} ALL ROWS PER MATCH PATTERN (A B C?) WITHIN 7 "
    "DEFINE A AS x > 3, B AS x < A.x",
    "again": f"{KEYED} {EDGES} AFTER MATCH SKIP TO LAST B PATTERN (A B+ C) WITHIN 12 "
    "DEFINE B AS x > 4, C AS x < 5",
    "chosen": f"{KEYED} {EDGES} PATTERN (A B+ C) WITHIN 9 EVENT SELECTION SKIP TILL NEXT MATCH "
    "DEFINE A AS x > 6, B AS x > 3, C AS x < 3",
    "any": f"ORDER BY t {EDGES} PATTERN (A B C) WITHIN 5 EVENT SELECTION SKIP TILL ANY MATCH "
    "DEFINE A AS x > 5, B AS x < A.x, C AS x < 4",
    "none": f"{KEYED} {EDGES} AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN 12 "
    "DEFINE A AS x > PREV(x)",
}
QUERIES = {name: f"SELECT * FROM s MATCH_RECOGNIZE ({text})" for name, text in CLAUSES.items()}
ALONE = {
    name: f"SELECT * FROM s MATCH_RECOGNIZE ({text})"
    for name, text in {
        **{name: CLAUSES[name] for name in ("chosen", "any", "none")},
        "longest": f"{KEYED} {EDGES} MAXIMAL MATCH PATTERN (A B+ A?) WITHIN 8 "
        "DEFINE A AS x > 4, B AS x < 6",
        "ends": f"{KEYED} {EDGES} INCREMENTAL MATCH PATTERN (A B+) WITHIN 8 "
        "DEFINE A AS x > 4, B AS x < PREV(x)",
        "ends_path": f"ORDER BY t {EDGES} INCREMENTAL MATCH PATTERN (A B+ C?) WITHIN 6 "
        "DEFINE B AS x < 7, C AS x > A.x",
    }.items()
}
"""Matches that do not wait for each other."""

values = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from("abc"), st.integers(0, 9)),
    min_size=1, max_size=12,
)  # fmt: skip


def form_of(db: Database, name: str) -> PatternForm:
    form = catalog_of(db).live_statements.query(name).form
    assert isinstance(form, PatternForm)
    return form


class Twins(RuleBasedStateMachine):
    """See the module."""

    @initialize(delay=st.sampled_from([0, 3]), late=st.sampled_from(["correct", "ignore"]))
    def begin(self, delay: int, late: str) -> None:
        self.memory = MemoryFiles()
        self.db = Database(StoreCatalog(Store.open("mem", files=self.memory)))
        self.db.create_stream("s", SCHEMA, time="t", options={"late_events_max": 20})
        self.last, self.crashed, self.corrects = 0, False, late == "correct"
        for name, sql in QUERIES.items():
            for twin in (name, f"{name}_without"):
                self.db.create_live(twin, sql, delay=delay or None, idle="never", late=late)
        self.part()

    def part(self) -> None:
        """Have one of each pair keep nothing."""
        for name in QUERIES:
            form_of(self.db, f"{name}_without").keeps = False

    def append(self, events: list[tuple[int, str, int]]) -> None:
        ordered = sorted(events, key=lambda event: event[0])
        self.db.stream("s").append([{"t": t, "k": k, "x": x} for t, k, x in ordered])
        self.last = max(self.last, ordered[-1][0])

    @rule(steps=values)
    def in_order(self, steps: list[tuple[int, str, int]]) -> None:
        at, made = self.last, []
        for step, k, x in steps:
            at += step // 2
            made.append((at, k, x))
        self.append(made)
        self.step()

    @rule(steps=values, reach=st.sampled_from([3, 15, 60]))
    def late(self, steps: list[tuple[int, str, int]], reach: int) -> None:
        self.append([(max(0, self.last - step * reach // 12), k, x) for step, k, x in steps])

    @rule(seed=st.integers(0, 1000), rows=st.sampled_from([5, 80]))
    def bulk(self, seed: int, rows: int) -> None:
        r = random.Random(seed)
        self.append(
            [(self.last + r.randrange(60), r.choice("abc"), r.randrange(10)) for _ in range(rows)]
        )

    @rule()
    def seal(self) -> None:
        self.db.stream("s").seal()

    @rule(name=st.sampled_from(sorted(QUERIES)))
    def pause(self, name: str) -> None:
        for twin in (name, f"{name}_without"):
            self.db.live(twin).pause()

    @rule()
    def resume_all(self) -> None:
        for name in QUERIES:
            for twin in (name, f"{name}_without"):
                self.db.live(twin).resume()

    @precondition(lambda self: self.corrects)
    @rule(name=st.sampled_from(sorted(QUERIES)), low=st.integers(0, 100))
    def refresh(self, name: str, low: int) -> None:
        for twin in (name, f"{name}_without"):
            self.db.live(twin).refresh(low, low + 30)

    @rule()
    def reopen(self) -> None:
        self.db.close()
        self.db = Database(StoreCatalog(Store.open("mem", files=self.memory)))
        self.part()

    @rule(mode=st.sampled_from(["kill", "lose", "tear"]), seed=st.integers(0, 1000))
    def crash(self, mode: str, seed: int) -> None:
        self.crashed = True
        if mode == "kill":
            self.memory = self.memory.kill()
        else:
            self.memory = self.memory.crash(random.Random(seed), mode)  # type: ignore[arg-type]
        self.db = Database(StoreCatalog(Store.open("mem", files=self.memory)))
        self.part()

    @rule()
    def step(self) -> None:
        self.db.run_live()
        for name in QUERIES:
            twins = [self.db.live(twin) for twin in (name, f"{name}_without")]
            assert [twin.status()["error"] for twin in twins] == [None, None]
            assert twins[1].status()["state_bytes"] == 0
            if not self.corrects and self.crashed:
                continue  # what is late depends on the step that sees it
            if twins[0].status()["state"] != "paused" and self.corrects:
                assert [twin.verify() for twin in twins] == [0, 0]
            nets = [
                sorted(map(repr, twin.net().drop(["_rev"]).to_pylist())) for twin in twins
            ]  # fmt: skip
            assert nets[0] == nets[1], name
            if not self.crashed:
                said = [[row for b in twin.rows() for row in b.to_pylist()] for twin in twins]
                assert said[0] == said[1], name

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.resume_all()
            self.append([(self.last + 1000, "a", 0)])
            self.step()
            self.db.close()


Twins.TestCase.settings = settings(
    max_examples=rounds(1, 8),
    stateful_step_count=rounds(8, 14),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestTwins = Twins.TestCase


@pytest.mark.parametrize("kept", [True, False])
def test_ignored_events_change_nothing_that_was_said(kept: bool) -> None:
    """With LATE IGNORE a match stays as it was decided, however steps are evaluated."""
    db = Database(StoreCatalog(Store.open("mem", files=MemoryFiles())))
    db.create_stream("s", SCHEMA, time="t")
    sql = (
        "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES count(*) AS n, "
        "FIRST(t) AS f PATTERN (A B+) WITHIN 20 DEFINE A AS x = 0, B AS x > A.x)"
    )
    db.create_live("q", sql, idle="never", late="ignore")
    if not kept:
        form_of(db, "q").keeps = False
    for t, x in [(0, 0), (1, 1), (2, -1), (3, 9), (1, 5), (4, 0), (5, 1), (5, 1), (7, -1), (9, 9)]:
        db.stream("s").append([{"t": t, "k": "a", "x": x}])
        db.run_live()
    rows = [row for batch in db.live("q").rows() for row in batch.to_pylist()]
    assert [(row["f"], row["n"]) for row in rows] == [(0, 2), (4, 3)]
    assert db.live("q").status()["ignored"] == 1
    db.close()


@pytest.mark.parametrize("name", list(ALONE))
def test_matches_that_do_not_wait_for_each_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the machine, of one class and for longer."""
    monkeypatch.setattr(f"{__name__}.QUERIES", {name: ALONE[name]})
    r = random.Random(name)
    twins = Twins()
    twins.begin(delay=0, late="correct")
    for _ in range(rounds(18, 30)):
        events = [
            (r.randint(0, 4), r.choice("abc"), r.randint(0, 9)) for _ in range(r.randint(1, 12))
        ]
        r.choice([twins.in_order, twins.in_order, lambda steps: twins.late(steps=steps, reach=15)])(
            steps=events
        )
        twins.step()
    twins.reopen()
    twins.in_order([(1, "a", x) for x in range(9, 0, -1)])
    assert form_of(twins.db, name).state_bytes > 0
    assert twins.db.live(name).status()["rows"] > 10
    twins.append([(twins.last + 1000, "a", 0)])
    twins.step()
    net = twins.db.sql(f'SELECT * EXCLUDE (_time, _id, _rev) FROM NET("{name}")').fetchall()
    over = f"SELECT * FROM ({ALONE[name]}) WHERE l < {twins.last}"
    assert sorted(net) == sorted(twins.db.sql(over).fetchall())
    twins.teardown()


@pytest.fixture
def db() -> Any:
    with Database(StoreCatalog(Store.open("mem", files=MemoryFiles()))) as found:
        found.create_stream("s", SCHEMA, time="t")
        yield found


def fed(db: Database, events: list[tuple[int, str, int]]) -> None:
    db.stream("s").append([{"t": t, "k": k, "x": x} for t, k, x in events])
    db.run_live()


def test_a_step_in_order_reads_its_own_events_and_one_with_late_ones_regions(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.create_live("q", QUERIES["falling"], idle="never")
    fed(db, [(t, "ab"[t % 2], t * 7 % 10) for t in range(100)])
    fed(db, [(100, "a", 9)])
    read: list[int] = []
    advance, regions = AdvancingMatch.advance, PatternForm.results

    def counted(self: Any, batch: Any, watermark: int) -> Any:
        read.append(0 if batch is None else batch.num_rows)
        return advance(self, batch, watermark)

    def region(self: Any, *arguments: Any) -> Any:
        read.append(-1)
        return regions(self, *arguments)

    monkeypatch.setattr(AdvancingMatch, "advance", counted)
    monkeypatch.setattr(PatternForm, "results", region)
    fed(db, [(101, "a", 5), (101, "b", 5)])
    fed(db, [(102, "a", 3)])
    assert read == [1, 2]
    assert db.live("q").status()["state_bytes"] > 0
    fed(db, [(90, "a", 3), (103, "a", 3)])
    assert set(read[2:]) == {-1}
    assert db.live("q").status()["state_bytes"] == 0
    del read[:]
    fed(db, [(104, "a", 3)])
    fed(db, [(105, "a", 3)])
    assert read[-1] == 1  # from a state that was built again
    assert db.live("q").status()["state_bytes"] > 0
    del read[:]
    fed(db, [(100, "a", 3)])
    assert read == [-1]  # no result closes


@pytest.mark.parametrize("name", ["falling", "packed", "again", "before"])
def test_a_state_is_built_again_where_searches_are_known(
    db: Database, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried: list[int] = []
    behind = pattern_form._carried

    def counted(compiled: Any, cut: Any, rows: Any) -> Any:
        carried.append(len(cut.carried))
        return behind(compiled, cut, rows)

    monkeypatch.setattr(pattern_form, "_carried", counted)
    db.create_live("q", QUERIES[name], idle="never")
    r = random.Random(3)
    for t in range(0, rounds(200, 400), 8):
        ticks = sorted(t + r.randrange(8) for _ in range(12))
        fed(db, [(tick, r.choice("aab"), r.randrange(10)) for tick in ticks])
        form_of(db, "q").drop_state()
    fed(db, [(1000, "a", 0), (1001, "b", 0)])
    net = db.live("q").net().drop(["_time", "_id", "_rev"]).to_pylist()
    whole = [row for row in db.sql(QUERIES[name]).arrow().to_pylist() if row["l"] < 1000]
    assert sorted(map(repr, net)) == sorted(map(repr, whole))
    assert bool(carried) == (name in ("falling", "packed"))


@pytest.mark.parametrize("name", list(QUERIES))
def test_a_late_event_where_a_column_is_not_read(db: Database, name: str) -> None:
    """Of ``packed`` for instance ``k``: what it has kept lacks that."""
    live = db.create_live("q", QUERIES[name], idle="never")
    r = random.Random(6)
    for t in range(0, rounds(72, 120), 4):
        fed(db, [(max(0, t - r.randrange(9) + 4), r.choice("ab"), r.randrange(10)) for _ in "123"])
        assert live.status()["error"] is None
    assert live.verify() == 0
    assert live.status()["late"] > 0


@pytest.mark.parametrize("name", list(QUERIES))
def test_a_backlog_is_one_region_and_what_is_said_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for most in (1 << 16, 50):
        monkeypatch.setattr(pattern_form, "BACKLOG_EVENTS", most)
        with Database(StoreCatalog(Store.open("mem", files=MemoryFiles()))) as db:
            db.create_stream("s", SCHEMA, time="t")
            live = db.create_live("q", QUERIES[name], idle="never")
            r = random.Random(5)
            fed(db, [(t, r.choice("ab"), r.randrange(10)) for t in range(60)])
            live.pause()
            fed(db, [(60 + t // 2, r.choice("ab"), r.randrange(10)) for t in range(200)])
            live.resume()
            for t in range(160, 300, 10):
                fed(db, [(t + i, r.choice("ab"), r.randrange(10)) for i in range(10)])
            assert live.verify() == 0
            rows = [row for batch in live.rows() for row in batch.to_pylist()]
            said.append([{**row, "_seq": None} for row in rows])
            assert [row["_seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert said[0] == said[1]
    assert said[0]


def test_a_state_that_is_too_large_is_done_without(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "STATE_BYTES_MAX", 1)
    db.create_live("q", QUERIES["falling"], idle="never")
    for t in range(0, 60, 5):
        fed(db, [(t + i, "a", (t + i) * 7 % 10) for i in range(5)])
    assert db.live("q").status()["state_bytes"] == 0
    assert db.live("q").verify() == 0
    assert len(db.live("q").net()) > 3


def test_a_failure_of_the_state_is_not_one_of_the_query(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.create_live("q", QUERIES["falling"], idle="never")
    fed(db, [(t, "a", t * 7 % 10) for t in range(20)])
    fed(db, [(t, "a", t * 7 % 10) for t in range(20, 40)])

    def fails(*_: Any) -> Any:
        raise ResourceLimit("too much")

    monkeypatch.setattr(AdvancingMatch, "advance", fails)
    fed(db, [(t, "a", t * 7 % 10) for t in range(40, 60)])
    assert db.live("q").status()["error"] is None
    assert db.live("q").verify() == 0


def test_what_is_said_when_the_commit_fails(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.create_live("q", QUERIES["falling"], idle="never")
    fed(db, [(t, "a", t * 7 % 10) for t in range(40)])
    fed(db, [(t, "a", t * 7 % 10) for t in range(40, 60)])

    def fails(*_: Any) -> None:
        raise ResourceLimit("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr("chronicle.live.sink.put_together", fails)
        fed(db, [(t, "a", t * 7 % 10) for t in range(60, 80)])
    assert db.live("q").status()["error"] == "the disk is full"
    db.live("q").resume()
    fed(db, [*((t, "a", t * 7 % 10) for t in range(80, 100)), (200, "b", 0), (201, "b", 0)])
    assert db.live("q").verify() == 0
    assert len(db.live("q").net()) == len(db.sql(QUERIES["falling"]).fetchall()) > 10


def test_what_retention_drops_and_what_the_select_leaves_out() -> None:
    with Database(StoreCatalog(Store.open("mem", files=MemoryFiles()))) as db:
        db.create_stream("s", SCHEMA, time="t", retention="150")
        sql = QUERIES["falling"].replace("SELECT *", "SELECT k, f * 2 AS f, l") + " WHERE z < 3"
        for name in ("q", "without"):
            db.create_live(name, sql, idle="never")
        form_of(db, "without").keeps = False
        for at in range(0, 360, 8):
            fed(db, [(at + i, "ab"[(at + i) % 3 == 0], (at + i) * 7 % 10) for i in range(8)])
            if at % 40 == 0:
                db.stream("s").seal()
        assert db.stream("s").snapshot().state.dropped > 0
        assert db.live("q").status()["state_bytes"] > 0
        said = [[row for b in db.live(n).rows() for row in b.to_pylist()] for n in ("q", "without")]
        assert said[0] == said[1] != []
        assert db.live("q").verify() == 0


def test_explain_says_whether_steps_are_incremental(db: Database) -> None:
    said = {}
    before = f"ORDER BY t {EDGES} PATTERN (A) WITHIN 3 DEFINE A AS x > PREV(x)"
    queries = {**QUERIES, "before": f"SELECT * FROM s MATCH_RECOGNIZE ({before})"}
    for name in ("falling", "none", "any", "before"):
        db.create_live(name, queries[name], idle="never")
        rows = db.sql(f"EXPLAIN LIVE QUERY {name}").fetchall()
        said[name] = next(line for (line,) in rows if "state:" in line)
    assert [name for name, line in said.items() if "incremental" not in line] == ["before"]
