"""A crash at any write of a step: afterwards the step is there whole, or is done again."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pyarrow as pa
import pytest

from chronicle.api.database import Database
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.store.store import Store
from chronicle.tests.faulty_files import Fault, FaultPlan, SimulatedCrash, strikes
from chronicle.tests.memory_files import MemoryFiles

from .. import oracles_live as oracles
from ..rounds import rounds

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])
WINDOWS = (
    "SELECT k, window_start, window_end, count(*) AS n FROM TUMBLE(s, t, 10) "
    "GROUP BY k, window_start, window_end"
)


def opened(files: Any) -> Database:
    return Database(StoreCatalog(Store.open("mem", files=files)))


def events(seed: int, ticks: list[int]) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [{"t": t, "k": rng.choice("ab"), "x": rng.randrange(10)} for t in ticks]


def prepared() -> MemoryFiles:
    """A store with a live query that has taken in some events, and not yet others."""
    memory = MemoryFiles()
    db = opened(memory)
    db.create_stream("s", SCHEMA, time="t").append(events(1, list(range(60))))
    db.create_live("w", WINDOWS, idle="never")
    db.run_live()
    db.stream("s").append(events(2, [3, 17, 17, 44, *range(60, 95)]))
    db.close()
    return memory


def check(db: Database) -> None:
    db.run_live()
    live = db.live("w")
    assert live.status()["error"] is None
    assert live.verify() == 0
    rows = [row for batch in live.rows() for row in batch.to_pylist()]
    assert [row["_seq"] for row in rows] == list(range(1, len(rows) + 1))
    net = db.sql("SELECT k, window_start, window_end, n FROM NET(w)").fetchall()
    closed = live.status()["watermark"]
    wanted = [row for row in db.sql(WINDOWS).fetchall() if row[2] - 1 <= closed]
    assert sorted(net) == sorted(wanted)
    assert db.check().ok


JOINED = ("alone", "mixed")


def of_two_sources() -> MemoryFiles:
    """A store with joins and unions that have taken in some events of each source, not others."""
    memory = MemoryFiles()
    db = opened(memory)
    for number, stream in enumerate(("s", "r")):
        db.create_stream(stream, SCHEMA, time="t").append(events(number, list(range(40))))
    for name in JOINED:
        db.create_live(name, oracles.JOINED[name], idle="never")
    db.run_live()
    db.stream("s").append(events(2, [3, 17, 17, *range(40, 70)]))
    db.stream("r").append(events(3, [9, 36, *range(40, 60)]))
    db.close()
    return memory


def check_both(db: Database) -> None:
    db.run_live()
    held = [
        [tuple(row.values()) for row in db.sql(f"SELECT t, k, x FROM {name}").arrow().to_pylist()]
        for name in ("s", "r")
    ]
    for name in JOINED:
        live = db.live(name)
        assert live.status()["error"] is None
        assert live.status()["watermark"] == 58
        rows = [row for batch in live.rows() for row in batch.to_pylist()]
        assert [row["_seq"] for row in rows] == list(range(1, len(rows) + 1))
        net = db.sql(f"SELECT * EXCLUDE (_time, _id, _rev) FROM NET({name})").fetchall()
        assert sorted(net, key=str) == sorted(oracles.JOINED_ORACLES[name](*held, 58), key=str)
        assert live.verify() == 0
    assert db.check().ok


@pytest.mark.parametrize(
    ("fault", "mode"),
    [("crash_before", "lose"), ("crash_halfway", "tear"), ("crash_after", "keep")],
)
@pytest.mark.parametrize(("begun", "checked"), [(prepared, check), (of_two_sources, check_both)])
def test_a_crash_in_a_step(fault: Fault, mode: Any, begun: Any, checked: Any) -> None:
    """Also with late events of both sources, and of commits that no tap has heard of."""
    for number, memory, _, db in strikes(fault, opened, begun=begun(), step=rounds(5, 1)):
        with contextlib.suppress(SimulatedCrash):
            db.run_live()
        checked(opened(memory.crash(random.Random(number), mode)))
    assert number > 1


@pytest.mark.parametrize("fault", ["crash_before", "crash_after"])
def test_a_crash_while_one_is_made_or_dropped(fault: Fault) -> None:
    # after one operation is before the next: the long run meets every point by one of the two
    first, step = 1 + (fault == "crash_after"), rounds(4, 2)
    for number, memory, _, db in strikes(fault, opened, begun=prepared(), first=first, step=step):
        with contextlib.suppress(SimulatedCrash):
            db.create_live("r", "SELECT t, x FROM s WHERE x > 5")
            db.run_live()
            db.live("w").drop()
        found = opened(memory.crash(random.Random(number), "lose"))
        for name in found.live_queries():
            found.run_live()
            assert found.live(name).status()["error"] is None
            assert found.live(name).verify() == 0
        left = set(found.streams()) - {"s"}
        assert left >= set(found.live_queries())
        for name in left - set(found.live_queries()):
            assert name == "w"  # dropped, results not yet: nobody's now
            found.drop_stream(name)
        assert found.check().ok


@pytest.mark.parametrize("fault", ["eio", "enospc", "fsync"])
def test_a_disk_that_fails_stops_the_query_alone(fault: Fault) -> None:
    for _, memory, files, db in strikes(fault, opened, begun=prepared()):
        with contextlib.suppress(Exception):
            db.run_live()
        files.plan = FaultPlan()
        with contextlib.suppress(Exception):
            db.close()
        check(opened(memory.kill()))
