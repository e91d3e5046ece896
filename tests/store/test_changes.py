"""Following a stream: each commit's events are given once, whatever happens to the files."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import SnapshotExpired
from chronicle.schema import StreamSchema
from chronicle.store import staging
from chronicle.store.changes import changed_spans, new_events, new_ranges
from chronicle.store.deleting import Choice
from chronicle.store.options import StreamOptions
from chronicle.store.pins import Pin, pin_stream
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

from .conftest import chosen

SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64()), ("v", pa.int64())]), "t")
SMALL = StreamOptions(leaf_bytes=512, segment_bytes=8 << 10, late_events_max=20)

step = st.one_of(
    st.tuples(st.just("append"), st.lists(st.integers(0, 30), min_size=1, max_size=60)),
    st.tuples(st.just("newer"), st.lists(st.integers(0, 3), min_size=1, max_size=120)),
    st.tuples(st.just("load"), st.lists(st.integers(0, 60), min_size=1, max_size=60)),
    st.tuples(
        st.sampled_from(["delete", "update"]), st.lists(st.integers(0, 90), min_size=2, max_size=3)
    ),
    st.tuples(st.sampled_from(["seal", "compact", "reopen", "look"]), st.none()),
)


def rows(batches: object) -> list[tuple[int, ...]]:
    return [
        row
        for batch in batches  # type: ignore[attr-defined]
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]


class Follower:
    """A stream, what was committed to it, and what its follower was given."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.store = Store.open("memory", files=self.files)
        self.stream: EventStream = self.store.create_stream("s", SCHEMA, SMALL)
        self.directory = self.store.directory_of("s")
        self.committed: list[tuple[int, int]] = []
        self.versions: dict[int, int] = {}
        self.updated: set[int] = set()
        self.deleted: set[int] = set()
        self.looked = 0
        self.pin: Pin | None = None

    def batch(self, times: list[int]) -> pa.RecordBatch:
        first = len(self.committed)
        new = [(t, first + i) for i, t in enumerate(times)]
        self.committed += new
        return pa.RecordBatch.from_pylist(
            [{"t": t, "n": n, "v": 0} for t, n in new], schema=SCHEMA.arrow
        )

    def run(self, kind: str, what: list[int] | None) -> None:
        if kind == "append":
            self.stream.append(self.batch(what or []))
        elif kind == "newer":
            newest = max((t for t, _ in self.committed), default=0)
            times = []
            for gap in what or []:
                newest += gap
                times.append(newest)
            self.stream.append(self.batch(times))
        elif kind == "load":
            job = staging.new_job()
            plan = staging.StagingPlan(self.directory, job, SCHEMA, SMALL)
            staging.prepare_staging(self.files, plan)
            batch = self.batch(what or []).sort_by("t")
            segments = staging.stage(self.files, plan, 0, [iter([batch])])
            staging.commit_staged(self.stream, job, segments)
        elif kind == "reopen":
            self.store.close()
            self.store = Store.open("memory", files=self.files)
            self.stream = self.store.stream("s")  # type: ignore[assignment]
        elif kind in ("delete", "update"):
            getattr(self, kind)(*sorted((what or [])[:2]), scattered=len(what or []) == 3)
        elif kind == "look":
            self.look()
        else:
            getattr(self.stream, kind)()

    def chosen(self, start: int, end: int, scattered: bool) -> tuple[Choice | None, set[int]]:
        """Of a range all, or every third of those that were ever committed."""
        choose = chosen(lambda batch: batch.column("n").to_numpy() % 3 == 0, start, end)
        return choose if scattered else None, {
            n
            for t, n in self.committed
            if start <= t < end and (n % 3 == 0 or not scattered) and n not in self.deleted
        }

    def delete(self, start: int, end: int, *, scattered: bool) -> None:
        choose, gone = self.chosen(start, end, scattered)
        assert self.stream.delete(start, end, choose) == len(gone)
        self.deleted |= gone

    def update(self, start: int, end: int, *, scattered: bool) -> None:
        def change(events: pa.RecordBatch) -> pa.RecordBatch:
            return pa.RecordBatch.from_pydict({"v": pc.add(events.column(2), 1)})

        choose, changed = self.chosen(start, end, scattered)
        assert self.stream.update(start, end, choose, change) == len(changed)
        self.updated |= changed
        for n in changed:
            self.versions[n] = self.versions.get(n, 0) + 1

    def look(self) -> None:
        pin = pin_stream(self.files, self.directory)
        ranges = new_ranges(self.files, self.pin, pin)
        given = []
        for part in ranges:
            names = ["t", "n", "v"]
            found = rows(new_events(self.files, self.pin, pin, part.start, part.end, names))
            assert len(found) == part.events
            given += found
        new = [
            (t, n, self.versions.get(n, 0))
            for t, n in self.committed
            if (n >= self.looked or n in self.updated) and n not in self.deleted
        ]
        assert given == sorted(new, key=lambda row: row[0])
        assert all(a.end is not None and a.end <= (b.start or 0) for a, b in pairwise(ranges))
        self.looked, self.pin = len(self.committed), pin
        self.updated.clear()


@settings(max_examples=rounds(8, 80), deadline=None)
@given(steps=st.lists(step, max_size=14))
def test_a_follower_is_given_every_event_once_and_what_was_updated_again(
    steps: list[tuple[str, list[int] | None]],
) -> None:
    follower = Follower()
    for kind, what in [*steps, ("look", None)]:
        follower.run(kind, what)
    follower.store.close()


def test_what_comes_where_something_was_deleted_is_new() -> None:
    follower = Follower()
    follower.run("append", [5, 5, 6])
    follower.look()
    follower.run("delete", [5, 6])
    follower.run("append", [5])
    follower.look()


def test_the_list_of_a_delete_stays_for_the_followers_before_it() -> None:
    follower = Follower()
    follower.run("newer", [1] * 30)
    follower.look()
    follower.run("update", [0, 30, 1])
    follower.run("delete", [10, 20, 1])
    follower.run("newer", [1] * 30)
    follower.run("seal", None)
    follower.run("reopen", None)
    follower.look()


def test_what_did_not_change_is_not_looked_at() -> None:
    follower = Follower()
    for _ in range(20):
        follower.run("newer", [1] * 100)
    follower.look()
    follower.run("newer", [1] * 10)
    pin = pin_stream(follower.files, follower.directory)
    (span,) = changed_spans(follower.files, follower.pin, pin)
    assert span[0] >= 1999
    found = new_ranges(follower.files, follower.pin, pin)
    assert sum(part.events for part in found) == 10
    assert sum(part.stored for part in found) < 100
    assert new_ranges(follower.files, pin, pin) == []


def test_a_truncation_cannot_be_followed() -> None:
    follower = Follower()
    follower.run("newer", [1] * 50)
    follower.look()
    job = staging.new_job()
    staging.commit_staged(follower.stream, job, [], truncate=True)
    follower.run("newer", [1] * 50)
    with pytest.raises(SnapshotExpired, match="was truncated in commit 2"):
        follower.look()
