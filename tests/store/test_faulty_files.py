"""Planned faults hit the operation that they are planned for, and do there what they say."""

from __future__ import annotations

import itertools
import random

import pytest

from chronicle.errors import StorageFailed, StorageFull
from chronicle.store.file_contract import Files
from chronicle.tests.faulty_files import Fault, FaultPlan, FaultyFiles, SimulatedCrash
from chronicle.tests.memory_files import MemoryFiles


def scenario(files: Files) -> None:
    """Do one of each operation."""
    files.make_directory("x/y")
    with files.create("x/a") as file:
        file.write(b"a" * 2000)
        file.writev([b"b" * 1000, b"c" * 1000])
        file.sync()
        file.truncate(3000)
    files.replace("x/a", "x/b")
    files.link("x/b", "x/c")
    files.sync_directory("x")
    lock = files.lock("LOCK", exclusive=True)
    assert lock is not None
    lock.release()
    files.remove("x/c")
    files.remove_tree("x")


NAMES = [
    "make_directory",
    "make_directory",
    "create",
    "write",
    "write",
    "sync",
    "truncate",
    "replace",
    "link",
    "sync_directory",
    "lock",
    "remove",
    "remove",
    "remove",
    "remove",
]


class TestFaultyFiles:
    def test_the_trace_tells_everything(self) -> None:
        files = FaultyFiles(MemoryFiles())
        scenario(files)
        assert [operation.name for operation in files.trace] == NAMES
        assert [operation.number for operation in files.trace] == list(range(1, len(NAMES) + 1))
        assert [operation.nbytes for operation in files.trace if operation.nbytes] == [2000, 2000]
        assert files.operations == len(NAMES)
        assert not files.struck

    @pytest.mark.parametrize("fault", ["crash_before", "crash_halfway", "crash_after"])
    def test_a_crash_ends_everything(self, fault: Fault) -> None:
        for number in itertools.count(1):
            memory = MemoryFiles()
            files = FaultyFiles(memory, FaultPlan(fault, number))
            if number > len(NAMES):
                scenario(files)
                assert not files.struck
                break
            with pytest.raises(SimulatedCrash):
                scenario(files)
            assert files.crashed
            assert len(files.trace) == number
            for act in (files.list, files.read, files.make_directory, files.sync_directory):
                with pytest.raises(SimulatedCrash):
                    act("")
            # What was done agrees with a run that was stopped there.
            expected = FaultyFiles(
                MemoryFiles(), FaultPlan("crash_before", number + (fault == "crash_after"))
            )
            if fault != "crash_halfway" and number < len(NAMES):
                with pytest.raises(SimulatedCrash):
                    scenario(expected)
                assert tree(memory) == tree(expected.inner)

    @pytest.mark.parametrize("sectors", [0, 1, 3])
    def test_halfway_writes_stop_at_the_sector(self, sectors: int) -> None:
        for number, before in ((4, 0), (5, 2000)):
            memory = MemoryFiles()
            files = FaultyFiles(memory, FaultPlan("crash_halfway", number, sectors=sectors))
            with pytest.raises(SimulatedCrash):
                scenario(files)
            data = (b"a" * 2000 + b"b" * 1000 + b"c" * 1000)[: before + 512 * sectors]
            assert memory.read("x/a") == data

    def test_errors_pass_and_work_goes_on(self) -> None:
        for fault, error in (("eio", StorageFailed), ("enospc", StorageFull)):
            files = FaultyFiles(MemoryFiles(), FaultPlan(fault, 2, sectors=1))  # type: ignore[arg-type]
            with files.create("a") as file:
                with pytest.raises(error):
                    file.write(b"x" * 1000)
                assert file.size == 512
                file.truncate(0)
                file.write(b"y")
            assert files.read("a") == b"y"

    def test_a_disk_that_stays_full_still_frees_space(self) -> None:
        files = FaultyFiles(MemoryFiles(), FaultPlan("enospc", 3, length=None))
        file = files.create("a")
        file.write(b"x")
        for act in (lambda: file.write(b"y"), lambda: files.create("b")):
            with pytest.raises(StorageFull):
                act()
        file.truncate(0)
        file.sync()
        files.remove("a")
        files.plan = FaultPlan()
        files.create("b")

    def test_only_counts_what_it_is_asked_to(self) -> None:
        files = FaultyFiles(MemoryFiles(), FaultPlan("fsync", 2, only={"sync"}))
        file = files.create("a")
        files.sync_directory("")
        file.write(b"one")
        file.sync()
        file.write(b"two")
        with pytest.raises(StorageFailed, match="sync a"):
            file.sync()
        with pytest.raises(StorageFailed, match="earlier sync"):
            file.sync()
        with pytest.raises(StorageFailed, match="earlier sync"):
            file.write(b"x")
        assert [operation.number for operation in files.trace] == [0, 0, 0, 1, 0, 2]
        assert isinstance(files.inner, MemoryFiles)
        assert files.inner.crash(random.Random(0), "lose").read("a") == b"one"


def tree(files: Files, directory: str = "") -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name in files.list(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            found[path] = files.read(path)
        except IsADirectoryError:
            found[path] = None
            found |= tree(files, path)
    return found
