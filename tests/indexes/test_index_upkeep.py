"""Indexes beside what happens to their stream: lag, power cuts, backups, compaction, repair."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.catalog.streams import handle_of
from chronicle.errors import InvalidArgument, SqlError
from chronicle.indexes.manager import copy_indexes
from chronicle.indexes.stream_indexes import StreamIndexes

SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.int64())])
OPTIONS = {"leaf_bytes": 1 << 12, "segment_bytes": 1 << 14}

PATTERN = (
    "SELECT /*+ strategy({}) */ * FROM s MATCH_RECOGNIZE (ORDER BY t "
    "MEASURES A.t AS t, B.x AS x PATTERN (A B) DEFINE A AS x < 5)"
)


def events(count: int, start: int = 0, seed: int = 0) -> pa.Table:
    x = np.random.default_rng(seed).integers(0, 1000, count)
    return pa.table({"t": start + np.arange(count), "x": x}, schema=SCHEMA)


def rows(database: Any, strategy: str) -> list[Any]:
    found: list[Any] = database.sql(PATTERN.format(strategy)).fetchall()
    return found


@pytest.mark.usefixtures("nobody_builds")
def test_appends_wait_for_an_index_that_may_not_lag(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", SCHEMA, "t", options=OPTIONS)
        stream.create_index("x", lag_events_max=5_000)
        assert stream.indexes()[0]["lag_events_max"] == 5_000
    with chronicle.open(tmp_path / "s") as database:  # the limit is kept
        stream = database.stream("s")
        indexes = catalog_of(database).indexes_of("s")
        lags = []
        for step in range(20):
            stream.append(events(1_000, 1_000 * step, step))
            lags.append(indexes.lag(stream.snapshot().state))
        assert max(lags) <= 5_000
        assert max(lags) > 1_000  # they do lag
        assert indexes.verify(stream.snapshot().state) == []
        database.sql("DROP INDEX ON s (x)")
        database.sql("CREATE INDEX ON s (x)")
        for step in range(20, 30):
            stream.append(events(1_000, 1_000 * step, step))
        assert indexes.lag(stream.snapshot().state) > 5_000
        database.sql("DROP INDEX ON s (x)")
        database.sql("CREATE INDEX ON s (x) WITH (lag_events_max = 0)")
        stream.append(events(1_000, 30_000))
        assert indexes.lag(stream.snapshot().state) == 0


def test_the_limit_of_an_index_is_a_number_of_events(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", SCHEMA, "t")
        with pytest.raises(InvalidArgument, match="number of events from 0"):
            stream.create_index("x", lag_events_max=-1)
        with pytest.raises(SqlError, match="number of events"):
            database.sql("CREATE INDEX ON s (x) WITH (lag_events_max = 'few')")
        with pytest.raises(SqlError, match="did you mean lag_events_max"):
            database.sql("CREATE INDEX ON s (x) WITH (lag_event_max = 5)")
        assert stream.indexes() == []


@pytest.mark.usefixtures("nobody_builds")
def test_an_append_that_is_committed_does_not_fail_for_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **settings: Any) -> bool:
        raise OSError("no space")

    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", SCHEMA, "t", options=OPTIONS)
        stream.create_index("x", lag_events_max=0)
        monkeypatch.setattr(StreamIndexes, "build_next", broken)
        assert stream.append(events(3_000)).count == 3_000


@pytest.mark.usefixtures("nobody_builds")
def test_runs_of_leaves_that_a_power_cut_took_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with chronicle.open(path) as database:
        stream = database.create_stream(
            "s", SCHEMA, "t", options={**OPTIONS, "segment_bytes": 1 << 30, "durability": "none"}
        )
        stream.append(events(5_000))
        stream.create_index("x")
    shutil.copytree(path, tmp_path / "synced", ignore=shutil.ignore_patterns("indexes"))
    with chronicle.open(path) as database:
        database.stream("s").append(events(5_000, 5_000, 1))
        indexes = catalog_of(database).indexes_of("s")
        indexes.catch_up(database.stream("s").snapshot().state)
    # the runs are on the disk, the second half of the events is not
    (directory,) = (path / "streams").iterdir()
    shutil.copytree(directory / "indexes", tmp_path / "synced/streams" / directory.name / "indexes")
    with chronicle.open(tmp_path / "synced") as database:
        stream = database.stream("s")
        stream.append(events(5_000, 5_000, 2))
        assert rows(database, "all") == rows(database, "replay")
        assert database.check().ok


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_backup_has_the_indexes(tmp_path: Path, mode: str) -> None:
    path, copy = tmp_path / "s", tmp_path / "copy"
    with chronicle.open(path) as database:
        stream = database.create_stream("s", SCHEMA, "t", options=OPTIONS)
        database.create_stream("bare", SCHEMA, "t").append(events(5))
        for step in range(6):
            stream.append(events(5_000, 5_000 * step, step))
        stream.create_index("x", lag_events_max=77_777)
        stream.append(events(100, 20_000, 3))  # late
        expected = rows(database, "replay")
        told = stream.indexes()
        if mode == "rw":
            database.backup(copy)
    if mode == "r":
        with chronicle.open(path, "r") as reader:
            reader.backup(copy)
    shutil.rmtree(path)
    for restored in ("r", "rw"):
        with chronicle.open(copy, restored) as database:
            assert database.check().ok
            found = database.stream("s").indexes()
            assert found[0]["runs"] > 1
            assert found[0] == told[0]
            assert database.stream("bare").indexes() == []
            assert rows(database, "all") == expected
            assert "entries read" in str(database.explain(PATTERN.format("all"), analyze=True))
    with chronicle.open(copy) as database:
        database.stream("s").append(events(30_000, 30_000, 4))
        assert rows(database, "all") == rows(database, "replay")
        assert database.check().ok


def test_a_copy_leaves_out_runs_that_reach_beyond_it(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", SCHEMA, "t", options=OPTIONS)
        stream.append(events(20_000))
        stream.append(events(500, 20_000))
        earlier = stream.snapshot().state
        stream.append(events(500, 21_000, 1))
        stream.create_index("x")
        indexes = catalog_of(database).indexes_of("s")
        alive = {view.file.segment_id: view.events for view in earlier.segments}
        copy_indexes(indexes, tmp_path / "copy", earlier.schema, alive)
        copied = StreamIndexes(tmp_path / "copy", True)
        try:
            assert copied.verify(earlier) == []
            figures = copied.figures("x", earlier)
            assert 0 < figures["covered_events"] < sum(v.events for v in earlier.segments)
            copied.catch_up(earlier)
            assert copied.lag(earlier) == 0
            assert copied.verify(earlier) == []
        finally:
            copied.close()


@pytest.mark.usefixtures("nobody_builds")
def test_readers_check_beside_runs_that_nobody_has_removed_yet(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", SCHEMA, "t", options=OPTIONS)
        stream.append(events(20_000))
        stream.create_index("x")
        stream.append(events(10, 100, 1))
        handle_of(stream).compact()  # the store's own, which does not know of indexes
        assert catalog_of(database).indexes_of("s").verify(stream.snapshot().state) != []
    with chronicle.open(tmp_path / "s", "r") as database:
        assert [str(problem) for problem in database.check().problems] == []
        assert rows(database, "all") == rows(database, "replay")


@pytest.mark.usefixtures("nobody_builds")
def test_repair_builds_the_runs_of_what_it_wrote_anew(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream("s", SCHEMA, "t", options=OPTIONS)
        stream.append(events(20_000))
        stream.seal()
        stream.create_index("x")
    file = sorted(tmp_path.glob("s/streams/*/*.seg"))[0]
    data = bytearray(file.read_bytes())
    data[5_000] ^= 1
    file.write_bytes(data)
    with chronicle.open(tmp_path / "s") as database:
        report = database.check(repair=True)
        assert report.lost_events > 0
        assert database.check().ok
        assert database.stream("s").indexes()[0]["covered"] == 1.0
        assert rows(database, "all") == rows(database, "replay")
