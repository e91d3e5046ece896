"""When late runs are merged and folded, what folding leaves alone, and when it rests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from chronicle.store import background, compaction, moving
from chronicle.store.catalog import StreamManifest
from chronicle.store.options import StreamOptions
from chronicle.store.snapshot import Snapshot
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.memory_files import MemoryFiles

from .conftest import SCHEMA

OPTIONS = StreamOptions(
    leaf_bytes=1024, segment_bytes=1 << 20, late_events_max=64, compaction="manual"
)


class Load:
    """Appends with late events, and what a reader must find afterwards."""

    def __init__(self, stream: EventStream, late_by: int) -> None:
        self.stream = stream
        self.late_by = late_by
        self.random = np.random.default_rng(late_by)
        self.times: list[int] = []

    def append(self, events: int) -> None:
        first = len(self.times)
        times = np.arange(first, first + events)
        late = self.random.random(events) < 0.2
        times[late] -= self.random.integers(0, self.late_by, int(late.sum()))
        numbers = np.arange(first, first + events)
        self.times += times.tolist()
        batch = [pa.array(times), pa.array(numbers), pa.array([f"s{n % 5}" for n in numbers])]
        self.stream.append(pa.RecordBatch.from_arrays(batch, schema=SCHEMA.arrow), "none")

    def check(self) -> None:
        found = pa.Table.from_batches(Snapshot(self.stream.commits.state()).scan())
        assert found["n"].to_pylist() == np.argsort(self.times, kind="stable").tolist()


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("memory", files=MemoryFiles()) as opened:
        yield opened
        assert opened.check().ok


def _folds(load: Load, folds: int) -> list[list[int]]:
    """Identifiers of the segments after each of some folds."""
    after = []
    for _ in range(folds):
        for _ in range(10):
            load.append(200)
        load.stream.compact()
        load.check()
        after.append([entry.id for entry in load.stream.commits.manifest.segments])
    return after


def test_what_lies_before_the_horizon_is_not_rewritten_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "COLD_BYTES", 4096)
    load = Load(store.create_stream("s", SCHEMA, OPTIONS), late_by=300)
    after = _folds(load, 5)
    for before, now in pairwise(after):
        assert now[: len(before) - 1] == before[:-1]
        assert len(now) == len(before) + 1
    # each event once, and those behind the horizon once more
    assert load.stream.stats()["events_rewritten"] < 1.4 * len(load.times)


def test_without_a_horizon_every_fold_would_rewrite_everything(store: Store) -> None:
    load = Load(store.create_stream("s", SCHEMA, OPTIONS), late_by=300)
    assert [len(ids) for ids in _folds(load, 5)] == [1] * 5
    assert load.stream.stats()["events_rewritten"] == 2_000 * (1 + 2 + 3 + 4 + 5)


def test_a_crowd_of_small_segments_is_joined(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "COLD_BYTES", 4096)
    monkeypatch.setattr(compaction, "CROWD", 4)
    monkeypatch.setattr(compaction, "SMALL_SHARE", 1 << 20 >> 16)  # small is below 64 KiB
    load = Load(store.create_stream("s", SCHEMA, OPTIONS), late_by=300)
    after = _folds(load, 10)
    assert max(len(ids) for ids in after) <= 8
    assert load.stream.stats()["events_rewritten"] < 3 * len(load.times)


def test_retention_keeps_its_segments_small(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "COLD_BYTES", 4096)
    monkeypatch.setattr(compaction, "CROWD", 2)
    options = StreamOptions(
        leaf_bytes=1024,
        segment_bytes=1 << 20,
        late_events_max=64,
        compaction="manual",
        retention="1000000",
    )
    load = Load(store.create_stream("s", SCHEMA, options), late_by=300)
    assert [len(ids) for ids in _folds(load, 4)] == [2, 3, 4, 5]


def test_runs_are_never_more_than_their_bound(store: Store) -> None:
    load = Load(store.create_stream("s", SCHEMA, OPTIONS), late_by=2_000)
    for _ in range(60):
        load.append(400)
        assert load.stream.stats()["late_runs"] <= compaction.RUNS_MAX
    assert load.stream.stats()["spills"] > 5 * compaction.RUNS_MAX
    load.check()


def test_a_fold_that_takes_long_does_not_let_runs_pile_up(store: Store) -> None:
    load = Load(store.create_stream("s", SCHEMA, OPTIONS), late_by=1_000)
    for _ in range(12):
        load.append(400)
    fold = compaction._begin(load.stream.commits)
    assert fold is not None
    held = [entry.id for entry in fold.runs]
    compaction._rewrite(load.stream.commits, fold, lambda: False)
    for _ in range(2 * compaction.RUNS_MAX):
        load.append(400)
        runs = [entry.id for entry in load.stream.commits.manifest.runs]
        assert runs[: len(held)] == held
        assert len(runs) <= len(held) + compaction.RUNS_MAX
    load.check()
    assert compaction._finish(load.stream.commits, fold)
    load.stream.commits.fold()
    load.check()


def test_runs_that_go_while_it_is_asked_whether_they_are_many(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "EVENTS_MIN", 1)
    load = Load(store.create_stream("s", SCHEMA, OPTIONS), late_by=300)
    for _ in range(8):
        load.append(300)
    many = load.stream.commits.manifest
    assert many.runs
    load.stream.compact()
    none = load.stream.commits.manifest

    class Changing:
        active = None
        manifests = iter([many, none, none])

        @property
        def manifest(self) -> StreamManifest:
            return next(self.manifests)

    compactor = background.Compactor(Changing())  # type: ignore[arg-type]
    assert [compactor.due(), compactor.due()] == [True, False]


class Rests(threading.Event):
    """Remembers how long it was waited for, and waits no time."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return self.is_set()


@pytest.mark.parametrize(
    ("others", "processors", "overdue", "rests"),
    [(1.6, 2, False, True), (0.4, 2, False, False), (1.6, 8, False, False), (1.6, 2, True, False)],
)
def test_folding_rests_while_processors_are_wanted(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    others: float,
    processors: int,
    overdue: bool,
    rests: bool,
) -> None:
    stream = store.create_stream("s", SCHEMA, OPTIONS)
    compactor = stream._compactor
    ticks = iter((i * 0.1, i * (0.1 * others + 0.01), i * 0.01) for i in range(100))
    monkeypatch.setattr(moving.Pace, "_clocks", staticmethod(lambda: next(ticks)))
    monkeypatch.setattr(moving, "processors", lambda: processors)
    monkeypatch.setattr(background, "SPILLS_OVERDUE", 0 if overdue else 16)
    monkeypatch.setattr(compactor, "_stopped", stopped := Rests())
    ended = compactor._interrupted()
    for _ in range(20):
        assert not ended()
    assert bool(stopped.seconds) == rests
    if rests:
        assert stopped.seconds[-1] == pytest.approx(moving.REST_FACTOR * 0.01)
    stopped.set()
    assert ended()
