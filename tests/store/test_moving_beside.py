"""What a move takes of those beside it: rests, the page cache, what readers remember."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import StorageFailed
from chronicle.store import background, moving
from chronicle.store.files import RealFiles, RealReadFile
from chronicle.store.object_store import PIECE_BYTES, ObjectStore
from chronicle.store.options import StreamOptions
from chronicle.store.segment_file import SegmentFile
from chronicle.store.store import Store
from chronicle.store.stream import EventStream

from .conftest import SCHEMA, batch_of, numbers
from .test_folding import Rests

EVENTS = 60_000


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
    monkeypatch.setattr(moving, "processors", lambda: processors)
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
    monkeypatch.setattr(moving, "processors", lambda: 2)
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


def test_a_disk_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = ObjectStore(f"file://{tmp_path}")

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "no space")

    objects.put("a", [bytes(10)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageFailed, match="could not write"):
            objects.put("a", [bytes(20)])
    assert objects.read("a", 0, 10) == bytes(10)  # the one before
    (tmp_path / "a").unlink()
    with pytest.raises(StorageFailed, match="could not read"):
        list(objects.contents("a", 10))


def drops_pages(path: Path) -> bool:
    """Whether pages of files here leave the cache; files in memory have no other place."""
    with path.open("wb") as file:
        file.write(bytes(PIECE_BYTES))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return resident(path) < 0.1


@pytest.mark.parametrize("total", [0, 1, 3_333_333, 2 * PIECE_BYTES + 5])
def test_objects_in_a_directory_take_no_page_cache(tmp_path: Path, total: int) -> None:
    objects = ObjectStore(f"file://{tmp_path}/objects")
    content = random.Random(1).randbytes(total)
    objects.put("segment", [content[:100], memoryview(content)[100:]])
    assert b"".join(objects.contents("segment", len(content))) == content
    assert objects.size("segment") == total
    if total > PIECE_BYTES and drops_pages(tmp_path / "probe"):
        assert resident(tmp_path / "objects" / "segment") < 0.1


# --------------------------------------------------------------------- what readers remember


def test_what_readers_remember_stays(
    stream: EventStream, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While others move, and afterwards, a hot segment is read without a block verified anew."""
    commits = stream.commits
    hot = commits.views.view(commits.manifest.segments[-1])
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
    hot = stream.commits.views.view(stream.commits.manifest.segments[-1]).file.path
    opened: list[str] = []
    known = RealFiles.open

    def noted(self: RealFiles, path: str) -> RealReadFile:
        opened.append(path)
        return known(self, path)

    monkeypatch.setattr(RealFiles, "open", noted)
    assert stream.move(objects, "own", recent(stream)).segments >= 3
    assert opened
    assert hot not in opened
