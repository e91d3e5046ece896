"""Group commit: everybody is told once, at the right moment, and nobody waits for ever."""

from __future__ import annotations

import random
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import StorageFailed
from chronicle.schema import StreamSchema
from chronicle.store.files import RealFiles
from chronicle.store.log import GroupCommit, LogWriter, read_log
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.patience import PATIENCE_S, wait_until


class SlowDisk:
    """A sync that blocks until it is let go, and says how often it ran."""

    def __init__(self) -> None:
        self.end = 0
        self.calls = 0
        self.errors: list[BaseException] = []
        self.go = threading.Semaphore(0)
        self.inside = threading.Semaphore(0)

    def sync(self) -> None:
        self.calls += 1
        self.inside.release()
        assert self.go.acquire(timeout=PATIENCE_S)
        if self.errors:
            raise self.errors.pop(0)


class TestGroupCommit:
    def start(self, commit: GroupCommit, position: int, results: list[object]) -> threading.Thread:
        def run() -> None:
            try:
                commit.sync(position)
                results.append(position)
            except BaseException as error:
                results.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def wait_for_waiters(self, commit: GroupCommit, count: int) -> None:
        wait_until(lambda: len(commit._turn._condition._waiters) >= count)  # type: ignore[attr-defined]

    def test_all_who_wait_share_the_next_sync(self) -> None:
        disk, results = SlowDisk(), []
        commit = GroupCommit(disk.sync, lambda: disk.end, 0, "a file")
        disk.end = 1
        threads = [self.start(commit, 1, results)]
        assert disk.inside.acquire(timeout=PATIENCE_S)
        for position in range(2, 10):
            disk.end = position
            threads.append(self.start(commit, position, results))
        self.wait_for_waiters(commit, 8)
        disk.go.release()
        assert disk.inside.acquire(timeout=PATIENCE_S)
        assert commit.durable == 1
        threads[0].join(PATIENCE_S)
        assert results == [1]  # nobody else has been told that it is safe
        disk.go.release()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert sorted(results) == list(range(1, 10))  # type: ignore[type-var]
        assert (disk.calls, commit.durable) == (2, 9)

    def test_a_sync_covers_only_what_was_written_before_it_began(self) -> None:
        disk, results = SlowDisk(), []
        commit = GroupCommit(disk.sync, lambda: disk.end, 0, "a file")
        disk.end = 1
        first = self.start(commit, 1, results)
        assert disk.inside.acquire(timeout=PATIENCE_S)
        disk.end = 5
        disk.go.release()
        first.join(PATIENCE_S)
        assert commit.durable == 1
        disk.go.release()
        commit.sync(5)
        assert (disk.calls, commit.durable) == (2, 5)
        commit.sync(3)
        assert disk.calls == 2

    def test_a_failure_reaches_everybody(self) -> None:
        disk, results = SlowDisk(), []
        commit = GroupCommit(disk.sync, lambda: disk.end, 0, "a file")
        disk.end = 9
        threads = [self.start(commit, 1, results)]
        assert disk.inside.acquire(timeout=PATIENCE_S)
        threads += [self.start(commit, position, results) for position in range(2, 10)]
        self.wait_for_waiters(commit, 8)
        disk.errors = [StorageFailed("the disk is gone")]
        disk.go.release()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert len(results) == 9
        assert all(isinstance(result, StorageFailed) for result in results)
        with pytest.raises(StorageFailed, match="the disk is gone"):
            commit.sync(1)
        assert disk.calls == 1

    def test_an_interrupted_leader_hands_over(self) -> None:
        disk, results = SlowDisk(), []
        commit = GroupCommit(disk.sync, lambda: disk.end, 0, "a file")
        disk.end = 4
        threads = [self.start(commit, 1, results)]
        assert disk.inside.acquire(timeout=PATIENCE_S)
        threads += [self.start(commit, position, results) for position in (2, 3, 4)]
        self.wait_for_waiters(commit, 3)
        disk.errors = [KeyboardInterrupt()]
        disk.go.release(2)
        for thread in threads:
            thread.join(PATIENCE_S)
        assert isinstance(results[0], KeyboardInterrupt)
        assert sorted(results[1:]) == [2, 3, 4]  # type: ignore[type-var]
        assert (disk.calls, commit.failure) == (2, None)

    def test_an_interrupted_waiter_strands_nobody(self) -> None:
        disk, results = SlowDisk(), []
        commit = GroupCommit(disk.sync, lambda: disk.end, 0, "a file")
        disk.end = 1
        threads = [self.start(commit, 1, results)]
        assert disk.inside.acquire(timeout=PATIENCE_S)
        disk.end = 3
        condition = commit._turn._condition
        wait = condition.wait

        def interrupted(timeout: float | None = None) -> bool:
            condition.wait = wait  # type: ignore[method-assign]
            raise KeyboardInterrupt

        condition.wait = interrupted  # type: ignore[method-assign]
        threads.append(self.start(commit, 2, results))
        threads[-1].join(PATIENCE_S)
        assert isinstance(results[-1], KeyboardInterrupt)
        threads.append(self.start(commit, 3, results))
        self.wait_for_waiters(commit, 1)
        disk.go.release(2)
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert sorted(str(result) for result in results) == ["", "1", "3"]
        assert not commit._syncing

    def test_threads_on_a_real_disk(self, tmp_path: Path) -> None:
        files = FaultyFiles(RealFiles(tmp_path))  # only for its trace
        log = LogWriter.create(files, "log", 1)
        syncs_before = len(files.trace)
        sync = log._commit._sync_file

        def first_sync() -> None:
            log._commit._sync_file = sync
            self.wait_for_waiters(log._commit, 7)
            sync()

        log._commit._sync_file = first_sync
        barrier = threading.Barrier(8)
        errors: list[BaseException] = []

        def run(kind: int) -> None:
            try:
                barrier.wait(PATIENCE_S)
                for count in range(40):
                    position = log.append(kind, [struct.pack("<I", count)])
                    log.sync(position)
                    assert log.durable_size >= position
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(kind,), daemon=True) for kind in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert not errors
        assert log.records == 320
        log.close()
        records = read_log(files, "log").records
        for kind in range(8):
            mine = [struct.unpack("<I", r.payload)[0] for r in records if r.kind == kind]
            assert mine == list(range(40))
        syncs = [entry for entry in files.trace[syncs_before:] if entry.name == "sync"]
        assert len(syncs) < 320, "those that waited for the first sync did not share the next"

    @pytest.mark.parametrize("number", [2, 5, 20])
    def test_threads_when_the_disk_fails(self, tmp_path: Path, number: int) -> None:
        plan = FaultPlan("fsync", number, length=None, only={"sync"})
        files = FaultyFiles(RealFiles(tmp_path), plan)
        log = LogWriter.create(files, "log", 1)
        acknowledged: list[int] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                while True:
                    position = log.append(1, [b"x"])
                    log.sync(position)
                    acknowledged.append(position)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=run, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert len(failed) == 8
        assert all(isinstance(error, StorageFailed) for error in failed)
        assert max(acknowledged, default=0) <= log.durable_size
        assert [entry.name for entry in files.trace].count("sync") == number
        log.close()


SCHEMA = StreamSchema(pa.schema([("t", pa.timestamp("ms")), ("n", pa.int64())]), "t")


def event(tick: int, number: int) -> pa.RecordBatch:
    columns = [np.array([tick], "datetime64[ms]"), np.array([number])]
    return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=SCHEMA.arrow)


def numbers(stream: Any) -> list[int]:
    return [
        number for batch in stream.snapshot().scan() for number in batch.column("n").to_pylist()
    ]


@pytest.mark.parametrize("failing", [None, 1])
def test_appends_that_share_a_sync_are_durable_when_they_return(failing: int | None) -> None:
    """After a power cut every acknowledged event is there, and those refused are known as such."""
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    stream = Store.open("memory", files=files).create_stream("s", SCHEMA)
    assert isinstance(stream, EventStream)
    stream.append(event(0, -1))
    log = stream.commits.log
    plain, records, begun = log._commit._sync_file, log.records, len(files.trace)

    def sync() -> None:
        wait_until(lambda: log.records == records + 12)
        plain()

    log._commit._sync_file = sync
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
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert sorted(safe + refused) == list(range(12))
    assert all(kept), "acknowledged, and lost in a power cut"
    assert all(seen), "acknowledged, and not to be read"
    assert bool(refused) == (failing == 1)
    syncs = [operation.name for operation in files.trace[begun:]].count("sync")
    assert syncs <= 2, "those that append while the first sync is under way share the next one"


def test_a_series_of_appends_is_shown_up_to_its_first_failure() -> None:
    files = FaultyFiles(MemoryFiles())
    stream = Store.open("memory", files=files).create_stream("s", SCHEMA)
    assert isinstance(stream, EventStream)
    series = [event(number, number) for number in range(3)]
    assert len(stream.append_each(series)) == 3
    assert numbers(stream) == [0, 1, 2]
    files.plan = FaultPlan("enospc", 2, only={"write"})
    files.operations = 0
    done = stream.append_each([event(number, number) for number in range(3, 6)])
    assert [result.count for result in done] == [4]
    assert numbers(stream) == [0, 1, 2, 3]
