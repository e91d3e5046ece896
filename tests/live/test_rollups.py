"""Roll-ups: what a query says over one is what it says over the events, those that are gone too.

A machine appends in order and late, deletes, updates, seals, compacts, pauses, crashes and opens
anew, under a retention that drops most of what was appended; after each step, queries of all kinds
are compared with a model that remembers every event that was not deleted.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

from chronicle.api.database import catalog_of
from chronicle.tests.memory_files import MemoryFiles

from ..rounds import rounds
from .test_live_crashes import opened

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64()), ("y", pa.float64())])
AGE, GRAIN = 300, 10
ROLLUPS = {
    "by_k": f"SELECT window_start, window_end, k, count(*) AS n, count(x) AS c, sum(x) AS total, "
    f"min(x) AS low, max(x) AS high, sum(y) AS y, first(x) AS f, last(x) AS l, any_value(x) AS v, "
    f"stddev(x) AS d FROM TUMBLE(s, t, {GRAIN}) GROUP BY window_start, window_end, k",
    "few": f"SELECT window_start, count(*) AS n, sum(x + 1) AS more FROM TUMBLE(s, t, {2 * GRAIN}) "
    "WHERE x > 2 GROUP BY window_start, window_end",
}

Event = tuple[int, str, int | None, float]


def rollups_of(plan: Any) -> list[str]:
    found = (dict(each.details).get("rollup") for each in plan.operators())
    return [name for name in found if name is not None]


def grouped(events: list[Event], size: int, keyed: bool) -> dict[Any, list[Event]]:
    found: dict[Any, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda e: e[0]):
        start = event[0] // size * size
        found[(start, event[1]) if keyed else (start,)].append(event)
    return found


def whole(xs: list[int | None]) -> tuple[Any, ...]:
    """Count, count of values, sum, mean, least, greatest."""
    some = [x for x in xs if x is not None]
    if not some:
        return len(xs), 0, None, None, None, None
    return len(xs), len(some), sum(some), sum(some) / len(some), min(some), max(some)


def model(events: list[Event], size: int, low: int, high: int, *, keyed: bool) -> list[Any]:
    inside = [e for e in events if low <= e[0] < high]
    return sorted(
        (*key, *whole([e[2] for e in group])) for key, group in grouped(inside, size, keyed).items()
    )


class Steps:
    """A stream with roll-ups, and what it would hold without retention."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.memory = MemoryFiles()
        self.db = opened(self.memory)
        self.events: list[Event] = []
        self.last = 0
        options = {"late_events_max": 20, "leaf_bytes": 512, "segment_bytes": 4096}
        self.db.create_stream("s", SCHEMA, time="t", retention=str(AGE), options=options)
        if self.rng.random() < 0.5:
            self.append([self.made(t) for t in range(0, 100, 3)])
        for name, sql in ROLLUPS.items():
            self.db.create_rollup(name, sql, idle="never")

    def made(self, t: int) -> Event:
        rng = self.rng
        x = None if rng.random() < 0.1 else rng.randrange(-3, 10)
        return t, rng.choice("ab"), x, rng.choice([0.1, 0.7, 1e16, -1e16])

    def append(self, events: list[Event]) -> None:
        ordered = sorted(events, key=lambda e: e[0])
        self.db.stream("s").append([dict(zip("tkxy", e, strict=True)) for e in ordered])
        self.events += ordered
        self.last = max(self.last, ordered[-1][0])

    def in_order(self) -> None:
        at, made = self.last, []
        for _ in range(self.rng.randrange(1, 60)):
            at += self.rng.randrange(6)
            made.append(self.made(at))
        self.append(made)

    def leap(self) -> None:
        """Far more than retention keeps, in one append."""
        self.append([self.made(self.last + i * 7) for i in range(120)])

    def late(self) -> None:
        """As late as there are surely all events of the window."""
        floor = self.kept()
        count = self.rng.randrange(1, 8)
        self.append([self.made(self.rng.randint(floor, self.last)) for _ in range(count)])

    def kept(self) -> int:
        """From here on nothing is older than retention keeps it, and windows are whole."""
        seen = [-1, *(self.db.live(name).status()["watermark"] or -1 for name in ROLLUPS)]
        return max(0, max(seen) - AGE + 2 * GRAIN)

    def delete(self) -> None:
        low = self.rng.randint(self.kept(), self.last + 1)
        x = self.rng.randrange(-3, 10)
        kept = [e for e in self.events if not (e[0] >= low and e[2] == x)]
        self.db.sql(f"DELETE FROM s WHERE t >= {low} AND x = {x}")
        self.events = kept

    def update(self) -> None:
        low, x = self.rng.randint(self.kept(), self.last + 1), self.rng.randrange(-3, 10)
        self.db.sql(f"UPDATE s SET x = x + 5, k = 'b' WHERE t >= {low} AND x = {x}")
        self.events = [
            (e[0], "b", x + 5, e[3]) if e[0] >= low and e[2] == x else e for e in self.events
        ]

    def seal(self) -> None:
        self.db.stream("s").seal()

    def compact(self) -> None:
        self.db.stream("s").compact()

    def step(self) -> None:
        self.db.run_live()

    def pause(self) -> None:
        name = self.rng.choice(sorted(ROLLUPS))
        self.db.live(name).pause()

    def resume(self) -> None:
        for name in ROLLUPS:
            self.db.live(name).resume()

    def reopen(self) -> None:
        self.db.close()
        self.db = opened(self.memory)

    def crash(self) -> None:
        mode = self.rng.choice(["kill", "lose", "tear"])
        if mode == "kill":
            self.memory = self.memory.kill()
        else:
            self.memory = self.memory.crash(self.rng, mode)  # type: ignore[arg-type]
        self.db = opened(self.memory)

    def check(self, all_of_them: bool = False) -> set[str]:
        """Compare queries with the model; gives the roll-ups that have answered."""
        rng, used = self.rng, set[str]()
        for size in (GRAIN, 3 * GRAIN, 10 * GRAIN):
            for keyed in (False, True):
                if all_of_them or rng.random() < 0.3:
                    used |= self.compare(size, keyed, 0, 1 << 40)
        low = rng.randrange(0, self.last + 2, GRAIN)
        high = rng.randint(max(low, self.kept()), self.last + 20)
        used |= self.compare(2 * GRAIN, rng.random() < 0.5, low, high)
        return used | self.few() if all_of_them or rng.random() < 0.3 else used

    def compare(self, size: int, keyed: bool, low: int, high: int) -> set[str]:
        key, group = ("k, ", ", k") if keyed else ("", "")
        sql = (
            f"SELECT /*+ rollups(always) */ window_start, {key}count(*), count(x), sum(x), avg(x), "
            f"min(x), max(x) FROM TUMBLE(s, t, {size}) WHERE t >= {low} AND t < {high} "
            f"GROUP BY window_start, window_end{group}"
        )
        found = sorted(self.db.sql(sql).fetchall())
        assert found == model(self.events, size, low, high, keyed=keyed), sql
        return set(rollups_of(self.db.explain(sql)))

    def few(self) -> set[str]:
        sql = (
            f"SELECT /*+ rollups(always) */ window_start, count(*), sum(x + 1) FROM "
            f"TUMBLE(s, t, {4 * GRAIN}) WHERE x > 2 GROUP BY ALL"
        )
        some = [e for e in self.events if e[2] is not None and e[2] > 2]
        wanted = [
            (*key, len(group), sum((e[2] or 0) + 1 for e in group))
            for key, group in grouped(some, 4 * GRAIN, False).items()
        ]
        assert sorted(self.db.sql(sql).fetchall()) == sorted(wanted)
        return set(rollups_of(self.db.explain(sql)))


@pytest.mark.parametrize("seed", range(rounds(1, 40, 400)))
def test_queries_over_a_rollup_are_those_over_all_events(seed: int) -> None:
    steps = Steps(seed)
    ways = [
        steps.in_order, steps.in_order, steps.leap, steps.late, steps.late, steps.delete,
        steps.update, steps.seal, steps.compact, steps.step, steps.step, steps.pause,
        steps.resume, steps.reopen, steps.crash,
    ]  # fmt: skip
    steps.in_order()
    used: set[str] = set()
    for _ in range(16):
        steps.rng.choice(ways)()
        used |= steps.check()
    steps.resume()
    steps.leap()
    steps.step()
    steps.leap()
    steps.seal()
    steps.step()
    used |= steps.check(all_of_them=True)
    assert used == set(ROLLUPS)
    snapshot = catalog_of(steps.db).snapshot("s")
    assert snapshot.state.dropped, "retention has dropped nothing"
    assert snapshot.count < len(steps.events)
    report = steps.db.check()
    assert report.ok, report.problems
    steps.db.close()
