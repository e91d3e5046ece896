"""History through indexes: whatever is looked up and replayed, the rows are those of the stream.

Random streams in a store of small leaves, with and without indexes, partly in memory, perhaps with
late events; the random patterns of the differential test, with a window; every strategy.
"""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import SqlError
from chronicle.query.replay import situation_intervals
from chronicle.query.situations.matching import MatchBatch
from chronicle.query.situations.stream import Before, Certifier

from ...rounds import LONG, rounds
from .test_situations_differential import random_case

STRATEGIES = ("all", "auto")
SCHEMA = pa.schema(
    [("t", pa.int64()), ("p", pa.string()), ("v", pa.int64())]
    + [(name, pa.float64()) for name in "abcd"]
)


def stream(seed: int, count: int = 12_000) -> pa.Table:
    """Conditions hold rarely, for some rows at a time, each name at its own rate."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 40, count)
    time = np.cumsum(rng.choice([0, 0, 1, 1, 2, 40], count, p=[0.2, 0.2, 0.3, 0.2, 0.09, 0.01]))
    columns: dict[str, pa.Array] = {}
    for name, rate in zip("abcd", rng.permutation([0.0005, 0.004, 0.05, 0.4]), strict=True):
        state = np.zeros(40, np.int64)
        values = np.zeros(count)
        draws = rng.random(count)
        for i in range(count):
            key = keys[i]
            if state[key]:
                state[key] -= 1
            elif draws[i] < rate / 5:
                state[key] = 5
            values[i] = float(state[key] > 0)
        columns[name] = pa.array(values, mask=rng.random(count) < 0.001)
    names = pa.array([None if key == 7 else f"k{key}" for key in keys], pa.string())
    return pa.table({"t": time, "p": names, "v": np.arange(count), **columns}, SCHEMA)


@pytest.mark.parametrize("seed", range(5) if LONG else (0, 3))
def test_every_plan_gives_the_rows_of_a_full_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    if seed >= 3:  # half of the events have a 1: reading around all that is found hardly pays
        monkeypatch.setattr(situation_intervals, "BY_TIME_MOST", 10)
    table = stream(seed)
    seen = replayed = 0
    with chronicle.open(tmp_path) as db:
        s = db.create_stream("s", SCHEMA, time="t", options={"leaf_bytes": 8192})
        s.append(table.slice(0, 10_000))
        s.flush()
        for name in "abcd":
            if rng.random() < 0.7:
                s.create_index(name)
        s.append(table.slice(10_000))
        if seed >= 3:  # late
            for place in rng.sample(range(6_000, 6_300 if seed == 3 else 8_000), 3):
                s.append(table.slice(place, rng.choice([1, 5])))
        for number in range(1000 * seed, 1000 * seed + rounds(9, 25)):
            case = random_case(number)
            window = rng.choice((10, 60, 300))
            text = case.text.replace(f"WITHIN {case.pattern.within}", "")
            text = text.replace(" EMIT", f" WITHIN {window} EMIT").replace("DEFINE", "DEFINE", 1)
            if case.pattern.gap is not None:  # GAP stands behind WITHIN
                text = text.replace(f"GAP {case.pattern.gap} ", "")
                text = text.replace(" EMIT", f" GAP {case.pattern.gap} EMIT")
            if rng.random() < 0.3:
                text = text.replace("a = 1", "a = 1 AND v > PREV(v, 2)")
            query = f"SELECT {{}} * FROM s MATCH_SITUATIONS ({text})"
            try:
                wanted = db.sql(query.format("/*+ strategy(replay) */")).arrow()
            except SqlError as error:
                if "nothing can satisfy" in str(error):
                    continue
                raise
            seen += wanted.num_rows
            for strategy in STRATEGIES:
                result = db.sql(query.format(f"/*+ strategy({strategy}) */"))
                found = result.arrow()
                assert found.equals(wanted), (number, strategy, text)
                replayed += "whole stream:" not in str(result.plan)
    assert seen > 10
    assert replayed > 5


@pytest.mark.parametrize("keys", [1, 4])
@pytest.mark.parametrize("gap", ["", "GAP 3", "GAP 5"])
@pytest.mark.parametrize("indexed", [True, False])
def test_a_run_cut_by_its_interval_is_not_believed(
    tmp_path: Path, keys: int, gap: str, indexed: bool
) -> None:
    """A begins long before the window: seen from within, it seems to begin there."""
    count = 40_000
    a, b = np.zeros(count), np.zeros(count)
    a[100:30_000] = a[35_000:35_100] = 1
    b[29_990:30_010] = b[35_050:35_150] = 1
    key = np.arange(count) % keys
    table = pa.table({"t": np.arange(count), "k": key, "a": a, "b": b})
    with chronicle.open(tmp_path) as db:
        s = db.create_stream("s", table.schema, time="t", options={"leaf_bytes": 16384})
        s.append(table)
        if indexed:
            s.create_index("b")
        by = "PARTITION BY k" if keys > 1 else ""
        query = f"""SELECT {{}} a_started FROM s MATCH_SITUATIONS ({by}
            PATTERN (A INTERSECTS B) WITHIN 500 {gap} EMIT ON DETECTION
            DEFINE A AS a > 0.5, B AS b > 0.5)"""
        full = db.sql(query.format("/*+ strategy(replay) */")).fetchall()
        result = db.sql(query.format("/*+ strategy(all) */"))
        assert result.fetchall() == full
        assert "whole stream" not in str(result.plan)
        if gap != "GAP 3" or keys == 1:
            assert {row[0] for row in full} == set(range(35_000, 35_000 + keys))


@pytest.mark.parametrize("emit", ["COMPLETION", "DETECTION"])
@pytest.mark.parametrize("late", [False, True])
def test_an_end_is_looked_up_where_it_is_rarer(tmp_path: Path, emit: str, late: bool) -> None:
    """A nearly always holds: the rows at which it does not are few, nulls among them."""
    count = 60_000
    rng = np.random.default_rng(3)
    a = np.ones(count)
    holes = np.zeros(count, np.bool_)
    for number, place in enumerate(rng.integers(0, count - 100, 12)):
        a[place] = 0
        holes[place + 70] = number % 2  # of the same partition
        a[place + 70] = number % 2
    b = (rng.random(count) < 0.3).astype(np.float64)
    table = pa.table(
        {"t": np.arange(count), "k": np.arange(count) % 7, "a": pa.array(a, mask=holes), "b": b}
    )
    with chronicle.open(tmp_path) as db:
        s = db.create_stream("s", table.schema, time="t", options={"leaf_bytes": 16384})
        s.append(table)
        s.create_index("a")
        if late:
            s.append(table.slice(30_000, 40).set_column(2, "a", pa.array([0.0] * 40)))
        query = f"""SELECT {{}} * FROM s MATCH_SITUATIONS (PARTITION BY k
            PATTERN (A BEFORE B) WITHIN 400 EMIT ON {emit}
            DEFINE A AS a >= 0.5 LASTING AT MOST 300, B AS b > 0.5)"""
        full = db.sql(query.format("/*+ strategy(replay) */")).arrow()
        result = db.sql(query.format("/*+ strategy(all) */"))
        assert result.arrow().equals(full)
        assert full.num_rows > 20
        assert "end of A: " in str(result.plan).split("Replay")[1]
        gap = query.format("/*+ strategy(all) */").replace(" EMIT", " GAP 50 EMIT")
        assert "end of A: " not in str(db.explain(gap)).split("Replay")[1]


@pytest.mark.parametrize(("gap", "certain"), [(None, [2]), (4, [1, 2]), (5, [2])])
def test_a_situation_begins_behind_a_gap_or_a_row_without_it(
    gap: int | None, certain: list[int]
) -> None:
    """Three matches from tick 95; of their partitions, the row before is known."""

    class Rows(Certifier):
        def rows_before(self, groups: np.ndarray, rows: np.ndarray) -> list[Before]:
            before = {0: (1, 91), 1: (1, 90), 2: (0, 91)}
            return [before[group] for group in groups.tolist()]

    ones = np.ones((3, 1), np.int64)
    found = MatchBatch(
        np.arange(3), 95 * ones, 99 * ones, ones == 0, ones, ones, ones, ones[:, 0], ones[:, 0]
    )
    compiled: Any = SimpleNamespace(gap=gap)
    assert Rows(compiled).certified(found).group.tolist() == certain


def test_a_match_can_become_known_between_events() -> None:
    """Up to the tick before the event that follows an interval, or to the end of the stream."""
    spans = SimpleNamespace(starts=np.array([2, 50, 90]), ends=np.array([4, 60, 100]))
    intervals = SimpleNamespace(spans=spans, by_time={1: (495, 520)})
    timeline = SimpleNamespace(tick=lambda row: 10 * row, total=100)
    snapshot: Any = SimpleNamespace(time_range=(0, 995))
    plan: Any = SimpleNamespace(intervals=intervals, timeline=timeline)
    compiled: Any = SimpleNamespace(reach=7)
    instants = situation_intervals.instants_of(snapshot, compiled, plan)
    assert instants == [(20, 39), (495, 599), (900, 995)]
