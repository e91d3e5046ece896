"""What retention shows at every commit, against a plain list; by every path, in every process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronicle.schema import StreamSchema
from chronicle.store import EventStream, Store, StreamOptions
from chronicle.store.leaf_map import leaf_map
from chronicle.store.memory_files import MemoryFiles
from chronicle.store.pins import open_pinned, pin_stream
from chronicle.store.schema_change import set_options
from chronicle.store.snapshot import Snapshot

SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("x", pa.int64())]), "t")
SMALL = StreamOptions(
    leaf_bytes=512, segment_bytes=8192, codec="none", late_events_max=20, compaction="manual",
    durability="none",
)  # fmt: skip
LEAF = 64
"""More events than a leaf has with these columns."""


def batch(times: list[int] | np.ndarray, first: int = 0) -> pa.RecordBatch:
    count = len(times)
    arrays = [pa.array(np.asarray(times, np.int64)), pa.array(np.arange(first, first + count))]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA.arrow)


def events(snapshot: Snapshot) -> list[tuple[int, int]]:
    found = pa.Table.from_batches(snapshot.scan(), schema=SCHEMA.arrow)
    return list(zip(found["t"].to_pylist(), found["x"].to_pylist(), strict=True))


def agrees(snapshot: Snapshot) -> list[tuple[int, int]]:
    """The events of a snapshot, which all of its answers agree with."""
    found = events(snapshot)
    assert snapshot.count == len(found)
    ticks = [t for t, _ in found]
    assert ticks == sorted(ticks)
    assert snapshot.time_range == ((ticks[0], ticks[-1]) if ticks else None)
    whole = snapshot.aggregate(["x"])
    assert (whole.count, whole.first, whole.last) == (
        len(found), min(ticks, default=None), max(ticks, default=None)
    )  # fmt: skip
    assert (whole["x"].sum or 0) == sum(x for _, x in found)
    floor = snapshot.state.floor
    assert floor is None or all(t >= floor for t in ticks)
    if ticks:
        middle = ticks[len(ticks) // 2]
        assert snapshot.aggregate((), None, middle).count == sum(t < middle for t in ticks)
        assert snapshot.aggregate((), middle).count == sum(t >= middle for t in ticks)
        first, last = snapshot.first_last("x")
        assert first is not None
        assert last is not None
        assert (first.as_py(), last.as_py()) == (found[0][1], found[-1][1])
        parts = snapshot.ranges(4)
        assert [event for part in parts for event in events_between(snapshot, *part)] == found
    return found


def events_between(snapshot: Snapshot, low: int | None, high: int | None) -> list[tuple[int, int]]:
    found = pa.Table.from_batches(snapshot.scan(low, high), schema=SCHEMA.arrow)
    return list(zip(found["t"].to_pylist(), found["x"].to_pylist(), strict=True))


class History:
    """A stream under retention beside the plain list of what it may still show."""

    def __init__(self, options: StreamOptions, age: int | None) -> None:
        self.files = MemoryFiles()
        self.store = Store.open("memory", files=self.files)
        self.stream = self.store.create_stream("s", SCHEMA, options)
        self.age = age
        self.model: list[tuple[int, int]] = []
        self.newest: int | None = None
        self.appended = 0

    def append(self, times: list[int]) -> None:
        self.stream.append(batch(times, self.appended))
        more = [(t, self.appended + n) for n, t in enumerate(times)]
        self.appended += len(times)
        self.model = sorted([*self.model, *more], key=lambda event: event[0])
        self.newest = max([*times, *([] if self.newest is None else [self.newest])])

    def reopen(self) -> None:
        self.store.close()
        self.store = Store.open("memory", files=self.files)
        found = self.store.stream("s")
        assert isinstance(found, EventStream)
        self.stream = found

    def delete(self, low: int, high: int) -> None:
        wanted = [event for event in self.model if low <= event[0] < high]
        assert self.stream.delete(low, high) == len(wanted)
        self.model = [event for event in self.model if event not in wanted]

    def alter(self, age: int | None) -> None:
        self.stream.alter(set_options, retention=None if age is None else str(age))
        self.age = age

    def check(self) -> None:
        """All that is kept is shown, at most a leaf more, and what was hidden never again."""
        snapshot = self.stream.snapshot()
        found = agrees(snapshot)
        begin = found[0][0] if found else 0
        assert found == [event for event in self.model if event[0] >= begin]
        assert snapshot.count + snapshot.state.gone == self.appended
        if self.age is None:
            assert found == self.model
        elif self.newest is not None:
            horizon = self.newest - self.age
            assert {event for event in self.model if event[0] >= horizon} <= set(found)
            base = events(Snapshot(replace(snapshot.state, runs=(), late=())))
            old = [t for t, _ in base if t < horizon]
            assert len(old) - old.count(old[0] if old else 0) < LEAF
        self.model = found
        with Store.open("memory", "r", files=self.files) as reader:
            assert agrees(reader.stream("s").snapshot()) == found
        pin = pin_stream(self.files, "streams/s")
        assert agrees(open_pinned(self.files, pin)) == found
        if len(found) > 2:
            low, high = found[len(found) // 3][0], found[-1][0]
            part = open_pinned(self.files, pin, low, high)
            assert events_between(part, low, high) == [e for e in found if low <= e[0] < high]


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 400), st.integers(0, 5)),
    st.tuples(st.just("append"), st.integers(200, 1500), st.integers(1, 5)),
    st.tuples(st.just("jump"), st.integers(1, 900), st.just(0)),
    st.tuples(st.just("late"), st.integers(1, 1200), st.integers(1, 40)),
    st.tuples(st.just("compact"), st.just(0), st.just(0)),
    st.tuples(st.just("fold"), st.just(0), st.just(0)),
    st.tuples(st.just("seal"), st.just(0), st.just(0)),
    st.tuples(st.just("reopen"), st.just(0), st.just(0)),
    st.tuples(st.just("delete"), st.integers(0, 1200), st.integers(1, 200)),
    st.tuples(st.just("alter"), st.sampled_from([0, 300, 800, 1500]), st.just(0)),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    age=st.sampled_from([300, 800]),
    segment=st.sampled_from([4096, 1 << 20]),
    steps=st.lists(STEPS, min_size=3, max_size=25),
)
def test_any_history_shows_what_an_age_keeps(
    age: int, segment: int, steps: list[tuple[str, int, int]]
) -> None:
    history = History(replace(SMALL, retention=str(age), segment_bytes=segment), age)
    now = 0
    for kind, one, other in steps:
        if kind == "append":
            times = [now := now + (n * other) // 3 % 4 for n in range(one)]
            history.append(times)
        elif kind == "jump":
            history.append([now := now + one])
        elif kind == "late":
            history.append([now - one + n for n in range(0, other) if n <= one])
        elif kind == "compact":
            history.stream.compact()
        elif kind == "fold":
            fold_runs(history.stream)
        elif kind == "seal":
            history.stream.seal()
        elif kind == "reopen":
            history.reopen()
        elif kind == "delete":
            history.delete(now - one, now - one + other)
        else:
            history.alter(one or None)
        history.check()
    assert history.store.check().ok
    history.store.close()


def fold_runs(stream: EventStream) -> None:
    """What the background does: the late runs alone."""
    from chronicle.store.compaction import compact

    with stream._compactor.alone("compacted"):
        compact(stream.commits, buffered=False)
    stream.commits.publish(stream.commits.state())


def stored_bytes(stream: EventStream) -> int:
    """What the leaves that are shown take, with what lies behind them."""
    total = 0
    for view in stream.snapshot().state.segments:
        begin = 0 if not view.skipped else int(leaf_map(view).table[1, 0])
        total += view.length - begin
    return total
