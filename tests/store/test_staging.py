"""Bulk loads: staged segments appear at once, once, in their place, and not at all when aborted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import InvalidArgument, SchemaMismatch, SnapshotExpired, StorageFailed
from chronicle.store import staging
from chronicle.store.catalog import BulkCommit
from chronicle.store.options import StreamOptions
from chronicle.store.pins import open_pinned, pin_stream
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

from .conftest import SCHEMA, batch_of

SMALL = StreamOptions(leaf_bytes=2048, segment_bytes=32 << 10, late_events_max=64)


def rows_of(stream: EventStream) -> list[tuple[int, int]]:
    rows: list[tuple[int, int]] = []
    for batch in stream.snapshot().scan(columns=["t", "n"]):
        rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return rows


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store") as opened:
        yield opened


def load_parts(
    store: Store,
    stream: EventStream,
    parts: Sequence[Sequence[int]],
    first: int = 0,
    job: str | None = None,
    **how: object,
) -> BulkCommit:
    job = job or staging.new_job()
    directory = store.directory_of(stream.name)
    plan = staging.StagingPlan(directory, job, stream.schema, stream.options)
    staging.prepare_staging(store.files, plan)
    staged = []
    for part, times in enumerate(parts):
        batch = batch_of(times, first)
        first += len(times)
        order = sorted(range(len(times)), key=lambda i: times[i])
        run = batch.take(pa.array(order, pa.int64()))
        pieces = [run.slice(at, 100) for at in range(0, run.num_rows, 100)]
        staged += staging.stage(store.files, plan, part, [iter(pieces)])
    return staging.commit_staged(stream, job, staged, **how)  # type: ignore[arg-type]


def test_disjoint_parts_become_base_segments_in_order_of_time(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    result = load_parts(store, stream, [range(500, 1000), range(0, 500)])
    assert (result.events, result.late, result.segments, result.runs) == (1000, 0, 2, 0)
    assert [t for t, _ in rows_of(stream)] == list(range(1000))
    assert [(view.first, view.last) for view in stream.snapshot().state.segments] == [
        (0, 499), (500, 999),
    ]  # fmt: skip
    assert stream.snapshot().dirty_ranges() == []
    assert not store.files.exists(f"{store.directory_of('s')}/staging/x")
    assert store.files.list(f"{store.directory_of('s')}/staging") == []


def test_a_gap_is_filled_and_an_overlap_becomes_a_run(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    stream.append(batch_of(range(0, 100)))
    load_parts(store, stream, [range(1000, 1100)], 100)
    gap = load_parts(store, stream, [range(500, 600)], 200)
    assert (gap.segments, gap.runs, gap.late) == (1, 0, 0)
    overlap = load_parts(store, stream, [range(550, 1050)], 300)
    assert (overlap.segments, overlap.runs, overlap.late) == (0, 1, 500)
    expected = [
        *((t, t) for t in range(100)),
        *((t, 100 + t - 1000) for t in range(1000, 1100)),
        *((t, 200 + t - 500) for t in range(500, 600)),
        *((t, 300 + t - 550) for t in range(550, 1050)),
    ]
    assert rows_of(stream) == sorted(expected)
    stream.compact()
    assert rows_of(stream) == sorted(expected)


def test_a_large_part_is_cut_into_segments(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    result = load_parts(store, stream, [[t // 3 for t in range(20_000)]])
    assert result.segments > 2
    assert result.runs == 0
    assert [n for _, n in rows_of(stream)] == list(range(20_000))


@settings(max_examples=rounds(6, 60), deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.lists(st.integers(0, 40), min_size=1, max_size=30)),
            st.tuples(
                st.just("load"),
                st.lists(
                    st.lists(st.integers(0, 60), min_size=1, max_size=40), min_size=1, max_size=4
                ),
            ),
            st.tuples(st.sampled_from(["seal", "compact", "reopen"]), st.none()),
        ),
        max_size=8,
    )
)
def test_a_stream_is_the_stable_sort_of_what_was_committed(
    steps: list[tuple[str, list[object]]],
) -> None:
    files = MemoryFiles()
    store = Store.open("memory", files=files)
    stream = store.create_stream("s", SCHEMA, SMALL)
    expected: list[tuple[int, int]] = []
    for kind, what in steps:
        first = len(expected)
        if kind == "append":
            stream.append(batch_of(what, first))
            expected += [(t, first + i) for i, t in enumerate(what)]
        elif kind == "load":
            load_parts(store, stream, what, first)
            times = [t for part in what for t in part]
            expected += [(t, first + i) for i, t in enumerate(times)]
        elif kind == "reopen":
            store.close()
            store = Store.open("memory", files=files)
            stream = store.stream("s")
        else:
            getattr(stream, kind)()
        assert rows_of(stream) == sorted(expected, key=lambda row: row[0])
        assert stream.snapshot().count == len(expected)
        numbers = stream.snapshot().aggregate(["n"])["n"]
        assert numbers.sum == (sum(n for _, n in expected) if expected else None)
    store.close()


def test_a_job_and_a_version_are_committed_once(store: Store) -> None:
    """Also after a restart."""
    stream = store.create_stream("s", SCHEMA, SMALL)
    job = staging.new_job()
    first = load_parts(store, stream, [range(10)], job=job, application="app", version=3)
    again = load_parts(store, stream, [range(10)], job=job)
    assert again.repeated
    assert (again.events, again.position) == (first.events, first.position)
    older = load_parts(store, stream, [range(10)], application="app", version=3)
    assert older.repeated
    newer = load_parts(store, stream, [range(10, 20)], 10, application="app", version=4)
    assert not newer.repeated
    assert len(rows_of(stream)) == 20
    store.close()
    with Store.open(store.path) as opened:
        stream = opened.stream("s")
        assert load_parts(opened, stream, [range(20)], application="app", version=4).repeated
        assert stream.snapshot().count == 20


def test_an_aborted_job_leaves_nothing_and_takes_nothing(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    directory = store.directory_of("s")
    job = staging.new_job()
    plan = staging.StagingPlan(directory, job, SCHEMA, SMALL)
    staging.prepare_staging(store.files, plan)
    staged = staging.stage(store.files, plan, 0, [iter([batch_of(range(5))])])
    staging.abort_staged(store.files, directory, job)
    with pytest.raises(StorageFailed, match="aborted"):
        staging.stage(store.files, plan, 1, [iter([batch_of(range(5))])])
    with pytest.raises(InvalidArgument, match="start the job again"):
        staging.commit_staged(stream, job, staged)
    assert rows_of(stream) == []


def test_truncate_replaces_all_events_in_one_commit(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    stream.append(batch_of(range(300)))
    stream.append(batch_of([5], 300))
    position = stream.snapshot().version
    before = stream.snapshot()
    load_parts(store, stream, [range(50, 60)], truncate=True)
    assert [t for t, _ in rows_of(stream)] == list(range(50, 60))
    assert stream.snapshot().version == position + 1
    assert before.count == 301
    stream.append(batch_of([61, 55]))
    assert [t for t, _ in rows_of(stream)] == sorted([*range(50, 60), 61, 55])


def test_old_jobs_are_swept(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    directory = store.directory_of("s")
    old, new = staging.new_job(lambda: 1000), staging.new_job(lambda: 90_000)
    for job in (old, new):
        staging.prepare_staging(store.files, staging.StagingPlan(directory, job, SCHEMA, SMALL))
    swept = staging.sweep_staging(store.files, directory, clock=lambda: 1001 + 24 * 3600)
    assert swept == [old]
    assert store.files.list(f"{directory}/staging") == [new]
    assert rows_of(stream) == []


def test_a_job_prepared_for_more_columns_is_refused(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    wider = SCHEMA.with_attribute("x", pa.float64())
    directory = store.directory_of("s")
    job = staging.new_job()
    plan = staging.StagingPlan(directory, job, wider, SMALL)
    staging.prepare_staging(store.files, plan)
    batch = batch_of(range(5)).append_column("x", pa.array([0.0] * 5))
    staged = staging.stage(store.files, plan, 0, [iter([batch])])
    for over in (None, (0, 9)):
        with pytest.raises(SchemaMismatch, match="4 columns"):
            staging.commit_staged(stream, job, staged, over=over)


def test_a_pin_reads_the_same_events_whatever_happens_after(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    stream = store.create_stream("s", SCHEMA, SMALL)
    stream.append(batch_of(range(0, 2000)))
    stream.append(batch_of([7, 9, 5], 2000))
    expected = rows_of(stream)
    directory = store.directory_of("s")
    pin = pin_stream(store.files, directory)
    stream.append(batch_of(range(2000, 4000), 2003))
    stream.seal()
    stream.compact()
    load_parts(store, stream, [range(1000, 1500)], 5000)
    stream.compact()
    stream.append(batch_of([1]))
    whole: list[tuple[int, int]] = []
    for low, high in [(None, 500), (500, 1700), (1700, None)]:
        snapshot = open_pinned(store.files, pin, low, high)
        for batch in snapshot.scan(low, high, ["t", "n"]):
            whole += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    assert whole == expected
    assert open_pinned(store.files, pin).count == 2003
    store.close()


def test_a_pin_that_has_expired_says_so(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    stream.append(batch_of(range(3000)))
    stream.append(batch_of([1, 2], 3000))
    stream.seal()
    pin = pin_stream(store.files, store.directory_of("s"), ttl_seconds=-1.0)
    stream.compact()
    stream.append(batch_of([3]))
    stream.compact()
    with pytest.raises(SnapshotExpired, match="plan the read again"):
        open_pinned(store.files, pin)


def test_an_earlier_commit_can_be_pinned_while_the_log_tells_of_it(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    directory = store.directory_of("s")
    stream.append(batch_of(range(10)))
    stream.append(batch_of([3], 10))
    stream.append(batch_of(range(10, 500), 11))
    last = stream.snapshot().version
    counts = []
    for position in range(last - 2, last + 1):
        pin = pin_stream(store.files, directory, position=position)
        assert pin.position == position
        counts.append(open_pinned(store.files, pin).count)
    assert counts == [10, 11, 501]
    stream.seal()
    for position in (last - 1, last + 1):
        with pytest.raises(SnapshotExpired, match=f"as of the commits {last} to {last}"):
            pin_stream(store.files, directory, position=position)
