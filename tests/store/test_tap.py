"""The tap of commits: nothing that came is outside of what it tells."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from chronicle.schema import StreamSchema
from chronicle.store.recent import ARRIVALS_MAX, CommitTap, LargeCommit
from chronicle.store.store import Store
from chronicle.store.tap import RANGES_MAX, Arrival, tick_ranges, united
from chronicle.tests.memory_files import MemoryFiles

SCHEMA = StreamSchema(pa.schema([("t", pa.int64())]), "t")


def stream() -> Any:
    return Store.open("mem", files=MemoryFiles()).create_stream("s", SCHEMA)


def append(to: Any, *ticks: int) -> Any:
    return to.append(pa.RecordBatch.from_pydict({"t": list(ticks)}, schema=SCHEMA.arrow))


def test_each_append_is_told() -> None:
    one = stream()
    append(one, 1, 2)
    tap = one.tap()
    assert tap is one.tap()
    assert tap.between(0, 1) is None  # before it was opened
    append(one, 10, 20)
    append(one, 3, 5, 25)
    append(one, 4)
    assert tap.between(1, 4) == [
        Arrival(1, 2, (), (10, 20)),
        Arrival(2, 3, ((3, 3), (5, 5)), (25, 25), 2),
        Arrival(3, 4, ((4, 4),), None, 1),
    ]
    assert tap.between(2, 3) == [Arrival(2, 3, ((3, 3), (5, 5)), (25, 25), 2)]
    tap.forget(3)
    assert tap.between(2, 4) is None
    assert tap.between(3, 4) == [Arrival(3, 4, ((4, 4),), None, 1)]
    tap.cut(4)
    assert tap.between(3, 4) is None


def test_late_events_are_held_of_the_latest_commits() -> None:
    one = stream()
    append(one, 1, 2)
    tap = one.tap()

    def held(after: int, upto: int) -> list[list[int]] | None:
        found = tap.late_events(after, upto)
        return None if found is None else [batch.column("t").to_pylist() for batch in found]

    append(one, 10, 20)
    append(one, 3, 5, 25)
    append(one, 4)
    append(one, 30)
    assert held(0, 5) is None  # before it was opened
    assert held(1, 5) == [[3, 5], [4]]
    assert held(2, 3) == [[3, 5]]
    assert held(4, 5) == []
    tap.forget(3)
    assert held(2, 5) is None
    assert held(3, 5) == [[4]]
    append(one, *range(6, 8))
    state = one.commits.state()
    large = LargeCommit(7, 3, state, state, ((1, 9),))
    tap.note(Arrival(6, 7, ((1, 9),), None, 3), large)
    assert held(3, 7) is None
    assert held(7, 7) == []
    assert one.follow() is tap
    tap.forget(7)
    assert tap.commits(6, 7) == [large]  # a follower may want it
    one.unfollow()
    assert one.tap() is tap
    tap.cut(8)
    assert held(6, 7) is None
    assert held(8, 8) == []


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=300))
def test_ranges_cover_ticks(ticks: list[int]) -> None:
    spans = tick_ranges(np.array(sorted(ticks), np.int64))
    assert len(spans) <= RANGES_MAX
    assert all(any(low <= t <= high for low, high in spans) for t in ticks)
    assert all(before[1] < after[0] for before, after in pairwise(spans))
    if len(set(ticks)) <= RANGES_MAX:
        assert spans == tuple((t, t) for t in sorted(set(ticks)))


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 20)), max_size=200))
def test_united_ranges_cover_all(pairs: list[tuple[int, int]]) -> None:
    spans = tuple((low, low + length) for low, length in pairs)
    joined = united(spans)
    assert len(joined) <= max(RANGES_MAX, 1)
    for low, high in spans:
        assert any(first <= low and high <= last for first, last in joined)


def test_too_many_commits_are_joined() -> None:
    tap = CommitTap(0)
    for position in range(1, ARRIVALS_MAX + 2):
        tap.note(Arrival(position - 1, position, ((position, position),), (7, 7)))
    found = tap.between(5, 8)
    assert found is not None
    assert len(found) == 1  # more than was asked for, never less
    assert all(any(a <= p <= b for a, b in found[0].late) for p in (6, 7, 8))
    assert len(tap.between(0, ARRIVALS_MAX + 1) or ()) < ARRIVALS_MAX
