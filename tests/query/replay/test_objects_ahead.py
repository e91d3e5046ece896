"""Rows of replay intervals in objects: asked for together, ahead of who reads them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import StorageFailed
from chronicle.query.replay import reading
from chronicle.query.replay.reading import read_stretches
from chronicle.query.replay.timeline import Timeline
from chronicle.schema import StreamSchema
from chronicle.store import cold_file
from chronicle.store.cold_file import ColdMapping
from chronicle.store.object_store import ObjectStore, object_store
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store

SCHEMA = StreamSchema(
    pa.schema([pa.field("t", pa.int64(), False), ("x", pa.float64()), ("n", pa.int64())]), "t"
)
EVENTS = 120_000
STARTS = np.arange(50, EVENTS - 100, 700)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ahead")
    rng = np.random.default_rng(3)
    with Store.open(path / "store") as store:
        options = StreamOptions(leaf_bytes=1 << 15, segment_bytes=1 << 18, codec="none")
        stream = store.create_stream("s", SCHEMA, options)
        for first in range(0, EVENTS, 20_000):
            ticks = np.arange(first, first + 20_000)
            columns = [ticks * 3, rng.random(20_000), ticks]
            stream.append(pa.table(columns, schema=SCHEMA.arrow))
        stream.seal()
        moved = stream.move(object_store(f"file://{path}/objects"), "own", 1 << 40)
        assert moved.segments > 2
    return path


@pytest.fixture
def timeline(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Timeline]:
    monkeypatch.setattr(reading, "GATHERED_FIRST", 500)
    monkeypatch.setattr(reading, "GATHERED_MAX", 2000)
    monkeypatch.setattr(reading, "FIRST_BYTES", 1 << 20)
    monkeypatch.setattr(reading, "GROUP_BYTES", 6 << 20)
    monkeypatch.setattr(cold_file, "GAP_BYTES", 0)
    with Store.open(path / "store", "r") as store:
        yield Timeline(store.stream("s").snapshot())


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The thread of each round of waiting."""
    threads: list[str] = []
    fetch = ColdMapping._fetch

    def noted(self: ColdMapping, pieces: Any) -> None:
        threads.append(threading.current_thread().name)
        fetch(self, pieces)

    monkeypatch.setattr(ColdMapping, "_fetch", noted)
    return threads


def asks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches each group has that is asked for."""
    asked: list[int] = []
    ask = reading._ask

    def noted(timeline: Any, ranges: Any, group: Any, names: Any) -> Any:
        asked.append(len(group))
        return ask(timeline, ranges, group, names)

    monkeypatch.setattr(reading, "_ask", noted)
    return asked


def pieces(timeline: Timeline) -> Iterator[tuple[pa.RecordBatch, Any]]:
    stretches = np.stack([STARTS - 2, STARTS, STARTS + 90, STARTS + 93], axis=1)
    return read_stretches(timeline, SCHEMA.arrow, stretches)


def test_many_batches_wait_for_few_rounds(
    timeline: Timeline, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of each segment and group, and none of who reads."""
    asked = asks(monkeypatch)
    batches = list(pieces(timeline))
    found = pa.Table.from_batches([batch for batch, _ in batches])
    wanted = np.concatenate([np.arange(at - 2, at + 93) for at in STARTS.tolist()])
    assert found.column("n").to_pylist() == wanted.tolist()
    inside = np.concatenate([flags for _, flags in batches])
    assert inside.sum() == 90 * len(STARTS)
    assert len(batches) > 8
    assert {name.rpartition("_")[0] for name in fetched} == {"chronicle-ahead"}
    assert sum(asked) == len(batches)
    assert len(asked) <= 1 + len(batches) // 2
    assert 0 < len(fetched) <= 2 * (len(timeline.parts) + len(asked))  # heads, then rows


def test_who_wants_few_rows_has_at_most_two_groups_fetched(
    timeline: Timeline, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asks(monkeypatch)
    rows = pieces(timeline)
    next(rows)
    assert len(asked) == 2
    rows.close()  # type: ignore[attr-defined]
    assert len(asked) == 2
    assert len(list(pieces(timeline))) > sum(asked[:2])
    assert len(asked) > 4  # of both


def test_what_cannot_be_read_is_told_by_who_reads_it(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = timeline.parts[2].view
    assert last is not None
    read = ObjectStore.read
    key = Path(last.file.path).stem

    def broken(self: ObjectStore, name: str, offset: int, length: int) -> bytes:
        if f"/{key}-" in name:
            raise StorageFailed("no answer")
        return read(self, name, offset, length)

    monkeypatch.setattr(ObjectStore, "read", broken)
    found: list[int] = []
    with pytest.raises(StorageFailed, match="no answer"):
        found.extend(batch.num_rows for batch, _ in pieces(timeline))
    assert sum(found) > 0  # of the segments before


def test_nothing_is_read_of_nothing(timeline: Timeline, fetched: list[str]) -> None:
    assert list(read_stretches(timeline, SCHEMA.arrow, np.zeros((0, 4), np.int64))) == []
    assert fetched == []
