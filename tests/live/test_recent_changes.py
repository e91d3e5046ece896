"""The changes of a sink that a live query caches fold to what the sink holds."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.live import sink
from chronicle.live.changes import Emitted, Removals
from chronicle.live.sink import RecentChanges

LOG = pa.schema(
    [
        ("_time", pa.int64()), ("_id", pa.binary()), ("_rev", pa.int32()), ("x", pa.int64()),
        ("s", pa.string()), ("_diff", pa.int8()),
    ]
)  # fmt: skip


class Log:
    """Changes of a live query: at most one result of an identity holds at a time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.holds: dict[bytes, dict[str, Any]] = {}
        self.last: dict[bytes, int] = {}
        self.changes: list[dict[str, Any]] = []

    def step(self, since: int) -> pa.RecordBatch:
        rng, gone, added = self.rng, [], []
        for number in rng.sample(range(60), 12):
            id_ = number.to_bytes(16, "little")
            if id_ in self.holds and rng.random() < 0.8:
                gone.append({**self.holds.pop(id_), "_diff": -1})
            if id_ not in self.holds and rng.random() < 0.7:
                self.last[id_] = self.last.get(id_, -1) + 1
                row = {"_time": since + rng.randrange(40), "_id": id_, "_rev": self.last[id_]}
                row |= {"_diff": 1, "x": rng.randrange(5), "s": rng.choice(["a", None])}
                self.holds[id_] = row
                added.append(row)
        self.changes += gone + added
        return pa.RecordBatch.from_pylist(gone + added, schema=LOG)

    def between(self, low: int, high: int) -> pa.RecordBatch:
        """As the sink gives them: in the order of time."""
        rows = [row for row in self.changes if low <= row["_time"] <= high]
        return pa.RecordBatch.from_pylist(sorted(rows, key=lambda row: row["_time"]), schema=LOG)


@pytest.mark.parametrize("seed", range(12))
def test_they_fold_to_what_the_sink_holds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "CHUNKS_MAX", 3)
    if seed % 2:
        monkeypatch.setattr(sink, "CACHED_ROWS_MAX", 120)
    log, rng = Log(seed), random.Random(seed)
    for _ in range(5):
        log.step(0)
    rows = pa.Table.from_batches([log.between(5, 1000)])
    recent = RecentChanges(5, rows, Removals(0, 0, 0, 0), rows.nbytes)
    for number in range(25):
        recent = recent.followed_by(log.step(number))
        low = max(recent.since, rng.randrange(40))
        high = low + rng.randrange(60)
        whole = recent.between(low, high).combine_chunks().to_batches()
        cached, stored = (
            Emitted.of(changes, ("x", "s"))
            for changes in (whole[0] if whole else log.between(1, 0), log.between(low, high))
        )
        assert rows_of(cached) == rows_of(stored)
        assert cached.net.time.tolist() == sorted(cached.net.time.tolist())
        ids = pa.array([rng.randrange(70).to_bytes(16, "little") for _ in range(9)], pa.binary())
        assert recent.between(low, high, ids).equals(named(recent.between(low, high), ids))
        some = pa.array([number.to_bytes(16, "little") for number in range(70)], pa.binary())
        assert cached.last(some).tolist() == stored.last(some).tolist()
    assert len(recent.rows) < len(log.changes)
    assert (recent.since > 5) == bool(seed % 2)


def named(changes: pa.Table, ids: pa.Array) -> pa.Table:
    return changes.filter(pc.is_in(changes.column("_id"), value_set=ids))


def rows_of(emitted: Emitted) -> list[tuple[Any, ...]]:
    net = emitted.net
    columns = [net.time.tolist(), net.id.to_pylist(), emitted.revision.tolist()]
    columns += [column.to_pylist() for column in net.columns.columns]
    return sorted(zip(*columns, strict=True), key=repr)


def test_a_sink_that_was_cut_or_changed_is_read_again(tmp_path: Any) -> None:
    with chronicle.open(tmp_path / "s") as db:
        schema = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("x", pa.int64())])
        stream = db.create_stream("s", schema, time="t")
        sql = (
            "SELECT window_start, k, sum(x)::BIGINT AS n FROM TUMBLE(s, t, 10) "
            "GROUP BY window_start, window_end, k"
        )
        live = db.create_live("w", sql, idle="never")
        for at in range(12):
            stream.append([{"t": 10 * at + i, "k": i % 2, "x": i} for i in range(10)])
            stream.append([{"t": max(0, 10 * at - 25), "k": 1, "x": 100}])
            db.run_live()
            assert live.verify() == 0
        catalog_of(db).live_statements.query("w").sink.forget()
        stream.append([{"t": 3, "k": 0, "x": 7}])
        db.run_live()
        live.refresh()
        stream.append([{"t": 4, "k": 0, "x": 7}, {"t": 60, "k": 5, "x": 7}])
        db.run_live()
        assert live.verify() == 0
        assert live.net().num_rows == 22 + 1
