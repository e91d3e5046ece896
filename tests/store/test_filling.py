"""Streams that begin with events: all of them or no stream, with every disk operation failing."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress

import pyarrow as pa
import pytest

from chronicle.errors import InvalidData, StorageFailed, StorageFull, StreamExists, StreamNotFound
from chronicle.schema import StreamSchema
from chronicle.store import EventStream, Store, filling
from chronicle.store.faulty_files import Fault, FaultPlan, FaultyFiles, SimulatedCrash
from chronicle.store.memory_files import CrashMode, MemoryFiles

from .test_deleting import LONG, OPTIONS, SCHEMA, batch_of, numbers

TIMES = [(i * 37) % 500 for i in range(1000)]
EVENTS = pa.Table.from_batches([batch_of(TIMES, 0)])
WANTED = [n for _, n in sorted(((t, n) for n, t in enumerate(TIMES)), key=lambda event: event[0])]


def create(store: Store) -> EventStream:
    return store.create_stream("s", SCHEMA, OPTIONS, events=EVENTS)


def hidden(memory: MemoryFiles) -> list[str]:
    return [name for name in memory.list("streams") if name.startswith(filling.HIDDEN)]


def test_a_stream_begins_with_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "PIECE_EVENTS", 64)
    memory = MemoryFiles()
    with Store.open("memory", files=memory) as store:
        stream = create(store)
        assert numbers(stream.snapshot()) == WANTED
        assert len(stream.commits.manifest.segments) > 1
        assert (stream.snapshot().version, stream.snapshot().count) == (1, 1000)
        assert stream.append(batch_of([499, 498, 500], 1000)).late == 1
        assert store.check().ok
        with pytest.raises(StreamExists):
            create(store)
        assert hidden(memory) == []
    with Store.open("memory", files=memory) as store:
        found = numbers(store.stream("s").snapshot())
        assert found[-3:] == [WANTED[-1], 1000, 1002]
        assert sorted(found) == list(range(1003))


def test_one_without_events_is_empty_and_what_does_not_fit_makes_none() -> None:
    memory = MemoryFiles()
    with Store.open("memory", files=memory) as store:
        store.create_stream("none", SCHEMA, OPTIONS, events=EVENTS.slice(0, 0))
        assert store.stream("none").snapshot().version == 0
        missing = EVENTS.set_column(0, "t", pa.array([None] * 1000, pa.int64()))
        strict = StreamSchema(SCHEMA.arrow.set(0, pa.field("t", pa.int64(), False)), "t")
        with pytest.raises(InvalidData, match="is in row 1"):
            store.create_stream("s", strict, OPTIONS, events=missing)
        assert store.streams() == ["none"]
        assert hidden(memory) == []


# -------------------------------------------------------------------------------------- faults


def settled(memory: MemoryFiles) -> bool:
    """Open what is left: the stream is there with all events, or not; says which."""
    with Store.open("memory", files=memory) as store:
        assert hidden(memory) == []
        assert store.damaged() == {}
        report = store.check()
        assert report.ok, report.problems
        there = store.streams() == ["s"]
        if there:
            assert numbers(store.stream("s").snapshot()) == WANTED
        else:
            with pytest.raises(StreamNotFound):
                store.stream("s")
            assert numbers(create(store).snapshot()) == WANTED
    return there


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["lose", "keep", "tear"])
@pytest.mark.parametrize("fault", ["crash_before", "crash_halfway", "crash_after"])
def test_power_cut_at_every_operation_of_a_creation(fault: Fault, mode: CrashMode) -> None:
    outcomes = set()
    for number in itertools.count(1, 1 if LONG else 3):
        memory = MemoryFiles()
        files = FaultyFiles(memory)
        store = Store.open("memory", files=files)
        files.plan = FaultPlan(fault, files.operations + number, sectors=number % 3)
        acknowledged = False
        with suppress(SimulatedCrash):
            create(store)
            acknowledged = True
        there = settled(memory.crash(random.Random(number), mode))
        assert there or not acknowledged, "a stream that was acknowledged is gone"
        outcomes.add(there)
        if not files.struck:
            break
    assert outcomes == {True, False}
    assert number > 10


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["fsync", "eio", "enospc"])
def test_disk_that_fails_at_every_operation_of_a_creation(kind: Fault) -> None:
    only = {"sync", "sync_directory"} if kind == "fsync" else None
    for number in itertools.count(1):
        memory = MemoryFiles()
        files = FaultyFiles(memory)
        store = Store.open("memory", files=files)
        files.plan = FaultPlan(
            kind, files.operations + number, length=1000, sectors=number % 3, only=only
        )
        try:
            create(store)
        except (StorageFailed, StorageFull):
            acknowledged = False
        else:
            acknowledged = True
            assert numbers(store.stream("s").snapshot()) == WANTED
        struck = files.struck
        files.plan = FaultPlan()
        assert settled(memory.crash(random.Random(number), "lose")) or not acknowledged
        if not struck:
            break
    assert number > 3
