"""Updates: what they leave in files, and appends meanwhile."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from chronicle.errors import InvalidData, StreamOwned
from chronicle.store.pins import pin_stream
from chronicle.store.snapshot import Snapshot
from chronicle.store.stream import EventStream
from chronicle.tests.memory_files import MemoryFiles

from .test_deleting import OPTIONS, PERSON, SCHEMA, Filled, holding, of, told

OTHER = "nobody"


def rename(events: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"s": pa.array([OTHER] * events.num_rows)})


def names(snapshot: Snapshot) -> list[tuple[int, str]]:
    return [
        (row["n"], row["s"])
        for batch in snapshot.scan(columns=["n", "s"])
        for row in batch.to_pylist()
    ]


def wanted(filled: Filled, person: str) -> list[tuple[int, str]]:
    return [(n, f"somebody {n % 5}" if n % 7 else person) for n in filled.all]


def update(stream: EventStream) -> int:
    return stream.update(None, None, of(PERSON), rename)


def test_an_update_changes_values_in_their_places_and_no_file_holds_what_they_were() -> None:
    memory = MemoryFiles()
    filled = Filled(memory)
    before = filled.stream.snapshot()
    position = before.version
    assert update(filled.stream) == len(filled.all) - len(filled.kept)
    assert names(filled.stream.snapshot()) == wanted(filled, OTHER)
    assert filled.stream.snapshot().version == position + 1
    assert names(before) == wanted(filled, PERSON)
    assert holding(memory) == []
    assert filled.stream.stats()["deleted_events"] == 0
    assert update(filled.stream) == 0
    assert filled.store.check().ok
    filled.store.close()


def test_what_has_nothing_in_it_is_not_rewritten() -> None:
    filled = Filled(MemoryFiles())
    entries = filled.stream.commits.manifest
    assert filled.stream.update(0, 1, None, rename) == 3
    after = filled.stream.commits.manifest
    assert after.runs == entries.runs
    assert after.segments[1:] == entries.segments[1:]
    filled.store.close()


def test_late_and_fresh_events_that_come_meanwhile_stay_as_they_are() -> None:
    """At the very times of updated events; a follower is told of both, each once."""
    memory = MemoryFiles()
    filled = Filled(memory)
    filled.stream.compact()
    before = pin_stream(memory, "streams/s")
    begun = len(filled.events)
    changed = {n for t, n in filled.events if t >= 100}

    def change(events: pa.RecordBatch) -> pa.RecordBatch:
        if len(filled.events) == begun:
            filled.append([100, 200, 451, 451, 452])
        return rename(events)

    assert filled.stream.update(100, None, None, change) == len(changed)
    expected = {
        n: OTHER if n in changed else PERSON if n % 7 == 0 else f"somebody {n % 5}"
        for n in filled.all
    }
    assert names(filled.stream.snapshot()) == [(n, expected[n]) for n in filled.all]
    fresh = changed | set(range(begun, len(filled.events)))
    after = pin_stream(memory, "streams/s")
    assert told(memory, before, after) == [n for n in filled.all if n in fresh]
    filled.store.close()


def test_what_the_new_values_raise_ends_it() -> None:
    memory = MemoryFiles()
    filled = Filled(memory)
    files = memory.list("streams/s")

    def change(events: pa.RecordBatch) -> pa.RecordBatch:
        if pc.max(events.column(0)).as_py() > 300:
            raise InvalidData("no", 0)
        return rename(events)

    with pytest.raises(InvalidData):
        filled.stream.update(None, None, of(PERSON), change)
    assert names(filled.stream.snapshot()) == wanted(filled, PERSON)
    assert sum(name.endswith(".seg") for name in memory.list("streams/s")) <= len(files)
    owned = filled.store.create_stream("live", SCHEMA, OPTIONS, owner="live")
    assert isinstance(owned, EventStream)
    with pytest.raises(StreamOwned):
        update(owned)
    filled.store.close()
