"""Late events and retention: what folding rewrites, what is dropped, and who still sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import StorageFull, StoreClosed
from chronicle.store import background, compaction
from chronicle.store.commits import Edit
from chronicle.store.floor import events_shown
from chronicle.store.layout import ROW_OFFSET
from chronicle.store.leaf_map import leaf_map
from chronicle.store.options import StreamOptions
from chronicle.store.schema_change import set_options
from chronicle.store.snapshot import Snapshot
from chronicle.store.staging import StagingPlan, commit_staged, new_job, prepare_staging, stage
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.patience import wait_until

from .conftest import SCHEMA, batch_of, numbers

SMALL = StreamOptions(leaf_bytes=1024, segment_bytes=8192, late_events_max=64, compaction="manual")


# -- late events and compaction -----------------------------------------------------------------


def test_folding_rewrites_only_what_late_events_touch(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    for part in range(6):
        stream.append(batch_of(range(part * 100, part * 100 + 100), part * 100))
        stream.seal()
    before = [entry.id for entry in stream.commits.manifest.segments]
    stream.append(batch_of([250, 251, 260], 900))
    assert stream.snapshot().dirty_ranges() == [(250, 260)]
    stream.compact()
    after = [entry.id for entry in stream.commits.manifest.segments]
    assert after[:2] == before[:2]
    assert after[-3:] == before[-3:]
    assert before[2] not in after
    assert stream.stats()["events_rewritten"] == 103
    assert stream.snapshot().dirty_ranges() == []


def test_rewritten_neighbours_are_joined_and_cut_when_full(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    for part in range(40):
        stream.append(batch_of([part * 10 + i for i in range(10)], part * 10))
        stream.seal()
    stream.append(batch_of([part * 10 + 5 for part in range(39)], 1000))
    stream.compact()
    assert len(stream.commits.manifest.segments) < 20  # of 40
    assert max(entry.bytes for entry in stream.commits.manifest.segments) < 3 * 8192
    assert store.check().ok


def test_late_runs_stay_few_however_long_the_load(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "EVENTS_MIN", 100)
    options = StreamOptions(leaf_bytes=4096, segment_bytes=1 << 20, late_events_max=40)
    stream = store.create_stream("s", SCHEMA, options)
    rng = np.random.default_rng(4)
    expected = []
    most = 0
    for i in range(300):
        times = (i * 30 + np.arange(30) - np.where(rng.random(30) < 0.3, 200, 0)).tolist()
        expected += [(t, i * 30 + j) for j, t in enumerate(times)]
        stream.append(batch_of(times, i * 30), "none")
        most = max(most, stream.stats()["late_runs"])
    assert most <= 2 * compaction.RUNS_MAX
    wait_until(lambda: stream.stats()["compactions"] > 0)
    assert numbers(stream.snapshot()) == [n for _, n in sorted(expected, key=lambda e: e[0])]
    stream.compact()
    assert numbers(stream.snapshot()) == [n for _, n in sorted(expected, key=lambda e: e[0])]
    stream.close()
    assert not stream._compactor._thread.is_alive()  # type: ignore[union-attr]


def test_a_full_disk_during_compaction_gives_its_space_back(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        stream = store.create_stream("s", SCHEMA, SMALL)
        for i in range(10):
            stream.append(batch_of(range(i * 100, i * 100 + 100), i * 100))
        stream.append(batch_of(range(0, 900, 20), 2000))
        stream.seal()
        compaction.spill(stream.commits)
        files = set(memory.list("streams/s"))
        used = sum(len(memory.read(f"streams/s/{f}")) for f in files)
        memory.capacity = sum(len(memory.read(p)) for p in _paths(memory)) + used // 3
        with pytest.raises(StorageFull):
            stream.compact()
        assert set(memory.list("streams/s")) == files
        assert stream.snapshot().count == 1045
        memory.capacity = None
        stream.compact()
        assert store.check().ok


def _paths(memory: MemoryFiles, directory: str = "") -> Iterator[str]:
    for name in memory.list(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            yield from _paths(memory, path)
        except NotADirectoryError:
            yield path


def test_a_compaction_that_is_overtaken_by_retention_loses_nothing(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    for part in range(3):
        stream.append(batch_of([part * 100, part * 100 + 1], part * 10))
        stream.seal()
    stream.append(batch_of([50, 150], 100))
    fold = compaction._begin(stream.commits)
    assert fold is not None
    compaction._rewrite(stream.commits, fold, lambda: False)
    with stream.commits.lock:  # the base loses its first segment meanwhile
        manifest = stream.commits.manifest
        fewer = replace(manifest, segments=manifest.segments[1:])
        stream.commits.apply(Edit(stream.commits.journal, stream.commits.active, fewer))
    assert not compaction._finish(stream.commits, fold)
    stream.commits.fold()
    assert numbers(Snapshot(stream.commits.state())) == [100, 10, 11, 101, 20, 21]
    stream.compact()
    assert numbers(stream.snapshot()) == [100, 10, 11, 101, 20, 21]


def test_closing_interrupts_a_compaction(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    stream.append(batch_of(range(500)))
    stream.append(batch_of(range(60), 500))
    stream._compactor._stopped.set()
    with pytest.raises(StoreClosed, match="was closed while it was compacted"):
        stream.compact()
    assert stream.stats()["late_runs"] == 1
    stream.close()
    assert store.check().notes == []


# -- retention ----------------------------------------------------------------------------------


def test_a_compaction_that_is_asked_for_makes_the_age_exact(store: Store) -> None:
    """Segments, late runs, the buffer and the active segment, whatever reaches over the edge."""
    options = StreamOptions(leaf_bytes=512, late_events_max=20, compaction="manual")
    stream = store.create_stream("s", SCHEMA, options)
    stream.append(batch_of(range(0, 300), 0))
    stream.seal()
    stream.append(batch_of(range(300, 400), 300))
    stream.append(batch_of(range(100, 340, 5), 400))
    stream.append(batch_of([150, 299, 310, 311], 500))
    before = stream.snapshot()
    stream.alter(set_options, retention="99")
    stream.compact()
    kept = stream.snapshot()
    assert kept.time_range == (300, 399)
    assert sorted(numbers(kept)) == [*range(300, 400), *range(440, 448), 502, 503]
    assert stream.stats()["dropped_events"] == before.count - kept.count
    assert before.count == 452
    position, version = kept.version, stream.stats()["manifest_version"]
    stream.compact()
    assert (stream.snapshot().version, stream.stats()["manifest_version"]) == (position, version)
    stream.append(batch_of([450], 600))
    stream.compact()
    assert stream.snapshot().time_range == (351, 450)
    assert store.check().ok


def test_a_snapshot_outlives_retention_and_compaction(store: Store, memory: MemoryFiles) -> None:
    options = StreamOptions(
        leaf_bytes=512, segment_bytes=4096, retention="300", compaction="manual"
    )
    stream = store.create_stream("s", SCHEMA, options)
    stream.append(batch_of(range(200)))
    stream.seal()
    stream.append(batch_of(range(50, 90), 500))
    kept = stream.snapshot()
    expected = numbers(kept)
    scan = kept.scan(columns=["n"])
    begun = next(scan).column(0).to_pylist()
    stream.compact()
    stream.append(batch_of(range(200, 2000), 1000))
    stream.seal()
    assert stream.stats()["dropped_events"] > 0
    assert begun + [n for batch in scan for n in batch.column(0).to_pylist()] == expected
    assert numbers(kept) == expected
    assert kept.aggregate(["n"]).count == 240


def of_size(memory_limit: str) -> StreamOptions:
    return StreamOptions(
        leaf_bytes=4096, retention=memory_limit, codec="none", late_events_max=200,
        compaction="manual",
    )  # fmt: skip


def random_batch(first: int, events: int) -> pa.RecordBatch:
    """Events whose numbers cannot be packed: about 12 bytes each on disk."""
    values = np.random.default_rng(first).integers(0, 1 << 62, events)
    return pa.RecordBatch.from_arrays(
        [pa.array(np.arange(first, first + events)), pa.array(values), pa.array(["x"] * events)],
        schema=SCHEMA.arrow,
    )


def ticks(stream: EventStream) -> list[int]:
    return [t for batch in stream.snapshot().scan(columns=["t"]) for t in batch[0].to_pylist()]


def shown(stream: EventStream) -> int:
    """Bytes of what is shown of segments, from the first leaf on, and of late runs."""
    state = stream.snapshot().state
    total = sum(view.length for view in (*state.segments, *state.runs))
    for view in (*state.segments, *state.runs):
        hidden = view.events - events_shown(view, state.floor)[0]
        if hidden:
            total -= int(leaf_map(view, hidden).table[ROW_OFFSET, 0])
    return total


def sealed(stream: EventStream) -> int:
    manifest = stream.commits.manifest
    return sum(entry.bytes for entry in (*manifest.segments, *manifest.runs))


def test_a_bulk_load_beyond_the_size_keeps_its_newest_events(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, of_size("600 KB"))
    job = new_job()
    plan = StagingPlan(stream.directory, job, SCHEMA, stream.options)
    prepare_staging(stream.files, plan)
    pieces = iter([random_batch(at, 10_000) for at in range(0, 200_000, 10_000)])
    commit_staged(stream, job, stage(stream.files, plan, 0, [pieces]))
    found = ticks(stream)
    assert found == list(range(found[0], 200_000))
    assert 600_000 - 2 * 4096 < shown(stream) <= 600_000
    assert sealed(stream) <= 600_000 + 600_000 // 8 + 2 * 4096


def test_folding_leaves_segments_that_retention_by_size_can_drop(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, of_size("600 KB"))
    for at in range(0, 40_000, 4000):
        stream.append(random_batch(at, 4000))
    stream.seal()
    first = ticks(stream)[0]
    for at in range(first, 40_000, 500):  # late, into every segment
        stream.append(random_batch(at, 1))
    stream.compact()
    assert stream.commits.manifest.runs == ()
    assert max(entry.bytes for entry in stream.commits.manifest.segments) < 2 * 600_000 // 8
    for at in range(40_000, 60_000, 4000):
        stream.append(random_batch(at, 4000))
    stream.seal()
    assert ticks(stream)[-1] == 59_999
    assert 400_000 < shown(stream) <= 600_000
    assert sealed(stream) <= 600_000 + 2 * 600_000 // 8


def test_late_runs_go_by_size_as_segments_do(store: Store) -> None:
    """Runs that alone are larger than the limit do not push out everything that is newer."""
    stream = store.create_stream("s", SCHEMA, of_size("200 KB"))
    stream.append(random_batch(1_000_000, 1))
    for at in range(0, 60_000, 3000):
        stream.append(random_batch(at, 3000))
    stream.append(random_batch(2_000_000, 4000))
    stream.seal()
    assert ticks(stream)[-4000:] == list(range(2_000_000, 2_004_000))
    assert shown(stream) <= 200_000
    assert sealed(stream) <= 200_000 + 64 * 1024


def test_a_smaller_size_cuts_the_newest_segment_and_a_compaction_removes_the_rest(
    store: Store,
) -> None:
    stream = store.create_stream("s", SCHEMA, StreamOptions(leaf_bytes=4096, codec="none"))
    stream.append(random_batch(0, 50_000))
    stream.seal()
    stream.alter(set_options, retention="100 KB")
    found = ticks(stream)
    assert found == list(range(found[0], 50_000))
    assert 100_000 - 2 * 4096 < shown(stream) <= 100_000
    assert sealed(stream) > 400_000  # the one segment there is
    stream.compact()
    assert ticks(stream) == found
    assert 60_000 < sealed(stream) <= 110_000
    assert stream.stats()["dropped_events"] == 50_000 - len(found)
    assert store.check().ok
