"""Many late events of one commit: compared with what was said in few regions, and right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import chronicle

SCHEMA = pa.schema([pa.field("t", pa.int64(), False), pa.field("n", pa.int64())])
WINDOWS = (
    "SELECT window_start, count(*) AS c, sum(n)::BIGINT AS s FROM TUMBLE(s, t, 50) GROUP BY "
    "window_start, window_end"
)
MATCHES = (
    "SELECT a, b FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a, B.t AS b PATTERN (A B) "
    "WITHIN 40 DEFINE A AS n < 20, B AS n > 70)"
)


@pytest.mark.parametrize("sql", ["SELECT t, n FROM s WHERE n < 30", WINDOWS, MATCHES])
@pytest.mark.parametrize("late", ["correct", 2_000])
def test_many_late_events_make_few_regions(tmp_path: Path, sql: str, late: str | int) -> None:
    rng = np.random.default_rng(4)
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        times = np.arange(0, 40_000, 10)
        stream.append(pa.table([times, rng.integers(0, 100, len(times))], schema=SCHEMA))
        live = database.create_live("q", sql, late=late)
        database.run_live()
        before = database.live_statements.figures("q")["reconciles"]
        times = np.sort(rng.integers(0, 39_000, 400))
        stream.append(pa.table([times, rng.integers(0, 100, 400)], schema=SCHEMA))
        database.run_live()
        regions = database.live_statements.figures("q")["reconciles"] - before
        if late == "correct":
            assert 1 <= regions <= 2
            assert live.verify() == 0


def test_events_far_apart_stay_apart(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        times = np.arange(0, 300_000, 10)
        stream.append(pa.table([times, times], schema=SCHEMA))
        live = database.create_live("q", "SELECT t, n FROM s WHERE n < 30")
        database.run_live()
        before = database.live_statements.figures("q")["reconciles"]
        stream.append([{"t": t, "n": 1} for t in (5, 7, 120_000, 120_500, 290_000)])
        database.run_live()
        assert database.live_statements.figures("q")["reconciles"] - before == 3
        assert live.verify() == 0
