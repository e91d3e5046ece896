"""Positions and times: what sorted arrays say, wherever stored times and leaves meet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from chronicle.indexes import stream_indexes
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.query.replay.timeline import Timeline
from chronicle.schema import StreamSchema
from chronicle.store.leaf_map import LeafMap, _maps
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store
from chronicle.store.stream import EventStream

SCHEMA = StreamSchema(pa.schema([pa.field("t", pa.int64(), False), ("x", pa.int64())]), "t")
Ints = npt.NDArray[np.int64]


def fill(stream: EventStream, times: Ints) -> None:
    values = np.arange(len(times)) * 7 % 1000
    stream.append(pa.table([pa.array(times), pa.array(values)], schema=SCHEMA.arrow))


def compare(timeline: Timeline, times: Ints, rng: np.random.Generator) -> None:
    assert timeline.total == len(times)
    for size in (1, 3, 200):
        near = rng.choice(times, size) + rng.integers(-2, 3, size)
        edges = times[np.minimum(rng.integers(0, 40, 4) * 100, len(times) - 1)]
        ends = [times[0] - 9, times[-1] + 9]
        for ticks in (np.sort(near), np.sort(np.concatenate([near, edges, ends]))):
            assert (timeline.lower(ticks) == np.searchsorted(times, ticks, "left")).all()
            assert (timeline.upper(ticks) == np.searchsorted(times, ticks, "right")).all()
        places = np.unique(rng.integers(0, len(times), size))
        assert (timeline.ticks_at(places) == times[places]).all()


@pytest.mark.parametrize("step", [0.3, 3.0, 1000.0])
@pytest.mark.parametrize("run", [100, 700])
def test_places_are_those_of_a_sorted_array(
    tmp_path: Path, step: float, run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs end within leaves, several of them in one, also where some have no stored times."""
    monkeypatch.setattr(stream_indexes, "RUN_EVENTS", run)
    rng = np.random.default_rng(int(step * run))
    times = np.cumsum(rng.exponential(step, 9000).astype(np.int64))
    with Store.open(tmp_path, "rw") as store:
        options = StreamOptions(leaf_bytes=1 << 13, segment_bytes=1 << 15, codec="none")
        stream = store.create_stream("s", SCHEMA, options)
        indexes = StreamIndexes(tmp_path / "idx", True)
        indexes.create("x", SCHEMA)
        for first, end in ((0, 4000), (4000, 8100), (8100, 9000)):
            fill(stream, times[first:end])
            if end != 9000:
                indexes.catch_up(stream.snapshot().state)
        snapshot = stream.snapshot()
        catalogue = indexes.catalogue()
        known = [each for listed in catalogue.times.values() for each in listed]
        assert len(known) > 9
        for _ in range(6):  # each begins knowing nothing of what was asked before
            timeline = Timeline(snapshot, indexes, catalogue)
            for _ in range(4):
                compare(timeline, times, rng)
        for some in (1, 3, 8):  # ranges whose times were set aside
            for each in rng.permutation(len(known))[:some].tolist():
                listed = catalogue.times[known[each].segment]
                catalogue.times[known[each].segment] = tuple(t for t in listed if t != known[each])
            timeline = Timeline(snapshot, indexes, catalogue)
            for _ in range(6):
                compare(timeline, times, rng)
        compare(Timeline(snapshot), times, rng)
        compare(Timeline(snapshot, None, catalogue), times, rng)
        indexes.close()


def test_no_leaf_is_read_where_times_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_indexes, "RUN_EVENTS", 300)
    times = np.arange(6000) // 2 * 5
    with Store.open(tmp_path, "rw") as store:
        options = StreamOptions(leaf_bytes=1 << 13, segment_bytes=1 << 15, codec="none")
        stream = store.create_stream("s", SCHEMA, options)
        fill(stream, times)
        stream.seal()
        indexes = StreamIndexes(tmp_path / "idx", True)
        indexes.create("x", SCHEMA)
        indexes.catch_up(stream.snapshot().state)
        snapshot, catalogue = stream.snapshot(), indexes.catalogue()
        _maps.clear()
        wanted = Timeline(snapshot)
        ticks = np.arange(-3, 15_010, 7)
        lower, upper = wanted.lower(ticks), wanted.upper(ticks)

        def no_leaf(*_: object) -> None:
            raise AssertionError("a leaf was read")

        monkeypatch.setattr(LeafMap, "leaf", no_leaf)
        monkeypatch.setattr(LeafMap, "_together", no_leaf)
        timeline = Timeline(snapshot, indexes, catalogue)
        assert (timeline.lower(ticks) == lower).all()
        assert (timeline.upper(ticks) == upper).all()
        indexes.close()
