"""What a move takes of those beside it: priority, rests, the page cache, what readers remember."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import StorageFailed
from chronicle.store import (
    EventStream,
    Store,
    StreamOptions,
    background,
    moving,
    object_store,
)
from chronicle.store.cold_file import _waiting
from chronicle.store.commits import Commits
from chronicle.store.files import RealFiles, RealReadFile
from chronicle.store.moving import STEPS, standing_back
from chronicle.store.object_store import BUFFER_BYTES, DirectWriter, ObjectStore, contents
from chronicle.store.segment_file import SegmentFile
from chronicle.tests.patience import PATIENCE_S

from .conftest import SCHEMA, batch_of, numbers
from .test_folding import Rests

EVENTS = 60_000

linux = pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities on Linux")


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(f"file://{tmp_path}/objects")


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[EventStream]:
    """Several segments; the last of them stays where it is in each of these tests."""
    with Store.open(tmp_path / "store") as store:
        options = StreamOptions(codec="none", leaf_bytes=1024, segment_bytes=20 << 10)
        found = store.create_stream("s", SCHEMA, options)
        for first in range(0, EVENTS, 1000):
            found.append(batch_of(range(first, first + 1000), first))
        found.seal()
        assert len(found.commits.manifest.segments) > 3
        yield found


def recent(stream: EventStream) -> int:
    return int(stream.commits.manifest.segments.firsts[-1])


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


# ---------------------------------------------------------------------------------- priorities


class Noting:
    """Says of each call of a method in which thread, and how nice, it was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.calls: dict[str, set[tuple[int, int]]] = {}

    def note(
        self, owner: type, method: str, when: Callable[..., bool] = lambda *_, **__: True
    ) -> None:
        known: Callable[..., Any] = getattr(owner, method)

        def noted(*arguments: Any, **named: Any) -> Any:
            if when(*arguments, **named):
                self.calls.setdefault(method, set()).add((threading.get_ident(), niceness()))
            return known(*arguments, **named)

        self._patch.setattr(owner, method, noted)


@linux
def test_a_directory_is_written_by_threads_that_stand_back(
    stream: EventStream, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, before = threading.get_ident(), niceness()
    noting = Noting(monkeypatch)
    noting.note(RealReadFile, "read")
    noting.note(Commits, "count")
    noting.note(DirectWriter, "write", lambda _, data: len(data) > 10_000)  # no manifest
    assert stream.move(objects, "own", recent(stream)).segments >= 3
    lower = min(before + STEPS, moving.NICENESS_MAX)
    copying = noting.calls["read"] | noting.calls["write"]
    assert {nice for _, nice in noting.calls["read"]} == {lower}
    assert {nice for _, nice in noting.calls["write"]} == {lower}
    assert mine not in {thread for thread, _ in copying}
    assert noting.calls["count"] == {(mine, before)}  # with the stream's lock
    assert niceness() == before
    # what is begun by who has moved, and what queries wait for, does not stand back
    fresh: list[int] = []
    thread = threading.Thread(target=lambda: fresh.append(niceness()))
    thread.start()
    thread.join()
    assert [*fresh, _waiting.pool().submit(niceness).result()] == [before, before]


@linux
def test_requests_that_begin_threads_are_not_made_by_one_that_stands_back(
    stream: EventStream, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, before = threading.get_ident(), niceness()
    noting = Noting(monkeypatch)
    noting.note(ObjectStore, "put")
    noting.note(RealReadFile, "read")
    assert not ObjectStore("s3://bucket/prefix").in_this_thread
    objects.in_this_thread = False
    assert stream.move(objects, "own", recent(stream)).segments >= 3
    assert noting.calls["put"] == noting.calls["read"] == {(mine, before)}


def test_who_stands_back_tells_what_went_wrong() -> None:
    def fails() -> None:
        raise StorageFailed("no")

    with pytest.raises(StorageFailed, match="no"):
        standing_back(fails)
    assert standing_back(threading.get_ident) != threading.get_ident()


def test_where_priorities_are_refused_the_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: int) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(os, "setpriority", refused)
    assert standing_back(lambda: 7) == 7


def test_who_is_interrupted_waits_for_what_it_has_begun() -> None:
    """What the work goes on with, such as an open file, is closed only after its end."""
    entered, interrupted, go_on = (threading.Event() for _ in range(3))
    ended: list[bool] = []

    def work() -> None:
        entered.set()
        assert go_on.wait(PATIENCE_S)
        ended.append(True)

    def interrupt(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    def disturb(main: int) -> None:
        assert entered.wait(PATIENCE_S)
        # Python sees a signal that comes right before a lock is waited for when the lock is there
        while not interrupted.wait(0.05):
            signal.pthread_kill(main, signal.SIGUSR1)
        time.sleep(0.1)
        go_on.set()

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        disturbing = threading.Thread(target=disturb, args=(threading.get_ident(),))
        disturbing.start()
        with pytest.raises(KeyboardInterrupt):
            standing_back(work)
        assert ended == [True]
        disturbing.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


# --------------------------------------------------------------------------------------- rests


@pytest.mark.parametrize(
    ("others", "processors", "free", "rests"),
    [
        (1.0, 2, 1 << 60, True),
        (0.5, 2, 1 << 60, False),
        (1.0, 4, 1 << 60, False),
        (1.0, 2, 1000, False),  # no space is left for what comes
        (0.1, 1, 1 << 60, False),
        (0.9, 1, 1 << 60, True),
    ],
)
def test_moves_rest_while_processors_are_wanted(
    stream: EventStream,
    objects: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    others: float,
    processors: int,
    free: int,
    rests: bool,
) -> None:
    """One second for each piece, of which the move computes ten milliseconds."""
    ticks = iter((float(i), i * (others + 0.01), i * 0.01) for i in range(10_000))
    monkeypatch.setattr(moving.Pace, "_clocks", staticmethod(lambda: next(ticks)))
    monkeypatch.setattr(moving, "_processors", lambda: processors)
    monkeypatch.setattr(stream.commits.files, "free_bytes", lambda: free)
    stopped = Rests()
    monkeypatch.setattr(
        stream._compactor, "_pace", moving.Pace(stopped.wait, background.MOVING_SPARE)
    )
    moved = stream.move(objects, "own", recent(stream)).segments
    assert moved >= 3
    assert len(stopped.seconds) == (3 * moved if rests else 0)  # read, written, read back
    if rests:
        assert stopped.seconds[-1] == pytest.approx(moving.REST_FACTOR * 0.01)
    assert numbers(stream.snapshot()) == list(range(EVENTS))


def test_a_pace_in_another_thread_counts_only_what_it_has_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processor time of the thread before is none of this one's."""
    clock = [(0.0, 0.0, 0.0)]
    monkeypatch.setattr(moving.Pace, "_clocks", staticmethod(lambda: clock[-1]))
    monkeypatch.setattr(moving, "_processors", lambda: 2)
    stopped = Rests()
    asked = moving.Pace(stopped.wait, 1.25)
    clock.append((1.0, 1.9, 50.0))  # this thread has computed 50 seconds, but not for this
    thread = threading.Thread(target=asked, args=(lambda: False,))
    thread.start()
    thread.join()
    assert stopped.seconds == [0.0]


# ---------------------------------------------------------------------------------- page cache


def resident(path: Path) -> float:
    """The share of a file's pages that the system has in memory."""
    size = path.stat().st_size
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
        pages = -(-size // mmap.PAGESIZE)
        found = (ctypes.c_ubyte * pages)()
        begin = (ctypes.c_char * size).from_buffer(mapped)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            address = ctypes.c_void_p(ctypes.addressof(begin))
            assert libc.mincore(address, ctypes.c_size_t(size), found) == 0
        finally:
            del begin
        return sum(page & 1 for page in found) / pages


def knows_direct(path: Path) -> bool:
    """Whether files here can go past the cache; one in memory takes the flag, and has no other."""
    probe = path / "probe"
    try:
        file = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
    except OSError:
        return False
    try:
        with mmap.mmap(-1, BUFFER_BYTES) as buffer:
            os.write(file, buffer)
    except OSError:
        return False
    finally:
        os.close(file)
    return resident(probe) < 0.1


def some_parts(rng: random.Random, total: int) -> Iterator[bytes]:
    left = total
    while left:
        size = min(left, rng.choice([0, 1, 511, 4096, 70_001, BUFFER_BYTES, BUFFER_BYTES + 5]))
        left -= size
        yield rng.randbytes(size)


def refuse_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    known = fcntl.fcntl

    def refused(descriptor: int, command: int, flags: int = 0) -> int:
        if command == fcntl.F_SETFL and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "this file system has none of it")
        return known(descriptor, command, flags)

    monkeypatch.setattr(object_store.fcntl, "fcntl", refused)


def refuse_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that takes the flag, and none of the calls after it."""
    write, read = os.write, os.preadv

    def direct(descriptor: int) -> bool:
        return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)

    def refused_write(descriptor: int, data: Any) -> int:
        if direct(descriptor):
            raise OSError(errno.EINVAL, "blocks of another size")
        return write(descriptor, data)

    def refused_read(descriptor: int, buffers: Any, offset: int) -> int:
        if direct(descriptor):
            raise OSError(errno.EINVAL, "blocks of another size")
        return read(descriptor, buffers, offset)

    monkeypatch.setattr(object_store.os, "write", refused_write)
    monkeypatch.setattr(object_store.os, "preadv", refused_read)


def cut_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes and gives less than it is asked."""
    write, read = os.write, os.preadv
    rng = random.Random(3)

    def some(size: int) -> int:
        return min(size, rng.choice([4096, 8192, 100_000]))

    monkeypatch.setattr(
        object_store.os, "write", lambda file, data: write(file, data[: some(len(data))])
    )

    def less(file: int, buffers: Any, offset: int) -> int:
        view = memoryview(buffers[0])
        return read(file, [view[: some(len(view))]], offset)

    monkeypatch.setattr(object_store.os, "preadv", less)


@linux
@pytest.mark.parametrize("disk", [None, refuse_flag, refuse_calls, cut_calls])
@pytest.mark.parametrize("total", [0, 1, 4096, BUFFER_BYTES, 2 * BUFFER_BYTES + 8192, 3_333_333])
def test_a_file_past_the_cache_has_all_bytes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    total: int,
    disk: Callable[[pytest.MonkeyPatch], None] | None,
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"another that was longer" * 200_000)
    parts = list(some_parts(random.Random(total), total))
    with monkeypatch.context() as patch:
        if disk is not None:
            disk(patch)
        with DirectWriter(str(path)) as writer:
            for part in parts:
                writer.write(memoryview(part))
            writer.sync()
        assert b"".join(bytes(piece) for piece in contents(str(path))) == b"".join(parts)
    assert path.read_bytes() == b"".join(parts)


@linux
def test_a_disk_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = ObjectStore(f"file://{tmp_path}")

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "no space")

    objects.put("a", [bytes(10)])
    with monkeypatch.context() as patch:
        patch.setattr(object_store.os, "write", full)
        with pytest.raises(StorageFailed, match="could not write"):
            objects.put("a", [bytes(2 * BUFFER_BYTES)])
        patch.setattr(object_store.os, "preadv", full)
        with pytest.raises(StorageFailed, match="could not read"):
            list(objects.contents("a", 10))
    assert objects.read("a", 0, 10) == bytes(10)  # the one before


@linux
def test_objects_in_a_directory_take_no_page_cache(tmp_path: Path) -> None:
    if not knows_direct(tmp_path):
        pytest.skip("this file system has no way past the cache of pages")
    objects = ObjectStore(f"file://{tmp_path}/objects")
    content = random.Random(1).randbytes(6 * BUFFER_BYTES + 5)
    objects.put("segment", [content])
    assert b"".join(bytes(each) for each in objects.contents("segment", len(content))) == content
    assert resident(tmp_path / "objects" / "segment") < 0.1
    (tmp_path / "other").write_bytes(content)
    assert resident(tmp_path / "other") > 0.9  # or nothing was looked at


# --------------------------------------------------------------------- what readers remember


def test_what_readers_remember_stays(
    stream: EventStream, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While others move, and afterwards, a hot segment is read without a block verified anew."""
    commits = stream.commits
    hot = commits.views[int(commits.manifest.segments.ids[-1])]
    first = recent(stream)

    def asked() -> list[int]:
        snapshot = stream.snapshot()
        assert snapshot.aggregate(["n"], first, EVENTS).count == EVENTS - first
        return [n for b in snapshot.scan(first, EVENTS, ["n"]) for n in b.column(0).to_pylist()]

    assert asked() == list(range(first, EVENTS))
    epoch, manifest, published = hot.file.epoch, commits.manifest, commits.published
    built: list[str] = []
    remember = SegmentFile._remember

    def remembered(self: SegmentFile, offset: int, block: Any) -> None:
        built.append(self.path)
        remember(self, offset, block)

    monkeypatch.setattr(SegmentFile, "_remember", remembered)
    put, during = ObjectStore.put, []

    def putting(self: ObjectStore, key: str, parts: Iterable[Any]) -> None:
        during.append(asked())
        put(self, key, parts)

    monkeypatch.setattr(ObjectStore, "put", putting)
    moved = stream.move(objects, "own", first).segments
    assert len(during) > 2 * moved >= 6
    assert all(found == list(range(first, EVENTS)) for found in [*during, asked()])
    assert hot.file.path not in built
    assert hot.file.epoch is epoch
    assert (commits.manifest, commits.published) == (manifest, published)
    assert commits.manifest is manifest
    assert commits.published is published
    list(stream.snapshot().scan(0, first, ["n"]))  # those that have moved are read anew
    assert len(set(built)) == moved


def test_hot_files_are_not_read_by_a_move(
    stream: EventStream, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = stream.commits.views[int(stream.commits.manifest.segments.ids[-1])].file.path
    opened: list[str] = []
    known = RealFiles.open

    def noted(self: RealFiles, path: str) -> RealReadFile:
        opened.append(path)
        return known(self, path)

    monkeypatch.setattr(RealFiles, "open", noted)
    assert stream.move(objects, "own", recent(stream)).segments >= 3
    assert opened
    assert hot not in opened
