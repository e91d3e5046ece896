"""One writer, and versions that stay while somebody reads them: with processes that really die."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chronicle.errors import StorageFailed, StorageFull, StoreLocked
from chronicle.store.file_contract import Files
from chronicle.store.files import RealFiles
from chronicle.store.lock import ReaderLease, WriterLock, held_leases
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles, SimulatedCrash
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.patience import PATIENCE_S

Start = Callable[[str], "subprocess.Popen[str]"]

PREAMBLE = """
import sys
from chronicle.store.files import RealFiles
from chronicle.store.lock import ReaderLease, WriterLock, held_leases
files = RealFiles(sys.argv[1])
"""


def live_leases(files: Files, directory: str, **clock: Callable[[], float]) -> list[int]:
    return [lease.version for lease in held_leases(files, directory, **clock)]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process that runs a program, says ``ready`` and then waits to be killed."""
    started = []

    def run(program: str) -> subprocess.Popen[str]:
        text = PREAMBLE + program + "\nprint('ready', flush=True)\nsys.stdin.read()\n"
        process = subprocess.Popen(
            [sys.executable, "-c", text, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture(params=["real", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return RealFiles(tmp_path) if request.param == "real" else MemoryFiles()


class TestWriterLock:
    def test_a_second_one_in_this_process_is_refused(self, files: Files) -> None:
        with WriterLock.acquire(files) as lock:
            with pytest.raises(StoreLocked, match=rf"this process already \(pid {os.getpid()}\)"):
                WriterLock.acquire(files)
            lock.release()
            lock.release()
            with WriterLock.acquire(files):
                pass
        with WriterLock.acquire(files):
            pass

    def test_the_file_says_who(self, files: Files) -> None:
        with WriterLock.acquire(files):
            found = json.loads(files.read("LOCK"))
        assert (found["pid"], found["host"]) == (os.getpid(), socket.gethostname())
        assert found["started"].endswith("+00:00")

    def test_another_process_is_named_until_it_is_killed(
        self, start: Start, tmp_path: Path
    ) -> None:
        process = start("lock = WriterLock.acquire(files)")
        files = RealFiles(tmp_path)
        with pytest.raises(StoreLocked) as caught:
            WriterLock.acquire(files)
        message = str(caught.value)
        for part in (str(tmp_path), f"process {process.pid}", socket.gethostname(), "mode='r'"):
            assert part in message
        kill(process)
        with WriterLock.acquire(files):
            assert json.loads(files.read("LOCK"))["pid"] == os.getpid()

    def test_a_leftover_file_means_nothing(self, files: Files) -> None:
        with files.create("LOCK") as file:
            file.write(b"\xff not JSON")
        held = files.lock("LOCK", exclusive=True)
        assert held is not None
        with pytest.raises(StoreLocked, match="process unknown on host unknown"):
            WriterLock.acquire(files)
        held.release()
        with WriterLock.acquire(files):
            pass

    def test_one_of_many_threads_wins(self, files: Files) -> None:
        barrier, won, lost = threading.Barrier(8), [], []

        def run() -> None:
            barrier.wait(PATIENCE_S)
            try:
                won.append(WriterLock.acquire(files))
            except StoreLocked as error:
                lost.append(error)

        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert (len(won), len(lost)) == (1, 7)
        won[0].release()


class TestReaderLease:
    def test_counted_until_released(self, files: Files) -> None:
        assert live_leases(files, "") == []
        one = ReaderLease.take(files, "", 7)
        with ReaderLease.take(files, "", 3) as two, ReaderLease.take(files, "", 7):
            assert (one.version, one.registered, two.version) == (7, True, 3)
            assert live_leases(files, "") == [3, 7, 7]
        assert live_leases(files, "") == [7]
        one.release()
        one.release()
        assert not one.registered
        assert live_leases(files, "") == []
        assert files.list("readers") == []

    def test_of_one_directory(self, files: Files) -> None:
        files.make_directory("a")
        files.make_directory("b")
        with ReaderLease.take(files, "a", 1):
            assert live_leases(files, "a") == [1]
            assert live_leases(files, "b") == []

    def test_the_file_says_who(self, files: Files) -> None:
        with ReaderLease.take(files, "", 7, ttl_seconds=10, clock=lambda: 1000.0):
            (name,) = files.list("readers")
            found = json.loads(files.read(f"readers/{name}"))
        assert found == {
            "version": 7,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "expires": 1010.0,
        }

    def test_a_killed_reader_is_swept(self, start: Start, tmp_path: Path) -> None:
        process = start("lease = ReaderLease.take(files, '', 7)")
        files = RealFiles(tmp_path)
        assert live_leases(files, "") == [7]
        kill(process)
        assert live_leases(files, "") == []
        assert files.list("readers") == []

    def test_a_killed_planner_pins_its_version_for_a_while(
        self, start: Start, tmp_path: Path
    ) -> None:
        process = start("lease = ReaderLease.take(files, '', 7, 60, clock=lambda: 1000.0)")
        files = RealFiles(tmp_path)
        assert live_leases(files, "", clock=lambda: 2000.0) == [7]  # still running
        kill(process)
        assert live_leases(files, "", clock=lambda: 1059.0) == [7]
        assert live_leases(files, "", clock=lambda: 1060.0) == []
        assert files.list("readers") == []

    def test_detaching_is_like_ending(self, files: Files) -> None:
        ReaderLease.take(files, "", 7, 60, clock=lambda: 1000.0).detach()
        ReaderLease.take(files, "", 8).detach()
        assert live_leases(files, "", clock=lambda: 1001.0) == [7]
        assert live_leases(files, "", clock=lambda: 1100.0) == []

    def test_releasing_ends_a_time_limit(self, files: Files) -> None:
        ReaderLease.take(files, "", 7, ttl_seconds=1e6).release()
        assert live_leases(files, "") == []

    def test_a_lease_that_cannot_be_understood_keeps_everything(self, files: Files) -> None:
        files.make_directory("readers")
        held = files.lock("readers/x.lease", exclusive=False, content=b"\xff garbage")
        assert held is not None
        assert live_leases(files, "") == [0]
        held.release()
        assert live_leases(files, "") == []

    def test_other_files_are_left_alone(self, files: Files) -> None:
        files.make_directory("readers")
        files.create("readers/README").close()
        assert live_leases(files, "") == []
        assert files.list("readers") == ["README"]

    def test_a_reader_killed_while_registering_leaves_nothing(self) -> None:
        for fault, number in itertools.product(("crash_before", "crash_after"), (1, 2, 3)):
            memory = MemoryFiles()
            files = FaultyFiles(memory, FaultPlan(fault, number))  # type: ignore[arg-type]
            with pytest.raises(SimulatedCrash):
                ReaderLease.take(files, "", 7, ttl_seconds=60)
            left = memory.kill()
            renamed = fault == "crash_after" and number == 3
            assert live_leases(left, "") == ([7] if renamed else [])
            if left.exists("readers"):
                assert len(left.list("readers")) == renamed

    def test_a_full_disk_does_not_keep_readers_out(self) -> None:
        files = MemoryFiles(capacity=0)
        with ReaderLease.take(files, "", 7) as lease:
            assert (lease.version, lease.registered) == (7, False)
        assert live_leases(files, "") == []
        failing = FaultyFiles(MemoryFiles(), FaultPlan("enospc", 1, length=None))
        assert not ReaderLease.take(failing, "", 7).registered
        with pytest.raises(StorageFull):
            failing.create("x")

    @pytest.mark.parametrize("made", [True, False])
    def test_a_directory_that_cannot_be_written(
        self, made: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Root may write anywhere, so the system's refusal is played by a stand-in."""
        files = RealFiles(tmp_path)
        if made:
            files.make_directory("readers")

        def refuse(path: str, *_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied", path)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            patch.setattr(os, "makedirs", refuse)
            with ReaderLease.take(files, "", 7) as lease:
                assert not lease.registered
        assert live_leases(files, "") == []

    @pytest.mark.parametrize(("mode", "registered"), [(0o755, False), (0o777, True)])
    def test_an_ordinary_user(self, mode: int, registered: bool) -> None:
        if os.geteuid() != 0:
            pytest.skip("needs root, to become somebody who is not")
        with tempfile.TemporaryDirectory() as made:  # pytest's own are closed to others
            root = Path(made)
            root.chmod(mode)
            if not all(part.stat().st_mode & 0o001 for part in root.parents):
                pytest.skip(f"{root} cannot be reached by other users")
            child = os.fork()
            if child == 0:
                status = 3
                try:
                    os.setuid(65534)
                    status = int(ReaderLease.take(RealFiles(root), "", 7).registered)
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == registered
            assert live_leases(RealFiles(root), "") == []

    def test_other_failures_are_told(self) -> None:
        files = FaultyFiles(MemoryFiles(), FaultPlan("eio", 3))
        with pytest.raises(StorageFailed):
            ReaderLease.take(files, "", 7)
        files.plan = FaultPlan()
        assert live_leases(files, "") == []

    def test_sweeping_beside_readers_never_misses_one(self, tmp_path: Path) -> None:
        files = RealFiles(tmp_path)
        stop, errors = threading.Event(), []

        def read(version: int) -> None:
            try:
                while not stop.is_set():
                    with ReaderLease.take(files, "", version):
                        if version not in live_leases(files, ""):
                            errors.append(f"version {version} was not counted")
            except BaseException as error:
                errors.append(repr(error))

        threads = [threading.Thread(target=read, args=(version,)) for version in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for _ in range(100):
            live_leases(files, "")
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert errors == []
        assert live_leases(files, "") == []
        assert files.list("readers") == []
