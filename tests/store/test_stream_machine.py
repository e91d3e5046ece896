"""A stream does what a sorted list does, whatever happens to it: a Hypothesis state machine.

The model is the list of events in order of arrival.  Every step ends with the stream equal to the
stable sort of that list by time; a crash may cut the list back, at the end of an append and never
behind the last one that was made durable.
"""

from __future__ import annotations

import os
import random
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from chronicle.schema import StreamSchema
from chronicle.store import manifest_pages, segment_views
from chronicle.store.deleting import Choice
from chronicle.store.options import StreamOptions
from chronicle.store.segment_file import open_files
from chronicle.store.snapshot import Snapshot
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles, SimulatedCrash
from chronicle.tests.memory_files import MemoryFiles

from ..rounds import rounds
from .conftest import chosen

SCHEMA = StreamSchema(
    pa.schema([("t", pa.int64()), ("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())]), "t"
)
EXTRA = ("late_one", "late_two")


class Event(NamedTuple):
    """One event of the model; ``extra`` holds the attributes that were added later."""

    t: int
    n: int
    x: float | None
    s: str | None
    extra: tuple[int | None, ...] = ()


def by_time(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.t)


offsets = st.lists(st.integers(-40, 30), min_size=0, max_size=12)
sizes = st.sampled_from([1, 1, 2, 7, 40, 300])


class StreamMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryFiles()
        self.events: list[Event] = []
        self.ends = [0]  # lengths of the list after each append
        self.safe = 0  # so many leading events survive a power cut
        self.number = 0
        self.extra = 0
        self.kept: list[tuple[Snapshot, list[Event], int]] = []
        self.retention: int | None = None
        self.store: Store | None = None

    @initialize(
        codec=st.sampled_from(["none", "lz4", "zstd"]),
        leaf=st.sampled_from([512, 2048, 1 << 14]),
        segment=st.sampled_from([4096, 16384, 1 << 20]),
        late=st.sampled_from([1, 20, 200]),
        retention=st.sampled_from([None, None, 60, 400]),
    )
    def create(self, codec: str, leaf: int, segment: int, late: int, retention: int | None) -> None:
        self.retention = retention
        self.newest = -(2**63)
        self.open()
        assert self.store is not None
        options = StreamOptions(
            codec=codec,
            leaf_bytes=leaf,
            segment_bytes=segment,
            late_events_max=late,
            retention=None if retention is None else str(retention),
            compaction="manual",
        )
        self.stream = self.store.create_stream("s", SCHEMA, options)

    def open(self) -> None:
        self.files = FaultyFiles(self.memory)
        self.store = Store.open("memory", files=self.files)
        if self.store.streams():
            stream = self.store.stream("s")
            assert isinstance(stream, EventStream)
            self.stream = stream

    # -- what happens to it ---------------------------------------------------------------------

    def batch_of(self, offsets: list[int], copies: int, nulls: bool) -> pa.RecordBatch:
        base = max((event.t for event in self.events), default=0)
        times = [base + offset + i // 7 for i in range(copies) for offset in offsets]
        extras = ((None,) if nulls else (self.number,)) * self.extra
        for i, t in enumerate(times):
            x = None if nulls and i % 3 == 0 else i * 0.25
            s = None if nulls and i % 5 == 0 else f"key {(self.number + i) % 9}"
            self.events.append(Event(t, self.number, x, s, extras))
            self.number += 1
        return table_of(self.events[len(self.events) - len(times) :], self.stream.schema)

    @rule(
        offsets=offsets,
        copies=sizes,
        nulls=st.booleans(),
        durability=st.sampled_from(["commit", "commit", "none"]),
    )
    def append(self, offsets: list[int], copies: int, nulls: bool, durability: str) -> None:
        late = self.stream.stats()["late_total"]
        batch = self.batch_of(offsets, copies, nulls)
        result = self.stream.append(batch, durability)
        self.ends.append(len(self.events))
        assert result.appended == batch.num_rows
        assert self.stream.stats()["late_total"] - late == result.late
        if durability == "commit" and batch.num_rows:
            self.safe = len(self.events)

    @rule()
    def flush(self) -> None:
        self.stream.flush()
        self.safe = len(self.events)

    @rule()
    def seal(self) -> None:
        self.stream.seal()

    @rule()
    def compact(self) -> None:
        self.stream.compact()
        stats = self.stream.stats()
        assert (stats["late_runs"], stats["late_buffered"], stats["dirty_ranges"]) == (0, 0, [])

    @rule(modulus=st.integers(1, 9), start=st.integers(-60, 60), length=st.integers(0, 200))
    def delete_scattered(self, modulus: int, start: int, length: int) -> None:
        """Events whose number divides, in a range that reaches into whatever is newest."""
        newest = max((event.t for event in self.events), default=0)
        first = newest + start - length
        self.delete(first, first + length, modulus)

    @rule(start=st.integers(-400, 60), length=st.integers(0, 500))
    def delete_range(self, start: int, length: int) -> None:
        first = max((event.t for event in self.events), default=0) + start
        self.delete(first, first + length, None)

    @rule()
    def delete_everything(self) -> None:
        self.delete(None, None, None)

    def delete(self, start: int | None, end: int | None, modulus: int | None) -> None:
        self.drop()
        gone = self.chosen(start, end, modulus)
        position = self.stream.snapshot().version
        choose = None if modulus is None else choice(start, end, modulus)
        assert self.stream.delete(start, end, choose) == len(gone)
        assert self.stream.snapshot().version == position + bool(gone)
        if gone:
            self.leave_out(gone)
            self.safe = len(self.events)

    def chosen(self, start: int | None, end: int | None, modulus: int | None) -> list[int]:
        return [
            i
            for i, e in enumerate(self.events)
            if (start is None or e.t >= start) and (end is None or e.t < end)
            if modulus is None or e.n % modulus == 0
        ]

    def leave_out(self, gone: list[int]) -> None:
        self.ends = [end - bisect_left(gone, end) for end in self.ends]
        self.safe -= bisect_left(gone, self.safe)
        absent = set(gone)
        self.events = [event for i, event in enumerate(self.events) if i not in absent]

    @precondition(lambda self: self.extra < len(EXTRA))
    @rule()
    def add_attribute(self) -> None:
        self.stream.add_attribute(EXTRA[self.extra], pa.int32())
        self.extra += 1
        self.events = [event._replace(extra=(*event.extra, None)) for event in self.events]
        self.safe = len(self.events)

    @rule()
    def reopen(self) -> None:
        assert self.store is not None
        self.store.close()
        self.kept.clear()  # closing a stream ends its snapshots
        self.safe = len(self.events)
        self.open()

    @rule()
    def kill(self) -> None:
        """SIGKILL: what was written is there, durable or not."""
        self.memory = self.memory.kill()
        self.open()
        self.recovered(len(self.events))

    @rule(seed=st.integers(0, 1 << 30), mode=st.sampled_from(["lose", "keep", "tear", "tear"]))
    def power_cut(self, seed: int, mode: str) -> None:
        self.memory = self.memory.crash(random.Random(seed), mode)  # type: ignore[arg-type]
        self.open()
        self.recovered(self.safe)

    @rule(
        what=st.sampled_from(
            ["append", "append", "seal", "compact", "delete", "delete", "add_attribute", "reopen"]
        ),
        fault=st.sampled_from(["crash_before", "crash_halfway", "crash_after"]),
        after=st.integers(0, 12),
        sectors=st.integers(0, 3),
        seed=st.integers(0, 1 << 30),
        mode=st.sampled_from(["lose", "keep", "tear", "tear"]),
        offsets=offsets,
        copies=sizes,
    )
    def crash_during(
        self,
        what: str,
        fault: str,
        after: int,
        sectors: int,
        seed: int,
        mode: str,
        offsets: list[int],
        copies: int,
    ) -> None:
        """The plug is pulled in the middle of something, which then is there whole or not."""
        extra = self.extra
        self.drop()
        self.deleted = self.stream.stats()["deleted_events"]
        batch = self.batch_of(offsets, copies, False) if what == "append" else None
        if batch is not None:
            self.ends.append(len(self.events))
        steps: dict[str, Callable[[], object]] = {
            "append": lambda: self.stream.append(batch, "commit"),
            "seal": self.stream.seal,
            "compact": self.stream.compact,
            "delete": lambda: self.stream.delete(None, None, choice(None, None, 3)),
            "add_attribute": lambda: self.stream.add_attribute(f"doomed_{extra}", pa.int32()),
            "reopen": lambda: (self.store and self.store.close(), self.open()),
        }
        inner = self.files
        inner.plan = FaultPlan(
            fault,  # type: ignore[arg-type]
            inner.operations + 1 + after,
            sectors=sectors,
        )
        done = False
        if what != "add_attribute" or self.extra < len(EXTRA):
            with suppress(SimulatedCrash):
                steps[what]()
                done = True
        if inner.crashed or what == "reopen":
            self.kept.clear()  # the process that held them is gone, or the stream was closed
        if done and batch is not None and batch.num_rows:
            self.safe = len(self.events)
        if what == "delete":
            self.drop_deleted(done, seed, mode)
            return
        self.memory = self.memory.crash(random.Random(seed), mode)  # type: ignore[arg-type]
        self.open()
        self.extra = len(self.stream.schema.attributes) - len(SCHEMA.attributes)
        if self.extra > extra:
            self.events = [event._replace(extra=(*event.extra, None)) for event in self.events]
        else:
            assert not done or what != "add_attribute" or extra == len(EXTRA)
        self.recovered(self.safe)

    def drop_deleted(self, done: bool, seed: int, mode: str) -> None:
        """A delete that was cut short has taken all of its events out, or none."""
        gone = self.chosen(None, None, 3)
        self.memory = self.memory.crash(random.Random(seed), mode)  # type: ignore[arg-type]
        self.open()
        deleted = self.stream.stats()["deleted_events"] > self.deleted
        assert deleted or not done or not gone
        if deleted:
            self.leave_out(gone)
            self.safe = len(self.events)
        self.recovered(self.safe)

    def recovered(self, least: int) -> None:
        """Find out which appends have survived, and go on with those."""
        found = {n for batch in self.stream.snapshot().scan(columns=["n"]) for n in pylist(batch)}
        length = max((i + 1 for i, event in enumerate(self.events) if event.n in found), default=0)
        if self.retention is None:
            assert length in self.ends, "half of an append is there"
        length = max(least, self.ends[bisect_left(self.ends, length)])
        assert length >= least, "an acknowledged append is gone"
        del self.events[length:]
        del self.ends[bisect_left(self.ends, length) :]
        self.ends.append(length)
        self.safe = length
        self.drop()

    # -- readers --------------------------------------------------------------------------------

    @rule()
    def keep_snapshot(self) -> None:
        self.drop()
        self.kept.append((self.stream.snapshot(), list(self.events), self.extra))

    @precondition(lambda self: self.kept)
    @rule(which=st.integers(0, 100))
    def read_again(self, which: int) -> None:
        snapshot, events, extra = self.kept[which % len(self.kept)]
        compare(snapshot, [e._replace(extra=e.extra[:extra]) for e in events])

    @rule()
    def read_from_another_process(self) -> None:
        with Store.open("memory", "r", files=self.memory) as store:
            snapshot = store.stream("s").snapshot()
            self.drop()
            compare(snapshot, self.events)

    def drop(self) -> None:
        """Take out of the model what retention has dropped, if it was allowed to."""
        if self.retention is None or not self.events:
            return
        found = {n for batch in self.stream.snapshot().scan(columns=["n"]) for n in pylist(batch)}
        # deleting the newest events does not bring back what they had outlived
        self.newest = max(self.newest, *(event.t for event in self.events))
        horizon = self.newest - self.retention
        gone = [i for i, event in enumerate(self.events) if event.n not in found]
        assert all(self.events[i].t < horizon for i in gone), "retention dropped a young event"
        self.leave_out(gone)

    @rule(start=st.integers(-50, 400), length=st.integers(0, 200))
    def read_a_range(self, start: int, length: int) -> None:
        self.drop()
        snapshot = self.stream.snapshot()
        events = [e for e in by_time(self.events) if start <= e.t < start + length]
        batches = list(snapshot.scan(start, start + length, ["n", "t"]))
        assert [n for batch in batches for n in pylist(batch)] == [e.n for e in events]
        aggregate = snapshot.aggregate(["x", "s", "n"], start, start + length)
        numbers = [e.x for e in events if e.x is not None]
        assert aggregate.count == len(events)
        assert aggregate["s"].count == sum(e.s is not None for e in events)
        assert (aggregate["x"].sum or 0.0) == sum(numbers)
        assert aggregate["x"].min == min(numbers, default=None)
        assert aggregate["n"].max == max((e.n for e in events), default=None)
        for first, last in snapshot.dirty_ranges():
            assert first <= last

    @invariant()
    def equals_the_sorted_list(self) -> None:
        if self.store is not None:
            self.drop()
            compare(self.stream.snapshot(), self.events)

    def teardown(self) -> None:
        if self.store is not None:
            report = self.store.check()
            assert report.ok, report.problems
            for snapshot, events, extra in self.kept:
                compare(snapshot, [e._replace(extra=e.extra[:extra]) for e in events])
            self.store.close()


def choice(start: int | None, end: int | None, modulus: int) -> Choice:
    """Events of a range whose number divides."""
    return chosen(lambda batch: batch.column("n").to_numpy() % modulus == 0, start, end)


def pylist(batch: pa.RecordBatch) -> list[int]:
    return batch.column(0).to_pylist()  # type: ignore[no-any-return]


def table_of(events: list[Event], schema: StreamSchema) -> pa.RecordBatch:
    columns = list(zip(*((e.t, e.n, e.x, e.s, *e.extra) for e in events), strict=True))
    columns = columns or [() for _ in schema.names]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, schema.arrow, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def compare(snapshot: Snapshot, events: list[Event]) -> None:
    ordered = by_time(events)
    found = pa.Table.from_batches(snapshot.scan(), schema=snapshot.schema.arrow)
    expected = pa.Table.from_batches([table_of(ordered, snapshot.schema)])
    assert found.column("n").to_pylist() == [event.n for event in ordered]
    assert found.equals(expected)
    assert snapshot.count == len(ordered)
    span = (ordered[0].t, ordered[-1].t) if ordered else None
    assert snapshot.time_range == span


@pytest.mark.crash
def test_a_stream_is_a_sorted_list() -> None:
    run_machine(rounds(20, 60))


@pytest.mark.crash
@pytest.mark.filterwarnings(
    # the collector releases leases of snapshots whose process has crashed
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("kept", [0, 256])
def test_a_stream_of_many_segments_is_a_sorted_list(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few segments are many here: in pages, opened when they are looked at, few at once."""
    monkeypatch.setattr(segment_views, "OPENED_MAX", 0)
    monkeypatch.setattr(segment_views, "KEPT_OPEN_MAX", kept)
    monkeypatch.setattr(segment_views, "VIEWS_REMEMBERED", 2)
    monkeypatch.setattr(manifest_pages, "INLINE_SEGMENTS", 1)
    monkeypatch.setattr(manifest_pages, "PAGE_SEGMENTS", 2)
    monkeypatch.setattr(open_files, "limit", 2)
    run_machine(rounds(12, 40))


def run_machine(examples: int) -> None:
    long = os.environ.get("CHRONICLE_CRASH") == "long"
    run_state_machine_as_test(
        StreamMachine,
        settings=settings(
            max_examples=25 * examples if long else examples,
            stateful_step_count=40 if long else 25,
            deadline=None,
            derandomize=not long,
        ),
    )
