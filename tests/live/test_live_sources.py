"""Live queries that read several streams: watermarks, marks, late events, who may be dropped."""

from __future__ import annotations

import datetime as dt
import random
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import StreamOwned
from chronicle.live import sources
from chronicle.live.definition import LiveDefinition
from chronicle.live.sink import Mark
from chronicle.store.snapshot import Snapshot

from .. import oracles_live as oracles
from ..new_stores import store_with
from ..query.calls import calls_of
from ..rounds import rounds

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])
db = store_with("s", "r", schema=SCHEMA)


def feed(db: Any, stream: str, *ticks: int) -> None:
    db.stream(stream).append([{"t": t, "k": "ab"[t % 2], "x": t % 9} for t in ticks])


def test_what_was_written_of_one_source_is_read() -> None:
    """Definitions and marks of before there were several."""
    definition = LiveDefinition("q", "SELECT t FROM s", ("s",), "q")
    body = definition.to_json()
    del body["sources"]
    assert LiveDefinition.from_json({**body, "source": "s"}) == definition
    mark = Mark.of({"position": 7, "watermark": 5, "events": 9, "windows": 0, "step": 2}, ["s"])
    assert mark == Mark({"s": 7}, 5, {"s": 9}, 0, 2)


def test_the_watermark_is_the_least_of_those_that_are_not_quiet(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(sources, "time", clock)
    now = 100.0
    union = "SELECT t, x FROM s UNION ALL SELECT t, x FROM r"
    never, idle = (
        db.create_live(name, union, idle=after)
        for name, after in (("never", "never"), ("idle", dt.timedelta(milliseconds=50)))
    )
    feed(db, "s", 10, 20)
    db.run_live()
    assert never.status()["watermark"] is None  # the other has no events, and may have some
    feed(db, "r", 5, 7)
    db.run_live()
    assert never.status()["watermark"] == 6
    assert sorted(never.net().column("t").to_pylist()) == [5]
    now += 0.06
    db.run_live()
    assert idle.status()["watermark"] == 20  # both are quiet: all there is is known
    feed(db, "s", 30)
    db.run_live()
    assert idle.status()["watermark"] == 29  # the quiet one does not hold it back
    assert never.status()["watermark"] == 6
    feed(db, "r", 8)
    db.run_live()
    assert never.status()["late"] == 0
    assert idle.status()["late"] == 1
    assert sorted(idle.net().column("t").to_pylist()) == [5, 7, 8, 10, 20]
    assert never.verify() == idle.verify() == 0


def test_who_may_be_dropped_and_what_is_told(db: Any) -> None:
    live = db.create_live("q", "SELECT s.x FROM s JOIN r ON s.t = r.t", idle="never")
    assert live.status()["sources"] == ["s", "r"]
    assert ("source", "s, r") in catalog_of(db).live_statements.describe("q")
    for stream in ("s", "r"):
        with pytest.raises(StreamOwned, match=f"{stream!r} is read by the live queries q"):
            db.drop_stream(stream)
    live.drop()
    db.drop_stream("r")


def test_it_goes_on_where_it_stopped_with_late_events_of_either(tmp_path: Path) -> None:
    """Committed while nobody looked: of a pause, of a restart."""
    path = tmp_path / "store"
    for number in range(4):
        with chronicle.open(path) as db:
            if not number:
                for name in ("s", "r"):
                    db.create_stream(name, SCHEMA, time="t")
                for name, sql in oracles.JOINED.items():
                    db.create_live(name, sql, idle="never")
            for stream, late in (("s", 3), ("r", 7)):
                begin = 100 * number
                feed(db, stream, *range(begin, begin + 90, 4))
                if number % 2:
                    db.run_live()
                feed(db, stream, max(0, begin - late), begin + 95)
    with chronicle.open(path) as db:
        db.run_live()
        for name in oracles.JOINED:
            assert db.live(name).status()["error"] is None
            assert db.live(name).verify() == 0
            rows = [row for batch in db.live(name).rows() for row in batch.to_pylist()]
            assert [row["_seq"] for row in rows] == list(range(1, len(rows) + 1))


def test_retention_of_one_source_takes_nothing_back(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "store") as db:
        db.create_stream("s", SCHEMA, time="t", retention=50)
        db.create_stream("r", SCHEMA, time="t")
        live = db.create_live("q", oracles.JOINED["pairs"], idle="never")
        for begin in range(0, 400, 20):
            for stream in ("s", "r"):
                feed(db, stream, *range(begin, begin + 20))
                db.stream(stream).seal()
            db.run_live()
        said = live.status()["rows"]
        feed(db, "r", 3, 390)
        db.run_live()
        assert db.stream("s").count < 200
        assert live.status()["retractions"] == 0
        assert live.status()["rows"] >= said > 200
        assert live.verify() == 0


STEPS = {
    "a filter": ("SELECT t, x FROM s WHERE x < 0", 420),
    "rows of a filter": ("SELECT t, x FROM s WHERE x >= 0", 770),
    "a pattern": ("SELECT k, a FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.t AS a "
    "PATTERN (A B) WITHIN 9 DEFINE A AS x < 0, B AS x > 0)", 620),
    "matches": ("SELECT k, a FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.t AS a "
    "PATTERN (A B) WITHIN 9 DEFINE A AS x >= 0, B AS x >= 0)", 2_000),
}  # fmt: skip


@pytest.mark.parametrize(("sql", "most"), STEPS.values(), ids=STEPS)
def test_a_step_of_a_few_events_calls_few_functions(db: Any, sql: str, most: int) -> None:
    db.create_live("q", sql, idle="never")
    counts = []
    for begin in range(0, 400, 10):
        feed(db, "s", *range(begin, begin + 10))
        counts.append(calls_of(db.run_live))
    assert statistics.median(counts) < most


@pytest.mark.parametrize("seed", range(rounds(2, 5)))
def test_the_events_that_rounds_share_are_those_of_the_stream(db: Any, seed: int) -> None:
    rng = random.Random(seed)
    stream = catalog_of(db).store.stream("s")
    views, newest, served = sources.Views(), 0, 0
    for _ in range(80):
        kind = rng.random()
        if kind < 0.05:
            low = rng.randrange(newest + 1)
            db.stream("s").delete(None, low, low + 2)
        for _ in range(rng.randrange(3)):
            first = newest if kind < 0.6 else max(0, newest - rng.randrange(40))
            ticks = sorted(rng.randrange(first, newest + 9) for _ in range(rng.randrange(1, 9)))
            feed(db, "s", *ticks)
            newest = max(newest, *ticks)
        with views.round():
            view = views.look(stream, 0)
            whole = Snapshot(view.state)
            for _ in range(3):
                low = rng.choice([None, newest - rng.randrange(30)])
                high = rng.choice([None, newest - rng.randrange(20)])
                names = rng.sample(SCHEMA.names, rng.randrange(1, 4))
                found, wanted = (list(each.scan(low, high, names)) for each in (view, whole))
                schema = pa.schema([view.schema.arrow.field(name) for name in names])
                found, wanted = (pa.Table.from_batches(each, schema) for each in (found, wanted))
                assert found.to_pylist() == wanted.to_pylist()
                counts = [each.events_between(low, high) for each in (view, whole)]
                assert counts[0] == counts[1] == found.num_rows
            served += view._recent.ticks(view, newest, None) is not None
    assert served > 20


@pytest.mark.parametrize(
    ("events", "size"), [(1 << 19, 1 << 26), (40, 1 << 26), (1 << 19, 2000)], ids=str
)
def test_recent_events_are_those_of_a_scan_within_their_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: int, size: int
) -> None:
    monkeypatch.setattr(sources, "EVENTS_MAX", events)
    monkeypatch.setattr(sources, "BYTES_MAX", size)
    monkeypatch.setattr(sources, "CHUNKS_MAX", 3)
    schema = pa.schema([("t", pa.int64()), ("s", pa.string())])
    rng = random.Random(events + size)
    with chronicle.open(tmp_path) as db:
        stream = catalog_of(db).handle(db.create_stream("s", schema, time="t").name)
        recent, arrow = sources.RecentEvents(stream), stream.schema.arrow
        newest = used = 0
        for _ in range(60):
            times = [newest + rng.randrange(-15, 10) for _ in range(rng.randrange(1, 8))]
            newest = max(newest, *times)
            stream.append(pa.table({"t": times, "s": [f"{t:>40}" for t in times]}, schema=schema))
            view = sources.View(stream.snapshot().state, recent)
            start = newest - rng.randrange(5, 60)
            shared = pa.Table.from_batches(view.scan(start, None, ["t", "s"]), arrow)
            assert shared.equals(pa.Table.from_batches(stream.snapshot().scan(start), arrow))
            assert view.events_between(start, None) == shared.num_rows
            held = recent._batches
            assert held is None or len(recent._ticks) <= events
            assert held is None or sum(batch.nbytes for batch in held) == recent._bytes <= size
            used += held is not None
        assert used > 30 or size == 2000
