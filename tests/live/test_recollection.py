"""What a live query remembers of its sink is what the sink says."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.core.identity import words_of
from chronicle.live import sink
from chronicle.live.changes import Emitted
from chronicle.live.sink import Recollection, RecollectionBudget, ids_of

FIELDS = [pa.field("x", pa.int64()), pa.field("s", pa.string())]
LOG = pa.schema(
    [
        pa.field("_time", pa.int64()),
        pa.field("_id", pa.binary()),
        pa.field("_rev", pa.int32()),
        pa.field("_diff", pa.int8()),
        *FIELDS,
    ]
)


def rows(said: Emitted) -> list[tuple[Any, ...]]:
    net = said.net
    columns = [net.time.tolist(), net.id.to_pylist(), said.revision.tolist()]
    return list(zip(*columns, *(c.to_pylist() for c in net.columns.columns), strict=True))


class Log:
    """Changes as a live query says them: one result of an identity at a time, or none."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.holds: dict[bytes, dict[str, Any]] = {}
        self.last: dict[bytes, int] = {}
        self.said: list[dict[str, Any]] = []

    def step(self, since: int) -> list[dict[str, Any]]:
        rng, gone, found = self.rng, [], []
        for number in rng.sample(range(60), 12):
            id_ = number.to_bytes(16, "little")
            if id_ in self.holds and rng.random() < 0.8:
                gone.append({**self.holds.pop(id_), "_diff": -1})
            if id_ not in self.holds and rng.random() < 0.7:
                self.last[id_] = self.last.get(id_, -1) + 1
                row = {"_time": since + rng.randrange(40), "_id": id_, "_rev": self.last[id_]}
                row |= {"_diff": 1, "x": rng.randrange(5), "s": rng.choice(["a", None])}
                self.holds[id_] = row
                found.append(row)
        self.said += gone + found
        return gone + found

    def table(self) -> pa.RecordBatch:
        """All of it, as the sink gives it: in the order of time."""
        ordered = sorted(self.said, key=lambda row: row["_time"])
        return pa.RecordBatch.from_pylist(ordered, schema=LOG)


def noted(known: Recollection, batch: pa.RecordBatch) -> None:
    numbers = {n: batch.column(n).to_numpy().astype(np.int64) for n in ("_time", "_rev", "_diff")}
    known.note(
        numbers["_time"], batch.column("_id"), numbers["_rev"], numbers["_diff"],
        batch.select(["x", "s"]),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_it_says_what_the_sink_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr(sink, "ROWS_MAX", 60)
    log, rng = Log(seed), random.Random(seed)
    for _ in range(5):
        log.step(0)
    known = Recollection(5, FIELDS)
    noted(known, log.table())
    for number in range(25):
        noted(known, pa.RecordBatch.from_pylist(log.step(number), schema=LOG))
        low = max(known.since, rng.randrange(40))
        high = low + rng.randrange(60)
        table = log.table()
        inside = [low <= t <= high for t in table.column("_time").to_pylist()]
        wanted = Emitted.of(table.filter(pa.array(inside)), ("x", "s"))
        found = known.emitted(low, high)
        assert sorted(rows(found)) == sorted(rows(wanted))
        assert found.net.time.tolist() == sorted(found.net.time.tolist())
        some = pa.array([rng.randrange(70).to_bytes(16, "little") for _ in range(9)], pa.binary())
        assert sorted(rows(known.emitted_of(some, low, high))) == sorted(rows(wanted.named(some)))
        holding = [id_ for id_ in log.last if log.last[id_] >= 0 and id_ in log.holds]
        ids = pa.array([i for i in holding if log.holds[i]["_time"] >= known.since], pa.binary())
        assert known.emitted(low, high).last(ids).tolist() == [log.last[i] for i in ids.to_pylist()]
    assert known.nbytes > 0


def test_identities_are_two_words() -> None:
    ids = pa.array([bytes([i]) * 16 for i in range(9)], pa.binary())
    assert ids_of(words_of(ids)).equals(ids)
    assert ids_of(words_of(ids.slice(3, 4))).equals(ids.slice(3, 4))
    assert words_of(pa.array([], pa.binary())).shape == (0, 2)


def test_the_least_used_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Owner:
        forgot = 0

        def forget(self) -> None:
            self.forgot += 1
            budget.release(self)

    monkeypatch.setattr(sink, "BYTES_MAX", 100)
    budget, owners = RecollectionBudget(), [Owner() for _ in range(3)]
    budget.hold(owners[0], 40)
    budget.hold(owners[1], 40)
    budget.hold(owners[0], 50)
    budget.hold(owners[2], 40)
    assert [owner.forgot for owner in owners] == [0, 1, 0]
    budget.hold(owners[1], 300)
    assert [owner.forgot for owner in owners] == [1, 1, 1]


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
        db.live_statements.query("w").sink.forget()
        stream.append([{"t": 3, "k": 0, "x": 7}])
        db.run_live()
        live.refresh()
        stream.append([{"t": 4, "k": 0, "x": 7}, {"t": 60, "k": 5, "x": 7}])
        db.run_live()
        assert live.verify() == 0
        assert live.net().num_rows == 22 + 1
