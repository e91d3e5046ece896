"""Every disk operation of a change of events fails once: the change is there whole, or not at all.

Deletes, updates, replacements of a range and streams that begin with events.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

import pytest

from chronicle.errors import StorageFailed, StorageFull, StreamNotFound
from chronicle.store import filling
from chronicle.store.staging import commit_staged, new_job
from chronicle.store.store import Store
from chronicle.tests.faulty_files import Fault, FaultPlan, FaultyFiles, SimulatedCrash, strikes
from chronicle.tests.memory_files import CrashMode, MemoryFiles

from ..rounds import rounds
from . import test_filling
from .test_deleting import LONG, PERSON, Filled, batch_of, holding, numbers, of
from .test_replacing import RANGE, TIMES, put, replaced, staged_of
from .test_updating import OTHER, names, update, wanted

LAST = 1_000_001
"""The number of an event that is appended afterwards."""


class Change(ABC):
    """A change of a store; ``before`` and ``after``: what ``shown`` gives without and with it."""

    stride = 7
    before: Any
    after: Any

    def __init__(self, files: FaultyFiles) -> None:
        self.filled = Filled(files)
        self.store = self.filled.store
        self.before = self.filled.all

    def shown(self, store: Store) -> Any:
        return numbers(store.stream("s").snapshot())

    @abstractmethod
    def make(self, store: Store) -> Any: ...

    def finish(self, store: Store, memory: MemoryFiles, done: bool) -> None:
        """The change can be made (again), and work goes on."""
        self.make(store)
        store.stream("s").append(batch_of([500], LAST))
        assert self.shown(store)[:-1] == self.after
        assert holding(memory) == []


class Deletion(Change):
    def __init__(self, files: FaultyFiles) -> None:
        super().__init__(files)
        self.after = self.filled.kept

    def make(self, store: Store) -> Any:
        return store.stream("s").delete(choose=of(PERSON))


class Update(Change):
    def __init__(self, files: FaultyFiles) -> None:
        super().__init__(files)
        self.before, self.after = wanted(self.filled, PERSON), wanted(self.filled, OTHER)

    def shown(self, store: Store) -> Any:
        return names(store.stream("s").snapshot())

    def make(self, store: Store) -> Any:
        return update(store.stream("s"))


class Replacement(Change):
    def __init__(self, files: FaultyFiles) -> None:
        super().__init__(files)
        self.after = replaced(self.filled.events)
        self.job = new_job()
        self.staged = staged_of(self.filled.stream, self.job, TIMES[:100], TIMES[100:])

    def make(self, store: Store) -> Any:
        return commit_staged(store.stream("s"), self.job, self.staged, over=RANGE)

    def finish(self, store: Store, memory: MemoryFiles, done: bool) -> None:
        stream = store.stream("s")
        if done:
            assert self.make(store).repeated
        else:
            put(stream, TIMES[:100], TIMES[100:])
        stream.append(batch_of([500], LAST))
        assert numbers(stream.snapshot()) == [*self.after, LAST]
        stream.compact()
        kept = {entry.file for entry in stream.commits.manifest.segments}
        assert {name for name in memory.list("streams/s") if name.endswith(".seg")} == kept


class Creation(Change):
    stride = 3
    before, after = None, test_filling.WANTED

    def __init__(self, files: FaultyFiles) -> None:
        self.store = Store.open("memory", files=files)

    def shown(self, store: Store) -> Any:
        if store.streams() == ["s"]:
            return super().shown(store)
        with pytest.raises(StreamNotFound):
            store.stream("s")
        return None

    def make(self, store: Store) -> Any:
        return test_filling.create(store)

    def finish(self, store: Store, memory: MemoryFiles, done: bool) -> None:
        assert test_filling.hidden(memory) == []
        if not done:
            assert numbers(self.make(store).snapshot()) == self.after


CHANGES = {c.__name__.lower(): c for c in (Deletion, Update, Replacement, Creation)}


@pytest.fixture(autouse=True)
def many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "RUN_BYTES", 8000)


def settled(memory: MemoryFiles, change: Change) -> bool:
    """Open what is left and go on with it; says whether the change is there."""
    with Store.open("memory", files=memory) as store:
        assert store.damaged() == {}
        report = store.check()
        assert report.ok, report.problems
        found = change.shown(store)
        assert found in (change.before, change.after)
        done = bool(found == change.after)
        change.finish(store, memory, done)
    return done


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["lose", "keep", "tear"])
@pytest.mark.parametrize("fault", ["crash_before", "crash_halfway", "crash_after"])
@pytest.mark.parametrize("name", CHANGES)
def test_power_cut_at_every_operation(name: str, fault: Fault, mode: CrashMode) -> None:
    kind, outcomes = CHANGES[name], set()
    step = 1 if LONG else min(kind.stride, rounds(6, 3) if mode == "tear" else rounds(17, 7))
    for number, memory, _, change in strikes(fault, kind, step=step):
        acknowledged = False
        with suppress(SimulatedCrash):
            change.make(change.store)
            acknowledged = True
        done = settled(memory.crash(random.Random(number), mode), change)
        assert done or not acknowledged, "what was acknowledged is gone"
        outcomes.add(done)
    assert outcomes == {True, False}
    assert number > 10


@pytest.mark.crash
@pytest.mark.parametrize("fault", ["fsync", "eio", "enospc"])
@pytest.mark.parametrize("name", CHANGES)
def test_disk_that_fails_at_every_operation(name: str, fault: Fault) -> None:
    """What raises has changed nothing that anybody sees; a full disk is over when space returns."""
    only = {"sync", "sync_directory"} if fault == "fsync" else None
    step = 1 if LONG or only else rounds(7, 3)
    for number, memory, files, change in strikes(
        fault, CHANGES[name], step=step, length=1000, only=only
    ):
        refused = False
        try:
            change.make(change.store)
        except (StorageFailed, StorageFull):
            refused = True
        if not (refused and name == "creation"):  # a name that failed halfway is not looked up
            assert change.shown(change.store) == (change.before if refused else change.after)
        if fault == "enospc" and refused:
            files.plan = FaultPlan()
            change.make(change.store)
            assert change.shown(change.store) == change.after
        mode: CrashMode = "tear" if refused else "lose"
        assert settled(memory.crash(random.Random(number), mode), change) or refused
    assert number > 3
