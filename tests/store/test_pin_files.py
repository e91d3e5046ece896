"""Pins kept for followers: they can be opened, renewed, dropped, and end."""

from __future__ import annotations

import pyarrow as pa
import pytest

from chronicle.errors import SnapshotExpired
from chronicle.schema import StreamSchema
from chronicle.store import pins
from chronicle.store.lock import ReaderLease, held_leases
from chronicle.store.options import StreamOptions
from chronicle.store.pins import open_pinned
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.memory_files import MemoryFiles

SCHEMA = StreamSchema(pa.schema([("t", pa.int64())]), "t")
DIRECTORY = "streams/s"


@pytest.fixture
def store() -> Store:
    opened = Store.open("memory", files=MemoryFiles())
    stream = opened.create_stream("s", SCHEMA, StreamOptions(leaf_bytes=512))
    stream.append(pa.record_batch([pa.array(range(500))], schema=SCHEMA.arrow))
    stream.append(pa.record_batch([pa.array([3])], schema=SCHEMA.arrow))
    return opened


def test_a_kept_pin_keeps_its_files(store: Store) -> None:
    name = pins.keep_pin(store.files, DIRECTORY)
    stream = store.stream("s")
    stream.seal()  # type: ignore[union-attr]
    stream.compact()  # type: ignore[union-attr]
    stream.append(pa.record_batch([pa.array([600])], schema=SCHEMA.arrow))  # type: ignore[union-attr]
    stream.compact()  # type: ignore[union-attr]
    assert open_pinned(store.files, pins.load_pin(store.files, DIRECTORY, name)).count == 501
    assert name.startswith("2-")


def test_a_dropped_pin_is_gone_with_its_lease(store: Store) -> None:
    name = pins.keep_pin(store.files, DIRECTORY)
    leases = store.files.list(f"{DIRECTORY}/readers")
    assert len(leases) == 1
    pins.drop_pin(store.files, DIRECTORY, name)
    pins.drop_pin(store.files, DIRECTORY, name)
    assert store.files.list(f"{DIRECTORY}/readers") == []
    with pytest.raises(SnapshotExpired, match="no longer kept"):
        pins.load_pin(store.files, DIRECTORY, name)


def test_pins_end_unless_they_are_renewed(store: Store) -> None:
    files = store.files
    old = pins.keep_pin(files, DIRECTORY, seconds=100, clock=lambda: 1000.0)
    new = pins.keep_pin(files, DIRECTORY, seconds=100, clock=lambda: 1000.0)
    assert not pins.renew_pin(files, DIRECTORY, new, seconds=100, clock=lambda: 1040.0)
    assert pins.renew_pin(files, DIRECTORY, new, seconds=100, clock=lambda: 1060.0)
    assert pins.sweep_pins(files, DIRECTORY, clock=lambda: 1101.0) == [old]
    assert pins.sweep_pins(files, DIRECTORY, clock=lambda: 1161.0) == [new]
    assert files.list(f"{DIRECTORY}/pins") == []


def test_positions_are_given_up_where_they_keep_too_much(caplog: pytest.LogCaptureFixture) -> None:
    """The oldest first, and only those that keep something; a reader at work loses nothing."""
    files = MemoryFiles()
    options = StreamOptions(leaf_bytes=512, compaction="manual", kept_bytes_max=20_000)
    with Store.open("memory", files=files) as opened:
        stream = opened.create_stream("s", SCHEMA, options)
        stream.append(pa.record_batch([pa.array(range(500))], schema=SCHEMA.arrow))
        stream.seal()
        names, most = [], 0
        with ReaderLease.take(files, DIRECTORY, 1):
            for number in range(20):
                names.append(pins.keep_pin(files, DIRECTORY))
                late = pa.record_batch([pa.array([number])], schema=SCHEMA.arrow)
                stream.append(late)
                stream.compact()
                stats = stream.stats()
                most = max(most, stats["garbage_bytes"] - stats["bytes"])
            left = set(pins.stored_pins(files, DIRECTORY))
            assert held_leases(files, DIRECTORY)[0].version == 1
        assert most > 0
        dropped = [name for name in names if name not in left]
        assert dropped == names[: len(dropped)]
        assert stats["positions_dropped"] == len(dropped) >= 1
        assert "kept_bytes_max" in caplog.text
        with pytest.raises(SnapshotExpired, match="no longer kept"):
            pins.load_pin(files, DIRECTORY, dropped[0])
        for name in left:
            expected = 500 + names.index(name)
            pin = pins.load_pin(files, DIRECTORY, name)
            assert open_pinned(files, pin).count == expected


def test_a_forgotten_pin_keeps_what_it_names_and_no_more(store: Store) -> None:
    """Files that were begun and replaced after it go, however long it is kept."""
    stream = store.stream("s")
    assert isinstance(stream, EventStream)

    def fold(times: list[int]) -> None:
        stream.append(pa.record_batch([pa.array(times)], schema=SCHEMA.arrow))
        stream.compact()

    def segments() -> set[str]:
        return {name for name in store.files.list(DIRECTORY) if name.endswith(".seg")}

    fold([7])
    name = pins.keep_pin(store.files, DIRECTORY)
    named = segments()
    counts = []
    for number in range(12):
        fold([number * 20, 490])
        counts.append(len(segments()))
    assert named <= segments()
    assert counts[-1] == counts[0]
    stats = stream.stats()
    assert stats["garbage_files"] == len(named)
    assert stats["garbage_bytes"] == sum(store.files.size(f"{DIRECTORY}/{n}") for n in named)
    assert open_pinned(store.files, pins.load_pin(store.files, DIRECTORY, name)).count == 502
    pins.drop_pin(store.files, DIRECTORY, name)
    fold([9])
    assert not named & segments()
    assert stream.stats()["garbage_bytes"] == 0
