"""An operator of one class and one line works ad hoc, in parts, and live with late events."""

from __future__ import annotations

import dataclasses
import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.api.database import Database, catalog_of
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.query import operators
from chronicle.query.contract.operator import (
    Check,
    EventOperator,
    InstantSearch,
    MatchLimits,
    PartRun,
)
from chronicle.query.operators import BoundEvents
from chronicle.query.plan.division import divide
from chronicle.query.sql.dialect import parse_statement
from chronicle.store.store import Store

SCHEMA = pa.schema([pa.field("t", pa.int64(), nullable=False), pa.field("x", pa.int64())])
ROWS = pa.schema([("t", pa.int64()), ("x", pa.int64()), ("lagged", pa.int64())])


class Lagging(InstantSearch):
    """``lagged`` of an event at t: x of the newest event from t - 2 lag to t - lag, if any."""

    def __init__(self, lag: int, low: int) -> None:
        self._lag, self._low = lag, low
        self._ticks, self._values = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        ticks, values = (batch.column(name).to_numpy() for name in ("t", "x"))
        self._ticks = np.concatenate([self._ticks, ticks])
        self._values = np.concatenate([self._values, values])
        at = np.searchsorted(self._ticks, ticks - self._lag, "right") - 1
        near = (at >= 0) & (self._ticks[at] >= ticks - 2 * self._lag)
        lagged = pa.array(self._values[at], mask=~near)
        rows = pa.record_batch([pa.array(ticks), pa.array(values), lagged], schema=ROWS)
        yield rows.filter(pa.array(ticks >= self._low))
        old = np.searchsorted(self._ticks, ticks[-1] - 2 * self._lag)
        self._ticks, self._values = self._ticks[old:], self._values[old:]

    def finish(self, last: int | None = None) -> Iterator[pa.RecordBatch]:
        return iter(())

    @property
    def nbytes(self) -> int:
        return int(self._ticks.nbytes + self._values.nbytes)


@dataclasses.dataclass(frozen=True)
class LagByTime(EventOperator):
    lag: int

    @property
    def input_columns(self) -> list[str]:
        return ["t", "x"]

    @property
    def output_schema(self) -> pa.Schema:
        return ROWS

    @property
    def reach(self) -> int:
        return 2 * self.lag

    def begin(self, limits: MatchLimits, check: Check) -> Lagging:
        return Lagging(self.lag, -(2**63))

    def begin_at(self, run: PartRun, low: int) -> Lagging:
        return Lagging(self.lag, low)


def bind_lag(site: Any) -> BoundEvents:
    stream, lag = site.item.this.expressions
    return BoundEvents(LagByTime(int(lag.this)), site.stream(stream)[0], "t")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a line in ``OPERATORS`` does."""
    line = operators.event_operator("lag_by_time", bind_lag)
    monkeypatch.setattr(operators, "OPERATORS", (*operators.OPERATORS, line))
    monkeypatch.setitem(operators.BINDERS, "lag_by_time", line.bind)  # type: ignore[arg-type]
    for node in line.nodes:
        monkeypatch.setitem(operators.OPENERS, node, line.open)  # type: ignore[arg-type]


TEXT = "SELECT t, x, lagged FROM lag_by_time(s, 10)"


def expected(events: list[tuple[int, int]], upto: int | None = None) -> list[tuple[int, int, Any]]:
    """By the definition, event for event."""
    rows = []
    for t, x in events:
        back = [v for u, v in events if t - 20 <= u <= t - 10]
        if upto is None or t <= upto:
            rows.append((t, x, back[-1] if back else None))
    return rows


def random_events(rng: random.Random, first: int, count: int) -> list[tuple[int, int]]:
    return sorted(((rng.randrange(first, first + 3 * count), rng.randrange(100))
                   for _ in range(count)), key=lambda event: event[0])  # fmt: skip


@pytest.fixture
def db(tmp_path: Any, registered: None) -> Iterator[Database]:
    with Database(StoreCatalog(Store.open(tmp_path / "store"))) as db:
        db.create_stream("s", SCHEMA, time="t")
        yield db


def put(db: Database, events: list[tuple[int, int]]) -> None:
    db.stream("s").append([{"t": t, "x": x} for t, x in events])


def test_ad_hoc_it_is_its_definition_with_sql_around_it(db: Database) -> None:
    events = random_events(random.Random(1), 0, 500)
    put(db, events)
    wanted = expected(events)
    assert db.sql(TEXT).fetchall() == wanted
    (answer,) = db.sql(
        "SELECT count(*), sum(x - lagged) FROM lag_by_time(s, 10) AS l WHERE lagged < x"
    ).fetchall()
    chosen = [(x, y) for _, x, y in wanted if y is not None and y < x]
    assert answer == (len(chosen), sum(x - y for x, y in chosen))
    assert "LagByTime" in str(db.explain(TEXT))


def test_parts_that_are_sent_are_the_answer(db: Database) -> None:
    rng = np.random.default_rng(2)
    ticks, values = np.sort(rng.integers(0, 900_000, 300_000)), rng.integers(0, 100, 300_000)
    db.stream("s").append(pa.table({"t": ticks, "x": values}))
    engine = catalog_of(db).engine
    plan = engine.plan(parse_statement(TEXT), TEXT)
    division = divide(plan, catalog_of(db).snapshot, lambda size: 5)
    assert len(division.parts) > 1, division.reason
    rows = []
    for part in pickle.loads(pickle.dumps(division.parts)):
        rows += engine.run_plan(part.plan).fetchall()
    assert rows == db.sql(TEXT).fetchall()


@pytest.mark.parametrize("seed", range(3))
def test_live_it_follows_the_stream_and_corrects_what_late_events_change(
    db: Database, seed: int
) -> None:
    rng, first = random.Random(seed), 0
    events: list[tuple[int, int]] = []
    live = db.create_live("q", TEXT, idle="never")
    for step in range(12):
        new = random_events(rng, first, 30)
        first = new[-1][0]
        if step % 3 == 2:
            new = [(rng.randrange(first), rng.randrange(100)) for _ in range(4)]
        put(db, new)
        events = sorted([*events, *new], key=lambda event: event[0])
        db.run_live()
        rows = live.net().select(["t", "x", "lagged"]).to_pylist()
        found = [tuple(row.values()) for row in rows]
        assert sorted(found, key=str) == sorted(expected(events, max(events)[0] - 1), key=str)
    assert catalog_of(db).live_statements.query("q").verify() == 0
    assert live.status()["retractions"] > 0
