"""Live queries over events at the ends of 64-bit time say what they say elsewhere, step by step."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from chronicle.api.database import Database
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.core.native import FUNCTIONS
from chronicle.live.join_form import at_most
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

from .. import borders
from .. import oracles_live as oracles
from ..borders import BORDERS, HIGH, PLAIN
from ..query.test_borders import (
    ABSENT,
    MATCH,
    PATTERNS,
    SELECTIONS,
    SKIPS,
    span,
    stream_of,
    ticks_of,
)
from ..rounds import rounds

SEEDS = rounds(2, 20, 400)
STEPS_BETWEEN_LOOKS = rounds(6, 1)
PATTERNS_A_SEED = rounds(2, 16)
IDLE_SEEDS = rounds(1, 10, 200)
TIMES = {"t", "f", "l", "g", "u", "window_start", "window_end"}

# the times of one of them are 3 to 6 ticks away from any event
FORMS = {**oracles.QUERIES, **{n: q for n, q in oracles.JOINED.items() if n != "shifted"}}
RECENT = {
    f"recent_{kind.lower()}_{within}": f"SELECT l.t, l.x{', a.t AS u' if both else ''} "
    f"FROM s AS l RECENT {kind} JOIN s AS a ON a.k = l.k WITHIN {within}"
    for (kind, both), within in product((("LEFT", True), ("SEMI", False), ("ANTI", False)), (3, 40))
}


def patterns() -> dict[str, str]:
    found = []
    for part, within, (pattern, define), rule in product(
        ("", "PARTITION BY k"), (0, 5, 40), (PATTERNS | ABSENT).items(),
        (*((skip, "") for skip in SKIPS), *(("", f"EVENT SELECTION {s}") for s in SELECTIONS)),
    ):  # fmt: skip
        if pattern in ABSENT and "TILL" not in rule[1]:
            continue
        found.append(
            MATCH.format(
                part=part,
                within=f"WITHIN {within}",
                pattern=pattern,
                define=define,
                skip=rule[0],
                selection=rule[1],
            )
        )
    return {f"pattern_{number}": text for number, text in enumerate(found)}


def steps_of(rng: random.Random) -> list[tuple[str, list[Any]]]:
    """Events of both streams in pieces; some come late."""
    found = []
    for stream, events in (("s", borders.history(rng, rng.choice([3, 6]))),
                           ("r", borders.history(rng, 4))):  # fmt: skip
        late = [event for event in events if rng.random() < 0.25]
        rest = [event for event in events if event not in late]
        while rest:
            size = rng.choice([1, 2, 5, 9])
            found.append((len(found) + rng.random(), stream, rest[:size]))
            rest = rest[size:]
        found += [(rng.random() * len(found) * 1.2, stream, [event]) for event in late]
    return [(stream, sorted(some)) for _, stream, some in sorted(found)]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_said_does_not_depend_on_when(seed: int) -> None:
    rng = random.Random(seed)
    every = patterns()
    queries = {
        **FORMS,
        **RECENT,
        **{n: every[n] for n in rng.sample(sorted(every), PATTERNS_A_SEED)},
    }
    databases = []
    for _ in (BORDERS, PLAIN):
        rng.seed(seed)
        db = Database(StoreCatalog(Store.open("mem", files=MemoryFiles())))
        for stream in ("s", "r"):
            db.create_stream(stream, borders.SCHEMA, time="t", options={"late_events_max": 20})
        for name, query in queries.items():
            db.create_live(name, query, idle="never", delay=rng.choice([None, 3]) if seed else None)
        databases.append(db)
    steps = steps_of(rng)
    for step, (stream, events) in enumerate(steps, 1):
        for db, bases in zip(databases, (BORDERS, PLAIN), strict=True):
            db.stream(stream).append(borders.events_at(bases, events))
            db.run_live()
        if step % STEPS_BETWEEN_LOOKS and step < len(steps):
            continue
        for name in queries:
            said = []
            for db, bases in zip(databases, (BORDERS, PLAIN), strict=True):
                live = db.live(name)
                assert live.status()["error"] is None
                net = db.sql(f"SELECT * EXCLUDE (_time, _id, _rev) FROM NET({name})").arrow()
                said.append(borders.elsewhere(net, TIMES, held=bases is PLAIN))
            assert said[0] == said[1], (seed, queries[name])
    for db in databases:
        assert not any(db.live(name).verify() for name in queries)
        db.close()


def test_ticks_are_compared_without_overflow() -> None:
    at_least = FUNCTIONS["live.join_form.at_least"]
    ends = (borders.LOW, borders.LOW + 1, -1, 0, 1, borders.HIGH - 1, borders.HIGH)
    for tick, other, by in product(ends, repeat=3):
        assert at_least(tick, other, by) == (tick >= other + by), (tick, other, by)
        assert at_most(tick, other, by) == (tick <= other + by), (tick, other, by)


def test_a_window_before_the_first_tick_closes_with_its_last_tick() -> None:
    with Database(StoreCatalog(Store.open("mem", files=MemoryFiles()))) as db:
        stream = db.create_stream("s", borders.SCHEMA, time="t")
        db.create_live("hop", oracles.QUERIES["hop"], idle="never")
        for offset in (0, 12):
            stream.append(borders.events_at(BORDERS, [(0, offset, "a", 5)]))
            db.run_live()
        found = db.sql("SELECT window_end - _time FROM NET(hop)").fetchall()
        assert found == [(1,), (1,), (1,)]


def test_corrections_end_at_the_greatest_tick() -> None:
    """Patterns that are searched together; the watermark is that tick."""
    db = Database(StoreCatalog(Store.open("mem", files=MemoryFiles())))
    db.create_stream("s", borders.SCHEMA, time="t")
    queries = {
        f"within_{within}": MATCH.format(
            part="PARTITION BY k", pattern="A B", within=f"WITHIN {within}", skip="", selection="",
            define=PATTERNS["A B"],
        )
        for within in (5, 12)
    }  # fmt: skip
    for name, query in queries.items():
        db.create_live(name, query, idle="0 seconds")
    for before_last in ([*range(60, 0, -1), 0], [1], [0], [40, 2]):
        rows = [(HIGH - n, "a", n % 9) for n in before_last]
        db.stream("s").append(pa.Table.from_pylist([dict(zip("tkx", r, strict=True)) for r in rows],
                                                   schema=borders.SCHEMA))  # fmt: skip
        db.run_live()
        for name, query in queries.items():
            said = db.sql(f"SELECT * EXCLUDE (_time, _id, _rev) FROM NET({name})").fetchall()
            assert sorted(map(repr, said)) == sorted(map(repr, db.sql(query).fetchall()))
    db.close()


OVERFLOWING = ("pairs", "alone", "itself", "shifted")
"""Of which the executor cannot compute a bound ad hoc, of some events."""


@pytest.mark.parametrize("seed", range(IDLE_SEEDS))
def test_an_idle_source_closes_the_last_tick(seed: int) -> None:
    """Nothing can follow an event at the greatest tick: all that the query says is put out."""
    rng = random.Random(seed)
    every = patterns()
    queries = {
        **{name: query for name, query in FORMS.items() if name not in OVERFLOWING},
        **RECENT,
        **{n: every[n] for n in rng.sample(sorted(every), PATTERNS_A_SEED)},
    }
    db = Database(StoreCatalog(Store.open("mem", files=MemoryFiles())))
    for stream in ("s", "r"):
        db.create_stream(stream, borders.SCHEMA, time="t", options={"late_events_max": 20})
    for name, query in queries.items():
        db.create_live(name, query, idle="0 seconds")
    last = [(stream, [(2, borders.SPAN - 1, "a", 5)]) for stream in "sr"]
    for stream, events in [*steps_of(rng), *last]:
        db.stream(stream).append(borders.events_at(BORDERS, events))
        db.run_live()
    for name, query in queries.items():
        assert db.live(name).status()["error"] is None
        said = db.sql(f"SELECT * EXCLUDE (_time, _id, _rev) FROM NET({name})").fetchall()
        assert sorted(map(repr, said)) == sorted(map(repr, db.sql(query).fetchall())), query
    assert not any(db.live(name).verify() for name in queries)
    db.close()


@pytest.mark.parametrize("unit", [None, "ns"])
def test_rollups_at_both_ends(unit: str | None) -> None:
    ticks = [borders.LOW, borders.LOW + 1, -1, 0, borders.HIGH - 1, borders.HIGH]
    with Database(StoreCatalog(Store.open("mem", files=MemoryFiles()))) as db:
        stream_of(db, unit, ticks, [1, 2, 3, 4, 5, 6])
        windows = f"TUMBLE(s, t, {span(unit, 7)}) GROUP BY window_start, window_end"
        db.create_rollup(
            "r", f"SELECT window_start, count(*) AS n FROM {windows}", idle="0 seconds"
        )
        db.run_live()
        for size in (7, 21):
            query = "SELECT /*+ rollups({}) */ window_start, window_end, count(*) FROM " + (
                windows.replace(span(unit, 7), span(unit, size))
            )
            assert "RollupWindows" in str(db.explain(query.format("always")))
            always, never = (db.sql(query.format(how)).arrow() for how in ("always", "none"))
            assert ticks_of(always) == ticks_of(never)
            assert sum(always.column(2).to_pylist()) == len(ticks)
