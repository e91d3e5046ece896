"""Queued appends: each once, its outcome to its own thread, and nobody sleeps for ever."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import InvalidData, StorageFailed
from chronicle.schema import StreamSchema
from chronicle.store.append_queue import JOBS_MAX, AppendQueue, QueuedAppend
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.patience import PATIENCE_S, wait_until


class Note(QueuedAppend):
    """Writes its name into a book."""

    __slots__ = ("act", "book", "name")

    def __init__(
        self,
        book: list[Any],
        name: Any,
        act: Callable[[], None] | None = None,
        *,
        patient: bool = True,
    ) -> None:
        super().__init__(patient)
        self.book, self.name, self.act = book, name, act

    def perform(self) -> None:
        if self.act is not None:
            self.act()
        self.book.append(self.name)


class Desk:
    """A queue whose lock somebody else holds, with the threads that wait for it."""

    def __init__(self, settle: Callable[[Sequence[Note]], None] | None = None) -> None:
        self.lock = threading.RLock()
        self.book: list[Any] = []
        self.settled: list[list[Any]] = []
        self.outcomes: dict[Any, BaseException | None] = {}
        self.threads: list[threading.Thread] = []
        self.settle = settle
        self.queue: AppendQueue[Note] = AppendQueue(self.lock, self._settle)

    def _settle(self, jobs: Sequence[Note]) -> None:
        if self.settle is not None:
            self.settle(jobs)
        self.settled.append([job.name for job in jobs])

    def submit(self, name: Any, act: Callable[[], None] | None = None, **more: Any) -> None:
        """Submit a job in a thread of its own, and see that it waits."""

        def run() -> None:
            try:
                self.queue.submit(Note(self.book, name, act, **more))
                self.outcomes[name] = None
            except BaseException as error:
                self.outcomes[name] = error

        before = self.waiting()
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.threads.append(thread)
        wait_until(lambda: self.waiting() > before)

    def waiting(self) -> int:
        """Threads that wait, the leader with them."""
        return len(self.queue._waiting) + self.queue._led

    def join(self) -> None:
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert not self.queue._led
        assert not self.queue._waiting


def test_one_thread_does_the_work_of_those_that_wait_and_settles_it_once() -> None:
    desk = Desk()
    with desk.lock:
        for name in range(5):
            desk.submit(name)
        assert desk.book == []
    desk.join()
    assert desk.book == [0, 1, 2, 3, 4]
    assert desk.settled == [[0, 1, 2, 3, 4]]
    assert set(desk.outcomes.values()) == {None}


def test_a_failure_is_its_own_threads() -> None:
    def fail() -> None:
        raise InvalidData("not this one")

    for failing in range(3):
        desk = Desk()
        with desk.lock:
            for name in range(3):
                desk.submit(name, fail if name == failing else None)
        desk.join()
        good = [name for name in range(3) if name != failing]
        assert desk.book == good
        assert sorted(name for names in desk.settled for name in names) == good
        assert isinstance(desk.outcomes.pop(failing), InvalidData)
        assert set(desk.outcomes.values()) == {None}


def test_who_is_in_a_hurry_is_not_kept_by_the_settling() -> None:
    slow = threading.Event()

    def settle(jobs: Sequence[Note]) -> None:
        assert jobs[0].name == "hasty" or slow.wait(PATIENCE_S)

    desk = Desk(settle)
    with desk.lock:
        desk.submit("leader")
        desk.submit("hasty", patient=False)
        desk.submit("patient")
    wait_until(lambda: "hasty" in desk.outcomes)
    assert list(desk.outcomes) == ["hasty"]
    slow.set()
    desk.join()
    assert desk.settled == [["hasty"], ["leader", "patient"]]


def test_a_leader_in_a_hurry_leaves_the_settling_to_the_others() -> None:
    desk = Desk()
    with desk.lock:
        desk.submit("hasty", patient=False)
        desk.submit("patient")
    desk.join()
    assert sorted(desk.settled) == [["hasty"], ["patient"]]


def test_when_the_settling_fails_everybody_meets_the_failure() -> None:
    def fail(jobs: Sequence[Note]) -> None:
        raise StorageFailed("the disk is gone")

    desk = Desk(fail)
    with desk.lock:
        for name in range(4):
            desk.submit(name)
    desk.join()
    assert desk.book == [0, 1, 2, 3]
    assert all(isinstance(error, StorageFailed) for error in desk.outcomes.values())


def test_the_holder_of_the_lock_may_submit_while_others_wait() -> None:
    desk = Desk()
    with desk.lock:
        desk.submit("leader")
        desk.submit("other")
        desk.queue.submit(Note(desk.book, "holder"))
        assert desk.book == ["holder"]
    desk.join()
    assert desk.book == ["holder", "leader", "other"]


def test_a_leader_is_not_kept_for_ever() -> None:
    desk = Desk()
    with desk.lock:
        desk.submit("leader")
        for name in range(JOBS_MAX - 2):
            desk.submit(name)
        desk.submit("last", lambda: desk.submit("late"))
    desk.join()
    assert desk.settled[0] == ["leader", *range(JOBS_MAX - 2), "last"]
    assert sorted(desk.settled[1:]) == [["late"]]
    assert desk.book[-1] == "late"


def test_an_interrupted_leader_gives_back_what_it_has_not_begun() -> None:
    def interrupt() -> None:
        if threading.current_thread() is desk.threads[0]:
            raise KeyboardInterrupt

    for victim in range(4):
        desk = Desk()
        with desk.lock:
            for name in range(4):
                desk.submit(name, interrupt if name == victim else None)
        desk.join()
        assert sorted(desk.book) == [name for name in range(4) if name != victim]
        assert isinstance(desk.outcomes[0], KeyboardInterrupt)
        for name in range(1, 4):
            if name == victim:
                assert isinstance(desk.outcomes[name], StorageFailed)
                assert "not known" in str(desk.outcomes[name])
            else:
                assert desk.outcomes[name] is None


def test_an_interrupted_waiter_takes_its_job_back(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    sleep = desk.queue._sleep

    class Interrupted:
        """A lock whose waiter gets Ctrl-C."""

        def acquire(self) -> None:
            raise KeyboardInterrupt

    with desk.lock:
        desk.submit("leader")
        desk.submit("before")
        monkeypatch.setattr(desk.queue, "_sleep", lambda job, wake: sleep(job, Interrupted()))
        with pytest.raises(KeyboardInterrupt):
            in_thread(lambda: desk.queue.submit(Note(desk.book, "victim")))
        monkeypatch.undo()
        desk.submit("after")
    desk.join()
    assert desk.book == ["leader", "before", "after"]


def test_many_threads_lose_and_repeat_nothing() -> None:
    desk = Desk()
    errors: list[BaseException] = []

    def run(which: int) -> None:
        try:
            for count in range(300):
                job = Note(desk.book, (which, count), patient=(which + count) % 3 != 0)
                desk.queue.submit(job)
                assert job.performed
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(which,), daemon=True) for which in range(12)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with desk.lock:  # somebody else, such as a compaction
            time.sleep(0.0005)
    assert not errors
    assert len(desk.book) == 3600
    for which in range(12):
        mine = [count for name, count in desk.book if name == which]
        assert mine == list(range(300))
    assert sorted(name for names in desk.settled for name in names) == sorted(desk.book)


SCHEMA = StreamSchema(pa.schema([("t", pa.timestamp("ms")), ("n", pa.int64())]), "t")


def event(tick: int, number: int) -> pa.RecordBatch:
    columns = [np.array([tick], "datetime64[ms]"), np.array([number])]
    return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=SCHEMA.arrow)


@pytest.mark.parametrize("failing", [None, 1])
def test_combined_appends_are_durable_when_they_return(failing: int | None) -> None:
    """After a power cut every acknowledged event is there, and those refused are known as such."""
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    stream = Store.open("memory", files=files).create_stream("s", SCHEMA)
    assert isinstance(stream, EventStream)
    stream.append(event(0, -1))
    safe: list[int] = []
    refused: list[int] = []
    kept: list[bool] = []
    seen: list[bool] = []

    def run(number: int) -> None:
        try:
            result = stream.append(event(number, number))
            assert result.appended == 1
            seen.append(number in numbers(stream))
            disk = memory.crash(random.Random(number), "lose")
            with Store.open("memory", files=disk) as after:
                kept.append(number in numbers(after.stream("s")))
            safe.append(number)
        except StorageFailed:
            refused.append(number)

    if failing is not None:
        files.plan = FaultPlan("fsync", failing, only={"sync"})
        files.operations = 0
    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(12)]
    with stream.commits.lock:
        for thread in threads:
            thread.start()
        wait_until(lambda: len(stream._appends._waiting) == 11)
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert sorted(safe + refused) == list(range(12))
    assert all(kept), "acknowledged, and lost in a power cut"
    assert all(seen), "acknowledged, and not to be read"
    assert bool(refused) == (failing == 1)


def numbers(stream: Any) -> list[int]:
    return [
        number for batch in stream.snapshot().scan() for number in batch.column("n").to_pylist()
    ]


def in_thread(action: Callable[[], None]) -> None:
    """Run something in another thread, and raise here what it raises."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    if failures:
        raise failures[0]
