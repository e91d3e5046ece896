"""Late events are merged into the groups of windows that were put out: what a query says then."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.live import window_form
from chronicle.live.window_form import WindowForm

SCHEMA = pa.schema(
    [
        pa.field("t", pa.int64(), False),
        pa.field("k", pa.string()),
        pa.field("x", pa.int64()),
        pa.field("f", pa.float64()),
        pa.field("u", pa.uint8()),
    ]
)
EXACT = "count(*) AS n, count(x) AS m, sum(x)::BIGINT AS s, min(f) AS a, max(f) AS b, max(u) AS c"
KEPT = {
    "tumble": f"SELECT window_start, k, {EXACT} FROM TUMBLE(s, t, 20) GROUP BY 1, window_end, k",
    "hop": f"SELECT window_start, k, {EXACT} FROM HOP(s, t, 10, 25) GROUP BY 1, window_end, k",
    "gaps": f"SELECT window_start, k, {EXACT} FROM HOP(s, t, 30, 20) GROUP BY 1, window_end, k",
    "where": "SELECT window_start, k, u, avg(x) AS m FROM TUMBLE(s, t, 20) WHERE x > 2 "
    "GROUP BY window_start, window_end, k, u",
    "having": "SELECT window_start, k, count(*) AS n FROM TUMBLE(s, t, 20) "
    "GROUP BY window_start, window_end, k HAVING count(*) BETWEEN 2 AND 4",
    "derived": "SELECT window_start, x % 3 AS r, sum(x) * 2 AS d FROM TUMBLE(s, t, 20) "
    "GROUP BY window_start, window_end, x % 3 HAVING min(x) < 4",
}
NOT_KEPT = {
    "floats": "SELECT window_start, k, sum(f) AS s FROM TUMBLE(s, t, 20) GROUP BY 1, window_end, k",
    "ordered": "SELECT window_start, k, first(x) AS s FROM TUMBLE(s, t, 20) "
    "GROUP BY window_start, window_end, k",
    "listed": "SELECT window_start, k, median(x) AS s FROM TUMBLE(s, t, 20) "
    "GROUP BY window_start, window_end, k",
    "one key less": "SELECT window_start, sum(x) AS s FROM TUMBLE(s, t, 20) GROUP BY 1, window_end",
}


def events(rng: random.Random, ticks: list[int]) -> list[dict[str, Any]]:
    """A few keys, values that may be missing."""
    return [
        {
            "t": t,
            "k": rng.choice(["a", "b", None]),
            "x": rng.choice([None, *range(9)]),
            "f": rng.choice([None, 0.0, -0.0, 1.5, float("nan"), -3.25]),
            "u": rng.choice([None, 0, 255]),
        }
        for t in ticks
    ]


def told(row: dict[str, Any]) -> str:
    """A row as text; zeros have no sign."""
    return repr([value + 0.0 if isinstance(value, float) else value for value in row.values()])


def form(database: Any, name: str) -> WindowForm:
    """The windows of a live query."""
    found = catalog_of(database).live_statements.query(name).form
    assert isinstance(found, WindowForm)
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", [*KEPT, *NOT_KEPT])
def test_late_events_change_what_the_query_says(tmp_path: Path, name: str, seed: int) -> None:
    rng, sql = random.Random(f"{name} {seed}"), {**KEPT, **NOT_KEPT}[name]
    merged = 0
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t", options={"late_events_max": 50})
        live = database.create_live("q", sql, idle="never")
        at = 0
        for number in range(14):
            ticks = sorted(at + rng.randrange(45) for _ in range(rng.randrange(30)))
            stream.append(events(rng, ticks))
            at = max([at, *ticks])
            if rng.random() < 0.8:
                reach = rng.choice([5, 40, 400])
                late = sorted(max(0, at - rng.randrange(reach)) for _ in range(rng.randrange(1, 9)))
                stream.append(events(rng, late))
            if number == 8:
                stream.delete("x = 3", 0, at)
            database.run_live()
            merged += form(database, "q").state_bytes > 0
            assert live.verify() == 0
            assert live.status()["error"] is None
        stream.append(events(rng, [at + 1000]))
        database.run_live()
        net = live.net().drop_columns(["_time", "_id", "_rev"]).to_pylist()
        said = database.sql(sql).arrow().to_pylist()
        last = [row for row in said if row["window_start"] + 25 < at + 1000]
        assert sorted(map(told, net)) == sorted(map(told, last))
    assert merged >= 2 if name in KEPT else merged == 0


def test_an_event_before_what_is_kept_is_a_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows on both sides of the border, in one step."""
    with chronicle.open(tmp_path / "store") as database:
        rng = random.Random(1)
        stream = database.create_stream("s", SCHEMA, time="t")
        live = database.create_live("q", KEPT["hop"], idle="never")
        stream.append(events(rng, list(range(2_000))))
        database.run_live()
        stream.append(events(rng, [1_700]))
        database.run_live()
        kept = form(database, "q")._kept
        assert kept is not None
        border = kept.first
        monkeypatch.setattr(window_form, "KEPT_EVENTS_MAX", 10)
        for ticks in ([border - 3, border, border + 200], [40, border - 1], [border - 12]):
            stream.append(events(rng, ticks))
            database.run_live()
            assert live.verify() == 0
        assert form(database, "q")._kept is kept
        assert kept.first == border


def test_groups_are_few_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of them those of earlier windows are let go, and read again when late."""
    monkeypatch.setattr("chronicle.query.windows.group_cache.GROUPS_MAX", 40)
    with chronicle.open(tmp_path / "store") as database:
        rng = random.Random(2)
        stream = database.create_stream("s", SCHEMA, time="t")
        live = database.create_live("q", KEPT["tumble"], idle="never")
        first = []
        for at in range(0, 3_000, 100):
            stream.append(events(rng, list(range(at, at + 100))))
            stream.append(events(rng, [max(0, at - 35), max(0, at - 30)]))
            database.run_live()
            assert live.verify() == 0
            kept = form(database, "q")._kept
            first.append(0 if kept is None else kept.first)
        assert first[-1] > 2_000
