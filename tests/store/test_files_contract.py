"""The contract of the I/O seam, run against the disk, the model of one and the faulty wrapper.

What only the disk does follows: system calls that accept part of the data, fail or race.
"""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from chronicle.errors import (
    ChronicleError,
    CorruptBlock,
    InvalidArgument,
    StorageFailed,
    StorageFull,
    StoreClosed,
)
from chronicle.store import files as files_module
from chronicle.store.file_contract import Files
from chronicle.store.files import RealFiles, ScratchFiles
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.patience import wait_until


@pytest.fixture(params=["real", "memory", "faulty"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    made: Files = RealFiles(tmp_path / "root") if request.param == "real" else MemoryFiles()
    made.make_directory("")
    return FaultyFiles(made, FaultPlan()) if request.param == "faulty" else made


def write(files: Files, path: str, data: bytes) -> None:
    with files.create(path) as file:
        file.write(data)
        file.sync()


class TestContract:
    def test_what_is_written_is_read(self, files: Files) -> None:
        with files.create("a") as file:
            assert file.size == 0
            file.write(b"one")
            file.write(memoryview(b"two"))
            file.write(b"")
            assert (file.size, file.path) == (6, "a")
            file.sync()
        assert files.read("a") == b"onetwo"
        assert files.size("a") == 6
        with files.open("a") as reading:
            assert bytes(reading.read(2, 3)) == b"etw"
            assert bytes(reading.read(6, 0)) == b""
            assert (reading.size, reading.path) == (6, "a")

    def test_append_goes_on_at_the_end(self, files: Files) -> None:
        write(files, "a", b"one")
        with files.append("a") as file:
            assert file.size == 3
            file.write(b"two")
        assert files.read("a") == b"onetwo"

    def test_create_is_exclusive_and_append_is_not_create(self, files: Files) -> None:
        write(files, "a", b"one")
        with pytest.raises(FileExistsError):
            files.create("a")
        with pytest.raises(FileNotFoundError):
            files.append("b")
        with pytest.raises(FileNotFoundError):
            files.create("no/such/directory")
        assert files.read("a") == b"one"
        assert files.list("") == ["a"]

    def test_gathers_buffers_of_every_kind(self, files: Files) -> None:
        numbers = np.arange(5, dtype="<i8")
        parts = [b"", b"ab", bytearray(b"cd"), numbers, np.empty(0), memoryview(b"xyz")[1:]]
        with files.create("a") as file:
            file.writev(parts)
            file.writev([])
            assert file.size == 4 + 40 + 2
            file.write(numbers)
        assert files.read("a") == b"abcd" + numbers.tobytes() + b"yz" + numbers.tobytes()

    def test_gathers_more_buffers_than_the_system_takes_at_once(self, files: Files) -> None:
        parts = [bytes([i % 251]) * (i % 3) for i in range(5000)]
        with files.create("a") as file:
            file.writev(parts)
        assert files.read("a") == b"".join(parts)

    def test_truncate_takes_back(self, files: Files) -> None:
        with files.create("a") as file:
            file.write(b"0123456789")
            file.truncate(4)
            assert file.size == 4
            file.write(b"x")
            for size in (-1, 6):
                with pytest.raises(InvalidArgument, match="5 bytes"):
                    file.truncate(size)
        assert files.read("a") == b"0123x"

    def test_a_short_read_names_file_and_offset(self, files: Files) -> None:
        write(files, "a", b"0123456789")
        with files.open("a") as file, pytest.raises(CorruptBlock, match="a at byte 8") as caught:
            file.read(8, 3)
        assert (caught.value.file, caught.value.offset) == ("a", 8)

    def test_a_map_outlives_handle_and_name(self, files: Files) -> None:
        write(files, "a", b"0123456789" * 1000)
        with files.open("a") as file:
            view = file.map()
        files.remove("a")
        assert view.readonly
        assert view.nbytes == 10_000
        assert bytes(view) == b"0123456789" * 1000

    def test_a_map_shows_the_size_of_its_moment(self, files: Files) -> None:
        with files.create("a") as file, files.open("a") as reading:
            assert bytes(reading.map()) == b""
            file.write(b"one")
            first = reading.map()
            file.write(b"two")
            assert reading.size == 6
            assert bytes(reading.map()) == b"onetwo"
            assert bytes(first) == b"one"

    def test_an_open_file_stays_readable_when_removed_or_replaced(self, files: Files) -> None:
        write(files, "a", b"old")
        write(files, "b", b"new")
        with files.open("a") as file:
            files.replace("b", "a")
            assert bytes(file.read(0, 3)) == b"old"
            files.remove("a")
            assert bytes(file.read(0, 3)) == b"old"
        assert files.list("") == []

    def test_directories(self, files: Files) -> None:
        files.make_directory("x/y")
        files.make_directory("x/y")
        write(files, "x/y/b", b"")
        write(files, "x/y/a", b"")
        files.sync_directory("x/y")
        files.sync_directory("")
        assert files.list("") == ["x"]
        assert files.list("x/y") == ["a", "b"]
        assert files.exists("x/y")
        assert files.exists("x/y/a")
        assert not files.exists("x/z")
        files.replace("x/y", "x/z")
        assert files.list("x") == ["z"]
        files.remove_tree("x")
        files.remove_tree("x")
        assert files.list("") == []

    def test_missing_things(self, files: Files) -> None:
        write(files, "a", b"")
        for act in (files.read, files.open, files.size, files.remove, files.list):
            with pytest.raises(FileNotFoundError):
                act("missing")
        with pytest.raises(FileNotFoundError):
            files.replace("missing", "a")
        with pytest.raises(FileNotFoundError):
            files.sync_directory("missing")
        with pytest.raises(NotADirectoryError):
            files.list("a")

    def test_replace_takes_the_place(self, files: Files) -> None:
        write(files, "a", b"old")
        write(files, "b", b"new")
        files.replace("b", "a")
        assert files.list("") == ["a"]
        assert files.read("a") == b"new"

    def test_link_is_a_second_name(self, files: Files) -> None:
        write(files, "a", b"one")
        files.link("a", "b")
        with pytest.raises(FileExistsError):
            files.link("a", "b")
        files.remove("a")
        assert files.read("b") == b"one"

    def test_export(self, files: Files, tmp_path: Path) -> None:
        write(files, "a", b"0123456789")
        files.export("a", str(tmp_path / "whole"))
        files.export("a", str(tmp_path / "part"), length=4)
        with files.append("a") as file:
            file.write(b"more")
        assert (tmp_path / "whole").read_bytes().startswith(b"0123456789")
        assert (tmp_path / "part").read_bytes() == b"0123"
        with pytest.raises(FileExistsError):
            files.export("a", str(tmp_path / "whole"))
        with pytest.raises(FileExistsError):
            files.export("a", str(tmp_path / "part"), length=4)
        assert (tmp_path / "part").read_bytes() == b"0123"

    def test_locks(self, files: Files) -> None:
        held = files.lock("LOCK", exclusive=True, content=b"me")
        assert held is not None
        assert files.read("LOCK") == b"me"
        assert files.lock("LOCK", exclusive=True, content=b"you") is None
        assert files.lock("LOCK", exclusive=False) is None
        assert files.read("LOCK") == b"me"
        held.release()
        held.release()
        one = files.lock("LOCK", exclusive=False)
        two = files.lock("LOCK", exclusive=False)
        assert one is not None
        assert two is not None
        assert files.read("LOCK") == b"me"
        one.release()
        assert files.lock("LOCK", exclusive=True) is None
        two.release()
        again = files.lock("LOCK", exclusive=True, content=b"x")
        assert again is not None
        assert files.read("LOCK") == b"x"
        again.release()

    def test_a_lock_follows_its_file(self, files: Files) -> None:
        held = files.lock("a", exclusive=True)
        assert held is not None
        files.replace("a", "b")
        assert files.lock("b", exclusive=False) is None
        free = files.lock("a", exclusive=True)
        assert free is not None
        free.release()
        held.release()

    def test_closed_handles(self, files: Files) -> None:
        file = files.create("a")
        file.close()
        file.close()
        with pytest.raises(StoreClosed):
            file.write(b"x")
        with pytest.raises(StoreClosed):
            file.sync()
        reading = files.open("a")
        reading.close()
        reading.close()
        with pytest.raises(StoreClosed):
            reading.read(0, 0)

    @pytest.mark.parametrize("path", ["/etc/passwd", "../a", "a/../../b", "a\0b"])
    def test_paths_stay_inside(self, files: Files, path: str) -> None:
        with pytest.raises(InvalidArgument, match="relative"):
            files.read(path)
        with pytest.raises(InvalidArgument, match="relative"):
            files.create(path)

    def test_free_bytes(self, files: Files) -> None:
        assert files.free_bytes() > 1 << 20


class TestRealFiles:
    def test_short_writes_are_continued(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real_write, real_writev = os.write, os.writev
        monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, memoryview(data)[:3]))

        def some(descriptor: int, views: list[memoryview]) -> int:
            joined = b"".join(views)
            assert joined, "nothing is left to write"
            return real_writev(descriptor, [joined[:7]])

        monkeypatch.setattr(os, "writev", some)
        parts = [b"abc", b"", b"0123456789", b"x", np.arange(3, dtype="<i4")]
        with RealFiles(tmp_path).create("a") as file:
            file.write(b"0123456789")
            file.writev(parts)
            assert file.size == 10 + 14 + 12
        assert (tmp_path / "a").read_bytes() == b"0123456789" + b"".join(parts)

    def test_a_full_disk_says_so_and_can_be_taken_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real_write, left = os.write, [5]

        def full(descriptor: int, data: memoryview) -> int:
            if not left[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            written = real_write(descriptor, memoryview(data)[: left[0]])
            left[0] -= written
            return written

        with RealFiles(tmp_path).create("a") as file:
            file.write(b"old")
            monkeypatch.setattr(os, "write", full)
            with pytest.raises(StorageFull, match=r"write to a: free some space") as caught:
                file.write(b"0123456789")
            assert isinstance(caught.value.__cause__, OSError)
            assert file.size == 8
            file.truncate(3)
            left[0] = 100
            file.write(b"new")
        assert (tmp_path / "a").read_bytes() == b"oldnew"

    def test_other_failures_are_storage_failed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

        with RealFiles(tmp_path).create("a") as file:
            monkeypatch.setattr(os, "writev", broken)
            with pytest.raises(StorageFailed, match="Input/output error") as caught:
                file.writev([b"x"])
        assert isinstance(caught.value, ChronicleError)
        assert isinstance(caught.value, OSError)
        assert caught.value.errno == errno.EIO

    def test_a_failed_sync_is_final(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(_: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with RealFiles(tmp_path).create("a") as file:
            file.write(b"one")
            with monkeypatch.context() as patch:
                patch.setattr(os, "fdatasync", broken)
                with pytest.raises(StorageFailed, match="sync a"):
                    file.sync()
            for act in (file.sync, lambda: file.write(b"x"), lambda: file.truncate(0)):
                with pytest.raises(StorageFailed, match="earlier sync"):
                    act()

    def test_links_fall_back_to_copies(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def across(*_: object) -> None:
            raise OSError(errno.EXDEV, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", across)
        monkeypatch.setattr(files_module, "COPY_BYTES", 7)
        files = RealFiles(tmp_path)
        write(files, "a", b"0123456789" * 10)
        files.link("a", "b")
        with files.append("a") as file:
            file.write(b"x")
        assert files.read("b") == b"0123456789" * 10
        with pytest.raises(FileExistsError):
            files.link("a", "b")
        assert files.read("b") == b"0123456789" * 10

    def test_a_failed_copy_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        files = RealFiles(tmp_path / "root")
        files.make_directory("")
        write(files, "a", b"0123456789")
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StorageFull):
            files.export("a", str(tmp_path / "b"), length=10)
        assert not (tmp_path / "b").exists()

    def test_a_lock_whose_file_was_removed_in_between_is_taken_anew(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = RealFiles(tmp_path)
        real_flock, removed = files_module.fcntl.flock, []

        def race(descriptor: int, operation: int) -> None:
            if not removed:
                removed.append(True)
                os.unlink(tmp_path / "LOCK")
            real_flock(descriptor, operation)

        monkeypatch.setattr(files_module.fcntl, "flock", race)
        lock = files.lock("LOCK", exclusive=True, content=b"me")
        assert lock is not None
        assert files.read("LOCK") == b"me"
        assert files.lock("LOCK", exclusive=True) is None
        lock.release()

    def test_a_lock_does_not_live_on_in_a_forked_child(self, tmp_path: Path) -> None:
        program = (
            "import os, signal, sys\n"
            "from chronicle.store.files import RealFiles\n"
            "lock = RealFiles(sys.argv[1]).lock('LOCK', exclusive=True)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    signal.pause()\n"
            "    os._exit(0)\n"
            "print(child, flush=True)\n"
            "os.kill(os.getpid(), 9)\n"
        )
        parent = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert parent.stdout is not None
        with parent.stdout:
            child = int(parent.stdout.readline())
        try:
            assert parent.wait() == -9
            # The child may need a moment to come to its senses after the fork.
            files, locks = RealFiles(tmp_path), []
            wait_until(lambda: locks.append(files.lock("LOCK", exclusive=True)) or locks[-1])
            locks[-1].release()
        finally:
            os.kill(child, 9)

    def test_descriptors_are_not_lost(self, tmp_path: Path) -> None:
        files = RealFiles(tmp_path)
        write(files, "a", b"one")
        for _ in range(20):
            files.open("a")
            files.append("a")
            files.lock("LOCK", exclusive=True)
            with files.open("a") as file:
                file.map()
        held = (os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
        assert not [path for path in held if path.startswith(str(tmp_path))]


def test_scratch_files_end_with_their_last_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda _: pytest.fail("synced"))
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("synced"))
    files = ScratchFiles()
    place = Path(files.root)
    write(files, "a", b"1")
    with files.append("a") as file:
        file.write(b"2")
        file.sync()
    files.sync_directory("")
    assert (place / "a").read_bytes() == b"12"
    del files
    gc.collect()
    assert not place.exists()
