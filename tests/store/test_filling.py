"""Streams that begin with events: all of them or no stream."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chronicle.errors import InvalidData, StreamExists
from chronicle.schema import StreamSchema
from chronicle.store import external_sort, filling
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

from .test_deleting import OPTIONS, SCHEMA, batch_of, numbers

TIMES = [(i * 37) % 500 for i in range(1000)]
EVENTS = pa.Table.from_batches([batch_of(TIMES, 0)])
WANTED = [n for _, n in sorted(((t, n) for n, t in enumerate(TIMES)), key=lambda event: event[0])]


@pytest.fixture(autouse=True)
def many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is merged is some runs, not one."""
    monkeypatch.setattr(filling, "RUN_BYTES", 8000)
    monkeypatch.setattr(external_sort, "BLOCK_BYTES", 1)
    monkeypatch.setattr(external_sort, "BLOCK_ROWS_MIN", 50)


def create(store: Store) -> EventStream:
    return store.create_stream("s", SCHEMA, OPTIONS, events=EVENTS.to_batches(max_chunksize=150))


def hidden(memory: MemoryFiles) -> list[str]:
    return [name for name in memory.list("streams") if name.startswith(filling.HIDDEN)]


def test_a_stream_begins_with_its_events() -> None:
    memory = MemoryFiles()
    with Store.open("memory", files=memory) as store:
        stream = create(store)
        assert numbers(stream.snapshot()) == WANTED
        assert len(stream.commits.manifest.segments) > 1
        assert (stream.snapshot().version, stream.snapshot().count) == (1, 1000)
        assert stream.append(batch_of([499, 498, 500], 1000)).late == 1
        assert store.check().ok
        with pytest.raises(StreamExists):
            create(store)
        assert hidden(memory) == []
    with Store.open("memory", files=memory) as store:
        found = numbers(store.stream("s").snapshot())
        assert found[-3:] == [WANTED[-1], 1000, 1002]
        assert sorted(found) == list(range(1003))


def test_one_without_events_is_empty_and_what_does_not_fit_makes_none() -> None:
    memory = MemoryFiles()
    with Store.open("memory", files=memory) as store:
        store.create_stream("none", SCHEMA, OPTIONS, events=EVENTS.slice(0, 0))
        assert store.stream("none").snapshot().version == 0
        missing = EVENTS.set_column(0, "t", pa.array([None] * 1000, pa.int64()))
        strict = StreamSchema(SCHEMA.arrow.set(0, pa.field("t", pa.int64(), False)), "t")
        with pytest.raises(InvalidData, match="is in row 1"):
            store.create_stream("s", strict, OPTIONS, events=missing)
        assert store.streams() == ["none"]
        assert hidden(memory) == []


def batches_of(times: list[int], pieces: int) -> list[pa.RecordBatch]:
    step = max(1, -(-len(times) // pieces))
    return [batch_of(times[at : at + step], at) for at in range(0, len(times), step)]


@pytest.mark.parametrize("shape", ["sorted", "nearly", "saw", "reversed", "random", "equal"])
def test_any_order_of_more_than_is_held_at_a_time(
    monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """The stable sort of everything, as many runs as there may be, and nothing is left over."""
    monkeypatch.setattr(filling, "RUN_BYTES", 3000)
    rng = random.Random(11)
    times = {
        "sorted": list(range(2000)),
        "nearly": [n + rng.choice((0, 0, 0, -300)) for n in range(2000)],
        "saw": [n % 500 for n in range(2000)],
        "reversed": list(range(2000, 0, -1)),
        "random": [rng.randrange(700) for _ in range(2000)],
        "equal": [7] * 2000,
    }[shape]
    wanted = [n for n, _ in sorted(enumerate(times), key=lambda event: event[1])]
    memory = MemoryFiles()
    with Store.open("memory", files=memory) as store:
        stream = store.create_stream("s", SCHEMA, OPTIONS, events=iter(batches_of(times, 37)))
        assert numbers(stream.snapshot()) == wanted
        assert store.check().ok
        entries = stream.commits.manifest.segments
        assert len(entries) >= 2
        assert stream.commits.manifest.runs == ()
        assert hidden(memory) == []
        kept = [name for name in memory.list("streams/s") if name.endswith(".seg")]
        assert sorted(kept) == sorted(entry.file for entry in entries)


@given(
    times=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 4)), max_size=120),
    within=st.integers(0, 20),
    run_bytes=st.sampled_from([200, 1000, 1 << 20]),
)
@settings(max_examples=rounds(5, 25), deadline=None)
@example(times=[(n, n % 2) for n in range(40)], within=20, run_bytes=200)
def test_duplicates_among_runs_are_left_out_as_by_one_append(
    times: list[tuple[int, int]], within: int, run_bytes: int
) -> None:
    """In whatever pieces they come: what one append of all of them in order of time stores."""
    options = StreamOptions(leaf_bytes=1024, unique="s", within=str(within))
    ticks = [t for t, _ in times]
    columns = [pa.array(ticks, pa.int64()), pa.array(range(len(times)), pa.int64())]
    table = pa.RecordBatch.from_arrays(
        [*columns, pa.array([f"key {k}" for _, k in times], pa.string())], schema=SCHEMA.arrow
    )
    pieces = [table.slice(at, 7) for at in range(0, len(times), 7)]
    before = filling.RUN_BYTES
    filling.RUN_BYTES = run_bytes
    try:
        with Store.open("memory", files=MemoryFiles()) as store:
            filled = store.create_stream("s", SCHEMA, options, events=iter(pieces))
            other = store.create_stream("other", SCHEMA, options)
            if times:
                order = sorted(range(len(times)), key=lambda n: times[n][0])
                other.append(table.take(pa.array(order)))
            assert numbers(filled.snapshot()) == numbers(other.snapshot())
    finally:
        filling.RUN_BYTES = before


def test_a_null_is_told_with_its_row_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    strict = StreamSchema(SCHEMA.arrow.set(0, pa.field("t", pa.int64(), False)), "t")
    good = batches_of(list(range(100)), 10)
    bad = good[0].set_column(0, "t", pa.array([1, 2, None, *range(7)], pa.int64()))
    with Store.open("memory", files=MemoryFiles()) as store:
        with pytest.raises(InvalidData, match="is in row 103"):
            store.create_stream("s", strict, OPTIONS, events=iter([*good, bad]))
        assert store.streams() == []


def test_events_that_end_with_an_error_leave_nothing() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches_of(TIMES, 10)
        raise ZeroDivisionError

    memory = MemoryFiles()
    with Store.open("memory", files=memory) as store:
        with pytest.raises(ZeroDivisionError):
            store.create_stream("s", SCHEMA, OPTIONS, events=broken())
        assert store.streams() == []
        assert hidden(memory) == []
