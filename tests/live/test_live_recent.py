"""Live recency joins: what holds after any step is what the join says over history.

Random streams come in order and late, in ties and in bulk, are sealed and compacted, opened anew
and crash.  After each step nothing holds that the query does not say of the events so far, and
nothing is missing but what a later event could still change.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from chronicle.api.database import Database
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.errors import SqlError
from chronicle.live import recent_form
from chronicle.live.recent_form import RecentForm
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

from ..rounds import rounds
from .test_live_crashes import opened

SEEDS = rounds(1, 12, 80)
SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])
WITHIN = 9


def fall(stream: str, alias: str, skip: str = "", keyed: str = "PARTITION BY k ") -> str:
    return (
        f"{stream} MATCH_RECOGNIZE ({keyed}ORDER BY t MEASURES LAST(x) AS z {skip} "
        f"PATTERN (A B+) WITHIN {WITHIN} DEFINE A AS x > 4, B AS x < PREV(x)) AS {alias}"
    )


def tail(stream: str, alias: str) -> str:
    """A match that may go on past the live row."""
    return (
        f"{stream} MATCH_RECOGNIZE (ORDER BY t MEASURES LAST(x) AS z MAXIMAL MATCH "
        f"PATTERN (A B (C* D)?) WITHIN {WITHIN} DEFINE A AS x > 4, B AS x < 5, D AS x > 6) "
        f"AS {alias}"
    )


SITUATIONS = (
    "s MATCH_SITUATIONS (PARTITION BY k PATTERN (a OVERLAPS | MEETS | BEFORE b) WITHIN 9 "
    "DEFINE a AS x > 5, b AS x < 4) AS l"
)
COUNTS = (
    "(SELECT window_start, window_end, count(*) AS n FROM TUMBLE(r, t, 5) "
    "GROUP BY window_start, window_end) AS a PERIOD (window_start, window_end)"
)
SPAN = "match_start(l) AS lf, match_end(l) AS le"
BOTH = f"{SPAN}, match_start(a) AS af, match_end(a) AS ae"
QUERIES = {
    "streams": f"SELECT {BOTH}, l.x FROM s AS l RECENT JOIN r AS a ON a.k = l.k WITHIN 5 "
    "WHERE l.x > 1 AND a.x < 9 AND l.x <> a.x",
    "left": f"SELECT {BOTH}, l.x + coalesce(a.x, 0) AS y FROM s AS l RECENT LEFT JOIN r AS a "
    "ON a.k = l.k AND a.x > l.x AND l.x <> 7 AND a.x <> 2 WITHIN 5",
    "anti": f"SELECT {SPAN}, l.k FROM s AS l RECENT ANTI JOIN r AS a ON a.x > l.x WITHIN 5 "
    "WHERE l.x > 2",
    "semi": f"SELECT {SPAN}, l.k, l.x FROM s AS l RECENT SEMI JOIN s AS a ON a.k = l.k WITHIN 3",
    "modes": f"SELECT {BOTH}, l.k, l.z, a.z AS y FROM {fall('s', 'l', 'INCREMENTAL MATCH')} RECENT "
    f"JOIN {fall('s', 'a', 'MAXIMAL MATCH')} ON a.k = l.k WITHIN 20",
    "last": f"SELECT {BOTH}, l.z FROM {fall('s', 'l')} RECENT LAST 2 JOIN "
    f"{fall('r', 'a', 'AFTER MATCH SKIP TO NEXT ROW')} WITHIN 20",
    "last_left": f"SELECT {BOTH}, l.x FROM s AS l RECENT LAST 1 LEFT JOIN {tail('r', 'a')} "
    "ON a.z <> l.x WITHIN 12 WHERE l.x > 3",
    "patterns_anti": f"SELECT {SPAN}, l.k FROM {fall('s', 'l')} RECENT ANTI JOIN "
    f"{fall('r', 'a', 'INCREMENTAL MATCH')} ON a.k <> l.k WITHIN 12",
    "tails": f"SELECT {BOTH} FROM {fall('s', 'l', keyed='')} RECENT SEMI JOIN {tail('s', 'a')} "
    "WITHIN 15".replace(BOTH, SPAN),
    "tails_left": f"SELECT {BOTH}, a.z FROM r AS l RECENT LEFT JOIN {tail('s', 'a')} WITHIN 8",
    "situations": f"SELECT {BOTH}, a.z FROM {SITUATIONS} RECENT JOIN {fall('r', 'a')} WITHIN 20",
    "windows": f"SELECT {BOTH}, a.n FROM s AS l RECENT LEFT JOIN {COUNTS} WITHIN 12",
    "chain": f"SELECT {BOTH}, b.t AS u FROM s AS l RECENT JOIN r AS b ON l.k = b.k WITHIN 3 "
    f"RECENT JOIN {fall('s', 'a')} WITHIN 15",
    "nested": f"SELECT {SPAN}, b.t AS u, match_start(a) AS af, a.z FROM s AS l RECENT LEFT JOIN "
    f"(r AS b RECENT JOIN {fall('s', 'a')} WITHIN 12) ON l.k = b.k WITHIN 15",
    "filtered": f"SELECT lf, le, m, match_start(a) AS af FROM (SELECT lf, le, af AS m FROM "
    f"(SELECT {BOTH}, l.x FROM s AS l RECENT JOIN r AS a ON a.k = l.k WITHIN 5) WHERE x > 3) AS q "
    "PERIOD (le, le) RECENT JOIN s AS a WITHIN 4",
    "with_last": f"SELECT {BOTH}, a.x FROM s AS l RECENT LAST 1 JOIN r AS a ON a.k = l.k AND "
    "a.x > 3 AND l.x < 9 WITHIN 9 WHERE l.x > 2 AND a.x <> 7",
}


class Run:
    """A store with some of the queries, and events that come to it."""

    def __init__(self, seed: int, names: list[str]) -> None:
        self.rng = random.Random(seed)
        self.names = names
        self.memory = MemoryFiles()
        self.db = opened(self.memory)
        self.last = {"s": 0, "r": 0}
        for stream in self.last:
            self.db.create_stream(stream, SCHEMA, time="t", options={"late_events_max": 30})
        self.delay = self.rng.choice([0, 0, 3])
        if self.rng.random() < 0.5:
            self.in_order()
        for name in names:
            self.db.create_live(name, QUERIES[name], delay=self.delay or None, idle="never")

    def append(self, stream: str, ticks: list[int]) -> None:
        rng = self.rng
        rows = [
            {"t": t, "k": rng.choice("ab"), "x": rng.choice([rng.randrange(10), 7, 2])}
            for t in sorted(ticks)
        ]
        self.db.stream(stream).append(rows)
        self.last[stream] = max([self.last[stream], *ticks])

    def in_order(self) -> None:
        for stream in self.rng.choice(["s", "r", "sr", "sr"]):
            ticks, at = [], self.last[stream]
            for _ in range(self.rng.choice([1, 5, 30])):
                at += self.rng.choice([0, 1, 1, 2, 5])
                ticks.append(at)
            self.append(stream, ticks)

    def late(self) -> None:
        for stream in self.rng.choice(["s", "r", "sr"]):
            reach = self.rng.choice([3, 12, 60])
            last = self.last[stream]
            self.append(stream, [max(0, last - self.rng.randrange(reach)) for _ in range(3)])

    def seal(self) -> None:
        self.db.stream("r").seal()

    def compact(self) -> None:
        self.db.stream("s").compact()

    def delete(self) -> None:
        stream = self.rng.choice("sr")
        at = max(0, self.last[stream] - self.rng.randrange(40))
        self.db.sql(f"DELETE FROM {stream} WHERE t BETWEEN {at - 1} AND {at}")

    def refresh(self) -> None:
        low = self.rng.randrange(self.last["s"] + 1)
        self.db.live(self.rng.choice(self.names)).refresh(low, low + 30)

    def reopen(self) -> None:
        self.db.close()
        self.db = opened(self.memory)

    def crash(self) -> None:
        self.memory = self.memory.kill()
        self.db = opened(self.memory)

    def step(self) -> None:
        self.db.run_live()
        for name in self.names:
            live = self.db.live(name)
            status = live.status()
            assert status["error"] is None, (name, status)
            if status["watermark"] is None:
                continue
            assert live.verify() == 0, name
            net = live.net()
            assert len(net) == len(set(net["_id"].to_pylist())), name
            held = Counter(map(repr, net.drop_columns(["_time", "_id", "_rev"]).to_pylist()))
            said = self.db.sql(QUERIES[name]).arrow().to_pylist()
            wanted = Counter(map(repr, said))
            assert not held - wanted, (name, held - wanted)
            for row in said:  # what is missing is made of something that may still change
                if held[repr(row)] < wanted[repr(row)]:
                    waits = row.get("af") is None or "last" in name
                    since = row["le"] if waits else max(row["lf"], row["af"])
                    assert since + WITHIN > status["watermark"], (name, row, status)


ACTIONS = (Run.in_order, Run.in_order, Run.in_order, Run.late, Run.late, Run.seal, Run.compact,
           Run.delete, Run.refresh, Run.reopen)  # fmt: skip


@pytest.mark.parametrize("forgetful", [False, True])
@pytest.mark.parametrize("part", range(4))
def test_steps_in_order_go_on_from_what_is_kept(
    part: int, forgetful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small commits, none of them late; with room for what is kept, and without."""
    monkeypatch.setattr(recent_form, "SPARE_ROWS", 0)
    if forgetful:
        monkeypatch.setattr(recent_form, "ARCHIVE_BYTES_MAX", 0)
    again: list[str] = []
    results = RecentForm.results

    def region(self: Any, *arguments: Any) -> Any:
        again.append("")
        return results(self, *arguments)

    names = sorted(QUERIES)[part::4]
    run = Run(part + 10 * forgetful, names)
    run.in_order()
    run.step()
    for _ in range(6):
        run.in_order()
        monkeypatch.setattr(RecentForm, "results", region)
        run.db.run_live()
        monkeypatch.setattr(RecentForm, "results", results)
        run.step()
    composed = {"filtered", "nested", "chain"}  # these ask one that is inside for regions
    assert composed & set(names) or not again
    run.db.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_holds_is_what_the_join_says(seed: int) -> None:
    names = sorted(QUERIES)[seed % 4 :: 4]
    run = Run(seed, names)
    for _ in range(rounds(5, 7)):
        for action in run.rng.sample(ACTIONS, 2):
            action(run)
        run.step()
    run.crash()
    run.in_order()
    run.step()
    for last in (1000, 3000):
        for stream in "sr":
            run.append(stream, [run.last[stream] + last])
    run.step()
    assert sum(len(run.db.live(name).net()) for name in names) > 5
    for name in names:
        said = [row for batch in run.db.live(name).rows() for row in batch.to_pylist()]
        assert [row["_seq"] for row in said] == list(range(1, len(said) + 1))
    assert run.db.check().ok
    run.db.close()


# -- what it says of itself, and what it refuses ---------------------------------------------------


@pytest.fixture
def db() -> Any:
    with Database(StoreCatalog(Store.open("mem", files=MemoryFiles()))) as found:
        for stream in "sr":
            found.create_stream(stream, SCHEMA, time="t")
        timed = pa.schema([("at", pa.timestamp("us")), ("k", pa.string()), ("x", pa.int64())])
        found.create_stream("timed", timed, time="at")
        yield found


OPEN = "MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(x) AS y PATTERN (A B+) DEFINE B AS x > 3)"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT l.x FROM s l RECENT JOIN r a", "ends with WITHIN.*column 21"),
        (f"SELECT a.y FROM s l RECENT JOIN r {OPEN} AS a WITHIN 5", "add WITHIN.*column 33"),
        ("SELECT l.x FROM s l RECENT JOIN (SELECT t, x AS b FROM r) AS a PERIOD (b, t) WITHIN 5",
         "fixed distance of the time of a result, the start before the end .t. .*column 64"),
        ("SELECT l.x FROM s l RECENT JOIN (SELECT window_start AS b, window_end AS e, count(*) AS n"
         " FROM TUMBLE(r, t, 5) GROUP BY 1, 2) AS a PERIOD (e, b) WITHIN 5",
         "the start before the end .b, e."),
        ("SELECT l.x FROM s l RECENT JOIN (SELECT window_start AS b, window_end AS e, count(*) AS n"
         " FROM TUMBLE_ROWS(r, 5) GROUP BY window_id, 1, 2) AS a PERIOD (b, e) WITHIN 5",
         "windows of so many events"),
        ("SELECT count(*) FROM s l RECENT JOIN r a WITHIN 5", "aggregate where it is read"),
        ("SELECT l.x FROM s l RECENT JOIN r a WITHIN 5 GROUP BY l.x", "aggregate where it is read"),
        ("SELECT l.x FROM s l RECENT JOIN r a WITHIN 5 ORDER BY l.x", "ORDER cannot be live"),
        ("SELECT DISTINCT l.x FROM s l RECENT JOIN r a WITHIN 5", "DISTINCT cannot be live"),
        ("SELECT l.x FROM s l RECENT JOIN r a ON l.x < random() WITHIN 5",
         "the same each time.*column 46"),
        ("SELECT l.x FROM s l RECENT JOIN r a WITHIN ?", "no parameters.*column 44"),
        ("SELECT l.x, a.x FROM s l RECENT JOIN r a WITHIN 5", "would be called 'x'"),
        ("SELECT unnest([l.x]) AS y FROM s l RECENT JOIN r a WITHIN 5", "unnest where it is read"),
        ("SELECT l.x FROM s l RECENT JOIN r a WITHIN 5, r AS b",
         "stands alone in a live query.*column 21"),
        ("WITH q AS (SELECT * FROM s) SELECT l.x FROM q l PERIOD (t, t) RECENT JOIN r a WITHIN 5",
         "WITH cannot be live"),
    ],
)  # fmt: skip
def test_what_cannot_be_live(db: Database, sql: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        db.create_live("q", sql)
    assert db.live_queries() == []


def test_sides_in_different_units_of_time(db: Database) -> None:
    schema = pa.schema([("at", pa.timestamp("ms")), ("x", pa.int64())])
    db.create_stream("coarse", schema, time="at")
    sql = "SELECT l.x FROM timed AS l RECENT JOIN coarse AS a WITHIN INTERVAL '1' SECOND"
    with pytest.raises(SqlError, match="whose times have one type"):
        db.create_live("q", sql)


def test_what_is_said_of_a_join(db: Database) -> None:
    db.create_live("q", QUERIES["last_left"])
    told = "\n".join(row[0] for row in db.sql("EXPLAIN LIVE QUERY q").fetchall())
    for part in ("recency join (left, the last 1, no key)", "reach: 12 from", "closed: when all",
                 "live class: rows", "archive class: patterns"):  # fmt: skip
        assert part in told


def test_a_pair_comes_with_the_later_known_of_its_rows(db: Database) -> None:
    """Live rows are known at once; the match that goes on past one is known behind it."""
    sql = "SELECT l.t, match_start(a) AS b, match_end(a) AS e FROM r AS l RECENT JOIN "
    sql += tail("s", "a")
    db.create_live("q", f"{sql} WITHIN 8", idle="never")
    net = "SELECT t, b, e FROM NET(q)"
    for t, x in ((1, 6), (2, 4), (3, 5)):  # A B, and perhaps C* D
        db.stream("s").append([{"t": t, "k": "a", "x": x}])
    db.stream("r").append([{"t": t, "k": "a", "x": 0} for t in (4, 9)])
    for t, x, wanted in ((6, 5, []), (7, 2, []), (12, 3, [(4, 1, 2)])):
        db.stream("s").append([{"t": t, "k": "a", "x": x}])
        db.stream("r").append([{"t": t + 4, "k": "a", "x": 0}])
        db.run_live()
        assert db.sql(net).fetchall()[:1] == wanted, t
    db.stream("s").append([{"t": 5, "k": "a", "x": 9}])  # the match ends behind the live row now
    db.run_live()
    assert (4, 1, 2) not in db.sql(net).fetchall()
    assert db.sql(f"{net} WHERE t = 9").fetchall() == [(9, 1, 5)]


def test_a_silent_archive_side_holds_nothing_back(db: Database) -> None:
    sql = f"SELECT l.t FROM r AS l RECENT ANTI JOIN {tail('s', 'a')} WITHIN 8"
    db.create_live("q", sql, idle="0 seconds")

    def after(stream: str, *events: tuple[int, int]) -> list[int]:
        db.stream(stream).append([{"t": t, "k": "a", "x": x} for t, x in events])
        db.run_live()
        assert db.live("q").verify() == 0
        return [t for (t,) in db.sql("SELECT t FROM NET(q) ORDER BY t").fetchall()]

    assert after("r", (4, 0), (9, 0)) == [4, 9]
    assert after("s", (2, 6), (3, 4)) == []  # late; they may be a match before either
    assert after("r", (13, 0)) == [13]
    assert after("s", (16, 6)) == [13]
    assert after("r", (18, 0)) == [13]  # a match that ends before may be open
    assert after("r", (26, 0)) == [13, 18, 26]


@pytest.mark.parametrize("asked", [{"late": "ignore"}, {"options": {"store": False}}])
def test_results_that_pass_by_and_results_that_stay(db: Database, asked: dict[str, Any]) -> None:
    db.create_live("q", QUERIES["modes"], idle="never", **asked)
    db.create_live("all", QUERIES["modes"], idle="never")
    rng = random.Random(5)
    for low in range(0, 120, 20):
        ticks = sorted(rng.randrange(low, low + 20) for _ in range(12))
        late = [max(0, low - 3)] if low % 40 else []
        rows = [{"t": t, "k": rng.choice("ab"), "x": rng.randrange(10)} for t in [*late, *ticks]]
        db.stream("s").append(rows)
        db.run_live()
        assert db.live("q").status()["error"] is None
    said = [row for batch in db.live("q").rows() for row in batch.to_pylist()]
    assert [row["_seq"] for row in said] == list(range(1, len(said) + 1))
    if "late" in asked:
        assert {row["_id"] for row in said}
        assert db.live("q").status()["ignored"] > 0
    else:
        held = Counter[bytes]()
        for row in said:
            held[row["_id"]] += row["_diff"]
        assert +held == Counter(db.live("all").net()["_id"].to_pylist())
