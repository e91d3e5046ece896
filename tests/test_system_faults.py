"""What the system refuses reaches users as an error of Chronicle: library and command line."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import ChronicleError, StorageFailed
from chronicle.store.files import RealFiles

SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.int64())])
OPTIONS = {"leaf_bytes": 1 << 12, "segment_bytes": 1 << 14}


def made(path: Path) -> Path:
    """A store with two streams; the second is never touched by a fault."""
    with chronicle.open(path) as database:
        for name in ("s", "other"):
            stream = database.create_stream(name, SCHEMA, "t", options=OPTIONS)
            for start in range(0, 20_000, 1_000):
                t = range(start, start + 1_000)
                stream.append(pa.table({"t": t, "x": t}, schema=SCHEMA))
            stream.create_index("x")
    return path


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("sound") / "store")


@pytest.fixture
def path(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "s")


def of_stream(path: Path, pattern: str) -> list[Path]:
    return sorted((path / "streams" / "s").glob(pattern))


def missing(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


def directories(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()
        path.mkdir()


def files(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path)
        path.write_bytes(b"")


FAULTS: dict[str, Callable[[Path], None]] = {
    "segments are missing": lambda path: missing(of_stream(path, "*.seg")[:2]),
    "all segments are missing": lambda path: missing(of_stream(path, "*.seg")),
    "the log is missing": lambda path: missing(of_stream(path, "*.wal")),
    "the manifest is missing": lambda path: missing(of_stream(path, "MANIFEST")),
    "a segment is a directory": lambda path: directories(of_stream(path, "*.seg")[:1]),
    "the log is a directory": lambda path: directories(of_stream(path, "*.wal")),
    "the manifest is a directory": lambda path: directories(of_stream(path, "MANIFEST")),
    "the stream is a file": lambda path: files([path / "streams" / "s"]),
    "the indexes are a file": lambda path: files(of_stream(path, "indexes")),
    "the definitions are a directory": lambda path: directories(
        of_stream(path, "indexes/definitions/MANIFEST")
    ),
    "everything below is missing": lambda path: shutil.rmtree(path / "streams" / "s"),
    "the streams are a file": lambda path: files([path / "streams"]),
    "the mark is a directory": lambda path: directories([path / "CHRONICLE" / "MANIFEST"]),
}

CALLS: dict[str, Callable[[Any], Any]] = {
    "streams": lambda db: db.streams(),
    "count": lambda db: db.stream("s").count,
    "scan": lambda db: db.stream("s").scan().read_all(),
    "sql": lambda db: db.sql("SELECT * FROM s WHERE x = 7").fetchall(),
    "sum": lambda db: db.sql("SELECT sum(x) FROM s").fetchall(),
    "show": lambda db: db.sql("SHOW STREAMS").fetchall(),
    "indexes": lambda db: db.sql("SHOW INDEXES").fetchall(),
    "check": lambda db: db.check(),
    "append": lambda db: db.stream("s").append(pa.table({"t": [99_999], "x": [1]}, schema=SCHEMA)),
    "index": lambda db: catalog_of(db).create_index("s", "t"),
    "compact": lambda db: db.stream("s").compact(),
    "add": lambda db: db.stream("s").add_column("y", pa.int64()),
    "create": lambda db: db.create_stream("new", SCHEMA, "t"),
    "repair": lambda db: db.check(repair=True),
    "drop": lambda db: db.drop_stream("s", if_exists=True),
}


def attempt(call: Callable[[], Any]) -> None:
    """Nothing but an error of ours may come of it, with a message for people."""
    told = ""
    try:
        call()
    except ChronicleError as error:
        told = str(error)
    assert "Errno" not in told


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_broken_files_raise_errors_of_ours(path: Path, fault: str, mode: str) -> None:
    FAULTS[fault](path)
    opened: list[Any] = []
    attempt(lambda: opened.append(chronicle.open(path, mode)))
    if not opened:
        return
    with opened[0] as database:
        for call in CALLS.values():
            attempt(lambda call=call: call(database))  # type: ignore[misc]


@pytest.fixture
def few_descriptors() -> Iterator[Callable[[int], None]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def limit(spare: int) -> None:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + spare, before[1])
        )

    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors cannot be counted")
@pytest.mark.parametrize("spare", [0, 2, 5, 9, 14, 20])
def test_too_many_open_files(
    path: Path, spare: int, few_descriptors: Callable[[int], None]
) -> None:
    with chronicle.open(path) as database:
        database.sql("SELECT sum(x) FROM other WHERE x = 3").fetchall()  # modules are loaded
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few_descriptors(spare)
    try:
        database = chronicle.open(path)
    except ChronicleError:
        return
    try:
        for name in ("count", "scan", "check", "append", "index", "create", "compact", "drop"):
            attempt(lambda name=name: CALLS[name](database))  # type: ignore[misc]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        database.close()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EACCES, PermissionError),
        (errno.EROFS, OSError),
        (errno.EMFILE, OSError),
        (errno.ENOTDIR, NotADirectoryError),
        (errno.EISDIR, IsADirectoryError),
        (errno.ENOENT, FileNotFoundError),
        (errno.EIO, OSError),
    ],
)
def test_every_failure_of_a_file_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[OSError]
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    files = RealFiles(tmp_path)
    files.create("old").close()
    with monkeypatch.context() as patch:
        for name in ("open", "stat", "listdir", "makedirs", "unlink", "replace", "link", "pread"):
            patch.setattr(os, name, fails)
        patch.setattr("builtins.open", fails)
        for call in (
            lambda: files.create("a"),
            lambda: files.append("old"),
            lambda: files.open("old"),
            lambda: files.read("old"),
            lambda: files.size("old"),
            lambda: files.list(""),
            lambda: files.remove("old"),
            lambda: files.replace("old", "b"),
            lambda: files.make_directory("d"),
            lambda: files.sync_directory(""),
            lambda: files.lock("l", exclusive=True),
        ):
            with pytest.raises(StorageFailed) as caught:
                call()
            assert isinstance(caught.value, kind)
            assert caught.value.errno == number
            assert os.strerror(number) in str(caught.value)


@pytest.mark.parametrize("fault", ["all segments are missing", "the streams are a file"])
def test_the_command_line_prints_no_traceback(path: Path, fault: str) -> None:
    FAULTS[fault](path)
    commands = (["streams"], ["sql", "SELECT * FROM s"], ["check"], ["check", "--repair"])
    program = (
        "from chronicle import cli\n"
        f"for words in {commands}: print(words[0], cli.run([*words, '--store', {str(path)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("check ")  # it came to the last of them
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    assert "something unexpected" not in text
