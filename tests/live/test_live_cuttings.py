"""However commits are cut into steps, the same holds in the end, under the same names."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from chronicle.api.database import Database
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.live import sources as sources_module
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

from .. import oracles_live as oracles
from ..rounds import rounds

QUERIES = {**oracles.QUERIES, **oracles.JOINED}
SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])


def commits(seed: int) -> list[list[dict[str, Any]]]:
    """Events, some of them late, in commits; the last one is far beyond all."""
    rng = random.Random(seed)
    at, made = 0, []
    for _ in range(14):
        batch = []
        for _ in range(rng.randrange(6, 20)):
            at += rng.randrange(3)
            late = rng.randrange(60) if rng.random() < 0.15 else 0
            batch.append({"t": max(0, at - late), "k": rng.choice("ab"), "x": rng.randrange(10)})
        made.append(sorted(batch, key=lambda event: event["t"]))
    return [*made, [{"t": at + 500, "k": "a", "x": 1}]]


def ended(batches: list[list[dict[str, Any]]], stepped: Any, delay: int = 0) -> dict[str, Any]:
    """What holds in the end, with steps where ``stepped`` says so."""
    db = Database(StoreCatalog(Store.open("mem", files=MemoryFiles())))
    for stream in ("s", "r"):
        db.create_stream(stream, SCHEMA, time="t")
    for name, sql in QUERIES.items():
        db.create_live(name, sql, delay=delay, idle="never")
    for number, batch in enumerate(batches):
        db.stream("s").append(batch)
        db.stream("r").append([event for event in batch if event["x"] % 3])
        if stepped(number):
            db.run_live()
    db.run_live()
    found = {}
    for name in QUERIES:
        table = db.live(name).net()
        rows = table.drop_columns(["_rev"]).to_pylist()
        found[name] = sorted(tuple(map(str, row.values())) for row in rows)
        assert len(rows) > 5, name
    db.close()
    return found


def test_steps_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones, and large ones that are cut."""
    batches = commits(1)
    once = ended(batches, lambda _: False)
    assert ended(batches, lambda _: True) == once
    monkeypatch.setattr(sources_module, "EVENTS_PER_STEP", 40)
    assert ended(batches, lambda n: n % 5 == 1, delay=25) == once


def test_the_order_of_arrival_does_not_matter_where_no_tick_is_shared() -> None:
    """But for ties, whose order is that of arrival."""
    rng = random.Random(5)
    events = [
        {"t": 2 * t, "k": rng.choice("ab"), "x": rng.randrange(10)} for t in range(rounds(120, 200))
    ]
    last = [{"t": 2000, "k": "a", "x": 1}]
    in_order = ended([events, last], lambda _: True)
    rng.shuffle(events)
    one_by_one = [[event] for event in events]
    assert ended([*one_by_one, last], lambda n: n % 16 == 0) == in_order


def test_an_event_of_another_partition_changes_nothing() -> None:
    db = Database(StoreCatalog(Store.open("mem", files=MemoryFiles())))
    db.create_stream("s", SCHEMA, time="t")
    live = {name: db.create_live(name, oracles.QUERIES[name], idle="never")
            for name in ("past", "sessions", "keyed")}  # fmt: skip
    for batch in commits(2):
        db.stream("s").append(batch)
    db.run_live()
    before = {name: q.net().to_pylist() for name, q in live.items()}
    db.stream("s").append([{"t": 40, "k": "elsewhere", "x": 9}])
    db.run_live()
    assert {name: q.net().to_pylist() for name, q in live.items()} == before
    assert all(q.status()["retractions"] == 0 for q in live.values())
    db.close()


def test_a_region_begins_where_no_match_of_the_part_before_reaches() -> None:
    """Searches may meet only behind several matches, which a cut gives to the part before it."""
    values = [
        (59, 9),
        (61, 4),
        (61, 1),
        (64, 9),
        (76, 7),
        (79, 6),
        (85, 4),
        (87, 2),
        (90, 4),
        (91, 1),
    ]
    db = Database(StoreCatalog(Store.open("mem", files=MemoryFiles())))
    db.create_stream("s", SCHEMA, time="t")
    live = db.create_live("past", oracles.QUERIES["past"], idle="never")
    for t, x in values:
        db.stream("s").append([{"t": t, "k": "a", "x": x}])
        db.run_live()
        assert live.verify() == 0
    assert [(row["f"], row["l"]) for row in live.net().to_pylist()] == [
        (59, 61),
        (64, 76),
        (79, 87),
    ]
    db.close()
