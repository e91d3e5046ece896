"""Replacing a range: one commit, and what followers are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chronicle.errors import InvalidArgument, StreamOwned
from chronicle.store.catalog import BulkCommit
from chronicle.store.pins import pin_stream
from chronicle.store.segment import TICK_MAX, TICK_MIN
from chronicle.store.staging import (
    StagedSegment,
    StagingPlan,
    commit_staged,
    new_job,
    prepare_staging,
    stage,
    staged_jobs,
)
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.memory_files import MemoryFiles

from .test_deleting import OPTIONS, SCHEMA, Filled, batch_of, numbers, told

RANGE = (100, 250)
TIMES = [100 + i // 2 for i in range(240)]
NEW = 50_000


def staged_of(
    stream: EventStream, job: str, *parts: list[int], first: int = NEW
) -> list[StagedSegment]:
    """Segments of a job, one for each part, which are numbered on."""
    plan = StagingPlan(stream.directory, job, SCHEMA, stream.options)
    prepare_staging(stream.files, plan)
    staged = []
    for part, times in enumerate(parts):
        staged += stage(stream.files, plan, part, [iter([batch_of(times, first)])])
        first += len(times)
    return staged


def put(stream: EventStream, *parts: list[int], over: tuple[int, int] = RANGE) -> BulkCommit:
    job = new_job()
    return commit_staged(stream, job, staged_of(stream, job, *parts), over=over)


def replaced(events: list[tuple[int, int]], over: tuple[int, int] = RANGE) -> list[int]:
    """Numbers of events when others take the place of a range."""
    kept = [(t, n) for t, n in events if not over[0] <= t <= over[1]]
    new = [(t, NEW + i) for i, t in enumerate(TIMES)]
    return [n for _, n in sorted(kept + new, key=lambda event: event[0])]


def test_a_range_is_replaced_by_one_commit_and_its_place_is_taken() -> None:
    filled = Filled(MemoryFiles())
    stream = filled.stream
    before = stream.snapshot()
    gone = sum(RANGE[0] <= t <= RANGE[1] for t, _ in filled.events)
    done = put(stream, TIMES[:100], TIMES[100:])
    assert (done.events, done.late, done.runs, done.repeated) == (240, 0, 0, False)
    after = stream.snapshot()
    assert numbers(after) == replaced(filled.events)
    assert after.version == done.position == before.version + 1
    assert stream.stats()["deleted_events"] == gone
    assert after.dirty_ranges() == []
    assert numbers(before) == filled.all
    assert staged_jobs(filled.files, stream.directory) == []
    assert filled.store.check().ok
    filled.append([180, 460])
    late = {len(filled.events) - 2, len(filled.events) - 1}
    assert late < set(numbers(stream.snapshot()))
    filled.store.close()


@pytest.mark.parametrize("over", [(TICK_MIN, 250), (100, TICK_MAX), (TICK_MIN, TICK_MAX)])
def test_a_range_may_be_open(over: tuple[int, int]) -> None:
    memory = MemoryFiles()
    filled = Filled(memory)
    put(filled.stream, TIMES, over=over)
    assert numbers(filled.stream.snapshot()) == replaced(filled.events, over)
    filled.store.close()
    with Store.open("memory", files=memory) as store:
        stream = store.stream("s")
        assert numbers(stream.snapshot()) == replaced(filled.events, over)
        stream.append(batch_of([1000], 1))
        assert numbers(stream.snapshot())[-1] == 1


def test_a_range_within_one_segment_leaves_no_late_run() -> None:
    store = Store.open("memory", files=MemoryFiles())
    stream = store.create_stream("s", SCHEMA, replace(OPTIONS, segment_bytes=1 << 20))
    events = [(i // 3, i) for i in range(1500)]
    stream.append(batch_of([t for t, _ in events], 0))
    stream.seal()
    done = put(stream, TIMES)
    assert (done.segments, done.runs) == (1, 0)
    assert len(stream.commits.manifest.segments) == 3
    assert numbers(stream.snapshot()) == replaced(events)
    store.close()


def test_where_nothing_is_they_are_added_and_nothing_may_be_what_is_added() -> None:
    filled = Filled(MemoryFiles())
    position = filled.stream.snapshot().version
    put(filled.stream, [1000, 1001], over=(900, 2000))
    assert numbers(filled.stream.snapshot()) == [*filled.all, NEW, NEW + 1]
    put(filled.stream, over=(900, 2000))
    put(filled.stream, over=(900, 2000))
    assert numbers(filled.stream.snapshot()) == filled.all
    assert filled.stream.snapshot().version == position + 3
    filled.store.close()


def test_what_lies_outside_is_refused_and_a_job_is_committed_once() -> None:
    filled = Filled(MemoryFiles())
    stream = filled.stream
    for times in ([99, 100], [250, 251]):
        job = new_job()
        staged = staged_of(stream, job, times)
        with pytest.raises(InvalidArgument, match=r"it is 100 to 250, found events from"):
            commit_staged(stream, job, staged, over=RANGE)
    assert numbers(stream.snapshot()) == filled.all
    job = new_job()
    staged = staged_of(stream, job, TIMES)
    first = commit_staged(stream, job, staged, over=RANGE, application="a", version=3)
    for name in (job, new_job()):
        again = commit_staged(stream, name, staged, over=RANGE, application="a", version=3)
        assert again == replace(first, repeated=True)
    with pytest.raises(InvalidArgument, match="is gone"):
        commit_staged(stream, new_job(), staged, over=RANGE)
    assert numbers(stream.snapshot()) == replaced(filled.events)
    owned = filled.store.create_stream("live", SCHEMA, OPTIONS, owner="live")
    with pytest.raises(StreamOwned):
        put(owned, TIMES)
    filled.store.close()


def test_followers_are_told_of_what_came_and_of_nothing_twice() -> None:
    memory = MemoryFiles()
    filled = Filled(memory)
    tap = filled.stream.follow()
    pins = [pin_stream(memory, "streams/s")]
    position = filled.stream.snapshot().version
    new = list(range(NEW, NEW + 240))
    put(filled.stream, TIMES)
    pins.append(pin_stream(memory, "streams/s"))
    assert told(memory, *pins) == new
    (commit,) = tap.commits(position, position + 1) or ()
    assert [n for batch in commit.batches() for n in batch.column(1).to_pylist()] == new
    (arrival,) = tap.between(position, position + 1) or ()
    assert arrival.spans == (RANGE,)
    filled.stream.delete(100, 120)
    put(filled.stream, [120, 121], over=(120, 121))
    pins.append(pin_stream(memory, "streams/s"))
    assert told(memory, pins[1], pins[2]) == [NEW, NEW + 1]
    left = [n for t, n in zip(TIMES, new, strict=True) if t > 121]
    assert told(memory, pins[0], pins[2]) == [NEW, NEW + 1, *left]
    filled.stream.unfollow()
    filled.store.close()


def test_what_comes_meanwhile_stays_and_stands_before_it() -> None:
    memory = MemoryFiles()
    filled = Filled(memory)
    filled.stream.compact()
    before, old = pin_stream(memory, "streams/s"), list(filled.events)
    come: list[int] = []
    kept = filled.stream.commits.seal_writer

    def appending(writer: object) -> object:
        if not come:
            come.append(len(filled.events))
            filled.append([100, 200, 451, 452])
            come.append(len(filled.events))
        return kept(writer)  # type: ignore[arg-type]

    filled.stream.commits.seal_writer = appending  # type: ignore[method-assign,assignment]
    done = put(filled.stream, TIMES)
    del filled.stream.commits.seal_writer
    assert done.late == 240  # they meet what came
    meanwhile = filled.events[come[0] : come[1]]
    kept_events = [(t, n) for t, n in old if not RANGE[0] <= t <= RANGE[1]]
    new = [(t, NEW + i) for i, t in enumerate(TIMES)]
    wanted = sorted([*kept_events, *meanwhile, *new], key=lambda event: event[0])
    assert numbers(filled.stream.snapshot()) == [n for _, n in wanted]
    added = {n for _, n in meanwhile + new}
    after = pin_stream(memory, "streams/s")
    assert told(memory, before, after) == [n for _, n in wanted if n in added]
    filled.stream.compact()
    assert numbers(filled.stream.snapshot()) == [n for _, n in wanted]
    filled.store.close()
