"""Exhaustive faults: one scripted workload, cut short or failed at every single operation.

Each loop runs the workload with a fault at operation 1, then 2, and so on until it runs through
without meeting one.  After every run the store is opened anew and must hold every acknowledged
append, no half of another, and pass ``check``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest

from chronicle.errors import ChronicleError, StorageFailed, StorageFull
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.faulty_files import Fault, FaultPlan, FaultyFiles, SimulatedCrash, strikes
from chronicle.tests.memory_files import CrashMode, MemoryFiles

from ..rounds import rounds
from .conftest import SCHEMA

OPTIONS = StreamOptions(
    codec="lz4", leaf_bytes=1024, segment_bytes=8192, late_events_max=40, compaction="manual"
)
LONG = os.environ.get("CHRONICLE_CRASH") == "long"

pytestmark = pytest.mark.crash


def batch_of(times: list[int], first: int) -> pa.RecordBatch:
    numbers = list(range(first, first + len(times)))
    names = [None if n % 11 == 0 else f"sensor {n % 5}" for n in numbers]
    return pa.RecordBatch.from_arrays(
        [pa.array(times, pa.int64()), pa.array(numbers), pa.array(names)], schema=SCHEMA.arrow
    )


class Workload:
    """Appends of every kind, and all that can happen in between; remembers what was promised."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.ends = [0]
        self.safe = 0
        self.created = False

    def append(self, stream: EventStream, times: list[int], durability: str = "commit") -> None:
        batch = batch_of(times, len(self.times))
        self.times += times
        self.ends.append(len(self.times))
        stream.append(batch, durability)
        if durability == "commit":
            self.safe = len(self.times)

    def steps(self, stream: EventStream) -> list[Callable[[], object]]:
        def newest() -> int:
            return max(self.times, default=0)

        return [
            lambda: self.append(stream, [1]),
            lambda: self.append(stream, [2, 2, 3], "none"),
            lambda: self.append(stream, [newest() + i // 2 for i in range(120)]),
            lambda: self.append(stream, [newest() - 5, newest() + 1]),
            stream.flush,
            lambda: self.append(stream, [newest() - i for i in range(60)]),
            lambda: self.append(stream, [newest() + i for i in range(500)]),
            stream.seal,
            lambda: self.append(stream, [newest() - 7 * i for i in range(45)]),
            lambda: self.append(stream, [newest() + 1], "none"),
            stream.compact,
            lambda: self.append(stream, [newest() + 2, newest() - 90]),
            lambda: self.append(stream, [newest() + 3], "none"),
            lambda: stream.add_attribute("more", pa.float64()),
            stream.compact,
        ]

    def run(self, files: FaultyFiles) -> None:
        """All of it; ends early when a fault strikes."""
        store = Store.open("memory", files=files)
        stream = store.create_stream("s", SCHEMA, OPTIONS)
        self.created = True
        for step in self.steps(stream)[:-2]:
            step()
        store.close()
        self.safe = len(self.times)

    def check(self, memory: MemoryFiles, *, failed: bool = False) -> None:
        """Open what is left and compare it with what was promised."""
        with Store.open("memory", files=memory) as store:
            if "s" not in store.streams():
                assert not self.created
                return
            stream = store.stream("s")
            assert isinstance(stream, EventStream)
            report = store.check()
            assert report.ok, report.problems
            count = stream.snapshot().count
            assert count in self.ends, f"{count} events are there, appends end at {self.ends}"
            assert count >= self.safe, f"{self.safe} events were acknowledged, {count} are there"
            self.compare(stream, count)
            # it goes on from there, and what is acknowledged now survives the next power cut
            step = [max(self.times[:count], default=0) - 3, max(self.times[:count], default=0) + 1]
            batch = batch_of(step, count)
            for attribute in stream.schema.attributes[3:]:
                batch = batch.append_column(attribute.name, pa.nulls(2, attribute.type))
            stream.append(batch)
            left = memory.crash(random.Random(count), "tear")
        with Store.open("memory", files=left) as store:
            stream = store.stream("s")  # type: ignore[assignment]
            found = self.rows(stream)
            assert len(found) == count + 2
            assert [n for _, n in found if n < count] == [n for _, n in self.expected(count)]
            assert store.check().ok

    def expected(self, count: int) -> list[tuple[int, int]]:
        return sorted(((t, n) for n, t in enumerate(self.times[:count])), key=lambda row: row[0])

    def rows(self, stream: EventStream) -> list[tuple[int, int]]:
        table = pa.Table.from_batches(
            stream.snapshot().scan(columns=["t", "n"]), schema=SCHEMA.arrow.remove(2)
        )
        return list(zip(table["t"].to_pylist(), table["n"].to_pylist(), strict=True))

    def compare(self, stream: EventStream, count: int) -> None:
        assert self.rows(stream) == self.expected(count)


def fresh(_: FaultyFiles) -> Workload:
    return Workload()


def created(files: FaultyFiles) -> tuple[Store, EventStream]:
    store = Store.open("memory", files=files)
    return store, store.create_stream("s", SCHEMA, OPTIONS)


@pytest.mark.parametrize("mode", ["lose", "keep", "tear"])
@pytest.mark.parametrize("fault", ["crash_before", "crash_halfway", "crash_after"])
def test_power_cut_at_every_operation(fault: Fault, mode: CrashMode) -> None:
    step = 1 if LONG else rounds(17, 7) if mode != "tear" else rounds(5, 2)
    for number, memory, files, workload in strikes(fault, fresh, step=step, sectors=1):
        with suppress(SimulatedCrash):
            workload.run(files)
        workload.check(memory.crash(random.Random(number), mode))


@pytest.mark.parametrize("sectors", [0, 1, 2, 5, 16] if LONG else [0, 2])
def test_kill_with_the_last_write_cut_at_any_sector(sectors: int) -> None:
    step = 1 if LONG else 5
    for _, memory, files, workload in strikes("crash_halfway", fresh, step=step, sectors=sectors):
        with suppress(SimulatedCrash):
            workload.run(files)
        workload.check(memory.kill())


def test_crash_while_recovering() -> None:
    """A power cut in the middle of an opening after a power cut loses nothing either."""
    first = Workload()
    memory = MemoryFiles()
    with suppress(SimulatedCrash):
        first.run(FaultyFiles(memory, FaultPlan("crash_after", 60)))
    broken = memory.crash(random.Random(1), "tear")
    for number, again, files, _ in strikes("crash_halfway", fresh, begun=broken, sectors=1):
        with suppress(SimulatedCrash), Store.open("memory", files=files) as store:
            store.stream("s")
        first.check(again.crash(random.Random(number), "tear"))
    assert number > 5


@pytest.mark.parametrize("kind", ["fsync", "eio"])
def test_failing_disk_at_every_operation(kind: Fault) -> None:
    """A failed sync or write fails an append and nothing else, and never loses what was promised.

    The process goes on after the failure: it opens the store again, as the message says, before the
    power goes.  Linux has then forgotten the bytes of the failed sync.
    """
    only = {"sync", "sync_directory"} if kind == "fsync" else None
    step = 1 if LONG else 2 if kind == "fsync" else 5
    for number, memory, files, workload in strikes(kind, fresh, step=step, sectors=1, only=only):
        with suppress(StorageFailed):
            workload.run(files)
        if not files.struck:
            break
        alive = memory.kill()  # no power cut yet: doomed bytes are still readable
        workload.check(alive)
        workload.check(memory.crash(random.Random(number), "tear"))
        workload.check(memory.crash(random.Random(number), "lose"))


@pytest.mark.parametrize("events", [1, 120])
def test_failed_syncs_refuse_the_append_in_the_same_process(events: int) -> None:
    """A small append and one that fills leaves: no reader sees it, and nothing follows it."""
    refused = 0

    def begun(files: FaultyFiles) -> tuple[EventStream, Workload]:
        stream, workload = created(files)[1], Workload()
        workload.append(stream, [1, 2, 3])
        return stream, workload

    only = {"sync", "sync_directory"}
    for number, memory, _, (stream, workload) in strikes("fsync", begun, only=only):
        try:
            workload.append(stream, [3 + i for i in range(events)])
        except StorageFailed:
            refused += 1
            assert stream.snapshot().count == 3, "a refused append is visible"
            if stream.commits.failed is not None:
                with pytest.raises(StorageFailed):
                    stream.append(batch_of([9], 900))
        workload.check(memory.crash(random.Random(number), "lose"))
    assert refused == (1 if events == 1 else 3)  # the log; a segment, its directory and the log


def test_full_disk_at_every_operation() -> None:
    """ENOSPC refuses a change, leaves everything readable, and is over when space returns."""
    step = 1 if LONG else 2
    for number, memory, _, (store, stream) in strikes("enospc", created, step=step, length=3):
        workload, refused = Workload(), 0
        for step in workload.steps(stream):
            for _ in range(8):
                before = len(workload.times)
                try:
                    step()
                    break
                except StorageFull:
                    refused += 1
                    del workload.times[before:]
                    workload.ends = [end for end in workload.ends if end <= before]
                    assert workload.rows(stream) == workload.expected(before)
            else:
                raise AssertionError("the stream did not recover when there was space again")
        assert workload.rows(stream) == workload.expected(len(workload.times))
        report = store.check()
        assert report.ok, report.problems
        left = [name for name in memory.list("streams/s") if name.endswith(".seg")]
        named = len(stream.commits.manifest.segments) + (stream.commits.active is not None)
        assert len(left) == named, "files of refused changes take up space"
        store.close()
        workload.safe = len(workload.times)
        workload.check(memory.crash(random.Random(number), "tear"))


def test_a_store_opens_and_reads_on_a_full_disk() -> None:
    memory = MemoryFiles()
    store = Store.open("memory", files=memory)
    stream = store.create_stream("s", SCHEMA, OPTIONS)
    workload = Workload()
    for step in workload.steps(stream)[:7]:
        step()
    workload.safe = len(workload.times)
    memory = memory.kill()
    memory.capacity = sum(len(memory.read(f"streams/s/{f}")) for f in memory.list("streams/s"))
    memory.capacity += 600
    store = Store.open("memory", files=memory)
    stream = store.stream("s")  # type: ignore[assignment]
    assert workload.rows(stream) == workload.expected(len(workload.times))
    with pytest.raises(StorageFull):
        workload.append(stream, [5000])
    assert workload.rows(stream) == workload.expected(workload.safe)
    workload.times.pop()
    memory.capacity = None
    workload.append(stream, [5000])
    assert workload.rows(stream) == workload.expected(len(workload.times))
    store.close()
    workload.check(memory)


def test_every_error_of_a_failing_disk_is_ours() -> None:
    for number in range(1, 60, 3):
        files = FaultyFiles(MemoryFiles(), FaultPlan("eio", number, length=None))
        with suppress(ChronicleError):
            Workload().run(files)
