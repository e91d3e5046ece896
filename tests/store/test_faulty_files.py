"""Planned faults hit the operation that they are planned for, and do there what they say."""

from __future__ import annotations

import itertools

import pytest

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
    "make_directory", "make_directory", "create", "write", "write", "sync", "truncate", "replace",
    "link", "sync_directory", "lock", "remove", "remove", "remove", "remove",
]  # fmt: skip


class TestFaultyFiles:
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
            for name in ("list", "read", "make_directory", "sync_directory"):
                with pytest.raises(SimulatedCrash):
                    getattr(files, name)("")
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
