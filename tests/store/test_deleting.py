"""Deletes: what they cost, what they leave in files, and who may not delete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.errors import CorruptBlock, SnapshotExpired, StoreClosed, StreamOwned
from chronicle.store import deletions
from chronicle.store.changes import new_events, new_ranges
from chronicle.store.compaction import spill
from chronicle.store.deleting import Choice
from chronicle.store.deletions import (
    RecordedDeletion,
    RecordedDeletions,
)
from chronicle.store.dictionary import DictionaryBuilder, read_page
from chronicle.store.layout import Codec
from chronicle.store.lock import ReaderLease
from chronicle.store.options import StreamOptions
from chronicle.store.pins import Pin, pin_stream
from chronicle.store.snapshot import Snapshot
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.faulty_files import FaultyFiles
from chronicle.tests.memory_files import MemoryFiles

from .conftest import SCHEMA, chosen, numbered, numbers

OPTIONS = StreamOptions(
    codec="none", leaf_bytes=1024, segment_bytes=8192, late_events_max=40, compaction="manual"
)
LONG = os.environ.get("CHRONICLE_CRASH") == "long"
PERSON = "Ada, whom nobody may find"


def batch_of(times: list[int], first: int) -> pa.RecordBatch:
    numbers = range(first, first + len(times))
    names = [PERSON if n % 7 == 0 else f"somebody {n % 5}" for n in numbers]
    columns = [pa.array(times, pa.int64()), pa.array(numbers, pa.int64()), pa.array(names)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow)


def of(person: str) -> Choice:
    return chosen(lambda batch: np.array(batch.column("s").to_pylist()) == person)


class Filled:
    """A stream with segments, late runs, a late buffer, leaves and a tail, of a person's, too."""

    def __init__(self, files: MemoryFiles | FaultyFiles) -> None:
        self.files = files
        self.store = Store.open("memory", files=files)
        stream = self.store.create_stream("s", SCHEMA, OPTIONS)
        assert isinstance(stream, EventStream)
        self.stream = stream
        self.events: list[tuple[int, int]] = []
        self.append([i // 3 for i in range(900)])
        self.append([200 - i // 4 for i in range(60)])
        self.append([300 + i // 2 for i in range(300)])
        self.append([290, 120, 121])
        self.append([450, 450, 451])

    def append(self, times: list[int]) -> None:
        first = len(self.events)
        self.events += [(t, first + i) for i, t in enumerate(times)]
        self.stream.append(batch_of(times, first))

    @property
    def kept(self) -> list[int]:
        return [n for t, n in sorted(self.events, key=lambda e: e[0]) if n % 7]

    @property
    def all(self) -> list[int]:
        return [n for _, n in sorted(self.events, key=lambda e: e[0])]


def holding(files: MemoryFiles, what: str = PERSON) -> list[str]:
    """Files that hold some text."""
    found, directories = [], ["streams/s"]
    for directory in directories:
        for name in files.list(directory):
            path = f"{directory}/{name}"
            try:
                if what.encode() in files.read(path):
                    found.append(name)
            except (OSError, IsADirectoryError):
                directories.append(path)
    return found


def test_no_file_holds_what_was_deleted() -> None:
    memory = MemoryFiles()
    filled = Filled(memory)
    assert {name[-4:] for name in holding(memory)} == {".seg", ".wal"}
    deleted = len(filled.all) - len(filled.kept)
    assert filled.stream.delete(choose=of(PERSON)) == deleted
    assert numbers(filled.stream.snapshot()) == filled.kept
    assert holding(memory) == []
    assert filled.stream.stats()["deleted_events"] == deleted
    assert filled.stream.delete(choose=of(PERSON)) == 0
    assert filled.store.check().ok
    filled.store.close()
    assert holding(memory) == []


def test_a_reader_keeps_what_it_saw_and_files_go_with_it() -> None:
    memory = MemoryFiles()
    filled = Filled(memory)
    version = filled.stream.stats()["manifest_version"]
    lease = ReaderLease.take(memory, "streams/s", version)
    before = filled.stream.snapshot()
    filled.stream.delete(choose=of(PERSON))
    assert holding(memory) != []
    assert any(name.endswith(".gone") for name in memory.list("streams/s"))
    assert numbers(before) == filled.all
    assert numbers(filled.stream.snapshot()) == filled.kept
    report = filled.store.check()
    assert (report.deleted_events, report.replaced_files > 1) == (
        len(filled.all) - len(filled.kept),
        True,
    )
    lease.release()
    filled.stream.compact()
    assert filled.store.check().replaced_files == 0
    assert holding(memory) == []
    assert not any(name.endswith(".gone") for name in memory.list("streams/s"))
    assert numbers(before) == filled.all
    filled.store.close()


def test_a_range_costs_a_commit_and_the_segments_at_its_ends() -> None:
    filled = Filled(MemoryFiles())
    filled.stream.compact()
    for _ in range(7):
        filled.append([filled.events[-1][0] + i // 3 for i in range(200)])
        filled.stream.seal()
    entries = filled.stream.commits.manifest.segments
    assert len(entries) > 6
    rewritten = filled.stream.stats()["events_rewritten"]
    version = filled.stream.stats()["manifest_version"]
    start, end = entries[2].first, entries[4].last
    between = sum(start <= t <= end for t, _ in filled.events)
    assert filled.stream.delete(start, end + 1) == between
    ends = sum(e.events for e in (entries[1], entries[5]) if e.last >= start and e.first <= end)
    stats = filled.stream.stats()
    assert stats["manifest_version"] == version + 1
    assert stats["events_rewritten"] - rewritten <= ends
    kept = [n for t, n in sorted(filled.events, key=lambda e: e[0]) if not start <= t <= end]
    assert numbers(filled.stream.snapshot()) == kept
    filled.store.close()


def test_what_has_nothing_in_it_is_not_rewritten() -> None:
    filled = Filled(MemoryFiles())
    entries = filled.stream.commits.manifest
    one = filled.stream.snapshot().version
    assert filled.stream.delete(choose=numbered({5})) == 1
    after = filled.stream.commits.manifest
    assert after.runs == entries.runs
    assert after.segments[1:] == entries.segments[1:]
    assert filled.stream.snapshot().version == one + 1
    assert filled.stream.delete(10_000, 20_000) == 0
    assert filled.stream.delete(5, 5) == 0
    assert filled.stream.snapshot().version == one + 1
    filled.store.close()


def test_appends_go_on_and_what_they_bring_stays() -> None:
    """Late events of the range that come while segments are written, told to a follower once."""
    memory = MemoryFiles()
    filled = Filled(memory)
    filled.stream.compact()
    before = pin_stream(memory, "streams/s")
    gone = {n for t, n in filled.events if 50 <= t < 250}
    come: list[int] = []
    meanwhile: list[Pin] = []
    kept = filled.stream.commits.seal_writer

    def appending(writer: object) -> object:
        if not come:
            come.append(len(filled.events))
            filled.append([100, 451, 452])
            come.append(len(filled.events))
            meanwhile.append(pin_stream(memory, "streams/s"))
            assert filled.stream.snapshot().count == len(filled.events)
        return kept(writer)  # type: ignore[arg-type]

    filled.stream.commits.seal_writer = appending  # type: ignore[method-assign,assignment]
    assert filled.stream.delete(50, 250) == len(gone)
    del filled.stream.commits.seal_writer
    assert numbers(filled.stream.snapshot()) == [n for n in filled.all if n not in gone]
    after = pin_stream(memory, "streams/s")
    assert told(memory, before, after) == list(range(*come))
    assert told(memory, meanwhile[0], after) == []
    filled.store.close()


def told(files: MemoryFiles, before: Pin, after: Pin) -> list[int]:
    return [
        n
        for part in new_ranges(files, before, after)
        for batch in new_events(files, before, after, part.start, part.end, ["n"])
        for n in batch.column(0).to_pylist()
    ]


def test_a_tick_that_ends_one_segment_and_begins_the_next() -> None:
    filled = Filled(MemoryFiles())
    filled.stream.compact()
    for _ in range(2):  # too large to be joined
        filled.append([500] * 2000)
        filled.stream.seal()
        assert filled.stream.commits.manifest.segments[-1].bytes > OPTIONS.segment_bytes // 2
    filled.append([500] * 10 + [501])
    gone = {len(filled.events) - 15, len(filled.events) - 3}  # of the second, and of the tail
    assert filled.stream.delete(choose=numbered(gone)) == 2
    assert numbers(filled.stream.snapshot()) == [n for n in filled.all if n not in gone]
    filled.store.close()


def test_what_was_dropped_meanwhile_is_not_looked_for() -> None:
    """Retention takes events while those that are to go are being chosen: they are chosen again."""
    store = Store.open("memory", files=MemoryFiles())
    stream = store.create_stream("s", SCHEMA, replace(OPTIONS, retention="100"))
    assert isinstance(stream, EventStream)
    for times, first in (([0, 5], 0), ([10, 20], 2)):
        stream.append(batch_of(times, first))
        stream.seal()
    stream.append(batch_of([10], 4))
    with stream.commits.lock:
        spill(stream.commits)
    looked = []

    def choose(snapshot: Snapshot) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        looked.append(numbers(snapshot))
        yield from numbered({1, 4})(snapshot)
        if len(looked) == 1:
            stream.append(batch_of([108], 5))
            stream.seal()

    assert stream.delete(choose=choose) == 1
    assert looked == [[0, 1, 2, 4, 3], [2, 4, 3, 5]]
    assert numbers(stream.snapshot()) == [2, 3, 5]
    store.close()


def test_what_nobody_remembers_cannot_be_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "KNOWN_MAX", 2)
    memory = MemoryFiles()
    filled = Filled(memory)
    before = pin_stream(memory, "streams/s")
    for number in range(3):
        filled.stream.delete(number, number + 1)
    with pytest.raises(SnapshotExpired, match="follow it anew"):
        new_ranges(memory, before, pin_stream(memory, "streams/s"))
    filled.store.close()


def test_a_damaged_list_of_deleted_events_is_not_believed() -> None:
    memory = MemoryFiles()
    filled = Filled(memory)
    before = pin_stream(memory, "streams/s")
    filled.stream.delete(choose=of(PERSON))
    (name,) = (name for name in memory.list("streams/s") if name.endswith(".gone"))
    path = f"streams/s/{name}"
    sound = bytearray(memory.read(path))
    known = filled.stream.commits.manifest.deletions.recorded[-1]
    assert known.load(memory, "streams/s").ticks is not None
    for data in (sound[:10], sound[:-1], [*sound[:40], sound[40] ^ 1, *sound[41:]]):
        memory.remove(path)
        with memory.create(path) as file:
            file.write(bytes(data))
        with pytest.raises(CorruptBlock):
            known.load(memory, "streams/s")
        with pytest.raises(SnapshotExpired):
            new_ranges(memory, before, pin_stream(memory, "streams/s"))
        report = filled.store.check()
        assert report.ok
        assert "begin anew" in report.notes[0]
    filled.store.close()


def test_the_latest_deletes_are_remembered() -> None:
    deletions_made = RecordedDeletions()
    assert not deletions_made.since(0)
    for position in range(1, 200):
        deletions_made = deletions_made.noted(RecordedDeletion(position, 0, 1, None))
    assert len(deletions_made.recorded) == deletions.KNOWN_MAX
    assert deletions_made.forgotten == 199 - deletions.KNOWN_MAX
    assert deletions_made.after(deletions_made.forgotten - 1) is None
    assert [d.position for d in deletions_made.after(197) or ()] == [198, 199]
    assert deletions_made.since(198)
    assert not deletions_made.since(199)
    assert RecordedDeletions.from_json(deletions_made.to_json()) == deletions_made


def test_strings_keep_their_codes_and_deleted_ones_leave_none() -> None:
    """Also where a segment stopped encoding them, and where it joins one that did not."""
    memory = MemoryFiles()
    store = Store.open("memory", files=memory)
    stream = store.create_stream("s", SCHEMA, replace(OPTIONS, leaf_bytes=65_536))
    assert isinstance(stream, EventStream)
    wanted = []
    for first, distinct in ((0, 50), (4000, 40_000), (44_000, 60), (47_000, 70)):
        count = max(3000, distinct)
        rows = [(first + i, f"text {first + i % distinct}") for i in range(count)]
        wanted += [(n, PERSON if n % 7 == 0 else text) for n, text in rows]
        columns = [[n for n, _ in rows]] * 2 + [[text for _, text in wanted[-count:]]]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA.arrow, strict=True)]
        stream.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA.arrow))
        if first == 44_000:
            stream.seal()
    kept = [row for row in wanted if row[1] != PERSON]
    assert stream.delete(choose=of(PERSON)) == len(wanted) - len(kept)
    for _ in range(2):
        found = pa.Table.from_batches(stream.snapshot().scan(columns=["n", "s"]))
        rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        assert rows == kept
        assert holding(memory) == []
        assert store.check().ok
        kept = [row for row in kept if row[0] % 3]
        stream.delete(choose=numbered({n for n, _ in wanted if n % 3 == 0}))
    store.close()


def test_a_dictionary_that_is_handed_in_gives_the_values_that_occur() -> None:
    builder = DictionaryBuilder(SCHEMA.attribute("s"), 2)
    values = pa.array(["a", "gone", "b", "c"])
    first = pa.DictionaryArray.from_arrays(pa.array([0, 2, None, 0], pa.int32()), values)
    codes = builder.encode(first)
    assert codes is not None
    assert [codes[0], codes[1], codes[3]] == [0, 1, 0]
    again = pa.DictionaryArray.from_arrays(pa.array([3, 2, 3], pa.int32()), values)
    codes = builder.encode(again)
    assert codes is not None
    assert codes.tolist() == [2, 1, 2]
    codes = builder.encode(pa.array(["c", "new", None, "a"]))
    assert codes is not None
    assert [codes[0], codes[1], codes[3]] == [2, 3, 0]
    outside = pa.DictionaryArray.from_arrays(pa.array([1, 9], pa.int32()), values, safe=False)
    with pytest.raises(ValueError, match="outside its dictionary"):
        builder.encode(outside)
    page = builder.page(0, 1, Codec.NONE)
    assert page is not None
    block = memoryview(b"".join(bytes(part) for part in page[0]))
    assert read_page(block, 0, 1, builder.attribute, "file")[1].to_pylist() == [
        "a",
        "b",
        "c",
        "new",
    ]


@given(st.lists(st.one_of(st.none(), st.text(max_size=20)), max_size=60), st.sampled_from(Codec))
def test_pages_give_the_values_of_their_codes(texts: list[str | None], codec: Codec) -> None:
    builder, pages = DictionaryBuilder(SCHEMA.attribute("s"), 2), list[str]()
    for part in (texts[:20], texts[20:], texts * 20):
        codes = builder.encode(pa.array(part, pa.string()))
        page = builder.page(0, 1, codec)
        if page is not None:
            block = memoryview(b"".join(bytes(each) for each in page[0]))
            first, values = read_page(block, 0, 1, builder.attribute, "file")
            assert first == len(pages)
            pages += values.to_pylist()
        assert codes is not None
        pairs = zip(codes, part, strict=True)
        assert all(text is None or pages[code] == text for code, text in pairs)
    assert len(pages) == len(set(pages))


def test_who_may_not_delete() -> None:
    filled = Filled(MemoryFiles())
    owned = filled.store.create_stream("live", SCHEMA, OPTIONS, owner="live")
    assert isinstance(owned, EventStream)
    with pytest.raises(StreamOwned):
        owned.delete()
    filled.store.close()
    with pytest.raises(StoreClosed):
        filled.stream.delete()
