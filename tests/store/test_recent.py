"""The latest commits: each once and in order, whatever they are made of, within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.catalog.tailing import Place
from chronicle.errors import InvalidArgument, SnapshotExpired
from chronicle.schema import StreamSchema
from chronicle.store import recent
from chronicle.store.recent import Commit, LargeCommit, logged_commits
from chronicle.store.staging import StagingPlan, commit_staged, new_job, prepare_staging, stage
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64())]), "t")


def batch(*times: int, n: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"t": times, "n": [n] * len(times)}, schema=SCHEMA.arrow)


@pytest.fixture
def stream() -> Any:
    return Store.open("mem", files=MemoryFiles()).create_stream("s", SCHEMA)


def times(commit: Commit | LargeCommit) -> list[int]:
    return [t for each in commit.batches() for t in each.column("t").to_pylist()]


def test_commits_are_remembered_while_somebody_follows(stream: Any) -> None:
    stream.append(batch(5))
    first, second = stream.follow(), stream.follow()
    assert first is second
    assert first.commits(0, 1) is None  # before anybody followed
    stream.append(batch(9, 7))
    stream.append(batch(3))
    found = first.commits(1, 3)
    assert [(c.position, c.late, times(c)) for c in found] == [(2, 0, [7, 9]), (3, 1, [3])]
    assert [c.position for c in first.commits(1, 2)] == [2]
    assert first.commits(3, 3) == []
    stream.unfollow()
    assert stream.commits.tap is first
    stream.unfollow()
    assert stream.commits.tap is None


def test_large_commits_are_read_back_from_the_trees(
    stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "LARGE_BYTES", 100)
    monkeypatch.setattr("chronicle.store.stream.LARGE_BYTES", 100)
    stream.append(batch(*range(0, 100, 2), n=1))
    remembered = stream.follow()
    stream.append(batch(*range(0, 60, 3), 500, n=2))
    stream.append(batch(501))
    stream.seal()
    large, small = remembered.commits(1, 3)
    assert isinstance(large, LargeCommit)
    assert isinstance(small, Commit)
    assert times(large) == [*range(0, 60, 3), 500]
    assert {n for each in large.batches() for n in each.column("n").to_pylist()} == {2}


def test_bulk_commits_are_told_and_truncations_are_not(stream: Any) -> None:
    stream.append(batch(*range(10)))
    remembered = stream.follow()
    for truncate in (False, True):
        job = new_job()
        commits = stream.commits
        plan = StagingPlan(stream.directory, job, stream.schema, stream.options)
        prepare_staging(commits.files, plan)
        staged = stage(commits.files, plan, 0, [iter([batch(*range(5, 15), n=3)])])
        commit_staged(stream, job, staged, truncate=truncate)
        if not truncate:
            (found,) = remembered.commits(1, 2)
            assert times(found) == list(range(5, 15))
    assert remembered.commits(1, 3) is None
    assert remembered.commits(3, 3) == []


def test_what_is_remembered_has_a_bound(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "BYTES_MAX", 20_000)
    remembered = stream.follow()
    for t in range(50):
        stream.append(batch(t))
    assert remembered.commits(0, 50) is None
    found = remembered.commits(48, 50)
    assert [c.position for c in found] == [49, 50]
    assert sum(c.nbytes for c in remembered._commits) <= 20_000


def test_the_log_tells_of_commits_that_nobody_followed(stream: Any) -> None:
    stream.append(batch(10, 12))
    stream.append(batch(5, 20))
    since, found = logged_commits(stream.files, stream.directory)
    assert since == 0
    assert [(c.position, c.late, times(c)) for c in found] == [(1, 0, [10, 12]), (2, 1, [5, 20])]
    stream.seal()
    stream.append(batch(30))
    since, found = logged_commits(stream.files, stream.directory)
    assert (since, [c.position for c in found]) == (2, [3])


def test_places_are_written_as_they_are_read() -> None:
    for place in (Place(7), Place(7, 3), Place(0, 5, 9), Place(2, 0, 9)):
        assert Place.parse(str(place)) == place
    for text in ("", "-1", "7.", "7~", "9~7", "7.3.1", "x", str(2**64), "1.99999999999999999999"):
        with pytest.raises(InvalidArgument):
            Place.parse(text)


def test_a_tail_follows_a_store_that_another_process_writes(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("t", pa.int64(), False), pa.field("n", pa.int64())])
    with chronicle.open(tmp_path / "st") as writer:
        stream = writer.create_stream("s", schema, time="t")
        stream.append([{"t": 5, "n": 0}])
        with chronicle.open(tmp_path / "st", mode="r") as reader:
            told = reader.stream("s").tail(0, columns=["t"])
            assert next(told).to_pylist() == [{"t": 5}]
            stream.append([{"t": 1, "n": 1}, {"t": 9, "n": 2}])
            assert next(told).to_pylist() == [{"t": 1}, {"t": 9}]
            stream.add_column("more", pa.string())
            stream.append([{"t": 2, "n": 3, "more": "x"}])
            assert next(told).to_pylist() == [{"t": 2}]
            stream.seal()
            stream.append([{"t": 3, "n": 4, "more": "x"}])
            assert next(told).to_pylist() == [{"t": 3}]
            place = told.position
            told.close()
            stream.append([{"t": 4, "n": 5, "more": "x"}, {"t": 4, "n": 6, "more": "y"}])
            again = reader.stream("s").tail(place, follow=False, where="more = 'x'")
            assert [row["n"] for each in again for row in each.to_pylist()] == [5]
        with pytest.raises(SnapshotExpired):
            stream.tail(99)
