"""A crash at any write of a step of live situations: the rows afterwards are those without it.

Runs that last and situations that may still match are kept in memory alone, so after a crash they
are found again in the stream, within reach of the mark: runs that began before a crash match after
it, alarms that only time brings come once, and what a late event changes is taken back once.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pyarrow as pa
import pytest

from chronicle.api.database import Database
from chronicle.tests.faulty_files import Fault, FaultPlan, FaultyFiles, SimulatedCrash, strikes
from chronicle.tests.memory_files import MemoryFiles

from ..rounds import LONG
from .test_live_situations import SCHEMA, changes, known, opened, query

NAMES = ("alarm", "gap", "rising", "alone") if LONG else ("alarm", "gap")
Rows = dict[str, list[str]]


def events(seed: int, ticks: list[int]) -> list[dict[str, Any]]:
    """Conditions hold for some ticks at a time, so that runs outlive a step."""
    rng = random.Random(seed)
    return [
        {
            "t": t,
            "k": rng.choice("ab"),
            "x": 9 if t // 9 % 2 else rng.randrange(10),
            "y": 9 if t // 13 % 2 else rng.randrange(10),
        }
        for t in ticks
    ]


FIRST = events(1, list(range(60)))
SECOND = events(2, [31, 44, 44, 57, *range(60, 95)])
THIRD = events(3, [66, 90, *range(95, 120), 150])


def told(db: Database) -> Rows:
    """What the query says by itself that is known at the watermark."""
    found = {}
    for name in NAMES:
        rows, mark = db.sql(known(name)).arrow(), db.live(name).status()["watermark"]
        rows = rows.select(sorted(rows.column_names))
        closed = [t <= mark for t in rows["known"].to_pylist()]
        found[name] = sorted(map(repr, rows.filter(pa.array(closed, pa.bool_())).to_pylist()))
    return found


def net(db: Database) -> Rows:
    """What the live queries say; every change has its number."""
    found = {}
    for name in NAMES:
        live = db.live(name)
        assert live.status()["error"] is None
        said = changes(db, name)
        assert [row["_seq"] for row in said] == list(range(1, len(said) + 1))
        rows = live.net()
        rows = rows.rename_columns({"_time": "known"}).drop_columns(["_id", "_rev"])
        rows = rows.select(sorted(rows.column_names))
        found[name] = sorted(map(repr, rows.to_pylist()))
    return found


def stepped(db: Database, more: list[dict[str, Any]]) -> Rows:
    db.stream("s").append(more)
    db.run_live()
    return net(db)


def prepared() -> tuple[MemoryFiles, Rows, Rows]:
    """A store whose next step has late and new events; the rows after it, and after one more."""
    memory = MemoryFiles()
    with contextlib.closing(opened(memory)) as db:
        db.create_stream("s", SCHEMA, time="t", options={"late_events_max": 1000})
        db.stream("s").append(FIRST)
        for name in NAMES:
            db.create_live(name, query(name), idle="never")
        db.run_live()
        before = net(db)
        db.stream("s").append(SECOND)
    wanted = []
    with contextlib.closing(opened(memory.kill())) as db:
        for more in ([], THIRD):
            wanted.append(stepped(db, more))
            assert wanted[-1] == told(db)
    assert all(len({*map(str, (before[n], wanted[0][n], wanted[1][n]))}) == 3 for n in NAMES)
    return memory, wanted[0], wanted[1]


@pytest.mark.parametrize(
    ("fault", "mode", "first"),
    [("crash_before", "lose", 1), ("crash_halfway", "tear", 3), ("crash_after", "keep", 2)],
)
def test_a_crash_in_a_step(fault: Fault, mode: Any, first: int) -> None:
    start, wanted, later = prepared()
    step = 1 if LONG else 4  # together they meet most of the writes
    for number, memory, _, db in strikes(fault, opened, begun=start, first=first, step=step):
        with contextlib.suppress(SimulatedCrash):
            db.run_live()
        after = opened(memory.crash(random.Random(number), mode))
        after.run_live()
        assert net(after) == wanted, number
        assert stepped(after, THIRD) == later, number
        assert after.check().ok
        after.close()
    assert number > 2 * len(NAMES)


@pytest.mark.parametrize("seed", range(6 if LONG else 1))
def test_killed_again_and_again(seed: int) -> None:
    """Killed between any two steps, and in some of them, the rows are those of one long life."""
    rng, memory = random.Random(seed), prepared()[0]
    rows = [*events(10 + seed, list(range(60, 240)))]
    while rows:
        files = FaultyFiles(memory, None)
        db = opened(files)
        some, rows = rows[: rng.choice((1, 7, 30))], rows[30:]
        db.stream("s").append(some)
        if rng.random() < 0.5:
            files.plan = FaultPlan("crash_before", files.operations + rng.randrange(1, 12))
        with contextlib.suppress(SimulatedCrash):
            db.run_live()
        memory = memory.crash(rng, "lose") if files.struck else memory.kill()
    last = opened(memory)
    last.run_live()
    assert net(last) == told(last)
    assert all(last.live(name).verify() == 0 for name in NAMES)
    last.close()
