"""A backup is whole or refused, and never more open than its original."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import InvalidArgument, NotAStore
from chronicle.indexes.manager import StoreIndexes  # noqa: F401  # loaded here, not in every child
from chronicle.schema import StreamSchema
from chronicle.store.backup import MOMENT, list_backups
from chronicle.store.catalog import read_manifest, write_manifest
from chronicle.store.files import RealFiles
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.patience import PATIENCE_S, wait_for_indexes

pytestmark = pytest.mark.crash
LONG = os.environ.get("CHRONICLE_CRASH") == "long"
EVERY = 1 if LONG else 43
SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string())])
STEPS = (
    "mkdir", "open", "write", "writev", "link", "rename", "replace", "unlink", "fsync",
    "fdatasync", "chmod", "rmdir",
)  # fmt: skip


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"t": list(numbers), "k": [f"k{n % 7}" for n in numbers]}, schema=SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with several streams, indexes and the files of a server."""
    path = tmp_path / "store"
    with chronicle.open(path) as db:
        for name in ("a", "b", "c"):
            stream = db.create_stream(name, SCHEMA, time="t", options={"leaf_bytes": 1024})
            stream.create_index("k")
            stream.append(rows(0, 1000))
            stream.seal()
            stream.append(rows(1000, 300))
            stream.append(rows(10, 5))
        wait_for_indexes(db)
    server = path / "server"
    (server / "transactions" / "job").mkdir(parents=True)
    (server / "transactions" / "job" / "part").write_bytes(b"part")
    (server / "tokens.json").write_text('{"tokens": []}')
    (server / "idempotency.wal").write_bytes(b"keys")
    for private in (path, server):
        private.chmod(0o700)
    (server / "tokens.json").chmod(0o600)
    (path / "streams" / "b").chmod(0o750)
    return path


def contents(path: Path, mode: str = "r") -> dict[str, Any]:
    with chronicle.open(path, mode=mode) as db:
        assert db.check().ok
        return {name: db.stream(name).scan().read_all() for name in db.streams()}


def test_permissions_and_what_lies_beside_the_streams_go_along(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "deep" / "copy"
    old = os.umask(0)
    try:
        with chronicle.open(path) as db:
            db.backup(copy)
    finally:
        os.umask(old)
    kept = [p.relative_to(path) for p in path.rglob("*")]
    beside = [p for p in kept if p.parts[0] == "server"]
    assert len(beside) == 6
    for name in [Path(), *beside, *(p for p in kept if (copy / p).exists())]:
        if "indexes" in name.parts:
            continue
        theirs = stat.S_IMODE((copy / name).stat().st_mode)
        assert theirs == stat.S_IMODE((path / name).stat().st_mode), name
    for name in beside:
        if (path / name).is_file():
            assert (copy / name).read_bytes() == (path / name).read_bytes()
    assert contents(copy, "rw") == contents(path)
    with chronicle.open(copy) as db:
        for name in ("a", "b", "c"):
            assert [index["attribute"] for index in db.stream(name).indexes()] == ["k"]


@contextmanager
def killed_at(step: int) -> Iterator[list[int]]:
    """End the process at its n-th change of the file system; gives the count of changes."""
    seen = [0]
    real = {name: getattr(os, name) for name in STEPS}

    def wrap(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            changes = name != "open" or args[1] & os.O_CREAT
            if changes:
                seen[0] += 1
                if seen[0] == step:
                    os.kill(os.getpid(), signal.SIGKILL)
            return real[name](*args, **kwargs)

        return call

    for name in STEPS:
        setattr(os, name, wrap(name))
    try:
        yield seen
    finally:
        for name, call in real.items():
            setattr(os, name, call)


def warm() -> None:
    """Load what every child uses; but for RocksDB, which children could not use then."""
    with Store.open("memory", files=MemoryFiles()) as store:
        stream = store.create_stream("s", StreamSchema(SCHEMA, "t"))
        for first in (0, 1000, 10):
            stream.append(rows(first, 1000))
            stream.seal()
        assert store.check().ok


def backup_killed(path: Path, copy: Path, step: int) -> int:
    """Make a backup in a process that is killed at a step; steps of one that was not, or 0."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE_S))
        try:
            with chronicle.open(path, mode="r") as db, killed_at(step) as seen:
                db.backup(copy)
            os.write(writing, str(seen[0]).encode())
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return int(told or 0)


def in_child(work: Callable[[], bool]) -> bool:
    """Run something in a process of its own."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE_S))
        code = 2
        try:
            code = int(work())
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status >> 8 in (0, 1), f"a child failed with status {status}"
    assert not os.WIFSIGNALED(status), status
    return bool(os.WEXITSTATUS(status))


def kill_everywhere(path: Path, present: bool) -> int:
    """Kill a backup at one step after the other, its last ones among them; gives their number."""
    counted = dict.fromkeys("abc", 1305)
    copy = path.parent / "copy"

    def opens(place: Path) -> bool:
        """Whether a directory opens, in either mode or in none."""
        by_mode = {mode: counts(place, mode) == counted for mode in ("r", "rw")}
        assert len(set(by_mode.values())) == 1, by_mode
        return by_mode["r"]

    def try_step(step: int) -> tuple[int, bool]:
        """Steps of a backup that went through, and whether what there is now is a store."""
        if present:
            copy.mkdir()
        steps, opened = backup_killed(path, copy, step), False
        for place in [p for p in path.parent.iterdir() if p != path]:
            if any(place.iterdir()):  # an empty directory is no backup
                opened = in_child(lambda p=place: opens(p))
                assert opened != (place / "UNFINISHED-BACKUP").exists()
            shutil.rmtree(place)
        return steps, opened

    warm()
    try_step(0)  # makes what a store has once it was read
    total, opened = try_step(0)
    assert opened
    first = 1 if LONG or not present else EVERY // 2
    for step in sorted({*range(first, total + 1, EVERY), total - 1, total}):
        steps, opened = try_step(step)
        assert not steps, "it was not killed"
        assert opened == (step == total), step  # the last one makes the end durable
    return total


def counts(path: Path, mode: str) -> dict[str, int] | None:
    """Events of each stream of a sound backup; None where it is refused."""
    try:
        found = {name: table.num_rows for name, table in contents(path, mode).items()}
    except NotAStore:
        return None
    assert (path / "server" / "tokens.json").exists()
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("present", [False, True], ids=["new", "empty"])
def test_a_backup_that_is_killed_at_any_step_opens_in_no_mode(path: Path, present: bool) -> None:
    """In a process of its own: RocksDB cannot write in children of one that has used it."""
    program = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n" + (
        "from pathlib import Path; import test_backup\n"
        f"print(test_backup.kill_everywhere(Path({str(path)!r}), {present}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 100
    shutil.rmtree(path.parent / "copy", ignore_errors=True)


def test_what_a_backup_left_is_no_target_for_another(path: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "UNFINISHED-BACKUP").touch()
    with chronicle.open(path, mode="r") as db, pytest.raises(InvalidArgument, match="cut short"):
        db.backup(tmp_path / "copy")


def test_backups_are_listed_with_what_they_hold(path: Path, tmp_path: Path) -> None:
    """A medium that cannot be written is read, and nothing is changed by looking."""
    place = tmp_path / "backups"
    before = time.strftime(MOMENT, time.gmtime())
    with chronicle.open(path) as db:
        db.backup(place / "first")
        db.stream("a").append(rows(2000, 10))
        db.drop_stream("c")
        db.backup(place / "second")
        db.backup(place / "torn")
        db.backup(place / "damaged")
    (place / "torn" / "UNFINISHED-BACKUP").touch()
    manifest = place / "damaged" / "streams" / "a" / "MANIFEST"
    manifest.write_bytes(manifest.read_bytes()[:-40])
    (place / "no backup").mkdir()
    (place / "file").touch()
    (place / "link").symlink_to(place / "first")
    mark = place / "first" / "CHRONICLE"
    body = read_manifest(RealFiles(str(place / "first")), "CHRONICLE")
    assert body is not None
    del body["copied_at"]  # of an older release: the time at which the mark was written
    write_manifest(RealFiles(str(place / "first")), "CHRONICLE", body)
    os.utime(mark / "MANIFEST", (86_400, 86_400))
    found = sorted(p.relative_to(place) for p in place.rglob("*"))
    backups = list_backups(place)
    assert (backups[0].name, backups[-1].name) == ("first", "torn")
    first, second, damaged, torn = (
        next(each for each in backups if each.name == name)
        for name in ("first", "second", "damaged", "torn")
    )
    assert sorted(p.relative_to(place) for p in place.rglob("*")) == found
    assert (first.state, first.made_at) == ("whole", "1970-01-02T00:00:00Z")
    assert first.streams == {"a": 1305, "b": 1305, "c": 1305}
    assert (second.state, second.streams) == ("whole", {"a": 1315, "b": 1305})
    assert second.made_at is not None
    assert before <= second.made_at <= time.strftime(MOMENT, time.gmtime())
    assert second.events == 2620
    assert second.bytes == sum(
        p.stat().st_size for p in (place / "second").rglob("*") if p.is_file()
    )
    assert damaged.state == "damaged"
    assert "streams/a/MANIFEST" in str(damaged.problem)
    assert (torn.state, torn.made_at) == ("unfinished", None)
    with pytest.raises(InvalidArgument, match="No such file"):
        list_backups(tmp_path / "nowhere")
    with chronicle.open(place / "second") as db:  # a store all the same, and still told from when
        db.stream("b").append(rows(3000, 7))
    again = next(each for each in list_backups(place) if each.name == "second")
    assert (again.made_at, again.streams["b"]) == (second.made_at, 1312)
