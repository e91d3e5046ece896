"""Temporary directories of processes that were killed, and of those that live."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chronicle.core import scratch
from chronicle.core.scratch import ScratchDirectory

from .patience import PATIENCE_S

HELD = """
import os, sys
from chronicle.core.scratch import ScratchDirectory
held = ScratchDirectory("spill")
(held.path / "spilled").write_bytes(b"x")
print(held.path, flush=True)
exec(sys.argv[1])
"""

QUERIED = """
import sys
import chronicle
database = chronicle.open(sys.argv[1], isolation=sys.argv[2])
database.sql("SELECT sum(a.range + b.range) FROM range(10) a, range(10) b").fetchall()
print("ready", flush=True)
if sys.argv[3] == "stay":
    sys.stdin.read()
"""


Start = Callable[..., "tuple[subprocess.Popen[str], str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python with a program; what it says first."""
    started = []

    def run(program: str, *arguments: object) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield run
    for process in started:
        process.kill()
        process.communicate()


def left(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_a_directory_ends_with_its_maker(place: Path) -> None:
    made = ScratchDirectory("test")
    with made as path:
        assert path.parent == place
        assert path.name.startswith("chronicle-test-")
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "below").mkdir()
    made.close()  # again is fine
    assert left(place) == []
    other = ScratchDirectory("test").path  # nothing refers to it any more
    assert not other.exists()


def test_the_end_of_the_interpreter_removes_it(place: Path, start: Start) -> None:
    process, _ = start(HELD, "sys.exit(0)")
    assert process.wait(PATIENCE_S) == 0
    assert left(place) == []


def test_what_a_killed_process_leaves_is_swept_and_what_a_living_one_holds_is_not(
    place: Path, start: Start
) -> None:
    living, kept = start(HELD, "sys.stdin.read()")
    killed, gone = start(HELD, "sys.stdin.read()")
    killed.kill()
    killed.wait()
    theirs = {"chronicle-bench-12345678", "chronicle-spill-1234567.scratch", "other"}
    for name in theirs:  # nothing of ours: made by somebody else
        (place / name).mkdir()
    (place / "chronicle-spill-link5678.scratch").symlink_to(kept)
    assert Path(kept).exists()
    assert Path(gone).exists()
    with ScratchDirectory("test") as path:
        expected = {*theirs, Path(kept).name, path.name, "chronicle-spill-link5678.scratch"}
        assert set(left(place)) == expected
        assert (Path(kept) / "spilled").exists()
    living.communicate("")
    assert not Path(kept).exists()


def test_a_fork_neither_removes_nor_loses_it(place: Path) -> None:
    with ScratchDirectory("test") as path:
        child = os.fork()
        if not child:
            os._exit(0 if path.exists() else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert path.exists()
    forking = HELD + "\nif not os.fork():\n    del held\n    sys.exit(0)\nos.wait()\n"
    done = subprocess.run(
        [sys.executable, "-c", forking + "print(held.path.exists())", "pass"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "True"
    assert left(place) == []


def test_a_directory_that_is_swept_at_its_birth_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its lock another process may take it for left behind."""
    make = tempfile.mkdtemp
    unlucky = []

    def swept(*arguments: str) -> str:
        path = make(*arguments)
        if not unlucky:
            unlucky.append(path)
            os.rmdir(path)
            os.mkdir(path)  # there when it is opened, and then not
            real = os.open

            def late(name: str | Path, flags: int) -> int:
                monkeypatch.setattr("os.open", real)
                found = real(name, flags)
                os.rmdir(path)
                return found

            monkeypatch.setattr("os.open", late)
        return path

    scratch._SWEPT.add(str(place))
    monkeypatch.setattr("tempfile.mkdtemp", swept)
    with ScratchDirectory("test") as path:
        assert str(path) != unlucky[0]
        assert path.is_dir()


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_databases_leave_nothing_in_the_end(
    tmp_path: Path, place: Path, start: Start, isolation: str
) -> None:
    """Neither one that was not closed, nor, after the next one, one that was killed."""
    process, said = start(QUERIED, tmp_path / "s", isolation, "end")
    assert said == "ready"
    assert process.wait(PATIENCE_S) == 0
    assert left(place) == []
    process, said = start(QUERIED, tmp_path / "s", isolation, "stay")
    assert said == "ready"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert left(place) != []
    process, said = start(QUERIED, tmp_path / "other", isolation, "end")
    assert said == "ready"
    assert process.wait(PATIENCE_S) == 0
    assert left(place) == []
