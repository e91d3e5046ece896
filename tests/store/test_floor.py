"""What retention shows at every commit, against a plain list; by every path, in every process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from chronicle.errors import CorruptStore
from chronicle.schema import StreamSchema
from chronicle.store.floor import Hold, events_shown
from chronicle.store.layout import ROW_OFFSET
from chronicle.store.leaf_map import leaf_map
from chronicle.store.options import StreamOptions
from chronicle.store.pins import open_pinned, pin_stream
from chronicle.store.schema_change import set_options
from chronicle.store.segment import TICK_MAX
from chronicle.store.snapshot import Snapshot
from chronicle.store.staging import StagingPlan, commit_staged, new_job, prepare_staging, stage
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("x", pa.int64())]), "t")
SMALL = StreamOptions(
    leaf_bytes=512, segment_bytes=8192, codec="none", late_events_max=20, compaction="manual",
    durability="none",
)  # fmt: skip
LEAF = 257
"""More events than a leaf has with these columns."""
CLOSING = 16_384
"""More than the nodes at the end of a segment, its summary and its footer take."""


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

    def __init__(
        self, options: StreamOptions, age: int | None = None, size: int | None = None
    ) -> None:
        self.files = MemoryFiles()
        self.store = Store.open("memory", files=self.files)
        kept = str(age) if size is None else f"{size / 1000:g} KB"
        self.stream = self.store.create_stream("s", SCHEMA, replace(options, retention=kept))
        self.age = age
        self.size = size
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
        deleted = self.stream.delete(low, high)
        least = len(wanted)
        if self.size is not None:  # which is less where a segment was sealed first
            floor = self.stream.snapshot().state.floor
            least = sum(floor is None or t >= floor for t, _ in wanted)
        assert least <= deleted <= len(wanted)
        self.model = [event for event in self.model if event not in wanted]

    def alter(self, age: int | None) -> None:
        self.stream.alter(set_options, retention=None if age is None else str(age))
        if self.size is not None:  # which is less where a segment was sealed first
            first, _ = self.stream.snapshot().time_range or (0, 0)
            self.model = [event for event in self.model if event[0] >= first]
        self.age, self.size = age, None

    def check(self) -> None:
        """All that is kept is shown, at most a leaf more, and what was hidden never again."""
        snapshot = self.stream.snapshot()
        found = agrees(snapshot)
        begin = found[0][0] if found else TICK_MAX
        assert found == [event for event in self.model if event[0] >= begin]
        assert snapshot.count + snapshot.state.gone == self.appended
        if self.size is not None:
            assert fits(snapshot, self.size)
        elif self.age is None:
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


def fits(snapshot: Snapshot, size: int) -> bool:
    """Whether what is shown fits, but for leaves that begin with the floor, or are of one time."""
    floor = snapshot.state.floor
    total, reached = 0, floor
    for view in snapshot.state.segments:
        leaves = leaf_map(view)
        first = 0
        if floor is not None and reached is not None:
            at = int(np.searchsorted(leaves.first_ticks, floor, "right"))
            reached = max(reached, int(leaves.last_ticks[at - 1])) if at else reached
            first = int(np.searchsorted(leaves.first_ticks, reached, "right"))
        if first < len(leaves.first_ticks):
            total += view.length - int(leaves.table[ROW_OFFSET, first])
    return total <= size


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


@settings(max_examples=rounds(6, 60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    age=st.sampled_from([300, 800]),
    segment=st.sampled_from([4096, 1 << 20]),
    steps=st.lists(STEPS, min_size=3, max_size=25),
)
@example(  # a late run between the floor and the horizon
    age=800,
    segment=1 << 20,
    steps=[("append", 584, 2), ("append", 298, 2), ("late", 863, 27), ("jump", 1, 0)],
)
@example(  # the same where retention ends
    age=1500,
    segment=1 << 20,
    steps=[
        ("append", 305, 4),
        ("late", 298, 25),
        ("append", 750, 2),
        ("jump", 361, 0),
        ("alter", 0, 0),
    ],
)
@example(  # late events of a stream that has become empty
    age=300,
    segment=4096,
    steps=[("append", 1258, 1), ("jump", 315, 0), ("delete", 47, 200), ("late", 589, 6)],
)
def test_any_history_shows_what_an_age_keeps(
    age: int, segment: int, steps: list[tuple[str, int, int]]
) -> None:
    carry_out(steps, History(replace(SMALL, segment_bytes=segment), age))


@settings(max_examples=rounds(5, 40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    size=st.sampled_from([6_000, 12_000, 40_000]),
    segment=st.sampled_from([4096, 1 << 20]),
    steps=st.lists(STEPS, min_size=3, max_size=25),
)
@example(  # a late run that is newer than what a size hides first
    size=6_000,
    segment=1 << 20,
    steps=[("append", 1379, 3), ("delete", 149, 48), ("late", 37, 25), ("append", 372, 1)],
)
def test_any_history_shows_what_a_size_keeps(
    size: int, segment: int, steps: list[tuple[str, int, int]]
) -> None:
    carry_out(steps, History(replace(SMALL, segment_bytes=segment), size=size))


def carry_out(steps: list[tuple[str, int, int]], history: History) -> None:
    """Check a history after each of its steps."""
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


def shown_bytes(stream: EventStream) -> int:
    """What the leaves that are shown take, with what lies behind them in their files."""
    total = 0
    state = stream.snapshot().state
    for view in state.segments:
        hidden = view.events - events_shown(view, state.floor)[0]
        begin = int(leaf_map(view, hidden).table[ROW_OFFSET, 0]) if hidden else 0
        total += view.length - begin
    return total


@pytest.mark.parametrize(
    ("events_at_once", "total"), [(37, 130_000), (1000, 200_000), (60_000, 600_000)]
)
def test_a_size_is_kept_to_a_leaf_at_every_commit(events_at_once: int, total: int) -> None:
    size, leaf = 200_000, 4096
    options = replace(SMALL, leaf_bytes=leaf, segment_bytes=1 << 30, retention="200 KB")
    files = MemoryFiles()
    with Store.open("memory", files=files) as store:
        stream = store.create_stream("s", SCHEMA, options)
        appended = 0
        while appended < total:
            stream.append(batch(np.arange(appended, appended + events_at_once), appended))
            appended += events_at_once
            snapshot = stream.snapshot()
            shown = shown_bytes(stream)
            assert shown <= size
            assert snapshot.count + snapshot.state.gone == appended
            if snapshot.state.dropped:
                assert shown > size - 2 * leaf - CLOSING
                first, last = snapshot.time_range or (0, 0)
                assert (last - first + 1, last) == (snapshot.count, appended - 1)
                manifest = stream.commits.manifest
                stored = int(manifest.segments.bytes.sum())
                assert stored <= size + 2 * (64 << 10)
        assert snapshot.state.dropped
        found = agrees(snapshot)
        stream.compact()
        assert agrees(stream.snapshot()) == found
        with Store.open("memory", "r", files=files) as reader:
            assert agrees(reader.stream("s").snapshot()) == found


def test_a_year_at_once_keeps_its_last_days_and_a_leaf() -> None:
    day = 1440
    with Store.open("memory", files=MemoryFiles()) as store:
        options = replace(SMALL, retention=str(30 * day), segment_bytes=1 << 20)
        stream = store.create_stream("s", SCHEMA, options)
        stream.append(batch(np.arange(100)))
        stream.append(batch(np.arange(100, 365 * day)))
        last = 365 * day - 1
        first, _ = stream.snapshot().time_range or (0, 0)
        assert last - 30 * day - LEAF < first <= last - 30 * day
        for minute in range(last + 1, last + 3000, 7):
            stream.append(batch([minute], minute))
            first, _ = stream.snapshot().time_range or (0, 0)
            assert minute - 30 * day - LEAF < first <= minute - 30 * day
        assert store.check().ok


def under_retention(store: Store, age: int = 500) -> EventStream:
    """A stream that hides events which are stored."""
    options = replace(SMALL, retention=str(age), segment_bytes=1 << 20)
    stream = store.create_stream("s", SCHEMA, options)
    stream.append(batch(range(100)))
    stream.append(batch(range(100, 550), 100))
    stream.append(batch([800], 550))
    assert stream.snapshot().state.dropped > stream.commits.manifest.dropped_events
    return stream


def test_late_events_that_are_too_old_are_never_seen(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        stream = under_retention(store)
        found = agrees(stream.snapshot())
        result = stream.append(batch([10, 20, 280, 700], 1000))
        assert agrees(stream.snapshot()) == sorted([*found, (700, 1003)])
        assert result.count == len(found) + 1
        assert stream.stats()["dropped_events"] + stream.stats()["events"] == 555
        stream.append(batch(list(range(200, 330, 5)), 2000))  # spilled as a run
        expected = sorted([*found, (700, 1003), *((t, 2000 + n) for n, t in enumerate(
            range(200, 330, 5)) if t >= found[0][0])])  # fmt: skip
        assert stream.stats()["late_runs"] == 1
        assert agrees(stream.snapshot()) == expected
        fold_runs(stream)
        assert agrees(stream.snapshot()) == expected
        stream.compact()
        assert agrees(stream.snapshot()) == [event for event in expected if event[0] >= 300]
        assert stream.stats()["dropped_events"] + stream.stats()["events"] == 555 + 26
        assert store.check().ok


def test_a_truncated_stream_takes_older_events() -> None:
    files = MemoryFiles()
    with Store.open("memory", files=files) as store:
        stream = under_retention(store)
        job = new_job()
        plan = StagingPlan(stream.directory, job, SCHEMA, stream.options)
        prepare_staging(files, plan)
        commit_staged(
            stream, job, stage(files, plan, 0, [iter([batch(range(50), 7)])]), truncate=True
        )
        assert agrees(stream.snapshot()) == [(t, 7 + t) for t in range(50)]
        assert stream.snapshot().count + stream.snapshot().state.gone == 551 + 50
        with Store.open("memory", "r", files=files) as reader:
            assert reader.stream("s").snapshot().count == 50


@pytest.mark.parametrize("retention", [None, "700", "1 MB"])
def test_another_retention_brings_nothing_back(retention: str | None) -> None:
    files = MemoryFiles()
    with Store.open("memory", files=files) as store:
        stream = under_retention(store)
        found, gone = agrees(stream.snapshot()), stream.snapshot().state.gone
        stream.alter(set_options, retention=retention)
        assert agrees(stream.snapshot()) == found
        assert stream.snapshot().state.gone == gone
        assert stream.commits.manifest.hold is None
        stream.append(batch([150, 790], 900))
        assert agrees(stream.snapshot()) == sorted([*found, (150, 900), (790, 901)])
        with Store.open("memory", "r", files=files) as reader:
            assert agrees(reader.stream("s").snapshot()) == agrees(stream.snapshot())
        assert store.check().ok
    with Store.open("memory", files=files) as store:
        assert store.stream("s").snapshot().count == len(found) + 2


def test_a_delete_of_a_range_counts_what_was_shown() -> None:
    with Store.open("memory", files=MemoryFiles()) as store:
        stream = under_retention(store)
        found = agrees(stream.snapshot())
        below = sum(t < 400 for t, _ in found)
        assert stream.delete(None, 400) == below
        assert agrees(stream.snapshot()) == found[below:]
        assert stream.delete(None, 560) == len(found) - below - 1
        assert agrees(stream.snapshot()) == found[-1:]
        assert stream.snapshot().count + stream.snapshot().state.gone == 551


def test_what_roll_ups_need_is_shown_to_others_and_a_floor_never_goes_back() -> None:
    files = MemoryFiles()
    with Store.open("memory", files=files) as store:
        options = replace(SMALL, retention="500", segment_bytes=1 << 20)
        stream = store.create_stream("s", SCHEMA, options)
        need = Hold(300, 100)

        def holder() -> Hold:
            return need

        stream.commits.hold(holder)
        stream.append(batch(range(600)))
        stream.append(batch([1000], 600))
        stream.seal()
        assert stream.snapshot().count == 601
        with Store.open("memory", "r", files=files) as reader:
            assert reader.stream("s").snapshot().count == 601
        need = Hold(1000, 400)
        stream.append(batch([1001], 601))
        found = agrees(stream.snapshot())
        assert 400 - LEAF < found[0][0] <= 400
        with Store.open("memory", "r", files=files) as reader:
            assert set(found) <= set(agrees(reader.stream("s").snapshot()))
        need = Hold(300, 0)
        stream.append(batch([1002], 602))
        stream.seal()
        assert agrees(stream.snapshot()) == [*found, (1002, 602)]
        with Store.open("memory", "r", files=files) as reader:
            assert agrees(reader.stream("s").snapshot()) == [*found, (1002, 602)]
    with Store.open("memory", files=files) as store:
        assert agrees(store.stream("s").snapshot()) == [*found, (1002, 602)]


def test_a_segment_that_cannot_be_read_is_shown_whole(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    with Store.open("memory", files=files) as store:
        stream = under_retention(store)
        with patch("chronicle.store.floor.leaf_at", side_effect=CorruptStore("damaged")):
            stream.append(batch([830], 600))
        assert stream.snapshot().count + stream.snapshot().state.gone == 552
    assert "cannot be read" in caplog.text or "shown until" in caplog.text
