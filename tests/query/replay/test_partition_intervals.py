"""Intervals of single partitions: rare patterns among many interleaved partitions, and the tail."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.query.pattern.compiled import compile_match
from chronicle.query.replay import run_plan
from chronicle.query.replay.context import Costs
from chronicle.query.replay.planning import plan_match
from chronicle.query.replay.run_plan import ReplayRun, run_match
from chronicle.query.sql.match_clause import clause_of_text
from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store

from ...new_stores import timed
from .conftest import Opened

SCHEMA = timed(k=pa.string(), g=pa.int32(), x=pa.int64())
RARE = (
    "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY {} ORDER BY t{} MEASURES MATCH_NUMBER() AS n, "
    "FIRST(t) AS f, LAST(t) AS l{} PATTERN ({}) {} DEFINE A AS x = 7, B AS x = 8)"
)


def crowd(events: int, partitions: int, seed: int = 3) -> pa.Table:
    """Interleaved partitions; one event in two thousand is a 7, and now and then an 8 follows."""
    rng = np.random.default_rng(seed)
    key = rng.integers(0, partitions, events)
    x = rng.integers(100, 200, events)
    x[rng.random(events) < 0.0005] = 7
    order = np.argsort(key, kind="stable")
    after = np.flatnonzero((x[order][:-1] == 7) & (key[order][1:] == key[order][:-1]))
    x[order[after[::3] + 1]] = 8
    names = np.array([f"p{i:05}" for i in range(partitions)], object)[key]
    names[key == 0] = None
    return pa.table(
        {"t": np.sort(rng.integers(0, events, events)), "k": names, "g": key % 5, "x": x}
    ).cast(SCHEMA.arrow)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("crowd")
    store = Store.open(path, "rw")
    stream = store.create_stream("s", SCHEMA, StreamOptions(leaf_bytes=1 << 18))
    stream.append(crowd(200_000, 10_000))
    indexes = StreamIndexes(path / "idx", True)
    indexes.create("x", SCHEMA)
    indexes.catch_up(stream.snapshot().state)
    yield stream.snapshot(), indexes
    indexes.close()
    store.close()


def answers(
    snapshot: Any, text: str, indexes: Any, strategy: str
) -> tuple[list[Any], Any, ReplayRun]:
    compiled = compile_match(clause_of_text(text), SCHEMA)
    plan = plan_match(snapshot, compiled, indexes, strategy, costs=Costs(runs=8.0))
    run = ReplayRun()
    batches = run_match(snapshot, compiled, plan, run=run)
    return [row for batch in batches for row in batch.to_pylist()], plan, run


@pytest.mark.parametrize(
    ("by", "more", "measures", "pattern", "within"),
    [
        ("k", "", "", "A B", "WITHIN 60000"),
        ("k", "", "", "A B", ""),
        ("k", "", "", "A C* B", "WITHIN 60000 DEFINE C AS x > PREV(x)"),
        ("k", "", "", "A Z* B", "WITHIN 60000"),
        ("g, k", "", ", B.x AS x", "A Z*? B", "WITHIN 60000"),
        ("k", "", ", C.x AS x", "A Z* (C Z*)* B", "WITHIN 60000 DEFINE C AS x = 150"),
        ("k", "", ", count(*) AS c", "A Z* B", "WITHIN 60000"),
        ("k", "", ", MATCH_ID() AS i", "A Z*? B", "WITHIN 60000"),
        ("g, k", "", ", PREV(FIRST(x), 2) AS p, NEXT(LAST(x)) AS q", "A B", "WITHIN 60000"),
        ("k", "", "", "^ A B", "WITHIN 100000"),
        ("k, g", ", x DESC", "", "A B", "WITHIN 30000"),
        ("k", "", "", "A B", "WITHIN 60000 EVENT SELECTION SKIP TILL ANY MATCH"),
    ],
)
def test_ten_thousand_partitions_and_a_rare_pattern(
    crowded: Any, by: str, more: str, measures: str, pattern: str, within: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    snapshot, indexes = crowded
    monkeypatch.setattr(run_plan, "FIRST_EVENTS", 3)  # few are read at a time
    monkeypatch.setattr(run_plan, "PIECE_EVENTS", 1 << 12)
    within, _, define = within.partition(" DEFINE ")
    text = RARE.format(by, more, measures, pattern, within)
    if define:
        text = text[:-1] + f", {define})"
    expected, _, full = answers(snapshot, text, indexes, "replay")
    assert expected or "^" in pattern
    assert full.given == snapshot.count
    for strategy in ("all", "auto"):
        found, plan, run = answers(snapshot, text, indexes, strategy)
        assert found == expected
        assert plan.partitions is not None, plan.reason
        assert run.given < 0.01 * snapshot.count
        only = "Z" in pattern and not any(one in measures for one in ("count", "ID", "C.x"))
        assert (plan.partitions.deciding is not None) == only
        told = dict(plan.figures(run.given))
        assert told["events_replayed"] == run.given
        assert told["events_in_spans_read"] == run.events


def test_zeros_and_nans_of_all_kinds_are_one_partition_each(opened: Opened) -> None:
    nan = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    schema = StreamSchema(
        pa.schema([("t", pa.int64()), ("f", pa.float64()), ("x", pa.int64())]), "t"
    )
    stream, indexes = opened(schema, "x", leaf_bytes=4096)
    x = np.full(3000, 9)
    x[[1000, 1002, 2000, 2001]] = [7, 8, 7, 8]
    f = np.arange(3000).astype(np.float64) + 5
    f[[1000, 1002, 2000, 2001]] = [0.0, -0.0, *nan]
    stream.append(pa.table({"t": np.arange(3000), "f": f, "x": x}).cast(schema.arrow))
    indexes.catch_up(stream.snapshot().state)
    snapshot = stream.snapshot()
    text = RARE.format("f", "", "", "A B", "WITHIN 9").replace("FIRST(t) AS f", "FIRST(t) AS a")
    compiled = compile_match(clause_of_text(text), schema)
    plan = plan_match(snapshot, compiled, indexes, "all", gap=0)
    rows = [row for part in run_match(snapshot, compiled, plan) for row in part.to_pylist()]
    assert plan.partitions is not None
    assert [(row["a"], row["l"]) for row in rows] == [(1000, 1002), (2000, 2001)]


def test_a_small_tail_is_looked_at_and_not_replayed(opened: Opened) -> None:
    table = crowd(60_000, 300, seed=8)
    stream, indexes = opened(SCHEMA, "x", leaf_bytes=1 << 16)
    stream.append(table.slice(0, 50_000))
    stream.seal()
    indexes.catch_up(stream.snapshot().state)
    for at in range(50_000, 51_500, 300):
        stream.append(table.slice(at, 300))
    snapshot = stream.snapshot()
    tail = snapshot.state.tail_events
    assert tail == 1500
    last = int(table["t"][51_499].as_py())
    hit = pa.table({"t": [last, last + 1], "k": ["p1", "p1"], "g": [1, 1], "x": [7, 8]})
    stream.append(hit.cast(SCHEMA.arrow))
    for at_hand in (snapshot, stream.snapshot()):
        for by in ("PARTITION BY k", ""):
            text = RARE.format("k", "", "", "A B", "WITHIN 2000").replace("PARTITION BY k", by)
            expected, _, _ = answers(at_hand, text, indexes, "replay")
            found, plan, run = answers(at_hand, text, indexes, "all")
            assert found == expected
            assert plan.covered > 0.9
            read = plan.metrics.events_evaluated
            assert 0 < read <= 2 * at_hand.state.tail_events
            if by:
                assert run.given < 0.05 * at_hand.count
    assert any(row["l"] == last + 1 for row in expected)


def test_landings_replay_a_tenth_of_the_flights_at_most(tmp_path: Path) -> None:
    root = Path(chronicle.__file__).parent
    data = root.parent / "shared/data/opensky-switzerland.json.gz"
    if not data.exists():
        pytest.skip("the flights are not here")
    spec = importlib.util.spec_from_file_location("landing", root / "docs/landing.py")
    assert spec is not None
    assert spec.loader is not None
    landing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(landing)
    schema = pa.schema(
        [("timestamp", pa.timestamp("ms")), ("icao24", pa.string()), ("altitude", pa.float64())]
    )
    with chronicle.open(tmp_path) as db:
        flights = db.create_stream("flights", schema, time="timestamp")
        flights.append(landing.load(str(data)).sort_by("timestamp"))
        expected = db.sql(landing.QUERY.replace("SELECT", "SELECT /*+ strategy(replay) */", 1))
        rows = expected.arrow().to_pylist()
        assert rows
        for indexed in (False, True):
            if indexed:
                flights.create_index("altitude")
            for _ in "12":  # from the second run on, lookups pay
                assert db.sql(landing.QUERY).arrow().to_pylist() == rows
            text = str(db.explain(landing.QUERY, analyze=True))
            share = float(text.split("share replayed ")[1].split(",")[0])
            assert 0 < share < 0.1
            assert ("(no index: evaluated)" in text) is not indexed
