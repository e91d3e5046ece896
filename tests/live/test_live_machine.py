"""The promise of live queries: after any step, what holds is the query over what was committed.

A machine appends to two streams, in order and late, in ties and in bulk, deletes, seals, compacts,
pauses, crashes, opens anew and refreshes; after each step every class of live queries is compared
with an oracle, and what was ever said with itself: numbers without gaps, nothing taken back that
was not said.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from chronicle.tests.memory_files import MemoryFiles

from .. import oracles_live as oracles
from ..rounds import rounds
from .test_live_crashes import opened

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])

STREAMS = ("s", "r")
QUERIES = {**oracles.QUERIES, **oracles.JOINED}

streams = st.sampled_from(["s", "s", "r"])
values = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("ab"), st.integers(0, 9)),
                  min_size=1, max_size=12)  # fmt: skip


class LiveMachine(RuleBasedStateMachine):
    """See the module."""

    delay = 0

    @initialize(delay=st.sampled_from([0, 0, 3]))
    def begin(self, delay: int) -> None:
        self.memory = MemoryFiles()
        self.db = opened(self.memory)
        self.events: dict[str, list[tuple[int, str, int]]] = {}
        self.newest: dict[str, int] = {}
        for stream in STREAMS:
            self.db.create_stream(stream, SCHEMA, time="t", options={"late_events_max": 20})
            self.events[stream] = []
        self.delay = delay
        for name, sql in QUERIES.items():
            self.db.create_live(name, sql, delay=delay or None, idle="never")

    def last(self, stream: str) -> int:
        return self.newest.get(stream, 0)

    def append(self, stream: str, events: list[tuple[int, str, int]]) -> None:
        ordered = sorted(events, key=lambda event: event[0])
        self.db.stream(stream).append([{"t": t, "k": k, "x": x} for t, k, x in ordered])
        self.events[stream] += ordered
        self.newest[stream] = max(self.last(stream), ordered[-1][0])

    @rule(stream=streams, steps=values)
    def in_order(self, stream: str, steps: list[tuple[int, str, int]]) -> None:
        at, made = self.last(stream), []
        for step, k, x in steps:
            at += step // 2
            made.append((at, k, x))
        self.append(stream, made)

    @rule(stream=streams, steps=values, reach=st.sampled_from([3, 15, 60]))
    def late(self, stream: str, steps: list[tuple[int, str, int]], reach: int) -> None:
        last = self.last(stream)
        self.append(stream, [(max(0, last - step * reach // 12), k, x) for step, k, x in steps])

    @rule(stream=streams, steps=values)
    def ties(self, stream: str, steps: list[tuple[int, str, int]]) -> None:
        self.append(stream, [(self.last(stream), k, x) for _, k, x in steps])

    @rule(stream=streams, seed=st.integers(0, 1000))
    def bulk(self, stream: str, seed: int) -> None:
        rng, last = random.Random(seed), self.last(stream)
        made = [(last + rng.randrange(60), rng.choice("ab"), rng.randrange(10)) for _ in range(80)]
        self.append(stream, made)

    @rule(stream=streams, x=st.integers(0, 9), back=st.integers(0, 80), length=st.integers(1, 40))
    def delete(self, stream: str, x: int, back: int, length: int) -> None:
        """Some of a stretch: all of it for the greatest x."""
        start = self.last(stream) - back
        where, gone = (f"x = {x}", lambda e: e[2] == x) if x < 9 else (None, lambda e: True)
        kept = [e for e in self.events[stream] if not (start <= e[0] < start + length and gone(e))]
        deleted = self.db.stream(stream).delete(where, start, start + length)
        assert deleted == len(self.events[stream]) - len(kept)
        self.events[stream] = kept

    @rule(stream=streams, x=st.integers(0, 9), back=st.integers(0, 80), length=st.integers(1, 40))
    def update(self, stream: str, x: int, back: int, length: int) -> None:
        """Some of a stretch: all of it for the greatest x."""
        start = self.last(stream) - back
        where, old = (f"x = {x}", lambda e: e[2] == x) if x < 9 else (None, lambda e: True)
        values = {"x": "(x * 3 + 1) % 10", "k": "CASE WHEN x > 6 THEN 'a' ELSE k END"}
        found = [start <= e[0] < start + length and old(e) for e in self.events[stream]]
        assert self.db.stream(stream).update(values, where, start, start + length) == sum(found)
        self.events[stream] = [
            (e[0], "a" if e[2] > 6 else e[1], (e[2] * 3 + 1) % 10) if changed else e
            for e, changed in zip(self.events[stream], found, strict=True)
        ]

    @rule(stream=streams)
    def seal(self, stream: str) -> None:
        self.db.stream(stream).seal()

    @rule(stream=streams)
    def compact(self, stream: str) -> None:
        self.db.stream(stream).compact()

    @rule()
    def step(self) -> None:
        self.db.run_live()
        self.check()

    @rule(name=st.sampled_from(sorted(QUERIES)))
    def pause(self, name: str) -> None:
        self.db.live(name).pause()

    @rule()
    def resume_all(self) -> None:
        for name in QUERIES:
            self.db.live(name).resume()

    @rule(name=st.sampled_from(sorted(QUERIES)), low=st.integers(0, 100))
    def refresh(self, name: str, low: int) -> None:
        self.db.live(name).refresh(low, low + 30)

    @rule()
    def reopen(self) -> None:
        self.db.close()
        self.db = opened(self.memory)

    @rule(mode=st.sampled_from(["kill", "lose", "tear"]), seed=st.integers(0, 1000))
    def crash(self, mode: str, seed: int) -> None:
        if mode == "kill":
            self.memory = self.memory.kill()
        else:
            self.memory = self.memory.crash(random.Random(seed), mode)  # type: ignore[arg-type]
        self.db = opened(self.memory)

    def watermark(self, name: str) -> int | None:
        """As far as both of the streams have come that a query reads."""
        read = self.db.live(name).status()["sources"]
        if not all(stream in self.newest for stream in read):
            return None
        return min(self.last(stream) for stream in read) - self.delay - 1

    def check(self) -> None:
        paused = {n for n in QUERIES if self.db.live(n).status()["state"] == "paused"}
        s, r = (self.events[stream] for stream in STREAMS)
        for name, sql in QUERIES.items():
            live, watermark = self.db.live(name), self.watermark(name)
            assert live.status()["error"] is None
            if name in paused or watermark is None:
                continue
            assert live.status()["watermark"] == watermark
            assert live.verify() == 0
            net = self.db.sql(f"SELECT * EXCLUDE (_time, _id, _rev) FROM NET({name})").fetchall()
            if name in oracles.ORACLES:
                assert sorted(net) == sorted(oracles.ORACLES[name](s, watermark)), name
            elif name in oracles.JOINED:
                wanted = oracles.JOINED_ORACLES[name](s, r, watermark)
                assert Counter(net) == Counter(wanted), name
            else:  # a match that was said is one; one that began long enough ago was said
                first = live.net().schema.names.index("f") - 3
                matches = Counter(self.db.sql(sql).fetchall())
                assert not Counter(net) - matches, name
                missing = matches - Counter(net)
                assert all(row[first] + oracles.WITHIN > watermark for row in missing), name
            self.check_changes(name)

    def check_changes(self, name: str) -> None:
        said = Counter[tuple[Any, ...]]()
        number = 0
        for batch in self.db.live(name).rows():
            for row in batch.to_pylist():
                number += 1
                assert row["_seq"] == number
                key = (row["_id"], row["_rev"], tuple(v for c, v in row.items() if c != "_seq"
                                                      and c != "_diff"))  # fmt: skip
                said[key] += row["_diff"]
                assert said[key] in (0, 1)

    @invariant()
    def sinks_are_sound(self) -> None:
        if hasattr(self, "db"):
            assert all(count <= 1 for count in Counter(self.db.live_queries()).values())

    def teardown(self) -> None:
        if hasattr(self, "db"):
            for name in QUERIES:
                self.db.live(name).resume()
            for stream in STREAMS:
                self.append(stream, [(self.last(stream) + 1000, "a", 0)])
            self.step()
            report = self.db.check()
            assert report.ok, report.problems
            self.db.close()


LiveMachine.TestCase.settings = settings(
    max_examples=rounds(1, 12, 120),
    stateful_step_count=rounds(8, 14),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestLiveMachine = LiveMachine.TestCase
