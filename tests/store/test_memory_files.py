"""What a power cut and a kill leave of files in memory: everything a disk could, nothing else."""

from __future__ import annotations

import random

import pytest

from chronicle.errors import StorageFailed, StorageFull
from chronicle.store.file_contract import Files
from chronicle.tests.memory_files import SECTOR_BYTES, MemoryFiles

MODES = ("lose", "keep", "tear")


def write(files: Files, path: str, data: bytes) -> None:
    with files.create(path) as file:
        file.write(data)
        file.sync()


class TestMemoryFiles:
    @pytest.mark.parametrize("mode", MODES)
    def test_what_was_synced_survives(self, mode: str) -> None:
        memory = MemoryFiles()
        memory.make_directory("d")
        write(memory, "d/a", b"kept" * 1000)
        memory.sync_directory("d")
        memory.sync_directory("")
        for seed in range(20):
            left = memory.crash(random.Random(seed), mode)  # type: ignore[arg-type]
            assert left.list("d") == ["a"]
            assert left.read("d/a") == b"kept" * 1000

    def test_what_was_not_synced_is_lost_or_kept(self) -> None:
        memory = MemoryFiles()
        memory.make_directory("d")
        memory.sync_directory("")
        with memory.create("d/a") as file:
            file.write(b"one")
            memory.sync_directory("d")
            file.sync()
            file.write(b"two")
        memory.create("d/b").close()
        lost = memory.crash(random.Random(1), "lose")
        assert lost.list("d") == ["a"]
        assert lost.read("d/a") == b"one"
        kept = memory.crash(random.Random(1), "keep")
        assert kept.list("d") == ["a", "b"]
        assert kept.read("d/a") == b"onetwo"
        assert memory.read("d/a") == b"onetwo"

    def test_a_file_without_its_directory_synced_is_lost(self) -> None:
        memory = MemoryFiles()
        write(memory, "a", b"one")
        assert memory.crash(random.Random(1), "lose").list("") == []

    def test_torn_tails_are_made_of_sectors(self) -> None:
        memory = MemoryFiles()
        file = memory.create("a")
        memory.sync_directory("")
        old, new = b"o" * 700, bytes(range(1, 251)) * 12
        file.write(old)
        file.sync()
        file.write(new)
        whole = old + new
        seen = set()
        for seed in range(300):
            left = memory.crash(random.Random(seed), "tear").read("a")
            assert left[:700] == old
            assert len(left) <= len(whole)
            for at in range(SECTOR_BYTES, len(left), SECTOR_BYTES):
                piece = left[at : at + SECTOR_BYTES]
                if piece == whole[at : at + SECTOR_BYTES]:
                    seen.add("new")
                elif not any(piece[700 - at :] if at < 700 else piece):
                    seen.add("zero")
                elif len(piece) == SECTOR_BYTES:
                    assert at > 700, "a sector with durable bytes is never garbage"
                    seen.add("garbage")
            seen.add("cut" if len(left) < len(whole) else "long")
        assert seen == {"new", "zero", "garbage", "cut", "long"}

    def test_a_truncate_may_be_lost(self) -> None:
        memory = MemoryFiles()
        file = memory.create("a")
        memory.sync_directory("")
        file.write(b"0123456789")
        file.sync()
        file.truncate(4)
        file.truncate(2)
        file.write(b"new")
        assert memory.crash(random.Random(1), "lose").read("a") == b"0123456789"
        assert memory.crash(random.Random(1), "keep").read("a") == b"01new"
        file.sync()
        assert memory.crash(random.Random(1), "lose").read("a") == b"01new"

    def test_a_rename_is_atomic(self) -> None:
        memory = MemoryFiles()
        memory.make_directory("x")
        memory.make_directory("y")
        memory.sync_directory("")
        write(memory, "x/a", b"one")
        memory.sync_directory("x")
        memory.replace("x/a", "y/b")
        seen = set()
        for seed in range(100):
            left = memory.crash(random.Random(seed), "tear")
            seen.add((tuple(left.list("x")), tuple(left.list("y"))))
        assert seen == {(("a",), ()), ((), ("b",))}
        memory.sync_directory("y")
        left = memory.crash(random.Random(0), "lose")
        assert (left.list("x"), left.list("y")) == ([], ["b"])

    def test_syncing_a_directory_includes_what_its_changes_stand_on(self) -> None:
        memory = MemoryFiles()
        memory.make_directory("x")
        memory.make_directory("y")
        memory.sync_directory("")
        write(memory, "x/a", b"one")
        memory.replace("x/a", "y/b")
        memory.sync_directory("y")
        for mode in MODES:
            left = memory.crash(random.Random(0), mode)  # type: ignore[arg-type]
            assert (left.list("x"), left.list("y")) == ([], ["b"])

    def test_a_directory_that_was_not_synced_takes_its_files_along(self) -> None:
        memory = MemoryFiles()
        memory.make_directory("x")
        write(memory, "x/a", b"one")
        memory.sync_directory("x")
        assert memory.crash(random.Random(0), "lose").list("") == []
        memory.sync_directory("")
        assert memory.crash(random.Random(0), "lose").read("x/a") == b"one"

    def test_a_removed_tree_may_come_back_in_part(self) -> None:
        memory = MemoryFiles()
        memory.make_directory("x")
        for name in "abc":
            write(memory, f"x/{name}", b"")
        memory.sync_directory("x")
        memory.sync_directory("")
        memory.remove_tree("x")
        seen = set()
        for seed in range(200):
            left = memory.crash(random.Random(seed), "tear")
            seen.add(len(left.list("x")) if left.exists("x") else -1)
        assert seen == {-1, 0, 1, 2, 3}

    def test_a_kill_loses_nothing_but_the_locks(self) -> None:
        memory = MemoryFiles()
        with memory.create("a") as file:
            file.write(b"one")
        assert memory.lock("LOCK", exclusive=True) is not None
        left = memory.kill()
        assert left.read("a") == b"one"
        assert left.lock("LOCK", exclusive=True) is not None
        assert left.crash(random.Random(0), "lose").list("") == []
        with left.append("a") as file:
            file.write(b"two")
        assert memory.read("a") == b"one"

    def test_links_are_still_one_file_after_a_crash(self) -> None:
        memory = MemoryFiles()
        write(memory, "a", b"one")
        memory.link("a", "b")
        memory.sync_directory("")
        left = memory.crash(random.Random(0), "tear")
        with left.append("a") as file:
            file.write(b"two")
        assert left.read("b") == b"onetwo"

    def test_bytes_whose_sync_failed_do_not_survive_later_syncs(self) -> None:
        memory = MemoryFiles()
        file = memory.create("a")
        memory.sync_directory("")
        file.write(b"one")
        file.sync()
        file.write(b"two")
        file.fail_sync()
        with pytest.raises(StorageFailed):
            file.sync()
        with memory.append("a") as again:
            again.write(b"six")
            again.sync()
        assert memory.read("a") == b"onetwosix"
        assert memory.crash(random.Random(0), "lose").read("a") == b"one\0\0\0six"

    def test_capacity(self) -> None:
        memory = MemoryFiles(capacity=10)
        write(memory, "a", b"0123")
        with memory.create("b") as file:
            with pytest.raises(StorageFull, match="write to b"):
                file.write(b"0123456789")
            assert file.size == 6
            assert memory.free_bytes() == 0
            file.truncate(0)
            memory.remove("a")
            assert memory.free_bytes() == 10
            file.write(b"0123456789")
