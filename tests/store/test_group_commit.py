"""Group commit: everybody is told once, at the right moment, and nobody waits for ever."""

from __future__ import annotations

import collections
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import StorageFailed
from chronicle.store.files import RealFiles
from chronicle.store.log import GroupCommit, LogWriter, read_log
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles
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
        wait_until(lambda: len(commit._waiters) >= count)

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

    @pytest.mark.parametrize("chosen", [False, True])
    def test_an_interrupted_waiter_strands_nobody(
        self, chosen: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also when it is interrupted at the moment in which it was to become the leader."""
        disk, results = SlowDisk(), []
        commit = GroupCommit(disk.sync, lambda: disk.end, 0, "a file")
        disk.end = 1
        threads = [self.start(commit, 1, results)]
        assert disk.inside.acquire(timeout=PATIENCE_S)
        disk.end = 3

        class Interrupted:
            """A lock whose waiter gets Ctrl-C: at once, or after it was woken."""

            def __init__(self) -> None:
                self.woken = threading.Event()

            def acquire(self) -> None:
                assert not chosen or self.woken.wait(PATIENCE_S)
                raise KeyboardInterrupt

            def release(self) -> None:
                self.woken.set()

        class Waiters(collections.deque):  # type: ignore[type-arg]
            def append(self, waiter: Any) -> None:
                if not self:
                    waiter.wake = Interrupted()
                super().append(waiter)

        commit._waiters = Waiters()
        threads.append(self.start(commit, 2, results))
        if chosen:
            self.wait_for_waiters(commit, 1)
        else:
            threads[-1].join(PATIENCE_S)
            assert isinstance(results[-1], KeyboardInterrupt)
            commit._waiters = collections.deque(commit._waiters)
        threads.append(self.start(commit, 3, results))
        self.wait_for_waiters(commit, 2 if chosen else 1)
        disk.go.release(2)
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert sorted(str(result) for result in results) == ["", "1", "3"]
        assert commit._leader is None

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
