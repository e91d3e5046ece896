"""Deletes, updates and replacements: a store with them is a fresh one of its events."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.catalog.streams import handle_of
from chronicle.errors import InvalidArgument, ReadOnlyStore, SqlError, StreamNotFound, StreamOwned
from chronicle.store.staging import StagingPlan, commit_staged, new_job, prepare_staging, stage
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

from .rounds import rounds

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64()), ("y", pa.float64())])
SMALL = {"leaf_bytes": 2048, "segment_bytes": 32_768, "late_events_max": 40, "compaction": "manual"}
PERSON = "Ada, whom nobody may find"

Event = tuple[int, str, int, float | None]

PATTERN = (
    "MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES FIRST(t) AS f, LAST(t) AS l, "
    "LAST(x) AS x PATTERN (A B+) WITHIN 40 DEFINE A AS x > 95, B AS x < PREV(x))"
)
QUERIES = [
    "SELECT * FROM s",
    "SELECT t, y FROM s WHERE k = 'b' AND x > 50",
    "SELECT count(*), count(y), min(x), max(x), sum(x), min(t), max(t) FROM s",
    "SELECT count(*), sum(x), max(y) FROM s WHERE t >= 100 AND t < 900",
    "SELECT window_start, count(*), sum(x), min(y) FROM TUMBLE(s, t, 64) GROUP BY window_start",
    "SELECT window_start, k, max(x) FROM HOP(s, t, 30, 90) GROUP BY window_start, k",
    "SELECT k, window_start, window_end, count(*) FROM SESSION(s, t, 3, k) "
    "GROUP BY k, window_start, window_end",
    *(f"SELECT /*+ strategy({plan}) */ * FROM s {PATTERN}" for plan in ("replay", "index", "auto")),
    "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f, LAST(t) AS l "
    "PATTERN (A B C) DEFINE A AS x > 97, B AS x < 60, C AS k = 'b')",
    "SELECT one.t, two.t AS u FROM s AS one JOIN s AS two ON one.k = two.k AND one.x = two.x "
    "AND two.t > one.t AND two.t < one.t + 20 WHERE one.x > 90",
]
SORTED = {QUERIES[5], QUERIES[6], QUERIES[-1]}


def table(events: list[Event]) -> pa.Table:
    columns = zip(*events, strict=True) if events else ([], [], [], [])
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def made(rng: random.Random, count: int, at: int) -> list[Event]:
    return [
        (
            at + i // 2,
            rng.choice("aabbbc"),
            rng.randrange(100),
            None if i % 5 == 0 else rng.randrange(8) / 4,
        )
        for i in range(count)
    ]


def answers(db: Database) -> list[Any]:
    found = []
    for query in QUERIES:
        rows = db.sql(query).fetchall()
        found.append(sorted(rows, key=repr) if query in SORTED else rows)
    return found


def replace_range(stream: Any, events: list[Event], first: int, last: int) -> None:
    """Put events, in order of time, where a stream has others."""
    handle, job = handle_of(stream), new_job()
    plan = StagingPlan(handle.directory, job, handle.schema, handle.options)
    prepare_staging(handle.files, plan)
    staged = stage(handle.files, plan, 0, [iter(table(events).to_batches())])
    commit_staged(handle, job, staged, over=(first, last))


class Model:
    """A stream, and the events that it should hold, in order of arrival."""

    def __init__(self) -> None:
        self.memory = MemoryFiles()
        self.db = Database(StoreCatalog(Store.open("memory", files=self.memory)))
        self.stream = self.db.create_stream("s", SCHEMA, time="t", options=SMALL)
        self.events: list[Event] = []
        self.newest = 0
        self.seed = 0

    def run(self, kind: str, at: int, length: int) -> None:
        self.seed += 1
        rng = random.Random(self.seed)
        if kind == "append":
            self.add(made(rng, 20 + length, self.newest))
        elif kind == "late":
            self.add(made(rng, 5 + length // 8, max(0, self.newest - at)))
        elif kind == "value":
            least = at % 90
            where = f"x BETWEEN {least} AND {least + 12}"
            self.delete(where, lambda e: least <= e[2] <= least + 12)
        elif kind == "null":
            self.delete("NOT y > 0.5", lambda e: e[3] is not None and e[3] <= 0.5)
        elif kind == "range":
            low = max(0, self.newest - at)
            self.delete(f"t >= {low} AND t < {low + length}", lambda e: low <= e[0] < low + length)
        elif kind == "both":
            low = max(0, self.newest - at)
            where = f"t > {low} AND k = 'b' AND x > 40"
            self.delete(where, lambda e: e[0] > low and e[1] == "b" and e[2] > 40)
        elif kind == "change":
            least = at % 90
            self.update(
                "x = (x * 7 + t) % 100, k = CASE WHEN y > 0.5 THEN 'c' ELSE k END, y = NULL",
                f"x BETWEEN {least} AND {least + 12}",
                lambda e: least <= e[2] <= least + 12,
                lambda e: (e[0], "c" if (e[3] or 0) > 0.5 else e[1], (e[2] * 7 + e[0]) % 100, None),
            )
        elif kind == "shift":
            low = max(0, self.newest - at)
            self.update(
                "y = x / 4",
                f"t >= {low} AND t < {low + length}",
                lambda e: low <= e[0] < low + length,
                lambda e: (*e[:3], e[2] / 4),
            )
        elif kind == "replace":
            low = max(0, self.newest - at)
            new = [e for e in made(rng, 2 * (length // 3), low) if e[0] < low + length]
            replace_range(self.stream, new, low, low + length - 1)
            self.events = [e for e in self.events if not low <= e[0] < low + length] + new
            self.newest = max(self.newest, *(e[0] for e in new), 0)
        elif kind == "crash":
            self.memory = self.memory.crash(random.Random(self.seed), "tear")
            self.db = Database(StoreCatalog(Store.open("memory", files=self.memory)))
            self.stream = self.db.stream("s")
        else:
            getattr(self.stream, kind)()

    def add(self, events: list[Event]) -> None:
        ordered = sorted(events, key=lambda e: e[0])
        self.stream.append(table(ordered))
        self.events += ordered
        self.newest = max(self.newest, ordered[-1][0])

    def delete(self, where: str, gone: Callable[[Event], bool]) -> None:
        kept = [event for event in self.events if not gone(event)]
        assert self.db.sql(f"DELETE FROM s WHERE {where}").fetchall() == [
            (len(self.events) - len(kept),)
        ]
        self.events = kept

    def update(
        self,
        values: str,
        where: str,
        chosen: Callable[[Event], bool],
        new: Callable[[Event], Event],
    ) -> None:
        count = sum(map(chosen, self.events))
        assert self.db.sql(f"UPDATE s SET {values} WHERE {where}").fetchall() == [(count,)]
        self.events = [new(event) if chosen(event) else event for event in self.events]

    def check(self) -> None:
        with Database(StoreCatalog(Store.open("fresh", files=MemoryFiles()))) as fresh:
            other = fresh.create_stream("s", SCHEMA, time="t", options=SMALL)
            other.append(table(sorted(self.events, key=lambda e: e[0])))
            for mine, wanted, query in zip(answers(self.db), answers(fresh), QUERIES, strict=True):
                assert mine == wanted, query
            assert self.stream.aggregate({"x": ["sum", "min", "max"], "y": ["count"]}) == (
                other.aggregate({"x": ["sum", "min", "max"], "y": ["count"]})
            )


ACTIONS = (
    *("append", "append", "late", "value", "null", "range", "both", "change", "shift", "replace"),
    *("compact", "seal", "crash"),
)
step = st.tuples(
    st.sampled_from(ACTIONS),
    st.integers(0, 400),
    st.integers(0, 300),
)


@settings(max_examples=rounds(2, 10, 200), deadline=None)
@given(steps=st.lists(step, min_size=3, max_size=10))
def test_a_stream_that_was_changed_is_a_fresh_one_of_what_it_holds(
    steps: list[tuple[str, int, int]],
) -> None:
    model = Model()
    model.run("append", 0, 300)
    for kind, at, length in steps:
        model.run(kind, at, length)
    model.check()
    assert model.db.check().ok
    model.db.close()


# ------------------------------------------------------------------------------------- files


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t", codec="none", options=SMALL)
        rng = random.Random(5)
        stream.append(table(made(rng, 2000, 0)))
        stream.create_index("k")
        stream.create_index("x")
        stream.append(
            table([(t, PERSON if t % 9 == 0 else "b", t % 100, 1.0) for t in range(1200)])
        )
        stream.append(table([(1300 + t, PERSON, 99 - t, None) for t in range(40)]))
        yield database


def holding(place: Path) -> list[str]:
    return [
        path.name
        for path in place.rglob("*")
        if path.is_file() and PERSON.encode() in path.read_bytes()
    ]


def test_no_file_of_a_store_holds_a_deleted_person(db: Database, tmp_path: Path) -> None:
    stream = db.stream("s")
    stream.compact()
    catalog_of(db).indexes_of("s").catch_up(stream.snapshot().state)
    assert {name[name.rindex(".") :] for name in holding(tmp_path)} >= {".seg", ".sst"}
    assert stream.delete(f"k = '{PERSON}'") == 174
    stream.compact()
    assert holding(tmp_path) == []
    query = f"SELECT /*+ strategy(index) */ * FROM s {PATTERN}"
    before = db.sql(query).fetchall()
    assert before == db.sql(query.replace("index", "replay")).fetchall()
    assert db.sql(f"SELECT count(*) FROM s WHERE k = '{PERSON}'").fetchall() == [(0,)]
    catalog_of(db).indexes_of("s").catch_up(stream.snapshot().state)
    assert db.sql(query).fetchall() == before
    assert db.check().ok
    db.close()
    assert holding(tmp_path) == []


def test_answers_are_right_while_indexes_are_built_again(db: Database) -> None:
    """A query that began before the delete goes on with what it saw; one behind it does not."""
    stream = db.stream("s")
    stream.compact()
    catalog_of(db).indexes_of("s").catch_up(stream.snapshot().state)
    old = stream.scan(filter="x > 90")
    first = old.read_next_batch()
    wanted = db.sql("SELECT count(*) FROM s WHERE x > 90").fetchall()[0][0]
    gone = db.sql("DELETE FROM s WHERE x > 90").fetchall()[0][0]
    assert gone == wanted
    assert first.num_rows + sum(batch.num_rows for batch in old) == wanted
    assert db.sql("SELECT count(*) FROM s WHERE x > 90").fetchall() == [(0,)]
    assert db.sql(f"SELECT * FROM s {PATTERN}").fetchall() == []


# ------------------------------------------------------------------------------ what may be said


def test_delete_in_sql(db: Database) -> None:
    count = len(db.stream("s"))
    result = db.sql("DELETE FROM s WHERE k = ? AND t < ?", ["c", 100])
    assert result.schema.names == ["deleted"]
    ((first,),) = result.fetchall()
    assert 0 < first < 100
    assert db.sql("delete from S where k = $who", {"who": PERSON}).fetchall() == [(174,)]
    assert db.sql("DELETE FROM s WHERE NULL").fetchall() == [(0,)]
    assert len(db.stream("s")) == count - first - 174
    assert db.sql("DELETE FROM s").fetchall() == [(count - first - 174,)]
    assert len(db.stream("s")) == 0
    assert db.stream("s").stats()["deleted_events"] == count
    db.stream("s").append(table([(5, "a", 1, None)]))
    assert db.sql("SELECT t, k FROM s").fetchall() == [(5, "a")]


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("DELETE FROM s WHERE x = 1 OR (x = 'a' AND y = NULL)", 35, "Could not convert string 'a'"),
        ("DELETE FROM s WHERE row_number() OVER () = 1", 21, "condition on one event"),
        ("DELETE FROM s WHERE x = 1 RETURNING *", 27, "did not expect 'RETURNING'"),
        ("DELETE FROM s WHERE x > unnest([1, 2])", 25, "several columns or rows"),
        ("DELETE FROM s WHERE x IN (SELECT 1)", 34, "condition on one event"),
        ("TRUNCATE s WHERE x = 1", 12, "did not expect 'WHERE'"),
        ("DELETE FROM s USING r", 15, "did not expect 'USING'"),
        ("DELETE FROM s WHERE x = ?", 25, "no value was given"),
        ("DELETE FROM", 12, "expected the name of the stream"),
        ("DELETE FROM s WHERE z = 1", 21, "no column 'z'"),
        ("DELETE FROM nowhere", 13, "no stream 'nowhere'"),
        ("TRUNCATE", 9, "expected the name of the stream"),
        ("DELETE FROM s WHERE", 20, "ends too early"), ("DELETE s WHERE x = 1", 8, "expected FROM"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_where_and_deletes_nothing(
    db: Database, text: str, column: int, said: str
) -> None:
    count = len(db.stream("s"))
    with pytest.raises(SqlError) as caught:
        db.sql(text)
    assert said in str(caught.value)
    assert caught.value.column == column
    assert len(db.stream("s")) == count


def test_delete_from_python(db: Database, tmp_path: Path) -> None:
    stream = db.stream("s")
    count, version = len(stream), stream.snapshot().version
    assert stream.delete(f"k = '{PERSON}'", 1300, 1310) == 10
    assert stream.delete(None, 1310, 1320) == 10
    assert stream.delete("t = 1320") == 1
    assert stream.delete("t > 5", start=100, end=100) == 0
    assert stream.snapshot().version == version + 3
    assert len(stream) == count - 21
    with pytest.raises(SqlError):
        stream.delete("sum(x) OVER () > 5")
    with pytest.raises(InvalidArgument):
        stream.delete(None, "yesterday")
    db.close()
    with chronicle.open(tmp_path / "store", mode="r") as reading:
        assert len(reading.stream("s")) == count - 21
        with pytest.raises(ReadOnlyStore):
            reading.stream("s").delete("x = 1")
        with pytest.raises(ReadOnlyStore):
            reading.sql("DELETE FROM s")


def test_what_is_read_only_or_owned_or_not_there(db: Database) -> None:
    db.sql("CREATE LIVE QUERY q AS SELECT t, x FROM s WHERE x > 95")
    db.run_live()
    with pytest.raises(StreamOwned):
        db.sql("DELETE FROM q")
    with pytest.raises(ReadOnlyStore):
        db.sql("DELETE FROM s", read_only=True)
    with pytest.raises(StreamNotFound):
        catalog_of(db).engine.delete("nowhere", None, None, None)
    assert catalog_of(db).engine.access("DELETE FROM s WHERE x = 1").scope == "admin"


# ------------------------------------------------------------------------------- who follows


def times(tail: Any) -> list[int]:
    found = []
    while (piece := tail.take()) is not None:
        found += piece.events.column("t").to_pylist()
    return found


CHANGES: dict[str, tuple[Callable[[Any], object], list[int], list[int]]] = {
    "delete": (lambda s: s.delete("x = 8 OR t = 2000"), [2000, 2001, 2002], [2001, 2002]),
    "delete all": (lambda s: s.delete("true"), [2000, 2001, 2002], [2002]),
    "update": (
        lambda s: s.update({"x": "0"}, "t = 2000"), [2000, 2001, 2000, 2002], [2000, 2001, 2002]
    ),
    "replacement": (
        lambda s: replace_range(s, [(50, "n", 9, None), (51, "n", 8, None)], 40, 60),
        [2000, 2001, 50, 51, 2002], [50, 51, 2000, 2001, 2002],
    ),
}  # fmt: skip
"""Changes, what a tail is told that keeps up, and what one that was away."""


@pytest.mark.parametrize("name", CHANGES)
def test_tails_go_on_across_a_change(db: Database, name: str) -> None:
    """One that keeps up is told of commits; one that was away of what is left of them."""
    change, told, left = CHANGES[name]
    stream = db.stream("s")
    stream.append(table([(1999, "new", 1, None)]))
    with stream.tail() as tail:
        place = tail.position
        pinned = tail._pin(stream.snapshot().version)
        stream.append(table([(2000, "new", 1, None), (2001, "new", 2, None)]))
        change(stream)
        stream.append(table([(2002, "new", 3, None)]))
        assert times(tail) == told
        assert tail.position == str(stream.snapshot().version)
    assert pinned.position == int(place)
    with stream.tail(after=place) as tail:
        assert times(tail) == left


@pytest.mark.parametrize("source", ["FROM s", ", k::ENUM('a', 'n') AS e FROM (FROM s)"])
@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_live_queries_follow_a_change(tmp_path: Path, name: str, away: bool, source: str) -> None:
    text = f"SELECT t, x {source} WHERE x > 7"
    with chronicle.open(tmp_path / "live") as db:
        db.create_stream("s", SCHEMA, time="t")
        rows = [(t, "a", t % 10, None) for t in range(100)]
        db.stream("s").append(table([*rows, (2000, "a", 9, None), (3000, "a", 0, None)]))
        db.sql(f"CREATE LIVE QUERY q IDLE NEVER AS {text}")
        db.run_live()
        before = db.live("q").net().num_rows
        if away:
            db.live("q").pause()
        CHANGES[name][0](db.stream("s"))
    with chronicle.open(tmp_path / "live") as db:
        if away:
            db.live("q").resume()
        db.run_live()
        net = db.live("q").net().select(["t", "x"]).to_pylist()
        wanted = [{"t": t, "x": x} for t, x, *_ in db.sql(text).fetchall()]
        assert sorted(map(str, net)) == sorted(map(str, wanted))
        assert len(net) != before
        assert db.live("q").verify() == 0
