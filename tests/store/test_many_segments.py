"""Streams of many segments: in pages, opened when they are looked at, few of them open at once.

The numbers from which on a stream counts as large are made small here, so that what holds for a
hundred thousand segments is tried with a dozen.
"""

from __future__ import annotations

import gc
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import CorruptStore, SnapshotExpired, UnsupportedFormat
from chronicle.schema import StreamSchema
from chronicle.store import manifest_pages
from chronicle.store import segment_views as views_module
from chronicle.store.backup import backup_store
from chronicle.store.catalog import read_manifest
from chronicle.store.files import RealFiles
from chronicle.store.manifest_pages import read_pages, read_roots, write_pages
from chronicle.store.options import StreamOptions
from chronicle.store.pins import open_pinned, pin_stream
from chronicle.store.recovery import load
from chronicle.store.segment import Root
from chronicle.store.segment_file import OpenFiles, open_files
from chronicle.store.segment_list import SegmentEntry, SegmentList
from chronicle.store.segment_views import RootRun, SegmentViews, open_entry
from chronicle.store.snapshot import Snapshot, StreamState
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles, SimulatedCrash
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

from .conftest import numbers

SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64()), ("x", pa.float64())]), "t")
OPTIONS = StreamOptions(compaction="manual")
EVENTS = 5


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


def make_small(monkeypatch: pytest.MonkeyPatch, kept: int = 256) -> None:
    monkeypatch.setattr(views_module, "OPENED_MAX", 0)
    monkeypatch.setattr(views_module, "KEPT_OPEN_MAX", kept)
    monkeypatch.setattr(views_module, "VIEWS_REMEMBERED", 2)
    monkeypatch.setattr(manifest_pages, "INLINE_SEGMENTS", 2)
    monkeypatch.setattr(manifest_pages, "PAGE_SEGMENTS", 4)
    monkeypatch.setattr(open_files, "limit", 3)


def batch(number: int, events: int = EVENTS) -> pa.RecordBatch:
    ticks = np.arange(number * EVENTS, number * EVENTS + events)
    return pa.RecordBatch.from_arrays(
        [pa.array(ticks), pa.array(ticks * 3), pa.array(ticks * 0.1)], schema=SCHEMA.arrow
    )


def filled(store: Store, count: int, options: StreamOptions = OPTIONS) -> EventStream:
    stream = store.create_stream("s", SCHEMA, options)
    for number in range(count):
        stream.append(batch(number))
        stream.seal()
    return stream


def expected(*segments: int) -> list[int]:
    return [3 * t for number in segments for t in range(number * EVENTS, (number + 1) * EVENTS)]


def pages_in(files: MemoryFiles | RealFiles, directory: str = "streams/s") -> list[str]:
    return [name for name in files.list(directory) if name.endswith(".page")]


# -- the stream as a whole ------------------------------------------------------------------------


def test_closing_a_stream_ends_its_snapshots(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        before = filled(store, 6).snapshot()
        assert numbers(before) == expected(*range(6))
    with Store.open("memory", files=memory) as store:
        stream = store.stream("s")
        assert isinstance(stream, EventStream)
        held = stream.snapshot()
        stream.delete()
        stream.append(batch(6))
        stream.seal()
        assert numbers(held) == expected(*range(6))
        with pytest.raises(SnapshotExpired, match=r"\.seg was removed"):
            numbers(before)


def test_a_commit_writes_the_last_page_and_the_manifest(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        stream = filled(store, 11)
        before = {name: memory.read(f"streams/s/{name}") for name in pages_in(memory)}
        listed = stream.commits.manifest.segments.pages
        stream.append(batch(11))
        stream.seal()
        after = {name: memory.read(f"streams/s/{name}") for name in pages_in(memory)}
        now = stream.commits.manifest.segments.pages
        assert now[:-1] == listed[:-1]
        assert now[-1] != listed[-1]
        assert set(after) == {page.file for page in now}  # the old one has gone
        assert all(before[page.file] == after[page.file] for page in listed[:-1])
        body = read_manifest(memory, "streams/s")
        assert body is not None
        assert body["needs"] == 5
        assert "segments" not in body
        assert numbers(stream.snapshot()) == expected(*range(12))


def test_few_segments_are_in_the_manifest_again_and_older_releases_read_it(
    memory: MemoryFiles,
) -> None:
    with Store.open("memory", files=memory) as store:
        stream = filled(store, 9)
        assert json.loads(memory.read("streams/s/MANIFEST"))["version"] == 5
        stream.delete(0, 8 * EVENTS)
        body = read_manifest(memory, "streams/s")
        assert body is not None
        assert [entry["events"] for entry in body["segments"]] == [EVENTS]
        assert json.loads(memory.read("streams/s/MANIFEST"))["version"] == 1
        assert pages_in(memory) == []
    with Store.open("memory", files=memory) as store:
        assert numbers(store.stream("s").snapshot()) == expected(8)


def test_a_manifest_from_before_is_read_and_has_pages_from_the_next_commit_on(
    memory: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(manifest_pages, "INLINE_SEGMENTS", 1000)
        with Store.open("memory", files=memory) as store:
            filled(store, 9)
    assert json.loads(memory.read("streams/s/MANIFEST"))["version"] == 1
    with Store.open("memory", "r", files=memory) as store:
        assert numbers(store.stream("s").snapshot()) == expected(*range(9))
    with Store.open("memory", files=memory) as store:
        stream = store.stream("s")
        assert isinstance(stream, EventStream)
        assert numbers(stream.snapshot()) == expected(*range(9))
        assert pages_in(memory) == []
        stream.append(batch(9))
        stream.seal()
        assert len(pages_in(memory)) == 3
    with Store.open("memory", files=memory) as store:
        assert numbers(store.stream("s").snapshot()) == expected(*range(10))
        assert store.check().ok


@pytest.mark.parametrize(
    "fault", ["crash_before", "crash_halfway", "crash_after", "eio", "enospc", "fsync"]
)
def test_a_commit_of_pages_is_whole_or_nothing(fault: str) -> None:
    memory = MemoryFiles()
    with Store.open("memory", files=memory) as store:
        filled(store, 8)
    done, after = False, 0
    seen = set()
    while not done:
        after += rounds(2, 1)
        inner = memory.kill()
        files = FaultyFiles(inner)
        store = Store.open("memory", files=files)
        stream = store.stream("s")
        assert isinstance(stream, EventStream)
        stream.append(batch(8))
        files.plan = FaultPlan(fault, files.operations + after)  # type: ignore[arg-type]
        try:
            stream.seal()
            done = files.operations < files.plan.operation
        except (SimulatedCrash, OSError):
            pass
        modes = ("lose", "keep", "tear") if fault.startswith("crash") else ("keep",)
        for seed, mode in enumerate(modes):
            left = inner.crash(random.Random(seed), mode)  # type: ignore[arg-type]
            with Store.open("memory", files=left) as again:
                found = again.stream("s")
                assert isinstance(found, EventStream)
                assert numbers(found.snapshot()) == expected(*range(9)), (after, mode)
                named = {page.file for page in found.commits.manifest.segments.pages}
                assert set(pages_in(left)) == named
                assert again.check().ok
                seen.add(len(found.commits.manifest.segments))
    assert seen == {8, 9}


# -- opening --------------------------------------------------------------------------------------


class Counted(MemoryFiles):
    """Notes which segments are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: str) -> object:  # type: ignore[override]
        if path.endswith(".seg"):
            self.opened.append(path)
        return super().open(path)


def test_only_what_is_looked_at_is_opened() -> None:
    files = Counted()
    with Store.open("memory", files=files) as store:
        filled(store, 20)
    files.opened.clear()
    for mode in ("r", "rw"):
        with Store.open("memory", mode, files=files) as store:
            snapshot = store.stream("s").snapshot()
            assert snapshot.count == 20 * EVENTS
            assert snapshot.time_range == (0, 20 * EVENTS - 1)
            assert files.opened == []
            assert list(snapshot.scan(7 * EVENTS, 8 * EVENTS, ["t"]))
            assert len(set(files.opened)) == 1
            files.opened.clear()


def test_an_aggregate_over_whole_segments_opens_those_at_its_ends() -> None:
    files = Counted()
    with Store.open("memory", files=files) as store:
        filled(store, 20)
    with Store.open("memory", "r", files=files) as store:
        snapshot = store.stream("s").snapshot()
        files.opened.clear()
        whole = snapshot.aggregate(["n", "x"])
        assert files.opened == []
        assert whole.count == 20 * EVENTS
        assert whole["n"].sum == sum(expected(*range(20)))
        part = snapshot.aggregate(["n", "x"], 12, 83)
        assert len(set(files.opened)) == 2
        assert (part.count, part["n"].sum) == (71, 3 * sum(range(12, 83)))
        assert (part["n"].min, part["n"].max, part.first, part.last) == (36, 246, 12, 82)


@settings(max_examples=rounds(6, 60), deadline=None)
@given(st.integers(-5, 130), st.integers(-5, 130), st.sets(st.integers(0, 23)))
def test_roots_of_pages_say_what_the_segments_say(start: int, end: int, unknown: set[int]) -> None:
    """Against each segment asked by itself, with roots that no page has here and there."""
    stream, plain = _both_ways(frozenset(unknown))
    found = stream.aggregate(["n", "x"], start, end)
    wanted = plain.aggregate(["n", "x"], start, end)
    assert found.words.tolist() == wanted.words.tolist()


_KNOWN: dict[frozenset[int], tuple[Snapshot, Snapshot]] = {}


def _both_ways(unknown: frozenset[int]) -> tuple[Snapshot, Snapshot]:
    if unknown not in _KNOWN:
        memory = MemoryFiles()
        with pytest.MonkeyPatch.context() as patched:
            make_small(patched)
            store = Store.open("memory", files=memory)
            stream = filled(store, 24)
            commits = stream.commits
            segments = commits.manifest.segments
            seen = {segments[i].id for i in unknown}

            def root_of(entry: SegmentEntry) -> Root | None:
                return None if entry.id in seen else commits.views.view(entry).root()

            numbers(stream.snapshot())
            for view in commits.views.sequence(segments):
                _ = view.tree
            trees = [commits.views.view(entry) for entry in segments]
            for view in trees:
                _ = view.tree
            paged = write_pages(
                memory, "streams/s", 999, commits.manifest.identity,
                segments.paged(()), SegmentList.of(()), root_of,
            )  # fmt: skip
            state = commits.state()
            views = commits.views.sequence(paged)
            plain = Snapshot(_with(state, commits.views.sequence(segments.paged(()))))
            _KNOWN[unknown] = Snapshot(_with(state, views)), plain
    return _KNOWN[unknown]


def _with(state: StreamState, segments: object) -> StreamState:
    from dataclasses import replace

    return replace(state, segments=segments)  # type: ignore[arg-type]


def test_the_parts_of_a_range_are_its_segments(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        stream = filled(store, 9)
        views = stream.snapshot().state.segments
        assert isinstance(views, SegmentViews)
        parts = list(views.parts(7, 33))
        assert any(isinstance(part, RootRun) for part in parts)
        covered: list[int] = []
        for part in parts:
            if isinstance(part, RootRun):
                covered += range(part.first, part.end)
            else:
                covered.append(views.entries.find(part.file.segment_id) or 0)
        assert covered == [1, 2, 3, 4, 5, 6]


def test_columns_that_came_later_are_made_for_roots_too(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        stream = filled(store, 9)
        stream.add_attribute("late", pa.int32())
        assert stream.snapshot().aggregate(["late", "n"])["late"].count == 0
        stream.add_attribute("seven", pa.int64(), default=7)
        found = stream.snapshot().aggregate(["seven", "n"])
        assert (found["seven"].sum, found["n"].sum) == (7 * 45, sum(expected(*range(9))))
    with Store.open("memory", files=memory) as store:
        found = store.stream("s").snapshot().aggregate(["seven", "n"])
        assert (found["seven"].sum, found["n"].sum) == (7 * 45, sum(expected(*range(9))))


def test_few_files_are_open_at_once(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        stream = filled(store, 30)
        gc.collect()
        for _ in range(2):
            assert numbers(stream.snapshot()) == expected(*range(30))
            assert _segments_open(tmp_path) <= 2 * (open_files.limit + 2)
    with Store.open(tmp_path / "store", "r") as store:
        assert numbers(store.stream("s").snapshot()) == expected(*range(30))
        assert _segments_open(tmp_path) <= 2 * (open_files.limit + 2)


def _segments_open(path: Path) -> int:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return sum(each.startswith(str(path)) and ".seg" in each for each in found)


class _File:
    def __init__(self, pool: OpenFiles, busy: bool = False) -> None:
        self.read_since, self.open, self.busy = False, True, busy
        pool.opened(self)

    def let_go(self) -> bool:
        self.open = self.busy
        return not self.busy


def test_the_oldest_that_was_not_read_is_closed() -> None:
    pool = OpenFiles(3)
    one, two, three = (_File(pool) for _ in range(3))
    one.read_since = True
    four = _File(pool)
    assert [each.open for each in (one, two, three, four)] == [True, False, True, True]
    busy = _File(pool, busy=True)
    later = [_File(pool) for _ in range(5)]
    assert busy.open
    assert sum(each.open for each in (one, two, three, four, *later)) <= 3


# -- what is read while it is replaced ------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 256])
@pytest.mark.parametrize("change", ["delete", "truncate", "rewrite"])
def test_snapshots_stay_as_they_are(
    kept: int, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch, kept)
    with Store.open(tmp_path / "store") as store:
        stream = filled(store, 12)
        before = stream.snapshot()
        if change == "delete":
            stream.delete(0, 6 * EVENTS)
        elif change == "truncate":
            stream.delete(None, None)
        else:
            stream.append(batch(3))  # late
            stream.compact()
        assert numbers(before) == expected(*range(12))
        now = numbers(stream.snapshot())
        del before
        gc.collect()
        stream.append(batch(20))
        stream.seal()
        left = [name for name in os.listdir(tmp_path / "store/streams/s") if name.endswith(".seg")]
        assert len(left) == len(stream.commits.manifest.segments)
        assert numbers(stream.snapshot()) == now + expected(20)


def test_a_reader_elsewhere_keeps_its_version(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        stream = filled(store, 12)
        with Store.open(tmp_path / "store", "r") as other:
            reader = other.stream("s")
            before = reader.snapshot()
            stream.delete(0, 6 * EVENTS)
            assert numbers(before) == expected(*range(12))
            reader.refresh()  # type: ignore[union-attr]
            assert numbers(reader.snapshot()) == expected(*range(6, 12))
            assert numbers(before) == expected(*range(12))
        del before, reader
        gc.collect()
        assert os.listdir(tmp_path / "store/streams/s/readers") == []


def test_pins_and_backups_have_all_segments(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        stream = filled(store, 12)
        pin = pin_stream(store.files, "streams/s")
        stream.delete(0, 6 * EVENTS)
        assert numbers(open_pinned(store.files, pin)) == expected(*range(12))
        assert numbers(open_pinned(store.files, pin, 0, EVENTS)) == expected(0)
        stream.append(batch(12))
        stream.seal()
        backup_store(store, tmp_path / "copy")
    with Store.open(tmp_path / "copy") as copy:
        found = copy.stream("s")
        assert isinstance(found, EventStream)
        assert numbers(found.snapshot()) == expected(*range(6, 13))
        assert found.commits.manifest.segments.pages
        assert copy.check().ok


# -- damage ---------------------------------------------------------------------------------------


def test_a_segment_that_is_missing_shows_when_the_stream_is_opened(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        name = filled(store, 9).commits.manifest.segments[4].file
    memory.remove(f"streams/s/{name}")
    with (
        Store.open("memory", files=memory) as store,
        pytest.raises(CorruptStore, match=rf"damaged and set aside.*{name} is missing"),
    ):
        store.stream("s")
    with Store.open("memory", "r", files=memory) as store:
        snapshot = store.stream("s").snapshot()
        assert list(snapshot.scan(0, EVENTS, ["t"]))
        with pytest.raises(CorruptStore, match=f"{name} is missing"):
            numbers(snapshot)


def test_a_segment_in_the_place_of_another_shows_when_it_is_read(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        segments = filled(store, 9).commits.manifest.segments
    data = memory.read(f"streams/s/{segments[2].file}")
    memory.remove(f"streams/s/{segments[4].file}")
    with memory.create(f"streams/s/{segments[4].file}") as file:
        file.write(data)
    with Store.open("memory", files=memory) as store:
        with pytest.raises(CorruptStore, match=segments[4].file):
            numbers(store.stream("s").snapshot())
        assert not store.check().ok


def test_a_segment_holds_what_the_manifest_says(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        manifest = filled(store, 4).commits.manifest
        for wrong in ({"events": 6}, {"first": 4}, {"last": 10}):
            entry = replace(manifest.segments[1], **wrong)
            view = open_entry(memory, "streams/s", manifest, entry, later=True)
            with pytest.raises(CorruptStore, match="the manifest says"):
                _ = view.fragments


def test_no_flipped_bit_of_a_page_passes(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        manifest = filled(store, 4).commits.manifest
    (page,) = manifest.segments.pages
    path = f"streams/s/{page.file}"
    data = memory.read(path)
    body = read_manifest(memory, "streams/s")
    assert body is not None

    def look(files: MemoryFiles) -> None:
        read_pages(files, "streams/s", body["pages"], manifest.identity)
        read_roots(files, "streams/s", page)

    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        memory.remove(path)
        with memory.create(path) as file:
            file.write(bytes(damaged))
        with pytest.raises((CorruptStore, UnsupportedFormat), match=page.file):
            look(memory)
    for length in (0, 10, 64, 200, len(data) - 1):
        memory.remove(path)
        with memory.create(path) as file:
            file.write(data[:length])
        with pytest.raises(CorruptStore, match=page.file):
            look(memory)


@pytest.mark.parametrize("how", ["missing", "older", "as large", "of another stream"])
def test_pages_that_are_not_those_that_were_written(how: str, memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        stream = filled(store, 3)
        older = memory.read(f"streams/s/{stream.commits.manifest.segments.pages[-1].file}")
        stream.append(batch(3))
        stream.seal()
        if how == "as large":  # three segments again, and not the same ones
            stream.delete(0, EVENTS)
        other = store.create_stream("other", SCHEMA, OPTIONS)
        for number in range(4):
            other.append(batch(number))
            other.seal()
        strange = memory.read(f"streams/other/{other.commits.manifest.segments.pages[-1].file}")
        path = f"streams/s/{stream.commits.manifest.segments.pages[-1].file}"
    memory.remove(path)
    if how != "missing":
        with memory.create(path) as file:
            file.write(strange if how == "of another stream" else older)
    for mode in ("rw", "r"):
        with Store.open("memory", mode, files=memory) as store:
            with pytest.raises(CorruptStore, match="page"):
                store.stream("s")
            assert numbers(store.stream("other").snapshot()) == expected(*range(4))


def test_a_load_names_pages_of_one_version(memory: MemoryFiles) -> None:
    """A writer that replaces manifest and pages meanwhile makes a reader begin again."""
    with Store.open("memory", files=memory) as store:
        stream = filled(store, 9)
        read, turns = memory.read, iter(range(100))

        def replaced(path: str) -> bytes:
            data = read(path)
            if path.endswith("MANIFEST") and next(turns) < 3:
                stream.append(batch(next(counter)))
                stream.seal()
            return data

        counter: Iterator[int] = iter(range(9, 100))
        changed: Callable[[str], bytes] = replaced
        memory.read = changed  # type: ignore[method-assign]
        try:
            found = load(memory, "streams/s")
        finally:
            memory.read = read  # type: ignore[method-assign]
        assert len(found.manifest.segments) >= 9
