"""Runs built by the tasks of a load: the commit finds its segments indexed, or nothing of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from chronicle.api.database import catalog_of, open_database
from chronicle.errors import ChronicleError
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.ingest.sinks import Job, StoreSink
from chronicle.schema import StreamSchema
from chronicle.store.store import Store

EVENTS = 4000
SCHEMA = StreamSchema(
    pa.schema([pa.field("t", pa.int64(), False), ("name", pa.string()), ("x", pa.float64())]), "t"
)


def some_events(start: int) -> pa.RecordBatch:
    rng = np.random.default_rng(start)
    names = [None if n == 0 else f"n{n}" for n in rng.integers(0, 50, EVENTS)]
    arrays = [pa.array(start + np.arange(EVENTS)), pa.array(names), pa.array(rng.random(EVENTS))]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA.arrow)


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with open_database(path) as database:
        database.create_stream("s", SCHEMA)
        database.stream("s").append(pa.Table.from_batches([some_events(0)]))
        catalog_of(database).create_index("s", "name")
        catalog_of(database).create_index("s", "x")
    return path


def staged_job(path: Path, starts: list[int]) -> tuple[StoreSink, Job, list[object]]:
    sink = StoreSink(path, "s")
    job = sink.new_job()
    sink.prepare(job)
    parts = [sink.stage(job, n, iter([some_events(start)])) for n, start in enumerate(starts)]
    return sink, job, [item for part in parts for item in part]


def runs_of(path: Path) -> tuple[set[int], set[int], list[str]]:
    """Segments with runs, segments of the base, and what a check of the indexes has to say."""
    with Store.open(path, mode="r") as store:
        state = store.stream("s").snapshot().state
        indexes = StreamIndexes(path / store.directory_of("s") / "indexes", False)
        try:
            found = {segment for _, segment in indexes.catalogue().runs}
            base = {view.file.segment_id for view in state.segments if view.events}
            return found, base, indexes.verify(state)
        finally:
            indexes.close()


def test_a_load_brings_the_runs_of_its_segments(indexed: Path) -> None:
    sink, job, staged = staged_job(indexed, [10_000, 20_000])
    done = sink.commit(job.name, staged)
    assert done.appended == 2 * EVENTS
    found, base, wrong = runs_of(indexed)
    assert len(base) == 3
    assert {item.entry.id for item in staged} <= found  # type: ignore[attr-defined]
    assert found <= base
    assert wrong == []
    with open_database(indexed, "r") as database:
        text = "SELECT count(*) AS n FROM s WHERE name = 'n7' AND x < 0.5"
        rows = pa.Table.from_batches([some_events(start) for start in (0, 10_000, 20_000)])
        expected = sum(r["name"] == "n7" and r["x"] < 0.5 for r in rows.to_pylist())
        assert database.sql(text).arrow().column("n").to_pylist() == [expected]
        assert all(index["covered"] > 0.66 for index in catalog_of(database).list_indexes("s"))


def test_late_and_aborted_segments_leave_no_runs(indexed: Path) -> None:
    sink, job, staged = staged_job(indexed, [100])  # older than stored events: a late run
    assert sink.commit(job.name, staged).late == EVENTS - 101  # from 3999 on they are not
    found, base, wrong = runs_of(indexed)
    assert found <= base
    assert wrong == []
    sink, job, staged = staged_job(indexed, [50_000])
    sink.abort(job.name)
    with pytest.raises(ChronicleError):
        sink.commit(job.name, staged)
    found, after, wrong = runs_of(indexed)
    assert found <= after == base
    assert wrong == []


def test_runs_of_an_index_that_was_changed_meanwhile_are_left_out(indexed: Path) -> None:
    sink, job, staged = staged_job(indexed, [10_000])
    with open_database(indexed) as database:
        catalog_of(database).drop_index("s", "x")
        catalog_of(database).drop_index("s", "name")
        catalog_of(database).create_index(
            "s", "x"
        )  # perhaps with the identifier that the other one had
    sink.commit(job.name, staged)
    found, base, wrong = runs_of(indexed)
    assert found <= base
    assert {item.entry.id for item in staged}.isdisjoint(found)  # type: ignore[attr-defined]
    assert wrong == []


def test_a_stream_without_indexes_gets_none(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_database(path) as database:
        database.create_stream("s", SCHEMA)
    sink, job, staged = staged_job(path, [0])
    assert not list(path.rglob("*.runs"))
    assert sink.commit(job.name, staged).appended == EVENTS
    assert not list(path.rglob("indexes/CURRENT"))
